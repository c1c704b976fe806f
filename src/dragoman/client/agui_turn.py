"""Decodes AG-UI's event streams and snapshots. Pure.

Events are read more leniently than the server writes them (`protocols.agui.events`), because other servers omit fields
that AG-UI 0.x did not have.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dragoman.client.agui_interrupts import INTERRUPT_EVENT, from_custom_event, from_outcome, pending_in
from dragoman.client.agui_recorded import RecordedMessages, since_last_user
from dragoman.client.codec import Request, SessionHandle
from dragoman.client.decoding import decode_json, parse_arguments
from dragoman.client.errors import NotFound, Unreachable, make_refusal
from dragoman.client.events import (
    Block,
    ClientCall,
    Ended,
    Event,
    Image,
    Message,
    Notice,
    Pending,
    Permission,
    Problem,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from dragoman.client.pending import parse_question, requests_in
from dragoman.client.sse import Frame, FrameReader
from dragoman.client.state_patch import apply_patch
from dragoman.client.steps import NewestSteps
from dragoman.core.content import Json, JsonObject
from dragoman.core.tools import ASK_USER_QUESTION
from dragoman.protocols.agui.messages import METADATA_KEY

_FRAME_POSITION = re.compile(r"([0-9]{1,15})-([0-9]{1,15})-([0-9]{1,9})")
STOP_REASONS: Mapping[str, StopReason] = {
    "max_steps": "max_steps",
    "cancelled": "cancelled",
    "thread_deleted": "cancelled",
    "interrupted": "interrupted",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
}
"""Stop reasons by the code of a RUN_ERROR, or by the stop reason in Dragoman's metadata."""
REFUSAL_STATUSES = {"thread_busy": 409, "interrupt_unanswered": 409, "interrupt_invalid": 400, "interrupt_unknown": 400}
"""Codes of a RUN_ERROR that mean that nothing was run, and the HTTP status each stands for."""
RESUMABLE_ERROR_CODES = {"shutting_down", "unavailable"}
"""Codes of a RUN_ERROR that mean that the run continues and can be resumed later."""


class _WireEvent(msgspec.Struct, frozen=True, rename="camel"):
    """Any event, with the fields of all kinds."""

    type: str
    subagent_run_id: str = ""
    metadata: JsonObject | None = None
    message_id: str = ""
    role: str = ""
    delta: Json = ""
    tool_call_id: str = ""
    tool_call_name: str = ""
    parent_message_id: str | None = None
    content: Json = None
    run_id: str = ""
    outcome: JsonObject | None = None
    usage: Json = None
    code: str | None = None
    message: str = ""
    messages: list[JsonObject] = []
    snapshot: Json = None
    activity_type: str = ""
    name: str = ""
    value: Json = None
    raw_event: Json = None
    step_name: str = ""
    description: str | None = None


