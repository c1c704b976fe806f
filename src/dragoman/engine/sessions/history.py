"""The history of a session, read as far back as needed: its messages, its events, the records of one run.

The newest messages are in memory, which covers almost every turn. Older messages, and all events, are read from the log
page by page. Nothing here changes a session.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import takewhile

import msgspec

from dragoman.core import resent_history
from dragoman.core.branches import CancelledResults, shown_events
from dragoman.core.content import AssistantMessage, Json, Message, ToolMessage, UserMessage
from dragoman.core.events import (
    AnswerGiven,
    CallOpened,
    CallParked,
    CallSettled,
    LoggedEvent,
    MessageClosed,
    MessageOpened,
    RunQueued,
    RunStarted,
    RunStopped,
)
from dragoman.core.history import Assembler, EarlierCall, is_empty, messages_of
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId, RunId, UserId, forking_call
from dragoman.core.internal_calls import visible_events
from dragoman.core.ranges import Ranges
from dragoman.core.resent_history import SentMessage, StoredHistory, StoredMessage
from dragoman.core.run_metadata import given_state
from dragoman.core.session import shared_state_in
from dragoman.core.stream import Cursor, Record, expand
from dragoman.core.turns import Turn, turn_with, turns_of
from dragoman.engine.services.attachments import Attachments
from dragoman.engine.sessions.live_session import LiveSession, to_live_session
from dragoman.engine.sessions.recent_messages import LoggedMessage
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.log import EventLog, LogLookup, RunLocation

PAGE = 2000
BACK_PAGE = 400
RUN_PAGE = 200
"""Events read at a time when reading one run."""
MAX_LEADING_ANSWERS = 400
"""How many events at the beginning of a run are searched for answers."""


# Large: one method for each question about the past that a protocol or an agent asks.
class History:
    """Reads the history of sessions that are in memory.

    Args:
        log: the events.
        index: finds runs and messages by their ids.
        attachments: restores the large contents of messages.
    """

    def __init__(self, log: EventLog, index: LogLookup, attachments: Attachments) -> None:
        self._log = log
        self._index = index
        self._attachments = attachments

    # --- the messages of loops ------------------------------------------------------------------------------------

    async def turn(self, live: LiveSession, loop: LoopId) -> Sequence[Message]:
        """The loop's messages from its last user message on, without steps that a crash cut off."""
        parent = live.state.parent_call(loop)
        turn = _TurnCollector(loop, None if parent is None else parent.message_id)
        before = live.recent_messages.after + 1
        # Nearly every turn is completely in memory: then no generator has to be closed.
        for logged_message in _messages_in_memory(live):
            if turn.prepend(logged_message.message):
                return turn.messages
        async with aclosing(_messages_in_log(self._log, live, before)) as messages:
            async for logged_message in messages:
                if turn.prepend(logged_message.message):
                    break
        return turn.messages

    async def root_messages_newest_first(self, live: LiveSession) -> AsyncGenerator[Message, None]:
        """The root messages, newest first."""
        async with aclosing(self.messages_newest_first(live)) as messages:
            async for logged_message in messages:
                if logged_message.message.loop == ROOT and not is_empty(logged_message.message):
                    yield logged_message.message

    async def context(self, live: LiveSession, max_messages: int) -> Sequence[LoggedMessage]:
        """The root messages for a model, oldest first: the newest since the last compaction, with that of the user."""
        from_seq = 0 if live.state.compaction is None else live.state.compaction.up_to
        found: list[LoggedMessage] = []
        has_user = False
        async with aclosing(self.messages_newest_first(live)) as messages:
            async for logged_message in messages:
                if logged_message.seq <= from_seq or (len(found) >= max_messages and has_user):
                    break
                message = logged_message.message
                if message.loop != ROOT or is_empty(message):
                    continue
                if isinstance(message, AssistantMessage) and message.status == "cut":
                    continue
                found.append(logged_message)
                has_user = has_user or isinstance(message, UserMessage)
        found.reverse()
        return found

    async def extent_before(self, live: LiveSession, keep_from: MessageId) -> tuple[int, int]:
        """The last event that a summary replaces, and the number of messages that it replaces; 0 and 0 if none.

        Args:
            live: the session.
            keep_from: the first message that is kept.
        """
        begins = 0 if live.state.compaction is None else live.state.compaction.up_to
        up_to, archived, is_kept, is_found = 0, 0, True, False
        async with aclosing(self.messages_newest_first(live)) as messages:
            async for logged_message in messages:
                if logged_message.seq <= begins:
                    break
                if not is_kept:
                    up_to = up_to or logged_message.seq
                    archived += 1
                elif is_found or logged_message.message.id == keep_from:
                    is_found = True
                    is_kept = isinstance(logged_message.message, ToolMessage)  # a result stays with its call
        return up_to, archived

    async def compare(
        self,
        session: SessionView,
        sent: Sequence[SentMessage],
        known: Mapping[str, int],
        *,
        is_complete: bool = False,
    ) -> StoredHistory:
        """What `resent_history.place` needs to know, read from no more of the log than that.

        Args:
            session: the session.
            sent: the history that its client sends.
            known: those of its message ids that the log has, as `find_message_ids` returns them.
            is_complete: the client says that it sends all messages that it shows.
        """
        state = session.state
        is_complete |= state.resends_history
        if resent_history.needs_all_branches(sent, state, known):
            stored = resent_history.stored_messages(await self.events(session, 0), state)
        else:
            first_seq = resent_history.first_needed(sent, known, is_complete=is_complete)
            messages = self.messages_newest_first(to_live_session(session))
            stored = [] if first_seq is None else await _user_messages(messages, first_seq, state.hidden_ranges)
        # Contents are compared, large parts included.
        restored = await self._attachments.restore(state.session_id, [each.message for each in stored])
        stored = [each._replace(message=message) for each, message in zip(stored, restored, strict=True)]
        return StoredHistory(state, known, stored, is_complete)

    async def messages_newest_first(self, live: LiveSession) -> AsyncGenerator[LoggedMessage, None]:
        """The messages of all loops in the active branch, newest first."""
        before, hidden = live.recent_messages.after + 1, live.state.hidden_ranges
        cancelled = CancelledResults(hidden)
        for logged_message in _messages_in_memory(live):
            for seq, result in cancelled.after(*logged_message) if hidden else ():
                yield LoggedMessage(seq, result)
            yield logged_message
        async with aclosing(_messages_in_log(self._log, live, before)) as messages:
            async for logged_message in messages:
                for seq, result in cancelled.after(*logged_message) if hidden else ():
                    yield LoggedMessage(seq, result)
                yield logged_message

    # --- events and runs ------------------------------------------------------------------------------------------

    async def find_run(self, owner: UserId, run_id: RunId) -> RunLocation | None:
        """Find a run of that owner in its session's log."""
        row = await self._index.find_run(run_id)
        return row if row is not None and row.owner == owner else None

    async def find_client_run(self, session: SessionView, client_run_id: str) -> RunId | None:
        """The newest run to which a client of any protocol gave this id; None if there is none.

        Reads the log backwards, page by page, until the run is found: all of it for an unknown id.
        """
        async for page in self.newest_events(session):
            for event in (logged.event for logged in reversed(page)):
                if isinstance(event, RunStarted | RunQueued) and event.client_run_id == client_run_id:
                    return event.run_id
        return None

    async def events(self, session: SessionView, after: int, up_to: int | None = None) -> Sequence[LoggedEvent]:
        """The durable events after event `after` up to event `up_to`, oldest first."""
        found: list[LoggedEvent] = []
        while True:
            limit = PAGE if up_to is None else min(PAGE, up_to - after)
            page = visible_events(await self._log.events(session.state.session_id, after, limit))
            found += page if up_to is None else [logged for logged in page if logged.seq <= up_to]
            if len(page) < limit or (up_to is not None and page[-1].seq >= up_to):
                return found
            after = page[-1].seq

    async def shown_events(
        self, session: SessionView, after: int = 0, up_to: int | None = None
    ) -> Sequence[LoggedEvent]:
        """Those of them that the active branch shows (`branches.shown_events`)."""
        return shown_events(await self.events(session, after, up_to), session.state.hidden_ranges)

    async def event(self, session: SessionView, seq: int) -> LoggedEvent:
        """One event, once it is durable."""
        await session.until_durable(seq)
        return (await self.events(session, seq - 1, seq))[0]

    async def run_start(self, session: SessionView, seq: int) -> RunStarted | None:
        """The event `seq`, if it starts a run."""
        event = (await self.event(session, seq)).event if seq else None
        return event if isinstance(event, RunStarted) else None

    async def shared_state(self, live: LiveSession) -> Json:
        """The shared state for the active run's agent: what the application sent, else the one before the turn."""
        active, seq = live.state.run, live.state.turn_state_seq
        given = msgspec.UNSET if active is None else given_state(active.metadata)
        if given is not msgspec.UNSET or not seq:
            return None if given is msgspec.UNSET else given
        return shared_state_in((await self.event(live, seq)).event)

    async def newest_events(
        self, session: SessionView, before: int | None = None
    ) -> AsyncIterator[Sequence[LoggedEvent]]:
        """The durable events before event `before` in pages, newest page first; each page is oldest first."""
        end = session.durable_cursor.seq + 1 if before is None else before
        while end > 1:
            page = await self._log.events_before(session.state.session_id, end, BACK_PAGE)
            if not page:
                return
            yield visible_events(page)
            end = page[0].seq

    async def messages(
        self,
        session: SessionView,
        after: int = 0,
        *,
        arrange: Callable[[Sequence[LoggedEvent]], Sequence[LoggedEvent]] | None = None,
    ) -> Sequence[Message]:
        """The durable root messages of the active branch after event `after`, with their attachments.

        `arrange` changes the events before they become messages.
        """
        shown = await self.shown_events(session, after)
        arranged = shown if arrange is None else arrange(shown)
        return await self._attachments.restore(session.state.session_id, messages_of(arranged))

    async def find_message_ids(self, session: SessionView, ids: Collection[str]) -> dict[str, int]:
        """Return those of a client's message ids that the session's log contains, with the event that completed each.

        The log contains the server's ids, and the client's ids of user messages.
        """
        return await self._index.find_messages(session.state.session_id, ids)

    async def answered_calls(self, session: SessionView, first_seq: int) -> Mapping[CallId, EarlierCall]:
        """The calls of earlier runs that the run from event `first_seq` on begins to answer.

        They include the calls of the sub-agents that they belong to.
        """
        await session.until_durable(first_seq)  # the answers become durable together with this event
        leading = await self.events(session, first_seq, first_seq + MAX_LEADING_ANSWERS)
        answers = takewhile(lambda logged: isinstance(logged.event, AnswerGiven | CallSettled), leading)
        missing = {logged.event.call_id for logged in answers if isinstance(logged.event, AnswerGiven)}
        if not missing:
            return {}
        settled: set[CallId] = set()
        parked: dict[CallId, CallParked] = {}
        calls: dict[CallId, EarlierCall] = {}
        async for page in self.newest_events(session, first_seq):
            for logged in reversed(page):
                event = logged.event
                if isinstance(event, CallSettled):
                    settled.add(event.result.call_id)
                elif isinstance(event, CallParked):
                    parked.setdefault(event.call_id, event)
                elif isinstance(event, CallOpened) and event.call.call_id not in settled:
                    call = EarlierCall(logged.run_id, event)
                    newest = parked.get(event.call.call_id)
                    calls[event.call.call_id] = call if newest is None else call.parked(newest)
                    if (parent := forking_call(event.loop)) is not None:
                        missing.add(parent)
            missing -= calls.keys()
            if not missing:
                break
        return calls

    async def run_start_before(self, session: SessionView, seq: int, *, only_active: bool = False) -> int:
        """The event that started the newest run up to event `seq`.

        0 if there is none, or with `only_active` if that run has ended by then.
        """
        async for page in self.newest_events(session, seq + 1):
            for logged in reversed(page):
                match logged.event:
                    case RunStarted():
                        return logged.seq
                    case RunStopped(run_id=run_id) if only_active and run_id == logged.run_id:
                        return 0
        return 0

    async def run_beginning(self, session: SessionView, started_seq: int) -> int:
        """The first event of the run that event `started_seq` starts.

        It is that event, or the first of the results before it: those of the calls that the run's message closed.
        """
        first_seq = started_seq
        run_id: RunId | None = None
        async for page in self.newest_events(session, started_seq + 1):
            for logged in reversed(page):
                if logged.seq == started_seq:
                    run_id = logged.run_id
                elif run_id is None or logged.run_id != run_id or not isinstance(logged.event, CallSettled):
                    return first_seq
                first_seq = logged.seq
        return first_seq

    async def calls_before(self, session: SessionView, seq: int) -> Mapping[CallId, CallOpened]:
        """The calls of the run before event `seq`, if that run has left some of them open."""
        calls: dict[CallId, CallOpened] = {}
        async for page in self.newest_events(session, seq):
            for logged in reversed(page):
                match logged.event:
                    case RunStarted():
                        return calls
                    case RunStopped(run_id=run_id, reason="end_turn") if run_id == logged.run_id:
                        return calls
                    case CallOpened() as opened:
                        calls[opened.call.call_id] = opened
        return calls

    async def run_records(self, session: SessionView, run_id: RunId, first_seq: int) -> Sequence[Record]:
        """The durable records of one run, from its first event on."""
        durable, (pieces, _) = session.durable_cursor, to_live_session(session).durable_pieces()
        found: list[LoggedEvent] = []
        while True:
            after = found[-1].seq if found else first_seq - 1
            page = visible_events(await self._log.events(session.state.session_id, after, RUN_PAGE))
            for logged in page:
                if logged.seq > durable.seq:  # it became durable during the read; `pieces` replaces it
                    return expand(found, pieces, Cursor(first_seq - 1))
                found.append(logged)
                if isinstance(logged.event, RunStopped) and logged.event.run_id == run_id:
                    return expand(found, (), Cursor(first_seq - 1))
            if len(page) < RUN_PAGE:
                return expand(found, pieces, Cursor(first_seq - 1))

    async def turn_at(self, session: SessionView, seq: int) -> Turn | None:
        """The turn of the run that event `seq` starts, with all its runs so far; None if the event starts none.

        Reads the log from the turn's beginning to its end.
        """
        await session.until_durable(seq)
        events: list[LoggedEvent] = []
        while True:
            page = await self._log.events(session.state.session_id, events[-1].seq if events else seq - 1, RUN_PAGE)
            events += page
            turns = turns_of(events)
            if len(page) < RUN_PAGE or len(turns) > 1:
                break
        if not turns or turns[0].first.first_seq != seq or turns[0].first.has_message:
            return turns[0] if turns and turns[0].first.first_seq == seq else None
        run_id = turns[0].first.run_id
        async for earlier in self.newest_events(session, seq):
            events[:0] = earlier
            turn = turn_with(turns_of(events), run_id)
            if turn is None or turn.first.has_message:
                break
        return turn_with(turns_of(events), run_id)


