"""The web console at `/`: serves the files built from `web/`, with their Content-Security-Policy.

Knows no protocol: in the browser the console is a client like any other. If the files have not been built, the server
runs without them, and its front page says how to build them.
"""

import asyncio
import hashlib
import mimetypes
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dragoman.asgi.security import App, Message, Receive, Send
from dragoman.core.content import JsonObject
from dragoman.protocols.kit.body import json_response

FOLDER = Path(__file__).parent.parent / "console"
_ASSET_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.[a-z0-9]+")
"""A built file's name. It has no slash, so it cannot leave the folder."""
_ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
"""Content codings that the build prepared, the smallest first."""
IMMUTABLE_CACHE_CONTROL = "public, max-age=31536000, immutable"
"""For files whose name contains a hash of their content."""

_CARD_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
    " img-src data: blob:; font-src data:; media-src data: blob:; base-uri 'none'; form-action 'none'; webrtc 'block'"
)
"""For the frame that shows a tool's card: its own inline scripts run there, without an origin and without network."""

_NOT_BUILT = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Dragoman</title>
<h1>The console is not built</h1>
<p>The server is running. <code>make console</code> builds the console from the folder <code>web</code> of the source;
<code>make run</code> does so too. Release packages contain it.</p>
<p><a href="docs">The API reference</a> works without it.</p>
"""


class ConsoleLogin(Protocol):
    """How users of the console log in at the identity provider."""

    async def provider(self) -> JsonObject | None:
        """What the console needs to know about the provider; None if users cannot log in."""

    @property
    def token_origin(self) -> str:
        """The origin that the console asks for tokens."""


class WebConsole:
    """The console's files.

    Args:
        fallback: the app that gets requests to `/` that do not accept HTML.
        folder: where the built files are.
        frame_ancestors: origins of pages that may show the console in a frame.
        login: how users log in; None if they only can use keys.
    """

    def __init__(
        self,
        fallback: App,
        *,
        folder: Path = FOLDER,
        frame_ancestors: Iterable[str] = (),
        login: ConsoleLogin | None = None,
    ) -> None:
        self._login = login
        self._fallback = fallback
        self._folder = folder
        ancestors = " ".join(["'self'", *(host for host in frame_ancestors if host != "*")])
        self._page_policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self';"
            " frame-src 'self'; base-uri 'none'; form-action 'none'; object-src 'none';"
            f" frame-ancestors {ancestors}; connect-src 'self'"
        )
        self._card_policy = f"{_CARD_POLICY}; frame-ancestors {ancestors}"

    def routes(self) -> list[Route]:
        """The console's routes."""
        return [
            Route("/", self),
            Route("/icon.svg", self.icon),
            Route("/favicon.ico", self.icon),  # browsers request it for pages without an icon, such as /docs
            Route("/card.html", self.card),
            Route("/login.json", self.login),
            Route("/assets/{name}", self.asset),
        ]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve the front page to requests that accept HTML; pass other requests to the fallback."""
        request = Request(scope, receive)
        if request.method not in ("GET", "HEAD") or "text/html" not in request.headers.get("accept", ""):
            await self._fallback(scope, receive, send)
            return
        policy = self._page_policy if self._login is None else f"{self._page_policy} {self._login.token_origin}"
        response = await self._revalidated_file(request, "index.html", policy)
        if response is None:
            response = Response(
                _NOT_BUILT,
                503,
                {"content-security-policy": "default-src 'none'", "cache-control": "no-store"},
                "text/html",
            )
        response.headers["vary"] = "accept, accept-encoding"
        await response(scope, receive, send)

    async def icon(self, request: Request) -> Response:
        """Serve the console's icon."""
        return await self._revalidated_file(request, "icon.svg", "default-src 'none'") or _not_found()

    async def card(self, request: Request) -> Response:
        """Serve the empty frame that shows a tool's card."""
        return await self._revalidated_file(request, "card.html", self._card_policy) or _not_found()

    async def login(self, _: Request) -> Response:
        """Describe the identity provider. Not a 404 without one, because browsers report that as an error."""
        return json_response({"provider": None if self._login is None else await self._login.provider()})

    async def asset(self, request: Request) -> Response:
        """Serve a script, a style sheet or an image. Their names contain a hash of their content."""
        name = request.path_params["name"]
        if not _ASSET_NAME.fullmatch(name):
            return _not_found()
        encoded = await self._read_encoded(f"assets/{name}", request)
        if encoded is None:
            return _not_found()
        content, headers = encoded
        return Response(content, headers={**headers, "cache-control": IMMUTABLE_CACHE_CONTROL})

    async def _revalidated_file(self, request: Request, name: str, policy: str) -> Response | None:
        """A response with a file that keeps its name, so that the browser revalidates it each time."""
        encoded = await self._read_encoded(name, request)
        if encoded is None:
            return None
        content, headers = encoded
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers |= {
            "etag": tag,
            "cache-control": "no-cache",
            "content-security-policy": policy,
            "referrer-policy": "no-referrer",
        }
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)

    async def _read_encoded(self, name: str, request: Request) -> tuple[bytes, dict[str, str]] | None:
        """A file's content in an encoding that the client accepts, and the response headers for it."""
        accepted = {each.partition(";")[0].strip() for each in request.headers.get("accept-encoding", "").split(",")}
        headers = {
            "content-type": mimetypes.guess_type(name)[0] or "application/octet-stream",
            "vary": "accept-encoding",
        }
        if headers["content-type"].startswith("text/"):
            headers["content-type"] += "; charset=utf-8"
        for encoding, suffix in _ENCODINGS:
            if encoding in accepted and (content := await self._read_file(name + suffix)) is not None:
                return content, {**headers, "content-encoding": encoding}
        content = await self._read_file(name)
        return None if content is None else (content, headers)

    async def _read_file(self, name: str) -> bytes | None:
        try:
            return await asyncio.to_thread((self._folder / name).read_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return None


def _not_found() -> Response:
    return Response(b"this build of the console has no such file\n", 404, media_type="text/plain")
