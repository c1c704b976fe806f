"""The database's file as this process has it open, even after it was deleted."""

import os
from pathlib import Path


class OpenFile:
    """A file that is watched for its deletion.

    The descriptor is for the path only: closing another one would release the locks of SQLite.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC) if hasattr(os, "O_PATH") else None

    def is_deleted(self) -> bool:
        """Whether the file is in no folder any more. What is written to it is lost when the process ends."""
        return self._descriptor is not None and os.fstat(self._descriptor).st_nlink == 0

    def rescue_command(self) -> str:
        """A shell command that copies the deleted file into a new data folder, while the process runs."""
        return f"mkdir -m 700 RESCUED && cp /proc/{os.getpid()}/fd/{self._descriptor} RESCUED/dragoman.db"

    def close(self) -> None:
        """Stop watching."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
