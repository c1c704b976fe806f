"""Blobs as files in the data folder."""

import asyncio
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from dragoman.core.refusals import StoreUnavailable
from dragoman.stores import atomic_files

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")


class FolderBlobs:
    """`BlobStore` in a folder. Writes are atomic."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, name: str, content: bytes) -> None:
        """Store a value durably, replacing any previous one."""
        try:
            await asyncio.to_thread(_write, self._path(name), content)
        except OSError as error:
            raise StoreUnavailable("cannot write to the data folder now") from error

    async def get(self, name: str) -> bytes | None:
        """Return a value, or None if there is none of that name."""
        return await asyncio.to_thread(_read, self._path(name))

    async def delete(self, name: str) -> None:
        """Remove a value and all values whose names start with this one and a `/`."""
        if self._has(name):  # most sessions have none, and many end with their answer
            await asyncio.to_thread(_delete, self._path(name))

    async def names(self, prefix: str | None = None) -> Sequence[str]:
        """List all names in order, or only those that start with a prefix and a `/`."""
        return await asyncio.to_thread(
            _list_names, self._folder, self._folder if prefix is None else self._path(prefix)
        )

    def _has(self, name: str) -> bool:
        return os.path.exists(f"{self._folder}/{validate_blob_name(name)}")  # making a `Path` costs more than looking

    def _path(self, name: str) -> Path:
        return self._folder / validate_blob_name(name)


def validate_blob_name(name: str) -> str:
    """Check a blob's name. Raises ValueError if it is not valid."""
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"not a blob's name: {name!r}")
    return name


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_files.write(path, content)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _list_names(folder: Path, below: Path) -> list[str]:
    """Whether a file is complete: the temporary file of an interrupted write starts with a dot."""
    paths = (path.relative_to(folder) for path in below.rglob("*") if path.is_file())
    return sorted(name for path in paths if _NAME.fullmatch(name := path.as_posix()))


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
