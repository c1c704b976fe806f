"""OpenAI's API over HTTP: the app, and what all of its handlers share."""

from starlette.types import ASGIApp

from dragoman.engine.engine import Engine
from dragoman.protocols.kit.app import AdmitStream, Authenticate, ProtocolApp, admit_all
from dragoman.protocols.openai.errors import ERRORS
from dragoman.protocols.openai.handlers import DESCRIPTION, OpenAiOptions, write_error
from dragoman.protocols.openai.models import ModelHandlers
from dragoman.protocols.openai.responses import ResponseHandlers


def app(
    engine: Engine, authenticate: Authenticate, options: OpenAiOptions, *, admit_stream: AdmitStream = admit_all
) -> ASGIApp:
    """Return the protocol as an ASGI application, to be mounted anywhere."""
    areas = (ResponseHandlers(engine, options, admit_stream), ModelHandlers(engine))
    routes = [route for area in areas for route in area.routes()]
    return ProtocolApp("openai", routes, ERRORS, authenticate, write_error=write_error)


OPENAPI_ROUTES = DESCRIPTION.routes(ResponseHandlers, ModelHandlers)
