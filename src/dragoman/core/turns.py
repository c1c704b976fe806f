"""The turns of a session: which runs belong together. Pure.

A turn begins with a run that has a user's message. It includes the later runs that only have answers to its calls, over
any protocol. A run with both answers and a message begins a turn.
"""

from collections.abc import Iterable
from typing import NamedTuple

from dragoman.core.content import UserMessage
from dragoman.core.events import LoggedEvent, MessageAdded, RunStarted, RunStopped
from dragoman.core.ids import ROOT, RunId


class TurnRun(NamedTuple):
    """A run of a turn.

    Attributes:
        run_id: the run.
        first_seq: the event that started it.
        last_seq: the event that stopped it; None if it has not stopped yet.
        has_message: whether it has a user's message, so that the turn begins with it.
    """

    run_id: RunId
    first_seq: int
    last_seq: int | None = None
    has_message: bool = False


class Turn(NamedTuple):
    """Runs that belong together, oldest first. There is at least one."""

    runs: tuple[TurnRun, ...]

    @property
    def first(self) -> TurnRun:
        """The run that began the turn."""
        return self.runs[0]

    @property
    def newest(self) -> TurnRun:
        """The run with the last answers, or with the message if there were none."""
        return self.runs[-1]

    def includes(self, run_id: RunId) -> bool:
        """Whether a run is part of the turn."""
        return any(each.run_id == run_id for each in self.runs)


def turns_of(events: Iterable[LoggedEvent]) -> list[Turn]:
    """The turns of a log, oldest first.

    The events may begin anywhere in the log. A run that continues a turn whose beginning is missing begins one here; so
    does a run that answers calls of a session's seeds, which belong to no run.
    """
    runs: list[TurnRun] = []
    for logged in events:
        match logged.event:
            case RunStarted(run_id=run_id, inputs=inputs):
                runs.append(TurnRun(run_id, logged.seq, None, bool(inputs)))
            case MessageAdded(message=UserMessage(loop=loop)) if runs and runs[-1].last_seq is None and loop == ROOT:
                runs[-1] = runs[-1]._replace(has_message=True)
            case RunStopped(run_id=run_id) if runs and runs[-1].run_id == run_id:
                runs[-1] = runs[-1]._replace(last_seq=logged.seq)
    turns: list[list[TurnRun]] = []
    for run in runs:
        if turns and not run.has_message:
            turns[-1].append(run)
        else:
            turns.append([run])
    return [Turn(tuple(each)) for each in turns]


def turn_with(turns: Iterable[Turn], run_id: RunId) -> Turn | None:
    """The turn that a run is part of; None if it is not among these."""
    return next((each for each in turns if each.includes(run_id)), None)
