"""One run of the core → AG-UI's events, in their 1.0 form. Pure.

    MessageOpened            nothing yet: a step may hold calls alone
      pieces of text         TEXT_MESSAGE_START once, then CONTENT for each piece (id: that of the stored message)
      pieces of thinking     REASONING_START, REASONING_MESSAGE_START, then CONTENT for each piece
      BlockClosed            ends a thinking; an image or data block is CUSTOM `dragoman.block`
      CallOpened             TEXT_MESSAGE_END if the text is open, then TOOL_CALL_START, ARGS, END: before the tool runs
    MessageClosed            TEXT_MESSAGE_END if the text is open
    StageChanged             STEP_FINISHED for the stage before, STEP_STARTED
    StateShared              STATE_SNAPSHOT
    CallSettled              TOOL_CALL_RESULT, but for results that the application itself gave
    RunStopped               RUN_FINISHED or RUN_ERROR

A text stays open beside a thinking of the same step, so that each message is opened and closed once. What belongs to a
sub-agent carries its `subagentRunId`, which is the id of the call `Agent` that started it.
Source: specification of the face, B.5, B.7, B.8; rulings, 16, 24, 25.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from dragoman.core import content as core
from dragoman.core.answers import compact_json, questions_of
from dragoman.core.events import (
    BlockClosed,
    CallKind,
    CallOpened,
    CallParked,
    CallSettled,
    CardUpdated,
    LoggedEvent,
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
from dragoman.core.stream import Piece, Record, split_into_pieces
from dragoman.core.tools import FORK
from dragoman.core.ui_schema import compile_card
from dragoman.protocols.agui import events as wire
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
    activity_id,
    block_value,
    content_to_wire,
    fit_content,
    metadata_of,
    plan_content,
    reasoning_id,
    subagent_of,
)

PROTOCOL = "ag-ui"
VERSION = "1.0"
FAILED_MESSAGE = "The agent failed"
PERMISSION_SCHEMA: core.JsonObject = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}, "remember": {"type": "boolean"}},
    "required": ["approved"],
}
"""What answers an approval: a decision, words for the model, whether it holds for all later calls of the tool too."""
CHOICE_SCHEMA: core.JsonObject = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "selections": {
                    "type": ["array", "object"],
                    "description": "labels or indices: a list, or lists by question",
                },
                "custom": {
                    "type": ["string", "object"],
                    "description": "words of one's own: a text, or texts by question",
                },
            },
            "minProperties": 1,
            "additionalProperties": False,
        },
        {"type": "string"},
    ]
}
"""What answers a question (rulings, 21)."""


class PendingCall(NamedTuple):
    """A call without a result. Without a call: it was made in an earlier run, and parked in this one."""

    call_id: CallId
    kind: CallKind
    loop: LoopId
    call: core.Call | None
    is_parked: bool = False

    def is_interrupt(self) -> bool:
        """Whether a person has to say something about it."""
        return self.is_parked or self.kind in ("permission", "question")


class _Step:
    """The model step that a loop has open."""

    __slots__ = ("at", "has_text", "message_id", "thinking")

    def __init__(self, message_id: MessageId, at: int) -> None:
        self.message_id = message_id
        self.at = at
        self.has_text = False
        self.thinking: str | None = None


class Translator:
    """Turns the records of one run into events. The same records give the same events, live and in every replay."""

    def __init__(
        self, run_id: RunId, *, thread_id: str, client_run_id: str | None = None, shows_input: bool = False
    ) -> None:
        """Begin before the run's first record.

        Args:
            run_id: the run, as the core knows it.
            thread_id: the session, as the client knows it.
            shown_run_id: the run, as the client knows it; else as the run's own client named it.
            shows_input: also tell what the application sent: user messages as texts, its own results.
        """
        self._run_id = run_id
        self._thread_id = thread_id
        self._client_run_id = client_run_id
        self._shows_input = shows_input
        self._has_begun = False
        self._texts: dict[LoopId, MessageId] = {}
        """The open text of each loop."""
        self._steps: dict[LoopId, _Step] = {}
        self._open_calls: dict[CallId, PendingCall] = {}
        """The calls of this run without a result."""
        self._subagents: dict[LoopId, None] = {}
        """The loops of sub-agents that are at work, in the order of their beginning."""
        self._stages: dict[LoopId, str] = {}
        """The stage that each loop is in."""
        self._models: set[str | None] = set()
        self.is_over = False
        """Whether the last event was the run's end."""

    def feed(self, record: Record) -> list[wire.Event]:
        """The events of a record, in order; none for records outside the run."""
        if type(record) is Piece:
            if record.kind == "text" and self._texts.get(record.loop) == record.message_id:
                return [
                    wire.TextMessageContent(
                        message_id=record.message_id,
                        delta=record.text,
                        subagent_run_id=None if record.loop == ROOT else subagent_of(record.loop),
                    )
                ]
            return self._on_piece(record)
        assert isinstance(record, LoggedEvent), "a record is a piece or an event"
        if isinstance(record.event, RunStarted) and record.event.run_id == self._run_id:
            return [self._on_run_started(record.event, _ms(record.at))]
        if not self._has_begun or self.is_over:
            return []
        return self._on_event(record, _ms(record.at))

    # --- the run --------------------------------------------------------------------------------------------------

    def _on_run_started(self, started: RunStarted, at: int) -> wire.Event:
        self._has_begun = True
        if self._client_run_id is None:
            self._client_run_id = started.client_run_id or started.run_id
        parent, unknown = started.metadata.get("parent_run_id"), started.metadata.get("unknown_interrupts")
        remarks = {"dropped_tools": started.dropped_tools, "unknown_interrupts": unknown}
        said = {name: remark for name, remark in remarks.items() if remark}
        return wire.RunStarted(
            timestamp=at,
            metadata=metadata_of(**said) if said else None,
            thread_id=self._thread_id,
            run_id=self._client_run_id,
            protocol_version=VERSION,
            parent_run_id=parent if isinstance(parent, str) else None,
        )

    def _on_run_stopped(self, stopped: RunStopped, at: int) -> list[wire.Event]:
        self.is_over = True
        usage = self._usage(stopped.usage)
        match stopped.reason:
            case "error" | "max_steps" | "interrupted":
                code = stopped.code or ("agent_error" if stopped.reason == "error" else stopped.reason)
                return [wire.RunError(timestamp=at, message=stopped.message or FAILED_MESSAGE, code=code, usage=usage)]
            case "cancelled":
                outcome: Outcome = Cancelled()
                metadata = None
            case "max_tokens" | "refusal":
                outcome, metadata = Success(), metadata_of(stop_reason=stopped.reason)
            case _:
                outcome, metadata = outcome_of(self._open_calls.values())
        return [
            *self._suspend_subagents(at),
            *self._change_stage(ROOT, None, at),
            wire.RunFinished(
                timestamp=at,
                metadata=metadata,
                thread_id=self._thread_id,
                run_id=self._client_run_id or self._run_id,
                outcome=outcome,
                usage=usage,
            ),
        ]

    def _change_stage(self, loop: LoopId, stage: str | None, at: int) -> list[wire.Event]:
        """The end of a loop's stage, and the beginning of the next."""
        before, tag = self._stages.pop(loop, None), _subagent_run_id(loop)
        found: list[wire.Event] = []
        if before is not None:
            found.append(wire.StepFinished(timestamp=at, step_name=before, subagent_run_id=tag))
        if stage is not None:
            self._stages[loop] = stage
            found.append(wire.StepStarted(timestamp=at, step_name=stage, subagent_run_id=tag))
        return found

    def _suspend_subagents(self, at: int) -> list[wire.Event]:
        """The sub-agents that wait, innermost first."""
        ends: list[wire.Event] = []
        for loop in reversed(self._subagents):
            own = tuple(each.call_id for each in self._open_calls.values() if each.loop == loop and each.is_interrupt())
            outcome = SubagentSuspended(interrupt_ids=own or None)
            ends += self._change_stage(loop, None, at)
            ends.append(wire.SubagentFinished(timestamp=at, subagent_run_id=subagent_of(loop), outcome=outcome))
        self._subagents.clear()
        return ends

    def _usage(self, usage: core.Usage) -> tuple[TokenUsage, ...] | None:
        total = usage.input_tokens + usage.output_tokens
        if not total:
            return None
        model = next(iter(self._models)) if len(self._models) == 1 else None
        return (
            TokenUsage(
                model=model,
                input_tokens=usage.input_tokens or None,
                output_tokens=usage.output_tokens or None,
                total_tokens=total,
            ),
        )

    # --- what happens in it ---------------------------------------------------------------------------------------

    def _on_event(self, logged: LoggedEvent, at: int) -> list[wire.Event]:
        match logged.event:
            case MessageOpened(message_id=message_id, loop=loop):
                self._steps[loop] = _Step(message_id, at)
                return self._start_subagent(loop, at)
            case BlockClosed() as closed:
                return self._on_block_closed(closed, at)
            case CallOpened() as opened:
                return self._on_call_opened(opened, at)
            case MessageClosed(loop=loop, status=status, model=model):
                self._models.add(model)
                self._steps.pop(loop, None)
                return self._end_text(loop, at, is_cut=status in ("cut", "interrupted"))
            case CallSettled() as settled:
                return self._on_call_settled(settled, at)
            case CallParked(call_id=call_id):
                asked = self._open_calls.get(call_id) or PendingCall(call_id, "permission", ROOT, None)
                self._open_calls[call_id] = asked._replace(is_parked=True)
                return []
            case PlanUpdated() | CardUpdated() | SharedStateReplaced() as shown:
                return self._side_content(shown, at)
            case StageChanged(stage=stage, loop=loop):
                return [*self._start_subagent(loop, at), *self._change_stage(loop, stage, at)]
            case MessageAdded(message=core.UserMessage() as message) if self._shows_input:
                return _user_message_events(message, at)
            case RunStopped(run_id=run_id) as stopped if run_id == self._run_id:
                return self._on_run_stopped(stopped, at)
            case _:
                return []

    def _side_content(self, source: PlanUpdated | CardUpdated | SharedStateReplaced, at: int) -> list[wire.Event]:
        """What stands beside the words: a plan, a state, an answer's user interface. A bad card never fails a run."""
        loop, tag = source.loop, _subagent_run_id(source.loop)
        event: wire.Event
        if isinstance(source, PlanUpdated):
            event = wire.ActivitySnapshot(
                timestamp=at,
                message_id=activity_id(self._run_id, loop),
                activity_type="PLAN",
                content=plan_content(source),
                replace=True,
                subagent_run_id=tag,
            )
        elif isinstance(source, SharedStateReplaced):
            event = wire.StateSnapshot(timestamp=at, snapshot=source.state, subagent_run_id=tag)
        elif (schema := compile_card(source.card)) is not None:
            event = wire.Custom(timestamp=at, name="dragoman.ui_schema", value=schema, subagent_run_id=tag)
        else:
            return []
        return [*self._start_subagent(loop, at), event]

    def _on_piece(self, piece: Piece) -> list[wire.Event]:
        """A piece that begins a text or a thinking, or goes on with a thinking."""
        step = self._steps.get(piece.loop)
        if step is None or step.message_id != piece.message_id or self.is_over:
            return []
        tag = _subagent_run_id(piece.loop)
        if piece.kind == "text":
            self._texts[piece.loop] = piece.message_id
            return [
                wire.TextMessageStart(
                    timestamp=step.at, message_id=piece.message_id, role="assistant", subagent_run_id=tag
                ),
                wire.TextMessageContent(message_id=piece.message_id, delta=piece.text, subagent_run_id=tag),
            ]
        own = reasoning_id(piece.message_id, piece.index)
        content = wire.ReasoningMessageContent(message_id=own, delta=piece.text, subagent_run_id=tag)
        if step.thinking == own:
            return [content]
        step.thinking = own
        return [
            wire.ReasoningStart(timestamp=step.at, message_id=own, subagent_run_id=tag),
            wire.ReasoningMessageStart(timestamp=step.at, message_id=own, role="reasoning", subagent_run_id=tag),
            content,
        ]

    def _on_block_closed(self, closed: BlockClosed, at: int) -> list[wire.Event]:
        step = self._steps.get(closed.loop)
        if isinstance(closed.block, core.Text):
            return []
        if isinstance(closed.block, core.Thinking):
            if step is None or step.thinking is None:
                return []
            own, step.thinking, tag = step.thinking, None, _subagent_run_id(closed.loop)
            return [
                wire.ReasoningMessageEnd(timestamp=at, message_id=own, subagent_run_id=tag),
                wire.ReasoningEnd(timestamp=at, message_id=own, subagent_run_id=tag),
            ]
        value = block_value(closed)
        return [
            wire.Custom(timestamp=at, name="dragoman.block", value=value, subagent_run_id=_subagent_run_id(closed.loop))
        ]

    def _end_text(self, loop: LoopId, at: int, *, is_cut: bool = False) -> list[wire.Event]:
        message_id = self._texts.pop(loop, None)
        if message_id is None:
            return []
        metadata = metadata_of(interrupted=True) if is_cut else None
        end = wire.TextMessageEnd(
            timestamp=at, metadata=metadata, message_id=message_id, subagent_run_id=_subagent_run_id(loop)
        )
        return [end]

    def _on_call_opened(self, opened: CallOpened, at: int) -> list[wire.Event]:
        call, tag = opened.call, _subagent_run_id(opened.loop)
        self._open_calls[call.call_id] = PendingCall(call.call_id, opened.kind, opened.loop, call)
        start = wire.ToolCallStart(
            timestamp=at,
            tool_call_id=call.call_id,
            tool_call_name=call.name,
            parent_message_id=opened.message_id,
            subagent_run_id=tag,
        )
        arguments: list[wire.Event] = [
            wire.ToolCallArgs(timestamp=at, tool_call_id=call.call_id, delta=part, subagent_run_id=tag)
            for part in split_into_pieces(compact_json(call.input))
        ]
        end = wire.ToolCallEnd(timestamp=at, tool_call_id=call.call_id, subagent_run_id=tag)
        return [*self._end_text(opened.loop, at), start, *arguments, end]

    def _on_call_settled(self, settled: CallSettled, at: int) -> list[wire.Event]:
        result = settled.result
        self._open_calls.pop(result.call_id, None)
        found = [*self._start_subagent(result.loop, at), *self._end_subagent(settled, at)]
        if settled.by_client and not self._shows_input:
            return found
        metadata = None if settled.outcome == "done" else metadata_of(outcome=settled.outcome)
        return [
            *found,
            wire.ToolCallResult(
                timestamp=at,
                metadata=metadata,
                message_id=result.id,
                tool_call_id=result.call_id,
                content=fit_content(content_to_wire(result.content)),
                role="tool",
                subagent_run_id=_subagent_run_id(result.loop),
            ),
        ]

    # --- sub-agents -----------------------------------------------------------------------------------------------

    def _start_subagent(self, loop: LoopId, at: int) -> list[wire.Event]:
        """What has to be told before the first event of a loop: its sub-agent is at work."""
        if loop == ROOT or loop in self._subagents:
            return []
        self._subagents[loop] = None
        parent = self._open_calls.get(CallId(subagent_of(loop)))
        call = None if parent is None else parent.call
        above = None if parent is None else parent.loop
        return [
            wire.SubagentStarted(
                timestamp=at,
                subagent_run_id=subagent_of(loop),
                name=_text_argument(call, "agent") or FORK,
                description=_text_argument(call, "description") or _text_argument(call, "task"),
                parent_subagent_run_id=_subagent_run_id(above) if above in self._subagents else None,
                parent_tool_call_id=subagent_of(loop),
            )
        ]

    def _end_subagent(self, settled: CallSettled, at: int) -> list[wire.Event]:
        """The end of the sub-agent behind a settled call, and of those below it that were cut off with it."""
        loop = next((each for each in self._subagents if subagent_of(each) == settled.result.call_id), None)
        if loop is None:
            return []
        del self._subagents[loop]
        own = subagent_of(loop)
        text = core.text_of(settled.result.content)
        ends = self._change_stage(loop, None, at)
        if settled.outcome == "done":
            done = wire.SubagentFinished(timestamp=at, subagent_run_id=own, outcome=SubagentSuccess(), result=text)
            return [*ends, done]
        return [*ends, wire.SubagentError(timestamp=at, subagent_run_id=own, message=text, code=settled.outcome)]


