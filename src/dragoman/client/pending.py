"""Pending requests: decoding them, and matching answers to them. Pure."""

from collections.abc import Iterable, Mapping, Sequence

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
    """An answer matches no pending request."""


def parse_question(call_id: str, arguments: JsonObject, loop: str = "") -> Question:
    """Decode the question in a call's arguments. Invalid arguments give an empty question."""
    try:
        items = msgspec.convert(arguments.get("questions"), tuple[QuestionItem, ...])
    except msgspec.ValidationError:
        items = (QuestionItem(question=""),)
    return Question(call_id=call_id, questions=items, loop=loop)


def requests_in(pending: Iterable[Pending], tool_names: Mapping[str, str]) -> Iterable[Permission | Question]:
    """What the user is asked at the end of a run. A call of `AskUserQuestion` was shown as its question before."""
    for each in pending:
        was_shown = tool_names.get(each.call_id) == ASK_USER_QUESTION
        if isinstance(each, Permission) or (isinstance(each, Question) and not was_shown):
            yield each


def question_arguments(questions: Sequence[QuestionItem]) -> JsonObject:
    """The arguments of a call that asks these questions."""
    return {"questions": msgspec.to_builtins(questions)}


def classify_open_call(
    call_id: str, name: str, arguments: JsonObject, client_tools: Iterable[str], *, is_repeat: bool = False
) -> Pending:
    """What an open call waits for, by the kind of its tool. A call that is a repeat needs permission."""
    if is_repeat:
        return Permission(call_id=call_id, name=name, arguments=arguments, is_repeat=True)
    if name in client_tools:
        return ClientCall(call_id=call_id, name=name, arguments=arguments)
    if name == ASK_USER_QUESTION:
        return parse_question(call_id, arguments)
    return Permission(call_id=call_id, name=name, arguments=arguments)


def choice_to_json(choice: Choice) -> JsonObject:
    """Encode a choice as AAP, AG-UI and the Agent API expect it: labels by question index."""
    encoded: JsonObject = {"selections": {str(index): labels for index, labels in choice.selections.items()}}
    if choice.custom:
        encoded["custom"] = {str(index): text for index, text in choice.custom.items()}
    return encoded


def choice_from_answers(call_id: str, answers: Sequence[JsonObject]) -> Choice:
    """The choice in the answers to a question's items, as a server stores them: each with `labels` and `custom`."""
    return Choice(
        call_id=call_id,
        selections={index: tuple(each["labels"]) for index, each in enumerate(answers) if each["labels"]},
        custom={index: each["custom"] for index, each in enumerate(answers) if each["custom"]},
    )


def match_answers(pending: Sequence[Pending], answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """Return the answers, each with the id of its call. One without an id goes to the only call that it fits.

    Raises:
        UnmatchedAnswer: an answer fits no pending call, fits several, has the wrong type, or is the call's second.
    """
    matched: dict[str, Answer] = {}
    for answer in answers:
        if not isinstance(answer, Answer):
            raise UnmatchedAnswer(f"expected Allow(), Deny(), Choice.of('…') or Result(…), got {answer!r}")
        call_id = answer.call_id or _find_only_match(pending, answer)
        request = next((each for each in pending if each.call_id == call_id), None)
        if request is None:
            pending_ids = ", ".join(each.call_id for each in pending) or "none"
            raise UnmatchedAnswer(f"no pending call has the id {call_id} (pending: {pending_ids})")
        if not isinstance(answer, _ACCEPTED_ANSWERS[type(request)]):
            raise UnmatchedAnswer(f"{type(answer).__name__} does not answer a {type(request).__name__}")
        if call_id in matched:
            raise UnmatchedAnswer(f"call {call_id} has two answers")
        matched[call_id] = msgspec.structs.replace(answer, call_id=call_id)
    return tuple(matched.values())


_ACCEPTED_ANSWERS: dict[type, tuple[type, ...]] = {
    Permission: (Allow, Deny),
    Question: (Choice, Deny, Result),
    ClientCall: (Result, Deny),
}


def _find_only_match(pending: Sequence[Pending], answer: Answer) -> str:
    matches = [each.call_id for each in pending if isinstance(answer, _ACCEPTED_ANSWERS[type(each)])]
    if len(matches) != 1:
        raise UnmatchedAnswer(
            f"{type(answer).__name__} without a call_id must fit exactly one pending call, it fits {len(matches)}"
        )
    return matches[0]
