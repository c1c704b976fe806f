"""Decoding of stored sessions. Damaged data fails with the session that it belongs to, and with no other."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import structlog

from dragoman.core import events as core_events
from dragoman.core.events import LoggedEvent
from dragoman.core.ids import SessionId
from dragoman.core.refusals import SessionUnreadable, StoreUnavailable
from dragoman.core.session import SessionState, decode_head
from dragoman.stores.times import from_us

ReportUnreadable = Callable[[SessionUnreadable], None]
"""Called on the event loop for each session that is left out of a list."""

_DECODE_ERRORS = (ValueError, TypeError, OverflowError)  # msgspec's errors and those of UTF-8 are ValueErrors

log = structlog.get_logger(__name__)


class DecodedStates(NamedTuple):
    """The sessions of a list that can be decoded, and the errors of the others."""

    states: list[SessionState]
    unreadable: list[SessionUnreadable]


def decode_events(session_id: SessionId, rows: Iterable[Sequence[Any]]) -> list[LoggedEvent]:
    """Decode a session's events from rows of number, time, run and payload. Raises SessionUnreadable."""
    events: list[LoggedEvent] = []
    seq = 0
    try:
        for seq, at, run_id, payload in rows:
            events.append(LoggedEvent(seq, from_us(at), run_id, core_events.decode(payload)))
    except _DECODE_ERRORS as error:
        raise SessionUnreadable(session_id, f"event {seq}: {error}") from error
    return events


def decode_state(session_id: SessionId, head: bytes | str, settings: bytes | str) -> SessionState:
    """Decode a session's state. Raises SessionUnreadable."""
    try:
        return decode_head(head, settings)
    except _DECODE_ERRORS as error:
        raise SessionUnreadable(session_id, f"state: {error}") from error


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Decode what the server cannot work without.

    Raises:
        StoreUnavailable: it is damaged.
    """
    try:
        yield
    except _DECODE_ERRORS as error:
        raise StoreUnavailable(f"{what} in the database cannot be decoded ({error}): restore a backup") from error


def log_unreadable(error: SessionUnreadable) -> None:
    """Log a session that is left out of a list."""
    log.error("session cannot be read", session_id=error.session_id, reason=error.reason)
