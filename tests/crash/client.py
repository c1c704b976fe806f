"""An HTTP client that knows whether an answer was complete.

Every request has its own connection, so a death is noticed by exactly those clients that were waiting for an answer.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, NamedTuple

from tests.protocols.aap.stream import Frame, parse_frames

Json = Any
BASE = "/aap/v3"
DEADLINE_S = 20.0


class ConnectionBroken(Exception):
    """The connection broke before the answer was complete."""

    def __init__(self, why: object) -> None:
        super().__init__(repr(why))


class NoResponse(AssertionError):
    """The server is running but does not answer."""


class Answer(NamedTuple):
    """A complete answer."""

    status: int
    body: bytes

    @property
    def json(self) -> Json:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The error code; empty for a success."""
        return str(self.json["code"]) if self.status >= 400 else ""


class Exchange:
    """An answer that is being received. `chunks` and `read_to_end` raise ConnectionBroken if it breaks off."""

    def __init__(self, reader: asyncio.StreamReader, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        self._reader = reader

    async def chunks(self) -> AsyncIterator[bytes]:
        """Read the body in parts, to the end that the answer declares."""
        if self.headers.get("transfer-encoding") != "chunked":
            length = int(self.headers.get("content-length", "0"))
            if length:
                yield await _in_time(self._reader.readexactly(length))
            return
        while size := int(await _in_time(self._reader.readuntil(b"\r\n")), 16):
            yield (await _in_time(self._reader.readexactly(size + 2)))[:-2]
        await _in_time(self._reader.readuntil(b"\r\n"))

    async def read_to_end(self) -> Answer:
        """Read the body to its end."""
        return Answer(self.status, b"".join([chunk async for chunk in self.chunks()]))

    async def frames(self, *, is_busy: bool = True) -> AsyncIterator[Frame]:
        """Read the body as frames. An incomplete frame is not returned.

        Args:
            is_busy: frames must keep arriving.
        """
        rest, last_at = b"", time.monotonic()
        async for chunk in self.chunks():
            rest += chunk
            end = rest.rfind(b"\n\n") + 2
            if end >= 2:
                for frame in parse_frames(rest[:end]):
                    last_at = time.monotonic()
                    yield frame
                rest = rest[end:]
            if is_busy and time.monotonic() - last_at > DEADLINE_S:
                raise NoResponse(f"nothing but signs of life came for {DEADLINE_S:g} s")
        assert rest == b"", f"a stream was ended inside a frame: {rest!r}"


async def _in_time(reading: Any) -> bytes:
    try:
        async with asyncio.timeout(DEADLINE_S):
            read: bytes = await reading
            return read
    except TimeoutError:
        raise NoResponse(f"nothing came for {DEADLINE_S:g} s") from None
    except (OSError, asyncio.IncompleteReadError) as error:
        raise ConnectionBroken(error) from error


class Connection:
    """A connection for one request."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> "Connection":
        try:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError as error:
            raise ConnectionBroken(error) from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writer.transport.abort()

    async def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Exchange:
        """Send a request and wait for the head of the answer."""
        lines = [f"{method} {BASE}{path} HTTP/1.1", "host: localhost", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body:
            lines += ["content-type: application/json", f"content-length: {len(body)}"]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = await _in_time(self._reader.readuntil(b"\r\n\r\n"))
        first, *rest = head.decode().split("\r\n")
        named = (line.partition(":") for line in rest if line)
        answered = {name.lower(): value.strip().lower() for name, _, value in named}
        return Exchange(self._reader, int(first.split(" ")[1]), answered)


@asynccontextmanager
async def open_request(
    port: int, method: str, path: str, body: Json = None, headers: Mapping[str, str] | None = None
) -> AsyncIterator[Exchange]:
    """Send a request whose answer is read in parts. Leaving the block closes the connection."""
    raw = b"" if body is None else json.dumps(body).encode()
    async with Connection(port) as connection:
        yield await connection.request(method, path, headers or {}, raw)


async def send_request(
    port: int, method: str, path: str, body: Json = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """Send a request and return the complete answer."""
    async with open_request(port, method, path, body, headers) as exchange:
        return await exchange.read_to_end()
