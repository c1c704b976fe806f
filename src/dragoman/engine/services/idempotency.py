"""Doing things once: what the request with a client's own key did, told again when the key comes again."""

import asyncio
from collections.abc import Callable, Collection
from datetime import timedelta
from types import TracebackType
from typing import NamedTuple

from dragoman.core.ids import RunId, SessionId, UserId
from dragoman.core.refusals import IdempotencyKeyReused, StoreUnavailable
from dragoman.ports.cluster import ClusterStore
from dragoman.ports.environment import Clock
from dragoman.ports.log import IdempotencyIndex, IdempotencyRecord

RETENTION = timedelta(hours=24)
"""How long a key is remembered, unless it lasts as long as its session."""

RETRY_DELAY_S = 0.05
"""How often it is looked whether another server has answered."""
RESERVATION_TIMEOUT_S = 20.0
"""How long that is waited for; also for a lease of this server's own, without which it keeps no key from others."""
RELEASE_RETRY_DELAY_S = 0.5
MAX_RELEASE_ATTEMPTS = 60
"""How often it is tried to let go of a key; after half a minute the store does so by itself."""


class IdempotencyKey(NamedTuple):
    """A client's key for what is to be done once.

    Args:
        name: the key; unique for each owner.
        fingerprint: a digest of the request, so that another one under the same key is found out.
        lasts: remembered as long as the session, not for 24 hours: the client's own id of a run.
    """

    name: str
    fingerprint: str
    lasts: bool = False


class _KeyLock:
    __slots__ = ("cluster_reservation", "lock", "reference_count")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.reference_count = 0
        self.cluster_reservation: tuple[ClusterStore, str] | None = None
        """Where it is kept from other servers, and under which name of this one."""


