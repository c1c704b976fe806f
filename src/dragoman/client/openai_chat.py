"""The client codec for Chat Completions. Pure: requests out, events in.

The protocol has neither sessions nor ids of runs: the client keeps the history and sends it with every message. What a
server executes itself is not shown, and a lost stream cannot be resumed.
"""

from collections.abc import Iterable, Mapping, Sequence
from uuid import uuid4

import msgspec

from dragoman.client.codec import (
    Request,
    SessionConfig,
    SessionHandle,
    TurnInput,
    TypedRequest,
    UserInput,
    require_unset,
)
from dragoman.client.decoding import decode_json, parse_arguments
from dragoman.client.errors import RequestRefused, Unsupported
from dragoman.client.events import (
    Agent,
    Answer,
    Block,
    ClientCall,
    Deny,
    Ended,
    Event,
    Image,
    Message,
    Result,
    SessionInfo,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from dragoman.client.openai import BASE, OpenAiCodec
from dragoman.client.openai_items import CANCELLED, to_problem
from dragoman.client.sse import Frame, FrameReader
from dragoman.core.answers import denied_result
from dragoman.core.content import Json, JsonObject

_FINISH_REASONS: Mapping[str, StopReason] = {"length": "max_tokens", "content_filter": "refusal"}
"""Stop reasons by `finish_reason`. All others mean the end of the turn, or calls if there are any."""


class _FunctionDelta(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(msgspec.Struct, frozen=True):
    index: int = 0
    id: str | None = None
    function: _FunctionDelta = _FunctionDelta()


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: tuple[_CallDelta, ...] | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Chunk(msgspec.Struct, frozen=True):
    """A chunk of a stream, or a whole completion."""

    id: str | None = None
    choices: tuple[_Choice, ...] | None = None
    usage: _Usage | None = None
    error: Json = None


class _OpenCall(msgspec.Struct):
    id: str
    name: str = ""
    arguments: str = ""


class OpenAiChatCodec:
    """The codec for a server that mounts the API at the path `base`."""

    needs_agents = False
    needs_all_answers = True

    def __init__(self, base: str = BASE) -> None:
        self._path = f"{base.rstrip('/')}/chat/completions"
        self._responses = OpenAiCodec(base)
        """What the two APIs have in common: models and errors."""

    def agents(self) -> TypedRequest[tuple[Agent, ...]]:
        """List the server's agents, or its models."""
        return self._responses.agents()

    def create(self, session_config: SessionConfig, idempotency_key: str) -> SessionHandle:
        """Make the handle of a new session, which only the client knows."""
        if not session_config.agent:
            raise Unsupported("Chat Completions has no default agent: name one, or a model, with create(agent=…)")
        advice = "Chat Completions cannot select or trust tools, or set options, a title or labels; AAP can"
        require_unset(session_config, "server_tools", "trusted_tools", "options", "title", "labels", advice=advice)
        return SessionHandle(
            id=str(uuid4()),
            agent=session_config.agent,
            tools=session_config.tools,
            messages=to_seed_messages(session_config.history),
        )

    def open(self, info: SessionInfo, session_config: SessionConfig) -> SessionHandle:
        """Make the handle of an existing session."""
        raise Unsupported("Chat Completions has no sessions to open; openai has, on servers that keep conversations")

    def session_info(self, handle: SessionHandle) -> SessionInfo:
        """Return what the client knows."""
        return SessionInfo(id=handle.id, agent=handle.agent, pending=handle.pending)

    def sessions(self, after: str) -> TypedRequest[tuple[tuple[SessionInfo, ...], str]]:
        """Fetch a page of the session list."""
        raise Unsupported("Chat Completions has no sessions; AAP can list them")

    def history(self, handle: SessionHandle) -> tuple[Message, ...]:
        """Return all messages: the client has them."""
        return tuple(map(_to_message, handle.messages))

    def delete(self, handle: SessionHandle) -> TypedRequest[None]:
        """Delete the session and everything in it."""
        raise Unsupported("Chat Completions keeps nothing on the server, so there is nothing to delete")

    def stop(self, handle: SessionHandle) -> TypedRequest[bool]:
        """Stop the current run."""
        raise Unsupported("Chat Completions cannot stop a run: leave it, which closes the connection")

    def turn(self, handle: SessionHandle, turn_input: TurnInput, idempotency_key: str) -> "OpenAiChatTurn":
        """Start a turn."""
        sent = _to_input(handle, turn_input)
        body: JsonObject = {
            "model": handle.agent,
            "messages": [*handle.messages, *sent],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
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
        headers = {"Content-Type": "application/json"}
        request = Request(method="POST", path=self._path, body=msgspec.json.encode(body), headers=headers)
        return OpenAiChatTurn(handle, request, sent)

    def resume(self, handle: SessionHandle) -> "OpenAiChatTurn":
        """Read the newest turn from its start."""
        raise Unsupported("Chat Completions cannot resume a run; openai can, on servers that keep conversations")

    def idempotency_probe(self, handle: SessionHandle) -> TypedRequest[bool]:
        """Find out whether a request may be sent again: never, but the models show whether the server is there."""
        models = self._responses.agents()
        return TypedRequest(models.request, lambda _: False)

    def decode_refusal(self, status: int, headers: Mapping[str, str], body: bytes) -> RequestRefused:
        """Decode an error response."""
        return self._responses.decode_refusal(status, headers, body)


def to_seed_messages(history: Iterable[Message]) -> list[JsonObject]:
    """A history in the form of the API."""
    return [wire for each in history for wire in _to_wire_messages(each)]


class OpenAiChatTurn:
    """A completion: chunks, of which the last is followed by `[DONE]`."""

    def __init__(self, handle: SessionHandle, request: Request, sent: Sequence[JsonObject]) -> None:
        self.is_over = False
        self.request = request
        self.can_resume = True
        """Until the first chunk."""
        self._handle = handle
        self._sent = sent
        self._run_id = ""
        self._text: list[str] = []
        self._calls: dict[int, _OpenCall] = {}
        self._finish_reason = ""
        self._usage: Usage | None = None

    def feed_body(self, body: bytes) -> Sequence[Event]:
        """Decode a completion that is not a stream, or a stream that the server did not declare as one."""
        if body.lstrip()[:1] != b"{":
            return [event for frame in FrameReader().feed(body) for event in self.feed(frame)]
        completion = decode_json(body, _Chunk, "a completion")
        if not completion.choices and completion.error is None:
            return ()
        return (*self._on_chunk(completion), *self._end())

    def feed(self, frame: Frame) -> Sequence[Event]:
        """Decode one frame of the stream."""
        if frame.data == b"[DONE]":
            return self._end()
        return self._on_chunk(decode_json(frame.data, _Chunk, "a chunk of a completion"))

    def _on_chunk(self, chunk: _Chunk) -> Sequence[Event]:
        self.can_resume = False
        if self.is_over:
            return ()
        if chunk.id and not self._run_id:
            self._run_id = self._handle.run_id = chunk.id
            self._handle.pending = ()
            self._handle.messages += self._sent
        if chunk.error is not None:
            self.is_over = True
            self._record()
            return (Ended(reason="error", run_id=self._run_id, usage=self._usage, problem=to_problem(chunk.error)),)
        if chunk.usage is not None:
            self._usage = Usage(chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
        events: list[Event] = []
        for choice in (chunk.choices or ())[:1]:
            self._finish_reason = choice.finish_reason or self._finish_reason
            delta = choice.delta or choice.message or _Delta()
            if thinking := delta.reasoning_content or delta.reasoning:
                events.append(Thinking(text=thinking))
            if text := delta.content or delta.refusal:
                self._text.append(text)
                events.append(Text(text=text))
            for each in delta.tool_calls or ():
                self._on_call(each)
        return events

    def _on_call(self, delta: _CallDelta) -> None:
        call = self._calls.setdefault(delta.index, _OpenCall(delta.id or uuid4().hex))
        call.name += delta.function.name or ""
        call.arguments += delta.function.arguments or ""

    def _end(self) -> Sequence[Event]:
        if self.is_over:
            return ()
        self.is_over = True
        self._record()
        calls = [
            ClientCall(call_id=each.id, name=each.name, arguments=parse_arguments(each.arguments))
            for each in self._calls.values()
        ]
        reason: StopReason = _FINISH_REASONS.get(self._finish_reason, "tool_use" if calls else "end_turn")
        pending = tuple(calls) if reason == "tool_use" else ()
        self._handle.pending = pending
        self._handle.tool_names |= {each.call_id: each.name for each in calls}
        return (
            *(ToolCall(id=each.call_id, name=each.name, arguments=each.arguments) for each in calls),
            Ended(reason=reason, run_id=self._run_id, usage=self._usage, pending=pending),
        )

    def _record(self) -> None:
        """Remember the answer for the next request."""
        message: JsonObject = {"role": "assistant", "content": "".join(self._text) or None}
        if self._calls:
            message["tool_calls"] = [_wire_call(each.id, each.name, each.arguments) for each in self._calls.values()]
        if self._text or self._calls:
            self._handle.messages.append(message)


# --- client → wire ----------------------------------------------------------------------------------------------------


def _to_input(handle: SessionHandle, turn_input: TurnInput) -> list[JsonObject]:
    if isinstance(turn_input, UserInput):
        closed = [_tool_message(each.call_id, CANCELLED) for each in handle.pending]
        return [*closed, {"role": "user", "content": _to_content(turn_input.text, turn_input.images)}]
    return [_tool_message(each.call_id, _answer_text(each)) for each in turn_input]


def _answer_text(answer: Answer) -> str:
    match answer:
        case Result(text=text, images=()):
            return text
        case Result():
            raise Unsupported("Chat Completions accepts text as a tool's result, but no images")
        case Deny(reason=reason):
            return denied_result(reason or None)
        case _:
            raise Unsupported("over Chat Completions, only calls of client tools can be answered")


def _tool_message(call_id: str, text: str) -> JsonObject:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _wire_call(call_id: str, name: str, arguments: str) -> JsonObject:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments or "{}"}}


def _to_content(text: str, images: Sequence[str]) -> str | list[JsonObject]:
    if not images:
        return text
    parts: list[JsonObject] = [{"type": "image_url", "image_url": {"url": url}} for url in images]
    return [{"type": "text", "text": text}, *parts] if text else parts


def _to_wire_messages(message: Message) -> list[JsonObject]:
    """A message of a history. Reasoning, questions and what a crash cut off stay out."""
    text = "".join(each.text for each in message.blocks if isinstance(each, Text))
    images = [each.url for each in message.blocks if isinstance(each, Image)]
    results = [_tool_message(each.call_id, each.text) for each in message.blocks if isinstance(each, ToolResult)]
    calls = [
        _wire_call(each.id, each.name, msgspec.json.encode(each.arguments).decode())
        for each in message.blocks
        if isinstance(each, ToolCall)
    ]
    if message.cut:
        return []
    if message.role == "assistant":
        said: JsonObject = {"role": "assistant", "content": text or None}
        return [{**said, "tool_calls": calls} if calls else said] if text or calls else []
    if message.role in ("user", "system") and (text or images):
        return [{"role": message.role, "content": _to_content(text, images)}]
    return results


def _to_message(wire: JsonObject) -> Message:
    role, content = wire["role"], wire["content"]
    if role == "tool":
        return Message(role="tool", blocks=(ToolResult(call_id=wire["tool_call_id"], name="", text=content),))
    parts: Sequence[JsonObject] = [{"type": "text", "text": content}] if isinstance(content, str) else content or ()
    blocks: list[Block] = [
        Text(text=each["text"]) if each["type"] == "text" else Image(url=each["image_url"]["url"]) for each in parts
    ]
    for call in wire.get("tool_calls") or ():
        function = call["function"]
        blocks.append(ToolCall(id=call["id"], name=function["name"], arguments=parse_arguments(function["arguments"])))
    return Message(role=role, blocks=tuple(blocks))
