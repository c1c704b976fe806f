"""This server dies at any commit of a run with a remote agent: no text is lost or doubled, nothing is asked twice."""

from collections import Counter
from collections.abc import AsyncIterator
from itertools import count

import pytest

from dragoman import Run, agent, tool
from dragoman.agents import serving
from dragoman.client.transports import ClientProtocol
from dragoman.core.content import AssistantMessage, ToolMessage, UserMessage, text_of
from dragoman.gateway.remote_agent import RemoteAgent
from dragoman.gateway.remote_run import UNSEEN_RESULT
from tests.engine.faulty_log import FaultyLog, Moment
from tests.engine.log_checker import check_log, check_tool_call_pairing
from tests.engine.runs.test_crash import Client, serve
from tests.engine.world import running_world
from tests.extent import extent
from tests.servers import SocketServer, running_socket_server
from tests.stores.simulated import SimulatedLog

EXECUTED: Counter[str] = Counter()
WORLDS = count(1)


@tool
async def look() -> str:
    """Look."""
    EXECUTED["look"] += 1
    return "seen"


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    EXECUTED["pay"] += 1
    return f"paid {amount}"


@agent(tools=[look, pay], client_tools=True)
async def payer(run: Run) -> AsyncIterator[str]:
    """Speaks, calls two tools, and speaks again."""
    yield "so "
    results = await run.call_all([(look, {}), (pay, {"amount": 90})])
    yield "all "
    yield f"done: {results}"


@pytest.fixture(scope="module")
async def remote(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    folder = tmp_path_factory.mktemp("remote")
    async with running_socket_server(folder, agents=[payer], rehearsal=False) as server:
        yield server


@pytest.mark.parametrize(
    ("protocol", "moment", "every"),
    [
        ("ag-ui", "before", 1),
        ("aap", "after", 2),
        ("agentscope", "after", 4),
        ("openai", "before", 4),
        ("blade", "before", 4),
        ("a2a", "after", 5),
        ("run-service", "before", 5),
    ],
)
async def test_a_server_that_dies_at_any_commit_takes_the_remote_run_up_again(
    remote: SocketServer, protocol: ClientProtocol, moment: Moment, every: int
) -> None:
    url = remote.connection.url + ("/ag-ui/payer" if protocol == "ag-ui" else "")
    served = RemoteAgent(protocol, url, name="player", key=remote.key("alice"))
    await serving.start([served])
    try:
        results = [UNSEEN_RESULT] if protocol == "a2a" else ["seen", "paid 90"]
        await die_everywhere(served, moment, every, results)
    finally:
        await serving.close([served])


async def die_everywhere(served: RemoteAgent, moment: Moment, every: int, results: list[str]) -> None:
    commit, is_over, every = 1, False, extent(1, every)
    while not is_over:
        EXECUTED.clear()
        async with running_world(SimulatedLog()) as world:
            world.agents["player"] = served
            world.ids.count = 1000 * next(WORLDS)  # the remote server sees all worlds: their ids must differ
            client, log = Client("go", tools=()), FaultyLog(world.store)
            log.die_at(commit, moment)
            is_over = not await serve(world, client, log)
            if not is_over:
                assert not await serve(world, client, FaultyLog(world.store))
            assert client.live is not None
            events = await world.events(client.live.state.session_id)
            history = await world.history(client.live.state.session_id)
        check_log(events, {})
        check_tool_call_pairing(events)
        assert EXECUTED == {"look": 1, "pay": 1}, commit
        whole = [each for each in history if isinstance(each, AssistantMessage) and each.status != "cut"]
        assert [text_of(each.content) for each in whole] == ["so ", "all done: ['seen', 'paid 90']"], commit
        assert [text_of(each.content) for each in history if isinstance(each, ToolMessage)] == results, commit
        assert sum(isinstance(each, UserMessage) for each in history) == 1
        commit += every
