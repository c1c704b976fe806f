"""Decodes the streams of OpenAI Responses. Pure.

Servers differ in what they leave out: indexes, deltas, the ends of items. Each text and each item is emitted once,
whichever of its events brings it first.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

import msgspec

from dragoman.client.codec import Request, SessionHandle
from dragoman.client.decoding import decode_json
from dragoman.client.errors import InvalidResponse
from dragoman.client.events import (
    Ended,
    Event,
    Image,
    Notice,
    Pending,
    Problem,
    Question,
    Restarted,
    StopReason,
    Text,
    Thinking,
    Usage,
)
from dragoman.client.openai_items import parse_part, to_call, to_pending, to_problem, to_result
from dragoman.client.pending import requests_in
from dragoman.client.sse import Frame, FrameReader
from dragoman.core.content import Json, JsonObject
from dragoman.core.tools import ASK_USER_QUESTION

STOP_REASONS: Mapping[str, StopReason] = {
    "max_output_tokens": "max_tokens",
    "content_filter": "refusal",
    "max_steps": "max_steps",
    "interrupted": "interrupted",
    "not_found": "cancelled",
}
"""Stop reasons by the reason of an incomplete response, or the code of a failed one."""
_DONE = b"[DONE]"
_TEXT_EVENTS = {
    "response.output_text.delta": False,
    "response.output_text.done": False,
    "response.refusal.delta": False,
    "response.refusal.done": False,
    "response.reasoning_summary_text.delta": True,
    "response.reasoning_summary_text.done": True,
    "response.reasoning_text.delta": True,
    "response.reasoning_text.done": True,
}
"""Whether it is reasoning, by the type of the event."""
_ENDS = {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}


class _WireEvent(msgspec.Struct, frozen=True):
    """Any event, with the fields of all kinds."""

    type: str = ""
    sequence_number: int | None = None
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: Json = ""
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    item: JsonObject | None = None
    repeated_from: int | None = None
    response: JsonObject | None = None
    error: Json = None
    code: str | None = None
    message: str | None = None


class OpenAiTurn:
    """A response.

    One in the background is stored while it is generated: its stream is resumed after the last event's number. Any
    other is lost with its connection.

    It starts a response, or reads one from its start.

    Args:
        handle: the session.
        first_request: starts or reads the response.
        base: the path under which the API is mounted.
        sent: the input, to be repeated later if the server keeps no history.
    """

    def __init__(
        self, handle: SessionHandle, first_request: Request, base: str, sent: Sequence[JsonObject] = ()
    ) -> None:
        self.is_over = False
        self._handle = handle
        self._first_request = first_request
        self._base = base
        self._sent = list(sent)
        self._is_resumable = first_request.method == "GET"
        self._has_events = False
        self._response_id = ""
        self._last_sequence_number = -1
        self._open_items: dict[str, JsonObject] = {}
        self._emitted_lengths: dict[tuple[str, bool, int], int] = {}
        """Characters emitted so far, by item, whether it is a summary, and part."""
        self._called: set[str] = set()
        self._finished: set[str] = set()
        """The items whose end was decoded."""
        self._spoken: list[tuple[int, Text | Thinking]] = []
        """What was said since the last call, by the index of its item: a crash can cut off no more than that."""
        self._pending: list[Pending] = []

    @property
    def request(self) -> Request:
        """The request that starts the turn or resumes it."""
        if not self._can_continue:
            return self._first_request
        query = f"?stream=true&starting_after={self._last_sequence_number}"
        path = f"{self._base}/responses/{quote(self._response_id, safe='')}{query}"
        return Request(method="GET", path=path, is_idempotent=True)

    @property
    def can_resume(self) -> bool:
        """Whether `request` resumes the turn without losing or repeating anything."""
        return not self._has_events or self._can_continue

    @property
    def _can_continue(self) -> bool:
        return self._is_resumable and bool(self._response_id) and self._last_sequence_number >= 0

    def feed_body(self, body: bytes) -> Sequence[Event]:
        """Decode a response that is not a stream, or a stream that the server did not declare as one."""
        if body.lstrip()[:1] != b"{":
            return [event for frame in FrameReader().feed(body) for event in self.feed(frame)]
        response = decode_json(body, dict[str, Json], "a response")
        if response.get("object") != "response":
            return ()
        self._on_response(response)
        return self._on_end(response)

    def feed(self, frame: Frame) -> Sequence[Event]:
        """Decode one frame of the stream."""
        if frame.data == _DONE:
            return ()
        event = decode_json(frame.data, _WireEvent, "an event of a response")
        number = event.sequence_number
        if number is not None:
            if 0 < number <= self._last_sequence_number:
                return ()
            self._last_sequence_number = max(number, self._last_sequence_number)
        self._has_events = True
        if (is_reasoning := _TEXT_EVENTS.get(event.type)) is not None:
            return self._on_text(event, is_reasoning=is_reasoning)
        return self._on_event(event)

    def _on_event(self, event: _WireEvent) -> Sequence[Event]:
        match event.type:
            case "response.output_item.added" if event.item is not None:
                self._open_items[_key(event, event.item)] = event.item
                if event.item.get("type") == "mcp_approval_request" and event.item.get("arguments"):
                    return self._on_call(event.item, _key(event, event.item))
            case "response.function_call_arguments.done" | "response.mcp_call_arguments.done":
                item = self._open_items.get(_key(event))
                if item is not None:
                    return self._on_call({**item, "arguments": event.arguments}, _key(event))
            case "response.output_item.done" if event.item is not None:
                return self._on_item(event.item, _key(event, event.item), event)
            case kind if kind in _ENDS:
                return self._on_end(event.response or {})
            case "error" | "":
                return self._on_error(event)
            case _ if event.response is not None:
                self._on_response(event.response)
        return ()

    # --- text -------------------------------------------------------------------------------------------------------

    def _on_text(self, event: _WireEvent, *, is_reasoning: bool) -> Sequence[Event]:
        index = event.summary_index if event.summary_index is not None else event.content_index
        whole = event.text if event.text is not None else event.refusal
        text = str(event.delta) if event.type.endswith(".delta") else None
        part = (_key(event), event.summary_index is not None, index or 0)
        return self._say(part, event.output_index or 0, text, whole or "", is_reasoning=is_reasoning)

    def _say(
        self, part: tuple[str, bool, int], output_index: int, delta: str | None, whole: str, *, is_reasoning: bool
    ) -> Sequence[Event]:
        """Emit a delta of a part, or what is missing of the whole part if `delta` is None."""
        emitted = self._emitted_lengths.get(part, 0)
        text = whole[emitted:] if delta is None else delta
        if not text:
            return ()
        self._emitted_lengths[part] = emitted + len(text)
        if is_reasoning:
            said: Text | Thinking | Image = Thinking(text=text)
        elif emitted:
            said = Text(text=text)
        else:
            said = parse_part(text)
        if not isinstance(said, Image):
            self._spoken.append((output_index, said))
        return (said,)

    # --- items ------------------------------------------------------------------------------------------------------

    def _on_item(self, item: JsonObject, key: str, event: _WireEvent) -> Sequence[Event]:
        """Emit what is new in an item that is complete."""
        if key in self._finished:
            return ()
        self._finished.add(key)
        self._open_items.pop(key, None)
        if not self._handle.server_keeps_history and (
            item.get("status") != "incomplete" or item.get("type") == "message"
        ):
            self._handle.messages.append(item)
        match item.get("type"):
            case "message" | "reasoning" as kind:
                said = self._rest_of(item, key, event.output_index or 0, is_reasoning=kind == "reasoning")
                return (*said, *self._cut(event.repeated_from))
            case "function_call" | "mcp_approval_request":
                self._pending.append(to_pending(item))
                return self._on_call(item, key)
            case "mcp_call":
                result = to_result(item)
                return (*self._on_call(item, key), *(() if result is None else (result,)))
            case "image_generation_call" if item.get("result"):
                return (Image(url=f"data:image/{item.get('output_format') or 'png'};base64,{item['result']}"),)
            case "function_call_output" | "mcp_approval_response":
                return ()
        return (Notice(kind=str(item.get("type")), content=item),)

    def _rest_of(self, item: JsonObject, key: str, output_index: int, *, is_reasoning: bool) -> Sequence[Event]:
        """What an item's deltas did not contain, from servers that send none."""
        is_summary = bool(item.get("summary"))
        parts = item.get("summary") or item.get("content") or ()
        if is_reasoning and any(emitted[0] == key and emitted[1] != is_summary for emitted in self._emitted_lengths):
            return ()  # the other form of the same reasoning was streamed
        events: list[Event] = []
        for index, each in enumerate(parts if isinstance(parts, list) else ()):
            text = str(each.get("text") or each.get("refusal") or "")
            events += self._say((key, is_summary, index), output_index, None, text, is_reasoning=is_reasoning)
        return events

    def _cut(self, first_index: int | None) -> Sequence[Event]:
        """The event for a step that a crash cut off. An extension of Dragoman servers says where the step began."""
        if first_index is None:
            return ()
        said = [each for index, each in self._spoken if index >= first_index]
        self._spoken.clear()
        text = "".join(each.text for each in said if isinstance(each, Text))
        return (Restarted(text=text, thinking="".join(each.text for each in said if isinstance(each, Thinking))),)

    def _on_call(self, item: JsonObject, key: str) -> Sequence[Event]:
        """Emit a call, unless it was emitted here or in the response that asked for its approval."""
        self._spoken.clear()
        call = to_call(item)
        is_question = isinstance(call, Question)
        call_id = call.call_id if isinstance(call, Question) else call.id
        self._handle.tool_names[call_id] = ASK_USER_QUESTION if is_question else str(item.get("name"))
        if key in self._called or (item.get("type") == "mcp_call" and item.get("approval_request_id")):
            return ()
        self._called.add(key)
        return (call,)

    # --- the response -------------------------------------------------------------------------------------------------

    def _on_response(self, response: JsonObject) -> None:
        self._response_id = self._handle.run_id = str(response.get("id") or self._response_id)
        self._handle.last_response_id = self._response_id
        self._is_resumable = self._is_resumable or bool(response.get("background") and response.get("store", True))
        self._handle.pending = ()
        if not self._handle.server_keeps_history:
            self._handle.messages += self._sent
        self._sent = []

    def _on_end(self, response: JsonObject) -> Sequence[Event]:
        if response.get("id") and not self._response_id:
            self._on_response(response)
        events: list[Event] = []
        output = response.get("output")
        for index, item in enumerate(output if isinstance(output, list) else ()):
            events += self._on_item(item, str(item.get("id") or index), _WireEvent(output_index=index))
        self.is_over = True
        details, error = response.get("incomplete_details") or {}, response.get("error")
        reason: StopReason = "tool_use" if self._pending else "end_turn"
        problem: Problem | None = None
        match response.get("status"):
            case "cancelled":
                reason = "cancelled"
            case "incomplete":
                reason = STOP_REASONS.get(str(details.get("reason")), "max_tokens")
            case "failed":
                problem = to_problem(error)
                reason = STOP_REASONS.get(problem.code, "error")
        return (*events, *self._end(reason, problem, _to_usage(response.get("usage"))))

    def _on_error(self, event: _WireEvent) -> Sequence[Event]:
        if not event.type and event.error is None:
            raise InvalidResponse("expected an event of a response, got a frame without a type")
        self.is_over = True
        problem = to_problem(event.error if event.error is not None else {"code": event.code, "message": event.message})
        return self._end(STOP_REASONS.get(problem.code, "error"), problem, None)

    def _end(self, reason: StopReason, problem: Problem | None, usage: Usage | None) -> Sequence[Event]:
        pending = tuple(self._pending) if reason == "tool_use" else ()
        self._handle.pending = pending
        requests = requests_in(pending, self._handle.tool_names)
        ended = Ended(reason=reason, run_id=self._response_id, usage=usage, problem=problem, pending=pending)
        return (*requests, ended)


def _key(event: _WireEvent, item: JsonObject | None = None) -> str:
    """What identifies the item of an event: its ID, or its index on servers without IDs."""
    item_id = event.item_id if item is None else item.get("id")
    return str(item_id or event.output_index or 0)


def _to_usage(usage: Json) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    return Usage(int(usage.get("input_tokens") or 0), int(usage.get("output_tokens") or 0))
