"""A second client of a session, which only reads: its stream covers all turns and all lives of the server."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.crash.client import ConnectionBroken, open_request
from tests.crash.client_records import RunRecord, SessionRecord, Violation
from tests.crash.server_availability import ServerAvailability
from tests.protocols.aap.stream import Frame


@asynccontextmanager
async def watch(session: SessionRecord, rng: random.Random, availability: ServerAvailability) -> AsyncIterator[None]:
    """Watch a session during the block. Raises Violation if the stream differs from what happened."""
    watcher = Watcher(session, random.Random(rng.random()), availability)
    watching = asyncio.create_task(watcher.run())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    if not watching.cancelled():
        watching.result()
    watcher.check()


class Watcher:
    """Follows a session from some moment until it is deleted."""

    def __init__(self, session: SessionRecord, rng: random.Random, availability: ServerAvailability) -> None:
        self.session = session
        self.frames_by_run: dict[str, list[Frame]] = {}
        """The events of each turn in the order of the turns. Always as deltas."""
        self._rng = rng
        self._availability = availability
        self._last: str | None = None

    async def run(self) -> None:
        """Watch until cancelled, or until the session is deleted."""
        while True:
            try:
                async with self._availability.open() as port:
                    if await self._watch(port):
                        return
            except ConnectionBroken:
                continue

    async def _watch(self, port: int) -> bool:
        """Watch for some time. True if the session is gone."""
        headers = {} if self._last is None else {"last-event-id": self._last}
        path = f"/sessions/{self.session.session_id}/events?stream=delta"
        leave_after = self._rng.randint(0, 60) if self._rng.random() < 0.3 else None
        read = 0
        async with open_request(port, "GET", path, headers=headers) as exchange:
            if exchange.status != 200:
                answer = await exchange.read_to_end()
                if answer.status == 503:
                    raise ConnectionBroken(answer)
                if answer.status in (400, 404) and self.session.is_deleting:
                    return True  # 400: its events were deleted while its stream was being opened
                raise Violation(f"watching behind {self._last} got {answer} (session {self.session.session_id})")
            async for frame in exchange.frames(is_busy=False):
                self._note(frame)
                read += 1
                if read == leave_after:
                    return False
        if self.session.is_deleting:
            return True
        self._availability.check_draining(f"a watcher's stream ended after {self._last}")
        raise ConnectionBroken("the server stops")

    def _note(self, frame: Frame) -> None:
        run_id, _, number = (frame.id or "").partition("/")
        newest = next(reversed(self.frames_by_run), None)
        if run_id not in self.frames_by_run:
            if newest is not None and self.frames_by_run[newest][-1].event != "turn_stop":
                raise Violation(f"turn {run_id} begins inside of turn {newest}")
            self.frames_by_run[run_id] = []
        elif run_id != newest:
            raise Violation(f"turn {run_id} goes on after turn {newest} began")
        if number != str(len(self.frames_by_run[run_id]) + 1):
            raise Violation(
                f"event {len(self.frames_by_run[run_id]) + 1} of turn {run_id} was expected, got {frame.id}"
            )
        self.frames_by_run[run_id].append(frame)
        self._last = frame.id

    def check(self) -> None:
        """Check that the watched turns have no gaps and equal those that the session's own client received.

        Raises:
            Violation: they differ.
        """
        runs = {run.run_id: run for run in self.session.runs if run.run_id is not None}
        seen = [run_id for run_id in self.frames_by_run if run_id in runs]  # a turn that a deletion ended has no record
        order = list(runs)
        if seen:
            first = order.index(seen[0])
            if order[first : first + len(seen)] != seen:
                raise Violation(f"the turns {order} were watched as {seen}")
        for run_id in seen:
            _compare(self.frames_by_run[run_id], runs[run_id])


def _compare(watched_frames: list[Frame], run: RunRecord) -> None:
    if run.stream_mode != "delta":
        return
    own = [(frame.event, frame.data) for frame in run.frames]
    theirs = [(frame.event, frame.data) for frame in watched_frames]
    if theirs != own[: len(theirs)]:
        raise Violation(f"turn {run.run_id} was seen in two ways: {own} and {theirs}")
