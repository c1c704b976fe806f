"""Events as frames of a stream, each with the position that it came from. Pure.

A frame's id is `SEQ-PIECES-N`: the log's event, the pieces after it, and the how-manieth event of that record it is. So
ids are a function of the log, equal in every replay, and grow along the thread.
Source: specification of the face, B.4, B.9.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dragoman.core.events import LoggedEvent, RunStarted
from dragoman.core.ids import RunId
from dragoman.core.refusals import InvalidCursor
from dragoman.core.stream import Cursor, Piece, Record
from dragoman.protocols.agui import events as wire
from dragoman.protocols.agui.downgrade import Generation, downgrade_events
from dragoman.protocols.agui.translate import Translator

KEEP_ALIVE = b": keep-alive\n\n"
_POSITION = re.compile(r"([0-9]{1,15})-([0-9]{1,15})-([0-9]{1,9})")


class Position(NamedTuple):
    """A place in a thread's stream: the first `number` events of the record at `cursor` were seen."""

    cursor: Cursor
    event_count: int


def parse_position(text: str) -> Position:
    """Read a frame's id. Raises InvalidCursor."""
    found = _POSITION.fullmatch(text)
    if found is None:
        raise InvalidCursor("Last-Event-ID is the id of an event of this thread")
    return Position(Cursor(int(found[1]), int(found[2])), int(found[3]))


def encode_frame(event: wire.Event) -> bytes:
    """An event of no place in the log."""
    return b"data: %b\n\n" % wire.encode(event)


class RunFrames:
    """The frames of one run, and then the end."""

    def __init__(self, translator: Translator, generation: Generation) -> None:
        self._translator = translator
        self._generation = generation

    @property
    def is_over(self) -> bool:
        """Whether the run's end was told."""
        return self._translator.is_over

    def encode(self, records: Sequence[Record]) -> bytes:
        """What goes out for these records, up to the run's end."""
        feed, made = self._translator.feed, []
        for record in records:
            events = feed(record)
            if not events:
                continue
            if self._generation != "1.0":
                events = downgrade_events(events, self._generation)
            if type(record) is Piece:
                after, pieces = record.after, record.place
            else:
                assert isinstance(record, LoggedEvent), "a record is a piece or an event"
                after, pieces = record.seq, 0
            for count, event in enumerate(events, 1):
                made.append(b"id: %d-%d-%d\ndata: %b\n\n" % (after, pieces, count, wire.encode(event)))
            if self._translator.is_over:
                break
        return b"".join(made)


class ThreadFrames:
    """The frames of all runs of a thread, one run after the other, with what the application sent."""

    def __init__(self, thread_id: str, generation: Generation, after: Position | None) -> None:
        """Begin before the thread's first record, or before the run that holds `after`, which is told from there on."""
        self._thread_id = thread_id
        self._generation: Generation = generation
        self._after = after
        self._translator: Translator | None = None

    def encode(self, records: Sequence[Record]) -> bytes:
        """What goes out for these records."""
        made = []
        for record in records:
            started = record.event if isinstance(record, LoggedEvent) else None
            if isinstance(started, RunStarted):
                self._translator = self._translator_for(started.run_id)
            if self._translator is None:
                continue
            events = downgrade_events(self._translator.feed(record), self._generation)
            cursor = Cursor(record.after, record.place) if isinstance(record, Piece) else Cursor(record.seq)
            for count, event in enumerate(events, 1):
                if self._after is None or (cursor, count) > self._after:
                    made.append(b"id: %d-%d-%d\ndata: %b\n\n" % (*cursor, count, wire.encode(event)))
        return b"".join(made)

    def _translator_for(self, run_id: RunId) -> Translator:
        return Translator(run_id, thread_id=self._thread_id, shows_input=True)


def reopen_events(events: Iterable[wire.Event]) -> list[wire.Event]:
    """What is open after these events of a run, as a client needs it that holds all complete messages.

    Each is opened again by its START and one CONTENT with the words so far; sub-agents that are at work come first.
    """
    agents: dict[str, wire.Event] = {}
    opened: dict[str, list[wire.Event]] = {}
    words: dict[str, list[str]] = {}
    for event in events:
        match event:
            case wire.SubagentStarted(subagent_run_id=own):
                agents[own] = event
            case wire.SubagentFinished(subagent_run_id=own) | wire.SubagentError(subagent_run_id=own):
                agents.pop(own, None)
            case wire.TextMessageStart(message_id=own) | wire.ReasoningStart(message_id=own):
                opened[own], words[own] = [event], []
            case wire.ReasoningMessageStart(message_id=own):
                opened[own].append(event)
            case wire.TextMessageContent(message_id=own) | wire.ReasoningMessageContent(message_id=own):
                words[own].append(event.delta)
            case wire.TextMessageEnd(message_id=own) | wire.ReasoningEnd(message_id=own):
                opened.pop(own, None)
            case wire.StepStarted(step_name=name):
                opened[f"step:{name}"], words[f"step:{name}"] = [event], []
            case wire.StepFinished(step_name=name):
                opened.pop(f"step:{name}", None)
            case _:
                pass
    found = list(agents.values())
    for own, starts in opened.items():
        found += starts
        if words[own]:
            found.append(_content_event(starts[0], "".join(words[own])))
    return found


def _content_event(start: wire.Event, text: str) -> wire.Event:
    if isinstance(start, wire.TextMessageStart):
        return wire.TextMessageContent(message_id=start.message_id, delta=text, subagent_run_id=start.subagent_run_id)
    assert isinstance(start, wire.ReasoningStart), "only texts and thinkings hold words"
    return wire.ReasoningMessageContent(message_id=start.message_id, delta=text, subagent_run_id=start.subagent_run_id)
