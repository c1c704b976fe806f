"""Saves the user's last conversation, by server and protocol."""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

FILE_NAME = "last-sessions.json"
MAX_ENTRIES = 100
"""Servers that are remembered; the oldest are dropped."""


class SavedSession(msgspec.Struct, frozen=True):
    """A saved conversation."""

    session: str
    agent: str = ""


def state_folder(home: str, state: str) -> Path:
    """The folder for the program's state, by the XDG base directory specification.

    Args:
        home: the user's home folder.
        state: the value of `XDG_STATE_HOME`; empty if it is not set.
    """
    return (Path(state) if state.startswith("/") else Path(home) / ".local" / "state") / "dragoman"


def load_last_session(folder: Path, url: str, protocol: str) -> SavedSession | None:
    """The last conversation with a server over a protocol."""
    return _load_all(folder).get(f"{protocol} {url}")


def save_last_session(folder: Path, url: str, protocol: str, session: SavedSession) -> None:
    """Save a conversation as the last one. Errors of the file system are ignored."""
    key = f"{protocol} {url}"
    saved = {name: each for name, each in _load_all(folder).items() if name != key}
    saved[key] = session
    newest = dict(list(saved.items())[-MAX_ENTRIES:])
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = folder / f"{FILE_NAME}.{os.getpid()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(newest))
        temporary.replace(folder / FILE_NAME)


def _load_all(folder: Path) -> dict[str, SavedSession]:
    try:
        return msgspec.json.decode((folder / FILE_NAME).read_bytes(), type=dict[str, SavedSession])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
