"""Calls: each gets exactly one result, whatever the tool does, and results are logged in the order of events."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman.core.agent import Run, ToolFailed
from dragoman.core.answers import MEDIA_LIMIT, RAW_LIMIT, RESULT_LIMIT
from dragoman.core.content import Data, Image, JsonObject, Text, ToolMessage, text_of
from dragoman.core.events import (
    CallOpened,
    CallSettled,
    CallStarted,
    LoggedEvent,
    MessageClosed,
    SharedStateReplaced,
    encode,
)
from dragoman.core.history import messages_of
from dragoman.core.inputs import Decision, Result
from dragoman.core.tools import ServerTool, ToolGrant, ToolSpec
from dragoman.engine.sessions.live_session import to_live_session
from tests.engine.log_checker import check_tool_call_pairing
from tests.engine.world import (
    DEADLINE_S,
    CallTool,
    PauseGate,
    ScriptedTool,
    World,
    answer_request,
    open_session,
    play,
    reasons,
    send,
    texts,
    wait_for_end,
    waiting_tools,
)

FAILED = "Tool execution failed: "


class Words(str):
    """A string as libraries return it: of a class of their own."""

    __slots__ = ()


class Count(int):
    """A number of such a class."""


async def result_of(world: World, do: Callable[[JsonObject], Awaitable[Any]], **policy: Any) -> ToolMessage:
    """The result of a tool in a run that has to end normally."""
    world.tool("tool", do, **policy)
    world.scripts["go"] = [[CallTool("tool")], ["done"]]
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    events = await world.events(live.state.session_id)
    assert reasons(events) == ["end_turn"]
    check_tool_call_pairing(events)
    history = messages_of(events)
    assert texts(history)[-1] == "done"
    result = history[2]
    assert isinstance(result, ToolMessage)
    return result


def returns(value: object) -> Callable[[JsonObject], Awaitable[Any]]:
    async def give(arguments: JsonObject) -> object:
        return value

    return give


def raises(error: BaseException) -> Callable[[JsonObject], Awaitable[Any]]:
    async def fail(arguments: JsonObject) -> object:
        raise error

    return fail


# --- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("words", "words"),
        ("", ""),
        (None, "null"),
        (42, "42"),
        (2**70, str(2**70)),
        (1.5, "1.5"),
        (True, "true"),
        ([1, "two", None], '[1,"two",null]'),
        ({"a": {"b": [1]}}, '{"a":{"b":[1]}}'),
        ({"shown": 1, "_meta": {"hidden": 2}}, '{"shown":1}'),
        ({"_meta": {"hidden": 2}}, "{}"),
        ("a\ud800b", "a?b"),
        ([Text("a\ud800b")], "a?b"),
        ("\U0001f600", "\U0001f600"),
        (float("nan"), "null"),
    ],
)
async def test_what_a_tool_returns_is_what_the_model_reads(world: World, value: object, text: str) -> None:
    result = await result_of(world, returns(value))
    assert (text_of(result.content), result.is_error) == (text, False)


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (Words("fine"), "fine"),
        ({"text": Words("fine"), "count": Count(2)}, '{"text":"fine","count":2}'),
        ([Text(Words("fine"))], (Text("fine"),)),
        ([Data({"text": Words("fine")})], (Data({"text": "fine"}),)),
    ],
)
async def test_a_result_of_a_librarys_own_class_is_stored_as_its_plain_value(
    world: World, value: object, content: object
) -> None:
    result = await result_of(world, returns(value))
    assert (result.content, result.is_error) == (content, False)


async def test_an_agent_may_say_and_share_values_of_a_librarys_own_class(world: World) -> None:
    async def talk(run: Run) -> None:
        run.emit(Words("one "))
        run.think(Words("hm"))
        run.add(Data({"count": Count(1)}))
        run.stage(Words("work"))
        run.share({"words": Words("w"), "list": (Count(3),)})
        run.call(Words("tool"), {"a": Words("b")})

    world.tool("tool", returns("ok"))
    world.scripts["go"] = [[talk], ["done"]]
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    events = await world.events(live.state.session_id)
    assert reasons(events) == ["end_turn"]
    assert texts(messages_of(events)) == ["go", "one  tool()", "ok", "done"]
    shared = [each.event for each in events if isinstance(each.event, SharedStateReplaced)]
    assert [each.state for each in shared] == [{"words": "w", "list": [3]}]


async def test_a_shared_state_that_is_nested_too_deeply_is_refused(world: World) -> None:
    async def share(run: Run) -> None:
        deep: object = 1
        for _ in range(200):
            deep = [deep]
        with pytest.raises(ValueError, match="expected at most 100 levels"):
            run.share(deep)
        run.share({"deep": False})

    world.scripts["go"] = [[share, "done"]]
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    events = [each.event for each in await world.events(live.state.session_id)]
    assert [each.state for each in events if isinstance(each, SharedStateReplaced)] == [{"deep": False}]


async def test_a_tools_return_value_is_stored_with_its_meta_in_addition_to_the_text(world: World) -> None:
    result = await result_of(world, returns({"shown": 1, "_meta": {"ui": "card"}}))
    assert (result.content, result.raw) == ('{"shown":1}', {"shown": 1, "_meta": {"ui": "card"}})


async def test_blocks_stay_blocks(world: World) -> None:
    blocks = (Text("a"), Image("https://example.org/a.png"), Data({"b": 1}))
    assert (await result_of(world, returns(list(blocks)))).content == blocks


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1: object()},
        {(1, 2): 3},
        {"a": "\ud800"},
        ["\udfff"],
        [Text("good"), Data({"bad": object()})],
        [Image("https://example.org/\ud800")],
    ],
    ids=[
        "object",
        "object within",
        "key that is no text",
        "half a character",
        "half in a list",
        "in a block",
        "in a url",
    ],
)
async def test_a_value_that_is_not_json_is_a_failed_result(world: World, value: object) -> None:
    result = await result_of(world, returns(value))
    assert (text_of(result.content), result.is_error) == (
        f"{FAILED}the tool tool returned a value that cannot be written as JSON",
        True,
    )


async def test_a_value_that_contains_itself_is_a_failed_result(world: World) -> None:
    value: list[object] = []
    value.append(value)
    assert (await result_of(world, returns(value))).is_error


@pytest.mark.parametrize(
    "value",
    [
        "x" * 100_000_000,
        {"big": "x" * 100_000_000},
        [Text("x" * 100_000_000)],
        [Text("x" * 600_000)] * 160,
        [Text("x")] * 1_000_000,
        [Data({"big": "x" * 10_000_000})] * 10,
    ],
    ids=["text", "object", "block", "blocks", "many blocks", "data"],
)
async def test_a_result_of_a_hundred_megabytes_is_truncated(world: World, value: object) -> None:
    result = await result_of(world, returns(value))
    text = text_of(result.content)
    assert len(text) < RESULT_LIMIT + 1000
    assert "[cut: " in text, "the model can see it"
    stored = await world.events(next(iter(await world.store.page(world.owner, None, 1))).session_id)
    assert sum(len(encode(each.event)) for each in stored) < max(RESULT_LIMIT + RAW_LIMIT, MEDIA_LIMIT) + 100_000


class Rude(BaseException):
    """An exception that no tool should raise."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no such bed"), "no such bed"),
        (ToolFailed("be kind"), "be kind"),
        (RuntimeError(), "RuntimeError"),
        (TimeoutError(), "TimeoutError"),
        (TimeoutError("the shop sleeps"), "the shop sleeps"),
        (Rude("rude"), "rude"),
        (SystemExit(3), "3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (asyncio.CancelledError(), "it cancelled itself"),
        (ExceptionGroup("many", [ValueError("one")]), "many (1 sub-exception)"),
        (ValueError("\ud800"), "?"),
        (ValueError("x" * 5_000_000), "x" * (RESULT_LIMIT - len(FAILED))),
    ],
    ids=range(13),
)
async def test_whatever_a_tool_raises_is_its_result(world: World, error: BaseException, message: str) -> None:
    result = await result_of(world, raises(error))
    assert result.is_error
    assert text_of(result.content)[:RESULT_LIMIT] == f"{FAILED}{message}"


