"""The scheduler: each due time fires once, whatever happens to the server; results, and answers to calls."""

# Large: one test for each row of the tables in docs/schedules.md, with a simulated year.

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

from dragoman.core.events import RunStarted, SessionCreated
from dragoman.core.history import messages_of
from dragoman.core.ids import SessionId, UserId
from dragoman.core.inputs import Choice
from dragoman.core.refusals import Conflict, Invalid, NotFound, StoreUnavailable
from dragoman.core.schedules import (
    INTERNAL_ERROR,
    MISSED,
    NO_ANSWER,
    NOT_STARTED,
    SESSION_DELETED,
    SKIPPED,
    STOPPED_WHILE_WAITING,
    Fire,
    FireStatus,
    Schedule,
    ScheduleId,
)
from dragoman.engine import scheduler as module
from dragoman.engine.instrumentation.metrics import exposition
from dragoman.engine.scheduler import NO_USER_ANSWER, NOT_REPEATED, Scheduler
from dragoman.ports.accounts import ScheduleStore
from dragoman.ports.log import Snapshot
from dragoman.stores.sqlite import schedules as sqlite_schedules
from dragoman.stores.sqlite.database import Database
from dragoman.stores.sqlite.schedules import SqliteSchedules
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.world import (
    ANN,
    DEADLINE_S,
    CallTool,
    End,
    PauseGate,
    World,
    answer_request,
    ask_user,
    open_session,
    running_world,
    send,
    texts,
    wait_for_end,
)
from tests.requirements import requirement
from tests.stores.simulated import SimulatedLog
from tests.stores.simulated_schedules import SimulatedSchedules

BOB = UserId("bob")
NINE = datetime(2026, 3, 4, 9, tzinfo=UTC)
"""The first nine o'clock after the world's clock."""
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


class SchedulerFixture:
    """A world with a scheduler. The clock stands still, and the test decides when due times are checked."""

    def __init__(self, world: World, store: ScheduleStore) -> None:
        self.world = world
        self.store = store
        self.engine: EngineUnderTest
        self.schedules: Scheduler

    async def start(self, *, max_runs_per_user: int = 0, **options: Any) -> None:
        self.engine = await self.world.start(max_runs_per_user=max_runs_per_user)
        self.schedules = Scheduler(self.store, self.engine, self.world.clock, self.world.ids, **options)
        await self.schedules.start(run_timer=False)

    async def stop(self) -> None:
        """Stop gracefully: runs are parked."""
        await self.world.stop(self.engine)
        await self.schedules.close()

    async def kill(self) -> None:
        """Die as by SIGKILL."""
        await self.schedules.close()
        await self.world.kill(self.engine)

    async def advance_to(self, when: datetime) -> None:
        """Set the clock, and start what is due."""
        self.world.clock.at = when
        async with asyncio.timeout(DEADLINE_S):
            await self.schedules.tick()

    async def wait_until_idle(self) -> None:
        """Wait until no fire is running."""
        async with asyncio.timeout(DEADLINE_S):
            while self.schedules.fire_tasks:
                await asyncio.wait(set(self.schedules.fire_tasks))

    async def daily(self, **fields: Any) -> Schedule:
        """A new schedule, due every day at nine."""
        return await self.schedules.create(schedule_plan(**fields))

    async def fires(self, schedule: Schedule) -> list[Fire]:
        """Oldest first."""
        return list(reversed(await self.store.fires(schedule.schedule_id, 0, 100_000)))

    async def outcomes(self, schedule: Schedule) -> list[tuple[FireStatus, str | None]]:
        return [(fire.status, fire.error) for fire in await self.fires(schedule)]

    async def is_waiting(self) -> bool:
        """Whether the newest session waits for its user."""
        page = await self.world.store.page(ANN, None, 1)
        return bool(page) and page[0].status() == "waiting"

    async def session_summary(self, fire: Fire) -> list[str]:
        """The texts of a fire's session."""
        assert fire.session_id is not None
        return texts(messages_of(await self.world.events(fire.session_id)))


