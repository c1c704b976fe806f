"""Translation between AAP and the core, in both directions. Pure.

An AAP turn is a run, an AAP history message a message. What AAP cannot express is left out: plans, cards, and the loops
of sub-agents except for their calls that wait (`flat_calls`). A data block of an answer becomes its JSON as text, and a
file a note with its name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import assert_never

import msgspec

from dragoman.core import content as core
from dragoman.core.answers import compact_json
from dragoman.core.events import (
    BlockClosed,
    CallOpened,
    CallSettled,
    LoggedEvent,
    MessageClosed,
    MessageOpened,
    RunStarted,
    RunStopped,
    SessionSettings,
    SettingsChange,
)
from dragoman.core.events import StopReason as CoreStop
from dragoman.core.flat_calls import FLAT_EVENTS, FlatCalls
from dragoman.core.history import Assembler, is_empty, messages_of
from dragoman.core.ids import ROOT, CallId, MessageId, RunId
from dragoman.core.inputs import Answer, Create, Decision, Result, Submit, UserInput
from dragoman.core.json_memory import JsonEncoder
from dragoman.core.open_calls import OpenCall, OpenCalls
from dragoman.core.refusals import AgentNotChangeable, ImageUnsupported, Invalid, SessionNotFound
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.session import SessionState
from dragoman.core.stream import Piece, Record
from dragoman.core.tools import AgentSpec, Option, SecretOption, SelectOption, ToolGrant
from dragoman.core.tools import ToolSpec as CoreToolSpec
from dragoman.protocols.aap import wire
from dragoman.protocols.kit.frames import KEEP_ALIVE, RESUMABLE, encode_json, escape_line_separators

PROTOCOL = "aap"
REDACTED = "***"

STOP_REASONS: Mapping[CoreStop, wire.StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "max_steps": "error",
    "cancelled": "error",
    "error": "error",
    "interrupted": "error",
}
INCOMPLETE_MARKS: Mapping[core.MessageStatus, wire.MessageMeta] = {
    "interrupted": wire.MessageMeta(interrupted=True),
    "cut": wire.MessageMeta(interrupted=True, cut=True),
}

# --- wire → core --------------------------------------------------------------------------------------------------


def create_from(body: wire.PostSessions, new_id: Callable[[], str]) -> Create:
    """Translate the body of a new session."""
    names = body.meta or wire.SessionNames()
    return Create(
        protocol=PROTOCOL,
        agent=body.agent.name,
        tools=names.tools or _grants_from(body.agent.tools),
        options=body.agent.options or {},
        client_tools=_tools_from(body.tools) or (),
        seeds=tuple(message_from(message, new_id) for message in body.messages or ()),
        labels=names.labels or {},
        change=SettingsChange(title=(names.title or "").strip() or None),
    )


def submit_from(body: wire.PostTurn, agent: str) -> Submit:
    """Translate the body of a turn.

    Raises:
        Invalid: an answer follows a user message.
        ImageUnsupported: an image has an `http://` URL.
        AgentNotChangeable: the turn names another agent.
    """
    override = body.agent or wire.AgentOverride()
    if override.name is not None and override.name != agent:
        raise AgentNotChangeable(f"this session's agent is {agent!r} and cannot change")
    answers: list[Answer] = []
    messages: list[UserInput] = []
    for index, message in enumerate(body.messages):
        if isinstance(message, wire.UserMessage):
            messages.append(UserInput(content=_content_from(message.content)))
            continue
        if messages:
            raise Invalid("answers come before user messages", path=f"messages[{index}]")
        call_id = CallId(message.tool_call_id)
        if isinstance(message, wire.ToolMessage):
            answers.append(Result(call_id=call_id, content=_content_from(message.content)))
        else:
            answers.append(Decision(call_id=call_id, granted=message.granted, reason=message.reason))
    return Submit(
        protocol=PROTOCOL,
        messages=tuple(messages),
        answers=tuple(answers),
        change=SettingsChange(
            tools=_grants_from(override.tools),
            options=dict(override.options or {}),
            client_tools=_tools_from(body.tools),
        ),
        requires_all_answers=True,
        metadata=RunMetadata(protocol={"stream": body.stream or "none"}),
    )


def message_from(message: wire.HistoryMessage, new_id: Callable[[], str]) -> core.Message:
    """Translate a history message. It gets a new id, because AAP's messages have none."""
    message_id = MessageId(new_id())
    match message:
        case wire.SystemMessage(content=content):
            return core.SystemMessage(id=message_id, content=content)
        case wire.UserMessage(content=content):
            return core.UserMessage(id=message_id, content=_content_from(content))
        case wire.AssistantMessage(content=content):
            blocks = (core.Text(content),) if isinstance(content, str) else tuple(map(_block_from, content))
            return core.AssistantMessage(id=message_id, content=blocks)
        case wire.ToolMessage(content=content):
            return core.ToolMessage(
                id=message_id, call_id=CallId(message.tool_call_id), name="", content=_content_from(content)
            )
        case _ as never:
            assert_never(never)


