"""AAP, sections 6, 7 and 15: what a session does with a turn, and with the calls in it."""

import asyncio
from typing import Any

import pytest

from tests.protocols.aap.client import (
    AapClient,
    Session,
    Turn,
    assert_refusal,
    assert_unchanged,
    assistant_calls,
    assistant_text,
    call,
    calls,
    client_tool,
    deny,
    enabled_tools,
    grant,
    result,
    script,
    user,
)
from tests.protocols.aap.stream import MODES, STREAMS, Mode, merged, normalize_frames
from tests.requirements import requirement

Json = Any

CANCELLED = "Tool call cancelled: a new user message arrived"


async def session_with_mixed_calls(aap_client: AapClient) -> tuple[Session, Turn]:
    """A session that waits for a client tool and a permission, one inline call of the step being done."""
    session = await aap_client.create(
        server_tools=[*enabled_tools("add"), *enabled_tools("stamp", trust=False)], tools=[client_tool("paint")]
    )
    step = calls(("paint", {"c": 1}), ("stamp", {"text": "x"}), ("add", {"a": 1, "b": 2}))
    return session, await session.run(script(step, {"say": "{results}"}))


async def status(session: Session) -> str:
    answer: str = (await session.info())["_meta"]["status"]
    return answer


# --- the table of states ----------------------------------------------------------------------------------------------


