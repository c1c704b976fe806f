"""The client codec for the Agent API of AgentScope Runtime. Pure: requests out, events in.

A session begins with its first message, and the server keeps its history. Responses of Dragoman servers can be resumed
from a sequence number and requested again by their `id`; those of the published runtime are lost with the connection.
"""

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote
from uuid import uuid4

import msgspec

from dragoman.client.codec import (
    SETTINGS,
    Request,
    SessionConfig,
    SessionHandle,
    TurnInput,
    TypedRequest,
    UserInput,
    require_unset,
)
from dragoman.client.decoding import decode_error_body, decode_flag, decode_json, error_message, parse_arguments
from dragoman.client.errors import InvalidResponse, RequestRefused, Unsupported, make_refusal
from dragoman.client.events import (
    Agent,
    Allow,
    Answer,
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
    Result,
    SessionInfo,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from dragoman.client.pending import choice_to_json, parse_question, requests_in
from dragoman.client.sse import Frame, FrameReader
from dragoman.client.steps import NewestSteps
from dragoman.core.answers import denied_result
from dragoman.core.content import Json, JsonObject
from dragoman.core.tools import ASK_USER_QUESTION
from dragoman.protocols.agentscope.paths import stop_path

DEFAULT_PATH = "/process"
STOP_REASONS: Mapping[str, StopReason] = {
    "MAX_STEPS": "max_steps",
    "INTERRUPTED": "interrupted",
    "length": "max_tokens",
    "content_filter": "refusal",
}
"""Stop reasons by the code of a failed response, or by the `finish_reason` of a message."""


class _WireEvent(msgspec.Struct, frozen=True):
    """Any event, with the fields of all kinds."""

    object: str = ""
    status: str | None = None
    id: str | None = None
    sequence_number: int | None = None
    type: str | None = None
    error: JsonObject | str | None = None
    msg_id: str | None = None
    index: int | None = None
    delta: bool | None = False
    text: str | None = None
    image_url: str | None = None
    data: Json = None
    content: list[JsonObject] | None = None
    metadata: JsonObject | None = None
    output: list[JsonObject] | None = None
    usage: dict[str, Json] | None = None


class AgentScopeCodec:
    """The codec for the Agent API of a server that starts runs at `path`."""

    needs_agents = False
    needs_all_answers = False

    def __init__(self, path: str = DEFAULT_PATH) -> None:
        self._path = path

    def agents(self) -> TypedRequest[tuple[Agent, ...]]:
        """List the server's agents."""
        raise Unsupported("the Agent API cannot list agents: name one, or list them over AAP")

    def create(self, session_config: SessionConfig, idempotency_key: str) -> SessionHandle:
        """Make the handle of a new session; nothing is sent yet. Without a name the server's default agent answers."""
        advice = "the Agent API cannot select or trust tools, or set options, a title, labels or a history; AAP can"
        require_unset(session_config, *SETTINGS, advice=advice)
        return SessionHandle(id=str(uuid4()), agent=session_config.agent, tools=session_config.tools)

    def open(self, info: SessionInfo, session_config: SessionConfig) -> SessionHandle:
        """Make the handle of an existing session."""
        return SessionHandle(id=info.id, agent=session_config.agent, tools=session_config.tools)

    def session_info(self, handle: SessionHandle) -> SessionInfo:
        """Return what the client knows: the protocol has no request for a session, so it is assumed to exist."""
        return SessionInfo(id=handle.id, agent=handle.agent, pending=handle.pending)

    def sessions(self, after: str) -> TypedRequest[tuple[tuple[SessionInfo, ...], str]]:
        """Fetch a page of the session list."""
        raise Unsupported("the Agent API cannot list sessions; AAP can")

    def history(self, handle: SessionHandle) -> TypedRequest[tuple[Message, ...]]:
        """Fetch all messages."""
        raise Unsupported("the Agent API has no history; AAP has, for the same session")

    def delete(self, handle: SessionHandle) -> TypedRequest[None]:
        """Delete the session and everything in it."""
        raise Unsupported("the Agent API cannot delete a session; AAP can delete the same session")

    def stop(self, handle: SessionHandle) -> TypedRequest[bool]:
        """Stop the current run."""
        body = msgspec.json.encode({"session_id": handle.id})
        headers = {"Content-Type": "application/json"}
        request = Request(method="POST", path=stop_path(self._path), body=body, headers=headers, is_idempotent=True)
        return TypedRequest(request, lambda response: decode_flag(response, "canceled"))

    def turn(self, handle: SessionHandle, turn_input: TurnInput, idempotency_key: str) -> "AgentScopeTurn":
        """Start a turn."""
        body: JsonObject = {
            "id": f"resp_{idempotency_key}",
            "session_id": handle.id,
            "stream": True,
            "input": _to_wire_input(handle, turn_input),
        }
        if handle.agent:
            body["model"] = handle.agent
        if handle.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": each.name,
                        "description": each.description,
                        "parameters": {"type": "object", "properties": {}, **each.parameters},
                    },
                }
                for each in handle.tools
            ]
        first_request = Request(
            method="POST",
            path=self._path,
            body=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
        )
        answered = {each.call_id for each in turn_input} if isinstance(turn_input, tuple) else None
        unanswered = () if answered is None else (each for each in handle.pending if each.call_id not in answered)
        return AgentScopeTurn(handle, first_request, self._path, unanswered)

    def resume(self, handle: SessionHandle) -> "AgentScopeTurn":
        """Read the newest turn from its start."""
        path = f"{self._path}/sessions/{quote(handle.id, safe='')}/events"
        return AgentScopeTurn(handle, Request(method="GET", path=path, is_idempotent=True), self._path)

    def idempotency_probe(self, handle: SessionHandle) -> TypedRequest[bool]:
        """Find out whether the server can resume responses: Dragoman servers name the path on their service page."""
        return TypedRequest(
            Request(method="GET", path="/", is_idempotent=True), lambda body: b'"response_events"' in body
        )

    def decode_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> RequestRefused:
        """Decode an error response."""
        return _to_refusal(status, decode_error_body(body, "error"), body, headers.get("x-request-id", ""))


