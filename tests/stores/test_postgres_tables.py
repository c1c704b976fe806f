"""Keys, profiles and blobs in PostgreSQL: what is written reads back, and nothing else is touched."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dragoman.core.ids import KeyId, UserId
from dragoman.core.profile import Profile
from dragoman.ports.accounts import ApiKey
from dragoman.stores.postgres.blobs import PostgresBlobs
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.keys import PostgresKeys
from dragoman.stores.postgres.profiles import PostgresProfiles
from tests.core.strategies import NOON

HOUR = timedelta(hours=1)


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    database = Database(postgres_url, access="unlocked")
    yield database
    database.close()


def key(name: str = "k", **fields: Any) -> ApiKey:
    given: dict[str, Any] = {
        "key_id": KeyId(name),
        "digest": name.encode() * 32,
        "name": "mine",
        "user": UserId("ann"),
        "masked_key": "sk-...abcd",
        "scopes": frozenset({"use", "read"}),
        "created_at": NOON + timedelta(microseconds=1),
    }
    return ApiKey(**{**given, **fields})


async def test_keys_read_back_as_they_were_written_oldest_first(database: Database) -> None:
    store = PostgresKeys(database)
    keys = [key("b", created_at=NOON), key("a", expires_at=NOON + HOUR), key("c", last_used_at=NOON)]
    for each in reversed(keys):
        await store.add(each)
    assert await store.all() == keys


async def test_no_user_gets_more_keys_than_the_limit_however_many_are_added_at_once(database: Database) -> None:
    store = PostgresKeys(database)
    await store.add(key("bob", user=UserId("bob")))
    await store.add(key("first"))
    results = await asyncio.gather(*(store.add(key(name), limit=4) for name in "abcdefghijkl"))
    assert sorted(results) == [False] * 9 + [True] * 3
    assert len(await store.all()) == 5


async def test_a_key_is_renamed_used_and_removed_alone(database: Database) -> None:
    store = PostgresKeys(database)
    for name in "ab":
        await store.add(key(name))
    await store.rename(KeyId("a"), "other")
    await store.rename(KeyId("none"), "other")
    await store.touch([(KeyId("a"), NOON + HOUR), (KeyId("none"), NOON)])
    await store.touch([(KeyId("a"), NOON)])
    changed = msgspec.structs.replace(key("a"), name="other", last_used_at=NOON + HOUR)
    assert await store.all() == [changed, key("b")], "the later time counts, whoever tells it last"
    assert await store.remove(KeyId("b"))
    assert not await store.remove(KeyId("b"))
    assert await store.all() == [changed]


async def test_a_profile_is_replaced(database: Database) -> None:
    store = PostgresProfiles(database)
    ann, bob = Profile(user=UserId("ann"), time_zone="Europe/Berlin"), Profile(user=UserId("bob"), locale="de")
    for each in (bob, ann):
        await store.put(each)
    assert await store.all() == [ann, bob]
    await store.put(Profile(user=UserId("ann"), locale="fr"))
    assert await store.all() == [Profile(user=UserId("ann"), locale="fr"), bob]


async def test_a_blob_may_have_the_name_of_a_folder(database: Database) -> None:
    blobs = PostgresBlobs(database)
    names = ("s/1/a", "s/1/b/c", "s/1", "s/12", "s/1-a", "s/1.a", "s/2", "s")
    for name in names:
        await blobs.put(name, b"x")
    await blobs.delete("s/1")
    await blobs.delete("s/1")
    await blobs.delete("nothing/here")
    assert [name for name in names if await blobs.get(name)] == ["s/12", "s/1-a", "s/1.a", "s/2", "s"]
