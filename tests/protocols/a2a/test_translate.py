"""Tasks as folds of random logs: what streams say adds up to the task, wherever a reader joins."""

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.core.stream import Cursor, Record, cursor_of, expand
from dragoman.core.turns import TurnRun, turns_of
from dragoman.protocols.a2a.streams import TaskFrames
from dragoman.protocols.a2a.translate import TaskFold
from dragoman.protocols.a2a.versions import Codec
from tests.core.log_generator import LogGenerator, conversations
from tests.requirements import requirement

Json = Any


def runs_of(scribe: LogGenerator) -> list[TurnRun]:
    return [run for turn in turns_of(scribe.log) for run in turn.runs]


def records_from(run: TurnRun, records: Iterable[Record]) -> list[Record]:
    return [each for each in records if cursor_of(each) > Cursor(run.first_seq - 1)]


def events_of(fold: TaskFold, records: Iterable[Record], *, seen: Cursor = Cursor(0)) -> list[Json]:  # noqa: B008  # immutable
    """The events of a stream that does not end before the task does."""
    frames = TaskFrames(fold, Codec(), seen=seen)
    sent = b"".join(map(frames.feed, records))
    lines = sent.decode().split("\n")
    ids = [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]
    data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    return list(zip(ids, data, strict=True))


def texts_after(events: list[Json], before: dict[str, str]) -> dict[str, str]:
    """The texts of artifacts as a client joins them, which had others before these events."""
    texts = dict(before)
    for update in (event["artifactUpdate"] for _, event in events if "artifactUpdate" in event):
        artifact = update["artifact"]
        had = texts.get(artifact["artifactId"], "") if update["append"] else ""
        texts[artifact["artifactId"]] = had + "".join(part.get("text", "") for part in artifact["parts"])
    return texts


def texts_in(fold: TaskFold) -> dict[str, str]:
    """The texts of the artifacts of a task, without the plan."""
    return {
        each.artifact_id: "".join(part.text for part in each.parts if isinstance(part.text, str))
        for each in fold.task().artifacts
        if each.name == "answer"
    }


@requirement("a2a:task:other-protocols", "a2a:ask:question")
@settings(max_examples=30)
@given(conversations)
def test_a_task_is_a_turn_and_waits_for_what_its_session_waits_for(scribe: LogGenerator) -> None:
    for run in runs_of(scribe):
        fold = TaskFold(run.run_id, scribe.state)
        for record in records_from(run, scribe.stream):
            fold.feed(record)
        assert fold.is_task == run.has_message
        is_newest = fold.last_run == scribe.state.last_run
        if fold.is_task and fold.phase == "asking" and is_newest:
            assert {each.call.call_id for each in fold.waiting()} == {
                each.call.call_id for each in scribe.state.waiting_calls()
            }


@requirement("a2a:stream:same-text", "a2a:stream:resume", "a2a:stream:subscribe")
@settings(max_examples=30)
@given(conversations, st.randoms(use_true_random=False))
def test_streams_joined_and_resumed_anywhere_add_up_to_the_task(scribe: LogGenerator, chance: Any) -> None:
    for run in (each for each in runs_of(scribe) if each.has_message):
        live = records_from(run, scribe.stream)
        fold = TaskFold(run.run_id, scribe.state)
        whole = events_of(fold, live)
        assert texts_after(whole, {}) == texts_in(fold)
        replayed = records_from(run, expand(scribe.log, scribe.open_pieces))
        assert events_of(TaskFold(run.run_id, scribe.state), replayed) == whole
        cut = chance.randrange(len(live))
        joined = TaskFold(run.run_id, scribe.state)
        for record in live[:cut]:
            joined.feed(record)
        shown = texts_in(joined)
        assert texts_after(events_of(joined, live[cut:]), shown) == texts_in(fold)
        seen = cursor_of(live[cut])
        resumed = events_of(TaskFold(run.run_id, scribe.state), live, seen=seen)
        assert resumed == whole[len(whole) - len(resumed) :]
