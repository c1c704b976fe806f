"""A turn's timeline, and the input of a model call, in Blade's words. Pure."""

from collections.abc import Iterable

import msgspec

from dragoman.core import content as core
from dragoman.core.timeline import CallSpan, RunSpan, StepInput, StepSpan, Timeline
from dragoman.protocols.blade.projection.blocks import arguments_of, attachment_block, result_value
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire import timeline as wire
from dragoman.protocols.blade.wire.chat import Block, TokenUsage


def to_run_timeline(timeline: Timeline) -> wire.RunTimeline:
    """Return a timeline as it is sent."""
    return wire.RunTimeline(
        runs=[_run(each) for each in timeline.runs],
        steps=[_step(each) for each in timeline.steps],
        calls=[_call(each) for each in timeline.calls],
    )


def to_model_input(step_input: StepInput) -> wire.ModelInput:
    """Return the messages before a model call as they are sent."""
    return wire.ModelInput(step_input.summary, [_message(each) for each in step_input.messages])


def _run(run: RunSpan) -> wire.TimelineRun:
    sent = msgspec.convert(run, wire.TimelineRun, from_attributes=True)
    return msgspec.structs.replace(sent, run_id=chat.public_run_id(run.run_id))


def _step(step: StepSpan) -> wire.TimelineStep:
    return wire.TimelineStep(
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


def _call(span: CallSpan) -> wire.TimelineCall:
    return wire.TimelineCall(
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
        waits=msgspec.convert(span.waits, list[wire.TimelineWait], from_attributes=True),
    )


def _message(message: core.Message) -> wire.InputMessage:
    match message:
        case core.UserMessage():
            return wire.InputMessage("user", _blocks(core.blocks_of(message.content)))
        case core.AssistantMessage():
            return wire.InputMessage("assistant", _blocks(core.blocks_of(message.content)))
        case core.ToolMessage():
            call_id = chat.public_call_id(message.call_id)
            return wire.InputMessage("tool", [Block("tool_result", result_value(message), call_id, message.name)])
        case core.SystemMessage():
            return wire.InputMessage("system", [Block("text", message.content)])


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
