"""The sessions' logs and what can be looked up across sessions."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from dragoman.core.events import LoggedEvent
from dragoman.core.ids import CallId, MessageId, RunId, SessionId, UserId
from dragoman.core.session import Head, SessionState
from dragoman.core.stream import Piece

IDEMPOTENCY_RETENTION = timedelta(hours=72)
"""How long idempotency records are kept, except those that last as long as their session. Clients are promised 24
hours; the rest is for servers whose clocks differ by up to two days."""


class IdempotencyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a request with an idempotency key did. It is stored in the transaction that did it.

    A record is kept for at least 24 hours or, if it `lasts`, for as long as the session. `fingerprint` is a digest of
    the request. The result itself is rebuilt from the session and the run.
    """

    owner: UserId
    key: str
    fingerprint: str
    session_id: SessionId
    run_id: RunId | None
    at: datetime
    lasts: bool = False


class Append(msgspec.Struct, kw_only=True, gc=False):
    """One session's part of a commit. All of it becomes durable, or nothing.

    Args:
        after: the log's last event as the writer knows it; if the log has moved on, the append is refused.
        epoch: the writer's claim on the session; if a later claim has written, the append is refused.
        events: the next events, `after + 1` and following.
        payloads: the events as JSON, as they are to be stored.
        pieces: new pieces of blocks that stay open.
        closed_blocks: blocks that `events` close; their pieces are removed because the event holds their text.
        head: the state after `events` when the session is at rest; None while a run is active.
        is_new: the append creates the session; it is refused if the id exists.
        name: the client's own name for a new session.
        idempotency_records: records to store with the events.
        kept: values to keep with the session, by key; None removes one. There may be no events with them.
    """

    session_id: SessionId
    owner: UserId
    epoch: int
    after: int
    events: list[LoggedEvent]
    payloads: list[bytes]
    pieces: list[Piece] = []
    closed_blocks: list[tuple[MessageId, int]] = []
    head: Head | None = None
    is_new: bool = False
    name: str | None = None
    idempotency_records: Sequence[IdempotencyRecord] = ()
    kept: Mapping[str, bytes | None] = {}


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is stored: its state when it was last at rest, later events, and the pieces of open blocks.

    There are later events and pieces only if a server died during a run.
    """

    head: SessionState
    events: Sequence[LoggedEvent]
    pieces: Sequence[Piece]


class RunLocation(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run begins in its session's log: at its start or, while it is queued, where it was queued."""

    run_id: RunId
    session_id: SessionId
    owner: UserId
    first_seq: int


class EventLog(Protocol):
    """The sessions' logs. Reads return only what is durable.

    All methods raise `StoreUnavailable` if the store cannot do its work now. Those that read a session raise
    `SessionUnreadable` if its stored data cannot be decoded.
    """

    async def claim_epoch(self) -> int:
        """Return a new epoch, greater than all before."""

    async def commit(self, batch: Sequence[Append]) -> Sequence[bool]:
        """Write all appends of a batch durably in one transaction. Returns for each whether it was accepted."""

    async def load(self, session_id: SessionId) -> Snapshot | None:
        """Load a session, or return None if there is none of that id."""

    async def events(self, session_id: SessionId, after: int, limit: int) -> Sequence[LoggedEvent]:
        """Return the first `limit` events that follow event `after`, oldest first."""

    async def events_before(self, session_id: SessionId, before: int, limit: int) -> Sequence[LoggedEvent]:
        """Return the last `limit` events that precede event `before`, oldest first."""

    async def kept(self, session_id: SessionId, below: str, after: str | None, limit: int) -> Mapping[str, bytes]:
        """Return a session's kept values whose keys begin with `below` and follow `after`, in the order of their keys.

        Keys are ordered by code points.
        """

    async def kept_size(self, session_id: SessionId) -> int:
        """Return the total size of a session's kept values in bytes, without their keys."""

    async def delete(self, session_id: SessionId, agents: Sequence[str] = ()) -> None:
        """Remove a session and everything that belongs to it.

        Args:
            session_id: the session.
            agents: agents that keep data of it: `pending_cleanups` lists them until `finish_cleanup` is called.
        """

    async def pending_cleanups(self) -> Sequence[tuple[SessionId, str]]:
        """List deleted sessions, each with an agent that still keeps data of it."""

    async def finish_cleanup(self, session_id: SessionId, agent: str) -> None:
        """Record that an agent has deleted its data of a session."""


