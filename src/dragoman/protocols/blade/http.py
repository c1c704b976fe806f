"""Blade's door: its REST tables put together, and its sockets. Thin; each area has its module."""

from collections.abc import Sequence

import msgspec

from dragoman.engine.engine import Engine
from dragoman.engine.services.keys import Doorkeeper
from dragoman.protocols.blade.rest import replays, server, sessions, turns
from dragoman.protocols.blade.rest.router import App, Route
from dragoman.protocols.blade.rest.server import About as About
from dragoman.protocols.blade.socket.inbox import Inbox
from dragoman.protocols.blade.socket.rooms import Rooms
from dragoman.protocols.blade.socket.server import Sockets
from dragoman.protocols.kit.http import Admit, Authenticate, free

OLDEST = "0.4.17"
"""The oldest level of the vendor's clients that the face was read against."""


class BladeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The door's settings."""

    about: About
    remembers: bool = True
    sync_patch_s: float = 0.0


class Blade:
    """The face: `rest` is to be mounted at `/api`, `sockets` at `/socket.io`."""

    def __init__(
        self,
        engine: Engine,
        authenticate: Authenticate,
        doorkeeper: Doorkeeper,
        options: BladeOptions,
        *,
        areas: Sequence[Route] = (),
        admit_run: Admit = free,
        admit_stream: Admit = free,
    ) -> None:
        """Put the face together.

        Args:
            engine: the engine.
            authenticate: who sends a request.
            doorkeeper: who connects, and when their keys are revoked.
            options: the settings.
            areas: what answers below `/api` besides sessions.
            admit_run: counts a chat against its caller's share.
            admit_stream: counts a connection against it.
        """
        rooms = Rooms(engine, options.sync_patch_s)
        self._rooms = rooms
        self.rest = App(
            [
                *server.routes(engine, options.about),
                *sessions.routes(engine, remembers=options.remembers),
                *turns.routes(engine),
                *replays.routes(engine),
                *areas,
            ],
            authenticate,
        )
        self.sockets = Sockets(
            doorkeeper,
            Inbox(engine, rooms, admit_run).handlers(),
            on_connect=rooms.connected,
            on_gone=rooms.gone,
            admit=admit_stream,
        )

    async def close(self) -> None:
        """Send the sockets away."""
        await self.sockets.close()
        await self._rooms.close()
