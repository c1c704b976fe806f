"""Starts the real server with a fault: `python -m tests.crash.launcher [--…] serve …`.

The remaining arguments are the server's own. The server does not need anything of this module.
"""

import argparse
import os
import sys
import threading
from pathlib import Path

from tests.crash import failpoints, sabotage, unsynced_disk


def main() -> None:
    """Parse the launcher's arguments, install the faults, and run the server."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fail", type=failpoints.parse_fail_point, default=None)
    parser.add_argument("--synced-copies", type=Path, default=None)
    parser.add_argument("--sabotage", choices=sabotage.SABOTAGES, default=None)
    ours, theirs = parser.parse_known_args()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if ours.synced_copies is not None:
        unsynced_disk.copy_on_sync(ours.synced_copies)
    if ours.fail is not None:
        failpoints.install(failpoints.FailPointCounter(ours.fail))
    if ours.sabotage is not None:
        sabotage.SABOTAGES[ours.sabotage]()
    from dragoman.cli.main import main as dragoman

    sys.argv = ["dragoman", *theirs]
    dragoman()


def _end_with_parent() -> None:
    """End with the test, which closes the standard input when it ends."""
    os.read(0, 1)
    os._exit(3)


if __name__ == "__main__":
    main()
