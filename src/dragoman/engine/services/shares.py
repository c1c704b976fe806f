"""Public links to sessions: read-only, with an optional expiry, until they are revoked.

A link's token has 256 random bits. Only its digest is stored (see `services.keys`).
"""

import secrets
from datetime import datetime, timedelta

import structlog

from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import NotFound
from dragoman.engine.services.audit import AuditLog
from dragoman.engine.services.keys import client_network, secret_digest
from dragoman.engine.services.limits import RateLimit
from dragoman.ports.accounts import Share, ShareStore
from dragoman.ports.environment import Clock

PREFIX = "share_"
MAX_TOKEN_CHARS = 200

log = structlog.get_logger(__name__)


class ShareService:
    """All links of a server."""

    def __init__(
        self, store: ShareStore, clock: Clock, *, guess_limit: RateLimit | None = None, audit: AuditLog | None = None
    ) -> None:
        """Args:
        store: where they are stored.
        clock: says when they expire.
        guess_limit: how many unknown links an address may try.
        audit: records new and revoked links.
        """
        self._audit = audit
        self._store = store
        self._clock = clock
        self._guess_limit = guess_limit or RateLimit(0, "unknown links")

    async def create(
        self, owner: UserId, session_id: SessionId, lifetime: timedelta | None
    ) -> tuple[str, datetime | None]:
        """Create a link to a session. It is durable when this returns.

        Args:
            owner: the owner of the session.
            session_id: the session.
            lifetime: how long the link is valid; None: until it is revoked.

        Returns:
            The token, which is not stored, and when it expires.
        """
        now = self._clock.now()
        token = PREFIX + secrets.token_urlsafe(32)
        expires_at = None if lifetime is None else now + lifetime
        await self._store.add(
            Share(
                digest=secret_digest(token), owner=owner, session_id=session_id, created_at=now, expires_at=expires_at
            )
        )
        log.info("link created", session_id=session_id, expires_at=expires_at)
        if self._audit is not None:
            expiry = "without expiry" if expires_at is None else f"until {expires_at.isoformat()}"
            await self._audit.record("share.created", target=session_id, detail=expiry, user=owner)
        return token, expires_at

    async def revoke(self, session_id: SessionId, token: str) -> None:
        """Revoke a link. Raises NotFound if the session has no such link."""
        if len(token) > MAX_TOKEN_CHARS or not await self._store.remove(session_id, secret_digest(token)):
            raise NotFound("there is no such link")
        log.info("link revoked", session_id=session_id)
        if self._audit is not None:
            await self._audit.record("share.revoked", target=session_id)

    async def resolve(self, token: str, address: str) -> Share:
        """The link of a token.

        Raises:
            NotFound: there is none, or it has expired.
            LimitReached: the same, and the address has tried too many.
        """
        share = await self._store.get(secret_digest(token)) if len(token) <= MAX_TOKEN_CHARS else None
        if share is None or (share.expires_at is not None and share.expires_at <= self._clock.now()):
            self._guess_limit.consume(client_network(address))
            raise NotFound("there is no such link")
        return share
