"""The order in which the answers of one request are stored."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count

import pytest

from dragoman.core.admission import admit
from dragoman.core.content import Call
from dragoman.core.events import (
    CallOpened,
    CallSettled,
    Event,
    LoggedEvent,
    MessageClosed,
    MessageOpened,
    SessionCreated,
    SessionSettings,
    SettingsChange,
)
from dragoman.core.ids import CallId, MessageId, SessionId, UserId
from dragoman.core.input_checks import InputLimits
from dragoman.core.inputs import Answer, Decision, Result, Submit
from dragoman.core.session import SessionState, fold, initial_state
from dragoman.core.tools import AgentSpec

PAINT, DRAW = CallId("paint"), CallId("draw")


def session_waiting_for(*call_ids: CallId) -> SessionState:
    """A session whose application has to run these calls."""
    message = MessageId("step")
    opened: list[Event] = [
        CallOpened(message_id=message, index=index, call=Call(call_id=call_id, name=call_id, input={}), kind="client")
        for index, call_id in enumerate(call_ids)
    ]
    events = [MessageOpened(message_id=message), *opened, MessageClosed(message_id=message)]
    at = datetime(2026, 11, 21, tzinfo=UTC)
    created = LoggedEvent(1, at, None, SessionCreated(agent="any", settings=SessionSettings(), protocol="aap"))
    state = initial_state(SessionId("s"), UserId("me"), created)
    return fold(state, (LoggedEvent(seq, at, None, event) for seq, event in enumerate(events, start=2)))


def numbers() -> Iterator[str]:
    return map(str, count())


@pytest.mark.parametrize("turned", [False, True])
def test_results_of_the_application_are_stored_before_its_denials(turned: bool) -> None:
    """AAP §6, steps 1 and 2: client tool results are stored on acceptance, decisions are dealt with after that."""
    answers: list[Answer] = [Decision(call_id=PAINT, granted=False), Result(call_id=DRAW, content="drawn")]
    request = Submit(protocol="aap", answers=tuple(reversed(answers) if turned else answers))
    new_id = numbers()
    admitted = admit(
        session_waiting_for(PAINT, DRAW),
        AgentSpec(name="any"),
        request,
        SettingsChange(),
        by="me",
        resolved=(),
        limits=InputLimits(),
        new_id=lambda: next(new_id),
    )
    settled = [event.result.call_id for event in admitted.events if isinstance(event, CallSettled)]
    assert settled == [DRAW, PAINT]
