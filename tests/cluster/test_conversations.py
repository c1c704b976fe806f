"""The conversation suite over three servers on one database: each request goes to another one, by chance."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.bridge import Stream
from tests.conversations import CONVERSATIONS, Conversation, play
from tests.conversations import Server as Served
from tests.protocols.aap.agents import AGENTS
from tests.protocols.aap.client import Face
from tests.protocols.aap.driver import AapDriver
from tests.serving import House, opened

EXPRESSIBLE = [each for each in CONVERSATIONS if each.needs <= AapDriver.features and not each.crashes()]


class Spread:
    """A line to several servers."""

    def __init__(self, houses: list[House], chance: Random) -> None:
        self._houses = houses
        self._chance = chance

    async def open(self, method: str, path: str, **fields: Any) -> Stream:
        return await self._chance.choice(self._houses).line.open(method, path, **fields)


class Houses:
    """Several servers as one, with the keys of the first."""

    def __init__(self, houses: list[House]) -> None:
        self.houses = houses
        self.line = Spread(houses, Random(5))

    def key(self, name: str) -> str:
        return self.houses[0].key(name)

    async def restart(self) -> None:
        for house in self.houses:  # one after the other, as a new release is rolled out
            await house.restart()

    async def crash(self) -> None:
        raise NotImplementedError("what runs in the test's own process cannot be killed")


@pytest.fixture
async def houses(tmp_path: Path, postgres_url: str) -> AsyncIterator[Houses]:
    async with AsyncExitStack() as stack:
        opening = [opened(tmp_path / f"{number}", agents=AGENTS, database=postgres_url) for number in range(3)]
        yield Houses([await stack.enter_async_context(each) for each in opening])


def face_of(server: Served) -> Face:
    return Face(server.line, server.key("alice"))


@pytest.mark.slow
@pytest.mark.parametrize("conversation", EXPRESSIBLE, ids=lambda each: each.name.replace(" ", "-"))
async def test_a_conversation_with_each_request_at_another_server(houses: Houses, conversation: Conversation) -> None:
    await play(conversation, AapDriver("delta", face_of), houses, restart_before=lambda place: place == 1)
