"""The records of one run → AG-UI 1.0 events. Pure.

    MessageOpened            nothing yet: a step may consist of calls alone
      pieces of text         TEXT_MESSAGE_START once, then CONTENT for each piece (id: that of the stored message)
      pieces of thinking     REASONING_START, REASONING_MESSAGE_START once, then CONTENT for each piece
      BlockClosed            ends reasoning; an image, file or data block is CUSTOM `dragoman.block`
      CardUpdated            CUSTOM `dragoman.ui_schema`; like such a block it begins the message, if no text has
      CallOpened             TEXT_MESSAGE_END if the text is open, then TOOL_CALL_START, ARGS, END before the tool runs
    MessageClosed            TEXT_MESSAGE_END if the text is open
    StageChanged             STEP_FINISHED for the previous stage, STEP_STARTED
    SharedStateReplaced      STATE_SNAPSHOT; in the same run also STATE_DELTA, where that is smaller
    CallSettled              TOOL_CALL_RESULT, except for results that the application itself gave. Those of calls that
                             the run's message closed precede the run, and are sent after its RUN_STARTED
    RunStopped               RUN_FINISHED or RUN_ERROR

A text stays open beside reasoning of the same step, so that each message is opened and closed once. Events of a
sub-agent carry its `subagentRunId`, the id of the call `Agent` that started it.
Source: specification of AG-UI, B.5, B.7, B.8; shared rules, 16, 24, 25.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypedDict

import msgspec

from dragoman.core import content as core
from dragoman.core.answers import compact_json, questions_of
from dragoman.core.events import (
    BlockClosed,
    CallOpened,
    CallParked,
    CallSettled,
    CardUpdated,
    Event,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    PlanUpdated,
    RunStarted,
    RunStopped,
    SharedStateReplaced,
    StageChanged,
)
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId, RunId
from dragoman.core.open_calls import OpenCall, OpenCalls
from dragoman.core.question_text import repeat_question
from dragoman.core.stream import Piece, Record, split_into_pieces
from dragoman.core.tools import FORK
from dragoman.protocols.agui import events as agui_events
from dragoman.protocols.agui.content import (
    Cancelled,
    Interrupt,
    Interrupted,
    Outcome,
    SubagentSuccess,
    SubagentSuspended,
    Success,
    TokenUsage,
)
from dragoman.protocols.agui.messages import (
    STATUS_METADATA,
    activity_id,
    block_event,
    card_event,
    content_to_wire,
    fit_content,
    metadata_of,
    milliseconds,
    outcome_metadata,
    reasoning_id,
    subagent_of,
    subagent_run_id,
)
from dragoman.protocols.agui.state_patch import delta_of

PROTOCOL = "ag-ui"
VERSION = "1.0"
FAILED_MESSAGE = "The agent failed"
CALL_TEXT_CHARS = 1000
"""Characters of the arguments in an interrupt's message."""
PERMISSION_SCHEMA: core.JsonObject = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string"},
        "remember": {"type": "boolean"},
    },
    "required": ["approved"],
}
"""An answer to an approval: the decision, a reason for the model, and whether it holds for later calls of the tool."""
EDITING_SCHEMA: core.JsonObject = {
    **PERMISSION_SCHEMA,
    "properties": {**PERMISSION_SCHEMA["properties"], "editedArgs": {"type": "object"}},
}
"""The same of a call that can be edited, with the arguments with which it runs instead of its own."""
CHOICE_SCHEMA: core.JsonObject = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "selections": {
                    "type": ["array", "object"],
                    "description": "labels or indices: a list, or lists by question",
                },
                "custom": {"type": ["string", "object"], "description": "free text: a string, or strings by question"},
            },
            "minProperties": 1,
            "additionalProperties": False,
        },
        {"type": "string"},
    ]
}
"""An answer to a question (shared rules, 21)."""


class _Step:
    """The model step that a loop has open."""

    __slots__ = ("at", "has_reasoned", "message_id", "thinking")

    def __init__(self, message_id: MessageId, at: int) -> None:
        self.message_id = message_id
        self.at = at
        self.thinking: str | None = None
        """The id of the open reasoning message."""
        self.has_reasoned = False


class _Stamp(TypedDict):
    """The members that all events of a loop have."""

    timestamp: int
    subagent_run_id: str | None


def _stamp(at: int, loop: LoopId) -> _Stamp:
    return {"timestamp": at, "subagent_run_id": subagent_run_id(loop)}


