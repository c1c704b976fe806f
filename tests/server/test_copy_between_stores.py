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

from dragoman.cli.database import CannotMove, copied
from dragoman.core.ids import KeyId, RunId, SessionId, uuid7
from dragoman.core.memories import Memory, MemoryTexts
from dragoman.core.profile import Profile
from dragoman.core.schedules import Fire, FireId, Schedule, ScheduleId
from dragoman.core.session import Head, freeze, thaw
from dragoman.ports import Append, Key, Share
from dragoman.server.copy_between_stores import Copied, NotCopied, copy
from dragoman.server.stores import Log, Stores, open_place
from tests.core.log_generator import played
from tests.core.strategies import NOON
from tests.servers import COMMAND, House, program
from tests.stores.contract import ANN, BOB, commits_of, once

HOUR = timedelta(hours=1)
SESSIONS = 12


async def filled(stores: Stores) -> Copied:
    """Put something of everything into a store: sessions at rest, others that a server died over, and all the rest."""
    epoch = await stores.log.claim()
    events = 0
    for seed in range(SESSIONS):
        session_id = numbered(seed)
        scribe = played(seed, 100)
        appends = [append for append, _, _ in commits_of(scribe, Random(seed), epoch)]
        kept = appends[: len(appends) - seed % 3 * 4]
        for place, append in enumerate(kept):
            append.session_id = session_id
            append.head = _of(append, session_id)
            if place == 0:
                append.name = f"name\0{seed}" if seed % 2 else None
                append.once = [msgspec.structs.replace(once(f"key-{seed}", run=1), session_id=session_id, lasts=True)]
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
    await stores.memories.hit(RunId("r"), BOB, (1,), NOON)
    schedule = Schedule(
        schedule_id=ScheduleId("s"), user=ANN, title="t", prompt="p", cron="0 9 * * *", time_zone="UTC",
        created_at=NOON, updated_at=NOON,
    )  # fmt: skip
    for hour in range(3):
        fire = Fire(
            fire_id=FireId(f"f{hour}"), schedule_id=schedule.schedule_id, due_at=NOON + hour * HOUR,
            status="completed" if hour else "running", started_at=NOON,
        )  # fmt: skip
        await stores.schedules.claim(schedule, fire)
    for digest in (b"x", b"y"):
        await stores.shares.add(
            Share(
                digest=digest, owner=ANN, session_id=SessionId(uuid7(1000, 0)), created_at=NOON, expires_at=NOON + HOUR
            )
        )
    await stores.blobs.put("a/b", b"\0content")
    await stores.blobs.put("a/c", b"")
    return Copied(sessions=SESSIONS, events=events, keys=2, profiles=1, memories=2, schedules=1, links=2, blobs=2)


def numbered(number: int) -> SessionId:
    return SessionId(uuid7(1000 + number, number))


def _of(append: Append, session_id: SessionId) -> Head | None:
    """The append's head, for a session of another id."""
    head = append.head
    if head is None:
        return None
    state = thaw(head.state, head.settings or b"{}")
    state.session_id = session_id
    return msgspec.structs.replace(freeze(state, with_settings=True), settings=head.settings)


def a_key(name: str) -> Key:
    return Key(
        key_id=KeyId(name), digest=name.encode() * 32, name=name, user=ANN, masked="sk-...", scopes=frozenset({"use"}),
        created_at=NOON, expires_at=NOON + HOUR,
    )  # fmt: skip


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
            assert await stores.log.named(holding.owner, holding.name) == holding.session_id
    found += [sorted(await stores.log.unfinished())]
    return found


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[tuple[Stores, Copied]]:
    with closing(open_place(str(tmp_path / "source"))) as stores:
        yield stores, await filled(stores)


def unheard(what: str, count: int, total: int) -> None:
    """Nobody wants to know."""


