"""Tools that find out while they run that they have to wait: the example of docs/tools.md, on the real engine."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, Deferred, NeedsApproval, ToolContext, tool
from dragoman.core.answers import INTERRUPTED_RESULT
from dragoman.core.content import ToolMessage, text_of
from dragoman.core.events import CallParked
from dragoman.core.headless import APPROVAL_UNAVAILABLE
from dragoman.core.inputs import Answer, Choice, Decision, Result
from dragoman.core.run_metadata import RunMetadata
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.server.loading import load
from tests.asgi_client import DEADLINE_S
from tests.engine.faulty_log import FaultyLog
from tests.engine.log_checker import check_tool_call_pairing
from tests.engine.world import (
    CallTool,
    World,
    answer_request,
    open_session,
    play,
    reload,
    send,
    user_request,
    wait_for_end,
)

PAGE = Path(__file__).parent.parent.parent.parent / "docs" / "tools.md"


@pytest.fixture
def clerk(tmp_path: Path) -> Agent:
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## Tools that wait\n")
    app = tmp_path / "clerk.py"
    app.write_text(section.split("```python\n")[1].split("```")[0], encoding="utf-8")
    (found,) = load(str(app))
    assert isinstance(found, Agent)
    return found


async def ask(world: World, agent: Agent | None, name: str, /, **arguments: Any) -> tuple[Engine, LiveSession]:
    """Let an agent with these tools call one of them, to where the run ends."""
    for each in ("pay", "refund", "seat") if agent is not None else ():
        found = agent.tool(each) if agent is not None else None
        world.tools[each] = found  # type: ignore[assignment]  # a tool of the example
    world.scripts["go"] = [[CallTool(name, arguments)], ["done"]]
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    return engine, live


async def results(world: World, live: LiveSession) -> list[tuple[str, bool]]:
    history = await world.history(live.state.session_id)
    return [(text_of(each.content), each.is_error) for each in history if isinstance(each, ToolMessage)]


async def answer(engine: Engine, live: LiveSession, given: type[Answer], **fields: Any) -> None:
    (call,) = live.state.waiting_calls()
    await play(engine, live, answer_request(given(call_id=call.call.call_id, **fields)))


async def test_a_rule_decides_by_the_arguments_whether_a_call_needs_approval(world: World, clerk: Agent) -> None:
    engine, live = await ask(world, clerk, "pay", to="Ben", euros=100)
    assert await results(world, live) == [("paid 100 to Ben", False)]
    engine, live = await ask(world, clerk, "pay", to="Ben", euros=101)
    assert await results(world, live) == []
    await answer(engine, live, Decision, granted=True)
    assert await results(world, live) == [("paid 101 to Ben", False)]
    engine, live = await ask(world, clerk, "pay", to="Ben", euros=101)
    await answer(engine, live, Decision, granted=False, reason="no")
    assert await results(world, live) == [("Tool call denied: no", True)]


async def test_an_approval_that_a_tool_asked_for_outlives_a_restart(world: World, clerk: Agent) -> None:
    engine, live = await ask(world, clerk, "refund", order="old-7")
    (call,) = live.state.waiting_calls()
    assert (call.kind, call.note) == ("permission", {"age": "90 days"})
    engine = await world.restart(engine)
    live = await reload(engine, live)
    await answer(engine, live, Decision, granted=True)
    assert await results(world, live) == [("refunded old-7", False)]


async def test_a_session_that_trusts_the_tool_is_not_asked(world: World, clerk: Agent) -> None:
    engine, live = await ask(world, clerk, "refund", order="old-7")
    await answer(engine, live, Decision, granted=True, remember=True)
    await play(engine, live, "go")
    assert await results(world, live) == [("refunded old-7", False)] * 2
    events = await world.events(live.state.session_id)
    assert sum(isinstance(each.event, CallParked) for each in events) == 1


async def test_a_tool_asks_the_user_and_gets_the_answer(any_world: World, clerk: Agent) -> None:
    engine, live = await ask(any_world, clerk, "seat", train="R7")
    await answer(engine, live, Choice, selections={"0": [1]})
    assert await results(any_world, live) == [("aisle seat on R7", False)]


@pytest.mark.parametrize(
    ("is_error", "result"), [(False, ("job says: 42", False)), (True, ("42", True))], ids=["result", "error"]
)
async def test_a_tool_waits_for_the_application(world: World, is_error: bool, result: tuple[str, bool]) -> None:
    @tool
    def job(context: ToolContext) -> str:
        if context.answer is None:
            raise Deferred("client", {"job": 1})
        return f"job says: {context.answer}"

    world.tools["job"] = job  # type: ignore[assignment]  # a tool of ours
    engine, live = await ask(world, None, "job")
    await answer(engine, live, Result, content="42", is_error=is_error)
    assert await results(world, live) == [result]


async def test_a_call_that_was_approved_stays_so_when_its_tool_asks_something_else(world: World) -> None:
    @tool(needs_approval=True)
    def book(context: ToolContext) -> str:
        if context.answer is None:
            raise Deferred("question", {"questions": [{"question": "Where?"}]})
        return f"{context.answer}, approved: {context.granted}"

    world.tools["book"] = book  # type: ignore[assignment]  # a tool of ours
    engine, live = await ask(world, None, "book")
    await answer(engine, live, Decision, granted=True)
    await answer(engine, live, Choice, custom={"0": "aisle"})
    assert await results(world, live) == [("aisle, approved: True", False)]


async def test_where_nobody_can_be_asked_the_call_fails(world: World, clerk: Agent) -> None:
    engine, _ = await ask(world, clerk, "pay", to="Ben", euros=1)
    live = await open_session(engine)
    world.scripts["go"] = [[CallTool("pay", {"to": "Ben", "euros": 500})], ["done"]]
    await play(engine, live, user_request("go", metadata=RunMetadata(headless=True)))
    assert await results(world, live) == [(f"Tool execution failed: {APPROVAL_UNAVAILABLE}", True)]


async def test_a_tool_that_asks_again_for_what_it_has_fails(world: World) -> None:
    @tool
    def stubborn() -> str:
        raise NeedsApproval

    world.tools["stubborn"] = stubborn  # type: ignore[assignment]  # a tool of ours
    engine, live = await ask(world, None, "stubborn")
    await answer(engine, live, Decision, granted=True)
    assert await results(world, live) == [("Tool execution failed: it asked for an approval that it has", True)]


async def test_beside_a_call_that_waits_an_interrupted_one_ends_and_is_not_asked_about_again(any_world: World) -> None:
    asked = asyncio.Event()

    @tool
    async def job(context: ToolContext) -> str:
        """Waits for two results of the application."""
        if context.answer == "second":
            return "both"
        if context.answer == "first":
            asked.set()
        raise Deferred("client")

    any_world.tools["job"] = job  # type: ignore[assignment]  # a tool of ours
    gate = any_world.pausing_tool("pay", needs_approval=True, on_restart="ask")
    any_world.scripts["go"] = [["so ", CallTool("job"), CallTool("pay")], ["done"]]
    log = FaultyLog(any_world.store)
    engine = await any_world.start(log)
    live = await open_session(engine)
    await play(engine, live, "go")
    calls = {call.call.name: call.call.call_id for call in live.state.waiting_calls()}
    first = Result(call_id=calls["job"], content="first")
    await send(engine, live, answer_request(first, Decision(call_id=calls["pay"], granted=True)))
    async with asyncio.timeout(DEADLINE_S):
        await asked.wait()
        await gate.entered.wait()
        await live.until_durable(live.state.seq)
    log.is_dead = True
    await any_world.kill(engine)
    engine = await any_world.start()
    live = await reload(engine, live)
    await wait_for_end(live)
    assert [call.call.name for call in live.state.waiting_calls()] == ["job"]
    await play(engine, live, answer_request(Result(call_id=calls["job"], content="second")))
    assert await results(any_world, live) == [(INTERRUPTED_RESULT, True), ("both", False)]
    check_tool_call_pairing(await any_world.events(live.state.session_id))


@pytest.mark.parametrize("reason", [NeedsApproval(), Deferred("client"), Deferred("question")])
async def test_an_internal_tool_cannot_wait(world: World, reason: Deferred) -> None:
    @tool(internal=True)
    def unseen() -> str:
        raise reason

    world.tools["unseen"] = unseen  # type: ignore[assignment]  # a tool of ours
    _, live = await ask(world, None, "unseen")
    assert live.state.status() == "idle"
    assert await results(world, live) == [("Tool execution failed: an internal tool cannot wait", True)]
