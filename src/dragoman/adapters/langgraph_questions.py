"""Interrupts of a graph as questions and permissions, and the answers as values to resume with. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dragoman.core.answers import answer_text
from dragoman.core.content import Call, Json, JsonObject, ToolMessage
from dragoman.core.inputs import Decision
from dragoman.core.json_schema import check_schema, validation_error
from dragoman.core.refusals import Invalid

MAX_QUESTION_CHARS = 2000
DECLINED = ""
"""What a node gets for a question that the user declines: text, and false for a node that asks for an approval."""
_BOOLEANS = {"true": True, "false": False}
_CHOICE_MEMBERS = ("options", "choices", "multiple", "multiSelect")


def action_requests(value: object) -> Sequence[Mapping[str, Any]]:
    """The calls that an interrupt asks permission for; none if it is a question."""
    requests = value.get("action_requests") if isinstance(value, Mapping) else None
    if not isinstance(requests, list | tuple) or not all(isinstance(each, Mapping) for each in requests):
        return ()
    return requests


def request_name(request: Mapping[str, Any]) -> str:
    """The tool of an action request."""
    return str(request.get("name") or request.get("action") or "")


def match_calls(requests: Iterable[Mapping[str, Any]], calls: Iterable[Call]) -> list[Call | None]:
    """The announced call of each action request: in order, by name and arguments."""
    left = list(calls)
    found: list[Call | None] = []
    for request in requests:
        arguments = request.get("args", request.get("arguments", {}))
        call = next((each for each in left if (each.name, each.input) == (request_name(request), arguments)), None)
        if call is not None:
            left.remove(call)
        found.append(call)
    return found


def questions_for(value: object, schema: Json = None) -> JsonObject:
    """The question that an interrupt's value stands for, as arguments of `AskUserQuestion`."""
    text, choices, multiple = _parts(value, schema)
    options = [
        {"label": str(each.get("label", each.get("value", ""))), "description": str(each.get("description", ""))}
        if isinstance(each, Mapping)
        else {"label": str(each)}
        for each in choices
    ]
    return {"questions": [{"question": text, "options": options, "multiSelect": multiple}]}


def misfit(schema: Json, value: Json) -> str | None:
    """How an answer does not match the schema that a node gave for it; None if it does, or if nothing can be said."""
    if not isinstance(schema, dict):
        return None
    try:
        check_schema(schema, unsupported=frozenset())
    except Invalid:
        return None
    return validation_error(schema, value)


def _parts(value: object, schema: Json) -> tuple[str, Sequence[Any], bool]:
    if isinstance(value, str):
        return "".join((value,)), _enum(schema), False
    if isinstance(value, Mapping):
        name = _question_member(value)
        if name is not None:
            choices = value.get("options") or value.get("choices")
            multiple = bool(value.get("multiple") or value.get("multiSelect"))
            text = "\n".join([value[name], *_details(value, name)])
            return text[:MAX_QUESTION_CHARS], choices if isinstance(choices, list | tuple) else _enum(schema), multiple
    return _json(value)[:MAX_QUESTION_CHARS], _enum(schema), False


def _question_member(value: Mapping[str, Any]) -> str | None:
    """The member with the words of a question; None: the value is no question."""
    return next((name for name in ("question", "message", "prompt") if isinstance(value.get(name), str)), None)


def _details(value: Mapping[str, Any], question: str) -> Iterable[str]:
    """What the question is about: the other members, a line each."""
    for name, detail in value.items():
        if name != question and name not in _CHOICE_MEMBERS:
            yield f"{name}: {detail if isinstance(detail, str) else _json(detail)}"


def _json(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def _enum(schema: Json) -> Sequence[Any]:
    if not isinstance(schema, Mapping):
        return ()
    if schema.get("type") == "boolean":
        return [*_BOOLEANS]
    found = schema.get("enum")
    return [str(each) for each in found] if isinstance(found, list) else ()


def answer_to(value: object, answer: ToolMessage | Decision | None, schema: Json = None) -> Any:  # noqa: ANN401  # what a node gets
    """What `interrupt(value)` returns for a user's answer."""
    if not isinstance(answer, ToolMessage):
        return DECLINED
    _, _, multiple = _parts(value, None)
    if multiple and isinstance(answer.raw, dict):
        return [label for each in answer.raw.get("answers", []) for label in each["labels"]]
    return value_of(answer_text(answer), value, schema)


def value_of(text: str, value: object, schema: Json = None) -> Any:  # noqa: ANN401  # what a node gets
    """What the words of an answer mean for the node that asks.

    A question gets the words, or the object if they are one. Any other value, and a question whose schema is not of a
    string, gets JSON if the words are JSON. `true` and `false` always are: nodes that ask for an approval in words test
    the answer itself, for which the text "false" would be an approval.
    """
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind != "string" and text.strip().lower() in _BOOLEANS:
        return _BOOLEANS[text.strip().lower()]
    is_question = isinstance(value, str) or (isinstance(value, Mapping) and _question_member(value) is not None)
    if kind == "string" or (is_question and schema is None and not _is_object(text)):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _is_object(text: str) -> bool:
    """Whether an answer is meant as an object, which nodes with several members expect: nobody writes one as words."""
    return text.lstrip().startswith("{")


def decision_for(answer: ToolMessage | Decision | None) -> JsonObject:
    """The decision about one action request."""
    if isinstance(answer, Decision) and not answer.granted:
        return {"type": "reject", "message": answer.reason or "The user denied this call"}
    return {"type": "approve"}
