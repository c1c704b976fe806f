"""API keys: made, shown once, recognised, revoked. What is kept is a digest that nobody can call with.

A key is 256 random bits, so nobody finds one by trying, and a plain digest of it is as safe as a slow one would be.
For the same reason the lookup need not take constant time: what a caller could learn from its time is how far the
SHA-256 of its own guess agrees with a stored digest, and no guess can be steered by that.
"""

import asyncio
import ipaddress
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from typing import Protocol, get_args

import msgspec
import structlog

from dragoman.core.ids import KeyId, UserId
from dragoman.core.principal import Principal, Scope
from dragoman.core.refusals import Conflict, Invalid, NotFound, StoreUnavailable, Unauthenticated
from dragoman.engine.services.limits import RateLimit
from dragoman.ports.accounts import ApiKey, ApiKeyStore
from dragoman.ports.bus import Bus
from dragoman.ports.environment import Clock, Ids

PREFIX = "sk-dragoman-"
"""Begins the keys of the command line; doors that make keys have prefixes of their own. It is part of the key."""
LOCAL_USER = UserId("local")
"""The user of a server without keys, and of keys that name none: so the sessions stay when keys are switched on."""
KEYS_CHANGED_SUBJECT = "keys"
"""What the bus says when a key came, went or got another name."""

MAINTENANCE_INTERVAL_S = 2.0
"""How often the ring looks after its keys: an expiry acts within this time, a hint of the bus at once."""
LAST_USE_WRITE_INTERVAL_S = 30.0
"""How often the last uses are written."""
MAX_KEY_CHARS = 512
MAX_NAME_CHARS = 200

log = structlog.get_logger(__name__)


