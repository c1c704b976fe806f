"""The conversations of the suite through AAP: in process, over a socket, with restarts, after a crash."""

from pathlib import Path

import pytest

from tests.conversations import CONVERSATIONS, Conversation, Server, play
from tests.protocols.aap.client import Face
from tests.protocols.aap.driver import AapDriver
from tests.protocols.aap.stream import MODES, Mode
from tests.requirements import requirement
from tests.servers import House, HouseMaker, SocketHouse, program

EXPRESSIBLE = [each for each in CONVERSATIONS if each.needs <= AapDriver.features]
ALIVE = [each for each in EXPRESSIBLE if not each.crashes()]


def name_of(value: object) -> str:
    return value.name.replace(" ", "-") if isinstance(value, Conversation) else str(value)


def face_of(server: Server) -> Face:
    return Face(server.line, server.key("alice"))


@requirement("aap:suite:conversations")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("conversation", ALIVE, ids=name_of)
async def test_a_conversation_in_process(house: House, conversation: Conversation, mode: Mode) -> None:
    await play(conversation, AapDriver(mode, face_of), house)


@requirement("aap:suite:conversations", "aap:turn:restart")
@pytest.mark.parametrize("conversation", ALIVE, ids=name_of)
async def test_a_conversation_with_a_restart_before_every_step(
    open_house: HouseMaker, conversation: Conversation
) -> None:
    async with open_house() as house:
        await play(conversation, AapDriver("delta", face_of), house, restart_before=lambda place: place > 0)


@requirement("aap:suite:conversations")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("conversation", ALIVE, ids=name_of)
async def test_a_conversation_over_a_socket(socket_house: SocketHouse, conversation: Conversation, mode: Mode) -> None:
    await play(conversation, AapDriver(mode, face_of), socket_house)


@requirement("aap:suite:conversations", "aap:turn:restart", "aap:events:restart")
@pytest.mark.parametrize("mode", ["delta", "message"])
@pytest.mark.parametrize("conversation", [each for each in EXPRESSIBLE if each.crashes()], ids=name_of)
async def test_a_conversation_with_a_server_that_is_killed(
    tmp_path: Path, conversation: Conversation, mode: Mode
) -> None:
    async with program(tmp_path) as server:
        await play(conversation, AapDriver(mode, face_of), server)
