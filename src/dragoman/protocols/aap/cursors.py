"""Positions that clients send back: in the stream of a turn, and in the list of sessions. Pure."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime
from typing import NamedTuple
from zlib import crc32

from dragoman.core.ids import RunId, SessionId, parse_session_id
from dragoman.core.refusals import InvalidCursor

_TURN_CURSOR = re.compile(r"(?:([0-9a-f-]{36})/)?([0-9]{1,9})")


class TurnCursor(NamedTuple):
    """A `Last-Event-ID`: the turn (None for the newest), and how many of its frames the client has seen.

    The ids of a stream that watches a session name their turn; those of a turn's own stream are plain numbers.
    """

    turn: RunId | None
    number: int
    is_watch: bool


def parse_turn_cursor(last_event_id: str | None, turn: str | None) -> TurnCursor:
    """Parse `Last-Event-ID` and `?turn=`. Raises InvalidCursor."""
    found = _TURN_CURSOR.fullmatch(last_event_id or "0")
    if found is None or (turn is not None and parse_session_id(turn) is None):
        raise InvalidCursor("Last-Event-ID is the id of an event of this session")
    if found[1] is not None:
        return TurnCursor(RunId(found[1]), int(found[2]), is_watch=True)
    return TurnCursor(None if turn is None else RunId(turn.lower()), int(found[2]), is_watch=False)


def page_cursor(created_at: datetime, session_id: SessionId) -> str:
    """Encode the position of a session in its owner's list, opaque to clients."""
    text = f"{created_at.isoformat()} {session_id}".encode()
    return urlsafe_b64encode(crc32(text).to_bytes(4) + text).decode().rstrip("=")


def parse_page_cursor(cursor: str) -> tuple[datetime, SessionId]:
    """Decode a cursor of `page_cursor`. Raises InvalidCursor for anything else."""
    try:
        raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        if len(raw) < 5 or crc32(raw[4:]).to_bytes(4) != raw[:4]:
            raise ValueError(cursor)
        written, session_id = raw[4:].decode().split(" ")
        at = datetime.fromisoformat(written)
        if at.tzinfo is None or parse_session_id(session_id) != session_id:
            raise ValueError(cursor)  # the checksum is not a secret: anybody can compute one
        return at, SessionId(session_id)
    except ValueError:
        raise InvalidCursor("after is the next of an earlier page") from None
