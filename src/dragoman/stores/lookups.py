"""What is indexed and searched, and how much of it is kept. Pure: the same for every database."""

from datetime import timedelta

from dragoman.core.content import AssistantMessage, Call, Text, UserMessage, text_of
from dragoman.core.events import (
    BlockClosed,
    CallOpened,
    CallSettled,
    Event,
    MessageAdded,
    MessageClosed,
    RunQueued,
    RunStarted,
)
from dragoman.core.ids import CallId, RunId

MEMORY_HIT_RETENTION = timedelta(days=1)
"""How long the store remembers that a run's memories were counted."""
MAX_FIRES_PER_SCHEDULE = 1000
"""Fires kept for each schedule; older ones are deleted."""
MAX_NEWEST_CANDIDATES = 200
"""Number of newest memories of each type that are always candidates."""
MAX_MATCHING_CANDIDATES = 64
"""Number of further candidates, those that share most trigrams."""
MAX_SEARCHED_EVENTS = 50_000
"""Maximum number of events read by one search. Matching is done here because databases fold case differently."""
LAST_CHARACTER = "\U0010ffff"
"""The last code point, which no key of a kept value has: all keys that begin with a text precede the text with it."""

EVENTS_WITH_RUNS = frozenset({RunStarted, RunQueued})
EVENTS_WITH_CALLS = frozenset({CallOpened, BlockClosed, MessageAdded})
EVENTS_WITH_MESSAGES = frozenset({MessageAdded, MessageClosed, CallSettled})
"""The types of events for which `run_id_in`, `call_ids_in` and `message_ids_in` may find something."""


def run_id_in(event: Event) -> RunId | None:
    """The run that an event starts or queues."""
    return event.run_id if isinstance(event, RunStarted | RunQueued) else None


def call_ids_in(event: Event) -> tuple[CallId, ...]:
    """The calls that an event adds to a session's log."""
    match event:
        case CallOpened(call=call) | BlockClosed(block=Call() as call):
            return (call.call_id,)
        case MessageAdded(message=AssistantMessage() as message):
            return tuple(call.call_id for call in message.calls())
        case _:
            return ()


def message_ids_in(event: Event) -> tuple[str, ...]:
    """The ids of the message that an event completes: the server's, and for a user message the client's."""
    match event:
        case MessageClosed(message_id=message_id):
            return (message_id,)
        case MessageAdded(message=UserMessage(id=own, client_id=str() as client_id)):
            return (own, client_id)
        case MessageAdded(message=message):
            return (message.id,)
        case CallSettled(result=result):
            return (result.id,)
        case _:
            return ()


def text_in(event: Event) -> str:
    """The text of a user or an agent in an event."""
    match event:
        case BlockClosed(block=Text(text=text)):
            return text
        case MessageAdded(message=message):
            return text_of(message.content)
        case _:
            return ""


def searchable(text: str) -> str:
    """A text in the form in which it is searched: case-folded, without characters that databases do not accept."""
    return text.casefold().replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
