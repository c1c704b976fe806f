"""Conversations as data, in the words of the core: what a person and an application do, and what they see.

A conversation names no protocol. A protocol adds one `Driver` that says the steps in its own words and tells what came
back; `play` runs any conversation through any driver that can express it, on any server, with restarts between the
steps where asked. What a protocol has no form for, its driver declares, and `play` leaves it out of what is expected.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, Protocol

Json = Any

# --- what can be seen -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ObservedPrompt:
    """A person's message, as the history has it."""

    text: str


@dataclass(frozen=True)
class ObservedText:
    """Text of the agent. What it says in a row is one."""

    text: str


@dataclass(frozen=True)
class ObservedThinking:
    """The agent's thinking, where it shows it."""

    text: str


@dataclass(frozen=True)
class ObservedCall:
    """A call of a tool. Arguments of None: they are the core's affair, and not compared."""

    name: str
    arguments: dict[str, Json] | None = None


@dataclass(frozen=True)
class ObservedResult:
    """The result of a call, named by its tool."""

    name: str
    result: str


@dataclass(frozen=True)
class ObservedPlan:
    """A plan was shown: the titles of its steps."""

    titles: tuple[str, ...]


Observation = ObservedPrompt | ObservedText | ObservedThinking | ObservedCall | ObservedResult | ObservedPlan
Stop = Literal["end_turn", "tool_use", "max_tokens", "refusal", "max_steps", "cancelled", "error"]

# --- what can be done -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prompt:
    """A person writes."""

    text: str


@dataclass(frozen=True)
class Result:
    """The application ran its tool."""

    name: str
    text: str


@dataclass(frozen=True)
class Allow:
    """A person allows a call."""

    name: str


@dataclass(frozen=True)
class Deny:
    """A person refuses a call."""

    name: str
    reason: str | None = None


@dataclass(frozen=True)
class Choose:
    """A person answers a question."""

    selections: tuple[str, ...] = ()
    custom: str | None = None


Answer = Result | Allow | Deny | Choose


@dataclass(frozen=True)
class Answers:
    """The answers to all open calls."""

    answers: tuple[Answer, ...]


Input = Prompt | Answers


@dataclass(frozen=True)
class Exchange:
    """An input, and what its run shows until it stops.

    `unseen` are the results that enter the history without a word: of calls that a new message closed.
    """

    input: Input
    expected: tuple[Observation, ...]
    stop: Stop = "end_turn"
    expected_in_history: tuple[ObservedResult, ...] = ()


@dataclass(frozen=True)
class Interruption:
    """A run that somebody ends once it has said something: by deleting the session, or by stopping the run."""

    input: Prompt
    after_text: str
    how: Literal["delete", "stop"]


@dataclass(frozen=True)
class Crash:
    """The server dies inside a run, once it has said something, and comes back. The reader joins again."""

    input: Prompt
    after_text: str
    expected: tuple[Observation, ...]
    stop: Stop = "end_turn"


Step = Exchange | Interruption | Crash
Feature = Literal["client tools", "permissions", "questions", "sub-agents", "delete", "stop", "rejoin", "history"]


@dataclass(frozen=True)
class Setup:
    """What is switched on in the session, by the names of the rehearsal agent's tools."""

    trusted: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()
    client_tools: tuple[str, ...] = ()


@dataclass(frozen=True)
class Conversation:
    """A conversation with the rehearsal agent, from an empty session on."""

    name: str
    steps: tuple[Step, ...]
    setup: Setup = Setup()
    needs: frozenset[Feature] = frozenset()

    def crashes(self) -> bool:
        return any(isinstance(step, Crash) for step in self.steps)


# --- who does it ------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a run showed, and why it stopped, in the core's words."""

    observed: list[Observation]
    stop: Stop


class Driver(Protocol):
    """One session through one protocol. It reaches the server anew after every restart (`connect`)."""

    features: frozenset[Feature]
    observable: frozenset[type]
    """The kinds of `Seen` that the protocol has a form for in a stream, and in a history."""
    stops: dict[Stop, Stop]
    """Reasons that the protocol cannot tell apart from another, by that other."""

    def connect(self, server: "Server") -> None:
        """Go on over this server."""

    async def begin(self, setup: Setup) -> None:
        """Make the session."""

    async def run(self, user_input: Input) -> Outcome:
        """Do it and read to the end of the run."""

    async def start(self, user_input: Prompt, after_text: str) -> None:
        """Do it and read until that has been said; the run goes on."""

    async def rejoin(self) -> Outcome:
        """Go on reading what `start` began, over the server as it is now. What was seen before counts."""

    async def interrupt(self, how: Literal["delete", "stop"]) -> Outcome:
        """End what `start` began and read the rest."""

    async def history(self) -> list[Observation]:
        """The whole history."""

    async def is_gone(self) -> bool:
        """Whether the session was deleted."""


