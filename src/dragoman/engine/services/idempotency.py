"""Idempotency keys: a repeated request gets the stored result."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from types import TracebackType
from typing import NamedTuple

from dragoman.core.ids import RunId, SessionId, UserId
from dragoman.core.refusals import IdempotencyKeyReused, StoreUnavailable
from dragoman.engine.background_tasks import BackgroundTasks
from dragoman.ports.cluster import ClusterStore
from dragoman.ports.environment import Clock
from dragoman.ports.log import IDEMPOTENCY_RETENTION, IdempotencyIndex, IdempotencyRecord

RETRY_DELAY_S = 0.05
"""Interval of attempts to lock a key that another server holds."""
RESERVATION_TIMEOUT_S = 20.0
"""How long to wait for the lock of a key, or for this server's own lease, without which it cannot lock keys."""
UNLOCK_RETRY_DELAY_S = 0.5
MAX_UNLOCK_ATTEMPTS = 60
"""Attempts to unlock a key; after half a minute the store unlocks it by itself."""


class IdempotencyKey(NamedTuple):
    """A client's key for a request.

    Args:
        name: the key; unique for each owner.
        fingerprint: a digest of the request, to detect another request with the same key.
        lasts: keep it as long as the session, not for `IDEMPOTENCY_RETENTION`. For a client's own id of a run.
    """

    name: str
    fingerprint: str
    lasts: bool = False


_OwnedKey = tuple[UserId, str]


class _KeyLock:
    """The lock of a key, in `with`. It is forgotten when nobody uses it any more."""

    __slots__ = ("_key", "_key_locks", "_reference_count", "cluster_reservation", "execution", "lock", "run_id")

    def __init__(self, key_locks: "dict[_OwnedKey, _KeyLock]", key: _OwnedKey) -> None:
        self._key_locks = key_locks
        self._key = key
        self._reference_count = 0
        self.lock = asyncio.Lock()
        self.execution = asyncio.Lock()
        """Held from the lookup of the record to its commit, also for requests whose key another server has locked."""
        self.cluster_reservation: tuple[ClusterStore, str] | None = None
        """Where the key is locked for this server, and under which node id; None if there were no other servers."""
        self.run_id: RunId | None = None
        """The run that a request here is about to start."""

    def __enter__(self) -> "_KeyLock":
        self._reference_count += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._reference_count -= 1
        if not self._reference_count:
            del self._key_locks[self._key]


