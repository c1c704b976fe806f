"""The stream of a session: its turns, one after the other. Source: section 17."""

from collections.abc import Mapping

from dragoman.core.events import LoggedEvent, RunStarted
from dragoman.core.stream import Record
from dragoman.protocols.aap import wire
from dragoman.protocols.aap.translate import TurnFrames
from dragoman.protocols.kit.frames import KEEP_ALIVE


class SessionFrames:
    """The frames of all turns, one after the other, each in the mode it was asked for in."""

    keep_alive = KEEP_ALIVE
    is_over = False

    def __init__(self, requested_mode: wire.StreamMode | None, turn: TurnFrames | None = None) -> None:
        """Begin between two turns, or inside a turn."""
        self._requested_mode = requested_mode
        self._turn = turn

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
