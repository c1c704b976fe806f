"""The examples: each is loaded as by `dragoman serve`, and run on the real engine."""

import sys
from pathlib import Path

import pytest

from dragoman import Agent
from dragoman.agents.function import FunctionAgent
from dragoman.core.tools import ASK_USER_QUESTION
from dragoman.server.loading import load
from tests.agents.agent_harness import ScriptedModel, agent_harness, call

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def with_model(file: str, model: ScriptedModel) -> Agent:
    """The example's only agent, with a scripted model."""
    (agent,) = load(str(EXAMPLES / file))
    assert isinstance(agent, Agent)
    agent.bind(lambda _: model)
    return agent


async def test_the_assistant_uses_its_two_tools(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            call("convert", amount=100, source="EUR", target="JPY"),
            call("convert", amount=-1, source="EUR", target="GBP"),
            call("time_in", zone="Asia/Tokyo"),
            call("time_in"),
            call("time_in", zone="Nowhere"),
        ],
        "Here you are.",
    )
    async with agent_harness(tmp_path, with_model("assistant.py", model)) as harness:
        session = await harness.session()
        assert await session.send_and_wait("100 euros in yen, and the time there?") == "end_turn"
    good, bad, tokyo, here, nowhere = model.read()[-5:]
    assert good == 'tool: {"amount":16300.0,"currency":"JPY"}'
    assert bad == (
        "tool: Tool execution failed: amount: expected float > 0.0, got -1; "
        'target: expected one of "CHF", "EUR", "JPY", "USD", got "GBP"'
    )
    assert all(line.startswith("tool: ") and "day, " in line for line in (tokyo, here))
    assert nowhere.startswith("tool: Tool execution failed: unknown time zone 'Nowhere'")


@pytest.mark.parametrize(
    ("allowed", "text"),
    [
        (True, "Done: ticket for RO 13, first class, 59 EUR. It leaves at 13:15."),
        (False, "Nothing was bought (Tool call denied)."),
    ],
)
async def test_the_trip_waits_for_its_user_twice(tmp_path: Path, allowed: bool, text: str) -> None:
    (trip,) = load(str(EXAMPLES / "trip.py"))
    assert isinstance(trip, FunctionAgent)
    async with agent_harness(tmp_path, trip) as harness:
        session = await harness.session(options={"class": "first"})
        assert await session.send_and_wait("Rome") == "tool_use"
        assert await session.pending() == [ASK_USER_QUESTION]
        await harness.kill()
        assert await session.choose(0) == "tool_use"
        assert await session.pending() == ["buy"]
        await harness.restart()
        assert await (session.allow() if allowed else session.deny()) == "end_turn"
        assert (await session.summary_lines())[-1] == f"assistant: {text}"


async def test_the_trip_accepts_a_free_text_answer(tmp_path: Path) -> None:
    async with agent_harness(tmp_path, *load(f"{EXAMPLES / 'trip.py'}:trip")) as harness:
        session = await harness.session()
        await session.send_and_wait("Rome")
        assert await session.choose(custom_text="the boat") == "end_turn"
        assert (await session.summary_lines())[-1] == "assistant: There is no train 'the boat'."


async def test_the_secretary_sends_nothing_without_approval(tmp_path: Path) -> None:
    mail = call("send_mail", to="bob@b.example", subject="Hi", body="How are you?")
    model = ScriptedModel([mail], "Not sent.", [mail], "Sent.", [mail], "There is no password.")
    secretary = with_model("approval.py", model)
    outbox = sys.modules["approval"].outbox
    async with agent_harness(tmp_path, secretary) as harness:
        session = await harness.session(options={"mail_password": "pass123"})
        assert await session.send_and_wait("Write to Bob") == "tool_use"
        assert await session.deny("later") == "end_turn"
        assert outbox == []
        assert await session.send_and_wait("Now") == "tool_use"
        await harness.restart()
        assert outbox == []
        assert await session.allow() == "end_turn"
        assert outbox == ["ann to bob@b.example: Hi\nHow are you?"]
        assert model.read()[-1] == "tool: sent to bob@b.example"
        without = await harness.session()
        assert await without.send_and_wait("Write to Bob") == "tool_use"
        assert await without.allow() == "end_turn"
        assert model.read()[-1].endswith("the user has not set the option mail_password yet")
    assert len(outbox) == 1
