"""The sessions in memory: loaded on demand, and unloaded when they are not used.

There is never a second object for a session, because each is the only writer of its log.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol

import structlog

from dragoman.core.events import LoggedEvent
from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import SessionUnreadable, ShuttingDown, StoreUnavailable
from dragoman.core.session import SessionState
from dragoman.engine.background_tasks import BackgroundTasks
from dragoman.engine.instrumentation.unreadable import report_unreadable
from dragoman.engine.sessions.group_commit import GroupCommitter
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.view import DeletionWatcher, Watcher
from dragoman.ports.environment import Clock
from dragoman.ports.log import EventLog, Snapshot

MIN_RECENT_SESSIONS = 16
"""Most recently used sessions that are never unloaded: the caller may not have taken its reference yet."""
RELOAD_DELAY_S = 0.5
"""First pause before a session is reloaded after a failed commit; it doubles with each attempt."""
MAX_RELOAD_ATTEMPTS = 1000
"""Attempts to reload: for most of a day."""

log = structlog.get_logger(__name__)


class ClusterView(Protocol):
    """What the registry must know of the other servers on the store."""

    @property
    def is_shared(self) -> bool:
        """Whether there can be other servers on the store."""

    @property
    def is_alone(self) -> bool:
        """Whether no other server is alive, as far as this one knows."""

    async def current_states(self, states: Sequence[SessionState]) -> list[SessionState]:
        """Return sessions' current states, given those of their last rest."""

    async def refresh(self, live: LiveSession) -> None:
        """Read what other servers wrote to a session."""

    async def claim_run(self, session_id: SessionId) -> int | None:
        """Claim a session whose run has no living server. Returns the claim's epoch; None: a server has the run."""


