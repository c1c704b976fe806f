"""MCP servers as tools, through the official SDK, which is imported when a server is started.

When a server dies, the next call reconnects. A call that was in progress is repeated only if its tool may be repeated.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack

import structlog

from dragoman.agents.mcp_connection import (
    START_TIMEOUT_S,
    Connect,
    Connection,
    http_client_of,
    reason_of,
    stdio_client_of,
)
from dragoman.agents.mcp_mapping import is_repeatable, to_tool_result, to_tool_spec
from dragoman.agents.mcp_questions import ServerCall
from dragoman.agents.options import reject_unknown_options
from dragoman.agents.parameters import DeclarationError
from dragoman.core.agent import Deferred, ToolContext, ToolFailed
from dragoman.core.content import UNPARSED_ARGUMENTS, Json, JsonObject
from dragoman.core.ids import CallId
from dragoman.core.tools import ServerTool, ToolPolicy

if TYPE_CHECKING:
    from mcp import Client, Tool
    from mcp_types import CallToolResult

RETRY_DELAY_S = 5.0
"""Delay before the first attempt to reach an optional server again; it doubles up to the maximum."""
MAX_RETRY_DELAY_S = 60.0
MAX_CONNECTIONS = 64
"""Maximum number of connections to a server for users with headers of their own, unless more are in use."""
ABANDON_TIMEOUT_S = 2.0
"""How long a call may take to end after its question was closed. Then it is cancelled."""
SESSION_TERMINATED = "Session terminated"
"""The SDK's message for an HTTP server that no longer knows the session. Such a call had no effect."""

UserHeaders = Callable[[ToolContext], Mapping[str, str]]
"""Returns the HTTP headers of a user's calls, such as the user's own token."""

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
    optional: bool
    """Whether agents start without the server's tools if it is not available. They get them when it is."""


DEFAULTS = McpOptions(
    tools=None,
    prefix="",
    exposed=True,
    internal=False,
    needs_approval=False,
    idempotent=None,
    timeout_s=ToolPolicy().timeout_s,
    optional=False,
)


class _WaitingCall(NamedTuple):
    """A call that waits on the server for an answer of the user, and its context in our session."""

    connection: Connection
    call: ServerCall
    context: ToolContext