class Authenticator(Protocol):
    """Tells who calls."""

    def authenticate(self, header: str | None, address: str) -> Principal:
        """Who sent a request.

        Args:
            header: the `Authorization` header; None when there is none.
            address: where the request came from.

        Raises:
            Unauthenticated: there is no key, or none of ours.
            Exhausted: the address has sent too many wrong keys. Never for a right one.
        """

    def on_revoked(self, principal: Principal, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `told` once when the principal's key stops to be valid. Returns what ends that."""


class NoKeys:
    """A server without keys: everybody is the local user, whatever the header says."""

    _PRINCIPAL = Principal(user=LOCAL_USER, scopes=frozenset({"admin"}))

    def authenticate(self, header: str | None, address: str) -> Principal:
        """See `Doorkeeper.authenticate`."""
        return self._PRINCIPAL

    def on_revoked(self, principal: Principal, callback: Callable[[], None]) -> Callable[[], None]:
        """See `Doorkeeper.on_revoked`."""
        return lambda: None


class _CachedKey:
    """A key in memory."""

    __slots__ = ("expires_at", "key", "principal", "revocation_callbacks")

    def __init__(self, key: ApiKey) -> None:
        self.key = key
        self.expires_at = key.expires_at
        self.principal = Principal(user=key.user, scopes=key.scopes, key_id=key.key_id)
        self.revocation_callbacks: dict[object, Callable[[], None]] = {}


class KeyRing:
    """All keys, in memory by their digests; the store is the truth."""

    def __init__(
        self, store: ApiKeyStore, bus: Bus, clock: Clock, ids: Ids, *, wrong_key_limit: RateLimit | None = None
    ) -> None:
        """Args:
        store: where the keys are.
        bus: tells of keys that came or went elsewhere.
        clock: for expiries and last uses.
        ids: for the keys' ids.
        wrong: how many wrong keys an address may send.
        """
        self._store = store
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._wrong_key_limit = wrong_key_limit or RateLimit(0, "wrong keys")
        self._by_digest: dict[bytes, _CachedKey] = {}
        self._by_id: dict[KeyId, _CachedKey] = {}
        self._lock = asyncio.Lock()
        """Held from a read or write of the store until the memory says the same, so that neither undoes the other."""
        self._unwritten_uses: dict[_CachedKey, datetime] = {}
        """The keys that were used since the last uses were written, with the first time of each."""
        self._is_stale = asyncio.Event()
        """Set when a key came, went or got another name elsewhere."""
        self._reload_failed = False
        """Whether the store did not answer when the keys were to be read again."""
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the keys, and begin to look after them."""
        await self.reload()
        self._unsubscribe = self._bus.subscribe(KEYS_CHANGED_SUBJECT, self._on_change)
        self._task = asyncio.create_task(self._run(), name="keys")

    async def close(self) -> None:
        """Write the last uses and end."""
        self._unsubscribe()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        with suppress(StoreUnavailable):
            await self.write_last_uses()

    async def reload(self) -> None:
        """Read the keys again; tell those who hold one that is gone."""
        async with self._lock:
            self._is_stale.clear()
            try:
                stored = {key.key_id: key for key in await self._store.all()}
            except BaseException:
                self._reload_failed = True  # the next round tries again
                raise
            self._reload_failed = False
            for key_id in self._by_id.keys() - stored.keys():
                self._evict(key_id)
            for key_id, key in stored.items():
                held = self._by_id.get(key_id)
                if held is None:
                    self._cache(key)
                else:  # it may be called otherwise, or have been used later elsewhere
                    held.key = key

    async def run_maintenance(self) -> None:
        """One round: read the keys again if some came or went elsewhere, and tell the holders of expired ones."""
        if self._is_stale.is_set() or self._reload_failed:
            await self.reload()
        now = self._clock.now()
        for held in self._by_digest.values():
            if held.revocation_callbacks and held.expires_at is not None and held.expires_at <= now:
                _notify_revoked(held)

    async def write_last_uses(self) -> None:
        """Write when keys were last used. Exact to `NOTE_S`, because the calls themselves do not look at the clock."""
        if self._unwritten_uses:
            used = tuple(self._unwritten_uses.items())
            await self._store.touch([(held.key.key_id, at) for held, at in used])
            for held, at in used:
                self._unwritten_uses.pop(held, None)
                held.key = msgspec.structs.replace(held.key, last_used_at=at)

    # --- callers --------------------------------------------------------------------------------------------------

    def authenticate(self, header: str | None, address: str) -> Principal:
        """See `Doorkeeper.authenticate`."""
        if not header:
            raise Unauthenticated("a key is needed: send the header Authorization: Bearer KEY")
        scheme, _, secret = header.partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            raise Unauthenticated("the header Authorization must read: Bearer KEY")
        return self.principal_for(secret, address)

    def principal_for(self, secret: str, address: str) -> Principal:
        """The owner of a key that came outside of a header. Raises as `authenticate` does."""
        held = self._by_digest.get(secret_digest(secret)) if len(secret) <= MAX_KEY_CHARS else None
        if held is None:
            self._wrong_key_limit.consume(client_network(address))
            raise Unauthenticated("this key is not known here")
        if held.expires_at is not None and held.expires_at <= self._clock.now():
            raise Unauthenticated("this key has expired")
        if held not in self._unwritten_uses:
            self._unwritten_uses[held] = self._clock.now()
        return held.principal

    def on_revoked(self, principal: Principal, callback: Callable[[], None]) -> Callable[[], None]:
        """See `Doorkeeper.on_revoked`."""
        held = None if principal.key_id is None else self._by_id.get(principal.key_id)
        if held is None:  # it went between the request's first line and this one
            callback()
            return lambda: None
        place = object()
        held.revocation_callbacks[place] = callback

        def end() -> None:
            held.revocation_callbacks.pop(place, None)

        return end

    # --- keeping --------------------------------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        *,
        user: UserId = LOCAL_USER,
        scopes: Sequence[str] = ("use",),
        expires_at: datetime | None = None,
        prefix: str = PREFIX,
    ) -> tuple[str, ApiKey]:
        """Make a key. Returns it, for the only time, and what is kept of it.

        Raises:
            Invalid: name, user, a scope or the expiry cannot be so.
        """
        now = self._clock.now()
        _check("name", name)
        _check("user", user)
        strange = set(scopes) - set(get_args(Scope))
        if strange or not scopes:
            asked = ", ".join(sorted(strange)) or "none"
            raise Invalid(f"scopes are {', '.join(get_args(Scope))}; got {asked}", path="scopes")
        if expires_at is not None and expires_at <= now:
            raise Invalid("a key must expire in the future", path="expires_at")
        secret = prefix + secrets.token_urlsafe(32)
        key = ApiKey(
            key_id=KeyId(self._ids.new()),
            digest=secret_digest(secret),
            name=name,
            user=user,
            masked_key=mask(secret, prefix),
            scopes=frozenset(scopes),
            created_at=now,
            expires_at=expires_at,
        )
        async with self._lock:
            await self._store.add(key)
            self._cache(key)
        self._bus.publish(KEYS_CHANGED_SUBJECT, key.key_id)
        log.info("key made", key_id=key.key_id, user=key.user, name=key.name)
        return secret, key

    def all(self) -> list[ApiKey]:
        """All keys, oldest first."""
        return sorted((held.key for held in self._by_digest.values()), key=lambda key: (key.created_at, key.key_id))

    def list_for_user(self, user: UserId) -> list[ApiKey]:
        """The keys of a user, oldest first, with their last uses as far as they are known."""
        of_user = [held for held in self._by_digest.values() if held.key.user == user]
        shown = [msgspec.structs.replace(held.key, last_used_at=self._last_use(held)) for held in of_user]
        return sorted(shown, key=lambda key: (key.created_at, key.key_id))

    def _last_use(self, cached: _CachedKey) -> datetime | None:
        return self._unwritten_uses.get(cached, cached.key.last_used_at)

    async def rename(self, caller: Principal, key_id: KeyId, name: str) -> ApiKey:
        """Call a key of the caller's otherwise.

        Raises:
            NotFound: the caller has no such key.
            Forbidden: it may more than the caller's own.
            Invalid: a key cannot be called so.
        """
        _check("name", name)
        async with self._lock:
            held = self._find_owned(caller, key_id)
            await self._store.rename(key_id, name)
            held.key = msgspec.structs.replace(held.key, name=name)
        self._bus.publish(KEYS_CHANGED_SUBJECT, key_id)
        return msgspec.structs.replace(held.key, last_used_at=self._last_use(held))

    async def revoke_owned(self, caller: Principal, key_id: KeyId) -> None:
        """Remove a key of the caller's for good; who calls with it is told. Raises as `rename` does."""
        await self._remove(self._find_owned(caller, key_id).key)

    def _find_owned(self, caller: Principal, key_id: KeyId) -> _CachedKey:
        held = self._by_id.get(key_id)
        if held is None or held.key.user != caller.user:
            raise NotFound("there is no such key")
        for scope in get_args(Scope):
            if scope in held.key.scopes:
                caller.require(scope)
        return held

    def is_valid(self, secret: str) -> bool:
        """Whether this is a key in force."""
        held = self._by_digest.get(secret_digest(secret))
        return held is not None and (held.expires_at is None or held.expires_at > self._clock.now())

    async def revoke(self, which: str) -> ApiKey:
        """Remove a key for good; who calls with it is told.

        Args:
            which: its id, its masked form, the key itself, or its name if only one is called so.

        Raises:
            NotFound: there is no such key.
            Conflict: several match.
        """
        digest = secret_digest(which)
        found = [
            each for each in self.all() if which in (each.key_id, each.masked_key, each.name) or digest == each.digest
        ]
        if not found:
            raise NotFound(f"there is no key {which!r}")
        if len(found) > 1:
            ids = ", ".join(each.key_id for each in found)
            raise Conflict(f"{len(found)} keys match {which!r}; name one of them by its id: {ids}")
        await self._remove(found[0])
        return found[0]

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _remove(self, key: ApiKey) -> None:
        async with self._lock:
            await self._store.remove(key.key_id)
            self._evict(key.key_id)
        self._bus.publish(KEYS_CHANGED_SUBJECT, key.key_id)
        log.info("key revoked", key_id=key.key_id, user=key.user, name=key.name)

    def _cache(self, key: ApiKey) -> None:
        self._by_digest[key.digest] = self._by_id[key.key_id] = _CachedKey(key)

    def _evict(self, key_id: KeyId) -> None:
        held = self._by_id.pop(key_id, None)
        if held is not None:
            del self._by_digest[held.key.digest]
            self._unwritten_uses.pop(held, None)
            _notify_revoked(held)

    def _on_change(self, _: str) -> None:
        self._is_stale.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        noted_at = loop.time()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(MAINTENANCE_INTERVAL_S):
                    await self._is_stale.wait()
            try:
                await self.run_maintenance()
                if loop.time() - noted_at >= LAST_USE_WRITE_INTERVAL_S:
                    noted_at = loop.time()
                    await self.write_last_uses()
            except StoreUnavailable as error:
                log.warning("keys not looked after", cause=repr(error.__cause__))
            except Exception:  # the root of a task that must go on: without it no key that was revoked elsewhere goes
                log.exception("keys not looked after")


def secret_digest(secret: str) -> bytes:
    """What is kept of a key."""
    return sha256(secret.encode("utf-8", "replace")).digest()


def mask(secret: str, prefix: str) -> str:
    """How a key is shown after its first time: enough to recognise, too little to call with."""
    return f"{prefix}...{secret[-4:]}"


def client_network(address: str) -> str:
    """What wrong keys are counted by: an IPv4 address, or the 64 bits of IPv6 that one subscriber has for itself."""
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
        raise Invalid(f"a key's {what} has 1 to {MAX_NAME_CHARS} printable characters; got {text!r:.60}", path=what)


def _notify_revoked(cached: _CachedKey) -> None:
    told, cached.revocation_callbacks = cached.revocation_callbacks, {}
    for each in told.values():
        each()
