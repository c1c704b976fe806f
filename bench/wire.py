"""HTTP/1.1 and Server-Sent Events as a client sees them, read after the measurement.

Pure: bytes and times in, values out.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

import msgspec


class InvalidResponse(Exception):
    """An answer was cut short, had an unexpected status, or is not what the protocol allows."""


class Exchange(msgspec.Struct, frozen=True):
    """One request: when it was sent, and the parts of its answer with the time at which each arrived."""

    sent: float
    times: Sequence[float]
    parts: Sequence[bytes]


class Event(msgspec.Struct, frozen=True):
    """One event of a stream, and when its last byte arrived."""

    name: str
    data: bytes
    at: float


class Delta(msgspec.Struct):
    """The data of `text_delta`."""

    delta: str


class Stop(msgspec.Struct, rename="camel"):
    """The data of `turn_stop`."""

    stop_reason: str


_DELTA = msgspec.json.Decoder(Delta)
_STOP = msgspec.json.Decoder(Stop)


def request(method: str, path: str, *, key: str, body: bytes = b"") -> bytes:
    """A whole request."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def status(raw: bytes) -> int:
    """The status of an answer."""
    return int(raw[9:12])


def body(exchange: Exchange, *, expected: int = 200) -> bytes:
    """The body of an answer.

    Raises:
        Broken: another status than `expected`, or a body that was cut short.
    """
    raw = b"".join(exchange.parts)
    whole, _ = _unwrap(raw)
    if status(raw) != expected:
        raise InvalidResponse(f"status {expected} expected, got {status(raw)}: {whole[:300]!r}")
    return whole


def events(exchange: Exchange) -> list[Event]:
    """The events of a stream in order, each with the arrival of the read that completed it.

    Raises:
        Broken: the answer is no stream that ended properly.
    """
    raw = b"".join(exchange.parts)
    if status(raw) != 200:
        raise InvalidResponse(f"a stream expected, got {status(raw)}: {raw[-300:]!r}")
    whole, chunks = _unwrap(raw)
    if not whole.endswith(b"\n\n"):
        raise InvalidResponse(f"the stream ends inside an event: {whole[-80:]!r}")
    read_ends = list(accumulate(len(part) for part in exchange.parts))
    chunk_ends = [end for end, _ in chunks]
    found: list[Event] = []
    end = 0
    for frame in whole[:-2].split(b"\n\n"):
        end += len(frame) + 2
        name, payload = "", b""
        for line in frame.split(b"\n"):
            if line.startswith(b"event: "):
                name = line[7:].decode()
            elif line.startswith(b"data: "):
                payload = line[6:]
        if not name:
            continue  # a comment
        chunk_end, raw_end = chunks[bisect_left(chunk_ends, end)]
        found.append(Event(name, payload, exchange.times[bisect_left(read_ends, raw_end - (chunk_end - end))]))
    return found


def text(stream: Sequence[Event]) -> str:
    """The text of a whole turn, folded from its deltas.

    Raises:
        Broken: the turn did not start, did not end, or did not end with `end_turn`.
    """
    if not stream or stream[0].name != "turn_start" or stream[-1].name != "turn_stop":
        raise InvalidResponse(
            f"no whole turn: {[event.name for event in stream[:3]]} … {[event.name for event in stream[-1:]]}"
        )
    if (reason := _STOP.decode(stream[-1].data).stop_reason) != "end_turn":
        raise InvalidResponse(f"the turn ended with {reason}: {stream[-1].data!r}")
    return "".join(delta for delta, _ in deltas(stream))


def deltas(stream: Sequence[Event]) -> Iterator[tuple[str, float]]:
    """The text deltas of a stream with their arrivals."""
    for event in stream:
        if event.name == "text_delta":
            yield _DELTA.decode(event.data).delta, event.at


def _unwrap(raw: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """The body, and for each chunk where it ends in the body and in the raw answer."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    start = len(head) + 4
    fields = head.lower()
    if b"\r\ntransfer-encoding: chunked" not in fields:
        length = declared_length(fields)
        if len(rest) != length:
            raise InvalidResponse(f"a body of {length} bytes expected, got {len(rest)}")
        return rest, [(length, len(raw))]
    pieces: list[bytes] = []
    ends: list[tuple[int, int]] = []
    total = 0
    while True:
        line_end = raw.find(b"\r\n", start)
        if line_end < 0:
            raise InvalidResponse("the answer was cut short")
        size = int(raw[start:line_end], 16)
        if size == 0:
            return b"".join(pieces), ends
        start = line_end + 2
        pieces.append(raw[start : start + size])
        total += size
        ends.append((total, start + size))
        start += size + 2


def declared_length(fields: bytes) -> int:
    """`Content-Length` of a head in lower case; 0 when there is none."""
    for line in fields.split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0
