"""The pieces of open blocks: where each block's rows are, so that they are found without an index.

Used on the writer's thread, inside its transaction.
"""

import sqlite3
from collections.abc import Iterable

from dragoman.core.content import Growing
from dragoman.core.ids import LoopId, MessageId, SessionId
from dragoman.core.stream import Piece, cursor_of
from dragoman.ports import Append

_Block = tuple[MessageId, int]


class Pieces:
    """The table of pieces. What it holds is read once; nobody else changes it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._rows: dict[SessionId, dict[_Block, list[int]]] = {}
        self._last = 0
        for self._last, session_id, message_id, block in connection.execute(
            "SELECT id, session_id, message_id, block FROM pieces ORDER BY id"
        ):
            self._rows.setdefault(session_id, {}).setdefault((message_id, block), []).append(self._last)

    def write(self, appends: Iterable[Append], connection: sqlite3.Connection) -> None:
        """Add the pieces of blocks that stay open, and remove those of blocks that close."""
        gone: list[tuple[int]] = []
        new: list[tuple[object, ...]] = []
        row = self._last
        for append in appends:
            session_id = append.session_id
            for closed in append.closed:
                gone += [(each,) for each in self._removed(session_id, closed)]
            for piece in append.pieces:
                row += 1
                message_id, block = piece.message_id, piece.index
                self._blocks(session_id).setdefault((message_id, block), []).append(row)
                new.append(
                    (row, session_id, piece.after, piece.place, message_id, block, piece.kind, piece.loop, piece.text)
                )
        self._last = row
        if gone:
            connection.executemany("DELETE FROM pieces WHERE id = ?", gone)
        if new:
            connection.executemany("INSERT INTO pieces VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", new)

    def of(self, session_id: SessionId, connection: sqlite3.Connection) -> list[Piece]:
        """A session's pieces, in order."""
        found = [
            _piece(*connection.execute(_SELECT, (row,)).fetchone())
            for rows in self._rows.get(session_id, {}).values()
            for row in rows
        ]
        return sorted(found, key=cursor_of)

    def delete(self, session_id: SessionId, connection: sqlite3.Connection) -> None:
        """Remove a session's pieces."""
        rows = self._rows.pop(session_id, {}).values()
        connection.executemany("DELETE FROM pieces WHERE id = ?", [(row,) for block in rows for row in block])

    def _blocks(self, session_id: SessionId) -> dict[_Block, list[int]]:
        blocks = self._rows.get(session_id)
        if blocks is None:
            blocks = self._rows[session_id] = {}
        return blocks

    def _removed(self, session_id: SessionId, closed: _Block) -> list[int]:
        blocks = self._rows.get(session_id, {})
        rows = blocks.pop(closed, [])
        if rows and not blocks:
            del self._rows[session_id]
        return rows


_SELECT = "SELECT after, place, message_id, block, kind, text, loop FROM pieces WHERE id = ?"


def _piece(after: int, place: int, message_id: str, block: int, kind: Growing, text: str, loop: str) -> Piece:
    return Piece(after, place, MessageId(message_id), block, kind, text, LoopId(loop))
