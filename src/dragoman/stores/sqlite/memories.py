"""Memories in SQLite, with a full-text index of their trigrams."""

import sqlite3
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from dragoman.core.ids import RunId, SessionId, UserId
from dragoman.core.memories import Memory, MemoryFilter, MemoryTexts, case_folded, searchable_text
from dragoman.stores.lookups import MAX_MATCHING_CANDIDATES, MAX_NEWEST_CANDIDATES, MEMORY_HIT_RETENTION
from dragoman.stores.sqlite.database import Database
from dragoman.stores.times import from_us, time_or_none, to_us, us_or_none

_TEXTS = MemoryTexts.__struct_fields__
_COLUMNS = (
    f"id, user, {', '.join(_TEXTS)}, source_session, superseded_by, created_at, updated_at, hit_count, last_hit_at,"
    " disabled"
)
_IN_FORCE = "disabled = 0 AND superseded_by IS NULL"
_STATUS = {
    "enabled": _IN_FORCE,
    "disabled": "disabled = 1",
    "superseded": "superseded_by IS NOT NULL",
}


class SqliteMemories:
    """`MemoryStore` over one database."""

    def __init__(self, database: Database) -> None:
        self._run = database.writer.run
        self._read = database.read

    async def add(self, memory: Memory, replaces: int | None = None, *, limit: int | None = None) -> Memory | None:
        """Store a new memory and return it with its id."""
        return await self._run(partial(_add, memory, replaces, limit))

    async def get(self, user: UserId, ids: Collection[int]) -> Sequence[Memory]:
        """Return those of the memories that belong to the user, newest first."""
        return await self._read(partial(_get, user, ids))

    async def page(self, user: UserId, criteria: MemoryFilter, offset: int, limit: int) -> tuple[Sequence[Memory], int]:
        """Return a page of the matching memories, newest first, and the total number of matches."""
        return await self._read(partial(_page, user, criteria, offset, limit))

    async def put(self, memory: Memory, *, expected: Memory) -> bool:
        """Store a memory's texts, time of change and whether it is disabled."""
        return await self._run(partial(_put, memory, expected))

    async def set_disabled(self, user: UserId, ids: Collection[int], *, disabled: bool, at: datetime) -> int:
        """Disable or enable memories. Returns how many changed."""
        return await self._run(partial(_set_disabled, user, ids, disabled, at))

    async def remove(self, user: UserId, ids: Collection[int]) -> int:
        """Remove memories permanently. Returns how many there were."""
        return await self._run(partial(_remove, user, ids))

    async def candidates(self, user: UserId, trigrams: Sequence[str]) -> Sequence[Memory]:
        """Return enabled memories that may be relevant: the newest, and those that share most trigrams."""
        return await self._read(partial(_candidates, user, trigrams))

    async def record_hits(self, run_id: RunId, user: UserId, ids: Collection[int], at: datetime) -> None:
        """Count that an agent received these memories, at most once per run."""
        await self._run(partial(_record_hits, run_id, user, ids, at))


def _add(memory: Memory, replaces: int | None, limit: int | None, connection: sqlite3.Connection) -> Memory | None:
    texts = memory.texts
    if limit is not None:
        (count,) = connection.execute("SELECT count(*) FROM memories WHERE user = ?", (memory.user,)).fetchone()
        if count >= limit:
            return None
    if replaces is not None and not _get(memory.user, (replaces,), connection):
        return None
    names = ("user", *_TEXTS, "source_session", "created_at", "hit_count", "disabled", "searched")
    values = (
        memory.user,
        *msgspec.structs.astuple(texts),
        memory.source_session,
        to_us(memory.created_at),
        memory.hit_count,
        memory.disabled,
        searchable_text(texts),
    )
    marks = ", ".join("?" * len(names))
    done = connection.execute(f"INSERT INTO memories ({', '.join(names)}) VALUES ({marks})", values)  # noqa: S608
    added = msgspec.structs.replace(memory, id=done.lastrowid)
    if replaces is not None:
        connection.execute("UPDATE memories SET superseded_by = ? WHERE id = ?", (added.id, replaces))
    return added


def _get(user: UserId, ids: Collection[int], connection: sqlite3.Connection) -> Sequence[Memory]:
    return select_memories(connection, f"user = ? AND {_id_in(ids)} ORDER BY id DESC", (user, *ids))


def _page(
    user: UserId, criteria: MemoryFilter, offset: int, limit: int, connection: sqlite3.Connection
) -> tuple[Sequence[Memory], int]:
    where, values = _where(user, criteria)
    (total,) = connection.execute(f"SELECT count(*) FROM memories WHERE {where}", values).fetchone()  # noqa: S608
    page = select_memories(connection, f"{where} ORDER BY id DESC LIMIT ? OFFSET ?", (*values, limit, offset))
    return page, total


