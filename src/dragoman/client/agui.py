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

from dragoman.client.codec import Ask, Given, Request, Said, Talk, Wanted
from dragoman.client.decoding import arguments_of, decoded, refusal_in
from dragoman.client.errors import ClientError, NotFound, Refused, Unreachable, Unsupported, refused
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
from dragoman.client.pending import chosen_in, question_of
from dragoman.client.sse import Frame, FrameReader
from dragoman.core.content import Json, JsonObject
from dragoman.core.tools import ASK
from dragoman.protocols.agui.content import DataSource, ImagePart, Part, TextPart, UrlSource
from dragoman.protocols.agui.messages import OURS
from dragoman.protocols.agui.translate import VERSION

BASE = "/ag-ui"
_OURS_ID = re.compile(r"([0-9]{1,15})-([0-9]{1,15})-([0-9]{1,9})")
REASONS: Mapping[str, StopReason] = {
    "max_steps": "max_steps",
    "cancelled": "cancelled",
    "thread_deleted": "cancelled",
    "interrupted": "interrupted",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
}
"""Codes of RUN_ERROR, and reasons in our metadata, that say why a run ended."""
REFUSALS = {"thread_busy": 409, "interrupt_unanswered": 409, "interrupt_invalid": 400, "interrupt_unknown": 400}
"""Codes of RUN_ERROR that say that nothing was run, with the statuses that they stand for."""
PASSING = {"shutting_down", "unavailable"}
"""Codes of RUN_ERROR that say that the run goes on, and can be read on later."""


class _Told(msgspec.Struct, frozen=True, rename="camel"):
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


