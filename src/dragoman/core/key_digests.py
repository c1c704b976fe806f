"""The digests of API keys. Pure.

A digest is an HMAC with a secret pepper, so that a copy of the database alone does not even let anybody check a guess.
Keys of release 0.1.0 have a plain SHA-256, which their next use replaces.
"""

import hmac
from collections.abc import Iterator
from hashlib import sha256


class KeyHasher:
    """Computes digests with each of the server's peppers.

    Args:
        peppers: the current one first; those before remain valid for the digests that they have made. None: digests
            are plain.
    """

    def __init__(self, *peppers: bytes) -> None:
        self._peppers = {sha256(pepper).hexdigest()[:16]: pepper for pepper in peppers}

    @property
    def current(self) -> str | None:
        """The id of the pepper for new digests; None without peppers."""
        return next(iter(self._peppers), None)

    def knows(self, pepper_id: str | None) -> bool:
        """Whether digests with this pepper can be checked."""
        return pepper_id is None or pepper_id in self._peppers

    def digest(self, secret: str, pepper_id: str | None) -> bytes:
        """The digest of a key with a pepper; None for a plain one."""
        encoded = secret.encode("utf-8", "replace")
        if pepper_id is None:
            return sha256(encoded).digest()
        return hmac.digest(self._peppers[pepper_id], encoded, "sha256")

    def digests(self, secret: str) -> Iterator[bytes]:
        """All digests that a key may be stored with, the most likely one first."""
        for pepper_id in (*self._peppers, None):
            yield self.digest(secret, pepper_id)
