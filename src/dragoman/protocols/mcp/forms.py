"""Elicitation: what waits for a person as a form that the host shows, and what the person did with it. Pure.

A model cannot approve anything: an approval is the exact choice of a person in a form.
"""

from collections.abc import Iterable
from typing import Literal

from dragoman.core.answers import Question, compact_json, questions_of
from dragoman.core.content import Json, JsonObject
from dragoman.core.ids import CallId, SessionId, parse_session_id
from dragoman.core.inputs import Answer, Choice, Decision
from dragoman.core.open_calls import OpenCall
from dragoman.core.question_text import NO_ANSWER, repeat_question
from dragoman.protocols.mcp import wire
from dragoman.protocols.mcp.options import Approvals

ARGUMENT_CHARS = 2000
"""How much of a call's arguments a form shows."""
ALLOW, ALLOW_ALWAYS, DENY = "allow", "allow for this session", "deny"
FormAnswer = Answer | Literal["again", "leave"]
"""What a form's result means: an answer, ask once more, or leave the call open."""


def form_id(session_id: SessionId, call_id: CallId) -> str:
    """The JSON-RPC id of a form's request: it is all that a server needs to know when the answer comes."""
    return f"q-{session_id}-{call_id}"


def parse_form_id(text: str) -> tuple[SessionId, CallId] | None:
    """The session and the call of a form; None if it is none of ours."""
    session_id = parse_session_id(text[2:38])
    if not text.startswith("q-") or session_id != text[2:38] or text[38:39] != "-":
        return None
    return session_id, CallId(text[39:])


def form_of(call: OpenCall, agent: str, version: str) -> JsonObject | None:
    """The parameters of `elicitation/create` for a call; None if no form can answer it."""
    kind = call.waits_for
    if kind == "client":
        return None
    schema: JsonObject
    if kind == "permission":
        arguments = compact_json(call.call.input)
        shown = arguments if len(arguments) <= ARGUMENT_CHARS else f"{arguments[: ARGUMENT_CHARS - 1]}…"
        asked = repeat_question(call.call.name) if call.is_repeat else f"{agent} wants to run {call.call.name}"
        message = f"{asked}\n\n{shown}"
        decisions = (ALLOW, DENY) if call.is_repeat else (ALLOW, ALLOW_ALWAYS, DENY)
        schema = {
            "type": "object",
            "properties": {
                "decision": {"type": "string", "title": "Decision", "enum": list(decisions)},
                "reason": {"type": "string", "title": "Reason"},
            },
            "required": ["decision"],
        }
    else:
        questions = questions_of(call.shown().input).questions
        headers = _headers_of(call.shown().input)
        message = "\n".join(each.question for each in questions) or f"{agent} asks a question"
        properties: JsonObject = {}
        for index, question in enumerate(questions):
            title = headers.get(index) or question.question
            if answer := _choices(question, version):
                properties[f"answer_{index}"] = {"title": title, **answer}
            properties[f"custom_{index}"] = {"type": "string", "title": "Other" if answer else title}
        schema = {"type": "object", "properties": properties}
    params: JsonObject = {"message": message, "requestedSchema": schema}
    return {"mode": "form", **params} if version in (wire.NEW_VERSION, wire.OLD_VERSIONS[0]) else params


def may_ask(call: OpenCall, approvals: Approvals) -> bool:
    """Whether a host may ask its user about a call, and answer it."""
    return approvals == "elicit" or call.waits_for != "permission"


def input_requests(calls: Iterable[OpenCall], agent: str) -> JsonObject:
    """The forms of several calls by their ids, as results of the new version contain them."""
    forms = {call.call.call_id: form_of(call, agent, wire.NEW_VERSION) for call in calls}
    return {key: {"method": "elicitation/create", "params": form} for key, form in forms.items() if form is not None}


def _headers_of(arguments: JsonObject) -> dict[int, str]:
    questions = arguments.get("questions")
    return {
        index: each["header"]
        for index, each in enumerate(questions if isinstance(questions, list) else ())
        if isinstance(each, dict) and isinstance(each.get("header"), str)
    }


def _choices(question: Question, version: str) -> JsonObject:
    """The schema of a question's options; empty if a form of that version has none for it."""
    labels = [each.label for each in question.options]
    if not labels:
        return {}
    if not question.multi_select:
        return {"type": "string", "enum": labels}
    if version in wire.OLD_VERSIONS[1:]:
        return {}
    return {"type": "array", "items": {"type": "string", "enum": labels}}


def answer_from(call: OpenCall, result: wire.ElicitResult, approvals: Approvals) -> FormAnswer:
    """What a form's result means for a call. One about which no host may ask is left open."""
    call_id, content = call.call.call_id, result.content or {}
    if not may_ask(call, approvals):
        return "leave"
    if result.action == "decline":
        return Decision(call_id=call_id, granted=False)
    if result.action != "accept":
        return "leave"
    if call.waits_for == "permission":
        decision, reason = content.get("decision"), content.get("reason")
        if decision == DENY:
            return Decision(call_id=call_id, granted=False, reason=reason if isinstance(reason, str) else None)
        if decision in (ALLOW, ALLOW_ALWAYS):
            return Decision(call_id=call_id, granted=True, remember=decision == ALLOW_ALWAYS)
        return "leave"
    return _choice_from(call, content)


def _choice_from(call: OpenCall, content: dict[str, Json]) -> FormAnswer:
    selections: dict[str, list[int]] = {}
    custom: dict[str, str] = {}
    questions = questions_of(call.shown().input).questions
    for index, question in enumerate(questions):
        chosen, own = content.get(f"answer_{index}"), content.get(f"custom_{index}")
        if isinstance(own, str) and own.strip():
            custom[str(index)] = own
            continue
        labels = [each.label for each in question.options]
        picked = [chosen] if isinstance(chosen, str) and chosen else chosen if isinstance(chosen, list) else []
        if any(each not in labels for each in picked):
            return "leave"
        if picked:
            selections[str(index)] = [labels.index(each) for each in dict.fromkeys(picked)]
    if not selections and not custom:
        return "again"
    return _complete(call.call.call_id, len(questions), selections, custom)


def _complete(call_id: CallId, count: int, selections: dict[str, list[int]], custom: dict[str, str]) -> Choice:
    missing = [str(place) for place in range(count) if str(place) not in (*selections, *custom)]
    return Choice(call_id=call_id, selections=selections, custom={**custom, **dict.fromkeys(missing, NO_ANSWER)})
