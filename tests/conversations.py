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
class Heard:
    """A person's message, as the history has it."""

    text: str


@dataclass(frozen=True)
class Said:
    """Text of the agent. What it says in a row is one."""

    text: str


@dataclass(frozen=True)
class Thought:
    """The agent's thinking, where it shows it."""

    text: str


@dataclass(frozen=True)
class Called:
    """A call of a tool. Arguments of None: they are the core's affair, and not compared."""

    name: str
    arguments: dict[str, Json] | None = None


@dataclass(frozen=True)
class Settled:
    """The result of a call, named by its tool."""

    name: str
    result: str


@dataclass(frozen=True)
class Planned:
    """A plan was shown: the titles of its steps."""

    titles: tuple[str, ...]


Seen = Heard | Said | Thought | Called | Settled | Planned
Stop = Literal["end_turn", "tool_use", "max_tokens", "refusal", "max_steps", "cancelled", "error"]

# --- what can be done -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tell:
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
class Refuse:
    """A person refuses a call."""

    name: str
    reason: str | None = None


@dataclass(frozen=True)
class Choose:
    """A person answers a question."""

    selections: tuple[str, ...] = ()
    custom: str | None = None


Answer = Result | Allow | Refuse | Choose


@dataclass(frozen=True)
class Answers:
    """The answers to all open calls."""

    answers: tuple[Answer, ...]


Input = Tell | Answers


@dataclass(frozen=True)
class Exchange:
    """An input, and what its run shows until it stops.

    `unseen` are the results that enter the history without a word: of calls that a new message closed.
    """

    does: Input
    sees: tuple[Seen, ...]
    stop: Stop = "end_turn"
    unseen: tuple[Settled, ...] = ()


@dataclass(frozen=True)
class Cut:
    """A run that somebody ends once it has said something: by deleting the session, or by stopping the run."""

    does: Tell
    once_said: str
    how: Literal["delete", "stop"]


@dataclass(frozen=True)
class Crash:
    """The server dies inside a run, once it has said something, and comes back. The reader joins again."""

    does: Tell
    once_said: str
    sees: tuple[Seen, ...]
    stop: Stop = "end_turn"


Step = Exchange | Cut | Crash
Feature = Literal["client tools", "permissions", "questions", "sub-agents", "delete", "stop", "rejoin", "history"]


@dataclass(frozen=True)
class Setup:
    """What is switched on in the session, by the names of the rehearsal agent's tools."""

    trusted: tuple[str, ...] = ()
    asking: tuple[str, ...] = ()
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

    sees: list[Seen]
    stop: Stop


class Driver(Protocol):
    """One session through one protocol. It reaches the server anew after every restart (`connect`)."""

    features: frozenset[Feature]
    shows: frozenset[type]
    """The kinds of `Seen` that the protocol has a form for in a stream, and in a history."""
    stops: dict[Stop, Stop]
    """Reasons that the protocol cannot tell apart from another, by that other."""

    def connect(self, server: "Server") -> None:
        """Go on over this server."""

    async def begin(self, setup: Setup) -> None:
        """Make the session."""

    async def run(self, does: Input) -> Outcome:
        """Do it and read to the end of the run."""

    async def start(self, does: Tell, once_said: str) -> None:
        """Do it and read until that has been said; the run goes on."""

    async def rejoin(self) -> Outcome:
        """Go on reading what `start` began, over the server as it is now. What was seen before counts."""

    async def cut(self, how: Literal["delete", "stop"]) -> Outcome:
        """End what `start` began and read the rest."""

    async def history(self) -> list[Seen]:
        """The whole history."""

    async def is_gone(self) -> bool:
        """Whether the session was deleted."""


class Server(Protocol):
    """Where conversations take place. `line` is how requests reach it; it changes with every start."""

    line: Any

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
    history: list[Seen] = []
    for place, step in enumerate(conversation.steps):
        if restart_before(place):
            await server.restart()
            driver.connect(server)
        match step:
            case Exchange():
                outcome = await driver.run(step.does)
                expect(outcome, step.sees, step.stop, driver)
            case Cut():
                await driver.start(step.does, step.once_said)
                outcome = await driver.cut(step.how)
                if step.how == "delete":  # what was under way is gone with the session; that it ended has to be seen
                    outcome.sees = [Said(step.once_said)]
                expect(outcome, (Said(step.once_said),), "cancelled", driver)
            case Crash():
                await driver.start(step.does, step.once_said)
                await server.crash()
                driver.connect(server)
                outcome = await driver.rejoin()
                expect(outcome, step.sees, step.stop, driver)
        if isinstance(step, Cut) and step.how == "delete":
            assert await driver.is_gone()
            return
        history += remembered(step)
        if "history" in driver.features:
            told = comparable(await driver.history(), driver.shows)
            assert told == comparable(history, driver.shows), (conversation.name, place)


