"""MCP over HTTP: one path for all agents, one for each. Reads messages, and hands them to the methods.

Source: the Streamable HTTP transport. The order of the checks: key, HTTP method, media types and size, JSON, envelope,
version, session, method, parameters, agent.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.core.content import JsonObject
from dragoman.core.stream import Cursor
from dragoman.engine.engine import Engine
from dragoman.ports.bus import Bus
from dragoman.protocols.kit.access import AccessControl
from dragoman.protocols.kit.app import ProtocolApp, principal_of
from dragoman.protocols.kit.body import header, json_response, read_json_body
from dragoman.protocols.kit.decoding import parse_whole_number
from dragoman.protocols.kit.endpoints import LAST_EVENT_ID, ApiDescription, Handlers, endpoint, request_header
from dragoman.protocols.kit.errors import ErrorResponse, InvalidBody, MethodNotAllowed, UnknownPath
from dragoman.protocols.kit.json_rpc import ErrorMessage, RequestId, ResultMessage, readable_id
from dragoman.protocols.kit.router import Route
from dragoman.protocols.kit.runs import SessionStreams, read_answer
from dragoman.protocols.kit.sse import EventStream
from dragoman.protocols.mcp import errors, wire
from dragoman.protocols.mcp.calls import Calls, OpenAnswer
from dragoman.protocols.mcp.errors import (
    InvalidMessage,
    InvalidParams,
    NotAcceptable,
    UnknownMcpSession,
    UnknownMethod,
    UnsupportedVersion,
)
from dragoman.protocols.mcp.open_streams import OpenStreams
from dragoman.protocols.mcp.options import METADATA_PATH, Authorization, McpOptions
from dragoman.protocols.mcp.resources import Resources
from dragoman.protocols.mcp.tasks import Tasks
from dragoman.protocols.mcp.tokens import SessionTokens, parse_event_id
from dragoman.protocols.mcp.translate import INSTRUCTIONS, tool_of
from dragoman.protocols.mcp.turns import Turns
from dragoman.protocols.mcp.versions import VERSION_HEADER, complete, is_new, read_new_client
from dragoman.protocols.mcp.wire import MethodRequest

TOOLS_PER_PAGE = 100
RETRY_MS = 1000
"""After which a client with a broken stream reconnects."""
METADATA_PATHS = (METADATA_PATH, METADATA_PATH + "/{rest:path}")
"""Where hosts look after a 401 for what says where they get tokens."""
DISCOVERY_PATHS = (
    ".well-known/oauth-authorization-server",
    ".well-known/oauth-authorization-server/{rest:path}",
    ".well-known/openid-configuration",
)
"""Where hosts look for an authorization server. This server is none; a page in HTML there would confuse them."""


class Exchange(NamedTuple):
    """What the answer to a request must repeat: its id, and the form of its version."""

    request_id: RequestId | None = None
    is_new: bool = False


_EXCHANGE: ContextVar[Exchange] = ContextVar("exchange", default=Exchange())  # noqa: B039  # immutable


def all_paths(path: str) -> tuple[str, ...]:
    """Patterns for every path of the protocol, in Starlette's notation."""
    return (path, f"{path}/{{rest:path}}", *(f"/{each}" for each in (*METADATA_PATHS, *DISCOVERY_PATHS)), "/register")


def app(
    engine: Engine,
    access: AccessControl,
    options: McpOptions,
    keys: Sequence[bytes],
    bus: Bus,
) -> ASGIApp:
    """Return the protocol as an ASGI application at the root.

    Args:
        engine: has the agents and their sessions.
        access: authenticates callers.
        options: the protocol's settings.
        keys: the first one signs the ids of sessions.
        bus: reaches the calls that other servers answer.
    """
    turns = Turns(engine, options)
    streams = SessionStreams(engine, access.admit_stream)
    calls, tasks = Calls(engine, options, turns, streams, OpenStreams(bus)), Tasks(engine, options, turns)
    handlers = _Handlers(engine, options, SessionTokens(keys), calls, tasks)
    write_error = partial(_write_error, options.authorization)
    protocol = ProtocolApp("mcp", handlers.routes(), errors.ERRORS, access, write_error=write_error)

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        _EXCHANGE.set(Exchange())
        await protocol(scope, receive, send)

    return respond


