"""Translates the records of a run to the events of its response, and to the response itself.

Pure: the same records always give the same events with the same numbers, live and in every replay.

    created ─► in_progress ─► items ─► completed | incomplete | failed

A model step becomes several items: one for adjacent text and pictures, one for adjacent thinking, one for each call. A
call that the server executes is one item from its start to its result, so items of one step may overlap. The end of a
message is sent with the record after it, because only that record shows why the run ended.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from dragoman.core import content as core
from dragoman.core.answers import compact_json
from dragoman.core.events import (
    BlockClosed,
    CallOpened,
    CallParked,
    CallSettled,
    CallStarted,
    LoggedEvent,
    MessageClosed,
    RunStarted,
    RunStopped,
    StopReason,
)
from dragoman.core.history import EarlierCall
from dragoman.core.ids import ROOT, CallId, MessageId, RunId, SessionId
from dragoman.core.open_calls import asking_call
from dragoman.core.question_text import question_text
from dragoman.core.refusals import SessionNotFound, Unauthenticated
from dragoman.core.stream import Piece, Record
from dragoman.core.tools import ASK_USER_QUESTION
from dragoman.protocols.kit.frames import KEEP_ALIVE, RESUMABLE, encode_json
from dragoman.protocols.openai import ids, wire
from dragoman.protocols.openai.errors import ERRORS, ContextLengthExceeded, RunFailed, error_type
from dragoman.protocols.openai.requests import RunFields

PROTOCOL = "openai"
ALL = 1 << 62
"""Events to skip, for a reader that wants none, but only the response."""
DONE = b"data: [DONE]\n\n"

ENDS: Mapping[StopReason, tuple[wire.ResponseStatus, str]] = {
    "end_turn": ("completed", "response.completed"),
    "tool_use": ("completed", "response.completed"),
    "max_tokens": ("incomplete", "response.incomplete"),
    "refusal": ("incomplete", "response.incomplete"),
    "max_steps": ("failed", "response.failed"),
    "cancelled": ("cancelled", "response.incomplete"),
    "error": ("failed", "response.failed"),
    "interrupted": ("failed", "response.failed"),
}
"""The status and the last event of a response (shared rules, 24). The protocol has no event for a stop; this one ends
all clients cleanly."""
_ECHOED = (
    *("previous_response_id", "max_output_tokens", "max_tool_calls", "parallel_tool_calls"),
    *("tool_choice", "truncation"),
    *("temperature", "top_p", "presence_penalty", "frequency_penalty", "store", "background", "metadata"),
    *("user", "safety_identifier", "prompt_cache_key"),
)
"""The fields of a request that its response repeats as they are, or has a default for."""
_ERROR_CODES = {"output_invalid": "invalid_output"}


class _Open(msgspec.Struct):
    """The message or reasoning item that is being sent. Its parts so far, and the block that is being streamed."""

    id: str
    index: int
    kind: Literal["message", "reasoning"]
    step: MessageId
    parts: list[wire.OutputText | wire.SummaryText] = []
    block: int = -1
    pieces: list[str] = []


def run_fields(started: RunStarted | None) -> RunFields:
    """The fields of the request that started a run; the defaults if another protocol did, or none yet."""
    if started is None or started.protocol != PROTOCOL:
        return RunFields()
    return msgspec.convert(started.metadata.protocol, RunFields)


# Large: any record may change the open item, the output and the numbering together.
class ResponseEvents:
    """Encodes the records of one run as events, beginning with the run's first record.

    Args:
        run_id: the run.
        session_id: its session.
        agent: the name of the session's agent.
        earlier: the calls that the run begins to answer.
        skip: how many events the reader already has; they are counted and not encoded.
    """

    keep_alive = KEEP_ALIVE

    def __init__(
        self,
        run_id: RunId,
        session_id: SessionId,
        agent: str,
        *,
        earlier: Mapping[CallId, EarlierCall] | None = None,
        skip: int = 0,
    ) -> None:
        self.response: wire.Response | None = None
        """The response so far; None before the run has started."""
        self.fields = RunFields()
        self.count = 0
        """The number of events so far, which is the next one's sequence number."""
        self.is_over = False
        self.last_seq = 0
        """The event that ended the run."""
        self._run_id, self._session_id, self._agent = run_id, session_id, agent
        self._skip = skip
        self._frames: list[bytes] = []
        self._output: list[wire.OutputItem | None] = []
        """The items by index; None while one is open."""
        self._cut: set[int] = set()
        """The indices of items that a crash cut off. A later item repeats what they say."""
        self._calls = dict(earlier or {})
        self._open: _Open | None = None
        self._step: tuple[MessageId | None, int] = (None, 0)
        """The newest model step that said something, and the index of its first item."""
        self._open_calls: dict[CallId, tuple[int, wire.McpCall]] = {}
        self._announced: list[tuple[int, wire.OutputItem]] = []
        """Calls of the open step that a client or a person answers."""
        self._is_end_pending = False
        """The open item's step is over; the next record decides how the item ended."""
        self._delta = (b"", b"", b"")
        """The parts of that block's frames before the number, before the text and after it."""

    # --- records --------------------------------------------------------------------------------------------------

    def feed(self, record: Record) -> bytes:
        """Encode the next record; empty if the client is not sent anything for it."""
        if type(record) is Piece:
            opened = self._open
            if opened is None or opened.block != record.index or opened.step != record.message_id:
                return self._begin_block(record)
            opened.pieces.append(record.text)
            number = self.count
            self.count = number + 1
            if number < self._skip:
                return b""
            head, middle, tail = self._delta
            return b"%b%d%b%b%b" % (head, number, middle, encode_json(record.text), tail)
        if self._is_end_pending and not isinstance(record.event, RunStopped):
            self._finish_item()
        self._event(record)
        return self._take_frames()

    def _event(self, logged: LoggedEvent) -> None:
        match logged.event:
            case RunStarted(run_id=run_id) as started if run_id == self._run_id:
                self._begin_response(started, logged.at)
            case _ if self.response is None:
                pass  # the run is queued after another one
            case BlockClosed(block=core.Call()):
                pass  # it is shown when it is opened
            case BlockClosed(loop="root") as closed:
                self._close_block(closed)
            case CallOpened() as opened:
                self._open_call(opened, logged)
            case CallStarted(call_id=call_id) if call_id in self._calls and call_id not in self._open_calls:
                self._open_mcp_call(call_id, self._calls[call_id])
            case CallParked(call_id=call_id) as parked if call_id in self._calls:
                self._calls[call_id] = self._calls[call_id].parked(parked)
                self._open_call(asking_call(self._calls[call_id].opened, parked), logged)
            case CallSettled(by_client=False) as settled if settled.result.loop == ROOT:
                self._settle_call(settled)
            case MessageClosed(loop="root") as closed:
                self._close_step(closed)
            case RunStopped(run_id=run_id) as stopped if run_id == self._run_id:
                self._end_response(stopped, logged)

    def close(self, error: Exception) -> bytes:
        """End a stream whose run has not ended. Empty if the run continues and can be resumed."""
        if isinstance(error, Unauthenticated) and not self.is_over:
            # Not an event of the response: a client that resumes after its number misses nothing.
            facts = {"code": "invalid_api_key", "message": str(error), "param": ""}
            return _frame("error", {"type": "error", "sequence_number": self.count - 1, **facts})
        if self.is_over or isinstance(error, RESUMABLE):
            return b""
        self.is_over = True
        is_deleted = isinstance(error, SessionNotFound)
        code, message = (
            ("not_found", "The conversation was deleted") if is_deleted else ("server_error", "The server failed")
        )
        self._emit("error", code=code, message=message, param="")
        return self._take_frames()

    # --- the response ---------------------------------------------------------------------------------------------

    def _begin_response(self, started: RunStarted, at: datetime) -> None:
        self.fields = run_fields(started)
        self.response = new_response(
            self._run_id,
            self._session_id,
            self.fields,
            at,
            agent=self._agent,
            instructions=started.metadata.instructions,
        )
        shown = msgspec.Raw(encode_json(self.response))
        self._emit("response.created", response=shown)
        self._emit("response.in_progress", response=shown)

    def _end_response(self, stopped: RunStopped, logged: LoggedEvent) -> None:
        assert self.response is not None, "a run starts before it ends"
        status, event = ENDS[stopped.reason]
        self._finish_item("incomplete" if status != "completed" and stopped.reason != "refusal" else "completed")
        self._finish_announced()
        for call_id in tuple(self._open_calls):
            index, item = self._open_calls.pop(call_id)
            self._finish(index, msgspec.structs.replace(item, status="incomplete"))
        error, reasons = None, {"max_tokens": "max_output_tokens", "refusal": "content_filter"}
        if status == "failed":
            answer = ERRORS.to_response(failure := failure_of(stopped))
            error = wire.ErrorInfo(failure.code, str(failure), error_type(answer.status))
        details = (
            msgspec.convert({"reason": reasons[stopped.reason]}, wire.IncompleteDetails)
            if status == "incomplete"
            else None
        )
        usage = stopped.usage
        self.response = msgspec.structs.replace(
            self.response,
            status=status,
            completed_at=int(logged.at.timestamp()),
            error=error,
            incomplete_details=details,
            output=self.output,
            usage=wire.Usage(
                input_tokens=usage.input_tokens,
                input_tokens_details=wire.InputTokensDetails(usage.cached_tokens),
                output_tokens=usage.output_tokens,
                output_tokens_details=wire.OutputTokensDetails(usage.reasoning_tokens),
                total_tokens=usage.input_tokens + usage.output_tokens,
            ),
        )
        self.is_over, self.last_seq = True, logged.seq
        self._emit(event, response=self.response)
        self._frames.append(DONE)

    @property
    def items(self) -> tuple[wire.OutputItem, ...]:
        """The items that are complete."""
        return tuple(item for item in self._output if item is not None)

    @property
    def output(self) -> tuple[wire.OutputItem, ...]:
        """The items as the response shows them. Those that a crash cut off are empty: clients join the texts of all."""
        shown = (_without_text(item) if index in self._cut else item for index, item in enumerate(self._output))
        return tuple(item for item in shown if item is not None)

    # --- text, thinking and pictures ------------------------------------------------------------------------------

    def _begin_block(self, piece: Piece) -> bytes:
        if piece.loop != ROOT or self.response is None:
            return b""
        if self._is_end_pending:
            self._finish_item()
        opened = self._item_for(piece.message_id, "message" if piece.kind == "text" else "reasoning")
        self._begin_part(opened, piece.index)
        return self._take_frames() + self.feed(piece)

    def _begin_part(self, opened: _Open, block: int) -> None:
        opened.block, opened.pieces = block, []
        place = self._place(opened)
        if opened.kind == "message":
            kind, tail = b"response.output_text.delta", b',"logprobs":[]}\n\n'
            self._emit("response.content_part.added", **place, part=wire.OutputText())
        else:
            kind, tail = b"response.reasoning_summary_text.delta", b"}\n\n"
            self._emit("response.reasoning_summary_part.added", **place, part=wire.SummaryText())
        head = b'event: %b\ndata: {"type":"%b","sequence_number":' % (kind, kind)
        self._delta = (head, b',%b,"delta":' % encode_json(place)[1:-1], tail)

    def _close_block(self, closed: BlockClosed) -> None:
        block, opened = closed.block, self._open
        if isinstance(block, core.Text | core.Thinking):
            if opened is not None and opened.block == closed.index and opened.step == closed.message_id:
                self._close_part(opened)
            elif block.text:
                kind: Literal["message", "reasoning"] = "message" if isinstance(block, core.Text) else "reasoning"
                self._add_part(self._item_for(closed.message_id, kind), closed.index, block.text)
        elif (link := link_to(block)) is not None:
            self._add_part(self._item_for(closed.message_id, "message"), closed.index, link)

    def _add_part(self, opened: _Open, block: int, text: str) -> None:
        """Send a whole part."""
        self._begin_part(opened, block)
        opened.pieces.append(text)
        more = {"logprobs": ()} if opened.kind == "message" else {}
        kind = "output_text" if opened.kind == "message" else "reasoning_summary_text"
        self._emit(f"response.{kind}.delta", **self._place(opened), delta=text, **more)
        self._close_part(opened)

    def _close_part(self, opened: _Open) -> None:
        text, place = "".join(opened.pieces), self._place(opened)
        if opened.kind == "message":
            part: wire.OutputText | wire.SummaryText = wire.OutputText(text=text)
            self._emit("response.output_text.done", **place, text=text, logprobs=())
            self._emit("response.content_part.done", **place, part=part)
        else:
            part = wire.SummaryText(text=text)
            self._emit("response.reasoning_summary_text.done", **place, text=text)
            self._emit("response.reasoning_summary_part.done", **place, part=part)
        opened.parts.append(part)
        opened.block, opened.pieces = -1, []

    def _place(self, opened: _Open) -> dict[str, object]:
        part = "content_index" if opened.kind == "message" else "summary_index"
        return {"item_id": opened.id, "output_index": opened.index, part: len(opened.parts)}

    def _item_for(self, step: MessageId, kind: Literal["message", "reasoning"]) -> _Open:
        """The open item if the next block belongs to it, otherwise a new one."""
        opened = self._open
        if opened is not None and opened.kind == kind and opened.step == step:
            return opened
        self._finish_item()
        index, item_id = self._next("msg" if kind == "message" else "rs")
        if self._step[0] != step:
            self._step = (step, index)
        self._add(index, wire.Message(id=item_id) if kind == "message" else wire.Reasoning(id=item_id))
        self._open = _Open(item_id, index, kind, step)
        return self._open

    def _finish_item(self, status: wire.ItemStatus = "completed", **more: object) -> None:
        """Send the end of the open message or reasoning, if there is one."""
        opened, self._open, self._is_end_pending = self._open, None, False
        if opened is None:
            return
        if opened.block >= 0:
            self._close_part(opened)
        kind = wire.Message if opened.kind == "message" else wire.Reasoning
        parts = {"content" if opened.kind == "message" else "summary": tuple(opened.parts)}
        self._finish(opened.index, kind(id=opened.id, status=status, **parts), **more)  # type: ignore[arg-type]  # by kind

    def _close_step(self, closed: MessageClosed) -> None:
        if closed.status == "completed":
            self._is_end_pending = self._open is not None
        else:
            repeated = {"repeated_from": self._step[1]} if closed.status == "cut" else {}
            self._finish_item("incomplete", **repeated)
            if closed.status == "cut" and self._step[0] == closed.message_id:
                self._cut.update(range(self._step[1], len(self._output)))
        self._finish_announced()

    # --- calls ----------------------------------------------------------------------------------------------------

    def _open_call(self, opened: CallOpened, logged: LoggedEvent) -> None:
        """Send a call. Of a sub-agent's calls, only those that wait for an answer are sent."""
        call = opened.call
        known = self._calls.setdefault(call.call_id, EarlierCall(logged.run_id, opened))
        if opened.loop != ROOT and opened.kind not in ("client", "permission", "question"):
            return
        if opened.recorded and opened.kind == "inline":
            return  # it is shown when the agent starts it, lets it wait or settles it
        self._finish_item()
        if opened.kind == "question" and all(tool.name != ASK_USER_QUESTION for tool in self.fields.tools):
            self._say(opened.message_id, question_text(call.input))
        elif opened.kind in ("client", "question"):
            index, item_id = self._next("fc")
            call_id = ids.call_id(logged.run_id, call.call_id)
            item = wire.FunctionCall(id=item_id, call_id=call_id, name=call.name)
            self._add(index, item)
            arguments = self._send_arguments("function_call", item_id, index, call, name=call.name)
            self._announced.append((index, msgspec.structs.replace(item, arguments=arguments, status="completed")))
        elif opened.kind == "permission":
            index, _ = self._next("mcpr")
            request = wire.McpApprovalRequest(
                id=ids.call_id(known.run_id, call.call_id, "mcpr"),
                server_label=opened.server or self._agent,
                name=call.name,
                arguments=compact_json(call.input),
                repeat=opened.repeat,
            )
            self._add(index, request)
            self._announced.append((index, request))
        else:
            self._open_mcp_call(call.call_id, known)
        if opened.loop != ROOT:
            self._finish_announced()

    def _open_mcp_call(self, call_id: CallId, earlier: EarlierCall) -> None:
        """Send the beginning of a call that the server executes."""
        opened = earlier.opened
        if opened.loop != ROOT or opened.kind in ("client", "question"):
            return
        self._finish_item()
        index, item_id = self._next("mcp")
        is_asked = opened.kind == "permission"
        item = wire.McpCall(
            id=item_id,
            server_label=opened.server or self._agent,
            name=opened.call.name,
            approval_request_id=ids.call_id(earlier.run_id, call_id, "mcpr") if is_asked else None,
        )
        self._add(index, item)
        self._emit("response.mcp_call.in_progress", item_id=item_id, output_index=index)
        arguments = self._send_arguments("mcp_call", item_id, index, opened.call)
        self._open_calls[call_id] = (index, msgspec.structs.replace(item, arguments=arguments))

    def _settle_call(self, settled: CallSettled) -> None:
        """Send the end of a call that the server executed, and its beginning if nothing of it was sent yet."""
        result = settled.result
        if result.call_id not in self._open_calls and result.call_id in self._calls:
            self._open_mcp_call(result.call_id, self._calls[result.call_id])
        if result.call_id not in self._open_calls:
            return
        index, item = self._open_calls.pop(result.call_id)
        text = core.text_of(result.content)
        if settled.outcome == "done":
            item = msgspec.structs.replace(item, status="completed", output=text)
        else:
            item = msgspec.structs.replace(item, status="failed", error=wire.McpError(content=text))
        self._emit(f"response.mcp_call.{item.status}", item_id=item.id, output_index=index)
        self._finish(index, item)

    def _send_arguments(self, kind: str, item_id: str, index: int, call: core.Call, **more: str) -> str:
        arguments = compact_json(call.input)
        self._emit(f"response.{kind}_arguments.delta", item_id=item_id, output_index=index, delta=arguments)
        self._emit(f"response.{kind}_arguments.done", item_id=item_id, output_index=index, arguments=arguments, **more)
        return arguments

    def _say(self, step: MessageId, text: str) -> None:
        """Send a message of its own."""
        self._add_part(self._item_for(step, "message"), 0, text)
        self._finish_item()

    def _finish_announced(self) -> None:
        announced, self._announced = self._announced, []
        for index, item in announced:
            self._finish(index, item)

    # --- items and frames -----------------------------------------------------------------------------------------

    def _next(self, prefix: str) -> tuple[int, str]:
        """The index and the id of a new item."""
        self._output.append(None)
        index = len(self._output) - 1
        return index, f"{prefix}_{ids.bare(self._run_id)}_{index}"

    def _add(self, index: int, item: wire.OutputItem) -> None:
        self._emit("response.output_item.added", output_index=index, item=item)

    def _finish(self, index: int, item: wire.OutputItem, **more: object) -> None:
        self._output[index] = item
        self._emit("response.output_item.done", output_index=index, item=item, **more)

    def _emit(self, kind: str, **fields: object) -> None:
        """Number an event, and encode it unless the reader already has it."""
        number = self.count
        self.count = number + 1
        if number >= self._skip:
            self._frames.append(_frame(kind, {"type": kind, "sequence_number": number, **fields}))

    def _take_frames(self) -> bytes:
        frames, self._frames = self._frames, []
        return b"".join(frames)


