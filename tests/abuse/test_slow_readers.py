"""Clients that ask for large responses and do not read them."""

import asyncio
from contextlib import suppress

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
