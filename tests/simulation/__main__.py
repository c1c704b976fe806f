"""Many worlds, each from its seed: `python -m tests.simulation`. One that fails is printed with what plays it again.

python -m tests.simulation                2,000 seeds, 200 operations and 3 faults each; odd ones with 3 servers
python -m tests.simulation --seed 1234    one of them, as it was
"""

import argparse
import gc
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation.world import Outcome, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2000, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first one's seed")
    parser.add_argument("--seed", type=int, help="only this one; what fails is raised")
    parser.add_argument("--operations", type=int, default=200, help="what clients do in each")
    parser.add_argument("--faults", type=int, default=3, help="what goes wrong in each")
    parser.add_argument("--places", type=int, help="servers at a time; else 1 for even seeds, 3 for odd ones")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    play = partial(simulate, operations=given.operations, faults=given.faults, places=given.places)
    if given.seed is not None:
        sys.stdout.write(f"{play(given.seed)}\n")
        return 0
    named = {name: getattr(given, name) for name in ("operations", "faults", "places")}
    shape = " ".join(f"--{name} {value}" for name, value in named.items() if value is not None)
    begun = time.monotonic()
    failed, faults, operations = 0, Counter[str](), 0
    seeds = range(given.first, given.first + given.seeds)
    with ProcessPoolExecutor(given.processes, initializer=_collect_rarely) as pool:
        for seed, outcome in zip(seeds, pool.map(partial(_format_failure, play), seeds, chunksize=10), strict=True):
            if isinstance(outcome, str):
                failed += 1
                again = f"python -m tests.simulation --seed {seed} {shape}"
                sys.stdout.write(f"seed {seed}: {outcome}\n    {again}\n")
                sys.stdout.flush()
            else:
                faults.update(outcome.faults)
                operations += outcome.operations
    sys.stdout.write(
        f"{len(seeds)} seeds, {operations} operations, {faults.total()} faults ({_format_counts(faults)}):"
        f" {failed} failed, {time.monotonic() - begun:.0f} s\n"
    )
    return 1 if failed else 0


def _collect_rarely() -> None:
    """Let the garbage of several worlds be collected at once, and never look at the modules."""
    gc.freeze()
    gc.set_threshold(50_000)


def _format_failure(play: "partial[Outcome]", seed: int) -> Outcome | str:
    try:
        return play(seed)
    except Exception as error:  # noqa: BLE001  # whatever it is: the seed is what counts
        return f"{type(error).__name__}: {error}".partition("\n")[0]


def _format_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is a part of what is played again
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
