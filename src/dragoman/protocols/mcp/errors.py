"""MCP's answers to everything that can go wrong with a request: one table, complete by test. Pure.

The code of a row is that of JSON-RPC. What a model can act on, such as an unknown session, is no error here but the
result of a call (`is_for_model`).
"""

from collections.abc import Mapping, Sequence

import msgspec

from dragoman.core import refusals
from dragoman.core.content import Json, JsonObject
from dragoman.protocols.kit import errors as kit
from dragoman.protocols.kit import json_rpc
from dragoman.protocols.kit.errors import ErrorResponse, ErrorRow, ErrorTable, RequestError, bearer_challenge
from dragoman.protocols.kit.json_rpc import ErrorMessage, RequestId, RpcError
from dragoman.protocols.mcp import wire
from dragoman.protocols.mcp.options import Authorization

REALM = 'realm="dragoman"'
SHOWN_URI_CHARS = 1024
"""How much an error repeats of an unknown address."""


class NotAcceptable(RequestError):
    """The client accepts neither JSON nor an event stream."""

    def __init__(self) -> None:
        super().__init__("expected Accept: application/json, text/event-stream")


class UnknownMcpSession(RequestError):
    """The session or event id is not one of the caller's, or too old: the client initializes again."""

    def __init__(self, what: str) -> None:
        super().__init__(f"this {what} is unknown; begin with initialize")


class InvalidMessage(RequestError):
    """The message does not fit the protocol, or comes without its session."""


class UnknownMethod(RequestError):
    """There is no such method."""

    def __init__(self, method: str) -> None:
        super().__init__(f"there is no method {method[:80]!r}")


class InvalidParams(RequestError):
    """The parameters of a method are wrong."""


class UnknownResource(RequestError):
    """There is no such resource, or it belongs to another user."""

    def __init__(self, uri: Json) -> None:
        super().__init__("there is no such resource")
        self.data: JsonObject | None = {"uri": uri[:SHOWN_URI_CHARS]} if isinstance(uri, str) else None


class UnsupportedVersion(RequestError):
    """The client speaks a version that is not served."""

    def __init__(self, requested: str) -> None:
        super().__init__("Unsupported protocol version")
        self.data: JsonObject = {"supported": list(wire.VERSIONS), "requested": requested[:80]}


class HeaderMismatch(RequestError):
    """A header is missing, comes twice, or says something else than the body."""


class MissingCapability(RequestError):
    """The client does not declare what the method needs."""

    def __init__(self, required: JsonObject) -> None:
        super().__init__("the client does not declare a capability that this method needs")
        self.data: JsonObject = {"requiredCapabilities": required}


def _row(status: int, code: int = json_rpc.INVALID_REQUEST, *facts: str, retry_after_s: int | None = None) -> ErrorRow:
    return ErrorRow(status, str(code), facts=facts, retry_after_s=retry_after_s)


_PARAMS = _row(200, json_rpc.INVALID_PARAMS)

ERRORS = ErrorTable(
    {
        refusals.Refused: _PARAMS,
        refusals.NotFound: _PARAMS,
        refusals.Invalid: _PARAMS,
        refusals.Conflict: _PARAMS,
        refusals.AgentNotFound: _row(404),
        refusals.Unauthenticated: _row(401),
        refusals.Forbidden: _row(403),
        refusals.LimitReached: _row(429),
        refusals.Unavailable: _row(503, json_rpc.INTERNAL_ERROR),
        refusals.SessionUnreadable: _row(200, json_rpc.INTERNAL_ERROR),
        kit.UnknownPath: _row(404),
        kit.MethodNotAllowed: _row(405),
        kit.UnsupportedMediaType: _row(415),
        kit.BodyTooLarge: _row(413),
        kit.BodyTooSlow: _row(400),
        kit.InvalidJson: _row(400, json_rpc.PARSE_ERROR),
        kit.InvalidBody: _row(400),
        kit.InternalError: _row(200, json_rpc.INTERNAL_ERROR),
        NotAcceptable: _row(406),
        UnknownMcpSession: _row(404),
        InvalidMessage: _row(400),
        UnknownMethod: _row(200, json_rpc.METHOD_NOT_FOUND),
        InvalidParams: _PARAMS,
        UnknownResource: _row(200, wire.RESOURCE_NOT_FOUND, "data"),
        UnsupportedVersion: _row(400, wire.UNSUPPORTED_VERSION, "data"),
        HeaderMismatch: _row(400, wire.HEADER_MISMATCH),
        MissingCapability: _row(400, wire.MISSING_CAPABILITY, "data"),
    }
)
"""The statuses are those of the old versions."""

_NEW_STATUSES = {json_rpc.INVALID_PARAMS: 400, json_rpc.METHOD_NOT_FOUND: 404}


def is_for_model(error: Exception) -> bool:
    """Whether an error of a call is a result that its model can act on, not an error of the request."""
    if isinstance(error, refusals.LimitReached | refusals.Unavailable | refusals.Forbidden | refusals.Unauthenticated):
        return False
    return isinstance(error, refusals.Refused | kit.InvalidBody)


def to_new_version(error: ErrorResponse) -> ErrorResponse:
    """An error in the new version: statuses follow the codes, and a missing resource is a wrong parameter."""
    code = json_rpc.INVALID_PARAMS if int(error.code) == wire.RESOURCE_NOT_FOUND else int(error.code)
    return error._replace(code=str(code), status=_NEW_STATUSES.get(code, error.status))


def headers_for(error: ErrorResponse, authorization: Authorization | None) -> Mapping[str, str]:
    """The headers of an error. They say where a host gets a token, if there is an authorization server."""
    if error.status not in (401, 403):
        return error.headers
    parameters = [REALM]
    scopes: Sequence[str] = ("use",) if error.status == 403 else ()
    if error.status == 403:
        parameters.append('error="insufficient_scope"')
    if authorization is not None:
        parameters.append(f'resource_metadata="{authorization.metadata_url}"')
        scopes = authorization.scopes
    if scopes:
        parameters.append(f'scope="{" ".join(scopes)}"')
    return {**error.headers, "WWW-Authenticate": bearer_challenge(error, *parameters)}


def error_message(error: ErrorResponse, request_id: RequestId | None) -> ErrorMessage:
    """An error as a JSON-RPC message."""
    data: Json = error.facts.get("data", msgspec.UNSET)
    return ErrorMessage(id=request_id, error=RpcError(code=int(error.code), message=error.message, data=data))
