"""The error responses of the Agent API: one table, complete by test. Pure. Source: specification, section 8.

The published package answers 200 with one frame that its own client drops, so that a refused request looks like an
empty success. Here every refusal before the run is an HTTP status.
"""

from collections.abc import Mapping

from dragoman.core import refusals
from dragoman.protocols.agentscope.wire import Error
from dragoman.protocols.kit import errors as kit
from dragoman.protocols.kit.errors import ErrorRow, ErrorTable, RequestError


class TaskNotFound(RequestError):
    """The caller has no such task."""


_INVALID = ErrorRow(422, "INVALID_REQUEST", facts=("path",))
_NOTHING_PENDING = ErrorRow(409, "NOTHING_PENDING", facts=("path",))

ERROR_TABLE = ErrorTable(
    {
        **dict.fromkeys(kit.INVALID_REQUESTS, _INVALID),
        **dict.fromkeys(kit.UNSUPPORTED_CONTENT, _INVALID),
        **dict.fromkeys(kit.UNEXPECTED_ANSWERS, _NOTHING_PENDING),
        **dict.fromkeys(kit.UNAUTHENTICATED, ErrorRow(401, "UNAUTHORIZED")),
        **dict.fromkeys(kit.LIMITS_REACHED, ErrorRow(429, "RATE_LIMIT_EXCEEDED")),
        **dict.fromkeys(kit.UNAVAILABLE, ErrorRow(503, "UNAVAILABLE")),
        refusals.NotFound: ErrorRow(404, "NOT_FOUND"),
        refusals.SessionNotFound: ErrorRow(404, "SESSION_NOT_FOUND"),
        refusals.AgentNotFound: ErrorRow(404, "AGENT_NOT_FOUND"),
        refusals.RunNotFound: ErrorRow(404, "RESPONSE_NOT_FOUND"),
        refusals.AgentNotChangeable: ErrorRow(409, "AGENT_FIXED"),
        refusals.ResultsMissing: _NOTHING_PENDING,
        refusals.InvalidAnswer: _INVALID,
        refusals.LimitExceeded: _INVALID,
        refusals.InvalidCursor: _INVALID,
        refusals.Conflict: ErrorRow(409, "CONFLICT"),
        refusals.SessionBusy: ErrorRow(409, "SESSION_BUSY", retry_after_s=1),
        refusals.AgentNotServed: ErrorRow(409, "AGENT_NOT_SERVED"),
        refusals.IdTaken: ErrorRow(409, "SESSION_EXISTS"),
        refusals.IdempotencyKeyReused: ErrorRow(409, "RESPONSE_EXISTS", "this id was used with another request"),
        refusals.Forbidden: ErrorRow(403, "PERMISSION_DENIED"),
        refusals.SessionUnreadable: ErrorRow(500, "INTERNAL_ERROR"),
        TaskNotFound: ErrorRow(404, "TASK_NOT_FOUND", "there is no such task"),
        kit.UnknownPath: ErrorRow(404, "NOT_FOUND"),
        kit.MethodNotAllowed: ErrorRow(405, "METHOD_NOT_ALLOWED"),
        kit.UnsupportedMediaType: ErrorRow(415, "UNSUPPORTED_MEDIA_TYPE"),
        kit.BodyTooLarge: ErrorRow(413, "BODY_TOO_LARGE"),
        kit.BodyTooSlow: ErrorRow(408, "BODY_TOO_SLOW"),
        kit.InvalidJson: ErrorRow(400, "INVALID_JSON"),
        kit.InvalidBody: ErrorRow(422, "INVALID_REQUEST", facts=("path", "message")),
        kit.InternalError: ErrorRow(500, "INTERNAL_ERROR"),
    }
)

UNKNOWN_ERROR_CODE = "AGENT_UNKNOWN_ERROR"
RUN_ERROR_CODES: Mapping[str, str] = {
    "agent_error": UNKNOWN_ERROR_CODE,
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


def run_error(code: str | None, message: str | None) -> Error:
    """The error of a failed run's response."""
    code = RUN_ERROR_CODES.get(code or "agent_error", code or UNKNOWN_ERROR_CODE)
    message = message or "The agent failed"
    return Error(code, f"Unknown agent error: {message}" if code == UNKNOWN_ERROR_CODE else message)
