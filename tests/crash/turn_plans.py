"""Plans of turns: scripts for the rehearsal agent, and the steps that they must lead to.

Pure. A plan does not cover crashes. The checker knows what a crash may add: a step that is cut off and repeated, or an
interrupted tool.
"""

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Json = Any

INTERRUPTED = "Tool call interrupted: the server restarted"
CANCELLED = "Tool call cancelled: a new user message arrived"
CLIENT_TOOL = "paint"
RESULT, RESULTS = "{result}", "{results}"

Decider = Literal["server", "permission", "client", "question", "fork"]
"""Who settles a call: the server at once, the server after approval, the client, the user, or a sub-agent."""


@dataclass(frozen=True)
class PlannedCall:
    """A call of the agent. `results` are the possible texts if the server settles it."""

    name: str
    arguments: Json
    decided_by: Decider
    results: frozenset[str] = frozenset()
    tag: str | None = None
    """For a non-repeatable tool: the tag under which its starts are counted."""
    asks: "PlannedCall | None" = None
    """The call of the sub-agent that waits for the user before this one has its result, which is then the same."""


@dataclass(frozen=True)
class PlannedStep:
    """A model step: its blocks, with adjacent blocks of a kind joined, and its calls.

    A text may contain `RESULT` or `RESULTS`, which stand for the results of the previous calls.
    """

    blocks: tuple[tuple[str, str], ...]
    calls: tuple[PlannedCall, ...] = ()


@dataclass(frozen=True)
class TurnPlan:
    """A turn: the user's text, the steps that it leads to, and how it ends."""

    name: str
    text: str
    steps: tuple[PlannedStep, ...]
    stop: str = "end_turn"
    code: str | None = None

    @property
    def tags(self) -> list[str]:
        """The tags of its non-repeatable tools."""
        return [call.tag for step in self.steps for call in step.calls if call.tag is not None]


@dataclass
class ScriptBuilder:
    """Builds a script step by step."""

    name: str
    actions: list[Json] = field(default_factory=list)
    steps: list[PlannedStep] = field(default_factory=list)
    blocks: list[tuple[str, str]] = field(default_factory=list)

    def say(self, text: str, kind: str = "text", **how: Json) -> None:
        """Add text to the open step."""
        self.actions.append({"say" if kind == "text" else "think": text, **how})
        self._add(kind, text)

    def emit(self, text: str, count: int, every_ms: int) -> None:
        """Add many deltas; `{i}` in the text is the number of each."""
        self.actions.append({"emit": {"count": count, "text": text, "every_ms": every_ms}})
        self._add("text", "".join(text.replace("{i}", str(place)) for place in range(count)))

    def step(self) -> None:
        """End the step."""
        self.actions.append({"step": True})
        self._close(())

    def call(self, *calls: PlannedCall, action: Json = None) -> str:
        """End the step with calls. Returns the placeholder for their results."""
        requests = [{"name": call.name, "input": call.arguments} for call in calls]
        self.actions.append(action or ({"calls": requests} if len(requests) > 1 else {"call": requests[0]}))
        self._close(calls)
        return RESULTS if len(requests) > 1 else RESULT

    def end(self, *last: Json, stop: str = "end_turn", code: str | None = None) -> TurnPlan:
        """Return the whole turn. Text after the last step becomes its own step."""
        self.actions += last
        if self.blocks:
            self._close(())
        return TurnPlan(self.name, json.dumps({"script": self.actions}), tuple(self.steps), stop, code)

    def _add(self, kind: str, text: str) -> None:
        if self.blocks and self.blocks[-1][0] == kind:
            self.blocks[-1] = (kind, self.blocks[-1][1] + text)
        else:
            self.blocks.append((kind, text))

    def _close(self, calls: tuple[PlannedCall, ...]) -> None:
        self.steps.append(PlannedStep(tuple(self.blocks), calls))
        self.blocks = []


PlanMaker = Callable[[random.Random, str, frozenset[str]], TurnPlan]


def text_turn(rng: random.Random, mark: str, _untrusted: frozenset[str]) -> TurnPlan:
    """Text and thinking in several steps, slow and fast."""
    script = ScriptBuilder("talk")
    for number in range(rng.randint(1, 3)):
        if rng.random() < 0.4:
            script.say(f"thinking about {mark} …", "thinking", size=4, every_ms=rng.choice([0, 2]))
        script.say(f"[{mark} {number}] ")
        match rng.randrange(4):
            case 0:
                script.emit("{i}, ", rng.randint(1, 60), rng.choice([0, 0, 1, 3]))
            case 1:
                script.say("ünï¢ødé 🐪 " * rng.randint(1, 12), size=rng.randint(1, 9), every_ms=rng.choice([0, 2]))
            case 2:
                script.emit("x" * rng.randint(200, 2000), rng.randint(1, 30), 0)
            case _:
                script.say("a", "thinking")
                script.say("b")
                script.say("c", "thinking")
                script.say("d", size=1, every_ms=5)
        script.step()
    script.say("done")
    return script.end()


def server_tools(rng: random.Random, mark: str, untrusted: frozenset[str]) -> TurnPlan:
    """Calls that the server runs at once, one by one and in parallel; some take time."""
    script = ScriptBuilder("server_tools")
    script.say(f"[{mark}] ")
    calls = [_add(rng), _lookup(mark), _slow(rng, f"{mark}-a", untrusted), _slow(rng, f"{mark}-b", untrusted), _boom()]
    results = script.call(*rng.sample(calls, rng.randint(1, len(calls))))
    script.say(f"got {results}. ", size=3, every_ms=rng.choice([0, 1]))
    if rng.random() < 0.5:
        script.say(f"and {script.call(_slow(rng, f'{mark}-c', untrusted))}")
    return script.end()