# Large: what is open in a stream, each in its own attribute.
class Translator:
    """Turns the records of one run into events. The same records give the same events, live and in every replay.

    Args:
        run_id: the run's id in the core; None: of the run that starts next.
        thread_id: the session's id for the client.
        client_run_id: the run's id for the client; by default the one that the run was started with.
        shows_input: also show what the application sent: user messages as texts, and its own results.
        shows_blocks: show the images, files and data of answers.
    """

    def __init__(
        self,
        run_id: RunId | None,
        *,
        thread_id: str,
        client_run_id: str | None = None,
        shows_input: bool = False,
        shows_blocks: bool = True,
    ) -> None:
        self._run_id = run_id
        self._thread_id = thread_id
        self._client_run_id = client_run_id
        self._shows_input = shows_input
        self._shows_blocks = shows_blocks
        self._has_begun = False
        self._closed_calls: list[tuple[RunId | None, CallSettled]] = []
        """The results before the run, each with the run whose message closed its call."""
        self._texts: dict[LoopId, MessageId] = {}
        """The open text of each loop."""
        self._steps: dict[LoopId, _Step] = {}
        self._open_calls = OpenCalls()
        """The calls of this run without a result."""
        self._subagents: dict[LoopId, None] = {}
        """The loops of active sub-agents, in the order in which they started."""
        self._stages: dict[LoopId, str] = {}
        """The stage that each loop is in."""
        self._state: core.Json = msgspec.UNSET
        """The shared state that was sent last in this run."""
        self._models: set[str | None] = set()
        self.is_over = False
        """Whether the last event ended the run."""

    def feed(self, record: Record) -> list[agui_events.Event]:
        """The events of a record, in order; none for records outside the run."""
        if type(record) is Piece:
            return [text_content(record)] if self.extends_text(record) else self._on_piece(record)
        event = record.event
        if type(event) is RunStarted and self._run_id in (None, event.run_id):
            return list(self._on_run_started(event, milliseconds(record.at)))
        if self._has_begun and not self.is_over:
            return list(self._on_event(event, milliseconds(record.at)))
        if type(event) is CallSettled and not self._has_begun and self._run_id in (None, record.run_id):
            self._closed_calls.append((record.run_id, event))
        return []

    def extends_text(self, piece: Piece) -> bool:
        """Whether a piece continues an open text, so that its only event is its `text_content`."""
        return piece.kind == "text" and self._texts.get(piece.loop) == piece.message_id

    # --- the run --------------------------------------------------------------------------------------------------

    def _on_run_started(self, started: RunStarted, at: int) -> Iterator[agui_events.Event]:
        self._has_begun = True
        self._run_id = started.run_id
        if self._client_run_id is None:
            self._client_run_id = started.client_run_id or started.run_id
        stored = started.metadata.protocol
        parent, unknown = stored.get("parent_run_id"), stored.get("unknown_interrupts")
        remarks = {"droppedTools": started.dropped_tools, "unknownInterrupts": unknown}
        remarks = {name: remark for name, remark in remarks.items() if remark}
        yield agui_events.RunStarted(
            timestamp=at,
            metadata=metadata_of(**remarks) if remarks else None,
            thread_id=self._thread_id,
            run_id=self._client_run_id,
            protocol_version=VERSION,
            parent_run_id=parent if isinstance(parent, str) else None,
        )
        for run_id, settled in self._closed_calls:
            if run_id == started.run_id:
                yield from self._on_call_settled(settled, at)

    def _on_run_stopped(self, stopped: RunStopped, at: int) -> Iterator[agui_events.Event]:
        self.is_over = True
        usage = _usage(stopped.usage, self._models)
        if (failure := failure_of(stopped)) is not None:
            yield agui_events.RunError(timestamp=at, message=failure.message, code=failure.code, usage=usage)
            return
        metadata: core.JsonObject | None = None
        match stopped.reason:
            case "cancelled":
                outcome: Outcome = Cancelled()
            case "max_tokens" | "refusal":
                outcome, metadata = Success(), metadata_of(stopReason=stopped.reason)
            case _:
                outcome, metadata = outcome_of(self._open_calls.values())
        yield from self._suspend_subagents(at)
        yield from self._change_stage(ROOT, None, at)
        yield agui_events.RunFinished(
            timestamp=at,
            metadata=metadata,
            thread_id=self._thread_id,
            run_id=self._client_run_id or stopped.run_id,
            outcome=outcome,
            usage=usage,
        )

    def _change_stage(self, loop: LoopId, stage: str | None, at: int) -> Iterator[agui_events.Event]:
        if (previous := self._stages.pop(loop, None)) is not None:
            yield agui_events.StepFinished(**_stamp(at, loop), step_name=previous)
        if stage is not None:
            self._stages[loop] = stage
            yield agui_events.StepStarted(**_stamp(at, loop), step_name=stage)

    def _suspend_subagents(self, at: int) -> Iterator[agui_events.Event]:
        """The ends of the sub-agents that wait, innermost first."""
        for loop in reversed(self._subagents):
            waiting = (each for each in self._open_calls.values() if each.loop == loop and is_interrupt(each))
            outcome = SubagentSuspended(interrupt_ids=tuple(each.call.call_id for each in waiting) or None)
            yield from self._change_stage(loop, None, at)
            yield agui_events.SubagentFinished(timestamp=at, subagent_run_id=subagent_of(loop), outcome=outcome)
        self._subagents.clear()

    # --- what happens in it ---------------------------------------------------------------------------------------

    def _on_event(self, event: Event, at: int) -> Iterator[agui_events.Event]:
        match event:
            case MessageAdded(message=core.UserMessage() as message) if self._shows_input:
                yield from self._on_input(message, at)
            case MessageOpened(message_id=message_id, loop=loop):
                self._steps[loop] = _Step(message_id, at)
                yield from self._start_subagent(loop, at)
            case BlockClosed():
                yield from self._on_block_closed(event, at)
            case MessageClosed():
                yield from self._on_message_closed(event, at)
            case RunStopped(run_id=run_id) if run_id == self._run_id:
                yield from self._on_run_stopped(event, at)
            case CallOpened():
                yield from self._on_call_opened(event, at)
            case CallSettled():
                yield from self._on_call_settled(event, at)
            case CallParked():
                self._open_calls.park(event)
            case PlanUpdated() | SharedStateReplaced():
                yield from self._on_side_content(event, at)
            case CardUpdated(loop=loop) if (card := card_event(event, at)) is not None:
                yield from self._start_subagent(loop, at)
                yield from self._begin_text(loop)
                yield card
            case StageChanged(stage=stage, loop=loop):
                yield from self._start_subagent(loop, at)
                yield from self._change_stage(loop, stage, at)

    def _on_input(self, message: core.UserMessage, at: int) -> Iterator[agui_events.Event]:
        """What the application sent, as texts."""
        message_id = message.client_id or message.id
        yield agui_events.TextMessageStart(timestamp=at, message_id=message_id, role="user")
        yield agui_events.TextMessageContent(timestamp=at, message_id=message_id, delta=core.text_of(message.content))
        yield agui_events.TextMessageEnd(timestamp=at, message_id=message_id)

    def _on_side_content(self, update: PlanUpdated | SharedStateReplaced, at: int) -> Iterator[agui_events.Event]:
        """What accompanies the text: a plan, or the state."""
        stamp = _stamp(at, update.loop)
        yield from self._start_subagent(update.loop, at)
        if isinstance(update, PlanUpdated):
            yield agui_events.ActivitySnapshot(
                **stamp,
                message_id=activity_id(self._run_id or "", update.loop),
                activity_type="PLAN",
                content=update.content(),
                replace=True,
            )
            return
        known, self._state = self._state, update.state
        delta = None if known is msgspec.UNSET else delta_of(known, update.state)
        if delta is None:
            yield agui_events.StateSnapshot(**stamp, snapshot=update.state)
        else:
            yield agui_events.StateDelta(**stamp, delta=delta)

    def _on_piece(self, piece: Piece) -> list[agui_events.Event]:
        """A piece that starts a text or reasoning, or continues reasoning."""
        step = self._steps.get(piece.loop)
        if step is None or step.message_id != piece.message_id or self.is_over:
            return []
        if piece.kind == "text":
            return [*self._begin_text(piece.loop), text_content(piece)]
        stamp, thinking_id = _stamp(step.at, piece.loop), reasoning_id(piece.message_id, piece.index)
        thought = agui_events.ReasoningMessageContent(
            message_id=thinking_id, delta=piece.text, subagent_run_id=stamp["subagent_run_id"]
        )
        if step.thinking == thinking_id:
            return [thought]
        step.thinking, step.has_reasoned = thinking_id, True
        return [
            agui_events.ReasoningStart(**stamp, message_id=thinking_id),
            agui_events.ReasoningMessageStart(**stamp, message_id=thinking_id, role="reasoning"),
            thought,
        ]

    def _on_block_closed(self, closed: BlockClosed, at: int) -> Iterator[agui_events.Event]:
        stamp, step = _stamp(at, closed.loop), self._steps.get(closed.loop)
        if isinstance(closed.block, core.Thinking):
            if step is not None and step.thinking is not None:
                thinking_id, step.thinking = step.thinking, None
                yield agui_events.ReasoningMessageEnd(**stamp, message_id=thinking_id)
                yield agui_events.ReasoningEnd(**stamp, message_id=thinking_id)
        elif not isinstance(closed.block, core.Text) and self._shows_blocks:
            yield from self._begin_text(closed.loop)
            yield block_event(closed, at)

    def _begin_text(self, loop: LoopId) -> Iterator[agui_events.Event]:
        """The start of the message of a loop's step, if it has not started: with its first text, block or card."""
        step = self._steps.get(loop)
        if step is not None and loop not in self._texts:
            self._texts[loop] = step.message_id
            yield agui_events.TextMessageStart(**_stamp(step.at, loop), message_id=step.message_id, role="assistant")

    def _on_message_closed(self, closed: MessageClosed, at: int) -> Iterator[agui_events.Event]:
        """The end of a step's text. A cut step without text gets an empty one, if its reasoning was shown."""
        self._models.add(closed.model)
        step = self._steps.get(closed.loop)
        if closed.status == "cut" and step is not None and step.has_reasoned:
            yield from self._begin_text(closed.loop)
        self._steps.pop(closed.loop, None)
        yield from self._end_text(closed.loop, at, STATUS_METADATA.get(closed.status))

    def _end_text(self, loop: LoopId, at: int, metadata: core.JsonObject | None = None) -> Iterator[agui_events.Event]:
        if (message_id := self._texts.pop(loop, None)) is not None:
            yield agui_events.TextMessageEnd(**_stamp(at, loop), metadata=metadata, message_id=message_id)

    def _on_call_opened(self, opened: CallOpened, at: int) -> Iterator[agui_events.Event]:
        call, stamp = opened.call, _stamp(at, opened.loop)
        self._open_calls.open(opened)
        yield from self._end_text(opened.loop, at)
        yield agui_events.ToolCallStart(
            **stamp, tool_call_id=call.call_id, tool_call_name=call.name, parent_message_id=opened.message_id
        )
        for part in split_into_pieces(compact_json(call.input)):
            yield agui_events.ToolCallArgs(**stamp, tool_call_id=call.call_id, delta=part)
        yield agui_events.ToolCallEnd(**stamp, tool_call_id=call.call_id)

    def _on_call_settled(self, settled: CallSettled, at: int) -> Iterator[agui_events.Event]:
        result = settled.result
        self._open_calls.settle(result.call_id)
        yield from self._start_subagent(result.loop, at)
        yield from self._end_subagent(settled, at)
        if self._shows_input or not settled.by_client:
            yield agui_events.ToolCallResult(
                **_stamp(at, result.loop),
                metadata=outcome_metadata(settled.outcome),
                message_id=result.id,
                tool_call_id=result.call_id,
                content=fit_content(content_to_wire(result.content)),
                role="tool",
            )

    # --- sub-agents -----------------------------------------------------------------------------------------------

    def _start_subagent(self, loop: LoopId, at: int) -> Iterator[agui_events.Event]:
        """The start of a loop's sub-agent, unless it is active already. Precedes the loop's first event."""
        if loop == ROOT or loop in self._subagents:
            return
        self._subagents[loop] = None
        parent = self._open_calls.get(CallId(subagent_of(loop)))
        arguments = {} if parent is None else parent.call.input
        above = None if parent is None else parent.loop
        yield agui_events.SubagentStarted(
            timestamp=at,
            subagent_run_id=subagent_of(loop),
            name=_text_argument(arguments, "agent") or FORK,
            description=_text_argument(arguments, "description") or _text_argument(arguments, "task"),
            parent_subagent_run_id=subagent_run_id(above) if above in self._subagents else None,
            parent_tool_call_id=subagent_of(loop),
        )

    def _end_subagent(self, settled: CallSettled, at: int) -> Iterator[agui_events.Event]:
        loop = next((each for each in self._subagents if subagent_of(each) == settled.result.call_id), None)
        if loop is None:
            return
        del self._subagents[loop]
        yield from self._change_stage(loop, None, at)
        subagent_id, text = subagent_of(loop), core.text_of(settled.result.content)
        if settled.outcome == "done":
            done = SubagentSuccess()
            yield agui_events.SubagentFinished(timestamp=at, subagent_run_id=subagent_id, outcome=done, result=text)
        else:
            yield agui_events.SubagentError(
                timestamp=at, subagent_run_id=subagent_id, message=text, code=settled.outcome
            )


