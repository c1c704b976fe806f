"""What the terminal remembers for its user: which conversation was the last, by server and protocol."""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

FILE_NAME = "last-sessions.json"
MAX_ENTRIES = 100
"""Places; the oldest are forgotten."""


class SavedSession(msgspec.Struct, frozen=True):
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


def load_last_session(folder: Path, url: str, protocol: str) -> SavedSession | None:
    """The last conversation there."""
    return _load_all(folder).get(f"{protocol} {url}")


def save_last_session(folder: Path, url: str, protocol: str, session: SavedSession) -> None:
    """Keep it. A folder that cannot be written is no reason to fail."""
    place = f"{protocol} {url}"
    known = {name: each for name, each in _load_all(folder).items() if name != place}
    known[place] = session
    newest = dict(list(known.items())[-MAX_ENTRIES:])
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = folder / f"{FILE_NAME}.{os.getpid()}"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(msgspec.json.encode(newest))
        fresh.replace(folder / FILE_NAME)


def _load_all(folder: Path) -> dict[str, SavedSession]:
    try:
        return msgspec.json.decode((folder / FILE_NAME).read_bytes(), type=dict[str, SavedSession])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
