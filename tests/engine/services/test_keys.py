"""API keys: what is stored of them, who is admitted, and how fast a revocation takes effect."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b, sha256
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from dragoman.buses.local import LocalBus
from dragoman.core.ids import KeyId, UserId, uuid7
from dragoman.core.key_digests import KeyHasher
from dragoman.core.principal import Principal
from dragoman.core.refusals import (
    Conflict,
    Forbidden,
    Invalid,
    LimitReached,
    NotFound,
    StoreUnavailable,
    Unauthenticated,
)
from dragoman.engine.services import keys as module
from dragoman.engine.services.authentication import KeysAndTokens, NoKeys
from dragoman.engine.services.keys import LOCAL_USER, KeyRing, client_network
from dragoman.engine.services.limits import RateLimit
from dragoman.ports.accounts import ApiKey
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.keys import SqliteKeys

HERE = "192.0.2.1"
PEPPER = b"the pepper of the tests"


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.at = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at


class SequentialIds:
    """Ids in order."""

    def __init__(self) -> None:
        self.count = 0

    def new(self) -> str:
        self.count += 1
        return uuid7(self.count, 0)


class KeyRingFixture:
    """A key ring over a real database, with a manual clock."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.store = SqliteKeys(database)
        self.bus = LocalBus()
        self.clock = ManualClock()
        self.ids = SequentialIds()
        self.ring = self.another_ring()

    async def authenticate(self, header: str | None) -> Principal:
        return await KeysAndTokens(self.ring, self.clock).authenticate(header, HERE)

    def another_ring(self, *peppers: bytes, wrong: RateLimit | None = None) -> KeyRing:
        hasher = KeyHasher(*(peppers or (PEPPER,)))
        return KeyRing(self.store, self.bus, self.clock, self.ids, wrong_key_limit=wrong, hasher=hasher)


def calls_of(function: Callable[[str], None], argument: str) -> list[str]:
    """The names of the functions that a call executes, built-in ones included."""
    names: list[str] = []

    def record(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_qualname)
        elif event == "c_call":
            names.append(argument.__qualname__)

    sys.setprofile(record)
    try:
        function(argument)
    finally:
        sys.setprofile(None)
    return names


@pytest.fixture
async def key_ring_fixture(tmp_path: Path) -> AsyncIterator[KeyRingFixture]:
    database = Database(tmp_path)
    database.start()
    stage = KeyRingFixture(database)
    await stage.ring.start()
    yield stage
    await stage.ring.close()
    database.close()


def contents_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


# --- storage ----------------------------------------------------------------------------------------------------------


async def test_a_key_is_shown_once_and_cannot_be_recovered_from_what_is_stored(
    key_ring_fixture: KeyRingFixture, tmp_path: Path
) -> None:
    secret, key = await key_ring_fixture.ring.create("laptop", user=UserId("ann"), scopes=("read", "use"))
    assert secret.startswith("sk-dragoman-")
    assert len(secret) == len("sk-dragoman-") + 43, "32 random bytes"
    assert key.masked_key == f"sk-dragoman-...{secret[-4:]}"
    assert key_ring_fixture.ring.all() == [key]
    key_ring_fixture.database.writer.connection.execute("PRAGMA wal_checkpoint")
    stored = contents_of(tmp_path)
    assert key.digest in stored
    assert secret.encode() not in stored
    assert secret[12:-4].encode() not in stored


async def test_digests_need_the_pepper_and_follow_its_rotation(key_ring_fixture: KeyRingFixture) -> None:
    secret, made = await key_ring_fixture.ring.create("laptop")
    assert made.digest == blake2b(secret.encode(), key=PEPPER, digest_size=32).digest()
    rotated = key_ring_fixture.another_ring(b"a newer one", PEPPER)
    await rotated.reload()
    await rotated.rehash()
    assert rotated.all() == [made], "only the use of a key shows what its digest is made of"
    assert rotated.principal_for(secret, HERE).key_id == made.key_id
    await rotated.rehash()
    (stored,) = await key_ring_fixture.store.all()
    assert stored == rotated.all()[0]
    assert (stored.digest, stored.pepper != made.pepper) == (
        blake2b(secret.encode(), key=b"a newer one", digest_size=32).digest(),
        True,
    )
    assert rotated.principal_for(secret, HERE).key_id == made.key_id
    await key_ring_fixture.ring.reload()
    with pytest.raises(Unauthenticated):
        key_ring_fixture.ring.principal_for(secret, HERE)  # it has not got the newer one
    await rotated.revoke(secret)
    with pytest.raises(Unauthenticated):
        rotated.principal_for(secret, HERE)


