"""The conversation suite through the client library, over real sockets that are cut again and again."""

from pathlib import Path

import pytest

from dragoman.client.transports import ClientProtocol
from tests.client.cutting_proxy import at_random, cutting_proxy
from tests.client.driver import FEATURES, ClientDriver
from tests.conversations import CONVERSATIONS, Conversation, play
from tests.extent import sampled
from tests.servers import SocketServer, server_process

PROTOCOLS: list[ClientProtocol] = list(FEATURES)


def names(value: object) -> str:
    return value.name.replace(" ", "-") if isinstance(value, Conversation) else str(value)


def cases() -> list[tuple[ClientProtocol, Conversation]]:
    return [
        (protocol, each)
        for protocol in PROTOCOLS
        for each in CONVERSATIONS
        if each.needs <= FEATURES[protocol] and not each.crashes()
    ]


@pytest.mark.parametrize(("protocol", "conversation"), sampled(cases(), 5), ids=names)
async def test_a_conversation_survives_cut_connections(
    socket_server: SocketServer, protocol: ClientProtocol, conversation: Conversation
) -> None:
    async with cutting_proxy(socket_server.connection.url, at_random(seed=len(conversation.name))) as proxy:
        driver = ClientDriver(protocol, proxy)
        try:
            await play(conversation, driver, socket_server)
        finally:
            await driver.close()
        assert proxy.cut_count > 0


@pytest.mark.parametrize("conversation", [each for each in CONVERSATIONS if each.crashes()], ids=names)
async def test_a_conversation_survives_a_killed_server_over_each_protocol(
    tmp_path: Path, conversation: Conversation
) -> None:
    """The library reconnects to the restarted server, at another port, and resumes by itself."""
    async with server_process(tmp_path) as server:
        for protocol in PROTOCOLS:
            async with cutting_proxy(server.connection.url, lambda: None) as proxy:  # the kill is the cut
                driver = ClientDriver(protocol, proxy)
                try:
                    await play(conversation, driver, server)
                finally:
                    await driver.close()
                assert driver.reconnected > 0
