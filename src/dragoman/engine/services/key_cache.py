"""API keys in memory: by digest and by id, with who is to be notified when a key is gone, and when keys were used."""

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from dragoman.core.ids import KeyId
from dragoman.core.principal import Principal
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
    """All keys; the store is authoritative."""

    def __init__(self) -> None:
        self._by_digest: dict[bytes, CachedKey] = {}
        self._by_id: dict[KeyId, CachedKey] = {}
        self._unwritten_uses: dict[CachedKey, datetime] = {}
        """The keys that were used since times of last use were written, with the first use of each."""

    def find(self, digest: bytes) -> CachedKey | None:
        """The key with a digest, even if it has expired."""
        return self._by_digest.get(digest)

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
                cached.key = key

    def notify_expired(self, now: datetime) -> None:
        """Notify holders of expired keys."""
        for cached in self._by_digest.values():
            if cached.is_expired(now):
                cached.notify()

    # --- last uses ------------------------------------------------------------------------------------------------

    def use(self, cached: CachedKey, now: datetime) -> None:
        """Note that a key is used, unless its use is noted already."""
        self._unwritten_uses.setdefault(cached, now)

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
