"""Assembles Blade: REST on the protocol kit, and the Socket.IO server. Each area of REST has its own module."""

from collections.abc import Sequence

from dragoman.engine.engine import Engine
from dragoman.engine.services.keys import KeyRing
from dragoman.protocols.blade.errors import ERROR_TABLE
from dragoman.protocols.blade.projection.emitter import PatchOptions
from dragoman.protocols.blade.rest.attachments import AttachmentHandlers
from dragoman.protocols.blade.rest.endpoints import API, BladeHandlers, write_error
from dragoman.protocols.blade.rest.replays import ReplayHandlers
from dragoman.protocols.blade.rest.server import ServerHandlers
from dragoman.protocols.blade.rest.server import ServerInfo as ServerInfo
from dragoman.protocols.blade.rest.sessions import SessionHandlers
from dragoman.protocols.blade.rest.timelines import TimelineHandlers
from dragoman.protocols.blade.rest.turns import TurnHandlers
from dragoman.protocols.blade.socket.inbox import Inbox
from dragoman.protocols.blade.socket.rooms import Rooms
from dragoman.protocols.blade.socket.server import SocketServer
from dragoman.protocols.kit.access import AccessControl
from dragoman.protocols.kit.app import ProtocolApp

OLDEST_CLIENT_LEVEL = "0.4.17"
"""The oldest level of the vendor's clients that this implementation was checked against."""


class Blade:
    """The protocol: mount `rest` at `/api` and `socket_server` at `/socket.io`. `openapi_routes` describes `rest`.

    Args:
        access: identifies who sends a request and who connects, and counts connections against their user's limit.
        server_info: what the server reports about itself.
        areas: the endpoints of REST besides those of sessions.
        patches: how growing turns are sent.
        unauthenticated_per_address: how many connections without a key an address may have open; 0 for any number.
    """

    def __init__(
        self,
        engine: Engine,
        access: AccessControl,
        server_info: ServerInfo,
        key_ring: KeyRing,
        *,
        areas: Sequence[BladeHandlers],
        patches: PatchOptions,
        unauthenticated_per_address: int,
    ) -> None:
        areas = (
            ServerHandlers(engine, server_info, key_ring),
            SessionHandlers(engine, memory_default=server_info.memory_enabled),
            TurnHandlers(engine),
            TimelineHandlers(engine),
            AttachmentHandlers(engine),
            ReplayHandlers(engine),
            *areas,
        )
        self.openapi_routes = API.routes(*map(type, areas))
        routes = [route for area in areas for route in area.routes()]
        self.rest = ProtocolApp("blade", routes, ERROR_TABLE, access, write_error=write_error)
        self._rooms = rooms = Rooms(engine, patches)
        self.socket_server = SocketServer(
            access,
            Inbox(engine, rooms).handlers(),
            on_connect=rooms.on_connect,
            on_disconnect=rooms.on_disconnect,
            unauthenticated_per_address=unauthenticated_per_address,
        )

    async def close(self) -> None:
        """Disconnect all sockets."""
        await self.socket_server.close()
        await self._rooms.close()