async def test_a_key_of_release_0_1_0_continues_and_gets_a_digest_with_the_pepper_at_its_next_use(
    key_ring_fixture: KeyRingFixture,
) -> None:
    plain = KeyRing(key_ring_fixture.store, LocalBus(), key_ring_fixture.clock, key_ring_fixture.ids)
    secret, old = await plain.create("laptop")
    assert (old.digest, old.pepper) == (sha256(secret.encode()).digest(), None)
    await key_ring_fixture.ring.reload()
    assert key_ring_fixture.ring.principal_for(secret, HERE).key_id == old.key_id
    await key_ring_fixture.ring.rehash()
    (stored,) = await key_ring_fixture.store.all()
    assert stored.digest == blake2b(secret.encode(), key=PEPPER, digest_size=32).digest()
    assert key_ring_fixture.ring.principal_for(secret, HERE).key_id == old.key_id


async def test_keys_are_unique_and_their_prefix_is_part_of_them(key_ring_fixture: KeyRingFixture) -> None:
    made = [await key_ring_fixture.ring.create(f"key {number}", prefix="sk-blade-v2-") for number in range(20)]
    assert len({secret for secret, _ in made}) == 20
    secret, key = made[0]
    assert key.masked_key == f"sk-blade-v2-...{secret[-4:]}"
    assert key_ring_fixture.ring.principal_for(secret, HERE).key_id == key.key_id
    with pytest.raises(Unauthenticated):
        key_ring_fixture.ring.principal_for(secret.replace("sk-blade-v2-", "sk-dragoman-"), HERE)


async def test_keys_outlive_the_server(key_ring_fixture: KeyRingFixture) -> None:
    secret, key = await key_ring_fixture.ring.create("laptop", user=UserId("ann"), scopes=("admin",))
    later = key_ring_fixture.another_ring()
    await later.reload()
    assert later.all() == [key]
    assert later.principal_for(secret, HERE) == Principal(
        user=UserId("ann"), scopes=frozenset({"admin"}), key_id=key.key_id
    )


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"name": ""}, "name"),
        ({"name": " "}, "name"),
        ({"name": "n" * 201}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "\x1b[31m"}, "name"),
        ({"name": "n", "user": UserId("")}, "user"),
        ({"name": "n", "scopes": ()}, "scopes"),
        ({"name": "n", "scopes": ("use", "root")}, "scopes"),
        ({"name": "n", "expires_at": datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)}, "expires_at"),
    ],
)
async def test_an_invalid_key_is_refused_and_none_is_created(
    key_ring_fixture: KeyRingFixture, wrong: dict[str, object], path: str
) -> None:
    with pytest.raises(Invalid) as refused:
        await key_ring_fixture.ring.create(**wrong)  # type: ignore[arg-type]  # wrong on purpose
    assert refused.value.path == path
    assert key_ring_fixture.ring.all() == []
    assert await key_ring_fixture.store.all() == []


# --- who gets in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["Bearer KEY", "bearer KEY", "BEARER  KEY", "Bearer KEY "])
async def test_a_key_is_recognised_however_the_scheme_is_written(
    key_ring_fixture: KeyRingFixture, written: str
) -> None:
    secret, key = await key_ring_fixture.ring.create("laptop")
    principal = await key_ring_fixture.authenticate(written.replace("KEY", secret))
    assert principal == Principal(user=LOCAL_USER, scopes=frozenset({"use"}), key_id=key.key_id)


