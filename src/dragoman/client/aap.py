"""AAP as a client speaks it. Pure: requests out, events in.

The wire's types are those of the server's side (`protocols.aap.wire`). What only servers like ours add (`_meta`, ids of
frames, `Idempotency-Key`, the route for resuming) is used where it is there and not missed where it is not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar, assert_never
from urllib.parse import quote

import msgspec

from dragoman.client.codec import Ask, Given, Request, Said, Talk, Wanted
from dragoman.client.decoding import decoded, refusal_in
from dragoman.client.errors import Refused, Unreadable, Unsupported, refused
from dragoman.client.events import (
    Agent,
    AgentOption,
    Allow,
    Answer,
    Block,
    Choice,
    Deny,
    Ended,
    Event,
    Image,
    Message,
    Pending,
    Permission,
    Problem,
    Question,
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
from dragoman.client.pending import chosen_in, pending_of, question_of
from dragoman.client.sse import Frame
from dragoman.core.content import JsonObject
from dragoman.core.tools import ASK, ToolSpec
from dragoman.protocols.aap import wire

BASE = "/aap/v3"

REASONS: Mapping[str, StopReason] = {
    "max_steps": "max_steps",
    "cancelled": "cancelled",
    "session_deleted": "cancelled",
    "interrupted": "interrupted",
}
"""What the code of an `error` tells of a server's reason; AAP itself has no words for these."""

Body = TypeVar("Body")


class AapFace:
    """A server of AAP v3."""

    needs_agents = True

    def __init__(self, base: str = BASE) -> None:
        """Begin; `base` is the path under which the server has the protocol."""
        self._base = base.rstrip("/")
        self._meta: wire.Meta | None = None

    # --- what is there ----------------------------------------------------------------------------------------------

    def agents(self) -> Ask[tuple[Agent, ...]]:
        """See `Face.agents`."""
        return Ask(self._get("/meta"), self._read_agents)

    def create(self, wanted: Wanted, once: str) -> Ask[Talk]:
        """See `Face.create`. Tools of the server's are on unless `use` names others; a person is asked before each."""
        spec = self._spec(wanted.agent)
        names = [tool.name for tool in spec.tools or ()] if wanted.use is None else list(wanted.use)
        names += [name for name in wanted.trust if name not in names]
        config: JsonObject = {"name": spec.name}
        if names:
            config["tools"] = [{"name": name, "trust": name in wanted.trust} for name in names]
        if wanted.options:
            config["options"] = dict(wanted.options)
        body: JsonObject = {"agent": config}
        if wanted.tools:
            body["tools"] = _specs(wanted.tools)

        def read(answer: bytes) -> Talk:
            made = _decoded(answer, wire.PostedSession)
            return Talk(id=made.session_id, agent=spec.name, tools=wanted.tools)

        return Ask(self._post("/sessions", body, once, repeats=True), read)

    def open(self, info: SessionInfo, wanted: Wanted) -> Talk:
        """See `Face.open`. What this client offers is told with its first turn."""
        talk = Talk(id=info.id, agent=info.agent, tools=wanted.tools, pending=info.pending)
        talk.owes_tools = bool(wanted.tools)
        talk.names |= {each.call_id: _name_of(each) for each in info.pending}
        return talk

    def look(self, talk: Talk) -> Ask[SessionInfo]:
        """See `Face.look`."""
        return Ask(self._get(f"/sessions/{_part(talk.id)}"), lambda body: _info(_decoded(body, wire.SessionInfo)))

    def sessions(self, after: str) -> Ask[tuple[tuple[SessionInfo, ...], str]]:
        """See `Face.sessions`."""

        def read(body: bytes) -> tuple[tuple[SessionInfo, ...], str]:
            page = _decoded(body, wire.Sessions)
            return tuple(map(_info, page.sessions)), page.next or ""

        return Ask(self._get(f"/sessions?after={_part(after)}" if after else "/sessions"), read)

    def history(self, talk: Talk) -> Ask[tuple[Message, ...]]:
        """See `Face.history`: the full one, where the agent gives it, else the compacted."""
        has = self._capabilities(talk.agent).history or {}
        if not has:
            raise Unsupported(f"agent {talk.agent!r} does not declare that it gives its history over AAP")
        kind = "full" if "full" in has else "compacted"

        def read(body: bytes) -> tuple[Message, ...]:
            found = _decoded(body, wire.History).history
            messages = next((each for name, each in found.items() if name == kind), ())
            return messages_from(messages)

        return Ask(self._get(f"/sessions/{_part(talk.id)}/history?type={kind}"), read)

    def delete(self, talk: Talk) -> Ask[None]:
        """See `Face.delete`."""
        path = f"{self._base}/sessions/{_part(talk.id)}"
        return Ask(Request(method="DELETE", path=path, repeats=True), lambda _: None)

    def stop(self, talk: Talk) -> Ask[None]:
        """See `Face.stop`: an addition of servers like ours; others have no such path."""
        path = f"{self._base}/sessions/{_part(talk.id)}/stop"
        return Ask(Request(method="POST", path=path, repeats=True), lambda _: None)

    # --- turns ------------------------------------------------------------------------------------------------------

    def turn(self, talk: Talk, given: Given, once: str) -> "AapTurn":
        """See `Face.turn`."""
        mode = self._mode(talk.agent)
        body: JsonObject = {"messages": list(_messages(given)), "stream": mode}
        if talk.owes_tools:
            body["tools"] = _specs(talk.tools)
        begin = self._post(f"/sessions/{_part(talk.id)}/turns", body, once)
        return AapTurn(talk, begin, self._events(talk), mode)

    def rejoin(self, talk: Talk) -> "AapTurn":
        """See `Face.rejoin`."""
        return AapTurn(talk, None, self._events(talk), "delta")

    def confirm(self, talk: Talk) -> Ask[bool]:
        """See `Face.confirm`: a server that adds `_meta` as ours does knows `Idempotency-Key` too."""
        path = f"/sessions/{_part(talk.id)}"
        return Ask(self._get(path), lambda body: _decoded(body, wire.SessionInfo).meta is not None)

    def refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> Refused:
        """See `Face.refusal`. Other servers' bodies are plain text."""
        told = refusal_in(body, "error")
        return refused(
            status,
            str(told.get("code") or ""),
            str(told.get("error") or f"the server answered {status}"),
            body=body,
            request_id=headers.get("x-request-id", "") or str(told.get("reference") or ""),
        )

    # --- inside -----------------------------------------------------------------------------------------------------

    def _read_agents(self, body: bytes) -> tuple[Agent, ...]:
        self._meta = _decoded(body, wire.Meta)
        return tuple(map(_agent, self._meta.agents))

    def _spec(self, name: str) -> wire.AgentInfo:
        offered = self._meta.agents if self._meta is not None else ()
        found = next((each for each in offered if not name or each.name == name), None)
        if found is None:
            names = ", ".join(each.name for each in offered) or "none"
            raise Unsupported(f"an agent of the server's was expected ({names}), got {name!r}")
        return found

    def _capabilities(self, agent: str) -> wire.Capabilities:
        offered = self._meta.agents if self._meta is not None else ()
        found = next((each.capabilities for each in offered if each.name == agent), None)
        return found or wire.Capabilities()

    def _mode(self, agent: str) -> wire.StreamMode:
        """The finest that the agent has. Without a word of it only whole answers can be counted on."""
        has = self._capabilities(agent).stream or {}
        return "delta" if "delta" in has else "message" if "message" in has else "none"

    def _events(self, talk: Talk) -> str:
        return f"{self._base}/sessions/{_part(talk.id)}/events"

    def _get(self, path: str) -> Request:
        return Request(method="GET", path=self._base + path, repeats=True)

    def _post(self, path: str, body: JsonObject, once: str, *, repeats: bool = False) -> Request:
        return Request(
            method="POST",
            path=self._base + path,
            body=msgspec.json.encode(body),
            headers={"Content-Type": "application/json", "Idempotency-Key": once},
            repeats=repeats,
        )


