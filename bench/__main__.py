"""`python -m bench [ROW …]`: run benchmarks, print the figures and write them as JSON. Run it from the checkout."""

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

from bench import guard, machine, process, report
from bench.effort import FULL, QUICK, Effort
from bench.figures import Figure
from bench.rows import ROWS
from bench.stats import Spread
from bench.subjects import Workspace

ROOT = Path(__file__).parent.parent


def main() -> int:
    """Run the command. Returns 1 if a figure misses its target or is invalid."""
    arguments = _arguments()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        print("note: server and load generator share the only core; lateness is not meaningful", file=sys.stderr)
    os.sched_setaffinity(0, {cores[-1]})
    _, max_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))  # inherited by the servers
    workspace = Workspace(ROOT / "build" / f"bench-{os.getpid()}", cores[0], cores)
    if arguments.guard:
        try:
            return guard.run(workspace)
        finally:
            shutil.rmtree(workspace.scratch, ignore_errors=True)
    effort = QUICK if arguments.quick else FULL
    figures: list[Figure] = []
    foreign_load: dict[str, float] = {}
    seconds: dict[str, float] = {}
    try:
        for name in arguments.rows or ROWS:
            print(f"{name} …", file=sys.stderr, flush=True)
            gc.collect()
            busy, used, started = process.busy_s(), _own_cpu_s(), time.perf_counter()
            figures += _run(name, workspace, effort)
            seconds[name] = time.perf_counter() - started
            foreign = process.busy_s() - busy - (_own_cpu_s() - used)
            foreign_load[name] = max(0.0, foreign / (seconds[name] * (os.cpu_count() or 1)))
    finally:
        shutil.rmtree(workspace.scratch, ignore_errors=True)
    result = report.Report(machine.facts(), "quick" if arguments.quick else "full", foreign_load, seconds, figures)
    print(report.head(result), report.table(result), sep="\n\n")
    report.write_json(result, arguments.json)
    if arguments.write_docs:
        report.write_docs(result, ROOT / "docs" / "performance.md")
    missed = report.failures(figures)
    print(f"\n{len(missed)} of {len(figures)} figures missed their target or are invalid")
    return 1 if missed else 0


def _run(name: str, workspace: Workspace, effort: Effort) -> list[Figure]:
    """Run a row. A row that fails leaves an invalid figure, and the other rows still run."""
    try:
        return uvloop.run(ROWS[name](workspace, effort))
    except Exception as error:  # noqa: BLE001  # the root of a row: any failure makes its figures invalid
        traceback.print_exception(error)
        invalid = f"failed: {type(error).__name__}: {str(error)[:100]}".splitlines()[0]
        return [Figure(row=name, subject="dragoman", metric="-", unit="-", value=Spread(0, 0, 0), invalid=invalid)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"one of {', '.join(ROWS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="take about a minute; not for the documentation")
    parser.add_argument("--guard", action="store_true", help="only compare the costs of streams with guard.json")
    parser.add_argument("--write-docs", action="store_true", help="write the figures into docs/performance.md")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench.json", help="output file of the figures")
    arguments = parser.parse_args()
    if unknown := set(arguments.rows) - set(ROWS):
        parser.error(f"unknown row: {', '.join(sorted(unknown))}")
    return arguments


def _own_cpu_s() -> float:
    """CPU time of this process and of the servers that it has stopped, in seconds."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


sys.exit(main())
