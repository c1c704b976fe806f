"""The client's connection while it waits for an answer: whether it is still there, and how to write to it at once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

ABORT_EXTENSION = "dragoman.abort"
"""The ASGI extension of our own server's WebSockets: a function that cuts the connection off at once."""
PUSH_EXTENSION = "dragoman.push"
"""The ASGI extension of our own server: a `ResponsePipe`. Under another server, streams only use `send`."""

T = TypeVar("T")


class ResponsePipe(Protocol):
    """Writes parts of an answer in plain calls, where ASGI's `send` has to be awaited."""

    @property
    def has_arrived(self) -> bool:
        """Whether the request's whole body has arrived."""

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when the client disconnects before the answer has ended."""

    def is_ready(self) -> bool:
        """Whether the client takes more now. If not, `send` waits until it does."""

    def write(self, body: bytes) -> None:
        """Write a part. Only while it is ready."""


def pipe_of(scope: Scope) -> ResponsePipe | None:
    """The pipe of a request; None under another server."""
    pipe: ResponsePipe | None = scope.get("extensions", {}).get(PUSH_EXTENSION)
    return pipe


def watch_disconnect(scope: Scope, receive: Receive, callback: Callable[[], None]) -> Callable[[], object]:
    """Call `callback` when the client disconnects before the answer has ended. Returns a function that stops this."""
    pipe = pipe_of(scope)
    if pipe is not None:
        pipe.on_disconnect(callback)
        return _do_nothing

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        callback()

    return asyncio.create_task(watch(), name="watch for a disconnect").cancel


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await work that changes nothing, such as reading. It is cancelled if the client disconnects.

    Raises:
        ClientDisconnect: the client left before the end.
    """
    task = asyncio.ensure_future(work)

    def cancel() -> None:
        task.cancel()

    end_watch = watch_disconnect(request.scope, request.receive, cancel)
    try:
        await asyncio.wait([task])
    finally:
        task.cancel()
        end_watch()
    if task.cancelled():
        raise ClientDisconnect
    return task.result()


def _do_nothing() -> None:
    pass
