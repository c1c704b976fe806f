"""`run.sleep`: it ends at its time whatever happens to the server, and no client sees it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import Run, agent, tool
from dragoman.core.events import LoggedEvent
from dragoman.core.internal_calls import visible_events
from tests.agents.agent_harness import agent_harness
from tests.engine.faulty_log import FaultyLog
from tests.engine.world import DEADLINE_S, World, open_session, play, reload, running_world, send, wait_for_end
from tests.stores.simulated import SimulatedLog

HOUR_S = 3600.0


@agent("player", ask_user=False)
async def sleeper(run: Run) -> AsyncIterator[str]:
    yield "good night. "
    await run.sleep(float(run.text))
    yield "good morning"


async def until_asleep(live: Any) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not live.state.is_sleeping():
            await live.next_commit()
        await live.until_durable(live.state.seq)


async def texts_of(world: World, live: Any) -> str:
    return " | ".join(str(getattr(each, "content", "")) for each in await world.history(live.state.session_id))


async def test_a_sleep_ends_at_its_time_and_nobody_sees_it(world: World) -> None:
    world.agents["player"] = sleeper
    live = await open_session(await world.start())
    await play(world.engines[0], live, "0.01")
    events: list[LoggedEvent] = await world.events(live.state.session_id)
    assert "good morning" in await texts_of(world, live)
    assert b"Sleep" not in b"".join(str(each.event).encode() for each in visible_events(events))


@pytest.mark.parametrize("is_planned", [True, False])
async def test_a_sleep_continues_after_a_restart_and_ends_at_once_if_its_time_has_passed(is_planned: bool) -> None:
    async with running_world(SimulatedLog()) as world:
        world.agents["player"] = sleeper
        log = FaultyLog(world.store)
        engine = await world.start(log)
        live = await open_session(engine)
        await send(engine, live, str(HOUR_S))
        for waits_on in (True, False):
            await until_asleep(live)
            if is_planned:
                await world.stop(engine, grace_s=DEADLINE_S)  # a sleeping run is not waited for
            else:
                log.is_dead = True
                await world.kill(engine)
            world.clock.move(HOUR_S / 2)
            log = FaultyLog(world.store)
            engine = await world.start(log)
            live = await reload(engine, live)
            if waits_on:
                await until_asleep(live)
        await wait_for_end(live)
        assert live.state.last_stop == "end_turn"
        assert "good morning" in await texts_of(world, live)


async def test_stopping_the_run_ends_the_sleep(world: World) -> None:
    world.agents["player"] = sleeper
    engine = await world.start()
    live = await open_session(engine)
    await send(engine, live, str(HOUR_S))
    await until_asleep(live)
    async with asyncio.timeout(DEADLINE_S):
        assert await engine.stop_run(live, None)
    assert live.state.last_stop == "cancelled"
    assert "good morning" not in await texts_of(world, live)


async def test_the_time_limit_of_runs_does_not_count_a_sleep(world: World) -> None:
    world.agents["player"] = sleeper
    engine = await world.start(run_timeout_s=0.02)
    live = await open_session(engine)
    await play(engine, live, "0.1")
    assert live.state.last_stop == "end_turn"


@pytest.mark.parametrize("seconds", ["-1", "nan", "1e12"])
async def test_a_sleep_has_a_sensible_length(tmp_path: Path, seconds: str) -> None:
    async with agent_harness(tmp_path, sleeper) as harness:
        session = await harness.session()
        assert await session.send_and_wait(seconds) == "error"


async def test_an_agent_with_a_tool_of_that_name_cannot_sleep(tmp_path: Path) -> None:
    @tool(name="Sleep", exposed=False)
    def own() -> str:
        """Sleep."""
        return "mine"

    refused: list[str] = []

    @agent(tools=[own])
    async def owner(run: Run) -> str:
        try:
            await run.sleep(0)
        except RuntimeError as error:
            refused.append(str(error))
        return str(await run.call("Sleep"))

    async with agent_harness(tmp_path, owner) as harness:
        session = await harness.session()
        assert await session.send_and_wait("go") == "end_turn"
        assert (await session.summary_lines())[-1] == "assistant: mine"
        assert refused == ["agent owner has a tool of its own named Sleep"]
