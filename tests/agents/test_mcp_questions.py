"""Questions of MCP servers to the user, during a call: of this protocol version and of an older one."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitRequestURLParams

from dragoman import McpServer, agent
from dragoman.agents import mcp_questions, serving
from dragoman.agents.mcp_questions import ServerCall, UnsuitableAnswer, questions_for, response_to
from dragoman.core.agent import Deferred
from dragoman.core.question_text import NO_ANSWER
from dragoman.core.run_metadata import RunMetadata
from tests.agents.agent_harness import DEADLINE_S, AgentHarness, Session, agent_harness
from tests.agents.test_mcp import SLOW_S, http_program, run, started

PROGRAM = str(Path(__file__).with_name("older_mcp_program.py"))


def older(folder: Path, **options: Any) -> McpServer:
    return McpServer.stdio("older", sys.executable, PROGRAM, str(folder / "calls"), **options)


def calls_of(folder: Path) -> int:
    return len((folder / "calls").read_text().splitlines())


# --- forms as questions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "options", "is_multiple", "answer", "value"),
    [
        ({"type": "string"}, [], False, ["Rome"], "Rome"),
        ({"type": "string", "enum": ["a", "b"]}, ["a", "b"], False, ["b"], "b"),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["A!", "B!"]}, ["A!", "B!"], False, ["B!"], "b"),
        ({"type": "string", "oneOf": [{"const": "a", "title": "First"}]}, ["First"], False, ["first"], "a"),
        ({"type": "boolean"}, ["yes", "no"], False, ["No"], False),
        ({"type": "integer"}, [], False, ["3"], 3),
        ({"type": "number"}, [], False, ["2.5"], 2.5),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, ["a", "b"], True, ["a", "b"], ["a", "b"]),
        (
            {"type": "array", "items": {"anyOf": [{"const": "a", "title": "First"}, {"const": "b"}]}},
            ["First", "b"],
            True,
            ["First"],
            ["a"],
        ),
    ],
)
def test_every_kind_of_field_is_a_question_whose_answer_is_a_value_of_its_type(
    field: dict[str, Any], options: list[str], is_multiple: bool, answer: list[str], value: object
) -> None:
    """Elicitation, "Supported Schema Types"."""
    schema = {"type": "object", "properties": {"it": field}, "required": ["it"]}
    form = ElicitRequestFormParams(message="Which?", requested_schema=schema)
    labels = [{"label": each} for each in options]
    expected = {"question": "Which?\nit", "header": "it", "options": labels, "multiSelect": is_multiple}
    assert questions_for(form) == {"questions": [expected]}
    assert response_to(form, [answer]).model_dump(exclude_none=True) == {"action": "accept", "content": {"it": value}}


def test_an_optional_field_can_be_skipped_and_then_has_its_default() -> None:
    fields = {"name": {"type": "string"}, "sure": {"type": "boolean", "default": True, "title": "Sure"}}
    form = ElicitRequestFormParams(message="Who?", requested_schema={"type": "object", "properties": fields})
    first, second = questions_for(form)["questions"]
    assert (first["options"], second["options"][-1]) == ([{"label": "skip"}], {"label": "skip"})
    assert response_to(form, [["skip"], ["skip"]]).content == {"sure": True}
    assert response_to(form, [["Ann"], [NO_ANSWER]]).content == {"name": "Ann", "sure": True}, "one text answered it"


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("integer", "many"),
        ("integer", "0"),
        ("integer", "1.5"),
        ("number", "nan"),
        ("number", "inf"),
    ],
)
def test_a_value_that_the_form_does_not_accept_is_refused(kind: str, answer: str) -> None:
    schema = {"type": "object", "properties": {"seats": {"type": kind, "minimum": 1}}, "required": ["seats"]}
    with pytest.raises(UnsuitableAnswer, match=r"^This answer is not accepted: \$\.seats"):
        response_to(ElicitRequestFormParams(message="How many?", requested_schema=schema), [[answer]])


@pytest.mark.parametrize(("answer", "action"), [("accept", "accept"), ("decline", "decline"), ("why?", "decline")])
def test_a_form_without_fields_and_an_address_are_accepted_or_declined(answer: str, action: str) -> None:
    form = ElicitRequestFormParams(message="Go on?", requested_schema={"type": "object", "properties": {}})
    assert response_to(form, [[answer]]).action == action
    address = ElicitRequestURLParams(message="Sign in", url="https://bank.example/in", elicitation_id="e")
    assert questions_for(address)["questions"][0]["question"] == "Sign in\nhttps://bank.example/in"
    assert response_to(address, [[answer]]).model_dump(exclude_none=True) == {"action": action}


# --- in a session -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def clerk(tmp_path: Path) -> AsyncIterator[AgentHarness]:
    """An agent that calls the tool which the user names, on the older server."""
    server = older(tmp_path)

    @agent(tools=[server])
    async def clerk(run: Any) -> AsyncIterator[str]:
        yield str(await run.call(run.text))

    async with asyncio.timeout(SLOW_S):
        await serving.start([clerk])
    async with agent_harness(tmp_path, clerk) as harness:
        yield harness
    await serving.close([clerk])


async def asked(harness: AgentHarness, tool: str) -> Session:
    """A session in which the server's tool has asked the user."""
    session = await harness.session()
    assert await session.send_and_wait(tool) == "tool_use"
    return session


async def questions(session: Session) -> list[str]:
    (call,) = (await session.live()).state.waiting_calls()
    return [each["question"] for each in call.shown().input["questions"]]


async def last_line(session: Session) -> str:
    return (await session.summary_lines())[-1].removeprefix("assistant: ")


