"""The API's answers to everything that can go wrong with a request: one table, complete by test. Pure.

`param` and `code` are always strings: the schema of a widely used client rejects the null that OpenAI's allows, and
then hides the message. Official clients repeat 408, 409, 429 and 5xx, so no other permanent refusal has such a status.
"""

from dragoman.core import refusals
from dragoman.protocols.kit import errors as kit
from dragoman.protocols.kit.errors import ErrorResponse, ErrorRow, ErrorTable, RequestError
from dragoman.protocols.openai import wire

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    409: "conflict_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}
"""The `type` of an error by its status; `invalid_request_error` for others.

OpenAI's API has `invalid_request_error` for a wrong key, too. LiteLLM takes that type for a wrong request unless the
message is OpenAI's, and then neither tries another key nor another model.
"""


class InvalidParameter(RequestError):
    """A field of the request is wrong.

    Attributes:
        code: what is wrong, for programs.
        path: the field.
    """

    def __init__(self, code: str, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.code = code
        self.path = path


class ResponseNotFound(RequestError):
    """The caller has no such response, or it is not kept."""

    def __init__(self) -> None:
        super().__init__("there is no such response")


class ConversationNotFound(RequestError):
    """The caller has no such conversation.

    Attributes:
        path: the field that names it; empty if the path of the request does.
    """

    def __init__(self, path: str = "") -> None:
        super().__init__("there is no such conversation")
        self.path = path


class ModelNotFound(RequestError):
    """The `model` of a request names no agent."""

    path = "model"


class RunFailed(RequestError):
    """The run behind an answer that is one body has failed. Repeating the request would run the agent again.

    Attributes:
        code: of the run.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RunFailedForGood(RunFailed):
    """The same for clients that repeat a request by its status, whatever `x-should-retry` says (decision 50)."""


class ContextLengthExceeded(RunFailed):
    """The conversation is too long for the agent's model.

    LiteLLM and LangChain know this by the words "prompt is too long" and "exceeds the context window".
    """

    def __init__(self, path: str) -> None:
        super().__init__(
            "context_length_exceeded", "The prompt is too long: it exceeds the context window of the model"
        )
        self.path = path


class ItemNotFound(RequestError):
    """The caller has no such item."""

    def __init__(self, path: str = "") -> None:
        super().__init__("there is no such item")
        self.path = path


def error_type(status: int) -> str:
    """The `type` of an error with this HTTP status."""
    return _TYPES.get(status, "invalid_request_error")


def error_facts(error: ErrorResponse) -> wire.ErrorFacts:
    """An error in OpenAI's form."""
    path, code = str(error.facts.get("path", "")), str(error.facts.get("code", error.code))
    return wire.ErrorFacts(error.message, error_type(error.status), path, code)


_PATH = ("path",)
ERRORS = ErrorTable(
    {
        refusals.Refused: ErrorRow(400, "invalid_request"),
        refusals.NotFound: ErrorRow(404, "not_found"),
        refusals.SessionNotFound: ErrorRow(404, "conversation_not_found", "there is no such conversation"),
        refusals.AgentNotFound: ErrorRow(404, "model_not_found"),
        refusals.RunNotFound: ErrorRow(404, "response_not_found"),
        ConversationNotFound: ErrorRow(404, "conversation_not_found", facts=_PATH),
        ModelNotFound: ErrorRow(404, "model_not_found", facts=_PATH),
        ResponseNotFound: ErrorRow(404, "response_not_found"),
        ItemNotFound: ErrorRow(404, "item_not_found", facts=_PATH),
        refusals.Invalid: ErrorRow(400, "invalid_value", facts=_PATH),
        refusals.AgentNotChangeable: ErrorRow(400, "model_mismatch", facts=_PATH),
        **kit.NAMED_INPUT_ROWS,
        refusals.DuplicateToolName: ErrorRow(400, "duplicate_tool", facts=_PATH),
        **dict.fromkeys(kit.UNEXPECTED_ANSWERS, ErrorRow(400, "no_pending_call", facts=_PATH)),
        refusals.ResultsMissing: ErrorRow(400, "tool_results_missing", facts=_PATH),
        refusals.InvalidAnswer: ErrorRow(400, "no_pending_call", facts=_PATH),
        refusals.InvalidSeed: ErrorRow(400, "invalid_value", facts=_PATH),
        refusals.InvalidCursor: ErrorRow(400, "invalid_value", facts=_PATH),
        refusals.Conflict: ErrorRow(409, "conversation_busy", retry_after_s=1),
        refusals.SessionBusy: ErrorRow(409, "conversation_busy", retry_after_s=1),
        refusals.AgentNotServed: ErrorRow(400, "agent_not_served"),
        refusals.IdTaken: ErrorRow(400, "id_taken"),
        refusals.IdempotencyKeyReused: ErrorRow(409, "idempotency_key_reused"),
        refusals.Unauthenticated: ErrorRow(401, "invalid_api_key"),
        refusals.InvalidToken: ErrorRow(401, "invalid_api_key"),
        refusals.Forbidden: ErrorRow(403, "insufficient_permissions"),
        refusals.LimitReached: ErrorRow(429, "rate_limit_exceeded"),
        refusals.TokenBudgetUsedUp: ErrorRow(429, "insufficient_quota"),
        refusals.Unavailable: ErrorRow(503, "unavailable"),
        refusals.StoreUnavailable: ErrorRow(503, "unavailable"),
        refusals.OutcomeUnknown: ErrorRow(503, "outcome_unknown"),
        refusals.IssuerUnavailable: ErrorRow(503, "unavailable"),
        refusals.SessionUnreadable: ErrorRow(500, "internal_error"),
        refusals.ShuttingDown: ErrorRow(503, "unavailable"),
        kit.UnknownPath: ErrorRow(404, "unknown_url"),
        kit.MethodNotAllowed: ErrorRow(405, "method_not_allowed"),
        kit.UnsupportedMediaType: ErrorRow(415, "unsupported_media_type"),
        kit.BodyTooLarge: ErrorRow(413, "request_too_large"),
        kit.BodyTooSlow: ErrorRow(400, "request_timeout"),
        kit.InvalidJson: ErrorRow(400, "invalid_json"),
        kit.InvalidBody: ErrorRow(400, "invalid_type", facts=_PATH),
        kit.InternalError: ErrorRow(500, "internal_error"),
        RunFailed: ErrorRow(500, "server_error", facts=("code",)),
        RunFailedForGood: ErrorRow(424, "server_error", facts=("code",)),
        ContextLengthExceeded: ErrorRow(400, "context_length_exceeded", facts=_PATH),
        InvalidParameter: ErrorRow(400, "invalid_value", facts=("code", "path")),
    }
)
