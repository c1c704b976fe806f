"""The indexes of runs, calls and messages: each type of event with such an id is indexed, or left out for a reason."""

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from hypothesis import given

from dragoman.core.events import Event
from dragoman.core.ids import CallId, MessageId, RunId
from dragoman.stores.lookups import (
    EVENTS_WITH_CALLS,
    EVENTS_WITH_MESSAGES,
    EVENTS_WITH_RUNS,
    call_ids_in,
    message_ids_in,
    run_id_in,
)
from tests.core import strategies

OF_A_RUN_THAT_STARTED = {"RunResumed", "RunParked", "RunStopped"}
OF_DELETED_RUNS = {"SessionCreated", "SettingsChanged"}
"""Their settings name them."""
OF_A_CALL_THAT_WAS_OPENED = {"CallStarted", "CallParked", "AnswerGiven", "CallSettled"}
OF_A_MESSAGE_IN_PROGRESS = {"MessageOpened", "BlockClosed", "CallOpened", "CardUpdated"}
OF_A_MESSAGE_THAT_FOLLOWS = {"RunQueued", "RunStarted", "AnswerGiven"}
"""Another event adds the message, or settles the call with it."""


def types_with(kind: Any) -> set[str]:
    """The types of events that contain an id of a kind, at any depth."""
    return {each.__name__ for each in get_args(Event) if kind in set(types_in(each))}


def types_in(hint: Any, *, within: tuple[Any, ...] = ()) -> Iterator[Any]:
    """All types that a type is made of."""
    if hint in within:
        return
    yield hint
    inner = get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        inner = tuple(get_type_hints(hint).values())
    for each in inner:
        yield from types_in(each, within=(*within, hint))


@pytest.mark.parametrize(
    ("kind", "indexed", "left_out"),
    [
        (RunId, EVENTS_WITH_RUNS, OF_A_RUN_THAT_STARTED | OF_DELETED_RUNS),
        (CallId, EVENTS_WITH_CALLS, OF_A_CALL_THAT_WAS_OPENED),
        (MessageId, EVENTS_WITH_MESSAGES, OF_A_MESSAGE_IN_PROGRESS | OF_A_MESSAGE_THAT_FOLLOWS),
    ],
    ids=["runs", "calls", "messages"],
)
def test_every_event_with_an_id_is_found_or_left_out_on_purpose(
    kind: Any, indexed: frozenset[type], left_out: set[str]
) -> None:
    assert {each.__name__ for each in indexed} | left_out == types_with(kind)
    assert {each.__name__ for each in indexed} & left_out == set()


@given(strategies.events)
def test_only_these_events_are_asked_for_their_ids(event: Event) -> None:
    """SQLite reads the ids of no other events."""
    assert run_id_in(event) is None or type(event) in EVENTS_WITH_RUNS
    assert not call_ids_in(event) or type(event) in EVENTS_WITH_CALLS
    assert not message_ids_in(event) or type(event) in EVENTS_WITH_MESSAGES
