"""The conversations of the suite through the client library, over real sockets that are cut again and again."""

from pathlib import Path

import pytest

from dragoman.client.transports import ProtocolName
from tests.client.cutting_proxy import at_random, cutting_proxy
from tests.client.driver import FEATURES, ClientDriver
from tests.conversations import CONVERSATIONS, Conversation, play
from tests.servers import SocketServer, server_process

PROTOCOLS: list[ProtocolName] = list(FEATURES)


def names(value: object) -> str:
    return value.name.replace(" ", "-") if isinstance(value, Conversation) else str(value)


def cases() -> list[tuple[ProtocolName, Conversation]]:
    return [
        (protocol, each)
        for protocol in PROTOCOLS
        for each in CONVERSATIONS
        if each.needs <= FEATURES[protocol] and not each.crashes()
    ]


@pytest.mark.parametrize(("protocol", "conversation"), cases(), ids=names)
async def test_a_conversation_over_a_connection_that_is_cut(
    socket_server: SocketServer, protocol: ProtocolName, conversation: Conversation
) -> None:
    async with cutting_proxy(socket_server.connection.url, at_random(seed=len(conversation.name))) as cutter:
        driver = ClientDriver(protocol, cutter)
        try:
            await play(conversation, driver, socket_server)
        finally:
            await driver.close()
        assert cutter.cut_count > 0


@pytest.mark.parametrize("conversation", [each for each in CONVERSATIONS if each.crashes()], ids=names)
async def test_a_conversation_with_a_server_that_is_killed_over_one_protocol_after_the_other(
    tmp_path: Path, conversation: Conversation
) -> None:
    """The library reaches the server again by itself, at another port, and goes on where it was."""
    async with server_process(tmp_path) as server:
        for protocol in PROTOCOLS:
            async with cutting_proxy(server.connection.url, lambda: None) as cutter:  # the kill is the cut
                driver = ClientDriver(protocol, cutter)
                try:
                    await play(conversation, driver, server)
                finally:
                    await driver.close()
                assert driver.reconnected > 0
