"""The conversations of the suite through the Agent API: in process, with its own client, with restarts and a crash."""

from pathlib import Path

import pytest

from tests.conversations import CONVERSATIONS, Conversation, play
from tests.protocols.agentscope.driver import AgentScopeDriver
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory, SocketServer, server_process

EXPRESSIBLE = [each for each in CONVERSATIONS if each.needs <= AgentScopeDriver().features]
ALIVE = [each for each in EXPRESSIBLE if not each.crashes()]


def name_of(value: object) -> str:
    return value.name.replace(" ", "-") if isinstance(value, Conversation) else str(value)


@requirement("agentscope:suite:conversations", "agentscope:suite:same-log")
@pytest.mark.parametrize("conversation", ALIVE, ids=name_of)
async def test_a_conversation_in_process_and_its_history_through_aap(
    app_server: AppServer, conversation: Conversation
) -> None:
    await play(conversation, AgentScopeDriver(), app_server)


@requirement("agentscope:suite:conversations", "agentscope:clients:python")
@pytest.mark.parametrize("conversation", ALIVE, ids=name_of)
async def test_a_conversation_with_the_published_client(
    socket_server: SocketServer, conversation: Conversation
) -> None:
    await play(conversation, AgentScopeDriver(with_history=False, is_official=True), socket_server)


@requirement("agentscope:suite:conversations", "agentscope:durable:restart")
@pytest.mark.parametrize("conversation", ALIVE, ids=name_of)
async def test_a_conversation_with_a_restart_before_every_step(
    open_app_server: AppServerFactory, conversation: Conversation
) -> None:
    async with open_app_server() as server:
        await play(conversation, AgentScopeDriver(), server, restart_before=lambda place: place > 0)


@requirement("agentscope:suite:conversations", "agentscope:durable:kill", "agentscope:replay:same-numbers")
@pytest.mark.parametrize("conversation", [each for each in EXPRESSIBLE if each.crashes()], ids=name_of)
async def test_a_conversation_with_a_server_that_is_killed(tmp_path: Path, conversation: Conversation) -> None:
    async with server_process(tmp_path) as server:
        await play(conversation, AgentScopeDriver(), server)
