"""Requests that are sent before the response to the one before: good ones, bad ones, upgrades, and far too many."""

import asyncio
import gc

import pytest

from dragoman.asgi import http_connection
from tests.abuse.conftest import ServerMaker
from tests.abuse.raw_client import ListeningServer
from tests.asgi_client import DEADLINE_S
from tests.protocols.aap.client import BASE, Session, user

HANDSHAKE = (
    b"GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize(
    "bad",
    [
        b"nonsense\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /process HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnot a size\r\n",
        b"GET /healthz HTTP/1.1\r\nX: " + b"y" * (2 * http_connection.MAX_HEAD_BYTES),
    ],
    ids=["no request", "for a proxy", "a malformed body", "a large head"],
)
async def test_a_good_request_is_answered_before_the_bad_one_behind_it(
    socket_server: ListeningServer, bad: bytes
) -> None:
    peer = await socket_server.peer()
    await peer.send(socket_server.get(f"{BASE}/meta") * 2 + bad + socket_server.get("/healthz"))
    assert [(await peer.answer()).status for _ in range(3)] == [200, 200, 400]
    assert await peer.wait_until_closed()


async def test_a_request_behind_one_that_ends_the_connection_does_not_take_its_answer_away(
    socket_server: ListeningServer,
) -> None:
    peer = await socket_server.peer()
    await peer.send(socket_server.get("/healthz", None, "Connection: close") + socket_server.get("/healthz"))
    assert (await peer.answer()).status == 200
    await peer.read_to_end()


@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
async def test_a_request_behind_an_upgrade_that_is_ignored_is_answered(
    socket_server: ListeningServer, upgrade: str
) -> None:
    peer = await socket_server.peer()
    request = socket_server.get("/healthz", None, "Connection: Upgrade", f"Upgrade: {upgrade}")
    await peer.send(request * 3 + socket_server.get(f"{BASE}/meta"))
    assert [(await peer.answer()).status for _ in range(4)] == [200] * 4


async def test_the_body_of_a_request_that_asks_for_an_upgrade_is_read(socket_server: ListeningServer) -> None:
    """Java's HTTP client asks for HTTP/2 in each request."""
    session = await socket_server.aap_client().create()
    peer = await socket_server.peer()
    lines = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk")
    body = {"messages": [user("hello")], "stream": "none"}
    await peer.send(socket_server.post(f"{BASE}{session.path}/turns", body, "alice", *lines))
    assert (await peer.answer()).status == 200
    await peer.send(socket_server.get(f"{BASE}/meta"))
    assert (await peer.answer()).status == 200


async def test_a_handshake_does_not_overtake_the_request_before_it(socket_server: ListeningServer) -> None:
    """Its frames would come in the middle of a response."""
    peer = await socket_server.peer()
    key = f"Authorization: Bearer {socket_server.keys['alice']}\r\n\r\n".encode()
    await peer.send(socket_server.get(f"{BASE}/meta") + HANDSHAKE + key)
    assert [(await peer.answer()).status for _ in range(2)] == [200, 405]
    await peer.send(HANDSHAKE + key)
    assert (await peer.head())[0] == 101


async def test_thousands_of_pipelined_requests_wait_as_bytes(socket_server: ListeningServer) -> None:
    """As requests, 2 MB from each of a hundred clients without a key would need gigabytes."""
    request = b"GET /healthz HTTP/1.1\r\nHost:a\r\n\r\n"
    count = 256 * 1024 // len(request)
    peer = await socket_server.peer()
    await peer.send(request * count)
    most = 0
    for number in range(count):
        assert (await peer.answer()).status == 200
        if number % 500 == 0:
            most = max(most, sum(isinstance(each, http_connection.Exchange) for each in gc.get_objects()))
    assert most < 2 * http_connection.MAX_PARSED_BYTES // len(request)


async def test_a_stream_whose_client_leaves_with_requests_behind_it_is_closed(open_socket_server: ServerMaker) -> None:
    async with open_socket_server(max_streams_per_user=1, heartbeat_s=0.1) as server:
        session = await server.aap_client().create()
        peer = await server.peer()
        await peer.send(server.get(f"{BASE}{session.path}/events") + server.get("/healthz"))
        assert (await peer.head())[0] == 200
        assert await begin_of_stream(server, session) == 429
        peer.writer.transport.abort()
        async with asyncio.timeout(DEADLINE_S):
            while await begin_of_stream(server, session) == 429:
                pass


async def begin_of_stream(server: ListeningServer, session: Session) -> int:
    peer = await server.peer()
    await peer.send(server.get(f"{BASE}{session.path}/events"))
    status, _ = await peer.head()
    peer.writer.transport.abort()
    return status
