"""The conversations of the suite through A2A: in both versions and over both bindings, and with restarts."""

from pathlib import Path

import pytest

from tests.conversations import CONVERSATIONS, Conversation, play
from tests.protocols.a2a.client import Dialect
from tests.protocols.a2a.driver import A2aDriver
from tests.requirements import requirement
from tests.servers import AppServer, running_server

ALIVE = [each for each in CONVERSATIONS if each.needs <= A2aDriver.features and not each.crashes()]


def name_of(value: object) -> str:
    return value.name.replace(" ", "-") if isinstance(value, Conversation) else str(value)


@requirement("a2a:suite:conversations")
@pytest.mark.parametrize(
    ("dialect", "conversation"),
    [("rpc", each) for each in ALIVE]
    + [(dialect, each) for dialect in ("http", "old") for each in ALIVE if each.needs],
    ids=name_of,
)
async def test_a_conversation(app_server: AppServer, conversation: Conversation, dialect: Dialect) -> None:
    await play(conversation, A2aDriver(dialect), app_server)


@requirement("a2a:suite:conversations")
async def test_conversations_with_a_restart_before_every_step(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        for conversation in ALIVE:
            if conversation.needs:
                await play(conversation, A2aDriver(), server, restart_before=lambda place: place > 0)
