"""The stream of a session: its turns, one after the other, and the positions in it. Source: section 17."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from dragoman.core.events import LoggedEvent, RunStarted
from dragoman.core.ids import RunId, parse_session_id
from dragoman.core.refusals import InvalidCursor
from dragoman.core.stream import Record
from dragoman.protocols.aap import wire
from dragoman.protocols.aap.translate import TurnFrames
from dragoman.protocols.kit.frames import KEEP_ALIVE

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
    match = _TURN_CURSOR.fullmatch(last_event_id or "0")
    if match is None or (turn is not None and parse_session_id(turn) is None):
        raise InvalidCursor("Last-Event-ID must be the id of an event of this session")
    if match[1] is not None:
        return TurnCursor(RunId(match[1]), int(match[2]), is_watch=True)
    return TurnCursor(None if turn is None else RunId(turn.lower()), int(match[2]), is_watch=False)


class SessionFrames:
    """The frames of all turns, one after the other, each in the mode it was asked for in.

    It begins between two turns, or inside a turn.
    """

    keep_alive = KEEP_ALIVE
    is_over = False

    def __init__(self, requested_mode: wire.StreamMode | None, turn: TurnFrames | None = None) -> None:
        self._requested_mode = requested_mode
        self._turn = turn

    @property
    def count(self) -> int:
        """The number of frames of the current turn so far."""
        return 0 if self._turn is None else self._turn.count

    def feed(self, record: Record) -> bytes:
        """Return the frame of a record of the current turn."""
        if self._turn is None or self._turn.is_over:
            started = record.event if isinstance(record, LoggedEvent) else None
            if not isinstance(started, RunStarted):
                return b""
            mode = self._requested_mode or mode_of(started.metadata.protocol)
            self._turn = TurnFrames(started.run_id, mode, prefix=f"{started.run_id}/")
        return self._turn.feed(record)

    def close(self, error: Exception) -> bytes:
        """End the open turn, if there is one."""
        return b"" if self._turn is None else self._turn.close(error)


def mode_of(metadata: Mapping[str, object]) -> wire.StreamMode:
    """The mode in which a turn was asked for; delta when it was asked for none, or through another protocol."""
    return "message" if metadata.get("stream") == "message" else "delta"
