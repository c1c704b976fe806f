"""Writing to a session, wherever its run is played: here, or through the server that plays it.

at rest ──claimed──► written here            running here ──► written here
                                             running elsewhere ──► asked of the server that has it
"""

from types import TracebackType
from typing import assert_never

from dragoman.core import admission
from dragoman.core.admission import InputLimits
from dragoman.core.events import Replay, RunQueued, SettingsChange, SettingsChanged
from dragoman.core.ids import RunId
from dragoman.core.refusals import SessionBusy
from dragoman.engine.cluster.cluster import Neighbours
from dragoman.engine.cluster.remote_commands import Done, Enqueue, Moved, Order, Pace, Stop
from dragoman.engine.runs.runner import Runs
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports import Once, SessionIndex


class Writers:
    """See the module. Without neighbours every session is written here, and nothing is waited for."""

    def __init__(self, runs: Runs, index: SessionIndex, limits: InputLimits) -> None:
        self.neighbours: Neighbours | None = None
        self._runs = runs
        self._index = index
        self._limits = limits

    def writing(self, live: LiveSession) -> "Writing":
        """Have a session to oneself to write to it, unless its run is played by another server (`is_elsewhere`).

        Entering raises:
            SessionNotFound: it was deleted.
            StoreUnavailable: it cannot be claimed now.
        """
        return Writing(self, live)

    async def claim(self, live: LiveSession) -> None:
        """Have it again, after a time in which it may have been let go of."""
        if self.neighbours is not None:
            await self.neighbours.owns(live)

    def has(self, live: LiveSession) -> bool:
        """Whether the session may be written here now."""
        return self.neighbours is None or self.neighbours.has(live)

    async def stop(self, live: LiveSession, run_id: RunId | None, *, unwatched: bool = False) -> bool:
        """See `Engine.stop_run`."""
        while not (unwatched and await self._is_watched(live)):
            async with self.writing(live):
                if self.neighbours is None or not live.is_elsewhere:
                    return await self._runs.stop(live, run_id)
            done = await self.neighbours.orders.ask(live, Stop(run_id, unwatched))
            if done is not None:
                return done.has_effect
        return False

    async def enqueue(self, live: LiveSession, queued: RunQueued, once: Once | None) -> int | None:
        """Let a run wait for the end of one that is played elsewhere; its event. None: there is no such run now."""
        assert self.neighbours is not None, "there is an elsewhere"
        done = await self.neighbours.orders.ask(live, Enqueue(queued, once))
        if done is not None:
            return done.seq
        row = await self._index.run(queued.run_id)  # who was asked may have died between doing it and saying so
        return None if row is None else row.first_seq

    async def pace(self, live: LiveSession, replay: Replay) -> None:
        """See `Engine.pace`."""
        while True:
            async with self.writing(live):
                if not live.is_elsewhere:
                    await self._pace(live, replay)
                    return
            assert self.neighbours is not None, "there is an elsewhere"
            if await self.neighbours.orders.ask(live, Pace(replay)) is not None:
                return

    async def perform(self, live: LiveSession, order: Order) -> Done | Moved:
        """Do what another server asks of a session whose run is played here."""
        match order:
            case Stop(run_id, unwatched):
                is_watched = unwatched and live.readers > 0  # who asks for this has looked at all the others
                has_effect = not is_watched and await self._runs.stop(live, run_id)
                return Done(live.state.seq, has_effect)
            case Pace(replay):
                await self._pace(live, replay)
                return Done(live.state.seq)
            case Enqueue(queued, once):
                row = await self._index.run(queued.run_id)
                if row is not None:  # it was done before, and its answer did not get through
                    return Done(row.first_seq)
                if not admission.is_busy(live.state):
                    return Moved()
                if len(live.state.queue) >= self._limits.queued:
                    raise SessionBusy(f"{self._limits.queued} runs of this session wait already")
                seq = live.append((queued,), queued.run_id, once=once)
                await live.until_durable(seq)
                return Done(seq)
            case _ as never:
                assert_never(never)

    async def _is_watched(self, live: LiveSession) -> bool:
        return live.readers > 0 if self.neighbours is None else await self.neighbours.is_watched(live)

    async def _pace(self, live: LiveSession, replay: Replay) -> None:
        if replay != live.state.settings.replay:
            live.append((SettingsChanged(change=SettingsChange(replay=replay)),), None)
        await live.until_durable(live.state.seq)


class Writing:
    """See `Writers.writing`."""

    __slots__ = ("_live", "_writers")

    def __init__(self, writers: Writers, live: LiveSession) -> None:
        self._writers = writers
        self._live = live

    async def __aenter__(self) -> None:
        await self._writers.claim(self._live)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writers.neighbours is not None:
            self._writers.neighbours.let_go(self._live)
