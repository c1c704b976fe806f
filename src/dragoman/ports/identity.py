"""The identity provider, whose tokens the server accepts beside its own keys."""

from typing import Protocol

from dragoman.core.principal import Principal


class TokenVerifier(Protocol):
    """Verifies tokens."""

    async def verify(self, token: str) -> Principal:
        """The user and the scopes that a token names, with its expiry.

        Raises:
            InvalidToken: the token is not valid here; the message says why.
            IssuerUnavailable: the provider's keys are needed and cannot be fetched.
        """