async def test_a_tool_that_waits_for_a_cancelled_task_has_failed(world: World) -> None:
    """Its cancellation is not the run's."""

    async def wait_in_vain(arguments: JsonObject) -> None:
        task = asyncio.create_task(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    assert (await result_of(world, wait_in_vain)).content == f"{FAILED}it cancelled itself"


async def test_a_tool_that_exceeds_its_time_limit_fails(world: World) -> None:
    gate = PauseGate()

    async def wait(arguments: JsonObject) -> None:
        await gate()

    result = await result_of(world, wait, timeout_s=0.01)
    assert (result.content, gate.cancelled.is_set()) == (f"{FAILED}it took longer than 0.01 s", True)


async def test_a_missing_tool_is_reported(world: World) -> None:
    world.scripts["go"] = [[CallTool("nothing"), CallTool("__proto__", {"a": 1})], ["done"]]
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    history = await world.history(live.state.session_id)
    assert texts(history)[2:] == ["Tool not found: nothing", "Tool not found: __proto__", "done"]


async def test_a_tool_knows_its_call(world: World) -> None:
    tool = world.echo()
    world.scripts["go"] = [[CallTool("echo", {"value": 1})]]
    engine = await world.start()
    live = await open_session(engine)
    submitted = await play(engine, live, "go")
    (context,) = tool.contexts
    assert (context.session_id, context.run_id) == (live.state.session_id, submitted.run_id)
    assert (context.user, context.time_zone, [context.call_id]) == ("ann", "UTC", tool.started_calls)


# --- what an agent may not write --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        lambda run: run.call("echo", {"value": object()}),
        lambda run: run.call("echo", {"value": "\ud800"}),
        lambda run: run.add(Data({"value": object()})),
        lambda run: run.card({"value": object()}),
        lambda run: run.card("\ud800"),
    ],
    ids=["argument", "argument's text", "block", "card", "card's text"],
)
async def test_an_agent_that_emits_a_value_that_is_not_json_affects_no_other_session(
    any_world: World, write: Callable[[Run], object]
) -> None:
    async def wrong(run: Run) -> None:
        write(run)
        await run.end_step()

    any_world.echo()
    any_world.scripts["go"] = [["so ", wrong]]
    engine = await any_world.start()
    live, other = await open_session(engine), await open_session(engine)
    await asyncio.gather(play(engine, live, "go"), play(engine, other, "hello"))
    events = await any_world.events(live.state.session_id)
    assert reasons(events) == ["error"]
    assert texts(messages_of(events)) == ["go", "so "]
    assert texts(await any_world.history(other.state.session_id)) == ["hello", "You said: hello"]
    await play(engine, live, "hello")
    assert live.state.last_stop == "end_turn", "the session lives on"


