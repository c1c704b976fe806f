"""The client codec for AAP v3. Pure: requests out, events in.

The wire types are the server's (`protocols.aap.wire`). Extensions of Dragoman servers (`_meta`, frame ids,
`Idempotency-Key`, the path for resuming) are used if present and never required.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar, assert_never
from urllib.parse import quote

import msgspec

from dragoman.client.aap_seeds import seed_messages
from dragoman.client.codec import Request, SessionConfig, SessionHandle, TurnInput, TypedRequest, UserInput
from dragoman.client.decoding import decode_error_body, decode_flag, decode_json, error_message
from dragoman.client.errors import InvalidResponse, RequestRefused, Unsupported, make_refusal
from dragoman.client.events import (
    Agent,
    AgentOption,
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
    Pending,
    Problem,
    Question,
    Restarted,
    Result,
    SessionInfo,
    StopReason,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)
from dragoman.client.pending import choice_to_json, classify_open_call, parse_question, requests_in
from dragoman.client.sse import Frame
from dragoman.core.content import JsonObject
from dragoman.core.tools import ASK_USER_QUESTION, ToolSpec
from dragoman.protocols.aap import wire

BASE = "/aap/v3"

STOP_REASONS: Mapping[str, StopReason] = {
    "max_steps": "max_steps",
    "cancelled": "cancelled",
    "session_deleted": "cancelled",
    "interrupted": "interrupted",
}
"""Stop reasons that AAP itself does not have, by the error code that stands for them."""

Body = TypeVar("Body")


class AapCodec:
    """The codec for AAP v3.

    The server mounts the protocol at the path `base`.
    """

    needs_agents = True
    needs_all_answers = True

    def __init__(self, base: str = BASE) -> None:
        self._base = base.rstrip("/")
        self._meta: wire.Meta | None = None

    # --- agents and sessions ----------------------------------------------------------------------------------------

    def agents(self) -> TypedRequest[tuple[Agent, ...]]:
        """List the server's agents."""
        return TypedRequest(self._get("/meta"), self._read_agents)

    def create(self, session_config: SessionConfig, idempotency_key: str) -> TypedRequest[SessionHandle]:
        """Create a session. By default all of the agent's tools are enabled, and none is trusted."""
        spec = self._agent_info(session_config.agent)
        names = (
            [tool.name for tool in spec.tools or ()]
            if session_config.server_tools is None
            else list(session_config.server_tools)
        )
        names += [name for name in session_config.trusted_tools if name not in names]
        config: JsonObject = {"name": spec.name}
        if names:
            config["tools"] = [{"name": name, "trust": name in session_config.trusted_tools} for name in names]
        if session_config.options:
            config["options"] = dict(session_config.options)
        body: JsonObject = {"agent": config}
        if session_config.tools:
            body["tools"] = _to_tool_specs(session_config.tools)
        if session_config.history:
            body["messages"] = seed_messages(session_config.history)
        meta: JsonObject = {"title": session_config.title, "labels": dict(session_config.labels)}
        if session_config.declared_approval:
            meta["tools"] = "all"
        if meta := {name: value for name, value in meta.items() if value}:
            body["_meta"] = meta

        def decode(response: bytes) -> SessionHandle:
            created = _decode(response, wire.PostSessionsResponse)
            return SessionHandle(id=created.session_id, agent=spec.name, tools=session_config.tools)

        return TypedRequest(self._post("/sessions", body, idempotency_key, is_idempotent=True), decode)

    def open(self, info: SessionInfo, session_config: SessionConfig) -> SessionHandle:
        """Make the handle of an existing session. Its client tools are sent with the first turn."""
        handle = SessionHandle(id=info.id, agent=info.agent, tools=session_config.tools, pending=info.pending)
        handle.has_unsent_tools = bool(session_config.tools)
        handle.tool_names |= {each.call_id: _tool_name(each) for each in info.pending}
        return handle

    def session_info(self, handle: SessionHandle) -> TypedRequest[SessionInfo]:
        """Fetch a session's state."""
        return TypedRequest(
            self._get(f"/sessions/{_quote_segment(handle.id)}"),
            lambda body: _to_session_info(_decode(body, wire.SessionInfo)),
        )

    def sessions(self, after: str) -> TypedRequest[tuple[tuple[SessionInfo, ...], str]]:
        """Fetch a page of the session list."""

        def decode(body: bytes) -> tuple[tuple[SessionInfo, ...], str]:
            page = _decode(body, wire.Sessions)
            return tuple(map(_to_session_info, page.sessions)), page.next or ""

        return TypedRequest(self._get(f"/sessions?after={_quote_segment(after)}" if after else "/sessions"), decode)

    def history(self, handle: SessionHandle) -> TypedRequest[tuple[Message, ...]]:
        """Fetch the full history if the agent supports it, else the compacted one."""
        supported = self._capabilities(handle.agent).history or {}
        if not supported:
            raise Unsupported(
                f"agent {handle.agent!r} does not support history over AAP: declare it with Agent(…, history=True)"
            )
        kind = "full" if "full" in supported else "compacted"

        def decode(body: bytes) -> tuple[Message, ...]:
            histories = _decode(body, wire.History).history
            return messages_from(next((each for name, each in histories.items() if name == kind), ()))

        return TypedRequest(self._get(f"/sessions/{_quote_segment(handle.id)}/history?type={kind}"), decode)

    def delete(self, handle: SessionHandle) -> TypedRequest[None]:
        """Delete the session and everything in it."""
        path = f"{self._base}/sessions/{_quote_segment(handle.id)}"
        return TypedRequest(Request(method="DELETE", path=path, is_idempotent=True), lambda _: None)

    def stop(self, handle: SessionHandle) -> TypedRequest[bool]:
        """Stop the current run. An extension of Dragoman servers; others answer 404."""
        path = f"{self._base}/sessions/{_quote_segment(handle.id)}/stop"
        return TypedRequest(
            Request(method="POST", path=path, is_idempotent=True), lambda body: decode_flag(body, "stopped")
        )

    # --- turns ------------------------------------------------------------------------------------------------------

    def turn(self, handle: SessionHandle, turn_input: TurnInput, idempotency_key: str) -> "AapTurn":
        """Start a turn."""
        mode = self._stream_mode(handle.agent)
        body: JsonObject = {"messages": list(_to_wire_messages(turn_input)), "stream": mode}
        if handle.has_unsent_tools:
            body["tools"] = _to_tool_specs(handle.tools)
        first_request = self._post(f"/sessions/{_quote_segment(handle.id)}/turns", body, idempotency_key)
        return AapTurn(handle, first_request, self._events_path(handle), mode)

    def resume(self, handle: SessionHandle) -> "AapTurn":
        """Read the newest turn from its start."""
        return AapTurn(handle, None, self._events_path(handle), "delta")

    def idempotency_probe(self, handle: SessionHandle) -> TypedRequest[bool]:
        """Find out whether the server supports `Idempotency-Key`: Dragoman servers do, and they send `_meta`."""
        path = f"/sessions/{_quote_segment(handle.id)}"
        return TypedRequest(self._get(path), lambda body: _decode(body, wire.SessionInfo).meta is not None)

    def decode_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> RequestRefused:
        """Decode an error response. Some servers send plain text."""
        error = decode_error_body(body, "error")
        return make_refusal(
            status,
            str(error.get("code") or ""),
            error_message(error.get("error")),
            body=body,
            request_id=headers.get("x-request-id", "") or str(error.get("reference") or ""),
        )

    # --- inside -----------------------------------------------------------------------------------------------------

    def _read_agents(self, body: bytes) -> tuple[Agent, ...]:
        self._meta = _decode(body, wire.Meta)
        return tuple(map(_to_agent, self._meta.agents))

    def _agent_info(self, name: str) -> wire.AgentInfo:
        agents = self._meta.agents if self._meta is not None else ()
        agent = next((each for each in agents if not name or each.name == name), None)
        if agent is None:
            names = ", ".join(each.name for each in agents) or "none"
            raise Unsupported(f"the server has no agent {name!r} (agents: {names})")
        return agent

    def _capabilities(self, agent: str) -> wire.Capabilities:
        agents = self._meta.agents if self._meta is not None else ()
        return next((each.capabilities for each in agents if each.name == agent), None) or wire.Capabilities()

    def _stream_mode(self, agent: str) -> wire.StreamMode:
        """The finest mode that the agent supports. An agent that declares none returns whole answers only."""
        supported = self._capabilities(agent).stream or {}
        return "delta" if "delta" in supported else "message" if "message" in supported else "none"

    def _events_path(self, handle: SessionHandle) -> str:
        return f"{self._base}/sessions/{_quote_segment(handle.id)}/events"

    def _get(self, path: str) -> Request:
        return Request(method="GET", path=self._base + path, is_idempotent=True)

    def _post(self, path: str, body: JsonObject, idempotency_key: str, *, is_idempotent: bool = False) -> Request:
        return Request(
            method="POST",
            path=self._base + path,
            body=msgspec.json.encode(body),
            headers={"Content-Type": "application/json", "Idempotency-Key": idempotency_key},
            is_idempotent=is_idempotent,
        )


