"""Schedules that agents declare: they are in the store as they are in the code, and each time fires once."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dragoman import Agent, Run, ScheduledPrompt, agent
from dragoman.agents import serving
from dragoman.agents.parameters import DeclarationError
from dragoman.core.refusals import Invalid
from dragoman.core.schedules import MISFIRE_GRACE_TIME, Schedule
from dragoman.engine.scheduler import Scheduler
from tests.engine.test_scheduler import DAY, NINE, SchedulerFixture, scheduler_fixture
from tests.engine.world import ANN

__all__ = ["scheduler_fixture"]

REPORT = ScheduledPrompt("Report", "0 9 * * *", "write it", user="ann")


def reporter(*schedules: ScheduledPrompt) -> Any:
    @agent("reporter", schedules=schedules)
    async def answer(run: Run) -> str:
        return f"a report for {run.user}"

    return answer


async def restart(planned: SchedulerFixture, *schedules: ScheduledPrompt) -> list[Schedule]:
    """Start the next server, whose code declares these schedules. Returns what is stored."""
    await planned.stop()
    planned.world.agents["reporter"] = reporter(*schedules)
    await planned.start()
    return list(await planned.store.all())


async def test_the_store_has_what_the_code_declares(scheduler_fixture: SchedulerFixture) -> None:
    own = await scheduler_fixture.daily(title="Ann's own")
    assert await restart(scheduler_fixture) == [own]
    declared, _ = sorted(await restart(scheduler_fixture, REPORT), key=lambda each: each.agent is None)
    assert (declared.agent, declared.user, declared.title, declared.prompt) == ("reporter", ANN, "Report", "write it")
    assert declared.next_at == NINE

    await scheduler_fixture.advance_to(NINE)
    await scheduler_fixture.wait_until_idle()
    before = scheduler_fixture.schedules.get(ANN, declared.schedule_id)
    assert before in await restart(scheduler_fixture, REPORT), "nothing is written if nothing changes"

    await scheduler_fixture.schedules.change(ANN, declared.schedule_id, enabled=False)
    later = msgspec.structs.replace(REPORT, cron="0 10 * * *")
    changed = next(each for each in await restart(scheduler_fixture, later) if each.agent)
    assert (changed.schedule_id, changed.cron, changed.enabled) == (declared.schedule_id, "0 10 * * *", False)
    assert (changed.last_at, changed.created_at) == (NINE, declared.created_at)
    assert changed.next_at == NINE + timedelta(hours=1)
    assert len(await scheduler_fixture.fires(changed)) == 1

    (left,) = await restart(scheduler_fixture)
    assert left.schedule_id == own.schedule_id


async def test_each_time_goes_to_the_agent_that_declares_it_once_over_several_servers(
    scheduler_fixture: SchedulerFixture,
) -> None:
    schedules = await restart(scheduler_fixture, REPORT)
    others = [
        Scheduler(
            scheduler_fixture.store,
            scheduler_fixture.engine,
            scheduler_fixture.world.clock,
            scheduler_fixture.world.ids,
        )
        for _ in range(2)
    ]
    for other in others:
        await other.start(run_timer=False)
    assert list(await scheduler_fixture.store.all()) == schedules
    for day in range(2):
        await scheduler_fixture.advance_to(NINE + day * DAY)
        for other in others:
            await other.tick()
        await scheduler_fixture.wait_until_idle()
    fires = await scheduler_fixture.fires(schedules[0])
    assert [fire.status for fire in fires] == ["completed", "completed"]
    for fire in fires:
        live = await scheduler_fixture.engine.find_session(ANN, str(fire.session_id))
        assert (live.state.agent, live.state.settings.title) == ("reporter", "Report")
        assert await scheduler_fixture.session_summary(fire) == ["write it", "a report for ann"]
    for other in others:
        await other.close()


async def test_a_server_leaves_the_schedules_of_agents_that_it_does_not_serve(
    scheduler_fixture: SchedulerFixture,
) -> None:
    (declared,) = await restart(scheduler_fixture, REPORT)
    await scheduler_fixture.stop()
    del scheduler_fixture.world.agents["reporter"]
    await scheduler_fixture.start()
    await scheduler_fixture.advance_to(NINE)
    assert await scheduler_fixture.fires(declared) == []
    assert await scheduler_fixture.store.all() == [declared]


async def test_an_agent_that_a_user_chose_gets_the_prompt_and_does_not_own_the_schedule(
    scheduler_fixture: SchedulerFixture,
) -> None:
    await restart(scheduler_fixture)
    chosen = await scheduler_fixture.daily(title="Ann's own", agent="reporter")
    assert await restart(scheduler_fixture) == [chosen], "the agent declares nothing, but this is the user's"

    await scheduler_fixture.advance_to(NINE)
    await scheduler_fixture.wait_until_idle()
    (fire,) = await scheduler_fixture.fires(chosen)
    assert fire.session_id is not None
    async with scheduler_fixture.engine.session(ANN, fire.session_id) as live:
        assert live.state.agent == "reporter"

    changed = await scheduler_fixture.schedules.change(ANN, chosen.schedule_id, agent=None)
    assert changed.agent is None


async def test_an_agent_is_checked_when_it_is_chosen_and_when_the_schedule_is_due(
    scheduler_fixture: SchedulerFixture,
) -> None:
    (declared,) = await restart(scheduler_fixture, REPORT)
    with pytest.raises(Invalid, match="no agent named 'nobody' is served here; there "):
        await scheduler_fixture.daily(agent="nobody")
    chosen = await scheduler_fixture.daily(agent="reporter")
    with pytest.raises(Invalid, match="no agent named 'nobody' is served here; there "):
        await scheduler_fixture.schedules.change(ANN, chosen.schedule_id, agent="nobody")
    with pytest.raises(Invalid, match="declared by the agent 'reporter', which cannot be changed"):
        await scheduler_fixture.schedules.change(ANN, declared.schedule_id, agent=None)

    await scheduler_fixture.stop()
    del scheduler_fixture.world.agents["reporter"]
    await scheduler_fixture.start()
    await scheduler_fixture.advance_to(NINE)
    assert await scheduler_fixture.fires(chosen) == [], "another server may have the agent"
    await scheduler_fixture.advance_to(NINE + MISFIRE_GRACE_TIME)
    (fire,) = await scheduler_fixture.fires(chosen)
    assert (fire.due_at, fire.status, fire.error) == (NINE, "failed", "missed: no server has the agent 'reporter'")
    assert await scheduler_fixture.fires(declared) == []


@pytest.mark.parametrize(
    ("schedule", "fault"),
    [
        (msgspec.structs.replace(REPORT, time_zone="Mars"), "timezone 'Mars' is not an IANA time zone such as"),
        (msgspec.structs.replace(REPORT, prompt=" "), "prompt must not be blank"),
        (msgspec.structs.replace(REPORT, user=""), "user must not be blank"),
        (msgspec.structs.replace(REPORT, cron="0 9 * *"), "cron "),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_at_start(schedule: ScheduledPrompt, fault: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        serving.check([Agent("a", schedules=[schedule])])
    assert str(refused.value).startswith(f"agent a: schedule 'Report': {fault}")


def test_two_schedules_of_an_agent_have_two_names() -> None:
    with pytest.raises(DeclarationError) as refused:
        serving.check([Agent("a", schedules=[REPORT, REPORT])])
    assert str(refused.value) == "agent a: two schedules are named 'Report'"
