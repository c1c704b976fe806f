"""Conversations as data, independent of the protocol: what a user and an application do, and what they observe.

Each protocol has a `Driver` that performs the steps and reports its observations. `play` runs any conversation with any
driver that can express it, on any server, optionally with restarts between the steps. A driver declares what its
protocol can express; `play` does not expect the rest.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, Protocol, runtime_checkable

Json = Any

# --- observations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ObservedPrompt:
    """A user's message in the history."""

    text: str


@dataclass(frozen=True)
class ObservedText:
    """Text of the agent. Consecutive texts count as one."""

    text: str


@dataclass(frozen=True)
class ObservedThinking:
    """Reasoning of the agent."""

    text: str


@dataclass(frozen=True)
class ObservedCall:
    """A tool call. Arguments of None are not compared."""

    name: str
    arguments: dict[str, Json] | None = None


@dataclass(frozen=True)
class ObservedResult:
    """The result of a call, identified by the tool's name."""

    name: str
    result: str


@dataclass(frozen=True)
class ObservedPlan:
    """A plan, by the titles of its steps."""

    titles: tuple[str, ...]


Observation = ObservedPrompt | ObservedText | ObservedThinking | ObservedCall | ObservedResult | ObservedPlan
Stop = Literal["end_turn", "tool_use", "max_tokens", "refusal", "max_steps", "cancelled", "error"]

# --- actions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prompt:
    """The user sends a message."""

    text: str


@dataclass(frozen=True)
class Result:
    """The application returns the result of its tool."""

    name: str
    text: str


@dataclass(frozen=True)
class Allow:
    """The user allows a call."""

    name: str


@dataclass(frozen=True)
class Deny:
    """The user denies a call."""

    name: str
    reason: str | None = None


@dataclass(frozen=True)
class Choose:
    """The user answers a question."""

    selections: tuple[str, ...] = ()
    custom: str | None = None
    name: str = "AskUserQuestion"


Answer = Result | Allow | Deny | Choose

QUESTIONS = frozenset({"AskUserQuestion", "choose"})
"""The tools that ask the user: the server's own, and the one of the frameworks' agents (`tests/adapters/scenes.py`)."""


@dataclass(frozen=True)
class Answers:
    """Answers to all open calls."""

    answers: tuple[Answer, ...]


Input = Prompt | Answers


@dataclass(frozen=True)
class Exchange:
    """An input, and what is observed of its run.

    `expected_in_history`: results of calls that a new message closed. The run's stream may begin with them.
    """

    input: Input
    expected: tuple[Observation, ...]
    stop: Stop = "end_turn"
    expected_in_history: tuple[ObservedResult, ...] = ()


@dataclass(frozen=True)
class Interruption:
    """A run that is ended after some text: by deleting the session or by stopping the run."""

    input: Prompt
    after_text: str
    how: Literal["delete", "stop"]


@dataclass(frozen=True)
class Crash:
    """The server is killed during a run, after some text, and restarted. The client reads on."""

    input: Prompt
    after_text: str
    expected: tuple[Observation, ...]
    stop: Stop = "end_turn"


@dataclass(frozen=True)
class Rewind:
    """The user goes back to before this prompt, in the way of the protocol."""

    prompt: str


Step = Exchange | Interruption | Crash | Rewind
Feature = Literal[
    "client tools", "permissions", "questions", "sub-agents", "delete", "stop", "rejoin", "history", "rewind"
]


@dataclass(frozen=True)
class Setup:
    """The tools that are enabled in the session, by name."""

    trusted: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()
    client_tools: tuple[str, ...] = ()


@dataclass(frozen=True)
class Conversation:
    """A conversation with the rehearsal agent in a new session."""

    name: str
    steps: tuple[Step, ...]
    setup: Setup = Setup()
    needs: frozenset[Feature] = frozenset()

    def crashes(self) -> bool:
        return any(isinstance(step, Crash) for step in self.steps)


# --- drivers ----------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What was observed of a run, and why it stopped."""

    observed: list[Observation]
    stop: Stop


