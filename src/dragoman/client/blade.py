"""Blade as a client speaks it: sessions over REST, what a chat tells over Socket.IO. Pure: requests out, events in.

Chats have no key that makes sending safe to repeat. What was lost on the way is known by the session's own numbers:
when they have not moved since before the message was sent, it did not arrive.
"""

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

import msgspec

from dragoman.client.codec import Request, SessionConfig, SessionHandle, TypedRequest, UserInput
from dragoman.client.decoding import decode_error_body, decode_json, parse_arguments
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
"""The places of the options of a permission's question."""
STATUSES = {"waiting_for_input": "waiting", "running": "running"}
STOP_REASONS: Mapping[str, StopReason] = {"max_tokens": "max_tokens", "refusal": "refusal"}


class BladeCodec:
    """A server of Blade over REST."""

    def __init__(self, base: str = BASE) -> None:
        self._base = base.rstrip("/")

    def agents(self) -> TypedRequest[tuple[Agent, ...]]:
        """What the server offers: Blade calls them solutions."""

        def read(body: bytes) -> tuple[Agent, ...]:
            return tuple(
                Agent(
                    name=str(each.get("id")),
                    title=str(each.get("name") or ""),
                    description=str(each.get("description") or ""),
                    version=str(each.get("version") or ""),
                )
                for each in _decode_object(body).get("items", ())
            )

        return TypedRequest(self._get("/solutions"), read)

    def create(self, session_config: SessionConfig) -> TypedRequest[SessionHandle]:
        """Make a session."""
        if session_config.tools:
            raise Unsupported("Blade has no tools of the application's: AAP, AG-UI and the Agent API have")
        if session_config.server_tools is not None or session_config.trusted_tools or session_config.options:
            raise Unsupported("Blade cannot choose or trust tools beforehand, nor set options: AAP can")
        body = {"solution_id": session_config.agent} if session_config.agent else {}

        def read(answer: bytes) -> SessionHandle:
            return SessionHandle(
                id=chat.parse_session_name(str(_decode_object(answer)["session_id"])), agent=session_config.agent
            )

        request = Request(
            method="POST",
            path=f"{self._base}/sessions",
            body=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
            is_idempotent=True,  # a session that was made twice is empty, and in nobody's way
        )
        return TypedRequest(request, read)

    def session_info(self, handle: SessionHandle) -> TypedRequest[SessionInfo]:
        """A session as it is now, without what is pending, which stands in the messages."""
        return TypedRequest(
            self._get(f"/sessions/{to_blade_session_id(handle.id)}"),
            lambda body: _to_session_info(_decode_object(body)),
        )

    def pending(self, handle: SessionHandle) -> TypedRequest[tuple[Pending, ...]]:
        """What waits for an answer."""

        def read(body: bytes) -> tuple[Pending, ...]:
            turn = BladeTurn(SessionHandle(id=handle.id, agent=handle.agent, tool_names=handle.tool_names), 0)
            for each in _decode_list(body):
                turn.feed_turn(each)
            return turn.pending

        return TypedRequest(self._get(f"/sessions/{to_blade_session_id(handle.id)}/messages"), read)

    def sessions(self, after: str) -> TypedRequest[tuple[tuple[SessionInfo, ...], str]]:
        """A page of the list."""
        offset = int(after or 0)

        def read(body: bytes) -> tuple[tuple[SessionInfo, ...], str]:
            told = _decode_object(body)
            found = tuple(map(_to_session_info, told.get("items", ())))
            end = offset + len(found)
            return found, str(end) if found and end < int(told.get("total", 0)) else ""

        return TypedRequest(self._get(f"/sessions?limit={PAGE_SIZE}&offset={offset}"), read)

    def history(self, handle: SessionHandle) -> TypedRequest[tuple[Message, ...]]:
        """All messages of the active branch."""
        return TypedRequest(
            self._get(f"/sessions/{to_blade_session_id(handle.id)}/messages"),
            lambda body: messages_from(_decode_list(body)),
        )

    def delete(self, handle: SessionHandle) -> TypedRequest[None]:
        """End the session and all of it."""
        path = f"{self._base}/sessions/{to_blade_session_id(handle.id)}"
        return TypedRequest(Request(method="DELETE", path=path, is_idempotent=True), lambda _: None)

    def decode_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> RequestRefused:
        """An answer that says no."""
        told = decode_error_body(body, "detail")
        words = str(told.get("detail") or told.get("error") or f"the server answered {status}")
        request_id = headers.get("x-request-id", "")
        return make_refusal(status, str(told.get("code") or ""), words, body=body, request_id=request_id)

    def _get(self, path: str) -> Request:
        return Request(method="GET", path=self._base + path, is_idempotent=True)


def to_blade_session_id(session_id: str) -> str:
    """A session's id as Blade has it, for a path or an event."""
    known = parse_session_id(session_id)
    return quote(session_id, safe="") if known is None else chat.public_session_id(known)


