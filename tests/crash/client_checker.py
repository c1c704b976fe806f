"""Compares what the clients know with what the server says in the end.

Every function returns the broken promises as sentences.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.crash.client_records import Message, RunRecord, SessionRecord, TurnRecord
from tests.crash.turn_plans import CANCELLED, INTERRUPTED, RESULT, RESULTS, PlannedCall, PlannedStep, TurnPlan
from tests.protocols.aap.official_client import normalize_history
from tests.protocols.aap.stream import Frame, blocks_of, parse_frames

Json = Any
GIVEN_UP = "interrupted"
"""The code of a run that the server gave up after too many attempts."""


def check_session(session: SessionRecord, info: Json, history: Sequence[Message]) -> Iterator[str]:
    """Compare a session of the server with the client's record."""
    where = f"(session {session.session_id})"
    agent = session.config["agent"]
    options = {name: "***" if name == "token" else value for name, value in session.options.items()}
    tools = [tool if tool["trust"] else {"name": tool["name"]} for tool in agent["tools"]]  # false is the default
    if info["agent"] != {"name": agent["name"], "tools": tools, "options": options}:
        yield f"settings {tools} {options} were acknowledged, got {info['agent']} {where}"
    if info.get("tools") != session.config["tools"]:
        yield f"client tools {session.config['tools']} were acknowledged, got {info.get('tools')} {where}"
    for text in session.refused_texts:
        if text in str(history) or text in str(info):
            yield f"a refused request left {text} behind {where}"
    rest = list(history)
    for seed in session.config.get("messages", []):
        if not rest or rest.pop(0) != seed:
            yield f"the seed {seed} is lost {where}"
    for turn, segment in zip(session.turns, segments(rest, session.turns), strict=True):
        if segment is None:
            yield f"the user's message {turn.plan.text[:120]} is there {count(rest, turn)} times {where}"
        else:
            for fault in check_turn(turn, segment):
                yield f"{fault} (turn {turn.plan.name} {[run.run_id for run in turn.runs]}, {where[1:]}"


def check_view(session: SessionRecord, view: Sequence[Message], history: Sequence[Message]) -> Iterator[str]:
    """Check that the history that a client built from its streams equals the server's."""
    own_view, server_view = normalize_history(view), normalize_history(history)
    for place, (own, their) in enumerate(zip(own_view, server_view, strict=False)):
        if own != their:
            yield f"message {place} is {their}, a client saw {own} (session {session.session_id})"
            return
    if len(own_view) != len(server_view):
        yield f"the history has {len(server_view)} messages, the client {len(own_view)} (session {session.session_id})"


def check_replay(run: RunRecord, body: bytes) -> Iterator[str]:
    """Check that a replayed turn has the same events, byte for byte."""
    if b"".join(frame.raw for frame in run.frames) != body:
        replayed = parse_frames(body)
        place = first_difference(run.frames, replayed)
        seen, again = run.frames[place : place + 2], replayed[place : place + 2]
        yield f"event {place + 1} of turn {run.run_id} was {seen}, and is replayed as {again}"


def check_starts(starts: Mapping[str, int], histories: Iterable[Sequence[Message]]) -> Iterator[str]:
    """Check that a non-repeatable tool was started at most once, and exactly once if it has a result."""
    results = [str(message["content"]) for history in histories for message in history if message["role"] == "tool"]
    done = {text.removeprefix("done ") for text in results if text.startswith("done ")}
    for tag, count_of in starts.items():
        if count_of > 1:
            yield f"the tool of {tag} was started {count_of} times"
        if tag in done and count_of != 1:
            yield f"the tool of {tag} is done, and was started {count_of} times"


