"""The conversations of the suite through Blade: plain and raw sockets, with restarts, after a crash.

The driver folds the patches of every chat and compares them with `turn:end` and with the messages (section 7, G1, G2).
"""

import asyncio
import json
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from dragoman.testing import serve
from tests.conversations import CONVERSATIONS, Conversation, play
from tests.extent import sampled
from tests.protocols.blade.driver import BladeDriver
from tests.requirements import requirement
from tests.servers import SocketServer, running_socket_server, server_process

EXPRESSIBLE = [each for each in CONVERSATIONS if each.needs <= BladeDriver.features]
ALIVE = [each for each in EXPRESSIBLE if not each.crashes()]


def name_of(value: object) -> str:
    return value.name.replace(" ", "-") if isinstance(value, Conversation) else str(value)


@requirement("blade:suite:conversations", "blade:patches:fold", "blade:patches:end-equals-messages")
@pytest.mark.parametrize("is_raw", [False, True], ids=["plain", "raw"])
@pytest.mark.parametrize("conversation", ALIVE, ids=name_of)
async def test_a_conversation(shared_server: SocketServer, conversation: Conversation, is_raw: bool) -> None:
    driver = BladeDriver(is_raw=is_raw)
    await play(conversation, driver, shared_server)
    await driver.close()


@requirement("blade:suite:conversations", "blade:catch-up:restart")
@pytest.mark.parametrize("conversation", sampled(ALIVE, 2), ids=name_of)
async def test_a_conversation_with_a_restart_before_every_step(tmp_path: Path, conversation: Conversation) -> None:
    async with running_socket_server(tmp_path) as app_server:
        driver = BladeDriver()
        await play(conversation, driver, app_server, restart_before=lambda place: place > 0)
        await driver.close()


@requirement("blade:suite:conversations", "blade:catch-up:restart")
@pytest.mark.parametrize("is_raw", sampled([False, True], 2))
@pytest.mark.parametrize("conversation", [each for each in EXPRESSIBLE if each.crashes()], ids=name_of)
async def test_a_conversation_with_a_server_that_is_killed(
    tmp_path: Path, conversation: Conversation, is_raw: bool
) -> None:
    async with server_process(tmp_path) as server:
        driver = BladeDriver(is_raw=is_raw)
        await play(conversation, driver, server)
        await driver.close()


@requirement("blade:catch-up:restart")
async def test_a_server_that_stops_lets_its_clients_reconnect() -> None:
    """Socket.IO's clients reconnect when the connection is lost, but not after the packet `disconnect` (`41`)."""
    frames: list[object] = []
    with ExitStack() as stack:
        server = stack.enter_context(serve())
        address = server.url.replace("http", "ws") + "/socket.io/?EIO=4&transport=websocket"
        async with connect(address) as socket:
            assert str(await socket.recv()).startswith("0{")
            await socket.send("40" + json.dumps({"token": server.key}))
            assert str(await socket.recv()).startswith("40{")
            stopping = asyncio.create_task(asyncio.to_thread(stack.close))
            with suppress(ConnectionClosed):
                while True:
                    frames.append(await socket.recv())
        await stopping
    assert "41" not in frames
