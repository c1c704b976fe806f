"""What all areas of the API share: settings, headers of answers, errors, pages of lists."""

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from dragoman.protocols.kit.body import json_response
from dragoman.protocols.kit.endpoints import ApiDescription, Endpoint, Handlers
from dragoman.protocols.kit.errors import ErrorResponse
from dragoman.protocols.kit.openapi import BODY_ERRORS, COMMON_ERRORS
from dragoman.protocols.kit.router import Handler
from dragoman.protocols.openai import wire
from dragoman.protocols.openai.errors import error_type

REQUEST_ID = "x-request-id"


class OpenAiOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The protocol's settings.

    Args:
        body_limit: bytes of a request's body.
        on_disconnect: what happens to a run whose client disconnects while nobody else reads it.
    """

    body_limit: int = 16 * 1024 * 1024
    on_disconnect: Literal["cancel", "continue"] = "cancel"


class OpenAiHandlers(Handlers):
    """Base of the handlers of one area. Their answers have the headers that official clients show."""

    def bind(self, declared: Endpoint, handler: Callable[..., Awaitable[object]]) -> Handler:
        """The function that answers a request with a handler."""
        inner = super().bind(declared, handler)

        async def respond(request: Request) -> Response:
            started_at = time.perf_counter()
            response = await inner(request)
            response.headers[REQUEST_ID] = _new_request_id()
            if response.headers.get("content-type") == "application/json":
                response.headers["openai-processing-ms"] = str(int((time.perf_counter() - started_at) * 1000))
            return response

        return respond


def write_error(error: ErrorResponse) -> Response:
    """Write an error in OpenAI's form."""
    code = str(error.facts.get("code", error.code))
    path = str(error.facts.get("path", ""))
    headers = {**error.headers, REQUEST_ID: _new_request_id()}
    if code == "idempotency_key_reused":
        headers["x-should-retry"] = "false"
    body = wire.ErrorBody(wire.ErrorFacts(error.message, error_type(error.status), path, code))
    return json_response(body, error.status, headers)


def _new_request_id() -> str:
    return f"req_{uuid.uuid4().hex}"


DESCRIPTION = ApiDescription(
    "OpenAI",
    wire.ErrorBody,
    errors=COMMON_ERRORS,
    body_errors={**BODY_ERRORS, 409: "The conversation is busy, or the idempotency key belongs to another request."},
)
