"""Scenes of a conversation as data: what a model says, and what an agent of any framework leaves of it in the log.

A prompt names a script. A script is a list of model steps, a step is a list of words, thoughts, calls and pauses. The
models of `scripted_agents.py` play them; they keep nothing, and find their place in the messages that they are given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.conversations import (
    Allow,
    Answers,
    Choose,
    Crash,
    Deny,
    Exchange,
    Interruption,
    Observation,
    ObservedCall,
    ObservedResult,
    ObservedText,
    ObservedThinking,
    Prompt,
    Result,
    Rewind,
    Step,
)

AGENT = "rehearsal"
"""The name of the agent that the drivers of protocols talk to."""
Framework = str
FRAMEWORKS: tuple[Framework, ...] = ("pydantic_ai", "langgraph", "openai_agents")


class Reason(NamedTuple):
    """Think aloud."""

    text: str


class CallOf(NamedTuple):
    """Call a tool."""

    tool: str
    arguments: Mapping[str, Any] = {}  # never changed


class Pause(NamedTuple):
    """Wait until the test lets the model go on."""


Part = str | Reason | CallOf | Pause
Script = Sequence[Sequence[Part]]

ADD, ADD_MORE = CallOf("add", {"a": 1, "b": 2}), CallOf("add", {"a": 3, "b": 4})
SCRIPTS: dict[str, Script] = {
    "text": [["Hel", "lo"]],
    "reasoning": [[Reason("hm"), "so"]],
    "call": [["one ", "moment", ADD], ["It is 3."]],
    "parallel": [[ADD, ADD_MORE], ["3 and 7"]],
    "failing": [[ADD, CallOf("boom")], ["so what"]],
    "pay": [[CallOf("pay", {"amount": 5})], ["paid"]],
    "question": [[CallOf("choose")], ["a good choice"]],
    "client": [[CallOf("paint", {"what": "sky"})], ["painted"]],
    "pause": [["one ", Pause(), "two"]],
    "two tools": [["so ", ADD, ADD_MORE], ["all done"]],
}
STRUCTURED = '{"city":"Bern","degrees":7}'


def recall(prompts: Sequence[str]) -> Script:
    """The answer of a model that is asked what it has heard."""
    return [[f"heard: {', '.join(prompts)}"]]


def script_for(prompts: Sequence[str]) -> Script:
    """The script of a turn, by the user's messages up to its own. A model that knows none repeats what it has heard."""
    return SCRIPTS.get(prompts[-1]) or recall(prompts)


