"""Connections to MCP servers, through the official SDK, which is imported when a server is started.

Each connection has its own task, because the SDK's streams belong to the task that opened them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import structlog

from dragoman.agents.mcp_questions import Answers, ServerCall
from dragoman.core.content import JsonObject

if TYPE_CHECKING:
    import httpx2
    from mcp import Client, Tool
    from mcp.client._transport import Transport
    from mcp.client.session import ClientRequestContext
    from mcp.client.stdio import StdioServerParameters
    from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult

START_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 10.0
"""Longer than the SDK waits for a server process to exit."""
MAX_PAGES = 100
HTTP_HINTS = {
    401: "the server requires credentials, or rejects those in its headers",
    403: "the credentials in the headers do not suffice",
    404: "there is no MCP endpoint at this address",
}

Connect = Callable[["Connection"], AbstractAsyncContextManager["Client"]]
"""Opens the client of a connection."""

log = structlog.get_logger(__name__)


class Connection:
    """A connection, kept open by its own task until `close`. `tools_changed` is set when the server says so."""

    def __init__(self, label: str, connect: Connect, tools_changed: asyncio.Event | None) -> None:
        self.client: Client
        self.use_count = 0
        """The calls in progress."""
        self.http_error: str | None = None
        """The newest error status that the server answered with, in words."""
        self._tools_changed = tools_changed
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the client can be used; fails if it cannot be opened."""
        self._stream_ended = asyncio.Event()
        self._may_close = asyncio.Event()
        self._calls: set[ServerCall] = set()
        self._has_stopped_call = False
        """Whether a call was cancelled: the server may still work on it, as nothing confirms a cancellation."""
        self._asks_without_call = False
        """Whether the server has asked the user without saying during which call."""
        self._task = asyncio.create_task(self._keep_open(connect), name=f"MCP server {label}")

    @property
    def has_ended(self) -> bool:
        """Whether the connection can no longer be used."""
        return self._stream_ended.is_set() or self._task.done()

    @property
    def is_outdated(self) -> bool:
        """Whether a new connection should replace this one: a stopped call keeps it from asking, and none is open."""
        return self._has_stopped_call and self._asks_without_call and not self._calls

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the connection open during a call."""
        self.use_count += 1
        try:
            yield
        finally:
            self.use_count -= 1

    def start_call(self, name: str, arguments: JsonObject, *, can_ask: bool, first_answers: Answers) -> ServerCall:
        """Call a tool in a task of its own; see `ServerCall`."""

        async def run() -> "CallToolResult":
            try:
                with self.in_use():
                    return await self.client.call_tool(name, arguments)
            except asyncio.CancelledError:
                self._has_stopped_call = True
                raise
            finally:
                self._calls.discard(call)  # before anybody sees the result and calls again

        call = ServerCall(run, can_ask=can_ask, first_answers=first_answers)
        self._calls.add(call)
        call.task.add_done_callback(lambda _: self._calls.discard(call))  # if it was cancelled before it started
        return call

    async def on_elicitation(self, context: "ClientRequestContext", params: "ElicitRequestParams") -> "ElicitResult":
        """Ask the user of the call that the question belongs to.

        If the transport does not say which that is, the user is asked only if a single call is open. Calls that are
        themselves asking count, and so do stopped ones: their answers and questions would otherwise reach other users.
        """
        from mcp_types import ElicitResult

        call = ServerCall.current.get()
        if call is None:
            self._asks_without_call = True
            if len(self._calls) != 1 or self._has_stopped_call:
                log.warning(
                    "MCP server did not say during which call it asked the user, question closed",
                    calls=len(self._calls),
                    after_stopped_call=self._has_stopped_call,
                )
                return ElicitResult(action="cancel")
            (call,) = self._calls
        return await call.ask(params)

    async def on_message(self, message: object) -> None:
        """Note that the list of tools has changed. Servers of earlier protocol versions send a notification."""
        from mcp_types import ToolListChangedNotification

        if isinstance(getattr(message, "root", message), ToolListChangedNotification):
            self.note_change()

    def note_change(self) -> None:
        """Have the list of tools read again."""
        if self._tools_changed is not None:
            self._tools_changed.set()

    async def on_response(self, response: "httpx2.Response") -> None:
        """Note an error status: the SDK does not say which it was."""
        if response.is_error:
            hint = HTTP_HINTS.get(response.status_code)
            words = f"HTTP {response.status_code} {response.reason_phrase}".rstrip()
            self.http_error = f"{words}: {hint}" if hint else words
        else:
            self.http_error = None

    async def _listen(self) -> None:
        """Wait for changes of the list of tools. Older servers send notifications instead, or have no changes."""
        try:
            async with self.client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.note_change()
        except Exception as error:  # noqa: BLE001  # a task's root; calls do not depend on it
            log.debug("MCP server announces no changes", error=reason_of(error))

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
            async with connect(self) as client:
                self.client = client
                if not self.opened.done():
                    self.opened.set_result(None)
                listening = asyncio.create_task(self._listen()) if self._tools_changed is not None else None
                try:
                    await self._may_close.wait()
                finally:
                    if listening is not None:
                        listening.cancel()
                        await asyncio.wait([listening])
        except Exception as error:  # noqa: BLE001  # a task's root; whoever awaits `opened` gets the error
            if self.opened.done():
                log.debug("MCP connection ended", error=reason_of(error))
            else:
                self.opened.set_exception(error)


def _client(transport: "Transport", connection: Connection) -> "Client":
    from mcp import Client

    return Client(transport, message_handler=connection.on_message, elicitation_callback=connection.on_elicitation)


@asynccontextmanager
async def stdio_client_of(parameters: "StdioServerParameters", connection: Connection) -> AsyncIterator["Client"]:
    """The client of a program, which runs until the client is closed."""
    from mcp.client.stdio import stdio_client

    @asynccontextmanager
    async def end_detecting_client() -> AsyncIterator[tuple[Any, Any]]:
        async with stdio_client(parameters) as (reader, writer):
            yield _EndDetectingStream(reader, connection.mark_ended), writer

    async with _client(end_detecting_client(), connection) as client:
        yield client


@asynccontextmanager
async def http_client_of(url: str, headers: dict[str, str], connection: Connection) -> AsyncIterator["Client"]:
    """The client of an address."""
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(create_mcp_http_client(headers=headers))
        http.event_hooks["response"].append(connection.on_response)
        transport = streamable_http_client(url, http_client=http)
        yield await stack.enter_async_context(_client(transport, connection))


class _EndDetectingStream:
    """Tells when a stream of the SDK ends, so that no call is sent to a process that has exited."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:  # noqa: ANN401  # an anyio stream of SDK messages
        self._stream = stream
        self._on_end = on_end

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
            self._on_end()
            raise

    async def __aenter__(self) -> "_EndDetectingStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def reason_of(error: BaseException) -> str:
    """A description of the error, taken out of the exception groups that the SDK wraps around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ConnectionRefusedError) and error.errno is None:
        return str(error)
    if isinstance(error, TimeoutError):
        return f"no answer within {START_TIMEOUT_S:g} s"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
