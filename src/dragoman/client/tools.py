"""Runs functions of the application as tools of a session."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dragoman.agents.tool import FunctionTool
from dragoman.client.events import ClientCall, Result, Tool
from dragoman.core.agent import RunnableTool
from dragoman.core.answers import failed_result, result_content
from dragoman.core.content import Image, Json, Text
from dragoman.core.ids import CallId, RunId, SessionId, UserId
from dragoman.core.run_metadata import NO_METADATA, RunMetadata
from dragoman.core.tools import ToolSpec

ToolLike = Callable[..., Any] | RunnableTool | Tool
"""A typed function, the result of `dragoman.tool`, or a `Tool` declaration whose calls `session.answer` answers."""


class Toolbox:
    """The client tools of a session.

    Raises DeclarationError if a function cannot be a tool.
    """

    def __init__(self, tools: Iterable[ToolLike] = ()) -> None:
        self._tools: dict[str, RunnableTool] = {}
        specs: list[ToolSpec] = []
        for each in tools:
            if isinstance(each, Tool):
                specs.append(ToolSpec(name=each.name, description=each.description, parameters=each.parameters))
                continue
            tool: RunnableTool = each if hasattr(each, "declaration") else FunctionTool(each)  # type: ignore[assignment]  # has `declaration`: a RunnableTool
            specs.append(tool.declaration.spec)
            self._tools[tool.declaration.spec.name] = tool
        self.specs = tuple(specs)
        """The declarations that are sent to the server."""

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    async def run(self, call: ClientCall, session_id: str, run_id: str) -> Result:
        """Run a call. If the function raises, the message becomes the result, for the model to read."""
        tool = self._tools[call.name]
        context = CallContext(session_id=SessionId(session_id), run_id=RunId(run_id), call_id=CallId(call.call_id))
        try:
            async with asyncio.timeout(tool.declaration.policy.timeout_s):
                content = result_content(await tool.run(call.arguments, context))
        except Exception as error:  # noqa: BLE001  # a user's function may raise anything
            content = failed_result(str(error) or type(error).__name__)
        if isinstance(content, str):
            return Result(call_id=call.call_id, text=content)
        return Result(
            call_id=call.call_id,
            text="".join(each.text for each in content if isinstance(each, Text)),
            images=tuple(each.url for each in content if isinstance(each, Image)),
        )


class CallContext(msgspec.Struct, kw_only=True):
    """The `ToolContext` of a function that asks for one, with what a client knows of the call."""

    session_id: SessionId
    run_id: RunId
    call_id: CallId
    user: UserId = UserId("")
    options: Mapping[str, str] = {}
    metadata: RunMetadata = NO_METADATA
    granted: bool = True
    answer: str | None = None
    answers: Sequence[Sequence[str]] = ()
    time_zone: str = "UTC"
    elapsed_s: float = 0.0
    is_settled: bool = False

    def attach(self, private: Json) -> None:
        """Raises RuntimeError: only a server stores private values."""
        raise RuntimeError("a tool of an application cannot attach private values")

    async def keep(self, writes: Mapping[str, bytes | None]) -> None:
        """Raises RuntimeError: only a server keeps values."""
        raise RuntimeError("a tool of an application cannot keep values with the session")

    async def kept(self, below: str = "", *, after: str | None = None, limit: int = 1000) -> Mapping[str, bytes]:
        """Raises RuntimeError: only a server keeps values."""
        raise RuntimeError("a tool of an application cannot read the values kept with the session")
