"""Agents behind servers as their projects publish them: AG-UI's Python SDK on FastAPI, LangGraph's, AgentScope Runtime.

None of them can resume an answer. Whatever happens, our log has each text once: all of it, or its beginning.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest

from dragoman.client import (
    Allow,
    AsyncClient,
    AsyncRun,
    AsyncSession,
    Choice,
    Deny,
    Ended,
    Event,
    Permission,
    Question,
    Result,
    RunFailed,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from dragoman.client.connection import Timeouts
from dragoman.client.transports import ClientProtocol
from dragoman.gateway.remote_agent import RemoteAgent
from tests.client.cutting_proxy import at_random
from tests.extent import extent
from tests.gateway.published import PublishedServer, needs, published_server
from tests.gateway.published_servers.program import COUNTED
from tests.servers import SocketServer, running_socket_server


class Endpoint(NamedTuple):
    """Where a program serves an agent, and over which protocol."""

    program: str
    protocol: ClientProtocol
    path: str


ENDPOINTS = {
    "sdk": Endpoint("agui_sdk", "ag-ui", "/agent"),
    "graph": Endpoint("langgraph", "ag-ui", "/outcome"),
    "graph-events": Endpoint("langgraph", "ag-ui", "/custom"),
    "survey": Endpoint("langgraph", "ag-ui", "/survey/outcome"),
    "survey-events": Endpoint("langgraph", "ag-ui", "/survey/custom"),
    "agentscope": Endpoint("agentscope", "agentscope", ""),
    "agentscope-ag-ui": Endpoint("agentscope", "ag-ui", "/ag-ui"),
    "agentscope-responses": Endpoint("agentscope", "openai", "/compatible-mode/v1"),
}
ASSISTANTS = [name for name in ENDPOINTS if not name.startswith("survey")]
WHOLE = "".join(COUNTED)


def of(*names: str) -> list[object]:
    """Parameters, each skipped if its program is not installed."""
    return [pytest.param(name, marks=needs(ENDPOINTS[name].program)) for name in names]


class Ours:
    """A server of ours with an agent for each endpoint of a program."""

    def __init__(self, remote: PublishedServer, server: SocketServer) -> None:
        self.remote = remote
        self._server = server

    def client(self) -> AsyncClient:
        return AsyncClient(self._server.connection.url, key=self._server.key("alice"))


class Programs:
    """The programs, each started for the first test that needs it."""

    def __init__(self, folders: pytest.TempPathFactory, stack: AsyncExitStack) -> None:
        self._folders = folders
        self._stack = stack
        self._running: dict[str, Ours] = {}

    async def ours(self, program: str) -> Ours:
        if program not in self._running:
            folder = self._folders.mktemp(program)
            remote = await self._stack.enter_async_context(published_server(program, folder))
            agents = [
                RemoteAgent(each.protocol, remote.proxy.url + each.path, name=name, timeouts=Timeouts(reconnect_s=0.1))
                for name, each in ENDPOINTS.items()
                if each.program == program
            ]
            server = running_socket_server(folder / "ours", agents=agents, rehearsal=False)
            self._running[program] = Ours(remote, await self._stack.enter_async_context(server))
        return self._running[program]


@pytest.fixture(scope="module")
async def programs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Programs]:
    async with AsyncExitStack() as stack:
        yield Programs(tmp_path_factory, stack)


@pytest.fixture
async def ours(programs: Programs, name: str) -> AsyncIterator[Ours]:
    """The server with the agent that the test is about."""
    found = await programs.ours(ENDPOINTS[name].program)
    yield found
    found.remote.proxy.plan = lambda: None


async def events_of(run: AsyncRun) -> list[Event]:
    async with run:
        return [event async for event in run]


def text_in(events: list[Event]) -> str:
    return "".join(each.text for each in events if isinstance(each, Text))


def end_of(events: list[Event]) -> str:
    """The reason for which a run ended."""
    ended = events[-1]
    assert isinstance(ended, Ended)
    return ended.reason if ended.problem is None else ended.problem.code


async def said_in(session: AsyncSession) -> list[str]:
    """What the history has of the agent's texts."""
    return [each.text for each in await session.history() if each.role == "assistant" and each.text]


@pytest.mark.parametrize("name", of(*ASSISTANTS))
async def test_a_conversation_is_streamed_and_the_agent_knows_what_was_said(ours: Ours, name: str) -> None:
    async with ours.client() as client:
        session = await client.create(name)
        assert (await session.ask("hello")).text == "Hello there."
        assert (await session.ask("count")).text == WHOLE
        assert (await session.ask("recall")).text.endswith("hello | count | recall")
        assert (await said_in(session))[:2] == ["Hello there.", WHOLE]


@pytest.mark.parametrize("name", of(*ASSISTANTS))
async def test_parallel_calls_of_the_agents_own_tools_are_there_with_their_results(ours: Ours, name: str) -> None:
    async with ours.client() as client:
        session = await client.create(name)
        events = await events_of(session.run("forecast Rome Oslo"))
        if name != "agentscope-responses":  # where the runtime shows no calls of graphs
            calls = [(each.name, each.arguments) for each in events if isinstance(each, ToolCall)]
            assert calls == [("forecast", {"city": "Rome"}), ("forecast", {"city": "Oslo"})]
            results = [each.text for each in events if isinstance(each, ToolResult)]
            assert sorted(results) == ["sun in Oslo", "sun in Rome"]
        assert text_in(events) == "So it is."
        assert end_of(events) == "end_turn"


