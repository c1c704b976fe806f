"""The timeline of a turn's runs, and the input of a model call, on the wire: an extension of Blade's REST. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

import msgspec

from dragoman.core import content as core
from dragoman.core.content import Json, MessageStatus
from dragoman.core.events import CallKind, CallOutcome, StopReason, WaitKind
from dragoman.core.timeline import CallSpan, RunSpan, StepInput, StepSpan, Timeline
from dragoman.protocols.blade.projection.blocks import arguments_of, attachment_block, result_value
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire.chat import Block, TokenUsage


class TimelineRun(msgspec.Struct, frozen=True, kw_only=True):
    """A chat. Without `ended_at` it is still active."""

    run_id: str = msgspec.field(name="chat_run_id")
    first_seq: int = msgspec.field(name="sequence")
    protocol: str
    started_at: datetime
    resumed_at: list[datetime]
    """When another process continued it after a restart."""
    ended_at: datetime | None
    reason: StopReason | None
    code: str | None
    message: str | None
    usage: TokenUsage


class TimelineStep(msgspec.Struct, frozen=True, kw_only=True):
    """A model call."""

    turn_id: str
    loop_id: str
    parent_fork_tool_call_id: str | None
    sequence: int
    started_at: datetime
    ended_at: datetime | None
    status: MessageStatus | None
    model: str | None
    usage: TokenUsage | None
    context_window: int | None
    blocks: list[Block]


class TimelineWait(msgspec.Struct, frozen=True, kw_only=True):
    """The time in which a call waits; `kind` is null if a crash interrupted it and the user decides."""

    kind: WaitKind | None
    started_at: datetime
    ended_at: datetime | None
    granted: bool | None


class TimelineCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call."""

    tool_call_id: str
    tool_name: str
    turn_id: str
    loop_id: str
    parent_fork_tool_call_id: str | None
    sequence: int
    kind: CallKind
    arguments: Json
    opened_at: datetime
    started_at: datetime | None
    """When the tool began to run in the server."""
    ended_at: datetime | None
    outcome: CallOutcome | None
    result: Json
    waits: list[TimelineWait]


class RunTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn did and when. `sequence` orders runs, steps and calls by their begin."""

    runs: list[TimelineRun]
    steps: list[TimelineStep]
    calls: list[TimelineCall]


class InputMessage(msgspec.Struct, frozen=True):
    """A message that a model got."""

    role: Literal["user", "assistant", "tool", "system"]
    blocks: list[Block]


class ModelInput(msgspec.Struct, frozen=True):
    """The messages before a model call. `summary` replaces older ones."""

    summary: str | None
    messages: list[InputMessage]


def to_run_timeline(timeline: Timeline) -> RunTimeline:
    """Return a timeline as it is sent."""
    return RunTimeline(
        runs=[_run(each) for each in timeline.runs],
        steps=[_step(each) for each in timeline.steps],
        calls=[_call(each) for each in timeline.calls],
    )


def to_model_input(step_input: StepInput) -> ModelInput:
    """Return the messages before a model call as they are sent."""
    return ModelInput(step_input.summary, [_message(each) for each in step_input.messages])


def _run(run: RunSpan) -> TimelineRun:
    sent = msgspec.convert(run, TimelineRun, from_attributes=True)
    return msgspec.structs.replace(sent, run_id=chat.public_run_id(run.run_id))


def _step(step: StepSpan) -> TimelineStep:
    return TimelineStep(
        turn_id=chat.public_turn_id(step.message_id),
        loop_id=chat.public_loop_id(step.loop),
        parent_fork_tool_call_id=chat.parent_call_id(step.loop),
        sequence=step.first_seq,
        started_at=step.started_at,
        ended_at=step.ended_at,
        status=step.status,
        model=step.model,
        usage=None if step.usage is None else TokenUsage(step.usage.input_tokens, step.usage.output_tokens),
        context_window=step.context_window,
        blocks=_blocks(step.content),
    )


def _call(span: CallSpan) -> TimelineCall:
    return TimelineCall(
        tool_call_id=chat.public_call_id(span.call.call_id),
        tool_name=span.call.name,
        turn_id=chat.public_turn_id(span.message_id),
        loop_id=chat.public_loop_id(span.loop),
        parent_fork_tool_call_id=chat.parent_call_id(span.loop),
        sequence=span.first_seq,
        kind=span.kind,
        arguments=arguments_of(span.call)[1],
        opened_at=span.opened_at,
        started_at=span.started_at,
        ended_at=span.ended_at,
        outcome=span.outcome,
        result=None if span.result is None else result_value(span.result),
        waits=msgspec.convert(span.waits, list[TimelineWait], from_attributes=True),
    )


def _message(message: core.Message) -> InputMessage:
    match message:
        case core.UserMessage():
            return InputMessage("user", _blocks(core.blocks_of(message.content)))
        case core.AssistantMessage():
            return InputMessage("assistant", _blocks(core.blocks_of(message.content)))
        case core.ToolMessage():
            call_id = chat.public_call_id(message.call_id)
            return InputMessage("tool", [Block("tool_result", result_value(message), call_id, message.name)])
        case core.SystemMessage():
            return InputMessage("system", [Block("text", message.content)])


def _blocks(content: Iterable[core.Block]) -> list[Block]:
    return [_block(each) for each in content]


def _block(block: core.Block) -> Block:
    match block:
        case core.Text(text=text):
            return Block("text", text)
        case core.Thinking(text=text):
            return Block("thinking", text)
        case core.Call():
            return Block("tool_use", arguments_of(block)[1], chat.public_call_id(block.call_id), block.name)
        case _:
            note = attachment_block(block, "")
            assert note.attachment is not msgspec.UNSET, "every attachment describes itself"
            note.attachment = msgspec.structs.replace(note.attachment, url=msgspec.UNSET)
            return note
