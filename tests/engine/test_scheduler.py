"""Schedules at work: every time is kept once, whatever happens to the server; what a fire becomes, and whom it asks."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dragoman.core.history import messages_of
from dragoman.core.ids import UserId
from dragoman.core.inputs import Choice
from dragoman.core.refusals import Conflict, Invalid, NotFound, StoreUnavailable
from dragoman.core.schedules import (
    GIVEN_UP,
    GONE,
    MISSED,
    NO_ANSWER,
    NOT_STARTED,
    SKIPPED,
    Fire,
    FireStatus,
    Schedule,
    ScheduleId,
)
from dragoman.engine import scheduler as module
from dragoman.engine.engine import Engine
from dragoman.engine.instrumentation.metrics import exposition
from dragoman.engine.scheduler import NO_USER, ScheduleBook
from dragoman.ports import Schedules
from dragoman.stores.sqlite import schedules as sqlite_schedules
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.schedules import SqliteSchedules
from tests.engine.world import ANN, DEADLINE_S, End, Gate, Use, World, answers, ask, texts, world_over
from tests.requirements import requirement
from tests.stores.simulated import SimulatedLog
from tests.stores.simulated_schedules import SimulatedSchedules

BOB = UserId("bob")
NINE = datetime(2026, 3, 4, 9, tzinfo=UTC)
"""The first nine o'clock after the world's clock."""
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


class Planned:
    """A world with schedules. The clock stands; times are kept when the test says so."""

    def __init__(self, world: World, store: Schedules) -> None:
        self.world = world
        self.store = store
        self.engine: Engine
        self.book: ScheduleBook

    async def start(self, **options: Any) -> None:
        self.engine = await self.world.start()
        self.book = ScheduleBook(self.store, self.engine, self.world.clock, self.world.ids, **options)
        await self.book.start(by_itself=False)

    async def stop(self) -> None:
        """As told: what runs is parked."""
        await self.world.stop(self.engine)
        await self.book.close()

    async def kill(self) -> None:
        """As SIGKILL would."""
        await self.book.close()
        await self.world.kill(self.engine)

    async def at(self, when: datetime) -> None:
        """Set the clock, and do what is due."""
        self.world.clock.at = when
        async with asyncio.timeout(DEADLINE_S):
            await self.book.tick()

    async def quiet(self) -> None:
        """Wait until no fire is under way."""
        async with asyncio.timeout(DEADLINE_S):
            while self.book._playing:
                await asyncio.wait(set(self.book._playing))

    async def daily(self, **fields: Any) -> Schedule:
        """A new schedule, due every day at nine."""
        return await self.book.create(plan(**fields))

    async def fires(self, schedule: Schedule) -> list[Fire]:
        """Oldest first."""
        return list(reversed(await self.store.fires(schedule.schedule_id, 0, 100_000)))

    async def outcomes(self, schedule: Schedule) -> list[tuple[FireStatus, str | None]]:
        return [(fire.status, fire.error) for fire in await self.fires(schedule)]

    async def is_waiting(self) -> bool:
        """Whether the newest session waits for its user."""
        page = await self.world.store.page(ANN, None, 1)
        return bool(page) and page[0].status() == "waiting"

    async def said(self, fire: Fire) -> list[str]:
        """The session of a fire, in short."""
        assert fire.session_id is not None
        return texts(messages_of(await self.world.events(fire.session_id)))


def plan(**fields: Any) -> Schedule:
    given: dict[str, Any] = {
        "schedule_id": ScheduleId(""),
        "user": ANN,
        "title": "Report",
        "prompt": "write it",
        "cron": "0 9 * * *",
        "time_zone": "UTC",
        "created_at": NINE,
        "updated_at": NINE,
    }
    return Schedule(**{**given, **fields})


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what no event tells of."""
    async with asyncio.timeout(DEADLINE_S):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.fixture
async def planned() -> AsyncIterator[Planned]:
    async with world_over(SimulatedLog()) as world:
        planned = Planned(world, SimulatedSchedules())
        await planned.start()
        yield planned
        await planned.book.close()


