"""The client's exceptions, all under `ClientError`. Pure."""

from dragoman.client.events import Reply


class ClientError(Exception):
    """Base class of all exceptions of this library.

    Args:
        message: what was expected and what happened instead.
        status: the HTTP status; 0 if there was no response.
        code: the server's error code; empty if it sent none.
        request_id: the id under which the server's operator finds the request.
        may_retry: whether the same call may succeed later.
    """

    def __init__(
        self, message: str, *, status: int = 0, code: str = "", request_id: str = "", may_retry: bool = False
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.request_id = request_id
        self.may_retry = may_retry


class Unreachable(ClientError):
    """The connection could not be opened, or was lost and not restored in time."""


class TimedOut(Unreachable):
    """A time limit of `Timeouts` was reached."""


class RequestRefused(ClientError):
    """The server refused the request and changed nothing. `body` is the raw response body."""

    body: bytes = b""


class Unauthorized(RequestRefused):
    """The API key is missing, unknown, or lacks the permission (401, 403)."""


class NotFound(RequestRefused):
    """The session, agent or path does not exist (404)."""


class Busy(RequestRefused):
    """A run of the session is in progress."""


class InvalidResponse(ClientError):
    """The response does not follow the protocol: another server, another version, or a bug of the server."""


class Unsupported(ClientError):
    """The protocol, the server or this installation cannot do this. The message names one that can."""


class RunFailed(ClientError):
    """A run that was awaited as a whole ended with an error. `reply` holds the events until then."""

    def __init__(self, message: str, *, code: str, reply: Reply) -> None:
        super().__init__(message, code=code)
        self.reply = reply


BUSY_CODES = {"turn_in_progress", "thread_busy", "session_busy", "conversation_busy", "conversation_locked"}
"""Error codes that mean `Busy`, in lower case. Other refusals have the same status."""


REDIRECTED = "the server redirects to another address, which is not followed: check the URL, and the slash at its end"


def make_refusal(
    status: int, code: str, message: str, *, body: bytes, request_id: str, may_retry: bool = False
) -> RequestRefused:
    """Build the exception for a response's status, error code and message, which may be empty."""
    if not message:
        redirects = 300 <= status < 400
        message = REDIRECTED if redirects else f"the server answered {status}"
    kind = {401: Unauthorized, 403: Unauthorized, 404: NotFound}.get(status, RequestRefused)
    if code.lower() in BUSY_CODES:
        kind, may_retry = Busy, True
    error = kind(message, status=status, code=code, request_id=request_id, may_retry=may_retry)
    error.body = body
    return error
