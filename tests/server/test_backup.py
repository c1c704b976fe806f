"""Backups: complete, of one moment, checked; a restore that fails changes nothing. Case 43."""

import asyncio
import hashlib
import os
import re
import sqlite3
import warnings
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from dragoman.cli.database import DatabaseCommandError, backup_database, restore_database
from dragoman.cli.main import commands
from dragoman.server.backup import write_backup
from dragoman.server.key_files import fingerprint_of
from dragoman.server.stores import open_stores_at
from dragoman.settings import Settings
from dragoman.stores.encryption import KEY_FILES
from tests.requirements import requirement
from tests.server.test_copy_between_stores import everything, filled, ignore_progress
from tests.servers import AppServer, running_server

SESSIONS = 4
KEYS = {name: (name.encode() * 4)[:32] for name in KEY_FILES}


async def fill(settings: Settings) -> list[object]:
    """Fill the stores with everything. Returns what can be read from them."""
    settings.folder.mkdir()
    for name, key in KEYS.items():
        (settings.folder / name).write_bytes(key)
    with closing(open_stores_at(settings.database or settings.data)) as stores:
        await filled(stores, SESSIONS)
        for name, key in KEYS.items():
            await stores.key_fingerprints.register(name, fingerprint_of(name, key))
        return await everything(stores)


async def contents(settings: Settings) -> list[object]:
    with closing(open_stores_at(settings.database or settings.data)) as stores:
        return await everything(stores)


@pytest.fixture
async def backup(tmp_path: Path) -> tuple[Path, list[object]]:
    """A backup of a data folder, and what was in it."""
    settings = Settings(data=str(tmp_path / "data"))
    content = await fill(settings)
    file = tmp_path / "file.backup"
    await write_backup(settings, file, ignore_progress)
    return file, content


@requirement("faults:43:backup")
@pytest.mark.parametrize("way", ["folder to database", "database to folder"])
async def test_everything_is_in_a_backup_whatever_the_database(tmp_path: Path, postgres_url: str, way: str) -> None:
    folder, database = Settings(data=str(tmp_path / "a")), Settings(data=str(tmp_path / "b"), database=postgres_url)
    source, target = (folder, database) if way == "folder to database" else (database, folder)
    expected = await fill(source)
    file = tmp_path / "file.backup"
    written = await asyncio.to_thread(backup_database, source, file, ignore_progress)
    assert file.stat().st_mode & 0o777 == 0o600, "it contains keys"
    assert sorted(os.listdir(tmp_path)) == [source.folder.name, "file.backup"], "nothing else"
    restored = await asyncio.to_thread(restore_database, target, file, ignore_progress)
    assert restored == written
    assert {name: (target.folder / name).read_bytes() for name in KEY_FILES} == KEYS
    assert await contents(target) == expected == await contents(source)


