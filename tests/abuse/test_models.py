"""Models that break off, send wrong data or never end. Cases 34 and 37, and the stream's part of case 3."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from dragoman import Agent
from dragoman.models.openai import OpenAIModel
from tests.abuse import misbehaving_agents as wild
from tests.abuse.misbehaving_agents import THOUSAND
from tests.abuse.session_invariants import assert_session_consistent, results_by_call
from tests.models.fake_openai_server import DONE, Answer, call_delta, chunk, fake_openai_server
from tests.protocols.aap.client import (
    AapClient,
    Session,
    assistant_text,
    calls,
    deny,
    enabled_tools,
    result,
    script,
    user,
)
from tests.protocols.aap.stream import MODES, Mode
from tests.servers import AppServerFactory

Json = Any
NAMES = [tool.name for tool in wild.TOOLS if tool.declaration.policy.exposed]


async def session_of(aap: AapClient, agent: str = "wild", *names: str) -> Session:
    return await aap.create(agent, server_tools=enabled_tools(*(names or ("add", "echo"))))


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
async def test_an_answer_that_breaks_off_makes_no_call_ends_with_error_and_reveals_no_internals(
    aap_client: AapClient, mode: Mode, play: str, code: str, text: str
) -> None:
    session = await session_of(aap_client)
    turn = await session.run(play, mode)
    assert (turn.stop, turn.error["code"], turn.calls, turn.text) == ("error", code, [], text)
    assert b"canary" not in turn.raw
    history = await assert_session_consistent(session)
    assert history == [user(play), *([assistant_text(text)] if text else [])]


CUT = [
    ([chunk({"content": "I "}), chunk(call_delta(0, '{"a": 1, "b', id="c1", name="add"))], True),
    ([chunk({"content": "I "}), chunk(call_delta(0, '{"a": 1, "b": 2}', id="c1", name="add"))], True),
    ([chunk({"content": "I "}), b'data: {"choices": [{"index": 0, "del'], True),
    ([chunk({"content": "I "}), b"data: nonsense\n\n"], False),
]


@pytest.mark.parametrize(("parts", "is_cut"), CUT)
async def test_a_providers_stream_that_breaks_inside_a_calls_arguments_makes_no_call(
    open_app_server: AppServerFactory, parts: list[bytes], is_cut: bool
) -> None:
    async with fake_openai_server() as provider:
        whole = Answer(parts=[chunk({"content": "You said: are you there"}, "stop"), DONE])
        provider.answers += [Answer(parts=parts, is_cut=is_cut), whole]
        model = OpenAIModel(name="gpt-x", api_key="key-of-the-provider", base_url=provider.base_url)
        remote = Agent("remote", model=model, tools=[wild.add], history=True)
        async with aclosing(model), open_app_server(agents=[remote]) as server:
            session = await session_of(server.aap_client("alice"), "remote", "add")
            turn = await session.run("go")
            assert (turn.stop, turn.calls) == ("error", [])
            await assert_session_consistent(session)


async def test_a_call_cut_off_by_a_limit_or_a_refusal_is_dropped(aap_client: AapClient) -> None:
    for play, stop in (("cut by the limit", "max_tokens"), ("refuse with a call", "refusal")):
        session = await session_of(aap_client)
        turn = await session.run(play)
        assert (turn.stop, turn.calls) == (stop, [])
        await assert_session_consistent(session)


# --- calls that cannot be ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("play", "text"),
    [
        ("call with no JSON", "not a JSON object"),
        ("call with a list", "not a JSON object"),
        ("call with surrogates", "not a JSON object"),
        ("call with a thousand levels", "not a JSON object"),
        ("call with strange numbers", "a: expected int"),
        ("call with wrong arguments", "c: unknown argument"),
    ],
)
async def test_invalid_arguments_fail_the_call_and_the_model_reads_why(
    aap_client: AapClient, mode: Mode, play: str, text: str
) -> None:
    session = await session_of(aap_client)
    turn = await session.run(play, mode)
    assert (turn.stop, turn.text) == ("end_turn", "went on")
    (output,) = turn.results.values()
    assert output.startswith("Tool execution failed: ")
    assert text in output
    await assert_session_consistent(session)


async def test_a_number_of_4000_digits_works_or_fails_its_call(aap_client: AapClient) -> None:
    session = await session_of(aap_client)
    turn = await session.run("call with a huge number")
    assert (turn.stop, len(turn.results)) == ("end_turn", 1)
    await assert_session_consistent(session)


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_of_an_unknown_tool_fails_whatever_its_name(aap_client: AapClient, mode: Mode) -> None:
    session = await session_of(aap_client)
    turn = await session.run("call what is not there", mode)
    assert (turn.stop, len(turn.calls)) == ("end_turn", len(wild.UNUSUAL_NAMES))
    names = [name.replace("\ud800", "?") for name in wild.UNUSUAL_NAMES]
    assert [each.name for each in turn.calls] == names
    assert [turn.results[each.id] for each in turn.calls] == [f"Tool not found: {name}" for name in names]
    await assert_session_consistent(session)


@pytest.mark.parametrize("mode", MODES)
async def test_a_thousand_calls_in_one_step_have_a_thousand_results(aap_client: AapClient, mode: Mode) -> None:
    session = await session_of(aap_client)
    turn = await session.run("call a thousand times", mode)
    assert (turn.stop, len(turn.calls)) == ("end_turn", THOUSAND)
    assert [turn.results[each.id] for each in turn.calls] == [str(place) for place in range(THOUSAND)]
    await assert_session_consistent(session)


async def test_a_thousand_waiting_calls_are_answered_in_one_request(aap_client: AapClient) -> None:
    session = await aap_client.create(server_tools=enabled_tools("stamp", trust=False))
    turn = await session.run(script(calls(*[("stamp", {"text": "x"})] * THOUSAND)))
    assert (turn.stop, len(turn.calls)) == ("tool_use", THOUSAND)
    denied = await session.run([deny(each) for each in turn.calls])
    assert (denied.stop, len(denied.results)) == ("end_turn", THOUSAND)


async def test_five_thousand_seeded_calls_are_refused_and_a_thousand_answered_at_once(aap_client: AapClient) -> None:
    def seeds(count: int) -> list[Json]:
        uses = [{"type": "tool_use", "toolCallId": f"c{place}", "name": "x", "input": {}} for place in range(count)]
        return [{"role": "assistant", "content": uses}]

    reply = await aap_client.post("/sessions", {"agent": {"name": "rehearsal"}, "messages": seeds(5000)})
    assert (reply.status, reply.json["code"]) == (400, "limit_exceeded")
    session = await aap_client.create(messages=seeds(THOUSAND))
    turn = await session.run([result(f"c{place}", "x") for place in range(THOUSAND)])
    assert turn.stop == "end_turn"


@pytest.mark.parametrize("mode", MODES)
async def test_calls_with_the_same_id_get_separate_ids_and_a_result_each(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(
        "wild", server_tools=[*enabled_tools("add"), *enabled_tools("stamp", trust=False)]
    )
    turn = await session.run("call twice with one id", mode)
    assert (turn.stop, len({each.id for each in turn.calls})) == ("tool_use", 3)
    again = await session.run([deny(turn.calls[2])], mode)
    assert (again.stop, again.text) == ("end_turn", "went on")
    history = await assert_session_consistent(session)
    assert list(results_by_call(history).values()) == [["2"], ["2"], ["Tool call denied"]]


async def test_events_after_the_end_of_an_answer_do_not_change_the_session(aap_client: AapClient) -> None:
    session = await session_of(aap_client)
    turn = await session.run("go on after the end")
    assert turn.stop == "end_turn"
    await assert_session_consistent(session)


# --- answers without an end -------------------------------------------------------------------------------------------


async def test_an_endless_loop_of_model_and_tool_is_stopped_at_max_steps(aap_client: AapClient) -> None:
    session = await session_of(aap_client)
    turn = await session.run("call for ever")
    assert (turn.stop, turn.error["code"], len(turn.calls)) == ("error", "max_steps", 10)
    await assert_session_consistent(session)


async def test_a_run_that_spends_too_many_tokens_is_stopped_with_max_tokens(aap_client: AapClient) -> None:
    session = await session_of(aap_client, "spender", "add")
    turn = await session.run("go")
    assert (turn.stop, len(turn.calls), turn.meta["usage"]) == (
        "max_tokens",
        3,
        {"inputTokens": 90, "outputTokens": 30},
    )
    assert (await session.info())["_meta"]["status"] == "idle"


async def test_endless_sub_agents_are_each_stopped_at_their_limit(aap_client: AapClient) -> None:
    session = await aap_client.create("leader")
    turn = await session.run("go")
    assert (turn.stop, turn.error["code"], len(turn.calls)) == ("error", "max_steps", 4)
    assert set(turn.results.values()) == {"Tool execution failed: the run reached its limit of 3 steps"}
    assert (await session.info())["_meta"]["status"] == "idle"


async def test_an_agent_that_is_its_own_sub_agent_is_stopped_at_the_maximum_depth(aap_client: AapClient) -> None:
    session = await aap_client.create("endless")
    turn = await session.run("go")
    assert (turn.stop, turn.text) == ("end_turn", "back")
    assert results_by_call(await session.history())[turn.calls[0].id] == ["back"]


async def test_a_model_that_hangs_is_stopped_at_the_run_timeout(open_app_server: AppServerFactory) -> None:
    async with open_app_server(run_timeout_s=1.0) as server:
        session = await session_of(server.aap_client("alice"))
        turn = await session.run("hang")
        assert (turn.stop, turn.error["code"], turn.text) == ("error", "timeout", "half")
        await assert_session_consistent(session)


async def test_a_model_that_hangs_ends_within_five_seconds_of_the_deletion_of_its_session(
    aap_client: AapClient,
) -> None:
    session = await session_of(aap_client)
    reading = await session.open("hang")
    await reading.until("text_delta")
    async with asyncio.timeout(5):
        assert (await session.delete()).status == 204
        assert (await reading.read_to_end())[-1].data["stopReason"] == "error"


# --- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_half_a_character_is_never_sent(aap_client: AapClient, mode: Mode) -> None:
    session = await session_of(aap_client)
    turn = await session.run("halves of a character", mode)
    assert turn.raw.decode("utf-8")
    assert (turn.stop, turn.text) == ("end_turn", "a??b?c")
    assert (await assert_session_consistent(session))[-1] == assistant_text("a??b?c")


async def test_five_megabytes_of_text_are_all_in_the_history(aap_client: AapClient) -> None:
    session = await session_of(aap_client)
    turn = await session.run("megabytes", "delta")
    assert turn.text == "x" * 5_000_000
    assert (await assert_session_consistent(session))[-1] == assistant_text(turn.text)