class Server(Protocol):
    """Where conversations take place. `line` is how requests reach it; it changes with every start."""

    connection: Any

    def key(self, name: str) -> str:
        """The key of that name."""

    async def restart(self) -> None:
        """Stop as told, and start again on the same data."""

    async def crash(self) -> None:
        """Die without a word, and start again on the same data."""


async def play(
    conversation: Conversation,
    driver: Driver,
    server: Server,
    restart_before: Callable[[int], bool] = lambda place: False,
) -> None:
    """Hold the conversation and compare all that is seen, step by step, and the history after every step.

    Args:
        restart_before: whether the server is restarted before the step of that place.
    """
    driver.connect(server)
    await driver.begin(conversation.setup)
    history: list[Observation] = []
    for place, step in enumerate(conversation.steps):
        if restart_before(place):
            await server.restart()
            driver.connect(server)
        match step:
            case Exchange():
                outcome = await driver.run(step.input)
                expect(outcome, step.expected, step.stop, driver)
            case Interruption():
                await driver.start(step.input, step.after_text)
                outcome = await driver.interrupt(step.how)
                if step.how == "delete":  # what was under way is gone with the session; that it ended has to be seen
                    outcome.observed = [ObservedText(step.after_text)]
                expect(outcome, (ObservedText(step.after_text),), "cancelled", driver)
            case Crash():
                await driver.start(step.input, step.after_text)
                await server.crash()
                driver.connect(server)
                outcome = await driver.rejoin()
                expect(outcome, step.expected, step.stop, driver)
        if isinstance(step, Interruption) and step.how == "delete":
            assert await driver.is_gone()
            return
        history += history_entries(step)
        if "history" in driver.features:
            told = comparable(await driver.history(), driver.observable)
            assert told == comparable(history, driver.observable), (conversation.name, place)


def expect(outcome: Outcome, expected: Iterable[Observation], stop: Stop, driver: Driver) -> None:
    """The run showed what it should, as far as the protocol can show it."""
    assert comparable(outcome.observed, driver.observable) == comparable(expected, driver.observable)
    assert outcome.stop == driver.stops.get(stop, stop)


def history_entries(step: Step) -> list[Observation]:
    """What a step adds to the history."""
    sees: tuple[Observation, ...] = (
        (ObservedText(step.after_text),) if isinstance(step, Interruption) else step.expected
    )
    match step.input:
        case Prompt(text):
            unseen = step.expected_in_history if isinstance(step, Exchange) else ()
            return [*unseen, ObservedPrompt(text), *sees]
        case Answers(answers):
            given = [ObservedResult(each.name, each.text) for each in answers if isinstance(each, Result)]
            chosen = [ObservedResult("AskUserQuestion", "") for each in answers if isinstance(each, Choose)]
            return [*given, *chosen, *sees]


def comparable(observed: Iterable[Observation], observable: frozenset[type]) -> list[Observation]:
    """What can be compared: only what the protocol shows, words in a row joined, a question's own result blank.

    Results in a row are sorted: calls that ran or were closed together have no order among each other.
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
        elif isinstance(each, ObservedCall) and each.name in ("Agent", "AskUserQuestion"):
            result.append(ObservedCall(each.name))
        elif isinstance(each, ObservedResult) and each.name == "AskUserQuestion":
            result.append(ObservedResult(each.name, ""))
        else:
            result.append(each)
    return [
        each
        for is_result, group in groupby(result, lambda each: isinstance(each, ObservedResult))
        for each in (sorted(group, key=str) if is_result else group)
    ]


# --- the conversations ------------------------------------------------------------------------------------------------


def script(*steps: dict[str, Json]) -> str:
    """What makes the rehearsal agent play these steps."""
    return json.dumps({"script": steps}, ensure_ascii=False)


def call(name: str, **arguments: Json) -> dict[str, Json]:
    """A script's step with one call."""
    return {"call": {"name": name, "input": arguments}}


def calls(*named: tuple[str, dict[str, Json]]) -> dict[str, Json]:
    """A script's step with several calls at once."""
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
        "thinking aloud",
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
        "a question, answered from the list and in one's own words",
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
        "runs that end early, and go on",
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
        "a server that dies while it speaks",
        (
            HELLO,
            Crash(
                Prompt(
                    script({"say": "first. "}, {"step": True}, {"say": "counting "}, {"wait_ms": 500}, {"say": "done"})
                ),
                "first. counting ",
                (ObservedText("first. counting counting done"),),
            ),
            HELLO,
        ),
        needs=frozenset({"rejoin"}),
    ),
)
