"""A disk that keeps only what was synced: what a database would look like if the machine had died.

Runs inside the server's process. SQLite's file layer (its "VFS") calls this module after each `xSync`, and the file is
copied as it is then. The copies lack anything that SQLite wrote without syncing it. A copy is made before the sync
returns, so nothing that waited for the sync can have been acknowledged earlier.

Not covered: files other than the database's, directories, and disks that acknowledge a sync too early.
Source: sqlite.org/c3ref/vfs.html, sqlite.org/c3ref/io_methods.html.
"""

import ctypes
import os
import random
import re
import shutil
import sys
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_void_p
from pathlib import Path
from typing import Any, ClassVar

DATABASE_FILES = ("dragoman.db", "dragoman.db-wal")
SECTOR_BYTES = 4096

_Sync = CFUNCTYPE(c_int, c_void_p, c_int)


class _Methods(Structure):
    """`sqlite3_io_methods`, version 3."""

    _fields_: ClassVar = [
        ("version", c_int),
        *((name, c_void_p) for name in ("close", "read", "write", "truncate")),
        ("sync", _Sync),
        *((name, c_void_p) for name in ("file_size", "lock", "unlock", "check_lock", "file_control", "sector_size")),
        *((name, c_void_p) for name in ("characteristics", "shm_map", "shm_lock", "shm_barrier", "shm_unmap")),
        *((name, c_void_p) for name in ("fetch", "unfetch")),
    ]


class _File(Structure):
    """`sqlite3_file`."""

    _fields_: ClassVar = [("methods", POINTER(_Methods))]


_Open = CFUNCTYPE(
    c_int, c_void_p, c_void_p, POINTER(_File), c_int, c_void_p
)  # SQLite keeps this pointer, so the name must not be copied


class _Vfs(Structure):
    """The beginning of `sqlite3_vfs`."""

    _fields_: ClassVar = [
        ("version", c_int),
        ("file_bytes", c_int),
        ("longest_path", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("app_data", c_void_p),
        ("open", _Open),
    ]


class UnsyncedDiskUnavailable(Exception):
    """This Python's SQLite cannot be accessed from outside."""


_keep_alive: list[Any] = []  # objects that C holds pointers to must not be collected


def sqlite_library() -> ctypes.CDLL:
    """Load the SQLite that this process uses.

    Raises:
        UnsyncedDiskUnavailable: it is built into Python, or this is not Linux.
    """
    import _sqlite3

    if not sys.platform.startswith("linux"):
        raise UnsyncedDiskUnavailable("the shared library is looked up in /proc")
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    match = re.search(r"(/\S*libsqlite3\S*\.so\S*)", maps)
    if match is None:
        raise UnsyncedDiskUnavailable(f"{_sqlite3.__file__ or 'Python'} has an SQLite of its own")
    return ctypes.CDLL(match[1])


def copy_on_sync(target: Path) -> None:
    """Keep a copy of every database file of this process as it was after its last sync.

    Raises:
        UnsyncedDiskUnavailable: see `sqlite_library`.
    """

    def copying(path: Path, sync: Callable[[], int]) -> int:
        done = sync()
        if done == 0:
            _copy(path, target)
        return done

    on_sync(copying)


def on_sync(hook: Callable[[Path, Callable[[], int]], int]) -> None:
    """Call a hook instead of every sync of a database file, with the file and a function that syncs it.

    The hook returns SQLite's result code. Raises UnsyncedDiskUnavailable, see `sqlite_library`.
    """
    find = sqlite_library().sqlite3_vfs_find
    find.restype, find.argtypes = POINTER(_Vfs), [c_char_p]
    vfs = find(None).contents
    open_file = _Open(ctypes.cast(vfs.open, c_void_p).value or 0)
    names: dict[int, Path] = {}
    ours: dict[int, Any] = {}

    def with_ours(methods: Any) -> Any:
        """The file's methods with the sync replaced. Files of a kind share one set of methods."""
        address = ctypes.addressof(methods.contents)
        if address not in ours:
            copied = _Methods.from_buffer_copy(methods.contents)
            sync_file = _Sync(ctypes.cast(methods.contents.sync, c_void_p).value or 0)

            def sync(file: int, flags: int) -> int:
                if file not in names:
                    return int(sync_file(file, flags))
                return hook(names[file], lambda: int(sync_file(file, flags)))

            copied.sync = _Sync(sync)
            ours[address] = ctypes.pointer(copied)
            _keep_alive.append((copied, sync_file))
        return ours[address]

    def opened(vfs: int, name: int | None, file: Any, flags: int, out: int) -> int:
        done = int(open_file(vfs, name, file, flags, out))
        path = None if name is None else Path(os.fsdecode(ctypes.string_at(name)))
        if done == 0 and path is not None and path.name in DATABASE_FILES:
            names[ctypes.addressof(file.contents)] = path
            file.contents.methods = with_ours(file.contents.methods)
        return done

    vfs.open = _Open(opened)
    _keep_alive.append((vfs, open_file, ours))


def _copy(file: Path, to: Path) -> None:
    beside = to / f".{file.name}"
    shutil.copyfile(file, beside)
    beside.replace(to / file.name)  # atomically: the process may be killed here too


def discard_unsynced(folder: Path, synced_copies: Path, rng: random.Random) -> int:
    """Change a data folder at rest to what a power cut would have left.

    Each sector that was written and not synced is kept or discarded at random, as a real disk may do.

    Returns:
        The number of unsynced sectors.
    """
    doubtful = 0
    for name in DATABASE_FILES:
        synced, live = _bytes(synced_copies / name), _bytes(folder / name)
        mixed = bytearray(synced)
        for start in range(0, len(live), SECTOR_BYTES):
            written = live[start : start + SECTOR_BYTES]
            if written != synced[start : start + SECTOR_BYTES]:
                doubtful += 1
                if rng.random() < 0.5:
                    mixed.extend(bytes(max(0, start - len(mixed))))
                    mixed[start : start + len(written)] = written
        if synced or live:
            (folder / name).write_bytes(mixed)
    (folder / "dragoman.db-shm").unlink(missing_ok=True)  # in memory, not on disk
    return doubtful


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
