"""Calls that an agent runs itself: the log has their state, and the agent alone decides what becomes of them."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from dragoman.core.agent import Run
from dragoman.core.content import AssistantMessage, Call, Json, ToolMessage, UserMessage, text_of
from dragoman.core.events import (
    AnswerGiven,
    CallOpened,
    CallParked,
    CallSettled,
    CallStarted,
    LoggedEvent,
    MessageAdded,
    RunStopped,
    StopReason,
    WaitKind,
)
from dragoman.core.headless import APPROVAL_UNAVAILABLE
from dragoman.core.history import messages_of
from dragoman.core.ids import CallId
from dragoman.core.inputs import Answer, Choice, Decision, Result, Submit, UserInput
from dragoman.core.refusals import InvalidAnswer
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.tools import ToolGrant
from tests.engine.faulty_log import FaultyLog, Moment
from tests.engine.log_checker import check_log, check_tool_call_pairing
from tests.engine.runs.test_crash import Client, serve
from tests.engine.world import (
    ScriptedAgent,
    World,
    answer_request,
    fork,
    open_session,
    play,
    running_world,
    send,
    texts,
    user_request,
)
from tests.stores.simulated import SimulatedLog

QUESTION = {"questions": [{"question": "Which?", "options": [{"label": "red"}, {"label": "blue"}]}]}


class FrameworkAgent(ScriptedAgent):
    """An agent that runs its calls itself, by a function that is given what was recorded."""

    def __init__(self, do: Callable[[Run], Awaitable[StopReason | None]], **spec: Any) -> None:
        super().__init__({}, {}, **spec)
        self.do = do

    async def play(self, run: Run) -> StopReason | None:
        return await self.do(run)


def short(events: Sequence[LoggedEvent]) -> list[str]:
    """The events of calls, and the ends of runs, in short."""
    found = []
    for logged in events:
        match logged.event:
            case CallOpened(call=call, recorded=True):
                found.append(f"{call.name} opened")
            case CallStarted():
                found.append("started")
            case CallParked(kind=kind):
                found.append(f"waits for {kind}")
            case AnswerGiven(granted=granted, result=result):
                found.append("answered" if result is not None else "granted" if granted else "denied")
            case CallSettled(outcome=outcome, result=result):
                found.append(f"{outcome}: {text_of(result.content)}")
            case MessageAdded(message=UserMessage(content=content)):
                found.append(f"user: {text_of(content)}")
            case RunStopped(reason=reason):
                found.append(str(reason))
    return found


def asking(kind: WaitKind, note: Json = None, *, seen: list[Any] | None = None) -> FrameworkAgent:
    """An agent whose only call waits, and has as result what was answered."""

    async def do(run: Run) -> StopReason | None:
        for call in run.recorded():
            if seen is not None:
                seen.append((call.state, call.answer))
            if call.state == "waiting":
                return None
            match call.answer:
                case Decision(granted=True):
                    await call.start()
                    await call.done("booked")
                case Decision(reason=reason):
                    await call.done(f"no: {reason}", outcome="denied")
                case ToolMessage(content=content, is_error=is_error):
                    await call.done(text_of(content), outcome="failed" if is_error else "done")
        turn = await run.turn()
        if any(isinstance(each, ToolMessage) for each in turn):
            run.emit("so be it")
            await run.end_step()
            return None
        call = run.record("book", {"to": "Oslo"}, origin="call_1")
        await run.end_step()
        call.wait(kind, note=note)
        return None

    return FrameworkAgent(do)


async def test_a_recorded_call_is_run_by_the_agent_alone(any_world: World) -> None:
    states: list[str] = []

    async def do(run: Run) -> StopReason | None:
        run.emit("one moment")
        call = run.record("book", {"to": "Oslo"}, origin="call_1")
        assert list(await run.end_step()) == []
        states.append(call.state)
        await call.start()
        states.append(call.state)
        await call.done({"seat": 7})
        run.emit("seat 7")
        await run.end_step()
        return None

    any_world.agents["player"] = FrameworkAgent(do)
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "book")
    events = await any_world.events(live.state.session_id)
    assert short(events) == ["user: book", "book opened", "started", 'done: {"seat":7}', "end_turn"]
    (opened,) = [each.event for each in events if isinstance(each.event, CallOpened)]
    assert (opened.kind, opened.call.origin, opened.call.input) == ("inline", "call_1", {"to": "Oslo"})
    assert states == ["new", "started"]


async def test_a_step_may_begin_while_a_recorded_call_of_another_is_open(world: World) -> None:
    async def do(run: Run) -> StopReason | None:
        first = run.record("one", {})
        await run.end_step()
        second = run.record("two", {})
        await run.end_step()
        await second.done("2")
        await first.done("1")
        return None

    world.agents["player"] = FrameworkAgent(do)
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    log = short(await world.events(live.state.session_id))
    assert log == ["user: go", "one opened", "two opened", "done: 2", "done: 1", "end_turn"]


async def test_what_an_agent_leaves_open_is_cancelled(world: World) -> None:
    async def do(run: Run) -> StopReason | None:
        run.record("one", {})
        started = run.record("two", {})
        await run.end_step()
        await started.start()
        return None

    world.agents["player"] = FrameworkAgent(do)
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    left_out = "cancelled: Tool call cancelled: the run ended"
    ended = "cancelled: Tool call cancelled while it ran: the run ended"
    log = short(await world.events(live.state.session_id))
    assert log == ["user: go", "one opened", "two opened", "started", left_out, ended, "end_turn"]


async def test_a_call_that_did_not_begin_stays_open_beside_one_that_waits(world: World) -> None:
    async def do(run: Run) -> StopReason | None:
        left = {call.call.name: call for call in run.recorded()}
        if left:
            assert {name: call.state for name, call in left.items()} == {"asked": "answered", "later": "new"}
            for call in left.values():
                await call.start()
                await call.done("ok")
            return None
        asked = run.record("asked", {})
        run.record("later", {})
        await run.end_step()
        asked.wait("permission")
        return None

    world.agents["player"] = FrameworkAgent(do)
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    (call,) = live.state.waiting_calls()
    await play(engine, live, answer_request(Decision(call_id=call.call.call_id, granted=True)))
    log = short(await world.events(live.state.session_id))
    assert log[3:] == [
        "waits for permission", "tool_use", "granted", "started", "done: ok", "started", "done: ok", "end_turn"
    ]  # fmt: skip


def grant(call_id: CallId) -> Answer:
    return Decision(call_id=call_id, granted=True)


def deny(call_id: CallId) -> Answer:
    return Decision(call_id=call_id, granted=False, reason="dear")


@pytest.mark.parametrize(
    ("kind", "note", "answer", "results"),
    [
        ("permission", {"why": "costs 90"}, grant, ["granted", "started", "done: booked"]),
        ("permission", None, deny, ["denied", "denied: no: dear"]),
        ("client", None, lambda c: Result(call_id=c, content="seat 7"), ["answered", "done: seat 7"]),
        ("client", None, lambda c: Result(call_id=c, content="full", is_error=True), ["answered", "failed: full"]),
        (
            "question",
            QUESTION,
            lambda c: Choice(call_id=c, selections={"0": [1]}),
            ["answered", 'done: {"answers":[{"question":"Which?","labels":["blue"],"custom":null}]}'],
        ),
    ],
)  # fmt: skip
async def test_an_answer_is_kept_for_the_agent_which_settles_the_call(
    world: World, kind: WaitKind, note: Json, answer: Callable[[CallId], Answer], results: list[str]
) -> None:
    world.agents["player"] = asking(kind, note)
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    assert live.state.status() == "waiting"
    (call,) = live.state.waiting_calls()
    assert call.note == note
    await play(engine, live, answer_request(answer(call.call.call_id)))
    log = short(await world.events(live.state.session_id))
    assert log == ["user: go", "book opened", f"waits for {kind}", "tool_use", *results, "end_turn"]


async def test_a_question_of_a_recorded_call_takes_its_own_choices_only(world: World) -> None:
    world.agents["player"] = asking("question", QUESTION)
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    (call,) = live.state.waiting_calls()
    assert (call.shown().name, call.shown().input) == ("AskUserQuestion", QUESTION)
    with pytest.raises(InvalidAnswer, match="question 0 has 2 options"):
        await send(engine, live, answer_request(Choice(call_id=call.call.call_id, selections={"0": [2]})))
    with pytest.raises(InvalidAnswer, match="it can be answered or denied, not granted"):
        await send(engine, live, answer_request(Decision(call_id=call.call.call_id, granted=True)))


async def test_the_arguments_of_a_recorded_call_cannot_be_edited(world: World) -> None:
    world.agents["player"] = asking("permission")
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    (call,) = live.state.waiting_calls()
    edited = Decision(call_id=call.call.call_id, granted=True, arguments={"place": "elsewhere"})
    with pytest.raises(InvalidAnswer, match="cannot be edited"):
        await send(engine, live, answer_request(edited))
    assert not call.can_be_edited


async def test_a_message_beside_an_answer_follows_the_calls_result(world: World) -> None:
    world.agents["player"] = asking("permission")
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    (call,) = live.state.waiting_calls()
    request = Submit(
        protocol="test",
        answers=(Decision(call_id=call.call.call_id, granted=False, reason="no"),),
        messages=(UserInput(content="rather the train"),),
    )
    await play(engine, live, request)
    log = short(await world.events(live.state.session_id))
    assert log == [
        "user: go", "book opened", "waits for permission", "tool_use",
        "denied", "denied: no: no", "user: rather the train", "book opened", "waits for permission", "tool_use",
    ]  # fmt: skip


async def test_a_message_alone_cancels_what_waits(world: World) -> None:
    world.agents["player"] = asking("question", QUESTION)
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    await play(engine, live, "never mind")
    log = short(await world.events(live.state.session_id))
    assert log[4:6] == ["cancelled: Tool call cancelled: a new user message arrived", "user: never mind"]


async def test_the_permission_that_a_call_needs_follows_the_sessions_grants(world: World) -> None:
    needs: list[str] = []

    async def do(run: Run) -> StopReason | None:
        calls = [run.record(name, {}) for name in ("plain", "asking", "unknown")]
        needs.extend(call.needs for call in calls)
        await run.end_step()
        return None

    agent = FrameworkAgent(do)
    world.echo("plain")
    world.echo("asking", needs_approval=True)
    agent.tools = world.tools
    world.agents["player"] = agent
    engine = await world.start()
    await play(engine, await open_session(engine), "go")
    grants = (ToolGrant("plain"), ToolGrant("asking", trust=True))
    await play(engine, await open_session(engine, tools=grants), "go")
    assert needs == ["nothing", "permission", "missing", "permission", "nothing", "missing"]


async def test_an_unattended_run_continues_with_a_denial(world: World) -> None:
    seen: list[Any] = []
    world.agents["player"] = asking("permission", seen=seen)
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, user_request("go", metadata=RunMetadata(headless=True)))
    log = short(await world.events(live.state.session_id))
    denied = f"denied: no: {APPROVAL_UNAVAILABLE}"
    assert log == ["user: go", "book opened", "waits for permission", "denied", denied, "end_turn"]
    assert [state for state, _ in seen] == ["answered"]


# --- crashes ----------------------------------------------------------------------------------------------------------


async def booking(executed: list[str], run: Run) -> StopReason | None:
    """Three calls, of which the last needs permission; then a second step. Says what became of a call that was cut."""
    if not any(isinstance(each, AssistantMessage) for each in await run.turn()):
        for name in ("first", "second", "third"):
            run.record(name, {})
        await run.end_step()
    for call in run.recorded():
        name = call.call.name
        match call.state:
            case "started":
                await call.done("cut short", outcome="interrupted")
            case "new" if name == "third":
                call.wait("permission", note={"why": "dear"})
            case "new" | "answered":
                await call.start()
                executed.append(name)
                await call.done(f"{name} ok")
            case "waiting":
                pass
    if run.recorded():
        return None
    run.emit("all done")
    await run.end_step()
    return None


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_server_that_dies_at_any_commit_runs_no_recorded_call_twice(moment: Moment) -> None:
    results = set()
    commit = 0
    while True:
        commit += 1
        async with running_world(SimulatedLog()) as world:
            executed: list[str] = []
            world.agents["player"] = FrameworkAgent(partial(booking, executed))
            client, log = Client("go"), FaultyLog(world.store)
            log.die_at(commit, moment)
            if not await serve(world, client, log):
                break
            assert not await serve(world, client, FaultyLog(world.store))
            assert client.live is not None
            events = await world.events(client.live.state.session_id)
            assert max(Counter(executed).values()) == 1
            check_log(events, {})
            check_tool_call_pairing(events)
            settled = [each.event for each in events if isinstance(each.event, CallSettled)]
            assert sorted(each.result.name for each in settled) == ["first", "second", "third"]
            assert texts(messages_of(events))[-1] == "all done"
            results |= {text_of(each.result.content) for each in settled}
    assert commit > 8, "the server died in every stage"
    assert results == {"first ok", "second ok", "third ok", "cut short"}


async def test_a_sub_agents_recorded_call_waits_and_continues_like_its_parents(world: World) -> None:
    executed: list[str] = []
    below = FrameworkAgent(partial(booking, executed))
    world.scripts["go"] = [[fork("below")], ["home"]]

    class Parent(ScriptedAgent):
        def child(self, call: Call) -> Any:
            return below

    world.agents["player"] = Parent(world.scripts, world.tools)
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    assert [call.call.name for call in live.state.waiting_calls()] == ["third"]
    (call,) = live.state.waiting_calls()
    await play(engine, live, answer_request(Decision(call_id=call.call.call_id, granted=True)))
    assert executed == ["first", "second", "third"]
    assert texts(await world.history(live.state.session_id)) == ["go", "Agent()", "all done", "home"]
