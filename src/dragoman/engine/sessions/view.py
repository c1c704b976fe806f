"""What protocols see of a session in memory: its state and how much of it is durable, but nothing that writes to it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from dragoman.core.events import LoggedEvent
from dragoman.core.ids import SessionId, UserId
from dragoman.core.session import SessionState
from dragoman.core.stream import Cursor


class SessionView(Protocol):
    """A session in memory, for reading. All changes go through the engine."""

    @property
    def state(self) -> SessionState:
        """The session's state, with events that are not durable yet."""

    @property
    def durable_cursor(self) -> Cursor:
        """The position of the last durable record."""

    @property
    def has_ended(self) -> bool:
        """Whether this object may no longer be used; the session may be deleted, or live on in the store."""

    @property
    def reader_count(self) -> int:
        """The number of streams on this server that follow the session."""

    async def until_durable(self, seq: int) -> None:
        """Wait until event `seq` is durable.

        Raises:
            Exception: why this object has ended, if the event can no longer become durable.
        """


SessionLease: TypeAlias = AbstractAsyncContextManager[SessionView]
"""Enters with a session that stays in memory until the block is left."""

Watcher: TypeAlias = Callable[[SessionView, Sequence[LoggedEvent]], None]
"""Called with the durable events of any session. Must return quickly; what it raises is logged."""

DeletionWatcher: TypeAlias = Callable[[SessionId, UserId], None]
"""Called with any session that was deleted, and its owner. Must return quickly; what it raises is logged."""
