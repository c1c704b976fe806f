"""AG-UI as a client speaks it: the standard endpoint of an agent. Pure: requests out, events in.

Events are read more tolerantly than the server's side writes them (`protocols.agui.events`), because other servers
leave out what 0.x did not know. What a server like ours adds (ids of frames, hydration, `connect`, `stop`) is used if
it is there. A server that keeps no history is sent all that this client has heard, as the protocol's own clients do.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote
from uuid import uuid4

import msgspec

from dragoman.client.codec import Request, SessionConfig, SessionHandle, TurnInput, TypedRequest, UserInput
from dragoman.client.decoding import decode_error_body, decode_json, parse_arguments
from dragoman.client.errors import ClientError, NotFound, RequestRefused, Unreachable, Unsupported, make_refusal
from dragoman.client.events import (
    Agent,
    Allow,
    Answer,
    Block,
    Choice,
    ClientCall,
    Deny,
    Ended,
    Event,
    Image,
    Message,
    Notice,
    Pending,
    Permission,
    Problem,
    Question,
    Result,
    SessionInfo,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from dragoman.client.pending import choice_to_json, parse_question
from dragoman.client.sse import Frame, FrameReader
from dragoman.core.content import Json, JsonObject
from dragoman.core.tools import ASK_USER_QUESTION
from dragoman.protocols.agui.content import DataSource, ImagePart, Part, TextPart, UrlSource
from dragoman.protocols.agui.messages import METADATA_KEY
from dragoman.protocols.agui.translate import VERSION

BASE = "/ag-ui"
_FRAME_POSITION = re.compile(r"([0-9]{1,15})-([0-9]{1,15})-([0-9]{1,9})")
STOP_REASONS: Mapping[str, StopReason] = {
    "max_steps": "max_steps",
    "cancelled": "cancelled",
    "thread_deleted": "cancelled",
    "interrupted": "interrupted",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
}
"""Codes of RUN_ERROR, and reasons in our metadata, that say why a run ended."""
REFUSAL_STATUSES = {"thread_busy": 409, "interrupt_unanswered": 409, "interrupt_invalid": 400, "interrupt_unknown": 400}
"""Codes of RUN_ERROR that say that nothing was run, with the statuses that they stand for."""
RESUMABLE_ERROR_CODES = {"shutting_down", "unavailable"}
"""Codes of RUN_ERROR that say that the run goes on, and can be read on later."""


class _WireEvent(msgspec.Struct, frozen=True, rename="camel"):
    """Any event, with the fields that some of them have."""

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
    step_name: str = ""
    description: str | None = None


class AguiCodec:
    """The standard endpoint. `endpoint` is the whole path of one agent's; without it agents are found below `BASE`."""

    needs_agents = False

    def __init__(self, endpoint: str = "") -> None:
        self._endpoint = endpoint

    def agents(self) -> TypedRequest[tuple[Agent, ...]]:
        """See `Face.agents`."""
        raise Unsupported("AG-UI has no list of agents: name one, or ask through AAP")

    def create(self, session_config: SessionConfig, idempotency_key: str) -> SessionHandle:
        """See `Face.create`. A thread begins with its first message: nothing is sent now."""
        if not session_config.agent and not self._endpoint:
            raise Unsupported("AG-UI has no default agent: create(agent=…) names one")
        if session_config.server_tools is not None or session_config.trusted_tools or session_config.options:
            raise Unsupported("AG-UI cannot choose or trust tools, nor set options: AAP can, of the same session")
        return SessionHandle(id=str(uuid4()), agent=session_config.agent, tools=session_config.tools)

    def open(self, info: SessionInfo, session_config: SessionConfig) -> SessionHandle:
        """See `Face.open`."""
        talk = SessionHandle(id=info.id, agent=session_config.agent, tools=session_config.tools, pending=info.pending)
        for each in info.pending:
            talk.tool_names[each.call_id] = ASK_USER_QUESTION if isinstance(each, Question) else each.name
        return talk

    def session_info(self, handle: SessionHandle) -> TypedRequest[SessionInfo]:
        """See `Face.look`: hydration, which servers that keep threads understand."""

        def read(body: bytes) -> SessionInfo:
            turn = self._decode_stream(handle, body)
            status = "waiting" if turn.pending else ""
            return SessionInfo(id=handle.id, agent=handle.agent, status=status, pending=turn.pending)

        return TypedRequest(self._hydration_request(handle), read)

    def sessions(self, after: str) -> TypedRequest[tuple[tuple[SessionInfo, ...], str]]:
        """See `Face.sessions`."""
        raise Unsupported("AG-UI has no list of threads: AAP lists them")

    def history(self, handle: SessionHandle) -> TypedRequest[tuple[Message, ...]]:
        """See `Face.history`."""
        return TypedRequest(
            self._hydration_request(handle), lambda body: messages_from(self._decode_stream(handle, body).snapshot)
        )

    def delete(self, handle: SessionHandle) -> TypedRequest[None]:
        """See `Face.delete`."""
        raise Unsupported("AG-UI cannot delete a thread: AAP can, of the same session")

    def stop(self, handle: SessionHandle) -> TypedRequest[None]:
        """See `Face.stop`."""
        request = Request(
            method="POST", path=f"{self._path(handle)}/stop/{_quote_segment(handle.id)}", is_idempotent=True
        )
        return TypedRequest(request, lambda _: None)

    def turn(self, handle: SessionHandle, turn_input: TurnInput, idempotency_key: str) -> "AguiTurn":
        """See `Face.turn`."""
        messages, resume = _to_wire_input(handle, turn_input)
        body = _request_body(
            handle, idempotency_key, messages if handle.server_keeps_history else [*handle.messages, *messages]
        )
        body["tools"] = [
            {"name": each.name, "description": each.description, "parameters": each.parameters} for each in handle.tools
        ]
        if resume:
            body["resume"] = resume
        return AguiTurn(handle, self._post(self._path(handle), body), messages)

    def resume(self, handle: SessionHandle) -> "AguiTurn":
        """See `Face.rejoin`: told is all since the user's last message."""
        return AguiTurn(
            handle, self._post(f"{self._path(handle)}/connect", _request_body(handle), is_idempotent=True), None
        )

    def idempotency_probe(self, handle: SessionHandle) -> TypedRequest[bool]:
        """See `Face.confirm`: a server that declares capabilities as ours does knows a `runId` again."""
        return TypedRequest(
            Request(method="GET", path=f"{self._path(handle)}/capabilities", is_idempotent=True), lambda _: True
        )

    def decode_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> RequestRefused:
        """See `Face.refusal`. Other servers' bodies have many shapes."""
        told = decode_error_body(body, "error")
        message = next((str(told[name]) for name in ("error", "detail", "message") if told.get(name)), "")
        code = str(told.get("code") or "")
        return make_refusal(
            404 if code == "thread_not_found" else status,
            code,
            message or f"the server answered {status}",
            body=body,
            request_id=headers.get("x-request-id", "") or str(told.get("reference") or ""),
        )

    # --- inside -----------------------------------------------------------------------------------------------------

    def _path(self, handle: SessionHandle) -> str:
        return self._endpoint or f"{BASE}/{_quote_segment(handle.agent)}"

    def _hydration_request(self, handle: SessionHandle) -> Request:
        if not handle.agent and not self._endpoint:
            raise Unsupported("AG-UI has to be told the agent of a thread: open(id, agent=…)")
        return self._post(self._path(handle), _request_body(handle), is_idempotent=True)

    def _post(self, path: str, body: JsonObject, *, is_idempotent: bool = False) -> Request:
        return Request(
            method="POST",
            path=path,
            body=msgspec.json.encode(body),
            headers={"Content-Type": "application/json", "X-Run-On-Disconnect": "continue"},
            is_idempotent=is_idempotent,
        )

    def _decode_stream(self, handle: SessionHandle, body: bytes) -> "AguiTurn":
        """Read a stream that is there as a whole."""
        copy = SessionHandle(id=handle.id, agent=handle.agent, tools=handle.tools, tool_names=handle.tool_names)
        turn = AguiTurn(copy, Request(method="POST", path=""), None)
        for frame in FrameReader().feed(body):
            turn.feed(frame)
        return turn


