"""Blade's door: its REST tables put together, and its sockets. Thin; each area has its module."""

from collections.abc import Sequence

import msgspec

from dragoman.engine.engine import Engine
from dragoman.engine.keys import Doorkeeper
from dragoman.protocols._http import Admit, Authenticate, free
from dragoman.protocols.blade import replays_http, server_http, sessions_http, turns_http
from dragoman.protocols.blade.inbox import Inbox
from dragoman.protocols.blade.rest import App, Route
from dragoman.protocols.blade.rooms import Rooms
from dragoman.protocols.blade.server_http import About as About
from dragoman.protocols.blade.sockets import Sockets

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
                *server_http.routes(engine, options.about),
                *sessions_http.routes(engine, remembers=options.remembers),
                *turns_http.routes(engine),
                *replays_http.routes(engine),
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
