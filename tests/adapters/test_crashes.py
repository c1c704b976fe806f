"""One table of crashes for all frameworks: the server dies between any two commits, or while a tool runs."""

import asyncio
from collections.abc import Sequence

import pytest

from dragoman.core.answers import INTERRUPTED_RESULT
from dragoman.core.content import AssistantMessage, ToolMessage, UserMessage, text_of
from dragoman.core.events import CallParked
from dragoman.core.tools import OnRestart
from tests.adapters.dying_servers import Client, serve
from tests.adapters.scenes import ADD, ADD_MORE, FRAMEWORKS, CallOf, Framework, Script
from tests.adapters.scripted_agents import Effects, build
from tests.engine.faulty_log import FaultyLog, Moment
from tests.engine.log_checker import check_log, check_tool_call_pairing
from tests.engine.world import DEADLINE_S, PauseGate, World, running_world, texts
from tests.extent import extent
from tests.stores.simulated import SimulatedLog

SCRIPT: Script = [["so ", ADD, ADD_MORE], [CallOf("pay", {"amount": 5})], ["all ", "done"]]
RESULTS = {"add 1 2": "3", "add 3 4": "7", "pay 5": "paid 5"}


class CrashingEffects(Effects):
    """Effects that know which prompts the models were given."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Sequence[str]] = []

    def script_for(self, prompts: Sequence[str]) -> Script:
        self.heard.append(prompts)
        return SCRIPT


async def check(world: World, client: Client, effects: CrashingEffects) -> dict[str, str]:
    """Check what is the same after every crash. Returns the results of the calls."""
    assert client.live is not None
    assert max(effects.ran.values()) == 1, effects.ran
    assert effects.heard[-1] == ["go"], "the message entered the conversation twice"
    events = await world.events(client.live.state.session_id)
    check_log(events, {})
    check_tool_call_pairing(events)
    history = await world.history(client.live.state.session_id)
    assert sum(isinstance(each, UserMessage) for each in history) == 1
    assert texts(history)[-1] == "all done"
    calls = [call for each in history if isinstance(each, AssistantMessage) for call in each.calls()]
    results = {each.call_id: text_of(each.content) for each in history if isinstance(each, ToolMessage)}
    return {" ".join(map(str, (each.name, *each.input.values()))): results[each.call_id] for each in calls}


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_server_that_dies_at_a_commit_runs_no_tool_twice_and_gives_an_answer(framework: Framework) -> None:
    commit, lost = extent(1, 2), 0
    while True:
        moment: Moment = "before" if commit // extent(1, 3) % 2 else "after"
        effects = CrashingEffects()
        async with running_world(SimulatedLog()) as world:
            world.agents["player"] = build(framework, effects)
            client, log = Client("go"), FaultyLog(world.store)
            log.die_at(commit, moment)
            if not await serve(world, client, log):
                break
            assert not await serve(world, client, FaultyLog(world.store)), commit
            results = await check(world, client, effects)
            assert results.keys() == RESULTS.keys()
            assert all(results[call] in (RESULTS[call], INTERRUPTED_RESULT) for call in RESULTS), (commit, results)
            lost += INTERRUPTED_RESULT in results.values()
        commit += extent(1, 3)
    assert commit > 12, "there were too few commits to die at"
    assert lost > 0 or extent(0, 1), "no crash fell into a tool"


@pytest.mark.parametrize(
    ("on_restart", "result", "starts"), [("fail", INTERRUPTED_RESULT, 1), ("repeat", "7", 2), ("ask", "7", 2)]
)
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_tool_that_was_running_follows_its_policy_and_its_finished_sibling_is_not_run_again(
    framework: Framework, on_restart: OnRestart, result: str, starts: int
) -> None:
    effects = CrashingEffects()
    async with running_world(SimulatedLog()) as world:
        gate = effects.calls_wait_at["add 3 4"] = PauseGate()
        world.agents["player"] = build(framework, effects, on_restart={"add": on_restart})
        client, log = Client("go"), FaultyLog(world.store)
        talking = asyncio.create_task(client.converse(world, log))
        async with asyncio.timeout(DEADLINE_S):
            await gate.entered.wait()
            assert client.live is not None
            state = client.live.state
            while not effects.ran["add 1 2"] or any(
                call.call.input == {"a": 1, "b": 2} for call in state.calls.values()
            ):
                await client.live.next_commit()
                state = client.live.state
            await client.live.until_durable(state.seq)
        log.is_dead = True
        talking.cancel()
        await asyncio.wait([talking])
        for engine in tuple(world.engines):
            await world.kill(engine)
        gate.opened.set()
        world.repeatable_calls |= set(client.live.state.calls)
        assert not await serve(world, client, FaultyLog(world.store))
        history = await world.history(client.live.state.session_id)
        assert [text_of(each.content) for each in history if isinstance(each, ToolMessage)] == ["3", result, "paid 5"]
        assert effects.ran == {"add 1 2": 1, "add 3 4": starts, "pay 5": 1}
        events = [logged.event for logged in await world.events(client.live.state.session_id)]
        is_asked = any(isinstance(each, CallParked) and each.is_repeat for each in events)
        assert is_asked == (on_restart == "ask")
