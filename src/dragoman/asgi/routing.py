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
from dragoman.engine.services.keys import Authenticator

_EVENT_STREAM_HEADER = (b"content-type", b"text/event-stream; charset=utf-8")


class PathRouter:
    """Where a request goes: to the door whose path it begins with, else to the router with the server's own pages.

    The way through the router would cost a door's stream more memory than the door itself: four coroutines that stay
    open as long as the stream.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._mounts: tuple[tuple[str, App], ...] = ()
        self._exact_routes: dict[str, App] = {}

    def set_routes(self, routes: Sequence[BaseRoute]) -> None:
        """Let requests in. Mounts that come first are doors, and so are routes that lead to one."""
        self._router.routes = list(routes)
        led = (route for route in routes if isinstance(route, Route) and isinstance(route.app, StreamGuard))
        self._exact_routes = {route.path: route.app for route in led}
        mounts = takewhile(lambda route: isinstance(route, Mount), routes)
        self._mounts = tuple((f"{mount.path}/", mount.app) for mount in mounts if isinstance(mount, Mount))

    def __call__(self, scope: Message, receive: Receive, send: Send) -> Awaitable[None]:
        """See ASGI."""
        path, root = scope.get("path", ""), scope.get("root_path", "")
        exact = self._exact_routes.get(path[len(root) :])
        if exact is not None and scope["type"] == "http":
            return exact(scope, receive, send)
        for begin, door in self._mounts:
            if path.startswith(begin, len(root)):
                scope["root_path"] = root + begin[:-1]
                return door(scope, receive, send)
        return self._router(scope, receive, send)


class StreamGuard:
    """A protocol's app."""

    def __init__(self, app: App, protocol: str, authenticator: Authenticator) -> None:
        self._app = app
        self._authenticator = authenticator
        self._open_streams = STREAMS_OPEN.labels(protocol=protocol)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":  # a WebSocket: no protocol behind a door has any
            await send({"type": "websocket.close", "code": 1008})
            return
        stream = _GuardedStream(self._authenticator, self._open_streams, scope, send)
        try:
            await self._app(scope, receive, stream.send)
        except asyncio.CancelledError:
            if not stream.was_revoked():
                raise
            # The frames so far are whole, and the run goes on; a client that comes back is told about its key.
            farewell: bytes = scope.get("farewell", b"")
            await send({"type": "http.response.body", "body": farewell, "more_body": False})
        finally:
            stream.close()


class _GuardedStream:
    """A stream's tie to its key, if the answer is one: a revocation cancels the request's task, until it has ended."""

    RECANCEL_DELAY_S = 1.0
    """Code that waits for a task of its own that it cancelled can swallow a cancellation that was meant for it."""

    __slots__ = (
        "_authenticator",
        "_cancel_count",
        "_open_streams",
        "_recancel_timer",
        "_scope",
        "_send",
        "_task",
        "_unsubscribe",
    )

    def __init__(self, authenticator: Authenticator, open_streams: Gauge, scope: Message, send: Send) -> None:
        self._authenticator = authenticator
        self._open_streams = open_streams
        self._scope = scope
        self._send = send
        self._task: asyncio.Task[object] | None = None
        """The request's, once the stream is open."""
        self._cancel_count = 0
        self._recancel_timer: asyncio.TimerHandle | None = None
        self._unsubscribe: Callable[[], None] | None = None

    async def send(self, message: Message) -> None:
        """See ASGI: what begins as a stream is tied to the key that opened it."""
        await self._send(message)
        if message["type"] == "http.response.start" and _EVENT_STREAM_HEADER in message["headers"]:
            self._task = asyncio.current_task()
            self._open_streams.inc()
            principal: Principal | None = self._scope.get("principal")
            if principal is not None:
                self._unsubscribe = self._authenticator.on_revoked(principal, self._cancel)

    def close(self) -> None:
        """The answer has ended."""
        if self._task is None:
            return
        self._open_streams.dec()
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._recancel_timer is not None:
            self._recancel_timer.cancel()

    def was_revoked(self) -> bool:
        """Whether it was the revocation that cancelled, and nobody else besides."""
        left = 1
        for _ in range(self._cancel_count):
            assert self._task is not None, "it was cut"
            left = self._task.uncancel()
        return left == 0

    def _cancel(self) -> None:
        assert self._task is not None, "only what is open is cut"
        self._cancel_count += 1
        self._task.cancel()
        self._recancel_timer = asyncio.get_running_loop().call_later(self.RECANCEL_DELAY_S, self._cancel)