class AguiTurn:
    """A run's stream.

    Dragoman servers send each frame's position in the thread's log as its id: a repeated request returns the same
    frames, and those that were decoded before are skipped. A joined thread starts with a snapshot; the characters
    emitted of each message are counted to skip repeated text. A stream without ids is lost when the connection is.

    It begins with new messages, or joins the thread's newest run if `messages` is None.
    """

    def __init__(self, handle: SessionHandle, request: Request, messages: Sequence[JsonObject] | None) -> None:
        self.is_over = False
        self.pending: tuple[Pending, ...] = ()
        self.snapshot: list[JsonObject] = []
        self.request = request
        self._handle = handle
        self._is_joined = messages is None
        self._has_events = False
        self._last_position = (-1, -1, -1)
        self._run_id = ""
        self._emitted_lengths: dict[str, int] = {}
        """Characters emitted so far, by message id."""
        self._stream_offsets: dict[str, int] = {}
        """This connection's position in each message, by message id; -1 for the user's messages."""
        self._argument_chunks: dict[str, list[str]] = {}
        self._parent_messages: dict[str, str] = {}
        """The id of the message that a call belongs to, by call id."""
        self._chunked_call_id = ""
        self._held_calls: dict[str, str] = {}
        """Calls that ended without arguments, and their loops. LangGraph's server may send these in a snapshot only."""
        self._call_arguments: dict[str, JsonObject] = {}
        self._open_calls: dict[str, str] = {}
        """Tool names of the calls that have no result yet, by call id."""
        self._finished_calls: set[str] = set()
        self._steps = NewestSteps()
        self._recorded = RecordedMessages(handle, messages or ())

    @property
    def can_resume(self) -> bool:
        """Whether `request` resumes the turn without losing or repeating anything."""
        return self._is_joined or not self._has_events or self._last_position != (-1, -1, -1)

    def feed_body(self, body: bytes) -> Sequence[Event]:
        """Decode a stream that the server did not declare as one."""
        return [event for frame in FrameReader().feed(body) for event in self.feed(frame)]

    def feed(self, frame: Frame) -> Sequence[Event]:
        """Decode one frame of the stream."""
        if match := _FRAME_POSITION.fullmatch(frame.id):
            position = (int(match[1]), int(match[2]), int(match[3]))
            if position <= self._last_position:
                return ()
            self._last_position = position
            self._handle.server_keeps_history = True
        event = decode_json(frame.data, _WireEvent, "an AG-UI event")
        self._has_events = True
        if self._chunked_call_id and event.type != "TOOL_CALL_CHUNK":
            return (*self._complete_call(self._chunked_call_id, event.subagent_run_id), *self._on_event(event))
        return self._on_event(event)

    def _on_event(self, event: _WireEvent) -> Sequence[Event]:
        match event.type:
            case "RUN_STARTED":
                self._run_id = self._handle.run_id = event.run_id
                self._handle.pending, self._handle.graph_interrupts = (), ()
                self._stream_offsets.clear()
                self._recorded.add_sent()
                return ()
            case "RUN_FINISHED":
                return *self._release_calls(), *self._on_run_finished(event)
            case "RUN_ERROR":
                return *self._release_calls(), *self._on_run_error(event)
            case "MESSAGES_SNAPSHOT":
                return self._on_snapshot(event.messages)
            case "TOOL_CALL_START" | "TOOL_CALL_ARGS" | "TOOL_CALL_CHUNK" | "TOOL_CALL_END" | "TOOL_CALL_RESULT":
                return self._on_tool_event(event)
            case "STATE_SNAPSHOT":
                self._handle.state = event.snapshot
                return _to_notice(event)
            case "STATE_DELTA":
                delta = event.delta if isinstance(event.delta, list) else []
                self._handle.state = apply_patch(self._handle.state, delta)
                return _to_notice(event)
            case "CUSTOM" if event.name == INTERRUPT_EVENT:
                self._handle.graph_interrupts += (from_custom_event(event.value, event.raw_event),)
                return ()
            case kind if kind.startswith(("TEXT_MESSAGE_", "REASONING_", "THINKING_")):
                if self._held_calls and event.delta:
                    return *self._release_calls(), *self._on_text(event)
                return self._on_text(event)
            case _:
                return _to_notice(event)

    # --- text -------------------------------------------------------------------------------------------------------

    def _on_text(self, event: _WireEvent) -> Sequence[Event]:
        message_id = event.message_id
        if event.type.endswith("_START"):
            self._stream_offsets.setdefault(message_id, 0)
            if event.type == "TEXT_MESSAGE_START" and event.role == "user":
                self._stream_offsets[message_id] = -1  # the user's own messages are not reported
            return ()
        if event.type.endswith("_END") and _is_marked(event.metadata, "interrupted"):
            return self._steps.cut(_step_of(message_id), event.subagent_run_id)
        if not event.type.endswith(("_CONTENT", "_CHUNK")) or not isinstance(event.delta, str) or not event.delta:
            return ()
        if event.role == "user" or self._stream_offsets.get(message_id) == -1:
            return ()
        text = self._new_text(message_id, self._stream_offsets.get(message_id, 0), event.delta)
        self._stream_offsets[message_id] = self._stream_offsets.get(message_id, 0) + len(event.delta)
        if not text:
            return ()
        if not event.type.startswith("TEXT_"):
            return self._steps.add(_step_of(message_id), Thinking(text=text, loop=event.subagent_run_id))
        self._recorded.add_text(message_id, text, event.subagent_run_id)
        return self._steps.add(message_id, Text(text=text, loop=event.subagent_run_id))

    def _new_text(self, message_id: str, start: int, text: str) -> str:
        """The part of `text`, which begins at `start` of its message, that was not emitted before."""
        emitted = self._emitted_lengths.get(message_id, 0)
        self._emitted_lengths[message_id] = max(emitted, start + len(text))
        return text[max(0, emitted - start) :]

    # --- calls ------------------------------------------------------------------------------------------------------

    def _on_tool_event(self, event: _WireEvent) -> Sequence[Event]:
        call_id = event.tool_call_id or self._chunked_call_id
        match event.type:
            case "TOOL_CALL_CHUNK" if call_id != self._chunked_call_id:
                previous = (
                    self._complete_call(self._chunked_call_id, event.subagent_run_id) if self._chunked_call_id else ()
                )
                self._begin_call(call_id, event)
                self._chunked_call_id = call_id
                return previous
            case "TOOL_CALL_START":
                self._begin_call(call_id, event)
            case "TOOL_CALL_ARGS" | "TOOL_CALL_CHUNK":
                self._argument_chunks.setdefault(call_id, []).append(str(event.delta))
            case "TOOL_CALL_END":
                return self._complete_call(call_id, event.subagent_run_id)
            case "TOOL_CALL_RESULT":
                if call_id not in self._finished_calls:
                    self._recorded.add_result(event.message_id, call_id, event.content, event.subagent_run_id)
                return *self._release_calls(), *self._on_tool_result(call_id, event.content, event.subagent_run_id)
        return ()

    def _begin_call(self, call_id: str, event: _WireEvent) -> None:
        self._handle.tool_names[call_id] = event.tool_call_name
        self._argument_chunks[call_id] = [str(event.delta)] if event.type == "TOOL_CALL_CHUNK" else []
        self._parent_messages[call_id] = event.parent_message_id or call_id

    def _complete_call(self, call_id: str, loop: str) -> Sequence[Event]:
        """Emit a call whose arguments are complete, unless it was emitted before."""
        self._chunked_call_id = ""
        text, name = "".join(self._argument_chunks.pop(call_id, [])), self._handle.tool_names.get(call_id, "")
        if call_id not in self._call_arguments:
            self._recorded.add_call(self._parent_messages.get(call_id, call_id), call_id, name, text, loop)
        if not text:
            self._held_calls[call_id] = loop
            return ()
        return self._emit_call(call_id, name, text, loop)

    def _release_calls(self, arguments: Mapping[str, str] | None = None) -> Sequence[Event]:
        """Emit the held calls: those in `arguments` with these, or all without any."""
        ready = [call_id for call_id in self._held_calls if arguments is None or call_id in arguments]
        names = self._handle.tool_names
        return [
            event
            for each in ready
            for event in self._emit_call(each, names[each], (arguments or {}).get(each, ""), self._held_calls.pop(each))
        ]

    def _emit_call(self, call_id: str, name: str, text: str, loop: str) -> Sequence[Event]:
        if call_id in self._call_arguments:
            return ()
        arguments = parse_arguments(text)
        self._call_arguments[call_id] = arguments
        self._handle.tool_names[call_id] = name
        self._open_calls[call_id] = name
        if name == ASK_USER_QUESTION:
            return (parse_question(call_id, arguments, loop),)
        return (ToolCall(id=call_id, name=name, arguments=arguments, loop=loop),)

    def _on_tool_result(self, call_id: str, content: Json, loop: str) -> Sequence[Event]:
        self._open_calls.pop(call_id, None)
        if call_id in self._finished_calls:
            return ()
        self._finished_calls.add(call_id)
        name = self._handle.tool_names.get(call_id, "")
        if name == ASK_USER_QUESTION:  # the person's own answer is not reported
            return ()
        text, images = _split_content(content)
        return (ToolResult(call_id=call_id, name=name, text=text, images=images, loop=loop),)

    # --- snapshots and ends -----------------------------------------------------------------------------------------

    def _on_snapshot(self, messages: list[JsonObject]) -> Sequence[Event]:
        self.snapshot = messages
        new = self._recorded.replace(messages)
        if self._is_joined:
            self._call_arguments.clear()
            new = since_last_user(messages)
        sent = {call["id"]: call["function"]["arguments"] for each in messages for call in each.get("toolCalls") or ()}
        events = [*self._release_calls(sent), *(event for each in new for event in self._replay_message(each))]
        for each in messages:
            for call in each.get("toolCalls") or ():
                self._handle.tool_names[call["id"]] = call["function"]["name"]
                self._call_arguments.setdefault(call["id"], parse_arguments(call["function"]["arguments"]))
        return events

    def _replay_message(self, message: JsonObject) -> Iterable[Event]:
        """Emit the parts of a snapshot's message that were not emitted before."""
        message_id, role = str(message.get("id")), message.get("role")
        loop, content = str(message.get("subagentRunId") or ""), message.get("content")
        if role in ("assistant", "reasoning") and isinstance(content, str):
            text = self._new_text(message_id, 0, content)
            said = Text(text=text, loop=loop) if role == "assistant" else Thinking(text=text, loop=loop)
            if text:
                yield from self._steps.add(_step_of(message_id), said)
            if _is_marked(message.get("metadata"), "interrupted"):
                yield from self._steps.cut(message_id, loop)
        if role == "activity" and message_id not in self._emitted_lengths:
            self._emitted_lengths[message_id] = 1
            yield _activity_notice(str(message.get("activityType")), content, loop)
        for call in message.get("toolCalls") or ():
            yield from self._emit_call(call["id"], call["function"]["name"], call["function"]["arguments"], loop)
        if role == "tool":
            yield from self._on_tool_result(str(message.get("toolCallId")), content, loop)

    def _on_run_finished(self, event: _WireEvent) -> Sequence[Event]:
        self.is_over = True
        outcome = event.outcome or {"type": "success"}
        metadata = (event.metadata or {}).get(METADATA_KEY) or {}
        client_tools = {tool.name for tool in self._handle.tools}
        named = {*(outcome.get("pendingToolCallIds") or ()), *(metadata.get("pendingToolCallIds") or ())}
        pending: list[Pending] = [
            ClientCall(call_id=call_id, name=name, arguments=self._call_arguments.get(call_id, {}))
            for call_id, name in self._open_calls.items()
            if name in client_tools or call_id in named
        ]
        interrupts = outcome.get("interrupts") or ()
        asked = {str(each.get("toolCallId") or each.get("id")) for each in interrupts}
        earlier = self._handle.waiting_arguments
        arguments = {each: self._call_arguments.get(each, earlier.get(each, {})) for each in asked}
        self._handle.waiting_arguments = arguments
        for each in interrupts:
            is_ours = self._handle.tool_names.get(str(each.get("toolCallId"))) == ASK_USER_QUESTION
            if is_ours or _questions_in(each) or (interrupt := from_outcome(each)) is None:
                pending.append(_to_pending(each, self._handle.tool_names, arguments))
            else:
                self._handle.graph_interrupts = (
                    *(each for each in self._handle.graph_interrupts if not each.is_custom),
                    interrupt,
                )
        pending += [each for interrupt in self._handle.graph_interrupts for each in pending_in(interrupt)]
        self.pending = self._handle.pending = tuple(pending)
        reason: StopReason = "tool_use" if pending else "end_turn"
        if outcome.get("type") == "cancelled":
            reason = "cancelled"
        reason = STOP_REASONS.get(str(metadata.get("stopReason")), reason)
        requests = requests_in(pending, self._handle.tool_names)
        ended = Ended(reason=reason, run_id=self._run_id, usage=_to_usage(event.usage), pending=self.pending)
        return (*requests, ended)

    def _on_run_error(self, event: _WireEvent) -> Sequence[Event]:
        code = event.code or ""
        if code in RESUMABLE_ERROR_CODES:
            raise Unreachable(event.message, code=code, may_retry=True)
        if code in REFUSAL_STATUSES:
            raise make_refusal(REFUSAL_STATUSES[code], code, event.message, body=b"", request_id="")
        if code == "thread_not_found":
            raise NotFound(event.message, code=code)
        self.is_over = True
        self._handle.pending = ()
        reason = STOP_REASONS.get(code, "error")
        problem = Problem(code, event.message)
        return (Ended(reason=reason, run_id=self._run_id, usage=_to_usage(event.usage), problem=problem),)


