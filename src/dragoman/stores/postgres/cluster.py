"""Several servers on one PostgreSQL: leases by the database's clock, claims on sessions, commands between servers.

A lease is renewed on its own thread and connection, so that neither a busy event loop nor a long statement delays the
renewal. The remaining time counts from before the renewing statement, by this machine's monotonic clock. So a server
always considers its lease expired before any other server does, whatever their clocks say.
"""

import threading
import time
import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial

import psycopg
import structlog
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dragoman.core.events import LoggedEvent
from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import SessionUnreadable
from dragoman.core.stream import Cursor, Piece
from dragoman.ports.cluster import Node, PendingCommand, SessionClaim, SessionUpdate
from dragoman.stores.checksums import verified_events
from dragoman.stores.decoding import decode_events
from dragoman.stores.postgres.appends import encode_text
from dragoman.stores.postgres.arrays import Bigints, Texts
from dragoman.stores.postgres.database import Database, connect
from dragoman.stores.postgres.log import Row, decode_piece
from dragoman.stores.postgres.statements import statements
from dragoman.stores.times import from_us

RENEWALS_PER_LEASE = 5
"""How often a lease is renewed within its duration."""
RETRY_DELAY_S = 0.2
"""Pause after a failed renewal."""
CLAIM_RESERVATION_S = 5.0
"""How long a claim on a session at rest keeps other servers from claiming it."""

_SQL = statements("cluster")
_SESSION, _EVENT, _PIECE = 0, 1, 2
"""Kinds of rows that `session_updates` returns."""

log = structlog.get_logger(__name__)


