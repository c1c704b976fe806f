"""A server without Dragoman's extensions: the real one, with the extensions removed from the wire."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from tests.asgi_client import DEADLINE_S, App, Message, Receive, Send
from tests.servers import AppServer, NotifyingServer, build, serve_without_signals

EXTENSION_PATHS = re.compile(r"/(events|stop|connect|capabilities)(/|$)|^/$|^/v1/(conversations|responses/)")
"""And what many servers with Responses lack: Conversations, and the retrieval of a response."""
WITHOUT_EXTENSIONS = re.compile(r"/(events|stop|connect|capabilities)(/|$)|^/$")
"""The extensions alone."""
ID = re.compile(rb"^id: .*\n", re.MULTILINE)
DATA = re.compile(rb"^data: (\{.*)$", re.MULTILINE)


def without_extensions(value: Any) -> Any:
    """The JSON value without extensions."""
    if isinstance(value, Mapping):
        plain = {name: without_extensions(each) for name, each in value.items() if name != "_meta"}
        return plain | {"owned_by": "somebody"} if "owned_by" in plain else plain
    return [without_extensions(each) for each in value] if isinstance(value, list) else value


def rewritten(body: bytes) -> bytes:
    """JSON, or whole frames of a stream, without extensions."""
    if body[:1] in (b"{", b"["):
        return msgspec.json.encode(without_extensions(msgspec.json.decode(body)))
    plain = ID.sub(b"", body)
    return DATA.sub(
        lambda match: b"data: " + msgspec.json.encode(without_extensions(msgspec.json.decode(match[1]))), plain
    )


class StandardOnlyApp:
    """The app behind a filter that removes the extensions."""

    def __init__(self, app: App, hidden: re.Pattern[str]) -> None:
        self._app = app
        self._hidden = hidden

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if self._hidden.search(scope["path"]):
            scope = {**scope, "path": "/nowhere/at/all", "raw_path": b"/nowhere/at/all"}
        scope = {**scope, "headers": [each for each in scope["headers"] if each[0] != b"idempotency-key"]}

        async def filtered(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [each for each in message["headers"] if each[0].lower() != b"content-length"]
                message = {**message, "headers": headers}
            elif message.get("body"):
                message = {**message, "body": rewritten(message["body"])}
            await send(message)

        return await self._app(scope, receive, filtered)


@asynccontextmanager
async def standard_only_server(
    folder: Path, hidden: re.Pattern[str] = EXTENSION_PATHS
) -> AsyncIterator[tuple[str, str]]:
    """Run the server without the hidden paths; yields its address and a key."""
    app_server = AppServer(folder)
    await app_server.prepare()
    app: Any = StandardOnlyApp(build(app_server.settings, (), None), hidden)
    server = NotifyingServer(uvicorn.Config(app, port=0, log_config=None, lifespan="on", timeout_graceful_shutdown=1))
    serving = asyncio.create_task(serve_without_signals(server))
    try:
        async with asyncio.timeout(DEADLINE_S):
            await server.listening.wait()
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", app_server.key("alice")
    finally:
        server.should_exit = True
        await serving