def _grants_from(refs: Sequence[wire.ServerToolRef] | None) -> tuple[ToolGrant, ...] | None:
    return None if refs is None else tuple(ToolGrant(ref.name, bool(ref.trust)) for ref in refs)


def _tools_from(tools: Sequence[wire.ToolSpec] | None) -> tuple[CoreToolSpec, ...] | None:
    if tools is None:
        return None
    return tuple(
        CoreToolSpec(name=tool.name, title=tool.title, description=tool.description, parameters=tool.parameters)
        for tool in tools
    )


def _content_from(content: str | tuple[wire.InputBlock, ...]) -> str | tuple[core.InputBlock, ...]:
    if isinstance(content, str):
        return content
    return tuple(core.Text(each.text) if isinstance(each, wire.TextBlock) else _image_from(each) for each in content)


def _image_from(block: wire.ImageBlock) -> core.Image:
    """Translate an image. AAP has no `http://` URLs; the core checks everything else about it."""
    if block.url[:7].lower() == "http://":
        raise ImageUnsupported("expected an image's URL with https, or a base64 data: URI of an image")
    return core.Image(block.url)


def _block_from(block: wire.AnswerBlock) -> core.Block:
    match block:
        case wire.TextBlock(text=text):
            return core.Text(text)
        case wire.ThinkingBlock(thinking=thinking):
            return core.Thinking(thinking)
        case wire.ToolUseBlock(tool_call_id=call_id, name=name):
            return core.Call(CallId(call_id), name, block.input)
        case wire.ImageBlock():
            return _image_from(block)
        case _ as never:
            assert_never(never)


# --- core → wire --------------------------------------------------------------------------------------------------


def agent_info(spec: AgentSpec) -> wire.AgentInfo:
    """Translate an agent for `/meta`. Only exposed tools are listed."""
    meta = wire.AgentMeta(starters=spec.starters, model=spec.model, embedded_model=spec.uses_embedded_model)
    return wire.AgentInfo(
        name=spec.name,
        title=spec.title,
        version=spec.version,
        description=spec.description,
        tools=tuple(_tool_to(tool.spec) for tool in spec.exposed()) or None,
        options=tuple(map(_option_to, spec.options)) or None,
        capabilities=_capabilities(spec),
        meta=meta if spec.starters or spec.model else None,
    )


def _option_to(option: Option) -> wire.AgentOption:
    is_secret = isinstance(option, SecretOption)
    choices = option.options if isinstance(option, SelectOption) else None
    return wire.AgentOption(
        type="secret" if is_secret else "text" if choices is None else "select",
        name=option.name,
        title=option.title,
        description=option.description,
        options=choices,
        default=REDACTED if is_secret and option.default else option.default,
    )


def _capabilities(spec: AgentSpec) -> wire.Capabilities:
    has = spec.capabilities
    return wire.Capabilities(
        history=_present(compacted=has.history_compacted, full=has.history_full) or None,
        stream=_present(**{mode: mode in has.stream_modes for mode in ("delta", "message", "none")}),
        application=_present(tools=has.client_tools) or None,
        image=_present(http=has.image_http, data=has.image_data) or None,
    )


