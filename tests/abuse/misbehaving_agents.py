"""Agents that misbehave: a model that sends what no model should, and tools that do what no tool should.

The user's message names what they play, so all tests can share one server.
"""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

import msgspec

from dragoman import Agent, Data, File, Image, SecretOption, Text, agent, tool
from dragoman.agents.run import Run
from dragoman.core import agent as contract
from dragoman.core.content import AssistantMessage, Call, Message, Usage, UserMessage, text_of
from dragoman.core.events import StopReason
from dragoman.core.tools import FORK, AgentSpec, Capabilities
from dragoman.ports.models import CallRequested, Finished, ModelEvent, ModelFailed, ModelRequest, TextDelta
from tests.protocols.aap.agents import TOOL_GATES

Json = Any
Part = ModelEvent | BaseException | asyncio.Event

# --- a model ----------------------------------------------------------------------------------------------------------


def call(name: str, **arguments: Json) -> CallRequested:
    return raw_call(name, arguments)


def raw_call(name: str, arguments: Json, raw: str = "") -> CallRequested:
    """A call as an adapter passes it on. If `arguments` is None, the text `raw` was not a JSON object."""
    return CallRequested(id="of-the-provider", name=name, input=arguments, raw=raw)


def text_parts(*texts: str) -> list[ModelEvent]:
    return [*map(TextDelta, texts), Finished(stop="end_turn")]


def calls(*requested: CallRequested) -> list[ModelEvent]:
    return [*requested, Finished(stop="tool_use")]


Play = Callable[[int], Iterable[Part]]
"""What the model sends in step `n` of a turn, from 0. An exception is raised, an event is waited for."""


class WildModel:
    """A `Model` that plays what the latest user message names, and repeats any other message."""

    name = "wild"
    context_window: int | None = None

    def __init__(self, plays: dict[str, Play], always: Play | None = None) -> None:
        self.plays = plays
        self.always = always
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        place, text = newest_prompt(request.messages)
        step = sum(isinstance(message, AssistantMessage) for message in request.messages[place:])
        play = self.always or self.plays.get(text, lambda _: text_parts(f"You said: {text}"))
        for part in play(step):
            match part:
                case BaseException():
                    raise part
                case asyncio.Event():
                    await part.wait()
                case _:
                    yield part


def newest_prompt(messages: Iterable[Message]) -> tuple[int, str]:
    """The index and the text of the latest user message."""
    prompts = [(place, each) for place, each in enumerate(messages) if isinstance(each, UserMessage)]
    return prompts[-1][0], text_of(prompts[-1][1].content)


def parts_in_first_step(*parts: Part) -> Play:
    """These parts in the first step, then a plain answer."""
    return lambda step: parts if step == 0 else text_parts("went on")


def nested(levels: int) -> Json:
    """An object nested this many levels deep."""
    value: Json = {}
    for _ in range(levels):
        value = {"a": value}
    return value


UNUSUAL_NAMES = (
    "",
    "nowhere",
    "__proto__",
    "constructor",
    "a\nb",
    "../../etc/passwd",
    "x" * 10_000,
    "\ud800",
    "\u202eevil",
    "add ",
    "ADD",
)
THOUSAND = 1000

