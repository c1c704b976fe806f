"""A turn's records → the chunks of its message. The same records give the same chunks, live and in every replay. Pure.

    message = start { step } [ error | abort ] finish
    step    = { result of an earlier step } start-step { text | reasoning | call | file | data } { result } finish-step

All runs of a turn are one message, whose id is that of the turn's first run. Clients fail on the result of a call that
they have not seen, so this class knows the calls of the whole turn, even if only one of its runs is sent.
Source: specification of AI SDK, 5, 6; shared rules, 16, 18, 24, 25.
"""

from datetime import datetime
from typing import NamedTuple

import msgspec

from dragoman.core import content as core
from dragoman.core.answers import compact_json
from dragoman.core.events import (
    AnswerGiven,
    BlockClosed,
    CallKind,
    CallOpened,
    CallParked,
    CallSettled,
    CardUpdated,
    Event,
    LoggedEvent,
    MessageClosed,
    MessageOpened,
    PlanUpdated,
    RunStarted,
    RunStopped,
    SharedStateReplaced,
    StageChanged,
    StopReason,
)
from dragoman.core.ids import ROOT, CallId, MessageId, RunId, SessionId
from dragoman.core.open_calls import asking_call, shown_call
from dragoman.core.question_text import repeat_question
from dragoman.core.stream import Piece, Record
from dragoman.core.ui_schema import compile_card
from dragoman.protocols.aisdk.wire import Chunk, ClientVersion, question_id
from dragoman.protocols.kit.media_types import media_type_of

PROTOCOL = "ai-sdk"
FAILED_MESSAGE = "The agent failed"
DECLINED_MESSAGE = "The question was declined"
FINISH_REASONS: dict[StopReason, str] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "refusal": "content-filter",
    "tool_use": "tool-calls",
    "cancelled": "other",
}
"""What a run's end is called; `error` for the rest."""
SERVERS_OWN = frozenset[CallKind](("inline", "fork", "missing"))
PARTS = {
    "text": ("text-start", "text-delta", "text-end"),
    "thinking": ("reasoning-start", "reasoning-delta", "reasoning-end"),
}


class _Call(NamedTuple):
    """A call of the message without a result."""

    kind: CallKind
    call: core.Call
    dynamic: Chunk
    """The mark of a call of an MCP server. `ai` 5 needs it on each of its chunks."""
    has_approval: bool = False
    """Whether the user is asked about it."""
    question: str | None = None
    """The id of the part with the question that its tool asks."""
    answered_seq: int = 0


class OpenPart(msgspec.Struct, frozen=True):
    """The text or reasoning that is being streamed."""

    message_id: MessageId
    index: int
    kind: core.StreamedBlockKind
    part_id: str
    delta_head: bytes
    """The beginning of its deltas as JSON, up to their text."""


