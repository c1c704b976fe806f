"""`dragoman.testing`: what a test sees of an agent, and what it reads when something is wrong."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog

from dragoman import Agent, Data, Run, SelectOption, ToolContext, agent, tool
from dragoman.client import Client
from dragoman.core.agent import AgentError
from dragoman.core.content import Thinking, Usage
from dragoman.core.events import RunStarted, RunStopped
from dragoman.ports.models import ModelRequest, ModelUnavailable
from dragoman.server.loading import load
from dragoman.testing import AgentFailed, Deny, Pending, Scripted, UnusedAnswers, call, play, play_async, think
from dragoman.testing.fixtures import ServeAgents

EXAMPLES = Path(__file__).parents[2] / "examples"


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@tool(needs_approval=True)
def send(to: str) -> str:
    """Send a message."""
    return f"sent to {to}"


calculator = Agent("calculator", tools=[add], instructions="Calculate.")
postman = Agent("postman", tools=[send], ask_user=True)


@agent(options=[SelectOption(name="size", options=("small", "large"), default="small")])
async def shop(run: Run) -> AsyncIterator[str | Data]:
    """Asks twice in the same breath."""
    topping = await run.ask("Topping?", ["basil", "olives"], multiple=True)
    run.share({"topping": topping})
    yield f"{run.option('size')} with {topping}"
    yield Data({"topping": topping})


@agent
async def broken(run: Run) -> AsyncIterator[str]:
    """Fails."""
    yield "so far"
    raise KeyError(run.text)


# --- what a test sees -------------------------------------------------------------------------------------------------


def test_a_conversation_has_texts_calls_usage_and_a_log() -> None:
    model = Scripted([[think("A sum."), "Let me see. ", call("add", a=20, b=22)], "It is 42.", "Bye."])
    played = play(calculator, "What is 20 + 22?", "Thanks", model=model)
    assert (played.text, played.thinking, played.stop, played.waiting) == ("Bye.", "", "end_turn", [])
    assert played.calls == [("add", {"a": 20, "b": 22}, "42", False)]
    assert played.usage == Usage(input_tokens=30, output_tokens=15)
    kinds = [type(each) for each in played.events if isinstance(each, RunStarted | RunStopped)]
    assert kinds == [RunStarted, RunStopped] * 2
    first = play(calculator, "What is 20 + 22?", model=Scripted(model.answers)).blocks[0]
    assert first == Thinking("A sum.")


def test_a_conversation_prints_nothing_and_leaves_the_logging_of_its_program_alone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    structlog.reset_defaults()
    play(calculator, "Hi", model=Scripted(["Hello."]))
    assert capfd.readouterr() == ("", "")
    assert not structlog.is_configured()


def test_what_the_model_got_can_be_read() -> None:
    model = Scripted([call("add", a=1, b="two"), lambda request: f"{len(request.messages)} messages"])
    assert play(calculator, "Add", model=model).text == "3 messages"
    assert model.read(0) == ["user: Add"]
    assert model.read() == [
        "user: Add",
        'assistant: add({"a":1,"b":"two"})',
        'tool: Tool execution failed: b: expected int, got "two"',
    ]
    assert [(each.instructions, [spec.name for spec in each.tools]) for each in model.requests] == [
        ("Calculate.", ["add"])
    ] * 2
    with pytest.raises(IndexError, match="request 2 of 2"):
        model.read(2)


def test_what_is_not_answered_waits() -> None:
    played = play(postman, "Write", model=Scripted([[call("send", to="Ann"), call("send", to="Bob")]]))
    assert (played.stop, played.text) == ("tool_use", "")
    assert played.waiting == [Pending("permission", "send", {"to": name}) for name in ("Ann", "Bob")]
    assert [each.result for each in played.calls] == [None, None]


def test_approvals_are_given_one_by_one() -> None:
    model = Scripted([[call("send", to="Ann"), call("send", to="Bob")], "Done."])
    played = play(postman, "Write", model=model, answers=[True, Deny(reason="on holiday")])
    assert [each.result for each in played.calls] == ["sent to Ann", "Tool call denied: on holiday"]
    assert played.text == "Done."


def test_a_function_gets_its_answers_and_options() -> None:
    played = play(shop, "A pizza", answers=[["basil", "olives"]], options={"size": "large"})
    assert (played.text, played.state) == ("large with basil, olives", {"topping": "basil, olives"})
    assert Data({"topping": "basil, olives"}) in played.blocks
    assert play(shop, "A pizza", answers=["nothing"]).text == "small with nothing"


def test_a_sub_agent_has_the_same_model() -> None:
    boss = Agent("boss", subagents=[calculator])
    model = Scripted([call("Agent", agent="calculator", task="1 + 1"), call("add", a=1, b=1), "2", "It is 2."])
    assert play(boss, "Sum", model=model).calls == [("Agent", {"agent": "calculator", "task": "1 + 1"}, "2", False)]


async def test_a_coroutine_plays_too() -> None:
    assert (await play_async(calculator, "Hi", model=Scripted(["Hello!"]))).text == "Hello!"
    with pytest.raises(RuntimeError, match="play_async"):
        play(calculator, "Hi", model=Scripted(["Hello!"]))


def test_the_trip_of_the_examples_can_be_played() -> None:
    (trip,) = load(str(EXAMPLES / "trip.py"))
    played = play(trip, "Rome", options={"class": "first"}, answers=["RO 13", True])
    assert played.text.endswith("Done: ticket for RO 13, first class, 59 EUR. It leaves at 13:15.")


def test_a_served_app_answers_a_client(serve_agents: ServeAgents) -> None:
    server = serve_agents(calculator, broken, model=Scripted([call("add", a=1, b=2), "3"]))
    with Client(server.url, key=server.key) as client:
        assert [each.name for each in client.agents()] == ["calculator", "broken"]
        assert client.create(trusted_tools=["add"]).ask("1 + 2").text == "3"


# --- what a test reads when something is wrong ------------------------------------------------------------------------


def test_an_exception_of_the_agent_is_shown_with_its_line() -> None:
    with pytest.raises(AgentFailed) as failed:
        play(broken, "x")
    line = next(number for number, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "raise Key" in text)
    assert (failed.value.code, failed.value.message) == (
        "agent_error",
        f"The agent failed: KeyError: 'x' (test_play.py:{line})",
    )
    assert failed.value.played.text == "so far"


@agent
async def misconfigured(run: Run) -> AsyncIterator[str]:
    if run.text:
        raise AgentError("model_error", "The model failed", details="status 401: no such key")
    yield ""


def test_the_message_of_a_model_s_provider_is_shown() -> None:
    with pytest.raises(AgentFailed) as failed:
        play(misconfigured, "x")
    assert (failed.value.code, failed.value.message) == (
        "model_error",
        "The model failed: status 401: no such key",
    )


@tool
def count(context: ToolContext) -> str:
    """Count."""
    return "1"


def endless(request: ModelRequest) -> object:
    return call("count")


@pytest.mark.parametrize(
    ("played", "arguments", "error", "text"),
    [
        (calculator, {}, AgentFailed, "give the test one with model=Scripted"),
        (calculator, {"model": Scripted([])}, AgentFailed, "has 0 answers and was called 1 times; .* user: Hi"),
        (calculator, {"model": Scripted([ModelUnavailable("down")])}, AgentFailed, "currently unavailable"),
        (calculator, {"model": Scripted(["Hi"]), "answers": [True]}, UnusedAnswers, r"left over: \[True\]"),
        (broken, {"model": Scripted(["Hi"])}, AgentFailed, "KeyError"),
        (Agent("own", model=Scripted(["Hi"])), {"model": Scripted(["Ho"])}, UnusedAnswers, "never called the scripted"),
        (shop, {"answers": [True]}, TypeError, r"AskUserQuestion\(.*waits for an answer: .*; got True"),
        (shop, {"answers": [["salami"]]}, Exception, "none of the options basil, olives"),
        (shop, {"answers": "basil"}, TypeError, r"write answers=\['basil'\]"),
        (shop, {"options": {"size": "huge"}}, Exception, "size"),
        ("shop", {}, TypeError, "expected an agent, got 'shop'"),
    ],
)
def test_mistakes_are_explained(
    played: object, arguments: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        play(played, "Hi", **arguments)  # type: ignore[arg-type]  # mistakes


def test_a_script_is_a_list() -> None:
    with pytest.raises(TypeError, match=r"write Scripted\(\['Hello'\]\)"):
        Scripted("Hello")


def test_a_conversation_loads_no_protocol() -> None:
    """Not even one that is new."""
    code = """
import sys
from dragoman import Agent
from dragoman.testing import Scripted, play
assert play(Agent("a"), "Hello", model=Scripted(["Hi"])).text == "Hi"
print(*(name for name in sys.modules if name.startswith("dragoman.protocols.") and name.endswith(".http")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("", "")
