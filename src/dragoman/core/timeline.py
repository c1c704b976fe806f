"""The timeline of a turn: its runs, model steps, calls and waits, as recorded in its part of the log. Pure.

Times are those of the events: a step begins when its message is opened, a call runs from its start to its result.
Values that only agents see (`private`, `provider_data`) are left out.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from dragoman.core.branches import shown_events
from dragoman.core.content import AssistantMessage, Block, Call, Message, MessageStatus, ToolMessage, Usage
from dragoman.core.events import (
    AnswerGiven,
    BlockClosed,
    Branched,
    CallKind,
    CallOpened,
    CallOutcome,
    CallParked,
    CallSettled,
    CallStarted,
    Compaction,
    CompactionMade,
    LoggedEvent,
    MessageClosed,
    MessageOpened,
    ProtocolName,
    RunResumed,
    RunStarted,
    RunStopped,
    StopReason,
    WaitKind,
)
from dragoman.core.history import messages_of, without_repetitions
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId, RunId


class RunSpan(msgspec.Struct, kw_only=True):
    """A run. Without `ended_at` it is still active. `resumed_at`: when other processes continued it after a restart."""

    run_id: RunId
    first_seq: int
    protocol: ProtocolName
    started_at: datetime
    resumed_at: list[datetime] = msgspec.field(default_factory=list)
    ended_at: datetime | None = None
    reason: StopReason | None = None
    code: str | None = None
    message: str | None = None
    usage: Usage = Usage()


class StepSpan(msgspec.Struct, kw_only=True):
    """A model call. `content` are its complete blocks, without the calls that it makes."""

    message_id: MessageId
    loop: LoopId
    first_seq: int
    started_at: datetime
    ended_at: datetime | None = None
    status: MessageStatus | None = None
    model: str | None = None
    usage: Usage | None = None
    context_window: int | None = None
    content: list[Block] = msgspec.field(default_factory=list)


class WaitSpan(msgspec.Struct, kw_only=True):
    """The time in which a call waits for the application or the user."""

    kind: WaitKind | None
    started_at: datetime
    ended_at: datetime | None = None
    granted: bool | None = None


class CallSpan(msgspec.Struct, kw_only=True):
    """A call. `started_at` is when its tool began to run; None if it never did, or is run by the application."""

    call: Call
    kind: CallKind
    loop: LoopId
    message_id: MessageId
    first_seq: int
    opened_at: datetime
    started_at: datetime | None = None
    waits: list[WaitSpan] = msgspec.field(default_factory=list)
    ended_at: datetime | None = None
    outcome: CallOutcome | None = None
    result: ToolMessage | None = None


class Timeline(msgspec.Struct, frozen=True):
    """The spans of a turn, each kind in the order in which they began."""

    runs: Sequence[RunSpan]
    steps: Sequence[StepSpan]
    calls: Sequence[CallSpan]


def timeline_of(events: Sequence[LoggedEvent]) -> Timeline:
    """The timeline of a turn.

    Args:
        events: the events from the start of its first run on, as clients may see them.
    """
    return Timeline(_run_spans(events), _step_spans(events), _call_spans(events))


def _run_spans(events: Sequence[LoggedEvent]) -> list[RunSpan]:
    runs: dict[RunId, RunSpan] = {}
    for logged in events:
        match logged.event:
            case RunStarted(run_id=run_id, protocol=protocol):
                runs[run_id] = RunSpan(run_id=run_id, first_seq=logged.seq, protocol=protocol, started_at=logged.at)
            case RunResumed(run_id=run_id) if run_id in runs:
                runs[run_id].resumed_at.append(logged.at)
            case RunStopped(run_id=run_id) as stopped if run_id in runs:
                run = runs[run_id]
                run.ended_at, run.reason, run.usage = logged.at, stopped.reason, stopped.usage
                run.code, run.message = stopped.code, stopped.message
    return list(runs.values())


def _step_spans(events: Sequence[LoggedEvent]) -> list[StepSpan]:
    steps: dict[MessageId, StepSpan] = {}
    for logged in events:
        match logged.event:
            case MessageOpened(message_id=message_id, loop=loop):
                steps[message_id] = StepSpan(
                    message_id=message_id, loop=loop, first_seq=logged.seq, started_at=logged.at
                )
            case BlockClosed(message_id=message_id, block=block) if message_id in steps:
                steps[message_id].content.append(block)
            case MessageClosed(message_id=message_id) as closed if message_id in steps:
                step = steps[message_id]
                step.ended_at, step.status, step.model = logged.at, closed.status, closed.model
                step.usage, step.context_window = closed.usage, closed.context_window
    return list(steps.values())


def _call_spans(events: Sequence[LoggedEvent]) -> list[CallSpan]:
    calls: dict[CallId, CallSpan] = {}
    for logged in events:
        at = logged.at
        match logged.event:
            case CallOpened(call=call, kind=kind, loop=loop, message_id=message_id):
                span = CallSpan(
                    call=call, kind=kind, loop=loop, message_id=message_id, first_seq=logged.seq, opened_at=at
                )
                calls[call.call_id] = span
                if kind in ("client", "permission", "question"):
                    span.waits.append(WaitSpan(kind=kind, started_at=at))
            case CallParked(call_id=call_id, kind=wait) if call_id in calls:
                calls[call_id].waits.append(WaitSpan(kind=wait, started_at=at))
            case AnswerGiven(call_id=call_id, granted=granted) if call_id in calls:
                _end_wait(calls[call_id], at, granted=granted)
            case CallStarted(call_id=call_id) if call_id in calls:
                calls[call_id].started_at = at
            case CallSettled(result=result, outcome=outcome) if result.call_id in calls:
                span = calls[result.call_id]
                _end_wait(span, at)
                span.ended_at, span.outcome, span.result = at, outcome, result
    return list(calls.values())


def _end_wait(span: CallSpan, at: datetime, *, granted: bool | None = None) -> None:
    if span.waits and span.waits[-1].ended_at is None:
        span.waits[-1].ended_at, span.waits[-1].granted = at, granted


class StepInput(msgspec.Struct, frozen=True):
    """What a loop had said before a step. `summary` replaces older messages, if there was a compaction."""

    summary: str | None
    messages: Sequence[Message]


def input_of_step(events: Sequence[LoggedEvent], loop: LoopId) -> StepInput:
    """The messages of a loop that the model gets in a step, as far as the log has them.

    The agent may add instructions and memories to them, and leave out the oldest.

    Args:
        events: all events of the log before the step, as clients may see them.
        loop: the step's loop.
    """
    hidden: tuple[tuple[int, int], ...] = ()
    compaction: Compaction | None = None
    for logged in events:
        match logged.event:
            case Branched() as branched:
                hidden, compaction = branched.hidden_ranges, branched.compaction
            case CompactionMade(summary=summary, up_to=up_to):
                compaction = Compaction(seq=logged.seq, summary=summary, up_to=up_to)
    begin = 0 if compaction is None or loop != ROOT else compaction.up_to
    visible = shown_events([logged for logged in events if logged.seq > begin], hidden)
    messages = [
        each for each in messages_of(visible, loop) if not (isinstance(each, AssistantMessage) and each.status == "cut")
    ]
    return StepInput(compaction.summary if compaction is not None and begin else None, without_repetitions(messages))
