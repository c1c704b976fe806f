"""Blade's memories over REST. Source: specification, section 11."""

from collections.abc import Mapping

import msgspec

from dragoman.core.memories import MemoryFilter
from dragoman.core.principal import Principal
from dragoman.engine.services.memories import MemoryService
from dragoman.protocols.blade.rest.endpoints import PAGE_QUERY, BladeHandlers, endpoint, parse_page
from dragoman.protocols.blade.wire import memories as wire
from dragoman.protocols.kit.decoding import convert_value
from dragoman.protocols.kit.endpoints import query

_MEMORY = "/memories/{memory}"
_FILTER_QUERY = (
    query("keyword", "part of the content or the topic, in any case and script"),
    query("skill_name", "exactly this skill"),
    query("type", "`feedback` or `experience`"),
    query("record_type", "`memory` or `skill_comment`"),
    query("scope", "exactly this scope"),
    query("owner", "exactly this owner"),
    query("topic", "exactly this topic"),
    query("status", "`enabled`, `disabled` or `superseded`"),
)


class OperationResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a deletion or a batch; `count` is the number of memories that a batch changed."""

    ok: bool
    count: int | None = None


class MemoryHandlers(BladeHandlers):
    """Handlers below `/memories`."""

    def __init__(self, memories: MemoryService) -> None:
        self._memories = memories

    @endpoint("POST", "/memories", example={"content": "likes tea"}, status=201)
    async def add(self, principal: Principal, body: wire.NewMemoryBody) -> wire.MemoryInfo:
        """Create a memory."""
        return wire.to_memory_info(await self._memories.add(principal.user, wire.texts_of(body)))

    @endpoint("GET", "/memories", parameters=(*_FILTER_QUERY, *PAGE_QUERY))
    async def page(self, principal: Principal, query: Mapping[str, str]) -> wire.MemoryPage:
        """List memories, newest first."""
        offset, limit = parse_page(query, default=20, maximum=100)
        wanted = convert_value({name: value for name, value in query.items() if value}, MemoryFilter)
        memories, total = await self._memories.page(principal.user, wanted, offset, limit)
        return wire.MemoryPage([wire.to_memory_info(each) for each in memories], total)

    @endpoint("POST", "/memories/batch", example={"action": "disable", "ids": [1]})
    async def batch(self, principal: Principal, body: wire.MemoryBatchBody) -> OperationResult:
        """Delete, disable or enable memories."""
        user, ids = principal.user, set(body.ids)
        if body.action == "delete":
            return OperationResult(True, await self._memories.remove(user, ids))
        return OperationResult(True, await self._memories.set_disabled(user, ids, disabled=body.action == "disable"))

    @endpoint("GET", _MEMORY)
    async def get(self, principal: Principal, memory: str) -> wire.MemoryInfo:
        """Get a memory."""
        return wire.to_memory_info(await self._memories.get(principal.user, wire.parse_memory_id(memory)))

    @endpoint("PUT", _MEMORY, example={"topic": "taste"})
    async def change(self, principal: Principal, memory: str, body: wire.MemoryBody) -> wire.MemoryInfo:
        """Change a memory."""
        changes, memory_id = wire.changes_of(body), wire.parse_memory_id(memory)
        return wire.to_memory_info(await self._memories.change(principal.user, memory_id, changes))

    @endpoint("PATCH", _MEMORY, example={"disabled": True})
    async def switch(self, principal: Principal, memory: str, body: wire.MemorySwitchBody) -> wire.MemoryInfo:
        """Disable or enable a memory."""
        memory_id = wire.parse_memory_id(memory)
        changed = await self._memories.change(principal.user, memory_id, {}, disabled=body.disabled)
        return wire.to_memory_info(changed)

    @endpoint("DELETE", _MEMORY)
    async def remove(self, principal: Principal, memory: str) -> OperationResult:
        """Delete a memory."""
        memory_id = wire.parse_memory_id(memory)
        await self._memories.get(principal.user, memory_id)
        await self._memories.remove(principal.user, (memory_id,))
        return OperationResult(True)
