"""Servers that we did not write, over connections that are cut at random, and crashes on both sides.

Whatever happens, our log has each text once: all of it if the run ended well, else its beginning.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed")
pytest.importorskip("ag_ui", reason="AG-UI's package is not installed")

from a2a.helpers import new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Role

from dragoman.client import Allow, AsyncClient, AsyncSession, Choice, Ended, Question, Text, a2a_transport
from dragoman.client.connection import Backoff, Timeouts
from dragoman.client.transports import ClientProtocol
from dragoman.gateway import remote_server
from dragoman.gateway.remote_agent import RemoteAgent
from tests.asgi_client import DEADLINE_S
from tests.client.a2a_server import running_a2a_server
from tests.client.cutting_proxy import CuttingProxy, at_random, cutting_proxy
from tests.client.standard_only_server import WITHOUT_EXTENSIONS, standard_only_server
from tests.conversations import script
from tests.extent import extent
from tests.gateway.agui_server import AguiServer, running_agui_server
from tests.gateway.crashed_gateway import after_a_crash
from tests.servers import SocketServer, running_socket_server

COUNTED = "".join(f"{number} " for number in range(30))


class Counter(AgentExecutor):
    """Counts in small pieces, asks, or waits until it is let go on."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.speaks = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        is_answer = context.current_task is not None
        if not is_answer:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id or "", context.context_id or "")
        await updater.start_work()
        text = context.get_user_input().rpartition("\n")[2]
        if is_answer:
            self.answers.append(text)
            await self._say(updater, f"You chose {text}.", "answer")
        elif text == "ask":
            await self._say(updater, "Well. ", "question")
            await updater.requires_input(new_text_message("Which one?", role=Role.ROLE_AGENT))
            return
        else:
            head, tail = COUNTED[:30], COUNTED[30:]
            await self._say(updater, head, "count")
            if text == "wait":
                await self.speaks.wait()
            await self._say(updater, tail, "count", appends=True)
        await updater.complete()

    async def _say(self, updater: TaskUpdater, text: str, artifact_id: str, *, appends: bool = False) -> None:
        for start in range(0, len(text), 7):
            part = new_text_part(text[start : start + 7])
            await updater.add_artifact([part], artifact_id=artifact_id, append=appends or start > 0)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.cancelled.set()
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()


class Others:
    """The servers of others, each behind a proxy, and a server of ours with an agent for each."""

    def __init__(self, ours: SocketServer, proxies: list[CuttingProxy], executor: Counter, agui: AguiServer) -> None:
        self.ours = ours
        self.proxies = proxies
        self.executor = executor
        self.agui = agui


def remote_agents(a2a: str, agui: str) -> list[RemoteAgent]:
    timeouts = Timeouts(connect_s=DEADLINE_S, idle_s=20, reconnect_s=20)
    urls: dict[str, tuple[ClientProtocol, str]] = {
        "a2a": ("a2a", a2a),
        "a2a-0.3": ("a2a", f"{a2a}/old"),
        "ag-ui": ("ag-ui", f"{agui}/agent"),
    }
    return [RemoteAgent(protocol, url, name=name, timeouts=timeouts) for name, (protocol, url) in urls.items()]


@pytest.fixture(scope="module", autouse=True)
def _short_delays() -> Iterator[None]:
    """These connections are cut all the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Backoff, "INITIAL_DELAY_S", 0.01)
        patch.setattr(Backoff, "MAX_DELAY_S", 0.05)
        patch.setattr(a2a_transport, "POLL_INTERVAL_S", 0.01)
        patch.setattr(remote_server, "BREAKER_FAILURES", 1000)
        yield


@pytest.fixture(scope="module")
async def others(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Others]:
    executor = Counter()
    async with (
        running_a2a_server(executor) as a2a,
        running_agui_server() as agui,
        cutting_proxy(a2a, lambda: None) as a2a_proxy,
        cutting_proxy(agui.url.removesuffix("/agent"), lambda: None) as agui_proxy,
        running_socket_server(
            tmp_path_factory.mktemp("ours"), agents=remote_agents(a2a_proxy.url, agui_proxy.url), rehearsal=False
        ) as ours,
    ):
        yield Others(ours, [a2a_proxy, agui_proxy], executor, agui)


async def played(session: AsyncSession, text: str) -> tuple[str, str]:
    """The text of the answer, and the reason for which the run ends."""
    run = session.run(text)
    async with run:
        events = [event async for event in run]
    end = events[-1]
    assert isinstance(end, Ended)
    said = "".join(each.text for each in events if isinstance(each, Text))
    return said, end.reason if end.problem is None else end.problem.code


@pytest.mark.parametrize("seed", range(extent(40, 2)))
async def test_an_a2a_task_over_cut_connections_is_in_our_log_once(others: Others, seed: int) -> None:
    """A message that may have arrived is not sent again; a task whose id is known is read to its end."""
    others.executor.answers.clear()
    others.proxies[0].plan = at_random(seed, longest=6000)
    async with AsyncClient(others.ours.connection.url, key=others.ours.key("alice")) as client:
        session = await client.create("a2a" if seed % 3 else "a2a-0.3")
        for turn in range(3):
            said, reason = await played(session, f"count {turn}")
            assert (said, reason) == (COUNTED, "end_turn") or (COUNTED.startswith(said) and reason == "remote_lost")
        said, reason = await played(session, "ask")
        if reason == "tool_use":
            assert [type(each) for each in session.pending] == [Question]
            answered = session.answer(Choice.of(custom="tea"))
            async with answered:
                events = [event async for event in answered]
            assert "".join(each.text for each in events if isinstance(each, Text)) in ("You chose tea.", "")
        assert others.executor.answers in (["tea"], [])
        texts = [each.text for each in await session.history() if each.role == "assistant"]
        assert all(COUNTED.startswith(each) or each in ("Well. ", "You chose tea.") for each in texts), texts


@pytest.mark.parametrize("seed", range(extent(20, 1)))
async def test_an_approval_over_cut_connections_is_given_once(others: Others, seed: int) -> None:
    """Pydantic AI's server cannot resume: what it says is there once, or the run says that it was lost."""
    others.agui.payments.clear()
    others.proxies[1].plan = at_random(seed, longest=1500)
    async with AsyncClient(others.ours.connection.url, key=others.ours.key("alice")) as client:
        session = await client.create("ag-ui")
        said, reason = await played(session, "hello")
        assert (said, reason) == ("You said: hello", "end_turn") or (
            "You said: hello".startswith(said) and reason == "remote_lost"
        )
        _, reason = await played(session, "pay 5")
        if reason == "tool_use":
            async with session.answer(Allow()) as answered:
                end = [event async for event in answered][-1]
            assert isinstance(end, Ended)
            assert end.problem is None or end.problem.code == "remote_lost"
            assert others.agui.payments == [5] or end.problem is not None
        assert others.agui.payments in ([], [5])


