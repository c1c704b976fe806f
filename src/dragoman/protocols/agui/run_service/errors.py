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
from dragoman.protocols.agui.run_service.rules import INPUT, MESSAGES, PROPS, SIZE, Broken
from dragoman.protocols.agui.run_service.wire import Misshapen
from dragoman.protocols.kit.faults import headers_of, shortened

MEDIA_TYPE = "application/problem+json"
NOT_FOUND = "AGENT_SESSION_NOT_FOUND"
FORBIDDEN = "AGENT_FORBIDDEN"
NOT_YOURS = "this is another user's"
RENAMED = {413: "Content Too Large", 416: "Range Not Satisfiable", 422: "Unprocessable Content"}
"""The names of RFC 9110, which Python's own table has since 3.13: a title is the same whatever runs the server."""


class Answer(NamedTuple):
    """A status, a code, and the sentence where the specification fixes it; else it is the refusal's own."""

    status: int
    code: str
    detail: str | None = None


ANSWERS: Mapping[type[Refused], Answer] = {
    refusals.Refused: Answer(422, INPUT),
    refusals.NotFound: Answer(404, "AGENT_NOT_FOUND"),
    refusals.SessionNotFound: Answer(404, NOT_FOUND, "there is no such thread"),
    refusals.AgentNotFound: Answer(422, INPUT, PROPS),
    refusals.RunNotFound: Answer(404, "AGENT_RUN_NOT_FOUND"),
    refusals.Invalid: Answer(422, INPUT),
    refusals.AgentFixed: Answer(422, INPUT, PROPS),
    refusals.UnknownTool: Answer(422, INPUT),
    refusals.UnknownOption: Answer(422, INPUT),
    refusals.InvalidOptionValue: Answer(422, INPUT),
    refusals.DuplicateToolName: Answer(422, INPUT),
    refusals.ClientToolsUnsupported: Answer(422, INPUT),
    refusals.ImageUnsupported: Answer(422, MESSAGES),
    refusals.UnknownCall: Answer(422, INPUT),
    refusals.CallResolved: Answer(409, "AGENT_RUN_CONFLICT"),
    refusals.ResultsMissing: Answer(422, INPUT),
    refusals.InvalidAnswer: Answer(422, INPUT),
    refusals.InvalidSeed: Answer(422, INPUT),
    refusals.LimitExceeded: Answer(422, INPUT),
    refusals.InvalidCursor: Answer(422, "AGENT_INVALID_LAST_EVENT_ID"),
    refusals.Conflict: Answer(409, "AGENT_RUN_CONFLICT"),
    refusals.SessionBusy: Answer(409, "AGENT_RUN_CONFLICT"),
    refusals.IdTaken: Answer(403, FORBIDDEN, NOT_YOURS),
    refusals.KeyReused: Answer(409, "AGENT_RUN_CONFLICT", "runId already used"),
    refusals.Unauthenticated: Answer(401, "AUTH_UNAUTHORIZED"),
    refusals.Forbidden: Answer(403, FORBIDDEN),
    refusals.Exhausted: Answer(429, "AGENT_RATE_LIMITED"),
    refusals.Unavailable: Answer(503, "AGENT_UNAVAILABLE"),
    refusals.StoreUnavailable: Answer(503, "AGENT_UNAVAILABLE"),
    refusals.ShuttingDown: Answer(503, "AGENT_UNAVAILABLE"),
}


class Told(NamedTuple):
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


def tell(error: Refused | Broken | Misshapen | Problem) -> Told:
    """The answer to a refusal."""
    match error:
        case Problem(status=status, code=code, headers=headers):
            return Told(status, _body(status, code, str(error)), headers)
        case Broken(rule=rule, locations=locations):
            body = _body(422, rule.code, rule.message)
            if locations:
                body["errors"] = [{"loc": list(location)} for location in locations]
            return Told(422, body, {"Connection": "close"} if rule is SIZE else {})  # the rest was not read
        case Misshapen(location=location):
            return Told(422, {**_body(422, INPUT, str(error)), "errors": [{"loc": list(location)}]}, {})
        case _:
            answer = ANSWERS[type(error)]
            detail = answer.detail or shortened(str(error))
            return Told(answer.status, _body(answer.status, answer.code, detail), headers_of(error))


def _body(status: int, code: str, detail: str) -> JsonObject:
    title = RENAMED.get(status) or HTTPStatus(status).phrase
    return {"type": "about:blank", "title": title, "status": status, "detail": detail, "code": code}
