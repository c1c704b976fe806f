"""Blade as a client speaks it: sessions over REST, what a chat tells over Socket.IO. Pure: requests out, events in.

Chats have no key that makes sending safe to repeat. What was lost on the way is known by the session's own numbers:
when they have not moved since before the message was sent, it did not arrive.
"""

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

import msgspec

from dragoman.client.codec import Ask, Request, Said, Talk, Wanted
from dragoman.client.decoding import arguments_of, decoded, refusal_in
from dragoman.client.errors import Refused, Unreachable, Unreadable, Unsupported, refused
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
from dragoman.client.pending import question_of
from dragoman.core.content import Json, JsonObject
from dragoman.core.ids import parse_session_id
from dragoman.core.tools import ASK
from dragoman.protocols.blade.wire import chat

BASE = "/api"
PAGE = 100
ROOT = "root"
ALLOW, ALWAYS, DENY = 0, 1, 2
"""The places of the options of a permission's question."""
STATUSES = {"waiting_for_input": "waiting", "running": "running"}
ENDS: Mapping[str, StopReason] = {"max_tokens": "max_tokens", "refusal": "refusal"}


class BladeFace:
    """A server of Blade over REST."""

    def __init__(self, base: str = BASE) -> None:
        self._base = base.rstrip("/")

    def agents(self) -> Ask[tuple[Agent, ...]]:
        """What the server offers: Blade calls them solutions."""

        def read(body: bytes) -> tuple[Agent, ...]:
            return tuple(
                Agent(
                    name=str(each.get("id")),
                    title=str(each.get("name") or ""),
                    description=str(each.get("description") or ""),
                    version=str(each.get("version") or ""),
                )
                for each in _object(body).get("items", ())
            )

        return Ask(self._get("/solutions"), read)

    def create(self, wanted: Wanted) -> Ask[Talk]:
        """Make a session."""
        if wanted.tools:
            raise Unsupported("Blade has no tools of the application's: AAP, AG-UI and the Agent API have")
        if wanted.use is not None or wanted.trust or wanted.options:
            raise Unsupported("Blade cannot choose or trust tools beforehand, nor set options: AAP can")
        body = {"solution_id": wanted.agent} if wanted.agent else {}

        def read(answer: bytes) -> Talk:
            return Talk(id=chat.session_name(str(_object(answer)["session_id"])), agent=wanted.agent)

        request = Request(
            method="POST",
            path=f"{self._base}/sessions",
            body=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
            repeats=True,  # a session that was made twice is empty, and in nobody's way
        )
        return Ask(request, read)

    def look(self, talk: Talk) -> Ask[SessionInfo]:
        """A session as it is now, without what is pending, which stands in the messages."""
        return Ask(self._get(f"/sessions/{shown(talk.id)}"), lambda body: _info(_object(body)))

    def pending(self, talk: Talk) -> Ask[tuple[Pending, ...]]:
        """What waits for an answer."""

        def read(body: bytes) -> tuple[Pending, ...]:
            turn = BladeTurn(Talk(id=talk.id, agent=talk.agent, names=talk.names), 0)
            for each in _list(body):
                turn.whole(each)
            return turn.waits

        return Ask(self._get(f"/sessions/{shown(talk.id)}/messages"), read)

    def sessions(self, after: str) -> Ask[tuple[tuple[SessionInfo, ...], str]]:
        """A page of the list."""
        offset = int(after or 0)

        def read(body: bytes) -> tuple[tuple[SessionInfo, ...], str]:
            told = _object(body)
            found = tuple(map(_info, told.get("items", ())))
            end = offset + len(found)
            return found, str(end) if found and end < int(told.get("total", 0)) else ""

        return Ask(self._get(f"/sessions?limit={PAGE}&offset={offset}"), read)

    def history(self, talk: Talk) -> Ask[tuple[Message, ...]]:
        """All messages of the active branch."""
        return Ask(self._get(f"/sessions/{shown(talk.id)}/messages"), lambda body: messages_from(_list(body)))

    def delete(self, talk: Talk) -> Ask[None]:
        """End the session and all of it."""
        path = f"{self._base}/sessions/{shown(talk.id)}"
        return Ask(Request(method="DELETE", path=path, repeats=True), lambda _: None)

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Refused:
        """An answer that says no."""
        told = refusal_in(body, "detail")
        words = str(told.get("detail") or told.get("error") or f"the server answered {status}")
        request_id = headers.get("x-request-id", "")
        return refused(status, str(told.get("code") or ""), words, body=body, request_id=request_id)

    def _get(self, path: str) -> Request:
        return Request(method="GET", path=self._base + path, repeats=True)


