"""`dragoman backup` and `dragoman restore`: a whole installation in one file.

The file is a ZIP archive: the manifest, the database as SQLite's (also if it comes from PostgreSQL), the keys of the
data folder, and all blobs. Everything in it was read again before it got its name.
"""

import hashlib
import os
import shutil
import sqlite3
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final, Literal

import msgspec

from dragoman.core.refusals import SessionUnreadable
from dragoman.ports.blobs import BlobStore
from dragoman.ports.stores import KeyFingerprints, Stores
from dragoman.server.check_store import check
from dragoman.server.copy_between_stores import Progress, copy
from dragoman.server.key_files import fingerprint_of
from dragoman.server.stores import open_blobs, open_for_restore, open_snapshot, open_stores_at
from dragoman.settings import Settings
from dragoman.stores import atomic_files
from dragoman.stores.encryption import KEY_BYTES, KEY_FILES
from dragoman.stores.folder_blobs import validate_blob_name
from dragoman.stores.sqlite.database import lock_folder
from dragoman.stores.sqlite.online_copy import copy_database

FORMAT: Final = "dragoman backup"
FORMAT_VERSION = 1
MANIFEST, DATABASE, BLOBS = "manifest.json", "dragoman.db", "blobs"
CHUNK_BYTES = 1024 * 1024
BLOBS_PER_REPORT = 500
MAX_MANIFEST_BYTES = 512 * 1024 * 1024
"""More than the digests of three million attachments."""
MAX_KEY_FILE_BYTES = 1024 * 1024
_IS_ENCRYPTED = 1
"""The flag of a ZIP entry."""


class BackupError(Exception):
    """The backup or the restore failed. The message says why and what to do."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup contains."""

    format: Literal["dragoman backup"] = FORMAT
    format_version: int = FORMAT_VERSION
    release: str
    """The release that wrote the backup."""
    schema: int
    """The schema version of the database in it."""
    created_at: datetime
    sessions: int
    events: int
    digests: dict[str, str]
    """The SHA-256 of each other file."""

    def __str__(self) -> str:
        blobs = sum(name.startswith(f"{BLOBS}/") for name in self.digests)
        keys = [name for name in KEY_FILES if name in self.digests]
        return (
            f"{self.sessions} sessions with {self.events} events, {blobs} attachments,"
            f" {' and '.join(keys) if keys else 'no keys'}"
        )


# --- backup -----------------------------------------------------------------------------------------------------------


async def write_backup(settings: Settings, file: Path, progress: Progress) -> Manifest:
    """Write everything that the configured stores contain into a new file. Servers may be running on them.

    Args:
        settings: where the stores and the keys are.
        file: the file to create. It contains keys: only its owner may read it.
        progress: called with the step, and how many of how many items are done.

    Raises:
        BackupError: the file exists, or something is damaged or missing.
        WrongVersion, SettingsError, StoreUnavailable: the stores cannot be read.
        OSError: the file cannot be written.
    """
    _require_new(file)
    with TemporaryDirectory(prefix=f".{file.name}.", dir=file.parent) as name:
        staging = Path(name)
        async with _staged(settings, staging, progress) as blobs:
            with closing(open_stores_at(str(staging))) as stores:
                await _check_keys(settings.folder, stores.key_fingerprints)
                report = await check(stores)
            if report.problems:
                raise _damaged(report.problems[0])
            with closing(sqlite3.connect(staging / DATABASE)) as connection:
                ((schema,),) = connection.execute("PRAGMA user_version")
            packed = staging / "backup.zip"
            digests = await _pack(packed, staging / DATABASE, settings.folder, blobs, progress)
            manifest = Manifest(
                release=version("dragoman"),
                schema=schema,
                created_at=datetime.now(UTC),
                sessions=report.sessions,
                events=report.events,
                digests=digests,
            )
            with zipfile.ZipFile(packed, "a") as archive:
                archive.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
        _require_new(file)
        _publish(packed, file)
    return manifest


def _require_new(file: Path) -> None:
    if file.exists():
        raise BackupError(f"{file} exists already: name a new file")
    if not file.absolute().parent.is_dir():
        raise BackupError(f"the folder {file.parent} does not exist")


def _publish(packed: Path, file: Path) -> None:
    """Give a complete file its name, durably."""
    with packed.open("rb") as written:
        os.fsync(written.fileno())
    packed.rename(file)


