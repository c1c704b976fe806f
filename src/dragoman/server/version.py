"""The version that `dragoman --version` prints, and that a server reports."""

import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]
"""The folder of the repository, if this is a checkout."""
GIT_TIMEOUT_S = 30


@cache
def full_version() -> str:
    """The version; in a checkout with the commit, such as `0.1.0+g1a2b3c4d`, and `.dirty` if files were changed."""
    return version_in(CHECKOUT)


def version_in(checkout: Path) -> str:
    """The version of what is installed from that folder."""
    release = version("dragoman")
    if not (checkout / ".git").exists():
        return release
    try:
        revision = _describe(checkout, f"v{release}")
    except (OSError, subprocess.SubprocessError):  # git is not installed, or may not read this folder
        return release
    since_release = revision.removeprefix(f"v{release}").strip("-.").replace("-", ".")
    if revision == since_release:  # the tag is not among the ancestors of the commit
        return f"{release}+g{revision}"
    return f"{release}+{since_release}" if since_release else release


def _describe(folder: Path, tag: str) -> str:
    """The commit; with the tag and the number of commits since, if the tag exists."""
    command = [
        "git",
        "-C",
        str(folder),
        "describe",
        "--tags",
        "--always",
        "--dirty=.dirty",
        "--abbrev=8",
        "--match",
        tag,
    ]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True)  # noqa: S603  # no input of others
    return finished.stdout.strip()
