"""AAP's answers to refusals: one table, complete by test. Pure. Source: specification of the face, section 16."""

from collections.abc import Mapping
from typing import NamedTuple

from dragoman.core import refusals
from dragoman.core.refusals import Refused
from dragoman.protocols.kit.faults import headers_of, shorten


class ErrorRow(NamedTuple):
    """A status, a code, and which of the refusal's facts the body tells besides."""

    status: int
    code: str
    detail_names: tuple[str, ...] = ()


ERROR_TABLE: Mapping[type[Refused], ErrorRow] = {
    refusals.Refused: ErrorRow(400, "invalid_request"),
    refusals.NotFound: ErrorRow(404, "not_found"),
    refusals.SessionNotFound: ErrorRow(404, "session_not_found"),
    refusals.AgentNotFound: ErrorRow(404, "unknown_agent"),
    refusals.RunNotFound: ErrorRow(404, "not_found"),
    refusals.Invalid: ErrorRow(400, "invalid_request", ("path",)),
    refusals.AgentNotChangeable: ErrorRow(400, "agent_name_fixed"),
    refusals.UnknownTool: ErrorRow(400, "unknown_tool"),
    refusals.UnknownOption: ErrorRow(400, "unknown_option"),
    refusals.InvalidOptionValue: ErrorRow(400, "invalid_option_value", ("allowed",)),
    refusals.DuplicateToolName: ErrorRow(400, "duplicate_tool_name"),
    refusals.ClientToolsUnsupported: ErrorRow(400, "client_tools_unsupported"),
    refusals.ImageUnsupported: ErrorRow(400, "image_unsupported"),
    refusals.UnknownCall: ErrorRow(400, "unknown_tool_call"),
    refusals.CallAlreadySettled: ErrorRow(400, "tool_call_resolved"),
    refusals.ResultsMissing: ErrorRow(400, "tool_results_missing", ("missing",)),
    refusals.InvalidAnswer: ErrorRow(400, "invalid_request", ("path",)),
    refusals.InvalidSeed: ErrorRow(400, "invalid_request", ("path",)),
    refusals.LimitExceeded: ErrorRow(400, "limit_exceeded", ("limit", "path")),
    refusals.InvalidCursor: ErrorRow(400, "invalid_cursor"),
    refusals.Conflict: ErrorRow(409, "turn_in_progress"),
    refusals.SessionBusy: ErrorRow(409, "turn_in_progress"),
    refusals.IdTaken: ErrorRow(409, "turn_in_progress"),
    refusals.IdempotencyKeyReused: ErrorRow(409, "idempotency_conflict"),
    refusals.Unauthenticated: ErrorRow(401, "unauthorized"),
    refusals.Forbidden: ErrorRow(403, "forbidden"),
    refusals.LimitReached: ErrorRow(429, "rate_limited"),
    refusals.Unavailable: ErrorRow(503, "unavailable"),
    refusals.StoreUnavailable: ErrorRow(503, "unavailable"),
    refusals.ShuttingDown: ErrorRow(503, "shutting_down"),
}


class ErrorResponse(NamedTuple):
    """An error as it goes out."""

    status: int
    body: dict[str, object]
    headers: dict[str, str]


def to_response(refusal: Refused) -> ErrorResponse:
    """The answer to a refusal."""
    answer = ERROR_TABLE[type(refusal)]
    facts = {name: getattr(refusal, name) for name in answer.detail_names}
    if "path" in facts:
        facts["path"] = facts["path"].replace("answers[", "messages[")  # here they stand among the messages
    shown = {name: fact for name, fact in facts.items() if fact is not None}
    body = {"error": shorten(str(refusal)), "code": answer.code, **shown}
    headers = {"Retry-After": "1"} if isinstance(refusal, refusals.SessionBusy) else headers_of(refusal)
    return ErrorResponse(answer.status, body, headers)


def error_response(status: int, code: str, message: str, **details: object) -> ErrorResponse:
    """An error of the door itself."""
    return ErrorResponse(status, {"error": shorten(message), "code": code, **details}, {})
