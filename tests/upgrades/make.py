"""Make the data of a release: `python -m tests.upgrades.make v0.1.0`, once, when the release is tagged.

The release itself plays the conversations of `player.py`, from its tag. What it stores goes to `releases/`, and is
never made again: later commits must be able to use it as it is.
"""

import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
RELEASES = HERE / "releases"
CONTENT = ("data", "postgres.sql", "expected.json")


def make(tag: str) -> None:
    """Play with the release of a tag, and write its archive."""
    archive = RELEASES / f"{tag.removeprefix('v')}.tar.xz"
    if archive.exists():
        raise SystemExit(f"{archive} exists: the data of a release is made once")
    with TemporaryDirectory() as name:
        release, output = Path(name) / "release", Path(name) / "output"
        packed = subprocess.run(["git", "archive", tag], cwd=HERE.parents[1], check=True, capture_output=True)
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as source:
            source.extractall(release, filter="data")
        path = os.pathsep.join([str(release / "src"), str(release)])
        command = [sys.executable, str(HERE / "player.py"), str(output)]
        subprocess.run(command, cwd=release, env={**os.environ, "PYTHONPATH": path}, check=True)
        RELEASES.mkdir(exist_ok=True)
        with tarfile.open(archive, "x:xz") as target:
            for each in CONTENT:
                target.add(output / each, each, filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    make(sys.argv[1])
