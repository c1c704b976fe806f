"""A run as the events of its response. Pure: the same records give the same events with the same numbers, for ever.

    response   created ─► in_progress ─► completed | failed | canceled
    message    created ─► in_progress ─► completed | failed | canceled      once for each part of a model step
    content    in_progress … ─► completed | failed | canceled               one after the other within its message

A model step of ours becomes several messages: one for words and media in a row, one for thinking, one for each call.
An end is told with the record after it: only that tells whether the words before it were cut off (section 4), and
why the run ended with them. Sequence numbers count the events from 0.
"""

from collections.abc import Mapping
from datetime import datetime
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
from dragoman.core.ids import ROOT, CallId, RunId, SessionId
from dragoman.core.stream import Piece, Record
from dragoman.core.tools import WRITE_MEMORY
from dragoman.protocols.agentscope import errors, wire
from dragoman.protocols.agentscope.inputs import MESSAGE_ID_PREFIX, PROTOCOL, RunMetadata, read_run_metadata

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
"""Rulings, 24."""
FINISH_REASONS: Mapping[StopReason, str] = {"max_tokens": "length", "refusal": "content_filter"}
MESSAGE_END_STATUS: Mapping[MessageStatus, EndStatus] = {
    "completed": "completed",
    "interrupted": "canceled",
    "failed": "failed",
    "cut": "failed",
}
AGENT_SERVER = "agent"
"""The server label of a tool that is the agent's own: the field cannot be empty."""
COMPONENT_TOOLS = frozenset({WRITE_MEMORY})
"""The tools that the server itself brings along."""
WAITING_KINDS: frozenset[CallKind] = frozenset({"client", "permission", "question"})
_CUT_ERROR = wire.Error("INTERRUPTED", "The server restarted")
_ENCODE = msgspec.json.Encoder().encode
_LINE_SEPARATORS = tuple((end.encode(), f"\\u{ord(end):04x}".encode()) for end in "\x85\u2028\u2029")
"""Where the published client's line reader cuts besides at LF; what is cut is no JSON, and it drops that in silence."""
_EventT = TypeVar("_EventT", wire.AgentResponse, wire.Message, wire.Content)
_TEMPLATE_PREFIX_LENGTH = len(b'{"sequence_number":null')
_TEMPLATE_SUFFIX_LENGTH = len(b'""}')


def _encode(value: object) -> bytes:
    """The value as JSON on one line, whatever its reader takes for the end of a line."""
    encoded = _ENCODE(value)
    return encoded if encoded.isascii() else _on_one_line(encoded)


def _on_one_line(encoded: bytes) -> bytes:
    for end, escaped in _LINE_SEPARATORS:
        encoded = encoded.replace(end, escaped)
    return encoded


class _OpenMessage:
    """The message that is being told. `text` is that of a content whose end waits for the next record."""

    __slots__ = ("block_index", "contents", "id", "is_call", "step", "text", "type", "usage")

    def __init__(self, message_id: str, kind: str, step: str, *, is_call: bool = False) -> None:
        self.id = message_id
        self.type = kind
        self.step = step
        self.is_call = is_call
        self.contents: list[wire.Content] = []
        self.block_index = -1
        """The core's index of the block whose content is open; -1 when none is."""
        self.text: str | None = None
        self.usage: dict[str, int] | None = None


