"""What every store of schedules promises, held against each that there is."""

from contextlib import ExitStack, closing
from datetime import timedelta
from typing import Any

import pytest

from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import StoreUnavailable
from dragoman.core.schedules import Fire, FireId, Schedule, ScheduleId
from dragoman.ports.accounts import ScheduleStore
from dragoman.stores.postgres import database as postgres
from dragoman.stores.postgres import schedules as postgres_schedules
from dragoman.stores.postgres.cluster import PostgresCluster
from dragoman.stores.postgres.schedules import PostgresSchedules
from dragoman.stores.sqlite import schedules as sqlite_schedules
from dragoman.stores.sqlite.schedules import SqliteSchedules
from tests.core.strategies import NOON
from tests.requirements import requirement
from tests.stores.simulated_schedules import SimulatedSchedules

HOUR = timedelta(hours=1)


@pytest.fixture(params=["sqlite", "postgres", "simulated"])
def store(request: pytest.FixtureRequest) -> ScheduleStore:
    if request.param == "simulated":
        return SimulatedSchedules()
    if request.param == "sqlite":
        return SqliteSchedules(request.getfixturevalue("sqlite_database"))
    return PostgresSchedules(request.getfixturevalue("postgres_database"))


def schedule(name: str = "s", **fields: Any) -> Schedule:
    given: dict[str, Any] = {
        "schedule_id": ScheduleId(name),
        "user": UserId("ann"),
        "title": "Report",
        "prompt": "write it",
        "cron": "0 9 * * *",
        "time_zone": "UTC",
        "created_at": NOON,
        "updated_at": NOON,
    }
    return Schedule(**{**given, **fields})


def fire(hour: int, name: str = "s", **fields: Any) -> Fire:
    given: dict[str, Any] = {
        "fire_id": FireId(f"{name}-{hour:05}"),
        "schedule_id": ScheduleId(name),
        "due_at": NOON + hour * HOUR,
        "status": "running",
        "started_at": NOON,
    }
    return Fire(**{**given, **fields})


FULL = schedule(
    expires_at=NOON + HOUR,
    enabled=False,
    skip_confirmations=True,
    model="m",
    agent="reporter",
    reports_to=SessionId("x"),
    task_depth=3,
    updated_at=NOON + HOUR,
    next_at=NOON + 2 * HOUR,
    last_at=NOON - HOUR,
)


async def test_a_schedule_reads_back_as_it_was_written_and_is_replaced(store: ScheduleStore) -> None:
    await store.put(FULL)
    await store.put(schedule("later", created_at=NOON + HOUR))
    await store.put(schedule("earlier", created_at=NOON - HOUR))
    assert await store.all() == [
        schedule("earlier", created_at=NOON - HOUR), FULL, schedule("later", created_at=NOON + HOUR)
    ]  # fmt: skip
    await store.put(schedule())
    assert (await store.all())[1] == schedule()


async def test_a_claim_stores_fire_and_schedule_together(store: ScheduleStore) -> None:
    await store.put(schedule())
    moved = schedule(next_at=NOON + HOUR, last_at=NOON)
    first = fire(0, session_id=SessionId("x"))
    assert await store.claim_fire(moved, first)
    assert (await store.all(), await store.running_fires()) == ([moved], [first])
    assert await store.fires(ScheduleId("s"), 0, 10) == [first]


async def test_a_time_is_claimed_once(store: ScheduleStore) -> None:
    await store.put(schedule())
    assert await store.claim_fire(schedule(), fire(0))
    assert not await store.claim_fire(schedule(), fire(0, fire_id=FireId("another")))
    assert await store.fires(ScheduleId("s"), 0, 10) == [fire(0)]
    assert await store.claim_fire(schedule("t"), fire(0, "t"))
    assert [each.schedule_id for each in await store.running_fires()] == ["s", "t"]


async def test_a_settled_fire_runs_no_more(store: ScheduleStore) -> None:
    await store.claim_fire(schedule(), fire(0))
    ended = fire(0, status="failed", error="why", finished_at=NOON + HOUR, session_id=SessionId("x"))
    await store.update_fire(ended)
    await store.update_fire(fire(7, status="failed"))
    assert (await store.running_fires(), await store.fires(ScheduleId("s"), 0, 10)) == ([], [ended])


