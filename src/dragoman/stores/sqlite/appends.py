"""Writes appends: first the fence, then events, pieces and the indexes.

Runs on the writer's thread, inside its transaction.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import compress

from dragoman.core.events import type_of
from dragoman.core.ids import CallId, RunId, SessionId
from dragoman.core.stream import Piece
from dragoman.ports.log import IDEMPOTENCY_RETENTION, Append, IdempotencyRecord
from dragoman.stores.checksums import event_checksum, kept_checksum, state_checksum
from dragoman.stores.lookups import (
    EVENTS_WITH_CALLS,
    EVENTS_WITH_MESSAGES,
    EVENTS_WITH_RUNS,
    call_ids_in,
    message_ids_in,
    run_id_in,
)
from dragoman.stores.sqlite.pieces import PieceTable
from dragoman.stores.times import to_us

SWEEP_BATCH_ROWS = 256
"""Rows of a deleted session removed in one transaction, for which concurrent commits must wait."""
_INSERT_SESSION = (
    "INSERT OR IGNORE INTO sessions VALUES ("
    "max((SELECT ifnull(max(number), 0) FROM sessions), (SELECT ifnull(max(number), 0) FROM deleted)) + 1,"
    " ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, NULL)"
)
"""The number of a deleted session is not reused while rows of it remain."""
_INDEX_RUN = (
    "INSERT INTO runs VALUES (?, ?, ?)"
    " ON CONFLICT (run_id) DO UPDATE SET session = excluded.session, first_seq = excluded.first_seq"
)
_INDEX_CALL = "INSERT OR IGNORE INTO calls VALUES (?, ?, ?)"
_INDEX_MESSAGE = "INSERT OR REPLACE INTO messages VALUES (?, ?, ?)"
_RETENTION_US = IDEMPOTENCY_RETENTION // timedelta(microseconds=1)
_LAST_SEQ_OF_BATCH = "SELECT max(seq) FROM (SELECT seq FROM events WHERE session = ? ORDER BY seq LIMIT ?)"
_DELETE_RUNS_OF_BATCH = (
    "DELETE FROM runs WHERE session = ? AND run_id IN (SELECT run_id FROM events WHERE session = ? AND seq <= ?)"
)
_DELETE_FIRST_ROWS = (
    "DELETE FROM {table} WHERE session = ?1 AND {key} <="
    " (SELECT max({key}) FROM (SELECT {key} FROM {table} WHERE session = ?1 ORDER BY {key} LIMIT ?2))"
)
"""A range of an index, which takes half as long as a set of keys."""
_DELETE_OTHERS_OF_BATCH = tuple(
    (_DELETE_FIRST_ROWS.format(table=table, key=key), factor)
    for table, key, factor in (
        ("search_texts", "id", 64),
        ("messages", "id", 1),
        ("calls", "call_id", 1),
        ("once", "rowid", 1),
        ("kept", "key", 64),
    )
)
"""With the factor by which fewer rows are deleted at a time, because they are large."""


class AppendWriter:
    """Writes batches of appends.

    The positions of running sessions are cached, so that an append that only has pieces need not touch the session's
    row. The cache is valid because this process has the folder's lock.
    """

    def __init__(self) -> None:
        self._running_positions: dict[SessionId, tuple[int, int]] = {}
        """Their last event and their epoch."""
        self._piece_table: PieceTable | None = None

    def clear_cache(self) -> None:
        """Discard the cache after a transaction was rolled back."""
        self._running_positions, self._piece_table = {}, None

    def write(self, batch: Sequence[Append], connection: sqlite3.Connection) -> list[bool]:
        """Write each append completely or not at all. Returns which were accepted.

        The fences are checked first. All accepted appends are then written with one statement per table.
        """
        numbers = [self._check_fence(connection, append) for append in batch]
        accepted = [number is not None for number in numbers]
        grown = [(append, number) for append, number in zip(batch, numbers, strict=True) if number]
        if grown:  # most commits of a server with slow streams only have pieces
            connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _event_rows(grown))
            _index_events(connection, grown)
            for append, number in grown:
                for record in append.idempotency_records:
                    _store_idempotency_record(record, number, connection)
                if append.kept:
                    _keep(append, number, connection)
        self._get_piece_table(connection).write(compress(batch, accepted), connection)
        return accepted

    def delete(self, session_id: SessionId, agents: Sequence[str], connection: sqlite3.Connection) -> bool:
        """Remove a session, and a first batch of its rows in large tables. Returns whether `sweep` must go on.

        None of those rows can be found any more.
        """
        self._running_positions.pop(session_id, None)
        self._get_piece_table(connection).delete(session_id, connection)
        found = connection.execute(
            "DELETE FROM sessions WHERE session_id = ? RETURNING number", (session_id,)
        ).fetchone()
        if found is None:
            return False
        connection.execute("DELETE FROM names WHERE session_id = ?", (session_id,))
        connection.executemany(
            "INSERT OR IGNORE INTO forgetting VALUES (?, ?)", [(session_id, agent) for agent in agents]
        )
        _, is_empty = _sweep_session(found, SWEEP_BATCH_ROWS, connection)
        if not is_empty:
            connection.execute("INSERT INTO deleted VALUES (?)", found)
        return not is_empty

    def sweep(self, connection: sqlite3.Connection) -> bool:
        """Remove a batch of the rows that deleted sessions have left. Returns False if there are none."""
        left = SWEEP_BATCH_ROWS
        while left > 0:
            found: tuple[int] | None = connection.execute("SELECT number FROM deleted LIMIT 1").fetchone()
            if found is None:
                return False
            removed, is_empty = _sweep_session(found, left, connection)
            if is_empty:
                connection.execute("DELETE FROM deleted WHERE number = ?", found)
            left -= removed
        return True

    def pieces(self, session_id: SessionId, connection: sqlite3.Connection) -> list[Piece]:
        """The pieces of a session's open blocks."""
        return self._get_piece_table(connection).of_session(session_id, connection)

    def _get_piece_table(self, connection: sqlite3.Connection) -> PieceTable:
        pieces = self._piece_table
        if pieces is None:
            pieces = self._piece_table = PieceTable(connection)
        return pieces

    def _check_fence(self, connection: sqlite3.Connection, append: Append) -> int | None:
        """Check the fence: the log must end where the writer thinks, and no later claim may have written. Advances it.

        Returns:
            The session's number; 0 if it is not needed because there are only pieces; None if the append is refused.
        """
        if append.is_new:
            return _insert_session(connection, append)
        session_id = append.session_id
        if not (append.events or append.kept) and self._running_positions.get(session_id) == (
            append.after,
            append.epoch,
        ):
            return 0
        number = _advance_session(connection, append)
        if number is None:
            return None
        if append.head is None:
            self._running_positions[session_id] = (append.after + len(append.events), append.epoch)
        else:
            self._running_positions.pop(session_id, None)
        return number