class Driver(Protocol):
    """One session over one protocol. `connect` is called again after every restart."""

    features: frozenset[Feature]
    observable: frozenset[type]
    """The observations that the protocol can express, in streams and in histories."""
    stops: dict[Stop, Stop]
    """Maps stop reasons that the protocol does not have to those that it reports instead."""

    def connect(self, server: "Server") -> None:
        """Use this server from now on."""

    async def begin(self, setup: Setup) -> None:
        """Create the session."""

    async def run(self, user_input: Input) -> Outcome:
        """Send an input and read to the end of the run."""

    async def start(self, user_input: Prompt, after_text: str) -> None:
        """Send an input and read until this text has arrived; the run continues."""

    async def rejoin(self) -> Outcome:
        """Read the rest of the run that `start` began, from the current server. Earlier observations count."""

    async def interrupt(self, how: Literal["delete", "stop"]) -> Outcome:
        """End the run that `start` began, and read the rest."""

    async def history(self) -> list[Observation]:
        """Fetch the whole history."""

    async def is_gone(self) -> bool:
        """Whether the session was deleted."""


@runtime_checkable
class RewindingDriver(Protocol):
    """A driver whose protocol has branches."""

    async def rewind(self, prompt: str) -> None:
        """Go back to before a message of the user."""


class Server(Protocol):
    """The server of a conversation. `connection` sends requests to it, and changes with every start."""

    connection: Any

    def key(self, name: str) -> str:
        """The API key of that name."""

    async def restart(self) -> None:
        """Stop gracefully, and start again on the same data."""

    async def crash(self) -> None:
        """Get killed, and start again on the same data."""


async def play(
    conversation: Conversation,
    driver: Driver,
    server: Server,
    restart_before: Callable[[int], bool] = lambda index: False,
) -> None:
    """Perform a conversation, and compare the observations of each step and the history after it.

    Args:
        conversation: the conversation.
        driver: performs it over a protocol.
        server: the server.
        restart_before: whether to restart the server before the step with this index.
    """
    driver.connect(server)
    await driver.begin(conversation.setup)
    history: list[Observation] = []
    for index, step in enumerate(conversation.steps):
        if restart_before(index):
            await server.restart()
            driver.connect(server)
        match step:
            case Exchange():
                outcome = await driver.run(step.input)
                closed = step.expected_in_history
                is_shown = any(each in outcome.observed for each in closed)
                expect(outcome, (*closed, *step.expected) if is_shown else step.expected, step.stop, driver)
            case Interruption():
                await driver.start(step.input, step.after_text)
                outcome = await driver.interrupt(step.how)
                if step.how == "delete":  # the text is deleted with the session; only the end is observable
                    outcome.observed = [ObservedText(step.after_text)]
                expect(outcome, (ObservedText(step.after_text),), "cancelled", driver)
            case Crash():
                await driver.start(step.input, step.after_text)
                await server.crash()
                driver.connect(server)
                outcome = await driver.rejoin()
                expect(outcome, step.expected, step.stop, driver)
            case Rewind(prompt):
                assert isinstance(driver, RewindingDriver), f"{type(driver).__name__} has no branches"
                await driver.rewind(prompt)
        if isinstance(step, Interruption) and step.how == "delete":
            assert await driver.is_gone()
            return
        if isinstance(step, Rewind):  # some protocols tell the server with the next message
            del history[history.index(ObservedPrompt(step.prompt)) :]
            continue
        history += history_entries(step)
        if "history" in driver.features:
            actual = comparable(await driver.history(), driver.observable)
            assert actual == comparable(history, driver.observable), (conversation.name, index)


def expect(outcome: Outcome, expected: Iterable[Observation], stop: Stop, driver: Driver) -> None:
    """Check a run's observations, as far as the protocol can express them."""
    assert comparable(outcome.observed, driver.observable) == comparable(expected, driver.observable)
    assert outcome.stop == driver.stops.get(stop, stop)


def history_entries(step: Exchange | Interruption | Crash) -> list[Observation]:
    """The entries that a step adds to the history."""
    observed: tuple[Observation, ...] = (
        (ObservedText(step.after_text),) if isinstance(step, Interruption) else step.expected
    )
    match step.input:
        case Prompt(text):
            hidden = step.expected_in_history if isinstance(step, Exchange) else ()
            return [*hidden, ObservedPrompt(text), *observed]
        case Answers(answers):
            results = [ObservedResult(each.name, each.text) for each in answers if isinstance(each, Result)]
            chosen = [ObservedResult(each.name, "") for each in answers if isinstance(each, Choose)]
            return [*results, *chosen, *observed]