class _TurnCollector:
    """Collects a loop's turn backwards. `before` is the message that precedes the turn, if known."""

    def __init__(self, loop: LoopId, before: MessageId | None) -> None:
        self._loop = loop
        self._before = before
        self._collected: list[Message] = []

    @property
    def messages(self) -> Sequence[Message]:
        """The collected messages, oldest first."""
        return self._collected[::-1]

    def prepend(self, message: Message) -> bool:
        """Add the preceding message if it belongs to the turn. Returns whether the turn is complete."""
        if message.id == self._before:
            return True
        if message.loop != self._loop or (isinstance(message, AssistantMessage) and message.status == "cut"):
            return False
        self._collected.append(message)
        return isinstance(message, UserMessage)


async def _user_messages(
    newest_first: AsyncGenerator[LoggedMessage, None], from_seq: int, hidden: Ranges
) -> list[StoredMessage]:
    """The user's messages from event `from_seq` on, oldest first."""
    found: list[StoredMessage] = []
    async with aclosing(newest_first):
        async for logged_message in newest_first:
            if logged_message.seq < from_seq:
                break
            message = logged_message.message
            if isinstance(message, UserMessage) and message.loop == ROOT:
                found.append(StoredMessage(logged_message.seq, message, True, hidden))
    return found[::-1]


