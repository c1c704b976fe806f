"""Answers to calls, and the texts of results that no tool returned. Pure.

Source of the texts: shared rules, 18; the model reads them, on every protocol.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from dragoman.core.content import (
    Data,
    InputBlock,
    Json,
    JsonObject,
    Text,
    ToolMessage,
    encode_json,
    is_too_deep,
    text_of,
)
from dragoman.core.events import CallOutcome, CallSettled
from dragoman.core.ids import CallId, MessageId
from dragoman.core.inputs import Choice
from dragoman.core.open_calls import OpenCall
from dragoman.core.refusals import InvalidAnswer

INTERRUPTED_RESULT = "Tool call interrupted: the server restarted"
EDITED_RESULT = "Tool call edited: the user allowed it with other arguments, in the call that follows"
STOPPED_RESULT = "Tool call cancelled: the run was stopped"
FAILED_RUN_RESULT = "Tool call cancelled: the run failed"
_CANCELLED = "Tool call cancelled"
RAW_LIMIT = 4 * 1024 * 1024
"""Bytes of a tool's return value that are stored in addition to its text."""
RESULT_LIMIT = 1024 * 1024
"""Characters of a tool's text result. A longer text is truncated, with a note."""
BLOCK_LIMIT = 1000
"""Blocks in a tool's result."""
MEDIA_LIMIT = 16 * 1024 * 1024
"""Bytes of an image, a file or an object in a tool's result. A larger one is replaced by a note."""


def denied_result(reason: str | None) -> str:
    """The result of a call that the user denied."""
    return f"Tool call denied: {reason}" if reason else "Tool call denied"


def not_found_result(name: str) -> str:
    """The result of a call of a tool that does not exist or is not enabled."""
    return f"Tool not found: {name}"


def failed_result(message: str) -> str:
    """The result of a tool that raised."""
    return f"Tool execution failed: {message}"


def settle_call(
    call: OpenCall,
    outcome: CallOutcome,
    content: str | tuple[InputBlock, ...],
    new_id: Callable[[], str],
    *,
    raw: Json | msgspec.UnsetType = msgspec.UNSET,
    by_client: bool = False,
    repeated_by: CallId | None = None,
    private: Json | msgspec.UnsetType = msgspec.UNSET,
) -> CallSettled:
    """The event that gives a call its result."""
    result = ToolMessage(
        id=MessageId(new_id()),
        call_id=call.call.call_id,
        name=call.call.name,
        content=content,
        loop=call.loop,
        is_error=outcome != "done",
        raw=raw,
        repeated_by=repeated_by,
        private=private,
    )
    arguments = call.call.input if call.kind == "fork" else None
    return CallSettled(outcome=outcome, result=result, by_client=by_client, arguments=arguments, internal=call.internal)


def settle_cancelled(call: OpenCall, text: str, new_id: Callable[[], str]) -> CallSettled:
    """The event that cancels a call. The result of one that has begun says so: it may have had effects.

    Args:
        call: the call.
        text: why it is cancelled, as the model reads it.
        new_id: makes ids.
    """
    if call.started and not call.is_waiting():
        text = text.replace(_CANCELLED, f"{_CANCELLED} while it ran", 1)
    return settle_call(call, "cancelled", text, new_id)


def settle_with_value(
    call: OpenCall,
    outcome: CallOutcome,
    value: Json,
    new_id: Callable[[], str],
    *,
    private: Json | msgspec.UnsetType = msgspec.UNSET,
) -> CallSettled:
    """The event that settles a call with its tool's return value. The call fails if JSON cannot represent the value."""
    try:
        content = result_content(value)
        has_raw = isinstance(content, str) and (not isinstance(value, str) or object_with_meta(value) is not value)
        raw = to_plain_json(value) if has_raw else msgspec.UNSET
        return settle_call(call, outcome, content, new_id, raw=raw, private=private)
    except (TypeError, ValueError, RecursionError):
        text = failed_result(f"the tool {call.call.name} returned a value that cannot be written as JSON")
        return settle_call(call, "failed", text, new_id)


def result_content(value: Json) -> str | tuple[InputBlock, ...]:
    """A tool's return value as the model reads it: strings and blocks unchanged, everything else as compact JSON.

    `_meta` is for applications and is removed, also from an object that is returned as JSON text. A text over
    `RESULT_LIMIT` is truncated, a block over `MEDIA_LIMIT` is left out.

    Raises:
        TypeError: the value cannot be encoded as JSON.
    """
    value = object_with_meta(value)
    if isinstance(value, dict) and "_meta" in value:
        value = {key: each for key, each in value.items() if key != "_meta"}
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, InputBlock) for each in value):
        return tuple(_limit_blocks(value))
    return _truncate(replace_surrogates(value) if isinstance(value, str) else compact_json(value), RESULT_LIMIT)


