"""Who may call, and how much at a time: what every protocol is given to check its callers."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from dragoman.core.principal import Principal
from dragoman.engine.services.authentication import Authenticator
from dragoman.engine.services.connection_memory import ConnectionMemory

Authenticate = Callable[[str | None, str], Awaitable[Principal]]
"""Returns who sends an `Authorization` header from an address. Raises Unauthenticated or LimitReached."""
AdmitStream = Callable[[Principal], Callable[[], None]]
"""Counts an open stream against its caller's limit; returns what releases it, once. Raises LimitReached."""


class AccessControl(NamedTuple):
    """How a protocol authenticates its callers and applies their limits."""

    authenticator: Authenticator
    """Checks keys and tokens without counting requests, and reports revocations."""
    authenticate: Authenticate
    """Checks the key or token of a request, and counts the request against its rate limit."""
    admit_stream: AdmitStream
    memory: ConnectionMemory
