"""`python -m tests.crash --kills 1000`: a long campaign. Run it from the project's folder."""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.kinds import KINDS, run


def main() -> int:
    """Run campaigns and print the report. The status is 1 if a promise was broken; the folders of a failed run are
    kept.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="deaths of servers in all shards")
    parser.add_argument("--kind", choices=KINDS, default="random", help="how the servers die")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first shard; shard n has seed + n")
    parser.add_argument("--shards", type=int, default=2, help="concurrent servers")
    parser.add_argument("--folder", type=Path, default=None, help="the folder to use; by default a temporary one")
    args = parser.parse_args()
    folder: Path = args.folder or Path(tempfile.mkdtemp(prefix="dragoman-crash-"))
    started_at = time.monotonic()
    report = asyncio.run(run(args.kind, folder, seed=args.seed, kills=args.kills, shards=args.shards))
    sys.stdout.write(f"{report}\n{time.monotonic() - started_at:.0f} s\n")
    if report.faults:
        sys.stdout.write(f"the folders are in {folder}\n")
        return 1
    if args.folder is None:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