def check_turn(turn: TurnRecord, segment: Sequence[Message]) -> Iterator[str]:
    """Compare the messages after a user message with the plan: each step once, possibly after a cut-off part."""
    last = turn.runs[-1]
    given_up = last.code == GIVEN_UP
    rest = list(segment)
    results: list[str] = []
    for number, step in enumerate(shown_steps(turn.plan)):
        texts = tuple((kind, fill_placeholders(text, results)) for kind, text in step.blocks)
        while rest and is_cut(rest[0]):
            yield from check_cut(rest.pop(0), texts)
        if not rest and (given_up or turn.is_superseded):
            return
        if not rest or rest[0]["role"] != "assistant":
            yield f"step {number} is missing, there is {rest[:1]}"
            return
        message = rest.pop(0)
        if join_blocks(message) != list(texts):
            yield f"step {number} says {join_blocks(message)}, and should say {list(texts)}"
        calls = [block for block in blocks_of(message["content"]) if block["type"] == "tool_use"]
        names = [call["name"] for call in calls]
        if names != [call.name for call in step.calls] and not (given_up and names == ["Agent"]):
            yield f"step {number} calls {calls}, and should call {step.calls}"
            return
        outputs = {each["toolCallId"]: each["content"] for each in rest[: len(calls)] if each["role"] == "tool"}
        rest = rest[len(outputs) :]
        if set(outputs) != {call["toolCallId"] for call in calls}:
            yield f"the calls {calls} of step {number} have the results {outputs}"
            return
        above, results = results, [outputs[call["toolCallId"]] for call in calls]
        for call, planned, text in zip(calls, step.calls, results, strict=True):
            possible = planned.results if planned.asks is None else frozenset(above)
            yield from check_result(turn, call["toolCallId"], planned, possible, text, given_up)
    if rest:
        yield f"there is more than was planned: {rest}"
    if not given_up and not turn.is_superseded and (last.stop, last.code) != (turn.plan.stop, turn.plan.code):
        yield f"it ended with {last.stop} {last.code}, and should end with {turn.plan.stop} {turn.plan.code}"


def shown_steps(plan: TurnPlan) -> Iterator[PlannedStep]:
    """The steps as AAP shows them: a sub-agent's call that waits comes first, and `Agent` in a message of its own."""
    for step in plan.steps:
        if asked := tuple(call.asks for call in step.calls if call.asks is not None):
            yield PlannedStep(step.blocks, asked)
            yield PlannedStep((), step.calls)
        else:
            yield step


def check_result(
    turn: TurnRecord, call_id: str, planned: PlannedCall, possible: frozenset[str], text: str, is_given_up: bool
) -> Iterator[str]:
    """Check that a call has one of its possible results."""
    allowed = {turn.decisions[call_id]} if call_id in turn.decisions else set(possible)
    if is_given_up:
        allowed.add(INTERRUPTED)
    if turn.is_superseded and planned.decided_by != "server":
        allowed.add(CANCELLED)
    if text not in allowed:
        yield f"{planned.name} {planned.arguments} has the result {text!r}, and should have {sorted(allowed)}"


def check_cut(message: Message, texts: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Check that a step that a crash cut off is the beginning of the planned step."""
    said = join_blocks(message)
    if len(said) > len(texts) or said[:-1] != list(texts[: len(said) - 1]):
        yield f"a step that was cut says {said}, and should begin {list(texts)}"
    elif said and (said[-1][0] != texts[len(said) - 1][0] or not texts[len(said) - 1][1].startswith(said[-1][1])):
        yield f"a step that was cut ends with {said[-1]}, which {texts[len(said) - 1]} does not begin with"


def fill_placeholders(text: str, results: Sequence[str]) -> str:
    """Replace the placeholders of a text with results."""
    return text.replace(RESULTS, ", ".join(results)).replace(RESULT, results[-1] if results else "")


def segments(history: Sequence[Message], turns: Sequence[TurnRecord]) -> Iterator[Sequence[Message] | None]:
    """The messages between each turn's user message and the next one; None if it does not occur exactly once."""
    places = [place for place, message in enumerate(history) if message["role"] == "user"]
    for turn in turns:
        if count(history, turn) != 1:
            yield None
            continue
        begin = next(place for place in places if history[place]["content"] == turn.plan.text)
        end = next((place for place in places if place > begin), len(history))
        yield history[begin + 1 : end]


def count(history: Sequence[Message], turn: TurnRecord) -> int:
    """Count a turn's user message in a history."""
    return sum(message["role"] == "user" and message["content"] == turn.plan.text for message in history)


def is_cut(message: Message) -> bool:
    """Whether a crash cut off this message."""
    return message["role"] == "assistant" and bool(message.get("_meta", {}).get("interrupted"))


def join_blocks(message: Message) -> list[tuple[str, str]]:
    """The text and thinking of a message, with adjacent blocks of a kind joined."""
    blocks: list[tuple[str, str]] = []
    for block in blocks_of(message["content"]):
        kind = block["type"]
        if kind == "tool_use":
            continue
        if blocks and blocks[-1][0] == kind:
            blocks[-1] = (kind, blocks[-1][1] + block[kind])
        else:
            blocks.append((kind, block[kind]))
    return blocks


def first_difference(one: Sequence[Frame], other: Sequence[Frame]) -> int:
    """The index of the first event that differs."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left.raw != right.raw:
            return place
    return min(len(one), len(other))
