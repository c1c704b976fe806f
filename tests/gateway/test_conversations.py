"""The conversation suite with an agent on another server, over connections between the servers that are cut."""

from collections.abc import AsyncIterator, Iterator

import pytest

from dragoman.client.connection import Backoff, Timeouts
from dragoman.client.transports import ClientProtocol
from dragoman.gateway.remote_agent import RemoteAgent
from tests import conversations as c
from tests.client.cutting_proxy import CuttingProxy, at_random, cutting_proxy
from tests.client.driver import EVERYTHING, OBSERVABLE, ClientDriver
from tests.client.driver import FEATURES as CLIENT_FEATURES
from tests.conversations import CONVERSATIONS, Conversation, Feature, play
from tests.extent import IS_FULL
from tests.servers import SocketServer, running_socket_server

PLAYED: dict[ClientProtocol, tuple[str, ...]] = {
    "ag-ui": (
        "a tool of the application, twice in a run",
        "a permission, denied with a reason and without",
        "a plan",
        "a run that is stopped",
    ),
    "aap": ("a question, answered with an option and with free text", "a sub-agent at work"),
    "agentscope": ("open calls that a new message closes",),
    "blade": ("a permission, granted",),
    "openai": ("a tool of the server",),
    "a2a": ("a run that is stopped",),
    "run-service": ("a tool of the application, twice in a run",),
}
"""The conversations that every test run plays, by the protocol of the remote agent."""
FEATURES = EVERYTHING - {"delete"}


@pytest.fixture(scope="module", autouse=True)
def _short_retry_delays() -> Iterator[None]:
    """These connections are cut all the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Backoff, "INITIAL_DELAY_S", 0.01)
        patch.setattr(Backoff, "MAX_DELAY_S", 0.05)
        yield


class Gateways:
    """A server with remote agents, one per protocol, whose server is behind a proxy."""

    def __init__(self, server: SocketServer, proxy: CuttingProxy) -> None:
        self.server = server
        self.proxy = proxy


@pytest.fixture(scope="module")
async def gateways(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateways]:
    async with (
        running_socket_server(tmp_path_factory.mktemp("remote")) as remote,
        cutting_proxy(remote.connection.url, lambda: None) as proxy,
    ):
        agents = [
            RemoteAgent(
                protocol,
                proxy.url + ("/ag-ui/rehearsal" if protocol == "ag-ui" else ""),
                key=remote.key("alice"),
                name=protocol,
                timeouts=Timeouts(reconnect_s=20),
            )
            for protocol in PLAYED
        ]
        async with running_socket_server(tmp_path_factory.mktemp("gateway"), agents=agents, rehearsal=False) as server:
            yield Gateways(server, proxy)


class GatewayDriver(ClientDriver):
    """A session with a remote agent. Which tools run without asking is the remote server's rule."""

    def __init__(self, remote: ClientProtocol, proxy: CuttingProxy) -> None:
        super().__init__("ag-ui", proxy)
        self._remote = remote
        self.features = FEATURES
        self.observable = OBSERVABLE["ag-ui"] & OBSERVABLE[remote]

    async def begin(self, setup: c.Setup) -> None:
        self._session = await self.client.create(
            self._remote, tools=[] if self._remote in ("blade", "a2a") else self.declared(setup)
        )


def cases() -> list[tuple[ClientProtocol, Conversation]]:
    return [
        (protocol, each)
        for protocol, played in PLAYED.items()
        for each in CONVERSATIONS
        if each.name in played or (IS_FULL and each.needs <= features_of(protocol) and not each.crashes())
    ]


def features_of(protocol: ClientProtocol) -> frozenset[Feature]:
    """The features that a client has with an agent behind a protocol."""
    return CLIENT_FEATURES[protocol] & FEATURES


def names(value: object) -> str:
    return value.name.replace(" ", "-") if isinstance(value, Conversation) else str(value)


@pytest.mark.parametrize(("remote", "conversation"), cases(), ids=names)
async def test_a_conversation_with_a_remote_agent_survives_cut_connections(
    gateways: Gateways, remote: ClientProtocol, conversation: Conversation
) -> None:
    gateways.proxy.plan = at_random(seed=len(conversation.name))
    async with cutting_proxy(gateways.server.connection.url, lambda: None) as direct:
        driver = GatewayDriver(remote, direct)
        try:
            await play(conversation, driver, gateways.server)
        finally:
            await driver.close()