class AapTurn:
    """A turn in `delta` or `message` mode, or with a whole answer.

    Dragoman servers number the frames from 1: repeated frames are skipped, and a gap is an error. A turn of a server
    that does not number its frames is lost when the connection is.

    It begins with `first_request`; without one the newest turn is read.
    """

    def __init__(
        self, handle: SessionHandle, first_request: Request | None, events_path: str, mode: wire.StreamMode
    ) -> None:
        self.is_over = False
        self._handle = handle
        self._first_request = first_request
        self._events_path = events_path
        self._stream_mode = mode
        self._last_event_number = 0
        self._has_numbers = first_request is None
        self._has_frames = False
        self._turn_id = ""
        self._open_calls: dict[str, Pending] = {}

    @property
    def request(self) -> Request:
        """The request that starts the turn or resumes it."""
        if self._first_request is not None and not self._turn_id:
            return self._first_request
        query = f"?turn={_quote_segment(self._turn_id)}" if self._turn_id else ""
        headers = {"Last-Event-ID": str(self._last_event_number)}
        return Request(method="GET", path=self._events_path + query, headers=headers, is_idempotent=True)

    @property
    def can_resume(self) -> bool:
        """Whether `request` resumes the turn without losing or repeating anything."""
        return not self._has_frames or (self._has_numbers and (self._first_request is None or bool(self._turn_id)))

    def feed(self, frame: Frame) -> Sequence[Event]:
        """Decode one frame of the stream."""
        if self._is_duplicate(frame.id):
            return ()
        self._has_frames = True
        fields = _decode(frame.data, dict[str, object])
        match frame.event:
            case "turn_start":
                self._on_turn_start(fields.get("_meta"))
            case "text_delta":
                return (Text(text=_required_text(fields, "delta")),)
            case "text":
                return (Text(text=_required_text(fields, "text")),)
            case "thinking_delta":
                return (Thinking(text=_required_text(fields, "delta")),)
            case "thinking":
                return (Thinking(text=_required_text(fields, "thinking")),)
            case "tool_call":
                return (self._on_tool_call(_convert(fields, _ToolCallFields)),)
            case "tool_result":
                return self._on_tool_result(_convert(fields, _ToolResultFields))
            case "message_cut":
                return (_restarted(_convert(fields, wire.MessageCut).content),)
            case "turn_stop":
                return self._on_turn_stop(_convert(fields, _TurnStopFields))
        return ()  # an extension that this client does not know

    def feed_body(self, body: bytes) -> Sequence[Event]:
        """Decode the response of `none` mode."""
        response = _decode(body, wire.TurnResponse)
        if response.meta is not None and response.meta.turn_id is not None:
            self._turn_id = self._handle.run_id = response.meta.turn_id
        events: list[Event] = []
        for message in response.messages:
            if isinstance(message, wire.ToolMessage):
                events += self._on_tool_result(_ToolResultFields(message.tool_call_id, message.content))
                continue
            for block in _as_blocks(message.content):
                if isinstance(block, wire.ToolUseBlock):
                    events.append(self._on_tool_call(_ToolCallFields(block.tool_call_id, block.name, block.input)))
                else:
                    events.append(_to_content_block(block))
            if message.meta is not None and message.meta.interrupted:
                events.append(_restarted(message.content))
        return (*events, *self._on_turn_stop(_TurnStopFields(response.stop_reason, response.meta)))

    def _is_duplicate(self, frame_id: str) -> bool:
        """Whether a frame with this id was decoded before. Raises InvalidResponse if a frame before it is missing."""
        if not (frame_id.isascii() and frame_id.isdigit()):
            return False
        number = int(frame_id)
        if number > self._last_event_number + 1:
            raise InvalidResponse(f"expected event {self._last_event_number + 1} of the turn, got {number}")
        is_known = number <= self._last_event_number
        self._last_event_number, self._has_numbers = max(number, self._last_event_number), True
        return is_known

    def _on_turn_start(self, meta: object) -> None:
        self._handle.pending = ()
        self._handle.has_unsent_tools = False
        if isinstance(meta, dict) and isinstance(meta.get("turnId"), str):
            self._turn_id = self._handle.run_id = meta["turnId"]

    def _on_tool_call(self, call: "_ToolCallFields") -> Event:
        self._handle.tool_names[call.tool_call_id] = call.name
        self._open_calls[call.tool_call_id] = classify_open_call(
            call.tool_call_id, call.name, call.input, [tool.name for tool in self._handle.tools]
        )
        return _to_call_block(call.tool_call_id, call.name, call.input)

    def _on_tool_result(self, result: "_ToolResultFields") -> tuple[Event, ...]:
        self._open_calls.pop(result.tool_call_id, None)
        name = self._handle.tool_names.get(result.tool_call_id, "")
        if name == ASK_USER_QUESTION:  # the person's own answer to a question is not reported
            return ()
        text, images = _split_content(result.content)
        return (ToolResult(call_id=result.tool_call_id, name=name, text=text, images=images),)

    def _on_turn_stop(self, stop: "_TurnStopFields") -> tuple[Event, ...]:
        self.is_over = True
        meta = stop.meta or wire.TurnMeta()
        reason: StopReason = stop.stop_reason
        problem = None
        if meta.error is not None:
            problem = Problem(meta.error.code, meta.error.message)
            reason = STOP_REASONS.get(problem.code, reason)
        elif reason == "error":
            problem = Problem("", "the turn failed, and the server gave no reason")
        for call in meta.pending:
            if call.tool_call_id in self._open_calls:
                self._open_calls[call.tool_call_id] = _to_pending(call)
        for call_id in meta.not_waiting:
            self._open_calls.pop(call_id, None)
        pending = tuple(self._open_calls.values()) if reason == "tool_use" else ()
        self._handle.pending = pending
        usage = None if meta.usage is None else Usage(meta.usage.input_tokens, meta.usage.output_tokens)
        requests = requests_in(pending, self._handle.tool_names)
        ended = Ended(reason=reason, run_id=self._turn_id, usage=usage, problem=problem, pending=pending)
        return (*requests, ended)


