"""Calls that wait for somebody: reading them, and fitting answers to them. Pure."""

from collections.abc import Iterable, Sequence

import msgspec

from dragoman.client.errors import ClientError
from dragoman.client.events import (
    Allow,
    Answer,
    Choice,
    ClientCall,
    Deny,
    Pending,
    Permission,
    Question,
    QuestionItem,
    Result,
)
from dragoman.core.content import JsonObject
from dragoman.core.tools import ASK_USER_QUESTION


class UnmatchedAnswer(ClientError, ValueError):
    """An answer that fits nothing that waits."""


def parse_question(call_id: str, arguments: JsonObject, loop: str = "") -> Question:
    """The question that stands behind a call. Arguments that cannot be read give one without words."""
    try:
        asked = msgspec.convert(arguments.get("questions"), tuple[QuestionItem, ...])
    except msgspec.ValidationError:
        asked = (QuestionItem(question=""),)
    return Question(call_id=call_id, questions=asked, loop=loop)


def classify_open_call(call_id: str, name: str, arguments: JsonObject, client_tools: Iterable[str]) -> Pending:
    """What an open call waits for, by the tool that it is of."""
    if name in client_tools:
        return ClientCall(call_id=call_id, name=name, arguments=arguments)
    if name == ASK_USER_QUESTION:
        return parse_question(call_id, arguments)
    return Permission(call_id=call_id, name=name, arguments=arguments)


def choice_to_json(choice: Choice) -> JsonObject:
    """A choice as an object of JSON, with labels: the form that AAP, AG-UI and the Agent API take."""
    chosen: JsonObject = {"selections": {str(place): each for place, each in choice.selections.items()}}
    if choice.custom:
        chosen["custom"] = {str(place): each for place, each in choice.custom.items()}
    return chosen


def match_answers(pending: Sequence[Pending], answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """The answers, each with the id of its call. One without an id goes to the only call that it fits.

    Raises:
        Unanswerable: an answer is of no waiting call, of several, or of one that has an answer already, or is none.
    """
    given: dict[str, Answer] = {}
    for answer in answers:
        if not isinstance(answer, Answer):
            raise UnmatchedAnswer(f"Allow(), Deny(), Choice.of('…') or Result(…) was expected, got {answer!r}")
        call_id = answer.call_id or _find_only_match(pending, answer)
        waiting = next((each for each in pending if each.call_id == call_id), None)
        if waiting is None:
            waits = ", ".join(each.call_id for each in pending) or "none"
            raise UnmatchedAnswer(f"an answer to a call that waits was expected ({waits}), got one to {call_id}")
        if not isinstance(answer, _ACCEPTED_ANSWERS[type(waiting)]):
            raise UnmatchedAnswer(f"a {type(answer).__name__} is no answer to a {type(waiting).__name__}")
        if call_id in given:
            raise UnmatchedAnswer(f"the call {call_id} has two answers")
        given[call_id] = msgspec.structs.replace(answer, call_id=call_id)
    return tuple(given.values())


_ACCEPTED_ANSWERS: dict[type, tuple[type, ...]] = {
    Permission: (Allow, Deny, Result),
    Question: (Choice, Deny, Result),
    ClientCall: (Result, Deny),
}


def _find_only_match(pending: Sequence[Pending], answer: Answer) -> str:
    fitting = [each.call_id for each in pending if isinstance(answer, _ACCEPTED_ANSWERS[type(each)])]
    if len(fitting) != 1:
        raise UnmatchedAnswer(
            f"a {type(answer).__name__} without a call_id fits {len(fitting)} of the waiting calls, not 1"
        )
    return fitting[0]