class TurnChunks:
    """Turns the records of one turn into chunks.

    | `last_run` | `is_turn` | the chunks are                                                           |
    |------------|-----------|--------------------------------------------------------------------------|
    | None       |           | those of a history: of all runs, however often one ends                  |
    | a run      | True      | a stream of the whole turn that ends with this run                       |
    | a run      | False     | a stream of this run alone; the runs before it are read and not streamed |

    In the stream of a turn, client tools of earlier runs have no `tool-input-available`, so that a page does not run
    them again. `client_version` is the version of the client.
    """

    def __init__(
        self,
        session_id: SessionId,
        last_run: RunId | None = None,
        *,
        is_turn: bool = False,
        client_version: ClientVersion = 6,
    ) -> None:
        self._session_id = session_id
        self._last_run = last_run
        """The newest run that is streamed; None in a history."""
        self._is_single_run = last_run is not None and not is_turn
        self._client_version: ClientVersion = client_version
        self.message_id = ""
        self.created_at: datetime | None = None
        self.open_part: OpenPart | None = None
        self.is_over = False
        """Whether the last chunk was the `finish` of the run that is streamed."""
        self._run: RunId | None = None
        self._is_sent = not self._is_single_run
        self._step = 0
        self._is_step_open = False
        self._is_step_due = False
        """Whether a model step has begun that has shown nothing yet."""
        self._calls: dict[CallId, _Call] = {}
        self._inner: dict[CallId, CallOpened] = {}
        """The open calls of sub-agents. Only those that wait when the run stops are shown."""
        self._between: list[Chunk] = []
        """Results that came between two runs."""
        self._usage = core.Usage()
        self._model: str | None = None
        self._cut_steps: list[int] = []
        self._card_count = 0

    # --- feeding --------------------------------------------------------------------------------------------------

    def feed(self, record: Record) -> list[Chunk]:
        """The chunks of a record, in order."""
        was_running = self._run is not None
        chunks = self._piece(record) if type(record) is Piece else self._event(record)
        if not (was_running or self._run is not None or self._last_run is None or self.is_over):
            self._between += chunks
            return []
        return chunks if self._is_sent else []

    def begin(self, message_id: str, at: datetime) -> None:
        """Begin in the middle of a run, whose id and time these are."""
        self.message_id, self.created_at, self._run = message_id, at, RunId(message_id)

    def _event(self, logged: LoggedEvent) -> list[Chunk]:
        match logged.event:
            case RunStarted() as started:
                return self._on_run_started(started, logged.at)
            case MessageOpened(loop="root") as message:
                self._is_step_due = True
                if not self.message_id:  # a message that the session was created with
                    self.message_id, self.created_at = message.message_id, logged.at
            case BlockClosed(loop="root") as closed:
                return self._on_block_closed(closed)
            case CallOpened(loop="root") as opened:
                return [*self._ensure_step(), *self._call(opened)]
            case CallOpened() as opened:
                self._inner[opened.call.call_id] = opened
            case MessageClosed(loop="root") as closed:
                self._model = closed.model or self._model
                if closed.status == "cut" and self._is_step_open and not self._is_step_due:
                    self._cut_steps.append(self._step)
            case RunStopped() as stopped if stopped.run_id == self._run:
                return self._on_run_stopped(stopped)
            case CallParked() | AnswerGiven() | CallSettled() as event:
                return self._on_call_event(event, logged.seq)
            case CardUpdated(loop="root", card=card):
                return self._on_card(card)
            case event:
                return _side_content(event)
        return []

    def _on_call_event(self, event: CallParked | AnswerGiven | CallSettled, seq: int) -> list[Chunk]:
        match event:
            case CallParked() as parked:
                return self._on_call_parked(parked)
            case AnswerGiven() as answer:
                return self._on_answer(answer, seq)
            case CallSettled() as settled:
                return self._on_call_settled(settled)

    # --- runs -----------------------------------------------------------------------------------------------------

    def _on_run_started(self, started: RunStarted, at: datetime) -> list[Chunk]:
        is_first = not self.message_id
        if is_first:
            self.message_id, self.created_at = started.run_id, at
        self._run = started.run_id
        self._is_sent = not self._is_single_run or started.run_id == self._last_run
        between, self._between = self._between, []
        return [*([self.start()] if is_first or self._is_single_run else []), *between]

    def start(self) -> Chunk:
        """The first chunk."""
        created_at = 0 if self.created_at is None else int(self.created_at.timestamp() * 1000)
        metadata = {"createdAt": created_at, "sessionId": self._session_id}
        return {"type": "start", "messageId": self.message_id, "messageMetadata": metadata}

    def _on_run_stopped(self, stopped: RunStopped) -> list[Chunk]:
        self._usage += stopped.usage
        chunks = self._show_inner_calls() if stopped.reason == "tool_use" else []
        chunks += self._end_step()
        run, self._run = self._run, None
        if self._last_run not in (None, run):
            return chunks
        self.is_over = self._last_run is not None
        reason = FINISH_REASONS.get(stopped.reason, "error")
        if stopped.reason == "cancelled":
            chunks.append({"type": "abort"})
        elif reason == "error":
            chunks.append({"type": "error", "errorText": stopped.message or FAILED_MESSAGE})
        return [*chunks, self.finish(reason, stopped.reason)]

    def finish(self, finish_reason: str, stop_reason: StopReason | None = None) -> Chunk:
        """The last chunk. Its usage is the sum over the message, because clients keep the newest value of each key."""
        metadata: core.JsonObject = {"usage": _usage_of(self._usage)}
        if self._model is not None:
            metadata["model"] = self._model
        if stop_reason not in (None, "end_turn", "tool_use"):  # clients keep it, although another run may follow
            metadata["stopReason"] = stop_reason
        if self._cut_steps:
            metadata["cutSteps"] = list(self._cut_steps)
        reason = {} if self._client_version == 5 else {"finishReason": finish_reason}
        return {"type": "finish", **reason, "messageMetadata": metadata}

    # --- steps ----------------------------------------------------------------------------------------------------

    def _ensure_step(self) -> list[Chunk]:
        """The start of a step, if nothing of it has been shown."""
        if self._is_step_open and not self._is_step_due:
            return []
        chunks = self._end_step()
        self._step += 1
        self._is_step_open, self._is_step_due = True, False
        return [*chunks, {"type": "start-step"}]

    def _end_step(self) -> list[Chunk]:
        part, self.open_part = self.open_part, None
        chunks: list[Chunk] = [] if part is None else [{"type": PARTS[part.kind][2], "id": part.part_id}]
        if self._is_step_open:
            chunks.append({"type": "finish-step"})
        self._is_step_open = False
        return chunks

    def _piece(self, piece: Piece) -> list[Chunk]:
        part = self.open_part
        if piece.loop != ROOT:
            return []
        if part is not None and part.index == piece.index and part.message_id == piece.message_id:
            return [_delta(part, piece.text)]
        chunks = self._ensure_step()
        part_id, (start, delta, _) = f"{self._step}.{piece.index}", PARTS[piece.kind]
        head = f'{{"type":"{delta}","id":"{part_id}","delta":'.encode()
        part = self.open_part = OpenPart(piece.message_id, piece.index, piece.kind, part_id, head)
        return [*chunks, {"type": start, "id": part_id}, _delta(part, piece.text)]

    def _on_block_closed(self, closed: BlockClosed) -> list[Chunk]:
        block = closed.block
        if isinstance(block, core.Text | core.Thinking):
            part, chunks = self.open_part, list[Chunk]()
            if part is None or part.index != closed.index or part.message_id != closed.message_id:
                if not block.text:
                    return []
                kind: core.StreamedBlockKind = "text" if isinstance(block, core.Text) else "thinking"
                chunks = self._piece(Piece(0, 0, closed.message_id, closed.index, kind, block.text, ROOT))
                part = self.open_part
            self.open_part = None
            return [*chunks, {"type": PARTS[part.kind][2], "id": part.part_id}] if part is not None else chunks
        if isinstance(block, core.Data):
            chunks = self._ensure_step()
            return [*chunks, _data("block", f"{self._step}.{closed.index}", block.data)]
        if isinstance(block, core.Image | core.File):
            return [*self._ensure_step(), {"type": "file", "url": block.url, "mediaType": media_type_of(block)}]
        return []

    def _on_card(self, card: core.Json) -> list[Chunk]:
        schema = compile_card(card)
        if schema is None:
            return []
        self._card_count += 1
        return [*self._ensure_step(), _data("card", f"card-{self._card_count}", schema)]

    # --- calls ----------------------------------------------------------------------------------------------------

    def _call(self, opened: CallOpened) -> list[Chunk]:
        call, kind = opened.call, opened.kind
        dynamic: Chunk = {} if opened.server is None else {"dynamic": True}
        self._calls[call.call_id] = _Call(kind, call, dynamic)
        flags: Chunk = {**({"providerExecuted": True} if kind in SERVERS_OWN else {}), **dynamic}
        chunks = _input(call, flags, is_complete=not self._is_repeated(kind), is_repeat=opened.repeat)
        if kind == "permission":
            chunks += self._approval_request(call.call_id)
        return chunks

    def _is_repeated(self, kind: CallKind) -> bool:
        """Whether a page must not run or ask what it receives, as it is of a run before the one that is joined."""
        is_of_turn = self._last_run is not None and not self._is_single_run
        return kind in ("client", "question") and is_of_turn and self._run != self._last_run

    def _on_call_parked(self, parked: CallParked) -> list[Chunk]:
        """A call that waits although it was opened as one that does not. A question gets a part of its own."""
        call_id, kind = parked.call_id, parked.kind or "permission"
        if (opened := self._inner.get(call_id)) is not None:
            self._inner[call_id] = asking_call(opened, parked)
            return []
        known = self._calls.get(call_id)
        if known is None:
            return []
        asked = shown_call(known.call, kind, parked.note)
        if asked is not known.call:
            part_id = question_id(call_id, known.answered_seq)
            self._calls[call_id] = known._replace(question=part_id)
            question = msgspec.structs.replace(asked, call_id=CallId(part_id))
            return _input(question, {}, is_complete=not self._is_repeated(kind))
        self._calls[call_id] = known._replace(kind=kind)
        # Clients send no answers to calls of the server's own.
        flags: Chunk = {"providerExecuted": False, **known.dynamic}
        if self._is_repeated(kind):
            return _input(asked, flags, is_complete=False)
        complete = _input(asked, flags, is_complete=True, is_repeat=parked.is_repeat)[-1]
        return [complete, *(self._approval_request(call_id) if kind == "permission" else [])]

    def _approval_request(self, call_id: CallId) -> list[Chunk]:
        self._calls[call_id] = self._calls[call_id]._replace(has_approval=True)
        if self._client_version == 5:
            return [_data("approval", call_id, {"toolCallId": call_id})]
        return [{"type": "tool-approval-request", "approvalId": call_id, "toolCallId": call_id}]

    def _on_answer(self, answer: AnswerGiven, seq: int) -> list[Chunk]:
        """The decision about a call. Only 7 knows it as a chunk, and only who did not make it needs it."""
        call_id = answer.call_id
        call = self._calls.get(call_id)
        if call is None:
            return []
        self._calls[call_id] = call._replace(question=None, answered_seq=seq)
        if call.question is not None:
            return [_answered(call.question, answer)]
        if not call.has_approval or self._is_single_run:
            return []
        if self._client_version == 5 or (self._client_version == 6 and self._last_run is not None):
            return []
        decision: Chunk = {"type": "tool-approval-response", "approvalId": call_id, "approved": answer.granted}
        return [{**decision, "reason": answer.reason} if answer.reason else decision]

    def _on_call_settled(self, settled: CallSettled) -> list[Chunk]:
        result = settled.result
        self._inner.pop(result.call_id, None)
        call = self._calls.pop(result.call_id, None)
        if call is None:
            return []
        own: Chunk = {"toolCallId": result.call_id, **call.dynamic}
        text = core.text_of(result.content)
        if call.question is not None:
            closed = ({"toolCallId": call.question}, {**own, "providerExecuted": True})
            return [{"type": "tool-output-error", "errorText": text, **each} for each in closed]
        if settled.outcome == "denied" and call.has_approval and self._client_version != 5:
            return [{"type": "tool-output-denied", "toolCallId": result.call_id}]
        flags: Chunk = {} if call.kind in ("client", "question") else {"providerExecuted": True}
        if settled.outcome == "done":
            return [{"type": "tool-output-available", **own, "output": output_of(result), **flags}]
        return [{"type": "tool-output-error", **own, "errorText": text, **flags}]

    def _show_inner_calls(self) -> list[Chunk]:
        """The calls of sub-agents that wait, as calls of the message in a step of their own."""
        waiting = [
            opened
            for call_id, opened in self._inner.items()
            if call_id not in self._calls and opened.kind in ("client", "permission", "question")
        ]
        if not waiting:
            return []
        self._is_step_due = True
        chunks = self._ensure_step()
        for opened in waiting:
            chunks += self._call(opened)
        return chunks


