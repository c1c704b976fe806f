"""The conversation suite over three servers on one database, through every protocol.

Each request goes to a server by chance, and so does each socket. A part of them is played here; with `--nats` all are,
with hints over NATS, and with a rolling restart.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.buses.nats_server import server as nats_server
from tests.cluster.in_process_cluster import InProcessCluster, running_cluster
from tests.conversations import CONVERSATIONS, Conversation, Driver, play
from tests.conversations import Server as Served
from tests.protocols.a2a.driver import A2aDriver
from tests.protocols.aap.client import AapClient
from tests.protocols.aap.driver import AapDriver
from tests.protocols.agentscope.driver import AgentScopeDriver
from tests.protocols.agui.endpoint_driver import EndpointDriver
from tests.protocols.agui.official_clients import OfficialClients, official_clients
from tests.protocols.agui.run_service_driver import RunServiceDriver
from tests.protocols.aisdk.driver import AiSdkDriver
from tests.protocols.blade.driver import BladeDriver
from tests.protocols.every_protocol import for_every_protocol
from tests.protocols.mcp.driver import McpDriver
from tests.protocols.openai.driver import OpenAiDriver
from tests.stores.postgres import Server

WITHOUT_CRASHES = [each for each in CONVERSATIONS if not each.crashes()]


def aap_client_of(server: Served) -> AapClient:
    return AapClient(server.connection, server.key("alice"))


PROTOCOL_DRIVERS: Mapping[str, Callable[[OfficialClients], Driver]] = for_every_protocol(
    {
        "aap": lambda official: AapDriver("delta", aap_client_of),
        "agui": lambda official: EndpointDriver(official, "1"),
        "run_service": lambda official: RunServiceDriver(compares_history=False),
        "agentscope": lambda official: AgentScopeDriver(),
        "ai_sdk": lambda official: AiSdkDriver(),
        "blade": lambda official: BladeDriver(),
        "openai": lambda official: OpenAiDriver(),
        "mcp": lambda official: McpDriver(),
        "a2a": lambda official: A2aDriver(),
    }
)
NAMES = list(PROTOCOL_DRIVERS)
STRIDES = {"openai": 12, "a2a": 12}
"""How many conversations there are for each one that is played unasked, where it is not every eighth one."""


def sampled_cases() -> list[Any]:
    """The cases that are always run: some without NATS, each one once with it, each protocol once with a restart."""
    cases = [
        (protocol, each, "database", False)
        for protocol in NAMES
        for each in playable(protocol)[:: STRIDES.get(protocol, 8)]
    ]
    played: Counter[str] = Counter()
    for each in WITHOUT_CRASHES:
        able = [protocol for protocol in NAMES if each in playable(protocol)]
        rarest = min(able, key=played.__getitem__)
        played[rarest] += 1
        cases.append((rarest, each, "nats", False))
    for place, protocol in enumerate(NAMES):
        conversations = playable(protocol)
        cases.append((protocol, conversations[(place + 2) % len(conversations)], "database", True))
    return cases


def full_cases() -> list[Any]:
    """Everything over NATS, without and with restarts."""
    return [
        (protocol, each, "nats", restarts)
        for restarts in (False, True)
        for protocol in NAMES
        for each in playable(protocol)
    ]


def playable(protocol: str) -> list[Conversation]:
    """The conversations that a protocol can express."""
    features = PROTOCOL_DRIVERS[protocol](None).features  # type: ignore[arg-type]  # it is not used before it is spoken through
    return [each for each in WITHOUT_CRASHES if each.needs <= features]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "conversation" in metafunc.fixturenames:
        cases = full_cases() if metafunc.config.getoption("--nats") else sampled_cases()
        ids = [
            f"{protocol}-{each.name}-{bus}{'-restarts' if restarts else ''}".replace(" ", "-")
            for protocol, each, bus, restarts in cases
        ]
        metafunc.parametrize(("protocol", "conversation", "bus", "restarts"), cases, ids=ids)


class Clusters:
    """Three servers for each bus, made when the first conversation wants them."""

    def __init__(self, stack: AsyncExitStack, folder: Path, postgres: Server) -> None:
        self._stack = stack
        self._folder = folder
        self._postgres = postgres
        self._made: dict[str, InProcessCluster] = {}

    async def for_bus(self, bus: str) -> InProcessCluster:
        if bus not in self._made:
            settings: dict[str, Any] = {"default_agent": "rehearsal"}
            url = self._postgres.new()
            self._stack.callback(self._postgres.drop, url)
            if bus == "nats":
                settings["nats"] = self._stack.enter_context(nats_server()).url
            self._made[bus] = await self._stack.enter_async_context(
                running_cluster(self._folder / bus, url, **settings)
            )
        return self._made[bus]


@pytest.fixture(scope="module")
async def clusters(tmp_path_factory: pytest.TempPathFactory, postgres: Server) -> AsyncIterator[Clusters]:
    """The servers that the conversations share."""
    async with AsyncExitStack() as stack:
        yield Clusters(stack, tmp_path_factory.mktemp("fleets"), postgres)


@pytest.fixture(scope="module")
async def clients() -> AsyncIterator[OfficialClients]:
    """The process of the official AG-UI clients."""
    async with official_clients() as official:
        yield official


@pytest.mark.slow
async def test_a_conversation_with_each_request_at_another_server(
    clusters: Clusters, clients: OfficialClients, protocol: str, conversation: Conversation, bus: str, restarts: bool
) -> None:
    servers = await clusters.for_bus(bus)
    servers.random.seed(f"{protocol} {conversation.name}")
    clients.console.clear()
    driver = PROTOCOL_DRIVERS[protocol](clients)
    await play(conversation, driver, servers, restart_before=lambda place: restarts and place == 1)
    if isinstance(driver, BladeDriver):
        await driver.close()
    assert clients.console == []


def test_all_protocols_and_all_conversations_are_covered() -> None:
    cases = sampled_cases()
    assert {(protocol, bus) for protocol, _, bus, _ in cases} == {
        (protocol, bus) for protocol in PROTOCOL_DRIVERS for bus in ("database", "nats")
    }
    assert {each.name for _, each, bus, _ in cases if bus == "nats"} == {each.name for each in WITHOUT_CRASHES}
