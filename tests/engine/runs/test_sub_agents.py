"""Sub-agents: their questions and permissions wait in the session, and their ends are results of their calls."""

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from dragoman.core.agent import AgentError, Paused, Run
from dragoman.core.content import ToolMessage, text_of
from dragoman.core.events import CallSettled, LoggedEvent
from dragoman.core.history import messages_of
from dragoman.core.ids import ROOT, CallId
from dragoman.core.inputs import Answer, Choice, Decision, Result, UserInput
from dragoman.core.open_calls import OpenCall
from dragoman.core.refusals import CallAlreadySettled, InvalidAnswer, ResultsMissing, SessionBusy, UnknownCall
from dragoman.core.tools import FORK, ToolSpec
from tests.engine.log_checker import check_tool_call_pairing
from tests.engine.world import (
    DEADLINE_S,
    CallTool,
    World,
    answer_request,
    ask_user,
    fork,
    open_session,
    play,
    reasons,
    reload,
    send,
    texts,
    wait_for_end,
    wait_until_durable,
    waiting_tools,
)

PAINT = ToolSpec(name="paint", description="", parameters={"type": "object"})
NEW_MESSAGE = "Tool call cancelled: a new user message arrived"


def results(events: Sequence[LoggedEvent]) -> list[str]:
    return [text_of(each.event.result.content) for each in events if isinstance(each.event, CallSettled)]


def ids(calls: Iterable[OpenCall]) -> list[CallId]:
    return [call.call.call_id for call in calls]


async def test_the_last_text_of_a_sub_agent_is_the_result_of_its_call(any_world: World) -> None:
    any_world.echo()
    any_world.scripts |= {
        "below": [["first words"], ["last words", CallTool("echo", {"value": 1})], [wait_until_durable]],
        "go": [["go: ", fork("below"), fork("below")], ["end"]],
    }
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    history = await any_world.history(live.state.session_id)
    assert texts(history) == ["go", "go:  Agent() Agent()", "last words", "last words", "end"]
    check_tool_call_pairing(await any_world.events(live.state.session_id))


async def test_questions_of_a_sub_agent_can_be_answered_through_the_call_above_it_and_grants_cannot(
    any_world: World,
) -> None:
    """Over a restart before each answer: nothing of a sub-agent stays in memory while a human thinks."""
    any_world.echo("allowed", needs_approval=True)
    any_world.scripts |= {
        "deepest": [["d ", ask_user("a", "b"), CallTool("allowed", {"value": "x"})], [ask_user("c", "d")], ["deepest"]],
        "below": [["b ", fork("deepest")], ["middle"]],
        "go": [["top ", fork("below")], ["end"]],
    }
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    (above,) = ids(live.state.calls_in_loop(ROOT))
    assert live.state.calls[above].call.name == FORK
    (allowed,) = [call for call in live.state.waiting_calls() if call.call.name == "allowed"]
    given: list[Answer] = [
        Choice(call_id=above, selections={"0": [1]}),
        Decision(call_id=allowed.call.call_id, granted=True),
        Choice(call_id=above, custom={"0": "neither"}),
    ]
    for place, answer in enumerate(given):
        assert live.state.status() == "waiting", place
        engine = await any_world.restart(engine)
        live = await reload(engine, live)
        with pytest.raises(InvalidAnswer):
            await send(engine, live, answer_request(Decision(call_id=above, granted=True)))
        await play(engine, live, answer_request(answer))
    assert (live.state.status(), live.state.calls, live.state.last_stop) == ("idle", {}, "end_turn")
    events = await any_world.events(live.state.session_id)
    assert results(events) == [
        '{"answers":[{"question":"Which?","labels":["b"],"custom":null}]}',
        "x",
        '{"answers":[{"question":"Which?","labels":[],"custom":"neither"}]}',
        "deepest",
        "middle",
    ]
    assert reasons(events) == ["tool_use", "tool_use", "end_turn"], "the first answer alone did not let it go on"
    check_tool_call_pairing(events)


