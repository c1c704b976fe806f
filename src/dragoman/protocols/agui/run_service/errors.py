"""The run service's answers to failed requests: problem details, one table, complete by test. Pure.

`detail` is the exact message of the specification; `code` is for programs.
Source: the run service's specification, A.1; RFC 9457.
"""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from dragoman.core import refusals
from dragoman.core.content import JsonObject
from dragoman.core.ids import SessionId, parse_session_id
from dragoman.protocols.kit import errors as kit
from dragoman.protocols.kit.errors import ErrorResponse, ErrorRow, ErrorTable, RequestError, path_steps

MEDIA_TYPE = "application/problem+json"
INPUT_INVALID = "AGENT_RUN_INPUT_INVALID"
MESSAGES_INVALID = "AGENT_RUN_MESSAGES_INVALID"
FORBIDDEN_CODE = "AGENT_FORBIDDEN"
FOREIGN_OWNER_MESSAGE = "this is another user's"
FORWARDED_PROPS_MESSAGE = "invalid RunAgentInput.forwardedProps"
STATUS_PHRASES = {413: "Content Too Large", 416: "Range Not Satisfiable", 422: "Unprocessable Content"}
"""The names of RFC 9110, which Python's own table only has since 3.13."""


class Problem(RequestError):
    """A failure with its own answer. `cause`: what is wrong with the body, and where."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        cause: kit.InvalidJson | kit.InvalidBody | None = None,
    ) -> None:
        super().__init__(detail)
        self.response = ErrorResponse(status, code, detail, headers or {}, {} if cause is None else errors_of(cause))


class _ProblemTable(ErrorTable):
    def to_response(self, error: Exception) -> ErrorResponse:
        if isinstance(error, Problem):
            return error.response
        response = super().to_response(error)
        if isinstance(error, kit.InvalidJson | kit.InvalidBody):
            return response._replace(facts=errors_of(error))
        return response


def errors_of(error: kit.InvalidJson | kit.InvalidBody) -> JsonObject:
    """The path of the field at fault, empty for the whole body, and what was expected and came."""
    if isinstance(error, kit.InvalidBody):
        return {"errors": [{"loc": path_steps(error.path), "msg": error.message}]}
    return {"errors": [{"loc": [], "msg": str(error)}]}


ERRORS = _ProblemTable(
    {
        **dict.fromkeys(kit.INVALID_REQUESTS, ErrorRow(422, INPUT_INVALID)),
        **dict.fromkeys(kit.UNSUPPORTED_CONTENT, ErrorRow(422, MESSAGES_INVALID)),
        **dict.fromkeys(kit.UNAUTHENTICATED, ErrorRow(401, "AUTH_UNAUTHORIZED")),
        **dict.fromkeys(kit.LIMITS_REACHED, ErrorRow(429, "AGENT_RATE_LIMITED")),
        **dict.fromkeys(kit.UNAVAILABLE, ErrorRow(503, "AGENT_UNAVAILABLE")),
        refusals.NotFound: ErrorRow(404, "AGENT_NOT_FOUND"),
        refusals.SessionNotFound: ErrorRow(404, "AGENT_SESSION_NOT_FOUND", "there is no such thread"),
        refusals.AgentNotFound: ErrorRow(422, INPUT_INVALID, FORWARDED_PROPS_MESSAGE),
        refusals.RunNotFound: ErrorRow(404, "AGENT_RUN_NOT_FOUND"),
        refusals.AgentNotChangeable: ErrorRow(422, INPUT_INVALID, FORWARDED_PROPS_MESSAGE),
        refusals.UnknownCall: ErrorRow(422, INPUT_INVALID),
        refusals.CallAlreadySettled: ErrorRow(409, "AGENT_RUN_CONFLICT"),
        refusals.ResultsMissing: ErrorRow(422, INPUT_INVALID),
        refusals.InvalidAnswer: ErrorRow(422, INPUT_INVALID),
        refusals.LimitExceeded: ErrorRow(422, INPUT_INVALID),
        refusals.InvalidCursor: ErrorRow(422, INPUT_INVALID),
        refusals.Conflict: ErrorRow(409, "AGENT_RUN_CONFLICT"),
        refusals.AgentNotServed: ErrorRow(409, "AGENT_NOT_SERVED"),
        refusals.SessionBusy: ErrorRow(409, "AGENT_RUN_CONFLICT"),
        refusals.IdTaken: ErrorRow(403, FORBIDDEN_CODE, FOREIGN_OWNER_MESSAGE),
        refusals.IdempotencyKeyReused: ErrorRow(409, "AGENT_RUN_CONFLICT", "runId already used"),
        refusals.Forbidden: ErrorRow(403, FORBIDDEN_CODE),
        refusals.SessionUnreadable: ErrorRow(500, "AGENT_INTERNAL"),
        kit.UnknownPath: ErrorRow(404, "AGENT_NOT_FOUND"),
        kit.MethodNotAllowed: ErrorRow(405, "AGENT_METHOD_NOT_ALLOWED"),
        kit.UnsupportedMediaType: ErrorRow(415, INPUT_INVALID),
        kit.BodyTooLarge: ErrorRow(413, INPUT_INVALID),
        kit.BodyTooSlow: ErrorRow(408, INPUT_INVALID),
        kit.InvalidJson: ErrorRow(422, INPUT_INVALID),
        kit.InvalidBody: ErrorRow(422, INPUT_INVALID),
        kit.InternalError: ErrorRow(500, "AGENT_INTERNAL"),
    }
)


def parse_thread(text: str) -> SessionId:
    """Read a thread id. Raises Problem if it is not a UUID."""
    thread = parse_session_id(text)
    if thread is None:
        raise Problem(422, "AGENT_SESSION_ID_INVALID", "threadId must be a valid UUID")
    return thread


class ProblemBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an error (RFC 9457). `detail` is the message; `code` is for programs."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str


def problem_body(error: ErrorResponse) -> JsonObject:
    """The body of an error, with its facts."""
    title = STATUS_PHRASES.get(error.status) or HTTPStatus(error.status).phrase
    body = ProblemBody(title=title, status=error.status, detail=error.message, code=error.code)
    return {**msgspec.structs.asdict(body), **error.facts}