def shown(session_id: str) -> str:
    """A session's id as Blade has it, for a path or an event."""
    known = parse_session_id(session_id)
    return quote(session_id, safe="") if known is None else chat.shown_session(known)


def _call_of(own: str) -> str:
    """The call that an id is about: that of a permission's question is about the call which waits for it."""
    return chat.shown_call(chat.read_call(own)) if chat.is_permission(own) else own


def _info(told: JsonObject) -> SessionInfo:
    return SessionInfo(
        id=chat.session_name(str(told.get("id"))),
        agent=str(told.get("solution_id") or ""),
        title=str(told.get("intent") or ""),
        status=STATUSES.get(str(told.get("status")), "idle"),
        created_at=str(told.get("created_at") or ""),
        updated_at=str(told.get("updated_at") or ""),
    )


# --- what is sent over the socket -------------------------------------------------------------------------------------


def message_of(talk: Talk, said: Said) -> JsonObject:
    """The payload of `chat:send` for a message."""
    message: Json = said.text
    if said.images:
        words = [{"type": "text", "text": said.text}] if said.text else []
        message = [*words, *({"type": "image_url", "image_url": {"url": url}} for url in said.images)]
    return {"session_id": shown(talk.id), "message": message}


def answer_of(talk: Talk, answer: Answer) -> JsonObject:
    """The payload of `chat:send` for an answer."""
    waiting = next((each for each in talk.pending if each.call_id == answer.call_id), None)
    said: JsonObject = {"tool_call_id": answer.call_id}
    match answer:
        case Allow(always=always):
            said["selections"] = {"0": [ALWAYS if always else ALLOW]}
        case Deny(reason=reason) if isinstance(waiting, Question):
            said["custom"] = {str(place): reason or "I decline" for place in range(len(waiting.questions))}
        case Deny(reason=reason):
            said |= {"selections": {"0": [DENY]}, "custom": {"0": reason} if reason else {}}
        case Choice(selections=selections, custom=custom):
            said["selections"] = {str(place): _places(waiting, place, each) for place, each in selections.items()}
            said["custom"] = {str(place): each for place, each in custom.items()}
        case Result():
            raise Unsupported("Blade has no results of the application's: answer through AAP, AG-UI or the Agent API")
    return {"session_id": shown(talk.id), "message": "", "askuser_answer": said}


