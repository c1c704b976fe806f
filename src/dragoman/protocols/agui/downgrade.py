"""AG-UI 1.0 events for 0.x clients, which fail on shapes they do not know. Pure.

Source: specification of AG-UI, B.6, measured with `@ag-ui/client` 0.0.59.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from dragoman.protocols.agui import events as agui_events
from dragoman.protocols.agui.content import Cancelled, Content, Success, TextPart, ToolMessage

ClientVersion = Literal["1.0", "0.0.59", "0.0.58"]
"""The version of a client. 0.0.59, the last 0.x, knows sub-agents; those before it do not."""

STOPPED_MESSAGE = "The run was stopped"


def downgrade_events(events: Iterable[agui_events.Event], client_version: ClientVersion) -> list[agui_events.Event]:
    """The events as a client of that version accepts them."""
    if client_version == "1.0":
        return list(events)
    accepted = map(_downgrade_event, events)
    if client_version == "0.0.58":
        return [event for event in map(_without_subagents, accepted) if event is not None]
    return list(accepted)


def _downgrade_event(event: agui_events.Event) -> agui_events.Event:
    match event:
        case agui_events.RunFinished(outcome=Cancelled(), timestamp=at, usage=usage):
            return agui_events.RunError(timestamp=at, message=STOPPED_MESSAGE, code="cancelled", usage=usage)
        case agui_events.RunFinished(outcome=Success(pending_tool_call_ids=pending)) if pending is not None:
            return msgspec.structs.replace(event, outcome=None)  # a success would say that nothing is pending
        case agui_events.ToolCallResult(content=content) if not isinstance(content, str):
            return msgspec.structs.replace(event, content=text_of(content))
        case agui_events.MessagesSnapshot(messages=messages):
            plain = tuple(
                msgspec.structs.replace(each, content=text_of(each.content)) if isinstance(each, ToolMessage) else each
                for each in messages
            )
            return agui_events.MessagesSnapshot(timestamp=event.timestamp, messages=plain)
        case _:
            return event


def _without_subagents(event: agui_events.Event) -> agui_events.Event | None:
    match event:
        case agui_events.SubagentStarted() | agui_events.SubagentFinished() | agui_events.SubagentError():
            return None
        case agui_events.MessagesSnapshot(messages=messages):
            of_root = tuple(each for each in messages if getattr(each, "subagent_run_id", None) is None)
            return agui_events.MessagesSnapshot(timestamp=event.timestamp, messages=of_root)
        case _:
            return None if getattr(event, "subagent_run_id", None) is not None else event


def text_of(content: Content) -> str:
    """The text of content, without media."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if isinstance(part, TextPart))
