"""The conversations of the suite through AAP: in process, over a socket, with restarts, after a crash."""

from pathlib import Path

import pytest

from tests.conversations import CONVERSATIONS, Conversation, Server, play
from tests.extent import sampled
from tests.protocols.aap.client import AapClient
from tests.protocols.aap.driver import AapDriver
from tests.protocols.aap.stream import MODES, Mode
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory, SocketServer, server_process

EXPRESSIBLE = [each for each in CONVERSATIONS if each.needs <= AapDriver.features]
ALIVE = [each for each in EXPRESSIBLE if not each.crashes()]


def name_of(value: object) -> str:
    return value.name.replace(" ", "-") if isinstance(value, Conversation) else str(value)


def aap_client_of(server: Server) -> AapClient:
    return AapClient(server.connection, server.key("alice"))


@requirement("aap:suite:conversations")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("conversation", ALIVE, ids=name_of)
async def test_a_conversation_in_process(app_server: AppServer, conversation: Conversation, mode: Mode) -> None:
    await play(conversation, AapDriver(mode, aap_client_of), app_server)


@requirement("aap:suite:conversations", "aap:turn:restart")
@pytest.mark.parametrize("conversation", sampled(ALIVE, 2), ids=name_of)
async def test_a_conversation_with_a_restart_before_every_step(
    open_app_server: AppServerFactory, conversation: Conversation
) -> None:
    async with open_app_server() as server:
        await play(conversation, AapDriver("delta", aap_client_of), server, restart_before=lambda place: place > 0)


@requirement("aap:suite:conversations")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("conversation", ALIVE, ids=name_of)
async def test_a_conversation_over_a_socket(
    socket_server: SocketServer, conversation: Conversation, mode: Mode
) -> None:
    await play(conversation, AapDriver(mode, aap_client_of), socket_server)


@requirement("aap:suite:conversations", "aap:turn:restart", "aap:events:restart")
@pytest.mark.parametrize("mode", sampled(["delta", "message"], 2))
@pytest.mark.parametrize("conversation", [each for each in EXPRESSIBLE if each.crashes()], ids=name_of)
async def test_a_conversation_with_a_server_that_is_killed(
    tmp_path: Path, conversation: Conversation, mode: Mode
) -> None:
    async with server_process(tmp_path) as server:
        await play(conversation, AapDriver(mode, aap_client_of), server)