async def answer(session: Session, seats: str) -> str:
    text = json.dumps({"selections": {"1": ["pasta"]}, "custom": {"0": seats}})
    stop = await session.give_result(text)
    return await last_line(session) if stop == "end_turn" else stop


async def test_an_older_servers_question_is_the_sessions_and_its_answer_goes_back_once(
    clerk: AgentHarness, tmp_path: Path
) -> None:
    session = await asked(clerk, "book")
    assert await questions(session) == ["Which train seat?\nSeats", "meal"]
    assert await answer(session, "none") == "tool_use"
    assert (await questions(session))[0].startswith("This answer is not accepted: $.seats")
    result = json.loads(await answer(session, "2"))
    assert result == {"action": "accept", "content": {"seats": 2, "meal": "pasta"}}
    assert calls_of(tmp_path) == 1


async def test_nobody_is_asked_while_another_users_call_could_be_the_one_that_asks(
    clerk: AgentHarness, tmp_path: Path
) -> None:
    """Over stdio, the older server does not say which call asks."""
    one, two = await asked(clerk, "book"), await clerk.session()
    assert await two.send_and_wait("book") == "end_turn"
    assert await last_line(two) == '{"action": "cancel"}'
    assert json.loads(await answer(one, "1"))["content"]["seats"] == 1
    assert await two.send_and_wait("book") == "tool_use", "it is the only call again"
    assert json.loads(await answer(two, "2"))["content"]["seats"] == 2
    assert calls_of(tmp_path) == 3


async def test_a_question_that_nobody_will_answer_keeps_no_other_user_from_being_asked(
    clerk: AgentHarness, tmp_path: Path
) -> None:
    denied, left, stopped, deleted = [await clerk.session() for _ in range(4)]
    for session in (denied, left, stopped, deleted):
        assert await session.send_and_wait("book") == "tool_use", "the one before has ended"
        if session is denied:
            await session.deny()
        elif session is left:
            await session.send_and_wait("plain")
        elif session is stopped:
            await clerk.engine.stop_run(await session.live())
        else:
            await clerk.engine.delete(await session.live())
    last = await asked(clerk, "book")
    assert json.loads(await answer(last, "2"))["content"]["seats"] == 2
    assert calls_of(tmp_path) == 5


async def test_what_a_stopped_call_asks_reaches_nobody_and_later_calls_can_ask_again(tmp_path: Path) -> None:
    async with started(older(tmp_path)) as server:
        stopped = asyncio.create_task(run(server, "wait"))
        assert await run(server, "plain") == "plain", "the server has read the call before"
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        assert await run(server, "book") == '{"action": "cancel"}', "the server could ask for the stopped call"
        with pytest.raises(Deferred):
            await run(server, "book")


async def test_a_call_whose_question_nobody_answers_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never() -> CallToolResult:
        await asyncio.Event().wait()
        raise AssertionError("nothing sets the event")

    monkeypatch.setattr(mcp_questions, "ANSWER_TIMEOUT_S", 0.0)
    call = ServerCall(never, can_ask=True, first_answers=())
    form = ElicitRequestFormParams(message="Go on?", requested_schema={"type": "object", "properties": {}})
    assert (await call.ask(form)).action == "cancel"
    await asyncio.wait([call.task], timeout=DEADLINE_S)
    assert call.task.cancelled()


async def test_after_a_restart_only_a_repeatable_call_is_made_again_with_the_answer(tmp_path: Path) -> None:
    for tool, count in (("book", 1), ("quote", 3)):
        server = older(tmp_path)

        @agent(tools=[server])
        async def clerk(run: Any) -> AsyncIterator[str]:
            yield str(await run.call(run.text))

        await serving.start([clerk])
        async with agent_harness(tmp_path / tool, clerk) as harness:
            session = await asked(harness, tool)
            await harness.stop()
            await serving.close([clerk])
            await serving.start([clerk])
            await harness.start()
            text = json.dumps({"selections": {"1": ["fish"]}, "custom": {"0": "2"}})
            stop = await session.give_result(text)
            end = await session.summary_lines()
            if tool == "quote":
                assert json.loads(await last_line(session))["content"] == {"seats": 2, "meal": "fish"}
            else:
                assert stop == "error"
                assert "no longer waits for this answer; the tool may or may not have had an effect" in end[-1]
            assert calls_of(tmp_path) == count
        await serving.close([clerk])


async def test_nobody_is_asked_in_a_headless_run(clerk: AgentHarness) -> None:
    session = await clerk.session()
    await session.send("book", metadata=RunMetadata(headless=True))
    assert await session.wait_for_end() == "end_turn"
    assert await last_line(session) == '{"action": "cancel"}'


@pytest.mark.slow
async def test_a_server_of_the_newest_version_asks_over_http(tmp_path: Path) -> None:
    async with http_program(0) as port:
        server = McpServer.http("far", f"http://127.0.0.1:{port}/mcp", tools=["travel"])

        @agent(tools=[server])
        async def clerk(run: Any) -> AsyncIterator[str]:
            yield str(await run.call("travel", place=run.text))

        async with asyncio.timeout(SLOW_S):
            await serving.start([clerk])
        async with agent_harness(tmp_path, clerk) as harness:
            rome, oslo = await harness.session(), await harness.session()
            await asyncio.gather(rome.send("Rome"), oslo.send("Oslo"))
            assert [await rome.wait_for_end(), await oslo.wait_for_end()] == ["tool_use", "tool_use"]
            assert await questions(rome) == ["Travel to Rome?\nAgreed"]
            assert await oslo.choose(1) == "end_turn"
            assert await rome.choose(0) == "end_turn"
            assert [await last_line(each) for each in (rome, oslo)] == ["went to Rome: True", "went to Oslo: False"]
        await serving.close([clerk])
