"""Time, identifiers and encryption: what the other layers must not take from the operating system themselves."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The current time. Tests control it."""

    def now(self) -> datetime:
        """The current time, as an aware datetime in UTC."""


class Ids(Protocol):
    """A source of new identifiers."""

    def new(self) -> str:
        """Return a new UUID of version 7 in canonical form. Later ones sort after earlier ones."""


class Cipher(Protocol):
    """Encrypts secrets for storage."""

    def encrypt(self, plaintext: str) -> str:
        """Encrypt a secret."""

    def decrypt(self, ciphertext: str) -> str:
        """Decrypt a secret. Raises ValueError if it was encrypted with another key."""
