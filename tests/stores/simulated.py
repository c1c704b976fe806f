"""A store that is a few dictionaries: the contract in the fewest words, and a base for faults that repeat exactly."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from dragoman.core.content import AssistantMessage, UserMessage
from dragoman.core.events import (
    CallOpened,
    CallSettled,
    LoggedEvent,
    MessageAdded,
    MessageClosed,
    RunQueued,
    RunStarted,
)
from dragoman.core.events import decode as decode_event
from dragoman.core.ids import CallId, RunId, SessionId, UserId
from dragoman.core.refusals import SessionUnreadable
from dragoman.core.session import SessionState
from dragoman.core.stream import Piece
from dragoman.ports.log import IDEMPOTENCY_RETENTION, Append, IdempotencyRecord, RecentSessions, RunLocation, Snapshot
from dragoman.stores.decoding import ReportUnreadable, decode_events, decode_state, log_unreadable
from dragoman.stores.folder_blobs import validate_blob_name
from dragoman.stores.lookups import text_in
from dragoman.stores.times import to_us


class _Row(NamedTuple):
    """An event as a database holds it."""

    seq: int
    at: datetime
    run_id: RunId | None
    payload: bytes

    def logged(self) -> LoggedEvent:
        return LoggedEvent(self.seq, self.at, self.run_id, decode_event(self.payload))

    def stored(self) -> tuple[int, int, RunId | None, bytes]:
        return self.seq, to_us(self.at), self.run_id, self.payload


class _Session:
    def __init__(self, append: Append) -> None:
        self.owner = append.owner
        self.epoch = append.epoch
        self.rows: list[_Row] = []
        self.pieces: list[Piece] = []
        self.head = b""
        self.settings = b""
        self.is_running = False
        self.is_unlisted = False
        self.expires_at: datetime | None = None
        self.kept: dict[str, bytes] = {}


class SimulatedLog:
    """A `SessionStore` in memory. Nothing in it waits."""

    def __init__(self, report_unreadable: ReportUnreadable = log_unreadable) -> None:
        self._report_unreadable = report_unreadable
        self._epoch = 0
        self._sessions: dict[SessionId, _Session] = {}
        self._names: dict[tuple[UserId, str], SessionId] = {}
        self._idempotency_records: dict[tuple[UserId, str], IdempotencyRecord] = {}
        self._runs: dict[RunId, RunLocation] = {}
        self._pending_cleanups: set[tuple[SessionId, str]] = set()

    async def claim_epoch(self) -> int:
        self._epoch += 1
        return self._epoch

    async def commit(self, batch: Sequence[Append]) -> Sequence[bool]:
        return [self._append(append) for append in batch]

    def _append(self, append: Append) -> bool:
        session = self._fenced(append)
        if session is None:
            return False
        session.epoch = append.epoch
        session.rows += [
            _Row(logged.seq, logged.at, logged.run_id, payload)
            for logged, payload in zip(append.events, append.payloads, strict=True)
        ]
        session.pieces = [
            piece for piece in session.pieces if (piece.message_id, piece.index) not in append.closed_blocks
        ]
        session.pieces += append.pieces
        session.is_running = append.head is None
        if append.head is not None:
            session.head = append.head.state
            session.settings = append.head.settings or session.settings
            session.is_unlisted, session.expires_at = append.head.is_unlisted, append.head.expires_at
        for logged in append.events:
            if isinstance(logged.event, RunStarted | RunQueued):
                run_id = logged.event.run_id
                self._runs[run_id] = RunLocation(
                    run_id=run_id, session_id=append.session_id, owner=append.owner, first_seq=logged.seq
                )
        for key, value in append.kept.items():
            session.kept.pop(key, None)
            if value is not None:
                session.kept[key] = value
        for once in append.idempotency_records:
            oldest = once.at - IDEMPOTENCY_RETENTION
            self._idempotency_records = {
                place: each for place, each in self._idempotency_records.items() if each.lasts or each.at >= oldest
            }
            self._idempotency_records[once.owner, once.key] = once
        return True

    def _fenced(self, append: Append) -> _Session | None:
        session = self._sessions.get(append.session_id)
        if append.is_new:
            if session is not None or (append.name is not None and (append.owner, append.name) in self._names):
                return None
            if append.name is not None:
                self._names[append.owner, append.name] = append.session_id
            session = self._sessions[append.session_id] = _Session(append)
            return session
        if session is None or len(session.rows) != append.after or session.epoch > append.epoch:
            return None
        return session

    async def load(self, session_id: SessionId) -> Snapshot | None:
        session = self._sessions.get(session_id)
        if session is None:
            return None
        head = decode_state(session_id, session.head, session.settings)
        events = decode_events(session_id, (row.stored() for row in session.rows[head.seq :]))
        return Snapshot(head=head, events=events, pieces=list(session.pieces))

    async def events(self, session_id: SessionId, after: int, limit: int) -> Sequence[LoggedEvent]:
        return decode_events(session_id, (row.stored() for row in self._rows(session_id)[after : after + limit]))

    async def events_before(self, session_id: SessionId, before: int, limit: int) -> Sequence[LoggedEvent]:
        rows = self._rows(session_id)
        end = max(0, min(before - 1, len(rows)))
        return decode_events(session_id, (row.stored() for row in rows[max(0, end - limit) : end]))

    async def kept(self, session_id: SessionId, below: str, after: str | None, limit: int) -> Mapping[str, bytes]:
        session = self._sessions.get(session_id)
        kept = {} if session is None else session.kept
        keys = sorted(key for key in kept if key.startswith(below) and key > (after or ""))
        return {key: kept[key] for key in keys[:limit]}

    async def kept_size(self, session_id: SessionId) -> int:
        session = self._sessions.get(session_id)
        return 0 if session is None else sum(map(len, session.kept.values()))

    async def pending_cleanups(self) -> Sequence[tuple[SessionId, str]]:
        return sorted(self._pending_cleanups)

    async def finish_cleanup(self, session_id: SessionId, agent: str) -> None:
        self._pending_cleanups.discard((session_id, agent))

    async def delete(self, session_id: SessionId, agents: Sequence[str] = ()) -> None:
        if session_id in self._sessions:
            self._pending_cleanups |= {(session_id, agent) for agent in agents}
        self._sessions.pop(session_id, None)
        self._names = {place: found for place, found in self._names.items() if found != session_id}
        self._idempotency_records = {
            place: once for place, once in self._idempotency_records.items() if once.session_id != session_id
        }
        self._runs = {run_id: row for run_id, row in self._runs.items() if row.session_id != session_id}

    async def page(
        self, owner: UserId, before: tuple[datetime, SessionId] | None, limit: int
    ) -> Sequence[SessionState]:
        states = self._states(owner)
        states.sort(key=lambda state: (state.created_at, state.session_id), reverse=True)
        if before is not None:
            states = [state for state in states if (state.created_at, state.session_id) < before]
        return states[:limit]

    async def recent(self, owner: UserId, text: str, offset: int, limit: int) -> RecentSessions:
        states = self._states(owner)
        states.sort(key=lambda state: (state.settings.pinned, state.updated_at, state.session_id), reverse=True)
        found = [state for state in states if text.casefold() in self._search_text(state).casefold()]
        return RecentSessions(states=found[offset : offset + limit], total=len(found))

    def _states(self, owner: UserId) -> list[SessionState]:
        states = []
        for session_id, stored in self._sessions.items():
            if stored.owner == owner and not stored.is_unlisted:
                try:
                    states.append(decode_state(session_id, stored.head, stored.settings))
                except SessionUnreadable as error:
                    self._report_unreadable(error)
        return states

    def damage(self, session_id: SessionId, seq: int | None) -> None:
        """Overwrite a state, or an event, with what cannot be decoded."""
        session = self._sessions[session_id]
        if seq is None:
            session.head = b"{"
        else:
            session.rows[seq - 1] = session.rows[seq - 1]._replace(payload=b"{")

    def _search_text(self, state: SessionState) -> str:
        said: list[str] = []
        for row in self._rows(state.session_id):
            with suppress(ValueError):
                said.append(text_in(row.logged().event))
        return "\n".join([state.settings.title or "", *said])

    async def unfinished_sessions(self) -> Sequence[SessionId]:
        return [session_id for session_id, session in self._sessions.items() if session.is_running]

    async def expired_sessions(self, by: datetime, limit: int) -> Sequence[tuple[SessionId, UserId]]:
        expired = [
            (held.expires_at, session_id, held.owner)
            for session_id, held in self._sessions.items()
            if held.expires_at is not None and held.expires_at <= by and not held.is_running
        ]
        return [(session_id, owner) for _, session_id, owner in sorted(expired)[:limit]]

    async def idle_sessions(
        self,
        by: datetime,
        limit: int,
        *,
        skip: int = 0,
        only: UserId | None = None,
        except_for: Collection[UserId] = (),
    ) -> Sequence[tuple[SessionId, UserId]]:
        idle = [
            (held.rows[-1].at, session_id, held.owner)
            for session_id, held in self._sessions.items()
            if not held.is_running
        ]
        owners = [(session_id, owner) for at, session_id, owner in sorted(idle) if at <= by]
        return [each for each in owners if only in (None, each[1]) and each[1] not in except_for][skip : skip + limit]

    async def find_run(self, run_id: RunId) -> RunLocation | None:
        return self._runs.get(run_id)

    async def known_calls(self, session_id: SessionId, call_ids: Collection[CallId]) -> set[CallId]:
        known: set[CallId] = set()
        for row in self._rows(session_id):
            event = row.logged().event
            if isinstance(event, CallOpened):
                known.add(event.call.call_id)
            elif isinstance(event, MessageAdded) and isinstance(event.message, AssistantMessage):
                known |= {call.call_id for call in event.message.calls()}
        return known & set(call_ids)

    async def find_by_name(self, owner: UserId, name: str) -> SessionId | None:
        return self._names.get((owner, name))

    async def find_owner(self, session_id: SessionId) -> UserId | None:
        session = self._sessions.get(session_id)
        return None if session is None else session.owner

    async def find_idempotency_record(self, owner: UserId, key: str) -> IdempotencyRecord | None:
        return self._idempotency_records.get((owner, key))

    async def find_messages(self, session_id: SessionId, ids: Collection[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for row in self._rows(session_id):
            event = row.logged().event
            names: tuple[str | None, ...] = ()
            if isinstance(event, MessageAdded):
                client_id = event.message.client_id if isinstance(event.message, UserMessage) else None
                names = (event.message.id, client_id)
            elif isinstance(event, MessageClosed):
                names = (event.message_id,)
            elif isinstance(event, CallSettled):
                names = (event.result.id,)
            found |= {name: row.seq for name in names if name is not None and name in ids}
        return found

    async def find_request(
        self, owner: UserId, key: str, session_id: SessionId, ids: Collection[str]
    ) -> tuple[IdempotencyRecord | None, dict[str, int]]:
        return await self.find_idempotency_record(owner, key), await self.find_messages(session_id, ids)

    def _rows(self, session_id: SessionId) -> list[_Row]:
        session = self._sessions.get(session_id)
        return [] if session is None else session.rows


class SimulatedBlobs:
    """`Blobs` in memory."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    async def put(self, name: str, content: bytes) -> None:
        self.contents[validate_blob_name(name)] = content

    async def get(self, name: str) -> bytes | None:
        return self.contents.get(validate_blob_name(name))

    async def delete(self, name: str) -> None:
        validate_blob_name(name)
        self.contents = {
            each: content for each, content in self.contents.items() if each != name and not each.startswith(f"{name}/")
        }

    async def names(self, prefix: str | None = None) -> Sequence[str]:
        folder = "" if prefix is None else f"{validate_blob_name(prefix)}/"
        return sorted(name for name in self.contents if name.startswith(folder))