class PostgresCluster:
    """`ClusterStore` over one database.

    Args:
        database: the shared database.
        folder_id: identifies something that only one living server has, such as a locked folder. A server that joins
            with the same id proves that the previous one is dead.
        lease_s: how long a server may be silent before others take over its sessions.
    """

    def __init__(self, database: Database, *, folder_id: str, lease_s: float) -> None:
        self._database = database
        self._folder_id = folder_id
        self._lease_s = lease_s
        self.renewer: LeaseRenewer | None = None
        """Renews the lease; None before `join`."""

    @property
    def node_id(self) -> str:
        """This server's id. It changes with each `join`."""
        return self._database.node_id or ""

    def lease_remaining_s(self) -> float:
        """Seconds for which the lease is certain to be valid. At most 0: other servers may take over."""
        return 0.0 if self.renewer is None else self.renewer.lease_ends_at - time.monotonic()

    @property
    def is_lease_expired(self) -> bool:
        """Whether the lease expired, so that others may have taken over what this server had."""
        return self.renewer is not None and self.renewer.is_lease_expired

    async def join(self) -> int:
        """Take a lease, which is renewed from now on. Returns this server's epoch, later than all before."""
        if self.renewer is not None:
            self.renewer.stop()
        node, begun = uuid.uuid4().hex, time.monotonic()
        values = {"node": node, "home": self._folder_id, "lease": self._lease_s}
        ((epoch,),) = await self._database.write(partial(_rows, "join", values))
        self._database.node_id = node
        self.renewer = LeaseRenewer(self._database.conninfo, node, self._lease_s, begun)
        self.renewer.start()
        return int(epoch)

    async def leave(self) -> None:
        """End the lease: others may take over at once."""
        if self.renewer is not None:
            self.renewer.stop()
            await self._write("leave")

    def publish_seen_epoch(self, epoch: int) -> None:
        """Publish the highest epoch seen, with the next renewal of the lease."""
        if self.renewer is not None:
            self.renewer.publish_seen_epoch(epoch)

    async def other_nodes(self) -> Sequence[Node]:
        """List the other servers."""
        return [
            Node(node_id=node, epoch=epoch, seen_epoch=its_seen, is_alive=is_alive)
            for node, epoch, its_seen, is_alive in await self._read("other_nodes")
        ]

    async def remove_dead_nodes(self) -> None:
        """Remove the entries of servers that died and have nothing left to take over."""
        await self._write("remove_dead_nodes")

    # --- sessions -------------------------------------------------------------------------------------------------

    async def claim_session(self, session_id: SessionId) -> SessionClaim | None:
        """Claim a session that is idle or whose server is dead. None if it does not exist."""
        rows = await self._write("claim_session", session=session_id, reservation=CLAIM_RESERVATION_S)
        if not rows:
            return None
        ((epoch, seq, is_running, created_at),) = rows
        return SessionClaim(epoch=epoch, seq=seq, is_running=is_running, created_at=from_us(created_at))

    async def release_session(self, session_id: SessionId, epoch: int) -> None:
        """Give up a claim without having written."""
        await self._write("release_session", session=session_id, epoch=epoch)

    async def abandon_session(self, session_id: SessionId, epoch: int) -> None:
        """Give up a claim on a session with a run, so that a server that serves its agent can take it over."""
        await self._write("abandon_session", session=session_id, epoch=epoch)

    async def claim_abandoned(self, limit: int, agents: Collection[str]) -> Sequence[SessionId]:
        """Claim some of the sessions of these agents whose runs' servers are dead."""
        rows = await self._write("claim_abandoned", limit=limit, agents=Texts(agents))
        return [SessionId(row[0]) for row in rows]

    async def count_abandoned(self) -> int:
        """Count the sessions whose runs' servers are dead."""
        ((count,),) = await self._read("count_abandoned")
        return int(count)

    async def count_runs_on_other_servers(self, owner: UserId) -> int:
        """Count the owner's sessions with a run that this server does not have."""
        ((count,),) = await self._read("count_runs_on_other_servers", owner=owner)
        return int(count)

    async def session_updates(self, positions: Sequence[tuple[SessionId, Cursor]]) -> Sequence[SessionUpdate]:
        """Return what follows those positions. A session that is missing from the result no longer exists."""
        rows = await self._read(
            "session_updates",
            session=Texts(session_id for session_id, _ in positions),
            seq=Bigints(cursor.seq for _, cursor in positions),
            pieces=Bigints(cursor.pieces for _, cursor in positions),
        )
        parts: dict[tuple[int, str], list[Row]] = {}
        for row in rows:
            parts.setdefault((row[0], row[1]), []).append(row)
        return [
            _decode_update(row, parts.get((_EVENT, row[1]), ()), parts.get((_PIECE, row[1]), ()))
            for row in rows
            if row[0] == _SESSION
        ]

    # --- commands -------------------------------------------------------------------------------------------------

    async def send_command(self, request_id: str, session_id: SessionId, body: bytes) -> str | None:
        """Send a command to the server that runs a session."""
        rows = await self._write("send_command", request=request_id, session=session_id, body=body.decode())
        return str(rows[0][0]) if rows else None

    async def pending_commands(self) -> Sequence[PendingCommand]:
        """List the commands to this server that have no reply yet."""
        return [
            PendingCommand(request_id=request_id, session_id=session_id, body=body.encode())
            for request_id, session_id, body in await self._read("pending_commands")
        ]

    async def store_reply(self, request_id: str, answer: bytes) -> None:
        """Reply to a command."""
        await self._write("store_reply", request=request_id, answer=answer.decode())

    async def find_reply(self, request_id: str) -> tuple[bytes | None, bool]:
        """Return the reply, if there is one, and whether there may still be one."""
        rows = await self._read("find_reply", request=request_id)
        if not rows:
            return None, False
        answer, is_alive = rows[0]
        return None if answer is None else answer.encode(), is_alive

    async def discard_command(self, request_id: str) -> None:
        """Remove a command and its reply."""
        await self._write("discard_command", request=request_id)

    # --- idempotency keys and schedules ---------------------------------------------------------------------------

    async def lock_idempotency_key(self, owner: UserId, key: str) -> bool:
        """Lock a key for at most 30 seconds."""
        return bool(await self._write("lock_idempotency_key", owner=owner, key=encode_text(key)))

    async def unlock_idempotency_key(self, owner: UserId, key: str) -> None:
        """Unlock a key."""
        await self._write("unlock_idempotency_key", owner=owner, key=encode_text(key))

    async def claim_abandoned_fires(self) -> Collection[str]:
        """Claim the running fires whose servers are dead. Returns their ids."""
        return {row[0] for row in await self._write("claim_abandoned_fires")}

    async def schedules_version(self) -> int:
        """Return a number that changes whenever any server changes a schedule."""
        ((count,),) = await self._read("schedules_version")
        return int(count)

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _read(self, statement: str, **values: object) -> list[Row]:
        return await self._database.read(partial(_rows, statement, {**values, "node": self.node_id}))

    async def _write(self, statement: str, **values: object) -> list[Row]:
        return await self._database.write(partial(_rows, statement, {**values, "node": self.node_id}))


