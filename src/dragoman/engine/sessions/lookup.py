"""Finds sessions for users: by id or by name, and only those that the user may see."""

from collections.abc import Awaitable, Callable
from types import TracebackType

from dragoman.core.ids import SessionId, UserId, parse_session_id
from dragoman.core.refusals import Forbidden, Refused, SessionNotFound, SessionUnreadable, StoreUnavailable
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.log import SessionIndex


class SessionLookup:
    """Finds sessions.

    Args:
        sessions: loads them.
        index: finds them by name, and their owners.
        is_shared: whether there can be other servers on the store.
    """

    def __init__(self, sessions: SessionRegistry, index: SessionIndex, *, is_shared: bool) -> None:
        self._sessions = sessions
        self._index = index
        self._is_shared = is_shared

    async def find(
        self, owner: UserId, name: str, *, include_shared: bool = False, reveals_foreign: bool = False
    ) -> LiveSession:
        """Find a session; see `Engine.session`."""
        session_id = parse_session_id(name)
        try:
            live = None if session_id is None else await self._load(session_id)
        except SessionUnreadable as error:
            if await self._index.find_owner(error.session_id) == owner:
                raise
            live = None  # only its owner learns that it exists
        if live is not None and (live.state.owner == owner or (include_shared and live.state.settings.shared)):
            return live
        named = await self._index.find_by_name(owner, name if session_id is None else session_id)
        live = None if named is None else await self._load(named)
        if live is not None:
            return live
        if reveals_foreign and session_id is not None and await self.exists_for_other_owner(owner, session_id):
            raise Forbidden("this is another user's")
        raise SessionNotFound

    async def exists_for_other_owner(self, owner: UserId, session_id: SessionId) -> bool:
        """Whether another owner has a session with that id."""
        live = self._sessions.get_loaded(session_id)
        actual = await self._index.find_owner(session_id) if live is None else live.state.owner
        return actual is not None and actual != owner

    async def _load(self, session_id: SessionId) -> LiveSession | None:
        while True:
            live = await self._sessions.get(session_id)
            if live is None or live.durable_cursor.seq:
                return live
            try:  # it is being created
                await live.until_durable(1)
            except StoreUnavailable:
                if not self._is_shared:
                    raise
                self._sessions.remove(live)  # another server may have created that id first


class Lease:
    """Keeps a session in memory while it is used, so that there is never a second writer. For `with`."""

    __slots__ = ("_live",)

    def __init__(self, live: LiveSession) -> None:
        self._live = live

    def __enter__(self) -> None:
        self._live.reference_count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.reference_count -= 1


class FirstRequest:
    """Keeps a session in memory. If the block is refused, a session that is new is deleted. For `async with`."""

    __slots__ = ("_delete", "_is_new", "_live")

    def __init__(self, live: LiveSession, delete: Callable[[LiveSession], Awaitable[None]], *, is_new: bool) -> None:
        self._live = live
        self._delete = delete
        self._is_new = is_new

    async def __aenter__(self) -> None:
        self._live.reference_count += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        state = self._live.state
        try:
            if self._is_new and isinstance(error, Refused) and state.last_run is None and not state.queue:
                await self._live.until_durable(state.seq)  # else it could be written after it was deleted
                await self._delete(self._live)
        finally:
            self._live.reference_count -= 1


class FoundSession:
    """Finds a session and keeps it in memory while it is used, so that there is never a second writer."""

    def __init__(self, find: Callable[[], Awaitable[LiveSession]]) -> None:
        self._find = find
        self._live: LiveSession | None = None

    async def __aenter__(self) -> SessionView:
        self._live = live = await self._find()
        live.reference_count += 1
        return live

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._live is not None, "it was entered"
        self._live.reference_count -= 1
