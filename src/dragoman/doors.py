"""A protocol's door, seen from the server: its streams are counted, and end when the key that opened them is revoked.

A pure ASGI wrapper that knows no protocol: what it needs is the caller, which each protocol notes in the scope.
"""

import asyncio
from collections.abc import Callable

from dragoman.core.principal import Principal
from dragoman.engine.keys import Doorkeeper
from dragoman.engine.metrics import STREAMS_OPEN
from dragoman.gate import App, Message, Receive, Send

_STREAM = (b"content-type", b"text/event-stream; charset=utf-8")


class Door:
    """A protocol's app."""

    def __init__(self, app: App, protocol: str, doorkeeper: Doorkeeper) -> None:
        self._app = app
        self._doorkeeper = doorkeeper
        self._open = STREAMS_OPEN.labels(protocol=protocol)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        stream: _Stream | None = None

        async def watching(message: Message) -> None:
            nonlocal stream
            await send(message)
            if message["type"] == "http.response.start" and _STREAM in message["headers"]:
                stream = _Stream(self._doorkeeper, scope.get("principal"))
                self._open.inc()

        try:
            await self._app(scope, receive, watching)
        except asyncio.CancelledError:
            if stream is None or not stream.was_cut():
                raise
            # The frames so far are whole, and the run goes on; a client that comes back is told about its key.
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if stream is not None:
                self._open.dec()
                stream.forget()


class _Stream:
    """An open stream's tie to its key: a revocation cancels the request's task, until it has ended."""

    AGAIN_S = 1.0
    """Code that waits for a task of its own that it cancelled can swallow a cancellation that was meant for it."""

    def __init__(self, doorkeeper: Doorkeeper, principal: Principal | None) -> None:
        task = asyncio.current_task()
        assert task is not None, "a request is handled in a task"
        self._task: asyncio.Task[object] = task
        self._cuts = 0
        self._again: asyncio.TimerHandle | None = None
        self._forget: Callable[[], None] | None = None
        if principal is not None:
            self._forget = doorkeeper.on_revoked(principal, self._cut)

    def forget(self) -> None:
        """The stream has ended."""
        if self._forget is not None:
            self._forget()
        if self._again is not None:
            self._again.cancel()

    def was_cut(self) -> bool:
        """Whether it was the revocation that cancelled, and nobody else besides."""
        left = 1
        for _ in range(self._cuts):
            left = self._task.uncancel()
        return left == 0

    def _cut(self) -> None:
        self._cuts += 1
        self._task.cancel()
        self._again = asyncio.get_running_loop().call_later(self.AGAIN_S, self._cut)