async def test_answers_reach_the_right_one_of_several_waiting_sub_agents(any_world: World) -> None:
    any_world.scripts |= {"below": [[ask_user("a", "b")], ["asked"]], "go": [[fork("below"), fork("below")], ["end"]]}
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    first, second = ids(live.state.calls_in_loop(ROOT))
    assert (await send(engine, live, answer_request(Choice(call_id=second, selections={"0": [1]})))).run_id is None
    with pytest.raises(UnknownCall):
        await send(engine, live, answer_request(Choice(call_id=CallId("nobody's"), selections={"0": [1]})))
    with pytest.raises(CallAlreadySettled):
        await send(engine, live, answer_request(Choice(call_id=second, selections={"0": [0]})))
    assert waiting_tools(live.state) == ["AskUserQuestion"]
    await play(engine, live, answer_request(Choice(call_id=first, selections={"0": [0]})))
    assert results(await any_world.events(live.state.session_id))[:2] == [
        '{"answers":[{"question":"Which?","labels":["b"],"custom":null}]}',
        '{"answers":[{"question":"Which?","labels":["a"],"custom":null}]}',
    ]
    assert live.state.last_stop == "end_turn"


async def test_a_protocol_that_requires_all_answers_counts_calls_of_sub_agents(any_world: World) -> None:
    any_world.scripts |= {"below": [[ask_user("a", "b")]], "go": [[fork("below"), CallTool("paint")], ["end"]]}
    engine = await any_world.start()
    live = await open_session(engine, client_tools=(PAINT,))
    await play(engine, live, "go")
    paint, asked = sorted(ids(live.state.waiting_calls()), key=lambda each: live.state.calls[each].loop != ROOT)
    before = await any_world.events(live.state.session_id)
    with pytest.raises(ResultsMissing) as refused:
        await send(engine, live, answer_request(Result(call_id=paint, content="blue"), requires_all_answers=True))
    assert refused.value.missing == (asked,)
    assert await any_world.events(live.state.session_id) == before
    both = answer_request(
        Result(call_id=paint, content="blue"), Choice(call_id=asked, selections={"0": [0]}), requires_all_answers=True
    )
    await play(engine, live, both)
    assert live.state.last_stop == "end_turn"


async def test_a_user_message_closes_calls_of_sub_agents_first(any_world: World) -> None:
    any_world.scripts |= {
        "deepest": [[ask_user("a", "b")]],
        "below": [[fork("deepest"), CallTool("paint")]],
        "go": [[fork("below"), CallTool("paint")], ["never"]],
    }
    engine = await any_world.start()
    live = await open_session(engine, client_tools=(PAINT,))
    await play(engine, live, "go")
    assert waiting_tools(live.state) == ["paint", "paint", "AskUserQuestion"]
    depths = {call.call.call_id: depth_of(live.state.parent_call, call) for call in live.state.calls.values()}
    await play(engine, live, "never mind")
    events = await any_world.events(live.state.session_id)
    settled = [each.event for each in events if isinstance(each.event, CallSettled)]
    assert [text_of(event.result.content) for event in settled] == [NEW_MESSAGE] * 5
    order = [depths[event.result.call_id] for event in settled]
    assert order == sorted(order, reverse=True), "a result never comes before that of a call below it"
    assert texts(messages_of(events))[-2:] == ["never mind", "You said: never mind"]
    check_tool_call_pairing(events)


def depth_of(parent, call: OpenCall) -> int:  # type: ignore[no-untyped-def]  # a bound method
    depth, above = 0, parent(call.loop)
    while above is not None:
        depth, above = depth + 1, parent(above.loop)
    return depth


async def test_a_message_sent_with_an_answer_follows_the_results(any_world: World) -> None:
    any_world.echo("allowed", needs_approval=True)
    any_world.scripts |= {
        "go": [[CallTool("allowed", {"value": "x"}), CallTool("paint")], ["never"]],
        "next": [["said"]],
    }
    engine = await any_world.start()
    live = await open_session(engine, client_tools=(PAINT,))
    await play(engine, live, "go")
    allowed, _ = ids(list(live.state.waiting_calls()))
    request = answer_request(Decision(call_id=allowed, granted=True), messages=(UserInput(content="next"),))
    await play(engine, live, request)
    assert texts(await any_world.history(live.state.session_id)) == [
        "go",
        "allowed() paint()",
        NEW_MESSAGE,
        "x",
        "next",
        "said",
    ]


# --- ends -------------------------------------------------------------------------------------------------------------


async def result_of_fork(world: World, name: str = "below") -> ToolMessage:
    world.scripts["go"] = [["top ", fork(name)], ["end"]]
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    events = await world.events(live.state.session_id)
    assert (reasons(events), live.state.calls) == (["end_turn"], {})
    check_tool_call_pairing(events)
    history = messages_of(events)
    assert texts(history)[-1] == "end"
    result = history[2]
    assert isinstance(result, ToolMessage)
    return result