PLAYS: dict[str, Play] = {
    "break before the end": parts_in_first_step(
        TextDelta("half a sen"), call("add", a=1, b=2), ModelFailed("canary-of-the-provider")
    ),
    "end without an end": parts_in_first_step(TextDelta("half a sen"), call("add", a=1, b=2)),
    "say nothing at all": parts_in_first_step(),
    "fail with an error of its own": parts_in_first_step(TextDelta("half"), RuntimeError("canary-of-the-adapter")),
    "exit": parts_in_first_step(TextDelta("half"), SystemExit("canary-of-the-adapter")),
    "call with no JSON": parts_in_first_step(*calls(raw_call("add", None, '{"a": 1, "b'))),
    "call with a list": parts_in_first_step(*calls(raw_call("add", None, "[1, 2]"))),
    "call with surrogates": parts_in_first_step(*calls(call("echo", text="\ud800"))),
    "call with a thousand levels": parts_in_first_step(*calls(call("echo", text=nested(5000)))),
    "call with strange numbers": parts_in_first_step(*calls(call("add", a=float("inf"), b=float("nan")))),
    "call with a huge number": parts_in_first_step(*calls(call("add", a=10**4000, b=1))),
    "call with wrong arguments": parts_in_first_step(*calls(call("add", a="1", c=2))),
    "call what is not there": parts_in_first_step(*calls(*map(call, UNUSUAL_NAMES))),
    "call a thousand times": parts_in_first_step(*calls(*(call("add", a=place, b=0) for place in range(THOUSAND)))),
    "call twice with one id": parts_in_first_step(
        *calls(call("add", a=1, b=1), call("add", a=1, b=1), call("stamp", text="x"))
    ),
    "call for ever": lambda _: calls(call("add", a=1, b=1)),
    "cut by the limit": parts_in_first_step(call("add", a=1, b=1), Finished(stop="max_tokens")),
    "refuse with a call": parts_in_first_step(call("add", a=1, b=1), Finished(stop="refusal")),
    "halves of a character": parts_in_first_step(*text_parts("a\ud83d", "\ude00b", "\ud800", "c")),
    "go on after the end": parts_in_first_step(
        *text_parts("done"), TextDelta("more"), call("add", a=1, b=1), *text_parts("again")
    ),
    "hang": parts_in_first_step(TextDelta("half"), asyncio.Event()),
    "megabytes": parts_in_first_step(*text_parts(*["x" * 100_000] * 50)),
}

# --- tools ------------------------------------------------------------------------------------------------------------


