"""AAP's answers to everything that can go wrong with a request: one table, complete by test. Pure.

Source: section 16.
"""

from dragoman.core import refusals
from dragoman.protocols.kit import errors as kit
from dragoman.protocols.kit.errors import ErrorRow, ErrorTable, RequestError


class UnsupportedMode(RequestError):
    """The agent does not answer in the stream mode that was asked for."""

    def __init__(self, agent: str, supported: list[str]) -> None:
        super().__init__(f"agent {agent!r} answers in {' or '.join(supported)} mode")
        self.supported = supported


class InvalidHistoryType(RequestError):
    """`type` names no kind of history."""


class HistoryNotSupported(RequestError):
    """The agent does not declare this kind of history."""


ERRORS = ErrorTable(
    {
        **kit.STANDARD_ROWS,
        **{refusal: row._replace(facts=()) for refusal, row in kit.NAMED_INPUT_ROWS.items()},
        refusals.SessionNotFound: ErrorRow(404, "session_not_found"),
        refusals.RunNotFound: ErrorRow(404, "not_found"),
        refusals.AgentNotChangeable: ErrorRow(400, "agent_name_fixed"),
        refusals.InvalidOptionValue: ErrorRow(400, "invalid_option_value", facts=("allowed",)),
        refusals.UnknownCall: ErrorRow(400, "unknown_tool_call"),
        refusals.CallAlreadySettled: ErrorRow(400, "tool_call_resolved"),
        refusals.ResultsMissing: ErrorRow(400, "tool_results_missing", facts=("missing",)),
        refusals.InvalidAnswer: ErrorRow(400, "invalid_request", facts=("path",)),
        refusals.LimitExceeded: ErrorRow(400, "limit_exceeded", facts=("limit", "path")),
        refusals.InvalidCursor: ErrorRow(400, "invalid_cursor"),
        refusals.Conflict: ErrorRow(409, "turn_in_progress"),
        refusals.SessionBusy: ErrorRow(409, "turn_in_progress", retry_after_s=1),
        refusals.IdTaken: ErrorRow(409, "turn_in_progress"),
        refusals.IdempotencyKeyReused: ErrorRow(409, "idempotency_conflict"),
        kit.BodyTooSlow: ErrorRow(400, "invalid_request", facts=("path",)),
        UnsupportedMode: ErrorRow(400, "unsupported_stream_mode", facts=("supported",)),
        InvalidHistoryType: ErrorRow(400, "invalid_history_type", "expected type=full or type=compacted"),
        HistoryNotSupported: ErrorRow(404, "history_not_supported"),
    }
)
