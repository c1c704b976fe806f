"""What a branch shows: its calls have results, and its messages know those at the same place of other branches."""

from collections import Counter
from dataclasses import dataclass
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from dragoman.core import admission
from dragoman.core.admission import CANCELLED_BY_NEW_MESSAGE
from dragoman.core.branches import CancelledResults, alternatives_of, branches_of, shown_events
from dragoman.core.content import AssistantMessage, Call, Message, ToolMessage
from dragoman.core.events import Branched, CallOpened, CallSettled, LoggedEvent, RunStopped
from dragoman.core.history import Assembler, is_empty, messages_of
from dragoman.core.ids import CallId, MessageId
from tests.core.log_generator import LogGenerator, generated_log
from tests.core.strategies import NOON


@dataclass
class Entry:
    """A message of the user, which can be gone back to, or another entry."""

    first_seq: int
    rewind_seq: int | None = None


ASKED, NOTE, ANSWERED = Entry(3, 2), Entry(4), Entry(6)
LATER, LATER_ANSWER = Entry(9, 8), Entry(11)


def test_a_message_without_other_versions_has_no_alternatives() -> None:
    entries = [ASKED, NOTE, ANSWERED, LATER, LATER_ANSWER]
    assert alternatives_of(branches_of([], 12), entries) == []
    left_at_end = (13, Branched(hidden_ranges=((8, 13),)))
    assert alternatives_of(branches_of([left_at_end], 13), entries) == []


def test_versions_of_a_message_are_found_although_other_entries_came_with_them() -> None:
    mode_note, second, second_answer, third = Entry(15), Entry(16, 14), Entry(17), Entry(22, 21)
    marks = [(13, Branched(hidden_ranges=((8, 13),))), (20, Branched(hidden_ranges=((8, 20),)))]
    entries = [ASKED, NOTE, ANSWERED, LATER, LATER_ANSWER, mode_note, second, second_answer, third]
    assert alternatives_of(branches_of(marks, 30), entries) == [[LATER, second, third]]


def test_the_first_message_has_versions_too_and_those_below_another_version_are_not_among_them() -> None:
    again, below = Entry(15, 14), Entry(19, 18)
    entries = [ASKED, ANSWERED, LATER, again, below]
    marks = [(13, Branched(hidden_ranges=((2, 13),)))]
    assert alternatives_of(branches_of(marks, 20), entries) == [[ASKED, again]]


def test_a_branch_shows_a_call_that_was_open_where_it_begins_as_cancelled_and_an_internal_one_to_nobody() -> None:
    for internal in (False, True):
        opened = CallOpened(
            message_id=MessageId("m"), index=0, call=Call(CallId("c"), "look", {}), kind="inline", internal=internal
        )
        left = Branched(hidden_ranges=((2, 2),))
        log = [LoggedEvent(1, NOON, None, opened), LoggedEvent(2, NOON, None, left), LoggedEvent(3, NOON, None, left)]
        *_, settled, _ = shown_events(log, left.hidden_ranges)
        assert isinstance(settled.event, CallSettled)
        assert (settled.event.result.content, settled.event.internal) == (CANCELLED_BY_NEW_MESSAGE, internal)


def branch_anywhere(scribe: LogGenerator, chance: Random) -> None:
    """Leave the branch behind one of its runs, as `engine.sessions.branches` does, if the session is at rest."""
    state = scribe.state
    ends = [each.seq for each in scribe.log if isinstance(each.event, RunStopped) and state.is_visible(each.seq)]
    if not ends or admission.is_busy(state):
        return
    begin = chance.choice(ends) + 1
    scribe.append(admission.cancel_open_calls(state, admission.CANCELLED_BY_NEW_MESSAGE, scribe.new_id))
    if begin <= state.seq:
        hidden = [each for each in state.hidden_ranges if each[1] < begin]
        scribe.append([Branched(hidden_ranges=(*hidden, (begin, state.seq)))])


def messages_newest_first(scribe: LogGenerator) -> list[Message]:
    """The messages of the active branch, as the engine reads them."""
    assembler, cancelled = Assembler(), CancelledResults(scribe.state.hidden_ranges)
    stored = [(each.seq, message) for each in scribe.log if (message := assembler.feed(each)) is not None]
    found: list[Message] = []
    for seq, message in reversed(stored):
        if scribe.state.is_visible(seq):
            found += [*(result for _, result in cancelled.after(seq, message)), message]
    return found


@given(st.integers(0, 2**32), st.integers(20, 150))
def test_every_call_that_a_branch_shows_has_one_result_unless_it_still_waits(seed: int, steps: int) -> None:
    """Both ways of reading a branch give the same messages."""
    chance, scribe = Random(seed), generated_log(seed, steps)
    for _ in range(3):
        branch_anywhere(scribe, chance)
        for _ in range(30):
            scribe.step(chance)
    shown = messages_of(shown_events(scribe.log, scribe.state.hidden_ranges), loop=None)
    newest_first = messages_newest_first(scribe)
    assert {each.id: each for each in shown} == {each.id: each for each in newest_first if not is_empty(each)}
    calls = [call.call_id for each in shown if isinstance(each, AssistantMessage) for call in each.calls()]
    results: Counter[CallId] = Counter(each.call_id for each in shown if isinstance(each, ToolMessage))
    assert results == Counter(call_id for call_id in calls if call_id not in scribe.state.calls)
    assert results == Counter(each.call_id for each in newest_first if isinstance(each, ToolMessage))


class CountedEntry(Entry):
    """An entry that counts how often it is looked at."""

    looks = 0

    def __getattribute__(self, name: str) -> object:
        if name == "first_seq":
            CountedEntry.looks += 1
        return super().__getattribute__(name)


def test_what_a_message_of_many_versions_costs_grows_with_their_number_alone() -> None:
    versions, marks, hidden = 300, [], list[tuple[int, int]]()
    entries: list[CountedEntry] = [CountedEntry(2, 1), CountedEntry(3)]
    for _ in range(versions - 1):
        last = entries[-1].first_seq
        hidden = [*hidden, (entries[-2].first_seq, last)]
        marks.append((last + 1, Branched(hidden_ranges=tuple(hidden))))
        entries += [CountedEntry(last + 3, last + 2), CountedEntry(last + 4)]
    branches = branches_of(marks, entries[-1].first_seq)
    CountedEntry.looks = 0
    assert alternatives_of(branches, entries) == [entries[::2]]
    assert CountedEntry.looks <= 10 * len(entries)
