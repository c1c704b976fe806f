"""API keys: creation, authentication and revocation. Only digests of keys are stored, made with a secret pepper.

A key has 256 random bits, so it cannot be guessed, and a plain digest is as safe as a slow one. For the same reason the
lookup need not take constant time: a caller could only learn how far the SHA-256 of its own guess agrees with a stored
digest, which does not help to make a better guess.
"""

import asyncio
import ipaddress
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import get_args

import msgspec
import structlog

from dragoman.core.audit import Action
from dragoman.core.ids import KeyId, UserId
from dragoman.core.key_digests import KeyHasher
from dragoman.core.principal import Principal, Scope
from dragoman.core.refusals import Conflict, Invalid, NotFound, StoreUnavailable, Unauthenticated
from dragoman.core.token_budgets import MAX_TOKENS, NO_LIMITS, TokenLimits
from dragoman.engine.services.audit import AuditLog
from dragoman.engine.services.key_cache import CachedKey, KeyCache
from dragoman.engine.services.limits import RateLimit
from dragoman.ports.accounts import ApiKey, ApiKeyStore
from dragoman.ports.bus import Bus
from dragoman.ports.environment import Clock, Ids

PREFIX = "sk-dragoman-"
"""Prefix of keys that the command line creates, as part of the key. Protocols that create keys have their own."""
LOCAL_USER = UserId("local")
"""The user of a server without keys, and of keys without a user, so that sessions remain when keys are enabled."""
KEYS_CHANGED_SUBJECT = "keys"
"""The bus subject for keys that were created, revoked or renamed."""

MAINTENANCE_INTERVAL_S = 2.0
"""Interval of the key ring's maintenance. An expiry takes effect within this time, a message of the bus at once."""
LAST_USE_WRITE_INTERVAL_S = 30.0
"""Interval for writing the times of last use."""
MAX_KEY_CHARS = 512
MAX_NAME_CHARS = 200

log = structlog.get_logger(__name__)