class _ToolCallFields(msgspec.Struct, frozen=True, rename="camel"):
    tool_call_id: str
    name: str
    input: JsonObject


class _ToolResultFields(msgspec.Struct, frozen=True, rename="camel"):
    tool_call_id: str
    content: str | tuple[wire.InputBlock, ...]


class _TurnStopFields(msgspec.Struct, frozen=True, rename="camel"):
    stop_reason: wire.StopReason
    meta: wire.TurnMeta | None = msgspec.field(name="_meta", default=None)


# --- wire → client ----------------------------------------------------------------------------------------------------


def messages_from(messages: Iterable[wire.HistoryMessage]) -> tuple[Message, ...]:
    """Convert a history."""
    names: dict[str, str] = {}
    return tuple(_to_message(each, names) for each in messages)


def _to_message(message: wire.HistoryMessage, names: dict[str, str]) -> Message:
    match message:
        case wire.SystemMessage(content=content):
            return Message(role="system", blocks=(Text(text=content),))
        case wire.UserMessage(content=content):
            return Message(role="user", blocks=tuple(map(_to_content_block, _as_blocks(content))))
        case wire.AssistantMessage(content=content, meta=meta):
            return Message(
                role="assistant",
                blocks=tuple(_to_answer_block(each, names) for each in _as_blocks(content)),
                interrupted=meta is not None and meta.interrupted,
                cut=meta is not None and meta.cut,
            )
        case wire.ToolMessage(content=content):
            text, images = _split_content(content)
            call_id = message.tool_call_id
            result = ToolResult(call_id=call_id, name=names.get(call_id, ""), text=text, images=images)
            return Message(role="tool", blocks=(result,))
        case _ as never:
            assert_never(never)


