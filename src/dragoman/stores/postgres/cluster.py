"""The servers on one database, in PostgreSQL: leases by its clock, claims on sessions, requests between servers.

A lease is renewed on a thread with a connection of its own, so that neither a busy loop nor a long statement keeps it
from that. What is left of it is counted from before the statement that renewed it, by this machine's monotonic clock:
whatever the clocks of two machines say, a server knows the end of its lease before another one can.
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

from dragoman.core.ids import SessionId, UserId
from dragoman.core.stream import Cursor
from dragoman.ports import Asked, Claimed, News, Node
from dragoman.stores.postgres.appends import raw
from dragoman.stores.postgres.arrays import Bigints, Texts
from dragoman.stores.postgres.database import Database, connected
from dragoman.stores.postgres.log import Row, logged_of, piece_of
from dragoman.stores.postgres.statements import statements
from dragoman.stores.times import from_us

RENEWALS = 5
"""How often a lease is renewed in its time."""
AGAIN_S = 0.2
"""After which time a renewal that failed is tried again."""
HOLD_S = 5.0
"""How long a session at rest is kept from others for whoever claimed it."""

_SQL = statements("cluster")
_SESSION, _EVENT, _PIECE = 0, 1, 2
"""Parts of what `news` reads."""

log = structlog.get_logger(__name__)


class PostgresNodes:
    """`Nodes` over one database."""

    def __init__(self, database: Database, *, home: str, lease_s: float) -> None:
        """Args:
        database: where all of them are.
        home: what only one living server has, such as the lock of a folder; who comes after it knows that it is dead.
        lease_s: how long a server may be silent before others take what it had.
        """
        self._database = database
        self._home = home
        self._lease_s = lease_s
        self._renewal: Renewal | None = None

    @property
    def node(self) -> str:
        """See `Nodes.node`."""
        return self._database.node or ""

    def left_s(self) -> float:
        """See `Nodes.left_s`."""
        return 0.0 if self._renewal is None else self._renewal.ends - time.monotonic()

    @property
    def has_lapsed(self) -> bool:
        """See `Nodes.has_lapsed`."""
        return self._renewal is not None and self._renewal.has_lapsed

    async def join(self) -> int:
        """See `Nodes.join`."""
        if self._renewal is not None:
            self._renewal.stop()
        node, begun = uuid.uuid4().hex, time.monotonic()
        values = {"node": node, "home": self._home, "lease": self._lease_s}
        ((epoch,),) = await self._database.write(partial(_rows, "join", values))
        self._database.node = node
        self._renewal = Renewal(self._database.conninfo, node, self._lease_s, begun)
        self._renewal.start()
        return int(epoch)

    async def leave(self) -> None:
        """See `Nodes.leave`."""
        if self._renewal is not None:
            self._renewal.stop()
            await self._write("leave")

    def see(self, seen: int) -> None:
        """See `Nodes.see`."""
        if self._renewal is not None:
            self._renewal.see(seen)

    async def others(self) -> Sequence[Node]:
        """See `Nodes.others`."""
        return [
            Node(node=node, epoch=epoch, seen=its_seen, is_alive=is_alive)
            for node, epoch, its_seen, is_alive in await self._read("others")
        ]

    async def forget_dead(self) -> None:
        """See `Nodes.forget_dead`."""
        await self._write("forget_dead")

    # --- sessions -------------------------------------------------------------------------------------------------

    async def claim(self, session_id: SessionId) -> Claimed | None:
        """See `Nodes.claim`."""
        rows = await self._write("claim", session=session_id, hold=HOLD_S)
        if not rows:
            return None
        ((epoch, seq, is_running, created_at),) = rows
        return Claimed(epoch=epoch, seq=seq, is_running=is_running, created_at=from_us(created_at))

    async def release(self, session_id: SessionId, epoch: int) -> None:
        """See `Nodes.release`."""
        await self._write("release", session=session_id, epoch=epoch)

    async def take_abandoned(self, limit: int) -> Sequence[SessionId]:
        """See `Nodes.take_abandoned`."""
        return [SessionId(row[0]) for row in await self._write("take_abandoned", limit=limit)]

    async def news(self, positions: Sequence[tuple[SessionId, Cursor]]) -> Sequence[News]:
        """See `Nodes.news`."""
        rows = await self._read(
            "news",
            session=Texts(session_id for session_id, _ in positions),
            seq=Bigints(cursor.seq for _, cursor in positions),
            pieces=Bigints(cursor.pieces for _, cursor in positions),
        )
        parts: dict[tuple[int, str], list[Row]] = {}
        for row in rows:
            parts.setdefault((row[0], row[1]), []).append(row)
        return [
            News(
                session_id=SessionId(row[1]),
                created_at=from_us(row[3]),
                seq=row[2],
                node=row[4],
                is_running=bool(row[6]),
                events=logged_of(each[2:6] for each in parts.get((_EVENT, row[1]), ())),
                pieces=[piece_of(each[1:]) for each in parts.get((_PIECE, row[1]), ())],
            )
            for row in rows
            if row[0] == _SESSION
        ]

    # --- requests -------------------------------------------------------------------------------------------------

    async def ask(self, request_id: str, session_id: SessionId, body: bytes) -> str | None:
        """See `Nodes.ask`."""
        rows = await self._write("ask", request=request_id, session=session_id, body=body.decode())
        return str(rows[0][0]) if rows else None

    async def asked(self) -> Sequence[Asked]:
        """See `Nodes.asked`."""
        return [
            Asked(request_id=request_id, session_id=session_id, body=body.encode())
            for request_id, session_id, body in await self._read("asked")
        ]

    async def answer(self, request_id: str, answer: bytes) -> None:
        """See `Nodes.answer`."""
        await self._write("answer", request=request_id, answer=answer.decode())

    async def answered(self, request_id: str) -> tuple[bytes | None, bool]:
        """See `Nodes.answered`."""
        rows = await self._read("answered", request=request_id)
        if not rows:
            return None, False
        answer, is_alive = rows[0]
        return None if answer is None else answer.encode(), is_alive

    async def unask(self, request_id: str) -> None:
        """See `Nodes.unask`."""
        await self._write("unask", request=request_id)

    # --- what is done once ----------------------------------------------------------------------------------------

    async def hold_key(self, owner: UserId, key: str) -> bool:
        """See `Nodes.hold_key`."""
        return bool(await self._write("hold_key", owner=owner, key=raw(key)))

    async def free_key(self, owner: UserId, key: str) -> None:
        """See `Nodes.free_key`."""
        await self._write("free_key", owner=owner, key=raw(key))

    async def take_fires(self) -> Collection[str]:
        """See `Nodes.take_fires`."""
        return {row[0] for row in await self._write("take_fires")}

    async def schedules(self) -> int:
        """See `Nodes.schedules`."""
        ((count,),) = await self._read("schedules")
        return int(count)

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _read(self, statement: str, **values: object) -> list[Row]:
        return await self._database.read(partial(_rows, statement, {**values, "node": self.node}))

    async def _write(self, statement: str, **values: object) -> list[Row]:
        return await self._database.write(partial(_rows, statement, {**values, "node": self.node}))


class Renewal:
    """Keeps one lease, until it is stopped or came too late."""

    def __init__(self, conninfo: str, node: str, lease_s: float, begun: float) -> None:
        self.ends = begun + lease_s
        """When the lease ends, by the monotonic clock of this machine; not later than by the database's."""
        self.has_lapsed = False
        patience_s = max(1, int(lease_s / 3))
        quick = {"connect_timeout": str(patience_s), "tcp_user_timeout": str(patience_s * 1000)}
        self._conninfo = make_conninfo("", **{**conninfo_to_dict(conninfo), **quick})
        self._node = node
        self._lease_s = lease_s
        self._seen = 0
        self._wanted = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._work, name="dragoman-lease", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def see(self, seen: int) -> None:
        """Tell the others of the newest epoch that is known here."""
        if seen != self._seen:
            self._seen = seen
            self._wanted.set()

    def stop(self) -> None:
        """Renew no more; the thread goes by itself."""
        self._is_over = True
        self._wanted.set()

    def _work(self) -> None:
        connection: Connection | None = None
        pause_s = self._lease_s / RENEWALS
        while True:
            self._wanted.wait(pause_s)
            self._wanted.clear()
            if self._is_over or self.has_lapsed:
                break
            begun = time.monotonic()
            try:
                if connection is None:
                    connection = connected(self._conninfo)
                values = {"node": self._node, "lease": self._lease_s, "seen": self._seen}
                if _rows("renew", values, connection):
                    self.ends = begun + self._lease_s
                    pause_s = self._lease_s / RENEWALS
                else:
                    log.warning("the lease ended before it was renewed", node=self._node)
                    self.has_lapsed = True
            except psycopg.Error as error:
                log.warning("the lease could not be renewed", node=self._node, cause=repr(error))
                pause_s = AGAIN_S
                if connection is not None:
                    with suppress(psycopg.Error):
                        connection.close()
                    connection = None
        if connection is not None:
            connection.close()


def _rows(statement: str, values: dict[str, object], connection: Connection) -> list[Row]:
    cursor = connection.execute(_SQL[statement], values, binary=True)
    return cursor.fetchall() if cursor.description is not None else []