def _present(**flags: bool) -> wire.PresenceFlags:
    return {name: {} for name, is_present in flags.items() if is_present}


def _tool_to(spec: CoreToolSpec) -> wire.ToolSpec:
    return wire.ToolSpec(name=spec.name, title=spec.title, description=spec.description, parameters=spec.parameters)


def session_info(state: SessionState, spec: AgentSpec | None) -> wire.SessionInfo:
    """Translate a session, with secrets redacted. `spec` is its agent's, if the agent is still served."""
    settings = state.settings
    return wire.SessionInfo(
        session_id=state.session_id,
        agent=wire.SessionAgent(
            name=state.agent,
            tools=_server_tools_in_force(settings, spec),
            options={
                name: value if isinstance(value, str) else REDACTED if value.length else ""
                for name, value in settings.options.items()
            }
            or None,
        ),
        tools=tuple(map(_tool_to, settings.client_tools)) or None,
        meta=wire.SessionMeta(
            created_at=_format_time(state.created_at),
            updated_at=_format_time(state.updated_at),
            status=state.status(),
            pending=() if state.run is not None else tuple(map(_pending_call, state.waiting_calls())),
            title=state.title() or None,
            labels=settings.labels or None,
        ),
    )


def _pending_call(call: OpenCall) -> wire.PendingCall:
    asked = call.shown()
    return wire.PendingCall(
        tool_call_id=asked.call_id, name=asked.name, input=asked.input, kind=call.waits_for, repeat=call.is_repeat
    )


def _server_tools_in_force(settings: SessionSettings, spec: AgentSpec | None) -> tuple[wire.ServerToolInfo, ...] | None:
    """The enabled tools. Sessions of other protocols enable `all`, which is shown as the full list."""
    if settings.tools is None:
        return None
    if settings.tools == "all":
        exposed = spec.exposed() if spec is not None else ()
        asked = {tool.spec.name for tool in exposed if tool.policy.needs_approval} - set(settings.trusted_tools)
        return tuple(wire.ServerToolInfo(name=tool.spec.name, trust=tool.spec.name not in asked) for tool in exposed)
    return tuple(wire.ServerToolInfo(name=grant.name, trust=grant.trust) for grant in settings.tools)


def _format_time(at: object) -> str:
    return msgspec.to_builtins(at)  # type: ignore[no-any-return]  # a datetime becomes RFC 3339 with Z


def message_to(message: core.Message) -> wire.HistoryMessage | None:
    """Translate a message of the root loop. None if AAP cannot express it."""
    match message:
        case core.SystemMessage(content=content, origin=origin):
            return wire.SystemMessage(content) if origin == "seed" else None
        case core.UserMessage(content=content):
            return wire.UserMessage(_content_to(content))
        case core.AssistantMessage():
            mark = INCOMPLETE_MARKS.get(message.status)
            return None if is_empty(message) else wire.AssistantMessage(_blocks_to(message), mark)
        case core.ToolMessage(call_id=call_id, content=content):
            return wire.ToolMessage(call_id, _content_to(content))
        case _ as never:
            assert_never(never)


def history_of(messages: Iterable[core.Message]) -> tuple[wire.HistoryMessage, ...]:
    """Translate the messages of the root loop, in order."""
    shown = (message_to(message) for message in messages if message.loop == ROOT)
    return tuple(message for message in shown if message is not None)


def _blocks_to(message: core.AssistantMessage) -> tuple[wire.AnswerBlock, ...]:
    return tuple(map(_block_to, core.blocks_of(message.content)))


def _block_to(block: core.Block) -> wire.AnswerBlock:
    match block:
        case core.Thinking(text=text):
            return wire.ThinkingBlock(text)
        case core.Call(call_id=call_id, name=name):
            return wire.ToolUseBlock(call_id, name, block.input)
        case _:
            return _input_block_to(block)


