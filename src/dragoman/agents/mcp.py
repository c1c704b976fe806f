"""MCP servers as tools, through the official SDK, which is imported when a server is started.

Each connection has its own task, because the SDK's streams belong to the task that opened them. When a server dies, the
next call reconnects. A call that was in progress is repeated only if its tool may be repeated.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import structlog

from dragoman.agents.builtins import UNPARSED_ARGUMENTS
from dragoman.agents.mcp_mapping import is_repeatable, to_tool_result, to_tool_spec
from dragoman.agents.options import reject_unknown_options
from dragoman.agents.parameters import DeclarationError
from dragoman.core.agent import ToolContext, ToolFailed
from dragoman.core.content import Json, JsonObject
from dragoman.core.tools import ServerTool, ToolPolicy

if TYPE_CHECKING:
    from mcp import Client, Tool
    from mcp.client.stdio import StdioServerParameters

START_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 10.0
"""Longer than the SDK waits for a server process to exit."""
MAX_PAGES = 100
SESSION_TERMINATED = "Session terminated"
"""The SDK's message for an HTTP server that no longer knows the session. Such a call had no effect."""

Connect = Callable[[asyncio.Event], AbstractAsyncContextManager["Client"]]
"""Opens a client. The event is set when the client's stream ends."""

log = structlog.get_logger(__name__)


class StartFailed(Exception):
    """An agent's tools are not available. The message is for the person who starts the server."""


class McpOptions(TypedDict, total=False):
    """The keyword arguments of every MCP server. `DEFAULTS` holds the values of those that are left out."""

    tools: Collection[str] | None
    """Names of the tools to use. None: all."""
    prefix: str
    """Prepended to the names of the tools, to make them unique."""
    exposed: bool
    """Whether clients find the tools in the list of tools; see `tool`."""
    internal: bool
    """Whether clients see neither the tools nor their calls; see `tool`."""
    needs_approval: bool | Collection[str]
    """Whether the user must approve each call: for all tools, or for those of these names."""
    idempotent: bool | Collection[str] | None
    """Whether a call may be repeated after a crash: for all tools, none, or those of these names. None: for the tools
    that the server declares as read-only or idempotent."""
    timeout_s: float
    """A call that takes longer fails."""


DEFAULTS = McpOptions(
    tools=None,
    prefix="",
    exposed=True,
    internal=False,
    needs_approval=False,
    idempotent=None,
    timeout_s=ToolPolicy().timeout_s,
)


class McpServer:
    """The tools of an MCP server, as an entry of an agent's `tools`. Created by `stdio` or `http`.

    Several agents may share one server; they share its connection.
    """

    def __init__(self, label: str, connect: Connect, **options: Unpack[McpOptions]) -> None:
        reject_unknown_options(f"MCP server {label}", options, DEFAULTS)
        chosen: McpOptions = {**DEFAULTS, **options}
        self.label = label
        self._connect = connect
        self._tool_names = None if chosen["tools"] is None else frozenset(chosen["tools"])
        self._options = chosen
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
        **options: Unpack[McpOptions],
    ) -> "McpServer":
        """An MCP server that runs as a child process.

        Args:
            label: the server's name, as clients see it.
            command: the program.
            arguments: command-line arguments of the program.
            env: environment variables for the process, beside the few that it inherits. API keys are not inherited.
            cwd: working directory of the process.
            options: see `McpOptions`.
        """

        def connect(stream_ended: asyncio.Event) -> AbstractAsyncContextManager["Client"]:
            from mcp.client.stdio import StdioServerParameters

            variables = None if env is None else dict(env)
            return _stdio_client(
                StdioServerParameters(command=command, args=list(arguments), env=variables, cwd=cwd), stream_ended
            )

        return cls(label, connect, **options)

    @classmethod
    def http(
        cls, label: str, url: str, *, headers: Mapping[str, str] | None = None, **options: Unpack[McpOptions]
    ) -> "McpServer":
        """An MCP server that is reached by streamable HTTP.

        Args:
            label: the server's name, as clients see it.
            url: address of the MCP endpoint.
            headers: HTTP headers of each request, such as `Authorization`.
            options: see `McpOptions`.
        """
        return cls(label, lambda _: _http_client(url, dict(headers or {})), **options)

    def __repr__(self) -> str:
        return f"<MCP server {self.label}>"

    @property
    def tools(self) -> Sequence["McpTool"]:
        """The tools. Empty before `start`."""
        return self._tools

    async def start(self) -> None:
        """Connect and list the tools. Starts are counted, because several agents may share the server.

        Raises:
            StartFailed: the server cannot be reached, lacks a requested tool, or the extra is not installed.
        """
        if find_spec("mcp") is None:
            raise StartFailed(
                f"MCP server {self.label}: the extra `mcp` is not installed: "
                "pip install 'dragoman[mcp]', or in a checkout make run EXTRAS=mcp"
            )
        if self._reference_count == 0:
            try:
                connection = await self._ensure_connected()
                tools = await connection.list_tools()
            except Exception as error:  # the boundary to another program: any failure means that the start failed
                await self._disconnect()
                raise StartFailed(f"MCP server {self.label}: {_reason(error)}") from error
            missing = (self._tool_names or frozenset()) - {tool.name for tool in tools}
            if missing:
                await self._disconnect()
                raise StartFailed(f"MCP server {self.label} has no tool {', '.join(sorted(missing))}")
            self._tools = tuple(
                McpTool(self, tool.name, self._server_tool(tool))
                for tool in tools
                if self._tool_names is None or tool.name in self._tool_names
            )
        self._reference_count += 1

    async def aclose(self) -> None:
        """Undo one `start`. The last one closes the connection."""
        self._reference_count -= 1
        if self._reference_count == 0:
            self._tools = ()
            await self._disconnect()

    async def call(self, name: str, arguments: JsonObject, *, may_repeat: bool) -> Json:
        """Call a tool by the name that the server uses.

        Raises:
            ToolFailed: the tool failed, or the server cannot be reached or died during the call.
        """
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        for is_last_try in (False, True):
            try:
                connection = await self._ensure_connected()
            except Exception as error:  # as in `start`; the next call tries again
                raise ToolFailed(f"cannot reach the MCP server {self.label}: {_reason(error)}") from error
            try:
                return to_tool_result(await connection.client.call_tool(name, arguments))
            except MCPError as error:
                had_no_effect = error.message == SESSION_TERMINATED
                if not had_no_effect and error.code != CONNECTION_CLOSED:
                    raise ToolFailed(error.message) from error
                connection.mark_ended()
                if is_last_try or not (had_no_effect or may_repeat):
                    raise ToolFailed(
                        f"lost the connection to the MCP server {self.label}; "
                        "the tool may or may not have had an effect"
                    ) from error
                log.warning("MCP connection lost, reconnecting", server=self.label)
        raise AssertionError("the last try returns or raises")

    def _server_tool(self, tool: "Tool") -> ServerTool:
        idempotent = self._options["idempotent"]
        may_repeat = is_repeatable(tool) if idempotent is None else _applies_to(idempotent, tool.name)
        policy = ToolPolicy(
            exposed=self._options["exposed"],
            internal=self._options["internal"],
            needs_approval=_applies_to(self._options["needs_approval"], tool.name),
            on_restart="repeat" if may_repeat else "fail",
            timeout_s=self._options["timeout_s"],
        )
        return ServerTool(spec=to_tool_spec(tool, self._options["prefix"]), policy=policy, server=self.label)

    async def _ensure_connected(self) -> "_Connection":
        """The current connection, or a new one if it has ended."""
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
    """A tool of an MCP server."""

    def __init__(self, server: McpServer, name: str, declaration: ServerTool) -> None:
        self.declaration = declaration
        self._server = server
        self._name = name

    def __repr__(self) -> str:
        return f"<tool {self.declaration.spec.name} of {self._server!r}>"

    async def run(self, arguments: JsonObject, context: ToolContext) -> Json:
        """Call the tool on the server. If this is cancelled, the server is notified."""
        if UNPARSED_ARGUMENTS in arguments:
            raise ToolFailed("the arguments are not a JSON object")
        return await self._server.call(self._name, arguments, may_repeat=self.declaration.policy.on_restart == "repeat")