# --- order ------------------------------------------------------------------------------------------------------------


async def test_calls_of_a_step_are_in_the_log_before_the_first_of_them_runs(any_world: World) -> None:
    known: list[list[str]] = []

    async def look(arguments: JsonObject) -> str:
        events = await any_world.events(live.state.session_id)
        names = [type(each.event).__name__ for each in events]
        known.append([name for name in names if name != "CallSettled"][-6:])  # the other one may have ended by now
        return ""

    any_world.tool("look", look)
    any_world.scripts["go"] = [["so ", CallTool("look"), CallTool("look")]]
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    before = ["BlockClosed", "CallOpened", "CallOpened", "MessageClosed", "CallStarted", "CallStarted"]
    assert known == [before, before]


async def test_parallel_tools_overlap_and_are_settled_as_they_complete(any_world: World) -> None:
    gates = {name: any_world.pausing_tool(name, result=name) for name in ("a", "b", "c", "d")}
    any_world.scripts["go"] = [[CallTool("a"), CallTool("b"), CallTool("c"), CallTool("d")], ["done"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        for gate in gates.values():
            await gate.entered.wait()
        for left, name in zip((3, 2, 1, 0), ("c", "a", "d", "b"), strict=True):
            gates[name].opened.set()
            while len(live.state.calls) > left:
                await live.next_commit()
    await wait_for_end(live)
    assert texts(await any_world.history(live.state.session_id))[1:] == ["a() b() c() d()", "c", "a", "d", "b", "done"]


async def test_results_come_back_in_the_order_of_the_calls(any_world: World) -> None:
    first = any_world.pausing_tool("first", result=1)
    any_world.echo()
    seen: list[str] = []

    async def call(run: Run) -> None:
        run.call("first", {})
        run.call("echo", {"value": 2})
        seen.extend(text_of(result.content) for result in await run.end_step())

    any_world.scripts["go"] = [[call, "done"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        while len(live.state.calls) != 1 or not first.entered.is_set():
            await live.next_commit()
    first.opened.set()
    await wait_for_end(live)
    assert seen == ["1", "2"]
    assert texts(await any_world.history(live.state.session_id))[2:4] == ["2", "1"]


async def test_decisions_take_effect_in_the_order_in_which_they_were_sent(any_world: World) -> None:
    """The second call completes first, and its result has to wait."""
    slow = any_world.pausing_tool("slow", result="slow", needs_approval=True)
    any_world.echo("quick", needs_approval=True)
    any_world.scripts["go"] = [
        [CallTool("quick", {"value": "quick"}), CallTool("slow"), CallTool("quick", {"value": "no"})],
        ["done"],
    ]
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    quick, other, denied = [call.call.call_id for call in live.state.waiting_calls()]
    decisions = [
        Decision(call_id=denied, granted=False, reason="never"),
        Decision(call_id=other, granted=True),
        Decision(call_id=quick, granted=True),
    ]
    await send(engine, live, answer_request(*decisions))
    async with asyncio.timeout(DEADLINE_S):
        await slow.entered.wait()
    assert any_world.tools["quick"].started_calls, "both are at work"
    slow.opened.set()
    await wait_for_end(live)
    assert texts(await any_world.history(live.state.session_id))[2:] == [
        "Tool call denied: never",
        "slow",
        "quick",
        "done",
    ]


async def test_a_run_waits_until_all_calls_are_answered(any_world: World) -> None:
    any_world.echo("asked", needs_approval=True)
    paint = ToolSpec(name="paint", description="", parameters={"type": "object"})
    any_world.scripts["go"] = [[CallTool("paint"), CallTool("asked", {"value": "x"}), CallTool("paint")], ["done"]]
    engine = await any_world.start()
    live = await open_session(engine, client_tools=(paint,))
    await play(engine, live, "go")
    first, asked, second = [call.call.call_id for call in live.state.waiting_calls()]
    assert (await send(engine, live, answer_request(Decision(call_id=asked, granted=True)))).run_id is None
    assert waiting_tools(live.state) == ["paint", "paint"]
    assert any_world.tools["asked"].started_calls == [], "it runs when all is answered"
    engine = await any_world.restart(engine)
    live = to_live_session(await engine.find_session(any_world.owner, live.state.session_id))
    assert (await send(engine, live, answer_request(Result(call_id=second, content="2")))).run_id is None
    assert (await send(engine, live, answer_request(Result(call_id=first, content="1")))).run_id is not None
    await wait_for_end(live)
    assert texts(await any_world.history(live.state.session_id))[2:] == ["2", "1", "x", "done"]


async def test_a_tool_that_is_not_enabled_does_not_run(any_world: World) -> None:
    """Only enabled tools run; without trust each needs approval; a hidden tool always runs."""
    for name in ("off", "on", "trusted"):
        any_world.echo(name)
    any_world.echo("hidden", exposed=False)
    calls = [CallTool(name, {"value": name}) for name in ("off", "on", "trusted", "hidden")]
    any_world.scripts["go"] = [calls, ["done"]]
    engine = await any_world.start()
    live = await open_session(engine, tools=(ToolGrant("on"), ToolGrant("trusted", trust=True)))
    await play(engine, live, "go")
    assert waiting_tools(live.state) == ["on"]
    results = texts(await any_world.history(live.state.session_id))[2:]
    assert sorted(results) == ["Tool not found: off", "hidden", "trusted"]
    assert any_world.tools["off"].started_calls + any_world.tools["on"].started_calls == []


async def test_a_tool_that_comes_with_its_call_runs_unseen(any_world: World) -> None:
    async def shout(arguments: JsonObject) -> str:
        return str(arguments["value"]).upper()

    hidden_tool = ScriptedTool("shout", shout)

    async def call(run: Run) -> None:
        run.call("shout", {"value": "hey"}, tool=hidden_tool)

    any_world.scripts["go"] = [[call], ["done"]]
    engine = await any_world.start()
    live = await open_session(engine, tools=None)
    await play(engine, live, "go")
    assert texts(await any_world.history(live.state.session_id)) == ["go", "shout()", "HEY", "done"]


async def test_the_label_of_a_tools_server_is_in_the_log(any_world: World) -> None:
    tool = any_world.echo()
    tool.declaration = ServerTool(spec=tool.declaration.spec, policy=tool.declaration.policy, server="garden")
    any_world.scripts["go"] = [[CallTool("echo", {"value": 1})]]
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    events = await any_world.events(live.state.session_id)
    assert [each.event.server for each in events if isinstance(each.event, CallOpened)] == ["garden"]


# --- many -------------------------------------------------------------------------------------------------------------


async def test_a_thousand_calls_in_a_step_all_have_results_and_can_be_read_again(any_world: World) -> None:
    any_world.echo()
    any_world.scripts["go"] = [[CallTool("echo", {"value": place}) for place in range(1000)], ["done"]]
    any_world.scripts["next"] = [["done too"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    events = await any_world.events(live.state.session_id)
    check_tool_call_pairing(events)
    assert kinds(events) == {CallOpened: 1000, CallStarted: 1000, CallSettled: 1000, MessageClosed: 2}
    engine = await any_world.restart(engine)
    live = to_live_session(await engine.find_session(any_world.owner, live.state.session_id))
    await play(engine, live, "next")
    assert len(any_world.scripted_agent.contexts[-1]) == 1000, "the newest, as many as were asked for"
    assert texts(any_world.scripted_agent.contexts[-1])[-2:] == ["done", "next"]


def kinds(events: list[LoggedEvent]) -> dict[type, int]:
    counted = (CallOpened, CallStarted, CallSettled, MessageClosed)
    return {kind: sum(isinstance(each.event, kind) for each in events) for kind in counted}


async def test_a_model_that_calls_tools_forever_is_stopped_at_the_step_limit(any_world: World) -> None:
    any_world.echo()
    any_world.scripts["go"] = [[CallTool("echo", {"value": place})] for place in range(100)]
    any_world.scripted_agent.spec_fields["max_steps"] = 7
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    events = await any_world.events(live.state.session_id)
    assert reasons(events) == ["max_steps"]
    assert kinds(events)[MessageClosed] == 7
    check_tool_call_pairing(events)
    await play(engine, live, "hello")
    assert live.state.last_stop == "end_turn"
