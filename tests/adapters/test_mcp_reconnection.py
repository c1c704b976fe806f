"""Which MCP servers of an agent of the OpenAI Agents SDK are connected again after an error."""

from typing import Any

import pytest

pytest.importorskip("agents", reason="the extra openai-agents is not installed")
pytest.importorskip("mcp", reason="the extra mcp is not installed")

from agents import Agent, RunContextWrapper
from agents.mcp import MCPServer, MCPServerStdio

from dragoman.adapters.openai_agents_mcp import tools_of


class FaultyServer(MCPServerStdio):
    """A server that raises these errors, one each time its tools are listed, and has no tools."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__({"command": "never started"})
        self.errors = list(errors)
        self.connections = 0

    async def connect(self) -> None:
        self.connections += 1

    async def cleanup(self) -> None:
        """Nothing is open."""

    async def list_tools(self, *_: Any) -> list[Any]:
        if self.errors:
            raise self.errors.pop(0)
        return []


async def test_a_server_that_is_slow_while_another_is_connected_again_keeps_its_connection() -> None:
    """Other runs may be using the connection of the slow one."""
    lost = FaultyServer(ConnectionError("closed"), ConnectionError("closed"))
    slow = FaultyServer(TimeoutError("no response in time"))
    servers: list[MCPServer] = [lost, slow]
    agent = Agent[Any](name="Calculator", mcp_servers=servers)
    assert await tools_of(agent, RunContextWrapper(None)) == []
    assert (lost.connections, slow.connections) == (1, 0)
