"""Blade's memories over REST. Thin: decode, ask the memory book, encode. Source: specification, section 11."""

from starlette.requests import Request
from starlette.responses import Response

from dragoman.engine.services.memories import MemoryBook
from dragoman.protocols.blade.rest.bodies import decode
from dragoman.protocols.blade.rest.router import Route, json_body
from dragoman.protocols.blade.wire import memories as wire
from dragoman.protocols.kit.http import caller_of, json_answer

BODY_LIMIT = 64 * 1024


def routes(book: MemoryBook) -> list[Route]:
    """What answers below `/api/memories`."""
    door = _Door(book)
    return [
        Route("POST", "memories", door.add),
        Route("GET", "memories", door.page),
        Route("POST", "memories/batch", door.batch),
        Route("GET", "memories/{memory}", door.get),
        Route("PUT", "memories/{memory}", door.change),
        Route("PATCH", "memories/{memory}", door.switch),
        Route("DELETE", "memories/{memory}", door.remove),
    ]


class _Door:
    def __init__(self, book: MemoryBook) -> None:
        self._book = book

    async def add(self, request: Request) -> Response:
        texts = wire.texts_of(decode(wire.ChangedMemory, await json_body(request, BODY_LIMIT)))
        return json_answer(wire.shown(await self._book.add(caller_of(request).user, texts)), 201)

    async def page(self, request: Request) -> Response:
        offset, limit = wire.page_of(request.query_params)
        asked = wire.filter_of(request.query_params)
        memories, total = await self._book.page(caller_of(request).user, asked, offset, limit)
        return json_answer(wire.MemoryPage([wire.shown(each) for each in memories], total))

    async def get(self, request: Request) -> Response:
        return json_answer(wire.shown(await self._book.get(caller_of(request).user, _asked(request))))

    async def change(self, request: Request) -> Response:
        changes = wire.changes_of(decode(wire.ChangedMemory, await json_body(request, BODY_LIMIT)))
        return json_answer(wire.shown(await self._book.change(caller_of(request).user, _asked(request), changes)))

    async def switch(self, request: Request) -> Response:
        body = decode(wire.SwitchedMemory, await json_body(request, BODY_LIMIT))
        changed = await self._book.change(caller_of(request).user, _asked(request), {}, disabled=body.disabled)
        return json_answer(wire.shown(changed))

    async def remove(self, request: Request) -> Response:
        user, memory_id = caller_of(request).user, _asked(request)
        await self._book.get(user, memory_id)
        await self._book.remove(user, (memory_id,))
        return json_answer({"ok": True})

    async def batch(self, request: Request) -> Response:
        body, user = decode(wire.MemoryBatch, await json_body(request, BODY_LIMIT)), caller_of(request).user
        ids = set(body.ids)
        if body.action == "delete":
            count = await self._book.remove(user, ids)
        else:
            count = await self._book.switch(user, ids, disabled=body.action == "disable")
        return json_answer({"ok": True, "count": count})


def _asked(request: Request) -> int:
    return wire.memory_id(request.path_params["memory"])
