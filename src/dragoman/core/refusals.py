"""Refusals: one small family of exceptions, each with its facts. No status codes, no wire text.

Each protocol has one table from these to its answers, complete by test. What is not here is either a peer's fault
(`Unavailable`) or a bug.
"""

from collections.abc import Collection, Iterator

from dragoman.core.ids import CallId, SessionId
from dragoman.core.token_budgets import TokenBudget, used_up_message

MAX_LISTED_NAMES = 10
"""Maximum number of valid names that a message lists."""


class Refused(Exception):
    """A request that cannot be served. It changed nothing."""


def _list_names(names: Collection[str]) -> str:
    """The existing names as text; of many, only the first ones."""
    if not names:
        return "is none"
    shown = [repr(name) for name in list(names)[:MAX_LISTED_NAMES]]
    more = len(names) - len(shown)
    listed = ", ".join(shown) + (f" and {more} more" if more else "")
    return f"is {listed}" if len(names) == 1 else f"are {listed}"


class NotFound(Refused):
    """The named object does not exist or belongs to another user; the two cases look the same."""


class SessionNotFound(NotFound):
    """The caller has no such session."""

    def __init__(self, message: str = "there is no such session") -> None:
        super().__init__(message)


class AgentNotFound(NotFound):
    """No agent with that name is served."""

    def __init__(self, name: str, served: Collection[str]) -> None:
        super().__init__(f"no agent named {name[:80]!r} is served here; there {_list_names(served)}")
        self.name = name


class RunNotFound(NotFound):
    """The caller has no such run."""


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
    """The agent exposes no tool with that name."""

    def __init__(self, name: str, exposed: Collection[str]) -> None:
        super().__init__(f"the agent exposes no tool named {name[:80]!r}; there {_list_names(exposed)}")
        self.name = name


class UnknownOption(Invalid):
    """The agent declares no option with that name."""

    def __init__(self, name: str, declared: Collection[str]) -> None:
        super().__init__(f"the agent has no option named {name[:80]!r}; there {_list_names(declared)}")
        self.name = name


class InvalidOptionValue(Invalid):
    """An option does not accept the value."""

    def __init__(self, name: str, message: str, *, allowed: tuple[str, ...] | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.allowed = allowed


class DuplicateToolName(Invalid):
    """Two enabled tools would have the same name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is more than one tool named {name!r}")
        self.name = name


class ClientToolsUnsupported(Invalid):
    """The agent does not accept tools of the application."""


class ImageUnsupported(Invalid):
    """The agent does not accept such an image."""


class FileUnsupported(Invalid):
    """The agent does not accept the contents of files."""


class UnknownCall(Invalid):
    """An answer names a call that does not exist in this session, or does not wait for this kind of `answer`."""

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
    """Some open calls have no answer."""

    def __init__(self, missing: tuple[CallId, ...]) -> None:
        calls = "1 tool call still needs" if len(missing) == 1 else f"{len(missing)} tool calls still need"
        super().__init__(f"{calls} an answer")
        self.missing = missing


class InvalidAnswer(Invalid):
    """An answer does not fit its call."""


class InvalidSeed(Invalid):
    """The history that a client seeds a session with is inconsistent."""


class LimitExceeded(Invalid):
    """Something exceeds a limit of size or number."""

    def __init__(self, what: str, limit: int, *, path: str = "") -> None:
        super().__init__(f"{what} exceeds the limit of {limit}", path=path)
        self.limit = limit


class InvalidCursor(Invalid):
    """A position that this server never issued, or that is in the future."""


class Conflict(Refused):
    """The request is valid, but conflicts with the current state."""


class SessionBusy(Conflict):
    """A run of this session is active or queued."""

    def __init__(self, message: str = "a run of this session is active") -> None:
        super().__init__(message)


class AgentNotServed(Conflict):
    """The session's agent is not served by this server, or no longer. The session can be read, renamed and deleted."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the agent of this session, {name!r}, is not served here; the history can still be read")
        self.name = name


class IdTaken(Conflict):
    """Another session has the requested id or name."""


class IdempotencyKeyReused(Conflict):
    """An idempotency key was used with a different request."""


class Unauthenticated(Refused):
    """The caller is not authenticated."""


class InvalidToken(Unauthenticated):
    """A token of an identity provider is not valid here.

    Attributes:
        is_genuine: whether the provider signed it, so that it is not a guess: it has expired, or is meant for others.
    """

    def __init__(self, message: str, *, is_genuine: bool = False) -> None:
        super().__init__(message)
        self.is_genuine = is_genuine


class Forbidden(Refused):
    """The caller lacks permission."""


class LimitReached(Refused):
    """The caller has reached a limit of requests, runs or streams.

    Attributes:
        retry_after_s: seconds after which to try again.
    """

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TokenBudgetUsedUp(LimitReached):
    """The user, or the key, has used all tokens of the current day or month.

    Attributes:
        budget: which one.
    """

    def __init__(self, budget: TokenBudget) -> None:
        super().__init__(used_up_message(budget), retry_after_s=budget.resets_in_s)
        self.budget = budget


class Unavailable(Refused):
    """The server cannot process the request now, through no fault of the caller."""

    retry_after_s = 1


class StoreUnavailable(Unavailable):
    """The store cannot read or write now, such as when its disk is full."""


class OutcomeUnknown(StoreUnavailable):
    """The store failed during a commit: either everything in it was stored, or nothing."""

    def __init__(self) -> None:
        super().__init__(
            "the store failed while it stored this, so it may have been stored: repeat the request with the same"
            " idempotency key, or look before you repeat it"
        )


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


class IssuerUnavailable(Unavailable):
    """The identity provider's keys cannot be fetched, so that its tokens cannot be verified now."""

    retry_after_s = 5


class ShuttingDown(Unavailable):
    """The server is stopping and accepts no new work."""


def all_refusals(base: type[Refused] = Refused) -> Iterator[type[Refused]]:
    """All types of refusals, for tests that check the completeness of the protocols' tables."""
    yield base
    for kind in base.__subclasses__():
        yield from all_refusals(kind)
