"""The error responses of the Agent API: one table, complete by test. Pure. Source: specification, section 8.

The published package answers 200 with one frame that its own client drops, so that a refused request looks like an
empty success. Here every refusal before the run is an HTTP status.
"""

from collections.abc import Mapping
from typing import NamedTuple

from dragoman.core import refusals
from dragoman.core.refusals import Refused
from dragoman.protocols.agentscope.wire import Error, location_of
from dragoman.protocols.kit.faults import headers_of, shorten


class ErrorRow(NamedTuple):
    """A status, a code, and a message if the core's own uses terms that the client does not know."""

    status: int
    code: str
    message: str = ""


_INVALID = ErrorRow(422, "INVALID_REQUEST")
_NOTHING_PENDING = ErrorRow(409, "NOTHING_PENDING")
_UNAVAILABLE = ErrorRow(503, "UNAVAILABLE")

ERROR_TABLE: Mapping[type[Refused], ErrorRow] = {
    refusals.Refused: _INVALID,
    refusals.NotFound: ErrorRow(404, "NOT_FOUND"),
    refusals.SessionNotFound: ErrorRow(404, "SESSION_NOT_FOUND"),
    refusals.AgentNotFound: ErrorRow(404, "AGENT_NOT_FOUND"),
    refusals.RunNotFound: ErrorRow(404, "RESPONSE_NOT_FOUND"),
    refusals.Invalid: _INVALID,
    refusals.AgentNotChangeable: ErrorRow(409, "AGENT_FIXED"),
    refusals.UnknownTool: _INVALID,
    refusals.UnknownOption: _INVALID,
    refusals.InvalidOptionValue: _INVALID,
    refusals.DuplicateToolName: _INVALID,
    refusals.ClientToolsUnsupported: _INVALID,
    refusals.ImageUnsupported: _INVALID,
    refusals.UnknownCall: _NOTHING_PENDING,
    refusals.CallAlreadySettled: _NOTHING_PENDING,
    refusals.ResultsMissing: _NOTHING_PENDING,
    refusals.InvalidAnswer: _INVALID,
    refusals.InvalidSeed: _INVALID,
    refusals.LimitExceeded: _INVALID,
    refusals.InvalidCursor: _INVALID,
    refusals.Conflict: ErrorRow(409, "CONFLICT"),
    refusals.SessionBusy: ErrorRow(409, "SESSION_BUSY"),
    refusals.IdTaken: ErrorRow(409, "SESSION_EXISTS"),
    refusals.IdempotencyKeyReused: ErrorRow(409, "RESPONSE_EXISTS", "this id was used with another request"),
    refusals.Unauthenticated: ErrorRow(401, "UNAUTHORIZED"),
    refusals.Forbidden: ErrorRow(403, "PERMISSION_DENIED"),
    refusals.LimitReached: ErrorRow(429, "RATE_LIMIT_EXCEEDED"),
    refusals.Unavailable: _UNAVAILABLE,
    refusals.StoreUnavailable: _UNAVAILABLE,
    refusals.ShuttingDown: _UNAVAILABLE,
}

RUN_ERROR_CODES: Mapping[str, str] = {
    "agent_error": "AGENT_UNKNOWN_ERROR",
    "agent_gone": "AGENT_NOT_FOUND",
    "timeout": "TIMEOUT",
    "max_steps": "MAX_STEPS",
    "interrupted": "INTERRUPTED",
    "tool_failed": "TOOL_EXECUTION_FAILED",
    "model_error": "MODEL_EXECUTION_FAILED",
    "model_unavailable": "EXTERNAL_SERVICE_ERROR",
    "context_too_long": "MODEL_CONTEXT_LENGTH_EXCEEDED",
    "model_not_installed": "CONFIGURATION_ERROR",
}
"""The package's codes for the core's codes of failed runs. An agent's own code is passed through."""

UNKNOWN_ERROR_CODE = "AGENT_UNKNOWN_ERROR"


def run_error(code: str | None, message: str | None) -> Error:
    """The error of a failed run's response."""
    code = RUN_ERROR_CODES.get(code or "agent_error", code or UNKNOWN_ERROR_CODE)
    message = message or "The agent failed"
    return Error(code, f"Unknown agent error: {message}" if code == UNKNOWN_ERROR_CODE else message)


class ErrorResponse(NamedTuple):
    """An error response."""

    status: int
    body: dict[str, object]
    headers: dict[str, str]


def to_response(refusal: Refused) -> ErrorResponse:
    """The answer to a refusal."""
    row = ERROR_TABLE[type(refusal)]
    headers = {"Retry-After": "1"} if isinstance(refusal, refusals.SessionBusy) else headers_of(refusal)
    message = row.message or str(refusal)
    path = getattr(refusal, "path", "")
    response = error_response(row.status, row.code, f"{path}: {message}" if path else message, headers=headers)
    if path:
        response.body["detail"] = [{"loc": ["body", *location_of(path)], "msg": shorten(message)}]
    return response


def error_response(status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> ErrorResponse:
    """An error response for a refusal of the protocol's own."""
    return ErrorResponse(status, {"error": {"code": code, "message": shorten(message)}}, dict(headers or {}))
