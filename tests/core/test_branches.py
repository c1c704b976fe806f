"""Messages that stand at the same place of different branches."""

from dataclasses import dataclass

from dragoman.core.branches import alternatives_of, branches_of
from dragoman.core.events import Branched


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
