"""The database's file, and the keys next to it, as this process has them open, even after they were deleted."""

import os
from contextlib import suppress
from pathlib import Path

from dragoman.stores.encryption import KEY_FILES


class OpenFile:
    """A database that is watched for its deletion.

    The descriptors are for the paths only: closing another one would release the locks of SQLite.
    """

    def __init__(self, path: Path) -> None:
        self._database = path
        self._descriptors: dict[str, int] = {}
        """By the names of the files. The keys are created after the database."""
        self._open(path)

    def is_deleted(self) -> bool:
        """Whether the file is in no folder any more. What is written to it is lost when the process ends."""
        for name in KEY_FILES:
            if name not in self._descriptors:
                self._open(self._database.with_name(name))
        descriptor = self._descriptors.get(self._database.name)
        return descriptor is not None and os.fstat(descriptor).st_nlink == 0

    def rescue_command(self) -> str:
        """A shell command that copies the deleted files into a new data folder, while the process runs."""
        copies = [f"cp /proc/{os.getpid()}/fd/{number} RESCUED/{name}" for name, number in self._descriptors.items()]
        return " && ".join(["mkdir -m 700 RESCUED", *copies])

    def close(self) -> None:
        """Stop watching."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def _open(self, path: Path) -> None:
        if hasattr(os, "O_PATH"):
            with suppress(FileNotFoundError):
                self._descriptors[path.name] = os.open(path, os.O_PATH | os.O_CLOEXEC)
