"""The standard endpoint's answers to refusals: one table, complete by test. Pure.

Before the stream opens a refusal is an HTTP error with a JSON body. A few belong into the stream all the same, because
clients tell people about a `RUN_ERROR`, and take an HTTP error for a broken connection.
Source: specification of the face, B.2, B.3, B.8 to B.11; rulings, 2, 4, 10.
"""

from collections.abc import Mapping
from typing import NamedTuple

from dragoman.core import refusals
from dragoman.core.refusals import Refused
from dragoman.protocols.kit.faults import headers_of, shortened


class Answer(NamedTuple):
    """A status and a code. `is_told`: it is the only event of a stream, and the status is 200.

    `sentence` stands where the core's own words would not be understood here.
    """

    status: int
    code: str
    is_told: bool = False
    sentence: str | None = None


ANSWERS: Mapping[type[Refused], Answer] = {
    refusals.Refused: Answer(400, "invalid_request"),
    refusals.NotFound: Answer(404, "not_found"),
    refusals.SessionNotFound: Answer(404, "thread_not_found", sentence="there is no such thread"),
    refusals.AgentNotFound: Answer(404, "unknown_agent"),
    refusals.RunNotFound: Answer(404, "run_not_found"),
    refusals.Invalid: Answer(400, "invalid_request"),
    refusals.AgentFixed: Answer(409, "agent_fixed"),
    refusals.UnknownTool: Answer(400, "unknown_tool"),
    refusals.UnknownOption: Answer(400, "unknown_option"),
    refusals.InvalidOptionValue: Answer(400, "invalid_option_value"),
    refusals.DuplicateToolName: Answer(400, "duplicate_tool_name"),
    refusals.ClientToolsUnsupported: Answer(400, "client_tools_unsupported"),
    refusals.ImageUnsupported: Answer(400, "image_unsupported"),
    refusals.UnknownCall: Answer(200, "interrupt_unknown", is_told=True),
    refusals.CallResolved: Answer(200, "interrupt_unknown", is_told=True),
    refusals.ResultsMissing: Answer(200, "interrupt_unanswered", is_told=True),
    refusals.InvalidAnswer: Answer(200, "interrupt_invalid", is_told=True),
    refusals.InvalidSeed: Answer(400, "invalid_request"),
    refusals.LimitExceeded: Answer(400, "limit_exceeded"),
    refusals.InvalidCursor: Answer(400, "invalid_cursor"),
    refusals.Conflict: Answer(409, "conflict"),
    refusals.IdTaken: Answer(409, "conflict"),
    refusals.SessionBusy: Answer(200, "thread_busy", is_told=True, sentence="a run of this thread is active"),
    refusals.KeyReused: Answer(409, "run_conflict", sentence="this run id was used with another request"),
    refusals.Unauthenticated: Answer(401, "unauthorized"),
    refusals.Forbidden: Answer(403, "forbidden"),
    refusals.Exhausted: Answer(429, "rate_limited"),
    refusals.Unavailable: Answer(503, "unavailable"),
    refusals.StoreUnavailable: Answer(503, "unavailable"),
    refusals.ShuttingDown: Answer(503, "shutting_down"),
}


class Told(NamedTuple):
    """An error as it goes out: `{"error": a sentence, "code": for programs}`, or the event that stands for it."""

    status: int
    code: str
    sentence: str
    headers: Mapping[str, str] = {}
    facts: Mapping[str, object] = {}
    is_told: bool = False

    @property
    def body(self) -> dict[str, object]:
        """The JSON body."""
        return {"error": self.sentence, "code": self.code, **self.facts}


def tell(refusal: Refused) -> Told:
    """The answer to a refusal."""
    answer = ANSWERS[type(refusal)]
    path = refusal.path if isinstance(refusal, refusals.Invalid) else ""
    facts = {"path": path} if path and not answer.is_told else {}
    sentence = answer.sentence or shortened(str(refusal))
    return Told(answer.status, answer.code, sentence, headers_of(refusal), facts, answer.is_told)


def plain(status: int, code: str, message: str, **facts: object) -> Told:
    """An error of the door itself."""
    return Told(status, code, shortened(message), facts=facts)
