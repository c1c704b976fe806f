"""The answers to failed requests: one table, complete by test. Pure.

`useChat` shows the whole body as the error's message, so the body is one sentence.
Source: specification of AI SDK, 10.
"""

from dragoman.core import refusals
from dragoman.protocols.kit import errors as kit
from dragoman.protocols.kit.errors import ErrorRow, ErrorTable, RequestError


class InputAltered(RequestError):
    """An approval came with other arguments than those of the recorded call."""

    def __init__(self) -> None:
        super().__init__("the approval was given for other arguments than those of the waiting call: reload the chat")


class NothingToAnswer(RequestError):
    """A continuation has no answer to a waiting call."""

    def __init__(self) -> None:
        super().__init__("none of the answers belongs to a call that waits: reload the chat")


class NothingToRegenerate(RequestError):
    """The chat has no user message that could be asked again."""

    def __init__(self) -> None:
        super().__init__("the chat has no message that could be asked again")


PATH = ("path",)
ERRORS = ErrorTable(
    {
        **kit.STANDARD_ROWS,
        refusals.SessionNotFound: ErrorRow(404, "not_found", "there is no such chat"),
        refusals.RunNotFound: ErrorRow(404, "not_found"),
        refusals.AgentNotChangeable: ErrorRow(409, "agent_fixed"),
        refusals.UnknownTool: ErrorRow(400, "invalid_request", facts=PATH),
        refusals.UnknownOption: ErrorRow(400, "invalid_request", facts=PATH),
        refusals.InvalidOptionValue: ErrorRow(400, "invalid_request", facts=PATH),
        refusals.DuplicateToolName: ErrorRow(400, "invalid_request", facts=PATH),
        refusals.ClientToolsUnsupported: ErrorRow(400, "invalid_request", facts=PATH),
        **dict.fromkeys(kit.UNSUPPORTED_CONTENT, ErrorRow(400, "invalid_request", facts=PATH)),
        **dict.fromkeys(kit.UNEXPECTED_ANSWERS, ErrorRow(409, "nothing_to_answer")),
        refusals.ResultsMissing: ErrorRow(400, "invalid_request"),
        refusals.InvalidAnswer: ErrorRow(400, "invalid_request"),
        refusals.LimitExceeded: ErrorRow(400, "limit_exceeded", facts=PATH),
        refusals.InvalidCursor: ErrorRow(400, "invalid_cursor"),
        refusals.Conflict: ErrorRow(409, "session_busy"),
        refusals.SessionBusy: ErrorRow(409, "session_busy", "the chat is being answered: wait, or stop it first"),
        refusals.IdTaken: ErrorRow(409, "session_busy"),
        refusals.IdempotencyKeyReused: ErrorRow(409, "session_busy"),
        kit.BodyTooLarge: ErrorRow(413, "body_too_large"),
        kit.InternalError: ErrorRow(500, "internal"),
        InputAltered: ErrorRow(409, "input_altered"),
        NothingToAnswer: ErrorRow(409, "nothing_to_answer"),
        NothingToRegenerate: ErrorRow(409, "nothing_to_regenerate"),
    }
)
