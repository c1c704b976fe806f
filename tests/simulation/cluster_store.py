"""Several servers on one store: leases, claims and requests in the fewest words, and a bus that cannot be relied on.

What the store does happens in one moment, by the store's clock. What a server knows of it came over its line.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from dragoman.buses.local import LocalBus
from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import StoreUnavailable
from dragoman.core.stream import Cursor
from dragoman.ports.cluster import Node, PendingCommand, SessionClaim, SessionUpdate
from dragoman.ports.log import Append
from tests.simulation.store_connection import StoreConnection
from tests.simulation.virtual_loop import Machine, VirtualLoop, world_context
from tests.stores.simulated import SimulatedLog

LEASE_S = 10.0
RESERVATION_S = 5.0
RENEW_INTERVAL_S = 0.2


@dataclass
class _Node:
    home: str
    epoch: int
    until: float
    epochs: int = 0


@dataclass
class _Request:
    node: str
    session_id: SessionId
    body: bytes
    answer: bytes | None = None


class SharedLog(SimulatedLog):
    """The log with what several servers need beside it. Nothing in it waits."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self._count = 0
        self._nodes: dict[str, _Node] = {}
        self._owners: dict[SessionId, str] = {}
        self._reserved_keys: dict[SessionId, float] = {}
        self._requests: dict[str, _Request] = {}
        self._keys: dict[tuple[UserId, str], str] = {}
        self.writers: dict[tuple[SessionId, int], str] = {}
        """Who wrote with an epoch."""

    async def commit(self, batch: Sequence[Append], node: str = "", machine: str = "") -> Sequence[bool]:
        taken = await super().commit(batch)
        for append, was_taken in zip(batch, taken, strict=True):
            if was_taken:
                writer = self.writers.setdefault((append.session_id, append.epoch), machine)
                assert writer == machine, f"{writer} and {machine} wrote with epoch {append.epoch}"
            if was_taken and (append.events or append.closed_blocks or append.head is not None):
                self._owners[append.session_id] = node
                self._reserved_keys.pop(append.session_id, None)
        return taken

    async def delete(self, session_id: SessionId, agents: Sequence[str] = ()) -> None:
        await super().delete(session_id, agents)
        self._owners.pop(session_id, None)
        self._reserved_keys.pop(session_id, None)

    def orphans(self) -> list[SessionId]:
        """Sessions with a run that no living server has."""
        return [each for each, session in self._sessions.items() if session.is_running and not self._has_owner(each)]

    def _has_owner(self, session_id: SessionId) -> bool:
        return self._owners.get(session_id) in self._living()

    def _living(self) -> set[str]:
        return {name for name, node in self._nodes.items() if node.until > self._now()}

    async def node_join(self, home: str) -> tuple[str, int]:
        for node in self._nodes.values():
            if node.home == home:
                node.until = -1.0
        self._count += 1
        name = f"node-{self._count}"
        self._nodes[name] = _Node(home, await self.claim_epoch(), self._now() + LEASE_S)
        return name, self._nodes[name].epoch

    async def node_renew(self, name: str, epochs: int) -> bool:
        node = self._nodes.get(name)
        if node is None or node.until <= self._now():
            return False
        node.until, node.epochs = self._now() + LEASE_S, epochs
        return True

    async def node_leave(self, name: str) -> None:
        if name in self._nodes:
            self._nodes[name].until = -1.0

    async def node_other_nodes(self, name: str) -> list[Node]:
        living = self._living()
        return [
            Node(node_id=each, epoch=node.epoch, seen_epoch=node.epochs, is_alive=each in living)
            for each, node in self._nodes.items()
            if each != name
        ]

    async def node_remove_dead_nodes(self) -> None:
        living = self._living()
        owning = {self._owners.get(each) for each, session in self._sessions.items() if session.is_running}
        for name in [each for each in self._nodes if each not in living and each not in owning]:
            del self._nodes[name]
            self._keys = {key: node for key, node in self._keys.items() if node != name}

    async def node_claim_session(self, name: str, session_id: SessionId) -> SessionClaim | None:
        session = self._sessions.get(session_id)
        if session is None:
            return None
        is_held = self._reserved_keys.get(session_id, -1.0) >= self._now()
        is_free = self._owners.get(session_id) == name or not self._has_owner(session_id)
        epoch = None
        if is_free or (not session.is_running and not is_held):
            epoch = session.epoch = await self.claim_epoch()
            self._owners[session_id], self._reserved_keys[session_id] = name, self._now() + RESERVATION_S
        created_at = session.rows[0].at
        return SessionClaim(epoch=epoch, created_at=created_at, seq=len(session.rows), is_running=session.is_running)

    async def node_release_session(self, name: str, session_id: SessionId, epoch: int) -> None:
        session = self._sessions.get(session_id)
        if session is not None and self._owners.get(session_id) == name and session.epoch == epoch:
            self._reserved_keys.pop(session_id, None)

    async def node_abandon_session(self, name: str, session_id: SessionId, epoch: int) -> None:
        if self._owners.get(session_id) == name and self._sessions[session_id].epoch == epoch:
            del self._owners[session_id]
            self._reserved_keys.pop(session_id, None)

    async def node_count_abandoned(self, name: str) -> int:
        return len(self.orphans())

    async def node_count_runs_on_other_servers(self, name: str, owner: UserId) -> int:
        running = (each for each, session in self._sessions.items() if session.is_running and session.owner == owner)
        return sum(self._owners.get(each) != name for each in running)

    async def node_claim_abandoned(self, name: str, limit: int, agents: Collection[str]) -> list[SessionId]:
        node = self._nodes.get(name)
        if node is None or node.until <= self._now():
            return []  # it has to join again
        found = self.orphans()[:limit]
        for session_id in found:
            self._sessions[session_id].epoch = await self.claim_epoch()
            self._owners[session_id] = name
            self._reserved_keys.pop(session_id, None)
        return found

    async def node_session_updates(self, positions: Sequence[tuple[SessionId, Cursor]]) -> list[SessionUpdate]:
        return [
            SessionUpdate(
                session_id=session_id,
                created_at=session.rows[0].at,
                node_id=self._owners.get(session_id),
                is_running=session.is_running,
                seq=len(session.rows),
                events=[row.logged() for row in session.rows[cursor.seq :]],
                pieces=[each for each in session.pieces if (each.after, each.place) > (cursor.seq, cursor.pieces)],
            )
            for session_id, cursor in positions
            if (session := self._sessions.get(session_id)) is not None
        ]

    async def node_send_command(self, request_id: str, session_id: SessionId, body: bytes) -> str | None:
        session = self._sessions.get(session_id)
        if session is None or not session.is_running or not self._has_owner(session_id):
            return None
        node = self._owners[session_id]
        self._requests[request_id] = _Request(node, session_id, body)
        return node

    async def node_pending_commands(self, name: str) -> list[PendingCommand]:
        return [
            PendingCommand(request_id=each, session_id=request.session_id, body=request.body)
            for each, request in self._requests.items()
            if request.node == name and request.answer is None
        ]

    async def node_store_reply(self, request_id: str, answer: bytes) -> None:
        request = self._requests.get(request_id)
        if request is not None and request.answer is None:
            request.answer = answer

    async def node_find_reply(self, request_id: str) -> tuple[bytes | None, bool]:
        request = self._requests.get(request_id)
        return (None, False) if request is None else (request.answer, request.node in self._living())

    async def node_discard_command(self, request_id: str) -> None:
        self._requests.pop(request_id, None)

    async def node_lock_idempotency_key(self, name: str, owner: UserId, key: str) -> bool:
        if name not in self._living():
            return False
        holder = self._keys.get((owner, key))
        if holder is not None and holder != name and holder in self._living():
            return False
        self._keys[owner, key] = name
        return True

    async def node_unlock_idempotency_key(self, name: str, owner: UserId, key: str) -> None:
        if self._keys.get((owner, key)) == name:
            del self._keys[owner, key]


