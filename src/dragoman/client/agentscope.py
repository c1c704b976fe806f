"""The Agent API of AgentScope Runtime as a client speaks it. Pure: requests out, events in.

A session begins with its first message, and what it is asked stays with the server. Responses of a server like ours can
be read on from a number and asked for again by their `id`; those of the published runtime are lost with the connection.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import quote
from uuid import uuid4

import msgspec

from dragoman.client.codec import Ask, Given, Request, Said, Talk, Wanted
from dragoman.client.decoding import arguments_of, decoded, refusal_in
from dragoman.client.errors import Refused, Unreadable, Unsupported, refused
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
from dragoman.client.pending import chosen_in, question_of
from dragoman.client.sse import Frame, FrameReader
from dragoman.core.answers import denial
from dragoman.core.content import Json, JsonObject
from dragoman.core.tools import ASK
from dragoman.protocols.agentscope.paths import stop_path

PROCESS = "/process"
ENDS: Mapping[str, StopReason] = {
    "MAX_STEPS": "max_steps",
    "INTERRUPTED": "interrupted",
    "length": "max_tokens",
    "content_filter": "refusal",
}
"""Codes of failed responses, and `finish_reason` of messages, that say why a run ended."""


class _Told(msgspec.Struct, frozen=True):
    """Any event, with the fields that some of them have."""

    object: str = ""
    status: str | None = None
    id: str | None = None
    sequence_number: int | None = None
    type: str | None = None
    error: JsonObject | None = None
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


class AgentScopeFace:
    """A server of the Agent API; `path` is where its runs begin."""

    needs_agents = False

    def __init__(self, path: str = PROCESS) -> None:
        self._path = path

    def agents(self) -> Ask[tuple[Agent, ...]]:
        """See `Face.agents`."""
        raise Unsupported("the Agent API has no list of agents: name one, or ask through AAP")

    def create(self, wanted: Wanted, once: str) -> Talk:
        """See `Face.create`. Nothing is sent now; without a name the server's default agent answers."""
        if wanted.use is not None or wanted.trust or wanted.options:
            raise Unsupported("the Agent API cannot choose or trust tools, nor set options: AAP can")
        return Talk(id=str(uuid4()), agent=wanted.agent, tools=wanted.tools)

    def open(self, info: SessionInfo, wanted: Wanted) -> Talk:
        """See `Face.open`."""
        return Talk(id=info.id, agent=wanted.agent, tools=wanted.tools)

    def look(self, talk: Talk) -> SessionInfo:
        """See `Face.look`: the protocol shows no sessions, so that it is taken to be there."""
        return SessionInfo(id=talk.id, agent=talk.agent, pending=talk.pending)

    def sessions(self, after: str) -> Ask[tuple[tuple[SessionInfo, ...], str]]:
        """See `Face.sessions`."""
        raise Unsupported("the Agent API has no list of sessions: AAP lists them")

    def history(self, talk: Talk) -> Ask[tuple[Message, ...]]:
        """See `Face.history`."""
        raise Unsupported("the Agent API shows no history: AAP does, of the same session")

    def delete(self, talk: Talk) -> Ask[None]:
        """See `Face.delete`."""
        raise Unsupported("the Agent API cannot delete a session: AAP can, of the same session")

    def stop(self, talk: Talk) -> Ask[None]:
        """See `Face.stop`."""
        body = msgspec.json.encode({"session_id": talk.id})
        headers = {"Content-Type": "application/json"}
        request = Request(method="POST", path=stop_path(self._path), body=body, headers=headers, repeats=True)
        return Ask(request, lambda _: None)

    def turn(self, talk: Talk, given: Given, once: str) -> "AgentScopeTurn":
        """See `Face.turn`."""
        body: JsonObject = {"id": f"resp_{once}", "session_id": talk.id, "stream": True, "input": _input(talk, given)}
        if talk.agent:
            body["model"] = talk.agent
        if talk.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": each.name,
                        "description": each.description,
                        "parameters": {"type": "object", "properties": {}, **each.parameters},
                    },
                }
                for each in talk.tools
            ]
        begin = Request(
            method="POST",
            path=self._path,
            body=msgspec.json.encode(body),
            headers={"Content-Type": "application/json"},
        )
        return AgentScopeTurn(talk, begin, self._path)

    def rejoin(self, talk: Talk) -> "AgentScopeTurn":
        """See `Face.rejoin`."""
        path = f"{self._path}/sessions/{quote(talk.id, safe='')}/events"
        return AgentScopeTurn(talk, Request(method="GET", path=path, repeats=True), self._path)

    def confirm(self, talk: Talk) -> Ask[bool]:
        """See `Face.confirm`: the service page of a server like ours names where responses are read on."""
        return Ask(Request(method="GET", path="/", repeats=True), lambda body: b'"response_events"' in body)

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Refused:
        """See `Face.refusal`."""
        return _refused(status, refusal_in(body, "error"), body, headers.get("x-request-id", ""))


