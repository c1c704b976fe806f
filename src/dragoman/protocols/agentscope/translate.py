"""Translates the records of a run to the events of its response.

Pure: the same records always give the same events with the same numbers.

    response   created ─► in_progress ─► completed | failed | canceled
    message    created ─► in_progress ─► completed | failed | canceled      several for each model step
    content    in_progress … ─► completed | failed | canceled               one after the other within its message

A model step becomes several messages: one for adjacent text and media, one for thinking, one for each call. The end of
a message is sent with the record after it, because only that record shows whether the text was cut off (section 4) and
why the run ended. Sequence numbers count the events from 0.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, TypeVar

import msgspec

from dragoman.core import content as core
from dragoman.core.answers import compact_json
from dragoman.core.content import JsonObject, MessageStatus
from dragoman.core.events import (
    BlockClosed,
    CallKind,
    CallOpened,
    CallParked,
    CallSettled,
    LoggedEvent,
    MessageClosed,
    PlanUpdated,
    RunStarted,
    RunStopped,
    StopReason,
)
from dragoman.core.ids import ROOT, CallId, RunId, SessionId, parse_session_id
from dragoman.core.open_calls import asking_call
from dragoman.core.question_text import repeat_question
from dragoman.core.refusals import SessionNotFound, Unauthenticated
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.stream import Piece, Record
from dragoman.core.tools import WRITE_MEMORY
from dragoman.protocols.agentscope import errors, wire
from dragoman.protocols.agentscope.inputs import MESSAGE_ID_PREFIX, PROTOCOL, ResponseOptions, read_response_options
from dragoman.protocols.kit.frames import KEEP_ALIVE, RESUMABLE, encode_json

EndStatus = Literal["completed", "failed", "canceled"]

RUN_END_STATUS: Mapping[StopReason, EndStatus] = {
    "end_turn": "completed",
    "tool_use": "completed",
    "max_tokens": "completed",
    "refusal": "completed",
    "max_steps": "failed",
    "cancelled": "canceled",
    "error": "failed",
    "interrupted": "failed",
}
"""Shared rules, 24."""
FINISH_REASONS: Mapping[StopReason, str] = {"max_tokens": "length", "refusal": "content_filter"}
MESSAGE_END_STATUS: Mapping[MessageStatus, EndStatus] = {
    "completed": "completed",
    "interrupted": "canceled",
    "failed": "failed",
    "cut": "failed",
}
AGENT_SERVER = "agent"
"""The server label of an agent's own tool: the field cannot be empty."""
COMPONENT_TOOLS = frozenset({WRITE_MEMORY})
"""The built-in tools of the server."""
TEXT_TYPES = ("message", "reasoning")
WAITING_KINDS: frozenset[CallKind] = frozenset({"client", "permission", "question"})
_CUT_ERROR = wire.Error("INTERRUPTED", "The server restarted")
_DELETED_ERROR = wire.Error("SESSION_DELETED", "The session was deleted")
_INTERNAL_ERROR = wire.Error("INTERNAL_ERROR", "The server failed")
_EventT = TypeVar("_EventT", wire.AgentResponse, wire.Message, wire.Content)
_TEMPLATE_PREFIX_LENGTH = len(b'{"sequence_number":null')
_TEMPLATE_SUFFIX_LENGTH = len(b'""}')


class _OpenMessage(msgspec.Struct):
    """The message that is being sent."""

    id: str
    type: str
    step: str
    """The core's id of the model step that the message is part of."""
    contents: list[wire.Content] = []
    block_index: int = -1
    """The core's index of the block whose content is open; -1 if none is."""
    pieces: list[str] = []
    """The text of that block so far, if it is streamed."""
    text: str | None = None
    """The whole text of a content whose end is sent with the next record."""
    usage: dict[str, int] | None = None


