"""Checks the log in the data folder of a dead server against the rules of logs.

It reads copies, so that opening them repairs and checkpoints nothing. It knows the tables and the core's fold, but not
what clients saw.
"""

import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from dragoman.core import events as core_events
from dragoman.core.content import Usage
from dragoman.core.events import (
    AnswerGiven,
    BlockClosed,
    CallOpened,
    CallSettled,
    CallStarted,
    LoggedEvent,
    MessageClosed,
    RunResumed,
    RunStarted,
    RunStopped,
    SessionCreated,
)
from dragoman.core.ids import CallId, RunId, SessionId, UserId
from dragoman.core.session import SessionState, apply, decode_head, initial_state
from dragoman.engine.parts import EngineOptions
from dragoman.server.agents import STARTS_FILE
from dragoman.stores.times import from_us

BY_ID = ("pieces", "names")
BY_NUMBER = ("events", "messages", "calls", "runs", "once")
"""Tables with rows of sessions, by id and by number. Rows by number are deleted some time after their session."""
NEWEST = sum(1 for _ in resources.files("dragoman.stores.sqlite").joinpath("migrations").iterdir())
"""The number of the latest schema: one for each migration."""
STARTS_FILE_NAME = STARTS_FILE
"""Where the rehearsal agent's slow tool records each start, under the tag of its call."""
ATTEMPTS = EngineOptions().max_attempts
RESUME_LIMIT_S = 2.0
"""How long after the start an interrupted run may take to continue or end."""


class ServerLife(NamedTuple):
    """When a life of the server began and ended, by this machine's clock. `ready` is None if it never became ready."""

    started: float
    ready: float | None
    ended: float


class InterruptedRun(NamedTuple):
    """A run that had not stopped when its server died."""

    after: int
    """The last event of its session at that time."""
    waited_s: float
    """How long servers have been ready since then without resuming it."""


