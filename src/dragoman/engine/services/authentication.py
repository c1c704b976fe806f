"""Who sends a request: by an API key, or by a token of an identity provider."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from dragoman.core.audit import Action, Actor
from dragoman.core.principal import Principal
from dragoman.core.refusals import InvalidToken, LimitReached, Unauthenticated
from dragoman.engine.services.audit import AuditLog
from dragoman.engine.services.keys import LOCAL_USER, KeyRing, client_network, secret_digest
from dragoman.ports.environment import Clock
from dragoman.ports.identity import TokenVerifier

MAX_SEEN_TOKENS = 10_000


class Authenticator(Protocol):
    """Authenticates callers."""

    async def authenticate(self, header: str | None, address: str) -> Principal:
        """The sender of a request.

        Args:
            header: the `Authorization` header; None if there is none.
            address: the client's address.

        Raises:
            Unauthenticated: there is no key or token, or it is not valid.
            LimitReached: the address has sent too many wrong keys. A valid key is never refused.
            IssuerUnavailable: a token cannot be verified now.
            Forbidden: a token grants no scope.
        """

    def on_revoked(self, principal: Principal, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once when the principal's key or token is no longer valid.

        Returns a function that cancels this.
        """


class NoKeys:
    """A server without keys: every caller is the local user, whatever the header says."""

    _PRINCIPAL = Principal(user=LOCAL_USER, scopes=frozenset({"admin"}))

    async def authenticate(self, header: str | None, address: str) -> Principal:
        """The local user."""
        return self._PRINCIPAL

    def on_revoked(self, principal: Principal, callback: Callable[[], None]) -> Callable[[], None]:
        """Do nothing: there is no key to revoke."""
        return lambda: None


class KeysAndTokens:
    """A server with keys, and with tokens if it has a verifier for them.

    Args:
        keys: the keys.
        clock: for the expiry of tokens.
        tokens: verifies tokens; None if only keys are accepted.
        audit: records logins and counts refusals.
    """

    def __init__(
        self, keys: KeyRing, clock: Clock, tokens: TokenVerifier | None = None, audit: AuditLog | None = None
    ) -> None:
        self._audit = audit
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        """Digests of the newest tokens, so that only the first use of each is recorded."""
        self._keys = keys
        self._tokens = tokens
        self._clock = clock

    async def authenticate(self, header: str | None, address: str) -> Principal:
        """The sender of a request; see `Authenticator.authenticate`."""
        if not header:
            raise Unauthenticated("a key is needed: send the header Authorization: Bearer KEY")
        scheme, _, secret = header.partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            raise Unauthenticated("the header Authorization must read: Bearer KEY")
        try:
            if self._tokens is None or not is_token(secret):
                return self._keys.principal_for(secret, address)
            return await self._verify(self._tokens, secret, address)
        except (Unauthenticated, LimitReached) as error:
            if self._audit is not None:
                action: Action = "limit.reached" if isinstance(error, LimitReached) else "login.refused"
                self._audit.count(action, Actor(address=client_network(address)), str(error))
            raise

    async def _verify(self, tokens: TokenVerifier, token: str, address: str) -> Principal:
        try:
            principal = await tokens.verify(token)
        except InvalidToken as error:
            if not error.is_genuine:
                self._keys.count_wrong(address)
            raise
        principal.require("read")  # a key has at least one scope, so protocols need not expect none
        digest = secret_digest(token)
        if self._audit is not None and digest not in self._seen:
            self._seen[digest] = None
            if len(self._seen) > MAX_SEEN_TOKENS:
                self._seen.popitem(last=False)
            self._audit.count("login.succeeded", Actor(principal.user, address=address), "with a token")
        return principal

    def on_revoked(self, principal: Principal, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once when the key is revoked or the token expires."""
        if principal.expires_at is None:
            return self._keys.on_revoked(principal, callback)
        remaining_s = (principal.expires_at - self._clock.now()).total_seconds()
        return asyncio.get_running_loop().call_later(max(0.0, remaining_s), callback).cancel


def is_token(secret: str) -> bool:
    """Whether this has the form of a signed JWT. A key has no dots."""
    return secret.startswith("eyJ") and secret.count(".") == 2