class ResponseEvents:
    """Turns the records of one run into frames. Begin before the run's first record."""

    def __init__(
        self,
        run_id: RunId,
        session_id: SessionId,
        *,
        earlier: Mapping[CallId, CallOpened] | None = None,
        skip: int = 0,
    ) -> None:
        """Begin.

        Args:
            run_id: the run.
            session_id: its session.
            earlier: the calls that were open when the run began: their results are told after the call itself.
            skip: events that the reader has seen.
        """
        self.response: wire.AgentResponse | None = None
        """The newest state of the response, once it began."""
        self.run_metadata = RunMetadata()
        self.count = 0
        """Events so far; the number of the next one."""
        self.is_over = False
        self.is_timed_out = False
        """It was a task that was stopped because its time was up."""
        self._run_id = run_id
        self._session_id = session_id
        self._skip = skip
        self._calls = dict(earlier or {})
        self._announced_calls: set[CallId] = set()
        """Calls that were told as such; an approval request alone is none."""
        self._output: dict[str, wire.Message | None] = {}
        """The messages by id, in the order of their first events; None while one is open."""
        self._open: _OpenMessage | None = None
        self._is_end_pending = False
        """The step of the open message is over; how the message ended is told with the next record."""
        self.started_at: datetime | None = None
        self._frames: list[bytes] = []
        self._current_block: tuple[str, int] | None = None
        self._piece_head = b""
        self._pieces: list[str] = []
        """What was told of the block that is open."""

    # --- records --------------------------------------------------------------------------------------------------

    def feed(self, record: Record) -> bytes:
        """Take the next record; give the frames that it makes."""
        if isinstance(record, Piece):
            if self._current_block == (record.message_id, record.index):
                self._pieces.append(record.text)
                self.count = number = self.count + 1
                if number <= self._skip:
                    return b""
                number -= 1
                text = _ENCODE(record.text)
                if not text.isascii():
                    text = _on_one_line(text)
                return b'id: %d\ndata: {"sequence_number":%d%b%b}\n\n' % (number, number, self._piece_head, text)
            return self._begin_block(record)
        if self.response is None and not isinstance(record.event, RunStarted):
            return b""  # the run is queued: another one goes on
        if self._is_end_pending and not isinstance(record.event, RunStopped):
            self._finish_message()
        self._event(record)
        return self._take_frames()

    def _event(self, logged: LoggedEvent) -> None:
        match logged.event:
            case RunStarted(run_id=run_id) as started if run_id == self._run_id:
                self._begin_response(started, logged.at)
            case BlockClosed(loop="root") as closed:
                self._close_block(closed)
            case CallOpened() as opened:
                self._open_call(opened)
            case MessageClosed(loop="root") as closed:
                self._close_step(closed)
            case CallParked(call_id=call_id):
                self._request_approval_again(call_id, f"{self._run_id}_{logged.seq}")
            case CallSettled(by_client=False) as settled if settled.result.loop == ROOT:
                self._settle_call(settled)
            case PlanUpdated(loop="root") as plan:
                steps = [{"title": step.title, "status": step.status} for step in plan.steps]
                told: JsonObject = {"plan": {"status": plan.status, "steps": steps}}
                self._emit_interleaved(f"{MESSAGE_ID_PREFIX}{self._run_id}_{logged.seq}", "message", told)
            case RunStopped(run_id=run_id) as stopped if run_id == self._run_id:
                self._end_response(stopped, logged.at)
            case _:
                pass

    # --- the response ---------------------------------------------------------------------------------------------

    def _begin_response(self, started: RunStarted, at: datetime) -> None:
        self.run_metadata = read_run_metadata(started.protocol, started.metadata)
        self.started_at = at
        response = wire.AgentResponse(
            status="created",
            id=self.run_metadata.response_id or response_id(self._run_id),
            created_at=int(at.timestamp()),
            session_id=self.run_metadata.session_id or self._session_id,
        )
        self._emit_response(response)
        self._emit_response(msgspec.structs.replace(response, status="in_progress"))

    def _emit_response(self, response: wire.AgentResponse) -> None:
        self.response = self._emit(response)

    def _end_response(self, stopped: RunStopped, at: datetime) -> None:
        status, error = RUN_END_STATUS[stopped.reason], None
        if status == "failed":
            code = stopped.code or (None if stopped.reason == "error" else stopped.reason)
            error = errors.run_error(code, stopped.message)
        elif status == "canceled" and self._is_past_deadline(at):
            self.is_timed_out = True
            status, error = "failed", wire.Error("TIMEOUT", "The task took longer than its timeout")
        self._finish_message(FINISH_REASONS.get(stopped.reason))
        usage = stopped.usage
        self._close_response(status, error, usage_of(usage.input_tokens, usage.output_tokens), at)

    def _is_past_deadline(self, at: datetime) -> bool:
        return self.run_metadata.deadline is not None and at >= self.run_metadata.deadline

    def _close_response(self, status: EndStatus, error: wire.Error | None, usage: dict[str, int], at: datetime) -> None:
        assert self.response is not None, "a run starts before it ends"
        self.is_over = True
        over = msgspec.structs.replace(
            self.response,
            status=status,
            error=error,
            completed_at=int(at.timestamp()),
            output=tuple(message for message in self._output.values() if message is not None),
            usage=usage,
        )
        self._emit_response(over)

    def abort(self, code: str, message: str, at: datetime) -> bytes:
        """The frames that end a response before its run has ended: its session is gone, or this code failed."""
        if self.response is None or self.is_over:
            return b""
        if self._open is not None and self._open.block_index >= 0 and self._open.text is None:
            self._open.text = "".join(self._pieces)
        self._finish_message(status="failed")
        self._close_response("failed", wire.Error(code, message), usage_of(0, 0), at)
        return self._take_frames()

    def acknowledge(self, run_metadata: RunMetadata, at: datetime) -> bytes:
        """All frames of a response that took answers, and waits for more before a run goes on."""
        props: JsonObject = {PROTOCOL: msgspec.to_builtins(run_metadata)}
        started = RunStarted(run_id=self._run_id, protocol=PROTOCOL, metadata=props)
        stopped = RunStopped(run_id=self._run_id, reason="tool_use")
        return b"".join(self.feed(LoggedEvent(0, at, self._run_id, event)) for event in (started, stopped))

    def heartbeat(self) -> bytes:
        """A heartbeat message. It is no record of the run, so it takes no number: it repeats the last one."""
        beat = wire.Message(
            sequence_number=self.count - 1,
            status="in_progress",
            id=f"{MESSAGE_ID_PREFIX}{self._run_id}_heartbeat",
            type="heartbeat",
            role=None,
        )
        return b"data: %b\n\n" % _encode(beat)

    # --- words and media ------------------------------------------------------------------------------------------

    def _begin_block(self, piece: Piece) -> bytes:
        """The first piece of a block, or one that nobody is told."""
        if piece.loop != ROOT or self.run_metadata.omits_deltas or self.response is None:
            return b""
        opened = self._message_for(piece.message_id, piece.index, piece.kind)
        opened.block_index = piece.index
        template = _encode(self._text_content(opened, "in_progress", "", delta=True))
        self._piece_head = template[_TEMPLATE_PREFIX_LENGTH:-_TEMPLATE_SUFFIX_LENGTH]
        self._current_block = (piece.message_id, piece.index)
        self._pieces = []
        self._frames.append(self.feed(piece))
        return self._take_frames()

    def _close_block(self, closed: BlockClosed) -> None:
        block = closed.block
        self._current_block = None
        if isinstance(block, core.Call):
            return
        kind: core.StreamedBlockKind = "thinking" if isinstance(block, core.Thinking) else "text"
        opened = self._open
        if opened is None or opened.block_index != closed.index or opened.step != closed.message_id:
            opened = self._message_for(closed.message_id, closed.index, kind)
        if isinstance(block, core.Text | core.Thinking):
            opened.block_index, opened.text = closed.index, block.text
        else:
            self._add_content(opened, _content_of(block, opened))

    def _message_for(self, step: str, index: int, kind: core.StreamedBlockKind) -> _OpenMessage:
        """The open message, if this block belongs to it; else a new one."""
        message_type = "message" if kind == "text" else "reasoning"
        self._close_content("completed")
        opened = self._open
        if opened is not None and opened.type == message_type and opened.step == step:
            return opened
        self._finish_message()
        return self._begin_message(_OpenMessage(f"{MESSAGE_ID_PREFIX}{step}_{index}", message_type, step), "assistant")

    def _begin_message(self, opened: _OpenMessage, role: wire.Role) -> _OpenMessage:
        self._open = opened
        self._output[opened.id] = None
        for status in ("created", "in_progress"):
            self._emit(wire.Message(status=status, id=opened.id, type=opened.type, role=role))
        return opened

    def _text_content(self, opened: _OpenMessage, status: str, text: str, *, delta: bool = False) -> wire.TextContent:
        return wire.TextContent(status=status, index=len(opened.contents), delta=delta, msg_id=opened.id, text=text)

    def _add_content(self, opened: _OpenMessage, content: wire.Content) -> None:
        """A content that comes whole. Behind another one it opens with a delta, or it would replace that one in the
        web client (section 6.3).
        """
        if content.index and not self.run_metadata.omits_deltas:
            self._emit(msgspec.structs.replace(content, status="in_progress", delta=True))
        self._emit(content)
        opened.contents.append(content)

    def _close_content(self, status: EndStatus) -> None:
        """Tell the end of the text that is open."""
        opened = self._open
        if opened is None or opened.text is None:
            return
        content = self._text_content(opened, status, opened.text)
        opened.block_index, opened.text = -1, None
        self._emit(content)
        opened.contents.append(content)

    # --- the end of messages --------------------------------------------------------------------------------------

    def _close_step(self, closed: MessageClosed) -> None:
        status = MESSAGE_END_STATUS[closed.status]
        self._current_block = None
        self._close_content(status)
        opened = self._open
        if opened is None:
            return
        if closed.usage is not None:
            opened.usage = usage_of(closed.usage.input_tokens, closed.usage.output_tokens)
        if opened.is_call or status != "completed":
            self._finish_message(status=status, is_cut=closed.status == "cut")
        else:
            self._is_end_pending = True

    def _finish_message(
        self,
        finish_reason: str | None = None,
        *,
        status: EndStatus = "completed",
        is_cut: bool = False,
    ) -> None:
        """Tell the end of the open message, if there is one."""
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
            role="tool" if opened.type.endswith("_output") else "assistant",
            content=tuple(opened.contents),
            code=_CUT_ERROR.code if is_cut else None,
            message=_CUT_ERROR.message if is_cut else None,
            usage=opened.usage,
            metadata=metadata or None,
        )
        self._output[opened.id] = self._emit(message)

    # --- calls ----------------------------------------------------------------------------------------------------

    def _open_call(self, opened: CallOpened) -> None:
        """A call of the agent's; of a sub-agent's, only one that waits for the application."""
        self._calls[opened.call.call_id] = opened
        message_id = f"{MESSAGE_ID_PREFIX}{opened.message_id}_{opened.index}"
        if opened.loop != ROOT:
            if opened.kind in WAITING_KINDS:
                self._emit_interleaved(message_id, _type_of(opened), _payload_of(opened))
            return
        self._finish_message()
        call = self._begin_message(
            _OpenMessage(message_id, _type_of(opened), opened.message_id, is_call=True), "assistant"
        )
        self._emit_payload(call, _payload_of(opened))
        if opened.kind != "permission":
            self._announced_calls.add(opened.call.call_id)

    def _settle_call(self, settled: CallSettled) -> None:
        """The result of a call, and before it the call, if this response has not told it yet."""
        result = settled.result
        opened = self._calls.get(result.call_id)
        kind = "plugin_call" if opened is None else _type_of(opened, is_running=True)
        if result.call_id not in self._announced_calls:
            self._announced_calls.add(result.call_id)
            arguments: JsonObject = {} if opened is None else opened.call.input
            call: JsonObject = {"call_id": result.call_id, "name": result.name, "arguments": compact_json(arguments)}
            if opened is not None and opened.server is not None:
                call["server_label"] = opened.server
            self._emit_interleaved(f"{MESSAGE_ID_PREFIX}{result.call_id}", kind, call)
        output: JsonObject = {"call_id": result.call_id, "name": result.name, "output": _output_of(result)}
        self._emit_interleaved(f"{MESSAGE_ID_PREFIX}{result.id}", f"{kind}_output", output)

    def _request_approval_again(self, call_id: CallId, name: str) -> None:
        """A call that a crash cut off needs the user's word before it runs again."""
        opened = self._calls.get(call_id)
        if opened is not None:
            asking = msgspec.structs.replace(opened, kind="permission")
            self._emit_interleaved(f"{MESSAGE_ID_PREFIX}{name}", _type_of(asking), _payload_of(asking))

    def _emit_interleaved(self, message_id: str, kind: str, payload: JsonObject) -> None:
        """A message of one object, from its beginning to its end, whatever else is open."""
        kept, piece_of, waiting = self._open, self._current_block, self._is_end_pending
        role: wire.Role = "tool" if kind.endswith("_output") else "assistant"
        opened = self._begin_message(_OpenMessage(message_id, kind, ""), role)
        if role == "tool" or kind == "message":
            self._add_content(opened, wire.DataContent(status="completed", index=0, msg_id=opened.id, data=payload))
        else:
            self._emit_payload(opened, payload)
        self._finish_message()
        self._open, self._current_block, self._is_end_pending = kept, piece_of, waiting

    def _emit_payload(self, opened: _OpenMessage, payload: JsonObject) -> None:
        """The payload of a call: first without its arguments, then in snapshots (section 5.1)."""
        content = wire.DataContent(status="completed", index=0, msg_id=opened.id, data=payload)
        if not self.run_metadata.omits_deltas:
            empty = msgspec.structs.replace(content, status="in_progress", data={**payload, "arguments": ""})
            self._emit(empty)
            self._emit(msgspec.structs.replace(content, status="in_progress"))
        self._emit(content)
        opened.contents.append(content)

    # --- frames ---------------------------------------------------------------------------------------------------

    def _emit(self, event: _EventT) -> _EventT:
        """Give an event its number, and its frame to those who have not seen it."""
        number = self.count
        self.count = number + 1
        event = msgspec.structs.replace(event, sequence_number=number)
        if number >= self._skip:
            self._frames.append(b"id: %d\ndata: %b\n\n" % (number, _encode(event)))
        return event

    def _take_frames(self) -> bytes:
        """The frames that were made and not given yet."""
        frames, self._frames = self._frames, []
        return b"".join(frames)


def response_id(run_id: RunId) -> str:
    """The id of a response whose client chose none."""
    return f"response_{run_id}"


def usage_of(input_tokens: int, output_tokens: int) -> dict[str, int]:
    """Tokens, as the protocol counts them."""
    return {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }


def _content_of(block: core.Image | core.File | core.Data, opened: _OpenMessage) -> wire.Content:
    """A block that came whole."""
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
    """The type of a call's message: who has to act, and whose tool it is."""
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
        return {"id": call.call_id, "name": call.name, "arguments": compact_json(call.input), "server_label": server}
    payload: JsonObject = {"call_id": call.call_id, "name": call.name, "arguments": compact_json(call.input)}
    if opened.server is not None and opened.kind not in WAITING_KINDS:
        payload["server_label"] = opened.server
    return payload


def _output_of(result: core.ToolMessage) -> str:
    """A result as text; JSON where it is more than text."""
    content = result.content
    if isinstance(content, str) or all(isinstance(block, core.Text) for block in content):
        return core.text_of(content)
    return compact_json(msgspec.to_builtins(content))
