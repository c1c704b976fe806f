"""The client codec for Blade: sessions over REST, chats over Socket.IO. Pure: requests out, events in.

Chats have no idempotency key. Whether a message was lost shows in the session's sequence number: if that has not moved
since before the message was sent, the message did not arrive.
"""

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

import msgspec

from dragoman.client.codec import (
    SETTINGS,
    Request,
    SessionConfig,
    SessionHandle,
    TypedRequest,
    UserInput,
    require_unset,
)
from dragoman.client.decoding import decode_error_body, decode_json, error_message, parse_arguments
from dragoman.client.errors import InvalidResponse, RequestRefused, Unreachable, Unsupported, make_refusal
from dragoman.client.events import (
    Agent,
    Allow,
    Answer,
    Block,
    Choice,
    Deny,
    Ended,
    Event,
    Message,
    Notice,
    Pending,
    Permission,
    Problem,
    Question,
    Restarted,
    Result,
    Role,
    SessionInfo,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.client.pending import parse_question
from dragoman.core.content import Json, JsonObject
from dragoman.core.ids import parse_session_id
from dragoman.core.tools import ASK_USER_QUESTION
from dragoman.protocols.blade.wire import chat

BASE = "/api"
PAGE_SIZE = 100
ROOT_LOOP = "root"
ALLOW, ALWAYS, DENY = 0, 1, 2
"""Option indexes of the question that asks for a permission."""
NO_CLIENT_TOOLS = "Blade has no client tools; AAP, AG-UI and the Agent API have"
STATUSES = {"waiting_for_input": "waiting", "running": "running"}
STOP_REASONS: Mapping[str, StopReason] = {"max_tokens": "max_tokens", "refusal": "refusal"}


class _Created(msgspec.Struct, frozen=True):
    session_id: str


class BladeCodec:
    """The codec for Blade's REST API."""

    def __init__(self, base: str = BASE) -> None:
        self._base = base.rstrip("/")

    def agents(self) -> TypedRequest[tuple[Agent, ...]]:
        """List the server's agents, which Blade calls solutions."""

        def decode(body: bytes) -> tuple[Agent, ...]:
            return tuple(
                Agent(
                    name=str(each.get("id")),
                    title=str(each.get("name") or ""),
                    description=str(each.get("description") or ""),
                    version=str(each.get("version") or ""),
                )
                for each in _decode_object(body).get("items", ())
            )

        return TypedRequest(self._get("/solutions"), decode)

    def create(self, session_config: SessionConfig) -> TypedRequest[SessionHandle]:
        """Create a session."""
        if session_config.tools:
            raise Unsupported(NO_CLIENT_TOOLS)
        advice = "Blade cannot select or trust tools, or set options, labels or a history; AAP can"
        require_unset(session_config, *(name for name in SETTINGS if name != "title"), advice=advice)
        body = {"solution_id": session_config.agent} if session_config.agent else {}
        if session_config.title:
            body["intent"] = session_config.title

        def decode(response: bytes) -> SessionHandle:
            created = decode_json(response, _Created, "a new session")
            return SessionHandle(id=chat.parse_session_name(created.session_id), agent=session_config.agent)

        request = Request(
            method="POST",
            path=f"{self._base}/sessions",
            body=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
            is_idempotent=True,  # a retry can at worst leave an empty session behind
        )
        return TypedRequest(request, decode)

    def session_info(self, handle: SessionHandle) -> TypedRequest[SessionInfo]:
        """Fetch a session's state, without what is pending: that is in the messages."""
        return TypedRequest(
            self._get(f"/sessions/{to_blade_session_id(handle.id)}"),
            lambda body: _to_session_info(_decode_object(body)),
        )

    def pending(self, handle: SessionHandle) -> TypedRequest[tuple[Pending, ...]]:
        """Fetch what is waiting for an answer."""

        def decode(body: bytes) -> tuple[Pending, ...]:
            turn = BladeTurn(SessionHandle(id=handle.id, agent=handle.agent, tool_names=handle.tool_names), 0)
            for each in _decode_list(body):
                turn.feed_turn(each)
            return turn.pending

        return TypedRequest(self._get(f"/sessions/{to_blade_session_id(handle.id)}/messages"), decode)

    def sessions(self, after: str) -> TypedRequest[tuple[tuple[SessionInfo, ...], str]]:
        """Fetch a page of the session list."""
        offset = int(after or 0)

        def decode(body: bytes) -> tuple[tuple[SessionInfo, ...], str]:
            page = _decode_object(body)
            sessions = tuple(map(_to_session_info, page.get("items", ())))
            end = offset + len(sessions)
            return sessions, str(end) if sessions and end < int(page.get("total", 0)) else ""

        return TypedRequest(self._get(f"/sessions?limit={PAGE_SIZE}&offset={offset}"), decode)

    def history(self, handle: SessionHandle) -> TypedRequest[tuple[Message, ...]]:
        """Fetch all messages of the active branch."""
        return TypedRequest(
            self._get(f"/sessions/{to_blade_session_id(handle.id)}/messages"),
            lambda body: messages_from(_decode_list(body)),
        )

    def delete(self, handle: SessionHandle) -> TypedRequest[None]:
        """Delete the session and everything in it."""
        path = f"{self._base}/sessions/{to_blade_session_id(handle.id)}"
        return TypedRequest(Request(method="DELETE", path=path, is_idempotent=True), lambda _: None)

    def decode_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> RequestRefused:
        """Decode an error response."""
        error = decode_error_body(body, "detail")
        message = error_message(error.get("detail"), error.get("error"))
        request_id = headers.get("x-request-id", "")
        return make_refusal(status, str(error.get("code") or ""), message, body=body, request_id=request_id)

    def _get(self, path: str) -> Request:
        return Request(method="GET", path=self._base + path, is_idempotent=True)


def to_blade_session_id(session_id: str) -> str:
    """Convert a session id to Blade's form, for a path or an event."""
    parsed = parse_session_id(session_id)
    return quote(session_id, safe="") if parsed is None else chat.public_session_id(parsed)


def _resolve_call_id(call_id: str) -> str:
    """Map the id of a permission's question to the id of the call that it is about; other ids stay as they are."""
    return chat.public_call_id(chat.parse_call_id(call_id)) if chat.is_permission_id(call_id) else call_id


def _to_session_info(payload: JsonObject) -> SessionInfo:
    return SessionInfo(
        id=chat.parse_session_name(str(payload.get("id"))),
        agent=str(payload.get("solution_id") or ""),
        title=str(payload.get("intent") or ""),
        status=STATUSES.get(str(payload.get("status")), "idle"),
        created_at=str(payload.get("created_at") or ""),
        updated_at=str(payload.get("updated_at") or ""),
    )


# --- client → socket --------------------------------------------------------------------------------------------------


def message_payload(handle: SessionHandle, user_input: UserInput) -> JsonObject:
    """The payload of `chat:send` for a message."""
    message: Json = user_input.text
    if user_input.images:
        text = [{"type": "text", "text": user_input.text}] if user_input.text else []
        message = [*text, *({"type": "image_url", "image_url": {"url": url}} for url in user_input.images)]
    return {"session_id": to_blade_session_id(handle.id), "message": message}


def answer_payload(handle: SessionHandle, answer: Answer) -> JsonObject:
    """The payload of `chat:send` for an answer."""
    request = next((each for each in handle.pending if each.call_id == answer.call_id), None)
    payload: JsonObject = {"tool_call_id": answer.call_id}
    match answer:
        case Allow(always=always):
            payload["selections"] = {"0": [ALWAYS if always else ALLOW]}
        case Deny(reason=reason) if isinstance(request, Question):
            payload["custom"] = {str(index): reason or "I decline" for index in range(len(request.questions))}
        case Deny(reason=reason):
            payload |= {"selections": {"0": [DENY]}, "custom": {"0": reason} if reason else {}}
        case Choice(selections=selections, custom=custom):
            payload["selections"] = {
                str(index): _option_indexes(request, index, labels) for index, labels in selections.items()
            }
            payload["custom"] = {str(index): text for index, text in custom.items()}
        case Result():
            raise Unsupported("Blade cannot send results of client tools; AAP, AG-UI and the Agent API can")
    return {"session_id": to_blade_session_id(handle.id), "message": "", "askuser_answer": payload}


def _option_indexes(request: Pending | None, question_index: int, labels: Sequence[str]) -> list[int]:
    """The indexes of the selected labels among a question's options."""
    options = request.questions[question_index].options if isinstance(request, Question) else ()
    known = [option.label for option in options]
    for label in labels:
        if label not in known:
            raise Unsupported(f"expected one of the options ({', '.join(known)}), got {label!r}")
    return [known.index(label) for label in labels]


# --- socket → client --------------------------------------------------------------------------------------------------


class BladeTurn:
    """A chat, from its start to its `chat:end`. Repeated events are recognized by their `stream_sequence`.

    Args:
        handle: the session.
        after: the number of the last event before the chat.
        pending: what was pending already and stays so until the chat says otherwise.
    """

    def __init__(self, handle: SessionHandle, after: int, pending: Iterable[Pending] = ()) -> None:
        self.is_over = False
        self.run_id = ""
        self.last_sequence = after
        """The number of the last event that was decoded."""
        self.user_text: str | None = None
        """The user's message that started the chat, once it has arrived."""
        self._handle = handle
        self._emitted_lengths: dict[tuple[str, int], int] = {}
        self._calls: dict[str, JsonObject] = {}
        self._emitted_calls: set[str] = {each.call_id for each in handle.pending}
        self._finished_calls: set[str] = set()
        self._pending: dict[str, Pending] = {each.call_id: each for each in pending}
        self._problem: Problem | None = None
        self._has_begun = False

    @property
    def pending(self) -> tuple[Pending, ...]:
        """What still waits for an answer."""
        return tuple(self._pending.values())

    def feed(self, name: str, payload: Json) -> Sequence[Event]:
        """Decode an event.

        Raises:
            InvalidResponse: it is not a Blade event.
            Unreachable: this socket was too slow and has to subscribe again (`after_sequence`).
        """
        if not isinstance(payload, dict):
            raise InvalidResponse(f"expected a Blade event, got {name} with {type(payload).__name__}")
        if self._should_skip(payload):
            return ()
        match name:
            case "chat:start":
                if self._has_begun and not payload.get("stream_sequence"):  # a snapshot, which omits what came before
                    raise Unreachable("the socket fell behind", may_retry=True)
                self.run_id = self._handle.run_id = str(payload.get("chat_run_id") or self.run_id)
                self._has_begun = True
                self._handle.pending = ()
                return ()
            case "turn:start" | "turn:end":
                return self.feed_turn(payload)
            case "turn:patch":
                return self._on_patch(payload)
            case "chat:end":
                return self._on_chat_end(payload)
            case "system:error":
                self._problem = Problem(
                    str(payload.get("detail") or payload.get("code") or ""), str(payload.get("message") or "")
                )
                return ()
            case "system:notification":
                return (Notice(kind="notification", content=payload),)
            case "memory:inject:done" if payload.get("count"):
                return (Notice(kind="memory", content=payload),)
        return ()

    def _should_skip(self, payload: JsonObject) -> bool:
        """Whether an event was decoded before or belongs to another chat."""
        run_id, number = payload.get("chat_run_id"), payload.get("stream_sequence")
        if isinstance(number, int) and number:
            if number <= self.last_sequence:
                return True
            self.last_sequence = number
        return bool(self.run_id and run_id and run_id != self.run_id)

    def feed_turn(self, turn: JsonObject) -> Sequence[Event]:
        """Decode a whole turn, and return what was not emitted before."""
        turn_id, loop = str(turn.get("turn_id")), _loop_id(turn)
        blocks = turn.get("blocks") or ()
        if turn.get("role") == "user":
            if self.user_text is None:
                self.user_text = "".join(str(each.get("content")) for each in blocks if each.get("type") == "text")
            return ()
        if turn.get("role") != "assistant":
            if (turn_id, -1) in self._emitted_lengths:
                return ()
            self._emitted_lengths[turn_id, -1] = 1
            kind = "compaction" if turn.get("kind") == "compaction" else "system"
            return (Notice(kind=kind, content=turn.get("summary_preview") or blocks, loop=loop),)
        events: list[Event] = []
        calls = {str(call.get("id")): call for call in turn.get("tool_calls") or ()}
        for index, block in enumerate(blocks):
            kind, content = str(block.get("type")), block.get("content")
            if kind == "tool_use":
                events += self._on_tool_call(calls.get(str(block.get("tool_call_id")), {}), loop)
            elif kind == "tool_result":
                events += self._on_tool_result(str(block.get("tool_call_id")), content, loop)
            elif isinstance(content, str):
                text = content[self._emitted_lengths.get((turn_id, index), 0) :]
                events += self._emit_text(turn_id, index, kind, text, loop)
            elif (turn_id, index) not in self._emitted_lengths:
                self._emitted_lengths[turn_id, index] = 1
                events.append(_to_notice(kind, content, loop))
        self._note_statuses(calls)
        return [*events, *_restarted(turn, loop)]

    # --- inside -----------------------------------------------------------------------------------------------------

    def _on_patch(self, patch: JsonObject) -> Sequence[Event]:
        data, loop, turn_id = patch.get("data") or {}, _loop_id(patch), str(patch.get("turn_id"))
        match patch.get("patch_type"):
            case "add_tool_call":
                return self._on_tool_call(data, loop)
            case "tool_result":
                return self._on_tool_result(str(data.get("tool_call_id")), data.get("result"), loop)
            case "set_tool_status" if data.get("status") == "cancelled":
                self._finish_call(str(data.get("tool_call_id")))
            case "set_tool_status":
                self._on_question_ref(str(data.get("tool_call_id")), data.get("pending_question_ref"))
            case "add_content":
                index, kind = int(data.get("block_index") or 0), str(data.get("type"))
                if "text_delta" in data:
                    return self._emit_text(turn_id, index, kind, str(data["text_delta"]), loop)
                self._emitted_lengths[turn_id, index] = 1
                return (_to_notice(kind, data.get("content"), loop),)
        return ()

    def _emit_text(self, turn_id: str, index: int, kind: str, text: str, loop: str) -> Sequence[Event]:
        if not text:
            return ()
        self._emitted_lengths[turn_id, index] = self._emitted_lengths.get((turn_id, index), 0) + len(text)
        return (Thinking(text=text, loop=loop) if kind == "thinking" else Text(text=text, loop=loop),)

    def _on_tool_call(self, call: JsonObject, loop: str) -> Sequence[Event]:
        call_id, name = str(call.get("id")), str(call.get("tool_name"))
        if chat.is_permission_id(call_id):
            self._add_permission(_resolve_call_id(call_id))
            return ()
        self._calls[call_id] = call
        self._handle.tool_names[call_id] = name
        arguments = parse_arguments(call.get("arguments"))
        question = parse_question(call_id, arguments, loop) if name == ASK_USER_QUESTION else None
        if question is not None:
            if self._is_asked_already(question):
                return ()
            self._pending[call_id] = question
        if call_id in self._emitted_calls:
            return ()
        self._emitted_calls.add(call_id)
        return (question or ToolCall(id=call_id, name=name, arguments=arguments, loop=loop),)

    def _note_statuses(self, calls: Mapping[str, JsonObject]) -> None:
        """Note which calls are finished, and then which wait: an earlier question about one of them is finished."""
        for call_id, call in calls.items():
            if call.get("status") in ("done", "error", "cancelled"):
                self._finish_call(call_id)
        for call_id, call in calls.items():
            self._on_question_ref(call_id, call.get("pending_question_ref"))

    def _on_question_ref(self, call_id: str, ref: JsonObject | None) -> None:
        """Note the permission that a call waits for, which says more than the question itself, or is asked again."""
        question_id = "" if ref is None else str(ref.get("child_tool_call_id"))
        if ref is not None and chat.is_permission_id(question_id) and _resolve_call_id(question_id) == call_id:
            self._add_permission(call_id, is_repeat=ref.get("repeat") is True)

    def _add_permission(self, call_id: str, *, is_repeat: bool = False) -> None:
        name = self._handle.tool_names.get(call_id, "")
        arguments = self._arguments_of(call_id)
        self._pending[call_id] = Permission(call_id=call_id, name=name, arguments=arguments, is_repeat=is_repeat)

    def _arguments_of(self, call_id: str) -> JsonObject:
        """The arguments of a call of this chat, or of one that an earlier chat left waiting."""
        if call_id in self._calls:
            return parse_arguments(self._calls[call_id].get("arguments"))
        return self._handle.waiting_arguments.get(call_id, {})

    def _is_asked_already(self, question: Question) -> bool:
        """Whether a question is that of a call that waits with it itself, as questions of other frameworks do."""
        call_id = question.call_id
        asking = (
            self._pending.get(chat.public_call_id(chat.parse_call_id(call_id))) if chat.is_about_call(call_id) else None
        )
        return isinstance(asking, Question) and asking.questions == question.questions

    def _on_tool_result(self, call_id: str, result: Json, loop: str) -> Sequence[Event]:
        if call_id in self._finished_calls:
            return ()
        self._finish_call(call_id)
        if chat.is_permission_id(call_id):
            return ()
        name = self._handle.tool_names.get(call_id, "")
        if name == ASK_USER_QUESTION:
            return ()
        return (ToolResult(call_id=call_id, name=name, text=_result_text(result), loop=loop),)

    def _finish_call(self, call_id: str) -> None:
        self._finished_calls.add(call_id)
        self._pending.pop(_resolve_call_id(call_id), None)

    def _on_chat_end(self, end: JsonObject) -> Sequence[Event]:
        self.is_over = True
        status, finish = end.get("status"), end.get("finish_reason")
        pending = self.pending if end.get("waiting_for_input") else ()
        reason: StopReason = STOP_REASONS.get(str(end.get("stop_reason")), "end_turn")
        if status == "failed":
            reason = "error"
        elif status == "interrupted":
            reason = "cancelled"
        elif finish == "max_turns":
            reason = "max_steps"
        elif end.get("waiting_for_input"):
            reason = "tool_use"
        problem = self._problem if reason == "error" else None
        if reason == "error" and problem is None:
            problem = Problem(str(finish or ""), "the chat failed, and the server gave no reason")
        self._handle.pending = pending
        asked = {chat.public_call_id(chat.parse_call_id(each.call_id)) for each in pending}
        self._handle.waiting_arguments = {each: self._arguments_of(each) for each in asked}
        permissions = (each for each in pending if isinstance(each, Permission))
        return (*permissions, Ended(reason=reason, run_id=self.run_id, problem=problem, pending=pending))


# --- wire → client ----------------------------------------------------------------------------------------------------


def messages_from(turns: Iterable[JsonObject]) -> tuple[Message, ...]:
    """Convert a history, without the turns of sub-agents."""
    names: dict[str, str] = {}
    messages = (_to_message(each, names) for each in turns if not _loop_id(each))
    return tuple(each for each in messages if each.blocks)


def _to_message(turn: JsonObject, names: dict[str, str]) -> Message:
    role: Role = turn["role"]
    blocks: list[Block] = []
    if turn.get("kind") == "compaction":
        blocks.append(Notice(kind="compaction", content=turn.get("summary_full") or turn.get("summary_preview")))
    for block in turn.get("blocks") or ():
        call_id, content = str(block.get("tool_call_id") or ""), block.get("content")
        if chat.is_about_call(call_id) or block.get("type") == "ask_user_answer":
            continue  # the call, or the question's result, says the same
        match block.get("type"):
            case "text":
                blocks.append(Text(text=str(content)))
            case "thinking":
                blocks.append(Thinking(text=str(content)))
            case "tool_use":
                names[call_id] = name = str(block.get("tool_name"))
                arguments = content if isinstance(content, dict) else {}
                question = parse_question(call_id, arguments) if name == ASK_USER_QUESTION else None
                blocks.append(question or ToolCall(id=call_id, name=name, arguments=arguments))
            case "tool_result":
                name = str(block.get("tool_name") or names.get(call_id, ""))
                blocks.append(ToolResult(call_id=call_id, name=name, text=_result_text(content)))
            case kind:
                blocks.append(_to_notice(str(kind), content, ""))
    is_interrupted = role == "assistant" and turn.get("status") == "interrupted"
    is_cut = bool(turn.get("cut"))
    return Message(role=role, id=str(turn.get("turn_id")), blocks=tuple(blocks), interrupted=is_interrupted, cut=is_cut)


def _restarted(turn: JsonObject, loop: str) -> Iterable[Restarted]:
    """The event for a turn that was interrupted while the agent spoke. One with a call was cancelled with the call."""
    if turn.get("status") == "interrupted" and not turn.get("tool_calls"):
        blocks = turn.get("blocks") or ()
        yield Restarted(text=_joined_text(blocks, "text"), thinking=_joined_text(blocks, "thinking"), loop=loop)


def _joined_text(blocks: Iterable[JsonObject], kind: str) -> str:
    return "".join(str(each.get("content") or "") for each in blocks if each.get("type") == kind)


def _to_notice(kind: str, content: Json, loop: str) -> Notice:
    return Notice(kind="plan" if kind == "plan_status" else kind, content=content, loop=loop)


def _loop_id(payload: JsonObject) -> str:
    loop = str(payload.get("loop_id") or ROOT_LOOP)
    return "" if loop == ROOT_LOOP else loop


def _result_text(result: Json) -> str:
    """A result as text."""
    if isinstance(result, str):
        return result
    return "" if result is None else msgspec.json.encode(result).decode()


def _decode_object(body: bytes) -> JsonObject:
    return decode_json(body, dict[str, Json], "a Blade response")


def _decode_list(body: bytes) -> list[JsonObject]:
    return decode_json(body, list[dict[str, Json]], "a Blade response")
