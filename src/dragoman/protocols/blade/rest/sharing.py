"""Blade's share links over REST. Thin: decode, ask the book of links, encode. Source: specification, section 5.5.

What a link shows is the conversation: neither the session's variables nor what is remembered of its user.
"""

from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.refusals import Forbidden, NotFound, SessionNotFound
from dragoman.engine.engine import Engine
from dragoman.engine.services.shares import ShareService
from dragoman.protocols.blade.projection.loader import active_turns, load_projection, remove_memories
from dragoman.protocols.blade.rest.access import open_owned_session
from dragoman.protocols.blade.rest.bodies import RequestBody, decode
from dragoman.protocols.blade.rest.router import Route, json_body
from dragoman.protocols.kit.http import json_response

BODY_LIMIT = 16 * 1024
MAX_TTL_S = 10 * 366 * 24 * 3600
PRIVATE_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


class NewShare(RequestBody, frozen=True):
    """The body of a creation. Without a time the link lasts until it is revoked."""

    ttl_seconds: Annotated[int, Meta(ge=1, le=MAX_TTL_S)] | None = None


class ShareInfo(msgspec.Struct, frozen=True):
    """A new link."""

    token: str
    url: str
    expires_at: datetime | None


def routes(
    engine: Engine, book: ShareService, *, public_url: str | None = None, is_enabled: bool = True
) -> list[Route]:
    """What answers about share links.

    Args:
        engine: where the sessions are.
        book: the links.
        public_url: the server's address for clients; else as they asked for it.
        is_on: whether there are links at all.
    """
    door = _ShareHandlers(engine, book, public_url)
    return [
        Route("POST", "sessions/{session}/share", door.create if is_enabled else _sharing_disabled),
        Route("DELETE", "sessions/{session}/share/{token}", door.revoke if is_enabled else _sharing_disabled),
        Route("GET", "share/{token}", door.show if is_enabled else _sharing_disabled, is_open=True),
    ]


class _ShareHandlers:
    def __init__(self, engine: Engine, book: ShareService, public_url: str | None) -> None:
        self._engine = engine
        self._book = book
        self._public_url = public_url

    async def create(self, request: Request) -> Response:
        body = decode(NewShare, await json_body(request, BODY_LIMIT))
        lasts = None if body.ttl_seconds is None else timedelta(seconds=body.ttl_seconds)
        async with await open_owned_session(self._engine, request) as live:
            token, expires_at = await self._book.create(live.state.owner, live.state.session_id, lasts)
        base = self._public_url or f"{request.url.scheme}://{request.url.netloc}"
        url = f"{base.rstrip('/')}{request.scope.get('root_path', '')}/share/{token}"
        return json_response(ShareInfo(token, url, expires_at), headers=PRIVATE_HEADERS)

    async def revoke(self, request: Request) -> Response:
        async with await open_owned_session(self._engine, request) as live:
            await self._book.revoke(live.state.session_id, request.path_params["token"])
        return json_response({"revoked": True})

    async def show(self, request: Request) -> Response:
        share = await self._book.resolve(request.path_params["token"])
        try:
            async with self._engine.session(share.owner, share.session_id) as live:
                turns = active_turns(live, await load_projection(self._engine, live))
        except SessionNotFound as error:
            raise NotFound("there is no such link") from error
        remove_memories(turns)
        return json_response([each.turn for each in turns], headers=PRIVATE_HEADERS)


async def _sharing_disabled(_: Request) -> Response:
    raise Forbidden("public sharing is switched off on this server")
