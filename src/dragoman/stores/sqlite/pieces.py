"""The pieces of open blocks, with an index of each block's rows in memory.

Rows are stored in order of arrival, so those of one block are spread over the pages of many commits. Deleting them when
the block closes would rewrite all these pages. They are left in place instead as stale rows, and are deleted later
together with all other rows before the first one that is still needed, or with their session.

Used on the writer's thread, inside its transaction.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from dragoman.core import events
from dragoman.core.events import BlockClosed
from dragoman.core.ids import LoopId, MessageId, SessionId
from dragoman.core.refusals import SessionUnreadable
from dragoman.core.stream import Piece, cursor_of
from dragoman.ports.log import Append
from dragoman.stores.checksums import piece_checksum

SWEEP_BATCH_ROWS = 256
"""Rows deleted at a time: a range costs a tenth of as many single rows, and delays a commit only briefly, even if each
row fills a page (4,096 characters)."""
MAX_STALE_ROWS = 100_000
"""Maximum number of stale rows after an open block's first row. Beyond that, the block's rows are moved to the end."""

_Block = tuple[MessageId, int]


class PieceTable:
    """The table of pieces. It is read once; nobody else changes it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._rows: defaultdict[SessionId, dict[_Block, list[int]]] = defaultdict(dict)
        """The rows of open blocks."""
        self._stale_rows: dict[SessionId, list[int]] = {}
        """The rows of closed blocks, of the sessions in the order in which they last closed one."""
        first, last = connection.execute("SELECT min(id), max(id) FROM pieces").fetchone()
        self._first_row: int = first or 1
        """No row precedes this one."""
        self._last_row: int = last or 0
        self._open_count = 0
        """Number of rows of open blocks."""
        self._sweep_threshold = SWEEP_BATCH_ROWS
        """Number of stale rows at which the next ones are deleted."""
        for session_id, block, row in _all_rows(connection):
            if block is None:
                self._stale_rows.setdefault(session_id, []).append(row)
            else:
                self._rows[session_id].setdefault(block, []).append(row)
                self._open_count += 1

    def write(self, appends: Iterable[Append], connection: sqlite3.Connection) -> None:
        """Add the pieces of blocks that stay open, and forget those of blocks that close."""
        new: list[tuple[object, ...]] = []
        row = self._last_row
        for append in appends:
            session_id = append.session_id
            for closed in append.closed_blocks:
                self._close(session_id, closed)
            for piece in append.pieces:
                row += 1
                message_id, block = piece.message_id, piece.index
                self._rows[session_id].setdefault((message_id, block), []).append(row)
                after, place, text = piece.after, piece.place, piece.text
                checksum = piece_checksum(session_id, after, place, message_id, block, text.encode())
                new.append((row, session_id, after, place, message_id, block, piece.kind, piece.loop, text, checksum))
        self._last_row = row
        if new:
            self._open_count += len(new)
            connection.executemany("INSERT INTO pieces VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", new)
        if self._stale_count >= self._sweep_threshold:
            self._sweep(connection)

    def of_session(self, session_id: SessionId, connection: sqlite3.Connection) -> list[Piece]:
        """A session's pieces, in order. Raises SessionUnreadable if one was altered."""
        found = [
            _decode_piece(session_id, connection.execute(_SELECT, (row,)).fetchone())
            for rows in self._rows.get(session_id, {}).values()
            for row in rows
        ]
        return sorted(found, key=cursor_of)

    def delete(self, session_id: SessionId, connection: sqlite3.Connection) -> None:
        """Remove a session's pieces, those of closed blocks included."""
        for block in list(self._rows.get(session_id, {})):
            self._close(session_id, block)
        stale = self._stale_rows.pop(session_id, ())
        connection.executemany("DELETE FROM pieces WHERE id = ?", [(row,) for row in stale])

    @property
    def _stale_count(self) -> int:
        """Upper bound of the number of stale rows."""
        return self._last_row + 1 - self._first_row - self._open_count

    def _close(self, session_id: SessionId, block: _Block) -> None:
        blocks = self._rows.get(session_id, {})
        rows = blocks.pop(block, None)
        if rows is not None:
            self._open_count -= len(rows)
            stale = self._stale_rows.pop(session_id, [])
            self._stale_rows[session_id] = sorted(row for row in stale + rows if row >= self._first_row)
            if not blocks:
                del self._rows[session_id]

    def _sweep(self, connection: sqlite3.Connection) -> None:
        """Delete rows before the first one of an open block. A block that blocks too many is moved to the end."""
        oldest = min((rows for blocks in self._rows.values() for rows in blocks.values()), default=[self._last_row + 1])
        if self._last_row + 1 - oldest[0] - self._open_count > MAX_STALE_ROWS:
            moved = range(self._last_row + 1, self._last_row + 1 + len(oldest))
            connection.executemany("UPDATE pieces SET id = ? WHERE id = ?", zip(moved, oldest, strict=True))
            oldest[:] = moved
            self._last_row = moved[-1]
            return  # after the next commit another block is first
        self._first_row = min(oldest[0], self._first_row + SWEEP_BATCH_ROWS)
        connection.execute("DELETE FROM pieces WHERE id < ?", (self._first_row,))
        while (session_id := next(iter(self._stale_rows), None)) and self._stale_rows[session_id][-1] < self._first_row:
            del self._stale_rows[session_id]
        self._sweep_threshold = (
            SWEEP_BATCH_ROWS if self._first_row < oldest[0] else self._stale_count + SWEEP_BATCH_ROWS
        )


