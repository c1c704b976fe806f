"""Models that break off, lie, and never come to an end. Cases 34 and 37, and the stream's part of case 3."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from dragoman import Agent
from dragoman.models.openai import OpenAIModel
from tests.abuse import misbehaving_agents as wild
from tests.abuse.misbehaving_agents import THOUSAND
from tests.abuse.session_invariants import is_whole, results_by_call
from tests.models.fake_openai_server import DONE, Answer, call_delta, chat_server, chunk
from tests.protocols.aap.client import Face, Session, calls, deny, on, result, said, script, user
from tests.protocols.aap.stream import MODES, Mode
from tests.servers import HouseMaker

Json = Any
NAMES = [tool.name for tool in wild.TOOLS if tool.declaration.policy.exposed]


async def session_of(face: Face, agent: str = "wild", *names: str) -> Session:
    return await face.create(agent, server_tools=on(*(names or ("add", "echo"))))


# --- answers that break -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("play", "code", "text"),
    [
        ("break before the end", "model_error", "half a sen"),
        ("end without an end", "model_error", "half a sen"),
        ("say nothing at all", "model_error", ""),
        ("fail with an error of its own", "agent_error", "half"),
        ("exit", "agent_error", "half"),
    ],
)
async def test_an_answer_that_breaks_off_makes_no_call_ends_with_error_and_tells_no_internals(
    face: Face, mode: Mode, play: str, code: str, text: str
) -> None:
    session = await session_of(face)
    turn = await session.run(play, mode)
    assert (turn.stop, turn.error["code"], turn.calls, turn.text) == ("error", code, [], text)
    assert b"canary" not in turn.raw
    history = await is_whole(session)
    assert history == [user(play), *([said(text)] if text else [])]


CUT = [
    ([chunk({"content": "I "}), chunk(call_delta(0, '{"a": 1, "b', id="c1", name="add"))], True),
    ([chunk({"content": "I "}), chunk(call_delta(0, '{"a": 1, "b": 2}', id="c1", name="add"))], True),
    ([chunk({"content": "I "}), b'data: {"choices": [{"index": 0, "del'], True),
    ([chunk({"content": "I "}), b"data: nonsense\n\n"], False),
]


@pytest.mark.parametrize(("parts", "is_cut"), CUT)
async def test_a_providers_stream_that_breaks_inside_a_calls_arguments_makes_no_call(
    open_house: HouseMaker, parts: list[bytes], is_cut: bool
) -> None:
    async with chat_server() as provider:
        whole = Answer(parts=[chunk({"content": "You said: are you there"}, "stop"), DONE])
        provider.answers += [Answer(parts=parts, is_cut=is_cut), whole]
        model = OpenAIModel(name="gpt-x", api_key="key-of-the-provider", base_url=provider.base_url)
        remote = Agent("remote", model=model, tools=[wild.add], history=True)
        async with aclosing(model), open_house(agents=[remote]) as house:
            session = await session_of(house.face("alice"), "remote", "add")
            turn = await session.run("go")
            assert (turn.stop, turn.calls) == ("error", [])
            await is_whole(session)


async def test_a_call_that_the_limit_or_a_refusal_cut_off_is_dropped_and_not_run(face: Face) -> None:
    for play, stop in (("cut by the limit", "max_tokens"), ("refuse with a call", "refusal")):
        session = await session_of(face)
        turn = await session.run(play)
        assert (turn.stop, turn.calls) == (stop, [])
        await is_whole(session)


# --- calls that cannot be ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("play", "words"),
    [
        ("call with no JSON", "not a JSON object"),
        ("call with a list", "not a JSON object"),
        ("call with surrogates", "not a JSON object"),
        ("call with a thousand levels", "not a JSON object"),
        ("call with strange numbers", "a: expected int"),
        ("call with wrong arguments", "c: unknown argument"),
    ],
)
async def test_arguments_that_cannot_be_fail_the_call_and_the_model_reads_why(
    face: Face, mode: Mode, play: str, words: str
) -> None:
    session = await session_of(face)
    turn = await session.run(play, mode)
    assert (turn.stop, turn.text) == ("end_turn", "went on")
    (told,) = turn.results.values()
    assert told.startswith("Tool execution failed: ")
    assert words in told
    await is_whole(session)


async def test_a_number_of_4000_digits_goes_through_or_fails_its_call(face: Face) -> None:
    session = await session_of(face)
    turn = await session.run("call with a huge number")
    assert (turn.stop, len(turn.results)) == ("end_turn", 1)
    await is_whole(session)


@pytest.mark.parametrize("mode", MODES)
async def test_a_tool_that_does_not_exist_is_told_so_whatever_its_name(face: Face, mode: Mode) -> None:
    session = await session_of(face)
    turn = await session.run("call what is not there", mode)
    assert (turn.stop, len(turn.calls)) == ("end_turn", len(wild.STRANGE_NAMES))
    names = [name.replace("\ud800", "?") for name in wild.STRANGE_NAMES]
    assert [each.name for each in turn.calls] == names
    assert [turn.results[each.id] for each in turn.calls] == [f"Tool not found: {name}" for name in names]
    await is_whole(session)


@pytest.mark.parametrize("mode", MODES)
async def test_a_thousand_calls_in_one_step_have_a_thousand_results(face: Face, mode: Mode) -> None:
    session = await session_of(face)
    turn = await session.run("call a thousand times", mode)
    assert (turn.stop, len(turn.calls)) == ("end_turn", THOUSAND)
    assert [turn.results[each.id] for each in turn.calls] == [str(place) for place in range(THOUSAND)]
    await is_whole(session)


async def test_a_thousand_calls_that_wait_are_answered_in_one_request(face: Face) -> None:
    session = await face.create(server_tools=on("stamp", trust=False))
    asked = await session.run(script(calls(*[("stamp", {"text": "x"})] * THOUSAND)))
    assert (asked.stop, len(asked.calls)) == ("tool_use", THOUSAND)
    denied = await session.run([deny(each) for each in asked.calls])
    assert (denied.stop, len(denied.results)) == ("end_turn", THOUSAND)


async def test_five_thousand_seeded_calls_are_refused_and_a_thousand_answered_at_once(face: Face) -> None:
    def seeds(count: int) -> list[Json]:
        uses = [{"type": "tool_use", "toolCallId": f"c{place}", "name": "x", "input": {}} for place in range(count)]
        return [{"role": "assistant", "content": uses}]

    reply = await face.post("/sessions", {"agent": {"name": "rehearsal"}, "messages": seeds(5000)})
    assert (reply.status, reply.json["code"]) == (400, "limit_exceeded")
    session = await face.create(messages=seeds(THOUSAND))
    turn = await session.run([result(f"c{place}", "x") for place in range(THOUSAND)])
    assert turn.stop == "end_turn"


@pytest.mark.parametrize("mode", MODES)
async def test_calls_of_one_id_get_ids_of_their_own_and_a_result_each(face: Face, mode: Mode) -> None:
    session = await face.create("wild", server_tools=[*on("add"), *on("stamp", trust=False)])
    turn = await session.run("call twice with one id", mode)
    assert (turn.stop, len({each.id for each in turn.calls})) == ("tool_use", 3)
    again = await session.run([deny(turn.calls[2])], mode)
    assert (again.stop, again.text) == ("end_turn", "went on")
    history = await is_whole(session)
    assert list(results_by_call(history).values()) == [["2"], ["2"], ["Tool call denied"]]


async def test_what_comes_after_an_answers_end_changes_nothing_about_the_session(face: Face) -> None:
    session = await session_of(face)
    turn = await session.run("go on after the end")
    assert turn.stop == "end_turn"
    await is_whole(session)


# --- answers without an end -------------------------------------------------------------------------------------------


async def test_a_model_and_a_tool_that_go_on_for_ever_are_stopped_at_max_steps(face: Face) -> None:
    session = await session_of(face)
    turn = await session.run("call for ever")
    assert (turn.stop, turn.error["code"], len(turn.calls)) == ("error", "max_steps", 10)
    await is_whole(session)


async def test_a_run_that_spends_too_many_tokens_is_stopped_with_max_tokens(face: Face) -> None:
    session = await session_of(face, "spender", "add")
    turn = await session.run("go")
    assert (turn.stop, len(turn.calls), turn.meta["usage"]) == (
        "max_tokens",
        3,
        {"inputTokens": 90, "outputTokens": 30},
    )
    assert (await session.info())["_meta"]["status"] == "idle"


async def test_sub_agents_that_go_on_for_ever_are_stopped_each_at_its_limit(face: Face) -> None:
    session = await face.create("leader")
    turn = await session.run("go")
    assert (turn.stop, turn.error["code"], len(turn.calls)) == ("error", "max_steps", 4)
    assert set(turn.results.values()) == {"Tool execution failed: the run reached its limit of 3 steps"}
    assert (await session.info())["_meta"]["status"] == "idle"


async def test_an_agent_that_is_its_own_sub_agent_is_stopped_at_a_depth(face: Face) -> None:
    session = await face.create("endless")
    turn = await session.run("go")
    assert (turn.stop, turn.text) == ("end_turn", "back")
    assert results_by_call(await session.history())[turn.calls[0].id] == ["back"]


async def test_a_model_that_hangs_is_stopped_at_the_runs_time(open_house: HouseMaker) -> None:
    async with open_house(run_timeout_s=1.0) as house:
        session = await session_of(house.face("alice"))
        turn = await session.run("hang")
        assert (turn.stop, turn.error["code"], turn.text) == ("error", "timeout", "half")
        await is_whole(session)


async def test_a_model_that_hangs_goes_with_its_session_within_five_seconds(face: Face) -> None:
    session = await session_of(face)
    reading = await session.open("hang")
    await reading.until("text_delta")
    async with asyncio.timeout(5):
        assert (await session.delete()).status == 204
        assert (await reading.rest())[-1].data["stopReason"] == "error"


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_half_a_character_never_leaves_the_server(face: Face, mode: Mode) -> None:
    session = await session_of(face)
    turn = await session.run("halves of a character", mode)
    assert turn.raw.decode("utf-8")
    assert (turn.stop, turn.text) == ("end_turn", "a??b?c")
    assert (await is_whole(session))[-1] == said("a??b?c")


async def test_five_megabytes_of_words_are_all_in_the_history(face: Face) -> None:
    session = await session_of(face)
    turn = await session.run("megabytes", "delta")
    assert turn.text == "x" * 5_000_000
    assert (await is_whole(session))[-1] == said(turn.text)
