"""The authenticated caller. Pure."""

from contextvars import ContextVar
from datetime import datetime
from typing import Literal

import msgspec

from dragoman.core.ids import KeyId, UserId
from dragoman.core.refusals import Forbidden

Scope = Literal["read", "use", "admin"]
"""`read` allows reading, `use` also creating and changing, `admin` also managing the server."""

HOPS: ContextVar[int] = ContextVar("hops", default=0)
"""How many servers have passed the current request on: see `HOPS_HEADER`."""
HOPS_HEADER = "dragoman-hops"
"""The header in which servers that pass requests on count themselves, so that a loop of them ends."""
_MAX_HOPS_DIGITS = 4

_INCLUDES: dict[str, frozenset[str]] = {
    "read": frozenset({"read"}),
    "use": frozenset({"read", "use"}),
    "admin": frozenset({"read", "use", "admin"}),
}


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a key or a token.

    Attributes:
        user: the user.
        scopes: what the key or the token allows.
        key_id: the key; None for a token, and on a server without keys.
        expires_at: when a token expires; None for a key, whose expiry may change.
    """

    user: UserId
    scopes: frozenset[str]
    key_id: KeyId | None = None
    expires_at: datetime | None = None

    def require(self, scope: Scope) -> None:
        """Raise Forbidden unless a scope of the key includes this one."""
        for each in self.scopes:
            if scope in _INCLUDES.get(each, ()):
                return
        if self.expires_at is not None:
            raise Forbidden(f"this token grants no scope {scope!r}: see the setting oidc_scope_map of the server")
        raise Forbidden(f"this key lacks the scope {scope!r}")


def parse_hops(header: str | None) -> int:
    """The number in a `HOPS_HEADER`. Anything else counts as 0: the header protects servers from mistakes only."""
    is_number = header is not None and header.isascii() and header.isdigit() and len(header) <= _MAX_HOPS_DIGITS
    return int(header) if header is not None and is_number else 0
