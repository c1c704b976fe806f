"""Positions in the stream of a turn, which clients send back. Pure."""

import re
from typing import NamedTuple

from dragoman.core.ids import RunId, parse_session_id
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