def _write_error(authorization: Authorization | None, error: ErrorResponse) -> Response:
    exchange = _EXCHANGE.get()
    error = errors.to_new_version(error) if exchange.is_new else error
    return json_response(
        errors.error_message(error, exchange.request_id), error.status, errors.headers_for(error, authorization)
    )


Method = Callable[[MethodRequest], Awaitable[JsonObject]]
_VERSION_HEADER = request_header("MCP-Protocol-Version", "The version of the protocol that the client speaks.")
_SESSION_HEADER = request_header("Mcp-Session-Id", "The session that `initialize` began.")
_POST: Mapping[str, Any] = {
    "scope": "read",
    "body": wire.Message,
    "example": {"jsonrpc": "2.0", "id": 1, "method": "ping"},
    "parameters": (_VERSION_HEADER, _SESSION_HEADER),
    "streams": "The answer to `tools/call`: server-sent events with progress, forms and the result.",
}
_GET: Mapping[str, Any] = {
    "parameters": (_VERSION_HEADER, _SESSION_HEADER, LAST_EVENT_ID),
    "streams": "The rest of the stream.",
}


class _Handlers(Handlers):
    def __init__(self, engine: Engine, options: McpOptions, tokens: SessionTokens, calls: Calls, tasks: Tasks) -> None:
        self._engine = engine
        self._options = options
        self._tokens = tokens
        self._calls = calls
        common: dict[str, Method] = {"tools/list": self.list_tools}
        if options.resources:
            resources = Resources(engine)
            common["resources/list"] = resources.page
            common["resources/templates/list"] = resources.templates
            common["resources/read"] = resources.read
        self._old_methods: Mapping[str, Method] = {"initialize": self.initialize, "ping": self.ping, **common}
        self._new_methods: Mapping[str, Method] = {
            "server/discover": self.discover,
            **common,
            "tasks/get": tasks.get,
            "tasks/update": tasks.update,
            "tasks/cancel": tasks.cancel,
        }

    def routes(self) -> list[Route]:
        mount = self._options.path.strip("/")
        routes = [each._replace(path=f"{mount}/{each.path}".rstrip("/")) for each in super().routes()]

        async def nothing(_: Request) -> Response:
            raise UnknownPath

        return [
            *routes,
            *(Route("GET", path, self.resource_metadata, is_open=True) for path in METADATA_PATHS),
            *(Route("GET", path, nothing, is_open=True) for path in DISCOVERY_PATHS),
            Route("POST", "register", nothing, is_open=True),
        ]

    async def resource_metadata(self, request: Request) -> Response:
        """Say where hosts get tokens, if there is an authorization server."""
        authorization, rest = self._options.authorization, request.path_params.get("rest", "")
        if authorization is None or not authorization.describes(f"/{rest}" if rest else ""):
            raise UnknownPath
        return json_response(authorization.metadata)

    @endpoint("POST", "/", **_POST)
    @endpoint("POST", "/{agent}", **_POST)
    async def post(self, request: Request) -> ResultMessage | Response:
        """Send a JSON-RPC message.

        A request is answered, a notification or a response with 202. Agents are tools: all, or the one of the path.
        """
        takes_streams, agent = _takes_streams(request), request.path_params.get("agent")
        message = await self._read_message(request)
        request_id = None if message.id is msgspec.UNSET else message.id
        _EXCHANGE.set(Exchange(request_id))
        client = self._client_of(request, message)
        if agent is not None:
            self._engine.agent(agent)
        if message.method is msgspec.UNSET:
            if client.is_new:
                raise InvalidMessage("this version answers forms with the repeated request")
            if message.result is msgspec.UNSET and message.error is msgspec.UNSET:
                raise InvalidMessage("a message must have a method, a result or an error")
            await self._calls.answer_from_form(principal_of(request), client, message)
            return Response(status_code=202)
        params = {} if message.params is msgspec.UNSET else message.params
        if request_id is None:
            if message.method == "notifications/cancelled" and isinstance(params, dict) and not client.is_new:
                await self._calls.cancel(principal_of(request), client, params.get("requestId"))
            return Response(status_code=202)
        method = (self._new_methods if client.is_new else self._old_methods).get(message.method)
        if method is None and message.method != "tools/call":
            raise UnknownMethod(message.method)
        if not isinstance(params, dict):
            raise InvalidParams("params must be an object")
        asked = MethodRequest(principal_of(request), client, agent, request_id, params)
        if method is None:
            return await self._call_tool(request, asked, takes_streams)
        result = await method(asked)
        headers = {}
        if client.is_new:
            result = complete(result, self._options.server_info, ttl_ms=LIFETIMES_MS.get(message.method))
        elif message.method == "initialize":
            headers["Mcp-Session-Id"] = self._begin_session(request, result["protocolVersion"], params)
        return json_response(ResultMessage(id=request_id, result=result), headers=headers)

    @endpoint("GET", "/", **_GET)
    @endpoint("GET", "/{agent}", **_GET)
    async def get(self, request: Request) -> Response:
        """Continue the stream of a call after `Last-Event-ID`."""
        event_id = header(request.scope, b"last-event-id")
        if event_id is None or header(request.scope, VERSION_HEADER) == wire.NEW_VERSION:
            raise MethodNotAllowed(("POST",))  # nothing is ever sent outside the stream of a request
        client = self._session_of(request)
        position = parse_event_id(event_id)
        async with AsyncExitStack() as stack:
            found = None
            if position is not None:
                found = await self._calls.resume(principal_of(request), client, position, stack)
            if found is None:
                raise UnknownMcpSession("event")
            return await self._stream(client, found)

    # --- messages -------------------------------------------------------------------------------------------------

    async def _read_message(self, request: Request) -> wire.Message:
        """The JSON-RPC message of a body. Raises InvalidJson and InvalidBody."""
        body = await read_json_body(request, self._options.body_limit)
        try:
            return wire.decode_message(body)
        except InvalidBody:
            _EXCHANGE.set(Exchange(readable_id(body)))
            raise

    def _client_of(self, request: Request, message: wire.Message) -> wire.Client:
        """The version that a message is sent in, and its session.

        Raises:
            UnsupportedVersion: the version is not served.
            InvalidMessage: there is no session.
            UnknownMcpSession: it is not one of the caller's.
        """
        version = header(request.scope, VERSION_HEADER)
        if is_new(version, message.params):
            _EXCHANGE.set(_EXCHANGE.get()._replace(is_new=True))
            if message.id is msgspec.UNSET or message.method is msgspec.UNSET:
                return wire.Client(wire.NEW_VERSION)
            return read_new_client(request.scope["headers"], message.method, message.params)
        if version is not None and version not in wire.OLD_VERSIONS:
            raise UnsupportedVersion(version)
        if message.method == "initialize":
            return wire.Client(version or wire.OLD_VERSIONS[0])
        return self._session_of(request)

    def _session_of(self, request: Request) -> wire.Client:
        token, version = header(request.scope, b"mcp-session-id"), header(request.scope, VERSION_HEADER)
        if token is None:
            raise InvalidMessage("Mcp-Session-Id is missing: begin with initialize")
        now_s = int(self._engine.clock.now().timestamp())
        client = self._tokens.read(token, principal_of(request).user, now_s)
        if client is None:
            raise UnknownMcpSession("session")
        return client._replace(version=version) if version in wire.OLD_VERSIONS else client

    def _begin_session(self, request: Request, version: str, params: JsonObject) -> str:
        now_s = int(self._engine.clock.now().timestamp())
        has_forms = wire.accepts_forms(params.get("capabilities"))
        return self._tokens.make(principal_of(request).user, version, has_forms, now_s, secrets.token_bytes(16))

    # --- streams --------------------------------------------------------------------------------------------------

    async def _stream(self, client: wire.Client, answer: OpenAnswer) -> Response:
        """Follow a turn with a stream."""
        turn, frames = answer.turn, answer.frames
        reader = self._engine.follow(turn.session, Cursor(turn.first_seq - 1))
        frames.attach(reader)
        before = b""
        if client.version == wire.OLD_VERSIONS[0]:  # older clients cannot read an event without data
            before = b"%bretry: %d\ndata: \n\n" % (frames.id_at(turn.live_from), RETRY_MS)
        return await EventStream(reader, frames, on_close=answer.on_close).open(before)

    async def _call_tool(self, request: Request, asked: MethodRequest, takes_streams: bool) -> Response:
        """Send a message to an agent. A client that takes no streams gets no progress and no forms."""
        if takes_streams:
            asked = asked._replace(progress_token=_progress_token(asked.params))
        else:
            asked = asked._replace(client=asked.client._replace(has_forms=False))
        async with AsyncExitStack() as stack:
            answer = await self._calls.call(asked, stack)
            if not isinstance(answer, OpenAnswer):
                result = complete(answer, self._options.server_info) if asked.client.is_new else answer
                return json_response(ResultMessage(id=asked.id, result=result))
            if takes_streams:
                return await self._stream(asked.client, answer)
            reader = self._engine.follow(answer.turn.session, Cursor(answer.turn.first_seq - 1))
            answer.frames.attach(reader)
            await read_answer(request, reader, answer.frames, answer.on_close)
            if answer.frames.result is None:
                raise InvalidMessage("the request was cancelled")
            return json_response(ResultMessage(id=asked.id, result=answer.frames.result))

    # --- methods --------------------------------------------------------------------------------------------------

    async def initialize(self, request: MethodRequest) -> JsonObject:
        """Begin a session of an old version."""
        requested = request.params.get("protocolVersion")
        version = requested if requested in wire.OLD_VERSIONS else wire.OLD_VERSIONS[0]
        return {"protocolVersion": version, **self._description(), "serverInfo": self._options.server_info}

    async def discover(self, request: MethodRequest) -> JsonObject:
        """Describe the server to a client of the new version."""
        description = self._description()
        description["capabilities"]["extensions"] = {wire.TASKS: {}}
        return {"supportedVersions": list(wire.VERSIONS), **description}

    async def ping(self, request: MethodRequest) -> JsonObject:
        """Answer that the server is there."""
        return {}

    async def list_tools(self, request: MethodRequest) -> JsonObject:
        """List the agents, the default one first."""
        specs = [agent.spec for agent in self._engine.agents.values()]
        specs.sort(key=lambda spec: spec.name != self._engine.default_agent)
        if request.agent is not None:
            specs = [self._engine.agent(request.agent).spec]
        start = _parse_page(request.params.get("cursor", "0"), len(specs))
        page: JsonObject = {"tools": [tool_of(each) for each in specs[start : start + TOOLS_PER_PAGE]]}
        if start + TOOLS_PER_PAGE < len(specs):
            page["nextCursor"] = str(start + TOOLS_PER_PAGE)
        return page

    def _description(self) -> JsonObject:
        capabilities: JsonObject = {"tools": {"listChanged": False}}
        if self._options.resources:
            capabilities["resources"] = {}
        return {"capabilities": capabilities, "instructions": INSTRUCTIONS}