async def _messages_in_log(log: EventLog, live: LiveSession, before: int) -> AsyncGenerator[LoggedMessage, None]:
    """The messages completed before event `before`, newest first."""
    shows, limit = live.state.is_visible, BACK_PAGE
    while before > 1:
        page = await log.events_before(live.state.session_id, before, limit)
        complete, begins = assemble_page(page)
        limit = BACK_PAGE if begins < before else 2 * limit  # a message may have more events than a page
        before = begins
        for logged_message in reversed(complete):
            if shows(logged_message.seq):
                yield logged_message


def _messages_in_memory(live: LiveSession) -> Iterator[LoggedMessage]:
    """The newest messages in the active branch, newest first."""
    shows = live.state.is_visible
    return (logged_message for logged_message in live.recent_messages.messages[::-1] if shows(logged_message.seq))


def assemble_page(page: Sequence[LoggedEvent]) -> tuple[list[LoggedMessage], int]:
    """The messages that begin and end within a page, and the event before which the next page must end.

    A message that begins before the page is left to the next page, which extends to that message's end.
    """
    opened = {logged.event.message_id: logged.seq for logged in page if isinstance(logged.event, MessageOpened)}
    start = page[0].seq if page else 1
    if start > 1:
        for logged in page:
            if isinstance(logged.event, MessageClosed) and logged.event.message_id not in opened:
                start = logged.seq + 1
    assembler = Assembler()
    found: list[LoggedMessage] = []
    for logged in page:
        message = assembler.feed(logged)
        if message is not None and logged.seq >= start:
            found.append(LoggedMessage(logged.seq, message))
    return found, start
