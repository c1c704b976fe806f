"""Histories of concurrent clients, checked for linearizability: `python -m tests.simulation.histories`.

python -m tests.simulation.histories                1,000 worlds with 400 operations and 3 faults each
python -m tests.simulation.histories --seed 1234    one of them, as it was
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from tests.simulation.recording_clients import EarlyClients, RecordingClients
from tests.simulation.session_model import check_session
from tests.simulation.world import play_with


class Checked(NamedTuple):
    """What was recorded in a world, and what cannot be explained of it."""

    operations: int
    unanswered: int
    states: int
    violations: Sequence[str]


def check_world(
    seed: int, *, operations: int, faults: int, clients: type[RecordingClients] = RecordingClients
) -> Checked:
    """Play a world from its seed, and check the history of each of its sessions."""
    recorded = play_with(clients, seed, operations=operations, faults=faults)
    histories = {session: list(history.values()) for session, history in recorded.histories.items()}
    found = {session: check_session(history) for session, history in histories.items()}
    everything = [each for history in histories.values() for each in history]
    return Checked(
        len(everything),
        sum(each.output is None for each in everything),
        sum(each.states for each in found.values()),
        [
            f"session {session}: at most {each.explained} of {len(histories[session])} operations can be explained"
            for session, each in found.items()
            if not each.is_linearizable
        ],
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.histories")
    parser.add_argument("--seeds", type=int, default=1000, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first one's seed")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--operations", type=int, default=400, help="what clients do in each")
    parser.add_argument("--faults", type=int, default=3, help="what goes wrong in each")
    parser.add_argument("--planted", action="store_true", help="acknowledge messages before they are durable")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    clients = EarlyClients if given.planted else RecordingClients
    play = partial(check_world, operations=given.operations, faults=given.faults, clients=clients)
    seeds = range(given.first, given.first + given.seeds) if given.seed is None else [given.seed]
    begun, all_checked = time.monotonic(), []
    with ProcessPoolExecutor(given.processes) as pool:
        for seed, checked in zip(seeds, pool.map(play, seeds, chunksize=5), strict=True):
            all_checked.append(checked)
            for violation in checked.violations:
                sys.stdout.write(f"seed {seed}: {violation}\n")
                sys.stdout.flush()
    counts = [each.operations for each in all_checked]
    sys.stdout.write(
        f"{len(counts)} histories of {min(counts)} to {max(counts)} operations, {sum(counts)} in all,"
        f" {sum(each.unanswered for each in all_checked)} without a response,"
        f" {sum(each.states for each in all_checked)} states searched:"
        f" {sum(bool(each.violations) for each in all_checked)} not linearizable, {time.monotonic() - begun:.0f} s\n"
    )
    return 1 if any(each.violations for each in all_checked) else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is a part of what is played again
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation.histories", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