def _content_to(content: str | tuple[core.InputBlock, ...]) -> str | tuple[wire.InputBlock, ...]:
    return content if isinstance(content, str) else tuple(map(_input_block_to, content))


def _input_block_to(block: core.InputBlock) -> wire.InputBlock:
    match block:
        case core.Text(text=text):
            return wire.TextBlock(text)
        case core.Image(url=url):
            return wire.ImageBlock(url)
        case core.Data() | core.File():
            return wire.TextBlock(_text_of(block))
        case _ as never:
            assert_never(never)


def _text_of(block: core.Data | core.File) -> str:
    """The text in place of a block that AAP cannot represent."""
    return compact_json(block.data) if isinstance(block, core.Data) else f"[file {block.name or block.url[:80]}]"


# --- the stream of a turn -----------------------------------------------------------------------------------------

MESSAGE_CUT = b"message_cut"
"""Our extension: the event after a message that a crash cut off. Clients that do not know it begin a new block."""

PARAGRAPH = "\n\n"
_ENCODE = JsonEncoder().encode
_EVENTS = frozenset({BlockClosed, RunStarted, CallOpened, CallSettled, RunStopped})
"""The events that frames are made of."""


class TurnFrames:
    """Encodes the records of one run as SSE frames, numbered from 1 (section 17).

    The same records always give the same frames with the same numbers, live and in every replay.

    Args:
        run_id: the run.
        mode: `delta`; anything else is `message`.
        prefix: precedes the number in `id:` lines.
        skip: how many frames the client has seen; they are counted and not encoded.
    """

    __slots__ = ("_blocks", "_calls", "_is_after_data", "_is_delta", "_prefix", "_run_id", "_skip", "count", "is_over")

    keep_alive = KEEP_ALIVE

    def __init__(self, run_id: RunId, mode: wire.StreamMode, *, prefix: str = "", skip: int = 0) -> None:
        self._run_id = run_id
        self._calls = FlatCalls()
        self._is_delta = mode == "delta"
        self._prefix = prefix.encode()
        self._skip = skip
        self._blocks: list[LoggedEvent] = []
        """The beginning of the open message, and the blocks since."""
        self._is_after_data = False
        """Whether the next text of the open message follows a data block, in delta mode."""
        self.count = 0
        """The number of frames so far, including skipped ones."""
        self.is_over = False
        """Whether the last frame was `turn_stop`."""

    def feed(self, record: Record) -> bytes:
        """Return the frame of a record, if it has one."""
        if type(record) is Piece:
            if not self._is_delta or record.loop != ROOT:
                return b""
            if self._is_after_data and record.kind == "text":
                self._is_after_data = False
                return self._frame(b"text_delta", _ENCODE({"delta": PARAGRAPH + record.text}))
            self.count = number = self.count + 1
            return b"" if number <= self._skip else _newest_frame.of(record, self._prefix, number)
        event = record.event
        if type(event) is BlockClosed:
            self._blocks.append(record)
        elif type(event) is MessageOpened:
            if event.loop == ROOT:
                self._blocks, self._is_after_data = [record], False
            return b""
        elif type(event) is MessageClosed and event.status == "cut" and event.loop == ROOT:
            return self._cut(record)
        elif type(event) not in FLAT_EVENTS:
            return b""
        shown = self._calls.feed(record)
        return self._event(shown[0]) if len(shown) == 1 else b"".join(map(self._event, shown))

    def _cut(self, closed: LoggedEvent) -> bytes:
        """The frame of the open message, which a crash cut off. Nobody saw it if it is empty."""
        cut = [each for each in messages_of([*self._blocks, closed]) if isinstance(each, core.AssistantMessage)]
        return self._frame(MESSAGE_CUT, _ENCODE(wire.MessageCut(_blocks_to(cut[0])))) if cut else b""

    def close(self, error: Exception) -> bytes:
        """End the stream early. A turn that continues gets no last frame: the client resumes from its last id."""
        if self.is_over or isinstance(error, RESUMABLE):
            return b""
        return self._stop("error", _broken_meta(error))

    def _event(self, logged: LoggedEvent) -> bytes:
        if type(logged.event) not in _EVENTS:
            return b""
        match logged.event:
            case BlockClosed(loop=loop, block=block):
                return self._block(block) if loop == ROOT else b""
            case RunStarted(run_id=run_id) if run_id == self._run_id:
                return self._frame(b"turn_start", b'{"_meta":{"turnId":%b}}' % _ENCODE(run_id))
            case CallOpened(loop="root", call=call):
                return self._call(call)
            case CallSettled(result=result):
                is_shown = not logged.event.by_client and result.loop == ROOT and logged.run_id == self._run_id
                return self._result(result) if is_shown else b""
            case RunStopped(run_id=run_id) as stopped if run_id == self._run_id:
                asked = _calls_of_earlier_runs(stopped, self._calls.open_calls)
                end = STOP_REASONS[stopped.reason], _end_meta(stopped, self._calls.open_calls)
                return b"".join((*map(self._call, asked), self._stop(*end)))
            case _:
                return b""

    def _block(self, block: core.Block) -> bytes:
        """The frame of a block of the answer. In delta mode text and thinking were sent as they came."""
        if isinstance(block, core.Data | core.File):
            return self._data(_text_of(block))
        if self._is_delta or not isinstance(block, core.Text | core.Thinking) or not block.text:
            return b""
        name = "text" if isinstance(block, core.Text) else "thinking"
        return self._frame(name.encode(), _ENCODE({name: block.text}))

    def _data(self, text: str) -> bytes:
        """The frame of a data block or a file. Deltas have no blocks: a paragraph separates it from other text."""
        if not self._is_delta:
            return self._frame(b"text", _ENCODE({"text": text}))
        *before, _ = (each.event for each in self._blocks)
        follows_text = any(isinstance(each, BlockClosed) and _is_text_of_root(each) for each in before)
        self._is_after_data = True
        return self._frame(b"text_delta", _ENCODE({"delta": PARAGRAPH * follows_text + text}))

    def _call(self, call: core.Call) -> bytes:
        fields = {"toolCallId": call.call_id, "name": call.name, "input": call.input}
        return self._frame(b"tool_call", _ENCODE(fields))

    def _result(self, result: core.ToolMessage) -> bytes:
        fields = {"toolCallId": result.call_id, "content": _content_to(result.content)}
        return self._frame(b"tool_result", _ENCODE(fields))

    def _stop(self, reason: wire.StopReason, meta: wire.TurnMeta) -> bytes:
        self.is_over = True
        return self._frame(b"turn_stop", _ENCODE({"stopReason": reason, "_meta": meta}))

    def _frame(self, name: bytes, data: bytes) -> bytes:
        self.count += 1
        if self.count <= self._skip:
            return b""
        data = escape_line_separators(data)
        return b"id: %b%d\nevent: %b\ndata: %b\n\n" % (self._prefix, self.count, name, data)


