"""A2A's answers to everything that can go wrong with a request: one table, complete by test. Pure.

The code of a row is that of JSON-RPC, and its status that of HTTP+JSON. Over JSON-RPC such an error has the status 200.
A row whose code is a word is an error of HTTP itself, which both bindings answer alike.
Source: A2A 1.0, "Error code mappings".
"""

from collections.abc import Mapping

from msgspec import UNSET

from dragoman.core import refusals
from dragoman.core.content import JsonObject
from dragoman.protocols.a2a import wire
from dragoman.protocols.kit import errors as kit
from dragoman.protocols.kit.errors import ErrorResponse, ErrorRow, ErrorTable, RequestError, bearer_challenge
from dragoman.protocols.kit.json_rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RpcError,
)

EXTENDED_CARD_NOT_CONFIGURED = -32007
"""What version 0.3 calls the lack of an extended card."""
DOMAIN = "a2a-protocol.org"


class InvalidRequest(RequestError):
    """The JSON-RPC envelope is wrong."""


class UnknownMethod(RequestError):
    """There is no such method."""

    def __init__(self, method: str, *, name_here: str | None) -> None:
        hint = "" if name_here is None else f" in this A2A-Version, which calls it {name_here}"
        super().__init__(f"there is no method {method[:80]!r}{hint}")


class InvalidParams(RequestError):
    """A parameter is wrong; `path` names it."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


class TaskNotFound(RequestError):
    """The caller has no such task of this agent."""

    def __init__(self) -> None:
        super().__init__("there is no such task")


class TaskNotCancelable(RequestError):
    """The task is over."""


class PushNotificationNotSupported(RequestError):
    """There are no push notifications."""

    def __init__(self) -> None:
        super().__init__("push notifications are not supported: subscribe to the task, or get it from time to time")


class UnsupportedOperation(RequestError):
    """The task does not take this in its state, or the operation does not exist here."""


class ContentTypeNotSupported(RequestError):
    """The agent does not take such a part, or cannot answer in these forms."""


class VersionNotSupported(RequestError):
    """The client speaks another version, or does not say which."""


class QueueFull(RequestError):
    """Too many messages wait in the context."""


class ExtendedCardNotConfigured(UnsupportedOperation):
    """There is no card for clients with a key besides the public one."""

    def __init__(self) -> None:
        super().__init__("there is no extended card: the public one says everything")


_PARAMS = ErrorRow(400, str(INVALID_PARAMS), facts=("path",))
_INTERNAL = str(INTERNAL_ERROR)

ERRORS = ErrorTable(
    {
        refusals.Refused: _PARAMS,
        refusals.NotFound: ErrorRow(404, "-32001"),
        refusals.AgentNotFound: ErrorRow(404, "NOT_FOUND", "there is no such agent"),  # cards are open: no names
        refusals.Invalid: _PARAMS,
        **dict.fromkeys(kit.UNSUPPORTED_CONTENT, ErrorRow(400, "-32005")),
        refusals.Conflict: ErrorRow(400, "-32004"),
        refusals.IdempotencyKeyReused: ErrorRow(
            400, str(INVALID_PARAMS), "messageId was used with another message", facts=("path",)
        ),
        refusals.Unauthenticated: ErrorRow(401, "UNAUTHENTICATED"),
        refusals.Forbidden: ErrorRow(403, "PERMISSION_DENIED"),
        refusals.LimitReached: ErrorRow(429, "RESOURCE_EXHAUSTED"),
        refusals.Unavailable: ErrorRow(503, _INTERNAL),
        refusals.SessionUnreadable: ErrorRow(500, _INTERNAL),
        kit.UnknownPath: ErrorRow(404, "NOT_FOUND"),
        kit.MethodNotAllowed: ErrorRow(405, "UNIMPLEMENTED"),
        kit.UnsupportedMediaType: ErrorRow(415, "INVALID_ARGUMENT"),
        kit.BodyTooLarge: ErrorRow(413, "INVALID_ARGUMENT"),
        kit.BodyTooSlow: ErrorRow(400, "INVALID_ARGUMENT"),
        kit.InvalidJson: ErrorRow(400, str(PARSE_ERROR)),
        kit.InvalidBody: _PARAMS,
        kit.InternalError: ErrorRow(500, _INTERNAL),
        InvalidRequest: ErrorRow(400, str(INVALID_REQUEST)),
        UnknownMethod: ErrorRow(404, str(METHOD_NOT_FOUND)),
        InvalidParams: _PARAMS,
        TaskNotFound: ErrorRow(404, "-32001"),
        TaskNotCancelable: ErrorRow(400, "-32002"),
        PushNotificationNotSupported: ErrorRow(400, "-32003"),
        UnsupportedOperation: ErrorRow(400, "-32004"),
        ContentTypeNotSupported: ErrorRow(400, "-32005"),
        ExtendedCardNotConfigured: ErrorRow(400, str(EXTENDED_CARD_NOT_CONFIGURED)),
        VersionNotSupported: ErrorRow(400, "-32009"),
        QueueFull: ErrorRow(503, _INTERNAL, retry_after_s=1),
    }
)

_REASONS = {
    -32001: "TASK_NOT_FOUND",
    -32002: "TASK_NOT_CANCELABLE",
    -32003: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    -32004: "UNSUPPORTED_OPERATION",
    -32005: "CONTENT_TYPE_NOT_SUPPORTED",
    -32007: "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    -32009: "VERSION_NOT_SUPPORTED",
    INVALID_PARAMS: "INVALID_PARAMS",
    INVALID_REQUEST: "INVALID_REQUEST",
    METHOD_NOT_FOUND: "METHOD_NOT_FOUND",
    INTERNAL_ERROR: "INTERNAL_ERROR",
}
"""The official clients know an error over HTTP+JSON by its reason alone, and show its message only then."""
_STATUS_NAMES = {404: "NOT_FOUND", 500: "INTERNAL", 503: "UNAVAILABLE"}


def details(error: ErrorResponse) -> tuple[JsonObject, ...]:
    """What programs can read of an error, in the form of Google's error model."""
    code, found = int(error.code), list[JsonObject]()
    if code == INVALID_PARAMS:
        violation = {"field": str(error.facts.get("path", "")), "description": error.message}
        found.append({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]})
    if code in _REASONS:
        info = {"reason": _REASONS[code], "domain": DOMAIN, "metadata": {}}
        found.append({"@type": "type.googleapis.com/google.rpc.ErrorInfo", **info})
    return tuple(found)