class RecentSessions(msgspec.Struct, frozen=True, kw_only=True):
    """A page of an owner's sessions in order of use, out of `total`.

    `is_partial`: there was too much to search all of it. `total` is what was counted: there may be more matches on the
    next pages and, with words that few of the newest sessions contain, matching sessions may be missing.
    """

    states: Sequence[SessionState]
    total: int
    is_partial: bool = False


class SessionIndex(Protocol):
    """Lists of sessions. Like all indexes, it could be rebuilt from the logs.

    Unlisted sessions are left out of `page` and `recent`, and so are sessions whose stored state cannot be decoded,
    which the store reports.
    """

    async def page(
        self, owner: UserId, before: tuple[datetime, SessionId] | None, limit: int
    ) -> Sequence[SessionState]:
        """Return an owner's sessions, newest first, each with its state when it was last at rest.

        Args:
            owner: whose sessions.
            before: creation time and id of a session; only older ones are returned.
            limit: maximum number of sessions.
        """

    async def recent(self, owner: UserId, text: str, offset: int, limit: int) -> RecentSessions:
        """Return an owner's sessions, pinned ones first, then by time of last change, then by time of creation.

        Args:
            owner: whose sessions.
            text: return only sessions with this text in their title or messages, ignoring case; empty: all.
            offset: number of sessions to skip.
            limit: maximum number of sessions.
        """

    async def unfinished_sessions(self) -> Sequence[SessionId]:
        """List the sessions with a run that has not stopped."""

    async def expired_sessions(self, by: datetime, limit: int) -> Sequence[tuple[SessionId, UserId]]:
        """List sessions at rest that expired until then, with their owners, those first that expired first."""

    async def idle_sessions(
        self,
        by: datetime,
        limit: int,
        *,
        skip: int = 0,
        only: UserId | None = None,
        except_for: Collection[UserId] = (),
    ) -> Sequence[tuple[SessionId, UserId]]:
        """List sessions at rest that have not changed since then, with their owners, the oldest first.

        Args:
            by: the time of the last change, at the latest.
            limit: maximum number of sessions.
            skip: how many of the oldest are left out.
            only: one owner; None: all.
            except_for: owners whose sessions are left out.
        """

    async def find_by_name(self, owner: UserId, name: str) -> SessionId | None:
        """Find a session by the name that its owner's client gave it."""

    async def find_owner(self, session_id: SessionId) -> UserId | None:
        """Find a session's owner, even if the session's state cannot be decoded."""


class LogLookup(Protocol):
    """Finds runs, calls and messages in the logs by their ids."""

    async def find_run(self, run_id: RunId) -> RunLocation | None:
        """Find a run."""

    async def known_calls(self, session_id: SessionId, call_ids: Collection[CallId]) -> set[CallId]:
        """Return those of the calls that occur in the session's log."""

    async def find_messages(self, session_id: SessionId, ids: Collection[str]) -> dict[str, int]:
        """Return those of the ids that belong to messages in the session's log, with the event that completed each.

        A user message is found by its own id and by the client's id for it. If several share an id, the newest is used.
        """


class IdempotencyIndex(Protocol):
    """Finds what earlier requests with an idempotency key did."""

    async def find_idempotency_record(self, owner: UserId, key: str) -> IdempotencyRecord | None:
        """Find what the request with that key did."""

    async def find_request(
        self, owner: UserId, key: str, session_id: SessionId, ids: Collection[str]
    ) -> tuple[IdempotencyRecord | None, dict[str, int]]:
        """Do `find_idempotency_record` and `find_messages` in one round trip."""


class StoreIndex(SessionIndex, LogLookup, IdempotencyIndex, Protocol):
    """Everything that can be looked up beside the logs. Depend on the part that you use."""


class SessionStore(EventLog, StoreIndex, Protocol):
    """A store's whole interface for sessions. Depend on the part that you use."""
