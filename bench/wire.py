"""Parse HTTP/1.1 and server-sent events, after the measurement.

Pure: bytes and times in, values out.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import msgspec


class InvalidResponse(Exception):
    """A response was truncated, had an unexpected status, or violates the protocol."""


class Exchange(msgspec.Struct, frozen=True):
    """A request and its response: the time of sending, and the parts of the response with their arrival times."""

    sent: float
    times: Sequence[float]
    parts: Sequence[bytes]


class Event(msgspec.Struct, frozen=True):
    """An event of a stream, and the arrival time of its last byte."""

    name: str
    data: bytes
    at: float


Deltas = list[tuple[str, float]]
"""The pieces of text of an answer, each with its arrival time."""


class Delta(msgspec.Struct):
    """The data of `text_delta`."""

    delta: str


class Stop(msgspec.Struct, rename="camel"):
    """The data of `turn_stop`."""

    stop_reason: str


_DELTA = msgspec.json.Decoder(Delta)
_STOP = msgspec.json.Decoder(Stop)


def request(method: str, path: str, *, key: str, body: bytes = b"") -> bytes:
    """The bytes of a request."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def status(raw: bytes) -> int:
    """The status of a response."""
    return int(raw[9:12])


def body(exchange: Exchange, *, expected: int = 200) -> bytes:
    """The body of a response.

    Raises:
        InvalidResponse: the status is not the expected one, or the body is truncated.
    """
    raw = b"".join(exchange.parts)
    whole, _ = _unwrap(raw)
    if status(raw) != expected:
        raise InvalidResponse(f"expected status {expected}, got {status(raw)}: {whole[:300]!r}")
    return whole


def events(exchange: Exchange) -> list[Event]:
    """The events of a stream in order, each with the arrival time of the read that completed it.

    Raises:
        InvalidResponse: the response is not a stream, or did not end properly.
    """
    raw = b"".join(exchange.parts)
    if status(raw) != 200:
        raise InvalidResponse(f"expected a stream, got status {status(raw)}: {raw[-300:]!r}")
    whole, chunks = _unwrap(raw)
    if not whole.endswith(b"\n\n"):
        raise InvalidResponse(f"the stream ends inside an event: {whole[-80:]!r}")
    read_ends = list(accumulate(len(part) for part in exchange.parts))
    chunk_ends = [end for end, _ in chunks]
    parsed: list[Event] = []
    end = 0
    for frame in whole[:-2].split(b"\n\n"):
        end += len(frame) + 2
        name, payload = "", b""
        for line in frame.split(b"\n"):
            if line.startswith(b"event: "):
                name = line[7:].decode()
            elif line.startswith(b"data: "):
                payload = line[6:]
        if not name and not payload:
            continue  # a comment
        chunk_end, raw_end = chunks[bisect_left(chunk_ends, end)]
        parsed.append(Event(name, payload, exchange.times[bisect_left(read_ends, raw_end - (chunk_end - end))]))
    return parsed


def text(stream: Sequence[Event]) -> str:
    """The text of a turn, folded from its deltas.

    Raises:
        InvalidResponse: the turn did not start, did not end, or ended with another reason than `end_turn`.
    """
    if not stream or stream[0].name != "turn_start" or stream[-1].name != "turn_stop":
        raise InvalidResponse(
            f"incomplete turn: {[event.name for event in stream[:3]]} … {[event.name for event in stream[-1:]]}"
        )
    if (reason := _STOP.decode(stream[-1].data).stop_reason) != "end_turn":
        raise InvalidResponse(f"the turn ended with {reason}: {stream[-1].data!r}")
    return joined(deltas(stream))


def joined(pieces: Iterable[tuple[str, float]]) -> str:
    """The text of an answer."""
    return "".join(piece for piece, _ in pieces)


def deltas(stream: Sequence[Event]) -> Iterator[tuple[str, float]]:
    """The text deltas of a stream with their arrival times."""
    for event in stream:
        if event.name == "text_delta":
            yield _DELTA.decode(event.data).delta, event.at


def _unwrap(raw: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """The body, and for each chunk the offset of its end in the body and in the raw response."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    start = len(head) + 4
    fields = head.lower()
    if b"\r\ntransfer-encoding: chunked" not in fields:
        length = declared_length(fields)
        if len(rest) != length:
            raise InvalidResponse(f"expected a body of {length} bytes, got {len(rest)}")
        return rest, [(length, len(raw))]
    pieces: list[bytes] = []
    ends: list[tuple[int, int]] = []
    total = 0
    while True:
        line_end = raw.find(b"\r\n", start)
        if line_end < 0:
            raise InvalidResponse("the response is truncated")
        size = int(raw[start:line_end], 16)
        if size == 0:
            return b"".join(pieces), ends
        start = line_end + 2
        pieces.append(raw[start : start + size])
        total += size
        ends.append((total, start + size))
        start += size + 2


def declared_length(fields: bytes) -> int:
    """The `Content-Length` in a lower-case head; 0 if there is none."""
    for line in fields.split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0