def _to_refusal(status: int, payload: JsonObject, body: bytes, request_id: str = "") -> RequestRefused:
    error = payload.get("error")
    fields = error if isinstance(error, dict) else {"code": payload.get("code"), "message": error}
    message = error_message(fields.get("message"), payload.get("detail"))
    return make_refusal(status, str(fields.get("code") or ""), message, body=body, request_id=request_id)


class AgentScopeTurn:
    """A response. Events are numbered from 0; Dragoman servers repeat the number as the frame's id.

    Args:
        handle: the session.
        first_request: starts the response, or reads it from its start.
        path: where the server starts runs.
        unanswered: what was pending already and stays so.
    """

    def __init__(
        self, handle: SessionHandle, first_request: Request, path: str, unanswered: Iterable[Pending] = ()
    ) -> None:
        self.is_over = False
        self._handle = handle
        self._first_request = first_request
        self._path = path
        self._last_sequence_number = -1
        self._has_events = False
        self._has_ids = False
        self._response_id = ""
        self._message_types: dict[str, str] = {}
        self._emitted_lengths: dict[tuple[str, int], int] = {}
        """Characters emitted so far, by message id and content index."""
        is_new = first_request.method == "POST"
        self._emitted_calls = set(handle.tool_names) if is_new else {each.call_id for each in handle.pending}
        self._open_calls: dict[str, Pending] = {each.call_id: each for each in unanswered}
        self._finish_reason = ""
        self._steps = NewestSteps()

    @property
    def request(self) -> Request:
        """The request that starts the turn or resumes it."""
        if not self._response_id or not self._has_ids:
            return self._first_request
        path = f"{self._path}/responses/{quote(self._response_id, safe='')}/events?after={self._last_sequence_number}"
        return Request(method="GET", path=path, is_idempotent=True)

    @property
    def can_resume(self) -> bool:
        """Whether `request` resumes the turn without losing or repeating anything."""
        return not self._has_events or self._has_ids

    def feed_body(self, body: bytes) -> Sequence[Event]:
        """Decode a 204, if the session has no response, or a stream that the server did not declare as one."""
        if not body:
            self.is_over = True
            return (Ended(reason="end_turn"),)
        return [event for frame in FrameReader().feed(body) for event in self.feed(frame)]

    def feed(self, frame: Frame) -> Sequence[Event]:
        """Decode one frame of the stream."""
        event = decode_json(frame.data, _WireEvent, "an Agent API event")
        if event.type == "heartbeat":
            return ()
        number = event.sequence_number
        if number is not None:
            if number <= self._last_sequence_number:
                return ()
            if frame.id and number != self._last_sequence_number + 1:
                raise InvalidResponse(f"expected event {self._last_sequence_number + 1} of the response, got {number}")
            self._last_sequence_number, self._has_ids = number, self._has_ids or bool(frame.id)
        self._has_events = True
        match event.object:
            case "response":
                return self._on_response(event)
            case "message":
                return self._on_message(event)
            case "content":
                return self._on_content(event)
        if event.error is None:
            return ()
        if self._response_id:  # the published runtime ends a response that fails with a frame of its own, and no status
            return self._on_response(msgspec.structs.replace(event, object="response", status="failed"))
        raise _to_refusal(200, {"error": event.error}, frame.data)  # it also refuses with status 200

    def _on_message(self, event: _WireEvent) -> Sequence[Event]:
        kind = event.type or "message"
        self._message_types[event.id or ""] = kind
        if event.status not in ("completed", "failed", "canceled"):
            return ()
        if event.metadata and event.metadata.get("finish_reason"):
            self._finish_reason = str(event.metadata["finish_reason"])
        if event.metadata and event.metadata.get("interrupted"):
            return self._steps.cut(_step_of(event.id), "")
        payloads = [each["data"] for each in event.content or () if isinstance(each.get("data"), dict)]
        if kind in ("message", "reasoning"):
            return ()
        return [found for each in payloads for found in self._on_payload(kind, each)]

    def _on_payload(self, kind: str, payload: JsonObject) -> Sequence[Event]:
        """Decode what a message other than text is about. The published runtime sends parallel calls in one message."""
        if kind.endswith("_output"):
            return self._on_tool_result(payload)
        if kind == "mcp_approval_request":
            return self._on_tool_call(str(payload.get("id")), payload, is_pending=True, needs_permission=True)
        if kind.endswith("_call"):
            return self._on_tool_call(str(payload.get("call_id")), payload, is_pending=kind == "function_call")
        return (Notice(kind=kind, content=payload),)

    def _on_content(self, event: _WireEvent) -> Sequence[Event]:
        kind = self._message_types.get(event.msg_id or "", "message")
        content_key = (event.msg_id or "", event.index or 0)
        if kind not in ("message", "reasoning"):
            return ()
        if event.type == "text" and event.text:
            emitted = self._emitted_lengths.get(content_key, 0)
            text = event.text if event.delta else event.text[emitted:]
            self._emitted_lengths[content_key] = emitted + len(text)
            if not text:
                return ()
            said = Text(text=text) if kind == "message" else Thinking(text=text)
            return self._steps.add(_step_of(event.msg_id), said)
        if event.delta or event.status not in ("completed", "failed", "canceled"):
            return ()
        if event.type == "image" and event.image_url:
            return (Image(url=event.image_url),)
        if event.type == "data" and isinstance(event.data, dict):
            if not event.msg_id and {"call_id", "arguments"} <= event.data.keys():
                # The published runtime sends parallel calls of LangGraph like this, before an empty message.
                return self._on_payload("plugin_call", event.data)
            plan = event.data.get("plan")
            return (Notice(kind="plan", content=plan) if plan else Notice(kind="data", content=event.data),)
        return ()

    def _on_tool_call(
        self, call_id: str, payload: JsonObject, *, is_pending: bool, needs_permission: bool = False
    ) -> Sequence[Event]:
        name, arguments = str(payload.get("name")), parse_arguments(payload.get("arguments"))
        self._handle.tool_names.setdefault(call_id, name)  # a tool that asks is sent again, as its question
        question = parse_question(call_id, arguments) if name == ASK_USER_QUESTION else None
        if needs_permission:
            is_repeat = payload.get("repeat") is True
            self._open_calls[call_id] = Permission(call_id=call_id, name=name, arguments=arguments, is_repeat=is_repeat)
        elif is_pending or name in {each.name for each in self._handle.tools}:
            self._open_calls[call_id] = question or ClientCall(call_id=call_id, name=name, arguments=arguments)
        if call_id in self._emitted_calls:  # an approved call is sent again
            return ()
        self._emitted_calls.add(call_id)
        return (question or ToolCall(id=call_id, name=name, arguments=arguments),)

    def _on_tool_result(self, payload: JsonObject) -> Sequence[Event]:
        call_id = str(payload.get("call_id"))
        self._open_calls.pop(call_id, None)
        name = self._handle.tool_names.get(call_id) or str(payload.get("name") or "")
        if name == ASK_USER_QUESTION:
            return ()
        output = payload.get("output")
        text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
        return (ToolResult(call_id=call_id, name=name, text=text),)

    def _on_response(self, event: _WireEvent) -> Sequence[Event]:
        self._response_id = self._handle.run_id = event.id or self._response_id
        if event.status in ("created", "queued", "in_progress"):
            self._handle.pending = ()
            return ()
        self.is_over = True
        pending = tuple(self._open_calls.values()) if event.status == "completed" else ()
        reason: StopReason = "tool_use" if pending else STOP_REASONS.get(self._finish_reason, "end_turn")
        problem = None
        if event.status == "canceled":
            reason = "cancelled"
        elif event.status != "completed":
            error = event.error if isinstance(event.error, dict) else {"message": event.error}
            problem = Problem(str(error.get("code") or ""), str(error.get("message") or "the response failed"))
            reason = STOP_REASONS.get(problem.code, "error")
        self._handle.pending = pending
        requests = requests_in(pending, self._handle.tool_names)
        run_id = self._response_id
        ended = Ended(reason=reason, run_id=run_id, usage=_to_usage(event.usage), problem=problem, pending=pending)
        return (*requests, ended)