class Words(str):
    """The end of a text whose beginning is the framework's own."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other.endswith(str(self))


@dataclass(frozen=True)
class Scene:
    """What a user and an application do, what clients observe, and what the log has of it.

    `unlike` has the frameworks whose log is another one, with the lines; None where a framework cannot play the scene.
    Lines of calls that run side by side have no order. Stages, notes beside what waits and the words of a denial are
    each framework's own.
    """

    name: str
    steps: tuple[Step, ...]
    log: tuple[str, ...]
    unlike: Mapping[Framework, tuple[str, ...] | None] = field(default_factory=dict)
    client_tools: tuple[str, ...] = ()
    structured: bool = False
    """Whether the agent answers with an object."""
    steps_unlike: Mapping[Framework, tuple[Step, ...]] = field(default_factory=dict)
    """The steps with the frameworks of which clients observe something else."""

    def steps_of(self, framework: Framework) -> tuple[Step, ...]:
        return self.steps_unlike.get(framework, self.steps)

    def log_of(self, framework: Framework) -> tuple[str, ...] | None:
        return self.unlike.get(framework, self.log)


def said(prompt: str, *observed: Observation | str, stop: Any = "end_turn") -> Exchange:
    """A prompt, and what is observed of its run."""
    return Exchange(Prompt(prompt), tuple(map(_observation, observed)), stop)


def answered(*given: Any, then: Sequence[Observation | str]) -> Exchange:
    """Answers, and what is observed of their run."""
    return Exchange(Answers(given), tuple(map(_observation, then)))


def _observation(given: Observation | str) -> Observation:
    return ObservedText(given) if isinstance(given, str) else given


ADDED = ObservedCall("add", {"a": 1, "b": 2}), ObservedResult("add", "3")
PAYING = said("pay", ObservedCall("pay", {"amount": 5}), stop="tool_use")
PAY_LOG = ("user: pay", "call: pay {'amount': 5}", "step", "waits: pay permission", "end: tool_use")
DENIED = Words("too much")

SCENES = (
    Scene("text", (said("text", "Hello"),), ("user: text", "text: Hello", "step", "end: end_turn")),
    Scene(
        "reasoning",
        (said("reasoning", ObservedThinking("hm"), "so"),),
        ("user: reasoning", "thinking: hm", "text: so", "step", "end: end_turn"),
    ),
    Scene(
        "call",
        (said("call", "one moment", *ADDED, "It is 3."),),
        (
            "user: call", "text: one moment", "call: add {'a': 1, 'b': 2}", "step",
            "starts: add", "done: add 3", "text: It is 3.", "step", "end: end_turn",
        ),
    ),
    Scene(
        "parallel",
        (
            said(
                "parallel", ADDED[0], ObservedCall("add", {"a": 3, "b": 4}), ADDED[1], ObservedResult("add", "7"),
                "3 and 7",
            ),
        ),
        (
            "user: parallel", "call: add {'a': 1, 'b': 2}", "call: add {'a': 3, 'b': 4}", "step",
            "done: add 3", "done: add 7", "starts: add", "starts: add", "text: 3 and 7", "step", "end: end_turn",
        ),
    ),
    Scene(
        "failing",
        (
            said(
                "failing", ADDED[0], ObservedCall("boom", {}), ADDED[1], ObservedResult("boom", "no such account"),
                "so what",
            ),
        ),
        (
            "user: failing", "call: add {'a': 1, 'b': 2}", "call: boom {}", "step",
            "done: add 3", "failed: boom no such account", "starts: add", "starts: boom",
            "text: so what", "step", "end: end_turn",
        ),
    ),
    Scene(
        "approval granted",
        (PAYING, answered(Allow("pay"), then=[ObservedResult("pay", "paid 5"), "paid"])),
        (*PAY_LOG, "answer: pay True", "starts: pay", "done: pay paid 5", "text: paid", "step", "end: end_turn"),
    ),
    Scene(
        "approval denied",
        (PAYING, answered(Deny("pay", "too much"), then=[ObservedResult("pay", DENIED), "paid"])),
        (*PAY_LOG, "answer: pay False", "denied: pay", "text: paid", "step", "end: end_turn"),
    ),
    Scene(
        "client tool",
        (
            said("client", ObservedCall("paint", {"what": "sky"}), stop="tool_use"),
            answered(Result("paint", "blue"), then=["painted"]),
        ),
        (
            "user: client", "call: paint {'what': 'sky'}", "step", "waits: paint client", "end: tool_use",
            "answer: paint True", "done: paint blue", "text: painted", "step", "end: end_turn",
        ),
        unlike={"langgraph": None},  # the graph's model is bound already
        client_tools=("paint",),
    ),
    Scene(
        "question",
        (
            said("question", ObservedCall("choose"), stop="tool_use"),
            answered(Choose(("blue",), name="choose"), then=["a good choice"]),
        ),
        (
            "user: question", "call: choose {}", "step", "starts: choose", "waits: choose question", "end: tool_use",
            "answer: choose True", "done: choose blue", "text: a good choice", "step", "end: end_turn",
        ),
        unlike={
            "openai_agents": None,  # the SDK has no questions
            "langgraph": (  # a tool that is resumed runs from its beginning
                "user: question", "call: choose {}", "step", "starts: choose", "waits: choose question",
                "end: tool_use", "answer: choose True", "starts: choose", "done: choose blue", "text: a good choice",
                "step", "end: end_turn",
            ),
        },
    ),
    Scene(
        "structured",
        (said("structured", STRUCTURED),),
        ("user: structured", f"text: {STRUCTURED}", "step", "end: end_turn"),
        unlike={
            "langgraph": (  # `create_agent` asks for the object with a tool
                "user: structured", "call: Weather {'city': 'Bern', 'degrees': 7}", "step",
                "done: Weather Returning structured response: city='Bern' degrees=7",
                f"text: {STRUCTURED}", "step", "end: end_turn",
            )
        },
        structured=True,
        steps_unlike={
            "langgraph": (
                said(
                    "structured", ObservedCall("Weather", {"city": "Bern", "degrees": 7}),
                    ObservedResult("Weather", "Returning structured response: city='Bern' degrees=7"), STRUCTURED,
                ),
            )
        },
    ),
    Scene(
        "branch",
        (
            said("first", "heard: first"),
            said("old", "heard: first, old"),
            Rewind("old"),
            said("new", "heard: first, new"),
        ),
        (
            "user: first", "text: heard: first", "step", "end: end_turn",
            "user: old", "text: heard: first, old", "step", "end: end_turn",
            "user: new", "text: heard: first, new", "step", "end: end_turn",
        ),
    ),
    Scene(
        "stop",
        (
            said("first", "heard: first"),
            Interruption(Prompt("pause"), "one ", "stop"),
            said("again", "heard: first, pause, again"),
        ),
        (
            "user: first", "text: heard: first", "step", "end: end_turn",
            "user: pause", "text: one ", "step: interrupted", "end: cancelled",
            "user: again", "text: heard: first, pause, again", "step", "end: end_turn",
        ),
    ),
    Scene(
        "second turn",
        (said("first", "heard: first"), said("second", "heard: first, second")),
        (
            "user: first", "text: heard: first", "step", "end: end_turn",
            "user: second", "text: heard: first, second", "step", "end: end_turn",
        ),
    ),
)  # fmt: skip
REJOINED = Scene(
    "rejoined", (Crash(Prompt("pause"), "one ", (ObservedText("one two"),)), said("again", "heard: pause, again")), ()
)
"""A client leaves in the middle of an answer, and reads the rest of it later."""
