"""The conversations of the suite through MCP, with both kinds of clients, also with restarts."""

from pathlib import Path

import pytest

from tests.conversations import CONVERSATIONS, Conversation, play
from tests.protocols.mcp.client import NEW, OLD
from tests.protocols.mcp.driver import McpDriver
from tests.requirements import requirement
from tests.servers import AppServer, running_server

EXPRESSIBLE = [each for each in CONVERSATIONS if each.needs <= McpDriver.features and not each.crashes()]


def name_of(value: object) -> str:
    return value.name.replace(" ", "-") if isinstance(value, Conversation) else str(value)


@requirement("mcp:suite:conversations")
@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("conversation", EXPRESSIBLE, ids=name_of)
async def test_a_conversation(app_server: AppServer, conversation: Conversation, version: str) -> None:
    await play(conversation, McpDriver(version), app_server)


@requirement("mcp:suite:conversations")
@pytest.mark.parametrize("version", [OLD, NEW])
async def test_conversations_with_a_restart_before_every_step(tmp_path: Path, version: str) -> None:
    async with running_server(tmp_path) as server:
        for conversation in EXPRESSIBLE:
            if conversation.needs:
                await play(conversation, McpDriver(version), server, restart_before=lambda place: place > 0)
