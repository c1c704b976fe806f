"""Clients that ask for large responses and do not read them."""

import asyncio
import json
from contextlib import suppress

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedError
from websockets.frames import CloseCode

from tests.abuse.conftest import ServerMaker

MIB = 1024 * 1024


async def test_slow_readers_cost_their_user_the_oldest_responses_and_others_none(
    open_socket_server: ServerMaker,
) -> None:
    async with open_socket_server(rehearsal=True, unread_bytes=24 * MIB) as server:
        paths = {}
        for name in ("alice", "bob"):
            seeds = [
                {"role": "user", "content": "x" * 1_000_000},
                {"role": "assistant", "content": "y" * 1_000_000},
            ] * 5
            body = {"agent": {"name": "rehearsal"}, "messages": seeds}
            session = (await server.send(server.post("/aap/v3/sessions", body, name))).json["sessionId"]
            paths[name] = server.get(f"/api/sessions/{session}/messages", name)
        others = await server.peer(receive_buffer=4096)
        await others.send(paths["bob"])
        await others.head()
        peers = [await server.peer(receive_buffer=4096) for _ in range(5)]
        for peer in peers:
            await peer.send(paths["alice"])
            await peer.head()
        sizes = [await bytes_left(peer.reader) for peer in peers]
        assert sizes[-1] > 10_000_000 > sizes[0]
        assert await bytes_left(others.reader) > 10_000_000


async def bytes_left(reader: asyncio.StreamReader) -> int:
    """How many bytes a client can still read, up to the end of a whole response."""
    size = 0
    with suppress(ConnectionError):
        async with asyncio.timeout(60):
            while size < 10_000_001 and (part := await reader.read(MIB)):
                size += len(part)
    return size


async def test_sockets_that_do_not_read_cost_their_user_the_oldest_one(open_socket_server: ServerMaker) -> None:
    async with open_socket_server(rehearsal=True, unread_bytes=4 * MIB) as server:
        agent = {"agent": {"name": "rehearsal"}}
        session = (await server.send(server.post("/aap/v3/sessions", agent))).json["sessionId"]
        script = json.dumps({"script": [{"say": "word " * 180_000}]})
        turn = {"messages": [{"role": "user", "content": script}]}
        assert (await server.send(server.post(f"/aap/v3/sessions/{session}/turns", turn))).status == 200
        resume = {"session_id": f"sess_{session}", "after_sequence": -1}

        async def subscribe(socket: ClientConnection, times: int) -> None:
            await socket.recv()
            await socket.send('40{"token":"%s"}' % server.keys["alice"])  # noqa: UP031  # braces
            await socket.recv()
            for number in range(times):
                await socket.send(f"42{number}{json.dumps(['session:subscribe', resume])}")

        url = f"ws://127.0.0.1:{server.port}/socket.io/?EIO=4&transport=websocket"
        async with (
            connect(url, max_queue=1, max_size=None) as first,
            connect(url, max_queue=1, max_size=None) as second,
        ):
            for each in (first, second):
                await subscribe(each, 20)
            async with asyncio.timeout(60):
                while not str(await second.recv()).startswith("4319"):
                    pass
                with suppress(ConnectionClosedError):
                    async for _ in first:
                        pass
                assert first.close_code == CloseCode.ABNORMAL_CLOSURE