def _sweep_session(session: tuple[int], limit: int, connection: sqlite3.Connection) -> tuple[int, bool]:
    """Remove rows of a deleted session. Returns how many, without those of its runs, and whether none is left."""
    removed = 0
    last = connection.execute(_LAST_SEQ_OF_BATCH, (*session, limit)).fetchone()
    if last[0] is not None:
        connection.execute(_DELETE_RUNS_OF_BATCH, (*session, *session, *last))
        removed = connection.execute("DELETE FROM events WHERE session = ? AND seq <= ?", (*session, *last)).rowcount
    is_empty = removed < limit
    if is_empty:
        for statement, factor in _DELETE_OTHERS_OF_BATCH:
            portion = max(1, limit // factor)
            count = connection.execute(statement, (*session, portion)).rowcount
            removed += count
            is_empty = is_empty and count < portion
    if is_empty:
        connection.execute("DELETE FROM search_sessions WHERE session = ?", session)
    return removed or 1, is_empty


def _insert_session(connection: sqlite3.Connection, append: Append) -> int | None:
    head = append.head
    assert head is not None, "a new session is at rest"
    assert head.settings is not None, "its settings were never stored"
    taken = connection.execute(
        _INSERT_SESSION,
        (
            append.session_id,
            append.owner,
            to_us(head.created_at),
            to_us(head.updated_at),
            head.seq,
            append.epoch,
            head.state.decode(),
            head.settings.decode(),
            state_checksum(append.session_id, head.state),
            state_checksum(append.session_id, head.settings),
            head.is_unlisted,
            None if head.expires_at is None else to_us(head.expires_at),
        ),
    )
    if taken.rowcount == 0:
        return None
    if append.name is not None:
        named = connection.execute(
            "INSERT OR IGNORE INTO names VALUES (?, ?, ?)", (append.owner, append.name, append.session_id)
        )
        if named.rowcount == 0:  # the name was used twice at once: the first one gets it
            connection.execute("DELETE FROM sessions WHERE session_id = ?", (append.session_id,))
            return None
    return taken.lastrowid


def _advance_session(connection: sqlite3.Connection, append: Append) -> int | None:
    found: tuple[int] | None = connection.execute(
        "SELECT number FROM sessions WHERE session_id = ? AND seq = ? AND epoch <= ?",
        (append.session_id, append.after, append.epoch),
    ).fetchone()
    if found is None:
        return None
    seq, head = append.after + len(append.events), append.head
    if head is None:
        connection.execute(
            "UPDATE sessions SET seq = ?, epoch = ?, is_running = 1 WHERE number = ?", (seq, append.epoch, *found)
        )
    else:
        connection.execute(
            "UPDATE sessions SET seq = ?, epoch = ?, is_running = 0, updated_at = ?, head = ?, head_checksum = ?,"
            " is_unlisted = ?, expires_at = ? WHERE number = ?",
            (
                seq,
                append.epoch,
                to_us(head.updated_at),
                head.state.decode(),
                state_checksum(append.session_id, head.state),
                head.is_unlisted,
                None if head.expires_at is None else to_us(head.expires_at),
                *found,
            ),
        )
        if head.settings is not None:
            connection.execute(
                "UPDATE sessions SET settings = ?, settings_checksum = ? WHERE number = ?",
                (head.settings.decode(), state_checksum(append.session_id, head.settings), *found),
            )
    return found[0]


def _event_rows(appends: Iterable[tuple[Append, int]]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for append, number in appends:
        session_id = append.session_id
        for logged, payload in zip(append.events, append.payloads, strict=True):
            seq, run_id, at = logged.seq, logged.run_id, to_us(logged.at)
            checksum = event_checksum(session_id, seq, at, run_id, payload)
            rows.append((session_id, seq, run_id, at, type_of(logged.event), payload.decode(), number, checksum))
    return rows


def _keep(append: Append, number: int, connection: sqlite3.Connection) -> None:
    session_id = append.session_id
    connection.executemany(
        "INSERT INTO kept VALUES (?, ?, ?, ?)"
        " ON CONFLICT (session, key) DO UPDATE SET value = excluded.value, checksum = excluded.checksum",
        [
            (number, key, value, kept_checksum(session_id, key, value))
            for key, value in append.kept.items()
            if value is not None
        ],
    )
    connection.executemany(
        "DELETE FROM kept WHERE session = ? AND key = ?",
        [(number, key) for key, value in append.kept.items() if value is None],
    )


def _store_idempotency_record(record: IdempotencyRecord, number: int, connection: sqlite3.Connection) -> None:
    at = to_us(record.at)
    if not record.lasts:
        connection.execute("DELETE FROM once WHERE lasts = 0 AND at < ?", (at - _RETENTION_US,))
    connection.execute(
        "INSERT OR REPLACE INTO once VALUES (?, ?, ?, ?, ?, ?, ?)",
        (record.owner, record.key, record.fingerprint, number, record.run_id, at, record.lasts),
    )


def _index_events(connection: sqlite3.Connection, appends: Iterable[tuple[Append, int]]) -> None:
    """Add events to the indexes."""
    runs: list[tuple[RunId | None, int, int]] = []
    calls: list[tuple[int, CallId, int]] = []
    messages: list[tuple[int, str, int]] = []
    for append, number in appends:
        for logged in append.events:
            event, kind = logged.event, type(logged.event)
            if kind in EVENTS_WITH_RUNS:
                runs.append((run_id_in(event), number, logged.seq))
            if kind in EVENTS_WITH_CALLS:
                calls += [(number, call_id, logged.seq) for call_id in call_ids_in(event)]
            if kind in EVENTS_WITH_MESSAGES:
                messages += [(number, name, logged.seq) for name in message_ids_in(event)]
    for statement, rows in ((_INDEX_RUN, runs), (_INDEX_CALL, calls), (_INDEX_MESSAGE, messages)):
        if rows:
            connection.executemany(statement, rows)
