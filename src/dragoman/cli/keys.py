"""Admin requests from the command line, about keys and profiles.

A request for a data folder goes to the server that runs on it, or directly to its database if none does. A request for
a PostgreSQL database always goes to the database; servers on it notice the change within seconds.
"""

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from dragoman.buses.local import LocalBus
from dragoman.core.key_digests import KeyHasher
from dragoman.core.refusals import Invalid, StoreUnavailable
from dragoman.core.token_budgets import TokenLimits
from dragoman.engine.services.audit import AuditLog
from dragoman.engine.services.keys import KeyRing, check_new_key
from dragoman.engine.services.profiles import ProfileService
from dragoman.ports.stores import Stores
from dragoman.server.admin_socket import (
    CreateKey,
    LimitKey,
    ListAudit,
    ListKeys,
    Reply,
    Request,
    RevokeKey,
    ServerNotRunning,
    SetUser,
    handle,
    send_request,
)
from dragoman.server.bundled_database import bundled_database_running
from dragoman.server.clock_and_ids import RandomIds, SystemClock
from dragoman.server.key_files import check_key_files, find_key_hasher, load_key_hasher
from dragoman.server.stores import database_adapter, folder_adapter
from dragoman.settings import Settings, UnusableData
from dragoman.stores.errors import StoreInUse, WrongVersion

SERVER_TIMEOUT_S = 10.0
"""How long a server may hold its folder's lock without answering, while it starts or stops."""
RETRY_DELAY_S = 0.05


class AdminRequestError(Exception):
    """The request could not be handled. The message says what to do."""


def handle_request(settings: Settings, request: Request) -> Reply:
    """Handle a request for the configured store, whether servers use it or not.

    Raises:
        AdminRequestError: the store cannot be used, or contains no data.
        SettingsError: there is no such kind of store.
    """
    try:
        if isinstance(request, CreateKey):
            _check_before_anything_is_created(request)
        with bundled_database_running(settings, creates=isinstance(request, CreateKey)) as located:
            if located.database is None:
                return handle_in_folder(located.folder, request)
            return handle_in_database(located.database, request, folder=located.folder)
    except Invalid as error:
        return Reply(error=str(error), is_invalid=True)
    except (UnusableData, StoreInUse, OSError) as error:
        raise AdminRequestError(str(error)) from error


def _check_before_anything_is_created(request: CreateKey) -> None:
    limits = TokenLimits(request.tokens_per_day, request.tokens_per_month)
    check_new_key(request.name, request.user, request.scopes, request.expires_at, limits, SystemClock().now())


def handle_in_folder(folder: Path, request: Request, *, timeout_s: float = SERVER_TIMEOUT_S) -> Reply:
    """Handle a request for a data folder, whether a server runs on it or not.

    Raises:
        AdminRequestError: the folder has no data, or its server does not answer.
    """
    if (
        isinstance(request, ListAudit | ListKeys | RevokeKey | LimitKey | SetUser)
        and not (folder / "dragoman.db").exists()
    ):
        raise AdminRequestError(f"{folder} contains no data: name the server's data folder with --data")
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return asyncio.run(_handle_offline(folder, request))
        except StoreInUse:
            pass
        except (WrongVersion, StoreUnavailable, OSError, sqlite3.Error) as error:
            raise AdminRequestError(f"cannot use the data folder {folder}: {error}") from error
        try:
            return send_request(folder, request)
        except ServerNotRunning as error:
            if time.monotonic() > deadline:
                raise AdminRequestError(
                    f"another process uses the data folder {folder} but does not answer: wait for it, or stop it"
                ) from error
        time.sleep(RETRY_DELAY_S)


def handle_in_database(url: str, request: Request, *, folder: Path | None = None) -> Reply:
    """Handle a request for a PostgreSQL database, whether servers run on it or not.

    Args:
        url: the database.
        request: the request.
        folder: a data folder, whose keys are used if they are those of the servers.

    Raises:
        AdminRequestError: the database cannot be used.
        SettingsError: there is no such kind of database.
    """
    try:
        return asyncio.run(_handle_in_database(url, request, folder))
    except (UnusableData, WrongVersion, StoreUnavailable) as error:
        raise AdminRequestError(str(error)) from error


async def _handle_offline(folder: Path, request: Request) -> Reply:
    with closing(folder_adapter().open_accounts(str(folder))) as stores:
        await check_key_files(folder, stores.key_fingerprints)
        return await _handle_with_stores(stores, request, load_key_hasher(folder))


async def _handle_in_database(url: str, request: Request, folder: Path | None) -> Reply:
    with closing(database_adapter(url).open_accounts(url)) as stores:
        hasher = KeyHasher() if folder is None else await find_key_hasher(folder, stores.key_fingerprints)
        return await _handle_with_stores(stores, request, hasher)


async def _handle_with_stores(stores: Stores, request: Request, hasher: KeyHasher) -> Reply:
    clock, ids = SystemClock(), RandomIds()
    audit = AuditLog(stores.audit, clock, ids)
    ring = KeyRing(stores.keys, LocalBus(), clock, ids, audit=audit, hasher=hasher)
    await ring.reload()
    profile_service = ProfileService(stores.profiles, LocalBus(), audit)
    await profile_service.start()
    return await handle(request, ring, profile_service, audit)
