"""`run.start`: work continues after the answer, and its result comes into the session once it is at rest."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from dragoman import Run, ToolFailed, agent
from dragoman.agents import serving
from dragoman.core.history import messages_of
from dragoman.core.ids import CallId, SessionId
from dragoman.core.inputs import Choice
from dragoman.core.refusals import StoreUnavailable
from dragoman.core.run_metadata import FinishedTask
from dragoman.core.schedules import MAX_TASK_DEPTH, NO_ANSWER, BackgroundTask, ScheduleId
from dragoman.engine import scheduler, task_results
from dragoman.engine.sessions.live_session import LiveSession
from tests.engine.test_scheduler import DAY, SchedulerFixture, until
from tests.engine.world import (
    ANN,
    DEADLINE_S,
    PauseGate,
    World,
    answer_request,
    open_session,
    play,
    reload,
    running_world,
    texts,
)
from tests.stores.simulated import SimulatedLog
from tests.stores.simulated_schedules import SimulatedSchedules


class Office(SchedulerFixture):
    """A desk that gives its work to a worker, who may wait at a gate."""

    def __init__(self, world: World, store: Any) -> None:
        super().__init__(world, store)
        self.gate: PauseGate | None = None
        self.worked: list[str] = []
        self.finished: list[FinishedTask] = []
        office = self

        @agent("player")
        async def desk(run: Run) -> AsyncIterator[str]:
            task = run.metadata.finished_task
            if task is not None:
                office.finished.append(task)
                yield f"heard: {run.text}"
                return
            name, _, work = run.text.partition(" ")
            try:
                session_id = await run.start(name, work)
            except ToolFailed as error:
                yield str(error)
                return
            if "ask" in work:
                yield await run.ask("Which?", ["a"])
            else:
                yield f"started {len(session_id)}"

        @agent("worker")
        async def worker(run: Run) -> str:
            office.worked.append(run.text)
            if office.gate is not None:
                await office.gate()
            if "fail" in run.text:
                raise ValueError(run.text)
            return f"did {run.text} for {run.user}"

        world.agents |= {"player": desk, "worker": worker}

    async def start(self, **options: Any) -> None:
        await super().start(**options)
        serving.bind_tasks(list(self.world.agents.values()), self.schedules.start_task)

    async def texts(self, session_id: SessionId) -> list[str]:
        return texts(messages_of(await self.world.events(session_id)))

    async def until_heard(self, live: LiveSession) -> list[str]:
        """Wait until the result has been answered, and return what the session says."""

        async def is_answered() -> bool:
            return any("heard" in each for each in await self.texts(live.state.session_id))

        await until(is_answered)
        await self.wait_until_idle()
        return await self.texts(live.state.session_id)


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    async with running_world(SimulatedLog()) as world:
        made = Office(world, SimulatedSchedules())
        await made.start()
        yield made
        await made.schedules.close()


ENDED = "The background task of worker has ended: the tea\n\n"


async def test_the_answer_does_not_wait_and_the_result_starts_a_run(office: Office) -> None:
    office.gate = PauseGate()
    live = await open_session(office.engine)
    await play(office.engine, live, "worker the tea")
    assert (await office.texts(live.state.session_id))[-1] == "started 36"
    office.gate.opened.set()
    said = await office.until_heard(live)
    assert said[-2:] == [f"{ENDED}did the tea for ann", "heard: did the tea for ann"]
    (finished,) = office.finished
    assert (finished.agent, finished.task, finished.succeeded) == ("worker", "the tea", True)
    assert await office.texts(finished.session_id) == ["the tea", "did the tea for ann"]
    child = await office.engine.find_session(ANN, finished.session_id)
    assert (child.state.agent, child.state.title()) == ("worker", "the tea")
    assert await office.store.all() == []
    assert office.schedules.for_user(ANN) == []


async def test_a_task_that_fails_is_a_result_too(office: Office) -> None:
    live = await open_session(office.engine)
    await play(office.engine, live, "worker fail")
    assert (await office.until_heard(live))[-1] == "heard: It failed: The agent failed"
    assert [each.succeeded for each in office.finished] == [False]


@pytest.mark.parametrize(("request_text", "error"), [("nobody tea", "nobody"), ("worker  ", "must not be blank")])
async def test_a_task_that_cannot_start_fails_at_once(office: Office, request_text: str, error: str) -> None:
    live = await open_session(office.engine)
    await play(office.engine, live, request_text)
    assert error in (await office.texts(live.state.session_id))[-1]
    assert await office.store.all() == []


async def test_what_the_session_waits_for_is_not_disturbed(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_results, "CHECK_INTERVAL_S", 0.01)
    live = await open_session(office.engine)
    await play(office.engine, live, "worker ask")
    (asked,) = live.state.waiting_calls()

    async def is_done() -> bool:
        page = await office.world.store.page(ANN, None, 2)
        return any(each.agent == "worker" and each.status() == "idle" for each in page)

    await until(is_done)
    assert office.finished == []
    await play(office.engine, live, answer_request(Choice(call_id=asked.call.call_id, selections={"0": [0]})))
    said = await office.until_heard(live)
    assert said.index("a") < said.index("heard: did ask for ann")
    assert office.worked == ["ask"], "the function was called again, and started nothing again"


async def test_a_session_that_goes_on_waiting_for_a_day_gets_no_result(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (scheduler, task_results):
        monkeypatch.setattr(module, "CHECK_INTERVAL_S", 0.01)
    live = await open_session(office.engine)
    await play(office.engine, live, "worker ask")
    (asked,) = live.state.waiting_calls()

    async def is_given_up() -> bool:
        office.world.clock.at += DAY
        return await office.store.all() == []

    with capture_logs() as logs:
        await until(is_given_up)
        await office.wait_until_idle()
    assert [each["reason"] for each in logs if each["event"] == task_results.NOT_DELIVERED] == [NO_ANSWER]
    await play(office.engine, live, answer_request(Choice(call_id=asked.call.call_id, selections={"0": [0]})))
    assert (await office.texts(live.state.session_id))[-1] == "a"
    assert office.finished == []


@pytest.mark.parametrize("how", ["work", "result"])
async def test_tasks_that_follow_from_each_other_end_after_some(office: Office, how: str) -> None:
    refusals: list[str] = []

    @agent("player")
    async def desk(run: Run) -> str:
        if how == "work" and run.metadata.finished_task is not None:
            return "heard"
        try:
            return await run.start("player" if how == "work" else "worker", "more")
        except ToolFailed as error:
            refusals.append(str(error))
            return "refused"

    office.world.agents["player"] = desk
    await office.stop()
    await office.start()
    live = await open_session(office.engine)
    for count in (1, 2):
        await play(office.engine, live, "go")

        async def is_refused(count: int = count) -> bool:
            return len(refusals) == count and live.state.status() == "idle"

        await until(is_refused)
        await office.wait_until_idle()
        await until(is_refused)
        sessions = await office.world.store.page(ANN, None, 100)
        assert len(sessions) == 1 + count * MAX_TASK_DEPTH, "the user's message begins anew"
    assert "background tasks led to this one" in refusals[0]


@pytest.mark.parametrize("is_planned", [True, False])
async def test_a_task_survives_restarts_and_its_result_comes_once(office: Office, is_planned: bool) -> None:
    office.gate = PauseGate()
    live = await open_session(office.engine)
    await play(office.engine, live, "worker the tea")
    await asyncio.wait_for(office.gate.entered.wait(), DEADLINE_S)
    await (office.stop() if is_planned else office.kill())
    office.gate = None
    await office.start()
    live = await reload(office.engine, live)
    said = await office.until_heard(live)
    assert [each for each in said if "heard" in each] == ["heard: did the tea for ann"]
    await office.stop()
    await office.start()
    await office.wait_until_idle()
    assert len(office.finished) == 1
    assert len(await office.world.store.page(ANN, None, 10)) == 2


async def test_a_result_is_delivered_once_if_the_store_fails_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "RETRY_DELAY_S", 0.0)

    class Failing(SimulatedSchedules):
        failures = 2

        async def remove(self, schedule_id: ScheduleId) -> None:
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable("gone")
            await super().remove(schedule_id)

    async with running_world(SimulatedLog()) as world:
        store = Failing()
        office = Office(world, store)
        await office.start()
        live = await open_session(office.engine)
        await play(office.engine, live, "worker the tea")
        await office.until_heard(live)
        assert store.failures == 0
        assert len(office.finished) == 1
        await office.schedules.close()


async def test_the_same_task_starts_once_and_a_deleted_session_gets_no_result(office: Office) -> None:
    live = await open_session(office.engine)
    task = BackgroundTask(
        task_id=CallId(office.world.ids.new()),
        user=ANN,
        reports_to=live.state.session_id,
        agent="worker",
        prompt="the tea",
    )
    await office.engine.delete(live)
    for _ in range(3):
        assert str(await office.schedules.start_task(task)) == task.task_id
    await office.wait_until_idle()
    assert str(await office.schedules.start_task(task)) == task.task_id
    assert office.worked == ["the tea"]
    assert await office.store.all() == []