def object_with_meta(value: Json) -> Json:
    """The object in a tool's JSON text, if it has a `_meta` for applications; else the value itself."""
    if not (isinstance(value, str) and value.lstrip().startswith("{") and '"_meta"' in value):
        return value
    try:
        found = msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return value
    return found if isinstance(found, dict) and "_meta" in found and not is_too_deep(found) else value


def _limit_blocks(blocks: Sequence[InputBlock]) -> Iterator[InputBlock]:
    """The blocks within the limits of one result. Raises UnicodeEncodeError if one cannot be encoded."""
    chars, size = 0, 0
    for index, block in enumerate(blocks):
        if chars > RESULT_LIMIT or index == BLOCK_LIMIT:
            yield Text(f"[cut: {len(blocks) - index} more blocks]")
            return
        if isinstance(block, Text):
            text = replace_surrogates(block.text)
            yield Text(_truncate(text, RESULT_LIMIT - chars))
            chars += len(text)
            continue
        own = len(encode_json(block))
        if size + own > MEDIA_LIMIT or (isinstance(block, Data) and is_too_deep(block.data)):
            yield Text(f"[cut: {type(block).__name__.lower()} of {own} bytes]")
            continue
        size += own
        yield block


def _truncate(text: str, limit: int) -> str:
    if len(text) > limit:
        return f"{text[:limit]} [cut: {len(text) - limit} more characters]"
    return text


def compact_json(value: Json) -> str:
    """The value as compact JSON. Raises TypeError if it cannot be encoded."""
    return encode_json(value).decode()


