"""What is kept with a session about the remote one, and what a run has to send. Pure.

The remote server's session continues as long as its history is ours: the newest message that it has must still be in
our history, followed by the last thing that it said. After an edit, on another branch, and when a run was lost, a new
remote session begins with what our user sees.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from dragoman.client.codec import SessionHandle
from dragoman.client.events import Answer
from dragoman.core.content import AssistantMessage, Json, JsonObject, Message, SystemMessage, UserMessage
from dragoman.core.ids import MessageId

_PRIVATE_KEY = "remote"


class Position(msgspec.Struct, kw_only=True, array_like=True):
    """How much of a turn's events is in the log: characters of text and of reasoning, blocks, cards."""

    text: int = 0
    thinking: int = 0
    blocks: int = 0

    def copy(self) -> "Position":
        """Another one with the same numbers."""
        return Position(text=self.text, thinking=self.thinking, blocks=self.blocks)


class Link(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The remote session of one of our sessions."""

    handle: SessionHandle
    run_id: str = ""
    """Our run that sent the newest turn."""
    turn: int = 0
    """The number of turns that were sent. The key of a turn follows from it."""
    input_id: str = ""
    """The newest message of ours that the remote session has."""
    answers: tuple[Answer, ...] = ()
    """What the newest turn sends, if that is not messages: those after `history_until`, up to `input_id`."""
    history_from: str = ""
    history_until: str = ""
    """The first message that was considered when the newest turn was sent, and the last one before its input."""
    has_transcript: bool = False
    """Whether the newest turn's message begins with the conversation before it."""
    is_over: bool = True
    """Whether the newest turn was read to its end."""
    is_lost: bool = False
    """Whether the rest of the newest turn is lost."""
    steps: int = 0
    """The number of messages of ours since `input_id`."""
    waiting: dict[str, str] = {}
    """The ids under which the remote server waits for answers, by those of our calls."""

    @property
    def key(self) -> str:
        """The idempotency key of the newest turn."""
        return f"{self.handle.id}-{self.turn}"

    def mark(self, position: Position) -> JsonObject:
        """The private value of a message, by which a later run knows what it has of the turn."""
        return {_PRIVATE_KEY: {"turn": self.turn, "step": self.steps, "at": [*msgspec.structs.astuple(position)]}}


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What `Link.mark` stored."""

    turn: int
    step: int
    at: Position


def mark_of(message: Message) -> Mark | None:
    """The mark of a message; None if it did not come from a remote server."""
    private: Json = message.private if isinstance(message, AssistantMessage) else None
    if not isinstance(private, dict) or _PRIVATE_KEY not in private:
        return None
    return msgspec.convert(private[_PRIVATE_KEY], Mark)


class NewInput(NamedTuple):
    """New messages, and what precedes them. `continues`: the remote session has exactly that."""

    history: Sequence[Message]
    messages: Sequence[Message]
    continues: bool


def find_new_input(messages: Sequence[Message], link: Link | None) -> NewInput:
    """Find the messages at the end of a history that no remote server has answered."""
    start = len(messages)
    while start and _is_input(messages[start - 1]) and (link is None or messages[start - 1].id != link.input_id):
        start -= 1
    if link is not None and start == len(messages) and start:  # the same message is answered again
        while start and _is_input(messages[start - 1]):
            start -= 1
        return NewInput(messages[:start], messages[start:], continues=False)
    history = messages[:start]
    return NewInput(history, messages[start:], continues=link is not None and _has_exactly(link, history))


def _has_exactly(link: Link, history: Sequence[Message]) -> bool:
    """Whether a remote session has what our user sees."""
    if link.is_lost:
        return False
    said = 0
    for message in reversed(history):
        if message.id == link.input_id:
            return not link.is_over or said == link.steps
        if _is_input(message):  # another agent answered it
            return False
        mark = mark_of(message)
        said = max(said, mark.step) if mark is not None and mark.turn <= link.turn else said
    return False


def _is_input(message: Message) -> bool:
    return isinstance(message, UserMessage) or (isinstance(message, SystemMessage) and message.origin == "notice")


def results_in_turn(turn: Sequence[Message]) -> tuple[set[str], Position | None, int]:
    """What the log has of a turn: the origins of its calls, the newest position, and the turn that it is of."""
    origins = {
        call.origin
        for message in turn
        if isinstance(message, AssistantMessage)
        for call in message.calls()
        if call.origin is not None
    }
    newest = next((mark for message in reversed(turn) if (mark := mark_of(message)) is not None), None)
    return origins, None if newest is None else newest.at, 0 if newest is None else newest.turn


def split_at_sending(messages: Sequence[Message], link: Link) -> tuple[Sequence[Message], Sequence[Message]]:
    """The messages that a session had when its newest turn was sent: its history, and the input of the turn."""
    places = {message.id: index for index, message in reversed([*enumerate(messages)])}
    start = places.get(MessageId(link.history_from), 0)
    end = places.get(MessageId(link.history_until), start - 1) + 1
    return messages[start:end], messages[end : places.get(MessageId(link.input_id), end - 1) + 1]