class Failure(NamedTuple):
    """Why a run failed."""

    code: str
    message: str


def failure_of(stopped: RunStopped) -> Failure | None:
    """Why a run failed; None if it ended otherwise."""
    if stopped.reason not in ("error", "max_steps", "interrupted"):
        return None
    code = stopped.code or ("agent_error" if stopped.reason == "error" else stopped.reason)
    return Failure(code, stopped.message or FAILED_MESSAGE)


def text_content(piece: Piece) -> agui_events.TextMessageContent:
    """The event of a piece that continues an open text."""
    tag = None if piece.loop == ROOT else subagent_of(piece.loop)
    return agui_events.TextMessageContent(message_id=piece.message_id, delta=piece.text, subagent_run_id=tag)


def _usage(usage: core.Usage, models: set[str | None]) -> tuple[TokenUsage, ...] | None:
    total = usage.input_tokens + usage.output_tokens
    if not total:
        return None
    counts = {
        "input_tokens": usage.input_tokens or None,
        "output_tokens": usage.output_tokens or None,
        "reasoning_tokens": usage.reasoning_tokens or None,
        "cached_input_tokens": usage.cached_tokens or None,
    }
    return (TokenUsage(model=next(iter(models)) if len(models) == 1 else None, total_tokens=total, **counts),)