def _refused(status: int, told: JsonObject, body: bytes, request_id: str = "") -> Refused:
    error = told.get("error")
    named = error if isinstance(error, dict) else {"code": told.get("code"), "message": error}
    words = str(named.get("message") or told.get("detail") or f"the server answered {status}")
    return refused(status, str(named.get("code") or ""), words, body=body, request_id=request_id)


class AgentScopeTurn:
    """A response. Its events are numbered from 0, and those of ours carry the number as their frames' ids too."""

    def __init__(self, talk: Talk, begin: Request, path: str) -> None:
        self.is_over = False
        self._talk = talk
        self._begin = begin
        self._path = path
        self._seen = -1
        self._has_events = False
        self._has_ids = False
        self._response_id = ""
        self._kinds: dict[str, str] = {}
        self._told: dict[tuple[str, int], int] = {}
        """Of contents: how many characters were told."""
        self._known = {each.call_id for each in talk.pending}
        self._open: dict[str, Pending] = {}
        self._finish = ""

    @property
    def request(self) -> Request:
        """See `Turn.request`."""
        if not self._response_id or not self._has_ids:
            return self._begin
        path = f"{self._path}/responses/{quote(self._response_id, safe='')}/events?after={self._seen}"
        return Request(method="GET", path=path, repeats=True)

    @property
    def can_resume(self) -> bool:
        """See `Turn.can_resume`."""
        return not self._has_events or self._has_ids

    def take(self, body: bytes) -> Sequence[Event]:
        """See `Turn.take`: 204 says that the session has no response; some servers forget to say what a stream is."""
        if not body:
            self.is_over = True
            return (Ended(reason="end_turn"),)
        return [event for frame in FrameReader().feed(body) for event in self.feed(frame)]

    def feed(self, frame: Frame) -> Sequence[Event]:
        """See `Turn.feed`."""
        told = decoded(frame.data, _Told, "an event of the Agent API")
        if told.type == "heartbeat":
            return ()
        number = told.sequence_number
        if number is not None:
            if number <= self._seen:
                return ()
            if frame.id and number != self._seen + 1:
                raise Unreadable(f"event {self._seen + 1} of the response was expected, got {number}")
            self._seen, self._has_ids = number, self._has_ids or bool(frame.id)
        self._has_events = True
        match told.object:
            case "response":
                return self._response(told)
            case "message":
                return self._message(told)
            case "content":
                return self._content(told)
        if told.error is not None:  # how the published runtime refuses: with status 200, and in one frame
            raise _refused(200, {"error": told.error}, frame.data)
        return ()

    def _message(self, told: _Told) -> Sequence[Event]:
        own, kind = told.id or "", told.type or "message"
        self._kinds[own] = kind
        if told.status not in ("completed", "failed", "canceled"):
            return ()
        if told.metadata and told.metadata.get("finish_reason"):
            self._finish = str(told.metadata["finish_reason"])
        payload = next((each.get("data") for each in told.content or () if isinstance(each.get("data"), dict)), None)
        if kind in ("message", "reasoning") or not isinstance(payload, dict):
            return ()
        if kind.endswith("_output"):
            return self._settled(payload)
        if kind == "mcp_approval_request":
            return self._called(str(payload.get("id")), payload, waits=True, is_person=True)
        if kind.endswith("_call"):
            return self._called(str(payload.get("call_id")), payload, waits=kind == "function_call")
        return (Notice(kind=kind, content=payload),)

    def _content(self, told: _Told) -> Sequence[Event]:
        kind = self._kinds.get(told.msg_id or "", "message")
        place = (told.msg_id or "", told.index or 0)
        if kind not in ("message", "reasoning"):
            return ()
        if told.type == "text" and told.text:
            begun = self._told.get(place, 0)
            words = told.text if told.delta else told.text[begun:]
            self._told[place] = begun + len(words)
            if not words:
                return ()
            return (Text(text=words) if kind == "message" else Thinking(text=words),)
        if told.delta or told.status not in ("completed", "failed", "canceled"):
            return ()
        if told.type == "image" and told.image_url:
            return (Image(url=told.image_url),)
        if told.type == "data" and isinstance(told.data, dict):
            plan = told.data.get("plan")
            return (Notice(kind="plan", content=plan) if plan else Notice(kind="data", content=told.data),)
        return ()

    def _called(self, call_id: str, payload: JsonObject, *, waits: bool, is_person: bool = False) -> Sequence[Event]:
        name, arguments = str(payload.get("name")), arguments_of(payload.get("arguments"))
        self._talk.names[call_id] = name
        question = question_of(call_id, arguments) if name == ASK else None
        if is_person:
            self._open[call_id] = Permission(call_id=call_id, name=name, arguments=arguments)
        elif waits:
            self._open[call_id] = question or ClientCall(call_id=call_id, name=name, arguments=arguments)
        if call_id in self._known:  # one that was granted is told again
            return ()
        self._known.add(call_id)
        return (question or ToolCall(id=call_id, name=name, arguments=arguments),)

    def _settled(self, payload: JsonObject) -> Sequence[Event]:
        call_id = str(payload.get("call_id"))
        self._open.pop(call_id, None)
        name = self._talk.names.get(call_id) or str(payload.get("name") or "")
        if name == ASK:
            return ()
        output = payload.get("output")
        text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
        return (ToolResult(call_id=call_id, name=name, text=text),)

    def _response(self, told: _Told) -> Sequence[Event]:
        self._response_id = self._talk.run_id = told.id or self._response_id
        if told.status in ("created", "queued", "in_progress"):
            self._talk.pending = ()
            return ()
        self.is_over = True
        waits = tuple(self._open.values()) if told.status == "completed" else ()
        reason: StopReason = "tool_use" if waits else ENDS.get(self._finish, "end_turn")
        problem = None
        if told.status == "canceled":
            reason = "cancelled"
        elif told.status != "completed":
            error = told.error or {}
            problem = Problem(str(error.get("code") or ""), str(error.get("message") or "the response failed"))
            reason = ENDS.get(problem.code, "error")
        self._talk.pending = waits
        asked = (each for each in waits if isinstance(each, Permission))
        run_id = self._response_id
        ended = Ended(reason=reason, run_id=run_id, usage=_usage(told.usage), problem=problem, pending=waits)
        return (*asked, ended)