def _request_body(handle: SessionHandle, run_id: str = "", messages: Sequence[JsonObject] = ()) -> JsonObject:
    """A request's body; without a message it looks, and runs nothing."""
    return {
        "threadId": handle.id,
        "runId": run_id or uuid4().hex,
        "protocolVersion": VERSION,
        "messages": messages,
        "tools": [],
        "state": {},
        "context": [],
        "forwardedProps": {},
    }


class AguiTurn:
    """A run's stream.

    Frames of ours carry their places in the thread's log: a request that is sent again brings the same frames, and
    those that came before are left out. A joined thread is told from a snapshot on: there, how much of each message was
    told is counted. A stream of a server without such ids is read to its end, and lost when the connection is.
    """

    def __init__(self, handle: SessionHandle, request: Request, messages: Sequence[JsonObject] | None) -> None:
        """Begin; without messages it is joined."""
        self.is_over = False
        self.pending: tuple[Pending, ...] = ()
        self.snapshot: list[JsonObject] = []
        self.request = request
        self._handle = handle
        self._is_joined = messages is None
        self._sent_messages = list(messages or ())
        self._has_events = False
        self._last_position = (-1, -1, -1)
        self._run_id = ""
        self._emitted_lengths: dict[str, int] = {}
        """Of messages: how many characters were told."""
        self._stream_offsets: dict[str, int] = {}
        """And where this connection is in them."""
        self._argument_chunks: dict[str, list[str]] = {}
        self._parent_messages: dict[str, str] = {}
        """Of calls: the messages that they are of."""
        self._chunked_call_id = ""
        self._call_arguments: dict[str, JsonObject] = {}
        self._open_calls: dict[str, str] = {}
        """Calls without a result so far: their tools."""
        self._finished_calls: set[str] = set()

    @property
    def can_resume(self) -> bool:
        """See `Turn.can_resume`."""
        return self._is_joined or not self._has_events or self._last_position != (-1, -1, -1)

    def feed_body(self, body: bytes) -> Sequence[Event]:
        """See `Turn.take`: some servers forget to say that it is a stream."""
        return [event for frame in FrameReader().feed(body) for event in self.feed(frame)]

    def feed(self, frame: Frame) -> Sequence[Event]:
        """See `Turn.feed`."""
        if found := _FRAME_POSITION.fullmatch(frame.id):
            place = (int(found[1]), int(found[2]), int(found[3]))
            if place <= self._last_position:
                return ()
            self._last_position = place
            self._handle.server_keeps_history = True
        told = decode_json(frame.data, _WireEvent, "an event of AG-UI")
        self._has_events = True
        if self._chunked_call_id and told.type != "TOOL_CALL_CHUNK":
            return (*self._complete_call(self._chunked_call_id, told.subagent_run_id), *self._on_event(told))
        return self._on_event(told)

    def _on_event(self, event: _WireEvent) -> Sequence[Event]:
        match event.type:
            case "RUN_STARTED":
                self._run_id = self._handle.run_id = event.run_id
                self._handle.pending = ()
                self._stream_offsets.clear()
                if self._records_history():
                    self._handle.messages.extend(self._sent_messages)
                self._sent_messages = []
                return ()
            case "RUN_FINISHED":
                return self._on_run_finished(event)
            case "RUN_ERROR":
                return self._on_run_error(event)
            case "MESSAGES_SNAPSHOT":
                return self._on_snapshot(event.messages)
            case "TOOL_CALL_START" | "TOOL_CALL_ARGS" | "TOOL_CALL_CHUNK" | "TOOL_CALL_END" | "TOOL_CALL_RESULT":
                return self._on_tool_event(event)
            case kind if kind.startswith(("TEXT_MESSAGE_", "REASONING_", "THINKING_")):
                return self._on_text(event)
            case _:
                return _to_notice(event)

    # --- words ------------------------------------------------------------------------------------------------------

    def _on_text(self, event: _WireEvent) -> Sequence[Event]:
        own = event.message_id
        if event.type.endswith("_START"):
            self._stream_offsets.setdefault(own, 0)
            if event.type == "TEXT_MESSAGE_START" and event.role == "user":
                self._stream_offsets[own] = -1  # what the user said is no news
            return ()
        if not event.type.endswith(("_CONTENT", "_CHUNK")) or not isinstance(event.delta, str) or not event.delta:
            return ()
        if event.role == "user" or self._stream_offsets.get(own) == -1:
            return ()
        fresh = self._new_text(own, self._stream_offsets.get(own, 0), event.delta)
        self._stream_offsets[own] = self._stream_offsets.get(own, 0) + len(event.delta)
        if not fresh:
            return ()
        if not event.type.startswith("TEXT_"):
            return (Thinking(text=fresh, loop=event.subagent_run_id),)
        if self._records_history(event.subagent_run_id):
            message = self._recorded_message(own)
            message["content"] = (message.get("content") or "") + fresh
        return (Text(text=fresh, loop=event.subagent_run_id),)

    def _new_text(self, message_id: str, start: int, text: str) -> str:
        """What of these words, which begin at `start` of their message, was not told before."""
        told = self._emitted_lengths.get(message_id, 0)
        self._emitted_lengths[message_id] = max(told, start + len(text))
        return text[max(0, told - start) :]

    def _records_history(self, loop: str = "") -> bool:
        """Whether what is told has to be noted, to be sent again: the server keeps none of it, as far as is known."""
        return not loop and not self._handle.server_keeps_history

    def _recorded_message(self, message_id: str) -> JsonObject:
        """The assistant's message of that id, as it is sent to servers that keep none."""
        held = self._handle.messages
        for each in reversed(held):
            if each["id"] == message_id and each["role"] == "assistant":
                return each
        held.append({"id": message_id, "role": "assistant"})
        return held[-1]

    # --- calls ------------------------------------------------------------------------------------------------------

    def _on_tool_event(self, event: _WireEvent) -> Sequence[Event]:
        own = event.tool_call_id or self._chunked_call_id
        match event.type:
            case "TOOL_CALL_CHUNK" if own != self._chunked_call_id:
                before = (
                    self._complete_call(self._chunked_call_id, event.subagent_run_id) if self._chunked_call_id else ()
                )
                self._begin_call(own, event)
                self._chunked_call_id = own
                return before
            case "TOOL_CALL_START":
                self._begin_call(own, event)
            case "TOOL_CALL_ARGS" | "TOOL_CALL_CHUNK":
                self._argument_chunks.setdefault(own, []).append(str(event.delta))
            case "TOOL_CALL_END":
                return self._complete_call(own, event.subagent_run_id)
            case "TOOL_CALL_RESULT":
                if self._records_history(event.subagent_run_id) and own not in self._finished_calls:
                    message_id = event.message_id or uuid4().hex
                    held = {"id": message_id, "role": "tool", "toolCallId": own, "content": event.content}
                    self._handle.messages.append(held)
                return self._on_tool_result(own, event.content, event.subagent_run_id)
        return ()

    def _begin_call(self, call_id: str, event: _WireEvent) -> None:
        self._handle.tool_names[call_id] = event.tool_call_name
        self._argument_chunks[call_id] = [str(event.delta)] if event.type == "TOOL_CALL_CHUNK" else []
        self._parent_messages[call_id] = event.parent_message_id or call_id

    def _complete_call(self, call_id: str, loop: str) -> Sequence[Event]:
        """A call that is whole now, unless it was told before."""
        self._chunked_call_id = ""
        text, name = "".join(self._argument_chunks.pop(call_id, [])), self._handle.tool_names.get(call_id, "")
        if self._records_history(loop) and call_id not in self._call_arguments:
            call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": text or "{}"}}
            self._recorded_message(self._parent_messages.get(call_id, call_id)).setdefault("toolCalls", []).append(call)
        return self._emit_call(call_id, name, text, loop)

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
        if name == ASK_USER_QUESTION:  # what the person said is no news
            return ()
        text, images = _split_content(content)
        return (ToolResult(call_id=call_id, name=name, text=text, images=images, loop=loop),)

    # --- snapshots and ends -----------------------------------------------------------------------------------------

    def _on_snapshot(self, messages: list[JsonObject]) -> Sequence[Event]:
        self.snapshot = messages
        if self._records_history():
            self._handle.messages = list(messages)
        for each in messages:
            for call in each.get("toolCalls") or ():
                self._handle.tool_names[call["id"]] = call["function"]["name"]
                self._call_arguments.setdefault(call["id"], parse_arguments(call["function"]["arguments"]))
        if not self._is_joined:
            return ()
        self._call_arguments.clear()
        last = max((place for place, each in enumerate(messages) if each.get("role") == "user"), default=-1)
        events: list[Event] = []
        for each in messages[last + 1 :]:
            events += self._replay_message(each)
        return events

    def _replay_message(self, message: JsonObject) -> Iterable[Event]:
        """What a message of a snapshot tells beyond what was told of it."""
        own, loop, role = str(message.get("id")), str(message.get("subagentRunId") or ""), message.get("role")
        content = message.get("content")
        if role in ("assistant", "reasoning") and isinstance(content, str):
            fresh = self._new_text(own, 0, content)
            if fresh:
                yield Text(text=fresh, loop=loop) if role == "assistant" else Thinking(text=fresh, loop=loop)
        if role == "activity" and own not in self._emitted_lengths:
            self._emitted_lengths[own] = 1
            yield _activity_notice(str(message.get("activityType")), content, loop)
        for call in message.get("toolCalls") or ():
            yield from self._emit_call(call["id"], call["function"]["name"], call["function"]["arguments"], loop)
        if role == "tool":
            yield from self._on_tool_result(str(message.get("toolCallId")), content, loop)

    def _on_run_finished(self, event: _WireEvent) -> Sequence[Event]:
        self.is_over = True
        outcome = event.outcome or {"type": "success"}
        remarks = (event.metadata or {}).get(METADATA_KEY) or {}
        mine = {tool.name for tool in self._handle.tools}
        pending: list[Pending] = [
            ClientCall(call_id=call_id, name=name, arguments=self._call_arguments.get(call_id, {}))
            for call_id, name in self._open_calls.items()
            if name in mine
        ]
        pending += [self._to_pending(each) for each in outcome.get("interrupts") or ()]
        self.pending = self._handle.pending = tuple(pending)
        reason: StopReason = "tool_use" if pending else "end_turn"
        if outcome.get("type") == "cancelled":
            reason = "cancelled"
        reason = STOP_REASONS.get(str(remarks.get("stopReason")), reason)
        asked = (each for each in pending if isinstance(each, Permission))
        ended = Ended(reason=reason, run_id=self._run_id, usage=_to_usage(event.usage), pending=self.pending)
        return (*asked, ended)

    def _to_pending(self, interrupt: JsonObject) -> Pending:
        """What an interrupt waits for. Those of other servers may stand behind no call."""
        own = str(interrupt.get("id"))
        call_id = str(interrupt.get("toolCallId") or own)
        name = self._handle.tool_names.get(call_id, "")
        arguments = self._call_arguments.get(call_id, {})
        if name == ASK_USER_QUESTION:
            return parse_question(own, arguments)
        if interrupt.get("reason") == "input_required":
            return parse_question(own, {"questions": [{"question": str(interrupt.get("message") or "")}]})
        words = name or str(interrupt.get("message") or interrupt.get("reason") or "")
        return Permission(call_id=own, name=words, arguments=arguments)

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