class _Connection:
    """A connection, kept open by its own task until `close`."""

    def __init__(self, label: str, connect: Connect) -> None:
        self.client: Client
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the client can be used; fails if it cannot be opened."""
        self._stream_ended = asyncio.Event()
        self._may_close = asyncio.Event()
        self._task = asyncio.create_task(self._keep_open(connect), name=f"MCP server {label}")

    @property
    def has_ended(self) -> bool:
        """Whether the connection can no longer be used."""
        return self._stream_ended.is_set() or self._task.done()

    def mark_ended(self) -> None:
        """Do not use this connection any more."""
        self._stream_ended.set()

    async def list_tools(self) -> list["Tool"]:
        """All tools of the server."""
        tools: list[Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self.client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return tools

    async def close(self) -> None:
        """Close the connection and end the server's process."""
        self._may_close.set()
        if not self.opened.done():
            self._task.cancel()
        _, pending = await asyncio.wait([self._task], timeout=CLOSE_TIMEOUT_S)
        if pending:
            self._task.cancel()
        if self.opened.done() and not self.opened.cancelled():
            self.opened.exception()  # mark as retrieved: if nobody awaited the failure, it need not be reported

    async def _keep_open(self, connect: Connect) -> None:
        try:
            async with connect(self._stream_ended) as client:
                self.client = client
                if not self.opened.done():
                    self.opened.set_result(None)
                await self._may_close.wait()
        except Exception as error:  # noqa: BLE001  # a task's root; whoever awaits `opened` gets the error
            if self.opened.done():
                log.debug("MCP connection ended", error=_reason(error))
            else:
                self.opened.set_exception(error)


@asynccontextmanager
async def _stdio_client(parameters: "StdioServerParameters", stream_ended: asyncio.Event) -> AsyncIterator["Client"]:
    from mcp import Client
    from mcp.client.stdio import stdio_client

    @asynccontextmanager
    async def end_detecting_client() -> AsyncIterator[tuple[Any, Any]]:
        async with stdio_client(parameters) as (reader, writer):
            yield _EndDetectingStream(reader, stream_ended), writer

    async with Client(end_detecting_client()) as client:
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
    """Sets an event when a stream of the SDK ends, so that no call is sent to a process that has exited."""

    def __init__(self, stream: Any, stream_ended: asyncio.Event) -> None:  # noqa: ANN401  # an anyio stream of SDK messages
        self._stream = stream
        self._stream_ended = stream_ended

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
            self._stream_ended.set()
            raise

    async def __aenter__(self) -> "_EndDetectingStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _applies_to(names: bool | Collection[str], name: str) -> bool:
    if isinstance(names, bool):
        return names
    if isinstance(names, str):
        raise DeclarationError(f"expected a list of tool names, got the string {names!r}")
    return name in names


def _reason(error: BaseException) -> str:
    """A description of the error, taken out of the exception groups that the SDK wraps around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"no answer within {START_TIMEOUT_S:g} s"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
