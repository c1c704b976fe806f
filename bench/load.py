"""The load generator: many connections in one uvloop process, on another core than the measured server.

During a measurement it only records the bytes and their arrival times. They are parsed and compared afterwards.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import cast

import msgspec

from bench import wire
from bench.process import Server
from bench.wire import Exchange

clock = time.perf_counter

_LAST_CHUNK = b"0\r\n\r\n"


class Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reset()

    def _reset(self) -> None:
        self.times: list[float] = []
        self.parts: list[bytes] = []
        self.sent = 0.0
        self._is_chunked: bool | None = None
        self._remaining_bytes = 0
        self.response_started: asyncio.Future[None] = self._loop.create_future()
        self.done: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class only behaves like one

    def connection_lost(self, exc: Exception | None) -> None:
        for waiter in (self.response_started, self.done):
            if not waiter.done():
                waiter.set_exception(wire.InvalidResponse(f"the connection was lost: {exc}"))
                waiter.exception()  # nobody may be waiting

    def data_received(self, data: bytes) -> None:
        self.times.append(clock())
        self.parts.append(data)
        if self.done.done():
            return  # the connection has been closed here
        if self._is_chunked is None:
            if not self._read_head():
                return
            self.response_started.set_result(None)
        elif not self._is_chunked:
            self._remaining_bytes -= len(data)
        if self._is_complete(data):
            self.done.set_result(None)

    def _read_head(self) -> bool:
        head, mark, rest = b"".join(self.parts).partition(b"\r\n\r\n")
        if not mark:
            return False
        fields = head.lower()
        self._is_chunked = b"\r\ntransfer-encoding: chunked" in fields
        if not self._is_chunked:
            self._remaining_bytes = wire.declared_length(fields) - len(rest)
        return True

    def _is_complete(self, data: bytes) -> bool:
        """Whether the response is complete. Its last five bytes suffice, because no chunk's data ends with CR."""
        if not self._is_chunked:
            return self._remaining_bytes <= 0
        if len(data) < len(_LAST_CHUNK):
            data = b"".join(self.parts[-5:])
        return data.endswith(_LAST_CHUNK)

    def begin(self, request: bytes) -> None:
        """Send a request. `response_started` and `done` are set as the response arrives."""
        self._reset()
        self._transport.write(request)
        self.sent = clock()

    async def exchange(self, request: bytes) -> Exchange:
        """Send a request and wait for the complete response."""
        self.begin(request)
        await self.done
        return self.received()

    def received(self) -> Exchange:
        """The part of the current response that has arrived."""
        return Exchange(self.sent, self.times, self.parts)

    def close(self) -> None:
        """Abort the connection."""
        self._transport.abort()


class Session(msgspec.Struct):
    """A session and its streamed turns: each user text with the answer folded from its stream."""

    id: str
    turns: list[tuple[str, str]] = msgspec.field(default_factory=list)


class Client:
    """A client of one server, over AAP."""

    requests_differ = False
    """Whether the same request again is a repetition, which runs nothing."""

    def __init__(self, server: Server, base: str, key: str) -> None:
        self.server = server
        self.base = base
        self.key = key
        self._texts: dict[str, str] = {}

    async def connect(self, count: int, kind: type[Connection] = Connection) -> list[Connection]:
        """Open `count` connections."""
        loop = asyncio.get_running_loop()
        opened: list[Connection] = []
        for _ in range(count):
            _, connection = await loop.create_connection(kind, self.server.host, self.server.port)
            opened.append(connection)
        return opened

    def request(self, method: str, path: str, content: object = None) -> bytes:
        """A request below the protocol's base path, with a JSON body if `content` is given."""
        encoded = b"" if content is None else msgspec.json.encode(content)
        return wire.request(method, self.base + path, key=self.key, body=encoded)

    def turn(self, session: Session, text: str) -> bytes:
        """The request that starts a turn in delta mode."""
        content = {"messages": [{"role": "user", "content": text}], "stream": "delta"}
        return self.request("POST", f"/sessions/{session.id}/turns", content)

    async def create(self, agent: str, count: int, messages: Sequence[object] = ()) -> list[Session]:
        """Create `count` sessions, a few at a time."""
        content: dict[str, object] = {"agent": {"name": agent}}
        if messages:
            content["messages"] = messages
        request = self.request("POST", "/sessions", content)
        connections = await self.connect(min(count, 16))
        sessions: list[Session] = []

        async def create_some(connection: Connection, share: int) -> None:
            for _ in range(share):
                answer = wire.body(await connection.exchange(request), expected=201)
                sessions.append(Session(msgspec.json.decode(answer)["sessionId"]))

        shares = [len(range(first, count, len(connections))) for first in range(len(connections))]
        await run_concurrently(
            create_some(connection, share) for connection, share in zip(connections, shares, strict=True)
        )
        close(connections)
        return sessions

    def record_turn(self, session: Session, text: str, exchange: Exchange) -> wire.Deltas:
        """Parse a finished turn, record its folded text for the comparison, and return its deltas.

        Raises:
            InvalidResponse: the turn did not end properly.
        """
        stream = wire.events(exchange)
        folded = wire.text(stream)
        session.turns.append((text, self._texts.setdefault(folded, folded)))
        return list(wire.deltas(stream))


