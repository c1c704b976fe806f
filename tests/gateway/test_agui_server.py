"""An agent behind an AG-UI server that we did not write, through this server and the client library."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed")
pytest.importorskip("ag_ui", reason="AG-UI's package is not installed")

from dragoman.agents import serving
from dragoman.client import (
    Allow,
    AsyncClient,
    AsyncRun,
    Deny,
    Ended,
    Event,
    Permission,
    Restarted,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
)
from dragoman.client import Result as ToolAnswer
from dragoman.client.connection import Timeouts
from dragoman.client.errors import REDIRECTED
from dragoman.core.content import AssistantMessage, text_of
from dragoman.core.events import RunStopped
from dragoman.core.stream import START, Record
from dragoman.core.tools import TextOption
from dragoman.gateway import remote_server
from dragoman.gateway.remote_agent import RemoteAgent
from dragoman.gateway.remote_play import OnLost
from tests.asgi_client import DEADLINE_S
from tests.client.cutting_proxy import CuttingProxy, cutting_proxy
from tests.engine.faulty_log import FaultyLog
from tests.engine.world import open_session, reload, running_world, send, wait_for_end
from tests.gateway.agui_server import AguiServer, running_agui_server
from tests.servers import SocketServer, running_socket_server
from tests.stores.simulated import SimulatedLog


@pytest.fixture(scope="module")
async def remote() -> AsyncIterator[AguiServer]:
    async with running_agui_server() as server:
        yield server


@pytest.fixture(scope="module")
async def proxy(remote: AguiServer) -> AsyncIterator[CuttingProxy]:
    async with cutting_proxy(remote.url.removesuffix("/agent"), lambda: None) as proxy:
        yield proxy


@pytest.fixture(scope="module")
async def server(
    remote: AguiServer, proxy: CuttingProxy, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SocketServer]:
    """A server with the remote agent under four names."""
    cut_url, timeouts = f"{proxy.url}/agent", Timeouts(reconnect_s=0.3)
    agents = [
        RemoteAgent("ag-ui", remote.url, name="weather", timeouts=timeouts),
        RemoteAgent("ag-ui", remote.url, name="short", timeouts=timeouts, max_steps=1),
        RemoteAgent("ag-ui", cut_url, name="fragile", timeouts=timeouts),
        RemoteAgent("ag-ui", cut_url, name="stubborn", timeouts=timeouts, on_lost="retry"),
        RemoteAgent(
            "ag-ui",
            remote.url,
            name="private",
            timeouts=timeouts,
            options=[TextOption(name="token")],
            headers=lambda info: {"Authorization": f"Bearer {info.options['token']}", "X-User": info.user},
        ),
        RemoteAgent("ag-ui", "http://127.0.0.1:9/agent", name="down", timeouts=timeouts),
        RemoteAgent("ag-ui", remote.url.replace("/agent", "/moved"), name="moved", timeouts=timeouts),
        RemoteAgent("openai", remote.url.replace("/agent", "/v1"), agent="m", name="responses", timeouts=timeouts),
    ]
    async with running_socket_server(tmp_path_factory.mktemp("gateway"), agents=agents, rehearsal=False) as server:
        yield server


@pytest.fixture
async def client(server: SocketServer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.connection.url, key=server.key("alice")) as client:
        yield client


async def events_of(run: AsyncRun) -> list[Event]:
    async with run:
        return [event async for event in run]


def shown(events: list[Event]) -> list[Any]:
    """A conversation as a person sees it: texts joined, calls and results by name."""
    seen: list[Any] = []
    for event in events:
        match event:
            case Text(text=text) if seen and isinstance(seen[-1], str):
                seen[-1] += text
            case Text(text=text):
                seen.append(text)
            case Thinking(text=text):
                seen.append(("thinks", text))
            case ToolCall(name=name, arguments=arguments):
                seen.append((name, arguments))
            case ToolResult(name=name, text=text):
                seen.append((name, text))
            case Permission(name=name):
                seen.append(("asks", name))
            case Ended(reason=reason, problem=problem):
                seen.append(("ended", reason if problem is None else problem.code))
    return seen


async def test_text_reasoning_and_parallel_tool_calls_arrive_and_are_in_the_history(client: AsyncClient) -> None:
    session = await client.create("weather")
    assert shown(await events_of(session.run("think"))) == [("thinks", "Hmm."), "Thought.", ("ended", "end_turn")]
    assert shown(await events_of(session.run("forecast Rome Oslo"))) == [
        "Let me look. ",
        ("forecast", {"city": "Rome"}),
        ("forecast", {"city": "Oslo"}),
        ("forecast", "sun in Rome"),
        ("forecast", "sun in Oslo"),
        "So: sun in Rome, sun in Oslo.",
        ("ended", "end_turn"),
    ]
    history = [(each.role, each.text) for each in await session.history()]
    assert history == [
        ("user", "think"),
        ("assistant", "Thought."),
        ("user", "forecast Rome Oslo"),
        ("assistant", "Let me look. "),
        ("tool", "sun in Rome"),
        ("tool", "sun in Oslo"),
        ("assistant", "So: sun in Rome, sun in Oslo."),
    ]


async def test_the_remote_agent_gets_the_history_that_our_user_sees(client: AsyncClient, remote: AguiServer) -> None:
    session = await client.create("weather")
    await session.ask("forecast Rome")
    assert (await session.ask("recall it")).text == "forecast Rome | recall it"
    roles = [(each["role"], each.get("toolCallId")) for each in remote.requests[-1]["messages"]]
    assert roles == [("user", None), ("assistant", None), ("tool", "call_Rome"), ("assistant", None), ("user", None)]
    threads = {each["threadId"] for each in remote.requests[-2:]}
    assert len(threads) == 1


@pytest.mark.parametrize(("answer", "result", "paid"), [(Allow(), "paid 5", [5]), (Deny(), "", [])])
async def test_an_approval_is_asked_here_and_the_answer_is_sent_once(
    client: AsyncClient, remote: AguiServer, answer: Allow | Deny, result: str, paid: list[int]
) -> None:
    remote.payments.clear()
    session = await client.create("weather")
    assert shown(await events_of(session.run("pay 5"))) == [
        ("pay", {"amount": 5}),
        ("asks", "pay"),
        ("ended", "tool_use"),
    ]
    assert remote.payments == []
    sent = len(remote.requests)
    events = shown(await events_of(session.answer(answer)))
    assert events[-1] == ("ended", "end_turn")
    assert events[-2].startswith("So: ")
    assert result in str(events)
    assert remote.payments == paid
    assert [bool(each.get("resume")) for each in remote.requests[sent:]] == [True]


async def test_a_tool_that_our_user_always_allows_is_not_asked_about_again(
    server: SocketServer, remote: AguiServer
) -> None:
    remote.payments.clear()
    async with AsyncClient(server.connection.url, key=server.key("alice"), protocol="ag-ui") as client:
        session = await client.create("weather")
        assert shown(await events_of(session.run("pay 5")))[-1] == ("ended", "tool_use")
        await events_of(session.answer(Allow(always=True)))
        assert shown(await events_of(session.run("pay 6"))) == [
            ("pay", {"amount": 6}),
            ("pay", "paid 6"),
            "So: paid 6.",
            ("ended", "end_turn"),
        ]
    assert remote.payments == [5, 6]


async def test_tools_of_our_application_are_offered_to_the_remote_agent(client: AsyncClient) -> None:
    session = await client.create("weather", tools=[Tool(name="paint", parameters={"type": "object"})])
    assert shown(await events_of(session.run("paint")))[-1] == ("ended", "tool_use")
    events = shown(await events_of(session.answer(ToolAnswer(call_id=session.pending[0].call_id, text="red"))))
    assert events == ["So: red.", ("ended", "end_turn")]


async def test_an_error_of_the_remote_agent_ends_the_run_with_it(client: AsyncClient) -> None:
    session = await client.create("weather")
    assert shown(await events_of(session.run("fail"))) == ["I will ", ("ended", "remote_error")]
    assert (await session.ask("hello")).text == "You said: hello"


async def test_a_run_that_has_no_more_steps_here_ends_there_too(client: AsyncClient) -> None:
    session = await client.create("short")
    assert shown(await events_of(session.run("forecast Rome")))[-1] == ("ended", "max_steps")
    assert (await session.ask("recall it")).text == "forecast Rome | recall it"


async def test_a_probe_of_a_server_that_was_down_may_end_in_any_way(
    remote: AguiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_server, "BREAKER_FAILURES", 0)  # each request is a probe: one at a time
    monkeypatch.setattr(remote_server, "BREAKER_OPEN_S", 0.0)
    short = RemoteAgent("ag-ui", remote.url, name="short", max_steps=1)
    async with (
        running_socket_server(tmp_path, agents=[short], rehearsal=False) as server,
        AsyncClient(server.connection.url, key=server.key("alice")) as client,
    ):
        session = await client.create("short")
        assert shown(await events_of(session.run("forecast Rome")))[-1] == ("ended", "max_steps")
        assert (await session.ask("hello")).text == "You said: hello"


async def test_a_stop_ends_the_remote_run(client: AsyncClient, remote: AguiServer) -> None:
    remote.cancelled.clear()
    session = await client.create("weather")
    run = session.run("wait")
    assert (await anext(run)) == Text(text="one ")
    await session.stop()
    assert shown(await events_of(run)) == [("ended", "cancelled")]
    async with asyncio.timeout(DEADLINE_S):
        await remote.cancelled.wait()
    assert (await session.ask("recall it")).text == "wait | recall it"


async def test_headers_may_depend_on_the_user_and_the_sessions_options(client: AsyncClient, remote: AguiServer) -> None:
    session = await client.create("private", options={"token": "t-1"})
    await session.ask("hello")
    sent = remote.headers[-1]
    assert (sent["authorization"], sent["x-user"], sent["dragoman-hops"]) == ("Bearer t-1", "alice", "1")


@pytest.mark.parametrize(
    ("token", "code", "message"),
    [
        ("wrong", "remote_refused", "The remote server refused the credentials"),
        ("talkative", "remote_refused", f"The remote agent refused the request: {'x' * 1000}"),
        ("nested", "remote_refused", "The remote agent refused the request: a message has at most 1 MB"),
        ("fastapi", "remote_refused", 'The remote agent refused the request: [{"msg":"Field required"}]'),
        ("failing", "remote_error", "The remote agent failed: the server answered 500"),
        ("overloaded", "remote_unavailable", "The remote agent is unavailable: no healthy upstream"),
    ],
)
async def test_a_refusal_says_what_is_wrong_without_credentials_pages_and_long_text(
    client: AsyncClient, token: str, code: str, message: str
) -> None:
    session = await client.create("private", options={"token": token})
    ended = (await events_of(session.run("hello")))[-1]
    assert isinstance(ended, Ended)
    assert ended.problem is not None
    assert (ended.problem.code, ended.problem.message) == (code, message)


async def test_a_server_without_the_protocol_is_no_server_with_a_wrong_answer(client: AsyncClient) -> None:
    session = await client.create("responses")
    ended = (await events_of(session.run("hello")))[-1]
    assert isinstance(ended, Ended)
    assert ended.problem is not None
    assert (ended.problem.code, ended.problem.message) == (
        "remote_refused", "The remote server does not support the request: see the log of this server"
    )  # fmt: skip


async def test_a_stream_that_breaks_off_ends_the_run_with_what_was_received(
    client: AsyncClient, proxy: CuttingProxy, remote: AguiServer
) -> None:
    session = await client.create("fragile")
    await session.ask("hello")
    sent = len(remote.requests)
    run = session.run("wait")
    assert await anext(run) == Text(text="one ")
    await proxy.close()
    assert shown(await events_of(run)) == [("ended", "remote_lost")]
    assert len(remote.requests) == sent + 1
    assert (await session.ask("recall it")).text == "hello | wait | recall it"
    assert [each.text for each in await session.history()] == [
        "hello",
        "You said: hello",
        "wait",
        "one ",
        "recall it",
        "hello | wait | recall it",
    ]
    threads = [each["threadId"] for each in remote.requests[sent:]]
    assert threads[0] != threads[1]


async def test_a_stream_that_breaks_off_is_begun_again_if_that_is_the_rule(
    client: AsyncClient, proxy: CuttingProxy, remote: AguiServer
) -> None:
    session = await client.create("stubborn")
    await session.ask("hello")
    remote.speaks.clear()
    run = session.run("wait")
    assert await anext(run) == Text(text="one ")
    await proxy.close()
    assert await anext(run) == Restarted(text="one ")
    remote.speaks.set()
    assert shown(await events_of(run)) == ["one two", ("ended", "end_turn")]
    history = await session.history()
    assert [(each.text, each.cut) for each in history[2:]] == [("wait", False), ("one ", True), ("one two", False)]
    assert (await session.ask("recall it")).text == "hello | wait | recall it"


async def test_an_answer_whose_fate_is_unknown_is_not_sent_again(
    client: AsyncClient, proxy: CuttingProxy, remote: AguiServer
) -> None:
    session = await client.create("stubborn")
    await events_of(session.run("pay 7"))
    sent, cuts = len(remote.requests), iter((0,))
    proxy.plan = lambda: next(cuts, None)
    assert shown(await events_of(session.answer(Allow())))[-1] == ("ended", "remote_lost")
    assert [bool(each.get("resume")) for each in remote.requests[sent:]] == [True]


async def test_a_server_that_is_down_is_not_asked_for_a_while(client: AsyncClient, server: SocketServer) -> None:
    session = await client.create("down")
    for _ in range(3):
        ended = (await events_of(session.run("hello")))[-1]
        assert isinstance(ended, Ended)
        assert ended.problem is not None
        assert ended.problem.message == "The remote agent cannot be reached"
    ended = (await events_of(session.run("hello")))[-1]
    assert isinstance(ended, Ended)
    assert ended.problem is not None
    assert ended.problem.message.startswith("The remote agent cannot be reached; try again in ")
    async with httpx2.AsyncClient(base_url=server.connection.url) as http:
        ready = await http.get("/readyz")
        assert ready.status_code == 200
        states = dict(each.split() for each in ready.json()["remote_agents"].split(", "))
        names = ("fragile", "moved", "private", "responses", "short", "stubborn", "weather")
        assert states == {"down": "unavailable", **dict.fromkeys(names, "available")}
        metrics = (await http.get("/metrics")).text
    assert 'dragoman_remote_agent_available{agent="down"} 0' in metrics
    assert 'dragoman_remote_agent_available{agent="weather"} 1' in metrics


async def test_a_redirect_is_not_followed(client: AsyncClient, remote: AguiServer) -> None:
    sent = len(remote.requests)
    session = await client.create("moved")
    (ended,) = await events_of(session.run("hello"))
    assert isinstance(ended, Ended)
    assert ended.problem is not None
    assert (ended.problem.code, ended.problem.message) == (
        "remote_refused", f"The remote agent refused the request: {REDIRECTED}"
    )  # fmt: skip
    assert len(remote.requests) == sent


async def test_a_loop_of_servers_ends(server: SocketServer) -> None:
    key = server.key("alice")
    async with httpx2.AsyncClient(base_url=server.connection.url, headers={"Authorization": f"Bearer {key}"}) as http:
        session = (await http.post("/aap/v3/sessions", json={"agent": {"name": "weather"}})).json()["sessionId"]
        turn = {"messages": [{"role": "user", "content": "hello"}], "stream": "none"}
        path = f"/aap/v3/sessions/{session}/turns"
        for hops, expected in (("8", "too_many_hops"), ("7", None)):
            meta = (await http.post(path, json=turn, headers={"Dragoman-Hops": hops})).json().get("_meta", {})
            assert meta.get("error", {}).get("code") == expected


async def test_an_edited_message_begins_a_new_remote_thread_with_what_our_user_sees(
    server: SocketServer, remote: AguiServer
) -> None:
    """The application edits as AG-UI's clients do: it sends its messages, the last of which is another one."""
    sent = len(remote.requests)
    async with AsyncClient(server.connection.url, key=server.key("alice"), protocol="ag-ui") as client:
        session = await client.create("weather")
        await session.ask("first")
        await session.ask("second")
        first, answer, *_ = await session.history()
        body = {
            "threadId": session.id,
            "runId": str(uuid4()),
            "messages": [
                {"id": first.id, "role": "user", "content": "first"},
                {"id": answer.id, "role": "assistant", "content": answer.text},
                {"id": str(uuid4()), "role": "user", "content": "recall it"},
            ],
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
        }
        headers = {"Authorization": f"Bearer {server.key('alice')}"}
        async with httpx2.AsyncClient(base_url=server.connection.url, headers=headers) as http:
            assert (await http.post("/ag-ui/weather", json=body)).status_code == 200
        assert [each.text for each in await session.history()] == [
            "first",
            "You said: first",
            "recall it",
            "first | recall it",
        ]
    threads = [each["threadId"] for each in remote.requests[sent:]]
    assert threads[0] == threads[1] != threads[2]