def comparable(observed: Iterable[Observation], observable: frozenset[type]) -> list[Observation]:
    """Normalize observations: drop what the protocol cannot express, join texts, blank the results of questions.

    Consecutive calls are sorted, and so are consecutive results: calls that run side by side have no fixed order, and
    some protocols show a call when it starts.
    """
    result: list[Observation] = []
    for each in observed:
        if type(each) not in observable | {ObservedPrompt}:
            continue
        last = result[-1] if result else None
        if isinstance(each, ObservedText) and isinstance(last, ObservedText):
            result[-1] = ObservedText(last.text + each.text)
        elif isinstance(each, ObservedThinking) and isinstance(last, ObservedThinking):
            result[-1] = ObservedThinking(last.text + each.text)
        elif isinstance(each, ObservedCall) and each.name in QUESTIONS:
            if last != ObservedCall("AskUserQuestion"):  # some protocols show a tool that asks, and its question
                result.append(ObservedCall("AskUserQuestion"))
        elif isinstance(each, ObservedCall) and each.name == "Agent":
            result.append(ObservedCall(each.name))
        elif isinstance(each, ObservedResult) and each.name in QUESTIONS:
            if last != ObservedResult("AskUserQuestion", ""):
                result.append(ObservedResult("AskUserQuestion", ""))
        else:
            result.append(each)
    return [
        each
        for kind, group in groupby(result, type)
        for each in (sorted(group, key=str) if kind in (ObservedCall, ObservedResult) else group)
    ]


# --- the conversations ------------------------------------------------------------------------------------------------


def script(*steps: dict[str, Json]) -> str:
    """A message that makes the rehearsal agent perform these steps."""
    return json.dumps({"script": steps}, ensure_ascii=False)


def call(name: str, **arguments: Json) -> dict[str, Json]:
    """A step with one call."""
    return {"call": {"name": name, "input": arguments}}


def calls(*named: tuple[str, dict[str, Json]]) -> dict[str, Json]:
    """A step with several concurrent calls."""
    return {"calls": [{"name": name, "input": arguments} for name, arguments in named]}


HELLO = Exchange(Prompt("hello"), (ObservedText("Hello! I am the rehearsal agent."),))
MIX = calls(("paint", {"colour": "blue"}), ("stamp", {"text": "x"}), ("add", {"a": 1, "b": 2}))
MIXED = Exchange(
    Prompt(script({"say": "Working. "}, MIX, {"say": "{results}"})),
    (
        ObservedText("Working. "),
        ObservedCall("paint", {"colour": "blue"}),
        ObservedCall("stamp", {"text": "x"}),
        ObservedCall("add", {"a": 1, "b": 2}),
        ObservedResult("add", "3"),
    ),
    "tool_use",
)
EVERYTHING_ON = Setup(trusted=("add", "boom"), untrusted=("stamp",), client_tools=("paint",))
CANCELLED = "Tool call cancelled: a new user message arrived"
STAMPING = Exchange(
    Prompt(script(call("stamp", text="x"), {"say": "Then: {result}"})),
    (ObservedCall("stamp", {"text": "x"}),),
    "tool_use",
)
QUESTION_ASKED = Exchange(Prompt("ask me"), (ObservedCall("AskUserQuestion"),), "tool_use")

