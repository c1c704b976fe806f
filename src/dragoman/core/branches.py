"""The branches of a session's conversation, and the entries that each shows. Pure.

Nothing is removed from the log: a branch hides some ranges of events. It begins where the session left another branch,
and it stays active until the session leaves it. A call was open where the branch begins if its result is hidden: the
branch shows it as cancelled there. An entry is whatever a protocol shows of some of the events, such as a turn.
Source: shared rules, 15.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from dragoman.core.admission import CANCELLED_BY_NEW_MESSAGE, deepest_first
from dragoman.core.content import AssistantMessage, Call, Message, ToolMessage
from dragoman.core.events import Branched, CallOpened, CallSettled, LoggedEvent
from dragoman.core.ids import CallId, LoopId, MessageId
from dragoman.core.ranges import Ranges, contains, newest_outside, range_with


class BranchPoint(NamedTuple):
    """Where a new branch begins.

    Attributes:
        before_seq: the event before which it leaves another branch.
        hidden_before: the ranges that the other branch hides; None: it is the active one.
    """

    before_seq: int
    hidden_before: Ranges | None = None


class Entry(Protocol):
    """What a protocol shows of some events. The conversation can go back to before it if it has a `rewind_seq`."""

    first_seq: int
    rewind_seq: int | None


E = TypeVar("E", bound=Entry)


class Branch(NamedTuple):
    """The last event of a branch, and the ranges of events that it hides."""

    end: int
    hidden: Ranges

    def includes(self, seq: int) -> bool:
        """Whether the branch shows an event."""
        return seq <= self.end and not contains(self.hidden, seq)

    def entries(self, entries: Sequence[E]) -> list[E]:
        """Those that the branch shows."""
        return [each for each in entries if self.includes(each.first_seq)]


def branches_of(marks: Sequence[tuple[int, Branched]], last: int) -> list[Branch]:
    """The branches in the order of their beginning; the last one is active.

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


# --- calls whose results are hidden -----------------------------------------------------------------------------------


def shown_events(events: Sequence[LoggedEvent], hidden: Ranges) -> Sequence[LoggedEvent]:
    """The events that a branch shows, oldest first, with the results of the calls that were open where it begins."""
    if not hidden:
        return events
    shown: list[LoggedEvent] = []
    open_calls: dict[CallId, CallOpened] = {}
    begin = 0
    for logged in events:
        if (left := range_with(hidden, logged.seq)) is not None:
            begin = begin or left[0]
            continue
        if begin:
            for opened in deepest_first(open_calls.values(), open_calls):
                result = _cancelled_result(opened.call, opened.loop)
                settled = CallSettled(outcome="cancelled", result=result, internal=opened.internal)
                shown.append(LoggedEvent(begin, shown[-1].at, None, settled))
            open_calls, begin = {}, 0
        shown.append(logged)
        match logged.event:
            case CallOpened(call=call) as opened:
                open_calls[call.call_id] = opened
            case CallSettled(result=result):
                open_calls.pop(result.call_id, None)
    return shown


def _cancelled_result(call: Call, loop: LoopId) -> ToolMessage:
    return ToolMessage(
        id=MessageId(f"{call.call_id}-cancelled"),
        call_id=call.call_id,
        name=call.name,
        content=CANCELLED_BY_NEW_MESSAGE,
        loop=loop,
        is_error=True,
    )


class CancelledResults:
    """The same results, for readers of a branch's messages that begin with the newest."""

    def __init__(self, hidden: Ranges) -> None:
        self._hidden = hidden
        self._settled: set[CallId] = set()

    def after(self, seq: int, message: Message) -> list[tuple[int, ToolMessage]]:
        """The results that follow the next older message, which event `seq` completed, each with its place."""
        if isinstance(message, ToolMessage):
            self._settled.add(message.call_id)
        if not isinstance(message, AssistantMessage):
            return []
        begin = next((first for first, _ in self._hidden if first > seq), None)
        calls = [] if begin is None else [call for call in message.calls() if call.call_id not in self._settled]
        self._settled.difference_update(call.call_id for call in message.calls())
        return [(begin or 0, _cancelled_result(call, message.loop)) for call in reversed(calls)]


# --- entries ----------------------------------------------------------------------------------------------------------


def newest_branch_with(branches: Sequence[Branch], entry: Entry) -> Branch:
    """The newest branch that shows an entry."""
    return next(branch for branch in reversed(branches) if branch.includes(entry.first_seq))


def entries_until(entries: Sequence[E], checkpoint: E, *, include_turn: bool) -> list[E]:
    """A branch's entries before a checkpoint; with `include_turn`, also that entry and what followed from it."""
    place = entries.index(checkpoint)
    if not include_turn:
        cut = checkpoint.rewind_seq or checkpoint.first_seq
        return [each for each in entries[:place] if each.first_seq < cut]
    later = range(place + 1, len(entries))
    return list(entries[: next((each for each in later if entries[each].rewind_seq is not None), len(entries))])


def parents_of(branches: Sequence[Branch], entries: Sequence[E]) -> list[E | None]:
    """For each entry, the one before it on the branch where it began."""
    parents: list[E | None] = []
    remaining = iter(branches)
    seqs = [each.first_seq for each in entries]
    branch, parent = Branch(0, ()), None
    for index, entry in enumerate(entries):
        if entry.first_seq > branch.end:
            branch = next(each for each in remaining if entry.first_seq <= each.end)
            before = newest_outside(branch.hidden, seqs, index)
            parent = None if before < 0 else entries[before]
        parents.append(parent)
        parent = entry
    return parents


def alternatives_of(branches: Sequence[Branch], entries: Sequence[E]) -> list[list[E]]:
    """The groups of two or more entries that stand at the same place of different branches, oldest first.

    Such are the versions of an edited message, and a message that was sent again for another answer.
    """
    if len(branches) < 2:
        return []
    places = {id(entry): index for index, entry in enumerate(entries)}
    parents = parents_of(branches, entries)
    groups: dict[int | None, list[E]] = {}
    for entry, parent in zip(entries, parents, strict=True):
        if entry.rewind_seq is None:
            continue
        while parent is not None and parent.first_seq >= entry.rewind_seq:  # came with the entry, and leaves with it
            parent = parents[places[id(parent)]]
        groups.setdefault(None if parent is None else places[id(parent)], []).append(entry)
    return [group for group in groups.values() if len(group) > 1]