# --- outcomes ---------------------------------------------------------------------------------------------------------


def is_interrupt(call: OpenCall) -> bool:
    """Whether a person has to decide about a call."""
    return call.is_waiting() and call.waits_for != "client"


def outcome_of(calls: Iterable[OpenCall]) -> tuple[Outcome, core.JsonObject | None]:
    """The outcome of a run that leaves these calls open, and its metadata.

    With interrupts, the calls that the client has to run are in the metadata: that outcome has no member for them.
    Calls that need neither a person nor the client are left out.
    """
    open_calls = tuple(calls)
    interrupts = tuple(_interrupt(each) for each in open_calls if is_interrupt(each))
    pending = tuple(each.call.call_id for each in open_calls if each.waits_for == "client")
    if interrupts:
        return Interrupted(interrupts=interrupts), metadata_of(pendingToolCallIds=pending) if pending else None
    return Success(pending_tool_call_ids=pending or None), None


def _interrupt(pending: OpenCall) -> Interrupt:
    call, is_root, is_question = pending.shown(), pending.loop == ROOT, pending.waits_for == "question"
    name = (call.name or "a tool") if is_root else _call_text(call)
    schema = EDITING_SCHEMA if pending.can_be_edited else PERMISSION_SCHEMA
    if is_question:
        message = _questions_text(call, with_options=not is_root) or "The agent asks a question"
    elif pending.is_repeat:
        message = repeat_question(name)
    else:
        message = f"Allow the call of {name}?"
    return Interrupt(
        id=call.call_id,
        reason="input_required" if is_question else "tool_call",
        message=message,
        tool_call_id=call.call_id,
        response_schema=CHOICE_SCHEMA if is_question else schema,
        subagent_run_id=subagent_run_id(pending.loop),
        metadata=_interrupt_metadata(pending),
    )


def _interrupt_metadata(pending: OpenCall) -> core.JsonObject | None:
    """What clients read nowhere else: that a call may have run already, and questions that are not its arguments."""
    if pending.is_repeat:
        return metadata_of(repeat=True)
    if pending.waits_for == "question" and pending.shown().input != pending.call.input:
        return metadata_of(questions=pending.shown().input.get("questions"))
    return None


def _call_text(call: core.Call) -> str:
    """A call with its arguments, for clients that see nothing else of a sub-agent's call."""
    arguments = ", ".join(f"{name}={compact_json(value)}" for name, value in call.input.items())
    return f"{call.name}({arguments[:CALL_TEXT_CHARS]}{'…' if len(arguments) > CALL_TEXT_CHARS else ''})"


def _questions_text(call: core.Call, *, with_options: bool) -> str:
    texts = []
    for each in questions_of(call.input).questions:
        options = ", ".join(option.label for option in each.options)
        texts.append(f"{each.question} ({options})" if options and with_options else each.question)
    return " ".join(texts)


def _text_argument(arguments: core.JsonObject, name: str) -> str | None:
    value = arguments.get(name)
    return value if isinstance(value, str) and value else None
