"""Blade's answers to errors: one table for REST and the socket, complete by test. Pure. Source: section 15."""

from dragoman.core import refusals
from dragoman.protocols.kit import errors as kit
from dragoman.protocols.kit.errors import ErrorResponse, ErrorRow, ErrorTable


class MissingFields(kit.RequestError):
    """A `chat:send` without a session, or with nothing to send."""


class NothingToCompact(kit.RequestError):
    """The session is too short to be compacted."""


class InvalidPacket(kit.RequestError):
    """A polling client sent something that is not an Engine.IO packet."""


_BAD_REQUEST = ErrorRow(422, "bad_request", facts=("path",))
_INVALID_ANSWER = ErrorRow(422, "invalid_answer", facts=("path",))
_NOT_FOUND = ErrorRow(404, "not_found")
_SESSION_BUSY = ErrorRow(409, "session_busy")
_CONFLICT = ErrorRow(409, "bad_request")

ERROR_TABLE = ErrorTable(
    {
        **dict.fromkeys(kit.INVALID_REQUESTS, _BAD_REQUEST),
        # Without the path, which is one of the core's input: a Blade message has other fields.
        **dict.fromkeys(kit.UNSUPPORTED_CONTENT, ErrorRow(422, "bad_request")),
        **dict.fromkeys(kit.UNEXPECTED_ANSWERS, ErrorRow(409, "no_pending_question", facts=("path",))),
        **dict.fromkeys(kit.UNAUTHENTICATED, ErrorRow(401, "forbidden")),
        **dict.fromkeys(kit.LIMITS_REACHED, ErrorRow(429, "rate_limited")),
        **dict.fromkeys(kit.UNAVAILABLE, ErrorRow(503, "unavailable")),
        refusals.NotFound: _NOT_FOUND,
        refusals.SessionNotFound: _NOT_FOUND,
        refusals.AgentNotFound: _NOT_FOUND,
        refusals.RunNotFound: _NOT_FOUND,
        refusals.AgentNotChangeable: _BAD_REQUEST,
        refusals.ResultsMissing: _INVALID_ANSWER,
        refusals.InvalidAnswer: _INVALID_ANSWER,
        refusals.LimitExceeded: ErrorRow(413, "too_large", facts=("path",)),
        refusals.InvalidCursor: _BAD_REQUEST,
        refusals.Conflict: _SESSION_BUSY,
        refusals.SessionBusy: _SESSION_BUSY,
        refusals.AgentNotServed: ErrorRow(409, "agent_not_served"),
        refusals.IdTaken: _CONFLICT,
        refusals.IdempotencyKeyReused: _CONFLICT,
        refusals.Forbidden: ErrorRow(403, "forbidden"),
        refusals.SessionUnreadable: ErrorRow(500, "internal"),
        kit.UnknownPath: ErrorRow(404, "not_found", "Not Found"),
        kit.MethodNotAllowed: ErrorRow(405, "bad_request", "Method Not Allowed"),
        kit.UnsupportedMediaType: ErrorRow(415, "bad_request"),
        kit.BodyTooLarge: ErrorRow(413, "too_large"),
        kit.BodyTooSlow: ErrorRow(408, "bad_request"),
        kit.InvalidJson: ErrorRow(422, "bad_request"),
        kit.InvalidBody: ErrorRow(422, "bad_request"),
        kit.InternalError: ErrorRow(500, "internal"),
        MissingFields: ErrorRow(422, "bad_request", "Missing session_id or message"),
        InvalidPacket: ErrorRow(400, "bad_request", "the body is not a sequence of Engine.IO packets"),
        NothingToCompact: ErrorRow(409, "nothing_to_compact", "there is nothing to compact"),
    }
)

SOCKET_ERROR_TABLE = ErrorTable(
    {**ERROR_TABLE.rows, refusals.SessionNotFound: ErrorRow(403, "forbidden", "Access denied")}
)
"""The socket answers alike for sessions that do not exist and for those of other users."""


def detail_of(error: ErrorResponse) -> str:
    """Return the sentence about an error, which names an invalid field first, as in `content: must not be blank`."""
    path = error.facts.get("path")
    return f"{path}: {error.message}" if path else error.message