class SimulatedClusterStore:
    """`Nodes` as one machine has it."""

    def __init__(self, line: StoreConnection, home: str) -> None:
        self._store_connection = line
        self._home = home
        self._name = ""
        self._lease_until = 0.0
        self._epochs = 0
        self._has_lapsed = False
        self._wanted = asyncio.Event()
        self._renewing: asyncio.Task[None] | None = None

    @property
    def node_id(self) -> str:
        return self._name

    def lease_remaining_s(self) -> float:
        return self._lease_until - asyncio.get_running_loop().time()

    @property
    def is_lease_expired(self) -> bool:
        return self._has_lapsed

    async def join(self) -> int:
        if self._renewing is not None:
            self._renewing.cancel()
        begun = asyncio.get_running_loop().time()
        name, epoch = await self._call("node_join", self._home)
        self._name = self._store_connection.node = name
        self._lease_until, self._has_lapsed = begun + LEASE_S, False
        self._renewing = asyncio.create_task(self._renew(), name="renewal")
        assert isinstance(epoch, int)
        return epoch

    async def _renew(self) -> None:
        loop, pause_s = asyncio.get_running_loop(), LEASE_S / 5
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wanted.wait()
            self._wanted.clear()
            begun = loop.time()
            try:
                is_renewed = await self._call("node_renew", self._name, self._epochs)
            except StoreUnavailable:
                pause_s = RENEW_INTERVAL_S
                continue
            if not is_renewed:
                self._has_lapsed = True
                return
            self._lease_until, pause_s = begun + LEASE_S, LEASE_S / 5

    async def leave(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await self._call("node_leave", self._name)

    async def other_nodes(self) -> Sequence[Node]:
        return await self._call("node_other_nodes", self._name)  # type: ignore[no-any-return]  # a line carries anything

    def publish_seen_epoch(self, epoch: int) -> None:
        if epoch != self._epochs:
            self._epochs = epoch
            self._wanted.set()

    async def remove_dead_nodes(self) -> None:
        await self._call("node_remove_dead_nodes")

    async def claim_session(self, session_id: SessionId) -> SessionClaim | None:
        return await self._call("node_claim_session", self._name, session_id)  # type: ignore[no-any-return]  # as above

    async def release_session(self, session_id: SessionId, epoch: int) -> None:
        await self._call("node_release_session", self._name, session_id, epoch)

    async def abandon_session(self, session_id: SessionId, epoch: int) -> None:
        await self._call("node_abandon_session", self._name, session_id, epoch)

    async def count_abandoned(self) -> int:
        return await self._call("node_count_abandoned", self._name)  # type: ignore[no-any-return]  # as above

    async def count_runs_on_other_servers(self, owner: UserId) -> int:
        return await self._call("node_count_runs_on_other_servers", self._name, owner)  # type: ignore[no-any-return]  # as above

    async def claim_abandoned(self, limit: int, agents: Collection[str]) -> Sequence[SessionId]:
        return await self._call("node_claim_abandoned", self._name, limit, agents)  # type: ignore[no-any-return]  # as above

    async def session_updates(self, positions: Sequence[tuple[SessionId, Cursor]]) -> Sequence[SessionUpdate]:
        return await self._call("node_session_updates", list(positions))  # type: ignore[no-any-return]  # as above

    async def send_command(self, request_id: str, session_id: SessionId, body: bytes) -> str | None:
        return await self._call("node_send_command", request_id, session_id, body)  # type: ignore[no-any-return]  # as above

    async def pending_commands(self) -> Sequence[PendingCommand]:
        return await self._call("node_pending_commands", self._name)  # type: ignore[no-any-return]  # as above

    async def store_reply(self, request_id: str, answer: bytes) -> None:
        await self._call("node_store_reply", request_id, answer)

    async def find_reply(self, request_id: str) -> tuple[bytes | None, bool]:
        return await self._call("node_find_reply", request_id)  # type: ignore[no-any-return]  # as above

    async def discard_command(self, request_id: str) -> None:
        await self._call("node_discard_command", request_id)

    async def lock_idempotency_key(self, owner: UserId, key: str) -> bool:
        return await self._call("node_lock_idempotency_key", self._name, owner, key)  # type: ignore[no-any-return]  # as above

    async def unlock_idempotency_key(self, owner: UserId, key: str) -> None:
        await self._call("node_unlock_idempotency_key", self._name, owner, key)

    async def claim_abandoned_fires(self) -> Collection[str]:
        return ()

    async def schedules_version(self) -> int:
        return 0

    async def _call(self, name: str, *given: Any) -> Any:
        return await getattr(self._store_connection, name)(*given)


class NetworkSwitch:
    """Delivers hints between machines: late, in any order, twice, or not at all."""

    def __init__(self, loop: VirtualLoop, chance: Random) -> None:
        self.is_unavailable = False
        self.buses: list[SimulatedBus] = []
        self._loop = loop
        self._chance = chance
        self._context = world_context()

    def deliver(self, sender: "SimulatedBus", subject: str, payload: str) -> None:
        """Deliver a hint to all other servers, or lose it."""
        for bus in self.buses:
            if bus is sender or self.is_unavailable:
                continue
            for _ in range(self._chance.choice((0, 1, 1, 1, 1, 2))):
                delay_s = self._chance.choice((0.0, 0.001, 0.005, 0.2))
                self._loop.call_later(delay_s, bus.arrive, subject, payload, context=self._context)


class SimulatedBus:
    """`Bus` as one machine has it."""

    deltas_group: str | None = "all"

    def __init__(self, machine: Machine, switch: NetworkSwitch) -> None:
        self._machine = machine
        self._switch = switch
        self._subscribers = LocalBus()
        switch.buses.append(self)

    def publish(self, subject: str, payload: str) -> None:
        self._subscribers.publish(subject, payload)
        if not self._machine.is_dead:
            self._switch.deliver(self, subject, payload)

    def subscribe(self, subject: str, handler: Callable[[str], None]) -> Callable[[], None]:
        return self._subscribers.subscribe(subject, handler)

    def arrive(self, subject: str, payload: str) -> None:
        """A hint is there; the machine takes it when it runs."""
        self._machine.soon(self._subscribers.publish, subject, payload)