@asynccontextmanager
async def _staged(settings: Settings, staging: Path, progress: Progress) -> AsyncIterator[BlobStore]:
    """Copy the database of one moment into a folder. Yields the blobs, which are read after it."""
    if settings.database is None:
        copy_database(
            settings.folder, staging / DATABASE, lambda done, total: progress("database pages copied", done, total)
        )
        yield open_blobs(settings.folder, settings.blobs)
        return
    with closing(open_snapshot(settings.database, settings.blobs)) as source:
        with closing(open_stores_at(str(staging))) as target, _reporting_damage():
            await copy(_without_blobs(source), _without_blobs(target), progress)
        yield source.blobs


@contextmanager
def _reporting_damage() -> Iterator[None]:
    try:
        yield
    except SessionUnreadable as error:
        raise _damaged(f"session {error.session_id}: {error.reason}") from error


def _damaged(problem: str) -> BackupError:
    return BackupError(f"the database is damaged ({problem}): run dragoman check --repair, then back up again")


async def _check_keys(folder: Path, fingerprints: KeyFingerprints) -> None:
    """Check that the data folder has the keys with which the data was written."""
    for name in KEY_FILES:
        registered = await fingerprints.find(name)
        path = folder / name
        if registered is None:
            continue
        if not path.exists() or fingerprint_of(name, path.read_bytes()) != registered:
            raise BackupError(
                f"{path} is not the key with which the data was written (fingerprint {registered}): name the data"
                " folder of its server with --data, or copy the key from there. If it is lost: dragoman keys rotate"
                f" --lost {name}"
            )


async def _pack(packed: Path, database: Path, folder: Path, blobs: BlobStore, progress: Progress) -> dict[str, str]:
    digests: dict[str, str] = {}
    with (
        open(packed, "xb", opener=_private) as file,  # noqa: ASYNC230  # Path.open has no opener; nobody waits
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
    ):
        with database.open("rb") as content:
            digests[DATABASE] = _add(archive, DATABASE, content)
        for name in KEY_FILES:
            if (folder / name).exists():
                with (folder / name).open("rb") as content:
                    digests[name] = _add(archive, name, content)
        names = await blobs.names()
        for index, name in enumerate(names, 1):
            blob = await blobs.get(name)
            if blob is not None:  # else its session was deleted meanwhile
                archive.writestr(f"{BLOBS}/{name}", blob)
                digests[f"{BLOBS}/{name}"] = hashlib.sha256(blob).hexdigest()
            _report(progress, "attachments packed", index, len(names))
    return digests


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _add(archive: zipfile.ZipFile, name: str, content: BinaryIO) -> str:
    """Add a file, compressed. Returns its digest."""
    digest = hashlib.sha256()
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    with archive.open(info, "w", force_zip64=True) as target:
        while chunk := content.read(CHUNK_BYTES):
            digest.update(chunk)
            target.write(chunk)
    return digest.hexdigest()


# --- restore ----------------------------------------------------------------------------------------------------------


async def restore_backup(settings: Settings, file: Path, progress: Progress) -> Manifest:
    """Restore a backup into empty stores. If it fails, they are as they were before.

    Args:
        settings: where the stores and the keys are to be. No server may be running there.
        file: the backup.
        progress: as for `write_backup`.

    Raises:
        BackupError: the file is not a backup, is damaged or from a newer release, or the target is not empty.
        StoreInUse, WrongVersion, SettingsError, StoreUnavailable: the target cannot be used.
        OSError: the data folder cannot be written.
    """
    with _opened(file) as (archive, manifest), _locked(settings.folder):
        _require_space(archive, settings.folder)
        keys = _check_target(settings, archive, manifest)
        with TemporaryDirectory(prefix=".restore-", dir=settings.folder) as name:
            staging = Path(name)
            _extract(archive, DATABASE, manifest.digests[DATABASE], staging / DATABASE)
            with closing(open_stores_at(str(staging))) as stores:
                _check_schema(staging / DATABASE, folder=settings.folder)
                report = await check(stores)
                problems = report.problems
                if not problems and (report.sessions, report.events) != (manifest.sessions, manifest.events):
                    problems = [f"{report.sessions} sessions with {report.events} events, not those of its manifest"]
                if problems:
                    raise BackupError(f"the backup {file} is damaged: {problems[0]}")
            async with AsyncExitStack() as undo:
                if settings.database is None:
                    blobs = open_blobs(staging, settings.blobs)
                    await _restore_blobs(archive, manifest, blobs, settings, undo, progress)
                    _place_keys(settings.folder, keys, undo)
                    if (staging / BLOBS).exists():
                        (staging / BLOBS).rename(settings.folder / BLOBS)
                        undo.callback(shutil.rmtree, settings.folder / BLOBS)
                    (staging / DATABASE).rename(settings.folder / DATABASE)
                else:
                    target, commit = open_for_restore(settings.database, settings.blobs)
                    with closing(target), closing(open_stores_at(str(staging))) as source:
                        await copy(_without_blobs(source), _without_blobs(target), progress)
                        await _restore_blobs(archive, manifest, target.blobs, settings, undo, progress)
                        _place_keys(settings.folder, keys, undo)
                        await commit()
                undo.pop_all()
    return manifest


