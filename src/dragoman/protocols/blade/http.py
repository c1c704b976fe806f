"""Blade's door: its REST tables put together, and its sockets. Thin; each area has its module."""

from collections.abc import Sequence

import msgspec

from dragoman.engine.engine import Engine
from dragoman.engine.services.keys import Authenticator
from dragoman.protocols.blade.rest import replays, server, sessions, turns
from dragoman.protocols.blade.rest.router import App, Route
from dragoman.protocols.blade.rest.server import ServerInfo as ServerInfo
from dragoman.protocols.blade.socket.inbox import Inbox
from dragoman.protocols.blade.socket.rooms import Rooms
from dragoman.protocols.blade.socket.server import SocketServer
from dragoman.protocols.kit.http import Admit, Authenticate, admit_all

OLDEST_CLIENT_LEVEL = "0.4.17"
"""The oldest level of the vendor's clients that the face was read against."""


class BladeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The door's settings."""

    server_info: ServerInfo
    memory_default: bool = True
    sync_patch_interval_s: float = 0.0


class Blade:
    """The face: `rest` is to be mounted at `/api`, `sockets` at `/socket.io`."""

    def __init__(
        self,
        engine: Engine,
        authenticate: Authenticate,
        authenticator: Authenticator,
        options: BladeOptions,
        *,
        extra_routes: Sequence[Route] = (),
        admit_stream: Admit = admit_all,
    ) -> None:
        """Put the face together.

        Args:
            engine: the engine.
            authenticate: who sends a request.
            doorkeeper: who connects, and when their keys are revoked.
            options: the settings.
            areas: what answers below `/api` besides sessions.
            admit_stream: counts a connection against it.
        """
        rooms = Rooms(engine, options.sync_patch_interval_s)
        self._rooms = rooms
        self.rest = App(
            [
                *server.routes(engine, options.server_info),
                *sessions.routes(engine, memory_default=options.memory_default),
                *turns.routes(engine),
                *replays.routes(engine),
                *extra_routes,
            ],
            authenticate,
        )
        self.socket_server = SocketServer(
            authenticator,
            Inbox(engine, rooms).handlers(),
            on_connect=rooms.on_connect,
            on_disconnect=rooms.on_disconnect,
            admit=admit_stream,
        )

    async def close(self) -> None:
        """Send the sockets away."""
        await self.socket_server.close()
        await self._rooms.close()
