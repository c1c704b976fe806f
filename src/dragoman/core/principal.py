"""Who calls. Pure."""

from typing import Literal

import msgspec

from dragoman.core.ids import KeyId, UserId
from dragoman.core.refusals import Forbidden

Scope = Literal["read", "use", "admin"]
"""`read` looks, `use` also makes and changes, `admin` also manages the server. Each includes the one before."""

_INCLUDES: dict[str, frozenset[str]] = {
    "read": frozenset({"read"}),
    "use": frozenset({"read", "use"}),
    "admin": frozenset({"read", "use", "admin"}),
}


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a key. `key_id` is None on a server without keys."""

    user: UserId
    scopes: frozenset[str]
    key_id: KeyId | None = None

    def require(self, scope: Scope) -> None:
        """Raises Forbidden unless a scope of the key includes this one."""
        if not any(scope in _INCLUDES.get(held, ()) for held in self.scopes):
            raise Forbidden(f"this key lacks the scope {scope!r}")
