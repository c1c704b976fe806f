"""A session's messages, read as far back as somebody asks: from memory first, then page by page from the log."""

from collections.abc import AsyncIterator, Iterator, Sequence

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
        turn, before = _Turn(loop, None if parent is None else parent.message_id), live.tail_from + 1
        for placed in _in_memory(live):  # where nearly every turn is whole: no generator has to be closed behind it
            if turn.begins_with(placed.message):
                return turn.messages
        async for placed in self._from_log(live, before):
            if turn.begins_with(placed.message):
                break
        return turn.messages

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
        before = live.tail_from + 1
        for placed in _in_memory(live):
            yield placed
        async for placed in self._from_log(live, before):
            yield placed

    async def _from_log(self, live: LiveSession, before: int) -> AsyncIterator[Placed]:
        """Those that are complete before event `before`, newest first."""
        shows, limit = live.state.shows, PAGE
        while before > 1:
            page = await self._log.events_before(live.state.session_id, before, limit)
            placed_here, begins = place(page)
            limit = PAGE if begins < before else 2 * limit  # a message can be longer than a page
            before = begins
            for placed in reversed(placed_here):
                if shows(placed.seq):
                    yield placed


class _Turn:
    """Gathers a loop's turn from its end. `before` is the message that does not belong to it any more, if known."""

    def __init__(self, loop: LoopId, before: MessageId | None) -> None:
        self._loop = loop
        self._before = before
        self._found: list[Message] = []

    @property
    def messages(self) -> Sequence[Message]:
        """What was gathered, oldest first."""
        return self._found[::-1]

    def begins_with(self, message: Message) -> bool:
        """Take the message before those that were taken, if it is one of the turn's; whether that was its first."""
        if message.id == self._before:
            return True
        if message.loop != self._loop or (isinstance(message, AssistantMessage) and message.status == "cut"):
            return False
        self._found.append(message)
        return isinstance(message, UserMessage)


def _in_memory(live: LiveSession) -> Iterator[Placed]:
    """The newest messages in the active branch, newest first."""
    shows = live.state.shows
    return (placed for placed in live.tail[::-1] if shows(placed.seq))


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