def _to_pending(interrupt: JsonObject, tool_names: Mapping[str, str], arguments: Mapping[str, JsonObject]) -> Pending:
    """What an interrupt waits for. Interrupts of other servers need not belong to a call."""
    interrupt_id = str(interrupt.get("id"))
    call_id = str(interrupt.get("toolCallId") or interrupt_id)
    name = tool_names.get(call_id, "")
    if questions := _questions_in(interrupt):
        return parse_question(interrupt_id, {"questions": questions})
    if name == ASK_USER_QUESTION:
        return parse_question(interrupt_id, arguments.get(call_id, {}))
    label = name or str(interrupt.get("message") or interrupt.get("reason") or "")
    return Permission(
        call_id=interrupt_id,
        name=label,
        arguments=arguments.get(call_id, {}),
        is_repeat=_is_marked(interrupt.get("metadata"), "repeat"),
    )


# --- wire → client ----------------------------------------------------------------------------------------------------


def messages_from(messages: Iterable[JsonObject]) -> tuple[Message, ...]:
    """Convert a history, without the messages of sub-agents."""
    names: dict[str, str] = {}
    converted = (_to_message(each, names) for each in messages if not each.get("subagentRunId"))
    return tuple(each for each in converted if each is not None)


def _to_message(message: JsonObject, names: dict[str, str]) -> Message | None:
    message_id, content = str(message.get("id")), message.get("content")
    match message.get("role"):
        case "user":
            return Message(role="user", id=message_id, blocks=tuple(_to_content_blocks(content)))
        case "system" | "developer":
            return Message(role="system", id=message_id, blocks=tuple(_to_content_blocks(content)))
        case "reasoning":
            return Message(role="assistant", id=message_id, blocks=(Thinking(text=str(content)),))
        case "activity":
            return Message(
                role="assistant",
                id=message_id,
                blocks=(_activity_notice(str(message.get("activityType")), content, ""),),
            )
        case "tool":
            text, images = _split_content(content)
            call_id = str(message.get("toolCallId"))
            result = ToolResult(call_id=call_id, name=names.get(call_id, ""), text=text, images=images)
            return Message(role="tool", id=message_id, blocks=(result,))
        case "assistant":
            blocks: list[Block] = list(_to_content_blocks(content))
            for call in message.get("toolCalls") or ():
                name, arguments = call["function"]["name"], parse_arguments(call["function"]["arguments"])
                names[call["id"]] = name
                question = parse_question(call["id"], arguments) if name == ASK_USER_QUESTION else None
                blocks.append(question or ToolCall(id=call["id"], name=name, arguments=arguments))
            marks = message.get("metadata")
            is_interrupted, is_cut = _is_marked(marks, "interrupted"), _is_marked(marks, "cut")
            return Message(
                role="assistant", id=message_id, blocks=tuple(blocks), interrupted=is_interrupted, cut=is_cut
            )
    return None