@pytest.mark.parametrize(
    "written",
    [
        None,
        "",
        " ",
        "Bearer",
        "Bearer ",
        "KEY",
        "Basic KEY",
        "Bearer KEY KEY",
        "Bearer KEYx",
        "Bearer sk-dragoman-",
        "Bearer KEY\x00",
        "Bearer \ud800",
        "Bearer " + "x" * 100_000,
    ],
)
async def test_everything_else_is_refused(key_ring_fixture: KeyRingFixture, written: str | None) -> None:
    secret, _ = await key_ring_fixture.ring.create("laptop")
    with pytest.raises(Unauthenticated) as refused:
        await key_ring_fixture.authenticate(None if written is None else written.replace("KEY", secret))
    assert secret not in str(refused.value)


async def test_a_key_allows_what_its_scopes_include(key_ring_fixture: KeyRingFixture) -> None:
    secret, _ = await key_ring_fixture.ring.create("dashboard", scopes=("read",))
    principal = key_ring_fixture.ring.principal_for(secret, HERE)
    principal.require("read")
    with pytest.raises(Forbidden):
        principal.require("use")


async def test_a_key_is_invalid_after_its_expiry(key_ring_fixture: KeyRingFixture) -> None:
    expiry = key_ring_fixture.clock.at + timedelta(hours=1)
    secret, _ = await key_ring_fixture.ring.create("guest", expires_at=expiry)
    key_ring_fixture.clock.at = expiry - timedelta(microseconds=1)
    key_ring_fixture.ring.principal_for(secret, HERE)
    key_ring_fixture.clock.at = expiry
    with pytest.raises(Unauthenticated, match="expired"):
        key_ring_fixture.ring.principal_for(secret, HERE)
    assert not key_ring_fixture.ring.is_valid(secret)


async def test_without_keys_everybody_is_the_local_user_whatever_the_header_says() -> None:
    for header in (None, "", "Bearer ", "Bearer sk-dragoman-x", "nonsense"):
        assert await NoKeys().authenticate(header, HERE) == Principal(user=LOCAL_USER, scopes=frozenset({"admin"}))


async def test_authentication_is_one_digest_and_one_lookup_for_any_number_of_keys(
    key_ring_fixture: KeyRingFixture,
) -> None:
    first, _ = await key_ring_fixture.ring.create("desktop")

    def authenticate(secret: str) -> None:
        key_ring_fixture.ring.principal_for(secret, HERE)

    authenticate(first)
    with_one_key = calls_of(authenticate, first)
    assert with_one_key.count("KeyHasher.digest") == 1
    for number in range(300):
        await key_ring_fixture.ring.create(f"key {number}")
    last, _ = await key_ring_fixture.ring.create("laptop")
    for secret in (first, last):
        authenticate(secret)
        assert calls_of(authenticate, secret) == with_one_key


# --- wrong keys -------------------------------------------------------------------------------------------------------


async def test_wrong_keys_of_an_address_are_limited_but_valid_keys_never_are(key_ring_fixture: KeyRingFixture) -> None:
    secret, _ = await key_ring_fixture.ring.create("laptop")
    ring = key_ring_fixture.another_ring(wrong=RateLimit(5, "wrong keys"))
    await ring.reload()
    seen: list[str] = []
    for number in range(10_000):
        with pytest.raises((Unauthenticated, LimitReached)) as refused:
            ring.principal_for(f"sk-dragoman-{number}", HERE)
        seen.append(refused.typename)
    assert seen[:5] == ["Unauthenticated"] * 5
    assert set(seen[5:]) == {"LimitReached"}
    ring.principal_for(secret, HERE)
    with pytest.raises(Unauthenticated):
        ring.principal_for("sk-dragoman-x", "192.0.2.2")


async def test_a_request_without_a_key_does_not_count_as_a_wrong_key(key_ring_fixture: KeyRingFixture) -> None:
    access = KeysAndTokens(key_ring_fixture.another_ring(wrong=RateLimit(1, "wrong keys")), ManualClock())
    for header in (None, "", "Basic x", "Bearer ") * 10:
        with pytest.raises(Unauthenticated):
            await access.authenticate(header, HERE)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", ""),
        ("a:b", "a:b"),
    ],
)
def test_wrong_keys_are_counted_by_the_network_of_a_subscriber(address: str, network: str) -> None:
    assert client_network(address) == network