def schedule_plan(**fields: Any) -> Schedule:
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


async def until(predicate: Callable[[], Awaitable[bool]]) -> None:
    """Poll until a condition is true that no event announces."""
    async with asyncio.timeout(DEADLINE_S):
        while not await predicate():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@pytest.fixture
async def scheduler_fixture() -> AsyncIterator[SchedulerFixture]:
    async with running_world(SimulatedLog()) as world:
        planned = SchedulerFixture(world, SimulatedSchedules())
        await planned.start()
        yield planned
        await planned.schedules.close()


# --- a fire -----------------------------------------------------------------------------------------------------------


async def test_at_its_time_a_prompt_is_sent_in_a_session_of_its_own(scheduler_fixture: SchedulerFixture) -> None:
    schedule = await scheduler_fixture.daily(model="m")
    assert schedule.next_at == NINE
    await scheduler_fixture.advance_to(NINE - timedelta(seconds=1))
    assert await scheduler_fixture.fires(schedule) == []
    await scheduler_fixture.advance_to(NINE)
    await scheduler_fixture.wait_until_idle()
    (fire,) = await scheduler_fixture.fires(schedule)
    assert (fire.status, fire.error, fire.due_at, fire.started_at, fire.finished_at) == (
        "completed", None, NINE, NINE, NINE
    )  # fmt: skip
    assert await scheduler_fixture.session_summary(fire) == ["write it", "You said: write it"]
    live = await scheduler_fixture.engine.find_session(ANN, str(fire.session_id))
    settings = live.state.settings
    assert (settings.title, settings.model, settings.mode, settings.tools, settings.memory_enabled) == (
        "Report", "m", "executing", "all", True
    )  # fmt: skip
    events = [logged.event for logged in await scheduler_fixture.world.events(live.state.session_id)]
    protocols = [event.protocol for event in events if isinstance(event, SessionCreated | RunStarted)]
    assert protocols == ["scheduler", "scheduler"]
    moved = scheduler_fixture.schedules.get(ANN, schedule.schedule_id)
    assert (moved.next_at, moved.last_at) == (NINE + DAY, NINE)


async def test_a_due_time_fires_once_however_often_it_is_checked(scheduler_fixture: SchedulerFixture) -> None:
    schedule = await scheduler_fixture.daily()
    for _ in range(3):
        await scheduler_fixture.advance_to(NINE)
    await asyncio.gather(*(scheduler_fixture.schedules.tick() for _ in range(5)))
    await scheduler_fixture.wait_until_idle()
    assert await scheduler_fixture.outcomes(schedule) == [("completed", None)]


async def test_a_due_time_that_another_server_claimed_does_not_fire_again(scheduler_fixture: SchedulerFixture) -> None:
    schedule = await scheduler_fixture.daily()
    other = Scheduler(
        scheduler_fixture.store,
        scheduler_fixture.engine,
        scheduler_fixture.world.clock,
        scheduler_fixture.world.ids,
    )
    await other.start(run_timer=False)
    await scheduler_fixture.advance_to(NINE)
    await other.tick()
    await scheduler_fixture.wait_until_idle()
    assert other.fire_tasks == {}
    assert await scheduler_fixture.outcomes(schedule) == [("completed", None)]


async def test_a_start_beyond_the_users_limit_of_runs_fails_its_fire_and_leaves_no_session() -> None:
    async with running_world(SimulatedLog()) as world:
        planned = SchedulerFixture(world, SimulatedSchedules())
        await planned.start(max_runs_per_user=1)
        gate = world.pausing_tool("gate")
        world.scripts["slow"] = [[CallTool("gate")]]
        live = await open_session(planned.engine)
        await send(planned.engine, live, "slow")
        schedule = await planned.daily()
        await planned.advance_to(NINE)
        await planned.wait_until_idle()
        refusal = f"{NOT_STARTED}: too many runs at the same time: at most 1"
        assert await planned.outcomes(schedule) == [("failed", refusal)]
        assert [each.session_id for each in await world.store.page(ANN, None, 10)] == [live.state.session_id]
        gate.opened.set()
        await wait_for_end(live)
        await planned.advance_to(NINE + DAY)
        await planned.wait_until_idle()
        assert (await planned.outcomes(schedule))[-1] == ("completed", None)
        await planned.schedules.close()


