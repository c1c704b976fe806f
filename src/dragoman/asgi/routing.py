"""Routing of requests to the protocols, and the guard that ends a protocol's streams when their key is revoked.

Pure ASGI wrappers that know no protocol. A protocol stores the caller in `scope["principal"]`; if its streams need a
last frame, it stores that in `scope["revocation_frame"]`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from starlette.routing import BaseRoute, Mount, Route, Router

from dragoman.asgi.security import App, Message, Receive, Send
from dragoman.core.principal import Principal
from dragoman.engine.instrumentation.metrics import STREAMS_OPEN, Gauge
from dragoman.engine.services.authentication import Authenticator

_EVENT_STREAM_HEADER = (b"content-type", b"text/event-stream; charset=utf-8")
_SUBTREE_SUFFIX = "/{rest:path}"
RECANCEL_DELAY_S = 1.0
"""A stream is cancelled again after this time: code that awaits a task which it cancelled can swallow our cancel."""


class PathRouter:
    """Dispatches requests to the protocols by path, and everything else to a Starlette router.

    Protocols are not dispatched by the router, because its four coroutines would stay open as long as a stream does and
    cost more memory than the protocol's own.
    """

    def __init__(self, router: Router) -> None:
        self._router = router
        self._subtrees: list[tuple[str, App, str]] = []
        """Path prefix, app, and what the prefix adds to `root_path`."""
        self._exact: dict[str, App] = {}

    def set_routes(self, routes: Sequence[BaseRoute]) -> None:
        """Accept requests. Mounts, and routes to a `StreamGuard`, are the protocols'; exact paths go first."""
        self._router.routes = list(routes)
        self._subtrees, self._exact = [], {}
        for route in routes:
            if isinstance(route, Mount):
                self._subtrees.append((f"{route.path}/", route.app, route.path))
            elif isinstance(route, Route) and isinstance(route.app, StreamGuard):
                if route.path.endswith(_SUBTREE_SUFFIX):
                    self._subtrees.append((route.path.removesuffix("{rest:path}"), route.app, ""))
                else:
                    self._exact.setdefault(route.path, route.app)

    def __call__(self, scope: Message, receive: Receive, send: Send) -> Awaitable[None]:
        """Dispatch an ASGI request."""
        path, root = scope.get("path", ""), scope.get("root_path", "")
        exact = self._exact.get(path[len(root) :])
        if exact is not None:
            return exact(scope, receive, send)
        for prefix, app, mount_path in self._subtrees:
            if path.startswith(prefix, len(root)):
                scope["root_path"] = root + mount_path
                return app(scope, receive, send)
        return self._router(scope, receive, send)


class StreamGuard:
    """A protocol's app, wrapped so that its streams are counted and end when the key that opened them is revoked.

    Args:
        app: the app.
        protocol: its label in metrics.
        authenticator: reports revoked keys.
        takes_websockets: pass WebSockets on to the app, which counts and ends them itself. Else they are refused.
    """

    def __init__(
        self, app: App, protocol: str, authenticator: Authenticator, *, takes_websockets: bool = False
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._takes_websockets = takes_websockets
        self._open_streams = STREAMS_OPEN.labels(protocol=protocol)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle an ASGI request."""
        if scope["type"] != "http":
            if self._takes_websockets:
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        stream = _GuardedStream(self._authenticator, self._open_streams, scope, send)
        try:
            await self._app(scope, receive, stream.send)
        except asyncio.CancelledError:
            if not stream.was_revoked():
                raise
            # The frames so far are whole, and the run continues.
            await stream.end(scope.get("revocation_frame", b""))
        finally:
            stream.close()


class _GuardedStream:
    """Ties a response to its caller's key if it is an event stream: a revocation cancels the request's task."""

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
        """The request's task, once the stream is open."""
        self._cancel_count = 0
        self._recancel_timer: asyncio.TimerHandle | None = None
        self._unsubscribe: Callable[[], None] | None = None

    async def send(self, message: Message) -> None:
        """Pass an ASGI message on. The start of an event stream ties it to the key that opened it."""
        await self._send(message)
        if message["type"] == "http.response.start" and _EVENT_STREAM_HEADER in message["headers"]:
            self._task = asyncio.current_task()
            self._open_streams.inc()
            principal: Principal | None = self._scope.get("principal")
            if principal is not None:
                self._unsubscribe = self._authenticator.on_revoked(principal, self._cancel)

    def close(self) -> None:
        """Release everything; the response has ended."""
        if self._task is None:
            return
        self._open_streams.dec()
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._recancel_timer is not None:
            self._recancel_timer.cancel()

    def was_revoked(self) -> bool:
        """Whether the revocation cancelled the task, and nobody else did as well."""
        remaining, count, self._cancel_count = 1, self._cancel_count, 0
        for _ in range(count):
            assert self._task is not None, "only an open stream is cancelled"
            remaining = self._task.uncancel()
        return remaining == 0

    async def end(self, last_frame: bytes) -> None:
        """End a stream whose key was revoked. If its client does not read, the response is left without an end."""
        try:
            await self._send({"type": "http.response.body", "body": last_frame, "more_body": False})
        except asyncio.CancelledError:
            if not self.was_revoked():
                raise

    def _cancel(self) -> None:
        assert self._task is not None, "only an open stream is cancelled"
        self._cancel_count += 1
        self._task.cancel()
        self._recancel_timer = asyncio.get_running_loop().call_later(RECANCEL_DELAY_S, self._cancel)
