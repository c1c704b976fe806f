"""Several servers on one store: which of them are alive, which one writes which session, and requests between them."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from dragoman.core.events import LoggedEvent
from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import SessionUnreadable
from dragoman.core.stream import Cursor, Piece


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """Another server on the same store. `seen_epoch` is the highest epoch of a new server that it has seen."""

    node_id: str
    epoch: int
    seen_epoch: int
    is_alive: bool


class SessionClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a claim on a session. `epoch` is the claim's epoch; None: another server has the session."""

    epoch: int | None
    created_at: datetime
    seq: int
    is_running: bool


class SessionUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What follows a position in a session's log, and which server wrote last.

    `created_at` tells the session from a deleted one of the same id. `unreadable` is set, and there are no events, if
    what follows cannot be decoded.
    """

    session_id: SessionId
    created_at: datetime
    node_id: str | None
    is_running: bool
    seq: int
    events: Sequence[LoggedEvent]
    pieces: Sequence[Piece]
    unreadable: SessionUnreadable | None = None


class PendingCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command from another server that has no reply yet."""

    request_id: str
    session_id: SessionId
    body: bytes


class NodeIdentity(Protocol):
    """This server's name in the cluster."""

    @property
    def node_id(self) -> str:
        """This server's id. It changes with each `join`."""


class ServerLease(NodeIdentity, Protocol):
    """This server's lease, without which other servers may take its sessions."""

    def lease_remaining_s(self) -> float:
        """Seconds for which the lease is certain to be valid; at most 0 once others may take over. Thread-safe."""

    @property
    def is_lease_expired(self) -> bool:
        """Whether the lease expired, so that others may have taken over what this server had. `join` renews it."""

    async def join(self) -> int:
        """Take a lease, which is renewed from now on. Returns this server's epoch, later than all before."""

    async def leave(self) -> None:
        """End the lease: others may take over at once."""


class ClusterMembers(Protocol):
    """The other servers."""

    async def other_nodes(self) -> Sequence[Node]:
        """List the other servers."""

    def publish_seen_epoch(self, epoch: int) -> None:
        """Publish the highest epoch seen, with the next renewal of the lease."""

    async def remove_dead_nodes(self) -> None:
        """Remove the entries of servers that died and have nothing left to take over."""


class SessionClaims(Protocol):
    """Which server may write to a session.

    A session with a run belongs to one server for as long as that server lives. One at rest may be claimed by any.
    """

    async def claim_session(self, session_id: SessionId) -> SessionClaim | None:
        """Claim a session that is at rest or whose server is dead. None: there is no such session.

        Other servers cannot claim a session at rest for a few seconds, in which the claimant can write to it.
        """

    async def release_session(self, session_id: SessionId, epoch: int) -> None:
        """Give up a claim without having written."""

    async def abandon_session(self, session_id: SessionId, epoch: int) -> None:
        """Give up a claim on a session with a run, so that a server that serves its agent can take it over."""

    async def claim_abandoned(self, limit: int, agents: Collection[str]) -> Sequence[SessionId]:
        """Claim some of the sessions of these agents whose runs' servers are dead."""

    async def count_abandoned(self) -> int:
        """Count the sessions whose runs' servers are dead."""

    async def count_runs_on_other_servers(self, owner: UserId) -> int:
        """Count the owner's sessions with a run that this server does not have."""


class SessionFeed(NodeIdentity, Protocol):
    """What any server writes to sessions."""

    async def session_updates(self, positions: Sequence[tuple[SessionId, Cursor]]) -> Sequence[SessionUpdate]:
        """Return what follows those positions. A session that is missing from the result no longer exists."""


class CommandQueue(NodeIdentity, Protocol):
    """Commands from one server to another."""

    async def send_command(self, request_id: str, session_id: SessionId, body: bytes) -> str | None:
        """Send a command to the server that runs a session. Returns the server's id; None: no living one runs it."""

    async def pending_commands(self) -> Sequence[PendingCommand]:
        """List the commands to this server that have no reply yet."""

    async def store_reply(self, request_id: str, answer: bytes) -> None:
        """Reply to a command."""

    async def find_reply(self, request_id: str) -> tuple[bytes | None, bool]:
        """Return the reply, if there is one, and whether there may still be one."""

    async def discard_command(self, request_id: str) -> None:
        """Remove a command and its reply."""


class IdempotencyLocks(Protocol):
    """Locks on idempotency keys, so that two servers do not process the same request at once."""

    async def lock_idempotency_key(self, owner: UserId, key: str) -> bool:
        """Lock a key for at most 30 seconds.

        Returns False if another server has the lock or this server's lease has expired.
        """

    async def unlock_idempotency_key(self, owner: UserId, key: str) -> None:
        """Unlock a key."""


class ScheduleClaims(Protocol):
    """What servers must know about schedules that others change or run."""

    async def claim_abandoned_fires(self) -> Collection[str]:
        """Claim the running fires whose servers are dead. Returns their ids."""

    async def schedules_version(self) -> int:
        """Return a number that changes whenever any server changes a schedule."""


class ClusterStore(
    ServerLease, ClusterMembers, SessionClaims, SessionFeed, CommandQueue, IdempotencyLocks, ScheduleClaims, Protocol
):
    """A store's whole interface for several servers. Depend on the part that you use.

    All methods that wait raise `StoreUnavailable` if the store cannot do its work now.
    """
