"""Error tables: from what goes wrong with a request to the answer in a protocol's own shape. Pure.

A protocol gives one `ErrorTable` with a row for each refusal of the core and for each `RequestError`; a test checks
that it is complete. Anything else is a fault of the server, which the app logs and answers as `InternalError`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dragoman.core import refusals
from dragoman.core.quotas import Quota
from dragoman.core.refusals import (
    InvalidToken,
    LimitReached,
    OutcomeUnknown,
    SessionUnreadable,
    Unauthenticated,
    Unavailable,
)

MAX_MESSAGE_CHARS = 500
MAX_DECODER_MESSAGE_CHARS = 300
"""Of a decoder's own message, which may quote what the client sent."""
FOR_EACH_KEY = " for each key"
"""The end of a sentence about a key of the mapping at the path."""
_PATH_SUFFIX = re.compile(r" - at (`key` in )?`\$\.?(.*)`$")
_PATH_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_MISSING_FIELD = re.compile(r"Object missing required field `(.*)`")


class RequestError(Exception):
    """A request that fails before it reaches the core. Attributes named in an error table's row go into the answer."""


class UnknownPath(RequestError):
    """No route matches the path."""

    def __init__(self) -> None:
        super().__init__("there is nothing at this path; GET /openapi.json lists the paths of this server")


class MethodNotAllowed(RequestError):
    """The path exists, but not for this method. `message` says what to do instead, if that is not obvious."""

    def __init__(self, allowed: Sequence[str], message: str = "") -> None:
        super().__init__(message or f"this path takes {' or '.join(allowed)}")
        self.allowed = allowed


class UnsupportedMediaType(RequestError):
    """The body is not declared as JSON, or it is compressed."""


class BodyTooLarge(RequestError):
    """The body is longer than the protocol's limit, in bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is larger than {limit} bytes")
        self.limit = limit


class BodyTooSlow(RequestError):
    """The body did not arrive in time."""

    path = ""


class InvalidJson(RequestError):
    """The body is not JSON."""


class InvalidBody(RequestError):
    """The body is JSON, but not of the expected shape. `path` names the field at fault; empty for the whole body."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path


class InternalError(RequestError):
    """A fault of the server. The log holds the details under `reference`; the answer shows nothing else."""

    def __init__(self, reference: str) -> None:
        super().__init__(f"the server failed; reference {reference}")
        self.reference = reference


REQUEST_ERRORS: tuple[type[RequestError], ...] = (
    UnknownPath,
    MethodNotAllowed,
    UnsupportedMediaType,
    BodyTooLarge,
    BodyTooSlow,
    InvalidJson,
    InvalidBody,
    InternalError,
)
"""What every protocol's table has a row for, besides the core's refusals."""


class ErrorRow(NamedTuple):
    """How a protocol answers one kind of error.

    Attributes:
        status: the HTTP status.
        code: the protocol's code for programs; also the label of the metric.
        message: replaces the error's own message, where the protocol fixes the text or uses other words.
        facts: the error's attributes that the body shows under their own names, unless they are None.
        retry_after_s: the `Retry-After` header, for an error that does not bring one.
    """

    status: int
    code: str
    message: str | None = None
    facts: tuple[str, ...] = ()
    retry_after_s: int | None = None


INVALID_REQUESTS = (
    refusals.Refused,
    refusals.Invalid,
    refusals.UnknownTool,
    refusals.UnknownOption,
    refusals.InvalidOptionValue,
    refusals.DuplicateToolName,
    refusals.ClientToolsUnsupported,
    refusals.InvalidSeed,
)
"""Refusals of what the client sent. Like the families below, most protocols answer all of them alike.

A new refusal is added to a family, or to every table: nothing is answered by accident.
"""
UNSUPPORTED_CONTENT = (refusals.ImageUnsupported, refusals.FileUnsupported)
UNEXPECTED_ANSWERS = (refusals.UnknownCall, refusals.CallAlreadySettled)
"""Refusals of answers to calls that wait for none."""
UNAUTHENTICATED = (refusals.Unauthenticated, refusals.InvalidToken)
LIMITS_REACHED = (refusals.LimitReached, refusals.TokenBudgetUsedUp)
UNAVAILABLE = (
    refusals.Unavailable,
    refusals.StoreUnavailable,
    refusals.OutcomeUnknown,
    refusals.IssuerUnavailable,
    refusals.ShuttingDown,
)

