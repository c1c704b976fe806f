"""The newest messages of a session, which agents read at every step. Older ones are read from the log."""

from typing import NamedTuple

from dragoman.core.content import Message
from dragoman.core.events import LoggedEvent
from dragoman.core.history import Assembler

MAX_MESSAGES = 256
"""Messages kept in memory."""
MAX_BYTES = 1024 * 1024
"""Size limit of those messages, in their stored form; the newest is kept whatever its size."""


class LoggedMessage(NamedTuple):
    """A message and the event that completed it."""

    seq: int
    message: Message


class RecentMessages:
    """The newest messages of all loops and branches, oldest first."""

    __slots__ = ("_assembler", "_bytes", "_marks", "after", "messages")

    def __init__(self, after: int) -> None:
        self.after = after
        """All messages completed after this event are kept."""
        self.messages: list[LoggedMessage] = []
        self._assembler = Assembler()
        self._bytes = 0
        """Size of all events that were added."""
        self._marks: list[int] = []
        """The value of `_bytes` at each message."""

    def add(self, logged: LoggedEvent, size: int) -> None:
        """Add the next event, whose stored form has `size` bytes."""
        self._bytes += size
        message = self._assembler.feed(logged)
        if message is None:
            return
        messages, marks = self.messages, self._marks
        messages.append(LoggedMessage(logged.seq, message))
        marks.append(self._bytes)
        while len(messages) > MAX_MESSAGES or (len(messages) > 1 and self._bytes - marks[0] > MAX_BYTES):
            self.after = messages.pop(0).seq
            marks.pop(0)
