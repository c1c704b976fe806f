"""A2A over HTTP: cards, JSON-RPC in both versions, and HTTP+JSON. Reads requests, and hands them to `tasks`.

The order of the checks: key, path and method, media type and size, JSON, envelope, version, parameters, agent, task.
"""

import hashlib
from collections.abc import Mapping
from contextvars import ContextVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.core.tools import AgentSpec
from dragoman.engine.engine import Engine
from dragoman.protocols.a2a import errors, wire
from dragoman.protocols.a2a.card import card_of
from dragoman.protocols.a2a.errors import (
    InvalidRequest,
    UnknownMethod,
    VersionNotSupported,
)
from dragoman.protocols.a2a.operations import MEDIA_TYPE, Caller, Operation, Operations
from dragoman.protocols.a2a.versions import METHODS, Codec, is_old, upgrade_params
from dragoman.protocols.kit.access import AccessControl, AdmitStream
from dragoman.protocols.kit.app import ProtocolApp, principal_of
from dragoman.protocols.kit.body import header, json_response, read_body
from dragoman.protocols.kit.decoding import decode_json
from dragoman.protocols.kit.endpoints import LAST_EVENT_ID, ApiDescription, Handlers, endpoint, query, request_header
from dragoman.protocols.kit.errors import ErrorResponse, InvalidBody, UnknownPath, UnsupportedMediaType
from dragoman.protocols.kit.frames import encode_json
from dragoman.protocols.kit.json_rpc import ErrorMessage, ResultMessage, readable_id
from dragoman.protocols.kit.router import Route
from dragoman.protocols.kit.sse import EventStream, fixed_stream

CARD_PATH = ".well-known/agent-card.json"


