"""A session's log in short, to compare whole runs of agents: one line per event that somebody sees."""

from collections.abc import Iterable, Mapping

from dragoman.core.content import Block, Image, Text, Thinking, text_of
from dragoman.core.events import (
    AnswerGiven,
    BlockClosed,
    CallOpened,
    CallParked,
    CallSettled,
    CallStarted,
    Event,
    LoggedEvent,
    MessageAdded,
    MessageClosed,
    RunStopped,
    StageChanged,
)


def shape(events: Iterable[LoggedEvent]) -> list[str]:
    """The log in short. Calls have their names in place of ids."""
    names: dict[str, str] = {}
    lines: list[str | None] = []
    for logged in events:
        if isinstance(logged.event, CallOpened):
            names[logged.event.call.call_id] = logged.event.call.name
        lines.append(_call_line(logged.event, names) or _other_line(logged.event))
    return [line for line in lines if line is not None]


def _call_line(event: Event, names: Mapping[str, str]) -> str | None:
    match event:
        case CallOpened(call=call):
            return f"call: {call.name} {call.input}"
        case CallStarted(call_id=call_id):
            return f"starts: {names[call_id]}"
        case CallParked(call_id=call_id, kind=kind, note=note):
            return f"waits: {names[call_id]} {kind}" + (f" {note}" if note else "")
        case AnswerGiven(call_id=call_id, granted=granted):
            return f"answer: {names[call_id]} {granted}"
        case CallSettled(outcome=outcome, result=result):
            return f"{outcome}: {result.name} {text_of(result.content)}"
        case _:
            return None


def _other_line(event: Event) -> str | None:
    match event:
        case MessageAdded(message=message):
            return f"user: {text_of(message.content)}"
        case StageChanged(stage=stage):
            return f"stage: {stage}"
        case BlockClosed(block=block):
            return _block_line(block)
        case MessageClosed(status=status):
            return "step" if status == "completed" else f"step: {status}"
        case RunStopped(reason=reason, code=code):
            return f"end: {reason}" + (f" {code}" if code and code != reason else "")
        case _:
            return None


def _block_line(block: Block) -> str:
    match block:
        case Text(text=text):
            return f"text: {text}"
        case Thinking(text=text):
            return f"thinking: {text}"
        case Image(url=url):
            return f"image: {url}"
        case _:
            return f"block: {block}"
