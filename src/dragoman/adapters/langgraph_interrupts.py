"""Interrupts of a graph while it waits: each is one waiting call in the log, and its answer resumes the graph."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from langgraph.types import Interrupt, StateSnapshot
from pydantic import ValidationError

from dragoman.adapters.langgraph_calls import Calls
from dragoman.adapters.langgraph_questions import (
    action_requests,
    answer_to,
    decision_for,
    match_calls,
    misfit,
    questions_for,
    request_name,
)
from dragoman.core.agent import AgentError, Recorded, Run
from dragoman.core.content import ToolMessage
from dragoman.core.inputs import Decision
from dragoman.core.tools import ASK_USER_QUESTION

GO_ON = "yes"


async def ask_again(run: Run, calls: Calls, state: StateSnapshot, error: ValidationError) -> None:
    """Ask once more about the interrupts whose answers a validator of the graph refused: those of the error's type."""
    typed = [each for each in state.interrupts if isinstance(_schema_of(each), dict)]
    of_type = [each for each in typed if _schema_of(each).get("title") == error.title]
    reason = "; ".join(each["msg"] for each in error.errors(include_context=False, include_input=False))
    for interrupted in of_type or typed:
        calls.misfits[interrupted.id] = f"The answer does not fit ({reason})."
        await calls.discard_answer(interrupted.id)
    await wait_for_answers(run, calls, state, only=frozenset(calls.misfits))


async def wait_for_answers(run: Run, calls: Calls, state: StateSnapshot, *, only: Container[str] | None = None) -> None:
    """Let a call wait for each interrupt of a state that has none yet, and for a graph that stops before a node.

    Args:
        run: the run.
        calls: its calls.
        state: the graph's state.
        only: the interrupts that are asked about; None: all.
    """
    asked = _calls_of(run, calls, state)
    for interrupted in state.interrupts:
        if only is not None and interrupted.id not in only:
            continue
        if calls.is_answered(interrupted.id):
            continue
        if requests := action_requests(interrupted.value):
            await _wait_for_permissions(run, calls, interrupted, requests, asked[interrupted.id])
            continue
        questions = questions_for(interrupted.value, _schema_of(interrupted))
        if reason := calls.misfits.get(interrupted.id):
            questions["questions"][0]["question"] = f"{reason}\n{questions['questions'][0]['question']}"
        inside = calls.waiting_inside(interrupted.id)
        if inside is not None:
            if inside.state != "waiting":
                inside.wait("question", note=questions)
        else:
            await _ask(run, calls, interrupted.id, questions)
    calls.misfits.clear()
    calls.suspend()
    if state.next and not state.interrupts:
        question = {"question": f"Go on with {', '.join(state.next)}?", "options": [{"label": GO_ON}, {"label": "no"}]}
        await _ask(run, calls, breakpoint_id(state), {"questions": [question]})


def _schema_of(interrupted: Interrupt) -> Any:  # noqa: ANN401  # JSON, or a type
    """The JSON schema of the answer."""
    return interrupted.response_schema


async def _ask(run: Run, calls: Calls, origin: str, questions: dict[str, Any]) -> None:
    asked = calls.find(origin)
    if asked is None:
        asked = calls.record(ASK_USER_QUESTION, questions, origin)
        await run.end_step()
    if not isinstance(asked, ToolMessage) and (asked.state == "new" or origin in calls.misfits):
        asked.wait("question", note=questions)


async def _wait_for_permissions(
    run: Run, calls: Calls, interrupted: Interrupt, requests: Sequence[Any], asked: Sequence[Recorded | None]
) -> None:
    for place, (request, found) in enumerate(zip(requests, asked, strict=True)):
        recorded = found
        if recorded is None:  # the graph asks about something that no model announced
            arguments = request.get("args", request.get("arguments", {}))
            recorded = calls.record(request_name(request), arguments, f"{interrupted.id}#{place}")
            await run.end_step()
        if recorded.state not in ("waiting", "answered") and not _is_trusted(recorded, request):
            note = {"description": str(request.get("description", ""))}
            recorded.wait("permission", note=note, repeat=calls.is_repeat(interrupted.id))


