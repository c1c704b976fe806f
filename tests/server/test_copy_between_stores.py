"""Copying everything into another store, in both directions: nothing is lost, and differences are reported."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from dragoman.cli.database import DatabaseCommandError, copy_database
from dragoman.core.ids import KeyId, RunId, SessionId, uuid7
from dragoman.core.memories import Memory, MemoryTexts
from dragoman.core.profile import Profile
from dragoman.core.schedules import Fire, FireId, Schedule, ScheduleId
from dragoman.core.session import Head, decode_head, encode_head
from dragoman.ports.accounts import ApiKey, Share
from dragoman.ports.log import Append, SessionStore
from dragoman.ports.stores import Stores
from dragoman.server.copy_between_stores import CopyCounts, CopyError, copy
from dragoman.server.stores import open_stores_at
from tests.core.log_generator import generated_log
from tests.core.strategies import NOON
from tests.servers import COMMAND, AppServer, server_process
from tests.stores.contract import ANN, BOB, commits_of, idempotency_record

HOUR = timedelta(hours=1)
SESSIONS = 15
"""So many that one of them is interrupted inside a block."""


async def filled(stores: Stores, sessions: int = SESSIONS) -> CopyCounts:
    """Fill a store with everything: idle sessions, sessions with an interrupted run, and all other records."""
    epoch = await stores.log.claim_epoch()
    events = kept = 0
    for seed in range(sessions):
        session_id = numbered(seed)
        generated = generated_log(seed, 100)
        appends = [append for append, _, _ in commits_of(generated, Random(seed), epoch)]
        remaining = appends[: len(appends) - seed % 3 * 4]
        for index, append in enumerate(remaining):
            append.session_id = session_id
            append.head = _of(append, session_id)
            if index == 0:
                append.name = f"name\0{seed}" if seed % 2 else None
                append.idempotency_records = [
                    msgspec.structs.replace(idempotency_record(f"key-{seed}", run=1), session_id=session_id, lasts=True)
                ]
            if index == len(remaining) - 1:
                append.kept = {f"key {place:02}": bytes([seed]) * place for place in range(seed * 4)}
            assert await stores.log.commit([append]) == [True]
            events, kept = events + len(append.events), kept + len(append.kept)
    for name in "ba":
        await stores.keys.add(a_key(name))
    await stores.keys.touch([(KeyId("a"), NOON)])
    await stores.profiles.put(Profile(user=ANN, time_zone="Europe/Berlin"))
    for number in range(4):
        memory = Memory(user=BOB, texts=MemoryTexts(content=f"likes {number}", topic="ÄB"), created_at=NOON)
        await stores.memories.add(memory, 1 if number == 2 else None)
    await stores.memories.remove(BOB, (2, 4))
    await stores.memories.record_hits(RunId("r"), BOB, (1,), NOON)
    schedule = Schedule(
        schedule_id=ScheduleId("s"),
        user=ANN,
        title="t",
        prompt="p",
        cron="0 9 * * *",
        time_zone="UTC",
        created_at=NOON,
        updated_at=NOON,
    )
    for hour in range(3):
        fire = Fire(
            fire_id=FireId(f"f{hour}"),
            schedule_id=schedule.schedule_id,
            due_at=NOON + hour * HOUR,
            status="completed" if hour else "running",
            started_at=NOON,
        )
        await stores.schedules.claim_fire(schedule, fire)
    for digest in (b"x", b"y"):
        await stores.shares.add(
            Share(
                digest=digest, owner=ANN, session_id=SessionId(uuid7(1000, 0)), created_at=NOON, expires_at=NOON + HOUR
            )
        )
    await stores.blobs.put("a/b", b"\0content")
    await stores.blobs.put("a/c", b"")
    return CopyCounts(
        sessions=sessions, events=events, kept=kept, keys=2, profiles=1, memories=2, schedules=1, links=2, blobs=2
    )


def numbered(number: int) -> SessionId:
    return SessionId(uuid7(1000 + number, number))


def _of(append: Append, session_id: SessionId) -> Head | None:
    """The append's head, changed to another session id."""
    head = append.head
    if head is None:
        return None
    state = decode_head(head.state, head.settings or b"{}")
    state.session_id = session_id
    return msgspec.structs.replace(encode_head(state, with_settings=True), settings=head.settings)


def a_key(name: str) -> ApiKey:
    return ApiKey(
        key_id=KeyId(name),
        digest=name.encode() * 32,
        name=name,
        user=ANN,
        masked_key="sk-...",
        scopes=frozenset({"use"}),
        created_at=NOON,
        expires_at=NOON + HOUR,
    )


async def everything(stores: Stores) -> list[object]:
    """Everything that can be read from a store."""
    contents: list[object] = [await stores.keys.all(), await stores.profiles.all(), await stores.schedules.all()]
    contents += [await stores.schedules.fires(ScheduleId("s"), 0, 10), await stores.archive.shares()]
    contents += [await stores.archive.memories(0, 100), await stores.memories.candidates(BOB, ["ike"])]
    contents += [[(name, await stores.blobs.get(name)) for name in await stores.blobs.names()]]
    sessions = await stores.archive.sessions(None, 1000)
    contents += [sessions, await stores.log.page(ANN, None, 1000), await stores.log.recent(ANN, "", 0, 1000)]
    for session in sessions:
        snapshot = await stores.log.load(session.session_id)
        assert snapshot is not None
        contents += [await stores.log.kept(session.session_id, "", None, 1000)]
        contents += [
            snapshot.head,
            [*snapshot.events],
            [*snapshot.pieces],
            await stores.log.events(session.session_id, 0, 10_000),
        ]
        if session.name is not None:
            assert await stores.log.find_by_name(session.owner, session.name) == session.session_id
    contents += [sorted(await stores.log.unfinished_sessions())]
    return contents


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[tuple[Stores, CopyCounts]]:
    with closing(open_stores_at(str(tmp_path / "source"))) as stores:
        yield stores, await filled(stores)


