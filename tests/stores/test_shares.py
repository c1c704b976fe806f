"""What every store of links promises, held against each that there is."""

import asyncio
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from dragoman.core.ids import UserId
from dragoman.ports.accounts import Share, ShareStore
from dragoman.ports.log import SessionStore
from dragoman.stores.postgres.log import PostgresLog
from dragoman.stores.postgres.shares import PostgresShares
from dragoman.stores.sqlite.log import SqliteLog
from dragoman.stores.sqlite.shares import SqliteShares
from tests.core.strategies import NOON
from tests.stores.contract import new_session_in, session_id
from tests.stores.simulated_shares import SimulatedShares

HOUR = timedelta(hours=1)


class Stored(NamedTuple):
    """A store of links, and the log of the sessions that they show."""

    shares: ShareStore
    log: SessionStore


@pytest.fixture(params=["sqlite", "postgres"])
def stored(request: pytest.FixtureRequest) -> Stored:
    if request.param == "sqlite":
        folder = request.getfixturevalue("sqlite_database")
        return Stored(SqliteShares(folder), SqliteLog(folder))
    server = request.getfixturevalue("postgres_database")
    return Stored(PostgresShares(server), PostgresLog(server))


@pytest.fixture(params=["sqlite", "postgres", "simulated"])
def store(request: pytest.FixtureRequest) -> ShareStore:
    if request.param == "simulated":
        return SimulatedShares()
    if request.param == "sqlite":
        return SqliteShares(request.getfixturevalue("sqlite_database"))
    return PostgresShares(request.getfixturevalue("postgres_database"))


def share(digest: bytes = b"d", **fields: Any) -> Share:
    given: dict[str, Any] = {
        "digest": digest,
        "owner": UserId("ann"),
        "session_id": session_id(1),
        "created_at": NOON,
    }
    return Share(**{**given, **fields})


async def test_a_link_reads_back_as_it_was_written(store: ShareStore) -> None:
    await store.add(share())
    await store.add(share(b"e", expires_at=NOON + HOUR))
    assert [await store.get(each) for each in (b"d", b"e", b"f")] == [
        share(), share(b"e", expires_at=NOON + HOUR), None
    ]  # fmt: skip


async def test_a_link_is_removed_by_its_own_session_alone(store: ShareStore) -> None:
    await store.add(share())
    assert not await store.remove(session_id(2), b"d")
    assert await store.get(b"d") == share()
    assert await store.remove(session_id(1), b"d")
    assert not await store.remove(session_id(1), b"d")
    assert await store.get(b"d") is None


async def test_the_links_of_a_session_are_listed_newest_first(store: ShareStore) -> None:
    links = [share(bytes([number]), created_at=NOON + number * HOUR) for number in range(3)]
    for each in (*links, share(b"other", session_id=session_id(2))):
        await store.add(each)
    assert list(await store.of_session(session_id(1), 9)) == links[::-1]
    assert list(await store.of_session(session_id(1), 2)) == links[:0:-1]
    assert list(await store.of_session(session_id(3), 9)) == []


async def test_no_more_links_of_a_session_than_the_limit_are_valid_however_many_are_added_at_once(
    store: ShareStore,
) -> None:
    await store.add(share(b"expired", expires_at=NOON + HOUR))
    await store.add(share(b"other", session_id=session_id(2)))
    added = await asyncio.gather(
        *(store.add(share(bytes([number]), created_at=NOON + HOUR), limit=3) for number in range(12))
    )
    assert sorted(added) == [False] * 9 + [True] * 3
    valid = [each for each in await store.of_session(session_id(1), 99) if each.expires_at is None]
    assert {each.digest for each in valid} == {bytes([number]) for number, stored in enumerate(added) if stored}


async def test_with_a_session_its_links_go(stored: Stored) -> None:
    store, log = stored
    for number in (1, 2):
        await new_session_in(log, number)
        await store.add(share(bytes([number]), session_id=session_id(number)))
    await log.delete(session_id(1))
    assert await store.get(b"\1") is None
    assert await store.get(b"\2") is not None


async def test_what_has_expired_is_tidied_away(stored: Stored) -> None:
    store = stored.shares
    await store.add(share(expires_at=NOON + HOUR))
    await store.add(share(b"e", created_at=NOON + HOUR))
    assert await store.get(b"d") is None
