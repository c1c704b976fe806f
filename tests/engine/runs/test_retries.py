"""Tools whose failed calls run again: what counts as a failure, and how attempts are counted over a crash."""

import asyncio
from typing import Any

import pytest

from dragoman.core.agent import Deferred, ToolFailed
from dragoman.core.content import JsonObject
from dragoman.core.events import CallStarted
from dragoman.core.inputs import Choice
from dragoman.core.tools import OnRestart
from dragoman.engine.cluster.single_server import SingleServer
from tests.adapters.log_shape import shape
from tests.engine.faulty_log import FaultyLog
from tests.engine.world import (
    DEADLINE_S,
    CallTool,
    PauseGate,
    ScriptedTool,
    World,
    answer_request,
    open_session,
    play,
    reload,
    running_world,
    send,
    wait_for_end,
)
from tests.stores.simulated import SimulatedLog

FAILED = "Tool execution failed: "


def flaky(world: World, *outcomes: Any, **policy: Any) -> ScriptedTool:
    """Give the world's agents a tool with these outcomes in order; the last one is repeated."""
    left = list(outcomes)

    async def run(arguments: JsonObject) -> Any:
        outcome = left.pop(0) if len(left) > 1 else left[0]
        if callable(outcome):
            outcome = await outcome()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    world.scripts["go"] = [[CallTool("flaky")], ["done"]]
    return world.tool("flaky", run, **{"retries": 2, "retry_delay_s": 0.0, **policy})


async def lines(world: World, live: Any) -> list[str]:
    return [line for line in shape(await world.events(live.state.session_id)) if "flaky" in line]


@pytest.mark.parametrize(
    ("outcomes", "attempts", "result"),
    [
        ([ValueError("once"), "fine"], 2, "done: flaky fine"),
        ([ValueError("once"), TimeoutError("slow"), "fine"], 3, "done: flaky fine"),
        ([ValueError("always")], 3, f"failed: flaky {FAILED}always"),
        ([ToolFailed("no such order"), "fine"], 1, f"failed: flaky {FAILED}no such order"),
    ],
)
async def test_a_call_that_fails_runs_again_and_has_one_result(
    world: World, outcomes: list[Any], attempts: int, result: str
) -> None:
    tool = flaky(world, *outcomes)
    live = await open_session(await world.start())
    await play(world.engines[0], live, "go")
    assert await lines(world, live) == ["call: flaky {}", *["starts: flaky"] * attempts, result]
    assert len(tool.started_calls) == attempts


async def test_each_attempt_has_the_tools_whole_time(world: World) -> None:
    flaky(world, asyncio.Event().wait, "fine", timeout_s=0.01)
    live = await open_session(await world.start())
    await play(world.engines[0], live, "go")
    assert (await lines(world, live))[-1] == "done: flaky fine"


async def test_a_call_that_waits_is_not_retried_and_counts_from_zero_again(world: World) -> None:
    question = Deferred("question", {"questions": [{"question": "Which?", "options": [{"label": "a"}]}]})
    tool = flaky(world, ValueError("before"), question, ValueError("after"))
    live = await open_session(await world.start())
    await play(world.engines[0], live, "go")
    assert len(tool.started_calls) == 2
    await play(world.engines[0], live, answer_request(Choice(call_id=tool.started_calls[0], selections={"0": [0]})))  # type: ignore[arg-type]  # ids are texts
    assert len(tool.started_calls) == 2 + 3


async def test_a_stopped_run_waits_for_no_retry(world: World) -> None:
    failed = asyncio.Event()

    async def fail() -> Exception:
        failed.set()
        return ValueError("now")

    flaky(world, fail, retry_delay_s=3600.0)
    engine = await world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await failed.wait()
        assert await engine.stop_run(live, None)
        await wait_for_end(live)
    assert (await lines(world, live))[-1].startswith("cancelled: flaky")


@pytest.mark.parametrize(
    ("on_restart", "attempts", "result"),
    [("repeat", 3, f"failed: flaky {FAILED}third"), ("fail", 2, "interrupted: flaky Tool call interrupted")],
)
async def test_an_attempt_that_a_crash_interrupted_counts(on_restart: OnRestart, attempts: int, result: str) -> None:
    gate = PauseGate()
    async with running_world(SimulatedLog()) as world:
        tool = flaky(world, ValueError("first"), gate, ValueError("third"), on_restart=on_restart)
        log = FaultyLog(world.store)
        engine = await world.start(log)
        live = await open_session(engine)
        await send(engine, live, "go")
        await asyncio.wait_for(gate.entered.wait(), DEADLINE_S)
        log.is_dead = True
        await world.kill(engine)
        engine = await world.start()
        live = await reload(engine, live)
        await wait_for_end(live)
        events = await world.events(live.state.session_id)
        assert sum(isinstance(each.event, CallStarted) for each in events) == attempts
        assert (await lines(world, live))[-1].startswith(result)
        assert len(tool.started_calls) == attempts


async def test_no_attempt_starts_while_another_server_may_have_the_session(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_lease, waits = asyncio.Event(), asyncio.Event()
    has_lease.set()

    async def wait_for_valid_lease(_: SingleServer) -> None:
        if not has_lease.is_set():
            waits.set()
        await has_lease.wait()

    async def lose_the_lease() -> Exception:
        has_lease.clear()
        return RuntimeError("once")

    monkeypatch.setattr(SingleServer, "wait_for_valid_lease", wait_for_valid_lease)
    tool = flaky(world, lose_the_lease, "ok")
    engine = await world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await waits.wait()
        assert len(tool.started_calls) == 1
        has_lease.set()
        await wait_for_end(live)
    assert len(tool.started_calls) == 2