# --- wire → client ----------------------------------------------------------------------------------------------------


def messages_from(messages: Iterable[JsonObject]) -> tuple[Message, ...]:
    """A history in the client's words. What sub-agents did is left out, as in the other protocols."""
    names: dict[str, str] = {}
    found = (_to_message(each, names) for each in messages if not each.get("subagentRunId"))
    return tuple(each for each in found if each is not None)


def _to_message(message: JsonObject, names: dict[str, str]) -> Message | None:
    own, content = str(message.get("id")), message.get("content")
    match message.get("role"):
        case "user":
            return Message(role="user", id=own, blocks=tuple(_to_content_blocks(content)))
        case "system" | "developer":
            return Message(role="system", id=own, blocks=tuple(_to_content_blocks(content)))
        case "reasoning":
            return Message(role="assistant", id=own, blocks=(Thinking(text=str(content)),))
        case "activity":
            return Message(
                role="assistant", id=own, blocks=(_activity_notice(str(message.get("activityType")), content, ""),)
            )
        case "tool":
            text, images = _split_content(content)
            call_id = str(message.get("toolCallId"))
            result = ToolResult(call_id=call_id, name=names.get(call_id, ""), text=text, images=images)
            return Message(role="tool", id=own, blocks=(result,))
        case "assistant":
            blocks: list[Block] = list(_to_content_blocks(content))
            for call in message.get("toolCalls") or ():
                name, arguments = call["function"]["name"], parse_arguments(call["function"]["arguments"])
                names[call["id"]] = name
                question = parse_question(call["id"], arguments) if name == ASK_USER_QUESTION else None
                blocks.append(question or ToolCall(id=call["id"], name=name, arguments=arguments))
            return Message(role="assistant", id=own, blocks=tuple(blocks))
    return None