class AapTurn:
    """A turn, told in `delta` or `message` mode, or as a whole.

    Frames of ours are numbered from 1: what comes again is left out, and a gap is an error. A turn of a server without
    numbers is read to its end, and lost when the connection is.
    """

    def __init__(self, talk: Talk, begin: Request | None, events: str, mode: wire.StreamMode) -> None:
        """Begin with `begin`, or without it with the newest turn there is."""
        self.is_over = False
        self._talk = talk
        self._begin = begin
        self._events = events
        self._mode = mode
        self._seen = 0
        self._has_numbers = begin is None
        self._has_frames = False
        self._turn_id = ""
        self._open: dict[str, Pending] = {}

    @property
    def request(self) -> Request:
        """See `Turn.request`."""
        if self._begin is not None and not self._turn_id:
            return self._begin
        query = f"?turn={_part(self._turn_id)}" if self._turn_id else ""
        headers = {"Last-Event-ID": str(self._seen)}
        return Request(method="GET", path=self._events + query, headers=headers, repeats=True)

    @property
    def can_resume(self) -> bool:
        """See `Turn.can_resume`."""
        return not self._has_frames or (self._has_numbers and (self._begin is None or bool(self._turn_id)))

    def feed(self, frame: Frame) -> Sequence[Event]:
        """See `Turn.feed`."""
        if self._is_known(frame.id):
            return ()
        self._has_frames = True
        fields = _decoded(frame.data, dict[str, object])
        match frame.event:
            case "turn_start":
                self._started(fields.get("_meta"))
            case "text_delta":
                return (Text(text=_text(fields, "delta")),)
            case "text":
                return (Text(text=_text(fields, "text")),)
            case "thinking_delta":
                return (Thinking(text=_text(fields, "delta")),)
            case "thinking":
                return (Thinking(text=_text(fields, "thinking")),)
            case "tool_call":
                return (self._called(_converted(fields, _Call)),)
            case "tool_result":
                return self._settled(_converted(fields, _Settled))
            case "turn_stop":
                return self._stopped(_converted(fields, _Stop))
        return ()  # an addition that this client does not know

    def take(self, body: bytes) -> Sequence[Event]:
        """See `Turn.take`: the answer of `none` mode."""
        answer = _decoded(body, wire.TurnAnswer)
        if answer.meta is not None and answer.meta.turn_id is not None:
            self._turn_id = self._talk.run_id = answer.meta.turn_id
        events: list[Event] = []
        for message in answer.messages:
            if isinstance(message, wire.ToolMessage):
                events += self._settled(_Settled(message.tool_call_id, message.content))
                continue
            for block in _blocks(message.content):
                if isinstance(block, wire.ToolUseBlock):
                    events.append(self._called(_Call(block.tool_call_id, block.name, block.input)))
                else:
                    events.append(_plain(block))
        return (*events, *self._stopped(_Stop(answer.stop_reason, answer.meta)))

    def _is_known(self, frame_id: str) -> bool:
        """Whether a frame with this id came before. Raises Unreadable: one is missing before it."""
        if not (frame_id.isascii() and frame_id.isdigit()):
            return False
        number = int(frame_id)
        if number > self._seen + 1:
            raise Unreadable(f"event {self._seen + 1} of the turn was expected, got {number}")
        is_known = number <= self._seen
        self._seen, self._has_numbers = max(number, self._seen), True
        return is_known

    def _started(self, meta: object) -> None:
        self._talk.pending = ()
        self._talk.owes_tools = False
        if isinstance(meta, dict) and isinstance(meta.get("turnId"), str):
            self._turn_id = self._talk.run_id = meta["turnId"]

    def _called(self, call: "_Call") -> Event:
        self._talk.names[call.tool_call_id] = call.name
        self._open[call.tool_call_id] = pending_of(
            call.tool_call_id, call.name, call.input, [tool.name for tool in self._talk.tools]
        )
        return _shown_call(call.tool_call_id, call.name, call.input)

    def _settled(self, result: "_Settled") -> tuple[Event, ...]:
        self._open.pop(result.tool_call_id, None)
        name = self._talk.names.get(result.tool_call_id, "")
        if name == ASK:  # a question that was declined: what the person said is no news
            return ()
        text, images = _told(result.content)
        return (ToolResult(call_id=result.tool_call_id, name=name, text=text, images=images),)

    def _stopped(self, stop: "_Stop") -> tuple[Event, ...]:
        self.is_over = True
        meta = stop.meta or wire.TurnMeta()
        reason: StopReason = stop.stop_reason
        problem = None
        if meta.error is not None:
            problem = Problem(meta.error.code, meta.error.message)
            reason = REASONS.get(problem.code, reason)
        elif reason == "error":
            problem = Problem("", "The turn failed, and the server does not tell why")
        waits = tuple(self._open.values()) if reason == "tool_use" else ()
        self._talk.pending = waits
        usage = None if meta.usage is None else Usage(meta.usage.input_tokens, meta.usage.output_tokens)
        asked = (each for each in waits if isinstance(each, Permission))
        return (*asked, Ended(reason=reason, run_id=self._turn_id, usage=usage, problem=problem, pending=waits))


