"""One day of a session's history, found by reading the log backwards. Pure.

A message belongs to the date on which it was completed, in UTC or another zone, or to that of a later message, if the
clock was set back in between. Shown are user messages, and the text and cards of the agent's answers, but no calls,
results, reasoning, instructions or prompts that no person wrote.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, date, tzinfo
from typing import NamedTuple

from dragoman.core import content as core
from dragoman.core.cards import CardTracker, locale_of
from dragoman.core.events import (
    BlockClosed,
    CallSettled,
    CardUpdated,
    LoggedEvent,
    MessageAdded,
    MessageClosed,
    RunStarted,
    RunStopped,
)
from dragoman.core.history import Assembler
from dragoman.core.ids import ROOT, MessageId
from dragoman.core.run_metadata import NO_METADATA
from dragoman.core.ui_schema import compile_card


class HistoryEntry(NamedTuple):
    """A message of the history. `ordinal` counts the messages of the root loop; `schema` is the compiled card."""

    logged: LoggedEvent
    ordinal: int
    message: core.UserMessage | core.AssistantMessage
    schema: core.JsonObject | None


class DayFinder:
    """Finds the newest day with visible messages, reading the log backwards.

    Ordinals count all messages of the root loop from 1, hidden ones too.

    It begins at the end of the log.

    Args:
        messages: the number of messages of the root loop.
        before: only days before this one.
        is_in_branch: whether the message that an event completed is in the active branch.
        zone: the zone of the days.
    """

    def __init__(
        self, messages: int, before: date | None, is_in_branch: Callable[[int], bool], zone: tzinfo = UTC
    ) -> None:
        self._zone = zone
        self._ordinal = messages
        self._before = before
        self._is_in_branch = is_in_branch
        self._close_days: dict[MessageId, date] = {}
        self._user_message_days: list[date] = []
        """The days of the user messages in the run that is being read."""
        self._events: list[tuple[LoggedEvent, date]] = []
        """The events so far, newest first, and the day of each."""
        self._newest_day = date.max
        self.day: date | None = None
        self.has_more = False

    def feed(self, page: Sequence[LoggedEvent]) -> bool:
        """Take the page before the previous one. Returns whether the day is complete."""
        for logged in reversed(page):
            # A clock that was set back must not hide what was said before: no day is later than the day after it.
            self._newest_day = min(self._newest_day, logged.at.astimezone(self._zone).date())
            for day in self._visible_days(logged):
                if self._before is not None and day >= self._before:
                    continue
                if self.day is None:
                    self.day = day
                elif day < self.day:
                    self.has_more = True
                    return True
            if self.day is None and isinstance(logged.event, RunStopped) and logged.event.run_id == logged.run_id:
                self._events.clear()  # no visible message spans two runs
            self._events.append((logged, self._newest_day))
            self._ordinal -= completes_message(logged)
        return False

    @property
    def first(self) -> LoggedEvent | None:
        """The oldest event that may belong to the day's messages."""
        return self._events[-1][0] if self._events else None

    def _visible_days(self, logged: LoggedEvent) -> Sequence[date]:
        """The days of the messages that this event proves to be visible.

        For user messages, the start of their run proves it: it records whether a person wrote them.
        """
        match logged.event:
            case MessageAdded(message=core.UserMessage(loop="root")) if self._is_in_branch(logged.seq):
                if logged.run_id is None:
                    return (self._newest_day,)
                self._user_message_days.append(self._newest_day)
            case RunStarted(metadata=metadata):
                days, self._user_message_days = self._user_message_days, []
                return () if metadata.internal else days
            case MessageClosed(loop="root", message_id=message_id) if self._is_in_branch(logged.seq):
                self._close_days[message_id] = self._newest_day
            case BlockClosed(message_id=message_id, block=core.Text(text=text)) if message_id in self._close_days:
                return (self._close_days[message_id],) if text else ()
            case CardUpdated(message_id=str() as message_id, card=card) if message_id in self._close_days:
                return () if compile_card(card) is None else (self._close_days[message_id],)
        return ()

    def messages(self, started: RunStarted | None) -> list[HistoryEntry]:
        """The day's messages, oldest first.

        Args:
            started: the start of the run that the first event belongs to.
        """
        metadata = NO_METADATA if started is None else started.metadata
        ordinal, assembler, cards = self._ordinal, Assembler(), CardTracker(locale_of(metadata))
        entries: list[HistoryEntry] = []
        for logged, day in reversed(self._events):
            ordinal += completes_message(logged)
            cards.feed(logged)
            if isinstance(logged.event, RunStarted):
                metadata = logged.event.metadata
            message = assembler.feed(logged)
            schema, is_written = None, logged.run_id is None or not metadata.internal
            if isinstance(message, core.AssistantMessage) and message.loop == ROOT and _is_shown(message, cards):
                schema = cards.take_schema()
            elif not isinstance(message, core.UserMessage) or message.loop != ROOT or not is_written:
                continue
            if day == self.day and self._is_in_branch(logged.seq):
                entries.append(HistoryEntry(logged, ordinal, message, schema))
        return entries


def _is_shown(message: core.AssistantMessage, cards: CardTracker) -> bool:
    """Whether an answer has text or a card."""
    return bool(core.text_of(message.content)) or cards.message_id == message.id


def completes_message(logged: LoggedEvent) -> bool:
    """Whether an event completes a message of the root loop."""
    match logged.event:
        case MessageAdded(message=message):
            return message.loop == ROOT
        case MessageClosed(loop=loop):
            return loop == ROOT
        case CallSettled(result=result):
            return result.loop == ROOT
        case _:
            return False
