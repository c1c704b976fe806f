"""A session's log as a recording: its turns, their timing, and how they are copied into another session. Pure.

A turn consists of one or more messages of a user and everything that followed until the next one, including answers
to questions and the runs that these started. Events before the first user message are in no turn, nor are memories and
compactions, which belong to the recorded session.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from dragoman.core.content import AssistantMessage, Call, Message, ToolMessage, UserMessage, blocks_of, text_of
from dragoman.core.events import (
    AnswerGiven,
    BlockClosed,
    CallOpened,
    CallParked,
    CallSettled,
    CallStarted,
    CardUpdated,
    Event,
    LoggedEvent,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    Mode,
    PlanUpdated,
    RunStopped,
    SessionCreated,
    SessionSettings,
    SettingsChange,
    SettingsChanged,
    SharedStateReplaced,
    StageChanged,
)
from dragoman.core.ids import CallId, LoopId, MessageId, fork_loop, forking_call
from dragoman.core.ranges import Ranges, contains
from dragoman.core.stream import Piece, Record, expand

MAX_PAUSE_S = 2.0
"""Maximum length of a pause in a replay."""

REPLAYED_EVENTS = (
    MessageOpened,
    BlockClosed,
    CallOpened,
    MessageClosed,
    CallStarted,
    CallParked,
    AnswerGiven,
    CallSettled,
    PlanUpdated,
    StageChanged,
    SharedStateReplaced,
    CardUpdated,
)
"""The events that are replayed, with new ids."""


class RecordedTurn(NamedTuple):
    """Messages of a user and what followed.

    `last_seq` is the last event; `stop` is the end of the last run, if it ended; `mode` is the mode before the first
    turn, if the beginning of the log was read.
    """

    user_messages: Sequence[UserMessage]
    started_at: datetime
    events: Sequence[LoggedEvent]
    last_seq: int
    stop: RunStopped | None
    mode: Mode | None

    @property
    def text(self) -> str:
        """The text of the user's messages."""
        return "\n".join(text_of(message.content) for message in self.user_messages)


class TurnSplitter:
    """Splits a log into turns. Reading may start anywhere between two turns.

    Args:
        hidden: ranges of events that belong to other branches.
    """

    def __init__(self, hidden_ranges: Ranges = ()) -> None:
        self._hidden_ranges = hidden_ranges
        self._user_messages: list[UserMessage] = []
        self._first_event: LoggedEvent | None = None
        self._events: list[LoggedEvent] = []
        self._stop: RunStopped | None = None
        self._mode: Mode | None = None

    def feed(self, logged: LoggedEvent) -> RecordedTurn | None:
        """Take the next event. Returns the turn that ends before it, if any."""
        if contains(self._hidden_ranges, logged.seq):
            return None
        found = None
        match logged.event:
            case MessageAdded(message=UserMessage() as message):
                if self._events:
                    found = self.close(logged.seq - 1)
                self._first_event = self._first_event or logged
                self._user_messages.append(message)
            case SessionCreated(settings=SessionSettings(mode=mode)):
                self._mode = mode
            case SettingsChanged(change=SettingsChange(mode=mode)) if self._first_event is None:
                self._mode = mode or self._mode
            case _ if self._first_event is None:
                pass
            case RunStopped() as stop:
                self._stop = stop
            case event:
                self._events += [msgspec.structs.replace(logged, event=each) for each in _replayable_events(event)]
        return found

    def close(self, last_seq: int) -> RecordedTurn | None:
        """The last turn, which ends at event `last_seq`; None if nothing followed its messages."""
        first, messages, events, stop = self._first_event, self._user_messages, self._events, self._stop
        self._first_event, self._user_messages, self._events, self._stop = None, [], [], None
        if first is None or not events:
            return None
        mode, self._mode = self._mode, None
        return RecordedTurn(messages, first.at, events, last_seq, stop, mode)


def _replayable_events(event: Event) -> Iterator[Event]:
    """The events to replay for an event. A session's seeds become steps of the agent."""
    match event:
        case MessageAdded(message=message):
            yield from to_step_events(message)
        case SettingsChanged(change=SettingsChange(mode=mode)) if mode is not None:
            yield SettingsChanged(change=SettingsChange(mode=mode))
        case CallOpened(kind="client"):  # it is not executed again
            yield msgspec.structs.replace(event, kind="inline")
        case CallParked(kind="client"):
            return
        case CallSettled(by_client=True):
            yield msgspec.structs.replace(event, by_client=False)
        case _ if isinstance(event, REPLAYED_EVENTS):
            yield event


def to_step_events(message: Message) -> Iterator[Event]:
    """The events of a step, or of a result, for a message that a session was created with."""
    match message:
        case AssistantMessage(id=message_id, loop=loop):
            yield MessageOpened(message_id=message_id, loop=loop)
            for index, block in enumerate(blocks_of(message.content)):
                if isinstance(block, Call):
                    yield CallOpened(message_id=message_id, index=index, call=block, kind="inline", loop=loop)
                else:
                    yield BlockClosed(message_id=message_id, index=index, block=block, loop=loop)
            yield MessageClosed(
                message_id=message_id, loop=loop, status=message.status, model=message.model, usage=message.usage
            )
        case ToolMessage():
            yield CallSettled(outcome="failed" if message.is_error else "done", result=message)
        case _:
            yield MessageAdded(message=message)