# --- a fire -----------------------------------------------------------------------------------------------------------


async def test_at_its_time_a_prompt_is_sent_in_a_session_of_its_own(planned: Planned) -> None:
    schedule = await planned.daily(model="m")
    assert schedule.next_at == NINE
    await planned.at(NINE - timedelta(seconds=1))
    assert await planned.fires(schedule) == []
    await planned.at(NINE)
    await planned.quiet()
    (fire,) = await planned.fires(schedule)
    assert (fire.status, fire.error, fire.due_at, fire.started_at, fire.finished_at) == (
        "completed", None, NINE, NINE, NINE
    )  # fmt: skip
    assert await planned.said(fire) == ["write it", "You said: write it"]
    live = await planned.engine.found(ANN, str(fire.session_id))
    settings = live.state.settings
    assert (settings.title, settings.model, settings.mode, settings.tools, settings.memory_enabled) == (
        "Report", "m", "executing", "all", True
    )  # fmt: skip
    moved = planned.book.get(ANN, schedule.schedule_id)
    assert (moved.next_at, moved.last_at) == (NINE + DAY, NINE)


async def test_a_time_is_kept_once_however_often_it_is_looked_at(planned: Planned) -> None:
    schedule = await planned.daily()
    for _ in range(3):
        await planned.at(NINE)
    await asyncio.gather(*(planned.book.tick() for _ in range(5)))
    await planned.quiet()
    assert await planned.outcomes(schedule) == [("completed", None)]


async def test_a_time_that_another_server_claimed_is_not_kept_again(planned: Planned) -> None:
    schedule = await planned.daily()
    other = ScheduleBook(planned.store, planned.engine, planned.world.clock, planned.world.ids)
    await other.start(by_itself=False)
    await planned.at(NINE)
    await other.tick()
    await planned.quiet()
    assert other._playing == {}
    assert await planned.outcomes(schedule) == [("completed", None)]


async def test_a_run_that_fails_fails_its_fire_and_the_next_is_kept(planned: Planned) -> None:
    async def breaks(_: object) -> None:
        raise RuntimeError("a secret")

    planned.world.scripts["write it"] = [[breaks]]
    schedule = await planned.daily()
    for day in range(2):
        await planned.at(NINE + day * DAY)
        await planned.quiet()
    assert await planned.outcomes(schedule) == [("failed", "The agent failed")] * 2


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("what", ["stop_run", "delete"])
async def test_a_run_that_is_stopped_or_deleted_fails_its_fire(planned: Planned, what: str, waits: bool) -> None:
    gate = Gate()
    planned.world.scripts["write it"] = [[ask("tea") if waits else gate]]
    schedule = await planned.daily()
    await planned.at(NINE)
    await (until(planned.is_waiting) if waits else gate.entered.wait())
    (fire,) = await planned.fires(schedule)
    live = await planned.engine.found(ANN, str(fire.session_id))
    await getattr(planned.engine, what)(live)
    await planned.quiet()
    ((status, error),) = await planned.outcomes(schedule)
    assert (status, error in ("The run was stopped", GIVEN_UP, GONE)) == ("failed", True)


async def test_a_prompt_that_the_agent_does_not_take_fails_with_the_reason(planned: Planned) -> None:
    schedule = await planned.daily()
    planned.engine.default_agent = "nobody"
    await planned.at(NINE)
    await planned.quiet()
    ((status, error),) = await planned.outcomes(schedule)
    assert (status, str(error).startswith(f"{NOT_STARTED}: ")) == ("failed", True)


@requirement("faults:51:overlap")
@requirement("blade:schedules:overlap")
async def test_while_a_fire_is_under_way_the_next_is_skipped(planned: Planned) -> None:
    gate = Gate()
    planned.world.scripts["write it"] = [[gate]]
    schedule = await planned.daily()
    await planned.at(NINE)
    await gate.entered.wait()
    await planned.at(NINE + DAY)
    gate.opened.set()
    await planned.quiet()
    await planned.at(NINE + 2 * DAY)
    await planned.quiet()
    assert await planned.outcomes(schedule) == [("completed", None), ("failed", SKIPPED), ("completed", None)]
    skipped = (await planned.fires(schedule))[1]
    assert (skipped.session_id, skipped.finished_at) == (None, NINE + DAY)
    assert planned.book.get(ANN, schedule.schedule_id).last_at == NINE + 2 * DAY