def _resolve_call_id(call_id: str) -> str:
    """The call that an id is about: that of a permission's question is about the call which waits for it."""
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


# --- what is sent over the socket -------------------------------------------------------------------------------------


def message_payload(handle: SessionHandle, user_input: UserInput) -> JsonObject:
    """The payload of `chat:send` for a message."""
    message: Json = user_input.text
    if user_input.images:
        words = [{"type": "text", "text": user_input.text}] if user_input.text else []
        message = [*words, *({"type": "image_url", "image_url": {"url": url}} for url in user_input.images)]
    return {"session_id": to_blade_session_id(handle.id), "message": message}


def answer_payload(handle: SessionHandle, answer: Answer) -> JsonObject:
    """The payload of `chat:send` for an answer."""
    waiting = next((each for each in handle.pending if each.call_id == answer.call_id), None)
    said: JsonObject = {"tool_call_id": answer.call_id}
    match answer:
        case Allow(always=always):
            said["selections"] = {"0": [ALWAYS if always else ALLOW]}
        case Deny(reason=reason) if isinstance(waiting, Question):
            said["custom"] = {str(place): reason or "I decline" for place in range(len(waiting.questions))}
        case Deny(reason=reason):
            said |= {"selections": {"0": [DENY]}, "custom": {"0": reason} if reason else {}}
        case Choice(selections=selections, custom=custom):
            said["selections"] = {
                str(place): _option_indexes(waiting, place, each) for place, each in selections.items()
            }
            said["custom"] = {str(place): each for place, each in custom.items()}
        case Result():
            raise Unsupported("Blade has no results of the application's: answer through AAP, AG-UI or the Agent API")
    return {"session_id": to_blade_session_id(handle.id), "message": "", "askuser_answer": said}


def _option_indexes(pending_call: Pending | None, place: int, labels: Sequence[str]) -> list[int]:
    """The places of chosen labels among a question's options."""
    options = pending_call.questions[place].options if isinstance(pending_call, Question) else ()
    known = [option.label for option in options]
    for label in labels:
        if label not in known:
            raise Unsupported(f"one of the options was expected ({', '.join(known)}), got {label!r}")
    return [known.index(label) for label in labels]


# --- what comes over the socket ---------------------------------------------------------------------------------------