@pytest.mark.parametrize("base", ["", "/old"], ids=["1.0", "0.3"])
async def test_a_task_of_another_a2a_server_is_continued_after_a_crash_of_this_server(
    others: Others, base: str
) -> None:
    """It goes on while nobody reads it."""
    others.executor.speaks.clear()
    others.proxies[0].plan = lambda: None
    served = RemoteAgent("a2a", others.proxies[0].url + base, name="player", timeouts=Timeouts(reconnect_s=20))
    outcome, whole, cut = await after_a_crash(served, "wait", COUNTED[28:30], others.executor.speaks.set)
    assert (outcome, whole) == ("end_turn", [COUNTED])
    assert all(COUNTED.startswith(each) for each in cut)


async def test_a_response_of_a_server_with_conversations_is_continued_after_a_crash_of_this_server(
    tmp_path: Path,
) -> None:
    """It takes each request as a new one, but has stored the response."""
    async with standard_only_server(tmp_path, WITHOUT_EXTENSIONS) as (url, key):
        served = RemoteAgent("openai", url, agent="rehearsal", key=key, name="player")
        text = script({"emit": {"count": 2, "text": "ab"}}, {"wait_ms": 300}, {"say": "cd"})
        outcome, whole, cut = await after_a_crash(served, text, "abab", lambda: None)
    assert (outcome, whole) == ("end_turn", ["ababcd"])
    assert set(cut) <= {"abab"}


async def test_a_task_that_its_server_lost_in_a_crash_is_lost(others: Others) -> None:
    """The other server keeps its tasks in memory, so that its next start does not know them."""
    others.executor.speaks.clear()
    proxy = others.proxies[0]
    proxy.plan = lambda: None
    first = proxy.target
    async with (
        running_a2a_server(Counter()) as restarted,
        AsyncClient(others.ours.connection.url, key=others.ours.key("alice")) as client,
    ):
        session = await client.create("a2a")
        run, said = session.run("wait"), ""
        while said != COUNTED[:30]:
            event = await anext(run)
            said += event.text if isinstance(event, Text) else ""
        proxy.target = restarted
        await proxy.close()
        async with run:
            end = [event async for event in run][-1]
        proxy.target = first
        assert isinstance(end, Ended)
        assert end.problem is not None
        assert end.problem.code == "remote_lost"
        assert [each.text for each in await session.history()] == ["wait", COUNTED[:30]]
        assert await played(session, "count") == (COUNTED, "end_turn")


async def test_a_stop_cancels_the_task(others: Others) -> None:
    others.executor.speaks.clear()
    others.proxies[0].plan = lambda: None
    async with AsyncClient(others.ours.connection.url, key=others.ours.key("alice")) as client:
        for name in ("a2a", "a2a-0.3"):
            others.executor.cancelled.clear()
            session = await client.create(name)
            run = session.run("wait")
            assert isinstance(await anext(run), Text)
            await session.stop()
            async with run:
                end = [event async for event in run][-1]
            assert isinstance(end, Ended)
            assert end.reason == "cancelled"
            async with asyncio.timeout(DEADLINE_S):
                await others.executor.cancelled.wait()
            assert await played(session, "count") == (COUNTED, "end_turn")