class AguiFace:
    """The standard endpoint. `endpoint` is the whole path of one agent's; without it agents are found below `BASE`."""

    needs_agents = False

    def __init__(self, endpoint: str = "") -> None:
        self._endpoint = endpoint

    def agents(self) -> Ask[tuple[Agent, ...]]:
        """See `Face.agents`."""
        raise Unsupported("AG-UI has no list of agents: name one, or ask through AAP")

    def create(self, wanted: Wanted, once: str) -> Talk:
        """See `Face.create`. A thread begins with its first message: nothing is sent now."""
        if not wanted.agent and not self._endpoint:
            raise Unsupported("AG-UI has no default agent: create(agent=…) names one")
        if wanted.use is not None or wanted.trust or wanted.options:
            raise Unsupported("AG-UI cannot choose or trust tools, nor set options: AAP can, of the same session")
        return Talk(id=str(uuid4()), agent=wanted.agent, tools=wanted.tools)

    def open(self, info: SessionInfo, wanted: Wanted) -> Talk:
        """See `Face.open`."""
        talk = Talk(id=info.id, agent=wanted.agent, tools=wanted.tools, pending=info.pending)
        for each in info.pending:
            talk.names[each.call_id] = ASK if isinstance(each, Question) else each.name
        return talk

    def look(self, talk: Talk) -> Ask[SessionInfo]:
        """See `Face.look`: hydration, which servers that keep threads understand."""

        def read(body: bytes) -> SessionInfo:
            turn = self._read_whole(talk, body)
            status = "waiting" if turn.pending else ""
            return SessionInfo(id=talk.id, agent=talk.agent, status=status, pending=turn.pending)

        return Ask(self._hydrate(talk), read)

    def sessions(self, after: str) -> Ask[tuple[tuple[SessionInfo, ...], str]]:
        """See `Face.sessions`."""
        raise Unsupported("AG-UI has no list of threads: AAP lists them")

    def history(self, talk: Talk) -> Ask[tuple[Message, ...]]:
        """See `Face.history`."""
        return Ask(self._hydrate(talk), lambda body: messages_from(self._read_whole(talk, body).snapshot))

    def delete(self, talk: Talk) -> Ask[None]:
        """See `Face.delete`."""
        raise Unsupported("AG-UI cannot delete a thread: AAP can, of the same session")

    def stop(self, talk: Talk) -> Ask[None]:
        """See `Face.stop`."""
        request = Request(method="POST", path=f"{self._path(talk)}/stop/{_part(talk.id)}", repeats=True)
        return Ask(request, lambda _: None)

    def turn(self, talk: Talk, given: Given, once: str) -> "AguiTurn":
        """See `Face.turn`."""
        messages, resume = _said(talk, given)
        body = _input(talk, once, messages if talk.is_kept else [*talk.messages, *messages])
        body["tools"] = [
            {"name": each.name, "description": each.description, "parameters": each.parameters} for each in talk.tools
        ]
        if resume:
            body["resume"] = resume
        return AguiTurn(talk, self._post(self._path(talk), body), messages)

    def rejoin(self, talk: Talk) -> "AguiTurn":
        """See `Face.rejoin`: told is all since the user's last message."""
        return AguiTurn(talk, self._post(f"{self._path(talk)}/connect", _input(talk), repeats=True), None)

    def confirm(self, talk: Talk) -> Ask[bool]:
        """See `Face.confirm`: a server that declares capabilities as ours does knows a `runId` again."""
        return Ask(Request(method="GET", path=f"{self._path(talk)}/capabilities", repeats=True), lambda _: True)

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Refused:
        """See `Face.refusal`. Other servers' bodies have many shapes."""
        told = refusal_in(body, "error")
        message = next((str(told[name]) for name in ("error", "detail", "message") if told.get(name)), "")
        code = str(told.get("code") or "")
        return refused(
            404 if code == "thread_not_found" else status,
            code,
            message or f"the server answered {status}",
            body=body,
            request_id=headers.get("x-request-id", "") or str(told.get("reference") or ""),
        )

    # --- inside -----------------------------------------------------------------------------------------------------

    def _path(self, talk: Talk) -> str:
        return self._endpoint or f"{BASE}/{_part(talk.agent)}"

    def _hydrate(self, talk: Talk) -> Request:
        if not talk.agent and not self._endpoint:
            raise Unsupported("AG-UI has to be told the agent of a thread: open(id, agent=…)")
        return self._post(self._path(talk), _input(talk), repeats=True)

    def _post(self, path: str, body: JsonObject, *, repeats: bool = False) -> Request:
        return Request(
            method="POST",
            path=path,
            body=msgspec.json.encode(body),
            headers={"Content-Type": "application/json", "X-Run-On-Disconnect": "continue"},
            repeats=repeats,
        )

    def _read_whole(self, talk: Talk, body: bytes) -> "AguiTurn":
        """Read a stream that is there as a whole."""
        copy = Talk(id=talk.id, agent=talk.agent, tools=talk.tools, names=talk.names)
        turn = AguiTurn(copy, Request(method="POST", path=""), None)
        for frame in FrameReader().feed(body):
            turn.feed(frame)
        return turn