def _is_text_of_root(closed: BlockClosed) -> bool:
    is_text = isinstance(closed.block, core.Data | core.File) or (
        isinstance(closed.block, core.Text) and closed.block.text
    )
    return closed.loop == ROOT and bool(is_text)


class _NewestFrame:
    """The newest frame of a piece. The readers of a session need it one after the other."""

    __slots__ = ("_frame", "_number", "_piece", "_prefix")

    def __init__(self) -> None:
        self._piece: Piece | None = None
        self._prefix = self._frame = b""
        self._number = 0

    def of(self, piece: Piece, prefix: bytes, number: int) -> bytes:
        """The frame of a piece in delta mode."""
        if self._piece is not piece or self._number != number or self._prefix != prefix:
            name = b"text_delta" if piece.kind == "text" else b"thinking_delta"
            delta = encode_json(piece.text)
            self._frame = b'id: %b%d\nevent: %b\ndata: {"delta":%b}\n\n' % (prefix, number, name, delta)
            self._piece, self._prefix, self._number = piece, prefix, number
        return self._frame


_newest_frame = _NewestFrame()


class TurnSummary:
    """Builds the response of `none` mode from the records of one run."""

    keep_alive = b""

    def __init__(self, run_id: RunId) -> None:
        self._run_id = run_id
        self._calls = FlatCalls()
        self._assembler = Assembler()
        self._messages: list[core.Message] = []
        self.answer: wire.TurnResponse | None = None
        """The response, once the run is over."""

    @property
    def is_over(self) -> bool:
        """Whether the answer is complete."""
        return self.answer is not None

    def feed(self, record: Record) -> bytes:
        """Take the next record. There are no frames."""
        if not isinstance(record, LoggedEvent) or record.run_id != self._run_id:
            return b""
        for logged in self._calls.feed(record):
            message = self._assembler.feed(logged)
            if isinstance(message, core.AssistantMessage):
                self._messages.append(message)
            elif isinstance(logged.event, CallSettled) and not logged.event.by_client:
                self._messages.append(logged.event.result)
            elif isinstance(logged.event, RunStopped) and logged.event.run_id == self._run_id:
                if asked := _calls_of_earlier_runs(logged.event, self._calls.open_calls):
                    self._messages.append(core.AssistantMessage(id=MessageId(asked[0].call_id), content=asked))
                end_meta = _end_meta(logged.event, self._calls.open_calls, self._run_id)
                self._finish(STOP_REASONS[logged.event.reason], end_meta)
        return b""

    def close(self, error: Exception) -> bytes:
        """End with what there is."""
        self._finish("error", msgspec.structs.replace(_broken_meta(error), turn_id=self._run_id))
        return b""

    def _finish(self, reason: wire.StopReason, meta: wire.TurnMeta) -> None:
        shown = history_of(self._messages)
        messages = tuple(each for each in shown if isinstance(each, wire.AssistantMessage | wire.ToolMessage))
        self.answer = wire.TurnResponse(stop_reason=reason, messages=messages, meta=meta)


