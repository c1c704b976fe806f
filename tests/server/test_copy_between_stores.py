"""Copying everything into another store, in both directions: nothing is left behind, and what differs is found."""

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
from dragoman.server.copy_between_stores import CopyCounts, CopyError, copy
from dragoman.server.stores import Stores, open_stores_at
from tests.core.log_generator import generated_log
from tests.core.strategies import NOON
from tests.servers import COMMAND, AppServer, server_process
from tests.stores.contract import ANN, BOB, commits_of, idempotency_record

HOUR = timedelta(hours=1)
SESSIONS = 12


async def filled(stores: Stores) -> CopyCounts:
    """Put something of everything into a store: sessions at rest, others that a server died over, and all the rest."""
    epoch = await stores.log.claim_epoch()
    events = 0
    for seed in range(SESSIONS):
        session_id = numbered(seed)
        scribe = generated_log(seed, 100)
        appends = [append for append, _, _ in commits_of(scribe, Random(seed), epoch)]
        kept = appends[: len(appends) - seed % 3 * 4]
        for place, append in enumerate(kept):
            append.session_id = session_id
            append.head = _of(append, session_id)
            if place == 0:
                append.name = f"name\0{seed}" if seed % 2 else None
                append.idempotency_records = [
                    msgspec.structs.replace(idempotency_record(f"key-{seed}", run=1), session_id=session_id, lasts=True)
                ]
            assert await stores.log.commit([append]) == [True]
            events += len(append.events)
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
    return CopyCounts(sessions=SESSIONS, events=events, keys=2, profiles=1, memories=2, schedules=1, links=2, blobs=2)


def numbered(number: int) -> SessionId:
    return SessionId(uuid7(1000 + number, number))


def _of(append: Append, session_id: SessionId) -> Head | None:
    """The append's head, for a session of another id."""
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
    """All that can be read of a store."""
    found: list[object] = [await stores.keys.all(), await stores.profiles.all(), await stores.schedules.all()]
    found += [await stores.schedules.fires(ScheduleId("s"), 0, 10), await stores.archive.shares()]
    found += [await stores.archive.memories(0, 100), await stores.memories.candidates(BOB, ["ike"])]
    found += [[(name, await stores.blobs.get(name)) for name in await stores.blobs.names()]]
    holdings = await stores.archive.sessions(None, 1000)
    found += [holdings, await stores.log.page(ANN, None, 1000), await stores.log.recent(ANN, "", 0, 1000)]
    for holding in holdings:
        snapshot = await stores.log.load(holding.session_id)
        assert snapshot is not None
        found += [
            snapshot.head,
            [*snapshot.events],
            [*snapshot.pieces],
            await stores.log.events(holding.session_id, 0, 10_000),
        ]
        if holding.name is not None:
            assert await stores.log.find_by_name(holding.owner, holding.name) == holding.session_id
    found += [sorted(await stores.log.unfinished_sessions())]
    return found


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[tuple[Stores, CopyCounts]]:
    with closing(open_stores_at(str(tmp_path / "source"))) as stores:
        yield stores, await filled(stores)


def ignore_progress(what: str, count: int, total: int) -> None:
    """Nobody wants to know."""


async def test_everything_goes_from_a_folder_to_a_database_and_back(
    source: tuple[Stores, CopyCounts], postgres_url: str, tmp_path: Path
) -> None:
    stores, counts = source
    wanted = await everything(stores)
    told: list[tuple[str, int, int]] = []
    with closing(open_stores_at(postgres_url)) as database, closing(open_stores_at(str(tmp_path / "back"))) as folder:
        assert await copy(stores, database, lambda *progress: told.append(progress)) == counts
        assert await everything(database) == wanted
        assert await copy(database, folder, ignore_progress) == counts
        assert await everything(folder) == wanted
        for target in (database, folder):
            new = await target.memories.add(Memory(user=BOB, texts=MemoryTexts(content="new"), created_at=NOON))
            assert new is not None
            assert new.id == 4, "greater than those that were copied"
    assert len(await stores.log.unfinished_sessions()) > 2, "some were cut off"
    assert told == [
        ("sessions copied", SESSIONS, SESSIONS),
        ("blobs copied", 2, 2),
        ("sessions compared", SESSIONS, SESSIONS),
    ]


