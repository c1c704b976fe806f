"""The server's connections over real sockets: malformed and endless requests, timeouts, and signals."""

import asyncio
import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog

from dragoman.asgi import http_connection
from dragoman.asgi.security import App, Message, Receive, SecurityMiddleware, Send
from dragoman.engine.services.connection_memory import ConnectionMemory
from dragoman.server import runner
from dragoman.server.logging import configure_logging
from dragoman.server.runner import CannotStart, Server, bind_socket, url_of
from dragoman.settings import Settings
from tests.servers import serve_without_signals

DEADLINE_S = 60.0
DEFAULTS = Settings()
GOOD = b"GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def echo(scope: Message, receive: Receive, send: Send) -> None:
    """Answer with the path and the body; at `/who` with the client's address."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    answer = scope["path"].encode() + b" " + body
    if scope["path"] == "/who":
        answer = f"{scope['client'][0]} {scope['scheme']}".encode()
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


async def nothing(_: float | None = None) -> None:
    """Do nothing on drain and announce."""


Drain = Callable[[float | None], Awaitable[None]]


@asynccontextmanager
async def served(
    drain: Drain = nothing, settings: Settings = DEFAULTS, app: App = echo
) -> AsyncIterator[tuple[Server, int]]:
    """Run a server with our connections; yields it and its port."""
    listener = bind_socket("127.0.0.1", 0, settings.stalled_reader_s)
    is_up = asyncio.Event()

    async def announce() -> None:
        is_up.set()

    server = Server(runner.uvicorn_config(SecurityMiddleware(app), settings, ConnectionMemory()), drain, announce)
    task = asyncio.create_task(serve_without_signals(server, [listener]))
    async with asyncio.timeout(DEADLINE_S):
        await is_up.wait()
        yield server, listener.getsockname()[1]
        server.should_exit = True
        await task


async def send_raw(port: int, *parts: bytes) -> bytes:
    """Send bytes, and read until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(DEADLINE_S):
        for part in parts:
            writer.write(part)
            await writer.drain()
        writer.write_eof()
        answer = await reader.read()
    writer.close()
    return answer


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


# --- requests ---------------------------------------------------------------------------------------------------------


async def test_a_response_does_not_name_the_server_software() -> None:
    async with served() as (_, port):
        answer = await send_raw(port, GOOD)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n/x ")
    assert b"\r\nserver:" not in answer.lower()
    assert b"uvicorn" not in answer.lower()
    assert b"\r\ndate:" in answer.lower()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET http://evil.example/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: x/?\r\n\r\n",
        b"GET /x HTTP/1.1\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: a\r\nX-Folded: a\r\n b\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello",
        b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_a_malformed_request_is_400_and_the_server_keeps_serving(request_bytes: bytes) -> None:
    async with served() as (_, port):
        answer = await send_raw(port, request_bytes)
        assert status(answer) == 400
        assert b"Traceback" not in answer
        assert status(await send_raw(port, GOOD)) == 200


@pytest.mark.parametrize(
    "head",
    [
        b"GET /x HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: a\r\n" + b"X-Y: z\r\n" * 12_000 + b"\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
@pytest.mark.parametrize("piece", [1000, 1_000_000])
async def test_a_head_that_is_too_large_is_400_in_one_piece_or_many(head: bytes, piece: int) -> None:
    async with served() as (_, port):
        parts = [head[start : start + piece] for start in range(0, len(head), piece)]
        try:
            answer = await send_raw(port, *parts)
        except ConnectionError:  # closed while we were still sending, which can lose the response
            answer = b""
        assert answer == b"" or status(answer) == 400
        assert status(await send_raw(port, GOOD)) == 200


async def test_a_large_body_does_not_count_as_head() -> None:
    body = b"x" * 300_000
    head = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with served() as (_, port):
        assert (await send_raw(port, head + body, GOOD)).count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize("sent", [b"", b"GET /x HTTP/1.1\r\nHost", GOOD + b"GET /x HTTP/1.1\r\nHost"])
async def test_a_connection_whose_head_never_ends_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HEAD_TIMEOUT_S", 0.05)
    async with served() as (_, port), asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert (await reader.read()).count(b"200 OK") == sent.count(GOOD)
        writer.close()


async def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "KEEP_ALIVE_TIMEOUT_S", 0.05)
    async with served() as (_, port), asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(GOOD)
            await reader.readuntil(b"/x ")
        assert await reader.read() == b""
        writer.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux supports TCP_USER_TIMEOUT")
async def test_a_client_that_reads_nothing_is_disconnected() -> None:
    received, is_cut = "", asyncio.Event()

    async def endless(scope: Message, receive: Receive, send: Send) -> None:
        nonlocal received
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1000):  # far more than all buffers take
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        received = (await receive())["type"]
        is_cut.set()

    async with served(settings=Settings(stalled_reader_s=0.05), app=endless) as (_, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(GOOD)
        await is_cut.wait()
        assert received == "http.disconnect"
        writer.transport.abort()


@pytest.mark.parametrize(
    ("proxies", "who"),
    [((), b"127.0.0.1 http"), (("192.0.2.9",), b"127.0.0.1 http"), (("127.0.0.1",), b"192.0.2.7 https")],
)
async def test_forwarded_headers_are_trusted_only_from_configured_proxies(proxies: tuple[str, ...], who: bytes) -> None:
    forwarded = b"X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n"
    async with served(settings=Settings(trusted_proxies=proxies)) as (_, port):
        answer = await send_raw(port, b"GET /who HTTP/1.1\r\nHost: a\r\n" + forwarded + b"\r\n")
    assert answer.endswith(b"\r\n\r\n" + who)


async def test_requests_are_not_logged_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "uvicorn.access")
    async with served() as (_, port):
        await send_raw(port, GOOD)
    assert [record for record in caplog.records if record.name == "uvicorn.access"] == []