def _places(waiting: Pending | None, place: int, labels: Sequence[str]) -> list[int]:
    """The places of chosen labels among a question's options."""
    options = waiting.questions[place].options if isinstance(waiting, Question) else ()
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

    def __init__(self, talk: Talk, after: int, waiting: Iterable[Pending] = ()) -> None:
        self.is_over = False
        self.run_id = ""
        self.seen = after
        """The number of the last event that was taken."""
        self.said: str | None = None
        """What the chat's user said, once it was told."""
        self._talk = talk
        self._told: dict[tuple[str, int], int] = {}
        self._calls: dict[str, JsonObject] = {}
        self._shown: set[str] = {each.call_id for each in talk.pending}
        self._settled: set[str] = set()
        self._waiting: dict[str, Pending] = {each.call_id: each for each in waiting}
        self._problem: Problem | None = None
        self._has_begun = False

    @property
    def waits(self) -> tuple[Pending, ...]:
        """What has no answer so far."""
        return tuple(self._waiting.values())

    def feed(self, name: str, payload: Json) -> Sequence[Event]:
        """Take an event.

        Raises:
            Unreadable: it is none of Blade's.
            Unreachable: this socket was too slow, and has to read on anew (`after_sequence`).
        """
        if not isinstance(payload, dict):
            raise Unreadable(f"an event of Blade was expected, got {name} with {type(payload).__name__}")
        if self._is_past(payload):
            return ()
        match name:
            case "chat:start":
                if self._has_begun and not payload.get("stream_sequence"):  # a snapshot: what was between is left out
                    raise Unreachable("the socket fell behind", may_retry=True)
                self.run_id = self._talk.run_id = str(payload.get("chat_run_id") or self.run_id)
                self._has_begun = True
                self._talk.pending = ()
                return ()
            case "turn:start" | "turn:end":
                return self.whole(payload)
            case "turn:patch":
                return self._patch(payload)
            case "chat:end":
                return self._ended(payload)
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

    def _is_past(self, payload: JsonObject) -> bool:
        """Whether an event was taken before, or is another chat's."""
        run_id, number = payload.get("chat_run_id"), payload.get("stream_sequence")
        if isinstance(number, int) and number:
            if number <= self.seen:
                return True
            self.seen = number
        return bool(self.run_id and run_id and run_id != self.run_id)

    def whole(self, turn: JsonObject) -> Sequence[Event]:
        """What a whole turn tells beyond what was told of it."""
        own, loop = str(turn.get("turn_id")), _loop(turn)
        blocks = turn.get("blocks") or ()
        if turn.get("role") == "user":
            if self.said is None:
                self.said = "".join(str(each.get("content")) for each in blocks if each.get("type") == "text")
            return ()
        if turn.get("role") != "assistant":
            if (own, -1) in self._told:
                return ()
            self._told[own, -1] = 1
            kind = "compaction" if turn.get("kind") == "compaction" else "system"
            return (Notice(kind=kind, content=turn.get("summary_preview") or blocks, loop=loop),)
        events: list[Event] = []
        calls = {str(call.get("id")): call for call in turn.get("tool_calls") or ()}
        for place, block in enumerate(blocks):
            kind, content = str(block.get("type")), block.get("content")
            if kind == "tool_use":
                events += self._called(calls.get(str(block.get("tool_call_id")), {}), loop)
            elif kind == "tool_result":
                events += self._result(str(block.get("tool_call_id")), content, loop)
            elif isinstance(content, str):
                fresh = content[self._told.get((own, place), 0) :]
                events += self._words(own, place, kind, fresh, loop)
            elif (own, place) not in self._told:
                self._told[own, place] = 1
                events.append(_noticed(kind, content, loop))
        for call_id, call in calls.items():
            if call.get("status") in ("done", "error", "cancelled"):
                self._settle(call_id)
        return events

    # --- inside -----------------------------------------------------------------------------------------------------

    def _patch(self, patch: JsonObject) -> Sequence[Event]:
        data, loop, own = patch.get("data") or {}, _loop(patch), str(patch.get("turn_id"))
        match patch.get("patch_type"):
            case "add_tool_call":
                return self._called(data, loop)
            case "tool_result":
                return self._result(str(data.get("tool_call_id")), data.get("result"), loop)
            case "set_tool_status" if data.get("status") == "cancelled":
                self._settle(str(data.get("tool_call_id")))
            case "add_content":
                place, kind = int(data.get("block_index") or 0), str(data.get("type"))
                if "text_delta" in data:
                    return self._words(own, place, kind, str(data["text_delta"]), loop)
                self._told[own, place] = 1
                return (_noticed(kind, data.get("content"), loop),)
        return ()

    def _words(self, turn: str, place: int, kind: str, words: str, loop: str) -> Sequence[Event]:
        if not words:
            return ()
        self._told[turn, place] = self._told.get((turn, place), 0) + len(words)
        return (Thinking(text=words, loop=loop) if kind == "thinking" else Text(text=words, loop=loop),)

    def _called(self, call: JsonObject, loop: str) -> Sequence[Event]:
        own, name = str(call.get("id")), str(call.get("tool_name"))
        if chat.is_permission(own):
            gated = _call_of(own)
            arguments = arguments_of(self._calls.get(gated, {}).get("arguments"))
            name = self._talk.names.get(gated, "")
            self._waiting[gated] = Permission(call_id=gated, name=name, arguments=arguments)
            return ()
        self._calls[own] = call
        self._talk.names[own] = name
        arguments = arguments_of(call.get("arguments"))
        question = question_of(own, arguments, loop) if name == ASK else None
        if question is not None:
            self._waiting[own] = question
        if own in self._shown:
            return ()
        self._shown.add(own)
        return (question or ToolCall(id=own, name=name, arguments=arguments, loop=loop),)

    def _result(self, call_id: str, result: Json, loop: str) -> Sequence[Event]:
        if call_id in self._settled:
            return ()
        self._settle(call_id)
        if chat.is_permission(call_id):
            return ()
        name = self._talk.names.get(call_id, "")
        if name == ASK:
            return ()
        return (ToolResult(call_id=call_id, name=name, text=_text(result), loop=loop),)

    def _settle(self, call_id: str) -> None:
        self._settled.add(call_id)
        self._waiting.pop(_call_of(call_id), None)

    def _ended(self, end: JsonObject) -> Sequence[Event]:
        self.is_over = True
        status, finish = end.get("status"), end.get("finish_reason")
        waits = self.waits if end.get("waiting_for_input") else ()
        reason: StopReason = ENDS.get(str(end.get("stop_reason")), "end_turn")
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
        self._talk.pending = waits
        asked = (each for each in waits if isinstance(each, Permission))
        return (*asked, Ended(reason=reason, run_id=self.run_id, problem=problem, pending=waits))