def _usage(usage: Mapping[str, Json] | None) -> Usage | None:
    if not usage:
        return None
    return Usage(int(usage.get("input_tokens") or 0), int(usage.get("output_tokens") or 0))


# --- client → wire ----------------------------------------------------------------------------------------------------


def _input(talk: Talk, given: Given) -> list[JsonObject]:
    if isinstance(given, Said):
        words: list[JsonObject] = [{"type": "text", "text": given.text}] if given.text or not given.images else []
        pictures = [{"type": "image", "image_url": url} for url in given.images]
        return [{"role": "user", "type": "message", "content": [*words, *pictures]}]
    kinds = {each.call_id: each for each in talk.pending}
    return [_answer(each, is_person=isinstance(kinds.get(each.call_id), Permission)) for each in given]


def _answer(answer: Answer, *, is_person: bool) -> JsonObject:
    match answer:
        case Allow(always=True):
            raise Unsupported("the Agent API cannot allow a tool for good: AG-UI and Blade can, of the same session")
        case Allow(call_id=call_id):
            return _approval(call_id, approve=True)
        case Deny(call_id=call_id, reason=reason) if is_person:
            return _approval(call_id, approve=False, reason=reason)
        case Deny(call_id=call_id, reason=reason):
            return _output(call_id, denial(reason or None))
        case Choice(call_id=call_id):
            return _output(call_id, msgspec.json.encode(chosen_in(answer)).decode())
        case Result(images=images) if images:
            raise Unsupported("the Agent API takes words as a tool's result, and no pictures")
        case Result(call_id=call_id, text=text):
            return _output(call_id, text)


def _approval(call_id: str, *, approve: bool, reason: str = "") -> JsonObject:
    said: JsonObject = {"approval_request_id": call_id, "approve": approve}
    if reason:
        said["reason"] = reason
    return {"type": "mcp_approval_response", "role": "user", "content": [{"type": "data", "data": said}]}


def _output(call_id: str, text: str) -> JsonObject:
    said = {"call_id": call_id, "output": text}
    return {"type": "function_call_output", "role": "tool", "content": [{"type": "data", "data": said}]}