CONVERSATIONS = (
    Conversation(
        "a greeting and an echo",
        (HELLO, Exchange(Prompt("Grüße, 🧑‍🚀"), (ObservedText("You said: Grüße, 🧑‍🚀"),)), HELLO),
    ),
    Conversation(
        "reasoning",
        (Exchange(Prompt("think"), (ObservedThinking("Let me think."), ObservedText("Done thinking."))), HELLO),
    ),
    Conversation(
        "a tool of the server",
        (
            Exchange(
                Prompt("add 1 and 2"),
                (ObservedCall("add", {"a": 1, "b": 2}), ObservedResult("add", "3"), ObservedText("The sum is 3.")),
            ),
            Exchange(
                Prompt(script(call("boom"), {"say": "so what"})),
                (
                    ObservedCall("boom", {}),
                    ObservedResult("boom", "Tool execution failed: boom"),
                    ObservedText("so what"),
                ),
            ),
            Exchange(Prompt(script({"recall": "user"})), (ObservedText("add 1 and 2"),)),
        ),
        EVERYTHING_ON,
    ),
    Conversation(
        "a tool of the application, twice in a run",
        (
            Exchange(
                Prompt(
                    script(
                        call("paint", c=1), {"say": "first {result}. "}, call("paint", c=2), {"say": "then {result}."}
                    )
                ),
                (ObservedCall("paint", {"c": 1}),),
                "tool_use",
            ),
            Exchange(
                Answers((Result("paint", "red"),)),
                (ObservedText("first red. "), ObservedCall("paint", {"c": 2})),
                "tool_use",
            ),
            Exchange(Answers((Result("paint", "green"),)), (ObservedText("then green."),)),
            HELLO,
        ),
        EVERYTHING_ON,
        frozenset({"client tools"}),
    ),
    Conversation(
        "a permission, granted",
        (
            STAMPING,
            Exchange(
                Answers((Allow("stamp"),)), (ObservedResult("stamp", "stamped x"), ObservedText("Then: stamped x"))
            ),
        ),
        EVERYTHING_ON,
        frozenset({"permissions"}),
    ),
    Conversation(
        "a permission, denied with a reason and without",
        (
            STAMPING,
            Exchange(
                Answers((Deny("stamp", "not today"),)),
                (
                    ObservedResult("stamp", "Tool call denied: not today"),
                    ObservedText("Then: Tool call denied: not today"),
                ),
            ),
            STAMPING,
            Exchange(
                Answers((Deny("stamp"),)),
                (ObservedResult("stamp", "Tool call denied"), ObservedText("Then: Tool call denied")),
            ),
        ),
        EVERYTHING_ON,
        frozenset({"permissions"}),
    ),
    Conversation(
        "three kinds of call in one step",
        (
            MIXED,
            Exchange(
                Answers((Result("paint", "blue"), Allow("stamp"))),
                (ObservedResult("stamp", "stamped x"), ObservedText("blue, stamped x, 3")),
            ),
            HELLO,
        ),
        EVERYTHING_ON,
        frozenset({"client tools", "permissions"}),
    ),
    Conversation(
        "open calls that a new message closes",
        (
            MIXED,
            Exchange(
                HELLO.input,
                HELLO.expected,
                expected_in_history=(ObservedResult("paint", CANCELLED), ObservedResult("stamp", CANCELLED)),
            ),
            HELLO,
        ),
        EVERYTHING_ON,
        frozenset({"client tools", "permissions"}),
    ),
    Conversation(
        "a question, answered with an option and with free text",
        (
            QUESTION_ASKED,
            Exchange(Answers((Choose(("production",)),)), (ObservedText("You chose production."),)),
            QUESTION_ASKED,
            Exchange(Answers((Choose(custom="neither"),)), (ObservedText("You chose neither."),)),
        ),
        needs=frozenset({"questions"}),
    ),
    Conversation(
        "a sub-agent at work",
        (
            Exchange(
                Prompt(
                    script({"fork": {"description": "dig", "script": [{"say": "gold"}]}}, {"say": "found {result}"})
                ),
                (ObservedCall("Agent"), ObservedResult("Agent", "gold"), ObservedText("found gold")),
            ),
            HELLO,
        ),
        needs=frozenset({"sub-agents"}),
    ),
    Conversation(
        "a plan",
        (
            Exchange(
                Prompt(
                    script(
                        {"plan": {"status": "in_progress", "steps": [{"title": "dig", "status": "pending"}]}},
                        {"say": "ok"},
                    )
                ),
                (ObservedPlan(("dig",)), ObservedText("ok")),
            ),
        ),
    ),
    Conversation(
        "runs that end early, and the session continues",
        (
            Exchange(Prompt(script({"say": "half"}, {"fail": "internal words"})), (ObservedText("half"),), "error"),
            Exchange(
                Prompt(script({"say": "cut of"}, {"stop": "max_tokens"})), (ObservedText("cut of"),), "max_tokens"
            ),
            Exchange(Prompt(script({"say": "no"}, {"stop": "refusal"})), (ObservedText("no"),), "refusal"),
            Exchange(
                Prompt(script(*[call("add", a=1, b=1)] * 26)),
                (ObservedCall("add", {"a": 1, "b": 1}), ObservedResult("add", "2")) * 25,
                "max_steps",
            ),
            HELLO,
        ),
        EVERYTHING_ON,
    ),
    Conversation(
        "a session that is deleted while it runs",
        (HELLO, Interruption(Prompt(script({"say": "one"}, {"wait_ms": 600_000}, {"say": "two"})), "one", "delete")),
        needs=frozenset({"delete"}),
    ),
    Conversation(
        "a run that is stopped",
        (
            HELLO,
            Interruption(Prompt(script({"say": "one"}, {"wait_ms": 600_000}, {"say": "two"})), "one", "stop"),
            HELLO,
        ),
        needs=frozenset({"stop"}),
    ),
    Conversation(
        "a server that is killed during a run",
        (
            HELLO,
            Crash(
                Prompt(
                    script(
                        {"say": "first. "}, {"step": True}, {"say": "counting "}, {"wait_ms": 2_000}, {"say": "done"}
                    )
                ),
                "first. counting ",
                (ObservedText("first. counting counting done"),),
            ),
            HELLO,
        ),
        needs=frozenset({"rejoin"}),
    ),
)
