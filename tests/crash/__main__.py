"""`python -m tests.crash --kills 1000`: a long campaign, from the project's folder."""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.kinds import KINDS, run


def main() -> int:
    """Play, print the report; status 1 when a promise was broken. The folders of a broken run stay."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="deaths of servers, over all shards")
    parser.add_argument("--kind", choices=KINDS, default="random", help="how the servers die")
    parser.add_argument("--seed", type=int, default=1, help="of the first shard; the next ones count on")
    parser.add_argument("--shards", type=int, default=2, help="servers at the same time")
    parser.add_argument("--folder", type=Path, default=None, help="where to work; else a temporary folder")
    given = parser.parse_args()
    folder: Path = given.folder or Path(tempfile.mkdtemp(prefix="dragoman-crash-"))
    began = time.monotonic()
    report = asyncio.run(run(given.kind, folder, seed=given.seed, kills=given.kills, shards=given.shards))
    sys.stdout.write(f"{report}\n{time.monotonic() - began:.0f} s\n")
    if report.faults:
        sys.stdout.write(f"the folders are in {folder}\n")
        return 1
    if given.folder is None:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