@requirement("faults:43:backup")
async def test_a_restored_server_continues_the_conversations_of_one_that_was_running(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server:
        session = await server.aap_client("alice").create(options={"token": "secret"})
        await session.run("first")
        before = await session.history()
        settings = server.settings
        file = tmp_path / "file.backup"
        backing_up = asyncio.create_task(asyncio.to_thread(backup_database, settings, file, ignore_progress))
        while not backing_up.done():
            await session.run("meanwhile")
        await backing_up
        await session.run("after the backup")
    if settings.database is not None:
        return  # every test server has a database of its own, which is not empty
    restored = AppServer(tmp_path / "restored")
    await asyncio.to_thread(restore_database, restored.settings, tmp_path / "file.backup", ignore_progress)
    restored.keys = server.keys
    await restored.start()
    try:
        again = session.as_client(restored.aap_client("alice"))
        history = await again.history()
        assert history[: len(before)] == before
        assert "after the backup" not in str(history)
        await again.run("second")
        assert "second" in str(await again.history())
    finally:
        await restored.stop()


def snapshot_of(folder: Path) -> dict[str, bytes]:
    """Its files, without the lock, which is empty and always left."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


async def assert_refused(settings: Settings, file: Path, reason: str) -> None:
    before = snapshot_of(settings.folder)
    with pytest.raises(DatabaseCommandError, match=reason):
        await asyncio.to_thread(restore_database, settings, file, ignore_progress)
    assert snapshot_of(settings.folder) == before


def with_manifest(file: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a backup with another manifest."""
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(target, "w") as copy:
        for name in source.namelist():
            content = source.read(name)
            if name == "manifest.json":
                manifest = msgspec.json.decode(content)
                change(manifest)
                content = msgspec.json.encode(manifest)
            copy.writestr(name, content)
    return target


async def test_a_missing_file_and_one_of_another_kind_are_no_backups(tmp_path: Path) -> None:
    new = Settings(data=str(tmp_path / "new"))
    await assert_refused(new, tmp_path / "nothing", "nothing does not exist")
    (tmp_path / "text").write_text("no backup")
    await assert_refused(new, tmp_path / "text", "is not a backup, or is damaged")
    assert not new.folder.exists()


@requirement("faults:43:backup-damaged")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format_version": 2, "release": "9.9"}, "was written by release '9.9': restore it with that release"),
        ({"sessions": 3}, "is damaged: 4 sessions with"),
        ({"digests": {"dragoman.db": "0"}}, "the content of dragoman.db was altered"),
    ],
    ids=["newer release", "fewer sessions", "altered database"],
)
async def test_a_backup_that_is_newer_or_does_not_fit_its_manifest_is_refused(
    backup: tuple[Path, list[object]], tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    new = Settings(data=str(tmp_path / "new"))
    changed = with_manifest(backup[0], tmp_path / "changed", lambda manifest: manifest.update(change))
    await assert_refused(new, changed, reason)
    assert not new.folder.exists()


async def test_a_folder_with_data_is_not_overwritten(backup: tuple[Path, list[object]], tmp_path: Path) -> None:
    used = Settings(data=str(tmp_path / "data"))
    await assert_refused(used, backup[0], r"data is not empty \(dragoman.db, blobs\): name a new one")


async def test_a_folder_with_another_key_is_not_overwritten(backup: tuple[Path, list[object]], tmp_path: Path) -> None:
    new = Settings(data=str(tmp_path / "new"))
    new.folder.mkdir()
    (new.folder / "secrets.key").write_bytes(b"another")
    await assert_refused(new, backup[0], r"secrets.key is another key than the backup's")


@requirement("faults:43:backup-damaged")
async def test_a_database_is_empty_again_after_a_damaged_last_blob(
    backup: tuple[Path, list[object]], tmp_path: Path, postgres_url: str
) -> None:
    file, _ = backup
    changed = with_manifest(file, tmp_path / "blob", lambda manifest: manifest["digests"].update({"blobs/a/c": "0"}))
    database = Settings(data=str(tmp_path / "empty"), database=postgres_url)
    await assert_refused(database, changed, "the content of blobs/a/c was altered")
    await asyncio.to_thread(restore_database, database, file, ignore_progress)


@requirement("faults:43:backup")
@pytest.mark.parametrize("content", [None, b"", bytes(32)], ids=["missing", "empty", "another"])
async def test_a_folder_without_the_key_of_its_data_is_not_backed_up(tmp_path: Path, content: bytes | None) -> None:
    settings = Settings(data=str(tmp_path / "data"))
    await fill(settings)
    key = settings.folder / "secrets.key"
    key.unlink() if content is None else key.write_bytes(content)
    with pytest.raises(DatabaseCommandError, match=r"secrets\.key is not the key .* dragoman keys rotate --lost"):
        await asyncio.to_thread(backup_database, settings, tmp_path / "file.backup", ignore_progress)
    assert os.listdir(tmp_path) == ["data"]


@requirement("faults:43:backup-damaged")
@pytest.mark.parametrize(
    ("name", "content", "compression", "reason"),
    [
        ("blobs/../../outside", b"x", zipfile.ZIP_STORED, "not a blob's name"),
        ("blobs//outside", b"x", zipfile.ZIP_STORED, "not a blob's name"),
        ("../outside", b"x", zipfile.ZIP_STORED, "is not a file of a backup"),
        ("blobs/a/large", b"x", zipfile.ZIP_DEFLATED, "is compressed"),
        ("blobs/a/large", b"x", zipfile.ZIP_LZMA, "is encrypted or in an unusual compression"),
        ("links.key", bytes(32), zipfile.ZIP_LZMA, "links.key is encrypted or in an unusual compression"),
        ("secrets.key", bytes(2 * 1024 * 1024), zipfile.ZIP_DEFLATED, "is larger than"),
        ("secrets.key", b"", zipfile.ZIP_DEFLATED, "secrets.key does not consist of keys of 32 bytes"),
        ("links.key", bytes(33), zipfile.ZIP_DEFLATED, "links.key does not consist of keys of 32 bytes"),
        ("dragoman.db", None, zipfile.ZIP_STORED, "dragoman.db' is not a file of a backup"),
    ],
)
async def test_a_forged_backup_is_refused_with_the_name_of_the_file_at_fault(
    backup: tuple[Path, list[object]],
    tmp_path: Path,
    name: str,
    content: bytes | None,
    compression: int,
    reason: str,
) -> None:
    """`None` stands for a file that the manifest does not mention."""

    def forge(manifest: dict[str, Any]) -> None:
        manifest["digests"].pop(name, None)
        if content is not None:
            manifest["digests"][name] = hashlib.sha256(content).hexdigest()

    forged = with_manifest(backup[0], tmp_path / "forged", forge)
    if content is not None:
        with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(forged, "a") as archive:  # a name comes twice
            archive.writestr(name, content, compression)
    new = Settings(data=str(tmp_path / "new"))
    await assert_refused(new, forged, reason)
    assert not new.folder.exists()


@requirement("faults:43:backup-damaged")
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("DROP TABLE keys", "the backup's database does not have this release's schema: table keys is missing"),
        ("DROP TRIGGER audit_is_append_only", "trigger audit_is_append_only as CREATE TRIGGER .* is missing"),
        (
            "CREATE TRIGGER evil AFTER INSERT ON events BEGIN DELETE FROM events; END",
            "trigger evil as .* is not part of it",
        ),
        ("ALTER TABLE keys RENAME COLUMN name TO title", "column keys.name is missing"),
        ("PRAGMA user_version = -5", "the database contains another program's tables"),
    ],
)
async def test_a_backup_whose_database_has_another_schema_is_refused(
    backup: tuple[Path, list[object]], tmp_path: Path, change: str, reason: str
) -> None:
    changed = tmp_path / "changed.db"
    with zipfile.ZipFile(backup[0]) as archive:
        changed.write_bytes(archive.read("dragoman.db"))
    with closing(sqlite3.connect(changed)) as connection:
        connection.execute(change)
        connection.commit()
    digest = hashlib.sha256(changed.read_bytes()).hexdigest()
    forged = with_manifest(
        backup[0], tmp_path / "f", lambda manifest: manifest["digests"].update({"dragoman.db": digest})
    )
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(forged, "a") as archive:  # a name comes twice
        archive.write(changed, "dragoman.db")
    new = Settings(data=str(tmp_path / "new"))
    await assert_refused(new, forged, reason)
    assert not new.folder.exists()