def _calls_of_earlier_runs(stopped: RunStopped, calls: OpenCalls) -> tuple[core.Call, ...]:
    """What waits again although an earlier run made it. Clients answer the calls that the run shows."""
    waits = stopped.reason == "tool_use"
    return tuple(each.call for each in calls.values() if each.is_of_earlier_run) if waits else ()


def _pending_calls(calls: OpenCalls) -> tuple[wire.PendingCall, ...]:
    """What waits for something else than its `tool_call` says: tools that ask while they run, and repetitions."""
    return tuple(
        _pending_call(each)
        for each in calls.values()
        if each.is_repeat or (each.keeps_answer and each.waits_for != "permission")
    )


def _calls_not_waiting(calls: OpenCalls) -> tuple[CallId, ...]:
    """The calls that the agent runs without an answer, once those that wait in the same step are answered."""
    return tuple(each.call.call_id for each in calls.values() if each.recorded and not each.is_waiting())


def _end_meta(stopped: RunStopped, calls: OpenCalls, run_id: RunId | None = None) -> wire.TurnMeta:
    usage = stopped.usage
    error = None
    if STOP_REASONS[stopped.reason] == "error":
        code = stopped.code or stopped.reason
        error = wire.Problem(code=code, message=stopped.message or "The turn failed")
    return wire.TurnMeta(
        turn_id=run_id,
        usage=wire.Usage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens),
        error=error,
        pending=_pending_calls(calls) if stopped.reason == "tool_use" else (),
        not_waiting=_calls_not_waiting(calls) if stopped.reason == "tool_use" else (),
    )


def _broken_meta(error: Exception) -> wire.TurnMeta:
    """Why a turn ends without an end in the log."""
    if isinstance(error, SessionNotFound):
        return wire.TurnMeta(error=wire.Problem(code="session_deleted", message="The session was deleted"))
    return wire.TurnMeta(error=wire.Problem(code="internal", message="The server failed"))