# --- revoking ---------------------------------------------------------------------------------------------------------


async def test_a_revoked_key_is_refused_at_once_and_its_streams_are_notified_once(
    key_ring_fixture: KeyRingFixture,
) -> None:
    secret, key = await key_ring_fixture.ring.create("laptop")
    phone_secret, _ = await key_ring_fixture.ring.create("phone")
    notified: list[str] = []
    principal = key_ring_fixture.ring.principal_for(secret, HERE)
    key_ring_fixture.ring.on_revoked(principal, lambda: notified.append("laptop's first"))
    key_ring_fixture.ring.on_revoked(principal, lambda: notified.append("laptop's second"))
    key_ring_fixture.ring.on_revoked(principal, lambda: notified.append("one that left"))()
    key_ring_fixture.ring.on_revoked(
        key_ring_fixture.ring.principal_for(phone_secret, HERE), lambda: notified.append("phone's")
    )
    assert (await key_ring_fixture.ring.revoke(key.key_id)).key_id == key.key_id
    with pytest.raises(Unauthenticated):
        key_ring_fixture.ring.principal_for(secret, HERE)
    assert notified == ["laptop's first", "laptop's second"]
    await key_ring_fixture.ring.run_maintenance()
    await key_ring_fixture.ring.reload()
    assert notified == ["laptop's first", "laptop's second"]
    assert [each.name for each in await key_ring_fixture.store.all()] == ["phone"]


async def test_a_key_that_is_revoked_while_the_disk_is_full_is_refused_at_once_and_removed_when_there_is_room(
    key_ring_fixture: KeyRingFixture,
) -> None:
    ring, connection = key_ring_fixture.ring, key_ring_fixture.database.writer.connection
    secret, key = await ring.create("laptop")
    notified: list[str] = []
    ring.on_revoked(ring.principal_for(secret, HERE), lambda: notified.append("gone"))
    connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StoreUnavailable, match="refuses the key from now on, but cannot store that"):
        await ring.revoke(key.key_id)
    await ring.reload()
    await ring.run_maintenance()
    assert notified == ["gone"]
    with pytest.raises(Unauthenticated):
        ring.principal_for(secret, HERE)
    assert [each.key_id for each in await key_ring_fixture.store.all()] == [key.key_id], "it is not stored"
    connection.execute("PRAGMA query_only = OFF")
    await ring.run_maintenance()
    assert await key_ring_fixture.store.all() == []


async def test_a_stream_that_opens_just_after_its_key_was_revoked_is_notified_at_once(
    key_ring_fixture: KeyRingFixture,
) -> None:
    secret, key = await key_ring_fixture.ring.create("laptop")
    principal = key_ring_fixture.ring.principal_for(secret, HERE)
    await key_ring_fixture.ring.revoke(key.key_id)
    notified: list[str] = []
    key_ring_fixture.ring.on_revoked(principal, lambda: notified.append("gone"))
    assert notified == ["gone"]


async def test_a_revocation_on_another_server_takes_effect_within_seconds(key_ring_fixture: KeyRingFixture) -> None:
    """A second ring on the same store and bus plays another worker."""
    secret, key = await key_ring_fixture.ring.create("laptop")
    other = key_ring_fixture.another_ring()
    await other.start()
    gone = asyncio.Event()
    other.on_revoked(other.principal_for(secret, HERE), gone.set)
    await key_ring_fixture.ring.revoke(key.key_id)
    async with asyncio.timeout(60):
        await gone.wait()
    with pytest.raises(Unauthenticated):
        other.principal_for(secret, HERE)
    await other.close()


async def test_a_key_created_on_another_server_is_accepted(key_ring_fixture: KeyRingFixture) -> None:
    other = key_ring_fixture.another_ring()
    await other.start()
    secret, _ = await key_ring_fixture.ring.create("laptop")
    await other.run_maintenance()
    other.principal_for(secret, HERE)
    await other.close()