def _to_answer_block(block: wire.AnswerBlock, names: dict[str, str]) -> Block:
    if isinstance(block, wire.ToolUseBlock):
        names[block.tool_call_id] = block.name
        return _to_call_block(block.tool_call_id, block.name, block.input)
    return _to_content_block(block)


def _to_call_block(call_id: str, name: str, arguments: JsonObject) -> "ToolCall | Question":
    return (
        parse_question(call_id, arguments)
        if name == ASK_USER_QUESTION
        else ToolCall(id=call_id, name=name, arguments=arguments)
    )


def _to_content_block(block: wire.TextBlock | wire.ThinkingBlock | wire.ImageBlock) -> Text | Thinking | Image:
    match block:
        case wire.TextBlock(text=text):
            return Text(text=text)
        case wire.ThinkingBlock(thinking=thinking):
            return Thinking(text=thinking)
        case wire.ImageBlock(url=url):
            return Image(url=url)
        case _ as never:
            assert_never(never)


def _restarted(content: str | tuple[wire.AnswerBlock, ...]) -> Restarted:
    """The event for a message that was interrupted."""
    blocks = _as_blocks(content)
    text = "".join(each.text for each in blocks if isinstance(each, wire.TextBlock))
    return Restarted(
        text=text, thinking="".join(each.thinking for each in blocks if isinstance(each, wire.ThinkingBlock))
    )


