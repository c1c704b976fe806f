"""What a session is to its clients: messages in order, calls that are answered once, idempotency keys, and its end."""

from collections.abc import Hashable, Sequence, Set
from typing import Literal, NamedTuple

from tests.simulation.linearizability import Operation, Result, check


class SessionModel(NamedTuple):
    """The state of one session."""

    exists: bool = True
    messages: tuple[str, ...] = ()
    keys: frozenset[tuple[str, str]] = frozenset()
    settled: frozenset[str] = frozenset()


class Request(NamedTuple):
    """What a client asks of a session.

    Attributes:
        kind: what it does.
        message: the message that is submitted; no two are the same.
        key: the idempotency key of the message.
        calls: the calls that are answered; of a stop, those that any client had seen when it was sent.
    """

    kind: Literal["submit", "read", "answer", "stop", "delete"]
    message: str = ""
    key: str = ""
    calls: frozenset[str] = frozenset()


class Accepted(NamedTuple):
    """The request took effect."""


class Repeated(NamedTuple):
    """The key was used before, for this message; None if nobody knows its run."""

    message: str | None


class Once(NamedTuple):
    """The request took effect now, or an earlier one with the same key did."""


class Messages(NamedTuple):
    """What was read: all messages, or in a cluster those that the server had seen."""

    messages: tuple[str, ...]
    is_newest: bool


class Missing(NamedTuple):
    """There is no such session."""


def step(state: SessionModel, request: Request, output: Hashable) -> SessionModel | None:
    """The state after a request; None if it cannot have that output. Without an output it may have taken effect."""
    match output:
        case Missing():
            return None if state.exists else state
        case Messages(messages, is_newest):
            seen = state.messages if is_newest else state.messages[: len(messages)]
            return state if state.exists and messages == seen else None
        case Repeated(message):
            of_key = dict(state.keys).get(request.key)
            return state if state.exists and of_key is not None and message in (None, of_key) else None
        case Once() if state.exists and request.key in dict(state.keys):
            return state
        case _:
            return _applied(state, request) if state.exists else None


def _applied(state: SessionModel, request: Request) -> SessionModel | None:
    match request.kind:
        case "submit":
            if request.key in dict(state.keys):
                return None
            keys = state.keys | ({(request.key, request.message)} if request.key else set())
            return state._replace(messages=(*state.messages, request.message), keys=keys)
        case "answer":
            return None if state.settled & request.calls else state._replace(settled=state.settled | request.calls)
        case "stop":
            return state._replace(settled=state.settled | request.calls)
        case "delete":
            return SessionModel(exists=False)
        case "read":
            return state


def check_session(history: Sequence[Operation[Request]]) -> Result:
    """Check the history of one session."""
    seen = {message for each in history if isinstance(each.output, Messages) for message in each.output.messages}
    relevant = [each for each in history if each.output is not None or _can_explain(each.what, seen)]
    return check(sorted(relevant, key=lambda each: each.invoked), SessionModel(), step)


def _can_explain(unanswered: Request, seen: Set[str]) -> bool:
    """Whether the effect of a request without a response can explain what others saw. Otherwise it may as well never
    have had one; leaving it out saves a search that grows exponentially with the number of such requests.
    """
    return unanswered.kind == "delete" or unanswered.message in seen
