"""The conversations of the suite through Chat Completions, with a session key."""

import pytest

from tests.conversations import CONVERSATIONS, Conversation, play
from tests.protocols.openai.chat_driver import ChatDriver
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

EXPRESSIBLE = [each for each in CONVERSATIONS if each.needs <= ChatDriver.features]


def name_of(conversation: Conversation) -> str:
    return conversation.name.replace(" ", "-")


@requirement("openai-chat:session:list", "openai-chat:answer:finish")
@pytest.mark.parametrize("conversation", EXPRESSIBLE, ids=name_of)
async def test_a_conversation(app_server: AppServer, conversation: Conversation) -> None:
    await play(conversation, ChatDriver(), app_server)


@requirement("openai-chat:session:list")
@pytest.mark.parametrize("conversation", EXPRESSIBLE, ids=name_of)
async def test_a_conversation_with_a_restart_before_every_step(
    open_app_server: AppServerFactory, conversation: Conversation
) -> None:
    async with open_app_server() as server:
        await play(conversation, ChatDriver(), server, restart_before=lambda place: place > 0)