class McpServer:
    """The tools of an MCP server, as an entry of an agent's `tools`. Created by `stdio` or `http`.

    Several agents may share one server; they share its connection.
    """

    def __init__(
        self, label: str, connect: Callable[[Mapping[str, str]], Connect], **options: Unpack[McpOptions]
    ) -> None:
        reject_unknown_options(f"MCP server {label}", options, DEFAULTS)
        chosen: McpOptions = {**DEFAULTS, **options}
        self.label = label
        self._connect = connect
        self._tool_names = None if chosen["tools"] is None else frozenset(chosen["tools"])
        self._options = chosen
        self._tools: tuple[McpTool, ...] = ()
        self._reference_count = 0
        self._user_headers: UserHeaders | None = None
        self._connections: dict[frozenset[tuple[str, str]], Connection] = {}
        """By the headers of the users; the server's own connection has none."""
        self._connect_lock = asyncio.Lock()
        self._has_changed = asyncio.Event()
        """Set when the list of tools has to be read again."""
        self._refresh_task: asyncio.Task[None] | None = None
        self._waiting_calls: dict[CallId, _WaitingCall] = {}

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

        def connect(connection: Connection) -> AbstractAsyncContextManager["Client"]:
            from mcp.client.stdio import StdioServerParameters

            variables = None if env is None else dict(env)
            return stdio_client_of(
                StdioServerParameters(command=command, args=list(arguments), env=variables, cwd=cwd), connection
            )

        return cls(label, lambda _: connect, **options)

    @classmethod
    def http(
        cls,
        label: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        user_headers: UserHeaders | None = None,
        **options: Unpack[McpOptions],
    ) -> "McpServer":
        """An MCP server that is reached by streamable HTTP.

        Args:
            label: the server's name, as clients see it.
            url: address of the MCP endpoint.
            headers: HTTP headers of each request, such as `Authorization`.
            user_headers: further headers for the calls of a user, such as the user's own token. Users with different
                headers have connections of their own. The tools are listed without them.
            options: see `McpOptions`.
        """
        common = dict(headers or {})

        def connect(further: Mapping[str, str]) -> Connect:
            return lambda connection: http_client_of(url, {**common, **further}, connection)

        server = cls(label, connect, **options)
        server._user_headers = user_headers
        return server

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
                await self._load_tools()
            except StartFailed as error:
                if not self._options["optional"]:
                    await self._disconnect()
                    raise
                log.warning("MCP server not available, starting without its tools", reason=str(error))
                self._has_changed.set()
            self._refresh_task = asyncio.create_task(self._keep_tools_current(), name=f"tools of {self.label}")
        self._reference_count += 1

    async def aclose(self) -> None:
        """Undo one `start`. The last one closes the connections."""
        self._reference_count -= 1
        if self._reference_count == 0:
            if self._refresh_task is not None:
                self._refresh_task.cancel()
                await asyncio.wait([self._refresh_task])
            self._tools = ()
            for waiting in self._waiting_calls.values():
                waiting.call.task.cancel()
            await self._disconnect()

    async def _load_tools(self) -> None:
        """Read the list of tools. Raises StartFailed."""
        try:
            connection = await self._ensure_connected({})
            tools = await connection.list_tools()
        except Exception as error:  # the boundary to another program: any failure means that there are no tools
            raise StartFailed(f"MCP server {self.label}: {reason_of(error)}") from error
        missing = (self._tool_names or frozenset()) - {tool.name for tool in tools}
        if missing:
            raise StartFailed(f"MCP server {self.label} has no tool {', '.join(sorted(missing))}")
        self._tools = tuple(
            McpTool(self, tool.name, self._server_tool(tool))
            for tool in tools
            if self._tool_names is None or tool.name in self._tool_names
        )

    async def _keep_tools_current(self) -> None:
        """Read the list of tools again whenever it has changed, and until an optional server is available."""
        while True:
            await self._has_changed.wait()
            delay_s = RETRY_DELAY_S
            while self._has_changed.is_set():
                if not self._tools:
                    await asyncio.sleep(delay_s)
                self._has_changed.clear()
                try:
                    await self._load_tools()
                    log.info("tools of an MCP server changed", server=self.label, tools=len(self._tools))
                except StartFailed as error:
                    log.warning("tools of an MCP server cannot be listed, retrying", reason=str(error))
                    self._has_changed.set()
                    await asyncio.sleep(delay_s if self._tools else 0)
                    delay_s = min(2 * delay_s, MAX_RETRY_DELAY_S)

    async def call(self, name: str, arguments: JsonObject, context: ToolContext, *, may_repeat: bool) -> Json:
        """Call a tool for a user, by the name that the server uses.

        Raises:
            ToolFailed: the tool failed, or the server cannot be reached or died during the call.
            Deferred: the server asks the user. When the tool runs again, the call continues with the answer.
        """
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED

        headers = {} if self._user_headers is None else self._user_headers(context)
        await self._close_abandoned_calls()
        waiting = self._waiting_calls.get(context.call_id)
        if waiting is None and context.answers and not may_repeat:
            raise ToolFailed(
                f"the MCP server {self.label} no longer waits for this answer; "
                "the tool may or may not have had an effect"
            )
        for is_last_try in (False, True):
            try:
                connection = await self._ensure_connected(headers) if waiting is None else waiting.connection
            except Exception as error:  # as in `start`; the next call tries again
                raise ToolFailed(f"cannot reach the MCP server {self.label}: {reason_of(error)}") from error
            try:
                if waiting is not None:
                    waiting.call.answer(context.answers)
                    return await self._result(connection, waiting.call, context)
                can_ask = not (context.metadata.headless or self._options["internal"])
                call = connection.start_call(name, arguments, can_ask=can_ask, first_answers=context.answers)
                return await self._result(connection, call, context)
            except MCPError as error:
                had_no_effect = error.message == SESSION_TERMINATED
                if not had_no_effect and error.code != CONNECTION_CLOSED:
                    raise ToolFailed(connection.http_error or error.message) from error
                connection.mark_ended()
                if is_last_try or not (had_no_effect or may_repeat):
                    raise ToolFailed(
                        f"lost the connection to the MCP server {self.label}; "
                        "the tool may or may not have had an effect"
                    ) from error
                waiting = None
                log.warning("MCP connection lost, reconnecting", server=self.label)
        raise AssertionError("the last try returns or raises")

    async def _result(self, connection: Connection, call: ServerCall, context: ToolContext) -> Json:
        """The result of a call. It is cancelled if this is, but continues if the server asks the user (Deferred)."""
        call_id = context.call_id

        def forget(task: "asyncio.Task[CallToolResult]") -> None:
            self._waiting_calls.pop(call_id, None)
            if not task.cancelled():
                task.exception()  # mark as retrieved: nobody may come back with an answer

        try:
            return to_tool_result(await call.result())
        except Deferred:
            if call_id not in self._waiting_calls:
                self._waiting_calls[call_id] = _WaitingCall(connection, call, context)
                call.task.add_done_callback(forget)
            raise
        except asyncio.CancelledError:
            call.task.cancel()
            raise

    async def _close_abandoned_calls(self) -> None:
        """End the calls whose question nobody will answer: open calls may keep the server from asking others."""
        abandoned = [each.call for each in self._waiting_calls.values() if each.context.is_settled]
        for call in abandoned:
            call.abandon()
        if abandoned:
            _, left = await asyncio.wait([each.task for each in abandoned], timeout=ABANDON_TIMEOUT_S)
            for task in left:
                task.cancel()

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

    async def _ensure_connected(self, headers: Mapping[str, str]) -> Connection:
        """The current connection with these headers of a user, or a new one if it has ended or is outdated."""
        key = frozenset(headers.items())
        async with self._connect_lock:
            current = self._connections.pop(key, None)
            if current is not None and not (current.has_ended or current.is_outdated):
                self._connections[key] = current  # the newest is the last
                return current
            if current is not None:
                await current.close()
            idle = [each for each, used in self._connections.items() if each and not used.use_count]
            for each in idle[: max(0, len(self._connections) - MAX_CONNECTIONS + 1)]:
                await self._connections.pop(each).close()
            connection = Connection(self.label, self._connect(headers), self._has_changed if not key else None)
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    await connection.opened
            except BaseException as error:
                await connection.close()
                if isinstance(error, Exception) and connection.http_error is not None:
                    raise ConnectionRefusedError(connection.http_error) from error
                raise
            self._connections[key] = connection
            return connection

    async def _disconnect(self) -> None:
        connections, self._connections = self._connections, {}
        for connection in connections.values():
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
        may_repeat = self.declaration.policy.on_restart == "repeat"
        return await self._server.call(self._name, arguments, context, may_repeat=may_repeat)


def _applies_to(names: bool | Collection[str], name: str) -> bool:
    if isinstance(names, bool):
        return names
    if isinstance(names, str):
        raise DeclarationError(f"expected a list of tool names, got the string {names!r}")
    return name in names
