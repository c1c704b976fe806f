"""API keys in memory: found by digest and by id, with callbacks for their revocation and the times of their last use.

A key that is used and has a digest without the current pepper is noted, because only now its new digest can be made.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from dragoman.core.ids import KeyId
from dragoman.core.key_digests import KeyHasher
from dragoman.core.principal import Principal
from dragoman.core.refusals import Conflict, NotFound
from dragoman.ports.accounts import ApiKey


class CachedKey:
    """A key in memory."""

    __slots__ = ("_revocation_callbacks", "expires_at", "key", "principal")

    def __init__(self, key: ApiKey) -> None:
        self.key = key
        self.expires_at = key.expires_at
        self.principal = Principal(user=key.user, scopes=key.scopes, key_id=key.key_id)
        self._revocation_callbacks: dict[object, Callable[[], None]] = {}

    def is_expired(self, now: datetime) -> bool:
        """Whether the key is no longer valid at a time."""
        return self.expires_at is not None and self.expires_at <= now

    def on_revoked(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once when the key is no longer valid. Returns a function that cancels this."""
        handle = object()
        self._revocation_callbacks[handle] = callback

        def cancel() -> None:
            self._revocation_callbacks.pop(handle, None)

        return cancel

    def notify(self) -> None:
        """Call the callbacks."""
        callbacks, self._revocation_callbacks = self._revocation_callbacks, {}
        for callback in callbacks.values():
            callback()


class KeyCache:
    """All keys; the store is authoritative.

    Args:
        hasher: computes their digests.
    """

    def __init__(self, hasher: KeyHasher) -> None:
        self._hasher = hasher
        self._by_digest: dict[bytes, CachedKey] = {}
        self._by_id: dict[KeyId, CachedKey] = {}
        self._unwritten_uses: dict[CachedKey, datetime] = {}
        """The keys that were used since times of last use were written, with the first use of each."""
        self._new_digests: dict[CachedKey, bytes] = {}
        """The keys that were used and have a digest without the current pepper, with the one to store."""

    def find(self, secret: str) -> CachedKey | None:
        """The key itself in its stored form, even if it has expired."""
        for digest in self._hasher.digests(secret):
            if (cached := self._by_digest.get(digest)) is not None:
                return cached
        return None

    def find_one(self, which: str) -> CachedKey:
        """The key with an id, a masked form or a name, or the key itself. Raises NotFound, or Conflict for several."""
        by_secret = self.find(which)
        found = [
            each
            for each in self.all()
            if each is by_secret or which in (each.key.key_id, each.key.masked_key, each.key.name)
        ]
        if not found:
            raise NotFound(f"there is no key {which!r}")
        if len(found) > 1:
            ids = ", ".join(each.key.key_id for each in found)
            raise Conflict(f"{len(found)} keys match {which!r}; name one of them by its id: {ids}")
        return found[0]

    def get(self, key_id: KeyId) -> CachedKey | None:
        """The key with an id, even if it has expired."""
        return self._by_id.get(key_id)

    def all(self) -> list[CachedKey]:
        """All keys, oldest first."""
        return sorted(self._by_id.values(), key=lambda cached: (cached.key.created_at, cached.key.key_id))

    def put(self, key: ApiKey) -> None:
        """Add a key."""
        self._by_digest[key.digest] = self._by_id[key.key_id] = CachedKey(key)

    def evict(self, key_id: KeyId) -> None:
        """Remove a key, if it is here, and notify its holders."""
        cached = self._by_id.pop(key_id, None)
        if cached is not None:
            del self._by_digest[cached.key.digest]
            self._unwritten_uses.pop(cached, None)
            self._new_digests.pop(cached, None)
            cached.notify()

    def replace_all(self, keys: Sequence[ApiKey]) -> None:
        """Take over what the store has, and notify holders of keys that are gone."""
        stored = {key.key_id: key for key in keys}
        for key_id in self._by_id.keys() - stored.keys():
            self.evict(key_id)
        for key_id, key in stored.items():
            cached = self._by_id.get(key_id)
            if cached is None:
                self.put(key)
            else:  # it may have been renamed, or used on another server
                self.replace(cached, key)

    def replace(self, cached: CachedKey, key: ApiKey) -> None:
        """Replace a key by what it has become, unless it is gone."""
        if self._by_id.get(key.key_id) is cached:
            del self._by_digest[cached.key.digest]
            self._by_digest[key.digest] = cached
            cached.key = key

    def notify_expired(self, now: datetime) -> None:
        """Notify holders of expired keys."""
        for cached in self._by_digest.values():
            if cached.is_expired(now):
                cached.notify()

    # --- last uses ------------------------------------------------------------------------------------------------

    def use(self, cached: CachedKey, secret: str, now: datetime) -> None:
        """Note that a key is used, unless its use is noted already."""
        self._unwritten_uses.setdefault(cached, now)
        current = self._hasher.current
        if cached.key.pepper != current and current is not None and cached not in self._new_digests:
            self._new_digests[cached] = self._hasher.digest(secret, current)

    def with_last_use(self, cached: CachedKey) -> ApiKey:
        """A key with its last use, even if that is not written."""
        last_used_at = self._unwritten_uses.get(cached, cached.key.last_used_at)
        return msgspec.structs.replace(cached.key, last_used_at=last_used_at)

    def unwritten_uses(self) -> Sequence[tuple[CachedKey, datetime]]:
        """The uses that are not written."""
        return tuple(self._unwritten_uses.items())

    def mark_written(self, used: Sequence[tuple[CachedKey, datetime]]) -> None:
        """Note that uses were written."""
        for cached, at in used:
            self._unwritten_uses.pop(cached, None)
            cached.key = msgspec.structs.replace(cached.key, last_used_at=at)

    # --- digests --------------------------------------------------------------------------------------------------

    def new_digests(self) -> Sequence[tuple[CachedKey, bytes]]:
        """The keys whose digests are to be replaced, with the new ones."""
        return tuple(self._new_digests.items())

    def mark_rehashed(self, cached: CachedKey, digest: bytes) -> None:
        """Note that a digest was replaced."""
        self._new_digests.pop(cached, None)
        self.replace(cached, msgspec.structs.replace(cached.key, digest=digest, pepper=self._hasher.current))
