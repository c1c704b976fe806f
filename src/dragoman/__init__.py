"""Dragoman, an agent server: write an agent once, every application can talk to it.

This is what agents are written with; the server is the command `dragoman`.
"""

import typing as _typing

from dragoman.adapters import RunInfo
from dragoman.agents.function import agent
from dragoman.agents.mcp import McpServer
from dragoman.agents.model import Agent
from dragoman.agents.run import Plan, Run
from dragoman.agents.tool import tool
from dragoman.core.agent import AgentError, Deferred, NeedsApproval, ToolContext, ToolFailed
from dragoman.core.content import Data, File, Image, Text, Thinking
from dragoman.core.events import PlanStep
from dragoman.core.tools import Capabilities, ScheduledPrompt, SecretOption, SelectOption, TextOption

if _typing.TYPE_CHECKING:
    from dragoman.gateway.remote_agent import RemoteAgent

__all__ = [
    "Agent",
    "AgentError",
    "Capabilities",
    "Data",
    "Deferred",
    "File",
    "Image",
    "McpServer",
    "NeedsApproval",
    "Plan",
    "PlanStep",
    "RemoteAgent",
    "Run",
    "RunInfo",
    "ScheduledPrompt",
    "SecretOption",
    "SelectOption",
    "Text",
    "TextOption",
    "Thinking",
    "ToolContext",
    "ToolFailed",
    "agent",
    "tool",
]


def __getattr__(name: str) -> object:
    """Import what needs the client library only when it is used."""
    if name == "RemoteAgent":
        from dragoman.gateway.remote_agent import RemoteAgent

        return RemoteAgent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
