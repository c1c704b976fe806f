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
        refusals.Refused: ErrorRow(400, "invalid_request"),
        refusals.NotFound: ErrorRow(404, "not_found"),
        refusals.SessionNotFound: ErrorRow(404, "thread_not_found", "there is no such thread"),
        refusals.AgentNotFound: ErrorRow(404, "unknown_agent"),
        refusals.RunNotFound: ErrorRow(404, "run_not_found"),
        refusals.Invalid: ErrorRow(400, "invalid_request", facts=PATH),
        refusals.AgentNotChangeable: ErrorRow(409, "agent_fixed", facts=PATH),
        refusals.UnknownTool: ErrorRow(400, "unknown_tool", facts=PATH),
        refusals.UnknownOption: ErrorRow(400, "unknown_option", facts=PATH),
        refusals.InvalidOptionValue: ErrorRow(400, "invalid_option_value", facts=PATH),
        refusals.DuplicateToolName: ErrorRow(400, "duplicate_tool_name", facts=PATH),
        refusals.ClientToolsUnsupported: ErrorRow(400, "client_tools_unsupported", facts=PATH),
        refusals.ImageUnsupported: ErrorRow(400, "image_unsupported", facts=PATH),
        refusals.FileUnsupported: ErrorRow(400, "file_unsupported", facts=PATH),
        refusals.UnknownCall: ErrorRow(STREAM_EVENT, "interrupt_unknown"),
        refusals.CallAlreadySettled: ErrorRow(STREAM_EVENT, "interrupt_unknown"),
        refusals.ResultsMissing: ErrorRow(STREAM_EVENT, "interrupt_unanswered"),
        refusals.InvalidAnswer: ErrorRow(STREAM_EVENT, "interrupt_invalid"),
        refusals.InvalidSeed: ErrorRow(400, "invalid_request", facts=PATH),
        refusals.LimitExceeded: ErrorRow(400, "limit_exceeded", facts=PATH),
        refusals.InvalidCursor: ErrorRow(400, "invalid_cursor", facts=PATH),
        refusals.Conflict: ErrorRow(409, "conflict"),
        refusals.AgentNotServed: ErrorRow(STREAM_EVENT, "agent_not_served"),
        refusals.IdTaken: ErrorRow(409, "conflict"),
        refusals.SessionBusy: ErrorRow(STREAM_EVENT, "thread_busy", "a run of this thread is active"),
        refusals.IdempotencyKeyReused: ErrorRow(409, "run_conflict", "this run id was used with another request"),
        refusals.Unauthenticated: ErrorRow(401, "unauthorized"),
        refusals.InvalidToken: ErrorRow(401, "unauthorized"),
        refusals.Forbidden: ErrorRow(403, "forbidden"),
        refusals.LimitReached: ErrorRow(429, "rate_limited"),
        refusals.TokenBudgetUsedUp: ErrorRow(429, "rate_limited"),
        refusals.Unavailable: ErrorRow(503, "unavailable"),
        refusals.StoreUnavailable: ErrorRow(503, "unavailable"),
        refusals.IssuerUnavailable: ErrorRow(503, "unavailable"),
        refusals.SessionUnreadable: ErrorRow(500, "internal"),
        refusals.ShuttingDown: ErrorRow(503, "shutting_down"),
        kit.UnknownPath: ErrorRow(404, "not_found"),
        kit.MethodNotAllowed: ErrorRow(405, "method_not_allowed"),
        kit.UnsupportedMediaType: ErrorRow(415, "unsupported_media_type"),
        kit.BodyTooLarge: ErrorRow(413, "body_too_large", facts=("limit",)),
        kit.BodyTooSlow: ErrorRow(400, "invalid_request"),
        kit.InvalidJson: ErrorRow(400, "invalid_json"),
        kit.InvalidBody: ErrorRow(400, "invalid_request", facts=PATH),
        wire.UnsupportedVersion: ErrorRow(400, "unsupported_version"),
        kit.InternalError: ErrorRow(500, "internal", facts=("reference",)),
    }
)