def _input(call: core.Call, flags: Chunk, *, is_complete: bool, is_repeat: bool = False) -> list[Chunk]:
    """A call with its input. Pages run or ask it when the input is complete, unless the flags say who else does.

    Of a call that may have run already, pages keep the mark in its part, as `callProviderMetadata`.
    """
    names: Chunk = {"toolCallId": call.call_id, "toolName": call.name}
    chunks: list[Chunk] = [
        {"type": "tool-input-start", **names, **flags},
        {"type": "tool-input-delta", "toolCallId": call.call_id, "inputTextDelta": compact_json(call.input)},
    ]
    if not is_complete:
        return chunks
    available: Chunk = {"type": "tool-input-available", **names, "input": call.input, **flags}
    if is_repeat:
        mark = {"repeat": True, "message": repeat_question(call.name)}
        available["providerMetadata"] = {"dragoman": mark}
    return [*chunks, available]


def _answered(part_id: str, answer: AnswerGiven) -> Chunk:
    """What came of a question that a tool asked."""
    own: Chunk = {"toolCallId": part_id}
    if answer.result is None or answer.result.is_error:
        return {"type": "tool-output-error", **own, "errorText": answer.reason or DECLINED_MESSAGE}
    return {"type": "tool-output-available", **own, "output": output_of(answer.result)}