async def test_malformed_utf8_on_a_websocket_closes_it_and_is_one_log_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # restored afterwards

    async def socket_app(scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass

    handshake = (
        b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    out = io.StringIO()
    configure_logging("json", "info", stream=out)
    try:
        async with served(app=socket_app) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(handshake)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"\x81\x81\0\0\0\0\xff")  # a masked text frame with one byte
            assert await reader.readexactly(4) == b"\x88\x02" + (1007).to_bytes(2)
            writer.close()
    finally:
        structlog.reset_defaults()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["level"], line["event"], "trace" in line) for line in lines] == [
        ("warning", "closed a WebSocket that sent malformed UTF-8", False)
    ]


# --- signals ----------------------------------------------------------------------------------------------------------


async def test_the_first_signal_drains_while_the_server_still_answers() -> None:
    drained, is_draining = asyncio.Event(), asyncio.Event()

    async def drain(_: float | None) -> None:
        is_draining.set()
        await drained.wait()

    async with served(drain) as (server, port):
        server.handle_exit(signal.SIGTERM, None)
        await is_draining.wait()
        assert status(await send_raw(port, GOOD)) == 200
        assert not server.should_exit
        drained.set()


async def test_the_second_signal_cuts_the_drain_short() -> None:
    is_draining, cut = asyncio.Event(), asyncio.Event()

    async def drain(_: float | None) -> None:
        is_draining.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cut.set()

    async with served(drain) as (server, _):
        server.handle_exit(signal.SIGTERM, None)
        await is_draining.wait()
        server.handle_exit(signal.SIGINT, None)
        await cut.wait()
    assert server.should_exit
    assert server.force_exit


# --- the address ------------------------------------------------------------------------------------------------------


def test_an_unavailable_address_is_reported_on_one_line() -> None:
    with bind_socket("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotStart, match=rf"127\.0\.0\.1 port {port}: Address already in use: choose another"):
            bind_socket("127.0.0.1", port)
    with pytest.raises(CannotStart, match="cannot listen on"):
        bind_socket("192.0.2.1", 0)
    with pytest.raises(CannotStart, match="cannot listen on"):
        bind_socket("no such host.invalid", 0)


def test_a_port_that_another_server_takes_during_the_start_is_reported_on_one_line(tmp_path: Path) -> None:
    """Both may bind it before one of them listens."""
    with bind_socket("127.0.0.1", 0) as faster:
        port = faster.getsockname()[1]
        slower = bind_socket("127.0.0.1", port)
        faster.listen()
        settings = Settings(data=str(tmp_path), port=port, rehearsal=True)
        with pytest.raises(CannotStart, match=rf"127\.0\.0\.1 port {port}: Address already in use: choose another"):
            runner.serve_socket(slower, settings, {}, lambda _: pytest.fail("it cannot be ready"))


def test_a_connection_before_the_server_is_ready_is_refused() -> None:
    with bind_socket("127.0.0.1", 0) as early, socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect(early.getsockname())


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux supports TCP_USER_TIMEOUT")
def test_connections_have_a_send_timeout_of_a_minute() -> None:
    with bind_socket("127.0.0.1", 0) as listener, socket.socket() as client:
        listener.listen()
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000


def test_an_ipv6_address_is_bracketed() -> None:
    assert url_of("::1", 80) == "http://[::1]:80"
    assert url_of("127.0.0.1", 80) == "http://127.0.0.1:80"


# --- the start --------------------------------------------------------------------------------------------------------

SLOW_TO_IMPORT = (
    "cryptography",
    "httpx2",
    "mcp",
    "openai",
    "opentelemetry",
    "prometheus_client",
    "pydantic",
    "pydantic_ai",
    "xllamacpp",
)


def test_the_start_imports_no_slow_optional_modules() -> None:
    """The first response comes 0.6 s after the process starts; each of these modules would add much to it."""
    code = "import sys, dragoman.server.runner, dragoman.protocols.aap.http; print(*sys.modules)"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "uvicorn" in loaded
    assert loaded & set(SLOW_TO_IMPORT) == set()