def _to_content_blocks(content: Json) -> Iterable[Text | Image]:
    text, images = _split_content(content)
    if text:
        yield Text(text=text)
    for url in images:
        yield Image(url=url)


def _split_content(content: Json) -> tuple[str, tuple[str, ...]]:
    """A content's words, and its pictures."""
    if isinstance(content, str):
        return content, ()
    parts = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    words = "".join(str(each.get("text", "")) for each in parts if each.get("type") == "text")
    return words, tuple(_to_url(each.get("source") or {}) for each in parts if each.get("type") == "image")


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


# --- client → wire ----------------------------------------------------------------------------------------------------


def _to_wire_input(handle: SessionHandle, turn_input: TurnInput) -> tuple[list[JsonObject], list[JsonObject]]:
    """The messages and the entries of `resume` of a request."""
    if isinstance(turn_input, UserInput):
        message = {"id": uuid4().hex, "role": "user", "content": _to_wire_content(turn_input.text, turn_input.images)}
        interrupts = [each.call_id for each in handle.pending if not isinstance(each, ClientCall)]
        return [message], [{"interruptId": each, "status": "cancelled"} for each in interrupts]
    kinds = {each.call_id: type(each) for each in handle.pending}
    messages: list[JsonObject] = []
    resume: list[JsonObject] = []
    for answer in turn_input:
        if kinds.get(answer.call_id) is ClientCall:
            messages.append(_tool_message(answer))
        else:
            resume.append({"interruptId": answer.call_id, **_to_resume_entry(answer)})
    return messages, resume