# --- ends -------------------------------------------------------------------------------------------------------------


def outcome_of(calls: Iterable[PendingCall]) -> tuple[Outcome, core.JsonObject | None]:
    """What a thread with these open calls asks of the application, and the metadata that says the rest.

    Where there are interrupts, the calls that the client has to run besides stand in the metadata: that outcome has no
    place for them. Calls that neither of the two has to do something about are left out.
    """
    open_calls = tuple(calls)
    interrupts = tuple(_interrupt(each) for each in open_calls if each.is_interrupt())
    pending = tuple(each.call_id for each in open_calls if each.kind == "client" and not each.is_parked)
    if interrupts:
        return Interrupted(interrupts=interrupts), metadata_of(pending_tool_call_ids=pending) if pending else None
    return Success(pending_tool_call_ids=pending or None), None


def _interrupt(pending: PendingCall) -> Interrupt:
    call_id, kind, loop, call, is_parked = pending
    name = "a tool" if call is None else call.name
    if kind == "question" and call is not None:
        words = " ".join(each.question for each in questions_of(call.input).questions)
        return Interrupt(
            id=call_id,
            reason="input_required",
            message=words or "The agent asks a question",
            tool_call_id=call_id,
            response_schema=CHOICE_SCHEMA,
            subagent_run_id=_subagent_run_id(loop),
        )
    return Interrupt(
        id=call_id,
        reason="tool_call",
        message=f"The server restarted while {name} ran. Run it again?" if is_parked else f"Allow the call of {name}?",
        tool_call_id=call_id,
        response_schema=PERMISSION_SCHEMA,
        subagent_run_id=_subagent_run_id(loop),
    )


# --- small things -----------------------------------------------------------------------------------------------------


def _user_message_events(message: core.UserMessage, at: int) -> list[wire.Event]:
    own = message.client_id or message.id
    return [
        wire.TextMessageStart(timestamp=at, message_id=own, role="user"),
        wire.TextMessageContent(timestamp=at, message_id=own, delta=core.text_of(message.content)),
        wire.TextMessageEnd(timestamp=at, message_id=own),
    ]


def _subagent_run_id(loop: LoopId | None) -> str | None:
    """The `subagentRunId` of what happens in a loop; none for the root."""
    return None if loop is None or loop == ROOT else subagent_of(loop)


def _text_argument(call: core.Call | None, name: str) -> str | None:
    value = None if call is None else call.input.get(name)
    return value if isinstance(value, str) and value else None


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
