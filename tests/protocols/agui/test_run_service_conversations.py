"""The conversations of the suite through the run service: whole streams; history, events and part B in agreement."""

from pathlib import Path

import pytest

from tests.conversations import CONVERSATIONS, Conversation, play
from tests.extent import sampled
from tests.protocols.agui.run_service_driver import RunServiceDriver
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory, server_process

ALIVE = [each for each in CONVERSATIONS if not each.crashes()]


def name_of(value: object) -> str:
    return value.name.replace(" ", "-") if isinstance(value, Conversation) else str(value)


@requirement("runs:suite:conversations")
@pytest.mark.parametrize("conversation", ALIVE, ids=name_of)
async def test_a_conversation_is_streamed_completely(app_server: AppServer, conversation: Conversation) -> None:
    await play(conversation, RunServiceDriver(compares_history=False), app_server)


@requirement("runs:suite:agreement")
@pytest.mark.parametrize("conversation", ALIVE, ids=name_of)
async def test_history_events_and_the_standard_endpoint_agree(
    app_server: AppServer, conversation: Conversation
) -> None:
    await play(conversation, RunServiceDriver(compares_history=True), app_server)


@requirement("runs:suite:conversations", "runs:events:restart")
@pytest.mark.parametrize("conversation", sampled(ALIVE, 2), ids=name_of)
async def test_a_conversation_with_a_restart_before_every_step(
    open_app_server: AppServerFactory, conversation: Conversation
) -> None:
    async with open_app_server() as server:
        await play(
            conversation, RunServiceDriver(compares_history=True), server, restart_before=lambda place: place > 0
        )


@requirement("runs:suite:killed", "runs:events:restart")
@pytest.mark.parametrize("looks_back", sampled([True, False], 2))
@pytest.mark.parametrize("conversation", [each for each in CONVERSATIONS if each.crashes()], ids=name_of)
async def test_a_conversation_with_a_server_that_is_killed(
    tmp_path: Path, conversation: Conversation, looks_back: bool
) -> None:
    async with server_process(tmp_path) as server:
        await play(conversation, RunServiceDriver(compares_history=looks_back), server)
