"""Public links to sessions: read-only, with an optional expiry, until they are revoked.

A link's token has 256 random bits. Only its digest is stored (see `services.keys`).
"""

import secrets
from datetime import timedelta

import structlog

from dragoman.core.audit import Actor
from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import Conflict, LimitReached, NotFound
from dragoman.engine.services.audit import AuditLog
from dragoman.engine.services.keys import client_network, secret_digest
from dragoman.engine.services.limits import RateLimit
from dragoman.ports.accounts import Share, ShareStore
from dragoman.ports.environment import Clock

PREFIX = "share_"
MAX_TOKEN_CHARS = 200
MAX_LINKS_PER_SESSION = 100
"""How many links of a session may be valid at the same time."""
MAX_LISTED = 1000

log = structlog.get_logger(__name__)


class ShareService:
    """All links of a server.

    Args:
        store: where they are stored.
        clock: decides which have expired.
        guess_limit: how many unknown links an address may try.
        audit: records new and revoked links.
    """

    def __init__(
        self, store: ShareStore, clock: Clock, *, guess_limit: RateLimit | None = None, audit: AuditLog | None = None
    ) -> None:
        self._audit = audit
        self._store = store
        self._clock = clock
        self._guess_limit = guess_limit or RateLimit(0, "unknown links")

    async def create(self, owner: UserId, session_id: SessionId, lifetime: timedelta | None) -> tuple[str, Share]:
        """Create a link to a session. It is durable when this returns.

        Args:
            owner: the owner of the session.
            session_id: the session.
            lifetime: how long the link is valid; None: until it is revoked.

        Returns:
            The token, which is not stored, and the link.

        Raises:
            Conflict: the session has the most valid links that it may have.
        """
        now = self._clock.now()
        token = PREFIX + secrets.token_urlsafe(32)
        expires_at = None if lifetime is None else now + lifetime
        share = Share(
            digest=secret_digest(token), owner=owner, session_id=session_id, created_at=now, expires_at=expires_at
        )
        if not await self._store.add(share, MAX_LINKS_PER_SESSION):
            raise Conflict(f"there are {MAX_LINKS_PER_SESSION} links to this session already: revoke one")
        log.info("link created", session_id=session_id, expires_at=expires_at)
        if self._audit is not None:
            expiry = "without expiry" if expires_at is None else f"until {expires_at:%Y-%m-%d %H:%M} UTC"
            await self._audit.record("share.created", target=session_id, detail=expiry, user=owner)
        return token, share

    async def of_session(self, session_id: SessionId) -> list[Share]:
        """The newest valid links of a session, newest first."""
        now = self._clock.now()
        newest = await self._store.of_session(session_id, MAX_LISTED)
        return [each for each in newest if each.expires_at is None or each.expires_at > now]

    async def revoke(self, session_id: SessionId, token_or_id: str) -> None:
        """Revoke a link by its token, or by its ID. Raises NotFound if the session has no such link."""
        digest = _digest_of(token_or_id) if len(token_or_id) <= MAX_TOKEN_CHARS else None
        if digest is None or not await self._store.remove(session_id, digest):
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
            self._count_guess(address)
            raise NotFound("there is no such link")
        return share

    def _count_guess(self, address: str) -> None:
        network = client_network(address)
        try:
            self._guess_limit.consume(network)
        except LimitReached as error:
            if self._audit is not None:
                self._audit.count("limit.reached", Actor(address=network), str(error))
            raise


def share_id(share: Share) -> str:
    """The ID by which a link's owner revokes it. It does not open the link: its token cannot be computed from it."""
    return share.digest.hex()


def _digest_of(token_or_id: str) -> bytes | None:
    if token_or_id.startswith(PREFIX):
        return secret_digest(token_or_id)
    try:
        return bytes.fromhex(token_or_id)
    except ValueError:
        return None
