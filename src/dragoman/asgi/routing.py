"""A protocol's door, seen from the server: its streams are counted, and end when the key that opened them is revoked.

A pure ASGI wrapper that knows no protocol: what it needs is the caller, which each protocol notes in the scope, and the
`farewell` that a protocol whose streams must not end without a word may note beside it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile

from starlette.routing import BaseRoute, Mount, Route, Router

from dragoman.asgi.security import App, Message, Receive, Send
from dragoman.core.principal import Principal
from dragoman.engine.instrumentation.metrics import STREAMS_OPEN, Gauge
from dragoman.engine.services.keys import Doorkeeper

_STREAM = (b"content-type", b"text/event-stream; charset=utf-8")


class Front:
    """Where a request goes: to the door whose path it begins with, else to the router with the server's own pages.

    The way through the router would cost a door's stream more memory than the door itself: four coroutines that stay
    open as long as the stream.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._doors: tuple[tuple[str, App], ...] = ()
        self._exact: dict[str, App] = {}

    def open(self, routes: Sequence[BaseRoute]) -> None:
        """Let requests in. Mounts that come first are doors, and so are routes that lead to one."""
        self._router.routes = list(routes)
        led = (route for route in routes if isinstance(route, Route) and isinstance(route.app, Door))
        self._exact = {route.path: route.app for route in led}
        mounts = takewhile(lambda route: isinstance(route, Mount), routes)
        self._doors = tuple((f"{mount.path}/", mount.app) for mount in mounts if isinstance(mount, Mount))

    def __call__(self, scope: Message, receive: Receive, send: Send) -> Awaitable[None]:
        """See ASGI."""
        path, root = scope.get("path", ""), scope.get("root_path", "")
        exact = self._exact.get(path[len(root) :])
        if exact is not None and scope["type"] == "http":
            return exact(scope, receive, send)
        for begin, door in self._doors:
            if path.startswith(begin, len(root)):
                scope["root_path"] = root + begin[:-1]
                return door(scope, receive, send)
        return self._router(scope, receive, send)


class Door:
    """A protocol's app."""

    def __init__(self, app: App, protocol: str, doorkeeper: Doorkeeper) -> None:
        self._app = app
        self._doorkeeper = doorkeeper
        self._open = STREAMS_OPEN.labels(protocol=protocol)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":  # a WebSocket: no protocol behind a door has any
            await send({"type": "websocket.close", "code": 1008})
            return
        stream = _Stream(self._doorkeeper, self._open, scope, send)
        try:
            await self._app(scope, receive, stream.send)
        except asyncio.CancelledError:
            if not stream.was_cut():
                raise
            # The frames so far are whole, and the run goes on; a client that comes back is told about its key.
            farewell: bytes = scope.get("farewell", b"")
            await send({"type": "http.response.body", "body": farewell, "more_body": False})
        finally:
            stream.forget()


class _Stream:
    """A stream's tie to its key, if the answer is one: a revocation cancels the request's task, until it has ended."""

    AGAIN_S = 1.0
    """Code that waits for a task of its own that it cancelled can swallow a cancellation that was meant for it."""

    __slots__ = ("_again", "_cuts", "_doorkeeper", "_forget", "_open", "_scope", "_send", "_task")

    def __init__(self, doorkeeper: Doorkeeper, is_open: Gauge, scope: Message, send: Send) -> None:
        self._doorkeeper = doorkeeper
        self._open = is_open
        self._scope = scope
        self._send = send
        self._task: asyncio.Task[object] | None = None
        """The request's, once the stream is open."""
        self._cuts = 0
        self._again: asyncio.TimerHandle | None = None
        self._forget: Callable[[], None] | None = None

    async def send(self, message: Message) -> None:
        """See ASGI: what begins as a stream is tied to the key that opened it."""
        await self._send(message)
        if message["type"] == "http.response.start" and _STREAM in message["headers"]:
            self._task = asyncio.current_task()
            self._open.inc()
            principal: Principal | None = self._scope.get("principal")
            if principal is not None:
                self._forget = self._doorkeeper.on_revoked(principal, self._cut)

    def forget(self) -> None:
        """The answer has ended."""
        if self._task is None:
            return
        self._open.dec()
        if self._forget is not None:
            self._forget()
        if self._again is not None:
            self._again.cancel()

    def was_cut(self) -> bool:
        """Whether it was the revocation that cancelled, and nobody else besides."""
        left = 1
        for _ in range(self._cuts):
            assert self._task is not None, "it was cut"
            left = self._task.uncancel()
        return left == 0

    def _cut(self) -> None:
        assert self._task is not None, "only what is open is cut"
        self._cuts += 1
        self._task.cancel()
        self._again = asyncio.get_running_loop().call_later(self.AGAIN_S, self._cut)
