"""MCP servers as tools, through the official SDK, which is imported when a server is started.

A connection has a task of its own, because the SDK's streams belong to the task that opened them. When a server dies,
the next call connects anew. A call that was under way is repeated only if its tool may be.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import structlog

from dragoman.agents.builtins import UNPARSED_ARGUMENTS
from dragoman.agents.mcp_mapping import is_repeatable, to_tool_result, to_tool_spec
from dragoman.agents.parameters import DeclarationError
from dragoman.agents.tool import DEFAULT_TIMEOUT_S
from dragoman.core.agent import ToolContext, ToolFailed
from dragoman.core.content import Json, JsonObject
from dragoman.core.tools import ServerTool, ToolPolicy

if TYPE_CHECKING:
    from mcp import Client, Tool
    from mcp.client.stdio import StdioServerParameters

START_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 10.0
"""More than the SDK gives a server to end by itself."""
MAX_PAGES = 100
SESSION_TERMINATED = "Session terminated"
"""What the SDK says of an HTTP server that does not know the session any more: it did nothing."""

log = structlog.get_logger(__name__)


class StartFailed(Exception):
    """An agent's tools cannot be had. The message is for the person who starts the server."""


class McpServer:
    """The tools of an MCP server; one of an agent's `tools`. Made by `stdio` or `http`.

    Several agents may share one: it is connected once.
    """

    def __init__(
        self,
        label: str,
        connect: Callable[["_EndOfStream"], AbstractAsyncContextManager["Client"]],
        *,
        tools: Collection[str] | None,
        prefix: str,
        exposed: bool,
        needs_approval: bool | Collection[str],
        idempotent: bool | Collection[str] | None,
        timeout_s: float,
    ) -> None:
        self.label = label
        self._connect = connect
        self._tool_names = None if tools is None else frozenset(tools)
        self._prefix = prefix
        self._exposed = exposed
        self._needs_approval = needs_approval
        self._idempotent = idempotent
        self._timeout_s = timeout_s
        self._tools: tuple[McpTool, ...] = ()
        self._reference_count = 0
        self._connection: _Connection | None = None
        self._connect_lock = asyncio.Lock()

    @classmethod
    def stdio(
        cls,
        label: str,
        command: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        tools: Collection[str] | None = None,
        prefix: str = "",
        exposed: bool = True,
        needs_approval: bool | Collection[str] = False,
        idempotent: bool | Collection[str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> "McpServer":
        """A server that is started here, as a process.

        Args:
            label: what clients are told the tools come from.
            command: the program.
            arguments: for the program.
            env: added to the few variables that the process inherits; keys of the server's environment are not.
            cwd: where it runs.
            tools: the names of those that are wanted; None for all.
            prefix: put before the tools' names, where they are not unique without.
            exposed: see `tool`.
            needs_approval: of all tools, or of those of these names.
            idempotent: which may be repeated after a crash: all, none, or those of these names; None: those of which
                the server says so.
            timeout_s: a call that takes longer fails.
        """

        def connect(ends: _EndOfStream) -> AbstractAsyncContextManager["Client"]:
            from mcp.client.stdio import StdioServerParameters

            given = None if env is None else dict(env)
            return _stdio_client(StdioServerParameters(command=command, args=list(arguments), env=given, cwd=cwd), ends)

        return cls(
            label,
            connect,
            tools=tools,
            prefix=prefix,
            exposed=exposed,
            needs_approval=needs_approval,
            idempotent=idempotent,
            timeout_s=timeout_s,
        )

    @classmethod
    def http(
        cls,
        label: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        tools: Collection[str] | None = None,
        prefix: str = "",
        exposed: bool = True,
        needs_approval: bool | Collection[str] = False,
        idempotent: bool | Collection[str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> "McpServer":
        """A server at an address, by streamable HTTP.

        Args:
            label: what clients are told the tools come from.
            url: of its MCP endpoint.
            headers: sent with each request, such as `Authorization`.
            tools: see `stdio`, as the rest.
            prefix: see `stdio`.
            exposed: see `stdio`.
            needs_approval: see `stdio`.
            idempotent: see `stdio`.
            timeout_s: see `stdio`.
        """
        return cls(
            label,
            lambda _: _http_client(url, dict(headers or {})),
            tools=tools,
            prefix=prefix,
            exposed=exposed,
            needs_approval=needs_approval,
            idempotent=idempotent,
            timeout_s=timeout_s,
        )

    def __repr__(self) -> str:
        return f"<MCP server {self.label}>"

    @property
    def tools(self) -> Sequence["McpTool"]:
        """The tools; none before `start`."""
        return self._tools

    async def start(self) -> None:
        """Connect, and learn the tools. Each further call counts another user.

        Raises:
            StartFailed: it cannot be reached, or lacks a tool that is wanted, or the extra is not installed.
        """
        if find_spec("mcp") is None:
            raise StartFailed(
                f"MCP server {self.label}: it needs the extra `mcp`: make run EXTRAS=mcp, or pip install '.[mcp]'"
            )
        if self._reference_count == 0:
            try:
                connection = await self._ensure_connected()
                found = await connection.tools()
            except Exception as error:  # the edge to another program: whatever it is, we cannot start
                await self._disconnect()
                raise StartFailed(f"MCP server {self.label}: {_reason(error)}") from error
            missing = (self._tool_names or frozenset()) - {tool.name for tool in found}
            if missing:
                await self._disconnect()
                raise StartFailed(f"MCP server {self.label} has no tool {', '.join(sorted(missing))}")
            self._tools = tuple(
                McpTool(self, tool.name, self._server_tool(tool))
                for tool in found
                if self._tool_names is None or tool.name in self._tool_names
            )
        self._reference_count += 1

    async def aclose(self) -> None:
        """Take one user away; with the last one the connection goes."""
        self._reference_count -= 1
        if self._reference_count == 0:
            self._tools = ()
            await self._disconnect()

    async def call(self, name: str, arguments: JsonObject, *, may_repeat: bool) -> Json:
        """Call a tool by the server's own name for it.

        Raises:
            ToolFailed: it failed, or the server cannot be reached, or died meanwhile.
        """
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        for is_last_try in (False, True):
            try:
                connection = await self._ensure_connected()
            except Exception as error:  # as in `start`; the next call tries again
                raise ToolFailed(f"the MCP server {self.label} cannot be reached: {_reason(error)}") from error
            try:
                return to_tool_result(await connection.client.call_tool(name, arguments))
            except MCPError as error:
                is_gone = error.message == SESSION_TERMINATED
                if not is_gone and error.code != CONNECTION_CLOSED:
                    raise ToolFailed(error.message) from error
                connection.mark_ended()
                if is_last_try or not (is_gone or may_repeat):
                    raise ToolFailed(
                        f"the MCP server {self.label} broke off; whether the tool had an effect is not known"
                    ) from error
                log.warning("MCP server lost, connecting again", server=self.label)
        raise AssertionError("the last try returns or raises")

    def _server_tool(self, tool: "Tool") -> ServerTool:
        repeats = self._idempotent
        may_repeat = is_repeatable(tool) if repeats is None else _applies_to(repeats, tool.name)
        policy = ToolPolicy(
            exposed=self._exposed,
            needs_approval=_applies_to(self._needs_approval, tool.name),
            on_restart="repeat" if may_repeat else "fail",
            timeout_s=self._timeout_s,
        )
        return ServerTool(spec=to_tool_spec(tool, self._prefix), policy=policy, server=self.label)

    async def _ensure_connected(self) -> "_Connection":
        """The connection; a new one if there is none that works."""
        async with self._connect_lock:
            if self._connection is not None and not self._connection.has_ended:
                return self._connection
            await self._disconnect()
            connection = self._connection = _Connection(self.label, self._connect)
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    await connection.opened
            except BaseException:
                await self._disconnect()
                raise
            return connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class McpTool:
    """`core.agent.RunnableTool`: a tool of an MCP server."""

    def __init__(self, server: McpServer, name: str, declaration: ServerTool) -> None:
        self.declaration = declaration
        self._server = server
        self._name = name

    def __repr__(self) -> str:
        return f"<tool {self.declaration.spec.name} of {self._server!r}>"

    async def run(self, arguments: JsonObject, context: ToolContext) -> Json:
        """See `RunnableTool.run`. When it is cancelled, the server is told."""
        if UNPARSED_ARGUMENTS in arguments:
            raise ToolFailed("the arguments are not a JSON object")
        return await self._server.call(self._name, arguments, may_repeat=self.declaration.policy.on_restart == "repeat")


class _EndOfStream:
    """Told by a stream that it is at its end."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()


class _Connection:
    """A connection, held open by a task of its own until `close`."""

    def __init__(self, label: str, connect: Callable[[_EndOfStream], AbstractAsyncContextManager["Client"]]) -> None:
        self.client: Client
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the client can be used; fails when it cannot be had."""
        self._end_of_stream = _EndOfStream()
        self._may_close = asyncio.Event()
        self._task = asyncio.create_task(self._keep_open(connect), name=f"MCP server {label}")

    @property
    def has_ended(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._end_of_stream.reached.is_set() or self._task.done()

    def mark_ended(self) -> None:
        """Send nothing there any more."""
        self._end_of_stream.reached.set()

    async def tools(self) -> list["Tool"]:
        """All tools that the server has."""
        found: list[Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self.client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    async def close(self) -> None:
        """End it, and the server's process."""
        self._may_close.set()
        if not self.opened.done():
            self._task.cancel()
        _, left = await asyncio.wait([self._task], timeout=CLOSE_TIMEOUT_S)
        if left:
            self._task.cancel()
        if self.opened.done() and not self.opened.cancelled():
            self.opened.exception()  # seen: a failure that nobody waits for any more is none to report

    async def _keep_open(self, connect: Callable[[_EndOfStream], AbstractAsyncContextManager["Client"]]) -> None:
        try:
            async with connect(self._end_of_stream) as client:
                self.client = client
                if not self.opened.done():
                    self.opened.set_result(None)
                await self._may_close.wait()
        except Exception as error:  # noqa: BLE001  # the root of a task; who waits for the connection is told
            if self.opened.done():
                log.debug("MCP connection ended", error=_reason(error))
            else:
                self.opened.set_exception(error)


@asynccontextmanager
async def _stdio_client(parameters: "StdioServerParameters", end_of_stream: _EndOfStream) -> AsyncIterator["Client"]:
    from mcp import Client
    from mcp.client.stdio import stdio_client

    @asynccontextmanager
    async def watched() -> AsyncIterator[tuple[Any, Any]]:
        async with stdio_client(parameters) as (reading, writing):
            yield _EndDetectingStream(reading, end_of_stream), writing

    async with Client(watched()) as client:
        yield client


@asynccontextmanager
async def _http_client(url: str, headers: dict[str, str]) -> AsyncIterator["Client"]:
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(create_mcp_http_client(headers=headers))
        yield await stack.enter_async_context(Client(streamable_http_client(url, http_client=http)))


class _EndDetectingStream:
    """A stream of the SDK's that says when it has ended: when its process is gone, the next call is not sent there."""

    def __init__(self, stream: Any, ends: _EndOfStream) -> None:  # noqa: ANN401  # a stream of anyio's, of the SDK's messages
        self._stream = stream
        self._end_of_stream = ends

    async def receive(self) -> Any:  # noqa: ANN401  # as above
        return await self._stream.receive()

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> "_EndDetectingStream":
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401  # as above
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._end_of_stream.reached.set()
            raise

    async def __aenter__(self) -> "_EndDetectingStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _applies_to(names: bool | Collection[str], name: str) -> bool:
    if isinstance(names, bool):
        return names
    if isinstance(names, str):
        raise DeclarationError(f"a list of tools' names expected, got the text {names!r}")
    return name in names


def _reason(error: BaseException) -> str:
    """What went wrong, out of the groups in which the SDK hides it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"it did not answer within {START_TIMEOUT_S:g} s"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