# Large: the stored keys, their cache and what is not stored yet change together.
class KeyRing:
    """All keys, cached by their digests; the store is authoritative.

    Args:
        store: stores the keys.
        bus: announces changes on other servers.
        clock: for expiries and last uses.
        ids: for the keys' ids.
        wrong_key_limit: how many wrong keys an address may send.
        audit: records changes of keys.
        hasher: computes their digests; None: they are plain.
    """

    def __init__(
        self,
        store: ApiKeyStore,
        bus: Bus,
        clock: Clock,
        ids: Ids,
        *,
        wrong_key_limit: RateLimit | None = None,
        audit: AuditLog | None = None,
        hasher: KeyHasher | None = None,
    ) -> None:
        self._hasher = hasher or KeyHasher()
        self._store = store
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._audit = audit
        self._wrong_key_limit = wrong_key_limit or RateLimit(0, "wrong keys")
        self._cache = KeyCache(self._hasher)
        self._lock = asyncio.Lock()
        """Held from a read or write of the store until the cache agrees, so that neither overwrites the other."""
        self._is_stale = asyncio.Event()
        """Set when another server created, revoked or renamed a key."""
        self._reload_failed = False
        """Whether the last reload failed."""
        self._unstored_revocations: set[KeyId] = set()
        """Keys that were revoked while the store could not be written. They are refused here."""
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the keys, and start the maintenance."""
        await self.reload()
        self._unsubscribe = self._bus.subscribe(KEYS_CHANGED_SUBJECT, self._on_change)
        self._task = asyncio.create_task(self._run(), name="keys")

    async def close(self) -> None:
        """Stop the maintenance, and write the times of last use."""
        self._unsubscribe()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        with suppress(StoreUnavailable):
            await self.store_revocations()
            await self.rehash()
            await self.write_last_uses()

    async def reload(self) -> None:
        """Reload the keys, and notify holders of keys that are gone."""
        async with self._lock:
            self._is_stale.clear()
            try:
                stored = await self._store.all()
            except BaseException:
                self._reload_failed = True  # the next maintenance tries again
                raise
            self._reload_failed = False
            self._cache.replace_all([key for key in stored if key.key_id not in self._unstored_revocations])
            unknown = sum(not self._hasher.knows(key.pepper) for key in stored)
            if unknown and self._hasher.current is not None:
                log.warning("API keys were made with another secrets.key and cannot be used", count=unknown)

    async def run_maintenance(self) -> None:
        """Reload the keys if they changed on another server, and notify holders of expired ones.

        Revocations that could not be stored are stored, if that is possible now.
        """
        with suppress(StoreUnavailable):
            await self.store_revocations()
        if self._is_stale.is_set() or self._reload_failed:
            await self.reload()
        self._cache.notify_expired(self._clock.now())

    async def store_revocations(self) -> None:
        """Store the revocations that could not be stored at once. Raises StoreUnavailable."""
        async with self._lock:
            for key_id in tuple(self._unstored_revocations):
                await self._store.remove(key_id)
                self._unstored_revocations.discard(key_id)
                self._bus.publish(KEYS_CHANGED_SUBJECT, key_id)

    async def rehash(self) -> None:
        """Store digests with the current pepper for the keys that were used, once all servers can check them."""
        async with self._lock:
            outdated, pepper = self._cache.new_digests(), self._hasher.current
            if not outdated or pepper is None or not await self._store.can_use_peppers():
                return
            for cached, digest in outdated:
                await self._store.rehash(cached.key.key_id, digest, pepper)
                self._cache.mark_rehashed(cached, digest)

    async def write_last_uses(self) -> None:
        """Write the times of last use, which are exact to `LAST_USE_WRITE_INTERVAL_S`."""
        async with self._lock:
            used = self._cache.unwritten_uses()
            if used:
                await self._store.touch([(cached.key.key_id, at) for cached, at in used])
                self._cache.mark_written(used)

    # --- requests -------------------------------------------------------------------------------------------------

    def principal_for(self, secret: str, address: str) -> Principal:
        """The owner of a key.

        Args:
            secret: the key.
            address: where it comes from.

        Raises:
            Unauthenticated: the key is not valid.
            LimitReached: the address has sent too many wrong keys. A valid key is never refused.
        """
        cached = self._cache.find(secret) if len(secret) <= MAX_KEY_CHARS else None
        if cached is None:
            self.count_wrong(address)
            raise Unauthenticated("this key is not known here")
        now = self._clock.now()
        if cached.is_expired(now):
            raise Unauthenticated("this key has expired")
        self._cache.use(cached, secret, now)
        return cached.principal

    def count_wrong(self, address: str) -> None:
        """Count a wrong key or token against the address's limit. Raises LimitReached."""
        self._wrong_key_limit.consume(client_network(address))

    def on_revoked(self, principal: Principal, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once when the principal's key is no longer valid. Returns a function that cancels this."""
        cached = None if principal.key_id is None else self._cache.get(principal.key_id)
        if cached is None:  # the key was revoked after the request was authenticated
            callback()
            return lambda: None
        return cached.on_revoked(callback)

    # --- management -----------------------------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        *,
        user: UserId = LOCAL_USER,
        scopes: Sequence[str] = ("use",),
        expires_at: datetime | None = None,
        token_limits: TokenLimits = NO_LIMITS,
        prefix: str = PREFIX,
        max_keys: int | None = None,
    ) -> tuple[str, ApiKey]:
        """Create a key. Returns the key itself, which is not stored, and its record.

        Raises:
            Invalid: the name, the user, a scope, the expiry or a limit is invalid.
            Conflict: the user has `max_keys` keys already.
        """
        now = self._clock.now()
        check_new_key(name, user, scopes, expires_at, token_limits, now)
        secret = prefix + secrets.token_urlsafe(32)
        pepper = self._hasher.current if await self._store.can_use_peppers() else None
        key = ApiKey(
            key_id=KeyId(self._ids.new()),
            digest=self._hasher.digest(secret, pepper),
            pepper=pepper,
            name=name,
            user=user,
            masked_key=mask(secret, prefix),
            scopes=frozenset(scopes),
            created_at=now,
            expires_at=expires_at,
            token_limits=token_limits,
        )
        async with self._lock:
            if not await self._store.add(key, max_keys):
                raise Conflict(f"there are {max_keys} API keys already: delete one")
            self._cache.put(key)
        self._bus.publish(KEYS_CHANGED_SUBJECT, key.key_id)
        log.info("key created", key_id=key.key_id, user=key.user, name=key.name)
        await self._record("key.created", key)
        return secret, key

    def all(self) -> list[ApiKey]:
        """All keys, oldest first."""
        return [cached.key for cached in self._cache.all()]

    def list_for_user(self, user: UserId) -> list[ApiKey]:
        """The keys of a user, oldest first, with their last uses."""
        return [self._cache.with_last_use(cached) for cached in self._cache.all() if cached.key.user == user]

    def token_limits(self, key_id: KeyId) -> TokenLimits:
        """The token limits of a key; none if it was revoked."""
        return NO_LIMITS if (cached := self._cache.get(key_id)) is None else cached.key.token_limits

    async def rename(self, caller: Principal, key_id: KeyId, name: str) -> ApiKey:
        """Rename a key of the caller.

        Raises:
            NotFound: the caller has no such key.
            Forbidden: the key has more scopes than the caller's.
            Invalid: the name is invalid.
        """
        _check("name", name)
        async with self._lock:
            cached = self._find_owned(caller, key_id)
            await self._store.rename(key_id, name)
            cached.key = msgspec.structs.replace(cached.key, name=name)
        self._bus.publish(KEYS_CHANGED_SUBJECT, key_id)
        await self._record("key.renamed", cached.key)
        return self._cache.with_last_use(cached)

    async def revoke_owned(self, caller: Principal, key_id: KeyId) -> None:
        """Revoke a key of the caller, and notify its holders. Raises the same errors as `rename`."""
        await self._remove(self._find_owned(caller, key_id).key)

    def _find_owned(self, caller: Principal, key_id: KeyId) -> CachedKey:
        cached = self._cache.get(key_id)
        if cached is None or cached.key.user != caller.user:
            raise NotFound("there is no such key")
        for scope in get_args(Scope):
            if scope in cached.key.scopes:
                caller.require(scope)
        return cached

    def is_valid(self, secret: str) -> bool:
        """Whether this is a valid key."""
        cached = self._cache.find(secret)
        return cached is not None and not cached.is_expired(self._clock.now())

    async def revoke(self, which: str) -> ApiKey:
        """Revoke a key, and notify its holders.

        Args:
            which: its id, its masked form, the key itself, or its name if that is unique.

        Raises:
            NotFound: there is no such key.
            Conflict: several match.
            StoreUnavailable: it is refused from now on, but the revocation is not stored yet.
        """
        cached = self._cache.find_one(which)
        await self._remove(cached.key)
        return cached.key

    async def limit(self, which: str, *, per_day: int | None = None, per_month: int | None = None) -> ApiKey:
        """Change a key's token limits, from the next step of its runs on. None leaves a limit unchanged.

        Raises:
            NotFound, Conflict: as for `revoke`.
            Invalid: a limit is invalid.
        """
        async with self._lock:
            cached = self._cache.find_one(which)
            old = cached.key.token_limits
            limits = TokenLimits(
                old.per_day if per_day is None else per_day, old.per_month if per_month is None else per_month
            )
            _check_limits(limits)
            await self._store.limit(cached.key.key_id, limits)
            cached.key = msgspec.structs.replace(cached.key, token_limits=limits)
        self._bus.publish(KEYS_CHANGED_SUBJECT, cached.key.key_id)
        await self._record("key.limited", cached.key, f"{cached.key.name}, of {cached.key.user}: tokens {limits}")
        return cached.key

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _remove(self, key: ApiKey) -> None:
        self._unstored_revocations.add(key.key_id)
        self._cache.evict(key.key_id)
        try:
            await self.store_revocations()
        except StoreUnavailable as error:
            log.error("a revocation is not stored", key_id=key.key_id, cause=str(error))
            raise StoreUnavailable(
                "this server refuses the key from now on, but cannot store that: until the database can be written"
                " again (is the disk full?), the key is valid on other servers and after a restart. It retries every"
                f" {MAINTENANCE_INTERVAL_S:g} s"
            ) from error
        finally:
            log.info("key revoked", key_id=key.key_id, user=key.user, name=key.name)
            await self._record("key.revoked", key)

    async def _record(self, action: Action, key: ApiKey, detail: str | None = None) -> None:
        if self._audit is not None:
            scopes = f"{key.name}, of {key.user}: {' '.join(sorted(key.scopes))}"
            await self._audit.record(action, target=key.key_id, detail=detail or scopes)

    def _on_change(self, _: str) -> None:
        self._is_stale.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        written_at = loop.time()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(MAINTENANCE_INTERVAL_S):
                    await self._is_stale.wait()
            try:
                await self.run_maintenance()
                await self.rehash()
                if loop.time() - written_at >= LAST_USE_WRITE_INTERVAL_S:
                    written_at = loop.time()
                    await self.write_last_uses()
            except StoreUnavailable as error:
                log.warning("key maintenance failed", cause=repr(error.__cause__))
            except Exception:  # the root of a task that must continue: it applies revocations of other servers
                log.exception("key maintenance failed")


