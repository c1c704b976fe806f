"""Blade's memories over REST. Thin: decode, ask the memory book, encode. Source: specification, section 11."""

from starlette.requests import Request
from starlette.responses import Response

from dragoman.engine.services.memories import MemoryService
from dragoman.protocols.blade.rest.bodies import decode
from dragoman.protocols.blade.rest.router import Route, json_body
from dragoman.protocols.blade.wire import memories as wire
from dragoman.protocols.kit.http import json_response, principal_of

BODY_LIMIT = 64 * 1024


def routes(book: MemoryService) -> list[Route]:
    """What answers below `/api/memories`."""
    door = _MemoryHandlers(book)
    return [
        Route("POST", "memories", door.add),
        Route("GET", "memories", door.page),
        Route("POST", "memories/batch", door.batch),
        Route("GET", "memories/{memory}", door.get),
        Route("PUT", "memories/{memory}", door.change),
        Route("PATCH", "memories/{memory}", door.switch),
        Route("DELETE", "memories/{memory}", door.remove),
    ]


class _MemoryHandlers:
    def __init__(self, book: MemoryService) -> None:
        self._book = book

    async def add(self, request: Request) -> Response:
        texts = wire.texts_of(decode(wire.MemoryBody, await json_body(request, BODY_LIMIT)))
        return json_response(wire.to_memory_info(await self._book.add(principal_of(request).user, texts)), 201)

    async def page(self, request: Request) -> Response:
        offset, limit = wire.parse_page(request.query_params)
        asked = wire.parse_filter(request.query_params)
        memories, total = await self._book.page(principal_of(request).user, asked, offset, limit)
        return json_response(wire.MemoryPage([wire.to_memory_info(each) for each in memories], total))

    async def get(self, request: Request) -> Response:
        return json_response(wire.to_memory_info(await self._book.get(principal_of(request).user, _memory_id(request))))

    async def change(self, request: Request) -> Response:
        changes = wire.changes_of(decode(wire.MemoryBody, await json_body(request, BODY_LIMIT)))
        return json_response(
            wire.to_memory_info(await self._book.change(principal_of(request).user, _memory_id(request), changes))
        )

    async def switch(self, request: Request) -> Response:
        body = decode(wire.MemorySwitchBody, await json_body(request, BODY_LIMIT))
        changed = await self._book.change(principal_of(request).user, _memory_id(request), {}, disabled=body.disabled)
        return json_response(wire.to_memory_info(changed))

    async def remove(self, request: Request) -> Response:
        user, memory_id = principal_of(request).user, _memory_id(request)
        await self._book.get(user, memory_id)
        await self._book.remove(user, (memory_id,))
        return json_response({"ok": True})

    async def batch(self, request: Request) -> Response:
        body, user = decode(wire.MemoryBatchBody, await json_body(request, BODY_LIMIT)), principal_of(request).user
        ids = set(body.ids)
        if body.action == "delete":
            count = await self._book.remove(user, ids)
        else:
            count = await self._book.set_disabled(user, ids, disabled=body.action == "disable")
        return json_response({"ok": True, "count": count})


def _memory_id(request: Request) -> int:
    return wire.parse_memory_id(request.path_params["memory"])