def _input(talk: Talk, run_id: str = "", messages: Sequence[JsonObject] = ()) -> JsonObject:
    """A request's body; without a message it looks, and runs nothing."""
    return {
        "threadId": talk.id,
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

    def __init__(self, talk: Talk, request: Request, messages: Sequence[JsonObject] | None) -> None:
        """Begin; without messages it is joined."""
        self.is_over = False
        self.pending: tuple[Pending, ...] = ()
        self.snapshot: list[JsonObject] = []
        self.request = request
        self._talk = talk
        self._is_joined = messages is None
        self._brought = list(messages or ())
        self._has_events = False
        self._last = (-1, -1, -1)
        self._run_id = ""
        self._told: dict[str, int] = {}
        """Of messages: how many characters were told."""
        self._at: dict[str, int] = {}
        """And where this connection is in them."""
        self._arguments: dict[str, list[str]] = {}
        self._parents: dict[str, str] = {}
        """Of calls: the messages that they are of."""
        self._chunked = ""
        self._calls: dict[str, JsonObject] = {}
        self._open: dict[str, str] = {}
        """Calls without a result so far: their tools."""
        self._settled: set[str] = set()

    @property
    def can_resume(self) -> bool:
        """See `Turn.can_resume`."""
        return self._is_joined or not self._has_events or self._last != (-1, -1, -1)

    def take(self, body: bytes) -> Sequence[Event]:
        """See `Turn.take`: some servers forget to say that it is a stream."""
        return [event for frame in FrameReader().feed(body) for event in self.feed(frame)]

    def feed(self, frame: Frame) -> Sequence[Event]:
        """See `Turn.feed`."""
        if found := _OURS_ID.fullmatch(frame.id):
            place = (int(found[1]), int(found[2]), int(found[3]))
            if place <= self._last:
                return ()
            self._last = place
            self._talk.is_kept = True
        told = decoded(frame.data, _Told, "an event of AG-UI")
        self._has_events = True
        if self._chunked and told.type != "TOOL_CALL_CHUNK":
            return (*self._called(self._chunked, told.subagent_run_id), *self._event(told))
        return self._event(told)

    def _event(self, told: _Told) -> Sequence[Event]:
        match told.type:
            case "RUN_STARTED":
                self._run_id = self._talk.run_id = told.run_id
                self._talk.pending = ()
                self._at.clear()
                if self._holds():
                    self._talk.messages.extend(self._brought)
                self._brought = []
                return ()
            case "RUN_FINISHED":
                return self._finished(told)
            case "RUN_ERROR":
                return self._failed(told)
            case "MESSAGES_SNAPSHOT":
                return self._snapshot(told.messages)
            case "TOOL_CALL_START" | "TOOL_CALL_ARGS" | "TOOL_CALL_CHUNK" | "TOOL_CALL_END" | "TOOL_CALL_RESULT":
                return self._tool(told)
            case kind if kind.startswith(("TEXT_MESSAGE_", "REASONING_", "THINKING_")):
                return self._words(told)
            case _:
                return _noticed(told)

    # --- words ------------------------------------------------------------------------------------------------------

    def _words(self, told: _Told) -> Sequence[Event]:
        own = told.message_id
        if told.type.endswith("_START"):
            self._at.setdefault(own, 0)
            if told.type == "TEXT_MESSAGE_START" and told.role == "user":
                self._at[own] = -1  # what the user said is no news
            return ()
        if not told.type.endswith(("_CONTENT", "_CHUNK")) or not isinstance(told.delta, str) or not told.delta:
            return ()
        if told.role == "user" or self._at.get(own) == -1:
            return ()
        fresh = self._fresh(own, self._at.get(own, 0), told.delta)
        self._at[own] = self._at.get(own, 0) + len(told.delta)
        if not fresh:
            return ()
        if not told.type.startswith("TEXT_"):
            return (Thinking(text=fresh, loop=told.subagent_run_id),)
        if self._holds(told.subagent_run_id):
            message = self._held(own)
            message["content"] = (message.get("content") or "") + fresh
        return (Text(text=fresh, loop=told.subagent_run_id),)

    def _fresh(self, message_id: str, start: int, words: str) -> str:
        """What of these words, which begin at `start` of their message, was not told before."""
        told = self._told.get(message_id, 0)
        self._told[message_id] = max(told, start + len(words))
        return words[max(0, told - start) :]

    def _holds(self, loop: str = "") -> bool:
        """Whether what is told has to be noted, to be sent again: the server keeps none of it, as far as is known."""
        return not loop and not self._talk.is_kept

    def _held(self, message_id: str) -> JsonObject:
        """The assistant's message of that id, as it is sent to servers that keep none."""
        held = self._talk.messages
        for each in reversed(held):
            if each["id"] == message_id and each["role"] == "assistant":
                return each
        held.append({"id": message_id, "role": "assistant"})
        return held[-1]

    # --- calls ------------------------------------------------------------------------------------------------------

    def _tool(self, told: _Told) -> Sequence[Event]:
        own = told.tool_call_id or self._chunked
        match told.type:
            case "TOOL_CALL_CHUNK" if own != self._chunked:
                before = self._called(self._chunked, told.subagent_run_id) if self._chunked else ()
                self._begin(own, told)
                self._chunked = own
                return before
            case "TOOL_CALL_START":
                self._begin(own, told)
            case "TOOL_CALL_ARGS" | "TOOL_CALL_CHUNK":
                self._arguments.setdefault(own, []).append(str(told.delta))
            case "TOOL_CALL_END":
                return self._called(own, told.subagent_run_id)
            case "TOOL_CALL_RESULT":
                if self._holds(told.subagent_run_id) and own not in self._settled:
                    message_id = told.message_id or uuid4().hex
                    held = {"id": message_id, "role": "tool", "toolCallId": own, "content": told.content}
                    self._talk.messages.append(held)
                return self._result(own, told.content, told.subagent_run_id)
        return ()

    def _begin(self, call_id: str, told: _Told) -> None:
        self._talk.names[call_id] = told.tool_call_name
        self._arguments[call_id] = [str(told.delta)] if told.type == "TOOL_CALL_CHUNK" else []
        self._parents[call_id] = told.parent_message_id or call_id

    def _called(self, call_id: str, loop: str) -> Sequence[Event]:
        """A call that is whole now, unless it was told before."""
        self._chunked = ""
        text, name = "".join(self._arguments.pop(call_id, [])), self._talk.names.get(call_id, "")
        if self._holds(loop) and call_id not in self._calls:
            call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": text or "{}"}}
            self._held(self._parents.get(call_id, call_id)).setdefault("toolCalls", []).append(call)
        return self._show_call(call_id, name, text, loop)

    def _show_call(self, call_id: str, name: str, text: str, loop: str) -> Sequence[Event]:
        if call_id in self._calls:
            return ()
        arguments = arguments_of(text)
        self._calls[call_id] = arguments
        self._talk.names[call_id] = name
        self._open[call_id] = name
        if name == ASK:
            return (question_of(call_id, arguments, loop),)
        return (ToolCall(id=call_id, name=name, arguments=arguments, loop=loop),)

    def _result(self, call_id: str, content: Json, loop: str) -> Sequence[Event]:
        self._open.pop(call_id, None)
        if call_id in self._settled:
            return ()
        self._settled.add(call_id)
        name = self._talk.names.get(call_id, "")
        if name == ASK:  # what the person said is no news
            return ()
        text, images = _content(content)
        return (ToolResult(call_id=call_id, name=name, text=text, images=images, loop=loop),)

    # --- snapshots and ends -----------------------------------------------------------------------------------------

    def _snapshot(self, messages: list[JsonObject]) -> Sequence[Event]:
        self.snapshot = messages
        if self._holds():
            self._talk.messages = list(messages)
        for each in messages:
            for call in each.get("toolCalls") or ():
                self._talk.names[call["id"]] = call["function"]["name"]
                self._calls.setdefault(call["id"], arguments_of(call["function"]["arguments"]))
        if not self._is_joined:
            return ()
        self._calls.clear()
        last = max((place for place, each in enumerate(messages) if each.get("role") == "user"), default=-1)
        events: list[Event] = []
        for each in messages[last + 1 :]:
            events += self._retold(each)
        return events

    def _retold(self, message: JsonObject) -> Iterable[Event]:
        """What a message of a snapshot tells beyond what was told of it."""
        own, loop, role = str(message.get("id")), str(message.get("subagentRunId") or ""), message.get("role")
        content = message.get("content")
        if role in ("assistant", "reasoning") and isinstance(content, str):
            fresh = self._fresh(own, 0, content)
            if fresh:
                yield Text(text=fresh, loop=loop) if role == "assistant" else Thinking(text=fresh, loop=loop)
        if role == "activity" and own not in self._told:
            self._told[own] = 1
            yield _activity(str(message.get("activityType")), content, loop)
        for call in message.get("toolCalls") or ():
            yield from self._show_call(call["id"], call["function"]["name"], call["function"]["arguments"], loop)
        if role == "tool":
            yield from self._result(str(message.get("toolCallId")), content, loop)

    def _finished(self, told: _Told) -> Sequence[Event]:
        self.is_over = True
        outcome = told.outcome or {"type": "success"}
        remarks = (told.metadata or {}).get(OURS) or {}
        mine = {tool.name for tool in self._talk.tools}
        pending: list[Pending] = [
            ClientCall(call_id=call_id, name=name, arguments=self._calls.get(call_id, {}))
            for call_id, name in self._open.items()
            if name in mine
        ]
        pending += [self._waiting(each) for each in outcome.get("interrupts") or ()]
        self.pending = self._talk.pending = tuple(pending)
        reason: StopReason = "tool_use" if pending else "end_turn"
        if outcome.get("type") == "cancelled":
            reason = "cancelled"
        reason = REASONS.get(str(remarks.get("stopReason")), reason)
        asked = (each for each in pending if isinstance(each, Permission))
        ended = Ended(reason=reason, run_id=self._run_id, usage=_usage(told.usage), pending=self.pending)
        return (*asked, ended)

    def _waiting(self, interrupt: JsonObject) -> Pending:
        """What an interrupt waits for. Those of other servers may stand behind no call."""
        own = str(interrupt.get("id"))
        call_id = str(interrupt.get("toolCallId") or own)
        name = self._talk.names.get(call_id, "")
        arguments = self._calls.get(call_id, {})
        if name == ASK:
            return question_of(own, arguments)
        if interrupt.get("reason") == "input_required":
            return question_of(own, {"questions": [{"question": str(interrupt.get("message") or "")}]})
        words = name or str(interrupt.get("message") or interrupt.get("reason") or "")
        return Permission(call_id=own, name=words, arguments=arguments)

    def _failed(self, told: _Told) -> Sequence[Event]:
        code = told.code or ""
        if code in PASSING:
            raise Unreachable(told.message, code=code, may_retry=True)
        if code in REFUSALS:
            raise refused(REFUSALS[code], code, told.message, body=b"", request_id="")
        if code == "thread_not_found":
            raise NotFound(told.message, code=code)
        self.is_over = True
        self._talk.pending = ()
        reason = REASONS.get(code, "error")
        problem = Problem(code, told.message)
        return (Ended(reason=reason, run_id=self._run_id, usage=_usage(told.usage), problem=problem),)


# --- wire → client ----------------------------------------------------------------------------------------------------


def messages_from(messages: Iterable[JsonObject]) -> tuple[Message, ...]:
    """A history in the client's words. What sub-agents did is left out, as in the other protocols."""
    names: dict[str, str] = {}
    found = (_message(each, names) for each in messages if not each.get("subagentRunId"))
    return tuple(each for each in found if each is not None)


def _message(message: JsonObject, names: dict[str, str]) -> Message | None:
    own, content = str(message.get("id")), message.get("content")
    match message.get("role"):
        case "user":
            return Message(role="user", id=own, blocks=tuple(_parts(content)))
        case "system" | "developer":
            return Message(role="system", id=own, blocks=tuple(_parts(content)))
        case "reasoning":
            return Message(role="assistant", id=own, blocks=(Thinking(text=str(content)),))
        case "activity":
            return Message(role="assistant", id=own, blocks=(_activity(str(message.get("activityType")), content, ""),))
        case "tool":
            text, images = _content(content)
            call_id = str(message.get("toolCallId"))
            result = ToolResult(call_id=call_id, name=names.get(call_id, ""), text=text, images=images)
            return Message(role="tool", id=own, blocks=(result,))
        case "assistant":
            blocks: list[Block] = list(_parts(content))
            for call in message.get("toolCalls") or ():
                name, arguments = call["function"]["name"], arguments_of(call["function"]["arguments"])
                names[call["id"]] = name
                question = question_of(call["id"], arguments) if name == ASK else None
                blocks.append(question or ToolCall(id=call["id"], name=name, arguments=arguments))
            return Message(role="assistant", id=own, blocks=tuple(blocks))
    return None


def _parts(content: Json) -> Iterable[Text | Image]:
    text, images = _content(content)
    if text:
        yield Text(text=text)
    for url in images:
        yield Image(url=url)


def _content(content: Json) -> tuple[str, tuple[str, ...]]:
    """A content's words, and its pictures."""
    if isinstance(content, str):
        return content, ()
    parts = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    words = "".join(str(each.get("text", "")) for each in parts if each.get("type") == "text")
    return words, tuple(_url(each.get("source") or {}) for each in parts if each.get("type") == "image")


def _url(source: JsonObject) -> str:
    value = str(source.get("value", ""))
    return f"data:{source.get('mimeType')};base64,{value}" if source.get("type") == "data" else value


def _noticed(told: _Told) -> Sequence[Event]:
    loop = told.subagent_run_id
    match told.type:
        case "ACTIVITY_SNAPSHOT":
            return (_activity(told.activity_type, told.content, loop),)
        case "STATE_SNAPSHOT":
            return (Notice(kind="state", content=told.snapshot, loop=loop),)
        case "STATE_DELTA":
            return (Notice(kind="state_delta", content=told.delta, loop=loop),)
        case "STEP_STARTED" | "STEP_FINISHED":
            return (Notice(kind=told.type.lower(), content=told.step_name, loop=loop),)
        case "SUBAGENT_STARTED":
            return (
                Notice(
                    kind="subagent_started", content={"name": told.name, "description": told.description}, loop=loop
                ),
            )
        case "SUBAGENT_FINISHED" | "SUBAGENT_ERROR":
            return (Notice(kind=told.type.lower(), content=told.outcome or told.message, loop=loop),)
        case "CUSTOM":
            value = told.value
            if told.name == f"{OURS}.block" and isinstance(value, dict) and value.get("type") == "image":
                return (Image(url=str(value.get("url", "")), loop=loop),)
            return (Notice(kind=told.name, content=value, loop=loop),)
    return ()


def _activity(kind: str, content: Json, loop: str) -> Notice:
    return Notice(kind="plan" if kind == "PLAN" else kind.lower(), content=content, loop=loop)


def _usage(usage: Json) -> Usage | None:
    if not isinstance(usage, list) or not usage:
        return None
    models = [each for each in usage if isinstance(each, dict)]
    return Usage(
        sum(each.get("inputTokens") or 0 for each in models), sum(each.get("outputTokens") or 0 for each in models)
    )


# --- client → wire ----------------------------------------------------------------------------------------------------


def _said(talk: Talk, given: Given) -> tuple[list[JsonObject], list[JsonObject]]:
    """The messages and the entries of `resume` of a request."""
    if isinstance(given, Said):
        message = {"id": uuid4().hex, "role": "user", "content": _written(given.text, given.images)}
        interrupts = [each.call_id for each in talk.pending if not isinstance(each, ClientCall)]
        return [message], [{"interruptId": each, "status": "cancelled"} for each in interrupts]
    kinds = {each.call_id: type(each) for each in talk.pending}
    messages: list[JsonObject] = []
    resume: list[JsonObject] = []
    for answer in given:
        if kinds.get(answer.call_id) is ClientCall:
            messages.append(_tool_message(answer))
        else:
            resume.append({"interruptId": answer.call_id, **_entry(answer)})
    return messages, resume


def _tool_message(answer: Answer) -> JsonObject:
    message: JsonObject = {"id": uuid4().hex, "role": "tool", "toolCallId": answer.call_id}
    if isinstance(answer, Result):
        return {**message, "content": _written(answer.text, answer.images)}
    reason = answer.reason if isinstance(answer, Deny) else ""
    return {**message, "content": "", "error": reason or "Tool call denied"}


def _entry(answer: Answer) -> JsonObject:
    match answer:
        case Allow(always=always):
            return {"status": "resolved", "payload": {"approved": True, **({"remember": True} if always else {})}}
        case Deny(reason=""):
            return {"status": "cancelled"}
        case Deny(reason=reason):
            return {"status": "resolved", "payload": {"approved": False, "reason": reason}}
        case Choice():
            return {"status": "resolved", "payload": chosen_in(answer)}
        case Result():
            raise ClientError("over AG-UI a Result answers calls of the client's own tools only")


def _written(text: str, images: Sequence[str]) -> str | list[Part]:
    if not images:
        return text
    words: list[Part] = [TextPart(text=text)] if text else []
    return [*words, *(ImagePart(source=_source(url)) for url in images)]


def _source(url: str) -> DataSource | UrlSource:
    head, found, value = url.partition(";base64,")
    return DataSource(value=value, mime_type=head.removeprefix("data:")) if found else UrlSource(value=url)


def _part(text: str) -> str:
    return quote(text, safe="")
