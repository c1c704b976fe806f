"""AAP where it meets the other protocols: what they can make happen in a session, and how it looks from here."""

import json
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

QUESTIONS = [
    {
        "question": "Which environment?",
        "header": "Deploy",
        "options": [{"label": "staging"}, {"label": "production"}],
    }
]


async def session_with_question(client: AapClient, mode: Mode) -> tuple[Session, Turn]:
    session = await client.create()
    asked = await session.run("ask me", mode)
    (question,) = asked.calls
    assert (asked.stop, asked.messages) == ("tool_use", [assistant_calls(question)])
    assert (question.name, question.input["questions"]) == ("AskUserQuestion", QUESTIONS)
    pending = (await session.info())["_meta"]["pending"]
    assert [(each["toolCallId"], each["kind"]) for each in pending] == [(question.id, "question")]
    return session, asked


@requirement("aap:meeting:question-by-text", "aap:meeting:question-by-json")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("answer", "chosen"),
    [
        (result("ID", "staging"), "staging"),
        (result("ID", "neither, thanks"), "neither, thanks"),
        (result("ID", [{"type": "text", "text": "staging"}]), "staging"),
        (result("ID", json.dumps({"selections": ["production"]})), "production"),
        (result("ID", json.dumps({"selections": [], "custom": "my own"})), "my own"),
    ],
)
async def test_a_question_is_answered_by_text_or_json(
    aap_client: AapClient, mode: Mode, answer: dict[str, Any], chosen: str
) -> None:
    session, asked = await session_with_question(aap_client, mode)
    turn = await session.run([{**answer, "toolCallId": asked.calls[0].id}], mode)
    assert (turn.stop, turn.text) == ("end_turn", f"You chose {chosen}.")
    results = [message for message in await session.history() if message["role"] == "tool"]
    assert [each["toolCallId"] for each in results] == [asked.calls[0].id]


@requirement("aap:meeting:question-by-json")
async def test_options_chosen_by_their_index_reach_the_model_as_labels(aap_client: AapClient) -> None:
    session = await aap_client.create()
    asked = await session.run(script({"ask": {"questions": QUESTIONS}}, {"say": "{result}"}))
    turn = await session.run([result(asked.calls[0].id, json.dumps({"selections": {"0": [1]}}))])
    labels = {"answers": [{"question": QUESTIONS[0]["question"], "labels": ["production"], "custom": None}]}
    (stored,) = [message for message in await session.history() if message["role"] == "tool"]
    assert json.loads(turn.text) == json.loads(stored["content"]) == labels


@requirement("aap:meeting:question-granted")
@pytest.mark.parametrize("reason", [None, "production, please"])
@pytest.mark.parametrize(
    "ask", ["ask me", script({"ask": {"questions": [{"question": "How many?"}]}}, {"say": "{result}"})]
)
async def test_a_question_cannot_be_granted(aap_client: AapClient, ask: str, reason: str | None) -> None:
    session = await aap_client.create()
    asked = await session.run(ask)
    async with assert_unchanged(session):
        assert_refusal(await session.post([grant(asked.calls[0], reason)]), 400, "invalid_request")


@requirement("aap:meeting:question-declined")
@pytest.mark.parametrize("mode", MODES)
async def test_a_question_may_be_declined(aap_client: AapClient, mode: Mode) -> None:
    session, asked = await session_with_question(aap_client, mode)
    turn = await session.run([deny(asked.calls[0], "ask later")], mode)
    assert turn.stop == "end_turn"
    assert turn.results == {asked.calls[0].id: "Tool call denied: ask later"}


@requirement("aap:meeting:question-by-text")
async def test_a_question_is_answered_once(aap_client: AapClient) -> None:
    session, asked = await session_with_question(aap_client, "none")
    answers = [result(asked.calls[0], "staging")]
    await session.run(answers)
    async with assert_unchanged(session):
        assert_refusal(await session.post(answers), 400, "tool_call_resolved")


