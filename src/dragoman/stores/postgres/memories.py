"""Memories in PostgreSQL."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from psycopg import Connection
from psycopg.rows import dict_row

from dragoman.core.ids import RunId, SessionId, UserId
from dragoman.core.memories import Memory, MemoryFilter, MemoryTexts, case_folded, searchable_text
from dragoman.stores.lookups import MAX_MATCHING_CANDIDATES, MAX_NEWEST_CANDIDATES, MEMORY_HIT_RETENTION
from dragoman.stores.postgres.arrays import Bigints, Texts
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.limits import has_room
from dragoman.stores.postgres.statements import statements
from dragoman.stores.times import from_us, time_or_none, to_us, us_or_none

_SQL = statements("memories")
_TEXTS = MemoryTexts.__struct_fields__


class PostgresMemories:
    """`MemoryStore` over one database."""

    def __init__(self, database: Database) -> None:
        self._read = database.read
        self._write = database.write

    async def add(self, memory: Memory, replaces: int | None = None, *, limit: int | None = None) -> Memory | None:
        """Store a new memory and return it with its id."""
        return await self._write(partial(_add, memory, replaces, limit))

    async def get(self, user: UserId, ids: Collection[int]) -> Sequence[Memory]:
        """Return those of the memories that belong to the user, newest first."""
        return await self._read(partial(_memories, "get", {"user": user, "ids": Bigints(ids)}))

    async def page(self, user: UserId, criteria: MemoryFilter, offset: int, limit: int) -> tuple[Sequence[Memory], int]:
        """Return a page of the matching memories, newest first, and the total number of matches."""
        return await self._read(partial(_page, user, criteria, offset, limit))

    async def put(self, memory: Memory, *, expected: Memory) -> bool:
        """Store a memory's texts, time of change and whether it is disabled."""
        values = {
            **_texts(memory.texts),
            "user": memory.user,
            "id": memory.id,
            "updated_at": us_or_none(memory.updated_at),
            "expected": us_or_none(expected.updated_at),
            "disabled": memory.disabled,
        }
        return await self._write(partial(_execute_count, "put", values)) == 1

    async def set_disabled(self, user: UserId, ids: Collection[int], *, disabled: bool, at: datetime) -> int:
        """Disable or enable memories. Returns how many changed."""
        values = {"user": user, "ids": Bigints(ids), "disabled": disabled, "at": to_us(at)}
        return await self._write(partial(_execute_count, "set_disabled", values))

    async def remove(self, user: UserId, ids: Collection[int]) -> int:
        """Remove memories permanently. Returns how many there were."""
        return await self._write(partial(_execute_count, "remove", {"user": user, "ids": Bigints(ids)}))

    async def candidates(self, user: UserId, trigrams: Sequence[str]) -> Sequence[Memory]:
        """Return enabled memories that may be relevant: the newest, and those that share most trigrams."""
        return await self._read(partial(_candidates, user, trigrams))

    async def record_hits(self, run_id: RunId, user: UserId, ids: Collection[int], at: datetime) -> None:
        """Count that an agent received these memories, at most once per run."""
        await self._write(partial(_record_hits, run_id, user, ids, at))


def _add(memory: Memory, replaces: int | None, limit: int | None, connection: Connection) -> Memory | None:
    if not has_room(connection, limit, f"memories of {memory.user}", _SQL["count"], {"user": memory.user}):
        return None
    if replaces is not None:
        held = connection.execute(_SQL["lock_memory"], {"user": memory.user, "id": replaces}).fetchone()
        if held is None:
            return None
    values = {
        **_texts(memory.texts),
        "user": memory.user,
        "source_session": memory.source_session,
        "created_at": to_us(memory.created_at),
        "hit_count": memory.hit_count,
        "disabled": memory.disabled,
    }
    row = connection.execute(_SQL["add"], values).fetchone()
    assert row is not None, "what is inserted has an id"
    added = msgspec.structs.replace(memory, id=row[0])
    if replaces is not None:
        connection.execute(_SQL["supersede"], {"by": added.id, "id": replaces})
    return added


def _page(
    user: UserId, criteria: MemoryFilter, offset: int, limit: int, connection: Connection
) -> tuple[Sequence[Memory], int]:
    values: dict[str, Any] = msgspec.structs.asdict(criteria)
    if any("\0" in value for value in values.values() if value is not None):
        return [], 0  # PostgreSQL stores no such text, so no memory contains it
    values["keyword"] = case_folded(criteria.keyword) if criteria.keyword else None
    values |= {"user": user, "offset": offset, "limit": limit}
    rows = connection.cursor(row_factory=dict_row).execute(_SQL["page"], values).fetchall()
    return [decode_memory(row) for row in rows if row["id"] is not None], rows[0]["count"]


def _candidates(user: UserId, trigrams: Sequence[str], connection: Connection) -> Sequence[Memory]:
    found: dict[int, Memory] = {}
    for kind in ("feedback", "experience"):
        newest = _memories("newest", {"user": user, "type": kind, "limit": MAX_NEWEST_CANDIDATES}, connection)
        found |= {memory.id: memory for memory in newest}
    if trigrams:
        best = _memories(
            "matching", {"user": user, "trigrams": Texts(trigrams), "limit": MAX_MATCHING_CANDIDATES}, connection
        )
        found |= {memory.id: memory for memory in best}
    return list(found.values())


def _record_hits(run_id: RunId, user: UserId, ids: Collection[int], at: datetime, connection: Connection) -> None:
    connection.execute(_SQL["forget_hits"], {"oldest": to_us(at - MEMORY_HIT_RETENTION)})
    if connection.execute(_SQL["note_hit"], {"run": run_id, "at": to_us(at)}).rowcount:
        connection.execute(_SQL["count_hits"], {"user": user, "ids": Bigints(ids), "at": to_us(at)})


def _execute_count(statement: str, values: Mapping[str, object], connection: Connection) -> int:
    return connection.execute(_SQL[statement], values).rowcount


def _memories(statement: str, values: Mapping[str, object], connection: Connection) -> list[Memory]:
    return [decode_memory(row) for row in connection.cursor(row_factory=dict_row).execute(_SQL[statement], values)]


def _texts(texts: MemoryTexts) -> dict[str, object]:
    return {**msgspec.structs.asdict(texts), "searched": searchable_text(texts)}


def decode_memory(row: Mapping[str, Any]) -> Memory:
    """A memory of its row."""
    return Memory(
        id=row["id"],
        user=UserId(row["user"]),
        texts=MemoryTexts(**{name: row[name] for name in _TEXTS}),
        source_session=None if row["source_session"] is None else SessionId(row["source_session"]),
        superseded_by=row["superseded_by"],
        created_at=from_us(row["created_at"]),
        updated_at=time_or_none(row["updated_at"]),
        hit_count=row["hit_count"],
        last_hit_at=time_or_none(row["last_hit_at"]),
        disabled=row["disabled"],
    )
