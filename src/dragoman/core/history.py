"""Assembly of messages from events. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from dragoman.core.content import AssistantMessage, Block, Message, ToolMessage
from dragoman.core.events import (
    BlockClosed,
    CallOpened,
    CallParked,
    CallSettled,
    LoggedEvent,
    MessageAdded,
    MessageClosed,
    MessageOpened,
)
from dragoman.core.ids import ROOT, LoopId, RunId


class EarlierCall(NamedTuple):
    """A call of an earlier run, which a later one executes or continues."""

    run_id: RunId | None
    opened: CallOpened

    def parked(self, parked: CallParked) -> "EarlierCall":
        """The call after it was parked: from then on it may be one that the user has to allow."""
        if parked.kind not in (None, "permission"):
            return self
        opened = msgspec.structs.replace(self.opened, kind="permission", repeat=parked.is_repeat)
        return self._replace(opened=opened)


_MESSAGE_EVENTS = frozenset({MessageAdded, MessageOpened, BlockClosed, CallOpened, MessageClosed, CallSettled})
"""Checked first: for structs, a set lookup is cheaper than a class pattern that does not match."""


class Assembler:
    """Assembles messages event by event. A message is available when it is complete."""

    def __init__(self) -> None:
        self._open: dict[LoopId, list[Block]] = {}

    def feed(self, logged: LoggedEvent) -> Message | None:
        """Take the next event. Returns the message that it completes, if any."""
        event = logged.event
        if type(event) not in _MESSAGE_EVENTS:
            return None
        match event:
            case MessageAdded(message=message):
                return message
            case BlockClosed(loop=loop, block=block):
                if loop in self._open:
                    self._open[loop].append(block)
            case MessageOpened(loop=loop):
                self._open[loop] = []
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
                    provider_data=event.provider_data,
                    private=event.private,
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


def without_repetitions(turn: Sequence[Message]) -> Sequence[Message]:
    """A turn as its agent took it, without the steps in which the server asked whether to repeat a call.

    A call that a crash interrupted and that was repeated has the result of its repetition.
    """
    results = {message.call_id: message for message in turn if isinstance(message, ToolMessage)}
    repeated = {call_id: result.repeated_by for call_id, result in results.items() if result.repeated_by is not None}
    if not repeated:
        return turn
    repetitions = set(repeated.values())
    found: list[Message] = []
    for message in turn:
        if isinstance(message, AssistantMessage) and any(call.call_id in repetitions for call in message.calls()):
            continue
        if isinstance(message, ToolMessage):
            if message.call_id in repetitions:
                continue
            last = message.call_id
            while (again := repeated.get(last)) in results:
                last = again
            message = msgspec.structs.replace(results[last], call_id=message.call_id)
        found.append(message)
    return found


def is_empty(message: Message) -> bool:
    """Whether a message has no content."""
    return isinstance(message, AssistantMessage) and not message.content
