"""The standard endpoint's answers to failed requests: one table, complete by test. Pure.

Before the stream opens, a failure is an HTTP error with a JSON body. Rows with status 200 are sent as the only event of
a stream instead: clients show a `RUN_ERROR` to people, and treat an HTTP error as a broken connection.
Source: specification of AG-UI, B.2, B.3, B.8 to B.11; shared rules, 2, 4, 10.
"""

from dragoman.core import refusals
from dragoman.protocols.agui import wire
from dragoman.protocols.kit import errors as kit
from dragoman.protocols.kit.errors import ErrorRow, ErrorTable

STREAM_EVENT = 200
PATH = ("path",)
ERRORS = ErrorTable(
    {
        **kit.STANDARD_ROWS,
        **kit.NAMED_INPUT_ROWS,
        refusals.SessionNotFound: ErrorRow(404, "thread_not_found", "there is no such thread"),
        refusals.RunNotFound: ErrorRow(404, "run_not_found"),
        refusals.AgentNotChangeable: ErrorRow(409, "agent_fixed", facts=PATH),
        **dict.fromkeys(kit.UNEXPECTED_ANSWERS, ErrorRow(STREAM_EVENT, "interrupt_unknown")),
        refusals.ResultsMissing: ErrorRow(STREAM_EVENT, "interrupt_unanswered"),
        refusals.InvalidAnswer: ErrorRow(STREAM_EVENT, "interrupt_invalid"),
        refusals.InvalidCursor: ErrorRow(400, "invalid_cursor", facts=PATH),
        refusals.Conflict: ErrorRow(409, "conflict"),
        refusals.AgentNotServed: ErrorRow(STREAM_EVENT, "agent_not_served"),
        refusals.IdTaken: ErrorRow(409, "conflict"),
        refusals.SessionBusy: ErrorRow(STREAM_EVENT, "thread_busy", "a run of this thread is active"),
        refusals.IdempotencyKeyReused: ErrorRow(409, "run_conflict", "this run id was used with another request"),
        wire.UnsupportedVersion: ErrorRow(400, "unsupported_version"),
    }
)