@requirement("aap:meeting:sub-agent")
@pytest.mark.parametrize("mode", MODES)
async def test_of_a_sub_agent_the_call_and_its_result_are_seen(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(server_tools=enabled_tools("add"))
    inner = [{"think": "inside"}, {"say": "not seen"}, call("add", a=1, b=2), {"say": "inner result"}]
    play = script({"say": "outer "}, {"fork": {"description": "dig", "script": inner}}, {"say": "({result})"})
    turn = await session.run(play, mode)
    (fork,) = turn.calls
    assert fork.name == "Agent"
    assert merged(turn.messages) == [
        assistant_calls(fork, text="outer "),
        result(fork, "inner result"),
        assistant_text("(inner result)"),
    ]
    assert await session.history() == [user(play), *turn.messages]


def fork(*steps: Json) -> Json:
    return {"fork": {"description": "dig", "script": steps}}


@requirement("aap:meeting:sub-agent-waits", "aap:clients:rebuild")
@pytest.mark.parametrize("mode", MODES)
async def test_the_call_that_waits_in_a_sub_agent_is_what_the_person_approves(
    aap_client: AapClient, mode: Mode
) -> None:
    session = await aap_client.create(server_tools=enabled_tools("stamp", trust=False))
    play = script(
        fork(call("stamp", text="paid"), call("stamp", text="sent"), {"say": "{result}"}), {"say": "{result}"}
    )
    first = await session.run(play, mode)
    (paid,) = first.calls
    assert (first.stop, paid.name, paid.input) == ("tool_use", "stamp", {"text": "paid"})
    (pending,) = (await session.info())["_meta"]["pending"]
    assert pending == {"toolCallId": paid.id, "name": "stamp", "input": {"text": "paid"}, "kind": "permission"}
    assert await session.history() == [user(play), assistant_calls(paid)]
    second = await session.run([grant(paid)], mode)
    (sent,) = second.calls
    assert (second.messages, sent.input) == ([result(paid, "stamped paid"), assistant_calls(sent)], {"text": "sent"})
    third = await session.run([grant(sent)], mode)
    (agent,) = third.calls
    assert (agent.name, agent.input["description"]) == ("Agent", "dig")
    assert third.messages == [
        result(sent, "stamped sent"),
        assistant_calls(agent),
        result(agent, "stamped sent"),
        assistant_text("stamped sent"),
    ]
    assert await session.history() == [user(play), *first.messages, *second.messages, *third.messages]


@requirement("aap:meeting:sub-agent-waits", "aap:clients:answers-last-only")
@pytest.mark.parametrize("mode", MODES)
async def test_all_calls_that_wait_below_and_beside_a_sub_agent_are_in_the_last_message(
    aap_client: AapClient, mode: Mode
) -> None:
    session = await aap_client.create(
        server_tools=[*enabled_tools("add"), *enabled_tools("stamp", trust=False)], tools=[client_tool("paint")]
    )
    stamps = calls(("stamp", {"text": "x"}), ("stamp", {"text": "y"}))
    inner = {"description": "dig", "script": [call("add", a=3, b=4), stamps, {"say": "{results}"}]}
    step = calls(("paint", {"c": 1}), ("add", {"a": 1, "b": 2}), ("Agent", inner))
    first = await session.run(script(step, {"say": "{results}"}), mode)
    waiting = [each for each in first.calls if each.id not in first.results]
    assert [each.name for each in waiting] == ["paint", "stamp", "stamp"]
    last = (await session.history())[-1]
    assert [block["toolCallId"] for block in last["content"]] == [each.id for each in waiting]
    refused = await session.post([result(waiting[0], "red"), grant(waiting[1])])
    assert_refusal(refused, 400, "tool_results_missing", missing=[waiting[2].id])
    end = await session.run([result(waiting[0], "red"), grant(waiting[1]), deny(waiting[2], "no")], mode)
    assert (end.stop, end.text) == ("end_turn", "red, 3, stamped x, Tool call denied: no")


@requirement("aap:meeting:sub-agent-waits", "aap:meeting:question-granted")
@pytest.mark.parametrize("mode", MODES)
async def test_a_question_of_a_sub_agent_is_a_question_and_is_never_granted(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create()
    ask = {"ask": {"questions": [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]}}
    first = await session.run(script(fork(ask, {"say": "{answer}"}), {"say": "so {result}"}), mode)
    (question,) = first.calls
    assert (question.name, question.input["questions"][0]["question"]) == ("AskUserQuestion", "Which?")
    (pending,) = (await session.info())["_meta"]["pending"]
    assert (pending["toolCallId"], pending["name"], pending["kind"]) == (question.id, "AskUserQuestion", "question")
    async with assert_unchanged(session):
        assert_refusal(await session.post([grant(question)]), 400, "invalid_request")
    end = await session.run([result(question, "b")], mode)
    assert (end.stop, end.text) == ("end_turn", "so b")


@requirement("aap:meeting:no-plan-no-card")
@pytest.mark.parametrize("mode", STREAMS)
async def test_plans_and_cards_and_data_make_no_events(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create()
    play = script(
        {"say": "a"},
        {"plan": {"status": "in_progress", "steps": [{"title": "t", "status": "pending"}]}},
        {"card": {"type": "text", "text": "c"}},
        {"say": "b"},
    )
    turn = await session.run(play, mode)
    assert {event for event, _ in normalize_frames(turn.frames)} == {
        "turn_start",
        "turn_stop",
        "text_delta" if mode == "delta" else "text",
    }
    assert (turn.text, [message["role"] for message in await session.history()]) == ("ab", ["user", "assistant"])


@requirement("aap:meeting:tool-meta-removed")
@pytest.mark.parametrize("mode", MODES)
async def test_an_mcp_tools_result_is_an_inline_result(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create()
    play = script(
        {"mcp": {"server": "maps", "name": "find", "input": {"q": "x"}, "output": {"_meta": {"ui": 1}, "hits": [1]}}},
        {"say": "{result}"},
    )
    turn = await session.run(play, mode)
    assert turn.results == {turn.calls[0].id: '{"hits":[1]}'}
    assert turn.text == '{"hits":[1]}'
