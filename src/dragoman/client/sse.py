"""Parses server-sent events. Pure: bytes in, frames out.

httpx2 has a parser, too. This one leaves the data as bytes for the JSON decoder, and distinguishes frames that have an
id from frames that follow one, which resuming depends on.
"""

from typing import NamedTuple


class Frame(NamedTuple):
    """One event. `id` is empty if the event itself has none."""

    event: str
    data: bytes
    id: str


class FrameTooLong(ValueError):
    """An event is larger than the reader accepts."""


class FrameReader:
    """Splits a body into frames. An unfinished frame at the end of the connection is dropped.

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
        """Return the frames that `chunk` completes. Raises FrameTooLong."""
        if self._ended_with_cr:  # "\r\n" split between two chunks is one line ending
            chunk = chunk.removeprefix(b"\n")
        self._ended_with_cr = chunk.endswith(b"\r")
        if b"\n" not in chunk and b"\r" not in chunk:  # part of a long line; joined once, when the line ends
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
            raise FrameTooLong(f"expected an event of at most {self._max_bytes} bytes, got more")