async def test_a_run_that_fails_fails_its_fire_and_the_next_is_kept(scheduler_fixture: SchedulerFixture) -> None:
    async def breaks(_: object) -> None:
        raise RuntimeError("a secret")

    scheduler_fixture.world.scripts["write it"] = [[breaks]]
    schedule = await scheduler_fixture.daily()
    for day in range(2):
        await scheduler_fixture.advance_to(NINE + day * DAY)
        await scheduler_fixture.wait_until_idle()
    assert await scheduler_fixture.outcomes(schedule) == [("failed", "The agent failed")] * 2


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("what", ["stop_run", "delete"])
async def test_a_run_that_is_stopped_or_deleted_fails_its_fire(
    scheduler_fixture: SchedulerFixture, what: str, waits: bool
) -> None:
    gate = PauseGate()
    scheduler_fixture.world.scripts["write it"] = [[ask_user("tea") if waits else gate]]
    schedule = await scheduler_fixture.daily()
    await scheduler_fixture.advance_to(NINE)
    await (until(scheduler_fixture.is_waiting) if waits else gate.entered.wait())
    (fire,) = await scheduler_fixture.fires(schedule)
    live = await scheduler_fixture.engine.find_session(ANN, str(fire.session_id))
    await getattr(scheduler_fixture.engine, what)(live)
    await scheduler_fixture.wait_until_idle()
    ((status, error),) = await scheduler_fixture.outcomes(schedule)
    assert (status, error in ("The run was stopped", STOPPED_WHILE_WAITING, SESSION_DELETED)) == ("failed", True)


async def test_a_prompt_that_the_agent_refuses_fails_with_the_reason(scheduler_fixture: SchedulerFixture) -> None:
    schedule = await scheduler_fixture.daily()
    scheduler_fixture.engine.default_agent = "nobody"
    await scheduler_fixture.advance_to(NINE)
    await scheduler_fixture.wait_until_idle()
    ((status, error),) = await scheduler_fixture.outcomes(schedule)
    assert (status, str(error).startswith(f"{NOT_STARTED}: ")) == ("failed", True)


@requirement("faults:51:overlap")
@requirement("blade:schedules:overlap")
async def test_while_a_fire_is_running_the_next_is_skipped(scheduler_fixture: SchedulerFixture) -> None:
    gate = PauseGate()
    scheduler_fixture.world.scripts["write it"] = [[gate]]
    schedule = await scheduler_fixture.daily()
    await scheduler_fixture.advance_to(NINE)
    await gate.entered.wait()
    await scheduler_fixture.advance_to(NINE + DAY)
    gate.opened.set()
    await scheduler_fixture.wait_until_idle()
    await scheduler_fixture.advance_to(NINE + 2 * DAY)
    await scheduler_fixture.wait_until_idle()
    assert await scheduler_fixture.outcomes(schedule) == [("completed", None), ("failed", SKIPPED), ("completed", None)]
    skipped = (await scheduler_fixture.fires(schedule))[1]
    assert (skipped.session_id, skipped.finished_at) == (None, NINE + DAY)
    assert scheduler_fixture.schedules.get(ANN, schedule.schedule_id).last_at == NINE + 2 * DAY


def fire_count(outcome: str) -> float:
    """The number of fires with that outcome, by the metrics."""
    found = re.search(
        rf'^dragoman_schedule_fires_total{{outcome="{outcome}"}} (\S+)$', exposition().decode(), re.MULTILINE
    )
    return float(found[1]) if found else 0.0


