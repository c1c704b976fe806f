"""Large requests at the same time: memory for them is bounded, and small requests are always served."""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from io import StringIO

import pytest

from tests.abuse.conftest import ServerMaker
from tests.abuse.raw_client import ListeningServer, RawConnection
from tests.asgi_client import DEADLINE_S

MIB = 1024 * 1024
PATHS = (
    ("POST", "/aap/v3/sessions", "application/json"),
    ("POST", "/ag-ui/rehearsal", "application/json"),
    ("POST", "/api/v1/agent/transcribe", "multipart/form-data; boundary=b"),
    ("POST", "/process", "application/json"),
    ("POST", "/api/sessions/import", "multipart/form-data; boundary=b"),
)
"""A large request for each protocol."""


def part_of_request(server: ListeningServer, path: str, media_type: str, name: str, declared: int) -> bytes:
    """The first 7 MiB of a request."""
    fields = (f"Content-Type: {media_type}", f"Content-Length: {declared}")
    return f"POST {path} HTTP/1.1\r\n".encode() + server.lines(name, *fields) + b"\r\n" + b"x" * (7 * MIB)


async def until_used(server: ListeningServer, at_least: int, at_most: int = 10**12) -> None:
    """Wait until the requests of a server use that much memory."""
    requests = server.app.memory.requests
    async with asyncio.timeout(DEADLINE_S):
        while not at_least <= requests.used_bytes <= at_most:  # noqa: ASYNC110  # nothing tells
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(("method", "path", "media_type"), PATHS)
async def test_large_bodies_beyond_the_budget_are_429_and_small_ones_are_served(
    open_socket_server: ServerMaker, method: str, path: str, media_type: str
) -> None:
    async with open_socket_server(bodies_bytes=16 * MIB) as server:
        first, second = await server.peer(), await server.peer()
        await first.send(part_of_request(server, path, media_type, "alice", 8 * MIB))
        await until_used(server, 6 * MIB)
        await second.send(part_of_request(server, path, media_type, "bob", 8 * MIB))
        await until_used(server, 12 * MIB)
        refused = await server.send(part_of_request(server, path, media_type, "admin", 8 * MIB))
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert b"too many large requests at the same time" in refused.body
        await server.aap_client("alice").create()
        for peer in (first, second):
            await peer.close()
        await until_used(server, 0, 0)


async def test_two_servers_in_a_process_have_a_budget_each(open_socket_server: ServerMaker) -> None:
    _, path, media_type = PATHS[0]
    async with open_socket_server(bodies_bytes=16 * MIB) as busy, open_socket_server(bodies_bytes=16 * MIB) as idle:
        for name in ("alice", "bob"):
            await (await busy.peer()).send(part_of_request(busy, path, media_type, name, 8 * MIB))
        await until_used(busy, 12 * MIB)
        served = await idle.send(part_of_request(idle, path, media_type, "admin", 7 * MIB))
        assert (served.status, served.code) == (400, "invalid_json")


async def test_a_user_gets_half_of_the_budget(open_socket_server: ServerMaker) -> None:
    async with open_socket_server(bodies_bytes=16 * MIB) as server:
        _, path, media_type = PATHS[0]
        first = await server.peer()
        await first.send(part_of_request(server, path, media_type, "alice", 8 * MIB))
        await until_used(server, 6 * MIB)
        refused = await server.send(part_of_request(server, path, media_type, "alice_phone", 8 * MIB))
        assert (refused.status, refused.json["code"]) == (429, "rate_limited")
        await first.close()
        await until_used(server, 0, 0)


@asynccontextmanager
async def web_socket(server: ListeningServer) -> AsyncIterator[RawConnection]:
    peer = await server.peer()
    key = base64.b64encode(os.urandom(16)).decode()
    fields = ("Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13")
    await peer.send(server.get("/socket.io/?EIO=4&transport=websocket", None, *fields))
    assert (await peer.head())[0] == 101
    yield peer
    await peer.close()


def text_frame(length: int, part: bytes) -> bytes:
    """The head of a masked text frame and a part of its content."""
    return b"\x81\xff" + length.to_bytes(8, "big") + b"\0\0\0\0" + part


async def test_large_messages_on_web_sockets_count_too(open_socket_server: ServerMaker) -> None:
    pytest.importorskip("websockets")
    async with open_socket_server(bodies_bytes=16 * MIB) as server:
        async with web_socket(server) as first, web_socket(server) as second:
            await first.send(text_frame(15 * MIB, b"x" * (10 * MIB)))
            await until_used(server, 9 * MIB)
            with suppress(ConnectionError):  # the server closes before it has read everything
                await second.send(text_frame(15 * MIB, b"x" * (10 * MIB)))
            with suppress(ConnectionError):
                assert b"too many large requests" in await second.read_to_end()
            assert server.app.memory.requests.used_bytes <= 16 * MIB
        await until_used(server, 0, 0)


async def test_text_on_a_web_socket_that_is_not_utf_8_ends_it_without_a_traceback(
    open_socket_server: ServerMaker, log_records: StringIO
) -> None:
    pytest.importorskip("websockets")
    async with open_socket_server() as server, web_socket(server) as peer:
        await peer.send(text_frame(4, b"4\xff\xfe\xfd"))
        assert (1007).to_bytes(2, "big") in await peer.read_to_end()
    (entry,) = [
        entry for line in log_records.getvalue().splitlines() if "UTF-8" in (entry := json.loads(line))["event"]
    ]
    assert (entry["level"], "exception" in entry) == ("warning", False)
    assert "Traceback" not in log_records.getvalue()
