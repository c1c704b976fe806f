"""The protocols over which the frameworks' agents are played: a driver for each, and how its session is set up."""

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

import pytest

from dragoman.protocols.openai.ids import session_of
from tests.adapters.scenes import Framework
from tests.conversations import Feature, Observation, ObservedCall, ObservedResult, Server, Setup
from tests.protocols.a2a.driver import A2aDriver
from tests.protocols.aap.client import AapClient
from tests.protocols.aap.driver import AapDriver
from tests.protocols.agentscope.driver import AgentScopeDriver
from tests.protocols.agui.endpoint_driver import EndpointDriver
from tests.protocols.agui.official_clients import OfficialClients
from tests.protocols.agui.run_service_driver import RunServiceDriver
from tests.protocols.aisdk.driver import AiSdkDriver
from tests.protocols.blade.driver import BladeDriver
from tests.protocols.mcp.client import NEW
from tests.protocols.mcp.driver import McpDriver
from tests.protocols.openai.driver import OpenAiDriver


def aap_client_of(server: Server) -> AapClient:
    return AapClient(server.connection, server.key("alice"))


class ResponsesDriver(OpenAiDriver):
    """A client of Responses that may bring no tools, not even the one for questions."""

    def __init__(self, *, brings_tools: bool = True) -> None:
        super().__init__()
        self._brings_tools = brings_tools

    async def begin(self, setup: Setup) -> None:
        await super().begin(setup)
        self._tools = self._tools if self._brings_tools else []

    def session_id(self) -> str:
        """The conversation's session, which no list shows."""
        session_id = session_of(self._conversation)
        assert session_id is not None, self._conversation
        return session_id

    async def history(self) -> list[Observation]:
        """The history. Items have a call with its result, in the order in which they ended; scenes sort their calls."""
        found: list[Observation] = []
        for are_calls, group in groupby(
            await super().history(), lambda each: isinstance(each, ObservedCall | ObservedResult)
        ):
            entries = list(group)
            if are_calls:
                entries.sort(key=lambda each: (isinstance(each, ObservedResult), str(each)))
            found += entries
        return found


DRIVERS: Mapping[str, Callable[[OfficialClients], Any]] = {
    "aap": lambda _: AapDriver("delta", aap_client_of),
    "ag-ui": lambda clients: EndpointDriver(clients, "1"),
    "run service": lambda _: RunServiceDriver(compares_history=True),
    "agent api": lambda _: AgentScopeDriver(),
    "blade": lambda _: BladeDriver(),
    "responses": lambda _: ResponsesDriver(),
    "ai sdk": lambda _: AiSdkDriver(),
    "mcp": lambda _: McpDriver(NEW),
    "a2a": lambda _: A2aDriver(),
}
NEEDS: Mapping[str, Feature] = {
    "approval granted": "permissions",
    "approval denied": "permissions",
    "client tool": "client tools",
    "question": "questions",
    "stop": "stop",
    "rejoined": "rejoin",
    "branch": "rewind",
}


def driver_for(
    protocol: str, clients: OfficialClients, framework: Framework, scene: str, *, rejoins: bool = False
) -> Any:
    """A driver of the protocol. Skips the test if the protocol cannot express the scene."""
    driver = DRIVERS[protocol](clients)
    if isinstance(driver, ResponsesDriver) and framework == "langgraph":
        driver = ResponsesDriver(brings_tools=False)
        if scene.startswith("question"):
            pytest.skip("without the application's tool for it, a question is text")
    needed = "rejoin" if rejoins else NEEDS.get(scene)
    if needed is not None and needed not in driver.features:
        pytest.skip(f"{protocol} has no {needed}")
    return driver


def setup_for(framework: Framework, client_tools: tuple[str, ...]) -> Setup:
    """The tools that clients enable; graphs bind theirs themselves."""
    if framework == "langgraph":
        return Setup(client_tools=client_tools)
    enabled = ("add", "boom") if framework == "openai_agents" else ("add", "boom", "choose")
    return Setup(enabled, ("pay",), client_tools)