class _Call(msgspec.Struct, frozen=True, rename="camel"):
    tool_call_id: str
    name: str
    input: JsonObject


class _Settled(msgspec.Struct, frozen=True, rename="camel"):
    tool_call_id: str
    content: str | tuple[wire.InputBlock, ...]


class _Stop(msgspec.Struct, frozen=True, rename="camel"):
    stop_reason: wire.StopReason
    meta: wire.TurnMeta | None = msgspec.field(name="_meta", default=None)


# --- wire → client ----------------------------------------------------------------------------------------------------


def messages_from(messages: Iterable[wire.HistoryMessage]) -> tuple[Message, ...]:
    """A history in the client's words."""
    names: dict[str, str] = {}
    return tuple(_message(each, names) for each in messages)


def _message(message: wire.HistoryMessage, names: dict[str, str]) -> Message:
    match message:
        case wire.SystemMessage(content=content):
            return Message(role="system", blocks=(Text(text=content),))
        case wire.UserMessage(content=content):
            return Message(role="user", blocks=tuple(map(_plain, _blocks(content))))
        case wire.AssistantMessage(content=content):
            return Message(role="assistant", blocks=tuple(_block(each, names) for each in _blocks(content)))
        case wire.ToolMessage(content=content):
            text, images = _told(content)
            call_id = message.tool_call_id
            result = ToolResult(call_id=call_id, name=names.get(call_id, ""), text=text, images=images)
            return Message(role="tool", blocks=(result,))
        case _ as never:
            assert_never(never)


