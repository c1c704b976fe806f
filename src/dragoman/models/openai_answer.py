"""OpenAI's Chat Completions on the wire, inwards: streamed chunks as model events, failures as our three. Pure.

What comes in is another machine's: it is decoded strictly, bounded, and refused with `ModelFailed`.

    open ──finish_reason──▶ finished ──[DONE] or end of body──▶ done
      └──[DONE] or end of body──▶ ModelFailed

Source: the OpenAI API reference, "Chat Completions", streaming; the servers' habits are told where they are met.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from dragoman.core.content import Json, JsonObject, Usage
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
"""Calls in one answer. More is a model that runs wild."""
MAX_ARGUMENTS_CHARS = 4 * 1024 * 1024
"""Characters of all arguments in one answer."""
_MAX_EXCERPT_CHARS = 500

_STOP_REASONS: dict[str, ModelStop] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_ABORTED_REASONS = frozenset({"abort", "cancelled", "error", "insufficient_system_resource"})
"""Finish reasons by which servers say that they broke off: vLLM, OpenRouter, DeepSeek."""

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


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    finish_reason: str | None = None
    index: int = 0


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


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


class AnswerReader:
    """Reads the events of one streamed answer. The calls come out together, when the answer is finished.

    Args:
        new_id: makes ids for calls of servers that give them none.
    """

    __slots__ = ("_argument_chars", "_calls", "_is_refusal", "_new_id", "_open", "_stop", "_usage", "is_done")

    def __init__(self, new_id: Callable[[], str]) -> None:
        self.is_done = False
        """The server said that nothing more will come."""
        self._new_id = new_id
        self._calls: list[_OpenCall] = []
        self._open: dict[int | None, _OpenCall] = {}  # by the index that the server gives
        self._argument_chars = 0
        self._stop: ModelStop | None = None
        self._is_refusal = False
        self._usage: Usage | None = None

    @property
    def is_finished(self) -> bool:
        """The model has stopped; its usage may still come."""
        return self._stop is not None

    def feed(self, data: bytes) -> list[ModelEvent]:
        """The events that the data of one server-sent event brings.

        Raises:
            ModelFailed: it cannot be read, is an error, or says that the answer was broken off; see `failure`.
        """
        if self.is_done:
            return []
        if data.strip() == b"[DONE]":
            self.is_done = True
            return []
        try:
            chunk = _CHUNK.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:  # bad UTF-8, deep nesting
            raise ModelFailed(f"a chunk of a chat completion expected, got {excerpt(data)} ({error})") from error
        if chunk.error is not None:
            raise _classify_error(None, chunk.error)
        if chunk.usage is not None:
            self._usage = Usage(chunk.usage.prompt_tokens or 0, chunk.usage.completion_tokens or 0)
        events: list[ModelEvent] = []
        for choice in chunk.choices or ():
            if choice.index == 0:  # further choices are answers that nobody asked for
                self._add_choice(choice, events)
        return events

    def close(self) -> list[ModelEvent]:
        """The answer's last events: its calls and `Finished`. To be called when the body has ended, or after `is_done`.

        Raises:
            ModelFailed: the model had not finished.
        """
        if self._stop is None:
            raise ModelFailed("the answer ended without a finish reason")
        closed = [call.close() for call in self._calls]
        stop = self._stop
        if stop not in {"end_turn", "tool_use"} and closed and not (closed[-1].raw and closed[-1].input is not None):
            closed.pop()  # cut off; those before it are whole, because models write one after another
        if stop == "end_turn" and closed:  # Ollama and some others finish with "stop" when there are calls
            stop = "tool_use"
        elif stop == "tool_use" and not closed:
            stop = "end_turn"
        return [*closed, Finished(stop=stop, usage=self._usage)]

    def _add_choice(self, choice: _Choice, events: list[ModelEvent]) -> None:
        delta = choice.delta
        if delta is not None:
            # vLLM sends both names with one text; OpenRouter and newer servers send the short one only.
            if thinking := delta.reasoning_content or delta.reasoning:
                events.append(ThinkingDelta(thinking))
            if delta.content:
                events.append(TextDelta(delta.content))
            if delta.refusal:
                self._is_refusal = True
                events.append(TextDelta(delta.refusal))
            for call in delta.tool_calls or ():
                self._add_call_delta(call)
        if choice.finish_reason:
            if choice.finish_reason in _ABORTED_REASONS:
                raise ModelFailed(f"the model broke its answer off: {choice.finish_reason}")
            # Names that only one server has ("eos", "stop_sequence" …) mean that the model came to an end.
            self._stop = "refusal" if self._is_refusal else _STOP_REASONS.get(choice.finish_reason, "end_turn")

    def _add_call_delta(self, delta: _CallDelta) -> None:
        """Open a call or go on with one. Another id at the same index is another call: some servers number all 0."""
        call = self._open.get(delta.index)
        named = delta.function.name if delta.function is not None else None
        if call is None or (delta.id and delta.id != call.id) or (delta.index is None and not delta.id and named):
            if len(self._calls) >= MAX_CALLS:
                raise ModelFailed(f"at most {MAX_CALLS} calls in one answer expected, got more")
            call = self._open[delta.index] = _OpenCall(delta.id or self._new_id())
            self._calls.append(call)
        call.name = call.name or named or ""
        arguments = (delta.function.arguments if delta.function is not None else None) or ""
        self._argument_chars += len(arguments)
        if self._argument_chars > MAX_ARGUMENTS_CHARS:
            raise ModelFailed(f"at most {MAX_ARGUMENTS_CHARS} characters of arguments expected, got more")
        call.arguments.append(arguments)


def parse_arguments(raw: str) -> JsonObject | None:
    """The arguments of a call, or None when they are no JSON object. Some servers write none as an empty text."""
    if not raw.strip():
        return {}
    try:
        return _ARGUMENTS.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


# --- failures ---------------------------------------------------------------------------------------------------------


def classify_error_body(status: int | None, body: bytes) -> ModelFailed:
    """What an error answer means.

    Args:
        status: the HTTP status; None for an error inside a stream.
        body: the answer's body or its beginning.
    """
    try:
        answer = _ANY.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        answer = excerpt(body)
    if isinstance(answer, dict):  # {"error": …} mostly; {"message": …} vLLM; {"detail": …} whatever stands on FastAPI
        answer = answer.get("error") or answer
    return _classify_error(status, answer)


def _classify_error(status: int | None, error: Json) -> ModelFailed:
    code, words = "", ""
    if isinstance(error, dict):
        code = str(error.get("code") or "")
        words = str(error.get("message") or error.get("detail") or error)
        kind = str(error.get("type") or "")
    else:
        words, kind = str(error), ""
    if status is None and code.isdigit():  # OpenRouter and llama.cpp put the status into a stream's error
        status = int(code)
    label = kind if code.isdigit() else code or kind
    text = ": ".join(part for part in (f"status {status}" if status else "", label, _truncate(words)) if part)
    if status in _UNAVAILABLE or (status or 0) >= 500 or kind == "overloaded_error":
        return ModelUnavailable(text)
    if status == 413 or {code, kind} & _TOO_LONG_CODES or _TOO_LONG.search(words):
        return ContextTooLong(text)
    return ModelFailed(text)


def excerpt(data: bytes) -> str:
    """Another machine's bytes for a log line: short, and without line breaks."""
    return _truncate(data[: 2 * _MAX_EXCERPT_CHARS].decode("utf-8", "replace"))


def _truncate(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_EXCERPT_CHARS else f"{text[:_MAX_EXCERPT_CHARS]}…"
