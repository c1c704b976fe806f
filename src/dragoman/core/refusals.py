"""How the core says no: one small family of exceptions, each with its facts. No status codes, no wire text.

Each protocol has one table from these to its answers, complete by test. What is not here is either a peer's fault
(`Unavailable`) or a bug.
"""

from collections.abc import Collection, Iterator

from dragoman.core.ids import CallId, SessionId

MAX_LISTED_NAMES = 10
"""How many of the names that would have been right a message tells."""


class Refused(Exception):
    """A request that cannot be served as it is. It changed nothing."""


def _list_names(names: Collection[str]) -> str:
    """What there is instead, in words; of many, the first ones."""
    if not names:
        return "is none"
    shown = [repr(name) for name in list(names)[:MAX_LISTED_NAMES]]
    more = len(names) - len(shown)
    told = ", ".join(shown) + (f" and {more} more" if more else "")
    return f"is {told}" if len(names) == 1 else f"are {told}"


class NotFound(Refused):
    """What was named is not there, or is not the caller's: the two are never told apart."""


class SessionNotFound(NotFound):
    """There is no such session for this caller."""


class AgentNotFound(NotFound):
    """No agent of that name is served."""

    def __init__(self, name: str, served: Collection[str]) -> None:
        super().__init__(f"no agent named {name[:80]!r} is served here; there {_list_names(served)}")
        self.name = name


class RunNotFound(NotFound):
    """There is no such run for this caller."""


class Invalid(Refused):
    """The request itself is wrong, whatever the state of the session.

    Attributes:
        path: the field at fault, as a JSON path without the leading `$.`; empty when it is none.
    """

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class AgentNotChangeable(Invalid):
    """A session's agent cannot change."""


class UnknownTool(Invalid):
    """A tool was named that the agent does not expose."""

    def __init__(self, name: str, exposed: Collection[str]) -> None:
        super().__init__(f"the agent exposes no tool named {name[:80]!r}; there {_list_names(exposed)}")
        self.name = name


class UnknownOption(Invalid):
    """An option was set that the agent does not declare."""

    def __init__(self, name: str, declared: Collection[str]) -> None:
        super().__init__(f"the agent has no option named {name[:80]!r}; there {_list_names(declared)}")
        self.name = name


class InvalidOptionValue(Invalid):
    """An option's value is not one of those it takes."""

    def __init__(self, name: str, message: str, *, allowed: tuple[str, ...] | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.allowed = allowed


class DuplicateToolName(Invalid):
    """Two tools in force would have one name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is more than one tool named {name!r}")
        self.name = name


class ClientToolsUnsupported(Invalid):
    """The agent takes no tools of the application's."""


class ImageUnsupported(Invalid):
    """The agent takes no such image."""


class UnknownCall(Invalid):
    """An answer names a call that this session never made, or one that waits for no `answer` of that kind."""

    def __init__(self, call_id: CallId, answer: str | None = None) -> None:
        super().__init__(
            f"tool call {call_id!r} waits for no {answer}" if answer else f"this session has no tool call {call_id!r}"
        )
        self.call_id = call_id


class CallAlreadySettled(Invalid):
    """An answer names a call that already has its result."""

    def __init__(self, call_id: CallId) -> None:
        super().__init__(f"tool call {call_id!r} already has its result")
        self.call_id = call_id


class ResultsMissing(Invalid):
    """Some open calls are left without an answer."""

    def __init__(self, missing: tuple[CallId, ...]) -> None:
        calls = "1 tool call still needs" if len(missing) == 1 else f"{len(missing)} tool calls still need"
        super().__init__(f"{calls} an answer")
        self.missing = missing


class InvalidAnswer(Invalid):
    """An answer does not fit the call that it names."""


class InvalidSeed(Invalid):
    """The history that a client opens a session with does not hold together."""


class LimitExceeded(Invalid):
    """Something is larger, longer or more than the limit allows."""

    def __init__(self, what: str, limit: int, *, path: str = "") -> None:
        super().__init__(f"{what} exceeds the limit of {limit}", path=path)
        self.limit = limit


class InvalidCursor(Invalid):
    """A position that this server never gave out, or that lies in the future."""


class Conflict(Refused):
    """The request is right, but not now."""


class SessionBusy(Conflict):
    """A run of this session is active or queued."""


class IdTaken(Conflict):
    """A new session was to have an id, or a name, that another one has."""


class IdempotencyKeyReused(Conflict):
    """An idempotency key came again with another request."""


class Unauthenticated(Refused):
    """The caller has not proved who it is."""


class Forbidden(Refused):
    """The caller may not do this."""


class LimitReached(Refused):
    """The caller has used up its share for now.

    Attributes:
        retry_after_s: seconds after which a new try makes sense.
    """

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(Refused):
    """The server cannot take this now, through no fault of the caller's: it stops, or its store does not write."""

    retry_after_s = 1


class StoreUnavailable(Unavailable):
    """The store does not write or read now: its disk is full, or gone."""


class SessionUnreadable(StoreUnavailable):
    """The stored data of one session cannot be decoded: it is damaged, or a newer release wrote it.

    Attributes:
        session_id: the session. It can still be deleted.
        reason: what is wrong with the data, for the log.
    """

    def __init__(self, session_id: SessionId, reason: str) -> None:
        super().__init__("the stored data of this session cannot be read")
        self.session_id = session_id
        self.reason = reason


class ShuttingDown(Unavailable):
    """The server is stopping and takes no new work."""


def all_refusals(base: type[Refused] = Refused) -> Iterator[type[Refused]]:
    """Every kind of refusal, for the tests that hold the protocols' tables complete."""
    yield base
    for kind in base.__subclasses__():
        yield from all_refusals(kind)
