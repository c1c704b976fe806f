"""WebSocket frames of one byte: tens of thousands of them arrive in one read."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.frames import Close, CloseCode, Frame, Opcode

from dragoman.asgi.websocket_connection import MAX_FRAMES_PER_TURN, MAX_PARSED_BYTES, WebSocketConnection
from tests.abuse.raw_client import ListeningServer, RawConnection

COUNT = 30_000
FRAME_BYTES = 7
MAX_PER_TURN = MAX_FRAMES_PER_TURN + MAX_PARSED_BYTES // FRAME_BYTES


class Turns:
    """Counts the frames that the server handles in each turn of the loop, which does not rest meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.frames: Counter[int] = Counter()
        self._number = 0
        self._loop = asyncio.get_running_loop()
        for name in ("handle_text", "handle_cont", "handle_ping"):
            monkeypatch.setattr(WebSocketConnection, name, self._counted(getattr(WebSocketConnection, name)))
        self._tick()

    def _tick(self) -> None:
        self._number += 1
        self._next = self._loop.call_later(0, self._tick)

    def stop(self) -> None:
        """Count no further turns: the loop is that of other tests, too."""
        self._next.cancel()

    def _counted(self, handle: Any) -> Any:
        def handle_counted(*args: Any) -> Any:
            self.frames[self._number] += 1
            return handle(*args)

        return handle_counted


@pytest.fixture
async def turns(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Turns]:
    """The turns of a test."""
    counted = Turns(monkeypatch)
    yield counted
    counted.stop()


@pytest.mark.parametrize("kind", ["fragments", "pings"])
async def test_tiny_frames_let_others_have_their_turn_and_are_all_read(
    socket_server: ListeningServer, kind: str, turns: Turns
) -> None:
    frames = {
        "fragments": [Frame(Opcode.TEXT, b"x", fin=False)] + [Frame(Opcode.CONT, b"x", fin=False)] * (COUNT - 1),
        "pings": [Frame(Opcode.PING, b"x")] * COUNT,
    }[kind]
    last = Frame(Opcode.CONT if kind == "fragments" else Opcode.TEXT, b"x")
    headers = {"Authorization": f"Bearer {socket_server.keys['alice']}"}
    url = f"ws://127.0.0.1:{socket_server.port}/v1/responses"
    async with connect(url, additional_headers=headers, ping_interval=None) as socket:
        socket.transport.write(b"".join(each.serialize(mask=True) for each in [*frames, last]))
        assert "error" in str(await socket.recv())
    assert turns.frames.total() == len(frames) + 1
    assert max(turns.frames.values()) <= 2 * MAX_PER_TURN  # what a read brings first is parsed at once


async def test_connections_with_tiny_frames_take_turns_however_many_there_are(
    socket_server: ListeningServer, turns: Turns
) -> None:
    async def flood() -> None:
        headers = {"Authorization": f"Bearer {socket_server.keys['alice']}"}
        url = f"ws://127.0.0.1:{socket_server.port}/v1/responses"
        async with connect(url, additional_headers=headers, ping_interval=None) as socket:
            frames = [*[Frame(Opcode.PING, b"x")] * 5_000, Frame(Opcode.TEXT, b"x")]
            socket.transport.write(b"".join(each.serialize(mask=True) for each in frames))
            assert "error" in str(await socket.recv())

    connections = 8
    await asyncio.gather(*(flood() for _ in range(connections)))
    reads = connections * 2  # what a read brings first is parsed at once
    assert sum(count > MAX_PER_TURN for count in turns.frames.values()) <= reads


async def test_only_the_newest_ping_is_answered_to_a_client_that_does_not_read(socket_server: ListeningServer) -> None:
    pings = 60_000  # their answers are more than the kernel's buffers take
    peer = await upgraded(socket_server, receive_buffer=4096)
    thousand = Frame(Opcode.PING, b"x" * 125).serialize(mask=True) * 1000
    for _ in range(pings // 1000):
        await peer.send(thousand)
    await peer.send(Frame(Opcode.PING, b"newest").serialize(mask=True))
    received = b""
    async with asyncio.timeout(60):
        while not received.endswith(b"newest"):
            received += await peer.reader.read(65_536)
    assert len(received) < pings * 127


async def test_what_a_client_sends_after_the_end_of_its_connection_is_dropped(
    socket_server: ListeningServer, turns: Turns
) -> None:
    peer = await upgraded(socket_server, "/socket.io/?EIO=4&transport=websocket")
    no_packet = Frame(Opcode.TEXT, b"x").serialize(mask=True)
    await peer.send(no_packet * 10)
    async with asyncio.timeout(60):
        await peer.reader.readuntil(Close(CloseCode.NORMAL_CLOSURE, "").serialize())
    await peer.send(no_packet * COUNT, Frame(Opcode.CLOSE, b"").serialize(mask=True))
    assert await socket_server.assert_responsive()
    assert turns.frames.total() <= 10 + 2 * MAX_PER_TURN


async def upgraded(
    server: ListeningServer, path: str = "/v1/responses", *, receive_buffer: int | None = None
) -> RawConnection:
    """Open a WebSocket that answers nothing by itself."""
    peer = await server.peer(receive_buffer=receive_buffer)
    lines = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
    await peer.send(server.get(path, "alice", *lines, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="))
    assert (await peer.head())[0] == 101
    return peer
