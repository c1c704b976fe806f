"""A checker of linearizability in the manner of Porcupine: is there an order of operations that explains a history?

Each operation takes effect at one moment between its invocation and its response. One without a response takes effect
at some moment after its invocation, or never. The search tries the operations that may come next, and remembers which
sets of operations and states it has seen (Lowe, "Testing for linearizability").
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

StateT = TypeVar("StateT", bound=Hashable)
InputT = TypeVar("InputT")


class Operation(NamedTuple, Generic[InputT]):
    """An operation of a client. `output` is None if there was no response."""

    what: InputT
    output: Hashable
    invoked: int
    returned: float = math.inf


class Result(NamedTuple):
    """Whether a history is linearizable, and at most how many of its operations can be explained."""

    is_linearizable: bool
    explained: int
    states: int


Step = Callable[[StateT, InputT, Hashable], StateT | None]
"""Returns the state after an operation with this output; None if the operation cannot have it in this state."""


def check(history: Sequence[Operation[InputT]], initial: StateT, step: Step[StateT, InputT]) -> Result:
    """Search for an order of the operations that the model explains."""
    required = sum(1 << place for place, each in enumerate(history) if each.returned < math.inf)
    seen: set[tuple[int, StateT]] = {(0, initial)}
    stack = [(0, initial)]
    explained = 0
    while stack:
        done, state = stack.pop()
        if done & required == required:
            return Result(True, len(history), len(seen))
        explained = max(explained, (done & required).bit_count())
        open_places = [place for place in range(len(history)) if not done >> place & 1]
        first_return = min(history[place].returned for place in open_places)
        for place in reversed(open_places):
            what, output, invoked, _ = history[place]
            if invoked < first_return and (after := step(state, what, output)) is not None:
                reached = (done | 1 << place, after)
                if reached not in seen:
                    seen.add(reached)
                    stack.append(reached)
    return Result(False, explained, len(seen))
