"""MCP servers of frameworks whose processes die while the server runs."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agents.mcp_program import __file__ as program


@asynccontextmanager
async def openai_talk(tmp_path: Path, scripts: Any, **options: Any) -> AsyncIterator[Any]:
    """A conversation with an agent whose MCP server writes its process id to a file."""
    pytest.importorskip("agents", reason="the extra openai-agents is not installed")
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from agents import Agent
    from agents.mcp import MCPServerStdio

    from tests.adapters.test_openai_agents import talk

    start = "import os, runpy, sys; open(sys.argv.pop(1), 'w').write(str(os.getpid()));"
    start += "sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
    arguments = ["-c", start, str(tmp_path / "pid"), program, "stdio"]
    server = MCPServerStdio(
        {"command": sys.executable, "args": arguments}, client_session_timeout_seconds=60, **options
    )
    build = lambda model: Agent(name="Calculator", model=model, mcp_servers=[server])  # noqa: E731
    async with talk(scripts, agent=build) as chat:
        yield chat


def kill(tmp_path: Path) -> None:
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize("caches", [False, True])
async def test_a_server_that_died_is_connected_again_at_the_next_step_or_run(tmp_path: Path, caches: bool) -> None:
    from tests.adapters.openai_model import CallOf

    async def die() -> None:
        kill(tmp_path)

    add = CallOf("add", {"a": 20, "b": 22})
    scripts = {"add": [[add], ["Done."]], "die": [[die, add], [add], ["Done."]]}
    async with openai_talk(tmp_path, scripts, cache_tools_list=caches) as chat:
        assert "done: add 42" in await chat.say("add")
        died = await chat.say("die")
        assert [line for line in died if line.startswith(("failed: add", "done: add"))][-1] == "done: add 42"
        assert died[-1] == "end: end_turn"
        kill(tmp_path)
        assert (await chat.say("add"))[-1] == "end: end_turn"
        assert "done: add 42" in await chat.say("add")
