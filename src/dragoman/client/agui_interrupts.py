"""Interrupts over AG-UI that ask for a value, as questions and permissions, and the values that answer them. Pure.

LangGraph's AG-UI servers pass a graph's interrupts on as they are: in the outcome of a run, or, by default, in custom
events with no outcome. A graph gets what its node expects, which the protocol does not fix. Interrupts of other servers
say with a schema what they expect.
"""

from collections.abc import Iterable, Mapping, Sequence
from uuid import uuid4

import msgspec

from dragoman.adapters.langgraph_questions import (
    DECLINED,
    action_requests,
    questions_for,
    request_name,
    value_of,
)
from dragoman.client.decoding import parse_json
from dragoman.client.events import Answer, Choice, Deny, Pending, Permission, Result
from dragoman.client.pending import parse_question
from dragoman.core.content import Json, JsonObject

INTERRUPT_EVENT = "on_interrupt"
"""The custom event with an interrupt's value."""


class GraphInterrupt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An interrupt that waits for its value."""

    id: str
    value: Json
    schema: Json = None
    """The JSON schema of the answer."""
    is_custom: bool = False
    """Whether a custom event reported it, and not the run's outcome."""
    is_graph: bool = True
    """Whether it comes from LangGraph."""


def from_outcome(interrupt: JsonObject) -> GraphInterrupt | None:
    """The interrupt in a run's outcome that asks for a value. None: it asks for permission."""
    interrupt_id, schema = str(interrupt.get("id")), interrupt.get("responseSchema")
    details = (interrupt.get("metadata") or {}).get("langgraph")
    if isinstance(details, dict) and "raw" in details:
        return GraphInterrupt(id=interrupt_id, value=details["raw"], schema=schema)
    reason = str(interrupt.get("reason") or "")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    asks_permission = isinstance(properties, dict) and "approved" in properties
    if reason in ("tool_call", "confirmation") or asks_permission:
        return None
    if interrupt.get("toolCallId") and reason != "input_required":
        return None
    question = {"message": str(interrupt.get("message") or reason)}
    return GraphInterrupt(id=interrupt_id, value=question, schema=schema, is_graph=False)


def from_custom_event(value: Json, raw_event: Json) -> GraphInterrupt:
    """The interrupt in a custom event. LangGraph's value is JSON in a string; the raw event may have its ID."""
    if isinstance(value, dict) and {"id", "reason"} <= value.keys():  # CrewAI's, as an outcome would have it
        whole = from_outcome(value)
        if whole is not None:
            return msgspec.structs.replace(whole, is_custom=True)
    parsed = parse_json(value) if isinstance(value, str) else value
    raw = raw_event if isinstance(raw_event, dict) else {}
    return GraphInterrupt(
        id=str(raw.get("id") or uuid4().hex), value=parsed, schema=raw.get("response_schema"), is_custom=True
    )


def pending_in(interrupt: GraphInterrupt) -> Iterable[Pending]:
    """What a graph waits for: permissions for calls, or the answer to a question."""
    requests = action_requests(interrupt.value)
    for index, request in enumerate(requests):
        arguments = request.get("args", request.get("arguments", {}))
        yield Permission(call_id=_request_id(interrupt, index), name=request_name(request), arguments=arguments)
    if not requests:
        yield parse_question(interrupt.id, questions_for(interrupt.value, interrupt.schema))


def resume_value(interrupt: GraphInterrupt, answers: Mapping[str, Answer]) -> Json:
    """What the graph gets. A call without an answer is rejected."""
    requests = action_requests(interrupt.value)
    if requests:
        return {"decisions": [_decision(answers.get(_request_id(interrupt, index))) for index in range(len(requests))]}
    match answers.get(interrupt.id):
        case Choice(selections=selections, custom=custom):
            chosen = [*selections.get(0, ()), *filter(None, [custom.get(0)])]
            if len(chosen) > 1:
                return chosen
            text = "".join(chosen)
        case Result(text=text):
            pass
        case _:
            return DECLINED
    return value_of(text, interrupt.value, interrupt.schema)


def resume_entry(interrupt: GraphInterrupt, answers: Mapping[str, Answer]) -> JsonObject:
    """The entry of the protocol's `resume`. A graph would get a cancelled one as a value."""
    if not interrupt.is_graph and isinstance(answers.get(interrupt.id), Deny | None):
        return {"interruptId": interrupt.id, "status": "cancelled"}
    return {"interruptId": interrupt.id, "status": "resolved", "payload": resume_value(interrupt, answers)}


def resume_command(interrupts: Sequence[GraphInterrupt], answers: Mapping[str, Answer]) -> JsonObject | None:
    """What resumes the graph in LangGraph's own way. None: the protocol's `resume` does.

    LangGraph's servers cannot resume several interrupts with the protocol's entries, and pass them to the graph as one
    value, which it refuses.
    """
    of_graphs = [each for each in interrupts if each.is_graph]
    if len(of_graphs) > 1:
        return {"resume": {each.id: resume_value(each, answers) for each in of_graphs}}
    if of_graphs and of_graphs[0].is_custom:
        return {"resume": resume_value(of_graphs[0], answers)}
    return None


def _request_id(interrupt: GraphInterrupt, index: int) -> str:
    return f"{interrupt.id}/{index}" if index else interrupt.id


def _decision(answer: Answer | None) -> JsonObject:
    match answer:
        case None:
            return {"type": "reject", "message": "The user did not answer"}
        case Deny(reason=reason):
            return {"type": "reject", "message": reason or "The user denied this call"}
    return {"type": "approve"}