async def test_the_metrics_count_the_results_of_fires(scheduler_fixture: SchedulerFixture) -> None:
    gate = PauseGate()
    scheduler_fixture.world.scripts["write it"] = [[gate]]
    outcomes = ("completed", "failed", "skipped", "missed")
    before = {each: fire_count(each) for each in outcomes}
    schedule = await scheduler_fixture.daily()
    await scheduler_fixture.advance_to(NINE)
    await gate.entered.wait()
    await scheduler_fixture.advance_to(NINE + DAY)
    gate.opened.set()
    await scheduler_fixture.wait_until_idle()
    await scheduler_fixture.advance_to(NINE + 2 * DAY + 5 * MINUTE)
    scheduler_fixture.world.scripts["write it"] = [[End("error")]]
    await scheduler_fixture.advance_to(NINE + 3 * DAY)
    await scheduler_fixture.wait_until_idle()
    assert len(await scheduler_fixture.fires(schedule)) == 4
    assert {each: fire_count(each) - before[each] for each in outcomes} == dict.fromkeys(outcomes, 1.0)


async def test_of_many_that_are_due_at_once_a_few_run_and_what_waits_for_its_user_blocks_nobody(
    scheduler_fixture: SchedulerFixture,
) -> None:
    gates = [PauseGate() for _ in range(4)]
    for place, gate in enumerate(gates):
        scheduler_fixture.world.scripts[f"gate {place}"] = [[gate]]
    scheduler_fixture.world.scripts["question"] = [[ask_user("tea")]]
    await scheduler_fixture.schedules.close()
    book = scheduler_fixture.schedules = Scheduler(
        scheduler_fixture.store,
        scheduler_fixture.engine,
        scheduler_fixture.world.clock,
        scheduler_fixture.world.ids,
        max_concurrent_fires=2,
    )
    await book.start(run_timer=False)
    asking = await scheduler_fixture.daily(prompt="question")
    made = [await scheduler_fixture.daily(prompt=f"gate {place}") for place in range(4)]
    await scheduler_fixture.advance_to(NINE)
    for place, gate in enumerate(gates):
        async with asyncio.timeout(DEADLINE_S):
            await gate.entered.wait()
        assert sum(each.entered.is_set() and not each.opened.is_set() for each in gates) <= 2
        if place:
            gates[place - 1].opened.set()
    gates[-1].opened.set()

    async def are_kept() -> bool:
        return [await scheduler_fixture.outcomes(each) for each in made] == [[("completed", None)]] * 4

    await until(are_kept)
    assert await scheduler_fixture.outcomes(asking) == [("running", None)]


# --- questions --------------------------------------------------------------------------------------------------------


@requirement("blade:schedules:waits")
async def test_a_fire_waits_for_its_user_and_ends_with_the_answer(scheduler_fixture: SchedulerFixture) -> None:
    scheduler_fixture.world.scripts["write it"] = [[ask_user("tea", "coffee")], ["thanks"]]
    schedule = await scheduler_fixture.daily()
    await scheduler_fixture.advance_to(NINE)
    (fire,) = await scheduler_fixture.fires(schedule)
    await until(scheduler_fixture.is_waiting)
    assert await scheduler_fixture.outcomes(schedule) == [("running", None)]
    live = await scheduler_fixture.engine.find_session(ANN, str(fire.session_id))
    (call,) = live.state.waiting_calls()
    await scheduler_fixture.engine.start_run(
        live, answer_request(Choice(call_id=call.call.call_id, selections={"0": [0]})), by=ANN
    )
    await scheduler_fixture.wait_until_idle()
    assert await scheduler_fixture.outcomes(schedule) == [("completed", None)]
    assert (await scheduler_fixture.session_summary(fire))[-1] == "thanks"


