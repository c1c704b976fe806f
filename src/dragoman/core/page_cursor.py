"""Positions in the list of an owner's sessions, which clients send back. Pure."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime
from zlib import crc32

from dragoman.core.ids import SessionId, parse_session_id
from dragoman.core.refusals import InvalidCursor


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
        raise InvalidCursor("expected the next of an earlier page") from None
