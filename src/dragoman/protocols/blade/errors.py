"""Blade's answers to refusals: one table for REST and the socket, complete by test. Source: specification, §15."""

from collections.abc import Mapping
from typing import NamedTuple

from dragoman.core import refusals
from dragoman.core.refusals import Refused
from dragoman.protocols.kit.faults import headers_of, shortened


class Answer(NamedTuple):
    """A status for REST, and a code for the socket."""

    status: int
    code: str


ANSWERS: Mapping[type[Refused], Answer] = {
    refusals.Refused: Answer(422, "bad_request"),
    refusals.NotFound: Answer(404, "not_found"),
    refusals.SessionNotFound: Answer(404, "not_found"),
    refusals.AgentNotFound: Answer(404, "not_found"),
    refusals.RunNotFound: Answer(404, "not_found"),
    refusals.Invalid: Answer(422, "bad_request"),
    refusals.AgentFixed: Answer(422, "bad_request"),
    refusals.UnknownTool: Answer(422, "bad_request"),
    refusals.UnknownOption: Answer(422, "bad_request"),
    refusals.InvalidOptionValue: Answer(422, "bad_request"),
    refusals.DuplicateToolName: Answer(422, "bad_request"),
    refusals.ClientToolsUnsupported: Answer(422, "bad_request"),
    refusals.ImageUnsupported: Answer(422, "bad_request"),
    refusals.UnknownCall: Answer(409, "no_pending_question"),
    refusals.CallResolved: Answer(409, "no_pending_question"),
    refusals.ResultsMissing: Answer(422, "invalid_answer"),
    refusals.InvalidAnswer: Answer(422, "invalid_answer"),
    refusals.InvalidSeed: Answer(422, "bad_request"),
    refusals.LimitExceeded: Answer(413, "too_large"),
    refusals.InvalidCursor: Answer(422, "bad_request"),
    refusals.Conflict: Answer(409, "session_busy"),
    refusals.SessionBusy: Answer(409, "session_busy"),
    refusals.IdTaken: Answer(409, "bad_request"),
    refusals.KeyReused: Answer(409, "bad_request"),
    refusals.Unauthenticated: Answer(401, "forbidden"),
    refusals.Forbidden: Answer(403, "forbidden"),
    refusals.Exhausted: Answer(429, "rate_limited"),
    refusals.Unavailable: Answer(503, "unavailable"),
    refusals.StoreUnavailable: Answer(503, "unavailable"),
    refusals.ShuttingDown: Answer(503, "unavailable"),
}


class Told(NamedTuple):
    """An error as it goes out over REST."""

    status: int
    detail: str
    headers: Mapping[str, str] = {}

    @property
    def body(self) -> dict[str, object]:
        """The body: `{"detail": TEXT}`."""
        return {"detail": self.detail}


def tell(refusal: Refused) -> Told:
    """The answer to a refusal. What is invalid names its field first, as in `content: must not be blank`."""
    answer = ANSWERS[type(refusal)]
    detail = "Not Found" if type(refusal) is refusals.NotFound and not str(refusal) else str(refusal)
    path = getattr(refusal, "path", "")
    return Told(answer.status, shortened(f"{path}: {detail}" if path else detail), headers_of(refusal))