@requirement("faults:43:backup-damaged")
async def test_a_backup_that_needs_more_space_than_there_is_is_refused(
    backup: tuple[Path, list[object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    await assert_refused(
        Settings(data=str(tmp_path / "new")), backup[0], r"needs \d+ bytes, and .* has 1000: free up space"
    )
    assert not (tmp_path / "new").exists()


@requirement("faults:43:backup-damaged")
async def test_whatever_bit_flips_in_a_backup_nothing_altered_is_restored(
    backup: tuple[Path, list[object]], tmp_path: Path
) -> None:
    file, expected = backup
    chance = Random(43)
    content = file.read_bytes()
    refused = 0
    for number in range(12):
        altered = bytearray(content)
        altered[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        (tmp_path / "altered").write_bytes(altered if number else content[:-100])
        target = Settings(data=str(tmp_path / f"target-{number}"))
        try:
            await asyncio.to_thread(restore_database, target, tmp_path / "altered", ignore_progress)
        except DatabaseCommandError:
            refused += 1
            assert not target.folder.exists()
        else:
            assert await contents(target) == expected, "the bit means nothing, such as a time of the archive"
    assert refused > 6


def test_the_commands_say_what_they_did_and_what_is_wrong(tmp_path: Path) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(commands, arguments, env={"DRAGOMAN_DATABASE": None})
        return result.exit_code, result.output.splitlines()[-1].removeprefix("dragoman: ")

    asyncio.run(fill(Settings(data=str(tmp_path / "data"))))
    file, data, new = str(tmp_path / "file"), str(tmp_path / "data"), str(tmp_path / "new")
    code, line = run("backup", file, "--data", data)
    assert (code, line.partition(":")[0]) == (0, f"backed up to {file}")
    content = line.partition(": ")[2]
    assert re.fullmatch(r"4 sessions with \d+ events, 2 attachments, secrets.key and links.key", content)
    assert run("backup", file, "--data", data) == (1, f"{file} exists already: name a new file")
    assert run("backup", f"{new}/file", "--data", data) == (1, f"the folder {new} does not exist")
    no_data = f"{new} contains no data: name a data folder with --data"
    assert run("backup", f"{file}-2", "--data", new) == (1, no_data)
    code, line = run("restore", file, "--data", new)
    assert (code, line.partition("UTC: ")[2]) == (0, content)
    assert run("check", "--data", new)[0] == 0