class BladeTurn:
    """A chat, from its start to its `chat:end`. Events that were seen are known by their `stream_sequence`.

    Args:
        talk: the session.
        after: the number of the last event before it.
        waiting: what waited already, and goes on waiting until the chat tells otherwise.
    """

    def __init__(self, handle: SessionHandle, after: int, pending: Iterable[Pending] = ()) -> None:
        self.is_over = False
        self.run_id = ""
        self.last_sequence = after
        """The number of the last event that was taken."""
        self.user_text: str | None = None
        """What the chat's user said, once it was told."""
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
        """What has no answer so far."""
        return tuple(self._pending.values())

    def feed(self, name: str, payload: Json) -> Sequence[Event]:
        """Take an event.

        Raises:
            Unreadable: it is none of Blade's.
            Unreachable: this socket was too slow, and has to read on anew (`after_sequence`).
        """
        if not isinstance(payload, dict):
            raise InvalidResponse(f"an event of Blade was expected, got {name} with {type(payload).__name__}")
        if self._should_skip(payload):
            return ()
        match name:
            case "chat:start":
                if self._has_begun and not payload.get("stream_sequence"):  # a snapshot: what was between is left out
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
        """Whether an event was taken before, or is another chat's."""
        run_id, number = payload.get("chat_run_id"), payload.get("stream_sequence")
        if isinstance(number, int) and number:
            if number <= self.last_sequence:
                return True
            self.last_sequence = number
        return bool(self.run_id and run_id and run_id != self.run_id)

    def feed_turn(self, turn: JsonObject) -> Sequence[Event]:
        """What a whole turn tells beyond what was told of it."""
        own, loop = str(turn.get("turn_id")), _loop_id(turn)
        blocks = turn.get("blocks") or ()
        if turn.get("role") == "user":
            if self.user_text is None:
                self.user_text = "".join(str(each.get("content")) for each in blocks if each.get("type") == "text")
            return ()
        if turn.get("role") != "assistant":
            if (own, -1) in self._emitted_lengths:
                return ()
            self._emitted_lengths[own, -1] = 1
            kind = "compaction" if turn.get("kind") == "compaction" else "system"
            return (Notice(kind=kind, content=turn.get("summary_preview") or blocks, loop=loop),)
        events: list[Event] = []
        calls = {str(call.get("id")): call for call in turn.get("tool_calls") or ()}
        for place, block in enumerate(blocks):
            kind, content = str(block.get("type")), block.get("content")
            if kind == "tool_use":
                events += self._on_tool_call(calls.get(str(block.get("tool_call_id")), {}), loop)
            elif kind == "tool_result":
                events += self._on_tool_result(str(block.get("tool_call_id")), content, loop)
            elif isinstance(content, str):
                fresh = content[self._emitted_lengths.get((own, place), 0) :]
                events += self._emit_text(own, place, kind, fresh, loop)
            elif (own, place) not in self._emitted_lengths:
                self._emitted_lengths[own, place] = 1
                events.append(_to_notice(kind, content, loop))
        for call_id, call in calls.items():
            if call.get("status") in ("done", "error", "cancelled"):
                self._finish_call(call_id)
        return events

    # --- inside -----------------------------------------------------------------------------------------------------

    def _on_patch(self, patch: JsonObject) -> Sequence[Event]:
        data, loop, own = patch.get("data") or {}, _loop_id(patch), str(patch.get("turn_id"))
        match patch.get("patch_type"):
            case "add_tool_call":
                return self._on_tool_call(data, loop)
            case "tool_result":
                return self._on_tool_result(str(data.get("tool_call_id")), data.get("result"), loop)
            case "set_tool_status" if data.get("status") == "cancelled":
                self._finish_call(str(data.get("tool_call_id")))
            case "add_content":
                place, kind = int(data.get("block_index") or 0), str(data.get("type"))
                if "text_delta" in data:
                    return self._emit_text(own, place, kind, str(data["text_delta"]), loop)
                self._emitted_lengths[own, place] = 1
                return (_to_notice(kind, data.get("content"), loop),)
        return ()

    def _emit_text(self, turn: str, place: int, kind: str, text: str, loop: str) -> Sequence[Event]:
        if not text:
            return ()
        self._emitted_lengths[turn, place] = self._emitted_lengths.get((turn, place), 0) + len(text)
        return (Thinking(text=text, loop=loop) if kind == "thinking" else Text(text=text, loop=loop),)

    def _on_tool_call(self, call: JsonObject, loop: str) -> Sequence[Event]:
        own, name = str(call.get("id")), str(call.get("tool_name"))
        if chat.is_permission_id(own):
            gated = _resolve_call_id(own)
            arguments = parse_arguments(self._calls.get(gated, {}).get("arguments"))
            name = self._handle.tool_names.get(gated, "")
            self._pending[gated] = Permission(call_id=gated, name=name, arguments=arguments)
            return ()
        self._calls[own] = call
        self._handle.tool_names[own] = name
        arguments = parse_arguments(call.get("arguments"))
        question = parse_question(own, arguments, loop) if name == ASK_USER_QUESTION else None
        if question is not None:
            self._pending[own] = question
        if own in self._emitted_calls:
            return ()
        self._emitted_calls.add(own)
        return (question or ToolCall(id=own, name=name, arguments=arguments, loop=loop),)

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
        waits = self.pending if end.get("waiting_for_input") else ()
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
            problem = Problem(str(finish or ""), "the chat failed, and the server does not tell why")
        self._handle.pending = waits
        asked = (each for each in waits if isinstance(each, Permission))
        return (*asked, Ended(reason=reason, run_id=self.run_id, problem=problem, pending=waits))


# --- wire → client ----------------------------------------------------------------------------------------------------


def messages_from(turns: Iterable[JsonObject]) -> tuple[Message, ...]:
    """A history in the client's words, without what sub-agents did."""
    names: dict[str, str] = {}
    found = (_to_message(each, names) for each in turns if not _loop_id(each))
    return tuple(each for each in found if each.blocks)


def _to_message(turn: JsonObject, names: dict[str, str]) -> Message:
    role: Role = turn["role"]
    blocks: list[Block] = []
    if turn.get("kind") == "compaction":
        blocks.append(Notice(kind="compaction", content=turn.get("summary_full") or turn.get("summary_preview")))
    for block in turn.get("blocks") or ():
        call_id, content = str(block.get("tool_call_id") or ""), block.get("content")
        if chat.is_permission_id(call_id) or block.get("type") == "ask_user_answer":
            continue  # the call that was allowed, or the question's own result, tells it
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
    return Message(role=role, id=str(turn.get("turn_id")), blocks=tuple(blocks))


def _to_notice(kind: str, content: Json, loop: str) -> Notice:
    return Notice(kind="plan" if kind == "plan_status" else kind, content=content, loop=loop)


def _loop_id(payload: JsonObject) -> str:
    loop = str(payload.get("loop_id") or ROOT_LOOP)
    return "" if loop == ROOT_LOOP else loop


def _result_text(result: Json) -> str:
    """A result as words."""
    if isinstance(result, str):
        return result
    return "" if result is None else msgspec.json.encode(result).decode()


def _decode_object(body: bytes) -> JsonObject:
    return decode_json(body, dict[str, Json], "an answer of Blade")


def _decode_list(body: bytes) -> list[JsonObject]:
    return decode_json(body, list[dict[str, Json]], "an answer of Blade")
