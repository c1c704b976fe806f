"""WebSocket frames of one byte: tens of thousands of them arrive in one read."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.frames import Frame, Opcode

from dragoman.asgi.http_connection import MAX_PARSED_BYTES
from dragoman.asgi.websocket_connection import MAX_FRAMES_PER_TURN, WebSocketConnection
from tests.abuse.raw_client import ListeningServer

COUNT = 30_000
FRAME_BYTES = 7


class Turns:
    """Counts the frames that the server handles in each turn of the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.frames: Counter[int] = Counter()
        self._number = 0
        self._loop = asyncio.get_running_loop()
        self._tick()
        for name in ("handle_text", "handle_cont", "handle_ping"):
            monkeypatch.setattr(WebSocketConnection, name, self._counted(getattr(WebSocketConnection, name)))

    def _tick(self) -> None:
        self._number += 1
        self._loop.call_later(0, self._tick)

    def _counted(self, handle: Any) -> Any:
        def handle_counted(*args: Any) -> Any:
            self.frames[self._number] += 1
            return handle(*args)

        return handle_counted


@pytest.mark.parametrize("kind", ["fragments", "pings"])
async def test_tiny_frames_let_others_have_their_turn_and_are_all_read(
    socket_server: ListeningServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = {
        "fragments": [Frame(Opcode.TEXT, b"x", fin=False)] + [Frame(Opcode.CONT, b"x", fin=False)] * (COUNT - 1),
        "pings": [Frame(Opcode.PING, b"x")] * COUNT,
    }[kind]
    last = Frame(Opcode.CONT if kind == "fragments" else Opcode.TEXT, b"x")
    headers = {"Authorization": f"Bearer {socket_server.keys['alice']}"}
    url = f"ws://127.0.0.1:{socket_server.port}/v1/responses"
    async with connect(url, additional_headers=headers, ping_interval=None) as socket:
        turns = Turns(monkeypatch)
        socket.transport.write(b"".join(each.serialize(mask=True) for each in [*frames, last]))
        assert "error" in str(await socket.recv())
    assert turns.frames.total() == len(frames) + 1
    assert max(turns.frames.values()) <= MAX_FRAMES_PER_TURN + MAX_PARSED_BYTES // FRAME_BYTES
