"""The baseline servers: bare uvloop servers that store nothing and implement just enough of AAP for the same load.

They play the benchmark's scripts with a plain async generator, encode each delta with a template, and differ in when
they write: `each` delta at once, all deltas of one loop `tick` together, or all deltas within a 2 ms `window` after the
last write. No server in Python can be much cheaper than the best of them.

Run: `python -m bench.baseline MODE`.
"""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from typing import Literal, cast

import msgspec
import uvloop

Mode = Literal["each", "tick", "window"]

WINDOW_S = 0.002
YIELD_EVERY_DELTAS = 512
"""Number of deltas after which an agent that never suspends must yield to the event loop, in every mode."""


class Emit(msgspec.Struct):
    """`count` deltas of `text`, `every_ms` apart. `{i3}` in the text is the index with three digits."""

    count: int
    text: str
    every_ms: float = 0


class Step(msgspec.Struct):
    """One step of a script. Only the kinds that the benchmark uses are supported."""

    emit: Emit | None = None
    wait_ms: float | None = None


class Script(msgspec.Struct):
    """The text of a user message."""

    script: list[Step]


class UserMessage(msgspec.Struct):
    """A message in the body of a turn request."""

    content: str


class TurnBody(msgspec.Struct):
    """The body of a turn request."""

    messages: list[UserMessage]


class Agent(msgspec.Struct):
    """The agent of a session."""

    name: str


class SessionBody(msgspec.Struct):
    """The body of a request that creates a session."""

    agent: Agent


_SCRIPT = msgspec.json.Decoder(Script)
_TURN = msgspec.json.Decoder(TurnBody)
_SESSION = msgspec.json.Decoder(SessionBody)
_encode = msgspec.json.Encoder().encode

_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_START = b"event: turn_start\ndata: {}\n\n"
_STOP = b'event: turn_stop\ndata: {"stopReason":"end_turn"}\n\n'


async def play(script: Script, *, yields: bool) -> AsyncIterator[str]:
    """The deltas of a script on an absolute schedule. With `yields`, the agent yields to the event loop per delta."""
    loop = asyncio.get_running_loop()
    for step in script.script:
        if step.wait_ms is not None:
            await asyncio.sleep(step.wait_ms / 1000)
        if step.emit is None:
            continue
        text, numbered = step.emit.text, "{i3}" in step.emit.text
        period_s, begin = step.emit.every_ms / 1000, loop.time()
        for index in range(step.emit.count):
            if period_s:
                await asyncio.sleep(max(0.0, begin + (index + 1) * period_s - loop.time()))
            elif yields or index % YIELD_EVERY_DELTAS == YIELD_EVERY_DELTAS - 1:
                await asyncio.sleep(0)
            yield text.replace("{i3}", f"{index:03}") if numbered else text


class Outbox:
    """Collects the frames of one stream and writes them according to the mode, one HTTP chunk per write.

    After appending to `frames`, call `ready` unless `scheduled` is True, which means that a write is already scheduled.
    """

    def __init__(self, transport: asyncio.Transport, mode: Mode) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._mode = mode
        self._last_write = 0.0
        self._resumed = asyncio.Event()
        self.frames: list[bytes] = []
        self.scheduled = False
        self.paused = False

    def ready(self) -> None:
        """Write the frames now, or schedule the write."""
        match self._mode:
            case "each":
                self.flush()
            case "tick":
                self.scheduled = True
                self._loop.call_soon(self.flush)
            case "window":
                self.scheduled = True
                wait = self._last_write + WINDOW_S - self._loop.time()
                if wait > 0:
                    self._loop.call_later(wait, self.flush)
                else:
                    self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write the collected frames."""
        self.scheduled = False
        if self.frames:
            payload = b"".join(self.frames)
            self.frames.clear()
            self._transport.write(b"%x\r\n%b\r\n" % (len(payload), payload))
            if self._mode == "window":
                self._last_write = self._loop.time()

    def close(self) -> None:
        """End the response."""
        self.flush()
        self._transport.write(b"0\r\n\r\n")

    def pause(self) -> None:
        """Called when the reader is slow."""
        self.paused = True
        self._resumed.clear()

    def resume(self) -> None:
        """Called when the reader has caught up."""
        self.paused = False
        self._resumed.set()

    async def wait_until_resumed(self) -> None:
        """Wait until the reader has caught up."""
        await self._resumed.wait()


class BaselineServer(asyncio.Protocol):
    """One connection. `agents` maps the process's sessions to the names of their agents."""

    def __init__(self, mode: Mode, agents: dict[str, str]) -> None:
        self._mode = mode
        self._agents = agents
        self._received = b""
        self._turn: asyncio.Task[None] | None = None
        self._outbox: Outbox | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class only behaves like one

    def connection_lost(self, exc: Exception | None) -> None:
        if self._turn is not None:
            self._turn.cancel()

    def pause_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.pause()

    def resume_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.resume()

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, mark, rest = self._received.partition(b"\r\n\r\n")
        if not mark:
            return
        fields = head.lower()
        at = fields.find(b"content-length:")
        length = int(fields[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(rest) < length:
            return
        self._received = b""
        path = head.split(b" ", 2)[1].decode()
        if path.endswith("/turns"):
            body = _TURN.decode(rest)
            agent = self._agents[path.split("/")[-2]]
            self._turn = asyncio.get_running_loop().create_task(self._stream(body.messages[-1].content, agent))
        elif path.endswith("/sessions"):
            session_id = f"s{len(self._agents)}"
            self._agents[session_id] = _SESSION.decode(rest).agent.name
            self._answer(b"201 Created", _encode({"sessionId": session_id}))
        else:
            self._answer(b"200 OK", b'{"version":3,"agents":[]}')

    def _answer(self, status: bytes, body: bytes) -> None:
        self._transport.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))

    async def _stream(self, text: str, agent: str) -> None:
        outbox = self._outbox = Outbox(self._transport, self._mode)
        self._transport.write(_STREAM_HEAD)
        put = outbox.frames.append
        put(_START)
        outbox.ready()
        async for delta in play(_SCRIPT.decode(text), yields=agent == "yielding"):
            put(b'event: text_delta\ndata: {"delta":' + _encode(delta) + b"}\n\n")
            if not outbox.scheduled:
                outbox.ready()
            if outbox.paused:
                await outbox.wait_until_resumed()
        put(_STOP)
        outbox.close()


async def serve(mode: Mode) -> None:
    """Serve until the process is stopped."""
    agents: dict[str, str] = {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: BaselineServer(mode, agents), "127.0.0.1", 0, backlog=4096)
    gc.freeze()
    sys.stdout.write(f"ready http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    match sys.argv[1]:
        case "each" | "tick" | "window" as chosen:
            uvloop.run(serve(chosen))
        case other:
            raise SystemExit(f"expected one of the modes each, tick, window; got {other}")