def expect(outcome: Outcome, sees: Iterable[Seen], stop: Stop, driver: Driver) -> None:
    """The run showed what it should, as far as the protocol can show it."""
    assert comparable(outcome.sees, driver.shows) == comparable(sees, driver.shows)
    assert outcome.stop == driver.stops.get(stop, stop)


def remembered(step: Step) -> list[Seen]:
    """What a step adds to the history."""
    sees: tuple[Seen, ...] = (Said(step.once_said),) if isinstance(step, Cut) else step.sees
    match step.does:
        case Tell(text):
            unseen = step.unseen if isinstance(step, Exchange) else ()
            return [*unseen, Heard(text), *sees]
        case Answers(answers):
            given = [Settled(each.name, each.text) for each in answers if isinstance(each, Result)]
            chosen = [Settled("AskUserQuestion", "") for each in answers if isinstance(each, Choose)]
            return [*given, *chosen, *sees]


def comparable(seen: Iterable[Seen], shows: frozenset[type]) -> list[Seen]:
    """What can be compared: only what the protocol shows, words in a row joined, a question's own result blank.

    Results in a row are sorted: calls that ran or were closed together have no order among each other.
    """
    result: list[Seen] = []
    for each in seen:
        if type(each) not in shows | {Heard}:
            continue
        last = result[-1] if result else None
        if isinstance(each, Said) and isinstance(last, Said):
            result[-1] = Said(last.text + each.text)
        elif isinstance(each, Thought) and isinstance(last, Thought):
            result[-1] = Thought(last.text + each.text)
        elif isinstance(each, Called) and each.name in ("Agent", "AskUserQuestion"):
            result.append(Called(each.name))
        elif isinstance(each, Settled) and each.name == "AskUserQuestion":
            result.append(Settled(each.name, ""))
        else:
            result.append(each)
    return [
        each
        for is_result, group in groupby(result, lambda each: isinstance(each, Settled))
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


HELLO = Exchange(Tell("hello"), (Said("Hello! I am the rehearsal agent."),))
MIX = calls(("paint", {"colour": "blue"}), ("stamp", {"text": "x"}), ("add", {"a": 1, "b": 2}))
MIXED = Exchange(
    Tell(script({"say": "Working. "}, MIX, {"say": "{results}"})),
    (
        Said("Working. "),
        Called("paint", {"colour": "blue"}),
        Called("stamp", {"text": "x"}),
        Called("add", {"a": 1, "b": 2}),
        Settled("add", "3"),
    ),
    "tool_use",
)
EVERYTHING_ON = Setup(trusted=("add", "boom"), asking=("stamp",), client_tools=("paint",))
CANCELLED = "Tool call cancelled: a new user message arrived"
STAMPING = Exchange(
    Tell(script(call("stamp", text="x"), {"say": "Then: {result}"})), (Called("stamp", {"text": "x"}),), "tool_use"
)
ASKED = Exchange(Tell("ask me"), (Called("AskUserQuestion"),), "tool_use")

CONVERSATIONS = (
    Conversation(
        "a greeting and an echo", (HELLO, Exchange(Tell("Grüße, 🧑‍🚀"), (Said("You said: Grüße, 🧑‍🚀"),)), HELLO)
    ),
    Conversation(
        "thinking aloud", (Exchange(Tell("think"), (Thought("Let me think."), Said("Done thinking."))), HELLO)
    ),
    Conversation(
        "a tool of the server",
        (
            Exchange(
                Tell("add 1 and 2"), (Called("add", {"a": 1, "b": 2}), Settled("add", "3"), Said("The sum is 3."))
            ),
            Exchange(
                Tell(script(call("boom"), {"say": "so what"})),
                (Called("boom", {}), Settled("boom", "Tool execution failed: boom"), Said("so what")),
            ),
            Exchange(Tell(script({"recall": "user"})), (Said("add 1 and 2"),)),
        ),
        EVERYTHING_ON,
    ),
    Conversation(
        "a tool of the application, twice in a run",
        (
            Exchange(
                Tell(
                    script(
                        call("paint", c=1), {"say": "first {result}. "}, call("paint", c=2), {"say": "then {result}."}
                    )
                ),
                (Called("paint", {"c": 1}),),
                "tool_use",
            ),
            Exchange(Answers((Result("paint", "red"),)), (Said("first red. "), Called("paint", {"c": 2})), "tool_use"),
            Exchange(Answers((Result("paint", "green"),)), (Said("then green."),)),
            HELLO,
        ),
        EVERYTHING_ON,
        frozenset({"client tools"}),
    ),
    Conversation(
        "a permission, granted",
        (STAMPING, Exchange(Answers((Allow("stamp"),)), (Settled("stamp", "stamped x"), Said("Then: stamped x")))),
        EVERYTHING_ON,
        frozenset({"permissions"}),
    ),
    Conversation(
        "a permission, denied with a reason and without",
        (
            STAMPING,
            Exchange(
                Answers((Refuse("stamp", "not today"),)),
                (Settled("stamp", "Tool call denied: not today"), Said("Then: Tool call denied: not today")),
            ),
            STAMPING,
            Exchange(
                Answers((Refuse("stamp"),)), (Settled("stamp", "Tool call denied"), Said("Then: Tool call denied"))
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
                (Settled("stamp", "stamped x"), Said("blue, stamped x, 3")),
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
            Exchange(HELLO.does, HELLO.sees, unseen=(Settled("paint", CANCELLED), Settled("stamp", CANCELLED))),
            HELLO,
        ),
        EVERYTHING_ON,
        frozenset({"client tools", "permissions"}),
    ),
    Conversation(
        "a question, answered from the list and in one's own words",
        (
            ASKED,
            Exchange(Answers((Choose(("production",)),)), (Said("You chose production."),)),
            ASKED,
            Exchange(Answers((Choose(custom="neither"),)), (Said("You chose neither."),)),
        ),
        needs=frozenset({"questions"}),
    ),
    Conversation(
        "a sub-agent at work",
        (
            Exchange(
                Tell(script({"fork": {"description": "dig", "script": [{"say": "gold"}]}}, {"say": "found {result}"})),
                (Called("Agent"), Settled("Agent", "gold"), Said("found gold")),
            ),
            HELLO,
        ),
        needs=frozenset({"sub-agents"}),
    ),
    Conversation(
        "a plan",
        (
            Exchange(
                Tell(
                    script(
                        {"plan": {"status": "in_progress", "steps": [{"title": "dig", "status": "pending"}]}},
                        {"say": "ok"},
                    )
                ),
                (Planned(("dig",)), Said("ok")),
            ),
        ),
    ),
    Conversation(
        "runs that end early, and go on",
        (
            Exchange(Tell(script({"say": "half"}, {"fail": "internal words"})), (Said("half"),), "error"),
            Exchange(Tell(script({"say": "cut of"}, {"stop": "max_tokens"})), (Said("cut of"),), "max_tokens"),
            Exchange(Tell(script({"say": "no"}, {"stop": "refusal"})), (Said("no"),), "refusal"),
            Exchange(
                Tell(script(*[call("add", a=1, b=1)] * 26)),
                (Called("add", {"a": 1, "b": 1}), Settled("add", "2")) * 25,
                "max_steps",
            ),
            HELLO,
        ),
        EVERYTHING_ON,
    ),
    Conversation(
        "a session that is deleted while it runs",
        (HELLO, Cut(Tell(script({"say": "one"}, {"wait_ms": 600_000}, {"say": "two"})), "one", "delete")),
        needs=frozenset({"delete"}),
    ),
    Conversation(
        "a run that is stopped",
        (HELLO, Cut(Tell(script({"say": "one"}, {"wait_ms": 600_000}, {"say": "two"})), "one", "stop"), HELLO),
        needs=frozenset({"stop"}),
    ),
    Conversation(
        "a server that dies while it speaks",
        (
            HELLO,
            Crash(
                Tell(
                    script({"say": "first. "}, {"step": True}, {"say": "counting "}, {"wait_ms": 500}, {"say": "done"})
                ),
                "first. counting ",
                (Said("first. counting counting done"),),
            ),
            HELLO,
        ),
        needs=frozenset({"rejoin"}),
    ),
)
