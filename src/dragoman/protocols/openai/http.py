"""OpenAI's API over HTTP and WebSocket as one app."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dragoman.engine.engine import Engine
from dragoman.engine.expiry import ExpiredSessions
from dragoman.protocols.kit.access import AccessControl
from dragoman.protocols.kit.app import ProtocolApp
from dragoman.protocols.kit.errors import UnknownPath
from dragoman.protocols.kit.router import Route
from dragoman.protocols.kit.runs import SessionStreams
from dragoman.protocols.openai.chat import ChatHandlers
from dragoman.protocols.openai.chat_runs import ChatRuns
from dragoman.protocols.openai.compaction import CompactionHandlers
from dragoman.protocols.openai.conversations import ConversationHandlers
from dragoman.protocols.openai.delivery import Delivery
from dragoman.protocols.openai.errors import ERRORS
from dragoman.protocols.openai.handlers import DESCRIPTION, OpenAiOptions, write_error
from dragoman.protocols.openai.models import ModelHandlers
from dragoman.protocols.openai.responses import ResponseHandlers
from dragoman.protocols.openai.runs import Runs
from dragoman.protocols.openai.sockets import ResponseSockets

NOT_SERVED = "responses/input_tokens"
"""A path of OpenAI's that would otherwise be taken for the id of a response, and so for a path that exists."""


def app(
    engine: Engine,
    access: AccessControl,
    options: OpenAiOptions,
    expired: ExpiredSessions,
) -> ASGIApp:
    """Return the protocol as an ASGI application, to be mounted anywhere."""
    runs = Runs(engine, options, expired)
    streams = SessionStreams(engine, access.admit_stream)
    delivery = Delivery(runs, expired, options, streams)
    areas = (
        ResponseHandlers(engine, runs, delivery, options, streams),
        CompactionHandlers(engine, runs, options),
        ConversationHandlers(engine, runs, options),
        ChatHandlers(ChatRuns(engine, runs), delivery, options),
        ModelHandlers(engine),
    )
    routes = [route for area in areas for route in area.routes()]
    routes += [Route(method, NOT_SERVED, _refuse) for method in ("GET", "POST", "DELETE")]
    requests = ProtocolApp("openai", routes, ERRORS, access, write_error=write_error)
    sockets = ResponseSockets(runs, delivery, access, options)

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        await (sockets if scope["type"] == "websocket" else requests)(scope, receive, send)

    return dispatch


async def _refuse(request: Request) -> Response:
    raise UnknownPath


OPENAPI_ROUTES = DESCRIPTION.routes(
    ResponseHandlers, CompactionHandlers, ConversationHandlers, ChatHandlers, ModelHandlers
)