class Idempotency:
    """The keys of all owners. Who holds one keeps others with the same key waiting."""

    def __init__(
        self, index: IdempotencyIndex, clock: Clock, store_unless_alone: Callable[[], ClusterStore | None]
    ) -> None:
        self._store_unless_alone = store_unless_alone
        self._index = index
        self._clock = clock
        self._key_locks: dict[tuple[UserId, str], _KeyLock] = {}
        self._release_tasks: set[asyncio.Task[None]] = set()

    def make_record(
        self, owner: UserId, key: IdempotencyKey | None, session_id: SessionId, run_id: RunId | None
    ) -> IdempotencyRecord | None:
        """What is stored with the deed.

        Raises:
            StoreUnavailable: this server's lease ended since the key was kept; another one may be doing it now.
        """
        if key is None:
            return None
        held = self._key_locks.get((owner, key.name))
        if held is not None and held.cluster_reservation is not None:
            nodes, name = held.cluster_reservation
            if nodes.node_id != name or nodes.lease_remaining_s() <= 0:
                raise StoreUnavailable("this server lost its lease while it answered: send the request again")
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
        """What the request with that key did."""
        return self._unless_expired(await self._index.find_idempotency_record(owner, name))

    async def find_with_messages(
        self, owner: UserId, name: str, session_id: SessionId, ids: Collection[str]
    ) -> tuple[IdempotencyRecord | None, dict[str, int]]:
        """The same, and which of these ids are of messages of a session; see `LogLookup.find_messages`."""
        once, known = await self._index.find_request(owner, name, session_id, ids)
        return self._unless_expired(once), known

    def _unless_expired(self, idempotency_record: IdempotencyRecord | None) -> IdempotencyRecord | None:
        if (
            idempotency_record is None
            or idempotency_record.lasts
            or idempotency_record.at >= self._clock.now() - RETENTION
        ):
            return idempotency_record
        return None

    def reserve(
        self, owner: UserId, key: IdempotencyKey, session_id: SessionId | None = None, message_ids: Collection[str] = ()
    ) -> "KeyReservation":
        """Keep a key, in `async with`; gives what the earlier request with it did, if there was one.

        Args:
            owner: whose key it is.
            key: the key.
            session_id: the session that the request is about, when it brings messages.
            ids: of the messages: `Holding.known` tells which the session's log has.

        Raises:
            KeyReused: the earlier request was another.
        """
        return KeyReservation(self, self._key_locks, owner, key, session_id, message_ids)

    async def reserve_in_cluster(self, owner: UserId, name: str) -> tuple[ClusterStore, str] | None:
        """Keep other servers from answering with a key, once none of them does; None where there are none.

        Returns:
            Where it is kept, and under which name of this server.
        """
        others = self._store_unless_alone()
        if others is None:
            return None
        try:
            async with asyncio.timeout(RESERVATION_TIMEOUT_S):
                node = others.node_id
                while not await others.lock_idempotency_key(owner, name):  # another server lets go of it
                    await asyncio.sleep(RETRY_DELAY_S)
                    node = others.node_id
        except BaseException as error:  # nobody knows whether it is kept
            self._release_later(others, owner, name)
            if isinstance(error, TimeoutError):
                raise StoreUnavailable("the same request is being answered by another server") from None
            raise
        return others, node

    async def release_in_cluster(self, cluster_store: ClusterStore, owner: UserId, name: str) -> None:
        """Let other servers have a key: now, or when the store works again."""
        try:
            await cluster_store.unlock_idempotency_key(owner, name)
        except StoreUnavailable:
            self._release_later(cluster_store, owner, name)

    def _release_later(self, cluster_store: ClusterStore, owner: UserId, name: str) -> None:
        task = asyncio.create_task(self._retry_release(cluster_store, owner, name), name="free a key")
        self._release_tasks.add(task)
        task.add_done_callback(self._release_tasks.discard)

    async def _retry_release(self, cluster_store: ClusterStore, owner: UserId, name: str) -> None:
        for _ in range(MAX_RELEASE_ATTEMPTS):
            await asyncio.sleep(RELEASE_RETRY_DELAY_S)
            held = self._key_locks.setdefault((owner, name), _KeyLock())
            held.reference_count += 1
            try:
                async with held.lock:  # whoever has it here meanwhile keeps it
                    await cluster_store.unlock_idempotency_key(owner, name)
                    return
            except StoreUnavailable:
                continue
            finally:
                held.reference_count -= 1
                if not held.reference_count:
                    del self._key_locks[owner, name]


class KeyReservation:
    """A key that is kept: whoever comes with the same one waits."""

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
        """Those of the ids that the session's log has, with the event that completed each message."""
        self._session_id = session_id
        self._message_ids = message_ids
        self._idempotency = idempotency
        self._key_locks = key_locks
        self._owner = owner
        self._key = key
        self._cluster_store: ClusterStore | None = None
        """Where it is kept from other servers too."""

    async def __aenter__(self) -> IdempotencyRecord | None:
        held = self._key_locks.setdefault((self._owner, self._key.name), _KeyLock())
        held.reference_count += 1
        try:
            await held.lock.acquire()
        except BaseException:
            self._drop_reference(held)
            raise
        try:
            held.cluster_reservation = await self._idempotency.reserve_in_cluster(self._owner, self._key.name)
            self._cluster_store = None if held.cluster_reservation is None else held.cluster_reservation[0]
            earlier = await self._find()
            if earlier is not None and earlier.fingerprint != self._key.fingerprint:
                raise IdempotencyKeyReused("this key was used with another request")
        except BaseException:
            await self._release(held)
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
        try:
            if self._cluster_store is not None:  # also when whoever asks is being cancelled
                await asyncio.shield(
                    self._idempotency.release_in_cluster(self._cluster_store, self._owner, self._key.name)
                )
        finally:
            key_lock.lock.release()
            self._drop_reference(key_lock)

    def _drop_reference(self, key_lock: _KeyLock) -> None:
        key_lock.reference_count -= 1
        if not key_lock.reference_count:
            del self._key_locks[self._owner, self._key.name]