def _tool_message(answer: Answer) -> JsonObject:
    message: JsonObject = {"id": uuid4().hex, "role": "tool", "toolCallId": answer.call_id}
    if isinstance(answer, Result):
        return {**message, "content": _to_wire_content(answer.text, answer.images)}
    reason = answer.reason if isinstance(answer, Deny) else ""
    return {**message, "content": "", "error": reason or "Tool call denied"}


def _to_resume_entry(answer: Answer) -> JsonObject:
    match answer:
        case Allow(always=always):
            return {"status": "resolved", "payload": {"approved": True, **({"remember": True} if always else {})}}
        case Deny(reason=""):
            return {"status": "cancelled"}
        case Deny(reason=reason):
            return {"status": "resolved", "payload": {"approved": False, "reason": reason}}
        case Choice():
            return {"status": "resolved", "payload": choice_to_json(answer)}
        case Result():
            raise ClientError("over AG-UI a Result answers calls of the client's own tools only")


def _to_wire_content(text: str, images: Sequence[str]) -> str | list[Part]:
    if not images:
        return text
    words: list[Part] = [TextPart(text=text)] if text else []
    return [*words, *(ImagePart(source=_to_wire_source(url)) for url in images)]


def _to_wire_source(url: str) -> DataSource | UrlSource:
    head, found, value = url.partition(";base64,")
    return DataSource(value=value, mime_type=head.removeprefix("data:")) if found else UrlSource(value=url)


def _quote_segment(text: str) -> str:
    return quote(text, safe="")
