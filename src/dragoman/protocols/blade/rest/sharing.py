"""Blade's share links over REST. Source: specification, section 5.5.

A link shows the conversation, without the session's variables and the memories of its user.
"""

from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.refusals import Forbidden, NotFound, SessionNotFound
from dragoman.engine.engine import Engine
from dragoman.engine.services.shares import ShareService, share_id
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.blade.projection.loader import active_turns, load_projection, remove_memories
from dragoman.protocols.blade.rest.endpoints import PRIVATE_HEADERS, SESSION, BladeHandlers, endpoint
from dragoman.protocols.blade.wire.chat import Turn
from dragoman.protocols.kit.app import address_of
from dragoman.protocols.kit.router import Route

MAX_TTL_S = 10 * 366 * 24 * 3600


class NewShare(msgspec.Struct, frozen=True):
    """The body of a creation. Without a time to live the link lasts until it is revoked."""

    ttl_seconds: Annotated[int, Meta(ge=1, le=MAX_TTL_S)] | None = None


class ShareInfo(msgspec.Struct, frozen=True):
    """A link as its owner sees it. Its ID revokes it, but does not open it."""

    id: str
    created_at: datetime
    expires_at: datetime | None


class CreatedShare(ShareInfo, frozen=True):
    """A new link, with the token that opens it."""

    token: str
    url: str


class ShareHandlers(BladeHandlers):
    """Handlers of share links.

    Args:
        public_url: the server's address for clients; if None, the one that the request was sent to.
        is_enabled: whether links exist at all.
    """

    def __init__(self, engine: Engine, shares: ShareService, *, public_url: str | None, is_enabled: bool) -> None:
        self.engine = engine
        self._shares = shares
        self._public_url = public_url
        self._is_enabled = is_enabled

    def routes(self) -> list[Route]:
        """Return the routes, which refuse every request if links are switched off."""
        routes = super().routes()
        return routes if self._is_enabled else [each._replace(handler=_refuse) for each in routes]

    @endpoint("POST", f"{SESSION}/share", access="owner", example={"ttl_seconds": 3600}, headers=PRIVATE_HEADERS)
    async def create(self, request: Request, session: SessionView, body: NewShare) -> CreatedShare:
        """Create a link that shows a session."""
        ttl = None if body.ttl_seconds is None else timedelta(seconds=body.ttl_seconds)
        token, share = await self._shares.create(session.state.owner, session.state.session_id, ttl)
        base = self._public_url or f"{request.url.scheme}://{request.url.netloc}"
        url = f"{base.rstrip('/')}{request.scope.get('root_path', '')}/share/{token}"
        return CreatedShare(share_id(share), share.created_at, share.expires_at, token, url)

    @endpoint("GET", f"{SESSION}/share", access="owner", headers=PRIVATE_HEADERS)
    async def list_links(self, session: SessionView) -> list[ShareInfo]:
        """List the newest valid links of a session, at most 1,000, newest first. Their tokens are not stored."""
        shares = await self._shares.of_session(session.state.session_id)
        return [ShareInfo(share_id(each), each.created_at, each.expires_at) for each in shares]

    @endpoint("DELETE", f"{SESSION}/share/{{token}}", access="owner")
    async def revoke(self, session: SessionView, token: str) -> dict[str, bool]:
        """Revoke a link. In place of its token, its ID from the list will do."""
        await self._shares.revoke(session.state.session_id, token)
        return {"revoked": True}

    @endpoint("GET", "/share/{token}", is_open=True, headers=PRIVATE_HEADERS)
    async def show(self, token: str, request: Request) -> list[Turn]:
        """Get the turns of a shared session."""
        share = await self._shares.resolve(token, address_of(request.scope))
        try:
            async with self.engine.session(share.owner, share.session_id) as session:
                turns = active_turns(session, await load_projection(self.engine, session))
        except SessionNotFound as error:
            raise NotFound("there is no such link") from error
        remove_memories(turns)
        return [each.turn for each in turns]


async def _refuse(_: Request) -> Response:
    raise Forbidden("public sharing is switched off on this server")
