"""Events of AG-UI 1.0 for clients of 0.x, which fail on what they do not know. Pure.

Source: specification of the face, B.6, measured with `@ag-ui/client` 0.0.59.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from dragoman.protocols.agui import events as wire
from dragoman.protocols.agui.content import Cancelled, Content, Success, TextPart, ToolMessage

Generation = Literal["1.0", "0.0.59", "0.0.58"]
"""What a client understands. The last 0.x knows sub-agents, those before it do not."""

STOPPED_MESSAGE = "The run was stopped"


def downgrade_events(events: Iterable[wire.Event], generation: Generation) -> list[wire.Event]:
    """The events as a client of that generation takes them."""
    if generation == "1.0":
        return list(events)
    found = (_downgrade_event(event) for event in events)
    if generation == "0.0.58":
        found = (_without_subagents(event) for event in found)
    return [event for event in found if event is not None]


def _downgrade_event(event: wire.Event | None) -> wire.Event | None:
    match event:
        case wire.RunFinished(outcome=Cancelled(), timestamp=at, usage=usage):
            return wire.RunError(timestamp=at, message=STOPPED_MESSAGE, code="cancelled", usage=usage)
        case wire.RunFinished(outcome=Success(pending_tool_call_ids=pending)) if pending is not None:
            return msgspec.structs.replace(event, outcome=Success())
        case wire.ToolCallResult(content=content) if not isinstance(content, str):
            return msgspec.structs.replace(event, content=text_of(content))
        case wire.MessagesSnapshot(messages=messages):
            plain = tuple(
                msgspec.structs.replace(each, content=text_of(each.content)) if isinstance(each, ToolMessage) else each
                for each in messages
            )
            return wire.MessagesSnapshot(timestamp=event.timestamp, messages=plain)
        case _:
            return event


def _without_subagents(event: wire.Event | None) -> wire.Event | None:
    """What is left of an event where nobody knows of sub-agents: what these do is not shown at all."""
    match event:
        case wire.SubagentStarted() | wire.SubagentFinished() | wire.SubagentError():
            return None
        case wire.MessagesSnapshot(messages=messages):
            own = tuple(each for each in messages if getattr(each, "subagent_run_id", None) is None)
            return wire.MessagesSnapshot(timestamp=event.timestamp, messages=own)
        case _:
            return None if getattr(event, "subagent_run_id", None) is not None else event


def text_of(content: Content) -> str:
    """A content as text alone."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if isinstance(part, TextPart))
