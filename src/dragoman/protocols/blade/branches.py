"""The branches of a session's conversation: what each shows, and where it can be gone back to. Pure.

Nothing is taken out of the log. A branch is what stands outside some ranges of events; it begins where the session
left another one, and is that session's end as long as nobody leaves it. Source: specification, 5.4; rulings, 15.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dragoman.core.events import Branched
from dragoman.protocols.blade.projection.turns import TurnBuilder

Ranges = tuple[tuple[int, int], ...]


class Branch(NamedTuple):
    """A stretch of the log: its last event, and what is not shown there."""

    end: int
    hidden: Ranges

    def includes(self, seq: int) -> bool:
        """Whether an event belongs to the conversation as it was here."""
        return seq <= self.end and not any(first <= seq <= last for first, last in self.hidden)


def branches_of(marks: Sequence[tuple[int, Branched]], last: int) -> list[Branch]:
    """The branches in the order of their beginning; the last one is active.

    Args:
        marks: the events where the session left a branch.
        last: the log's last event.
    """
    found: list[Branch] = []
    hidden: Ranges = ()
    for seq, branched in marks:
        found.append(Branch(seq - 1, hidden))
        hidden = branched.hidden_ranges
    return [*found, Branch(last, hidden)]


def newest_branch_with(branches: Sequence[Branch], turn: TurnBuilder) -> Branch:
    """The newest branch that shows a turn."""
    return next(branch for branch in reversed(branches) if branch.includes(turn.first_seq))


def turns_in(branch: Branch, turns: Sequence[TurnBuilder]) -> list[TurnBuilder]:
    """The turns of a branch."""
    return [turn for turn in turns if branch.includes(turn.first_seq)]


def turns_until(turns: Sequence[TurnBuilder], checkpoint: TurnBuilder, *, include_turn: bool) -> list[TurnBuilder]:
    """A branch's turns up to a checkpoint, or with all that the user's turn led to."""
    place = turns.index(checkpoint)
    if not include_turn:
        cut = checkpoint.rewind_seq or checkpoint.first_seq
        return [turn for turn in turns[:place] if turn.first_seq < cut]
    end = next((later for later in range(place + 1, len(turns)) if turns[later].is_checkpoint), len(turns))
    return list(turns[:end])


def parents_of(branches: Sequence[Branch], turns: Sequence[TurnBuilder]) -> dict[str, str | None]:
    """For each turn, by its client's key, the entry before it on the branch where it was begun."""
    found: dict[str, str | None] = {}
    homes = iter(branches)
    home, parent = Branch(0, ()), None
    for place, turn in enumerate(turns):
        if turn.first_seq > home.end:
            home = next(each for each in homes if turn.first_seq <= each.end)
            before = turns_in(home, turns[:place])
            parent = before[-1].turn.id if before else None
        found[turn.turn.turn_id] = parent
        parent = turn.turn.id
    return found
