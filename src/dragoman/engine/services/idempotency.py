"""Doing things once: what the request with a client's own key did, told again when the key comes again."""

import asyncio
from collections.abc import Callable, Collection
from datetime import timedelta
from types import TracebackType
from typing import NamedTuple

from dragoman.core.ids import RunId, SessionId, UserId
from dragoman.core.refusals import KeyReused, StoreUnavailable
from dragoman.ports import Clock, Nodes, Once, SessionIndex

KEPT = timedelta(hours=24)
"""How long a key is remembered, unless it lasts as long as its session."""

AGAIN_S = 0.05
"""How often it is looked whether another server has answered."""
WAITED_S = 20.0
"""How long that is waited for; also for a lease of this server's own, without which it keeps no key from others."""
LATER_S = 0.5
FREED = 60
"""How often it is tried to let go of a key; after half a minute the store does so by itself."""


class Key(NamedTuple):
    """A client's key for what is to be done once.

    Args:
        name: the key; unique for each owner.
        fingerprint: a digest of the request, so that another one under the same key is found out.
        lasts: remembered as long as the session, not for 24 hours: the client's own id of a run.
    """

    name: str
    fingerprint: str
    lasts: bool = False


class _Held:
    __slots__ = ("kept", "lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.kept: tuple[Nodes, str] | None = None
        """Where it is kept from other servers, and under which name of this one."""


class Onces:
    """The keys of all owners. Who holds one keeps others with the same key waiting."""

    def __init__(self, index: SessionIndex, clock: Clock) -> None:
        self.others: Callable[[], Nodes | None] = lambda: None
        """The other servers on the store, while there are any: they hold keys too."""
        self._index = index
        self._clock = clock
        self._held: dict[tuple[UserId, str], _Held] = {}
        self._freeing: set[asyncio.Task[None]] = set()

    def record(self, owner: UserId, key: Key | None, session_id: SessionId, run_id: RunId | None) -> Once | None:
        """What is stored with the deed.

        Raises:
            StoreUnavailable: this server's lease ended since the key was kept; another one may be doing it now.
        """
        if key is None:
            return None
        held = self._held.get((owner, key.name))
        if held is not None and held.kept is not None:
            nodes, name = held.kept
            if nodes.node != name or nodes.left_s() <= 0:
                raise StoreUnavailable("this server lost its lease while it answered: send the request again")
        return Once(
            owner=owner,
            key=key.name,
            fingerprint=key.fingerprint,
            session_id=session_id,
            run_id=run_id,
            at=self._clock.now(),
            lasts=key.lasts,
        )

    async def find(self, owner: UserId, name: str) -> Once | None:
        """What the request with that key did."""
        return self._in_force(await self._index.once(owner, name))

    async def find_with(
        self, owner: UserId, name: str, session_id: SessionId, ids: Collection[str]
    ) -> tuple[Once | None, dict[str, int]]:
        """The same, and which of these ids are of messages of a session; see `SessionIndex.messages`."""
        once, known = await self._index.seen(owner, name, session_id, ids)
        return self._in_force(once), known

    def _in_force(self, once: Once | None) -> Once | None:
        if once is None or once.lasts or once.at >= self._clock.now() - KEPT:
            return once
        return None

    def hold(
        self, owner: UserId, key: Key, session_id: SessionId | None = None, ids: Collection[str] = ()
    ) -> "Holding":
        """Keep a key, in `async with`; gives what the earlier request with it did, if there was one.

        Args:
            owner: whose key it is.
            key: the key.
            session_id: the session that the request is about, when it brings messages.
            ids: of the messages: `Holding.known` tells which the session's log has.

        Raises:
            KeyReused: the earlier request was another.
        """
        return Holding(self, self._held, owner, key, session_id, ids)

    async def keep(self, owner: UserId, name: str) -> tuple[Nodes, str] | None:
        """Keep other servers from answering with a key, once none of them does; None where there are none.

        Returns:
            Where it is kept, and under which name of this server.
        """
        others = self.others()
        if others is None:
            return None
        try:
            async with asyncio.timeout(WAITED_S):
                node = others.node
                while not await others.hold_key(owner, name):  # another server lets go of it
                    await asyncio.sleep(AGAIN_S)
                    node = others.node
        except BaseException as error:  # nobody knows whether it is kept
            self._free_later(others, owner, name)
            if isinstance(error, TimeoutError):
                raise StoreUnavailable("the same request is being answered by another server") from None
            raise
        return others, node

    async def free(self, others: Nodes, owner: UserId, name: str) -> None:
        """Let other servers have a key: now, or when the store works again."""
        try:
            await others.free_key(owner, name)
        except StoreUnavailable:
            self._free_later(others, owner, name)

    def _free_later(self, others: Nodes, owner: UserId, name: str) -> None:
        task = asyncio.create_task(self._freed(others, owner, name), name="free a key")
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)

    async def _freed(self, others: Nodes, owner: UserId, name: str) -> None:
        for _ in range(FREED):
            await asyncio.sleep(LATER_S)
            held = self._held.setdefault((owner, name), _Held())
            held.users += 1
            try:
                async with held.lock:  # whoever has it here meanwhile keeps it
                    await others.free_key(owner, name)
                    return
            except StoreUnavailable:
                continue
            finally:
                held.users -= 1
                if not held.users:
                    del self._held[owner, name]


class Holding:
    """A key that is kept: whoever comes with the same one waits."""

    def __init__(
        self,
        onces: Onces,
        held: dict[tuple[UserId, str], _Held],
        owner: UserId,
        key: Key,
        session_id: SessionId | None,
        ids: Collection[str],
    ) -> None:
        self.known: dict[str, int] = {}
        """Those of the ids that the session's log has, with the event that completed each message."""
        self._session_id = session_id
        self._ids = ids
        self._onces = onces
        self._all = held
        self._owner = owner
        self._key = key
        self._kept: Nodes | None = None
        """Where it is kept from other servers too."""

    async def __aenter__(self) -> Once | None:
        held = self._all.setdefault((self._owner, self._key.name), _Held())
        held.users += 1
        try:
            await held.lock.acquire()
        except BaseException:
            self._let_go(held)
            raise
        try:
            held.kept = await self._onces.keep(self._owner, self._key.name)
            self._kept = None if held.kept is None else held.kept[0]
            earlier = await self._find()
            if earlier is not None and earlier.fingerprint != self._key.fingerprint:
                raise KeyReused("this key was used with another request")
        except BaseException:
            await self._release(held)
            raise
        return earlier

    async def _find(self) -> Once | None:
        owner, name = self._owner, self._key.name
        if self._session_id is None:
            return await self._onces.find(owner, name)
        earlier, self.known = await self._onces.find_with(owner, name, self._session_id, self._ids)
        return earlier

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._release(self._all[self._owner, self._key.name])

    async def _release(self, held: _Held) -> None:
        try:
            if self._kept is not None:  # also when whoever asks is being cancelled
                await asyncio.shield(self._onces.free(self._kept, self._owner, self._key.name))
        finally:
            held.lock.release()
            self._let_go(held)

    def _let_go(self, held: _Held) -> None:
        held.users -= 1
        if not held.users:
            del self._all[self._owner, self._key.name]