def _where(user: UserId, criteria: MemoryFilter) -> tuple[str, list[object]]:
    conditions: list[str] = ["user = ?"]
    values: list[object] = [user]
    for name in ("skill_name", "type", "record_type", "scope", "owner", "topic"):
        value = getattr(criteria, name)
        if value is not None:
            conditions.append(f"{name} = ?")
            values.append(value)
    if criteria.status is not None:
        conditions.append(_STATUS[criteria.status])
    if criteria.keyword:
        keyword = case_folded(criteria.keyword)
        if len(keyword) >= 3:  # the index has no shorter texts
            conditions.append("id IN (SELECT rowid FROM memories_text WHERE memories_text MATCH ?)")
            values.append(_phrase(keyword))
        conditions.append("instr(searched, ?) > 0")
        values.append(keyword)
    return " AND ".join(conditions), values


def _put(memory: Memory, expected: Memory, connection: sqlite3.Connection) -> bool:
    texts = memory.texts
    done = connection.execute(
        f"UPDATE memories SET {', '.join(f'{name} = ?' for name in _TEXTS)}, updated_at = ?, disabled = ?, searched = ?"  # noqa: S608
        " WHERE user = ? AND id = ? AND updated_at IS ?",
        (
            *msgspec.structs.astuple(texts),
            us_or_none(memory.updated_at),
            memory.disabled,
            searchable_text(texts),
            memory.user,
            memory.id,
            us_or_none(expected.updated_at),
        ),
    )
    return done.rowcount == 1


def _set_disabled(
    user: UserId, ids: Collection[int], disabled: bool, at: datetime, connection: sqlite3.Connection
) -> int:
    change = f"UPDATE memories SET disabled = ?, updated_at = ? WHERE user = ? AND disabled <> ? AND {_id_in(ids)}"  # noqa: S608
    return connection.execute(change, (disabled, to_us(at), user, disabled, *ids)).rowcount


def _remove(user: UserId, ids: Collection[int], connection: sqlite3.Connection) -> int:
    return connection.execute(f"DELETE FROM memories WHERE user = ? AND {_id_in(ids)}", (user, *ids)).rowcount  # noqa: S608


def _candidates(user: UserId, trigrams: Sequence[str], connection: sqlite3.Connection) -> Sequence[Memory]:
    newest = f"user = ? AND type = ? AND {_IN_FORCE} ORDER BY id DESC LIMIT {MAX_NEWEST_CANDIDATES}"
    experience = select_memories(connection, newest, (user, "experience"))
    found = {memory.id: memory for memory in (*select_memories(connection, newest, (user, "feedback")), *experience)}
    if trigrams and len(experience) == MAX_NEWEST_CANDIDATES:  # else all have been found
        rows = connection.execute(
            "SELECT memories.id FROM memories_text JOIN memories ON memories.id = memories_text.rowid"  # noqa: S608
            f" WHERE memories_text MATCH ? AND memories.user = ? AND type = 'experience' AND {_IN_FORCE}"
            f" ORDER BY memories_text.rank LIMIT {MAX_MATCHING_CANDIDATES}",
            (" OR ".join(map(_phrase, trigrams)), user),
        )
        best = [memory_id for (memory_id,) in rows if memory_id not in found]
        found |= {memory.id: memory for memory in _get(user, best, connection)}
    return list(found.values())


def _record_hits(
    run_id: RunId, user: UserId, ids: Collection[int], at: datetime, connection: sqlite3.Connection
) -> None:
    connection.execute("DELETE FROM memory_hits WHERE at < ?", (to_us(at - MEMORY_HIT_RETENTION),))
    if connection.execute("INSERT OR IGNORE INTO memory_hits VALUES (?, ?)", (run_id, to_us(at))).rowcount:
        connection.execute(
            f"UPDATE memories SET hit_count = hit_count + 1, last_hit_at = ? WHERE user = ? AND {_id_in(ids)}",  # noqa: S608
            (to_us(at), user, *ids),
        )


def _phrase(text: str) -> str:
    """Quote a text as a phrase for the full-text index."""
    return '"' + text.replace('"', '""') + '"'


def _id_in(ids: Collection[int]) -> str:
    return f"id IN ({', '.join('?' * len(ids))})"


def select_memories(connection: sqlite3.Connection, where: str, values: Sequence[object]) -> list[Memory]:
    """Select memories by a condition with its ordering."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM memories WHERE {where}", values)  # noqa: S608
    return [_decode_memory(row) for row in rows]


def _decode_memory(row: Sequence[Any]) -> Memory:
    memory_id, user, *rest = row
    texts, rest = rest[: len(_TEXTS)], rest[len(_TEXTS) :]
    source, superseded_by, created_at, updated_at, hit_count, last_hit_at, disabled = rest
    return Memory(
        id=memory_id,
        user=UserId(user),
        texts=MemoryTexts(**dict(zip(_TEXTS, texts, strict=True))),
        source_session=None if source is None else SessionId(source),
        superseded_by=superseded_by,
        created_at=from_us(created_at),
        updated_at=time_or_none(updated_at),
        hit_count=hit_count,
        last_hit_at=time_or_none(last_hit_at),
        disabled=bool(disabled),
    )
