"""The conversations of the suite through the official clients, 1.0 and 0.x."""

from pathlib import Path

import pytest

from tests.conversations import CONVERSATIONS, Conversation, play
from tests.extent import sampled
from tests.protocols.agui.endpoint_driver import EndpointDriver
from tests.protocols.agui.official_clients import VERSIONS, OfficialClients, Version
from tests.requirements import requirement
from tests.servers import SocketServer, running_socket_server, server_process

EXPRESSIBLE = [each for each in CONVERSATIONS if each.needs <= EndpointDriver.features]
ALIVE = [each for each in EXPRESSIBLE if not each.crashes()]


def name_of(value: object) -> str:
    return value.name.replace(" ", "-") if isinstance(value, Conversation) else str(value)


@requirement("ag-ui-b:suite:conversations", "ag-ui-b:clients:no-warnings")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("conversation", ALIVE, ids=name_of)
async def test_a_conversation(
    socket_server: SocketServer, agui_clients: OfficialClients, conversation: Conversation, version: Version
) -> None:
    await play(conversation, EndpointDriver(agui_clients, version), socket_server)


@requirement("ag-ui-b:suite:conversations", "ag-ui-b:history:restart")
@pytest.mark.parametrize("conversation", sampled(ALIVE, 2), ids=name_of)
async def test_a_conversation_with_a_restart_before_every_step(
    tmp_path: Path, agui_clients: OfficialClients, conversation: Conversation
) -> None:
    async with running_socket_server(tmp_path) as server:
        await play(conversation, EndpointDriver(agui_clients, "1"), server, restart_before=lambda place: place > 0)


@requirement("ag-ui-b:suite:conversations", "ag-ui-b:connect:after-crash")
@pytest.mark.parametrize("version", sampled(VERSIONS, 2))
@pytest.mark.parametrize("conversation", [each for each in EXPRESSIBLE if each.crashes()], ids=name_of)
async def test_a_conversation_with_a_server_that_is_killed(
    tmp_path: Path, agui_clients: OfficialClients, conversation: Conversation, version: Version
) -> None:
    async with server_process(tmp_path) as server:
        await play(conversation, EndpointDriver(agui_clients, version), server)