class Burst(msgspec.Struct, frozen=True):
    """The cost of one round of consecutive turns."""

    turns: int
    seconds: float
    cpu_s: float
    load_cpu_s: float


async def saturate(
    client: Client, connections: Sequence[Connection], sessions: Sequence[Session], text: str, seconds: float
) -> Burst:
    """Run consecutive turns on each connection, in its own session, for `seconds`.

    Nothing is in flight when the server's CPU time is read, so that it covers exactly the counted turns.
    """
    seen: list[tuple[Session, Exchange]] = []
    known: dict[bytes, list[Session]] = {}

    async def turns(connection: Connection, session: Session) -> None:
        request = client.turn(session, text)
        while clock() < end:
            exchange = await connection.exchange(request)
            seen.append((session, exchange))
            if client.requests_differ:
                request = client.turn(session, text)
            if len(seen) >= 4096:  # limits memory: a baseline server sends 100 MB/s of identical responses
                _group_equal_answers(seen, known)

    cpu, own_cpu, begin = client.server.cpu_s(), time.process_time(), clock()
    end = begin + seconds
    await run_concurrently(
        turns(connection, session) for connection, session in zip(connections, sessions, strict=True)
    )
    elapsed = clock() - begin
    await asyncio.sleep(0.05)  # include the work that the server does after its responses
    cpu, own_cpu = client.server.cpu_s() - cpu, time.process_time() - own_cpu
    _group_equal_answers(seen, known)
    count = 0
    for raw, answered in known.items():
        count += len(answered)
        first, *others = answered
        client.record_turn(first, text, Exchange(0, [0], [raw]))
        for session in others:
            session.turns.append(first.turns[-1])
    return Burst(count, elapsed, cpu, own_cpu)


def _group_equal_answers(
    exchanges: list[tuple[Session, Exchange]], sessions_by_answer: dict[bytes, list[Session]]
) -> None:
    """Group the sessions by identical responses, and clear `exchanges`."""
    for session, exchange in exchanges:
        sessions_by_answer.setdefault(b"".join(exchange.parts), []).append(session)
    exchanges.clear()


class Paced(msgspec.Struct, frozen=True):
    """Measurements of paced streams; times in seconds. `arrivals` are by stream and delta, `sent` by stream."""

    sent: list[float]
    arrivals: list[list[float]]
    seconds: float
    cpu_s: float
    load_cpu_s: float


async def pace(
    client: Client, connections: Sequence[Connection], sessions: Sequence[Session], text: str, *, spread_s: float
) -> Paced:
    """Run one turn on each session, with starts evenly spread over `spread_s`. Each delta must end with a space."""
    count = len(sessions)
    requests = [client.turn(session, text) for session in sessions]
    cpu, own_cpu, begin = client.server.cpu_s(), time.process_time(), clock()
    for index, (connection, request) in enumerate(zip(connections, requests, strict=True)):
        if (wait := begin + index * spread_s / count - clock()) > 0:
            await asyncio.sleep(wait)
        connection.begin(request)
    for connection in connections:
        await connection.done
    elapsed = clock() - begin
    cpu, own_cpu = client.server.cpu_s() - cpu, time.process_time() - own_cpu
    arrivals = []
    for connection, session in zip(connections, sessions, strict=True):
        deltas = client.record_turn(session, text, connection.received())
        arrivals.append([at for delta, at in deltas for _ in range(delta.count(" "))])
    return Paced([connection.sent for connection in connections], arrivals, elapsed, cpu, own_cpu)


async def poll_until(condition: Callable[[], Awaitable[bool]], deadline_s: float, every_s: float = 0.02) -> bool:
    """Poll until the condition holds or the deadline passes. Returns whether it held."""
    end = clock() + deadline_s
    while not await condition():
        if clock() > end:
            return False
        await asyncio.sleep(every_s)
    return True


async def run_concurrently(jobs: Iterable[Coroutine[object, object, None]]) -> None:
    """Run jobs concurrently. The first failure cancels the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(job)
    except ExceptionGroup as group_error:  # a single error is easier to read than a group of equal ones
        raise group_error.exceptions[0] from None


def close(connections: Sequence[Connection]) -> None:
    """Abort connections."""
    for connection in connections:
        connection.close()