def _block(block: wire.AnswerBlock, names: dict[str, str]) -> Block:
    if isinstance(block, wire.ToolUseBlock):
        names[block.tool_call_id] = block.name
        return _shown_call(block.tool_call_id, block.name, block.input)
    return _plain(block)


def _shown_call(call_id: str, name: str, arguments: JsonObject) -> "ToolCall | Question":
    return question_of(call_id, arguments) if name == ASK else ToolCall(id=call_id, name=name, arguments=arguments)


def _plain(block: wire.TextBlock | wire.ThinkingBlock | wire.ImageBlock) -> Text | Thinking | Image:
    match block:
        case wire.TextBlock(text=text):
            return Text(text=text)
        case wire.ThinkingBlock(thinking=thinking):
            return Thinking(text=thinking)
        case wire.ImageBlock(url=url):
            return Image(url=url)
        case _ as never:
            assert_never(never)


def _blocks(content: "str | tuple[Body, ...]") -> "tuple[Body | wire.TextBlock, ...]":
    return (wire.TextBlock(content),) if isinstance(content, str) else content


def _told(content: str | tuple[wire.InputBlock, ...]) -> tuple[str, tuple[str, ...]]:
    """A result's words, and its pictures."""
    if isinstance(content, str):
        return content, ()
    words = "".join(each.text for each in content if isinstance(each, wire.TextBlock))
    return words, tuple(each.url for each in content if isinstance(each, wire.ImageBlock))


def _agent(info: wire.AgentInfo) -> Agent:
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


def _info(info: wire.SessionInfo) -> SessionInfo:
    meta = info.meta
    own = [tool.name for tool in info.tools or ()]
    return SessionInfo(
        id=info.session_id,
        agent=info.agent.name,
        title=(meta.title or "") if meta else "",
        status=meta.status if meta else "",
        created_at=meta.created_at if meta else "",
        updated_at=meta.updated_at if meta else "",
        pending=tuple(
            pending_of(each.tool_call_id, each.name, each.input, own if each.kind == "client" else ())
            for each in (meta.pending if meta else ())
        ),
    )


# --- client → wire ----------------------------------------------------------------------------------------------------


def _specs(tools: Iterable[ToolSpec]) -> list[wire.ToolSpec]:
    return [
        wire.ToolSpec(name=each.name, title=each.title, description=each.description, parameters=each.parameters)
        for each in tools
    ]


def _messages(given: Given) -> Iterable[JsonObject]:
    if isinstance(given, Said):
        yield {"role": "user", "content": _content(given.text, given.images)}
        return
    for each in given:
        yield _answer(each)


def _answer(answer: Answer) -> JsonObject:
    match answer:
        case Result(call_id=call_id, text=text, images=images):
            return {"role": "tool", "toolCallId": call_id, "content": _content(text, images)}
        case Choice(call_id=call_id):
            return {"role": "tool", "toolCallId": call_id, "content": msgspec.json.encode(chosen_in(answer)).decode()}
        case Allow(call_id=call_id, always=always):
            if always:
                raise Unsupported("AAP allows a tool for good when the session is made: create(trust=[…])")
            return {"role": "tool_permission", "toolCallId": call_id, "granted": True}
        case Deny(call_id=call_id, reason=reason):
            why = {"reason": reason} if reason else {}
            return {"role": "tool_permission", "toolCallId": call_id, "granted": False, **why}
        case _ as never:
            assert_never(never)


def _content(text: str, images: Sequence[str]) -> str | list[wire.InputBlock]:
    if not images:
        return text
    words: list[wire.InputBlock] = [wire.TextBlock(text)] if text else []
    return [*words, *(wire.ImageBlock(url) for url in images)]


# --- small things -----------------------------------------------------------------------------------------------------


def _decoded(body: bytes, kind: type[Body]) -> Body:
    return decoded(body, kind, "AAP v3")


def _converted(fields: dict[str, object], kind: type[Body]) -> Body:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise Unreadable(f"an event of AAP v3 was expected: {error}") from error


def _text(fields: dict[str, object], name: str) -> str:
    text = fields.get(name)
    if not isinstance(text, str):
        raise Unreadable(f"an event with a text in {name!r} was expected, got {sorted(fields)}")
    return text


def _name_of(pending: Pending) -> str:
    return ASK if isinstance(pending, Question) else pending.name


def _part(text: str) -> str:
    return quote(text, safe="")