async def test_attachments_go_into_a_bucket_and_back(
    source: tuple[Stores, CopyCounts], bucket: str, tmp_path: Path
) -> None:
    stores, counts = source
    wanted = await everything(stores)
    with (
        closing(open_stores_at(str(tmp_path / "with bucket"), bucket)) as away,
        closing(open_stores_at(str(tmp_path / "back"))) as back,
    ):
        assert await copy(stores, away, ignore_progress) == counts
        assert await everything(away) == wanted
        assert not (tmp_path / "with bucket" / "blobs").exists()
        assert await copy(away, back, ignore_progress) == counts
        assert await everything(back) == wanted


class LossyLog:
    """A log that loses something."""

    def __init__(self, log: SessionStore, what: str) -> None:
        self._log = log
        self._what = what

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def commit(self, batch: Sequence[Append]) -> Sequence[bool]:
        for append in batch:
            if self._what == "pieces":
                append.pieces = []
            elif self._what == "names":
                append.name = None
            elif append.head is None:
                append.events, append.payloads = append.events[:-1], append.payloads[:-1]
        return await self._log.commit(batch)


@pytest.mark.parametrize(
    ("lost", "expected"),
    [("pieces", "differs: its state"), ("names", "differs: its name"), ("events", "differs: its fold")],
)
async def test_what_is_lost_on_the_way_is_found(
    source: tuple[Stores, CopyCounts], postgres_url: str, lost: str, expected: str
) -> None:
    with closing(open_stores_at(postgres_url)) as database, pytest.raises(CopyError, match=expected):
        await copy(source[0], database._replace(log=LossyLog(database.log, lost)), ignore_progress)


async def test_a_place_that_holds_something_is_left_alone(source: tuple[Stores, CopyCounts], postgres_url: str) -> None:
    with closing(open_stores_at(postgres_url)) as database:
        await database.keys.add(a_key("mine"))
        with pytest.raises(CopyError, match=r"there is something where the copy should go \(1 keys\)"):
            await copy(source[0], database, ignore_progress)
        assert await database.keys.all() == [a_key("mine")]
        assert await database.archive.count() == 0


def test_a_source_that_is_not_there_is_reported_and_not_made(tmp_path: Path, postgres_url: str) -> None:
    with pytest.raises(DatabaseCommandError, match="contains no data"):
        copy_database(str(tmp_path / "nowhere"), postgres_url, ignore_progress)
    assert not (tmp_path / "nowhere").exists()


async def test_a_folder_that_a_server_uses_is_not_copied(
    source: tuple[Stores, CopyCounts], tmp_path: Path, postgres_url: str
) -> None:
    with pytest.raises(DatabaseCommandError, match="another server uses the data folder"):
        await asyncio.to_thread(copy_database, str(tmp_path / "source"), postgres_url, ignore_progress)


async def test_a_server_goes_on_where_another_stopped_on_the_copy(tmp_path: Path, postgres_url: str) -> None:
    """The command line, a session of before, and its key: all are there on the new side."""
    folder = tmp_path / "data"
    async with server_process(folder) as server:
        house = AppServer(folder)
        house.connection, house._keys = server.connection, {"alice": server.key("alice")}  # type: ignore[assignment]  # it is asked alike
        session = await house.aap_client("alice").create(options={"token": "secret"})
        await session.run("first")
        before = await session.history()
    command = [*COMMAND, "copy", "--from", str(folder), "--to", postgres_url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "sessions copied: 1 of 1\nsessions compared: 1 of 1\n")
    assert done.stdout.startswith("copied and compared: 1 sessions, ")
    async with server_process(folder, "--database", postgres_url) as moved:
        house.connection = moved.connection  # type: ignore[assignment]  # as above
        again = session.as_client(house.aap_client("alice"))
        assert await again.history() == before
        await again.run("second")
        assert len(await again.history()) > len(before)