STANDARD_ROWS: Mapping[type[Exception], ErrorRow] = {
    **dict.fromkeys(UNAUTHENTICATED, ErrorRow(401, "unauthorized")),
    **dict.fromkeys(LIMITS_REACHED, ErrorRow(429, "rate_limited")),
    **dict.fromkeys(UNAVAILABLE, ErrorRow(503, "unavailable")),
    refusals.Refused: ErrorRow(400, "invalid_request"),
    refusals.NotFound: ErrorRow(404, "not_found"),
    refusals.AgentNotFound: ErrorRow(404, "unknown_agent"),
    refusals.Invalid: ErrorRow(400, "invalid_request", facts=("path",)),
    refusals.InvalidSeed: ErrorRow(400, "invalid_request", facts=("path",)),
    refusals.AgentNotServed: ErrorRow(409, "agent_not_served"),
    refusals.Forbidden: ErrorRow(403, "forbidden"),
    refusals.SessionUnreadable: ErrorRow(500, "internal"),
    refusals.ShuttingDown: ErrorRow(503, "shutting_down"),
    UnknownPath: ErrorRow(404, "not_found"),
    MethodNotAllowed: ErrorRow(405, "method_not_allowed"),
    UnsupportedMediaType: ErrorRow(415, "unsupported_media_type"),
    BodyTooLarge: ErrorRow(413, "body_too_large", facts=("limit",)),
    BodyTooSlow: ErrorRow(400, "invalid_request"),
    InvalidJson: ErrorRow(400, "invalid_json"),
    InvalidBody: ErrorRow(400, "invalid_request", facts=("path",)),
    InternalError: ErrorRow(500, "internal", facts=("reference",)),
}
"""The rows of protocols whose specification fixes no codes. A protocol's table adds the others, or replaces them."""
NAMED_INPUT_ROWS: Mapping[type[Exception], ErrorRow] = {
    refusals.UnknownTool: ErrorRow(400, "unknown_tool", facts=("path",)),
    refusals.UnknownOption: ErrorRow(400, "unknown_option", facts=("path",)),
    refusals.InvalidOptionValue: ErrorRow(400, "invalid_option_value", facts=("path",)),
    refusals.DuplicateToolName: ErrorRow(400, "duplicate_tool_name", facts=("path",)),
    refusals.ClientToolsUnsupported: ErrorRow(400, "client_tools_unsupported", facts=("path",)),
    refusals.ImageUnsupported: ErrorRow(400, "image_unsupported", facts=("path",)),
    refusals.FileUnsupported: ErrorRow(400, "file_unsupported", facts=("path",)),
    refusals.LimitExceeded: ErrorRow(400, "limit_exceeded", facts=("path",)),
}
"""The rows of protocols that tell a client with a code what of its input is wrong. A table may replace some of them."""


class ErrorResponse(NamedTuple):
    """An error as a protocol is about to write it."""

    status: int
    code: str
    message: str
    headers: Mapping[str, str] = {}
    facts: Mapping[str, object] = {}


