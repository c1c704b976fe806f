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
RELEASE_RETRY_DELAY_S = 0.5
MAX_RELEASE_ATTEMPTS = 60
"""Attempts to unlock a key; after half a minute the store unlocks it by itself."""


class IdempotencyKey(NamedTuple):
    """A client's key for a request.

    Args:
        name: the key; unique for each owner.
        fingerprint: a digest of the request, to detect another request with the same key.
        lasts: keep it as long as the session, not for a day or a little longer. For a client's own id of a run.
    """

    name: str
    fingerprint: str
    lasts: bool = False


class _KeyLock:
    __slots__ = ("cluster_reservation", "execution", "lock", "reference_count", "run_id")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.execution = asyncio.Lock()
        """Held from the lookup of the record to its commit, also for requests whose key another server has locked."""
        self.reference_count = 0
        self.cluster_reservation: tuple[ClusterStore, str] | None = None
        """Where the key is locked for this server, and under which node id; None if there were no other servers."""
        self.run_id: RunId | None = None
        """The run that a request here is about to start."""


class Idempotency:
    """The keys of all owners. While a request with a key is processed, others with the same key wait."""

    def __init__(
        self, index: IdempotencyIndex, clock: Clock, store_unless_alone: Callable[[], ClusterStore | None]
    ) -> None:
        self._store_unless_alone = store_unless_alone
        self._index = index
        self._clock = clock
        self._key_locks: dict[tuple[UserId, str], _KeyLock] = {}
        self._release_tasks = BackgroundTasks()

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
            elif self._store_unless_alone() is not None:  # the key was reserved while there was nobody to lock it for
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

    async def find_with_messages(
        self, owner: UserId, name: str, session_id: SessionId, ids: Collection[str]
    ) -> tuple[IdempotencyRecord | None, dict[str, int]]:
        """The record, and which of these ids belong to messages of a session, in one query."""
        record, known = await self._index.find_request(owner, name, session_id, ids)
        return self._unless_expired(record), known

    def _unless_expired(self, idempotency_record: IdempotencyRecord | None) -> IdempotencyRecord | None:
        if (
            idempotency_record is None
            or idempotency_record.lasts
            or idempotency_record.at >= self._clock.now() - IDEMPOTENCY_RETENTION
        ):
            return idempotency_record
        return None

    def reserve(
        self, owner: UserId, key: IdempotencyKey, session_id: SessionId | None = None, message_ids: Collection[str] = ()
    ) -> "KeyReservation":
        """Reserve a key, in `async with`, which returns the record of an earlier request with the key, if any.

        Args:
            owner: the owner of the key.
            key: the key.
            session_id: the session of the request, if it has messages.
            message_ids: their ids; `KeyReservation.known_messages` has those in the session's log.

        Raises:
            IdempotencyKeyReused: the earlier request was a different one.
        """
        return KeyReservation(self, self._key_locks, owner, key, session_id, message_ids)

    async def reserve_in_cluster(self, owner: UserId, name: str) -> tuple[ClusterStore, str] | None:
        """Lock a key against other servers, once none of them has it locked.

        Returns:
            Where it is locked, and under which node id; None if there are no other servers.
        """
        others = self._store_unless_alone()
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
            self._release_tasks.start(self._retry_release(others, owner, name), "unlock a key")
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
        owner, name = record.owner, record.key
        key_lock = self._key_locks.setdefault((owner, name), _KeyLock())
        key_lock.reference_count += 1
        try:
            if key_lock.run_id == record.run_id:  # this server has sent the command to itself, and executes it
                yield
                return
            async with key_lock.execution:
                earlier = await self.find(owner, name)
                if earlier is not None and earlier.run_id != record.run_id:
                    raise StoreUnavailable("the request was processed by another server meanwhile: send it again")
                yield
        finally:
            self.drop_reference(owner, name, key_lock)

    def drop_reference(self, owner: UserId, name: str, key_lock: _KeyLock) -> None:
        """Forget a lock that nobody uses any more."""
        key_lock.reference_count -= 1
        if not key_lock.reference_count:
            del self._key_locks[owner, name]

    async def release_in_cluster(self, cluster_store: ClusterStore, owner: UserId, name: str) -> None:
        """Unlock a key for other servers: now, or when the store is available again."""
        try:
            await cluster_store.unlock_idempotency_key(owner, name)
        except StoreUnavailable:
            self._release_tasks.start(self._retry_release(cluster_store, owner, name), "unlock a key")

    async def _retry_release(self, cluster_store: ClusterStore, owner: UserId, name: str) -> None:
        for _ in range(MAX_RELEASE_ATTEMPTS):
            await asyncio.sleep(RELEASE_RETRY_DELAY_S)
            key_lock = self._key_locks.setdefault((owner, name), _KeyLock())
            key_lock.reference_count += 1
            try:
                async with key_lock.lock:  # a request that has it here meanwhile keeps it
                    await cluster_store.unlock_idempotency_key(owner, name)
                    return
            except StoreUnavailable:
                continue
            finally:
                self.drop_reference(owner, name, key_lock)


class KeyReservation:
    """A reserved key: other requests with the same key wait."""

    def __init__(
        self,
        idempotency: Idempotency,
        key_locks: dict[tuple[UserId, str], _KeyLock],
        owner: UserId,
        key: IdempotencyKey,
        session_id: SessionId | None,
        message_ids: Collection[str],
    ) -> None:
        self.known_messages: dict[str, int] = {}
        """The message ids that the session's log has, with the event that completed each message."""
        self._session_id = session_id
        self._message_ids = message_ids
        self._idempotency = idempotency
        self._key_locks = key_locks
        self._owner = owner
        self._key = key
        self._cluster_store: ClusterStore | None = None
        """Where the key is also locked against other servers."""
        self._executes = False

    async def __aenter__(self) -> IdempotencyRecord | None:
        key_lock = self._key_locks.setdefault((self._owner, self._key.name), _KeyLock())
        key_lock.reference_count += 1
        try:
            await key_lock.lock.acquire()
        except BaseException:
            self._idempotency.drop_reference(self._owner, self._key.name, key_lock)
            raise
        try:
            reservation = await self._idempotency.reserve_in_cluster(self._owner, self._key.name)
            key_lock.cluster_reservation = reservation
            self._cluster_store = None if reservation is None else reservation[0]
            await key_lock.execution.acquire()
            self._executes = True
            earlier = await self._find()
            if earlier is not None and earlier.fingerprint != self._key.fingerprint:
                raise IdempotencyKeyReused("this key was used with another request")
        except BaseException:
            await self._release(key_lock)
            raise
        return earlier

    async def _find(self) -> IdempotencyRecord | None:
        owner, name = self._owner, self._key.name
        if self._session_id is None:
            return await self._idempotency.find(owner, name)
        earlier, self.known_messages = await self._idempotency.find_with_messages(
            owner, name, self._session_id, self._message_ids
        )
        return earlier

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._release(self._key_locks[self._owner, self._key.name])

    async def _release(self, key_lock: _KeyLock) -> None:
        if self._executes:
            key_lock.execution.release()
        try:
            if self._cluster_store is not None:  # also when the request is being cancelled
                await asyncio.shield(
                    self._idempotency.release_in_cluster(self._cluster_store, self._owner, self._key.name)
                )
        finally:
            key_lock.lock.release()
            self._idempotency.drop_reference(self._owner, self._key.name, key_lock)
