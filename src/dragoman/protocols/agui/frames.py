"""Positions in a thread's event stream, and the events that reopen a run for a client that joins it. Pure.

The id of a frame is `SEQ-PIECES-N`: the event of the log, the number of pieces after it, and the event's ordinal within
that record. So ids depend on the log alone, are equal in every replay, and grow along the thread.
Source: specification of AG-UI, B.4, B.9.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from dragoman.core.refusals import InvalidCursor
from dragoman.core.stream import Cursor
from dragoman.protocols.agui import events as agui_events

_POSITION = re.compile(r"([0-9]{1,15})-([0-9]{1,15})-([0-9]{1,9})")


class Position(NamedTuple):
    """A place in a thread's stream: the first `event_count` events of the record at `cursor` were seen."""

    cursor: Cursor
    event_count: int


def parse_position(text: str) -> Position:
    """Read the id of a frame. Raises InvalidCursor."""
    match = _POSITION.fullmatch(text)
    if match is None:
        raise InvalidCursor("Last-Event-ID must be the id of an event of this thread")
    return Position(Cursor(int(match[1]), int(match[2])), int(match[3]))


def reopen_events(events: Iterable[agui_events.Event]) -> list[agui_events.Event]:
    """What these events of a run leave open, for a client that has all finished messages.

    Each open text, reasoning or step is opened again by its START events and one CONTENT with the text so far. Active
    sub-agents come first.
    """
    agents: dict[str, agui_events.Event] = {}
    opened: dict[str, list[agui_events.Event]] = {}
    contents: dict[str, agui_events.TextMessageContent | agui_events.ReasoningMessageContent] = {}
    texts: dict[str, list[str]] = {}
    for event in events:
        match event:
            case agui_events.SubagentStarted(subagent_run_id=key):
                agents[key] = event
            case agui_events.SubagentFinished(subagent_run_id=key) | agui_events.SubagentError(subagent_run_id=key):
                agents.pop(key, None)
            case agui_events.TextMessageStart(message_id=key) | agui_events.ReasoningStart(message_id=key):
                opened[key] = [event]
            case agui_events.ReasoningMessageStart(message_id=key):
                opened[key].append(event)
            case agui_events.TextMessageContent(message_id=key) | agui_events.ReasoningMessageContent(message_id=key):
                texts.setdefault(key, []).append(event.delta)
                contents[key] = event
            case agui_events.TextMessageEnd(message_id=key) | agui_events.ReasoningEnd(message_id=key):
                opened.pop(key, None)
            case agui_events.StepStarted(step_name=name):
                opened[f"step:{name}"] = [event]
            case agui_events.StepFinished(step_name=name):
                opened.pop(f"step:{name}", None)
    reopened = list(agents.values())
    for key, starts in opened.items():
        reopened += starts
        if key in contents:
            reopened.append(msgspec.structs.replace(contents[key], delta="".join(texts[key])))
    return reopened
