"""Functions of the application as tools of a session."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from dragoman.agents.tool import FunctionTool
from dragoman.client.events import ClientCall, Result, Tool
from dragoman.core.agent import RunnableTool
from dragoman.core.answers import failed_result, result_content
from dragoman.core.content import Image, JsonObject, Text
from dragoman.core.ids import CallId, RunId, SessionId, UserId
from dragoman.core.tools import ToolSpec

ToolLike = Callable[..., Any] | RunnableTool | Tool
"""A typed function, or what `dragoman.tool` makes of one; or a declaration alone, answered by `session.answer`."""


class Toolbox:
    """The functions that a session offers, by name."""

    def __init__(self, tools: Iterable[ToolLike] = ()) -> None:
        """Read the functions. Raises Misdeclared: one of them cannot be a tool; the message says why."""
        self._tools: dict[str, RunnableTool] = {}
        specs: list[ToolSpec] = []
        for each in tools:
            if isinstance(each, Tool):
                specs.append(ToolSpec(name=each.name, description=each.description, parameters=each.parameters))
                continue
            found: RunnableTool = each if hasattr(each, "declaration") else FunctionTool(each)  # type: ignore[assignment]  # told apart by its declaration
            specs.append(found.declaration.spec)
            self._tools[found.declaration.spec.name] = found
        self.specs = tuple(specs)
        """As servers are told of them."""

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    async def run(self, call: ClientCall, session_id: str, run_id: str) -> Result:
        """Run a call. A failure of the function's is a result too, which the model reads."""
        found = self._tools[call.name]
        context = CallContext(session_id=SessionId(session_id), run_id=RunId(run_id), call_id=CallId(call.call_id))
        try:
            async with asyncio.timeout(found.declaration.policy.timeout_s):
                content = result_content(await found.run(call.arguments, context))
        except Exception as error:  # noqa: BLE001  # of whatever a user's function raises the model reads the message
            content = failed_result(str(error) or type(error).__name__)
        if isinstance(content, str):
            return Result(call_id=call.call_id, text=content)
        return Result(
            call_id=call.call_id,
            text="".join(each.text for each in content if isinstance(each, Text)),
            images=tuple(each.url for each in content if isinstance(each, Image)),
        )


class CallContext(msgspec.Struct, kw_only=True):
    """What a function learns of its call, when it asks for a `ToolContext`. A client knows no more."""

    session_id: SessionId
    run_id: RunId
    call_id: CallId
    user: UserId = UserId("")
    options: Mapping[str, str] = {}
    metadata: JsonObject = {}
    time_zone: str = "UTC"
