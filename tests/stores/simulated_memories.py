"""Memories in a dictionary: the contract in the fewest words."""

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from dragoman.core.ids import RunId, UserId
from dragoman.core.memories import Memory, MemoryFilter, case_folded, searchable_text


class SimulatedMemories:
    """`Memories` in memory. All that are in force are candidates."""

    def __init__(self) -> None:
        self._all: dict[int, Memory] = {}
        self._count = 0
        self._hits: set[RunId] = set()

    def _of_user(self, user: UserId) -> list[Memory]:
        return [memory for memory in reversed(self._all.values()) if memory.user == user]

    async def add(self, memory: Memory, replaces: int | None = None, *, limit: int | None = None) -> Memory | None:
        if limit is not None and len(self._of_user(memory.user)) >= limit:
            return None
        if replaces is not None and not await self.get(memory.user, (replaces,)):
            return None
        self._count += 1
        self._all[self._count] = added = msgspec.structs.replace(memory, id=self._count)
        if replaces is not None:
            self._all[replaces] = msgspec.structs.replace(self._all[replaces], superseded_by=added.id)
        return added

    async def get(self, user: UserId, ids: Collection[int]) -> Sequence[Memory]:
        return [memory for memory in self._of_user(user) if memory.id in ids]

    async def page(self, user: UserId, criteria: MemoryFilter, offset: int, limit: int) -> tuple[Sequence[Memory], int]:
        found = [memory for memory in self._of_user(user) if fits(memory, criteria)]
        return found[offset : offset + limit], len(found)

    async def put(self, memory: Memory, *, expected: Memory) -> bool:
        found = [each for each in await self.get(memory.user, (memory.id,)) if each.updated_at == expected.updated_at]
        for each in found:
            self._all[each.id] = msgspec.structs.replace(
                each, texts=memory.texts, updated_at=memory.updated_at, disabled=memory.disabled
            )
        return bool(found)

    async def set_disabled(self, user: UserId, ids: Collection[int], *, disabled: bool, at: datetime) -> int:
        found = [memory for memory in await self.get(user, ids) if memory.disabled != disabled]
        for each in found:
            self._all[each.id] = msgspec.structs.replace(each, disabled=disabled, updated_at=at)
        return len(found)

    async def remove(self, user: UserId, ids: Collection[int]) -> int:
        found = await self.get(user, ids)
        for each in found:
            del self._all[each.id]
        return len(found)

    async def candidates(self, user: UserId, trigrams: Sequence[str]) -> Sequence[Memory]:
        return [memory for memory in self._of_user(user) if fits(memory, MemoryFilter(status="enabled"))]

    async def record_hits(self, run_id: RunId, user: UserId, ids: Collection[int], at: datetime) -> None:
        if run_id not in self._hits:
            self._hits.add(run_id)
            for each in await self.get(user, ids):
                self._all[each.id] = msgspec.structs.replace(each, hit_count=each.hit_count + 1, last_hit_at=at)


def fits(memory: Memory, query: MemoryFilter) -> bool:
    names = ("skill_name", "type", "record_type", "scope", "owner", "topic")
    wanted = {name: getattr(query, name) for name in names}
    is_off = {
        None: False,
        "enabled": memory.disabled or memory.superseded_by is not None,
        "disabled": not memory.disabled,
        "superseded": memory.superseded_by is None,
    }[query.status]
    return (
        not is_off
        and all(value is None or getattr(memory.texts, name) == value for name, value in wanted.items())
        and case_folded(query.keyword or "") in searchable_text(memory.texts)
    )