async def test_everything_goes_from_a_folder_to_a_database_and_back(
    source: tuple[Stores, Copied], postgres_url: str, tmp_path: Path
) -> None:
    stores, counts = source
    wanted = await everything(stores)
    told: list[tuple[str, int, int]] = []
    with closing(open_place(postgres_url)) as database, closing(open_place(str(tmp_path / "back"))) as folder:
        assert await copy(stores, database, lambda *progress: told.append(progress)) == counts
        assert await everything(database) == wanted
        assert await copy(database, folder, unheard) == counts
        assert await everything(folder) == wanted
        for target in (database, folder):
            new = await target.memories.add(Memory(user=BOB, texts=MemoryTexts(content="new"), created_at=NOON))
            assert new is not None
            assert new.id == 4, "greater than those that were copied"
    assert len(await stores.log.unfinished()) > 2, "some were cut off"
    assert told == [
        ("sessions copied", SESSIONS, SESSIONS),
        ("blobs copied", 2, 2),
        ("sessions compared", SESSIONS, SESSIONS),
    ]


async def test_attachments_go_into_a_bucket_and_back(
    source: tuple[Stores, Copied], bucket: str, tmp_path: Path
) -> None:
    stores, counts = source
    wanted = await everything(stores)
    with (
        closing(open_place(str(tmp_path / "with bucket"), bucket)) as away,
        closing(open_place(str(tmp_path / "back"))) as back,
    ):
        assert await copy(stores, away, unheard) == counts
        assert await everything(away) == wanted
        assert not (tmp_path / "with bucket" / "blobs").exists()
        assert await copy(away, back, unheard) == counts
        assert await everything(back) == wanted


class Forgetful:
    """A log that loses something."""

    def __init__(self, log: Log, what: str) -> None:
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
    ("lost", "told"),
    [("pieces", "differs: its state"), ("names", "differs: its name"), ("events", "differs: its fold")],
)
async def test_what_is_lost_on_the_way_is_found(
    source: tuple[Stores, Copied], postgres_url: str, lost: str, told: str
) -> None:
    with closing(open_place(postgres_url)) as database, pytest.raises(NotCopied, match=told):
        await copy(source[0], database._replace(log=Forgetful(database.log, lost)), unheard)


async def test_a_place_that_holds_something_is_left_alone(source: tuple[Stores, Copied], postgres_url: str) -> None:
    with closing(open_place(postgres_url)) as database:
        await database.keys.add(a_key("mine"))
        with pytest.raises(NotCopied, match=r"there is something where the copy should go \(1 keys\)"):
            await copy(source[0], database, unheard)
        assert await database.keys.all() == [a_key("mine")]
        assert await database.archive.count() == 0


def test_a_source_that_is_not_there_is_told_and_not_made(tmp_path: Path, postgres_url: str) -> None:
    with pytest.raises(CannotMove, match="there is no data in"):
        copied(str(tmp_path / "nowhere"), postgres_url, unheard)
    assert not (tmp_path / "nowhere").exists()


async def test_a_folder_that_a_server_uses_is_not_copied(
    source: tuple[Stores, Copied], tmp_path: Path, postgres_url: str
) -> None:
    with pytest.raises(CannotMove, match="another server uses the data folder"):
        await asyncio.to_thread(copied, str(tmp_path / "source"), postgres_url, unheard)


async def test_a_server_goes_on_where_another_stopped_on_the_copy(tmp_path: Path, postgres_url: str) -> None:
    """The command line, a session of before, and its key: all are there on the new side."""
    folder = tmp_path / "data"
    async with program(folder) as server:
        house = House(folder)
        house.line, house._keys = server.line, {"alice": server.key("alice")}  # type: ignore[assignment]  # it is asked alike
        session = await house.face("alice").create(options={"token": "secret"})
        await session.run("first")
        before = await session.history()
    command = [*COMMAND, "copy", "--from", str(folder), "--to", postgres_url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "sessions copied: 1 of 1\nsessions compared: 1 of 1\n")
    assert done.stdout.startswith("copied and compared: 1 sessions, ")
    async with program(folder, "--database", postgres_url) as moved:
        house.line = moved.line  # type: ignore[assignment]  # as above
        again = session.seen_by(house.face("alice"))
        assert await again.history() == before
        await again.run("second")
        assert len(await again.history()) > len(before)
