"""What the audit log records: who did something that matters for security. Pure."""

from contextvars import ContextVar
from datetime import datetime
from typing import Literal

import msgspec

from dragoman.core.ids import KeyId, UserId

Action = Literal[
    "key.created",
    "key.revoked",
    "key.renamed",
    "key.limited",
    "user.limited",
    "login.succeeded",
    "login.refused",
    "limit.reached",
    "session.deleted",
    "session.exported",
    "share.created",
    "share.revoked",
    "session.shared",
    "session.unshared",
]
"""What happened. `login.succeeded` is the first use of a token on a server, `login.refused` wrong keys and tokens."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of the audit log. It is never changed.

    Attributes:
        entry_id: a UUID of version 7; later entries have greater ones.
        at: when it happened; for several times, when the entry was written.
        action: what happened.
        user: who did it; empty if that is unknown, and for the command line.
        key_id: with which key; None for a token and for the command line.
        address: the client's address.
        request_id: the client's `X-Request-Id`.
        target: the id of the key or session, or the name of the user concerned.
        detail: more about it, in words.
        count: how many times, for what is aggregated.
    """

    entry_id: str
    at: datetime
    action: str
    user: UserId = UserId("")
    key_id: KeyId | None = None
    address: str = ""
    request_id: str = ""
    target: str = ""
    detail: str = ""
    count: int = 1


class Actor(msgspec.Struct, frozen=True):
    """Who sends the current request."""

    user: UserId = UserId("")
    key_id: KeyId | None = None
    address: str = ""
    request_id: str = ""


ACTOR: ContextVar[Actor | None] = ContextVar("actor", default=None)
"""Who sends the request for which the current task works, if it is known. Stores take the reads of users in turn."""
