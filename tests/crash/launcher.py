"""Starts the real server with something wrong about it: `python -m tests.crash.launcher [--…] serve …`.

The arguments behind ours are the server's own. Nothing here is needed to run it; everything here is around it.
"""

import argparse
import os
import sys
import threading
from pathlib import Path

from tests.crash import failpoints, sabotage, unsynced_disk


def main() -> None:
    """Parse our own arguments, put things in place, and be the server."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fail", type=failpoints.parse_fail_point, default=None)
    parser.add_argument("--platter", type=Path, default=None)
    parser.add_argument("--sabotage", choices=sabotage.SABOTAGES, default=None)
    ours, theirs = parser.parse_known_args()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if ours.platter is not None:
        unsynced_disk.copy_on_sync(ours.platter)
    if ours.fail is not None:
        failpoints.install(failpoints.FailPointCounter(ours.fail))
    if ours.sabotage is not None:
        sabotage.SABOTAGES[ours.sabotage]()
    from dragoman.cli.main import main as dragoman

    sys.argv = ["dragoman", *theirs]
    dragoman()


def _end_with_parent() -> None:
    """Never outlive the test: its end closes our standard input."""
    os.read(0, 1)
    os._exit(3)


if __name__ == "__main__":
    main()