async def test_changes_of_keys_on_another_server_take_effect_at_once(
    key_ring_fixture: KeyRingFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAINTENANCE_INTERVAL_S", 3600.0)
    other = key_ring_fixture.another_ring()
    await other.start()
    caller = Principal(user=LOCAL_USER, scopes=frozenset({"use"}))

    async def until(names: list[str]) -> None:
        async with asyncio.timeout(60):
            while [each.name for each in other.all()] != names:  # noqa: ASYNC110  # there is no event to wait for
                await asyncio.sleep(0)

    _, made = await key_ring_fixture.ring.create("laptop")
    await until(["laptop"])
    await key_ring_fixture.ring.rename(caller, made.key_id, "phone")
    await until(["phone"])
    await key_ring_fixture.ring.revoke_owned(caller, made.key_id)
    await until([])
    await other.close()


async def test_the_streams_of_a_key_that_expires_are_notified(key_ring_fixture: KeyRingFixture) -> None:
    expiry = key_ring_fixture.clock.at + timedelta(hours=1)
    secret, _ = await key_ring_fixture.ring.create("guest", expires_at=expiry)
    notified: list[str] = []
    key_ring_fixture.ring.on_revoked(key_ring_fixture.ring.principal_for(secret, HERE), lambda: notified.append("gone"))
    await key_ring_fixture.ring.run_maintenance()
    assert notified == []
    key_ring_fixture.clock.at = expiry
    await key_ring_fixture.ring.run_maintenance()
    await key_ring_fixture.ring.run_maintenance()
    assert notified == ["gone"]


async def test_a_key_is_revoked_by_id_mask_name_or_itself(key_ring_fixture: KeyRingFixture) -> None:
    for which in ("id", "masked", "name", "secret"):
        secret, key = await key_ring_fixture.ring.create("laptop")
        names = {"id": key.key_id, "masked": key.masked_key, "name": "laptop", "secret": secret}
        assert await key_ring_fixture.ring.revoke(names[which]) == key
    assert key_ring_fixture.ring.all() == []


async def test_an_unclear_or_unknown_name_revokes_nothing(key_ring_fixture: KeyRingFixture) -> None:
    keys = [(await key_ring_fixture.ring.create("laptop"))[1] for _ in range(2)]
    with pytest.raises(Conflict) as refused:
        await key_ring_fixture.ring.revoke("laptop")
    assert all(key.key_id in str(refused.value) for key in keys)
    with pytest.raises(NotFound):
        await key_ring_fixture.ring.revoke("tablet")
    assert key_ring_fixture.ring.all() == keys


class SlowStore(SqliteKeys):
    """A store whose answer to `all` takes as long as the test wants: it was read before, it arrives afterwards."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.has_read = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def all(self) -> Sequence[ApiKey]:
        found = await super().all()
        self.has_read.set()
        await self.may_answer.wait()
        return found


async def test_a_reload_that_started_before_a_revocation_does_not_restore_the_key(
    key_ring_fixture: KeyRingFixture,
) -> None:
    secret, key = await key_ring_fixture.ring.create("laptop")
    slow = SlowStore(key_ring_fixture.database)
    ring = KeyRing(slow, LocalBus(), key_ring_fixture.clock, key_ring_fixture.ids)
    slow.may_answer.set()
    await ring.reload()
    slow.may_answer.clear()
    slow.has_read.clear()
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(ring.reload())
        await slow.has_read.wait()
        group.create_task(ring.revoke(key.key_id))
        made = group.create_task(ring.create("phone"))
        slow.may_answer.set()
    with pytest.raises(Unauthenticated):
        ring.principal_for(secret, HERE)
    ring.principal_for(made.result()[0], HERE)


# --- last use ---------------------------------------------------------------------------------------------------------


async def test_last_uses_of_all_keys_are_stored_in_one_write(key_ring_fixture: KeyRingFixture) -> None:
    secrets = [(await key_ring_fixture.ring.create(f"key {number}"))[0] for number in range(3)]
    for secret in secrets[:2] * 5:
        key_ring_fixture.ring.principal_for(secret, HERE)
    used = key_ring_fixture.clock.at
    key_ring_fixture.clock.at += timedelta(minutes=1)
    commits = key_ring_fixture.database.writer.commits
    await key_ring_fixture.ring.write_last_uses()
    await key_ring_fixture.ring.write_last_uses()
    assert key_ring_fixture.database.writer.commits == commits + 1
    assert [key.last_used_at for key in await key_ring_fixture.store.all()] == [used, used, None]
    assert [key.last_used_at for key in key_ring_fixture.ring.all()] == [used, used, None]


async def test_a_reload_that_began_before_does_not_undo_a_last_use(
    key_ring_fixture: KeyRingFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = key_ring_fixture.another_ring()  # without maintenance, which reloads as well
    secret, _ = await ring.create("laptop")
    ring.principal_for(secret, HERE)
    has_read, may_return = asyncio.Event(), asyncio.Event()
    read = key_ring_fixture.store.all

    async def read_slowly() -> Sequence[ApiKey]:
        keys = await read()
        has_read.set()
        await may_return.wait()
        return keys

    monkeypatch.setattr(key_ring_fixture.store, "all", read_slowly)
    reloading = asyncio.create_task(ring.reload())
    await has_read.wait()
    writing = asyncio.create_task(ring.write_last_uses())
    await asyncio.sleep(0)
    await key_ring_fixture.database.writer.run(lambda _: None)  # what it writes was queued before
    await asyncio.sleep(0)
    may_return.set()
    await asyncio.gather(reloading, writing)
    assert [key.last_used_at for key in ring.all()] == [key_ring_fixture.clock.at]


async def test_the_last_use_is_written_when_the_server_stops(key_ring_fixture: KeyRingFixture) -> None:
    secret, _ = await key_ring_fixture.ring.create("laptop")
    key_ring_fixture.ring.principal_for(secret, HERE)
    await key_ring_fixture.ring.close()
    assert [key.last_used_at for key in await key_ring_fixture.store.all()] == [key_ring_fixture.clock.at]


async def test_a_failure_does_not_end_the_maintenance_of_keys(
    key_ring_fixture: KeyRingFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without maintenance, keys that another server revoked would stay valid."""
    monkeypatch.setattr(module, "MAINTENANCE_INTERVAL_S", 0.001)
    monkeypatch.setattr(module, "LAST_USE_WRITE_INTERVAL_S", 0.0)
    secret, key = await key_ring_fixture.ring.create("laptop")
    faults = [RuntimeError("a slip of ours")]
    noted: asyncio.Queue[Sequence[tuple[KeyId, datetime]]] = asyncio.Queue()

    async def touch(used: Sequence[tuple[KeyId, datetime]]) -> None:
        if faults:
            raise faults.pop()
        await noted.put(used)

    monkeypatch.setattr(key_ring_fixture.store, "touch", touch)
    ring = key_ring_fixture.another_ring()
    await ring.start()
    ring.principal_for(secret, HERE)
    async with asyncio.timeout(60):
        assert await noted.get() == [(key.key_id, key_ring_fixture.clock.at)]
    await ring.close()


async def test_last_uses_are_written_periodically(
    key_ring_fixture: KeyRingFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAINTENANCE_INTERVAL_S", 0.001)
    monkeypatch.setattr(module, "LAST_USE_WRITE_INTERVAL_S", 0.0)
    secret, key = await key_ring_fixture.ring.create("laptop")
    noted: asyncio.Queue[Sequence[tuple[KeyId, datetime]]] = asyncio.Queue()
    monkeypatch.setattr(key_ring_fixture.store, "touch", noted.put)
    ring = key_ring_fixture.another_ring()
    await ring.start()
    ring.principal_for(secret, HERE)
    async with asyncio.timeout(60):
        assert await noted.get() == [(key.key_id, key_ring_fixture.clock.at)]
    await ring.close()