@contextmanager
def _opened(file: Path) -> Iterator[tuple[zipfile.ZipFile, Manifest]]:
    if not file.exists():
        raise BackupError(f"{file} does not exist")
    with _reading(str(file)):
        archive = zipfile.ZipFile(file)
    with archive:
        with _reading(str(file)):
            _check_compression(archive.getinfo(MANIFEST))
            if archive.getinfo(MANIFEST).file_size > MAX_MANIFEST_BYTES:
                raise ValueError(f"{MANIFEST} is larger than {MAX_MANIFEST_BYTES} bytes")
            content = archive.read(MANIFEST)
            envelope = msgspec.json.decode(content, type=_Envelope)
            if envelope.format == FORMAT and envelope.format_version != FORMAT_VERSION:
                raise BackupError(
                    f"{file} was written by release {envelope.release!r:.40}: restore it with that release"
                )
            manifest = msgspec.json.decode(content, type=Manifest)
            for name in (DATABASE, *manifest.digests):
                _check_entry(archive.getinfo(name), manifest)
        yield archive, manifest


def _check_entry(entry: zipfile.ZipInfo, manifest: Manifest) -> None:
    """Check that a file of the archive is one that a backup contains. Raises ValueError."""
    name = entry.filename
    is_blob = name.startswith(f"{BLOBS}/")
    if is_blob:
        validate_blob_name(name.removeprefix(f"{BLOBS}/"))
    if not (is_blob or name in (DATABASE, *KEY_FILES)) or name not in manifest.digests:
        raise ValueError(f"{name!r} is not a file of a backup")
    _check_compression(entry)
    if is_blob and entry.compress_type != zipfile.ZIP_STORED:  # it is read as a whole
        raise ValueError(f"{name} is compressed")
    if name in KEY_FILES and entry.file_size > MAX_KEY_FILE_BYTES:  # it is read as a whole
        raise ValueError(f"{name} is larger than {MAX_KEY_FILE_BYTES} bytes")
    if name in KEY_FILES and (not entry.file_size or entry.file_size % KEY_BYTES):
        raise ValueError(f"{name} does not consist of keys of {KEY_BYTES} bytes")


def _check_compression(entry: zipfile.ZipInfo) -> None:
    if entry.flag_bits & _IS_ENCRYPTED or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{entry.filename} is encrypted or in an unusual compression")


def _check_schema(database: Path, folder: Path) -> None:
    """Check that a migrated database has exactly the tables, columns, indexes and triggers of a new one.

    Others would be restored, too: a trigger that deletes what is stored, or a database without its table of keys.
    """
    with TemporaryDirectory(prefix=".restore-", dir=folder) as name, closing(open_stores_at(name)):
        expected = _schema(Path(name) / DATABASE)
    found = _schema(database)
    for what, problem in (
        (expected - found, "is missing"),
        (found - expected, "is not part of it"),
    ):
        if what:
            raise BackupError(f"the backup's database does not have this release's schema: {max(what)} {problem}")


def _schema(database: Path) -> set[str]:
    """The names of what is in a database's schema; triggers and views with their code."""
    with closing(sqlite3.connect(database)) as connection:
        names = {
            f"{kind} {name}" if kind in ("table", "index") else f"{kind} {name} as {code}"
            for kind, name, code in connection.execute("SELECT type, name, sql FROM sqlite_schema")
        }
        columns = connection.execute(
            "SELECT m.name, c.name FROM sqlite_schema m JOIN pragma_table_xinfo(m.name) c WHERE m.type = 'table'"
        )
        return names | {f"column {table}.{column}" for table, column in columns}


