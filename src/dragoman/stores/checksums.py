"""Checksums of what users read: events, pieces, and the states of sessions.

A checksum covers a row's key, so that a row that moved to another session is noticed as well. CRC-32 costs
less than a microsecond for a typical event.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any
from zlib import crc32

from dragoman.core.ids import SessionId
from dragoman.core.refusals import SessionUnreadable
from dragoman.core.session import SessionState
from dragoman.stores.decoding import DecodedStates, decode_state

EVENT_COLUMNS = "seq, at, run_id, CAST(payload AS BLOB), checksum"
"""What `verified_events` reads. Bytes, because altered ones may not be text."""
STATE_COLUMNS = "session_id, CAST(head AS BLOB), CAST(settings AS BLOB), head_checksum, settings_checksum"
"""What `decode_verified_states` reads."""

_OTHER_TYPES = (TypeError, AttributeError)
"""Raised for values of other types: a damaged database of SQLite may have text in place of a number or bytes."""
_FACTOR = 0x9E3779B1
_HIGH_FACTOR = 0x85EBCA6B
_MASK = 0xFFFFFFFF


@lru_cache(maxsize=4096)
def _seed(text: str | None) -> int:
    """A number for an id or a name. Several are added up, which costs less than putting them into one text."""
    return crc32(str(text).encode())


def event_checksum(session_id: str, seq: int, at: int, run_id: str | None, payload: bytes) -> int:
    """The checksum of an event."""
    place = _seed(session_id) + 3 * _seed(run_id) + seq * _FACTOR + at + (at >> 32) * _HIGH_FACTOR
    return crc32(payload, place & _MASK)


def _earlier_event_checksum(session_id: str, seq: int, at: int, run_id: str | None, payload: bytes) -> int:
    """The checksum of earlier releases, which did not cover the upper half of the time."""
    return crc32(payload, (_seed(session_id) + 3 * _seed(run_id) + seq * _FACTOR + at) & _MASK)


def piece_checksum(session_id: str, after: int, place: int, message_id: str, block: int, text: bytes) -> int:
    """The checksum of a piece."""
    position = (after * _FACTOR + place) * _FACTOR + block
    return crc32(text, (_seed(session_id) + 3 * _seed(message_id) + position) & _MASK)


def state_checksum(session_id: str, content: bytes) -> int:
    """The checksum of a session's state, or of its settings."""
    return crc32(content, _seed(session_id))


def kept_checksum(session_id: str, key: str, value: bytes) -> int:
    """The checksum of a kept value."""
    return crc32(value, crc32(key.encode(), _seed(session_id)))


def verified_events(
    session_id: SessionId, rows: Iterable[Sequence[Any]], first: int, count: int
) -> Iterator[tuple[int, int, str | None, bytes]]:
    """Check that rows are `count` unaltered events, from event `first`. Yields number, time, run and payload of each.

    Raises:
        SessionUnreadable: an event is missing or was altered.
    """
    expected = first
    for seq, at, run_id, payload, checksum in rows:
        if seq != expected:
            break
        try:
            is_altered = (
                checksum is not None
                and checksum != event_checksum(session_id, seq, at, run_id, payload)
                and checksum != _earlier_event_checksum(session_id, seq, at, run_id, payload)
            )
        except _OTHER_TYPES:
            is_altered = True
        if is_altered:
            raise SessionUnreadable(session_id, f"event {seq}: the stored data was altered: its checksum differs")
        expected += 1
        yield seq, at, run_id, payload
    if expected != first + count:
        raise SessionUnreadable(session_id, f"event {expected}: it is missing")


def require_last_event(state: SessionState, last: int) -> None:
    """Check that the state of a session at rest is the one after its last event. Raises SessionUnreadable."""
    if state.seq != last:
        raise SessionUnreadable(state.session_id, f"state: it is of event {state.seq}, the log ends with {last}")


def require_no_quarantine(session_id: SessionId, reason: str | None) -> None:
    """Check that a session is not in quarantine. Raises SessionUnreadable."""
    if reason is not None:
        raise SessionUnreadable(session_id, f"it is in quarantine: {reason}")


def verified_kept(session_id: SessionId, rows: Iterable[tuple[str, bytes, int | None]]) -> dict[str, bytes]:
    """Check kept values, from rows of key, value and checksum. Raises SessionUnreadable if one was altered."""
    found: dict[str, bytes] = {}
    for key, value, checksum in rows:
        try:
            is_altered = checksum not in (None, kept_checksum(session_id, key, value))
        except _OTHER_TYPES:
            is_altered = True
        if is_altered:
            raise SessionUnreadable(
                session_id, f"kept value {key!r}: the stored data was altered: its checksum differs"
            )
        found[key] = value
    return found


def decode_verified_state(row: Sequence[Any]) -> SessionState:
    """Decode a row of `STATE_COLUMNS`. Raises SessionUnreadable if it was altered, or cannot be decoded."""
    session_id, head, settings, head_checksum, settings_checksum = row
    for what, content, checksum in (("state", head, head_checksum), ("settings", settings, settings_checksum)):
        try:
            is_altered = checksum not in (None, state_checksum(session_id, content))
        except _OTHER_TYPES:
            is_altered = True
        if is_altered:
            raise SessionUnreadable(session_id, f"{what}: the stored data was altered: its checksum differs")
    return decode_state(session_id, head, settings)


def decode_verified_states(rows: Iterable[Sequence[Any]]) -> DecodedStates:
    """Decode rows of `STATE_COLUMNS`."""
    decoded = DecodedStates([], [])
    for row in rows:
        try:
            decoded.states.append(decode_verified_state(row))
        except SessionUnreadable as error:
            decoded.unreadable.append(error)
    return decoded