class A2aOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The protocol's settings.

    Attributes:
        path: where it is mounted.
        body_limit: bytes of a request.
        public_cards: whether cards can be read without a key.
        has_keys: whether requests need a key.
        public_url: the address of the server, if it is known.
    """

    path: str = "/a2a"
    body_limit: int = 16 * 1024 * 1024
    public_cards: bool = True
    has_keys: bool = True
    public_url: str | None = None


_CODEC: ContextVar[Codec] = ContextVar("codec", default=Codec())  # noqa: B039  # immutable


def app(engine: Engine, access: AccessControl, options: A2aOptions) -> ASGIApp:
    """Return the protocol as an ASGI application. It also answers `/.well-known/agent-card.json` of the server."""
    handlers = _Handlers(engine, options, access.admit_stream)
    protocol = ProtocolApp("a2a", handlers.routes(), errors.ERRORS, access, write_error=_write_error)

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        _CODEC.set(Codec())
        await protocol(scope, receive, send)

    return respond


def _write_error(error: ErrorResponse) -> Response:
    codec, headers = _CODEC.get(), errors.headers_of(error)
    if codec.is_rpc and errors.is_of_the_protocol(error):
        message = ErrorMessage(id=codec.request_id, error=errors.rpc_error(error, is_old=codec.is_old))
        if codec.is_old and codec.is_stream:  # the official clients of 0.3 take nothing else for an answer
            return fixed_stream(b"data: %b\n\n" % encode_json(message))
        return json_response(message, headers=headers)
    return json_response(errors.http_error(error), error.status, headers)


_VERSION = request_header("A2A-Version", "`1.0`, or `0.3` over JSON-RPC, which is assumed if the header is missing.")
_EXAMPLE_MESSAGE = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "Hello!"}]}
_STREAM = "Server-sent events: the task as it is, then its status and artifact updates, until it rests."
_PUSH_PATH = "/{agent}/tasks/{task}/pushNotificationConfigs"
_HISTORY_LENGTH = query("historyLength", "How many of the newest messages to include; by default all.", int)


class _Handlers(Handlers):
    def __init__(self, engine: Engine, options: A2aOptions, admit_stream: AdmitStream) -> None:
        self._engine = engine
        self._options = options
        self._operations = Operations(engine, admit_stream)

    def routes(self) -> list[Route]:
        own = [
            each._replace(is_open=self._options.public_cards) if each.path.endswith(CARD_PATH) else each
            for each in super().routes()
        ]
        return [*own, Route("GET", CARD_PATH, self.default_card, is_open=self._options.public_cards)]

    # --- cards ----------------------------------------------------------------------------------------------------

    @endpoint("GET", f"/{{agent}}/{CARD_PATH}", is_open=True, returns="The card.", media_type="application/json")
    async def card(self, request: Request) -> Response:
        """Get an agent's card.

        It says how the agent is called. The card of the default agent is also at `/.well-known/agent-card.json`.
        """
        return self._card(request, request.path_params["agent"])

    async def default_card(self, request: Request) -> Response:
        """Get the card of the default agent."""
        return self._card(request, self._engine.default_agent)

    def _card(self, request: Request, agent: str) -> Response:
        spec = self._engine.agent(agent).spec
        public_url = self._options.public_url
        origin = public_url or f"{request.scope['scheme']}://{request.headers.get('host', '')}"
        card = card_of(spec, f"{origin.rstrip('/')}{self._options.path}/{spec.name}", has_keys=self._options.has_keys)
        body = msgspec.json.encode(card)
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {"Cache-Control": "max-age=300" if public_url else "private, max-age=300", "ETag": tag}
        if public_url is None:  # the address is what this client calls the server: no cache may give it to another one
            headers["Vary"] = "Host"
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, 200, headers, "application/json")

    # --- JSON-RPC -------------------------------------------------------------------------------------------------

    @endpoint(
        "POST",
        "/{agent}",
        scope="read",
        body=wire.Request,
        example={"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": _EXAMPLE_MESSAGE}},
        parameters=(_VERSION, LAST_EVENT_ID),
        streams=_STREAM,
    )
    async def rpc(self, request: Request) -> ResultMessage | Response:
        """Call a method over JSON-RPC.

        In version 1.0 or, with its names, in 0.3. A request that fails is answered with the status 200 and an error.
        """
        _CODEC.set(Codec(is_rpc=True))
        message = await self._read_message(request)
        request_id = None if message.id is msgspec.UNSET else message.id
        _CODEC.set(Codec(True, False, request_id))
        version = _version_of(request)
        if not version and message.method in self._operations.methods:
            raise VersionNotSupported("A2A-Version is missing: send the header A2A-Version: 1.0 with this method")
        old = is_old(version, binding="JSON-RPC")
        name = METHODS.get(message.method) if old else message.method
        codec = Codec(True, old, request_id, is_stream=name in ("SendStreamingMessage", "SubscribeToTask"))
        _CODEC.set(codec)
        method = self._operations.methods.get(name or "")
        if method is None:
            names = {new: each for each, new in METHODS.items()} if old else METHODS
            raise UnknownMethod(message.method, name_here=names.get(message.method))
        params = {} if message.params in (msgspec.UNSET, None) else message.params
        caller = self._caller(request, codec)
        response = await method(caller, upgrade_params(params) if old else params)
        if message.id is msgspec.UNSET and not isinstance(response, EventStream):
            return Response(status_code=204)
        return _with_extensions(request, response)

    async def _read_message(self, request: Request) -> wire.Request:
        """The JSON-RPC request of a body. Raises InvalidJson and InvalidRequest."""
        body = await self._read(request)
        try:
            return wire.decode_request(body)
        except InvalidBody as error:
            _CODEC.set(Codec(True, False, readable_id(body)))
            raise InvalidRequest(f"expected a JSON-RPC 2.0 request: {error}") from error

    def _caller(self, request: Request, codec: Codec) -> Caller:
        name = request.path_params["agent"]
        spec = self._engine.find_spec(name) or AgentSpec(name=name)  # its tasks can still be read (shared rules, 4)
        return Caller(request, principal_of(request), spec, codec)

    async def _read(self, request: Request) -> bytes:
        declared = (header(request.scope, b"content-type") or "").partition(";")[0].strip().lower()
        if declared not in ("", "application/json", MEDIA_TYPE):
            raise UnsupportedMediaType(f"expected Content-Type: application/json, got {declared[:80]!r}")
        return await read_body(request, self._options.body_limit)

    # --- HTTP+JSON ------------------------------------------------------------------------------------------------

    @endpoint(
        "POST",
        "/{agent}/message:send",
        body=wire.SendMessageRequest,
        example={"message": _EXAMPLE_MESSAGE},
        parameters=(_VERSION,),
    )
    async def post_message(self, request: Request) -> wire.SendMessageResponse | Response:
        """Send a message.

        The answer is the task, when it rests: it is over, or waits for somebody.
        """
        return await self._http(request, self._operations.send)

    @endpoint(
        "POST",
        "/{agent}/message:stream",
        body=wire.SendMessageRequest,
        example={"message": _EXAMPLE_MESSAGE},
        parameters=(_VERSION,),
        streams=_STREAM,
    )
    async def stream_message(self, request: Request) -> Response:
        """Send a message, and follow its task."""
        return await self._http(request, self._operations.stream)

    @endpoint(
        "GET",
        "/{agent}/tasks",
        parameters=(
            _VERSION,
            query("contextId", "Only tasks of this context."),
            query("status", "Only tasks in this state, such as `TASK_STATE_WORKING`."),
            query("statusTimestampAfter", "Only tasks whose status is newer (RFC 3339)."),
            query("pageSize", f"1 to {wire.MAX_PAGE_SIZE}; 50 by default.", int),
            query("pageToken", "The `nextPageToken` of the page before."),
            query("includeArtifacts", "Whether to include artifacts.", bool),
            _HISTORY_LENGTH,
        ),
    )
    async def get_tasks(self, request: Request) -> wire.TaskPage | Response:
        """List the caller's tasks with the agent, newest status first."""
        return await self._http(request, self._operations.list_tasks)

    @endpoint(
        "GET",
        "/{agent}/tasks/{task}",
        parameters=(_VERSION, LAST_EVENT_ID, _HISTORY_LENGTH),
        streams="With `:subscribe` after the id, the task's events.",
    )
    async def get_task(self, request: Request) -> wire.Task | Response:
        """Get a task.

        `GET …/tasks/ID:subscribe` follows it.
        """
        return await self._http(
            request, self._verb(request, {"": self._operations.get, "subscribe": self._operations.subscribe})
        )

    @endpoint("POST", "/{agent}/tasks/{task}", scope="read", parameters=(_VERSION, LAST_EVENT_ID), streams=_STREAM)
    async def change_task(self, request: Request) -> wire.Task | Response:
        """Cancel or follow a task.

        `POST …/tasks/ID:cancel` stops it, `POST …/tasks/ID:subscribe` follows it.
        """
        return await self._http(
            request, self._verb(request, {"cancel": self._operations.cancel, "subscribe": self._operations.subscribe})
        )

    @endpoint("GET", "/{agent}/extendedAgentCard", parameters=(_VERSION,))
    async def get_extended_card(self, request: Request) -> Response:
        """Refused: there is no extended card."""
        return await self._http(request, self._operations.extended_card)

    @endpoint("POST", _PUSH_PATH, parameters=(_VERSION,))
    @endpoint("GET", _PUSH_PATH, parameters=(_VERSION,))
    @endpoint("GET", f"{_PUSH_PATH}/{{config}}", parameters=(_VERSION,))
    @endpoint("DELETE", f"{_PUSH_PATH}/{{config}}", parameters=(_VERSION,))
    async def push(self, request: Request) -> Response:
        """Refused: there are no push notifications."""
        return await self._http(request, self._operations.push)

    def _verb(self, request: Request, methods: Mapping[str, Operation]) -> Operation:
        """The method that a path ends with, such as `:cancel`. Raises UnknownPath."""
        task_id, _, verb = request.path_params["task"].partition(":")
        request.path_params["task"] = task_id
        if verb not in methods:
            raise UnknownPath
        return methods[verb]

    async def _http(self, request: Request, method: Operation) -> Response:
        is_query = request.method in ("GET", "HEAD", "DELETE")
        body = b"" if is_query else await self._read(request)
        is_old(_version_of(request), binding="HTTP+JSON")
        params = dict(request.query_params) if is_query else decode_json(body) if body.strip() else {}
        if "task" in request.path_params and isinstance(params, dict):
            params["id"] = request.path_params["task"]
        response = await method(self._caller(request, Codec()), params, is_query=is_query)
        return _with_extensions(request, response)


def _version_of(request: Request) -> str | None:
    """The version that a request names, in its header or its query."""
    return header(request.scope, b"a2a-version") or request.query_params.get("A2A-Version")


def _with_extensions(request: Request, response: Response) -> Response:
    """Name the extensions that are in use, of those that the client asked for."""
    wanted = header(request.scope, b"a2a-extensions") or ""
    if wire.ANSWERS in [each.strip() for each in wanted.split(",")]:
        response.raw_headers.append((b"a2a-extensions", wire.ANSWERS.encode()))
    return response


OPENAPI_ROUTES = ApiDescription("A2A", error_body=wire.HttpErrorBody).routes(_Handlers)