# Large: any record may change the open message, the output and the numbering together.
class ResponseEvents:
    """Encodes the records of one run as frames, beginning with the run's first record.

    Args:
        agent: the name of the session's agent.
        earlier: the calls that were open when the run began. Each is sent in front of its result.
        skip: how many events the reader already has.
    """

    def __init__(
        self,
        run_id: RunId,
        session_id: SessionId,
        agent: str,
        *,
        earlier: Mapping[CallId, CallOpened] | None = None,
        skip: int = 0,
    ) -> None:
        self.response: wire.AgentResponse | None = None
        """The latest state of the response; None before the run has started."""
        self.options = ResponseOptions()
        self.started_at: datetime | None = None
        self.count = 0
        """The number of events so far, which is the next event's sequence number."""
        self.is_over = False
        self.is_timed_out = False
        """Whether the run was a task that was stopped at its deadline."""
        self._run_id = run_id
        self._session_id = session_id
        self._agent = agent
        self._skip = skip
        self._at = datetime.fromtimestamp(0, UTC)
        """The time of the latest event."""
        self._frames: list[bytes] = []
        self._calls = dict(earlier or {})
        self._announced_calls: set[CallId] = set()
        """Calls that were sent as a call; an approval request does not count."""
        self._output: dict[str, wire.Message | None] = {}
        """The messages by id, in the order of their first events; None while a message is open."""
        self._open: _OpenMessage | None = None
        self._is_end_pending = False
        """The open message's step is over; the next record decides how the message ended."""
        self._piece_head = b""
        """The part of the frames of a streamed block between the sequence number and the text."""

    # --- records --------------------------------------------------------------------------------------------------

    def feed(self, record: Record) -> bytes:
        """Encode the next record as frames; empty if the client is not sent anything for it."""
        if isinstance(record, Piece):
            opened = self._open
            if opened is None or opened.block_index != record.index or opened.step != record.message_id:
                return self._begin_block(record)
            opened.pieces.append(record.text)
            number = self.count
            self.count = number + 1
            if number < self._skip:
                return b""
            text = encode_json(record.text)
            return b'id: %d\ndata: {"sequence_number":%d%b%b}\n\n' % (number, number, self._piece_head, text)
        if self.response is None and not isinstance(record.event, RunStarted):
            return b""  # the run is queued after another one
        if self._is_end_pending and not isinstance(record.event, RunStopped):
            self._finish_message()
        self._event(record)
        return self._take_frames()

    def _event(self, logged: LoggedEvent) -> None:
        self._at = logged.at
        match logged.event:
            case RunStarted(run_id=run_id) as started if run_id == self._run_id:
                self._begin_response(started)
            case BlockClosed(loop="root") as closed:
                self._close_block(closed)
            case CallOpened() as opened:
                self._open_call(opened)
            case MessageClosed(loop="root") as closed:
                self._close_step(closed)
            case CallParked(call_id=call_id) as parked if call_id in self._calls:
                request = asking_call(self._calls[call_id], parked)
                self._emit_interleaved(f"{self._run_id}_{logged.seq}", _type_of(request), _payload_of(request))
            case CallSettled(by_client=False) as settled if settled.result.loop == ROOT:
                self._settle_call(settled)
            case PlanUpdated(loop="root") as plan:
                self._emit_interleaved(f"{self._run_id}_{logged.seq}", "message", {"plan": plan.content()})
            case RunStopped(run_id=run_id) as stopped if run_id == self._run_id:
                self._end_response(stopped)
            case _:
                pass

    # --- the response ---------------------------------------------------------------------------------------------

    def _begin_response(self, started: RunStarted) -> None:
        self.options = read_response_options(started.protocol, started.metadata)
        self.started_at = self._at
        response = self._emit(self.new_response("created", self._at))
        self.response = self._emit(msgspec.structs.replace(response, status="in_progress"))

    def new_response(self, status: Literal["queued", "created"], at: datetime) -> wire.AgentResponse:
        """The response before there is anything in it."""
        name = self.options.session_id
        return wire.AgentResponse(
            status=status,
            id=self.options.response_id or response_id(self._run_id),
            created_at=int(at.timestamp()),
            session_id=name if name and parse_session_id(name) != self._session_id else self._session_id,
            model=self._agent,
        )

    def _end_response(self, stopped: RunStopped) -> None:
        status, error = RUN_END_STATUS[stopped.reason], None
        if status == "failed":
            code = stopped.code or (None if stopped.reason == "error" else stopped.reason)
            error = errors.run_error(code, stopped.message)
        elif status == "canceled" and self.options.deadline is not None and self._at >= self.options.deadline:
            self.is_timed_out = True
            status, error = "failed", wire.Error("TIMEOUT", "The task took longer than its timeout")
        self._finish_message(FINISH_REASONS.get(stopped.reason))
        self._close_response(status, error, stopped.usage)

    def _close_response(self, status: EndStatus, error: wire.Error | None, usage: core.Usage) -> None:
        assert self.response is not None, "a run starts before it ends"
        self.is_over = True
        terminal = msgspec.structs.replace(
            self.response,
            status=status,
            error=error,
            completed_at=int(self._at.timestamp()),
            output=tuple(message for message in self._output.values() if message is not None),
            usage=_usage(usage),
        )
        self.response = self._emit(terminal)

    def close(self, error: Exception) -> bytes:
        """Encode the end of a response whose run has not ended. Empty if the run continues and can be resumed."""
        if isinstance(error, Unauthenticated) and not self.is_over:
            failed = wire.Error("UNAUTHORIZED", str(error))
            return self._unnumbered("error", status="failed", error=failed)
        if self.response is None or self.is_over or isinstance(error, RESUMABLE):
            return b""
        if self._open is not None and self._open.block_index >= 0 and self._open.text is None:
            self._open.text = "".join(self._open.pieces)
        self._finish_message(status="failed")
        is_deleted = isinstance(error, SessionNotFound)
        self._close_response("failed", _DELETED_ERROR if is_deleted else _INTERNAL_ERROR, core.Usage())
        return self._take_frames()

    def acknowledge(self, options: ResponseOptions, at: datetime) -> bytes:
        """Encode the whole response to a request whose answers were stored while the session waits for others."""
        metadata = RunMetadata(protocol=msgspec.to_builtins(options))
        started = RunStarted(run_id=self._run_id, protocol=PROTOCOL, metadata=metadata)
        stopped = RunStopped(run_id=self._run_id, reason="tool_use")
        return b"".join(self.feed(LoggedEvent(0, at, self._run_id, event)) for event in (started, stopped))

    @property
    def keep_alive(self) -> bytes:
        """A comment, or a heartbeat message if the client asked for it."""
        if not self.options.heartbeat:
            return KEEP_ALIVE
        return self._unnumbered("heartbeat", status="in_progress")

    def _unnumbered(self, kind: Literal["heartbeat", "error"], status: str, error: wire.Error | None = None) -> bytes:
        """Encode a message that is not a record of the run, so it repeats the last sequence number."""
        message = wire.Message(
            sequence_number=self.count - 1,
            status=status,
            id=f"{MESSAGE_ID_PREFIX}{self._run_id}_{kind}",
            type=kind,
            role=None if error is None else "assistant",
            error=error,
            code=None if error is None else error.code,
            message=None if error is None else error.message,
        )
        return b"data: %b\n\n" % encode_json(message)

    # --- text and media -------------------------------------------------------------------------------------------

    def _begin_block(self, piece: Piece) -> bytes:
        """Begin to stream a block, unless its pieces are not sent to the client."""
        if piece.loop != ROOT or self.options.omits_deltas or self.response is None:
            return b""
        opened = self._message_for(piece.message_id, piece.index, piece.kind)
        opened.block_index, opened.pieces = piece.index, []
        template = encode_json(self._text_content(opened, "in_progress", "", delta=True))
        self._piece_head = template[_TEMPLATE_PREFIX_LENGTH:-_TEMPLATE_SUFFIX_LENGTH]
        self._frames.append(self.feed(piece))
        return self._take_frames()

    def _close_block(self, closed: BlockClosed) -> None:
        block = closed.block
        if isinstance(block, core.Call):
            return
        kind: core.StreamedBlockKind = "thinking" if isinstance(block, core.Thinking) else "text"
        opened = self._open
        if opened is None or opened.block_index != closed.index or opened.step != closed.message_id:
            opened = self._message_for(closed.message_id, closed.index, kind)
        if isinstance(block, core.Text | core.Thinking):
            opened.block_index, opened.text = closed.index, block.text
        else:
            content = _content_of(block, opened)
            # section 6.3: without a delta, the web client would replace the previous content
            previews = [msgspec.structs.replace(content, delta=True)] if content.index else []
            self._add_content(opened, content, *previews)

    def _message_for(self, step: str, index: int, kind: core.StreamedBlockKind) -> _OpenMessage:
        """The open message if the block belongs to it, otherwise a new one."""
        message_type = "message" if kind == "text" else "reasoning"
        self._close_content("completed")
        opened = self._open
        if opened is not None and opened.type == message_type and opened.step == step:
            return opened
        self._finish_message()
        return self._begin_message(_OpenMessage(f"{MESSAGE_ID_PREFIX}{step}_{index}", message_type, step))

    def _begin_message(self, opened: _OpenMessage) -> _OpenMessage:
        self._open = opened
        self._output[opened.id] = None
        for status in ("created", "in_progress"):
            self._emit(wire.Message(status=status, id=opened.id, type=opened.type, role=_role_of(opened.type)))
        return opened

    def _text_content(self, opened: _OpenMessage, status: str, text: str, *, delta: bool = False) -> wire.TextContent:
        return wire.TextContent(status=status, index=len(opened.contents), delta=delta, msg_id=opened.id, text=text)

    def _add_content(self, opened: _OpenMessage, content: wire.Content, *previews: wire.Content) -> None:
        """Send a complete content. The previews are sent before it unless the client wants no deltas."""
        for preview in () if self.options.omits_deltas else previews:
            self._emit(msgspec.structs.replace(preview, status="in_progress"))
        self._emit(content)
        opened.contents.append(content)

    def _close_content(self, status: EndStatus) -> None:
        """Send the end of the open text, if there is one."""
        opened = self._open
        if opened is not None and opened.text is not None:
            self._add_content(opened, self._text_content(opened, status, opened.text))
            opened.block_index, opened.text = -1, None

    # --- the end of messages --------------------------------------------------------------------------------------

    def _close_step(self, closed: MessageClosed) -> None:
        status = MESSAGE_END_STATUS[closed.status]
        self._close_content(status)
        opened = self._open
        if opened is None:
            return
        if closed.usage is not None:
            opened.usage = _usage(closed.usage)
        if opened.type not in TEXT_TYPES or status != "completed":
            self._finish_message(status=status, is_cut=closed.status == "cut")
        else:
            self._is_end_pending = True

    def _finish_message(
        self, finish_reason: str | None = None, *, status: EndStatus = "completed", is_cut: bool = False
    ) -> None:
        """Send the end of the open message, if there is one."""
        self._close_content(status)
        opened, self._open, self._is_end_pending = self._open, None, False
        if opened is None:
            return
        metadata: JsonObject = {"finish_reason": finish_reason} if finish_reason else {}
        if is_cut:
            metadata["interrupted"] = True
        message = wire.Message(
            status=status,
            error=_CUT_ERROR if is_cut else None,
            id=opened.id,
            type=opened.type,
            role=_role_of(opened.type),
            content=tuple(opened.contents),
            code=_CUT_ERROR.code if is_cut else None,
            message=_CUT_ERROR.message if is_cut else None,
            usage=opened.usage,
            metadata=metadata or None,
        )
        self._output[opened.id] = self._emit(message)

    # --- calls ----------------------------------------------------------------------------------------------------

    def _open_call(self, opened: CallOpened) -> None:
        """Send a call of the agent. Of a sub-agent's calls, only those that wait for the client are sent."""
        self._calls[opened.call.call_id] = opened
        name, kind = f"{opened.message_id}_{opened.index}", _type_of(opened)
        if opened.loop != ROOT:
            if opened.kind in WAITING_KINDS:
                self._emit_interleaved(name, kind, _payload_of(opened))
            return
        self._finish_message()
        message = _OpenMessage(f"{MESSAGE_ID_PREFIX}{name}", kind, opened.message_id)
        self._emit_payload(self._begin_message(message), _payload_of(opened))
        if opened.kind != "permission":
            self._announced_calls.add(opened.call.call_id)

    def _settle_call(self, settled: CallSettled) -> None:
        """Send the result of a call, and the call itself if this response has not sent it yet."""
        result = settled.result
        opened = self._calls.get(result.call_id)
        kind = "plugin_call" if opened is None else _type_of(opened, is_running=True)
        if result.call_id not in self._announced_calls:
            self._announced_calls.add(result.call_id)
            arguments, server = ({}, None) if opened is None else (opened.call.input, opened.server)
            self._emit_interleaved(result.call_id, kind, _call_payload(result.call_id, result.name, arguments, server))
        output: JsonObject = {"call_id": result.call_id, "name": result.name, "output": _output_of(result)}
        self._emit_interleaved(result.id, f"{kind}_output", output)

    def _emit_interleaved(self, name: str, kind: str, payload: JsonObject) -> None:
        """Send a whole message with one data content, whatever else is open."""
        outer = self._open, self._is_end_pending
        opened = self._begin_message(_OpenMessage(f"{MESSAGE_ID_PREFIX}{name}", kind, ""))
        self._emit_payload(opened, payload)
        self._finish_message()
        self._open, self._is_end_pending = outer

    def _emit_payload(self, opened: _OpenMessage, payload: JsonObject) -> None:
        """Send the data of a message; of a call, first without its arguments, then in snapshots (section 5.1)."""
        content = wire.DataContent(status="completed", index=0, msg_id=opened.id, data=payload)
        previews = [{**payload, "arguments": ""}, payload] if "arguments" in payload else []
        self._add_content(opened, content, *(msgspec.structs.replace(content, data=data) for data in previews))

    # --- frames ---------------------------------------------------------------------------------------------------

    def _emit(self, event: _EventT) -> _EventT:
        """Number an event, and encode it unless the reader already has it."""
        number = self.count
        self.count = number + 1
        event = msgspec.structs.replace(event, sequence_number=number)
        if number >= self._skip:
            self._frames.append(b"id: %d\ndata: %b\n\n" % (number, encode_json(event)))
        return event

    def _take_frames(self) -> bytes:
        """Return the frames that are not sent yet, and forget them."""
        frames, self._frames = self._frames, []
        return b"".join(frames)