# --- wire → client ----------------------------------------------------------------------------------------------------


def messages_from(turns: Iterable[JsonObject]) -> tuple[Message, ...]:
    """A history in the client's words, without what sub-agents did."""
    names: dict[str, str] = {}
    found = (_message(each, names) for each in turns if not _loop(each))
    return tuple(each for each in found if each.blocks)


def _message(turn: JsonObject, names: dict[str, str]) -> Message:
    role: Role = turn["role"]
    blocks: list[Block] = []
    if turn.get("kind") == "compaction":
        blocks.append(Notice(kind="compaction", content=turn.get("summary_full") or turn.get("summary_preview")))
    for block in turn.get("blocks") or ():
        call_id, content = str(block.get("tool_call_id") or ""), block.get("content")
        if chat.is_permission(call_id) or block.get("type") == "ask_user_answer":
            continue  # the call that was allowed, or the question's own result, tells it
        match block.get("type"):
            case "text":
                blocks.append(Text(text=str(content)))
            case "thinking":
                blocks.append(Thinking(text=str(content)))
            case "tool_use":
                names[call_id] = name = str(block.get("tool_name"))
                arguments = content if isinstance(content, dict) else {}
                question = question_of(call_id, arguments) if name == ASK else None
                blocks.append(question or ToolCall(id=call_id, name=name, arguments=arguments))
            case "tool_result":
                name = str(block.get("tool_name") or names.get(call_id, ""))
                blocks.append(ToolResult(call_id=call_id, name=name, text=_text(content)))
            case kind:
                blocks.append(_noticed(str(kind), content, ""))
    return Message(role=role, id=str(turn.get("turn_id")), blocks=tuple(blocks))


def _noticed(kind: str, content: Json, loop: str) -> Notice:
    return Notice(kind="plan" if kind == "plan_status" else kind, content=content, loop=loop)


def _loop(told: JsonObject) -> str:
    loop = str(told.get("loop_id") or ROOT)
    return "" if loop == ROOT else loop


def _text(result: Json) -> str:
    """A result as words."""
    if isinstance(result, str):
        return result
    return "" if result is None else msgspec.json.encode(result).decode()


def _object(body: bytes) -> JsonObject:
    return decoded(body, dict[str, Json], "an answer of Blade")


def _list(body: bytes) -> list[JsonObject]:
    return decoded(body, list[dict[str, Json]], "an answer of Blade")
