"""The client codec for AG-UI's standard endpoint. Pure: requests out; `agui_turn` decodes the streams.

Extensions of Dragoman servers (frame ids, hydration, `connect`, `stop`) are used if present. A server that keeps no
history is sent all messages that this client knows, as the protocol's own clients do.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import quote
from uuid import uuid4

import msgspec

from dragoman.client.agui_content import to_wire_content
from dragoman.client.agui_interrupts import pending_in, resume_command, resume_entry
from dragoman.client.agui_seeds import seed_messages
from dragoman.client.agui_turn import AguiTurn, messages_from
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
from dragoman.client.decoding import decode_error_body, decode_flag, decode_json, error_message
from dragoman.client.errors import ClientError, RequestRefused, Unsupported, make_refusal
from dragoman.client.events import (
    Agent,
    Allow,
    Answer,
    Choice,
    ClientCall,
    Deny,
    Message,
    Question,
    Result,
    SessionInfo,
    Tool,
)
from dragoman.client.pending import choice_to_json
from dragoman.client.sse import FrameReader
from dragoman.core.content import JsonObject
from dragoman.core.tools import ASK_USER_QUESTION
from dragoman.protocols.agui.translate import VERSION

BASE = "/ag-ui"


CAPABILITIES = "capabilities"
"""The route below an endpoint at which Dragoman servers declare an agent."""


class _Identity(msgspec.Struct, frozen=True):
    name: str
    version: str = ""
    description: str | None = None


class _ToolItem(msgspec.Struct, frozen=True):
    name: str
    description: str = ""
    parameters: JsonObject = {}


class _Tools(msgspec.Struct, frozen=True):
    items: tuple[_ToolItem, ...] = ()


class _Capabilities(msgspec.Struct, frozen=True):
    identity: _Identity
    tools: _Tools = _Tools()


def _decode_capabilities(body: bytes) -> tuple[Agent, ...]:
    declared = decode_json(body, _Capabilities, "AG-UI's capabilities")
    tools = tuple(
        Tool(name=each.name, description=each.description, parameters=each.parameters) for each in declared.tools.items
    )
    identity = declared.identity
    return (Agent(name=identity.name, description=identity.description or "", version=identity.version, tools=tools),)


class AguiCodec:
    """The codec for one agent at exactly the path `endpoint`, or for all agents below `BASE` if that is empty."""

    needs_agents = False
    needs_all_answers = True

    def __init__(self, endpoint: str = "") -> None:
        self._endpoint = endpoint

    def agents(self) -> TypedRequest[tuple[Agent, ...]]:
        """The agent at the endpoint, as Dragoman servers declare it."""
        if not self._endpoint:
            raise Unsupported("AG-UI cannot list agents: name one, or list them over AAP")
        path = f"{self._endpoint.removesuffix('/')}/{CAPABILITIES}"
        return TypedRequest(Request(method="GET", path=path, is_idempotent=True), _decode_capabilities)

    def create(self, session_config: SessionConfig, idempotency_key: str) -> SessionHandle:
        """Make the handle of a new thread. Nothing is sent yet: a thread begins with its first message."""
        if not session_config.agent and not self._endpoint:
            raise Unsupported("AG-UI has no default agent: name one with create(agent=…)")
        advice = "AG-UI cannot select or trust tools, or set options, a title or labels; AAP can"
        require_unset(session_config, *(name for name in SETTINGS if name != "history"), advice=advice)
        return SessionHandle(
            id=str(uuid4()),
            agent=session_config.agent,
            tools=session_config.tools,
            messages=seed_messages(session_config.history),
        )

    def open(self, info: SessionInfo, session_config: SessionConfig) -> SessionHandle:
        """Make the handle of an existing session."""
        handle = SessionHandle(id=info.id, agent=session_config.agent, tools=session_config.tools, pending=info.pending)
        for each in info.pending:
            handle.tool_names[each.call_id] = ASK_USER_QUESTION if isinstance(each, Question) else each.name
        return handle

    def session_info(self, handle: SessionHandle) -> TypedRequest[SessionInfo]:
        """Fetch a thread's state by hydration, which servers that keep threads support."""

        def decode(body: bytes) -> SessionInfo:
            turn = self._decode_stream(handle, body)
            status = "waiting" if turn.pending else ""
            return SessionInfo(id=handle.id, agent=handle.agent, status=status, pending=turn.pending)

        return TypedRequest(self._hydration_request(handle), decode)

    def sessions(self, after: str) -> TypedRequest[tuple[tuple[SessionInfo, ...], str]]:
        """Fetch a page of the session list."""
        raise Unsupported("AG-UI cannot list threads; AAP can list the same sessions")

    def history(self, handle: SessionHandle) -> TypedRequest[tuple[Message, ...]]:
        """Fetch all messages."""
        return TypedRequest(
            self._hydration_request(handle), lambda body: messages_from(self._decode_stream(handle, body).snapshot)
        )

    def delete(self, handle: SessionHandle) -> TypedRequest[None]:
        """Delete the session and everything in it."""
        raise Unsupported("AG-UI cannot delete a thread; AAP can delete the same session")

    def stop(self, handle: SessionHandle) -> TypedRequest[bool]:
        """Stop the current run."""
        request = Request(
            method="POST", path=self._extension_path(handle, f"stop/{_quote_segment(handle.id)}"), is_idempotent=True
        )
        return TypedRequest(request, lambda body: decode_flag(body, "stopped"))

    def turn(self, handle: SessionHandle, turn_input: TurnInput, idempotency_key: str) -> "AguiTurn":
        """Start a turn."""
        messages, resume = _to_wire_input(handle, turn_input, idempotency_key)
        command = _to_command(handle, turn_input)
        body = _request_body(
            handle, idempotency_key, messages if handle.server_keeps_history else [*handle.messages, *messages]
        )
        body["tools"] = [
            {"name": each.name, "description": each.description, "parameters": each.parameters} for each in handle.tools
        ]
        shared = {"state": handle.state, "context": handle.context, "forwardedProps": handle.forwarded}
        body |= {name: value for name, value in shared.items() if value is not None}
        if resume:
            body["resume"] = resume
        if command is not None:
            body["forwardedProps"] = {**(handle.forwarded or {}), "command": command}
        return AguiTurn(handle, self._post(self._path(handle), body), messages)

    def resume(self, handle: SessionHandle) -> "AguiTurn":
        """Read everything since the user's last message."""
        return AguiTurn(
            handle, self._post(self._extension_path(handle, "connect"), _request_body(handle), is_idempotent=True), None
        )

    def idempotency_probe(self, handle: SessionHandle) -> TypedRequest[bool]:
        """Find out whether the server recognizes a repeated `runId`: Dragoman servers do, and declare capabilities."""
        return TypedRequest(
            Request(method="GET", path=self._extension_path(handle, CAPABILITIES), is_idempotent=True), lambda _: True
        )

    def decode_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> RequestRefused:
        """Decode an error response. Its members differ between servers."""
        error = decode_error_body(body, "error")
        message = error_message(error.get("error"), error.get("detail"), error.get("message"))
        code = str(error.get("code") or "")
        return make_refusal(
            404 if code == "thread_not_found" else status,
            code,
            message,
            body=body,
            request_id=headers.get("x-request-id", "") or str(error.get("reference") or ""),
        )

    # --- inside -----------------------------------------------------------------------------------------------------

    def _path(self, handle: SessionHandle) -> str:
        return self._endpoint or f"{BASE}/{_quote_segment(handle.agent)}"

    def _extension_path(self, handle: SessionHandle, name: str) -> str:
        return f"{self._path(handle).removesuffix('/')}/{name}"

    def _hydration_request(self, handle: SessionHandle) -> Request:
        if not handle.agent and not self._endpoint:
            raise Unsupported("AG-UI needs the agent of a thread: open(id, agent=…)")
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
        """Decode a stream that has arrived as a whole."""
        copy = SessionHandle(id=handle.id, agent=handle.agent, tools=handle.tools, tool_names=handle.tool_names)
        turn = AguiTurn(copy, Request(method="POST", path=""), None)
        for frame in FrameReader().feed(body):
            turn.feed(frame)
        return turn