def with_delays(turn: RecordedTurn) -> Iterator[tuple[float, Record]]:
    """A turn's records, each with the delay before it in seconds.

    Pieces have no time of their own: they share the time between the events around them.
    """
    last, pieces = turn.started_at, list[Piece]()
    for record in expand(turn.events):
        if isinstance(record, Piece):
            pieces.append(record)
            continue
        share = max(0.0, (record.at - last).total_seconds()) / (len(pieces) + 1)
        yield from ((share, piece) for piece in pieces)
        yield share, record
        last, pieces = record.at, []


class IdRemapper:
    """Copies records with new ids, for another session. Private values stay in their own session.

    Args:
        new_id: makes ids.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._ids: dict[str, str] = {}
        self._open: set[str] = set()
        """The messages and calls that are open, by their old ids."""

    def remap(self, record: Record) -> Piece | Event | None:
        """The copy of a record; None if it belongs to a message or call whose start was not copied."""
        if isinstance(record, Piece):
            if record.message_id not in self._open:
                return None
            return msgspec.structs.replace(
                record, message_id=self._message_id(record.message_id), loop=self._loop_id(record.loop)
            )
        event = record.event
        opened, closed, about = _referenced_ids(event)
        if about is not None and about not in self._open:
            return None
        self._open |= opened
        self._open -= closed
        return self._remap_event(event)

    def _remap_event(self, event: Event) -> Event:
        match event:
            case MessageOpened(message_id=message_id, loop=loop):
                return MessageOpened(message_id=self._message_id(message_id), loop=self._loop_id(loop))
            case BlockClosed():
                return msgspec.structs.replace(
                    event, message_id=self._message_id(event.message_id), loop=self._loop_id(event.loop)
                )
            case MessageClosed():
                return msgspec.structs.replace(
                    event,
                    message_id=self._message_id(event.message_id),
                    loop=self._loop_id(event.loop),
                    private=msgspec.UNSET,
                )
            case CallOpened(call=call):
                return msgspec.structs.replace(
                    event,
                    message_id=self._message_id(event.message_id),
                    loop=self._loop_id(event.loop),
                    call=msgspec.structs.replace(call, call_id=self._call_id(call.call_id)),
                )
            case AnswerGiven(call_id=call_id, result=ToolMessage() as result):
                return msgspec.structs.replace(event, call_id=self._call_id(call_id), result=self._remap_result(result))
            case CallStarted() | CallParked() | AnswerGiven():
                return msgspec.structs.replace(event, call_id=self._call_id(event.call_id))
            case CallSettled(result=result):
                return msgspec.structs.replace(event, result=self._remap_result(result))
            case MessageAdded(message=message):
                return MessageAdded(message=msgspec.structs.replace(message, id=self._message_id(message.id)))
            case CardUpdated(message_id=message_id, loop=loop):
                own = None if message_id is None else self._message_id(message_id)
                return msgspec.structs.replace(event, message_id=own, loop=self._loop_id(loop))
            case PlanUpdated() | StageChanged() | SharedStateReplaced():
                return msgspec.structs.replace(event, loop=self._loop_id(event.loop))
            case _:
                return event

    def _remap_result(self, result: ToolMessage) -> ToolMessage:
        return msgspec.structs.replace(
            result,
            id=self._message_id(result.id),
            call_id=self._call_id(result.call_id),
            loop=self._loop_id(result.loop),
            repeated_by=None if result.repeated_by is None else self._call_id(result.repeated_by),
            private=msgspec.UNSET,
        )

    def _message_id(self, old: MessageId) -> MessageId:
        return MessageId(self._new_id_for(old))

    def _call_id(self, old: CallId) -> CallId:
        return CallId(self._new_id_for(old))

    def _loop_id(self, old: LoopId) -> LoopId:
        call_id = forking_call(old)
        return old if call_id is None else fork_loop(self._call_id(call_id))

    def _new_id_for(self, old: str) -> str:
        if old not in self._ids:
            self._ids[old] = self._new_id()
        return self._ids[old]


def _referenced_ids(event: Event) -> tuple[set[str], set[str], str | None]:
    """The ids that an event opens, those that it closes, and the one that has to be open for it."""
    match event:
        case MessageOpened(message_id=message_id):
            return {message_id}, set(), None
        case MessageClosed(message_id=message_id):
            return set(), {message_id}, message_id
        case BlockClosed(message_id=message_id) | CardUpdated(message_id=message_id):
            return set(), set(), message_id
        case CallOpened(message_id=message_id, call=call):
            return {call.call_id}, set(), message_id
        case CallSettled(result=result):
            return set(), {result.call_id}, result.call_id
        case CallStarted(call_id=call_id) | CallParked(call_id=call_id) | AnswerGiven(call_id=call_id):
            return set(), set(), call_id
        case _:
            return set(), set(), None