def _require_space(archive: zipfile.ZipFile, folder: Path) -> None:
    needed, free = sum(entry.file_size for entry in archive.infolist()), shutil.disk_usage(folder).free
    if needed > free:
        raise BackupError(
            f"the backup needs {needed} bytes, and {folder} has {free}: free up space, or name another folder"
        )


@contextmanager
def _reading(file: str | None) -> Iterator[None]:
    try:
        yield
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        KeyError,
        NotImplementedError,  # a version of the format that the library does not read
        OverflowError,  # an offset beyond what a file can have
        ValueError,
    ) as error:
        raise BackupError(f"{file} is not a backup, or is damaged: {error}") from error


class _Envelope(msgspec.Struct):
    """The part of the manifest that all versions share."""

    format: str
    format_version: int
    release: str


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the data folder, which is removed again if it is new and nothing was restored."""
    is_new = not folder.exists()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = lock_folder(folder)
    try:
        yield
    except BaseException:
        if is_new:
            shutil.rmtree(folder)
        raise
    finally:
        os.close(descriptor)


def _check_target(settings: Settings, archive: zipfile.ZipFile, manifest: Manifest) -> Mapping[str, bytes]:
    """Check that the data folder has nothing that would be replaced. Returns the keys to write."""
    folder = settings.folder
    if settings.database is None and (used := [name for name in (DATABASE, BLOBS) if (folder / name).exists()]):
        raise BackupError(f"the data folder {folder} is not empty ({', '.join(used)}): name a new one with --data")
    keys = {name: _read(archive, name, manifest.digests[name]) for name in KEY_FILES if name in manifest.digests}
    for name in KEY_FILES:
        if (folder / name).exists() and (folder / name).read_bytes() != keys.get(name):
            raise BackupError(f"{folder / name} is another key than the backup's: name a new data folder with --data")
    return {name: key for name, key in keys.items() if not (folder / name).exists()}


async def _restore_blobs(
    archive: zipfile.ZipFile,
    manifest: Manifest,
    blobs: BlobStore,
    settings: Settings,
    undo: AsyncExitStack,
    progress: Progress,
) -> None:
    if settings.blobs is not None and await blobs.names():
        raise BackupError("the bucket is not empty: name another one, or another prefix, with --blobs")
    names = [name for name in manifest.digests if name.startswith(f"{BLOBS}/")]
    for index, name in enumerate(names, 1):
        blob_name = name.removeprefix(f"{BLOBS}/")
        if settings.blobs is not None:
            undo.push_async_callback(blobs.delete, blob_name)
        await blobs.put(blob_name, _read(archive, name, manifest.digests[name]))
        _report(progress, "attachments restored", index, len(names))


def _place_keys(folder: Path, keys: Mapping[str, bytes], undo: AsyncExitStack) -> None:
    for name, content in keys.items():
        atomic_files.write(folder / name, content)
        undo.callback((folder / name).unlink)


def _extract(archive: zipfile.ZipFile, name: str, digest: str, target: Path) -> None:
    with open(target, "xb", opener=_private) as file:  # Path.open has no opener
        file.writelines(_chunks(archive, name, digest))
        file.flush()
        os.fsync(file.fileno())


def _read(archive: zipfile.ZipFile, name: str, digest: str) -> bytes:
    return b"".join(_chunks(archive, name, digest))


def _chunks(archive: zipfile.ZipFile, name: str, digest: str) -> Iterator[bytes]:
    found = hashlib.sha256()
    with _reading(archive.filename), archive.open(name) as content:
        while chunk := content.read(CHUNK_BYTES):
            found.update(chunk)
            yield chunk
        if found.hexdigest() != digest:
            raise zipfile.BadZipFile(f"the content of {name} was altered")


class _NoBlobs:
    """An empty store of blobs: they are packed and restored by themselves."""

    async def put(self, name: str, content: bytes) -> None:
        """Store nothing."""

    async def get(self, name: str) -> bytes | None:
        """Find nothing."""

    async def delete(self, name: str) -> None:
        """Remove nothing."""

    async def names(self, prefix: str | None = None) -> Sequence[str]:
        """List nothing."""
        return ()


def _without_blobs(stores: Stores) -> Stores:
    return stores._replace(blobs=_NoBlobs())


def _report(progress: Progress, step: str, done: int, total: int) -> None:
    if done % BLOBS_PER_REPORT == 0 or done == total:
        progress(step, done, total)