def _all_rows(connection: sqlite3.Connection) -> Iterator[tuple[SessionId, _Block | None, int]]:
    """All rows in order, with their block if it is open: of a running session, and not closed by an event."""
    running = "SELECT session_id FROM sessions WHERE is_running = 1"
    closed: dict[SessionId, set[_Block]] = {}
    for session_id, after in connection.execute(
        f"SELECT session_id, min(after) FROM pieces WHERE session_id IN ({running}) GROUP BY session_id"  # noqa: S608  # our own words
    ).fetchall():
        payloads = connection.execute(
            "SELECT CAST(payload AS BLOB) FROM events JOIN sessions ON session = number"
            " WHERE sessions.session_id = ? AND events.seq > ?",  # no checksum covers the type
            (session_id, after),
        )
        closed[session_id] = set()
        for (payload,) in payloads:
            with suppress(ValueError):  # damaged: reading the session reports it
                happened = events.decode(payload)
                if isinstance(happened, BlockClosed):
                    closed[session_id].add((happened.message_id, happened.index))
    for row, session_id, message_id, index in connection.execute(
        "SELECT id, session_id, message_id, block FROM pieces ORDER BY id"
    ):
        block = message_id, index
        is_open = session_id in closed and block not in closed[session_id]
        yield session_id, block if is_open else None, row


_PIECE_TYPES = (int, int, str, int, str, str, str)
_SELECT = "SELECT after, place, message_id, block, kind, loop, text, checksum FROM pieces WHERE id = ?"


def _decode_piece(session_id: SessionId, row: tuple[Any, ...] | None) -> Piece:
    if row is None:
        raise SessionUnreadable(session_id, "a piece is missing")
    if tuple(map(type, row[:-1])) != _PIECE_TYPES:  # of a damaged database
        raise SessionUnreadable(session_id, "a piece: the stored data was altered: its values have other types")
    after, place, message_id, block, kind, loop, text, checksum = row
    if checksum is not None and checksum != piece_checksum(session_id, after, place, message_id, block, text.encode()):
        raise SessionUnreadable(session_id, f"piece {after}.{place}: the stored data was altered: its checksum differs")
    return Piece(after, place, MessageId(message_id), block, kind, text, LoopId(loop))