def counted(outcome: str) -> float:
    """How often a fire became that, by the metrics."""
    found = re.search(
        rf'^dragoman_schedule_fires_total{{outcome="{outcome}"}} (\S+)$', exposition().decode(), re.MULTILINE
    )
    return float(found[1]) if found else 0.0


async def test_the_metrics_count_what_becomes_of_fires(planned: Planned) -> None:
    gate = Gate()
    planned.world.scripts["write it"] = [[gate]]
    outcomes = ("completed", "failed", "skipped", "missed")
    before = {each: counted(each) for each in outcomes}
    schedule = await planned.daily()
    await planned.at(NINE)
    await gate.entered.wait()
    await planned.at(NINE + DAY)
    gate.opened.set()
    await planned.quiet()
    await planned.at(NINE + 2 * DAY + 5 * MINUTE)
    planned.world.scripts["write it"] = [[End("error")]]
    await planned.at(NINE + 3 * DAY)
    await planned.quiet()
    assert len(await planned.fires(schedule)) == 4
    assert {each: counted(each) - before[each] for each in outcomes} == dict.fromkeys(outcomes, 1.0)


async def test_of_many_that_are_due_at_once_a_few_run_and_what_waits_for_its_user_holds_up_nobody(
    planned: Planned,
) -> None:
    gates = [Gate() for _ in range(4)]
    for place, gate in enumerate(gates):
        planned.world.scripts[f"gate {place}"] = [[gate]]
    planned.world.scripts["question"] = [[ask("tea")]]
    await planned.book.close()
    book = planned.book = ScheduleBook(planned.store, planned.engine, planned.world.clock, planned.world.ids, at_once=2)
    await book.start(by_itself=False)
    asking = await planned.daily(prompt="question")
    made = [await planned.daily(prompt=f"gate {place}") for place in range(4)]
    await planned.at(NINE)
    for place, gate in enumerate(gates):
        async with asyncio.timeout(DEADLINE_S):
            await gate.entered.wait()
        assert sum(each.entered.is_set() and not each.opened.is_set() for each in gates) <= 2
        if place:
            gates[place - 1].opened.set()
    gates[-1].opened.set()

    async def are_kept() -> bool:
        return [await planned.outcomes(each) for each in made] == [[("completed", None)]] * 4

    await until(are_kept)
    assert await planned.outcomes(asking) == [("running", None)]


# --- questions --------------------------------------------------------------------------------------------------------


@requirement("blade:schedules:waits")
async def test_a_fire_waits_for_its_user_and_ends_with_the_answer(planned: Planned) -> None:
    planned.world.scripts["write it"] = [[ask("tea", "coffee")], ["thanks"]]
    schedule = await planned.daily()
    await planned.at(NINE)
    (fire,) = await planned.fires(schedule)
    await until(planned.is_waiting)
    assert await planned.outcomes(schedule) == [("running", None)]
    live = await planned.engine.found(ANN, str(fire.session_id))
    (call,) = live.state.waiting()
    await planned.engine.submit(live, answers(Choice(call_id=call.call.call_id, selections={"0": [0]})), by=ANN)
    await planned.quiet()
    assert await planned.outcomes(schedule) == [("completed", None)]
    assert (await planned.said(fire))[-1] == "thanks"