class LeaseRenewer:
    """Renews one lease until it is stopped or the lease has expired."""

    def __init__(self, conninfo: str, node_id: str, lease_s: float, started_at: float) -> None:
        self.lease_ends_at = started_at + lease_s
        """When the lease ends by this machine's monotonic clock; never later than by the database's clock."""
        self.is_lease_expired = False
        patience_s = max(1, int(lease_s / 3))
        quick = {"connect_timeout": str(patience_s), "tcp_user_timeout": str(patience_s * 1000)}
        self._conninfo = make_conninfo("", **{**conninfo_to_dict(conninfo), **quick})
        self._node_id = node_id
        self._lease_s = lease_s
        self._seen_epoch = 0
        self._wake_event = threading.Event()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._renew_until_stopped, name="dragoman-lease", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def publish_seen_epoch(self, epoch: int) -> None:
        """Publish the highest epoch seen, with a renewal that follows at once."""
        if epoch != self._seen_epoch:
            self._seen_epoch = epoch
            self._wake_event.set()

    def stop(self) -> None:
        """Stop renewing; the thread ends by itself."""
        self._is_stopped = True
        self._wake_event.set()

    def _renew_until_stopped(self) -> None:
        connection: Connection | None = None
        pause_s = self._lease_s / RENEWALS_PER_LEASE
        while True:
            self._wake_event.wait(pause_s)
            self._wake_event.clear()
            if self._is_stopped or self.is_lease_expired:
                break
            begun = time.monotonic()
            try:
                if connection is None:
                    connection = connect(self._conninfo)
                values = {"node": self._node_id, "lease": self._lease_s, "seen": self._seen_epoch}
                if _rows("renew", values, connection):
                    self.lease_ends_at = begun + self._lease_s
                    pause_s = self._lease_s / RENEWALS_PER_LEASE
                else:
                    log.warning("the lease ended before it was renewed", node=self._node_id)
                    self.is_lease_expired = True
            except psycopg.Error as error:
                log.warning("the lease could not be renewed", node=self._node_id, cause=repr(error))
                pause_s = RETRY_DELAY_S
                if connection is not None:
                    with suppress(psycopg.Error):
                        connection.close()
                    connection = None
        if connection is not None:
            connection.close()


def _decode_update(session: Row, events: Sequence[Row], pieces: Sequence[Row]) -> SessionUpdate:
    _, session_id, seq, created_at, node_id, _, is_running, _, _, known_seq = session
    unreadable: SessionUnreadable | None = None
    decoded: list[LoggedEvent] = []
    decoded_pieces: list[Piece] = []
    try:
        stored = ((*row[2:5], *row[8:10]) for row in events)
        decoded = decode_events(session_id, verified_events(session_id, stored, known_seq + 1, seq - known_seq))
        decoded_pieces = [decode_piece(session_id, row[2:]) for row in pieces]
    except SessionUnreadable as error:  # other sessions are not affected
        decoded, unreadable = [], error
    return SessionUpdate(
        session_id=session_id,
        created_at=from_us(created_at),
        seq=seq,
        node_id=node_id,
        is_running=bool(is_running),
        events=decoded,
        pieces=decoded_pieces,
        unreadable=unreadable,
    )


def _rows(statement: str, values: dict[str, object], connection: Connection) -> list[Row]:
    cursor = connection.execute(_SQL[statement], values, binary=True)
    return cursor.fetchall() if cursor.description is not None else []
