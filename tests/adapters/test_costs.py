"""What a tool call of a framework's agent costs the store beyond one of an agent of ours."""

from collections.abc import Sequence

import pytest

from dragoman import Agent, tool
from dragoman.agents import serving
from dragoman.engine.sessions import live_session
from dragoman.testing import Scripted, call
from tests.adapters.scenes import ADD, FRAMEWORKS, Framework, Script
from tests.adapters.scripted_agents import Effects, build
from tests.engine.faulty_log import FaultyLog
from tests.engine.world import DEADLINE_S, open_session, play, running_world, user_request
from tests.stores.simulated import SimulatedLog

MORE_PER_CALL: dict[Framework, float] = {"pydantic_ai": 0.5, "openai_agents": 0.5, "langgraph": 2}
"""How many commits a tool call may take more than one of a tool of ours.

LangGraph waits for the checkpoint of each superstep, unless only tool nodes follow: a call that may need approval takes
three supersteps and waits for three commits, one of ours for two. A turn of it has six more.
"""
CALLS = 8


class Repeating(Effects):
    """A model that calls a tool again and again."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script

    def script_for(self, prompts: Sequence[str]) -> Script:
        return self._script


async def commits_of(agent: object) -> int:
    """How many commits a turn of the agent takes."""
    async with running_world(SimulatedLog()) as world:
        world.agents["player"] = agent  # type: ignore[assignment]  # it is an agent
        log = FaultyLog(world.store)
        engine = await world.start(log)
        live = await open_session(engine)
        before = log.commits
        await play(engine, live, user_request("go"))
        return log.commits - before


async def commits_of_ours() -> int:
    @tool(exposed=False)
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    steps = [call("add", a=1, b=2)] * CALLS
    ours = Agent("player", tools=[add], model=Scripted([*steps, "done"]))
    serving.link([ours])
    serving.bind([ours], lambda name: Scripted([]))
    await serving.start([ours])
    try:
        return await commits_of(ours)
    finally:
        await serving.close([ours])


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_tool_call_waits_for_few_commits_more_than_one_of_a_tool_of_ours(
    framework: Framework, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_session, "LAZY_COMMIT_S", DEADLINE_S)  # however slow the machine is
    agent = build(framework, Repeating([[ADD]] * CALLS + [["done"]]))
    more = await commits_of(agent) - await commits_of_ours()
    assert more / CALLS <= MORE_PER_CALL[framework], more