LIFETIMES_MS = {
    "server/discover": 3_600_000,
    "tools/list": 60_000,
    "resources/list": 60_000,
    "resources/templates/list": 60_000,
    "resources/read": 0,
}
"""How long a client of the new version may keep a result."""


def _takes_streams(request: Request) -> bool:
    """Whether the client takes streams, not JSON alone. Raises NotAcceptable."""
    types = [each.partition(";")[0].strip().lower() for each in request.headers.get("accept", "*/*").split(",")]
    takes_streams = any(each in ("*/*", "text/*", "text/event-stream") for each in types)
    if not takes_streams and not any(each in ("application/*", "application/json") for each in types):
        raise NotAcceptable
    return takes_streams


def _progress_token(params: JsonObject) -> RequestId | None:
    """The client's token for progress. Raises InvalidMessage."""
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if token is None:
        return None
    try:
        found: RequestId = msgspec.convert(token, RequestId)
    except msgspec.ValidationError as error:
        raise InvalidMessage("progressToken must be an integer or a string of at most 1024 characters") from error
    return found


def _parse_page(cursor: Any, count: int) -> int:  # noqa: ANN401  # whatever a client sent
    place = parse_whole_number(cursor, 0, count) if isinstance(cursor, str) else None
    if place is None:
        raise InvalidParams("expected the nextCursor of an earlier page")
    return place


OPENAPI_ROUTES = ApiDescription("MCP", error_body=ErrorMessage).routes(_Handlers)
