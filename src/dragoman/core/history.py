"""Assembly of messages from events. Pure."""

from collections.abc import Iterable

from dragoman.core.content import AssistantMessage, Block, Message
from dragoman.core.events import (
    BlockClosed,
    CallOpened,
    CallSettled,
    LoggedEvent,
    MessageAdded,
    MessageClosed,
    MessageOpened,
)
from dragoman.core.ids import ROOT, LoopId


class Assembler:
    """Assembles messages event by event. A message is available when it is complete."""

    def __init__(self) -> None:
        self._open: dict[LoopId, list[Block]] = {}

    def feed(self, logged: LoggedEvent) -> Message | None:
        """Take the next event. Returns the message that it completes, if any."""
        event = logged.event
        match event:
            case MessageAdded(message=message):
                return message
            case MessageOpened(loop=loop):
                self._open[loop] = []
            case BlockClosed(loop=loop, block=block):
                if loop in self._open:
                    self._open[loop].append(block)
            case CallOpened(loop=loop, call=call):
                if loop in self._open:
                    self._open[loop].append(call)
            case MessageClosed(loop=loop):
                blocks = self._open.pop(loop, None)
                if blocks is None:  # the page starts in the middle of this message
                    return None
                return AssistantMessage(
                    id=event.message_id,
                    content=tuple(blocks),
                    loop=loop,
                    status=event.status,
                    model=event.model,
                    usage=event.usage,
                )
            case CallSettled(result=result):
                return result
        return None


def messages_of(events: Iterable[LoggedEvent], loop: LoopId | None = ROOT) -> list[Message]:
    """The complete messages of a loop (of all loops: None), in the order in which they were completed.

    An assistant message without blocks, from a step that was cut off before its first delta, is left out.
    """
    assembler = Assembler()
    found: list[Message] = []
    for logged in events:
        message = assembler.feed(logged)
        if message is not None and (loop is None or message.loop == loop) and not is_empty(message):
            found.append(message)
    return found


def is_empty(message: Message) -> bool:
    """Whether a message has no content."""
    return isinstance(message, AssistantMessage) and not message.content