def ignore_progress(step: str, count: int, total: int) -> None:
    """Report nothing."""


async def test_everything_is_copied_from_a_folder_to_a_database_and_back(
    source: tuple[Stores, CopyCounts], postgres_url: str, tmp_path: Path
) -> None:
    stores, counts = source
    expected = await everything(stores)
    reported: list[tuple[str, int, int]] = []
    with closing(open_stores_at(postgres_url)) as database, closing(open_stores_at(str(tmp_path / "back"))) as folder:
        assert await copy(stores, database, lambda *progress: reported.append(progress)) == counts
        assert await everything(database) == expected
        assert await copy(database, folder, ignore_progress) == counts
        assert await everything(folder) == expected
        for target in (database, folder):
            new = await target.memories.add(Memory(user=BOB, texts=MemoryTexts(content="new"), created_at=NOON))
            assert new is not None
            assert new.id == 4, "greater than the ids that were copied"
    assert len(await stores.log.unfinished_sessions()) > 2, "some runs were interrupted"
    assert reported == [
        ("sessions copied", SESSIONS, SESSIONS),
        ("blobs copied", 2, 2),
        ("sessions compared", SESSIONS, SESSIONS),
    ]


async def test_attachments_are_copied_into_a_bucket_and_back(
    source: tuple[Stores, CopyCounts], bucket: str, tmp_path: Path
) -> None:
    stores, counts = source
    expected = await everything(stores)
    with (
        closing(open_stores_at(str(tmp_path / "with bucket"), bucket)) as with_bucket,
        closing(open_stores_at(str(tmp_path / "back"))) as back,
    ):
        assert await copy(stores, with_bucket, ignore_progress) == counts
        assert await everything(with_bucket) == expected
        assert not (tmp_path / "with bucket" / "blobs").exists()
        assert await copy(with_bucket, back, ignore_progress) == counts
        assert await everything(back) == expected


class LossyLog:
    """A log that loses part of what is written."""

    def __init__(self, log: SessionStore, lost: str) -> None:
        self._log = log
        self._lost = lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def commit(self, batch: Sequence[Append]) -> Sequence[bool]:
        for append in batch:
            if self._lost == "pieces":
                append.pieces = []
            elif self._lost == "kept values":
                append.kept = dict(list(append.kept.items())[1:])
            elif self._lost == "names":
                append.name = None
            elif append.head is None:
                append.events, append.payloads = append.events[:-1], append.payloads[:-1]
        return await self._log.commit(batch)


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ("pieces", "differs: its snapshot"),
        ("kept values", "differs: its kept values"),
        ("names", "differs: its name"),
        ("events", r"differs: its folded state|the target refused"),
    ],
)
async def test_anything_lost_in_the_copy_is_reported(
    source: tuple[Stores, CopyCounts], postgres_url: str, lost: str, expected: str
) -> None:
    with closing(open_stores_at(postgres_url)) as database, pytest.raises(CopyError, match=expected):
        await copy(source[0], database._replace(log=LossyLog(database.log, lost)), ignore_progress)


async def test_a_target_that_is_not_empty_is_left_unchanged(
    source: tuple[Stores, CopyCounts], postgres_url: str
) -> None:
    with closing(open_stores_at(postgres_url)) as database:
        await database.keys.add(a_key("mine"))
        with pytest.raises(CopyError, match=r"the target is not empty \(1 keys\)"):
            await copy(source[0], database, ignore_progress)
        assert await database.keys.all() == [a_key("mine")]
        assert await database.archive.count() == 0


def test_a_missing_source_is_reported_and_not_created(tmp_path: Path, postgres_url: str) -> None:
    with pytest.raises(DatabaseCommandError, match="contains no data"):
        copy_database(str(tmp_path / "nowhere"), postgres_url, ignore_progress)
    assert not (tmp_path / "nowhere").exists()


async def test_a_folder_that_a_server_uses_is_not_copied(
    source: tuple[Stores, CopyCounts], tmp_path: Path, postgres_url: str
) -> None:
    with pytest.raises(DatabaseCommandError, match="another server uses the data folder"):
        await asyncio.to_thread(copy_database, str(tmp_path / "source"), postgres_url, ignore_progress)


async def test_a_server_on_the_copy_continues_where_the_other_stopped(tmp_path: Path, postgres_url: str) -> None:
    """Copies with the command line; the session and its key work on the copy."""
    folder = tmp_path / "data"
    async with server_process(folder) as server:
        client = AppServer(folder)
        client.connection, client.keys = server.connection, {"alice": server.key("alice")}  # type: ignore[assignment]  # has the same methods
        session = await client.aap_client("alice").create(options={"token": "secret"})
        await session.run("first")
        before = await session.history()
    command = [*COMMAND, "copy", "--from", str(folder), "--to", postgres_url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "sessions copied: 1 of 1\nsessions compared: 1 of 1\n")
    assert done.stdout.startswith("copied and compared: 1 sessions, ")
    async with server_process(folder, "--database", postgres_url) as moved:
        client.connection = moved.connection  # type: ignore[assignment]  # see above
        again = session.as_client(client.aap_client("alice"))
        assert await again.history() == before
        await again.run("second")
        assert len(await again.history()) > len(before)
