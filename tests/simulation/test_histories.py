"""Histories of concurrent clients are linearizable; the checker finds those that are not."""

import math
from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.extent import extent
from tests.simulation.histories import check_world
from tests.simulation.linearizability import Operation, check
from tests.simulation.recording_clients import EarlyClients
from tests.simulation.session_model import Accepted, Messages, Missing, Once, Repeated, Request, check_session

YES = Accepted()
SUBMIT = Request("submit", "a")
KEYED = Request("submit", "a", "k")
READ = Request("read")


def read(*messages: str) -> Messages:
    return Messages(messages, is_newest=True)


@pytest.mark.parametrize("seed", range(extent(1000, 2)))
def test_the_histories_of_a_world_are_linearizable(seed: int) -> None:
    checked = check_world(seed, operations=400, faults=3)
    assert checked.violations == []
    assert checked.operations >= 200


def test_messages_that_are_acknowledged_before_they_are_durable_are_found() -> None:
    assert check_world(PLANTED_SEED, operations=100, faults=3, clients=EarlyClients).violations != []


PLANTED_SEED = 38
"""A world in which a server dies at the right moment."""


@pytest.mark.parametrize(
    ("history", "is_linearizable"),
    [
        ([(SUBMIT, YES, 0, 3), (READ, read(), 1, 2)], True),
        ([(SUBMIT, YES, 0, 3), (READ, read("a"), 1, 2)], True),
        ([(SUBMIT, YES, 0, 1), (READ, read(), 2, 3)], False),
        ([(SUBMIT, YES, 0, 1), (Request("submit", "b"), YES, 2, 3), (READ, read("b", "a"), 4, 5)], False),
        ([(SUBMIT, None, 0, math.inf), (READ, read(), 1, 2), (READ, read("a"), 3, 4)], True),
        ([(SUBMIT, None, 0, math.inf), (READ, read("a"), 1, 2), (READ, read(), 3, 4)], False),
        ([(Request("delete"), YES, 0, 3), (SUBMIT, YES, 1, 4), (READ, Missing(), 5, 6)], True),
        ([(Request("delete"), YES, 0, 1), (SUBMIT, YES, 2, 3)], False),
        ([(READ, Missing(), 0, 1)], False),
        (
            [
                (Request("answer", calls=frozenset("c")), YES, 0, 1),
                (Request("answer", calls=frozenset("c")), YES, 0, 1),
            ],
            False,
        ),
        (
            [(Request("stop", calls=frozenset("c")), YES, 0, 1), (Request("answer", calls=frozenset("c")), YES, 2, 3)],
            False,
        ),
        ([(Request("submit", "a", "k"), YES, 0, 1), (Request("submit", "b", "k"), YES, 2, 3)], False),
        ([(Request("submit", "a", "k"), YES, 0, 1), (Request("submit", "b", "k"), Repeated("a"), 0, 1)], True),
        ([(Request("submit", "a", "k"), YES, 0, 1), (Request("submit", "b", "k"), Repeated("c"), 2, 3)], False),
        ([(KEYED, Once(), 0, 1), (KEYED, Once(), 2, 3), (READ, read("a"), 4, 5)], True),
        ([(KEYED, Once(), 0, 1), (KEYED, Once(), 2, 3), (READ, read("a", "a"), 4, 5)], False),
        ([(KEYED, None, 0, math.inf), (KEYED, Once(), 2, 3), (READ, read(), 4, 5)], False),
    ],
)
def test_what_a_session_may_do_and_what_not(
    history: list[tuple[Request, Hashable, int, float]], is_linearizable: bool
) -> None:
    assert check_session([Operation(*each) for each in history]).is_linearizable is is_linearizable


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 6), st.integers(0, 4)), max_size=8), st.booleans())
def test_a_register_that_is_really_one_is_always_linearizable_and_never_if_a_read_invents_a_value(
    operations: list[tuple[int, int, int]], invents: bool
) -> None:
    """Operations take effect in their order, each at its number; invocation and response lie around it at random."""
    value, history = 0, []
    for place, (written, before, after) in enumerate(operations):
        if written != 3:
            value = written
        what = f"write {written}" if written != 3 else "read"
        history.append(Operation(what, value, 10 * place - before * 10, 10 * place + 1 + after * 10))
    if invents:
        history.append(Operation("read", 9, 0, 1000))

    def step(state: int, what: str, output: Hashable) -> int | None:
        if what == "read":
            return state if output == state else None
        return int(what.removeprefix("write "))

    assert check(history, 0, step).is_linearizable is not invents
