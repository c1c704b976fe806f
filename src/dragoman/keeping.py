"""Keys and profiles from the command line: on a data folder at rest, or through the server that runs on it."""

import asyncio
import sqlite3
import time
from pathlib import Path

from dragoman.admin import ListKeys, NobodyListens, Reply, Request, RevokeKey, SetUser, ask, handle
from dragoman.buses.local import LocalBus
from dragoman.core.refusals import StoreUnavailable
from dragoman.engine.keys import KeyRing
from dragoman.engine.profiles import ProfileBook
from dragoman.stores.sqlite.database import Database, FolderInUse, WrongVersion
from dragoman.stores.sqlite.keys import SqliteKeys
from dragoman.stores.sqlite.profiles import SqliteProfiles
from dragoman.system import RandomIds, SystemClock

PATIENCE_S = 10.0
"""How long a server may take between locking its folder and answering, or between the opposite."""
PAUSE_S = 0.05


class CannotKeep(Exception):
    """The folder's keys cannot be reached; the message says what to do."""


def keep(folder: Path, request: Request, *, patience_s: float = PATIENCE_S) -> Reply:
    """Do something with the keys or the profiles of a data folder, whether a server runs on it or not.

    Raises:
        CannotKeep: there is no such folder, or its server does not answer.
    """
    if isinstance(request, ListKeys | RevokeKey | SetUser) and not (folder / "dragoman.db").exists():
        raise CannotKeep(f"there is no data in {folder}: name the server's data folder with --data")
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return asyncio.run(_at_rest(folder, request))
        except FolderInUse:
            pass
        except (WrongVersion, StoreUnavailable, OSError, sqlite3.Error) as error:
            raise CannotKeep(f"cannot use the data folder {folder}: {error}") from error
        try:
            return ask(folder, request)
        except NobodyListens as error:
            if time.monotonic() > deadline:
                raise CannotKeep(
                    f"a process uses the data folder {folder}, but does not answer: wait for it, or stop it"
                ) from error
        time.sleep(PAUSE_S)


async def _at_rest(folder: Path, request: Request) -> Reply:
    database = Database(folder)
    try:
        database.start()
        ring = KeyRing(SqliteKeys(database), LocalBus(), SystemClock(), RandomIds())
        await ring.reload()
        profiles = ProfileBook(SqliteProfiles(database))
        await profiles.start()
        return await handle(request, ring, profiles)
    finally:
        database.close()