class LogChecker:
    """Checks a data folder each time the server has died."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._folder = folder
        self._scratch = scratch
        self._checked: dict[str, tuple[int, int]] = {}
        self._unfinished: dict[str, InterruptedRun] = {}
        """Runs that had not stopped at the last check."""
        self.resume_times_s: list[float] = []
        """Seconds from the ready line until an interrupted run continued or ended; negative if before that line."""
        self.resumed = 0
        self.events = 0

    def copy(self) -> None:
        """Copy the folder for `check`, and keep the previous copy for debugging."""
        before = self._scratch / "before"
        before.mkdir(exist_ok=True)
        for name in ("dragoman.db", "dragoman.db-wal", STARTS_FILE_NAME):
            (before / name).unlink(missing_ok=True)
            if (self._scratch / name).exists():
                (self._scratch / name).rename(before / name)
            if (self._folder / name).exists():
                shutil.copyfile(self._folder / name, self._scratch / name)

    def check(self, life: ServerLife, deleted: Sequence[str]) -> list[str]:
        """Check the copy.

        Args:
            life: the life that had ended when the copy was made.
            deleted: the sessions whose deletion was acknowledged by then.

        Returns:
            The broken rules.
        """
        path = self._scratch / "dragoman.db"
        repeated = [*check_tally(self._scratch / STARTS_FILE_NAME)]
        if not path.exists():
            return []  # it died before it created its database
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            if connection.execute("PRAGMA user_version").fetchone()[0] < NEWEST:
                return []  # or before it had all tables
            return [*repeated, *self._check(connection, life, deleted)]

    def _check(self, connection: sqlite3.Connection, life: ServerLife, deleted: Sequence[str]) -> Iterator[str]:
        integrity = connection.execute("PRAGMA quick_check").fetchone()[0]
        if integrity != "ok":
            yield f"the database is damaged: {integrity}"
        connection.execute("CREATE INDEX IF NOT EXISTS by_id ON events (session_id, seq)")  # only in this copy
        self.events = connection.execute("SELECT count(*) FROM events").fetchone()[0]
        yield from check_owners(connection, deleted)
        misplaced = (
            "SELECT DISTINCT e.session_id FROM events e JOIN sessions s USING (session_id) WHERE e.session <> s.number"
        )
        for (session_id,) in connection.execute(misplaced):
            yield f"events with the number of another session (session {session_id})"
        yield from self._check_promptness(connection, life)
        rows = connection.execute(
            "SELECT session_id, owner, seq, head, settings, (SELECT max(seq) FROM events e WHERE e.session_id ="
            " s.session_id), (SELECT count(*) FROM pieces p WHERE p.session_id = s.session_id) FROM sessions s"
        ).fetchall()
        for session_id, owner, seq, head, settings, newest, pieces in rows:
            if self._checked.get(session_id) == (newest, pieces):
                continue
            self._checked[session_id] = (newest, pieces)
            if newest != seq:
                yield f"the session is at {seq}, its log at {newest} (session {session_id})"
            for fault in check_log(connection, session_id, owner, decode_head(head, settings)):
                yield f"{fault} (session {session_id})"

    def _check_promptness(self, connection: sqlite3.Connection, life: ServerLife) -> Iterator[str]:
        """Check that runs interrupted before this life continued in it, in time."""
        left: dict[str, InterruptedRun] = {}
        for run_id, cut in self._unfinished.items():
            row = connection.execute(
                "SELECT session_id FROM runs JOIN sessions ON number = session WHERE run_id = ?", (run_id,)
            ).fetchone()
            if row is None:
                continue  # its session was deleted
            if life.ready is None:
                left[run_id] = cut  # no server was ready to resume it
                continue
            resumed_at = connection.execute(
                "SELECT min(at) FROM events WHERE session_id = ? AND seq > ? AND run_id = ?"
                " AND type IN ('run_resumed', 'run_stopped')",
                (row[0], cut.after, run_id),
            ).fetchone()[0]
            if resumed_at is None:
                waited_s = cut.waited_s + life.ended - life.ready
                left[run_id] = InterruptedRun(cut.after, waited_s)
            else:
                waited_s = cut.waited_s + from_us(resumed_at).timestamp() - life.ready
                self.resume_times_s.append(waited_s)
            if waited_s > RESUME_LIMIT_S:
                yield f"run {run_id} was cut, and had not gone on {waited_s:.2f} s after the start (session {row[0]})"
        rows = connection.execute(
            "SELECT run_id, (SELECT max(seq) FROM events e WHERE e.session = r.session)"
            " FROM runs r JOIN sessions ON number = session WHERE NOT"
            " EXISTS (SELECT 1 FROM events s WHERE s.session = r.session AND s.run_id = r.run_id"
            " AND s.type = 'run_stopped')"
        )
        self._unfinished = {run_id: left.get(run_id) or InterruptedRun(seq, 0.0) for run_id, seq in rows}
        resumed = connection.execute("SELECT count(*) FROM events WHERE type = 'run_resumed'")
        self.resumed = resumed.fetchone()[0]

    @property
    def unfinished(self) -> list[str]:
        """The runs that had not stopped at the last check."""
        return list(self._unfinished)


def check_tally(path: Path) -> Iterator[str]:
    """Check that no call of a non-repeatable tool was started twice."""
    tags = Counter(path.read_bytes().split()) if path.exists() else Counter()
    for tag, count in tags.items():
        if count > 1:
            yield f"the tool of {tag.decode()} was started {count} times"


def check_owners(connection: sqlite3.Connection, deleted: Sequence[str]) -> Iterator[str]:
    """Check that each row belongs to an existing session. Tables with many rows for each session may lag behind a
    deletion.
    """
    for session_id in deleted:
        for table in ("sessions", *BY_ID):
            left = connection.execute(f"SELECT count(*) FROM {table} WHERE session_id = ?", (session_id,))
            if row_count := left.fetchone()[0]:
                yield f"{row_count} rows of the deleted session {session_id} are in {table}"
    for table in BY_ID:
        orphans = f"SELECT DISTINCT session_id FROM {table} WHERE session_id NOT IN (SELECT session_id FROM sessions)"
        for (session_id,) in connection.execute(orphans):
            yield f"rows without a session in {table} (session {session_id})"
    numbers = "SELECT number FROM sessions UNION SELECT number FROM deleted"
    for table in BY_NUMBER:
        for (number,) in connection.execute(f"SELECT DISTINCT session FROM {table} WHERE session NOT IN ({numbers})"):
            yield f"rows without a session in {table} (number {number})"


def check_log(connection: sqlite3.Connection, session_id: str, owner: str, head: SessionState) -> Iterator[str]:
    """Check a session's log: no gaps, valid for the fold, one run at a time, one result for each call, consistent
    tables.
    """
    rows = connection.execute(
        "SELECT seq, at, run_id, payload FROM events WHERE session_id = ? ORDER BY seq", (session_id,)
    )
    log = [LoggedEvent(seq, from_us(at), run_id, core_events.decode(payload)) for seq, at, run_id, payload in rows]
    if [logged.seq for logged in log] != list(range(1, len(log) + 1)):
        yield f"the log has gaps: {[logged.seq for logged in log]}"
        return
    if not log or not isinstance(log[0].event, SessionCreated):
        yield f"the log begins with {log[:1]}"
        return
    state = initial_state(SessionId(session_id), UserId(owner), log[0])
    for logged in log[1:]:
        if isinstance(logged.event, RunStarted) and state.run is not None:
            yield f"run {logged.event.run_id} starts while {state.run.run_id} is active"
        if isinstance(logged.event, RunResumed) and (
            state.run is None
            or (state.run.run_id, state.run.attempt + (not state.run.parked)) != (logged.run_id, logged.event.attempt)
        ):
            yield f"{logged.event} goes on with nothing, at {state.run}"
        gives_up = isinstance(logged.event, RunStopped) and logged.event.reason == "interrupted"
        if gives_up and (state.run is None or state.run.attempt < ATTEMPTS):
            yield f"{logged.event} gives up early, at {state.run}"
        if state.seq == head.seq and state != head:
            yield f"the stored state {head} is not what the log says: {state}"
        try:
            apply(state, logged)
        except (KeyError, ValueError) as error:
            yield f"event {logged.seq} {logged.event} cannot come here: {error!r}"
            return
    if state.seq == head.seq and state != head:
        yield f"the stored state {head} is not what the log says: {state}"
    yield from check_rest(state)
    yield from check_calls(log)
    yield from check_runs(connection, session_id, log)
    yield from check_pieces(connection, session_id, state, log)


def check_rest(state: SessionState) -> Iterator[str]:
    """Check that, without an active run, every open call waits for the client, or for a sibling or sub-agent's call
    that does.
    """
    if state.run is not None:
        return
    awaited = {call.call.call_id for call in state.waiting_calls()}
    for call in state.waiting_calls():
        parent = state.parent_call(call.loop)
        while parent is not None:
            awaited.add(parent.call.call_id)
            parent = state.parent_call(parent.loop)
        awaited |= {sibling.call.call_id for sibling in state.calls_in_loop(call.loop) if sibling.granted is not None}
    for call_id in state.calls.keys() - awaited:
        yield f"call {call_id} is open, and nothing can settle it"


def check_calls(log: Sequence[LoggedEvent]) -> Iterator[str]:
    """Check that each call is settled and answered at most once, and never started after its result."""
    settled: Counter[CallId] = Counter()
    answered: Counter[CallId] = Counter()
    opened: set[CallId] = set()
    started: Counter[CallId] = Counter()
    for logged in log:
        match logged.event:
            case CallOpened(call=call):
                opened.add(call.call_id)
            case CallStarted(call_id=call_id):
                started[call_id] += 1
                if settled[call_id]:
                    yield f"call {call_id} was started after it had its result"
            case AnswerGiven(call_id=call_id):
                answered[call_id] += 1
            case CallSettled(result=result):
                settled[result.call_id] += 1
            case _:
                pass
    for what, counts in (("settled", settled), ("answered", answered)):
        for call_id, count in counts.items():
            if count > 1 or call_id not in opened:
                yield f"call {call_id} was {what} {count} times"


def check_runs(connection: sqlite3.Connection, session_id: str, log: Sequence[LoggedEvent]) -> Iterator[str]:
    """Check that each run starts once, stops at most once and reports its usage, and that the table has the start of
    each.
    """
    started: dict[RunId, int] = {}
    stopped: set[RunId] = set()
    used = Usage()
    for logged in log:
        if isinstance(logged.event, MessageClosed) and logged.event.usage is not None:
            used += logged.event.usage
        if isinstance(logged.event, RunStarted):
            if logged.event.run_id in started:
                yield f"run {logged.event.run_id} starts twice"
            started[logged.event.run_id] = logged.seq
            used = Usage()
        elif isinstance(logged.event, RunStopped):
            if logged.event.run_id not in started or logged.event.run_id in stopped:
                yield f"run {logged.event.run_id} stops at {logged.seq} where it does not run"
            stopped.add(logged.event.run_id)
            if logged.event.usage != used:
                yield f"run {logged.event.run_id} used {used}, and says {logged.event.usage}"
    stored = dict(
        connection.execute(
            "SELECT run_id, first_seq FROM runs JOIN sessions ON number = session WHERE session_id = ?", (session_id,)
        ).fetchall()
    )
    if stored != started:
        yield f"the table of runs says {stored}, the log {started}"


def check_pieces(
    connection: sqlite3.Connection, session_id: str, state: SessionState, log: Sequence[LoggedEvent]
) -> Iterator[str]:
    """Check that stored pieces belong to open blocks or to closed ones that have the same text."""
    rows = connection.execute(
        "SELECT after, place, message_id, block, loop FROM pieces WHERE session_id = ? ORDER BY after, place",
        (session_id,),
    ).fetchall()
    in_closed_blocks: dict[tuple[int, int], tuple[str, int]] = {}
    for logged in log:
        if not isinstance(logged.event, BlockClosed):
            continue
        for cut in logged.event.cuts:
            for place in range(cut.first, cut.first + len(cut.lengths)):
                if (cut.after, place) in in_closed_blocks:
                    yield f"two pieces are at {cut.after}:{place}"
                in_closed_blocks[cut.after, place] = (logged.event.message_id, logged.event.index)
    seen: set[tuple[int, int]] = set(in_closed_blocks)
    for after, place, message_id, block, loop in rows:
        if in_closed_blocks.get((after, place)) == (message_id, block):
            continue
        opened = state.open_messages.get(loop)
        if opened is None or (opened.message_id, opened.closed_block_count) != (message_id, block):
            yield f"piece {after}:{place} belongs to block {block} of {message_id}, which is not open"
        if (after, place) in seen:
            yield f"two pieces are at {after}:{place}"
        seen.add((after, place))
    for after, place in seen:
        if place > 1 and (after, place - 1) not in seen:
            yield f"there is no piece before {after}:{place}"