def hidden_tool(rng: random.Random, mark: str, _untrusted: frozenset[str]) -> TurnPlan:
    """A call of a tool that no client knows, with the tool's result in the script."""
    script = ScriptBuilder("hidden_tool")
    output = f"secret {mark}"
    played = {"tool": {"name": "peek", "input": {"at": mark}, "output": output}}
    script.call(
        PlannedCall("peek", {"at": mark}, "server", frozenset({output, INTERRUPTED})),
        action=played,
    )
    script.say(f"it was {RESULT}")
    return script.end()


def approvals(rng: random.Random, mark: str, untrusted: frozenset[str]) -> TurnPlan:
    """Calls for all kinds of deciders in one step."""
    script = ScriptBuilder("approvals")
    script.say(f"[{mark}] ")
    stamp = PlannedCall("stamp", {"text": mark}, "permission", frozenset({f"stamped {mark}"}))
    paint = PlannedCall(CLIENT_TOOL, {"wall": mark}, "client")
    calls = [stamp, paint, _add(rng), _slow(rng, f"{mark}-d", untrusted)]
    chosen = rng.sample(calls, rng.randint(1, len(calls)))
    if stamp not in chosen and paint not in chosen:
        chosen.append(stamp)
    script.say(f"so {script.call(*chosen)}")
    return script.end()


def question(rng: random.Random, mark: str, _untrusted: frozenset[str]) -> TurnPlan:
    """A question to the user."""
    script = ScriptBuilder("question")
    request = {"questions": [{"question": f"{mark}?", "header": "Q", "options": [{"label": "yes"}, {"label": "no"}]}]}
    script.call(PlannedCall("AskUserQuestion", request, "question"), action={"ask": request})
    script.say("thanks", size=2, every_ms=2)
    return script.end()


def fork(rng: random.Random, mark: str, untrusted: frozenset[str]) -> TurnPlan:
    """A sub-agent that sends text, uses tools, or waits for an answer."""
    script = ScriptBuilder("fork")
    inner: list[Json] = [{"say": f"below {mark} ", "size": 4, "every_ms": rng.choice([0, 2])}]
    last = f"fork of {mark} is done"
    asks: PlannedCall | None = None
    results = {last}
    tag = None
    match rng.randrange(4):
        case 0:
            inner.append({"say": last})
            results = {f"below {mark} {last}"}
        case 1:
            inner += [{"call": {"name": "add", "input": {"a": 1, "b": 2}}}, {"say": last}]
        case 2:
            tag = f"{mark}-f"
            slow = {"name": "slow", "input": {"seconds": rng.choice([0.05, 0.2]), "tag": tag}}
            inner += [{"call": slow}, {"say": "{result}"}]
            results = {f"done {tag}", INTERRUPTED}
            if "slow" in untrusted:
                asks = PlannedCall("slow", slow["input"], "permission", frozenset(results))
        case _:
            inner += [{"call": {"name": "stamp", "input": {"text": mark}}}, {"say": "{result}"}]
            results = {f"stamped {mark}"}
            asks = PlannedCall("stamp", {"text": mark}, "permission", frozenset(results))
    arguments = {"description": f"look into {mark}", "script": inner}
    calls = [PlannedCall("Agent", arguments, "fork", frozenset(results), tag, asks)]
    script.say(f"[{mark}] ")
    script.call(*calls, action={"fork": arguments})
    script.say(f"fork said {RESULT}")
    return script.end()


def failure(rng: random.Random, mark: str, _untrusted: frozenset[str]) -> TurnPlan:
    """A turn that fails or is truncated."""
    script = ScriptBuilder("failure")
    script.say(f"[{mark}] about to ", size=3, every_ms=1)
    if rng.random() < 0.5:
        return script.end({"fail": {"code": "no_luck", "message": "no luck"}}, stop="error", code="no_luck")
    return script.end({"stop": "max_tokens"}, stop="max_tokens")


KINDS: tuple[tuple[PlanMaker, int], ...] = (
    (text_turn, 4),
    (server_tools, 4),
    (approvals, 3),
    (fork, 3),
    (question, 1),
    (hidden_tool, 1),
    (failure, 1),
)


def any_plan(rng: random.Random, mark: str, untrusted: frozenset[str] = frozenset()) -> TurnPlan:
    """A random turn.

    Args:
        rng: the source of randomness.
        mark: a text that occurs in no other turn.
        untrusted: the server tools that need the user's approval.
    """
    makers, weights = zip(*KINDS, strict=True)
    maker: PlanMaker = rng.choices(makers, weights)[0]
    return maker(rng, mark, untrusted)


def _add(rng: random.Random) -> PlannedCall:
    a, b = rng.randint(0, 99), rng.randint(0, 99)
    return PlannedCall("add", {"a": a, "b": b}, "server", frozenset({str(a + b)}))


def _lookup(mark: str) -> PlannedCall:
    return PlannedCall("lookup", {"q": mark}, "server", frozenset({f"looked up {mark}"}))


def _boom() -> PlannedCall:
    return PlannedCall("boom", {}, "server", frozenset({"Tool execution failed: boom"}))


def _slow(rng: random.Random, tag: str, untrusted: frozenset[str]) -> PlannedCall:
    arguments = {"seconds": rng.choice([0, 0.02, 0.1, 0.25]), "tag": tag}
    decider: Decider = "permission" if "slow" in untrusted else "server"
    return PlannedCall("slow", arguments, decider, frozenset({f"done {tag}", INTERRUPTED}), tag)


def counting(tags: Iterable[str]) -> str:
    """A user text that is answered with the number of starts of each tag's tool, separated by spaces."""
    return json.dumps({"script": [step for tag in tags for step in ({"starts": tag}, {"say": " "})]})