def response_id(run_id: RunId) -> str:
    """The id of a response for which the client chose none."""
    return f"response_{run_id}"


def task_state(task_id: str, events: ResponseEvents) -> wire.TaskState:
    """The state of a background task, whose records so far were fed to `events` (section 7.3)."""
    response, started_at = events.response, events.started_at
    if response is None or started_at is None:
        return wire.TaskState(task_id=task_id, status="pending", result=None)
    if not events.is_over:
        return wire.TaskState(task_id=task_id, status="running", result=None, started_at=started_at.timestamp())
    if events.is_timed_out:
        assert response.error is not None, "a failed response has an error"
        return wire.TaskState(task_id=task_id, status="error", result=response.error.message)
    return wire.TaskState(task_id=task_id, status="finished", result=response)


def _usage(usage: core.Usage) -> dict[str, int]:
    total = usage.input_tokens + usage.output_tokens
    return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "total_tokens": total}


def _role_of(message_type: str) -> wire.Role:
    return "tool" if message_type.endswith("_output") else "assistant"


def _content_of(block: core.Image | core.File | core.Data, opened: _OpenMessage) -> wire.Content:
    """The content of a block that is not streamed."""
    index, msg_id = len(opened.contents), opened.id
    match block:
        case core.Image(url=url):
            return wire.ImageContent(status="completed", index=index, msg_id=msg_id, image_url=url)
        case core.Data(data=data):
            return wire.DataContent(status="completed", index=index, msg_id=msg_id, data=data)
        case core.File(media="audio", url=url):
            kind = (block.media_type or "").partition("/")[2] or None
            return wire.AudioContent(status="completed", index=index, msg_id=msg_id, data=url, format=kind)
        case core.File(media="video", url=url):
            return wire.VideoContent(status="completed", index=index, msg_id=msg_id, video_url=url)
        case core.File(url=url, name=name):
            return wire.FileContent(status="completed", index=index, msg_id=msg_id, file_url=url, filename=name)


