"""What the terminal remembers for its user: which conversation was the last, by server and protocol."""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

FILE = "last-sessions.json"
MOST = 100
"""Places; the oldest are forgotten."""


class Remembered(msgspec.Struct, frozen=True):
    """A conversation."""

    session: str
    agent: str = ""


def state_folder(home: str, state: str) -> Path:
    """Where programs of this user keep such things: the XDG base directories.

    Args:
        home: the user's folder.
        state: `XDG_STATE_HOME`; empty when it is not set.
    """
    return (Path(state) if state.startswith("/") else Path(home) / ".local" / "state") / "dragoman"


def last(folder: Path, url: str, protocol: str) -> Remembered | None:
    """The last conversation there."""
    return _read(folder).get(f"{protocol} {url}")


def remember(folder: Path, url: str, protocol: str, session: Remembered) -> None:
    """Keep it. A folder that cannot be written is no reason to fail."""
    place = f"{protocol} {url}"
    known = {name: each for name, each in _read(folder).items() if name != place}
    known[place] = session
    newest = dict(list(known.items())[-MOST:])
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = folder / f"{FILE}.{os.getpid()}"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(msgspec.json.encode(newest))
        fresh.replace(folder / FILE)


def _read(folder: Path) -> dict[str, Remembered]:
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=dict[str, Remembered])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
