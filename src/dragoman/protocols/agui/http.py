"""The standard AG-UI endpoint: read requests and hand them to `threads`.

Source: specification of AG-UI, part B.
"""

import hashlib

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from dragoman.core.inputs import DisconnectPolicy
from dragoman.core.principal import Principal
from dragoman.engine.engine import Engine
from dragoman.protocols.agui import wire
from dragoman.protocols.agui.capabilities import AgentCapabilities, capabilities_of
from dragoman.protocols.agui.downgrade import ClientVersion
from dragoman.protocols.agui.errors import ERRORS, STREAM_EVENT
from dragoman.protocols.agui.events import RunError
from dragoman.protocols.agui.request_mapping import unfetchable_parts
from dragoman.protocols.agui.streams import complete_stream, parse_position
from dragoman.protocols.agui.threads import RunRequest, Threads
from dragoman.protocols.kit.access import AccessControl
from dragoman.protocols.kit.app import ProtocolApp, error_body, principal_of
from dragoman.protocols.kit.body import header, read_body, read_json_body
from dragoman.protocols.kit.endpoints import LAST_EVENT_ID, ApiDescription, Handlers, endpoint, request_header
from dragoman.protocols.kit.errors import ErrorResponse
from dragoman.protocols.kit.message_history import MESSAGE_HISTORY, sends_all_messages
from dragoman.protocols.kit.openapi import INPUT_ERRORS

log = structlog.get_logger(__name__)


class AguiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint's settings."""

    body_limit: int = 16 * 1024 * 1024
    on_disconnect: DisconnectPolicy = "cancel"
    min_client_version: ClientVersion = "0.0.59"
    """The version assumed for clients that send no `protocolVersion`."""


def app(engine: Engine, access: AccessControl, options: AguiOptions) -> ASGIApp:
    """Build the endpoint as an ASGI application, to be mounted anywhere."""
    handlers = _Handlers(engine, options, Threads(engine, access.admit_stream))
    return ProtocolApp("ag-ui", handlers.routes(), ERRORS, access, credentials=_credentials, write_error=_write_error)


def _credentials(scope: Scope) -> str | None:
    """The key of a request, as a bearer token or in the `X-API-Key` header."""
    key = header(scope, b"x-api-key")
    return header(scope, b"authorization") or (None if key is None else f"Bearer {key}")


def _write_error(error: ErrorResponse) -> Response:
    if error.status == STREAM_EVENT:
        return complete_stream([RunError(message=error.message, code=error.code)])
    return error_body(error._replace(facts={name: value for name, value in error.facts.items() if value != ""}))


class StopResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Whether there was a run to stop."""

    stopped: bool


_STREAM = "Server-sent events, from `RUN_STARTED` to `RUN_FINISHED` or `RUN_ERROR`."
_RUN_EXAMPLE = {
    "threadId": "a-thread",
    "runId": "a-run",
    "protocolVersion": "1.0",
    "messages": [{"id": "m1", "role": "user", "content": "Hello!"}],
}


class _Handlers(Handlers):
    def __init__(self, engine: Engine, options: AguiOptions, threads: Threads) -> None:
        self._engine = engine
        self._options = options
        self._threads = threads

    @endpoint(
        "POST",
        "/{agent}",
        body=wire.RunInput,
        example=_RUN_EXAMPLE,
        parameters=(
            request_header(
                "X-Run-On-Disconnect",
                "`continue`: the run continues when the client disconnects; `connect` joins it again.",
            ),
            MESSAGE_HISTORY,
        ),
        streams=_STREAM,
    )
    async def run(self, request: Request) -> Response:
        """Run the agent and stream the run.

        The only route that official clients need. Disconnecting stops the run unless another reader follows it.
        """
        return await self._threads.run(await self._read_request(request))

    @endpoint(
        "POST",
        "/{agent}/connect",
        scope="read",
        body=wire.RunInput,
        example={**_RUN_EXAMPLE, "messages": []},
        streams=_STREAM,
    )
    async def connect(self, request: Request) -> Response:
        """Return to a thread: its messages, and the rest of its active run.

        An addition to the protocol. Starts nothing.
        """
        return await self._threads.connect(await self._read_request(request))

    @endpoint("GET", "/{agent}/capabilities")
    async def capabilities(self, agent: str) -> AgentCapabilities:
        """Show what the agent declares."""
        return capabilities_of(self._engine.agent(agent).spec)

    @endpoint("POST", "/{agent}/stop/{thread:path}", body=wire.StopInput, example={})
    async def stop(self, request: Request, principal: Principal, agent: str, thread: str) -> StopResponse:
        """Stop a thread's run."""
        body = wire.decode_stop(await read_body(request, self._options.body_limit))
        return StopResponse(stopped=await self._threads.stop(principal, agent, thread, body.run_id))

    @endpoint("GET", "/{agent}/threads/{thread:path}/events", parameters=(LAST_EVENT_ID,), streams=_STREAM)
    async def events(self, request: Request, principal: Principal, agent: str, thread: str) -> Response:
        """Stream the events of all runs of a thread, past and future.

        An addition to the protocol: a plain log of events that includes what the application sent.
        """
        last_id = request.headers.get("last-event-id")
        position = None if last_id is None else parse_position(last_id)
        return await self._threads.events(principal, agent, thread, position)

    async def _read_request(self, request: Request) -> RunRequest:
        raw = await read_json_body(request, self._options.body_limit)
        policy = header(request.scope, b"x-run-on-disconnect") or self._options.on_disconnect
        run, unknown = wire.decode_run(raw)
        if dropped := [*unknown, *unfetchable_parts(run)]:
            log.info("ignored unknown parts of a request", thread=run.thread_id, dropped=dropped[:20])
        return RunRequest(
            principal=principal_of(request),
            agent=request.path_params["agent"],
            run=run,
            fingerprint=hashlib.sha256(request.scope["path"].encode() + b"\n" + raw).hexdigest(),
            client_version="1.0" if run.protocol_version is not None else self._options.min_client_version,
            policy="continue" if policy.lower() == "continue" else "cancel",
            is_complete=sends_all_messages(request.scope),
        )


OPENAPI_ROUTES = ApiDescription(
    "AG-UI",
    input_errors={**INPUT_ERRORS, 409: "The thread has another agent, or the run id was used with another request."},
).routes(_Handlers)
