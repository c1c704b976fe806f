"""What can go wrong for a client: a small family under `ClientError`, each with the facts. Pure."""

from dragoman.client.events import Reply


class ClientError(Exception):
    """The base. Everything that this library raises on purpose is one.

    Args:
        message: a sentence that tells what was expected and what came.
        status: of the HTTP answer; 0 when there was none.
        code: the server's own word for it; empty when it has none.
        request_id: by which the server's operator finds the request.
        may_retry: whether the same call may succeed later without a change.
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
    """There is no connection, or it was lost and could not be made again in time."""


class TimedOut(Unreachable):
    """A limit of `Timeouts` was reached."""


class RequestRefused(ClientError):
    """The server said no; nothing was changed. `body` is its answer as it came."""

    body: bytes = b""


class Unauthorized(RequestRefused):
    """The key is missing, unknown, or may not do this (401, 403)."""


class NotFound(RequestRefused):
    """There is no such session, agent or path (404)."""


class Busy(RequestRefused):
    """A run of the session is under way."""


class InvalidResponse(ClientError):
    """The server's answer is none of the protocol's: another server, another version, or a fault of its."""


class Unsupported(ClientError):
    """The protocol, this server or this installation has no way to do that. The message names one that has."""


class RunFailed(ClientError):
    """A run that was asked for as a whole ended with an error. `reply` is what came before."""

    def __init__(self, message: str, *, code: str, reply: Reply) -> None:
        super().__init__(message, code=code)
        self.reply = reply


BUSY_CODES = {"turn_in_progress", "thread_busy", "session_busy"}
"""The codes of `Busy`, in small letters: other refusals have the same status."""


def make_refusal(
    status: int, code: str, message: str, *, body: bytes, request_id: str, may_retry: bool = False
) -> RequestRefused:
    """The refusal that a status stands for."""
    kind = {401: Unauthorized, 403: Unauthorized, 404: NotFound}.get(status, RequestRefused)
    if code.lower() in BUSY_CODES:
        kind, may_retry = Busy, True
    error = kind(message, status=status, code=code, request_id=request_id, may_retry=may_retry)
    error.body = body
    return error