def _as_blocks(content: "str | tuple[Body, ...]") -> "tuple[Body | wire.TextBlock, ...]":
    return (wire.TextBlock(content),) if isinstance(content, str) else content


def _split_content(content: str | tuple[wire.InputBlock, ...]) -> tuple[str, tuple[str, ...]]:
    """Split a content into its text and its images' URLs."""
    if isinstance(content, str):
        return content, ()
    text = "".join(each.text for each in content if isinstance(each, wire.TextBlock))
    return text, tuple(each.url for each in content if isinstance(each, wire.ImageBlock))


def _to_agent(info: wire.AgentInfo) -> Agent:
    return Agent(
        name=info.name,
        title=info.title or "",
        description=info.description or "",
        version=info.version,
        tools=tuple(
            Tool(name=each.name, description=each.description, parameters=each.parameters) for each in info.tools or ()
        ),
        options=tuple(
            AgentOption(
                name=each.name,
                kind=each.type,
                description=each.description or each.title or "",
                choices=each.options or (),
                default=each.default,
            )
            for each in info.options or ()
        ),
    )


def _to_session_info(info: wire.SessionInfo) -> SessionInfo:
    meta = info.meta
    return SessionInfo(
        id=info.session_id,
        agent=info.agent.name,
        title=(meta.title or "") if meta else "",
        labels=(meta.labels or {}) if meta else {},
        status=meta.status if meta else "",
        created_at=meta.created_at if meta else "",
        updated_at=meta.updated_at if meta else "",
        pending=tuple(map(_to_pending, meta.pending)) if meta else (),
    )


def _to_pending(call: wire.PendingCall) -> Pending:
    if call.kind == "client":
        return ClientCall(call_id=call.tool_call_id, name=call.name, arguments=call.input)
    return classify_open_call(call.tool_call_id, call.name, call.input, (), is_repeat=call.repeat)


# --- client → wire ----------------------------------------------------------------------------------------------------


def _to_tool_specs(tools: Iterable[ToolSpec]) -> list[wire.ToolSpec]:
    return [
        wire.ToolSpec(name=each.name, title=each.title, description=each.description, parameters=each.parameters)
        for each in tools
    ]


def _to_wire_messages(turn_input: TurnInput) -> Iterable[JsonObject]:
    if isinstance(turn_input, UserInput):
        yield {"role": "user", "content": _to_wire_content(turn_input.text, turn_input.images)}
        return
    for each in turn_input:
        yield _to_wire_answer(each)


def _to_wire_answer(answer: Answer) -> JsonObject:
    match answer:
        case Result(call_id=call_id, text=text, images=images):
            return {"role": "tool", "toolCallId": call_id, "content": _to_wire_content(text, images)}
        case Choice(call_id=call_id):
            return {
                "role": "tool",
                "toolCallId": call_id,
                "content": msgspec.json.encode(choice_to_json(answer)).decode(),
            }
        case Allow(call_id=call_id, always=always):
            if always:
                raise Unsupported("AAP trusts tools when the session is created: create(trusted_tools=[…])")
            return {"role": "tool_permission", "toolCallId": call_id, "granted": True}
        case Deny(call_id=call_id, reason=reason):
            denial: JsonObject = {"role": "tool_permission", "toolCallId": call_id, "granted": False}
            return {**denial, "reason": reason} if reason else denial
        case _ as never:
            assert_never(never)


def _to_wire_content(text: str, images: Sequence[str]) -> str | list[wire.InputBlock]:
    if not images:
        return text
    blocks: list[wire.InputBlock] = [wire.TextBlock(text)] if text else []
    return [*blocks, *(wire.ImageBlock(url) for url in images)]


# --- decoding ---------------------------------------------------------------------------------------------------------


def _decode(body: bytes, kind: type[Body]) -> Body:
    return decode_json(body, kind, "AAP v3")


def _convert(fields: dict[str, object], kind: type[Body]) -> Body:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise InvalidResponse(f"expected an AAP v3 event: {error}") from error


def _required_text(fields: dict[str, object], name: str) -> str:
    text = fields.get(name)
    if not isinstance(text, str):
        raise InvalidResponse(f"expected an event with a text in {name!r}, got {sorted(fields)}")
    return text


def _tool_name(pending: Pending) -> str:
    return ASK_USER_QUESTION if isinstance(pending, Question) else pending.name


def _quote_segment(text: str) -> str:
    return quote(text, safe="")