@requirement("blade:schedules:waits")
async def test_who_never_answers_fails_the_fire_after_a_day(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    planned.world.scripts["write it"] = [[ask("tea")]]
    schedule = await planned.daily()
    await planned.at(NINE)
    planned.world.clock.at = NINE + DAY
    await planned.quiet()
    assert await planned.outcomes(schedule) == [("failed", NO_ANSWER)]


@requirement("blade:schedules:skips-confirmations")
async def test_with_confirmations_skipped_permissions_are_given_and_questions_get_no_answer(planned: Planned) -> None:
    echo = planned.world.echo("act", needs_approval=True)
    planned.world.scripts["write it"] = [
        [Use("act", {"value": 7}), ask("tea"), Use("AskUserQuestion", {})],
        [ask("coffee")],
        ["done"],
    ]
    schedule = await planned.daily(skip_confirmations=True)
    await planned.at(NINE)
    await planned.quiet()
    (fire,) = await planned.fires(schedule)
    assert (fire.status, len(echo.begun)) == ("completed", 1)
    said = await planned.said(fire)
    assert (sum(NO_USER in each for each in said), said[-1]) == (3, "done")


# --- keeping ----------------------------------------------------------------------------------------------------------


async def test_a_change_of_the_times_finds_the_next_anew_and_another_does_not(planned: Planned) -> None:
    schedule = await planned.daily()
    planned.world.clock.move(60)
    renamed = await planned.book.change(ANN, schedule.schedule_id, title="Other")
    assert (renamed.title, renamed.next_at, renamed.updated_at) == ("Other", NINE, planned.world.clock.at)
    moved = await planned.book.change(ANN, schedule.schedule_id, cron="0 10 * * *", time_zone="Asia/Shanghai")
    assert moved.next_at == datetime(2026, 3, 5, 2, tzinfo=UTC)
    assert await planned.book.change(ANN, schedule.schedule_id) == moved
    with pytest.raises(Invalid):
        await planned.book.change(ANN, schedule.schedule_id, cron="whenever")
    assert await planned.store.all() == [moved]


async def test_what_is_stopped_is_not_kept_and_started_again_begins_anew(planned: Planned) -> None:
    schedule = await planned.daily()
    await planned.book.change(ANN, schedule.schedule_id, enabled=False)
    await planned.at(NINE + DAY)
    assert await planned.fires(schedule) == []
    started = await planned.book.change(ANN, schedule.schedule_id, enabled=True)
    assert started.next_at == NINE + 2 * DAY
    await planned.at(NINE + 2 * DAY)
    await planned.quiet()
    assert await planned.outcomes(schedule) == [("completed", None)]


async def test_an_expired_schedule_is_switched_off_at_its_time_and_cannot_be_started(planned: Planned) -> None:
    schedule = await planned.daily(expires_at=NINE + DAY)
    for day in range(2):
        await planned.at(NINE + day * DAY)
        await planned.quiet()
    assert not planned.book.get(ANN, schedule.schedule_id).enabled
    assert await planned.outcomes(schedule) == [("completed", None)]
    with pytest.raises(Conflict):
        await planned.book.change(ANN, schedule.schedule_id, enabled=True)


@requirement("blade:schedules:delete")
async def test_a_removed_schedule_is_gone_and_what_it_started_goes_on(planned: Planned) -> None:
    gate = Gate()
    planned.world.scripts["write it"] = [[gate, "done"]]
    schedule = await planned.daily()
    await planned.at(NINE)
    await gate.entered.wait()
    (fire,) = await planned.fires(schedule)
    await planned.book.remove(ANN, schedule.schedule_id)
    gate.opened.set()
    await planned.quiet()
    assert (await planned.said(fire))[-1] == "done"
    with pytest.raises(NotFound):
        planned.book.get(ANN, schedule.schedule_id)


async def test_nobody_sees_another_users_schedules(planned: Planned) -> None:
    schedule = await planned.daily()
    assert planned.book.of(BOB) == []
    for attempt in (
        planned.book.change(BOB, schedule.schedule_id, title="mine"),
        planned.book.remove(BOB, schedule.schedule_id),
        planned.book.fires(BOB, schedule.schedule_id, 0, 10),
    ):
        with pytest.raises(NotFound):
            await attempt
    assert await planned.book.calendar(BOB, NINE, NINE + DAY) == []


async def test_a_user_has_a_thousand_schedules_at_most(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    await planned.daily()
    await planned.daily()
    with pytest.raises(Conflict):
        await planned.daily()
    await planned.book.create(plan(user=BOB))


async def test_a_calendar_tells_the_first_thousand_times_of_what_is_enabled(planned: Planned) -> None:
    daily, minutely = await planned.daily(), await planned.daily(cron="* * * * *")
    off = await planned.daily()
    await planned.book.change(ANN, off.schedule_id, enabled=False)
    first, second = await planned.book.calendar(ANN, NINE, NINE + 2 * DAY)
    assert (first.schedule, first.times, first.is_cut) == (daily, [NINE, NINE + DAY], False)
    assert (second.schedule, len(second.times), second.times[-1], second.is_cut) == (
        minutely, 1000, NINE + 999 * MINUTE, True
    )  # fmt: skip


# --- servers that come and go -----------------------------------------------------------------------------------------


@requirement("faults:51:missed")
@requirement("blade:schedules:missed")
async def test_a_time_missed_by_less_than_five_minutes_is_kept_and_a_longer_one_noted(planned: Planned) -> None:
    schedule = await planned.daily()
    await planned.stop()
    planned.world.clock.at = NINE + 4 * MINUTE
    await planned.start()
    await planned.book.tick()
    await planned.quiet()
    await planned.stop()
    planned.world.clock.at = NINE + 3 * DAY + 5 * MINUTE
    await planned.start()
    await planned.book.tick()
    assert [(each.due_at, each.status, each.error) for each in await planned.fires(schedule)] == [
        (NINE, "completed", None),
        (NINE + 3 * DAY, "failed", MISSED),
    ]


@requirement("blade:schedules:once")
async def test_a_server_that_died_before_the_session_was_made_has_it_made_by_the_next(planned: Planned) -> None:
    schedule = await planned.daily()
    await planned.at(NINE)
    await planned.kill()  # the claim is durable, its task has not begun
    (fire,) = await planned.fires(schedule)
    assert (fire.status, len(await planned.world.store.page(ANN, None, 10))) == ("running", 0)
    await planned.start()
    await planned.quiet()
    assert await planned.outcomes(schedule) == [("completed", None)]
    assert await planned.said(fire) == ["write it", "You said: write it"]


async def test_a_run_that_a_stop_parked_ends_with_the_next_server(planned: Planned) -> None:
    gate = Gate()
    planned.world.scripts["write it"] = [[gate, "done"]]
    schedule = await planned.daily()
    await planned.at(NINE)
    await gate.entered.wait()
    await planned.stop()
    gate.opened.set()
    await planned.start()
    await planned.quiet()
    assert await planned.outcomes(schedule) == [("completed", None)]


async def test_a_server_that_stops_keeps_no_time(planned: Planned) -> None:
    schedule = await planned.daily()
    await planned.engine.drain(0)
    await planned.at(NINE)
    assert await planned.fires(schedule) == []


async def test_a_store_that_fails_is_asked_again(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    failures = [StoreUnavailable("full")] * 3
    settle = planned.store.settle

    async def failing(fire: Fire) -> None:
        if failures:
            raise failures.pop()
        await settle(fire)

    monkeypatch.setattr(planned.store, "settle", failing)
    schedule = await planned.daily()
    await planned.at(NINE)
    await planned.quiet()
    assert await planned.outcomes(schedule) == [("completed", None)]
    assert len(await planned.said((await planned.fires(schedule))[0])) == 2


async def test_times_are_kept_by_themselves(planned: Planned) -> None:
    """The worker sleeps until the next time, and looks anew when a schedule changes."""
    await planned.book.close()
    await planned.book.start()
    await asyncio.sleep(0)
    planned.world.clock.at = NINE - timedelta(milliseconds=20)
    schedule = await planned.daily()
    planned.world.clock.at = NINE

    async def is_kept() -> bool:
        return await planned.outcomes(schedule) == [("completed", None)]

    await until(is_kept)


async def test_a_fault_does_not_end_the_keeping_of_times(planned: Planned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    faults = [RuntimeError("a slip of ours")]
    claim = planned.store.claim

    async def failing(schedule: Schedule, fire: Fire) -> bool:
        if faults:
            raise faults.pop()
        return await claim(schedule, fire)

    monkeypatch.setattr(planned.store, "claim", failing)
    schedule = await planned.daily()
    planned.world.clock.at = NINE
    await planned.book.close()
    await planned.book.start()

    async def is_kept() -> bool:
        return await planned.outcomes(schedule) == [("completed", None)]

    await until(is_kept)


# --- a year -----------------------------------------------------------------------------------------------------------

YEAR = datetime(2027, 1, 1, tzinfo=UTC)
PLANS = (
    ("America/New_York", "30 2 * * *"),
    ("Europe/Berlin", "0 9 * * mon-fri"),
    ("Africa/Cairo", "15 0 * * *"),  # its clock jumps at midnight
    ("Australia/Lord_Howe", "0 */6 * * *"),
    ("Asia/Shanghai", "45 23 * * *"),
    ("Africa/Cairo", "30 * 29,30 4,10 *"),
)


def expected(zone: str, cron: str) -> list[datetime]:
    """The times of the year by another way than the code's: every minute is asked what the clock on the wall shows."""
    where, found, kept = ZoneInfo(zone), [], set()
    minute, hour, days, months, weekdays = cron.split()
    for number in range(365 * 24 * 60):
        now = YEAR + number * MINUTE
        wall = now.astimezone(where)
        fits = (
            (months == "*" or str(wall.month) in months.split(","))
            and (days == "*" or str(wall.day) in days.split(","))
            and (weekdays == "*" or wall.isoweekday() <= 5)
        )
        if hour.startswith("*"):
            step = int(hour[2:] or 1)
            if fits and wall.minute == int(minute) and wall.hour % step == 0:
                found.append(now)
        elif fits and wall.date() not in kept and (wall.hour, wall.minute) >= (int(hour), int(minute)):
            kept.add(wall.date())
            if number:
                found.append(now)
    return found


@requirement("faults:51:year")
@requirement("blade:schedules:year")
async def test_a_year_in_five_zones_with_100_restarts_misses_nothing_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of the restarts are kills, right after a claim or between two times; no server is away for five minutes."""
    monkeypatch.setattr(sqlite_schedules, "KEPT_FIRES", 10_000)
    chance = Random(2027)
    database = Database(tmp_path, synchronous="normal")
    database.start()
    try:
        async with world_over(SimulatedLog()) as world:
            world.clock.at = YEAR
            planned = Planned(world, SqliteSchedules(database))
            await planned.start()
            made = [await planned.book.create(plan(time_zone=zone, cron=cron)) for zone, cron in PLANS]
            times = {each.schedule_id: expected(*PLANS[place]) for place, each in enumerate(made)}
            moments = sorted({when for each in times.values() for when in each})
            restarts = set(chance.sample(range(len(moments)), 100))
            for place, moment in enumerate(moments):
                away = chance.uniform(0, 299) if place in restarts else 0.0
                if place in restarts and chance.random() < 0.5:  # away while it comes due
                    world.clock.at = moment - timedelta(seconds=away / 2)
                    await (planned.stop() if chance.random() < 0.5 else planned.kill())
                    world.clock.at = moment + timedelta(seconds=away / 2)
                    await planned.start()
                    await planned.book.tick()
                elif place in restarts:  # dies right after the claim
                    await planned.at(moment)
                    await planned.kill()
                    world.clock.move(away)
                    await planned.start()
                else:
                    await planned.at(moment)
                await planned.quiet()
            world.clock.at = YEAR + 365 * DAY - MINUTE
            await planned.book.tick()
            await planned.quiet()
            for each in made:
                fires = await planned.fires(each)
                assert [fire.due_at for fire in fires] == times[each.schedule_id]
                assert {(fire.status, fire.error) for fire in fires} == {("completed", None)}
            sessions = await world.store.page(ANN, None, 100_000)
            runs = Counter(state.messages for state in sessions)
            assert runs == {2: sum(len(each) for each in times.values())}
            await planned.book.close()
            for engine in tuple(world.engines):
                await world.stop(engine)
    finally:
        database.close()