class Rude(BaseException):
    """What no agent should raise."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (AgentError("too_dry", "The beds are too dry."), "The beds are too dry."),
        (RuntimeError("internal words"), "the sub-agent failed"),
        (Rude("rude"), "the sub-agent failed"),
        (SystemExit(3), "the sub-agent failed"),
        (asyncio.CancelledError(), "it cancelled itself"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_a_sub_agent_that_fails_is_a_failed_call(world: World, error: BaseException, message: str) -> None:
    async def fail(run: Run) -> None:
        raise error

    world.scripts["below"] = [["so ", wait_until_durable, fail]]
    result = await result_of_fork(world)
    assert (result.content, result.is_error) == (f"Tool execution failed: {message}", True)


@pytest.mark.parametrize(
    "error",
    [RuntimeError("internal words"), Rude("rude"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()],
    ids=repr,
)
async def test_a_root_agent_that_fails_ends_its_run_and_no_other(world: World, error: BaseException) -> None:
    """As with sub-agents, whose failures are results of a call: the run of another session continues."""

    async def fail(run: Run) -> None:
        raise error

    world.echo()
    world.scripts["go"] = [["so ", wait_until_durable, CallTool("echo", {"value": 1}), fail]]
    engine = await world.start()
    live, other = await open_session(engine), await open_session(engine)
    await asyncio.gather(play(engine, live, "go"), play(engine, other, "hello"))
    events = await world.events(live.state.session_id)
    assert reasons(events) == ["error"]
    (stop,) = [each.event for each in events if getattr(each.event, "reason", None) == "error"]
    assert (stop.code, stop.message) == ("agent_error", "The agent failed")  # type: ignore[union-attr]  # a RunStopped
    assert texts(messages_of(events)) == ["go", "so "]
    assert texts(await world.history(other.state.session_id)) == ["hello", "You said: hello"]


async def test_an_unknown_sub_agent_is_a_failed_call(world: World) -> None:
    assert (await result_of_fork(world, "nobody")).content == "Tool execution failed: there is no such sub-agent"


async def test_a_sub_agent_that_reaches_its_limit_is_a_failed_call(world: World) -> None:
    world.echo()
    world.scripted_agent.spec_fields["max_steps"] = 3
    world.scripts["below"] = [[f"{place}", CallTool("echo", {"value": 1})] for place in range(10)]
    assert (await result_of_fork(world)).content == "Tool execution failed: the run reached its limit of 3 steps"


async def test_the_nesting_of_sub_agents_is_limited(world: World) -> None:
    world.scripts["below"] = [["deeper ", fork("below")], ["up"]]
    assert (await result_of_fork(world)).content == "up"
    (state,) = await world.store.page(world.owner, None, 10)
    found = results(await world.events(state.session_id))
    assert found[0] == "Tool execution failed: sub-agents are nested too deeply"
    assert len(found) == 9, "eight below one another, and the one too many"


async def test_open_calls_of_a_failed_sub_agent_are_closed_with_it(world: World) -> None:
    """It caught what it should not have caught: its question must not wait for ever in a loop that is gone."""

    async def catch(run: Run) -> None:
        run.call("AskUserQuestion", {"questions": [{"question": "Which?"}]})
        try:
            await run.end_step()
        except Paused:
            raise RuntimeError("I do not wait") from None

    world.scripts["below"] = [[catch]]
    assert (await result_of_fork(world)).is_error


async def test_a_waiting_sub_agent_does_not_prevent_other_calls_from_completing(any_world: World) -> None:
    gate = any_world.pausing_tool("gate")
    any_world.scripts |= {"below": [[ask_user("a", "b")], ["up"]], "go": [[fork("below"), CallTool("gate")], ["end"]]}
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
        while not waiting_tools(live.state):
            await live.next_commit()
    (pending,) = live.state.waiting_calls()
    with pytest.raises(SessionBusy):
        await send(engine, live, answer_request(Choice(call_id=pending.call.call_id, selections={"0": [0]})))
    gate.opened.set()
    await wait_for_end(live)
    assert live.state.last_stop == "tool_use"
    await play(engine, live, answer_request(Choice(call_id=pending.call.call_id, selections={"0": [0]})))
    assert texts(await any_world.history(live.state.session_id))[2:] == ["through", "up", "end"]
