"""OpenAI's Chat Completions: translate streamed chunks into model events, and errors into our three. Pure.

The input is not trusted: it is decoded strictly, bounded, and rejected with `ModelFailed`.

    open ──finish_reason──▶ finished ──[DONE] or end of body──▶ done
      ├──[DONE]──▶ done, if there was an answer: some servers send no finish reason
      └──end of body──▶ AnswerInterrupted

Source: the OpenAI API reference, "Chat Completions", streaming. Deviations of servers are noted where they are handled.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.core.content import Json, JsonObject, Usage
from dragoman.models.think_tags import ThinkTags
from dragoman.ports.models import (
    CallRequested,
    ContextTooLong,
    Finished,
    ModelEvent,
    ModelFailed,
    ModelStop,
    ModelUnavailable,
    TextDelta,
    ThinkingDelta,
)

MAX_CALLS = 256
"""Maximum number of calls in one answer. More means that the model is malfunctioning."""
MAX_ARGUMENTS_CHARS = 4 * 1024 * 1024
"""Maximum length of all arguments in one answer."""
_MAX_EXCERPT_CHARS = 500

_STOP_REASONS: dict[str, ModelStop] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_ABORTED_REASONS = frozenset({"abort", "cancelled", "error", "insufficient_system_resource"})
"""Finish reasons of an aborted answer: vLLM, OpenRouter, DeepSeek."""

_UNAVAILABLE = frozenset({408, 425, 429})
_TOO_LONG_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"})
_TOO_LONG = re.compile(
    r"context (length|window|size)|maximum context|(prompt|input|request)[^.]{0,40} too (long|large)"
    r"|too many (input |prompt )?tokens|reduce the length",
    re.IGNORECASE,
)


# --- chunks -----------------------------------------------------------------------------------------------------------


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallDelta] | None = None
    function_call: _Function | None = None
    """The only call of an answer, as older servers send it."""


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    finish_reason: str | None = None
    index: int = 0


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _CompletionDetails(msgspec.Struct, gc=False):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Json = None


_CHUNK = msgspec.json.Decoder(_Chunk)
_ARGUMENTS = msgspec.json.Decoder(dict[str, Any])
_ANY = msgspec.json.Decoder()


class _OpenCall:
    """A call whose arguments are arriving."""

    __slots__ = ("arguments", "id", "name")

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.name = ""
        self.arguments: list[str] = []

    def close(self) -> CallRequested:
        raw = "".join(self.arguments)
        return CallRequested(id=self.id, name=self.name, input=parse_arguments(raw), raw=raw)


class AnswerInterrupted(ModelFailed):
    """The answer ended before the model had finished."""


class AnswerReader:
    """Reads the events of one streamed answer. Calls are returned together when the answer is finished.

    Args:
        new_id: creates ids for calls that have none from the server.
    """

    __slots__ = (
        "_argument_chars",
        "_calls",
        "_is_refusal",
        "_new_id",
        "_open",
        "_stop",
        "_think_tags",
        "_usage",
        "is_done",
    )

    def __init__(self, new_id: Callable[[], str]) -> None:
        self.is_done = False
        """Whether the server has sent `[DONE]`."""
        self._new_id = new_id
        self._calls: list[_OpenCall] = []
        self._open: dict[int | None, _OpenCall] = {}  # by the index that the server gives
        self._argument_chars = 0
        self._stop: ModelStop | None = None
        self._is_refusal = False
        self._usage: Usage | None = None
        self._think_tags = ThinkTags()

    @property
    def is_finished(self) -> bool:
        """Whether the model has stopped. Its usage may still follow."""
        return self._stop is not None or self.is_done

    def feed(self, data: bytes) -> list[ModelEvent]:
        """Convert the data of one server-sent event.

        Raises:
            ModelFailed: the data is not valid, is an error, or says that the answer was aborted.
        """
        if self.is_done:
            return []
        if data.strip() == b"[DONE]":
            self.is_done = True
            return []
        try:
            chunk = _CHUNK.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:  # bad UTF-8, deep nesting
            raise ModelFailed(f"expected a chunk of a chat completion, got {excerpt(data)} ({error})") from error
        if chunk.error is not None:
            raise _classify_error(None, chunk.error)
        if chunk.usage is not None:
            self._usage = _usage_of(chunk.usage)
        events: list[ModelEvent] = []
        for choice in chunk.choices or ():
            if choice.index == 0:  # further choices were not requested
                self._add_choice(choice, events)
        return events

    def close(self) -> list[ModelEvent]:
        """The last events of the answer: its calls and `Finished`. Call this at the end of the body or after `is_done`.

        Raises:
            AnswerInterrupted: the model has not finished.
        """
        if self._stop is None and self.is_done:
            self._stop = "refusal" if self._is_refusal else "end_turn"
        if self._stop is None:
            raise AnswerInterrupted("the answer ended without a finish reason")
        closed = [call.close() for call in self._calls]
        stop = self._stop
        if stop not in {"end_turn", "tool_use"} and closed and not (closed[-1].raw and closed[-1].input is not None):
            closed.pop()  # truncated; the earlier calls are complete, because models write one after another
        if stop == "end_turn" and closed:  # Ollama and some others finish with "stop" even with calls
            stop = "tool_use"
        elif stop == "tool_use" and not closed:
            stop = "end_turn"
        return [*self._think_tags.close(), *closed, Finished(stop=stop, usage=self._usage)]

    def _add_choice(self, choice: _Choice, events: list[ModelEvent]) -> None:
        delta = choice.delta
        if delta is not None:
            # vLLM sends the same text under both names; OpenRouter and newer servers only use the short one.
            if thinking := delta.reasoning_content or delta.reasoning:
                events.append(ThinkingDelta(thinking))
            if delta.content:
                events += self._think_tags.feed(delta.content)
            if delta.refusal:
                self._is_refusal = True
                events.append(TextDelta(delta.refusal))
            for call in delta.tool_calls or ():
                self._add_call_delta(call)
            if delta.function_call is not None:
                self._add_call_delta(_CallDelta(index=-1, function=delta.function_call))
        if choice.finish_reason:
            if choice.finish_reason in _ABORTED_REASONS:
                raise ModelFailed(f"the model aborted its answer: {choice.finish_reason}")
            # Reasons that only one server uses ("eos", "stop_sequence" …) mean that the model is done.
            self._stop = "refusal" if self._is_refusal else _STOP_REASONS.get(choice.finish_reason, "end_turn")

    def _add_call_delta(self, delta: _CallDelta) -> None:
        """Start or continue a call. A new id at the same index is a new call: some servers number all of them 0."""
        call = self._open.get(delta.index)
        named = delta.function.name if delta.function is not None else None
        if call is None or (delta.id and delta.id != call.id) or (delta.index is None and not delta.id and named):
            if len(self._calls) >= MAX_CALLS:
                raise ModelFailed(f"the answer has more than {MAX_CALLS} calls")
            call = self._open[delta.index] = _OpenCall(delta.id or self._new_id())
            self._calls.append(call)
        call.name = call.name or named or ""
        arguments = (delta.function.arguments if delta.function is not None else None) or ""
        self._argument_chars += len(arguments)
        if self._argument_chars > MAX_ARGUMENTS_CHARS:
            raise ModelFailed(f"the arguments are longer than {MAX_ARGUMENTS_CHARS} characters")
        call.arguments.append(arguments)


def parse_arguments(raw: str) -> JsonObject | None:
    """The arguments of a call; None if they are not a JSON object. Some servers send an empty text for no arguments."""
    if not raw.strip():
        return {}
    try:
        return _ARGUMENTS.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _usage_of(reported: _Usage) -> Usage:
    prompt, completion = reported.prompt_tokens_details, reported.completion_tokens_details
    return Usage(
        input_tokens=reported.prompt_tokens or 0,
        output_tokens=reported.completion_tokens or 0,
        cached_tokens=(prompt and prompt.cached_tokens) or 0,
        reasoning_tokens=(completion and completion.reasoning_tokens) or 0,
    )


# --- failures ---------------------------------------------------------------------------------------------------------


def classify_error_body(status: int | None, body: bytes) -> ModelFailed:
    """Convert an error response.

    Args:
        status: the HTTP status; None for an error inside a stream.
        body: the body, or its beginning.
    """
    try:
        error = _ANY.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        error = excerpt(body)
    if isinstance(error, dict):  # usually {"error": …}; vLLM: {"message": …}; servers based on FastAPI: {"detail": …}
        error = error.get("error") or error
    return _classify_error(status, error)


def _classify_error(status: int | None, error: Json) -> ModelFailed:
    code, kind, message = "", "", str(error)
    if isinstance(error, dict):
        code = str(error.get("code") or "")
        kind = str(error.get("type") or "")
        message = str(error.get("message") or error.get("detail") or error)
    if (
        status is None and code.isascii() and code.isdigit()
    ):  # OpenRouter and llama.cpp put the status into the error of a stream
        status = int(code)
    label = kind if code.isdigit() else code or kind
    text = ": ".join(part for part in (f"status {status}" if status else "", label, _truncate(message)) if part)
    if status in _UNAVAILABLE or (status or 0) >= 500 or kind == "overloaded_error":
        return ModelUnavailable(text)
    if status == 413 or {code, kind} & _TOO_LONG_CODES or _TOO_LONG.search(message):
        return ContextTooLong(text)
    return ModelFailed(text)


def excerpt(data: bytes) -> str:
    """Untrusted bytes as a short text without line breaks, for log lines."""
    return _truncate(data[: 2 * _MAX_EXCERPT_CHARS].decode("utf-8", "replace"))


def _truncate(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_EXCERPT_CHARS else f"{text[:_MAX_EXCERPT_CHARS]}…"
