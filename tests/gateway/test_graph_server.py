"""A LangGraph server over AG-UI: it stores messages by their IDs, and its interrupts are the graph's own."""

from collections.abc import AsyncIterator
from itertools import product

import pytest

pytest.importorskip("ag_ui", reason="AG-UI's package is not installed")

from dragoman.client import Allow, Answer, AsyncClient, Choice, Deny, Permission, Question
from dragoman.gateway.remote_agent import RemoteAgent
from dragoman.gateway.remote_run import UNSEEN_RESULT
from tests.gateway.graph_server import PAYMENTS, WHOLE, GraphServer, running_graph_server
from tests.servers import SocketServer, running_socket_server

NAMES = ("outcome", "custom")


@pytest.fixture(scope="module")
async def remote() -> AsyncIterator[GraphServer]:
    async with running_graph_server() as server:
        yield server


@pytest.fixture(scope="module")
async def ours(remote: GraphServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    paths = {"root": "", "root-slash": "/", "slash": "/slash/", **{name: f"/{name}" for name in NAMES}}
    agents = [RemoteAgent("ag-ui", f"{remote.url}{path}", name=name) for name, path in paths.items()]
    async with running_socket_server(tmp_path_factory.mktemp("ours"), agents=agents, rehearsal=False) as server:
        yield server


@pytest.fixture
async def client(ours: SocketServer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(ours.connection.url, key=ours.key("alice")) as client:
        yield client


async def test_answers_that_come_in_a_snapshot_only_are_there_once_and_so_are_streamed_ones(
    client: AsyncClient,
) -> None:
    session = await client.create("outcome")
    words = ("hello", "stream", "hello", "stream")
    assert [(await session.ask(each)).text for each in words] == ["Done.", "one two", "Done.", "one two"]
    texts = [each.text for each in await session.history()]
    assert texts == ["hello", "Done.", "stream", "one two", "hello", "Done.", "stream", "one two"]


@pytest.mark.parametrize("name", ["root", "root-slash", "slash"])
async def test_an_endpoint_may_be_the_servers_root_or_end_with_a_slash(client: AsyncClient, name: str) -> None:
    session = await client.create(name)
    assert (await session.ask("hello")).text == "Done."


async def test_a_server_that_stores_messages_by_their_ids_gets_none_of_them_twice(client: AsyncClient) -> None:
    session = await client.create("outcome")
    await session.ask("hello")
    await session.ask("stream")
    assert (await session.ask("recall")).text == "hello | stream | recall"
    assert (await session.ask("recall")).text == "hello | stream | recall | recall"


@pytest.mark.parametrize(("name", "text"), [*product(NAMES, ("pay", WHOLE))])
async def test_the_calls_of_one_approval_are_asked_about_one_by_one_and_decided_together(
    client: AsyncClient, remote: GraphServer, name: str, text: str
) -> None:
    remote.resumed.clear()
    session = await client.create(name)
    reply = await session.ask(text)
    assert [call.arguments for call in reply.calls] == [*PAYMENTS]
    asked = [each for each in session.pending if isinstance(each, Permission)]
    assert [(each.name, each.arguments) for each in asked] == [("pay", each) for each in PAYMENTS]
    answers: list[Answer] = [Deny(call_id=asked[0].call_id, reason="too much"), Allow(call_id=asked[1].call_id)]
    async with session.answer(*answers) as run:
        assert [event async for event in run]
    assert remote.resumed == [{"decisions": [{"type": "reject", "message": "too much"}, {"type": "approve"}]}]
    results = [each.text for each in await session.history() if each.role == "tool"]
    assert results[1] == UNSEEN_RESULT
    assert "too much" in results[0]


@pytest.mark.parametrize("name", NAMES)
async def test_the_answer_to_a_graphs_question_is_the_value_that_its_node_expects(
    client: AsyncClient, remote: GraphServer, name: str
) -> None:
    remote.resumed.clear()
    session = await client.create(name)
    await session.ask("ask")
    (question,) = session.pending
    assert isinstance(question, Question)
    assert question.questions[0].question == "Which?"
    assert [option.label for option in question.questions[0].options] == ["tea", "mate"]
    async with session.answer(Choice.of("mate")) as run:
        assert [event async for event in run]
    assert remote.resumed == ["mate"]
    assert (await session.ask("recall")).text == "ask | recall"