@pytest.mark.parametrize("name", of("sdk", "graph", "graph-events"))
@pytest.mark.parametrize("answer", [Allow(), Deny()])
async def test_a_call_that_needs_an_approval_runs_once_if_it_is_given(
    ours: Ours, name: str, answer: Allow | Deny
) -> None:
    before = len(ours.remote.payments)
    async with ours.client() as client:
        session = await client.create(name)
        events = await events_of(session.run("pay 7"))
        assert end_of(events) == "tool_use"
        asked = [each for each in events if isinstance(each, Permission)]
        assert [(each.name, each.arguments) for each in asked] == [("pay", {"amount": 7})]
        assert len(ours.remote.payments) == before
        events = await events_of(session.answer(answer))
        assert end_of(events) == "end_turn"
        assert ours.remote.payments[before:] == ([7] if isinstance(answer, Allow) else [])
        assert (await session.ask("recall")).text == "pay 7 | recall"


@pytest.mark.parametrize("name", of("survey", "survey-events"))
async def test_nodes_that_ask_at_the_same_time_each_get_their_answer(ours: Ours, name: str) -> None:
    async with ours.client() as client:
        session = await client.create(name)
        await session.ask("go")
        colour, size = session.pending
        assert isinstance(colour, Question)
        assert isinstance(size, Question)
        assert [each.questions[0].question for each in (colour, size)] == ["Colour?", "Size?"]
        answers = Choice.of("blue", call_id=colour.call_id), Choice.of(custom="large", call_id=size.call_id)
        events = await events_of(session.answer(*answers))
        assert (text_in(events), end_of(events)) == ("colour blue, size large", "end_turn")


@pytest.mark.parametrize("name", of("survey", "survey-events"))
async def test_a_message_instead_of_answers_begins_the_graph_again(ours: Ours, name: str) -> None:
    """The graph would take it as the value of its interrupts."""
    async with ours.client() as client:
        session = await client.create(name)
        for message in ("go", "something else"):
            assert (await session.ask(message)).end.reason == "tool_use"
            assert len(session.pending) == 2


@pytest.mark.parametrize("name", of("sdk"))
async def test_questions_are_answered_in_the_form_that_the_server_asks_for(ours: Ours, name: str) -> None:
    async with ours.client() as client:
        session = await client.create(name)
        await session.ask("ask")
        age, good, why = session.pending
        assert isinstance(good, Question)
        assert [option.label for option in good.questions[0].options] == ["good", "bad"]
        answers = (
            Choice.of(custom="42", call_id=age.call_id),
            Choice.of("bad", call_id=good.call_id),
            Deny(call_id=why.call_id),
        )
        events = await events_of(session.answer(*answers))
        assert text_in(events) == "[('resolved', 42), ('resolved', 'bad'), ('cancelled', None)]"


@pytest.mark.parametrize("name", of("sdk"))
async def test_a_tool_of_the_application_is_called_and_its_result_is_sent(ours: Ours, name: str) -> None:
    async with ours.client() as client:
        session = await client.create(name, tools=[Tool(name="paint", parameters={"type": "object"})])
        assert end_of(await events_of(session.run("paint red"))) == "tool_use"
        events = await events_of(session.answer(Result(call_id=session.pending[0].call_id, text="wet")))
        assert (text_in(events), end_of(events)) == ("So it is.", "end_turn")


@pytest.mark.parametrize("name", of("sdk"))
async def test_an_error_of_the_agent_ends_the_run_with_its_message(ours: Ours, name: str) -> None:
    async with ours.client() as client:
        session = await client.create(name)
        with pytest.raises(RunFailed, match="the agent is broken"):
            await session.ask("fail")
        assert (await session.ask("hello")).text == "Hello there."


@pytest.mark.parametrize("name", of(*ASSISTANTS))
@pytest.mark.parametrize("seed", range(extent(20, 1)))
async def test_over_cut_connections_the_log_has_what_was_streamed_once(ours: Ours, name: str, seed: int) -> None:
    ours.remote.proxy.plan = at_random(seed, longest=9000)
    before = len(ours.remote.payments)
    async with ours.client() as client:
        session, streamed = await client.create(name), []
        for _ in range(3):
            events = await events_of(session.run("count"))
            said, reason = text_in(events), end_of(events)
            streamed += [said] if said else []
            assert (said, reason) == (WHOLE, "end_turn") or (
                WHOLE.startswith(said) and reason in ("remote_lost", "remote_unavailable")
            )
            assert await said_in(session) == streamed
        if not name.startswith("agentscope") and end_of(await events_of(session.run("pay 7"))) == "tool_use":
            reason = end_of(await events_of(session.answer(Allow())))
            assert reason in ("end_turn", "remote_lost", "remote_unavailable")
        assert ours.remote.payments[before:] in ([], [7])


@pytest.mark.parametrize("name", of("sdk", "graph", "agentscope"))
async def test_when_their_server_is_killed_the_log_keeps_what_was_received(ours: Ours, name: str) -> None:
    async with ours.client() as client:
        session = await client.create(name)
        run = session.run("count")
        events: list[Event] = [await anext(run)]
        await ours.remote.kill()
        events += await events_of(run)
        said = text_in(events)
        assert (WHOLE.startswith(said), end_of(events)) == (True, "remote_lost")
        assert await said_in(session) == [said]
        await ours.remote.start()
        assert (await session.ask("hello")).text == "Hello there."
