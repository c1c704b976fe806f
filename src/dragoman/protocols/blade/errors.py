"""Blade's answers to refusals: one table for REST and socket, complete by test. Pure. Source: specification, §15."""

from collections.abc import Mapping
from typing import NamedTuple

from dragoman.core import refusals
from dragoman.core.refusals import Refused
from dragoman.protocols.kit.faults import headers_of, shorten


class ErrorRow(NamedTuple):
    """A status for REST, and a code for the socket."""

    status: int
    code: str


ERROR_TABLE: Mapping[type[Refused], ErrorRow] = {
    refusals.Refused: ErrorRow(422, "bad_request"),
    refusals.NotFound: ErrorRow(404, "not_found"),
    refusals.SessionNotFound: ErrorRow(404, "not_found"),
    refusals.AgentNotFound: ErrorRow(404, "not_found"),
    refusals.RunNotFound: ErrorRow(404, "not_found"),
    refusals.Invalid: ErrorRow(422, "bad_request"),
    refusals.AgentNotChangeable: ErrorRow(422, "bad_request"),
    refusals.UnknownTool: ErrorRow(422, "bad_request"),
    refusals.UnknownOption: ErrorRow(422, "bad_request"),
    refusals.InvalidOptionValue: ErrorRow(422, "bad_request"),
    refusals.DuplicateToolName: ErrorRow(422, "bad_request"),
    refusals.ClientToolsUnsupported: ErrorRow(422, "bad_request"),
    refusals.ImageUnsupported: ErrorRow(422, "bad_request"),
    refusals.UnknownCall: ErrorRow(409, "no_pending_question"),
    refusals.CallAlreadySettled: ErrorRow(409, "no_pending_question"),
    refusals.ResultsMissing: ErrorRow(422, "invalid_answer"),
    refusals.InvalidAnswer: ErrorRow(422, "invalid_answer"),
    refusals.InvalidSeed: ErrorRow(422, "bad_request"),
    refusals.LimitExceeded: ErrorRow(413, "too_large"),
    refusals.InvalidCursor: ErrorRow(422, "bad_request"),
    refusals.Conflict: ErrorRow(409, "session_busy"),
    refusals.SessionBusy: ErrorRow(409, "session_busy"),
    refusals.IdTaken: ErrorRow(409, "bad_request"),
    refusals.IdempotencyKeyReused: ErrorRow(409, "bad_request"),
    refusals.Unauthenticated: ErrorRow(401, "forbidden"),
    refusals.Forbidden: ErrorRow(403, "forbidden"),
    refusals.LimitReached: ErrorRow(429, "rate_limited"),
    refusals.Unavailable: ErrorRow(503, "unavailable"),
    refusals.StoreUnavailable: ErrorRow(503, "unavailable"),
    refusals.ShuttingDown: ErrorRow(503, "unavailable"),
}


class ErrorResponse(NamedTuple):
    """An error as it goes out over REST."""

    status: int
    detail: str
    headers: Mapping[str, str] = {}

    @property
    def body(self) -> dict[str, object]:
        """The body: `{"detail": TEXT}`."""
        return {"detail": self.detail}


def to_response(refusal: Refused) -> ErrorResponse:
    """The answer to a refusal. What is invalid names its field first, as in `content: must not be blank`."""
    answer = ERROR_TABLE[type(refusal)]
    detail = "Not Found" if type(refusal) is refusals.NotFound and not str(refusal) else str(refusal)
    path = getattr(refusal, "path", "")
    return ErrorResponse(answer.status, shorten(f"{path}: {detail}" if path else detail), headers_of(refusal))
