"""Turns, patches and numbers as functions of the log: for any log that the core can write, however it is cut."""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.events import CompactionMade, LoggedEvent, RunStopped, SessionCreated, SessionSettings
from dragoman.core.ids import SessionId
from dragoman.core.stream import Record, expand
from dragoman.protocols.blade.projection.emitter import OutgoingEvent
from dragoman.protocols.blade.projection.projection import Projection
from tests.core.log_generator import LogGenerator, conversations
from tests.protocols.blade.patch_folding import Event, FoldedTurns, of_seed
from tests.requirements import requirement


def project(
    scribe: LogGenerator, records: Iterable[Record], *, keeps: bool = True
) -> tuple[Projection, list[OutgoingEvent]]:
    projection = Projection(SessionId(scribe.state.session_id), keeps_finished_turns=keeps)
    return projection, [event for record in records for event in projection.feed(record)]


def fold_events(events: Iterable[OutgoingEvent]) -> list[Event]:
    return [(event.name, msgspec.json.decode(event.payload)) for event in events]


@requirement("blade:patches:fold", "blade:patches:end-equals-messages")
@given(conversations)
def test_folding_the_patches_gives_every_turn_as_it_ends_and_as_the_messages_have_it(scribe: LogGenerator) -> None:
    projection, events = project(scribe, scribe.stream)
    folded = FoldedTurns()
    for event in fold_events(events):
        folded.feed(event)
    for builder in projection.turns.all:
        builder.join_text()
        turn = msgspec.json.decode(msgspec.json.encode(builder.turn))
        from_events = folded.turns[turn["turn_id"]]
        assert from_events["blocks"] == turn["blocks"]
        assert from_events["tool_calls"] == turn["tool_calls"]
        if builder.turn.turn_id not in projection.turns.open:
            assert of_seed(from_events) == of_seed(turn)


@requirement("blade:numbers:stream")
@given(conversations)
def test_live_and_replayed_events_are_the_same_with_the_same_numbers(scribe: LogGenerator) -> None:
    _, live = project(scribe, scribe.stream)
    _, again = project(scribe, expand(scribe.log, scribe.open_pieces), keeps=False)
    assert again == live
    assert [event.number for event in live] == list(range(1, len(live) + 1))


@requirement("blade:numbers:stream")
@given(conversations)
def test_what_is_only_counted_has_the_same_numbers(scribe: LogGenerator) -> None:
    projection = Projection(SessionId(scribe.state.session_id))
    projection.emitter.is_quiet = True
    assert [event for record in scribe.stream for event in projection.feed(record)] == []
    assert projection.emitter.number == len(project(scribe, scribe.stream)[1])


@requirement("blade:numbers:entries")
@given(conversations)
def test_entries_are_numbered_from_0_in_the_order_of_their_start(scribe: LogGenerator) -> None:
    projection, _ = project(scribe, scribe.stream)
    assert [each.turn.sequence for each in projection.turns.all] == list(range(len(projection.turns.all)))


@requirement("blade:catch-up:snapshot")
@given(conversations, st.data())
def test_who_comes_in_the_middle_of_a_chat_continues_from_a_snapshot_without_a_gap(
    scribe: LogGenerator, data: st.DataObject
) -> None:
    records = list(scribe.stream)
    place = data.draw(st.integers(0, len(records)))
    projection = Projection(SessionId(scribe.state.session_id), keeps_finished_turns=True)
    for record in records[:place]:
        projection.feed(record)
    folded = FoldedTurns()
    is_running = projection.emitter.running_chat is not None
    for each in projection.snapshot():
        folded.feed((each.name, msgspec.json.decode(each.payload)))
    rest = [event for record in records[place:] for event in projection.feed(record)]
    is_over = any(
        isinstance(record, LoggedEvent) and isinstance(record.event, RunStopped) for record in records[place:]
    )
    unknown: set[str] = set()
    for name, payload in fold_events(rest):
        if name != "turn:patch" or payload["turn_id"] in folded.turns:
            folded.feed((name, payload))
            unknown -= {payload["turn_id"]} if name == "turn:end" else set()
        else:
            unknown.add(payload["turn_id"])
    if is_running and is_over:
        assert not unknown, "whatever goes on is in the snapshot; a turn that was final already comes whole"


@requirement("blade:chats:one-end")
@given(conversations)
def test_every_chat_that_starts_ends_once_and_nothing_of_it_comes_later(scribe: LogGenerator) -> None:
    projection, events = project(scribe, scribe.stream)
    running: str | None = None
    for name, payload in fold_events(events):
        if name == "chat:start":
            assert running is None
            running = payload["chat_run_id"]
        elif name == "chat:end":
            assert payload["chat_run_id"] == running
            running = None
    assert (running is not None) == (projection.emitter.running_chat is not None)


@requirement("blade:compaction:turn")
@pytest.mark.parametrize(("tokens_after", "ratio"), [(25, 0.75), (100, 0.0), (120, 0.0)])
def test_the_saved_ratio_of_a_compaction_is_never_negative(tokens_after: int, ratio: float) -> None:
    """An agent may record a compaction of its own that saves nothing."""
    made = CompactionMade(summary="so far", up_to=0, archived_count=0, tokens_before=100, tokens_after=tokens_after)
    projection = Projection(SessionId("s"), keeps_finished_turns=True)
    at = datetime(2027, 3, 1, tzinfo=UTC)
    created = SessionCreated(agent="agent", settings=SessionSettings(), protocol="blade")
    projection.feed(LoggedEvent(1, at, None, created))
    projection.feed(LoggedEvent(2, at, None, made))
    (entry,) = projection.turns.all
    assert (entry.turn.kind, entry.turn.saved_ratio) == ("compaction", ratio)