def rpc_error(error: ErrorResponse, *, is_old: bool) -> RpcError:
    """An error over JSON-RPC."""
    code = int(error.code)
    if code == EXTENDED_CARD_NOT_CONFIGURED and not is_old:
        error, code = error._replace(code="-32004"), -32004
    return RpcError(code=code, message=error.message, data=details(error) or UNSET)


def http_error(error: ErrorResponse) -> wire.HttpErrorBody:
    """An error over HTTP+JSON."""
    found: tuple[JsonObject, ...] = ()
    name = error.code
    if is_of_the_protocol(error):
        found = details(error._replace(code="-32004") if int(error.code) == EXTENDED_CARD_NOT_CONFIGURED else error)
        wrong = "INVALID_ARGUMENT" if int(error.code) in (INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR) else ""
        name = _STATUS_NAMES.get(error.status) or wrong or "FAILED_PRECONDITION"
    return wire.HttpErrorBody(
        error=wire.HttpError(code=error.status, status=name, message=error.message, details=found)
    )


def is_of_the_protocol(error: ErrorResponse) -> bool:
    """Whether an error is one of A2A's, not of HTTP itself."""
    return error.code.startswith("-")


def headers_of(error: ErrorResponse) -> Mapping[str, str]:
    """The headers of an error."""
    if error.status != 401:
        return error.headers
    return {**error.headers, "WWW-Authenticate": bearer_challenge(error, 'realm="dragoman"')}