def _questions_in(interrupt: JsonObject) -> Json:
    """The questions of a Dragoman server's tool that asks."""
    return ((interrupt.get("metadata") or {}).get(METADATA_KEY) or {}).get("questions")


def _is_marked(metadata: JsonObject | None, mark: str) -> bool:
    """Whether the metadata of a message has a mark of a Dragoman server."""
    return bool(((metadata or {}).get(METADATA_KEY) or {}).get(mark))


def _step_of(message_id: str) -> str:
    """The id of the message of the model step that a reasoning message belongs to."""
    return message_id.partition(":")[0]


def _to_content_blocks(content: Json) -> Iterable[Text | Image]:
    text, images = _split_content(content)
    if text:
        yield Text(text=text)
    for url in images:
        yield Image(url=url)


def _split_content(content: Json) -> tuple[str, tuple[str, ...]]:
    """Split a content into its text and its images' URLs."""
    if isinstance(content, str):
        return content, ()
    parts = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    text = "".join(str(each.get("text", "")) for each in parts if each.get("type") == "text")
    return text, tuple(_to_url(each.get("source") or {}) for each in parts if each.get("type") == "image")


def _to_url(source: JsonObject) -> str:
    value = str(source.get("value", ""))
    return f"data:{source.get('mimeType')};base64,{value}" if source.get("type") == "data" else value


