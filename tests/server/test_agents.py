"""What the server says about its agents when it starts."""

from contextlib import AsyncExitStack
from pathlib import Path

from structlog.testing import capture_logs

from dragoman import Agent, tool
from dragoman.server.agents import start_agents, start_models
from dragoman.server.clock_and_ids import SystemClock
from dragoman.settings import Settings


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


async def test_tools_that_the_embedded_model_will_never_call_are_reported(tmp_path: Path) -> None:
    agents = [Agent("adds", tools=[add]), Agent("talks"), Agent("asks", tools=[add], model="openai:gpt-5-mini")]
    async with AsyncExitStack() as stack:
        with capture_logs() as logs:
            settings = Settings(data=str(tmp_path), models_required=False)
            to_serve = await start_models(
                settings, agents, environ={}, progress=lambda _: None, clock=SystemClock(), stack=stack
            )
            await start_agents(settings, to_serve, progress=lambda _: None, stack=stack)
    assert [(each["event"], each["agents"]) for each in logs if "agents" in each] == [
        ("the embedded model never calls tools", ["adds"])
    ]
