"""The MCP servers of the OpenAI Agents SDK's agents: connected once, and again when a connection is lost."""

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

import structlog
from agents import RunContextWrapper, Tool
from agents.mcp import MCPServer

from dragoman.adapters.openai_agents_clone import AnyAgent
from dragoman.core.agent import AgentError

TIMEOUT_CODE = -32001
"""The code of MCP's error for a request without a response in time: the connection may be in use by other runs."""

_locks: WeakKeyDictionary[MCPServer, asyncio.Lock] = WeakKeyDictionary()
"""Held while a server is connected again. Several agents may share a server."""

log = structlog.get_logger(__name__)


async def tools_of(agent: AnyAgent, context: RunContextWrapper[Any]) -> list[Tool]:
    """The tools of an agent's MCP servers. Servers whose connections are lost are connected again.

    Raises:
        AgentError: a server is not available.
        Exception: of the SDK, if a connection is not the cause.
    """
    try:
        return await agent.get_mcp_tools(context)
    except Exception as error:  # each transport raises its own when a connection is lost
        if _is_timeout(error):
            raise
        for server in agent.mcp_servers:
            async with _locks.setdefault(server, asyncio.Lock()):
                await _connect_if_lost(server, context, agent)
    return await agent.get_mcp_tools(context)


def forget_tools(agent: AnyAgent) -> None:
    """Have the tools listed anew, which finds a lost connection, also by servers that cache their lists."""
    for server in agent.mcp_servers:
        invalidate = getattr(server, "invalidate_tools_cache", None)  # a server of the application may have none
        if invalidate is not None:
            invalidate()


async def _connect_if_lost(server: MCPServer, context: RunContextWrapper[Any], agent: AnyAgent) -> None:
    try:
        await server.list_tools(context, agent)
    except Exception as error:  # noqa: BLE001  # whatever the transport raises, the next attempt says why
        if _is_timeout(error):
            return
    else:
        return  # it is another server, or another run has connected it
    log.warning("reconnecting to an MCP server", agent=agent.name, server=server.name)
    try:
        await server.cleanup()  # type: ignore[no-untyped-call]
        await server.connect()  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever the transport raises, the server is not available
        message = "An MCP server of the agent is not available"
        raise AgentError("mcp_unavailable", message, details=str(error)) from error


def _is_timeout(error: Exception) -> bool:
    return isinstance(error, TimeoutError) or getattr(error, "code", None) == TIMEOUT_CODE