def secret_digest(secret: str) -> bytes:
    """The plain digest of another secret, such as the token of a link, which is stored in its place."""
    return KeyHasher().digest(secret, None)


def mask(secret: str, prefix: str) -> str:
    """The form in which a key is shown later: enough to recognize it, too little to use it."""
    return f"{prefix}...{secret[-4:]}"


def client_network(address: str) -> str:
    """The network for which wrong keys are counted: an IPv4 address, or the 64-bit prefix of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(parsed) >> 64 << 64))


def _check(what: str, text: str) -> None:
    if not text.strip() or len(text) > MAX_NAME_CHARS or not text.isprintable():
        raise Invalid(
            f"a key's {what} must have 1 to {MAX_NAME_CHARS} printable characters, got {text!r:.60}", path=what
        )


def check_new_key(
    name: str, user: str, scopes: Sequence[str], expires_at: datetime | None, token_limits: TokenLimits, now: datetime
) -> None:
    """Check what a key is created with. Raises Invalid."""
    _check("name", name)
    _check("user", user)
    _check_scopes(scopes)
    if expires_at is not None and expires_at <= now:
        raise Invalid("a key must expire in the future", path="expires_at")
    _check_limits(token_limits)


def _check_scopes(scopes: Sequence[str]) -> None:
    unknown = set(scopes) - set(get_args(Scope))
    if unknown or not scopes:
        given = ", ".join(sorted(unknown)) or "none"
        raise Invalid(f"expected scopes of {', '.join(get_args(Scope))}, got {given}", path="scopes")


def _check_limits(limits: TokenLimits) -> None:
    for tokens in (limits.per_day, limits.per_month):
        if not 0 <= tokens <= MAX_TOKENS:
            raise Invalid(f"expected 0 to {MAX_TOKENS} tokens, got {tokens}", path="token_limits")
