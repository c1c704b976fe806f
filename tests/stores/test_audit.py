"""What every store of the audit log promises."""

import pytest

from dragoman.core.audit import AuditEntry
from dragoman.core.ids import KeyId, UserId, uuid7
from dragoman.core.refusals import StoreUnavailable
from dragoman.ports.accounts import AuditStore
from dragoman.stores.postgres.audit import PostgresAudit
from dragoman.stores.sqlite.audit import SqliteAudit
from tests.core.strategies import NOON

STRANGE = "a\x00b 你好 \U0001f409 'quoted'"


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> AuditStore:
    if request.param == "sqlite":
        return SqliteAudit(request.getfixturevalue("sqlite_database"))
    return PostgresAudit(request.getfixturevalue("postgres_database"))


def entry(number: int, user: str = "ann", action: str = "key.created") -> AuditEntry:
    return AuditEntry(
        entry_id=uuid7(number, 0),
        at=NOON,
        action=action,
        user=UserId(user),
        key_id=KeyId("key") if number % 2 else None,
        address="192.0.2.1",
        request_id=STRANGE,
        target="t",
        detail=STRANGE,
        count=number,
    )


async def test_entries_come_back_whole_newest_first_in_pages_and_by_user_and_action(store: AuditStore) -> None:
    entries = [
        entry(1),
        entry(2, "bob"),
        entry(3, action="login.refused"),
        entry(4, "bob", "login.refused"),
        entry(5, STRANGE.replace("\x00", "")),
    ]
    await store.add(entries[:2])
    await store.add(entries[2:])
    newest_first = entries[::-1]
    assert list(await store.page(None, 10)) == newest_first
    first = list(await store.page(None, 2))
    assert first + list(await store.page(first[-1].entry_id, 2)) == newest_first[:4]
    assert list(await store.page(None, 10, user="bob")) == [entries[3], entries[1]]
    assert list(await store.page(None, 10, user="bob", action="login.refused")) == [entries[3]]
    assert list(await store.page(entries[0].entry_id, 10)) == []
    for given in ({"before": "\0"}, {"user": "\0"}, {"action": "\0"}):
        assert list(await store.page(**{"before": None, "limit": 10, **given})) == [], "from the query of a request"  # type: ignore[arg-type]  # one of them


async def test_an_entry_cannot_be_written_again(store: AuditStore) -> None:
    await store.add([entry(1)])
    with pytest.raises(Exception, match=r"(?i)unique|duplicate|cannot write|store") as refused:
        await store.add([entry(1, "mallory")])
    assert not isinstance(refused.value, AssertionError | StoreUnavailable)
    assert list(await store.page(None, 10)) == [entry(1)]
