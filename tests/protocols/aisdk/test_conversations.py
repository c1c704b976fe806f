"""The conversations of the suite over the AI SDK."""

from pathlib import Path

import pytest

from tests.conversations import CONVERSATIONS, Conversation, play
from tests.protocols.aisdk.driver import AiSdkDriver
from tests.requirements import requirement
from tests.servers import AppServer, running_server, server_process

ALIVE = [each for each in CONVERSATIONS if each.needs <= AiSdkDriver.features and not each.crashes()]
KILLED = [each for each in CONVERSATIONS if each.needs <= AiSdkDriver.features and each.crashes()]


def name_of(value: object) -> str:
    return value.name.replace(" ", "-") if isinstance(value, Conversation) else str(value)


@requirement("ai-sdk:suite:conversations")
@pytest.mark.parametrize("conversation", ALIVE, ids=name_of)
async def test_a_conversation(app_server: AppServer, conversation: Conversation) -> None:
    await play(conversation, AiSdkDriver(), app_server)


@requirement("ai-sdk:suite:conversations", "ai-sdk:history:equal")
async def test_conversations_with_a_restart_before_every_step(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        for conversation in ALIVE:
            await play(conversation, AiSdkDriver(), server, restart_before=lambda place: place > 0)


@requirement("ai-sdk:suite:conversations", "ai-sdk:stream:cut")
@pytest.mark.parametrize("conversation", KILLED, ids=name_of)
async def test_a_conversation_with_a_server_that_is_killed(tmp_path: Path, conversation: Conversation) -> None:
    async with server_process(tmp_path) as server:
        await play(conversation, AiSdkDriver(), server)
