"""Server-sent events, as a client reads them. Pure: bytes in, frames out.

httpx2 has a reader of its own. This one leaves the data as bytes for the JSON decoder, and tells frames with an id of
their own from those that only follow one, on which resuming depends.
"""

from typing import NamedTuple


class Frame(NamedTuple):
    """One event. `id` is its own, empty when it has none."""

    event: str
    data: bytes
    id: str


class FrameTooLong(ValueError):
    """An event has more bytes than the reader accepts."""


class FrameReader:
    """Cuts a body into frames. What is unfinished when the connection ends is dropped, as the standard has it.

    Source: the HTML standard, "Server-sent events", 9.2.6.
    """

    def __init__(self, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._partial_line: list[bytes] = []
        self._partial_line_bytes = 0
        self._event = ""
        self._id = ""
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._ended_with_cr = False

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that `chunk` completed. Raises TooLong."""
        if self._ended_with_cr:  # "\r\n" cut between two chunks is one end of a line
            chunk = chunk.removeprefix(b"\n")
        self._ended_with_cr = chunk.endswith(b"\r")
        if b"\n" not in chunk and b"\r" not in chunk:  # a piece of a long line: joined once, when the line ends
            self._buffer_partial_line(chunk)
            return []
        lines = b"".join((*self._partial_line, chunk)).splitlines(keepends=True)
        self._partial_line.clear()
        self._partial_line_bytes = 0
        if not lines[-1].endswith((b"\n", b"\r")):
            self._buffer_partial_line(lines.pop())
        frames: list[Frame] = []
        for line in lines:
            self._process_line(line.rstrip(b"\r\n"), frames)
        return frames

    def _process_line(self, line: bytes, frames: list[Frame]) -> None:
        if not line:
            if self._data:
                frames.append(Frame(self._event, b"\n".join(self._data), self._id))
            self._event, self._id, self._data, self._data_bytes = "", "", [], 0
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
                self._data_bytes += len(line)
                self._check_size()
            case b"event":
                self._event = value.decode("utf-8", "replace")
            case b"id" if b"\0" not in value:
                self._id = value.decode("utf-8", "replace")

    def _buffer_partial_line(self, piece: bytes) -> None:
        self._partial_line.append(piece)
        self._partial_line_bytes += len(piece)
        self._check_size()

    def _check_size(self) -> None:
        if self._partial_line_bytes + self._data_bytes > self._max_bytes:
            raise FrameTooLong(f"an event of at most {self._max_bytes} bytes expected, got more")