@pytest.mark.parametrize(("on_lost", "outcome", "sent"), [("fail", "remote_lost", 1), ("retry", None, 2)])
async def test_a_crash_of_this_server_is_treated_like_a_lost_connection(
    remote: AguiServer, on_lost: OnLost, outcome: str | None, sent: int
) -> None:
    before = len(remote.requests)
    remote.speaks.clear()
    served = RemoteAgent("ag-ui", remote.url, name="player", on_lost=on_lost)
    await serving.start([served])
    async with running_world(SimulatedLog()) as world:
        world.agents["player"] = served
        log = FaultyLog(world.store)
        engine = await world.start(log)
        session = await open_session(engine)
        await send(engine, session, "wait")
        seen: list[Record] = []
        async with asyncio.timeout(DEADLINE_S):
            with engine.follow(session, START) as reader:
                while "one " not in str(seen):
                    seen += await reader.next()
        log.is_dead = True
        await world.kill(engine)
        remote.speaks.set()
        engine = await world.start()
        session = await reload(engine, session)
        await wait_for_end(session)
        events = await world.events(session.state.session_id)
        stopped = next(each.event for each in events if isinstance(each.event, RunStopped))
        history = await world.history(session.state.session_id)
    await serving.close([served])
    assert stopped.code == outcome
    assert len(remote.requests) - before == sent
    answers = [each for each in history if isinstance(each, AssistantMessage)]
    assert [(text_of(each.content), each.status) for each in answers] == [
        ("one ", "cut"),
        *([("one two", "completed")] if outcome is None else []),
    ]
