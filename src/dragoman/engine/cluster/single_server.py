"""A server that has its store to itself: nothing to coordinate, every session is its own."""

from collections.abc import Awaitable, Callable, Collection, Sequence

from dragoman.core.ids import SessionId, UserId
from dragoman.core.session import SessionState
from dragoman.engine.cluster.remote_commands import Command, Done, Moved
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.ports.cluster import ClusterStore
from dragoman.ports.log import Append, EventLog, SessionIndex


class SingleServer:
    """Has the interface of `Cluster`, for a store that no other server can use."""

    is_shared = False
    is_alone = True
    abandoned_count = 0
    _sessions: SessionRegistry

    def __init__(self, log: EventLog, index: SessionIndex) -> None:
        self._log = log
        self._index = index

    def connect(
        self,
        sessions: SessionRegistry,
        *,
        agents: Collection[str],
        take_over: Callable[[LiveSession], None],
        perform: Callable[[LiveSession, Command], Awaitable[Done | Moved]],
    ) -> None:
        """Set the sessions in memory; the rest is for other servers."""
        self._sessions = sessions

    async def start(self) -> None:
        """Take the store, and resume the runs that died with the server before."""
        self._sessions.epoch = await self._log.claim_epoch()
        for session_id in await self._index.unfinished_sessions():
            await self._sessions.recover(session_id)

    async def leave(self) -> None:
        """Do nothing: no other server waits for this one's sessions."""

    async def wait_until_joined(self) -> None:
        """Return at once: there is nothing to join."""

    async def wait_for_valid_lease(self) -> None:
        """Return at once: there is no lease."""

    def coordination_store(self) -> ClusterStore | None:
        """Return None: there are no other servers."""
        return None

    def may_write(self, live: LiveSession) -> bool:
        """Return True."""
        return True

    async def claim(self, live: LiveSession) -> bool:
        """Return True."""
        return True

    def release(self, live: LiveSession) -> None:
        """Do nothing."""

    async def claim_run(self, session_id: SessionId) -> int | None:
        """Return the epoch with which this server writes everything."""
        return self._sessions.epoch

    async def send(self, live: LiveSession, command: Command) -> Done | None:
        """Return None: no other server runs anything."""
        return None

    async def refresh(self, live: LiveSession) -> None:
        """Do nothing: what is in memory is current."""

    async def current_states(self, states: Sequence[SessionState]) -> list[SessionState]:
        """Return the states as they are in memory, or as given."""
        return [self._sessions.current_state(state) for state in states]

    async def is_watched(self, live: LiveSession) -> bool:
        """Whether somebody reads a session."""
        return live.reader_count > 0

    async def wait_for_remote_readers(self) -> None:
        """Return at once: all readers are here."""

    def on_taken_over(self, callback: Callable[[LiveSession], None]) -> None:
        """Do nothing: there is nobody to take over from."""

    def show_lists_of(self, owners: Callable[[], Collection[UserId]]) -> None:
        """Do nothing: all changes of lists are made here."""

    def on_commit(self, batch: Sequence[Append]) -> None:
        """Do nothing: nobody else must know."""

    def on_deleted(self, session_id: SessionId, owner: UserId) -> None:
        """Do nothing: nobody else must know."""
