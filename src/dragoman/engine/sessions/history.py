"""What happened in a session, read as far back as somebody asks: its messages, its events, the records of one run.

A loop's newest messages are in memory, where nearly every turn is whole; what is further back, and all events, are read
page by page from the log. Nothing here changes a session.
"""

from collections.abc import AsyncIterator, Collection, Iterator, Sequence

from dragoman.core.content import AssistantMessage, Message, ToolMessage, UserMessage
from dragoman.core.events import LoggedEvent, MessageClosed, MessageOpened, RunStopped
from dragoman.core.history import Assembler, is_empty, messages_of
from dragoman.core.ids import ROOT, LoopId, MessageId, RunId, UserId
from dragoman.core.stream import Cursor, Record, expand
from dragoman.engine.services.attachments import Attachments
from dragoman.engine.sessions.live_session import LiveSession, to_live_session
from dragoman.engine.sessions.recent_messages import LoggedMessage
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.log import EventLog, LogLookup, RunLocation

PAGE = 2000
BACK_PAGE = 400
RUN_PAGE = 200
"""Events read at a time where those of one run are looked for."""


class History:
    """Reads what happened in sessions that are in memory.

    Args:
        log: where the events are.
        index: where runs and messages are looked up by their ids.
        attachments: give messages their large contents back.
    """

    def __init__(self, log: EventLog, index: LogLookup, attachments: Attachments) -> None:
        self._log = log
        self._index = index
        self._attachments = attachments

    # --- the messages of loops ------------------------------------------------------------------------------------

    async def turn(self, live: LiveSession, loop: LoopId) -> Sequence[Message]:
        """The loop's messages since its last user message, that one included; without steps that a crash cut off."""
        parent = live.state.parent_call(loop)
        turn, before = (
            _TurnCollector(loop, None if parent is None else parent.message_id),
            live.recent_messages.after + 1,
        )
        for placed in _messages_in_memory(
            live
        ):  # where nearly every turn is whole: no generator has to be closed behind it
            if turn.prepend(placed.message):
                return turn.messages
        async for placed in self._from_log(live, before):
            if turn.prepend(placed.message):
                break
        return turn.messages

    async def root_messages_newest_first(self, live: LiveSession) -> AsyncIterator[Message]:
        """The root messages, newest first."""
        async for placed in self.messages_newest_first(live):
            if placed.message.loop == ROOT and not is_empty(placed.message):
                yield placed.message

    async def context(self, live: LiveSession, max_messages: int) -> Sequence[LoggedMessage]:
        """The root messages that a model should read, oldest first: the newest since the last compaction.

        They reach back to the newest user message at least: without its beginning a step of many calls makes no sense.
        """
        from_seq = 0 if live.state.compaction is None else live.state.compaction.up_to
        found: list[LoggedMessage] = []
        has_user = False
        async for placed in self.messages_newest_first(live):
            if placed.seq <= from_seq or (len(found) >= max_messages and has_user):
                break
            message = placed.message
            if message.loop != ROOT or is_empty(message):
                continue
            if isinstance(message, AssistantMessage) and message.status == "cut":
                continue
            found.append(placed)
            has_user = has_user or isinstance(message, UserMessage)
        found.reverse()
        return found

    async def extent_before(self, live: LiveSession, keep_from: MessageId) -> tuple[int, int]:
        """The last event of all that a summary stands for, and how many messages that are; nothing: 0 and 0.

        Args:
            live: the session.
            keep_from: the first message that stays as it is.
        """
        begins = 0 if live.state.compaction is None else live.state.compaction.up_to
        up_to, archived, is_kept, is_found = 0, 0, True, False
        async for placed in self.messages_newest_first(live):
            if placed.seq <= begins:
                break
            if not is_kept:
                up_to = up_to or placed.seq
                archived += 1
            elif is_found or placed.message.id == keep_from:
                is_found = True
                is_kept = isinstance(placed.message, ToolMessage)  # a result stays with the step that asked for it
        return up_to, archived

    async def messages_newest_first(self, live: LiveSession) -> AsyncIterator[LoggedMessage]:
        """The messages of all loops in the active branch with their places, newest first."""
        before = live.recent_messages.after + 1
        for placed in _messages_in_memory(live):
            yield placed
        async for placed in self._from_log(live, before):
            yield placed

    # --- events and runs, as clients ask for them -----------------------------------------------------------------

    async def run_row(self, owner: UserId, run_id: RunId) -> RunLocation | None:
        """Where a run of that owner stands in its session's log."""
        row = await self._index.find_run(run_id)
        return row if row is not None and row.owner == owner else None

    async def events(self, live: SessionView, after: int, up_to: int | None = None) -> Sequence[LoggedEvent]:
        """The durable events behind `after`, oldest first, up to event `up_to`."""
        found: list[LoggedEvent] = []
        while True:
            limit = PAGE if up_to is None else min(PAGE, up_to - after)
            page = await self._log.events(live.state.session_id, after, limit)
            found += page if up_to is None else [logged for logged in page if logged.seq <= up_to]
            if len(page) < limit or (up_to is not None and page[-1].seq >= up_to):
                return found
            after = page[-1].seq

    async def newest_events(self, live: SessionView, before: int | None = None) -> AsyncIterator[Sequence[LoggedEvent]]:
        """The durable events before event `before`, page by page backwards; each page oldest first."""
        end = live.durable_cursor.seq + 1 if before is None else before
        while end > 1:
            page = await self._log.events_before(live.state.session_id, end, BACK_PAGE)
            if not page:
                return
            yield page
            end = page[0].seq

    async def messages(self, live: SessionView, after: int = 0) -> Sequence[Message]:
        """The durable messages of the root loop in the active branch behind event `after`, as they were sent."""
        events = await self.events(live, after)
        shown = [each for each in events if live.state.is_visible(each.seq)] if live.state.hidden_ranges else events
        return await self._attachments.restore(live.state.session_id, messages_of(shown))

    async def find_message_ids(self, live: SessionView, ids: Collection[str]) -> dict[str, int]:
        """Of the message ids that a client sends, those of the session's log, with the event that completed each.

        Ours are known, and the client's own for messages of the user. What was never durable here is not known.
        """
        return await self._index.find_messages(live.state.session_id, ids)

    async def run_records(self, live: SessionView, run_id: RunId, first_seq: int) -> Sequence[Record]:
        """The durable records of one run so far, from its first event on."""
        durable, pieces = live.durable_cursor, list(to_live_session(live).durable_pieces())
        found: list[LoggedEvent] = []
        while True:
            after = found[-1].seq if found else first_seq - 1
            page = await self._log.events(live.state.session_id, after, RUN_PAGE)
            for logged in page:
                if logged.seq > durable.seq:  # it came while we read: what `pieces` holds is not in `found` yet
                    return expand(found, pieces, Cursor(first_seq - 1))
                found.append(logged)
                if isinstance(logged.event, RunStopped) and logged.event.run_id == run_id:
                    return expand(found, (), Cursor(first_seq - 1))
            if len(page) < RUN_PAGE:
                return expand(found, pieces, Cursor(first_seq - 1))

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _from_log(self, live: LiveSession, before: int) -> AsyncIterator[LoggedMessage]:
        """Those that are complete before event `before`, newest first."""
        shows, limit = live.state.is_visible, BACK_PAGE
        while before > 1:
            page = await self._log.events_before(live.state.session_id, before, limit)
            placed_here, begins = assemble_page(page)
            limit = BACK_PAGE if begins < before else 2 * limit  # a message can be longer than a page
            before = begins
            for placed in reversed(placed_here):
                if shows(placed.seq):
                    yield placed


class _TurnCollector:
    """Gathers a loop's turn from its end. `before` is the message that does not belong to it any more, if known."""

    def __init__(self, loop: LoopId, before: MessageId | None) -> None:
        self._loop = loop
        self._before = before
        self._collected: list[Message] = []

    @property
    def messages(self) -> Sequence[Message]:
        """What was gathered, oldest first."""
        return self._collected[::-1]

    def prepend(self, message: Message) -> bool:
        """Take the message before those that were taken, if it is one of the turn's; whether that was its first."""
        if message.id == self._before:
            return True
        if message.loop != self._loop or (isinstance(message, AssistantMessage) and message.status == "cut"):
            return False
        self._collected.append(message)
        return isinstance(message, UserMessage)


def _messages_in_memory(live: LiveSession) -> Iterator[LoggedMessage]:
    """The newest messages in the active branch, newest first."""
    shows = live.state.is_visible
    return (placed for placed in live.recent_messages.messages[::-1] if shows(placed.seq))


def assemble_page(page: Sequence[LoggedEvent]) -> tuple[list[LoggedMessage], int]:
    """The messages that begin and end within a page, and the event before which the next page has to end.

    A message that begins before the page is left to the next one, which therefore reaches up to that message's end.
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