def _side_content(event: Event) -> list[Chunk]:
    """Content beside the text: a plan, the shared state, a stage."""
    match event:
        case PlanUpdated(loop="root") as plan:
            return [_data("plan", "plan", plan.content())]
        case SharedStateReplaced(loop="root", state=state):
            return [_data("state", "state", state)]
        case StageChanged(loop="root", stage=stage):
            return [{"type": "data-stage", "data": {"stage": stage}, "transient": True}]
    return []


def _usage_of(usage: core.Usage) -> core.JsonObject:
    total = usage.input_tokens + usage.output_tokens
    return {"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens, "totalTokens": total}


def _delta(part: OpenPart, text: str) -> Chunk:
    return {"type": PARTS[part.kind][1], "id": part.part_id, "delta": text}


def _data(kind: str, part_id: str, data: core.Json) -> Chunk:
    return {"type": f"data-{kind}", "id": part_id, "data": data}


def output_of(result: core.ToolMessage) -> core.Json:
    """What a tool returned, without the `_meta` that is for other protocols."""
    if result.raw is not msgspec.UNSET:
        raw = result.raw
        return {name: value for name, value in raw.items() if name != "_meta"} if isinstance(raw, dict) else raw
    if isinstance(result.content, str):
        return result.content
    return [part_of(block) for block in result.content]


def part_of(block: core.InputBlock) -> core.JsonObject:
    """A block of a user message or a result as a part."""
    match block:
        case core.Text(text=text):
            return {"type": "text", "text": text}
        case core.Data(data=data):
            return {"type": "data-block", "data": data}
        case core.Image() | core.File():
            named = {"filename": block.name} if block.name else {}
            return {"type": "file", "mediaType": media_type_of(block), "url": block.url, **named}
