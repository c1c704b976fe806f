"""AAP's answers to refusals: one table, complete by test. Source: specification of the face, section 16."""

from collections.abc import Mapping
from typing import NamedTuple

from dragoman.core import refusals
from dragoman.core.refusals import Refused
from dragoman.protocols.kit.faults import headers_of, shortened


class Answer(NamedTuple):
    """A status, a code, and which of the refusal's facts the body tells besides."""

    status: int
    code: str
    facts: tuple[str, ...] = ()


ANSWERS: Mapping[type[Refused], Answer] = {
    refusals.Refused: Answer(400, "invalid_request"),
    refusals.NotFound: Answer(404, "not_found"),
    refusals.SessionNotFound: Answer(404, "session_not_found"),
    refusals.AgentNotFound: Answer(404, "unknown_agent"),
    refusals.RunNotFound: Answer(404, "not_found"),
    refusals.Invalid: Answer(400, "invalid_request", ("path",)),
    refusals.AgentFixed: Answer(400, "agent_name_fixed"),
    refusals.UnknownTool: Answer(400, "unknown_tool"),
    refusals.UnknownOption: Answer(400, "unknown_option"),
    refusals.InvalidOptionValue: Answer(400, "invalid_option_value", ("allowed",)),
    refusals.DuplicateToolName: Answer(400, "duplicate_tool_name"),
    refusals.ClientToolsUnsupported: Answer(400, "client_tools_unsupported"),
    refusals.ImageUnsupported: Answer(400, "image_unsupported"),
    refusals.UnknownCall: Answer(400, "unknown_tool_call"),
    refusals.CallResolved: Answer(400, "tool_call_resolved"),
    refusals.ResultsMissing: Answer(400, "tool_results_missing", ("missing",)),
    refusals.InvalidAnswer: Answer(400, "invalid_request", ("path",)),
    refusals.InvalidSeed: Answer(400, "invalid_request", ("path",)),
    refusals.LimitExceeded: Answer(400, "limit_exceeded", ("limit", "path")),
    refusals.InvalidCursor: Answer(400, "invalid_cursor"),
    refusals.Conflict: Answer(409, "turn_in_progress"),
    refusals.SessionBusy: Answer(409, "turn_in_progress"),
    refusals.IdTaken: Answer(409, "turn_in_progress"),
    refusals.KeyReused: Answer(409, "idempotency_conflict"),
    refusals.Unauthenticated: Answer(401, "unauthorized"),
    refusals.Forbidden: Answer(403, "forbidden"),
    refusals.Exhausted: Answer(429, "rate_limited"),
    refusals.Unavailable: Answer(503, "unavailable"),
    refusals.StoreUnavailable: Answer(503, "unavailable"),
    refusals.ShuttingDown: Answer(503, "shutting_down"),
}


class Told(NamedTuple):
    """An error as it goes out."""

    status: int
    body: dict[str, object]
    headers: dict[str, str]


def tell(refusal: Refused) -> Told:
    """The answer to a refusal."""
    answer = ANSWERS[type(refusal)]
    facts = {name: getattr(refusal, name) for name in answer.facts}
    if "path" in facts:
        facts["path"] = facts["path"].replace("answers[", "messages[")  # here they stand among the messages
    shown = {name: fact for name, fact in facts.items() if fact is not None}
    body = {"error": shortened(str(refusal)), "code": answer.code, **shown}
    headers = {"Retry-After": "1"} if isinstance(refusal, refusals.SessionBusy) else headers_of(refusal)
    return Told(answer.status, body, headers)


def plain(status: int, code: str, message: str, **facts: object) -> Told:
    """An error of the door itself."""
    return Told(status, {"error": shortened(message), "code": code, **facts}, {})
