"""`state = fold(events)`: however the fold is cut, wherever the state was written down, whatever happened."""

import re
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.content import UserMessage
from dragoman.core.events import (
    Branched,
    CallSettled,
    CallStarted,
    CardUpdated,
    Event,
    Lifetime,
    LoggedEvent,
    MessageAdded,
    MessageOpened,
    PlanUpdated,
    RunStarted,
    SessionCreated,
    SessionSettings,
    SettingsChange,
    SharedStateReplaced,
    decode,
    encode,
    type_of,
)
from dragoman.core.history import Assembler, is_empty, messages_of
from dragoman.core.ids import ROOT, CallId, MessageId, RunId, SessionId
from dragoman.core.session import apply, apply_change, decode_head, encode_head, fold, initial_state
from tests.core.log_generator import ANN, LogGenerator, conversations
from tests.core.strategies import NOON, events, times
from tests.engine.log_checker import check_log, fold_log

STORED_TYPES = {PlanUpdated: "plan_shown", CardUpdated: "card_shown", SharedStateReplaced: "state_shared"}
"""Types of events whose stored name differs from the name of their class."""


def to_snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@given(events)
def test_an_event_that_is_written_is_read_back(event: Event) -> None:
    assert decode(encode(event)) == event
    assert decode(encode(event).decode()) == event
    assert encode(decode(encode(event))) == encode(event), "and written again it is the same"
    assert type_of(event) == STORED_TYPES.get(type(event), to_snake_case(type(event).__name__))


@pytest.mark.parametrize("event", [CallStarted(call_id=CallId("\ud800"))])
def test_a_lone_surrogate_is_never_written(event: Event) -> None:
    with pytest.raises(UnicodeEncodeError):
        encode(event)


@given(conversations, st.data())
def test_a_fold_may_be_interrupted_anywhere(scribe: LogGenerator, data: st.DataObject) -> None:
    """Over the bytes in which a state is stored."""
    whole = fold_log(SessionId("session"), ANN, scribe.log)
    assert whole == scribe.state
    place = data.draw(st.integers(1, len(scribe.log)))
    head = fold_log(SessionId("session"), ANN, scribe.log[:place])
    stored = encode_head(head, with_settings=True)
    assert stored.settings is not None
    again = decode_head(stored.state, stored.settings)
    assert again == head
    assert fold(again, scribe.log[place:]) == whole
    assert head.seq == place, "what was written down stays as it was"


@given(conversations, times)
def test_an_encoded_state_is_decoded_unchanged(scribe: LogGenerator, at: object) -> None:
    scribe.state.updated_at = at  # type: ignore[assignment]  # an aware time
    head = encode_head(scribe.state, with_settings=True)
    assert head.settings is not None
    assert decode_head(head.state, head.settings) == scribe.state
    assert (head.seq, head.created_at, head.updated_at) == (scribe.state.seq, scribe.state.created_at, at)
    assert encode_head(scribe.state, with_settings=False).settings is None
    assert encode_head(scribe.state, with_settings=False).state == head.state, "the settings stand apart"


@given(conversations)
def test_any_sequence_of_requests_leaves_a_valid_log(scribe: LogGenerator) -> None:
    check_log(scribe.log, {}, set(scribe.settled_ids()) | set(scribe.state.calls))


@given(conversations, st.data())
def test_a_session_is_folded_in_its_order_or_not_at_all(scribe: LogGenerator, data: st.DataObject) -> None:
    """An event twice, or one left out, is another session's or none."""
    before = encode_head(scribe.state, with_settings=True)
    place = data.draw(st.integers(0, len(scribe.log) - 1))
    with pytest.raises(ValueError, match=f"expected event {scribe.state.seq + 1}"):
        apply(scribe.state, scribe.log[place])
    with pytest.raises(ValueError, match="expected"):
        apply(scribe.state, LoggedEvent(scribe.state.seq + 2, NOON, None, scribe.log[0].event))
    assert encode_head(scribe.state, with_settings=True) == before


def test_an_event_that_does_not_fit_leaves_the_state_where_it_was() -> None:
    state = initial_state(SessionId("session"), ANN, LoggedEvent(1, NOON, None, a_creation()))
    before = encode_head(state, with_settings=True)
    with pytest.raises(KeyError):
        apply(state, LoggedEvent(2, NOON, None, CallStarted(call_id=CallId("nobody's"))))
    assert encode_head(state, with_settings=True) == before


