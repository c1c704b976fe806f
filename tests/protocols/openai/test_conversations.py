"""The conversations of the suite through Responses: in process, with restarts and with a crash."""

from pathlib import Path

import pytest

from tests.conversations import CONVERSATIONS, Conversation, play
from tests.protocols.openai.driver import OpenAiDriver
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory, server_process

EXPRESSIBLE = [each for each in CONVERSATIONS if each.needs <= OpenAiDriver().features]
ALIVE = [each for each in EXPRESSIBLE if not each.crashes()]


def name_of(value: object) -> str:
    return value.name.replace(" ", "-") if isinstance(value, Conversation) else str(value)


@requirement("openai:conversations")
@pytest.mark.parametrize("conversation", ALIVE, ids=name_of)
async def test_a_conversation_in_process_and_its_history(app_server: AppServer, conversation: Conversation) -> None:
    await play(conversation, OpenAiDriver(), app_server)


@requirement("openai:conversations")
@pytest.mark.parametrize("conversation", ALIVE, ids=name_of)
async def test_a_conversation_with_a_restart_before_every_step(
    open_app_server: AppServerFactory, conversation: Conversation
) -> None:
    async with open_app_server() as server:
        await play(conversation, OpenAiDriver(), server, restart_before=lambda place: place > 0)


@requirement("openai:conversations", "openai:stream:cut")
@pytest.mark.parametrize("conversation", [each for each in EXPRESSIBLE if each.crashes()], ids=name_of)
async def test_a_conversation_with_a_server_that_is_killed(tmp_path: Path, conversation: Conversation) -> None:
    async with server_process(tmp_path) as server:
        await play(conversation, OpenAiDriver(), server)
