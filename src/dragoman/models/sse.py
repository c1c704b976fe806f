"""Read server-sent events, as far as model providers use them: the data of each event. Pure: bytes in, bytes out.

The reader of httpx2 decodes text and creates an object for each event. Deltas are many and small, so this one passes
the bytes directly to the JSON decoder (docs/models.md has the figures).
"""


class EventTooLong(ValueError):
    """An event is larger than the reader accepts."""


class EventReader:
    """Splits a body into the data of its events. Buffers at most `max_bytes` of an unfinished event.

    Only the field `data` is read, because providers use no other. Comments, such as pings, are ignored.
    Source: the HTML standard, "Server-sent events", 9.2.6.
    """

    __slots__ = ("_data", "_data_bytes", "_line", "_line_bytes", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that `chunk` completes.

        Raises:
            EventTooLong: an event, finished or not, is larger than the limit.
        """
        if b"\n" not in chunk and b"\r" not in chunk:  # part of a long line, which is joined once, at its end
            self._buffer_line(chunk)
            return []
        lines = b"".join((*self._line, chunk)).splitlines(keepends=True)
        self._line.clear()
        self._line_bytes = 0
        if not lines[-1].endswith((b"\n", b"\r")):
            self._buffer_line(lines.pop())
        events: list[bytes] = []
        for line in lines:
            # "\r\n" split between two chunks yields an extra empty line, which has no effect without data.
            self._end_line(line.rstrip(b"\r\n"), events)
        return events

    def close(self) -> list[bytes]:
        """The event at the end of the body. The standard drops it, but some servers omit the last empty line."""
        events: list[bytes] = []
        self._end_line(b"".join(self._line), events)
        self._end_line(b"", events)
        return events

    def _end_line(self, line: bytes, events: list[bytes]) -> None:
        if line.startswith(b"data:"):
            data = line[6:] if line.startswith(b"data: ") else line[5:]
            self._data.append(data)
            self._data_bytes += len(line)  # not `data`, so that an endless event of empty lines is also limited
            self._check_size()
        elif not line and self._data:
            events.append(b"\n".join(self._data))
            self._data.clear()
            self._data_bytes = 0

    def _buffer_line(self, piece: bytes) -> None:
        self._line.append(piece)
        self._line_bytes += len(piece)
        self._check_size()

    def _check_size(self) -> None:
        if self._line_bytes + self._data_bytes > self._max_bytes:
            raise EventTooLong(f"an event is longer than {self._max_bytes} bytes")