async def test_fires_are_read_newest_first_by_pages(store: ScheduleStore) -> None:
    for hour in range(5):
        await store.claim_fire(schedule(), fire(hour))
    assert await store.fires(ScheduleId("s"), 1, 2) == [fire(3), fire(2)]
    assert await store.running_fires() == [fire(hour) for hour in range(5)]


async def test_with_a_schedule_its_fires_go(store: ScheduleStore) -> None:
    await store.claim_fire(schedule(), fire(0))
    await store.claim_fire(schedule("t"), fire(0, "t"))
    await store.remove(ScheduleId("s"))
    assert [each.schedule_id for each in await store.all()] == ["t"]
    assert (await store.fires(ScheduleId("s"), 0, 10), len(await store.running_fires())) == ([], 1)


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_of_very_many_fires_the_oldest_go_unless_they_run(
    store: ScheduleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sqlite_schedules, postgres_schedules):
        monkeypatch.setattr(module, "MAX_FIRES_PER_SCHEDULE", 3)
    for hour in range(6):
        await store.claim_fire(schedule(), fire(hour, status="running" if hour == 0 else "completed"))
    assert [each.due_at - NOON for each in await store.fires(ScheduleId("s"), 0, 10)] == [
        hour * HOUR for hour in (5, 4, 3, 0)
    ]


async def test_a_fire_that_is_written_whole_reads_back_whole(store: ScheduleStore) -> None:
    whole = fire(0, session_id=SessionId("x"), status="completed", error="none", finished_at=NOON + HOUR)
    await store.claim_fire(schedule(), whole)
    assert await store.fires(ScheduleId("s"), 0, 1) == [whole]


@requirement("faults:51:once")
async def test_of_two_servers_one_has_a_time_and_neither_undoes_what_a_user_changed(postgres_url: str) -> None:
    with ExitStack() as databases:
        both = [databases.enter_context(closing(postgres.Database(postgres_url, access="unlocked"))) for _ in range(2)]
        clusters = [PostgresCluster(each, folder_id=home, lease_s=10) for each, home in zip(both, "12", strict=True)]
        for cluster in clusters:
            await cluster.join()
        first, second = (PostgresSchedules(each) for each in both)
        await first.put(schedule(next_at=NOON))
        changed = schedule(title="Other", updated_at=NOON + HOUR, next_at=NOON)
        await second.put(changed)
        moved = schedule(next_at=NOON + HOUR)
        assert [await first.claim_fire(moved, fire(0)), await second.claim_fire(moved, fire(0))] == [True, False]
        assert await first.all() == [changed]
        await second.remove(ScheduleId("s"))
        assert not await first.claim_fire(moved, fire(1))
        assert (await first.all(), await first.running_fires()) == ([], [])
        for cluster in clusters:
            await cluster.leave()


async def test_a_server_whose_lease_has_ended_claims_no_fires(postgres_url: str) -> None:
    """Otherwise it and a living server would both run them, or a time would pass without its run."""
    with ExitStack() as databases:
        both = [databases.enter_context(closing(postgres.Database(postgres_url, access="unlocked"))) for _ in range(2)]
        dead, living = (
            PostgresCluster(each, folder_id=home, lease_s=10) for each, home in zip(both, "12", strict=True)
        )
        await dead.join()
        await living.join()
        due = schedule(next_at=NOON)
        store = PostgresSchedules(both[0])
        await store.put(due)
        running = fire(0, status="running")
        assert await store.claim_fire(due, running)
        await dead.leave()
        assert not await dead.claim_abandoned_fires()
        moved = schedule(next_at=NOON + HOUR)
        with pytest.raises(StoreUnavailable, match="lease has expired"):
            await store.claim_fire(moved, fire(1))
        assert (await store.all(), await store.running_fires()) == ([due], [running])
        assert await living.claim_abandoned_fires() == {running.fire_id}
        assert not await living.claim_abandoned_fires()
        await living.leave()