class Idempotency:
    """The keys of all owners. While a request with a key is processed, others with the same key wait."""

    def __init__(
        self, index: IdempotencyIndex, clock: Clock, coordination_store: Callable[[], ClusterStore | None]
    ) -> None:
        self._coordination_store = coordination_store
        self._index = index
        self._clock = clock
        self._key_locks: dict[_OwnedKey, _KeyLock] = {}
        self._unlock_tasks = BackgroundTasks()

    def make_record(
        self, owner: UserId, key: IdempotencyKey | None, session_id: SessionId, run_id: RunId | None
    ) -> IdempotencyRecord | None:
        """The record to store together with the effect of the request.

        Raises:
            StoreUnavailable: this server lost its lease since, or another one joined, so another one may be processing
                the request.
        """
        if key is None:
            return None
        key_lock = self._key_locks.get((owner, key.name))
        if key_lock is not None:
            if key_lock.cluster_reservation is not None:
                nodes, node_id = key_lock.cluster_reservation
                if nodes.node_id != node_id or nodes.lease_remaining_s() <= 0:
                    raise StoreUnavailable("this server lost its lease while processing the request: send it again")
            elif self._coordination_store() is not None:  # the key was reserved while there was nobody to lock it for
                raise StoreUnavailable("another server started while processing the request: send it again")
            key_lock.run_id = run_id
        return IdempotencyRecord(
            owner=owner,
            key=key.name,
            fingerprint=key.fingerprint,
            session_id=session_id,
            run_id=run_id,
            at=self._clock.now(),
            lasts=key.lasts,
        )

    async def find(self, owner: UserId, name: str) -> IdempotencyRecord | None:
        """The record of the request with that key."""
        return self._unless_expired(await self._index.find_idempotency_record(owner, name))

    def _unless_expired(self, record: IdempotencyRecord | None) -> IdempotencyRecord | None:
        if record is None or record.lasts or record.at >= self._clock.now() - IDEMPOTENCY_RETENTION:
            return record
        return None

    @asynccontextmanager
    async def reserve(self, owner: UserId, key: IdempotencyKey) -> AsyncIterator[IdempotencyRecord | None]:
        """Reserve a key. Enters with the record of an earlier request with the key, if there is one.

        Raises:
            IdempotencyKeyReused: the earlier request was a different one.
        """
        async with self._locked(owner, key.name):
            earlier = await self.find(owner, key.name)
            _require_same_request(key, earlier)
            yield earlier

    @asynccontextmanager
    async def reserve_with_messages(
        self, owner: UserId, key: IdempotencyKey, session_id: SessionId | None, ids: Collection[str]
    ) -> AsyncIterator[tuple[IdempotencyRecord | None, dict[str, int]]]:
        """Reserve a key as `reserve` does, for a request with messages of these ids.

        Enters also with those of the ids that the session's log has, and the event that completed each message. Both
        are read in one query; nothing is read without a session id, for the key of a session that is not stored yet.
        """
        async with self._locked(owner, key.name):
            if session_id is None:
                yield None, {}
                return
            earlier, known = await self._index.find_request(owner, key.name, session_id, ids)
            earlier = self._unless_expired(earlier)
            _require_same_request(key, earlier)
            yield earlier, known

    @asynccontextmanager
    async def _locked(self, owner: UserId, name: str) -> AsyncIterator[None]:
        """Lock a key, on all servers."""
        with self._key_lock(owner, name) as key_lock:
            async with key_lock.lock:
                key_lock.cluster_reservation = reservation = await self._lock_in_cluster(owner, name)
                try:
                    async with key_lock.execution:
                        yield
                finally:
                    if reservation is not None:  # also when the request is being cancelled
                        await asyncio.shield(self._unlock_in_cluster(reservation[0], owner, name))

    def _key_lock(self, owner: UserId, name: str) -> _KeyLock:
        key = owner, name
        key_lock = self._key_locks.get(key)
        if key_lock is None:
            key_lock = self._key_locks[key] = _KeyLock(self._key_locks, key)
        return key_lock

    async def _lock_in_cluster(self, owner: UserId, name: str) -> tuple[ClusterStore, str] | None:
        """Lock a key against other servers, once none of them has it locked.

        Returns:
            Where it is locked, and under which node id; None if there are no other servers.
        """
        others = self._coordination_store()
        if others is None:
            return None
        reason = "the store does not answer"
        try:
            async with asyncio.timeout(RESERVATION_TIMEOUT_S):
                node = others.node_id
                while not await others.lock_idempotency_key(owner, name):  # until another server unlocks it
                    reason = "another server is processing the same request"
                    await asyncio.sleep(RETRY_DELAY_S)
                    node = others.node_id
        except BaseException as error:  # it is unknown whether the key is locked
            self._unlock_tasks.start(self._retry_unlock(others, owner, name), "unlock a key")
            if isinstance(error, TimeoutError):
                raise StoreUnavailable(reason) from None
            raise
        return others, node

    @asynccontextmanager
    async def execution_for_other_server(self, record: IdempotencyRecord | None) -> AsyncIterator[None]:
        """Hold a key while a request is executed that another server, which has locked the key, passed on.

        Args:
            record: the record that will be stored; None if the request has no key.

        Raises:
            StoreUnavailable: the other server lost the key, and the request was processed without it.
        """
        if record is None:
            yield
            return
        with self._key_lock(record.owner, record.key) as key_lock:
            if key_lock.run_id == record.run_id:  # this server has sent the command to itself, and executes it
                yield
                return
            async with key_lock.execution:
                earlier = await self.find(record.owner, record.key)
                if earlier is not None and earlier.run_id != record.run_id:
                    raise StoreUnavailable("the request was processed by another server meanwhile: send it again")
                yield

    async def _unlock_in_cluster(self, cluster_store: ClusterStore, owner: UserId, name: str) -> None:
        """Unlock a key for other servers: now, or when the store is available again."""
        try:
            await cluster_store.unlock_idempotency_key(owner, name)
        except StoreUnavailable:
            self._unlock_tasks.start(self._retry_unlock(cluster_store, owner, name), "unlock a key")

    async def _retry_unlock(self, cluster_store: ClusterStore, owner: UserId, name: str) -> None:
        for _ in range(MAX_UNLOCK_ATTEMPTS):
            await asyncio.sleep(UNLOCK_RETRY_DELAY_S)
            with self._key_lock(owner, name) as key_lock:
                try:
                    async with key_lock.lock:  # a request that has it here meanwhile keeps it
                        await cluster_store.unlock_idempotency_key(owner, name)
                        return
                except StoreUnavailable:
                    continue


def _require_same_request(key: IdempotencyKey, earlier: IdempotencyRecord | None) -> None:
    if earlier is not None and earlier.fingerprint != key.fingerprint:
        raise IdempotencyKeyReused("this key was used with another request")
