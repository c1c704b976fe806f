"""The digests of API keys. Pure.

A digest is a keyed BLAKE2b (RFC 7693) with a secret pepper, so that a copy of the database alone does not even let
anybody check a guess. Keys of release 0.1.0 have a plain SHA-256, which their next use replaces.
"""

from collections.abc import Iterator
from hashlib import blake2b, sha256


class KeyHasher:
    """Computes digests with each of the server's peppers.

    Args:
        peppers: of at most 64 bytes, the current one first; those before remain valid for the digests that they have
            made. None: digests are plain.
    """

    def __init__(self, *peppers: bytes) -> None:
        self._peppers = {sha256(pepper).hexdigest()[:16]: pepper for pepper in peppers}
        self._tried = (*self._peppers, None)
        self.current: str | None = self._tried[0]
        """The id of the pepper for new digests; None without peppers."""

    def knows(self, pepper_id: str | None) -> bool:
        """Whether digests with this pepper can be checked."""
        return pepper_id is None or pepper_id in self._peppers

    def digest(self, secret: str, pepper_id: str | None) -> bytes:
        """The digest of a key with a pepper; None for a plain one."""
        encoded = secret.encode("utf-8", "replace")
        if pepper_id is None:
            return sha256(encoded).digest()
        return blake2b(encoded, key=self._peppers[pepper_id], digest_size=32).digest()

    def digests(self, secret: str) -> Iterator[bytes]:
        """All digests that a key may be stored with, the most likely one first."""
        for pepper_id in self._tried:
            yield self.digest(secret, pepper_id)
