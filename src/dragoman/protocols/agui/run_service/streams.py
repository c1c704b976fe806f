"""The event stream of a thread over the run service."""

import msgspec

from dragoman.core.stream import Record
from dragoman.protocols.agui.run_service.translate import ThreadEvents
from dragoman.protocols.kit.frames import KEEP_ALIVE, escape_line_separators


class ThreadEncoder:
    """The frames of a thread's events."""

    keep_alive = KEEP_ALIVE

    def __init__(self, events: ThreadEvents) -> None:
        self._events = events

    @property
    def is_over(self) -> bool:
        """Whether the one run that is followed has ended."""
        return self._events.is_over

    def feed(self, record: Record) -> bytes:
        """The frames of a record."""
        frames = [
            b"id: %d-%d\nevent: %b\ndata: %b\n\n"
            % (*event.id, event.type.encode(), escape_line_separators(msgspec.json.encode(event.body)))
            for event in self._events.feed(record)
        ]
        return b"".join(frames)

    def close(self, error: Exception) -> bytes:
        """Nothing: the client continues after its last id, or learns that the thread is gone."""
        return b""