class ErrorTable:
    """A protocol's answers to everything that can go wrong with a request."""

    def __init__(self, rows: Mapping[type[Exception], ErrorRow]) -> None:
        self.rows = rows

    def to_response(self, error: Exception) -> ErrorResponse:
        """Return the answer to a refusal or a request error; its row is that of its class or of the nearest base.

        Raises:
            KeyError: there is no row.
        """
        row = next((self.rows[kind] for kind in type(error).__mro__ if kind in self.rows), None)
        if row is None:
            raise KeyError(type(error).__name__)
        facts = {name: value for name in row.facts if (value := getattr(error, name, None)) is not None}
        headers = headers_of(error)
        if row.retry_after_s is not None:
            headers.setdefault("Retry-After", str(row.retry_after_s))
        return ErrorResponse(row.status, row.code, row.message or shorten(str(error)), headers, facts)


def headers_of(error: Exception) -> dict[str, str]:
    """Return the headers that belong to an error, whatever the protocol."""
    match error:
        case InvalidToken():
            return {"WWW-Authenticate": f'Bearer error="invalid_token", error_description="{_quotable(str(error))}"'}
        case Unauthenticated():
            return {"WWW-Authenticate": "Bearer"}
        case SessionUnreadable() | OutcomeUnknown():
            return {}  # a retry does not help, or has a second effect
        case LimitReached() | Unavailable():
            return {"Retry-After": str(error.retry_after_s)}
        case BodyTooLarge() | BodyTooSlow():
            return {"Connection": "close"}  # the rest of the body is not read
        case MethodNotAllowed(allowed=allowed):
            return {"Allow": ", ".join(allowed)}
        case _:
            return {}


def rate_limit_headers(quotas: Iterable[Quota]) -> list[tuple[bytes, bytes]]:
    """The headers that say what is left of a caller's limits. Source: draft-ietf-httpapi-ratelimit-headers-10."""
    policies, states = [], []
    for each in quotas:
        unit = f';qu="{each.unit}"' if each.unit else ""
        window = "" if each.window_s is None else f";w={each.window_s}"
        reset = "" if each.resets_in_s is None else f";t={each.resets_in_s}"
        policies.append(f'"{each.name}";q={each.limit}{unit}{window}')
        states.append(f'"{each.name}";r={each.left}{reset}')
    return [(b"ratelimit-policy", ", ".join(policies).encode()), (b"ratelimit", ", ".join(states).encode())]


def bearer_challenge(error: ErrorResponse, *parameters: str) -> str:
    """The `WWW-Authenticate` header of an error, with these parameters before its own."""
    own = error.headers.get("WWW-Authenticate", "").removeprefix("Bearer").strip()
    return "Bearer " + ", ".join((*parameters, own) if own else parameters)


def _quotable(message: str) -> str:
    """A message as RFC 6750 allows it in an `error_description`: ASCII without quotation marks and backslashes."""
    return re.sub(r"[^ !#-\[\]-~]", "'", shorten(message))


def shorten(message: str) -> str:
    """Cut the middle out of a message that may quote what the client sent, which has no limit otherwise."""
    half = MAX_MESSAGE_CHARS // 2
    return message if len(message) <= MAX_MESSAGE_CHARS else f"{message[:half]} … {message[-half:]}"


def parse_validation_error(message: str, prefix: str = "") -> tuple[str, str]:
    """Split msgspec's message about a wrong shape into the sentence and the path of the field at fault.

    Args:
        message: msgspec's message.
        prefix: the path of the value that was decoded, within the body.
    """
    message = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in message)
    suffix = _PATH_SUFFIX.search(message)
    sentence, path = (message[: suffix.start()], suffix[2]) if suffix else (message, "")
    sentence = sentence[:MAX_DECODER_MESSAGE_CHARS] + (FOR_EACH_KEY if suffix and suffix[1] else "")
    if missing := _MISSING_FIELD.fullmatch(sentence):
        return "this field is required", ".".join(filter(None, (prefix, path, missing[1])))
    return sentence, ".".join(filter(None, (prefix, path)))


def path_steps(path: str) -> list[str | int]:
    """The names and the indexes that a path such as `messages[0].content` consists of."""
    return [int(index) if index else name for index, name in _PATH_STEP.findall(path)]
