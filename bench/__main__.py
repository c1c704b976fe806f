"""`python -m bench [ROW …]`: run the rows, print the table, keep it as JSON. Run it from the checkout."""

import argparse
import gc
import os
import resource
import shutil
import sys
import time
import traceback
from pathlib import Path

import uvloop

from bench import machine, process, report
from bench.effort import FULL, QUICK, Effort
from bench.figures import Figure
from bench.rows import ROWS
from bench.stats import Spread
from bench.subjects import Workspace

ROOT = Path(__file__).parent.parent


def main() -> int:
    """The command. Ends with 1 when a figure missed its target or does not count."""
    arguments = _arguments()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("note: one core only; server and load generator share it, so lateness means little", file=sys.stderr)
    os.sched_setaffinity(0, {cores[-1]})
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # inherited by the servers
    place = Workspace(ROOT / "build" / f"bench-{os.getpid()}", cores[0], cores)
    effort = QUICK if arguments.quick else FULL
    figures: list[Figure] = []
    others: dict[str, float] = {}
    seconds: dict[str, float] = {}
    try:
        for name in arguments.rows or ROWS:
            print(f"{name} …", file=sys.stderr, flush=True)
            gc.collect()
            busy, used, begun = process.busy_s(), _own_cpu_s(), time.perf_counter()
            figures += _run(name, place, effort)
            seconds[name] = time.perf_counter() - begun
            foreign = process.busy_s() - busy - (_own_cpu_s() - used)
            others[name] = max(0.0, foreign / (seconds[name] * (os.cpu_count() or 1)))
    finally:
        shutil.rmtree(place.scratch, ignore_errors=True)
    result = report.Report(machine.facts(), "quick" if arguments.quick else "full", others, seconds, figures)
    print(report.head(result), report.table(result), sep="\n\n")
    report.write_json(result, arguments.json)
    if arguments.write_docs:
        report.write_docs(result, ROOT / "docs" / "performance.md")
    missed = report.failures(figures)
    print(f"\n{len(missed)} of {len(figures)} figures missed their target or do not count")
    return 1 if missed else 0


def _run(name: str, workspace: Workspace, effort: Effort) -> list[Figure]:
    """Run a row. One that breaks off leaves a line that says so, and the other rows their turn."""
    try:
        return uvloop.run(ROWS[name](workspace, effort))
    except Exception as error:  # noqa: BLE001  # the root of a row: whatever broke it, its figures do not count
        traceback.print_exception(error)
        void = f"broke off: {type(error).__name__}: {str(error)[:100]}".splitlines()[0]
        return [Figure(row=name, subject="dragoman", what="-", unit="-", value=Spread(0, 0, 0), void=void)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all when none is named")
    parser.add_argument("--quick", action="store_true", help="under a minute, for a look; the docs want a full run")
    parser.add_argument("--write-docs", action="store_true", help="put the figures into docs/performance.md")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench.json", help="where the figures are kept")
    arguments = parser.parse_args()
    if unknown := set(arguments.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    return arguments


def _own_cpu_s() -> float:
    """CPU time of this process and of the servers that it has ended, in seconds."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


sys.exit(main())
