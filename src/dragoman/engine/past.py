"""A session's messages, read as far back as somebody asks: from memory first, then page by page from the log."""

from collections.abc import AsyncIterator, Sequence

from dragoman.core.content import AssistantMessage, Message, ToolMessage, UserMessage
from dragoman.core.events import Logged, MessageClosed, MessageOpened
from dragoman.core.history import Assembler, is_empty
from dragoman.core.ids import ROOT, LoopId, MessageId
from dragoman.engine.live import LiveSession, Placed
from dragoman.ports import EventLog

PAGE = 400


class Past:
    """Reads messages of sessions in memory."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def turn(self, live: LiveSession, loop: LoopId) -> Sequence[Message]:
        """The loop's messages since its last user message, that one included; without steps that a crash cut off."""
        parent = live.state.parent(loop)
        begins = None if parent is None else parent.message_id
        found: list[Message] = []
        async for placed in self.placed_newest_first(live):
            message = placed.message
            if message.id == begins:
                break
            if message.loop != loop or (isinstance(message, AssistantMessage) and message.status == "cut"):
                continue
            found.append(message)
            if isinstance(message, UserMessage):
                break
        found.reverse()
        return found

    async def newest_first(self, live: LiveSession) -> AsyncIterator[Message]:
        """The root messages, newest first."""
        async for placed in self.placed_newest_first(live):
            if placed.message.loop == ROOT and not is_empty(placed.message):
                yield placed.message

    async def context(self, live: LiveSession, max_messages: int) -> Sequence[Placed]:
        """The root messages that a model should read, oldest first: the newest since the last compaction.

        They reach back to the newest user message at least: without its beginning a step of many calls makes no sense.
        """
        from_seq = 0 if live.state.compacted is None else live.state.compacted.up_to
        found: list[Placed] = []
        has_user = False
        async for placed in self.placed_newest_first(live):
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

    async def before(self, live: LiveSession, keep_from: MessageId) -> tuple[int, int]:
        """The last event of all that a summary stands for, and how many messages that are; nothing: 0 and 0.

        Args:
            live: the session.
            keep_from: the first message that stays as it is.
        """
        begins = 0 if live.state.compacted is None else live.state.compacted.up_to
        up_to, archived, is_kept, is_found = 0, 0, True, False
        async for placed in self.placed_newest_first(live):
            if placed.seq <= begins:
                break
            if not is_kept:
                up_to = up_to or placed.seq
                archived += 1
            elif is_found or placed.message.id == keep_from:
                is_found = True
                is_kept = isinstance(placed.message, ToolMessage)  # a result stays with the step that asked for it
        return up_to, archived

    async def placed_newest_first(self, live: LiveSession) -> AsyncIterator[Placed]:
        """The messages of all loops in the active branch with their places, newest first."""
        shows = live.state.shows
        tail, before = list(live.tail), live.tail_from + 1
        for placed in reversed(tail):
            if shows(placed.seq):
                yield placed
        limit = PAGE
        while before > 1:
            page = await self._log.events_before(live.state.session_id, before, limit)
            placed_here, begins = place(page)
            limit = PAGE if begins < before else 2 * limit  # a message can be longer than a page
            before = begins
            for placed in reversed(placed_here):
                if shows(placed.seq):
                    yield placed


def place(page: Sequence[Logged]) -> tuple[list[Placed], int]:
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
    found: list[Placed] = []
    for logged in page:
        message = assembler.feed(logged)
        if message is not None and logged.seq >= start:
            found.append(Placed(logged.seq, message))
    return found, start