class SessionRegistry:
    """The sessions in memory.

    Args:
        log: stores all sessions.
        max_sessions: how many sessions stay in memory, not counting those with a run or a reader.
        take_over: resumes the run that a session had when it was last in memory.
        is_served: whether this server serves an agent, and may execute its runs.
    """

    def __init__(
        self,
        log: EventLog,
        committer: GroupCommitter,
        clock: Clock,
        cluster: ClusterView,
        *,
        max_sessions: int,
        take_over: Callable[[LiveSession], None],
        is_served: Callable[[str], bool],
    ) -> None:
        self.epoch = 0
        """This server's claim on the store."""
        self.is_closed = False
        """Whether sessions are no longer reloaded after a failed commit."""
        self.watchers: list[Watcher] = []
        self.deletion_watchers: list[DeletionWatcher] = []
        self._cluster = cluster
        self._log = log
        self._committer = committer
        self._clock = clock
        self._max_sessions = max_sessions
        self._take_over = take_over
        self._is_served = is_served
        self._live: OrderedDict[SessionId, LiveSession] = OrderedDict()
        self._loading: dict[SessionId, asyncio.Task[bool]] = {}
        self._reloads = BackgroundTasks()

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[LiveSession]:
        return iter(self._live.values())

    def __contains__(self, session_id: SessionId) -> bool:
        return session_id in self._live

    def close(self) -> None:
        """Cancel all loading."""
        self._reloads.cancel()
        for task in self._loading.values():
            task.cancel()

    # --- loading and unloading ------------------------------------------------------------------------------------

    def add(self, live: LiveSession) -> None:
        """Add a session."""
        self._make_room()
        live.on_failed = self._on_failed
        live.on_events = self.notify_watchers
        self._live[live.state.session_id] = live

    def remove(self, live: LiveSession) -> None:
        """Remove a session."""
        if self._live.get(live.state.session_id) is live:
            del self._live[live.state.session_id]

    def get_loaded(self, session_id: SessionId) -> LiveSession | None:
        """The session, if it is in memory and has not failed."""
        live = self._live.get(session_id)
        return None if live is None or live.has_ended else live

    def current_state(self, stored: SessionState) -> SessionState:
        """A session's state in memory if it is newer than the stored one, else the stored one."""
        live = self.get_loaded(stored.session_id)
        return stored if live is None or live.state.seq < stored.seq else live.state

    async def current_states(self, states: Sequence[SessionState]) -> list[SessionState]:
        """Sessions' current states, whichever server has them."""
        if self._cluster.is_alone:
            return [self.current_state(state) for state in states]
        return await self._cluster.current_states(states)

    async def get(self, session_id: SessionId) -> LiveSession | None:
        """Return a session, loading it if necessary. Concurrent callers share one load.

        A session that is being deleted counts as deleted: loading it would create a second writer.
        """
        while True:
            live = self._live.get(session_id)
            if live is not None and not live.has_ended:
                self._live.move_to_end(session_id)
                await self._cluster.refresh(live)
                if self.get_loaded(session_id) is live:
                    return live
                continue
            if live is not None and live.was_deleted:
                return None
            task = self._loading.get(session_id)
            if task is None:
                task = asyncio.create_task(self._load(session_id), name=f"load {session_id}")
                self._loading[session_id] = task
                task.add_done_callback(lambda _: self._loading.pop(session_id, None))
            try:
                is_there = await asyncio.shield(task)
            except asyncio.CancelledError:
                if task.cancelled() and self.is_closed:  # the caller gets an error; it was not cancelled itself
                    raise ShuttingDown("the server is stopping") from None
                raise
            if not is_there:
                return None
            # Look again: the session may have been unloaded before this task continued.

    async def recover(self, session_id: SessionId) -> None:
        """Load a session with an unfinished run, which resumes it. One that cannot be decoded is left alone."""
        with suppress(SessionUnreadable):  # it has been logged
            await self.get(session_id)

    def count_waiting_runs(self) -> int:
        """The sessions here whose run waits for a server that serves its agent."""
        return sum(self.waits_for_agent(live) for live in self._live.values() if not live.is_remote)

    def waits_for_agent(self, live: LiveSession) -> bool:
        """Whether a session's run is not executed, because this server does not serve its agent."""
        return _is_running(live) and live.run_task is None and not self._is_served(live.state.agent)

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _load(self, session_id: SessionId) -> bool:
        """Load a session. Returns whether there is one."""
        try:
            return await self._load_from_store(session_id)
        except SessionUnreadable as error:
            report_unreadable(error)
            raise

    async def _load_from_store(self, session_id: SessionId) -> bool:
        snapshot = await self._log.load(session_id)
        present = self._live.get(session_id)
        is_in_use = present is not None and (not present.has_ended or present.was_deleted)
        if snapshot is None:
            if present is not None and not is_in_use:  # the commit that should have created it failed
                self.remove(present)
            return False
        if is_in_use:
            return True  # created or being deleted meanwhile: there must be no second writer
        live = self._resume(snapshot, self.epoch)
        if self._cluster.is_shared and _is_running(live):
            epoch = await self._cluster.claim_run(session_id) if self._is_served(live.state.agent) else None
            if epoch is None:
                live.is_remote = True
            else:  # only now the previous server cannot write any more
                snapshot = await self._log.load(session_id)
                if snapshot is None:
                    return False
                live = self._resume(snapshot, epoch)
        self.add(live)
        if _is_running(live) and not live.is_remote:
            self._take_over(live)
        return True

    def _resume(self, snapshot: Snapshot, epoch: int) -> LiveSession:
        session_id = snapshot.head.session_id
        try:
            return LiveSession.from_snapshot(snapshot, epoch, self._committer, self._clock)
        except (ValueError, KeyError) as error:
            raise SessionUnreadable(session_id, f"events that do not follow: {error!r}") from error

    def notify_watchers(self, live: LiveSession, events: Sequence[LoggedEvent]) -> None:
        """Notify the watchers of new events of a session, here or of another server."""
        for watcher in self.watchers:
            try:
                watcher(live, events)
            except Exception:  # a protocol's error must not fail the commit of all sessions
                log.exception("a watcher failed", session_id=live.state.session_id)

    def notify_deleted(self, session_id: SessionId, owner: UserId) -> None:
        """Notify the watchers that a session was deleted, here or by another server."""
        for watcher in self.deletion_watchers:
            try:
                watcher(session_id, owner)
            except Exception:  # a protocol's error must not fail the deletion
                log.exception("a watcher failed", session_id=session_id)

    def _on_failed(self, live: LiveSession) -> None:
        """Reload a session after a failed commit: its run is resumed as after a crash once the store works."""
        if not self.is_closed:
            self._reloads.start(self._reload(live.state.session_id), "reload")

    async def _reload(self, session_id: SessionId) -> None:
        for attempt in range(MAX_RELOAD_ATTEMPTS):
            await asyncio.sleep(min(60.0, RELOAD_DELAY_S * 2**attempt))
            try:
                await self.recover(session_id)
            except StoreUnavailable:
                continue
            return

    def _make_room(self) -> None:
        """Unload the least recently used sessions that have no run and no reader.

        A session that is being deleted stays, so that it is not loaded again in the meantime.
        """
        excess = len(self._live) + 1 - self._max_sessions
        if excess <= 0:
            return
        old = len(self._live) - MIN_RECENT_SESSIONS
        for session_id, live in list(islice(self._live.items(), max(0, min(old, excess + 16)))):
            if (live.is_idle or live.has_ended) and not live.was_deleted:
                del self._live[session_id]
                excess -= 1
                if excess <= 0:
                    return


def _is_running(live: LiveSession) -> bool:
    return live.state.run is not None or bool(live.state.queue)