def _type_of(opened: CallOpened, *, is_running: bool = False) -> str:
    """The type of a call's message, which depends on who has to act and whose tool it is."""
    if opened.kind in ("client", "question"):
        return "function_call"
    if opened.kind == "permission" and not is_running:
        return "mcp_approval_request"
    if opened.server is not None:
        return "mcp_call"
    return "component_call" if opened.call.name in COMPONENT_TOOLS else "plugin_call"


def _payload_of(opened: CallOpened) -> JsonObject:
    call = opened.call
    if opened.kind == "permission":
        server = opened.server or AGENT_SERVER
        request = {"id": call.call_id, "name": call.name, "arguments": compact_json(call.input), "server_label": server}
        return {**request, "repeat": True, "message": repeat_question(call.name)} if opened.repeat else request
    return _call_payload(call.call_id, call.name, call.input, None if opened.kind in WAITING_KINDS else opened.server)


def _call_payload(call_id: CallId, name: str, arguments: JsonObject, server: str | None) -> JsonObject:
    payload: JsonObject = {"call_id": call_id, "name": name, "arguments": compact_json(arguments)}
    return payload if server is None else {**payload, "server_label": server}


def _output_of(result: core.ToolMessage) -> str:
    """A result as text, or as JSON if it has other blocks than text."""
    content = result.content
    if isinstance(content, str) or all(isinstance(block, core.Text) for block in content):
        return core.text_of(content)
    return compact_json(msgspec.to_builtins(content))