def test_a_session_begins_with_its_creation() -> None:
    with pytest.raises(ValueError, match="the first event of a session is its creation"):
        initial_state(
            SessionId("session"), ANN, LoggedEvent(1, NOON, None, RunStarted(run_id=RunId("run"), protocol="test"))
        )


def a_creation() -> SessionCreated:
    return SessionCreated(agent="agent", settings=SessionSettings(), protocol="test")


@pytest.mark.parametrize(("idle_s", "title"), [(60, "Hello!"), (0, "")])
def test_a_session_that_ends_with_its_answer_takes_no_title_from_its_message(idle_s: int, title: str) -> None:
    settings = SessionSettings(unlisted=True, lifetime=Lifetime(idle_s=idle_s, waiting_s=60))
    created = msgspec.structs.replace(a_creation(), settings=settings)
    state = initial_state(SessionId("session"), ANN, LoggedEvent(1, NOON, None, created))
    message = UserMessage(id=MessageId("m"), content="Hello!")
    apply(state, LoggedEvent(2, NOON, None, MessageAdded(message=message)))
    assert state.title() == title


def test_a_state_knows_when_it_was_made_and_last_changed() -> None:
    state = initial_state(SessionId("session"), ANN, LoggedEvent(1, NOON, None, a_creation()))
    later = NOON + timedelta(hours=1)
    apply(state, LoggedEvent(2, later, None, MessageOpened(message_id=MessageId("m"))))
    assert (state.created_at, state.updated_at, state.seq) == (NOON, later, 2)


# --- history ----------------------------------------------------------------------------------------------------------


@given(conversations, st.data())
def test_messages_can_be_put_together_in_parts(scribe: LogGenerator, data: st.DataObject) -> None:
    """A message is there at its end, and what came before an assembler began is left out."""
    place = data.draw(st.integers(0, len(scribe.log)))
    assembler = Assembler()
    fed = [(logged.seq, message) for logged in scribe.log if (message := assembler.feed(logged)) is not None]
    whole = [(seq, message) for seq, message in fed if not is_empty(message)]
    assert [message for _, message in whole] == messages_of(scribe.log, None)
    assert [message for _, message in whole if message.loop == ROOT] == messages_of(scribe.log)
    before = {each.event.message_id for each in scribe.log[:place] if isinstance(each.event, MessageOpened)}
    late = [message for seq, message in whole if seq > place and message.id not in before]
    assert messages_of(scribe.log[place:], None) == late


@given(conversations)
def test_every_result_in_a_history_has_its_call_before_it(scribe: LogGenerator) -> None:
    opened: set[CallId] = set()
    for logged in scribe.log:
        if logged.event.__struct_config__.tag == "call_opened":
            opened.add(logged.event.call.call_id)  # type: ignore[union-attr]  # the tag says which of the union it is
        if isinstance(logged.event, CallSettled):
            assert logged.event.result.call_id in opened
            opened.remove(logged.event.result.call_id)
    assert opened == set(scribe.state.calls), "what has no result is open"


def test_two_deletions_of_runs_that_know_nothing_of_each_other_are_both_kept() -> None:
    settings = SessionSettings()
    for runs in (["a"], ["b"], ["a", "b", "c"]):  # earlier releases repeated those before
        settings = apply_change(settings, SettingsChange(deleted_runs=tuple(map(RunId, runs))))
    assert settings.deleted_runs == ("a", "b", "c")


def test_a_title_is_the_beginning_of_the_first_message_that_the_branch_shows() -> None:
    created = SessionCreated(agent="agent", protocol="aap", settings=SessionSettings())
    state = initial_state(SessionId("session"), ANN, LoggedEvent(1, NOON, None, created))

    def titles_after(*events: Event) -> list[str]:
        titles = []
        for event in events:
            apply(state, LoggedEvent(state.seq + 1, NOON, None, event))
            titles.append(state.title())
        return titles

    def said(text: str) -> MessageAdded:
        return MessageAdded(message=UserMessage(id=MessageId(text), content=text))

    assert titles_after(said("first"), said("second")) == ["first", "first"]
    assert titles_after(Branched(hidden_ranges=((3, 3),)), said("another second")) == ["first", "first"]
    assert titles_after(Branched(hidden_ranges=((2, 5),)), said("edited")) == ["", "edited"]
    assert titles_after(Branched(hidden_ranges=((3, 7),)), Branched(hidden_ranges=((2, 5),))) == ["first", "edited"]