class Unprintable(Exception):
    """An error that cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Unserialisable:
    """An object that cannot be encoded as JSON."""


def self_referencing() -> Json:
    value: list[Json] = []
    value.append(value)
    return value


@tool
def add(a: int, b: int) -> int:
    return a + b


@tool
def echo(text: str) -> str:
    return text


@tool(needs_approval=True)
def stamp(text: str) -> str:
    return f"stamped {text}"


@tool(exposed=False)
def hidden(text: str) -> str:
    return f"hidden {text}"


RAISED: dict[str, Callable[[], BaseException]] = {
    "nothing": lambda: RuntimeError(""),
    "words": lambda: ValueError("not so"),
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "generator": GeneratorExit,
    "cancelled": asyncio.CancelledError,
    "timeout": TimeoutError,
    "unspeakable": Unprintable,
    "surrogates": lambda: RuntimeError("\ud800"),
    "megabytes": lambda: RuntimeError("x" * 5_000_000),
    "several": lambda: BaseExceptionGroup("all of it", [KeyboardInterrupt(), ValueError("x")]),
    "stop": lambda: StopAsyncIteration("x"),
}


@tool
async def fail(kind: str) -> str:
    raise RAISED[kind]()


@tool
def fail_in_a_thread(kind: str) -> str:
    raise RAISED[kind]()


@tool
async def cancel_itself() -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return "never"


RETURNED: dict[str, Callable[[], Json]] = {
    "text": lambda: "x" * 100_000_000,
    "list": lambda: ["x" * 1000] * 100_000,
    "object": lambda: {"x": "y" * 100_000_000},
    "text block": lambda: Text("x" * 100_000_000),
    "image": lambda: Image("data:image/png;base64," + "A" * 100_000_000),
    "file": lambda: File("data:x/y;base64," + "A" * 100_000_000),
    "data": lambda: Data({"x": "y" * 100_000_000}),
}
NO_JSON: dict[str, Callable[[], Json]] = {
    "an object of its own": Unserialisable,
    "a function": lambda: add,
    "itself": self_referencing,
    "a generator": lambda: (each for each in "abc"),
    "a module": lambda: sys,
    "surrogates in an object": lambda: {"x": "\ud800"},
    "surrogates in an image": lambda: Image("data:\ud800"),
}
ODD: dict[str, Callable[[], Json]] = {
    "nothing": lambda: None,
    "nan": lambda: {"x": float("nan")},
    "levels": lambda: nested(300),
    "surrogates": lambda: "a\ud800b",
    "surrogates in a block": lambda: Text("a\ud800b"),
    "huge": lambda: 10**4000,
    "a name of ours": lambda: Image("attachment:" + "0" * 64 + ";image/png;1"),
    "a name that looks like ours": lambda: File("attachment:../../secrets.key"),
    "bytes": lambda: b"\xff\x00",
    "a struct": lambda: Shape(side=3),
}


class Shape(msgspec.Struct):
    side: int


@tool
def return_value(what: str) -> Any:
    return {**RETURNED, **NO_JSON, **ODD}[what]()


@tool
async def wait_for_gate(gate_name: str) -> str:
    await TOOL_GATES.pass_through(gate_name)
    return f"passed {gate_name}"


@tool(timeout_s=0.05)
async def hang() -> str:
    await asyncio.get_running_loop().create_future()
    return "never"


BLOCKED: dict[str, threading.Event] = {}
"""The events that blocked threads wait for, by name."""


@tool(timeout_s=0.05)
def block_past_timeout(name: str) -> str:
    BLOCKED.setdefault(name, threading.Event()).wait(60)
    return "late"


@tool
def block(name: str) -> str:
    BLOCKED.setdefault(name, threading.Event()).wait(60)
    return f"unblocked {name}"


CHILDREN: list[subprocess.Popen[bytes]] = []


@tool
def start_a_process() -> int:
    CHILDREN.append(subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE))
    return CHILDREN[-1].pid


@tool
def print_the_secret(context: contract.ToolContext) -> str:
    secret = context.options["secret"]
    print(secret)  # noqa: T201  # the test needs the tool to print it
    os.write(2, secret.encode() + b"\n")
    raise RuntimeError(f"could not log in with {secret}")


TOOLS = (
    add,
    echo,
    stamp,
    hidden,
    fail,
    fail_in_a_thread,
    cancel_itself,
    return_value,
    wait_for_gate,
    hang,
    block_past_timeout,
    block,
    start_a_process,
    print_the_secret,
)

WILD = WildModel(PLAYS)


@agent(name="tools", tools=TOOLS, options=[SecretOption(name="secret")], history=True)
async def use_a_tool(run: Run) -> None:
    """Runs the tool that the message names, with the JSON after the name as arguments."""
    name, _, arguments = run.text.partition(" ")
    try:
        await run.call(name, **msgspec.json.decode(arguments or "{}"))
    except contract.ToolFailed:
        run.emit("It failed.")
    else:
        run.emit("It worked.")


class Endless:
    """An `Agent` that is its own sub-agent and calls itself."""

    def __init__(self) -> None:
        self.spec = AgentSpec(
            name="endless",
            builtins=frozenset({FORK}),
            capabilities=Capabilities(history_full=True),
        )
        self.depth = 0

    def tool(self, name: str) -> None:
        return None

    def child(self, call: Call) -> "Endless":
        return self

    async def play(self, run: contract.Run) -> StopReason | None:
        turn = await run.turn()
        if not any(isinstance(message, AssistantMessage) for message in turn):
            self.depth += 1
            run.call(FORK, {"agent": "endless", "task": "again"})
            await run.end_step()
        run.emit("back")
        return None


ADDER = WildModel({}, always=lambda _: [call("add", a=1, b=1), Finished(stop="tool_use", usage=Usage(30, 10))])
LEADER = WildModel({}, always=lambda _: calls(call(FORK, agent="worker", task="add")))


def agents() -> list[contract.Agent]:
    """New agents, because a server binds and starts them."""
    return [
        Agent("wild", model=WILD, tools=TOOLS, max_steps=10, history=True, client_tools=True, images=True),
        Agent("spender", model=ADDER, tools=[add], max_run_tokens=100),
        Agent("leader", model=LEADER, subagents=[Agent("worker", model=ADDER, tools=[add], max_steps=3)], max_steps=4),
        use_a_tool,
        Endless(),
    ]
