"""The conversation suite over three servers on one database, through every protocol.

Each request goes to a server by chance, and so does each socket. A part of them is played here; with `--nats` all are,
with hints over NATS, and with a rolling restart.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.buses.nats_server import server as nats_server
from tests.cluster.in_process_cluster import Houses, opened
from tests.conversations import CONVERSATIONS, Conversation, Driver, play
from tests.conversations import Server as Served
from tests.protocols.aap.client import Face
from tests.protocols.aap.driver import AapDriver
from tests.protocols.agentscope.driver import AgentScopeDriver
from tests.protocols.agui.endpoint_driver import AguiDriver
from tests.protocols.agui.official_clients import Official, official_clients
from tests.protocols.agui.run_service_driver import RunsDriver
from tests.protocols.blade.driver import BladeDriver
from tests.stores.postgres import Server

ALIVE = [each for each in CONVERSATIONS if not each.crashes()]


def face_of(server: Served) -> Face:
    return Face(server.line, server.key("alice"))


DOORS: dict[str, Callable[[Official], Driver]] = {
    "aap": lambda official: AapDriver("delta", face_of),
    "ag-ui": lambda official: AguiDriver(official, "1"),
    "run service": lambda official: RunsDriver(looks_back=False),
    "agent api": lambda official: AgentScopeDriver(),
    "blade": lambda official: BladeDriver(),
}
NAMES = list(DOORS)


def sampled() -> list[Any]:
    """What is played unasked: all without NATS, each once with it, each protocol once with a restart."""
    cases = [(door, each, "database", False) for door in NAMES for each in playable(door)]
    for place, each in enumerate(ALIVE):
        able = [door for door in NAMES if each in playable(door)]
        cases.append((able[place % len(able)], each, "nats", False))
    return cases + [(door, playable(door)[place + 2], "database", True) for place, door in enumerate(NAMES)]


def whole() -> list[Any]:
    """Everything over NATS, without and with restarts."""
    return [(door, each, "nats", restarts) for restarts in (False, True) for door in NAMES for each in playable(door)]


def playable(door: str) -> list[Conversation]:
    """What a protocol can express."""
    features = DOORS[door](None).features  # type: ignore[arg-type]  # it is not used before it is spoken through
    return [each for each in ALIVE if each.needs <= features]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "conversation" in metafunc.fixturenames:
        cases = whole() if metafunc.config.getoption("--nats") else sampled()
        ids = [
            f"{door}-{each.name}-{bus}{'-restarts' if restarts else ''}".replace(" ", "-")
            for door, each, bus, restarts in cases
        ]
        metafunc.parametrize(("door", "conversation", "bus", "restarts"), cases, ids=ids)


class Fleets:
    """Three servers for each bus, made when the first conversation wants them."""

    def __init__(self, stack: AsyncExitStack, folder: Path, postgres: Server) -> None:
        self._stack = stack
        self._folder = folder
        self._postgres = postgres
        self._made: dict[str, Houses] = {}

    async def over(self, bus: str) -> Houses:
        if bus not in self._made:
            settings: dict[str, Any] = {"default_agent": "rehearsal"}
            url = self._postgres.new()
            self._stack.callback(self._postgres.drop, url)
            if bus == "nats":
                settings["nats"] = self._stack.enter_context(nats_server()).url
            self._made[bus] = await self._stack.enter_async_context(opened(self._folder / bus, url, **settings))
        return self._made[bus]


@pytest.fixture(scope="module")
async def fleets(tmp_path_factory: pytest.TempPathFactory, postgres: Server) -> AsyncIterator[Fleets]:
    """The servers that the conversations share."""
    async with AsyncExitStack() as stack:
        yield Fleets(stack, tmp_path_factory.mktemp("fleets"), postgres)


@pytest.fixture(scope="module")
async def clients() -> AsyncIterator[Official]:
    """The process of the official AG-UI clients."""
    async with official_clients() as official:
        yield official


@pytest.mark.slow
async def test_a_conversation_with_each_request_at_another_server(
    fleets: Fleets, clients: Official, door: str, conversation: Conversation, bus: str, restarts: bool
) -> None:
    houses = await fleets.over(bus)
    houses.chance.seed(f"{door} {conversation.name}")
    clients.console.clear()
    driver = DOORS[door](clients)
    await play(conversation, driver, houses, restart_before=lambda place: restarts and place == 1)
    if isinstance(driver, BladeDriver):
        await driver.close()
    assert clients.console == []


def test_all_doors_are_spoken_through_and_all_conversations_held() -> None:
    cases = sampled()
    assert {(door, bus) for door, _, bus, _ in cases} == {(door, bus) for door in DOORS for bus in ("database", "nats")}
    assert {each.name for _, each, bus, _ in cases if bus == "nats"} == {each.name for each in ALIVE}