def _request_body(handle: SessionHandle, run_id: str = "", messages: Sequence[JsonObject] = ()) -> JsonObject:
    """A request's body. Without messages it only hydrates, and starts no run."""
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


# --- client → wire ----------------------------------------------------------------------------------------------------


def _to_wire_input(
    handle: SessionHandle, turn_input: TurnInput, run_id: str
) -> tuple[list[JsonObject], list[JsonObject]]:
    """The messages and the entries of `resume` for a request. The messages' ids follow from the run's."""
    if isinstance(turn_input, UserInput):
        message = {
            "id": f"{run_id}-user",
            "role": "user",
            "content": to_wire_content(turn_input.text, turn_input.images),
        }
        interrupts = [each.call_id for each in handle.pending if not isinstance(each, ClientCall)]
        return [message], [{"interruptId": each, "status": "cancelled"} for each in interrupts]
    answers = {each.call_id: each for each in turn_input}
    of_graph = {pending.call_id for each in handle.graph_interrupts for pending in pending_in(each)}
    kinds = {each.call_id: type(each) for each in handle.pending}
    messages: list[JsonObject] = []
    resume: list[JsonObject] = []
    if resume_command(handle.graph_interrupts, answers) is None:
        resume += (resume_entry(each, answers) for each in handle.graph_interrupts)
    for answer in turn_input:
        if answer.call_id in of_graph:
            continue
        if kinds.get(answer.call_id) is ClientCall:
            messages.append(_tool_message(answer, f"{run_id}-{len(messages)}"))
        else:
            resume.append({"interruptId": answer.call_id, **_to_resume_entry(answer)})
    return messages, resume


def _to_command(handle: SessionHandle, turn_input: TurnInput) -> JsonObject | None:
    """What resumes a graph beside the protocol's `resume`."""
    if isinstance(turn_input, UserInput):
        return None
    return resume_command(handle.graph_interrupts, {each.call_id: each for each in turn_input})


def _tool_message(answer: Answer, message_id: str) -> JsonObject:
    message: JsonObject = {"id": message_id, "role": "tool", "toolCallId": answer.call_id}
    if isinstance(answer, Result):
        return {**message, "content": to_wire_content(answer.text, answer.images)}
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
            raise ClientError("over AG-UI, Result answers only calls of client tools")


def _quote_segment(text: str) -> str:
    return quote(text, safe="")