def _to_notice(event: _WireEvent) -> Sequence[Event]:
    loop = event.subagent_run_id
    match event.type:
        case "ACTIVITY_SNAPSHOT":
            return (_activity_notice(event.activity_type, event.content, loop),)
        case "STATE_SNAPSHOT":
            return (Notice(kind="state", content=event.snapshot, loop=loop),)
        case "STATE_DELTA":
            return (Notice(kind="state_delta", content=event.delta, loop=loop),)
        case "STEP_STARTED" | "STEP_FINISHED":
            return (Notice(kind=event.type.lower(), content=event.step_name, loop=loop),)
        case "SUBAGENT_STARTED":
            return (
                Notice(
                    kind="subagent_started", content={"name": event.name, "description": event.description}, loop=loop
                ),
            )
        case "SUBAGENT_FINISHED" | "SUBAGENT_ERROR":
            return (Notice(kind=event.type.lower(), content=event.outcome or event.message, loop=loop),)
        case "CUSTOM":
            value = event.value
            if event.name == f"{METADATA_KEY}.block" and isinstance(value, dict) and value.get("type") == "image":
                return (Image(url=str(value.get("url", "")), loop=loop),)
            return (Notice(kind=event.name, content=value, loop=loop),)
    return ()


def _activity_notice(kind: str, content: Json, loop: str) -> Notice:
    return Notice(kind="plan" if kind == "PLAN" else kind.lower(), content=content, loop=loop)


def _to_usage(usage: Json) -> Usage | None:
    if not isinstance(usage, list) or not usage:
        return None
    models = [each for each in usage if isinstance(each, dict)]
    return Usage(
        sum(each.get("inputTokens") or 0 for each in models), sum(each.get("outputTokens") or 0 for each in models)
    )
