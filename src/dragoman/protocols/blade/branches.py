"""The branches of a session's conversation, and the turns that each shows. Pure.

Nothing is removed from the log: a branch hides some ranges of events. It begins where the session left another branch,
and it stays active until the session leaves it. Source: specification, 5.4; shared rules, 15.
"""

from collections.abc import Sequence
from typing import NamedTuple

from dragoman.core.events import Branched
from dragoman.protocols.blade.projection.turns import TurnBuilder

Ranges = tuple[tuple[int, int], ...]


class Branch(NamedTuple):
    """The last event of a branch, and the ranges of events that it hides."""

    end: int
    hidden: Ranges

    def includes(self, seq: int) -> bool:
        """Tell whether the branch shows an event."""
        return seq <= self.end and not any(first <= seq <= last for first, last in self.hidden)


def branches_of(marks: Sequence[tuple[int, Branched]], last: int) -> list[Branch]:
    """Return the branches in the order of their beginning; the last one is active.

    Args:
        marks: the events at which the session left a branch.
        last: the log's last event.
    """
    branches: list[Branch] = []
    hidden: Ranges = ()
    for seq, branched in marks:
        branches.append(Branch(seq - 1, hidden))
        hidden = branched.hidden_ranges
    return [*branches, Branch(last, hidden)]


def newest_branch_with(branches: Sequence[Branch], turn: TurnBuilder) -> Branch:
    """Return the newest branch that shows a turn."""
    return next(branch for branch in reversed(branches) if branch.includes(turn.first_seq))


def turns_in(branch: Branch, turns: Sequence[TurnBuilder]) -> list[TurnBuilder]:
    """Return the turns of a branch."""
    return [turn for turn in turns if branch.includes(turn.first_seq)]


def turns_until(turns: Sequence[TurnBuilder], checkpoint: TurnBuilder, *, include_turn: bool) -> list[TurnBuilder]:
    """Return a branch's turns before a checkpoint; with `include_turn`, also that user turn and all that it led to."""
    place = turns.index(checkpoint)
    if not include_turn:
        cut = checkpoint.rewind_seq or checkpoint.first_seq
        return [turn for turn in turns[:place] if turn.first_seq < cut]
    end = next((later for later in range(place + 1, len(turns)) if turns[later].is_checkpoint), len(turns))
    return list(turns[:end])


def parents_of(branches: Sequence[Branch], turns: Sequence[TurnBuilder]) -> dict[str, str | None]:
    """Return, for each turn id, the entry before it on the branch where the turn began."""
    parents: dict[str, str | None] = {}
    remaining = iter(branches)
    branch, parent = Branch(0, ()), None
    for place, turn in enumerate(turns):
        if turn.first_seq > branch.end:
            branch = next(each for each in remaining if turn.first_seq <= each.end)
            before = turns_in(branch, turns[:place])
            parent = before[-1].turn.id if before else None
        parents[turn.turn.turn_id] = parent
        parent = turn.turn.id
    return parents
