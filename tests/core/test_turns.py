"""The runs of a turn: one with a user's message, and those that only answer its calls."""

from collections.abc import Sequence

from hypothesis import given

from dragoman.core.content import UserMessage
from dragoman.core.events import Event, LoggedEvent, MessageAdded, RunQueued, RunStarted, RunStopped
from dragoman.core.ids import MessageId, RunId
from dragoman.core.turns import turn_with, turns_of
from tests.core.log_generator import LogGenerator, conversations
from tests.core.strategies import NOON


def log_of(*events: Event) -> list[LoggedEvent]:
    return [LoggedEvent(seq, NOON, None, event) for seq, event in enumerate(events, 1)]


def started(run: str, *inputs: UserMessage) -> RunStarted:
    return RunStarted(run_id=RunId(run), protocol="aap", inputs=inputs)


def stopped(run: str) -> RunStopped:
    return RunStopped(run_id=RunId(run), reason="tool_use")


def said(message: str) -> MessageAdded:
    return MessageAdded(message=UserMessage(id=MessageId(message), content="Hello!"))


def runs_of(log: Sequence[LoggedEvent]) -> list[list[str]]:
    return [[run.run_id for run in turn.runs] for turn in turns_of(log)]


def test_a_turn_is_a_run_with_a_message_and_the_runs_that_only_bring_answers() -> None:
    log = log_of(
        started("r1"), said("m1"), stopped("r1"),
        started("r2"), stopped("r2"),
        started("r3"), stopped("r3"),
        started("r4"), said("m2"),
    )  # fmt: skip
    turns = turns_of(log)
    assert [[(run.run_id, run.first_seq, run.last_seq) for run in turn.runs] for turn in turns] == [
        [("r1", 1, 3), ("r2", 4, 5), ("r3", 6, 7)],
        [("r4", 8, None)],
    ]
    first = turn_with(turns, RunId("r2"))
    assert first is turns[0]
    assert (first.first.run_id, first.newest.run_id) == ("r1", "r3")
    assert turn_with(turns, RunId("r5")) is None


def test_a_run_with_answers_and_a_message_begins_a_turn() -> None:
    message = UserMessage(id=MessageId("m2"), content="And?")
    log = log_of(started("r1"), said("m1"), stopped("r1"), started("r2", message), MessageAdded(message=message))
    assert runs_of(log) == [["r1"], ["r2"]]


def test_a_queued_run_begins_a_turn_when_it_starts() -> None:
    queued = RunQueued(run_id=RunId("r2"), protocol="blade")
    log = log_of(started("r1"), said("m1"), queued, stopped("r2"), stopped("r1"), started("r3"), said("m2"))
    assert runs_of(log) == [["r1"], ["r3"]], "r2 was cancelled in the queue"


def test_answers_to_the_calls_of_seeds_begin_a_turn() -> None:
    assert runs_of(log_of(said("seed"), started("r1"), stopped("r1"), started("r2"))) == [["r1", "r2"]]


@given(conversations)
def test_each_run_is_in_one_turn_and_the_turn_begins_with_a_message(scribe: LogGenerator) -> None:
    turns = turns_of(scribe.log)
    assert [run.run_id for turn in turns for run in turn.runs] == [
        logged.event.run_id for logged in scribe.log if isinstance(logged.event, RunStarted)
    ]
    for turn in turns[1:]:
        assert [run.has_message for run in turn.runs] == [True] + [False] * (len(turn.runs) - 1)
