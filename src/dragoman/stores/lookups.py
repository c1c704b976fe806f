"""What is looked up across sessions or searched, and how much of it is kept. Pure: the same for every database."""

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

IDEMPOTENCY_RETENTION = timedelta(hours=24)
"""How long it is known what a request with a client's own key did, where it does not last."""
MEMORY_HIT_RETENTION = timedelta(days=1)
"""How long it is known that a run's memories were counted."""
MAX_FIRES_PER_SCHEDULE = 1000
"""Of each schedule; older ones go."""
MAX_NEWEST_CANDIDATES = 200
"""Of each type, as many memories are candidates whatever they say."""
MAX_MATCHING_CANDIDATES = 64
"""And as many of those that have most in common with what was said."""
MAX_SEARCHED_EVENTS = 50_000
"""Events that one search looks into. Databases do not agree on the case of letters, so the looking is done here."""


def run_id_in(event: Event) -> RunId | None:
    """The run that begins with an event."""
    return event.run_id if isinstance(event, RunStarted | RunQueued) else None


def call_ids_in(event: Event) -> tuple[CallId, ...]:
    """The calls that a session's log knows from an event on."""
    match event:
        case CallOpened(call=call) | BlockClosed(block=Call() as call):
            return (call.call_id,)
        case MessageAdded(message=AssistantMessage() as message):
            return tuple(call.call_id for call in message.calls())
        case _:
            return ()


def message_ids_in(event: Event) -> tuple[str, ...]:
    """The ids of the message that an event completes: ours, and the client's for a message of the user."""
    match event:
        case MessageAdded(message=UserMessage(id=own, client_id=str() as client_id)):
            return (own, client_id)
        case MessageAdded(message=message):
            return (message.id,)
        case MessageClosed(message_id=message_id):
            return (message_id,)
        case CallSettled(result=result):
            return (result.id,)
        case _:
            return ()


def text_in(event: Event) -> str:
    """The words that a person or the agent said in an event."""
    match event:
        case BlockClosed(block=Text(text=text)):
            return text
        case MessageAdded(message=message):
            return text_of(message.content)
        case _:
            return ""