def _frame(kind: str, event: core.JsonObject) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), encode_json(event))


def link_to(block: core.Block) -> str | None:
    """A picture or a file of an answer as Markdown; None if the block is neither, or only in the log."""
    if not isinstance(block, core.Image | core.File) or not block.url.startswith(("https://", "http://")):
        return None
    return f"![image]({block.url})" if isinstance(block, core.Image) else f"[{block.name or 'file'}]({block.url})"


def failure_of(stopped: RunStopped, path: str = "input") -> RunFailed:
    """Why a run has no answer. `path` is the field with the conversation."""
    if stopped.code == "context_too_long":
        return ContextLengthExceeded(path)
    code = stopped.code or ("server_error" if stopped.reason == "error" else stopped.reason)
    return RunFailed(_ERROR_CODES.get(code, code), stopped.message or "The run failed")


def payloads(frames: bytes) -> list[str]:
    """The events of frames as JSON, for a transport that delimits them itself. It has no `[DONE]`."""
    found = [frame.partition(b"data: ")[2] for frame in frames.split(b"\n\n")]  # JSON has no line breaks
    return [each.decode() for each in found if each.startswith(b"{")]


def new_response(
    run_id: str,
    session_id: SessionId,
    fields: RunFields,
    at: datetime,
    *,
    agent: str,
    instructions: str | None,
    status: wire.ResponseStatus = "in_progress",
) -> wire.Response:
    """A response without output, with what its request asked for."""
    echoed = {name: value for name in _ECHOED if (value := getattr(fields, name)) is not None}
    text: core.JsonObject = {"format": fields.text.format or {"type": "text"}}
    if fields.text.verbosity is not None:
        text["verbosity"] = fields.text.verbosity
    return wire.Response(
        id=ids.response_id(run_id),
        created_at=int(at.timestamp()),
        status=status,
        model=fields.model or agent,
        instructions=instructions,
        conversation=None if fields.conversation is None else wire.ConversationRef(ids.conversation_id(session_id)),
        tools=tuple(
            wire.ToolEcho(name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict)
            for tool in fields.tools
        ),
        text=text,
        reasoning=wire.ReasoningEcho(fields.reasoning.effort, fields.reasoning.summary),
        **echoed,
    )


def _without_text(item: wire.OutputItem | None) -> wire.OutputItem | None:
    match item:
        case wire.Message():
            return msgspec.structs.replace(item, content=())
        case wire.Reasoning():
            return msgspec.structs.replace(item, summary=())
        case _:
            return item