def replace_surrogates(text: str) -> str:
    """The text with every lone surrogate, which cannot be encoded, replaced by a question mark."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def to_plain_json(value: Json) -> Json:
    """The value as decoded JSON; UNSET if it is too long or too deep. Raises TypeError if it cannot be encoded."""
    encoded = encode_json(value)
    if len(encoded) > RAW_LIMIT or is_too_deep(value):
        return msgspec.UNSET
    return msgspec.json.decode(encoded)


class QuestionOption(msgspec.Struct, frozen=True):
    """One choice of a question."""

    label: str


class Question(msgspec.Struct, frozen=True, rename="camel"):
    """One question with its choices."""

    question: str
    options: tuple[QuestionOption, ...] = ()
    multi_select: bool = False


class Questions(msgspec.Struct, frozen=True):
    """The arguments of the built-in question tool that answers depend on."""

    questions: tuple[Question, ...]


def questions_of(arguments: JsonObject) -> Questions:
    """The questions of a call. Invalid arguments count as one question that takes a free text."""
    try:
        return msgspec.convert(arguments, Questions)
    except msgspec.ValidationError:
        return Questions(questions=(Question(question=""),))


def choice_from(call: OpenCall, content: str | tuple[InputBlock, ...]) -> Choice:
    """Read the answer of a protocol that has only texts: `{"selections", "custom"}` as JSON, or a free text.

    Selections are indices or labels, by question (`{"0": [1]}`) or, for a single question, as a plain list. Custom
    texts are by question too, or one text for all questions without a selection: it chooses the option that it names.

    Raises:
        InvalidAnswer: a selected option does not exist.
    """
    questions = {str(index): each for index, each in enumerate(questions_of(call.shown().input).questions)}
    value = structured_answer(content)
    if value is None:
        value = {"custom": text_of(content)}
    selections = _by_question(value.get("selections"), list)
    selected = {
        index: [option_index(questions[index], each) for each in chosen]
        for index, chosen in selections.items()
        if index in questions
    }
    custom = value.get("custom")
    if isinstance(custom, str):
        open_questions = {index: each for index, each in questions.items() if not selected.get(index)}
        named = {index: option_named(each, custom) for index, each in open_questions.items()}
        selected |= {index: [option] for index, option in named.items() if option is not None}
        custom = {index: custom for index, option in named.items() if option is None}
    return Choice(call_id=call.call.call_id, selections=selected, custom=_by_question(custom, str))


def structured_answer(content: str | tuple[InputBlock, ...]) -> JsonObject | None:
    """The answer to questions in a text, if it is `{"selections", "custom"}` as JSON and not a free text."""
    text = text_of(content)
    try:
        value = msgspec.json.decode(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return None  # not JSON, or with a lone surrogate: the text itself is the answer
    return value if isinstance(value, dict) and value.keys() & {"selections", "custom"} else None


def choice_from_value(call: OpenCall, value: Json) -> Choice:
    """Read the answer of a protocol that has JSON values: an object with `selections` or `custom`, or a free text.

    Raises:
        InvalidAnswer: it is something else, or a selected option does not exist.
    """
    if isinstance(value, str):
        value = {"custom": value}
    elif not isinstance(value, dict) or not value or not value.keys() <= {"selections", "custom"}:
        raise InvalidAnswer('the answer to a question is {"selections": …, "custom": …} or a string')
    return choice_from(call, compact_json(value))


def _by_question(value: Json, kind: type) -> dict[str, Json]:
    """Answers by question; a plain value belongs to the first question."""
    if value is None:
        return {}
    by_question = value if isinstance(value, dict) else {"0": value}
    if any(not isinstance(each, kind) for each in by_question.values()):
        raise InvalidAnswer('an answer is {"selections": {"0": [1]}, "custom": {"1": "own words"}}')
    return by_question


def option_index(question: Question, chosen: Json) -> int:
    """The index of an option, given as index or as label. Raises InvalidAnswer if it is none of the labels."""
    if isinstance(chosen, int) and not isinstance(chosen, bool):
        return chosen
    labels = [option.label for option in question.options]
    if chosen not in labels:
        raise InvalidAnswer(f"{repr(chosen)[:80]} is none of the options {', '.join(labels)}")
    return labels.index(chosen)


def option_named(question: Question, text: str) -> int | None:
    """The index of the option whose label a user's text is, in any case; None if it is a text of the user's own."""
    labels = [option.label.strip().casefold() for option in question.options]
    wanted = text.strip().casefold()
    return labels.index(wanted) if wanted in labels else None


def settle_choice(
    call: OpenCall,
    choice: Choice,
    new_id: Callable[[], str],
    *,
    content: str | tuple[InputBlock, ...] | None = None,
    by_client: bool = False,
) -> CallSettled:
    """Settle a question with the user's answer.

    Args:
        call: the question.
        choice: the answer.
        new_id: makes ids.
        content: the answer as the user's own text; without one the result names the labels of the chosen options.
        by_client: the application holds the answer as the result itself.

    Raises:
        InvalidAnswer: a question has no answer, an index is out of range, or there are several choices for one.
    """
    answers = []
    for number, question in enumerate(questions_of(call.shown().input).questions):
        chosen = choice.selections.get(str(number), [])
        custom = choice.custom.get(str(number)) or None
        if not chosen and custom is None:
            raise InvalidAnswer(f"question {number} has no answer")
        if any(not 0 <= index < len(question.options) for index in chosen):
            raise InvalidAnswer(f"question {number} has {len(question.options)} options, got {str(chosen)[:80]}")
        if len(chosen) > 1 and not question.multi_select:
            raise InvalidAnswer(f"question {number} takes one option, got {len(chosen)}")
        labels = [question.options[index].label for index in chosen]
        answers.append({"question": question.question, "labels": labels, "custom": custom})
    raw = {"answers": answers}
    result = compact_json(raw) if content is None else content
    return settle_call(call, "done", result, new_id, raw=raw, by_client=by_client)


class _Answer(msgspec.Struct, frozen=True):
    """The answer to one question, as `settle_choice` stores it."""

    labels: list[str]
    custom: str | None


class _Answers(msgspec.Struct, frozen=True):
    answers: list[_Answer]


def _answers_of(result: ToolMessage) -> list[_Answer] | None:
    """The user's answers. None for any other result: applications return objects of their own."""
    try:
        return msgspec.convert(result.raw, _Answers).answers
    except msgspec.ValidationError:
        return None


def answer_texts(result: ToolMessage) -> list[list[str]]:
    """The user's answer to each question: the labels and the custom text. Empty if it answers no question."""
    return [[text for text in (*answer.labels, answer.custom) if text] for answer in _answers_of(result) or ()]


def answer_text(result: ToolMessage) -> str:
    """The user's answer as text: the labels or the custom text of each question, joined with commas.

    A result that answers no question is returned as its text.
    """
    if _answers_of(result) is None:
        return text_of(result.content)
    return ", ".join(text for texts in answer_texts(result) for text in texts)
