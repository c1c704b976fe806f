"""The Agent API's answers to refusals: one table, complete by test. Source: specification of the face, section 8.

The original answers 200 and one frame that its own client drops, so that a refused request looks like an empty
success. Here everything that is refused before the run is an HTTP status.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dragoman.core import refusals
from dragoman.core.refusals import Refused
from dragoman.protocols.agentscope.wire import Error, location_of
from dragoman.protocols.kit.faults import headers_of, shortened


class Answer(NamedTuple):
    """A status, a code, and a sentence where the core's own has words that the client does not know."""

    status: int
    code: str
    sentence: str = ""


_INVALID = Answer(422, "INVALID_REQUEST")
_NOTHING_PENDING = Answer(409, "NOTHING_PENDING")
_UNAVAILABLE = Answer(503, "UNAVAILABLE")

ANSWERS: Mapping[type[Refused], Answer] = {
    refusals.Refused: _INVALID,
    refusals.NotFound: Answer(404, "NOT_FOUND"),
    refusals.SessionNotFound: Answer(404, "SESSION_NOT_FOUND"),
    refusals.AgentNotFound: Answer(404, "AGENT_NOT_FOUND"),
    refusals.RunNotFound: Answer(404, "RESPONSE_NOT_FOUND"),
    refusals.Invalid: _INVALID,
    refusals.AgentFixed: Answer(409, "AGENT_FIXED"),
    refusals.UnknownTool: _INVALID,
    refusals.UnknownOption: _INVALID,
    refusals.InvalidOptionValue: _INVALID,
    refusals.DuplicateToolName: _INVALID,
    refusals.ClientToolsUnsupported: _INVALID,
    refusals.ImageUnsupported: _INVALID,
    refusals.UnknownCall: _NOTHING_PENDING,
    refusals.CallResolved: _NOTHING_PENDING,
    refusals.ResultsMissing: _NOTHING_PENDING,
    refusals.InvalidAnswer: _INVALID,
    refusals.InvalidSeed: _INVALID,
    refusals.LimitExceeded: _INVALID,
    refusals.InvalidCursor: _INVALID,
    refusals.Conflict: Answer(409, "CONFLICT"),
    refusals.SessionBusy: Answer(409, "SESSION_BUSY"),
    refusals.IdTaken: Answer(409, "SESSION_EXISTS"),
    refusals.KeyReused: Answer(409, "RESPONSE_EXISTS", "this id was used with another request"),
    refusals.Unauthenticated: Answer(401, "UNAUTHORIZED"),
    refusals.Forbidden: Answer(403, "PERMISSION_DENIED"),
    refusals.Exhausted: Answer(429, "RATE_LIMIT_EXCEEDED"),
    refusals.Unavailable: _UNAVAILABLE,
    refusals.StoreUnavailable: _UNAVAILABLE,
    refusals.ShuttingDown: _UNAVAILABLE,
}

RUN_CODES: Mapping[str, str] = {
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
"""The codes of the core for a run that failed, in the package's words. An agent's own code stays as it is."""

UNKNOWN = "AGENT_UNKNOWN_ERROR"


def run_error(code: str | None, message: str | None) -> Error:
    """Why a run failed, as its response says it."""
    code = RUN_CODES.get(code or "agent_error", code or UNKNOWN)
    message = message or "The agent failed"
    return Error(code, f"Unknown agent error: {message}" if code == UNKNOWN else message)


class Told(NamedTuple):
    """An error as it goes out."""

    status: int
    body: dict[str, object]
    headers: dict[str, str]


def tell(refusal: Refused) -> Told:
    """The answer to a refusal."""
    answer = ANSWERS[type(refusal)]
    headers = {"Retry-After": "1"} if isinstance(refusal, refusals.SessionBusy) else headers_of(refusal)
    told = plain(answer.status, answer.code, answer.sentence or str(refusal), headers=headers)
    path = getattr(refusal, "path", "")
    if path:
        told.body["detail"] = [detail(("body", *location_of(path)), str(refusal))]
    return told


def detail(loc: Sequence[object], message: str) -> dict[str, object]:
    """One field that is wrong."""
    return {"loc": list(loc), "msg": shortened(message)}


def plain(status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> Told:
    """An error of the door itself."""
    return Told(status, {"error": {"code": code, "message": shortened(message)}}, dict(headers or {}))
