"""The admin socket: the same replies as without a server, and only for the server's user."""

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dragoman.buses.local import LocalBus
from dragoman.cli.keys import AdminRequestError, handle_in_folder
from dragoman.core.ids import UserId
from dragoman.core.profile import Profile
from dragoman.engine.services.audit import AuditLog
from dragoman.engine.services.keys import KeyRing
from dragoman.engine.services.profiles import ProfileService
from dragoman.server import admin_socket
from dragoman.server.admin_socket import (
    AdminSocket,
    CreateKey,
    ListKeys,
    Reply,
    Request,
    RevokeKey,
    ServerNotRunning,
    SetUser,
    send_request,
)
from dragoman.server.clock_and_ids import RandomIds, SystemClock
from dragoman.stores.sqlite.audit import SqliteAudit
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.keys import SqliteKeys
from dragoman.stores.sqlite.profiles import SqliteProfiles

ANN = CreateKey(name="laptop", user="ann", scopes=["use"])


@pytest.fixture(params=["short", "deep" * 30])
async def folder(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Path]:
    """A data folder with a server's socket; once with a path that is too long for a socket."""
    folder = tmp_path / request.param
    database = Database(folder)
    database.start()
    ring = KeyRing(SqliteKeys(database), LocalBus(), SystemClock(), RandomIds())
    await ring.start()
    profiles = ProfileService(SqliteProfiles(database), LocalBus())
    await profiles.start()
    server = AdminSocket(folder, ring, profiles, AuditLog(SqliteAudit(database), SystemClock(), RandomIds()))
    await server.start()
    yield folder
    await server.close()
    await ring.close()
    database.close()


async def send_admin_request(folder: Path, request: Request) -> Reply:
    return await asyncio.to_thread(send_request, folder, request)


async def test_a_key_can_be_created_listed_and_revoked(folder: Path) -> None:
    created = await send_admin_request(folder, ANN)
    assert created.secret is not None
    assert created.secret.startswith("sk-dragoman-")
    assert (created.keys[0].user, created.keys[0].scopes) == ("ann", ["use"])
    listed = await send_admin_request(folder, ListKeys())
    assert (listed.keys, listed.secret) == (created.keys, None)
    revoked = await send_admin_request(folder, RevokeKey(which="laptop"))
    assert revoked.keys == created.keys
    assert (await send_admin_request(folder, ListKeys())).keys == []


async def test_an_invalid_request_is_answered_with_a_message(folder: Path) -> None:
    assert (await send_admin_request(folder, RevokeKey(which="none"))).error == "there is no key 'none'"
    wrong = CreateKey(name="x", user="ann", scopes=["root"])
    assert (await send_admin_request(folder, wrong)).error == "expected scopes of read, use, admin, got root"
    past = CreateKey(name="x", user="ann", scopes=["use"], expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    assert (await send_admin_request(folder, past)).error == "a key must expire in the future"


async def test_only_the_servers_user_may_open_the_socket(folder: Path) -> None:
    mode = os.stat(folder / "admin.sock").st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def exchange(folder: Path, sent: bytes) -> bytes:
    with admin_socket.short_socket_path(folder) as path, socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(path)
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    "line", [b"x", b"{}", b'{"do":"keys.drop"}', b'{"do":"keys.list","more":1}', b"\xff", b"[" * 10_000, b'{"do":1}']
)
async def test_a_malformed_line_is_answered_and_the_next_one_is_served(folder: Path, line: bytes) -> None:
    reply = await asyncio.to_thread(exchange, folder, line + b'\n{"do":"keys.list"}\n')
    first, second = map(json.loads, reply.splitlines())
    assert "does not understand" in first["error"]
    assert second == {}


async def test_a_line_that_is_too_long_closes_the_connection(folder: Path) -> None:
    with suppress(ConnectionError):  # if the connection is closed while the line is still being sent
        assert await asyncio.to_thread(exchange, folder, b"x" * 1_000_000) == b""
    assert (await send_admin_request(folder, ListKeys())).keys == []


async def test_a_stale_socket_of_a_killed_server_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "admin.sock"))
    with pytest.raises(ServerNotRunning):
        await send_admin_request(tmp_path, ListKeys())
    database = Database(tmp_path)
    database.start()
    ring = KeyRing(SqliteKeys(database), LocalBus(), SystemClock(), RandomIds())
    audit = AuditLog(SqliteAudit(database), SystemClock(), RandomIds())
    server = AdminSocket(tmp_path, ring, ProfileService(SqliteProfiles(database), LocalBus()), audit)
    await server.start()
    assert await send_admin_request(tmp_path, ListKeys()) == Reply()
    await server.close()
    assert not await asyncio.to_thread((tmp_path / "admin.sock").exists)
    database.close()


# --- with and without a server ----------------------------------------------------------------------------------------


async def test_keys_are_managed_alike_with_and_without_a_server(folder: Path, tmp_path: Path) -> None:
    running = await asyncio.to_thread(handle_in_folder, folder, ANN)
    offline = await asyncio.to_thread(handle_in_folder, tmp_path / "rest", ANN)
    assert [key.name for key in running.keys] == [key.name for key in offline.keys] == ["laptop"]
    assert (await asyncio.to_thread(handle_in_folder, tmp_path / "rest", ListKeys())).keys == offline.keys
    assert (await asyncio.to_thread(handle_in_folder, folder, RevokeKey(which="laptop"))).keys == running.keys


async def test_a_profile_is_set_alike_with_and_without_a_server(folder: Path, tmp_path: Path) -> None:
    await asyncio.to_thread(handle_in_folder, tmp_path / "rest", ANN)
    for each in (folder, tmp_path / "rest"):
        both = SetUser(user="ann", time_zone="Europe/Berlin", locale="de")
        assert (await asyncio.to_thread(handle_in_folder, each, both)).profile == Profile(
            user=UserId("ann"), time_zone="Europe/Berlin", locale="de"
        )
        removed = SetUser(user="ann", time_zone=None)
        assert (await asyncio.to_thread(handle_in_folder, each, removed)).profile == Profile(
            user=UserId("ann"), locale="de"
        )
        wrong = SetUser(user="ann", time_zone="Mars/Olympus")
        assert "is not an IANA time zone" in str((await asyncio.to_thread(handle_in_folder, each, wrong)).error)


def test_a_missing_folder_is_reported_and_not_created(tmp_path: Path) -> None:
    with pytest.raises(AdminRequestError, match="contains no data"):
        handle_in_folder(tmp_path / "none", ListKeys())
    assert not (tmp_path / "none").exists()


def test_a_server_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    database = Database(tmp_path)
    try:
        with pytest.raises(AdminRequestError, match="another process uses the data folder"):
            handle_in_folder(tmp_path, ANN, timeout_s=0)
    finally:
        database.close()


def test_a_damaged_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "dragoman.db").write_bytes(b"no database at all" * 1000)
    with pytest.raises(AdminRequestError, match="cannot use the data folder"):
        handle_in_folder(tmp_path, ListKeys())