def _is_trusted(recorded: Recorded, request: Mapping[str, Any]) -> bool:
    """Whether the session allows a call that has not begun, without asking."""
    return recorded.trusted and recorded.state == "new" and recorded.call.name == request_name(request)


def breakpoint_id(state: StateSnapshot) -> str:
    """Names the question whether a graph that stopped before a node continues."""
    return f"next:{state.config['configurable']['checkpoint_id']}"


async def resume_values(run: Run, calls: Calls, state: StateSnapshot) -> dict[str, Any] | None:
    """What each interrupt of a state is resumed with, by its id; None while one of them has no answer that fits.

    Tools get the answers to their own interrupts from `Calls`.

    Raises:
        AgentError: the user declined a question whose schema has no value for that.
    """
    found: dict[str, Any] = {}
    answered: list[str] = []
    asked_calls = _calls_of(run, calls, state)
    for interrupted in state.interrupts:
        if calls.is_answered(interrupted.id):
            continue
        if requests := action_requests(interrupted.value):
            asked = asked_calls[interrupted.id]
            for recorded, request in zip(asked, requests, strict=True):
                if recorded is None or not (recorded.state == "answered" or _is_trusted(recorded, request)):
                    return None
            found[interrupted.id] = {"decisions": [decision_for(call.answer) for call in asked if call is not None]}
            answered += [f"{interrupted.id}#{place}" for place in range(len(requests))]
            continue
        call = calls.waiting_inside(interrupted.id) or calls.find(interrupted.id)
        if call is None or not (isinstance(call, ToolMessage) or call.state == "answered"):
            return None
        answer = call if isinstance(call, ToolMessage) else call.answer
        schema = _schema_of(interrupted)
        value = found[interrupted.id] = answer_to(interrupted.value, answer, schema)
        if not isinstance(call, ToolMessage):
            answered.append(interrupted.id)
            if error := misfit(schema, value):
                if isinstance(answer, Decision):
                    raise AgentError("question_declined", "The agent cannot continue without an answer")
                calls.misfits[interrupted.id] = f"The answer does not fit ({error})."
    if calls.misfits:
        return None
    delivered = await calls.deliver_answers(found)
    for origin in answered:
        await calls.answer(origin)
    return {each: value for each, value in found.items() if each not in delivered}


async def may_continue(calls: Calls, state: StateSnapshot) -> bool | None:
    """Whether the user lets a graph continue that stopped before a node; None if nobody was asked or has answered."""
    asked = calls.find(breakpoint_id(state))
    if asked is None or (not isinstance(asked, ToolMessage) and asked.state != "answered"):
        return None
    answer = asked if isinstance(asked, ToolMessage) else asked.answer
    await calls.answer(breakpoint_id(state))
    return isinstance(answer, ToolMessage) and answer_to("", answer) == GO_ON


def was_asked(calls: Calls, state: StateSnapshot) -> bool:
    """Whether the user was asked about a graph that stopped before a node."""
    return calls.find(breakpoint_id(state)) is not None


def _calls_of(run: Run, calls: Calls, state: StateSnapshot) -> dict[str, list[Recorded | None]]:
    """The call of each action request, by interrupt: in order, by name and arguments."""
    left = list(run.recorded())
    found: dict[str, list[Recorded | None]] = {}
    for interrupted in state.interrupts:
        requests = action_requests(interrupted.value)
        inside = calls.waiting_inside(interrupted.id)
        if inside is not None:
            found[interrupted.id] = [inside] * len(requests)
            continue
        own = [calls.find(f"{interrupted.id}#{place}") for place in range(len(requests))]
        if calls.tool_interrupt(interrupted.id) is not None:  # not the first of its call: a call of its own waits
            found[interrupted.id] = [None if isinstance(each, ToolMessage) else each for each in own]
            continue
        matched = match_calls(requests, [each.call for each in left])
        by_id = {each.call.call_id: each for each in left}
        announced = [None if call is None else by_id[call.call_id] for call in matched]
        found[interrupted.id] = [
            other if mine is None or isinstance(mine, ToolMessage) else mine
            for mine, other in zip(own, announced, strict=True)
        ]
        taken = {each.call.call_id for each in found[interrupted.id] if each is not None}
        left = [each for each in left if each.call.call_id not in taken]
    return found