@requirement("aap:idle:user-message", "aap:stops:end-turn", "aap:step:stored-once")
@pytest.mark.parametrize("mode", MODES)
async def test_idle_a_user_message_is_stored_and_answered(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create()
    turn = await session.run("hello", mode)
    assert (turn.stop, turn.messages) == ("end_turn", [assistant_text("Hello! I am the rehearsal agent.")])
    assert await session.history() == [user("hello"), *turn.messages]
    assert await status(session) == "idle"


@requirement("aap:idle:unknown-answer", "aap:idle:resolved-answer", "aap:turn:unknown-call", "aap:turn:resolved-call")
async def test_idle_answers_to_unknown_and_to_settled_calls_are_distinguished(aap_client: AapClient) -> None:
    session, asked = await session_with_mixed_calls(aap_client)
    paint, stamp, add = asked.calls
    await session.run([result(paint, "blue"), deny(stamp)])
    async with assert_unchanged(session):
        for answer in (result("nowhere", "x"), grant("nowhere"), deny("nowhere")):
            assert_refusal(await session.post([answer]), 400, "unknown_tool_call")
        for settled in (paint, stamp, add):
            for answer in (result(settled, "x"), grant(settled), deny(settled)):
                assert_refusal(await session.post([answer]), 400, "tool_call_resolved")


@requirement(
    "aap:waiting:all-answers", "aap:step:permissions-in-order", "aap:calls:client-tool", "aap:calls:untrusted-asks"
)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("turned", [False, True])
async def test_waiting_all_answers_in_any_order_continue(aap_client: AapClient, mode: Mode, turned: bool) -> None:
    session, asked = await session_with_mixed_calls(aap_client)
    paint, stamp, add = asked.calls
    answers = [result(paint, "blue"), grant(stamp)]
    turn = await session.run(answers[::-1] if turned else answers, mode)
    assert merged(turn.messages) == [result(stamp, "stamped x"), assistant_text("blue, stamped x, 3")]
    assert (await session.history())[1:] == [
        assistant_calls(paint, stamp, add),
        result(add, "3"),
        result(paint, "blue"),
        result(stamp, "stamped x"),
        assistant_text("blue, stamped x, 3"),
    ]


@requirement("aap:waiting:answers-then-user", "aap:turn:several-users")
@pytest.mark.parametrize("mode", MODES)
async def test_waiting_answers_come_before_the_user_messages_that_follow_them(
    aap_client: AapClient, mode: Mode
) -> None:
    session, asked = await session_with_mixed_calls(aap_client)
    paint, stamp, add = asked.calls
    turn = await session.run([grant(stamp), result(paint, "blue"), user("first"), user("second")], mode)
    assert merged(turn.messages) == [result(stamp, "stamped x"), assistant_text("You said: second")]
    assert (await session.history())[2:] == [
        result(add, "3"),
        result(paint, "blue"),
        result(stamp, "stamped x"),
        user("first"),
        user("second"),
        assistant_text("You said: second"),
    ]


@requirement("aap:waiting:some-answers", "aap:turn:missing-answers")
async def test_waiting_some_answers_are_refused_with_the_open_ids_and_it_waits_on(aap_client: AapClient) -> None:
    session, asked = await session_with_mixed_calls(aap_client)
    paint, stamp, _ = asked.calls
    async with assert_unchanged(session):
        assert_refusal(await session.post([result(paint, "blue")]), 400, "tool_results_missing", missing=[stamp.id])
        assert_refusal(await session.post([grant(stamp)]), 400, "tool_results_missing", missing=[paint.id])
    assert await status(session) == "waiting"
    assert (await session.run([result(paint, "blue"), grant(stamp)])).text == "blue, stamped x, 3"


@requirement("aap:waiting:user-only", "aap:turn:user-closes-calls", "aap:texts:cancelled")
@pytest.mark.parametrize("mode", MODES)
async def test_waiting_a_user_message_closes_the_open_calls_as_cancelled(aap_client: AapClient, mode: Mode) -> None:
    session, asked = await session_with_mixed_calls(aap_client)
    paint, stamp, add = asked.calls
    turn = await session.run([user("one"), user("never mind")], mode)
    assert (turn.stop, merged(turn.messages)) == ("end_turn", [assistant_text("You said: never mind")])
    history = await session.history()
    closed = sorted(history[3:5], key=lambda message: str(message["toolCallId"] == stamp.id))
    assert [*history[1:3], *closed, *history[5:]] == [
        assistant_calls(paint, stamp, add),
        result(add, "3"),
        result(paint, CANCELLED),
        result(stamp, CANCELLED),
        user("one"),
        user("never mind"),
        assistant_text("You said: never mind"),
    ]
    async with assert_unchanged(session):
        assert_refusal(await session.post([result(paint, "late"), grant(stamp)]), 400, "tool_call_resolved")


@requirement("aap:running:busy", "aap:turn:busy-is-409")
async def test_running_anything_is_409_and_the_first_turn_is_untouched(aap_client: AapClient, tool_gates: Any) -> None:
    session = await aap_client.create("gated", server_tools=enabled_tools("hold"), tools=[client_tool("paint")])
    play = script(call("hold", gate="busy"), {"say": "{result}"})
    reading = await session.open(play)
    await tool_gates.entered("busy")
    (hold,) = [frame.data["toolCallId"] for frame in [await reading.until("tool_call")]]
    async with assert_unchanged(session):
        for messages in ([user("me too")], [result("nowhere", "x")], [result(hold, "x")], [grant(hold)]):
            for mode in MODES:
                reply = await session.post(messages, stream=mode, tools=[])
                assert_refusal(reply, 409, "turn_in_progress")
                assert reply.headers["retry-after"] == "1"
    tool_gates.open("busy")
    assert normalize_frames(await reading.read_to_end())[-2:] == [
        ("text_delta", {"delta": "held busy"}),
        ("turn_stop", {"stopReason": "end_turn"}),
    ]
    assert (await session.info())["tools"] == [client_tool("paint")]


@requirement("aap:suite:race", "aap:turn:busy-is-409")
async def test_of_twenty_turns_at_once_one_runs_and_the_rest_are_refused(
    aap_client: AapClient, tool_gates: Any
) -> None:
    session = await aap_client.create("gated", server_tools=enabled_tools("hold"))
    play = script(call("hold", gate="race"), {"say": "won"})
    posts = [asyncio.create_task(session.post([user(play)])) for _ in range(20)]
    await tool_gates.entered("race")
    _, pending = await asyncio.wait(posts, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    while len(pending) > 1:
        _, pending = await asyncio.wait(pending, timeout=20, return_when=asyncio.FIRST_COMPLETED)
    tool_gates.open("race")
    replies = [await post for post in posts]
    assert sorted(reply.status for reply in replies) == [200] + [409] * 19
    assert [message["role"] for message in await session.history()] == ["user", "assistant", "tool", "assistant"]


@requirement("aap:suite:race", "aap:turn:resolved-call")
async def test_of_two_answers_at_once_one_counts(aap_client: AapClient) -> None:
    for _ in range(10):
        session = await aap_client.create(tools=[client_tool("paint")])
        asked = await session.run(script(call("paint"), {"say": "{result}"}))
        answers = [session.post([result(asked.calls[0], colour)]) for colour in ("red", "blue")]
        replies = await asyncio.gather(*answers)
        assert sorted(reply.status for reply in replies) in ([200, 400], [200, 409])
        (won,) = [reply for reply in replies if reply.status == 200]
        (text,) = [block["text"] for message in won.json["messages"] for block in message["content"]]
        assert [message.get("content") for message in await session.history() if message["role"] == "tool"] == [text]


# --- one turn, step by step -------------------------------------------------------------------------------------------


@requirement("aap:step:assistant-before-tools")
async def test_the_assistant_message_is_stored_before_its_tools_run(aap_client: AapClient, tool_gates: Any) -> None:
    session = await aap_client.create("gated", server_tools=enabled_tools("hold"))
    play = script({"say": "so"}, call("hold", gate="stored"))
    reading = await session.open(play)
    await tool_gates.entered("stored")
    frame = await reading.until("tool_call")
    content = [{"type": "text", "text": "so"}, {"type": "tool_use", **frame.without_extensions()[1]}]
    assert await session.history() == [user(play), {"role": "assistant", "content": content}]
    tool_gates.open("stored")
    await reading.read_to_end()


@requirement("aap:step:inline-parallel", "aap:turn:inline-order", "aap:step:calls-before-results")
@pytest.mark.parametrize("mode", STREAMS)
async def test_inline_tools_run_in_parallel_and_report_as_they_are_ready(
    aap_client: AapClient, mode: Mode, tool_gates: Any
) -> None:
    session = await aap_client.create("gated", server_tools=enabled_tools("hold"))
    names = [f"{mode}-{place}" for place in range(3)]
    play = script(calls(*(("hold", {"gate": name}) for name in names)), {"say": "{results}"})
    reading = await session.open(play, stream=mode)
    for name in names:
        await tool_gates.entered(name)  # all of them run before any of them ends
    made = [(await reading.until("tool_call")).data for _ in names]
    results = []
    for place in (2, 0, 1):
        tool_gates.open(names[place])
        frame = await reading.next()
        assert frame is not None
        results.append(frame.without_extensions())
    assert results == [
        ("tool_result", {"toolCallId": made[place]["toolCallId"], "content": f"held {names[place]}"})
        for place in (2, 0, 1)
    ]
    await reading.read_to_end()
    stored = [message["content"] for message in await session.history() if message["role"] == "tool"]
    assert stored == [f"held {names[place]}" for place in (2, 0, 1)]
    assert (await session.history())[-1] == assistant_text(", ".join(f"held {name}" for name in names))


@requirement(
    "aap:step:waits-for-client",
    "aap:stops:tool-use",
    "aap:step:calls-before-results",
    "aap:resume:last-assistant-has-all",
    "aap:resume:open-lack-results",
)
@pytest.mark.parametrize("mode", STREAMS)
async def test_a_call_that_needs_the_client_ends_the_turn_and_says_no_more(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(
        server_tools=[*enabled_tools("add"), *enabled_tools("stamp", trust=False)], tools=[client_tool("paint")]
    )
    step = calls(("paint", {"c": 1}), ("add", {"a": 1, "b": 2}), ("stamp", {"text": "x"}), ("add", {"a": 2, "b": 2}))
    turn = await session.run(script({"say": "so "}, step, {"say": "never"}), mode)
    events = [event for event, _ in normalize_frames(turn.frames)]
    assert events[2:] == ["tool_call"] * 4 + ["tool_result"] * 2 + ["turn_stop"]
    assert turn.stop == "tool_use"
    history = await session.history()
    last = [message for message in history if message["role"] == "assistant"][-1]
    assert last == assistant_calls(*turn.calls, text="so ")
    answered = {message["toolCallId"]: message["content"] for message in history if message["role"] == "tool"}
    assert answered == {turn.calls[1].id: "3", turn.calls[3].id: "4"}
    assert await status(session) == "waiting"


@requirement("aap:step:max-steps", "aap:meeting:max-steps", "aap:stops:error")
@pytest.mark.parametrize("mode", MODES)
async def test_after_25_model_calls_the_turn_ends_with_max_steps(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(server_tools=enabled_tools("add"))
    turn = await session.run(script(*[call("add", a=1, b=1)] * 30), mode)
    assert (turn.stop, turn.error["code"], len(turn.calls), len(turn.results)) == ("error", "max_steps", 25, 25)
    assert (await session.run("hello")).stop == "end_turn"


@requirement("aap:step:max-steps")
async def test_25_model_calls_are_not_too_many_and_each_request_counts_from_zero(aap_client: AapClient) -> None:
    session = await aap_client.create(server_tools=enabled_tools("add"), tools=[client_tool("paint")])
    play = script(*[call("add", a=1, b=1)] * 24, call("paint"), *[call("add", a=1, b=1)] * 24, {"say": "through"})
    asked = await session.run(play)
    assert (asked.stop, len(asked.calls)) == ("tool_use", 25)
    assert (await session.run([result(asked.calls[-1], "x")])).text == "through"


@requirement("aap:step:model-stop-reason", "aap:stops:max-tokens", "aap:stops:refusal", "aap:stops:idle-after")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
async def test_the_models_own_reason_ends_the_turn_and_the_session_takes_the_next(
    aap_client: AapClient, mode: Mode, reason: str
) -> None:
    session = await aap_client.create()
    play = script({"say": "cut of"}, {"stop": reason})
    turn = await session.run(play, mode)
    assert (turn.stop, turn.messages) == (reason, [assistant_text("cut of")])
    assert await status(session) == "idle"
    assert (await session.run("hello", mode)).stop == "end_turn"
    assert [message["role"] for message in await session.history()] == ["user", "assistant"] * 2


@requirement("aap:stops:idle-after", "aap:stops:error")
async def test_after_an_error_the_session_is_idle_and_takes_a_message(aap_client: AapClient) -> None:
    session = await aap_client.create()
    assert (await session.run(script({"fail": "x"}))).stop == "error"
    assert await status(session) == "idle"
    assert (await session.run("hello")).stop == "end_turn"


@requirement("aap:stops:cut-call-dropped")
async def test_a_call_cut_off_by_the_limit_is_dropped_and_not_run(aap_client: AapClient, tool_gates: Any) -> None:
    session = await aap_client.create("gated", server_tools=enabled_tools("hold"))
    turn = await session.run("say, call and reach the limit")
    assert (turn.stop, turn.messages) == ("max_tokens", [assistant_text("about to call")])
    assert not tool_gates.was_entered("limit")
    assert await status(session) == "idle"


# --- kinds of calls ---------------------------------------------------------------------------------------------------


@requirement("aap:calls:trusted-inline", "aap:calls:hidden-inline", "aap:texts:string-result")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [("lookup", {"q": "tea"}, "looked up tea"), ("whisper", {"text": "psst"}, "whispered psst")],
)
async def test_trusted_and_hidden_tools_run_inline(
    aap_client: AapClient, mode: Mode, tool: str, arguments: dict[str, str], text: str
) -> None:
    session = await aap_client.create(server_tools=enabled_tools("lookup"))
    turn = await session.run(script(call(tool, **arguments), {"say": "{result}"}), mode)
    (made,) = turn.calls
    assert (made.name, made.input) == (tool, arguments)
    assert (turn.stop, turn.messages) == ("end_turn", [assistant_calls(made), result(made, text), assistant_text(text)])


@requirement("aap:calls:hidden-inline")
async def test_a_tool_that_comes_with_its_call_is_inline_whatever_its_name(aap_client: AapClient) -> None:
    session = await aap_client.create()
    turn = await session.run(
        script({"tool": {"name": "inner", "input": {"x": 1}, "output": "out"}}, {"say": "{result}"})
    )
    assert turn.messages == [assistant_calls(turn.calls[0]), result(turn.calls[0], "out"), assistant_text("out")]


@requirement("aap:calls:client-tool")
@pytest.mark.parametrize("mode", MODES)
async def test_a_client_tool_waits_for_the_client(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(tools=[client_tool("paint")])
    turn = await session.run(script(call("paint", c="x"), {"say": "{result}"}), mode)
    assert (turn.stop, turn.messages) == ("tool_use", [assistant_calls(turn.calls[0])])
    assert (await session.run([result(turn.calls[0], "blue")], mode)).messages == [assistant_text("blue")]


@requirement(
    "aap:calls:off-never-runs", "aap:calls:unknown-never-runs", "aap:texts:not-found", "aap:calls:failure-goes-on"
)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tool", ["slow", "stamp", "no_such_tool"])
async def test_a_tool_that_is_off_or_not_there_never_runs(aap_client: AapClient, mode: Mode, tool: str) -> None:
    session = await aap_client.create(server_tools=enabled_tools("add"))
    turn = await session.run(
        script(call(tool, text="x", seconds=600, tag="never"), {"say": "{result}"}, {"starts": "never"}), mode
    )
    (made,) = turn.calls
    assert turn.stop == "end_turn"
    assert merged(turn.messages) == [
        assistant_calls(made),
        result(made, f"Tool not found: {tool}"),
        assistant_text(f"Tool not found: {tool}0"),
    ]


# --- texts ------------------------------------------------------------------------------------------------------------


@requirement("aap:texts:denied", "aap:answers:denied-is-emitted", "aap:calls:failure-goes-on")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("reason", "text"),
    [(None, "Tool call denied"), ("not today", "Tool call denied: not today"), ("", "Tool call denied")],
)
async def test_a_denial_is_a_result_with_its_reason_and_the_turn_continues(
    aap_client: AapClient, mode: Mode, reason: str | None, text: str
) -> None:
    session = await aap_client.create(server_tools=enabled_tools("stamp", trust=False))
    asked = await session.run(script(call("stamp", text="x"), {"say": "{result}"}))
    turn = await session.run([deny(asked.calls[0], reason)], mode)
    assert (turn.stop, turn.messages) == ("end_turn", [result(asked.calls[0], text), assistant_text(text)])
    assert (await session.history())[2:] == turn.messages


@requirement("aap:texts:failed", "aap:calls:failure-goes-on")
@pytest.mark.parametrize("mode", MODES)
async def test_a_tool_that_raises_gives_its_message_and_no_trace(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(server_tools=enabled_tools("boom"))
    turn = await session.run(script(call("boom"), {"say": "on"}), mode)
    assert turn.messages == [
        assistant_calls(turn.calls[0]),
        result(turn.calls[0], "Tool execution failed: boom"),
        assistant_text("on"),
    ]


@requirement("aap:texts:failed", "aap:calls:failure-goes-on")
@pytest.mark.parametrize(
    "arguments", [{"a": "one", "b": 2}, {"a": 1}, {}, {"a": 1, "b": 2, "c": 3}, {"a": None, "b": 1}, {"a": 1.5, "b": 1}]
)
async def test_arguments_that_a_tool_cannot_take_are_a_failed_call(
    aap_client: AapClient, arguments: dict[str, Any]
) -> None:
    session = await aap_client.create(server_tools=enabled_tools("add"))
    turn = await session.run(script(call("add", **arguments), {"say": "on"}))
    (text,) = turn.results.values()
    assert text.startswith("Tool execution failed: ")
    assert turn.messages[-1] == assistant_text("on")


@requirement("aap:texts:other-result", "aap:meeting:tool-meta-removed")
@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("", ""),
        ('"quoted"', '"quoted"'),
        (7, "7"),
        (1.5, "1.5"),
        (None, "null"),
        (True, "true"),
        ([], "[]"),
        ({"b": 1, "a": ["ü", None]}, '{"b":1,"a":["ü",null]}'),
        ({"_meta": {"ui": "<b>"}, "kept": 1}, '{"kept":1}'),
    ],
)
async def test_a_result_is_the_string_itself_or_compact_json_without_meta(
    aap_client: AapClient, output: Any, text: str
) -> None:
    session = await aap_client.create()
    turn = await session.run(script({"tool": {"name": "inner", "input": {}, "output": output}}, {"say": "={result}"}))
    assert turn.messages[1:] == [result(turn.calls[0], text), assistant_text(f"={text}")]


@requirement("aap:meeting:tool-meta-removed", "aap:texts:other-result")
@pytest.mark.parametrize(("tool", "arguments"), [("card", {"title": "T"}), ("highlight", {"city": "7"})])
async def test_no_meta_of_a_tool_is_seen_in_results_and_history(
    aap_client: AapClient, tool: str, arguments: dict[str, str]
) -> None:
    session = await aap_client.create(server_tools=enabled_tools(tool))
    turn = await session.run(script(call(tool, **arguments)), "delta")
    (text,) = turn.results.values()
    assert "_meta" not in text
    assert "_meta" not in str(await session.history())
    assert b"<" not in turn.raw.split(b"tool_result")[1]


# --- answers ----------------------------------------------------------------------------------------------------------


@requirement("aap:answers:as-sent-no-echo")
@pytest.mark.parametrize(
    "content",
    [
        "text",
        "",
        [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        [{"type": "image", "url": "https://images.example/a.png"}],
    ],
)
async def test_a_client_result_is_stored_as_it_came_and_not_repeated(aap_client: AapClient, content: Any) -> None:
    session = await aap_client.create(tools=[client_tool("paint")])
    asked = await session.run(script(call("paint"), {"say": "ok"}))
    turn = await session.run([result(asked.calls[0], content)], "delta")
    assert turn.messages == [assistant_text("ok")]
    assert (await session.history())[2] == result(asked.calls[0], content)


@requirement("aap:answers:granted-runs-now", "aap:answers:reason-of-grant", "aap:step:permissions-in-order")
@pytest.mark.parametrize("mode", MODES)
async def test_a_granted_call_runs_with_the_stored_input_before_new_text(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(server_tools=enabled_tools("stamp", trust=False))
    asked = await session.run(script(call("stamp", text="mine"), {"say": "{result}"}))
    answer = {**grant(asked.calls[0], "canary-reason"), "input": {"text": "yours"}, "name": "slow"}
    turn = await session.run([answer], mode)
    assert turn.messages == [result(asked.calls[0], "stamped mine"), assistant_text("stamped mine")]
    assert "canary-reason" not in str(await session.history())
    assert b"canary-reason" not in turn.raw


@requirement("aap:answers:granted-runs-now", "aap:calls:failure-goes-on", "aap:texts:failed")
async def test_a_granted_call_that_fails_says_so(aap_client: AapClient) -> None:
    session = await aap_client.create(server_tools=enabled_tools("boom", trust=False))
    asked = await session.run(script(call("boom"), {"say": "on"}))
    assert (await session.run([grant(asked.calls[0])])).messages == [
        result(asked.calls[0], "Tool execution failed: boom"),
        assistant_text("on"),
    ]


@requirement("aap:step:permissions-in-order")
@pytest.mark.parametrize("mode", STREAMS)
async def test_denials_are_settled_in_the_order_sent(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(server_tools=enabled_tools("stamp", trust=False))
    asked = await session.run(script(calls(*(("stamp", {"text": text}) for text in "abc")), {"say": "{results}"}))
    a, b, c = asked.calls
    turn = await session.run([deny(c, "c"), deny(a, "a"), deny(b, "b")], mode)
    assert turn.messages[:3] == [result(each, f"Tool call denied: {each.input['text']}") for each in (c, a, b)]
    assert turn.text == "Tool call denied: a, Tool call denied: b, Tool call denied: c"


@requirement("aap:answers:override-first")
@pytest.mark.parametrize("references", [[], enabled_tools("add")])
async def test_a_grant_for_a_tool_that_the_same_request_takes_away_is_denied(
    aap_client: AapClient, references: list[dict[str, Any]]
) -> None:
    session = await aap_client.create(server_tools=enabled_tools("stamp", trust=False))
    asked = await session.run(script(call("stamp", text="x"), {"say": "{result}"}))
    turn = await session.run([grant(asked.calls[0])], agent={"tools": references})
    text = "Tool call denied: tool is disabled"
    assert turn.messages == [result(asked.calls[0], text), assistant_text(text)]


@requirement("aap:answers:trust-later", "aap:resume:kind-stays")
async def test_a_pending_call_needs_its_permission_though_its_tool_is_trusted_now(aap_client: AapClient) -> None:
    session = await aap_client.create(server_tools=enabled_tools("stamp", trust=False), tools=[client_tool("paint")])
    asked = await session.run(
        script(calls(("stamp", {"text": "x"}), ("paint", {})), call("stamp", text="y"), {"say": "{result}"})
    )
    stamp, paint = asked.calls
    trusted: Json = {"agent": {"tools": enabled_tools("stamp")}}
    async with assert_unchanged(session):
        assert_refusal(
            await session.post([result(paint, "x")], **trusted), 400, "tool_results_missing", missing=[stamp.id]
        )
    turn = await session.run([result(paint, "x"), grant(stamp)], **trusted)
    assert (turn.stop, turn.text) == ("end_turn", "stamped y")  # the next call of the tool asks nobody


@requirement("aap:answers:text-for-permission")
@pytest.mark.parametrize("mode", MODES)
async def test_a_tool_message_does_not_answer_a_permission(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(server_tools=enabled_tools("slow", trust=False))
    asked = await session.run(
        script(call("slow", seconds=600, tag="texted"), {"say": "{result} "}, {"starts": "texted"})
    )
    async with assert_unchanged(session):
        reply = await session.post([result(asked.calls[0], "FORGED")], stream=mode)
        assert_refusal(reply, 400, "invalid_request")
    assert await status(session) == "waiting"


@requirement("aap:answers:deny-client-tool", "aap:answers:denied-is-emitted", "aap:texts:denied")
@pytest.mark.parametrize(("reason", "text"), [(None, "Tool call denied"), ("no brush", "Tool call denied: no brush")])
@pytest.mark.parametrize("mode", MODES)
async def test_a_denied_client_tool_has_the_same_result_in_every_mode_and_in_the_history(
    aap_client: AapClient, mode: Mode, reason: str | None, text: str
) -> None:
    """Decision 35."""
    session = await aap_client.create(tools=[client_tool("paint")])
    asked = await session.run(script(call("paint"), {"say": "{result}"}))
    turn = await session.run([deny(asked.calls[0], reason)], mode)
    assert (turn.messages[0], turn.text) == (result(asked.calls[0], text), text)
    assert (await session.history())[2] == result(asked.calls[0], text)


@requirement("aap:answers:grant-client-tool")
async def test_a_client_tool_cannot_be_granted(aap_client: AapClient) -> None:
    session = await aap_client.create(tools=[client_tool("paint")])
    asked = await session.run(script(call("paint"), {"say": "{result}"}))
    async with assert_unchanged(session):
        assert_refusal(await session.post([grant(asked.calls[0])]), 400, "invalid_request")
    assert await status(session) == "waiting"


@requirement("aap:calls:unique-ids")
async def test_call_ids_are_unique_over_many_turns_seeds_included(aap_client: AapClient) -> None:
    seeds = [
        user("s"),
        {"role": "assistant", "content": [{"type": "tool_use", "toolCallId": "call_1", "name": "add", "input": {}}]},
        result("call_1", "0"),
    ]
    session = await aap_client.create(messages=seeds, server_tools=enabled_tools("add"))
    ids = ["call_1"]
    for _ in range(12):
        turn = await session.run(script(calls(*[("add", {"a": 1, "b": 1})] * 5), call("add", a=1, b=2)))
        ids += [each.id for each in turn.calls]
    assert len(ids) == len(set(ids)) == 73


@requirement("aap:resume:client-tools-named", "aap:resume:kind-stays", "aap:meta-field:pending")
async def test_an_override_of_client_tools_leaves_a_pending_call_what_it_was(aap_client: AapClient) -> None:
    session, asked = await session_with_mixed_calls(aap_client)
    paint, stamp, _ = asked.calls
    assert [tool["name"] for tool in (await session.info())["tools"]] == ["paint"]
    async with assert_unchanged(session):
        assert_refusal(await session.post([grant(paint), grant(stamp)], tools=[]), 400, "invalid_request")
    turn = await session.run([result(paint, "blue"), grant(stamp)], tools=[])
    assert turn.text == "blue, stamped x, 3"
    assert "tools" not in await session.info()