@requirement("blade:schedules:waits")
async def test_a_fire_without_an_answer_fails_after_a_day(
    scheduler_fixture: SchedulerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECK_INTERVAL_S", 0.01)
    scheduler_fixture.world.scripts["write it"] = [[ask_user("tea")]]
    schedule = await scheduler_fixture.daily()
    await scheduler_fixture.advance_to(NINE)
    scheduler_fixture.world.clock.at = NINE + DAY
    await scheduler_fixture.wait_until_idle()
    assert await scheduler_fixture.outcomes(schedule) == [("failed", NO_ANSWER)]


@requirement("blade:schedules:skips-confirmations")
async def test_with_confirmations_skipped_permissions_are_given_and_questions_get_no_answer(
    scheduler_fixture: SchedulerFixture,
) -> None:
    echo = scheduler_fixture.world.echo("act", needs_approval=True)
    scheduler_fixture.world.scripts["write it"] = [
        [CallTool("act", {"value": 7}), ask_user("tea"), CallTool("AskUserQuestion", {})],
        [ask_user("coffee")],
        ["done"],
    ]
    schedule = await scheduler_fixture.daily(skip_confirmations=True)
    await scheduler_fixture.advance_to(NINE)
    await scheduler_fixture.wait_until_idle()
    (fire,) = await scheduler_fixture.fires(schedule)
    assert (fire.status, len(echo.started_calls)) == ("completed", 1)
    said = await scheduler_fixture.session_summary(fire)
    assert (sum(NO_USER_ANSWER in each for each in said), said[-1]) == (3, "done")


async def test_with_confirmations_skipped_a_call_that_a_crash_interrupted_does_not_run_again(
    scheduler_fixture: SchedulerFixture,
) -> None:
    gate = scheduler_fixture.world.pausing_tool("act", on_restart="ask")
    scheduler_fixture.world.scripts["write it"] = [[CallTool("act")], ["done"]]
    schedule = await scheduler_fixture.daily(skip_confirmations=True)
    await scheduler_fixture.advance_to(NINE)
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
    await scheduler_fixture.kill()
    await scheduler_fixture.start()
    await scheduler_fixture.wait_until_idle()
    (fire,) = await scheduler_fixture.fires(schedule)
    assert (fire.status, gate.entered.is_set()) == ("completed", True)
    assert scheduler_fixture.world.tools["act"].max_starts_per_call == 1
    assert f"Tool call denied: {NOT_REPEATED}" in await scheduler_fixture.session_summary(fire)


# --- keeping ----------------------------------------------------------------------------------------------------------


async def test_only_a_change_of_the_times_computes_the_next_one_again(
    scheduler_fixture: SchedulerFixture,
) -> None:
    schedule = await scheduler_fixture.daily()
    scheduler_fixture.world.clock.move(60)
    renamed = await scheduler_fixture.schedules.change(ANN, schedule.schedule_id, title="Other")
    assert (renamed.title, renamed.next_at, renamed.updated_at) == ("Other", NINE, scheduler_fixture.world.clock.at)
    moved = await scheduler_fixture.schedules.change(
        ANN, schedule.schedule_id, cron="0 10 * * *", time_zone="Asia/Shanghai"
    )
    assert moved.next_at == datetime(2026, 3, 5, 2, tzinfo=UTC)
    assert await scheduler_fixture.schedules.change(ANN, schedule.schedule_id) == moved
    with pytest.raises(Invalid):
        await scheduler_fixture.schedules.change(ANN, schedule.schedule_id, cron="whenever")
    assert await scheduler_fixture.store.all() == [moved]


async def test_a_disabled_schedule_does_not_fire_and_starts_again_when_enabled(
    scheduler_fixture: SchedulerFixture,
) -> None:
    schedule = await scheduler_fixture.daily()
    await scheduler_fixture.schedules.change(ANN, schedule.schedule_id, enabled=False)
    await scheduler_fixture.advance_to(NINE + DAY)
    assert await scheduler_fixture.fires(schedule) == []
    started = await scheduler_fixture.schedules.change(ANN, schedule.schedule_id, enabled=True)
    assert started.next_at == NINE + 2 * DAY
    await scheduler_fixture.advance_to(NINE + 2 * DAY)
    await scheduler_fixture.wait_until_idle()
    assert await scheduler_fixture.outcomes(schedule) == [("completed", None)]


async def test_an_expired_schedule_is_disabled_at_its_time_and_cannot_be_enabled(
    scheduler_fixture: SchedulerFixture,
) -> None:
    schedule = await scheduler_fixture.daily(expires_at=NINE + DAY)
    for day in range(2):
        await scheduler_fixture.advance_to(NINE + day * DAY)
        await scheduler_fixture.wait_until_idle()
    assert not scheduler_fixture.schedules.get(ANN, schedule.schedule_id).enabled
    assert await scheduler_fixture.outcomes(schedule) == [("completed", None)]
    with pytest.raises(Conflict):
        await scheduler_fixture.schedules.change(ANN, schedule.schedule_id, enabled=True)


@requirement("blade:schedules:delete")
async def test_a_removed_schedule_is_gone_and_its_run_continues(scheduler_fixture: SchedulerFixture) -> None:
    gate = PauseGate()
    scheduler_fixture.world.scripts["write it"] = [[gate, "done"]]
    schedule = await scheduler_fixture.daily()
    await scheduler_fixture.advance_to(NINE)
    await gate.entered.wait()
    (fire,) = await scheduler_fixture.fires(schedule)
    await scheduler_fixture.schedules.remove(ANN, schedule.schedule_id)
    gate.opened.set()
    await scheduler_fixture.wait_until_idle()
    assert (await scheduler_fixture.session_summary(fire))[-1] == "done"
    with pytest.raises(NotFound):
        scheduler_fixture.schedules.get(ANN, schedule.schedule_id)


async def test_nobody_sees_another_users_schedules(scheduler_fixture: SchedulerFixture) -> None:
    schedule = await scheduler_fixture.daily()
    assert scheduler_fixture.schedules.for_user(BOB) == []
    for attempt in (
        scheduler_fixture.schedules.change(BOB, schedule.schedule_id, title="mine"),
        scheduler_fixture.schedules.remove(BOB, schedule.schedule_id),
        scheduler_fixture.schedules.fires(BOB, schedule.schedule_id, 0, 10),
    ):
        with pytest.raises(NotFound):
            await attempt
    assert await scheduler_fixture.schedules.calendar(BOB, NINE, NINE + DAY) == []


async def test_a_user_has_a_thousand_schedules_at_most(
    scheduler_fixture: SchedulerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SCHEDULES_PER_USER", 2)
    await scheduler_fixture.daily()
    await scheduler_fixture.daily()
    with pytest.raises(Conflict):
        await scheduler_fixture.daily()
    await scheduler_fixture.schedules.create(schedule_plan(user=BOB))


async def test_a_calendar_reports_the_first_thousand_times_of_what_is_enabled(
    scheduler_fixture: SchedulerFixture,
) -> None:
    daily, minutely = await scheduler_fixture.daily(), await scheduler_fixture.daily(cron="* * * * *")
    off = await scheduler_fixture.daily()
    await scheduler_fixture.schedules.change(ANN, off.schedule_id, enabled=False)
    first, second = await scheduler_fixture.schedules.calendar(ANN, NINE, NINE + 2 * DAY)
    assert (first.schedule, first.times, first.is_truncated) == (daily, [NINE, NINE + DAY], False)
    assert (second.schedule, len(second.times), second.times[-1], second.is_truncated) == (
        minutely, 1000, NINE + 999 * MINUTE, True
    )  # fmt: skip


# --- servers that come and go -----------------------------------------------------------------------------------------


@requirement("faults:51:missed")
@requirement("blade:schedules:missed")
async def test_a_time_missed_by_less_than_five_minutes_fires_and_a_later_one_is_recorded_as_missed(
    scheduler_fixture: SchedulerFixture,
) -> None:
    schedule = await scheduler_fixture.daily()
    await scheduler_fixture.stop()
    scheduler_fixture.world.clock.at = NINE + 4 * MINUTE
    await scheduler_fixture.start()
    await scheduler_fixture.schedules.tick()
    await scheduler_fixture.wait_until_idle()
    await scheduler_fixture.stop()
    scheduler_fixture.world.clock.at = NINE + 3 * DAY + 5 * MINUTE
    await scheduler_fixture.start()
    await scheduler_fixture.schedules.tick()
    assert [(each.due_at, each.status, each.error) for each in await scheduler_fixture.fires(schedule)] == [
        (NINE, "completed", None),
        (NINE + 3 * DAY, "failed", MISSED),
    ]


@requirement("blade:schedules:once")
async def test_a_session_that_a_crash_prevented_is_created_by_the_next_server(
    scheduler_fixture: SchedulerFixture,
) -> None:
    schedule = await scheduler_fixture.daily()
    await scheduler_fixture.advance_to(NINE)
    await scheduler_fixture.kill()  # the claim is durable, its task has not begun
    (fire,) = await scheduler_fixture.fires(schedule)
    assert (fire.status, len(await scheduler_fixture.world.store.page(ANN, None, 10))) == ("running", 0)
    await scheduler_fixture.start()
    await scheduler_fixture.wait_until_idle()
    assert await scheduler_fixture.outcomes(schedule) == [("completed", None)]
    assert await scheduler_fixture.session_summary(fire) == ["write it", "You said: write it"]


async def test_a_parked_run_of_a_fire_ends_on_the_next_server(scheduler_fixture: SchedulerFixture) -> None:
    gate = PauseGate()
    scheduler_fixture.world.scripts["write it"] = [[gate, "done"]]
    schedule = await scheduler_fixture.daily()
    await scheduler_fixture.advance_to(NINE)
    await gate.entered.wait()
    await scheduler_fixture.stop()
    gate.opened.set()
    await scheduler_fixture.start()
    await scheduler_fixture.wait_until_idle()
    assert await scheduler_fixture.outcomes(schedule) == [("completed", None)]


async def test_a_stopping_server_fires_nothing(scheduler_fixture: SchedulerFixture) -> None:
    schedule = await scheduler_fixture.daily()
    await scheduler_fixture.engine.drain(0)
    await scheduler_fixture.advance_to(NINE)
    assert await scheduler_fixture.fires(schedule) == []


async def test_a_failing_store_is_retried(scheduler_fixture: SchedulerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_DELAY_S", 0.0)
    failures = [StoreUnavailable("full")] * 3
    settle = scheduler_fixture.store.update_fire

    async def failing(fire: Fire) -> None:
        if failures:
            raise failures.pop()
        await settle(fire)

    monkeypatch.setattr(scheduler_fixture.store, "update_fire", failing)
    schedule = await scheduler_fixture.daily()
    await scheduler_fixture.advance_to(NINE)
    await scheduler_fixture.wait_until_idle()
    assert await scheduler_fixture.outcomes(schedule) == [("completed", None)]
    assert len(await scheduler_fixture.session_summary((await scheduler_fixture.fires(schedule))[0])) == 2


async def test_an_unexpected_error_ends_its_fire_and_the_next_time_fires(
    scheduler_fixture: SchedulerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [RuntimeError("a slip of ours")]
    load = scheduler_fixture.world.store.load

    async def failing(session_id: SessionId) -> Snapshot | None:
        if faults:
            raise faults.pop()
        return await load(session_id)

    monkeypatch.setattr(scheduler_fixture.world.store, "load", failing)
    schedule = await scheduler_fixture.daily()
    await scheduler_fixture.advance_to(NINE)
    await scheduler_fixture.wait_until_idle()
    assert await scheduler_fixture.outcomes(schedule) == [("failed", INTERNAL_ERROR)]
    await scheduler_fixture.advance_to(NINE + DAY)
    await scheduler_fixture.wait_until_idle()
    assert await scheduler_fixture.outcomes(schedule) == [("failed", INTERNAL_ERROR), ("completed", None)]


async def test_the_timer_fires_due_times(scheduler_fixture: SchedulerFixture) -> None:
    """The worker sleeps until the next time, and looks anew when a schedule changes."""
    await scheduler_fixture.schedules.close()
    await scheduler_fixture.schedules.start()
    await asyncio.sleep(0)
    scheduler_fixture.world.clock.at = NINE - timedelta(milliseconds=20)
    schedule = await scheduler_fixture.daily()
    scheduler_fixture.world.clock.at = NINE

    async def is_kept() -> bool:
        return await scheduler_fixture.outcomes(schedule) == [("completed", None)]

    await until(is_kept)


async def test_a_failure_does_not_end_the_timer(
    scheduler_fixture: SchedulerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_DELAY_S", 0.0)
    faults = [RuntimeError("a slip of ours")]
    claim = scheduler_fixture.store.claim_fire

    async def failing(schedule: Schedule, fire: Fire) -> bool:
        if faults:
            raise faults.pop()
        return await claim(schedule, fire)

    monkeypatch.setattr(scheduler_fixture.store, "claim_fire", failing)
    schedule = await scheduler_fixture.daily()
    scheduler_fixture.world.clock.at = NINE
    await scheduler_fixture.schedules.close()
    await scheduler_fixture.schedules.start()

    async def is_kept() -> bool:
        return await scheduler_fixture.outcomes(schedule) == [("completed", None)]

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
    """The times of the year by another way than the code's: every quarter-hour is compared with the local time.

    The minutes of all expressions and the offsets of all time zones are multiples of 15 minutes.
    """
    where, found, matched_days = ZoneInfo(zone), [], set()
    minute, hour, days, months, weekdays = cron.split()
    for number in range(0, 365 * 24 * 60, 15):
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
        elif fits and wall.date() not in matched_days and (wall.hour, wall.minute) >= (int(hour), int(minute)):
            matched_days.add(wall.date())
            if number:
                found.append(now)
    return found


@requirement("faults:51:year")
@requirement("blade:schedules:year")
async def test_a_year_in_five_zones_with_100_restarts_misses_and_duplicates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of the restarts are kills, right after a claim or between two times; no server is away for five minutes."""
    monkeypatch.setattr(sqlite_schedules, "MAX_FIRES_PER_SCHEDULE", 10_000)
    chance = Random(2027)
    database = Database(tmp_path, synchronous="normal")
    database.start()
    try:
        async with running_world(SimulatedLog()) as world:
            world.clock.at = YEAR
            planned = SchedulerFixture(world, SqliteSchedules(database))
            await planned.start()
            made = [await planned.schedules.create(schedule_plan(time_zone=zone, cron=cron)) for zone, cron in PLANS]
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
                    await planned.schedules.tick()
                elif place in restarts:  # dies right after the claim
                    await planned.advance_to(moment)
                    await planned.kill()
                    world.clock.move(away)
                    await planned.start()
                else:
                    await planned.advance_to(moment)
                await planned.wait_until_idle()
            world.clock.at = YEAR + 365 * DAY - MINUTE
            await planned.schedules.tick()
            await planned.wait_until_idle()
            for each in made:
                fires = await planned.fires(each)
                assert [fire.due_at for fire in fires] == times[each.schedule_id]
                assert {(fire.status, fire.error) for fire in fires} == {("completed", None)}
            sessions = await world.store.page(ANN, None, 100_000)
            runs = Counter(state.message_count for state in sessions)
            assert runs == {2: sum(len(each) for each in times.values())}
            await planned.schedules.close()
            for engine in tuple(world.engines):
                await world.stop(engine)
    finally:
        database.close()
