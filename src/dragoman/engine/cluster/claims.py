"""Claims on sessions: before this server writes to a session, it makes sure that no other server does.

A session's run is executed by one server, which alone writes to the session while it lives. A session at rest may be
written by any server: the writer claims it first, which takes one statement. A server that is alone claims nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Literal
from weakref import WeakValueDictionary

from dragoman.core.ids import SessionId
from dragoman.core.refusals import SessionNotFound, StoreUnavailable
from dragoman.engine.background_tasks import BackgroundTasks
from dragoman.engine.cluster.log_tailer import LogTailer
from dragoman.engine.cluster.ownership import Ownership
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.ports.cluster import SessionClaims

CLAIM_TIMEOUT_S = 8.0
"""How long to wait for a session that another server is about to write, or for a lost lease."""
RETRY_DELAY_S = 0.03
"""Pause between two attempts."""
CLAIM_VALID_S = 4.0
"""How long this server relies on a claim on a session at rest; shorter than the store's reservation."""

_Outcome = Literal["claimed", "runs elsewhere", "reserved"]
"""How an attempt to claim a session ended. `reserved`: another writer has it for a moment; try again."""


class SessionClaimer:
    """Claims and releases sessions for this server."""

    def __init__(
        self,
        store: SessionClaims,
        *,
        sessions: SessionRegistry,
        ownership: Ownership,
        log_tailer: LogTailer,
        take_over: Callable[[LiveSession], None],
        wait_until_joined: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._ownership = ownership
        self._log_tailer = log_tailer
        self._take_over = take_over
        self._wait_until_joined = wait_until_joined
        self._locks: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()
        self.release_tasks = BackgroundTasks()
        """Release claims that turned out to be unnecessary."""

    def close(self) -> None:
        """Abandon pending releases; the store releases the sessions after a few seconds."""
        self.release_tasks.cancel()

    def may_write(self, live: LiveSession) -> bool:
        """Whether this server may write the session now. Storing a session at rest releases the claim on it."""
        if live.is_remote:
            return False
        is_running = live.state.run is not None or bool(live.state.queue)
        return is_running or self._ownership.is_known_current(live) or time.monotonic() < live.claimed_until

    async def claim(self, live: LiveSession) -> bool:
        """Claim a session in order to write to it at once; `release` follows. False: another server runs it.

        Raises:
            SessionNotFound: it was deleted.
            StoreUnavailable: it cannot be claimed now.
        """
        await self._wait_until_joined()
        deadline = time.monotonic() + CLAIM_TIMEOUT_S
        while True:
            live.raise_if_ended()
            if self._ownership.is_known_current(live):
                live.epoch = self._sessions.epoch
            if self.may_write(live):
                return True
            if not live.is_clean:
                await live.next_commit()
                continue
            async with self._locks.setdefault(live.state.session_id, asyncio.Lock()):
                outcome = "claimed" if self.may_write(live) else await self._try_claim(live)
            if outcome != "reserved":
                return outcome == "claimed"
            if time.monotonic() > deadline:
                raise StoreUnavailable("another server is writing to the session")
            await asyncio.sleep(RETRY_DELAY_S)

    async def _try_claim(self, live: LiveSession) -> _Outcome:
        """Try once to claim a session, as `claim` does."""
        live.raise_if_ended()
        if not live.is_clean:
            return "reserved"
        begun = time.monotonic()
        session_id = live.state.session_id
        claimed = await self._store.claim_session(session_id)
        if claimed is None:
            self._log_tailer.remove_deleted(live)
            raise SessionNotFound
        if claimed.epoch is None and not claimed.is_running:
            return "reserved"
        if claimed.epoch is not None:
            live.epoch = self._record_epoch(claimed.epoch)
        is_same = claimed.created_at == live.state.created_at
        is_current = claimed.epoch is not None and not claimed.is_running and claimed.seq == live.durable_cursor.seq
        if not (is_same and is_current):
            await self._catch_up(live, claimed.epoch)
        if claimed.epoch is None:
            return "runs elsewhere" if live.is_remote else "reserved"
        self._ownership.mark_current(session_id)
        live.is_remote = False
        live.claimed_until = begun + CLAIM_VALID_S
        if self._ownership.is_ours(live):
            self._take_over(live)
        return "claimed"

    async def _catch_up(self, live: LiveSession, epoch: int | None) -> None:
        """Read what other servers have written to a session, which is claimed with that epoch."""
        session_id = live.state.session_id
        try:
            while session_id not in await self._log_tailer.fetch_updates([live]):
                live.raise_if_ended()
        except SessionNotFound:
            if epoch is not None:  # the claim is on a new session of the same id
                self._release_in_background(session_id, epoch)
            raise

    def release(self, live: LiveSession) -> None:
        """Release a claimed session if nothing was written to it. A write releases the claim by itself.

        A session whose run waits for an agent that is not served here is left to the server that serves it.
        """
        if live.is_clean and not live.has_ended and not live.is_remote and self._sessions.waits_for_agent(live):
            live.is_remote, live.claimed_until = True, 0.0
            self._run_in_background(partial(self._store.abandon_session, live.state.session_id, live.epoch))
        elif live.claimed_until and not live.has_ended and not self._ownership.is_ours(live):
            live.claimed_until = 0.0
            self._release_in_background(live.state.session_id, live.epoch)

    async def claim_run(self, session_id: SessionId) -> int | None:
        """Claim a session whose run has no living server. Returns the claim's epoch; None: a server has the run."""
        await self._wait_until_joined()
        claimed = await self._store.claim_session(session_id)
        if claimed is None or claimed.epoch is None:
            return None
        if not claimed.is_running:  # the run ended meanwhile; the next writer must not wait for this claim to expire
            self._release_in_background(session_id, claimed.epoch)
        return self._record_epoch(claimed.epoch)

    def _record_epoch(self, epoch: int) -> int:
        """Keep the registry's epoch the latest of this server's, which it writes with once it is alone."""
        self._sessions.epoch = max(self._sessions.epoch, epoch)
        return epoch

    def _release_in_background(self, session_id: SessionId, epoch: int) -> None:
        self._run_in_background(partial(self._store.release_session, session_id, epoch))

    def _run_in_background(self, release: Callable[[], Awaitable[None]]) -> None:
        self.release_tasks.start(_suppress_unavailable(release), "release")


async def _suppress_unavailable(release: Callable[[], Awaitable[None]]) -> None:
    with suppress(StoreUnavailable):  # the reservation expires after a few seconds anyway
        await release()
