"""What the run service answers when it refuses: problem details, one table, complete by test. Pure.

`detail` carries the exact sentence of the specification; `code` is what programs go by.
Source: the run service's specification, A.1.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from dragoman.core import refusals
from dragoman.core.content import JsonObject
from dragoman.core.refusals import Refused
from dragoman.protocols.agui.run_service.rules import (
    FORWARDED_PROPS_MESSAGE,
    INPUT_INVALID,
    MESSAGES_INVALID,
    SIZE_RULE,
    RuleViolation,
)
from dragoman.protocols.agui.run_service.wire import InvalidBody
from dragoman.protocols.kit.faults import headers_of, shorten

MEDIA_TYPE = "application/problem+json"
NOT_FOUND_CODE = "AGENT_SESSION_NOT_FOUND"
FORBIDDEN_CODE = "AGENT_FORBIDDEN"
FOREIGN_OWNER_MESSAGE = "this is another user's"
STATUS_PHRASES = {413: "Content Too Large", 416: "Range Not Satisfiable", 422: "Unprocessable Content"}
"""The names of RFC 9110, which Python's own table has since 3.13: a title is the same whatever runs the server."""


class ErrorRow(NamedTuple):
    """A status, a code, and the sentence where the specification fixes it; else it is the refusal's own."""

    status: int
    code: str
    detail: str | None = None


ERROR_TABLE: Mapping[type[Refused], ErrorRow] = {
    refusals.Refused: ErrorRow(422, INPUT_INVALID),
    refusals.NotFound: ErrorRow(404, "AGENT_NOT_FOUND"),
    refusals.SessionNotFound: ErrorRow(404, NOT_FOUND_CODE, "there is no such thread"),
    refusals.AgentNotFound: ErrorRow(422, INPUT_INVALID, FORWARDED_PROPS_MESSAGE),
    refusals.RunNotFound: ErrorRow(404, "AGENT_RUN_NOT_FOUND"),
    refusals.Invalid: ErrorRow(422, INPUT_INVALID),
    refusals.AgentNotChangeable: ErrorRow(422, INPUT_INVALID, FORWARDED_PROPS_MESSAGE),
    refusals.UnknownTool: ErrorRow(422, INPUT_INVALID),
    refusals.UnknownOption: ErrorRow(422, INPUT_INVALID),
    refusals.InvalidOptionValue: ErrorRow(422, INPUT_INVALID),
    refusals.DuplicateToolName: ErrorRow(422, INPUT_INVALID),
    refusals.ClientToolsUnsupported: ErrorRow(422, INPUT_INVALID),
    refusals.ImageUnsupported: ErrorRow(422, MESSAGES_INVALID),
    refusals.UnknownCall: ErrorRow(422, INPUT_INVALID),
    refusals.CallAlreadySettled: ErrorRow(409, "AGENT_RUN_CONFLICT"),
    refusals.ResultsMissing: ErrorRow(422, INPUT_INVALID),
    refusals.InvalidAnswer: ErrorRow(422, INPUT_INVALID),
    refusals.InvalidSeed: ErrorRow(422, INPUT_INVALID),
    refusals.LimitExceeded: ErrorRow(422, INPUT_INVALID),
    refusals.InvalidCursor: ErrorRow(422, "AGENT_INVALID_LAST_EVENT_ID"),
    refusals.Conflict: ErrorRow(409, "AGENT_RUN_CONFLICT"),
    refusals.SessionBusy: ErrorRow(409, "AGENT_RUN_CONFLICT"),
    refusals.IdTaken: ErrorRow(403, FORBIDDEN_CODE, FOREIGN_OWNER_MESSAGE),
    refusals.IdempotencyKeyReused: ErrorRow(409, "AGENT_RUN_CONFLICT", "runId already used"),
    refusals.Unauthenticated: ErrorRow(401, "AUTH_UNAUTHORIZED"),
    refusals.Forbidden: ErrorRow(403, FORBIDDEN_CODE),
    refusals.LimitReached: ErrorRow(429, "AGENT_RATE_LIMITED"),
    refusals.Unavailable: ErrorRow(503, "AGENT_UNAVAILABLE"),
    refusals.StoreUnavailable: ErrorRow(503, "AGENT_UNAVAILABLE"),
    refusals.ShuttingDown: ErrorRow(503, "AGENT_UNAVAILABLE"),
}


class ErrorResponse(NamedTuple):
    """An error as it goes out."""

    status: int
    body: JsonObject
    headers: dict[str, str]


class Problem(Exception):
    """An error of the door itself."""

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})


def to_response(error: Refused | RuleViolation | InvalidBody | Problem) -> ErrorResponse:
    """The answer to a refusal."""
    match error:
        case Problem(status=status, code=code, headers=headers):
            return ErrorResponse(status, _body(status, code, str(error)), headers)
        case RuleViolation(rule=rule, locations=locations):
            body = _body(422, rule.code, rule.message)
            if locations:
                body["errors"] = [{"loc": list(location)} for location in locations]
            return ErrorResponse(
                422, body, {"Connection": "close"} if rule is SIZE_RULE else {}
            )  # the rest was not read
        case InvalidBody(location=location):
            return ErrorResponse(
                422, {**_body(422, INPUT_INVALID, str(error)), "errors": [{"loc": list(location)}]}, {}
            )
        case _:
            answer = ERROR_TABLE[type(error)]
            detail = answer.detail or shorten(str(error))
            return ErrorResponse(answer.status, _body(answer.status, answer.code, detail), headers_of(error))


def _body(status: int, code: str, detail: str) -> JsonObject:
    title = STATUS_PHRASES.get(status) or HTTPStatus(status).phrase
    return {"type": "about:blank", "title": title, "status": status, "detail": detail, "code": code}