def _step_of(message_id: str | None) -> str:
    """The part that the ids of a model step's messages have in common."""
    return (message_id or "").rpartition("_")[0]


def _to_usage(usage: Mapping[str, Json] | None) -> Usage | None:
    if not usage:
        return None
    return Usage(int(usage.get("input_tokens") or 0), int(usage.get("output_tokens") or 0))


# --- client → wire ----------------------------------------------------------------------------------------------------


def _to_wire_input(handle: SessionHandle, turn_input: TurnInput) -> list[JsonObject]:
    if isinstance(turn_input, UserInput):
        content: list[JsonObject] = [{"type": "image", "image_url": url} for url in turn_input.images]
        if turn_input.text or not content:
            content.insert(0, {"type": "text", "text": turn_input.text})
        return [{"role": "user", "type": "message", "content": content}]
    permissions = {each.call_id for each in handle.pending if isinstance(each, Permission)}
    return [_to_wire_answer(each, is_permission=each.call_id in permissions) for each in turn_input]


def _to_wire_answer(answer: Answer, *, is_permission: bool) -> JsonObject:
    match answer:
        case Allow(always=True):
            raise Unsupported("the Agent API cannot always allow a tool; AG-UI and Blade can, for the same session")
        case Allow(call_id=call_id):
            return _to_approval_message(call_id, approve=True)
        case Deny(call_id=call_id, reason=reason) if is_permission:
            return _to_approval_message(call_id, approve=False, reason=reason)
        case Deny(call_id=call_id, reason=reason):
            return _to_output_message(call_id, denied_result(reason or None))
        case Choice(call_id=call_id):
            return _to_output_message(call_id, msgspec.json.encode(choice_to_json(answer)).decode())
        case Result(images=images) if images:
            raise Unsupported("the Agent API accepts text as a tool's result, but no images")
        case Result(call_id=call_id, text=text):
            return _to_output_message(call_id, text)


def _to_approval_message(call_id: str, *, approve: bool, reason: str = "") -> JsonObject:
    approval: JsonObject = {"approval_request_id": call_id, "approve": approve}
    if reason:
        approval["reason"] = reason
    return {"type": "mcp_approval_response", "role": "user", "content": [{"type": "data", "data": approval}]}


def _to_output_message(call_id: str, text: str) -> JsonObject:
    output = {"call_id": call_id, "output": text}
    return {"type": "function_call_output", "role": "tool", "content": [{"type": "data", "data": output}]}
