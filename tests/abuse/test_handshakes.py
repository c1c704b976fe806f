"""Floods of Socket.IO handshakes and events: connections without a key, and clients that do not read."""

import asyncio
import gc

import pytest
from engineio.async_socket import AsyncSocket  # type: ignore[import-untyped]  # the library is not annotated

from dragoman.protocols.blade.socket import socketio_server
from tests.abuse.conftest import ServerMaker
from tests.abuse.raw_client import ListeningServer, RawConnection

POLLING = "/socket.io/?EIO=4&transport=polling"
LIMIT = 3


def library_connections() -> int:
    """The Engine.IO connections in memory, also those that are closed."""
    gc.collect()
    return sum(type(each) is AsyncSocket for each in gc.get_objects())


async def handshake(peer: RawConnection, server: ListeningServer, *headers: str) -> str:
    await peer.send(server.get(POLLING, None, *headers))
    return str((await peer.answer()).body.split(b'"')[3].decode())


async def status_with_key(peer: RawConnection, server: ListeningServer, sid: str) -> int:
    packet = b'40{"token":"%s"}' % server.keys["alice"].encode()
    await peer.send(server.post(f"{POLLING}&sid={sid}", packet, None))
    return (await peer.answer()).status


async def test_an_address_without_a_key_keeps_its_newest_connections_and_those_of_others_stay(
    open_socket_server: ServerMaker,
) -> None:
    settings = {"blade_unauthenticated_per_address": LIMIT, "trusted_proxies": ("127.0.0.1",)}
    async with open_socket_server(**settings) as server:
        peer, before = await server.peer(), library_connections()
        other = await handshake(peer, server, "X-Forwarded-For: 2001:db8:1::1")
        flood = [await handshake(peer, server, f"X-Forwarded-For: 2001:db8:2::{number:x}") for number in range(20)]
        assert library_connections() - before <= LIMIT + 1
        assert [await status_with_key(peer, server, sid) for sid in flood] == [400] * (20 - LIMIT) + [200] * LIMIT
        assert await status_with_key(peer, server, other) == 200


async def test_an_address_that_no_trusted_proxy_names_is_not_believed(open_socket_server: ServerMaker) -> None:
    async with open_socket_server(blade_unauthenticated_per_address=LIMIT) as server:
        peer = await server.peer()
        sids = [await handshake(peer, server, f"X-Forwarded-For: 192.0.2.{number}") for number in range(10)]
        assert [await status_with_key(peer, server, sid) for sid in sids] == [400] * (10 - LIMIT) + [200] * LIMIT


async def test_connections_that_had_a_key_and_gave_it_up_count_as_connections_without_one(
    open_socket_server: ServerMaker,
) -> None:
    async with open_socket_server(blade_unauthenticated_per_address=LIMIT) as server:
        peer, sids = await server.peer(), []
        for _ in range(10):
            sids.append(sid := await handshake(peer, server))
            assert await status_with_key(peer, server, sid) == 200
            await peer.send(server.post(f"{POLLING}&sid={sid}", b"41", None))
            assert (await peer.answer()).status == 200
        assert [await status_with_key(peer, server, sid) for sid in sids] == [400] * (10 - LIMIT) + [200] * LIMIT


async def test_a_client_that_connects_again_and_again_is_pinged_once_at_a_time(open_socket_server: ServerMaker) -> None:
    of_other_servers = asyncio.all_tasks()
    async with open_socket_server() as server:
        peer = await server.peer()
        sid = await handshake(peer, server)
        for _ in range(10):
            assert await status_with_key(peer, server, sid) == 200
        for _ in range(10):
            await peer.send(server.post(f"{POLLING}&sid={sid}", b"41", None))
            assert (await peer.answer()).status == 200
            assert await status_with_key(peer, server, sid) == 200
        assert sum("_send_ping" in repr(task.get_coro()) for task in asyncio.all_tasks() - of_other_servers) == 1


async def test_the_head_of_a_handshake_is_not_kept(open_socket_server: ServerMaker) -> None:
    padding = "X-Padding: " + "p" * 50_000
    async with open_socket_server() as server:
        peer = await server.peer()
        for _ in range(5):
            await handshake(peer, server, padding)
        gc.collect()
        heads = [each for each in gc.get_objects() if isinstance(each, dict) and "HTTP_X_PADDING" in each]
        assert not heads


async def test_events_of_a_client_that_does_not_read_their_answers_wait_until_it_does(
    open_socket_server: ServerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socketio_server, "SLOW_QUEUE_EVENTS", 20)
    async with open_socket_server() as server:
        reader, writer = await server.peer(), await server.peer()
        sid = await handshake(reader, server)
        assert await status_with_key(writer, server, sid) == 200
        events = b"\x1e".join(b'42%d["nothing"]' % number for number in range(16))
        post = server.post(f"{POLLING}&sid={sid}", events, None)
        await writer.send(post, post)
        assert (await writer.answer()).status == 200
        second = asyncio.create_task(writer.answer())
        assert await server.assert_responsive()
        assert not second.done()
        await reader.send(server.get(f"{POLLING}&sid={sid}", None))
        assert (await reader.answer()).body.count(b"43") <= 22
        assert (await second).status == 200


@pytest.mark.parametrize("frames", [b"5", b"x"])
async def test_an_upgrade_that_was_not_begun_cannot_end_over_polling(
    open_socket_server: ServerMaker, frames: bytes
) -> None:
    async with open_socket_server() as server:
        peer = await server.peer()
        sid = await handshake(peer, server)
        await peer.send(server.post(f"{POLLING}&sid={sid}", frames, None))
        assert (await peer.answer()).status == 400
