"""The standard endpoint's answers to refusals: one table, complete by test. Pure.

Before the stream opens a refusal is an HTTP error with a JSON body. A few belong into the stream all the same, because
clients tell people about a `RUN_ERROR`, and take an HTTP error for a broken connection.
Source: specification of the face, B.2, B.3, B.8 to B.11; rulings, 2, 4, 10.
"""

from collections.abc import Mapping
from typing import NamedTuple

from dragoman.core import refusals
from dragoman.core.refusals import Refused
from dragoman.protocols.kit.faults import headers_of, shorten


class ErrorRow(NamedTuple):
    """A status and a code. `is_told`: it is the only event of a stream, and the status is 200.

    `sentence` stands where the core's own words would not be understood here.
    """

    status: int
    code: str
    is_stream_event: bool = False
    message: str | None = None


ERROR_TABLE: Mapping[type[Refused], ErrorRow] = {
    refusals.Refused: ErrorRow(400, "invalid_request"),
    refusals.NotFound: ErrorRow(404, "not_found"),
    refusals.SessionNotFound: ErrorRow(404, "thread_not_found", message="there is no such thread"),
    refusals.AgentNotFound: ErrorRow(404, "unknown_agent"),
    refusals.RunNotFound: ErrorRow(404, "run_not_found"),
    refusals.Invalid: ErrorRow(400, "invalid_request"),
    refusals.AgentNotChangeable: ErrorRow(409, "agent_fixed"),
    refusals.UnknownTool: ErrorRow(400, "unknown_tool"),
    refusals.UnknownOption: ErrorRow(400, "unknown_option"),
    refusals.InvalidOptionValue: ErrorRow(400, "invalid_option_value"),
    refusals.DuplicateToolName: ErrorRow(400, "duplicate_tool_name"),
    refusals.ClientToolsUnsupported: ErrorRow(400, "client_tools_unsupported"),
    refusals.ImageUnsupported: ErrorRow(400, "image_unsupported"),
    refusals.UnknownCall: ErrorRow(200, "interrupt_unknown", is_stream_event=True),
    refusals.CallAlreadySettled: ErrorRow(200, "interrupt_unknown", is_stream_event=True),
    refusals.ResultsMissing: ErrorRow(200, "interrupt_unanswered", is_stream_event=True),
    refusals.InvalidAnswer: ErrorRow(200, "interrupt_invalid", is_stream_event=True),
    refusals.InvalidSeed: ErrorRow(400, "invalid_request"),
    refusals.LimitExceeded: ErrorRow(400, "limit_exceeded"),
    refusals.InvalidCursor: ErrorRow(400, "invalid_cursor"),
    refusals.Conflict: ErrorRow(409, "conflict"),
    refusals.IdTaken: ErrorRow(409, "conflict"),
    refusals.SessionBusy: ErrorRow(200, "thread_busy", is_stream_event=True, message="a run of this thread is active"),
    refusals.IdempotencyKeyReused: ErrorRow(409, "run_conflict", message="this run id was used with another request"),
    refusals.Unauthenticated: ErrorRow(401, "unauthorized"),
    refusals.Forbidden: ErrorRow(403, "forbidden"),
    refusals.LimitReached: ErrorRow(429, "rate_limited"),
    refusals.Unavailable: ErrorRow(503, "unavailable"),
    refusals.StoreUnavailable: ErrorRow(503, "unavailable"),
    refusals.ShuttingDown: ErrorRow(503, "shutting_down"),
}


class ErrorResponse(NamedTuple):
    """An error as it goes out: `{"error": a sentence, "code": for programs}`, or the event that stands for it."""

    status: int
    code: str
    message: str
    headers: Mapping[str, str] = {}
    details: Mapping[str, object] = {}
    is_stream_event: bool = False

    @property
    def body(self) -> dict[str, object]:
        """The JSON body."""
        return {"error": self.message, "code": self.code, **self.details}


def to_response(refusal: Refused) -> ErrorResponse:
    """The answer to a refusal."""
    answer = ERROR_TABLE[type(refusal)]
    path = refusal.path if isinstance(refusal, refusals.Invalid) else ""
    facts = {"path": path} if path and not answer.is_stream_event else {}
    sentence = answer.message or shorten(str(refusal))
    return ErrorResponse(answer.status, answer.code, sentence, headers_of(refusal), facts, answer.is_stream_event)


def error_response(status: int, code: str, message: str, **details: object) -> ErrorResponse:
    """An error of the door itself."""
    return ErrorResponse(status, code, shorten(message), details=details)
