"""Reading request headers and bodies, within limits, and writing JSON answers."""

import asyncio
from collections.abc import Mapping

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from dragoman.core.json_memory import JsonEncoder, require_memory_to_decode
from dragoman.core.principal import Principal
from dragoman.core.refusals import Unavailable
from dragoman.engine.services.connection_memory import ConnectionMemory
from dragoman.engine.services.limits import MemoryReservation
from dragoman.protocols.kit.connection import pipe_of
from dragoman.protocols.kit.errors import BodyTooLarge, BodyTooSlow, UnsupportedMediaType
from dragoman.protocols.kit.multipart import Part, read_form

BODY_TIMEOUT_S = 60.0
"""How long a body may take to arrive."""
MAX_FORM_OVERHEAD_BYTES = 64 * 1024
"""Bytes that a form may have besides its files."""
_PLAIN_CODINGS = frozenset({"", "identity", "utf-8"})
"""Values of `Content-Encoding` that change nothing. `utf-8` is a mistake that some clients make."""
_ENCODER = JsonEncoder()


def first_headers(scope: Scope) -> Mapping[bytes, bytes]:
    """Return the request's headers by their names, which are in lower case; of several with one name, the first."""
    headers = scope["headers"]
    indexed: tuple[object, Mapping[bytes, bytes]] | None = scope.get("indexed_headers")
    if indexed is None or indexed[0] is not headers:  # an app in front may have replaced them
        indexed = scope["indexed_headers"] = headers, dict(reversed(headers))
    return indexed[1]


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header of that name, which is given in lower case."""
    value = first_headers(scope).get(name)
    return None if value is None else str(value, "latin-1")


def connection_memory(scope: Scope) -> ConnectionMemory:
    """Return what the server's connections use, as the application that received the request has noted it."""
    memory: ConnectionMemory = scope["connection_memory"]
    return memory


def require_json(request: Request) -> None:
    """Check that the body is declared as JSON, or not declared at all.

    A page of another origin can send `text/plain` without a preflight, so it could post to a server without keys.

    Raises:
        UnsupportedMediaType: it is declared as something else.
    """
    declared = (header(request.scope, b"content-type") or "").partition(";")[0].strip().lower()
    if declared not in ("", "application/json"):
        raise UnsupportedMediaType(f"expected Content-Type: application/json, got {declared!r}")


async def read_body(request: Request, limit: int) -> bytes:
    """Read a body of at most `limit` bytes, whatever its Content-Length says.

    Raises:
        UnsupportedMediaType: it is compressed.
        BodyTooLarge: it is longer; no more than the limit was read.
        BodyTooSlow: it took longer than `BODY_TIMEOUT_S`.
        LimitReached: other bodies use the memory. What this one uses is released by `release_body`.
        ClientDisconnect: the client left before the end.
    """
    coding = header(request.scope, b"content-encoding")
    if coding is not None and coding.strip().lower() not in _PLAIN_CODINGS:
        raise UnsupportedMediaType(f"expected a body without Content-Encoding, got {coding[:80]!r}")
    declared = header(request.scope, b"content-length") or ""
    if declared.isascii() and declared.isdigit() and (len(declared) > 18 or int(declared) > limit):
        raise BodyTooLarge(limit)
    pipe = pipe_of(request.scope)
    if pipe is not None and pipe.has_arrived:
        return await _receive_body(request, limit)  # does not wait: most bodies arrive with their heads
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await _receive_body(request, limit)
    except TimeoutError as error:
        raise BodyTooSlow(f"the body did not arrive within {BODY_TIMEOUT_S:g} s") from error


async def read_json_body(request: Request, limit: int) -> bytes:
    """Read a body that is declared as JSON. Raises UnsupportedMediaType, and what `read_body` raises."""
    require_json(request)
    return await read_body(request, limit)


async def read_form_body(request: Request, limit: int) -> list[Part]:
    """Read the parts of a form whose files have at most `limit` bytes.

    Raises InvalidForm, and what `read_body` raises.
    """
    body = await read_body(request, limit + MAX_FORM_OVERHEAD_BYTES)
    return read_form(header(request.scope, b"content-type") or "", body)


def release_body(scope: Scope) -> None:
    """Give the memory of a request's body back. A request whose body was not read has none."""
    reservation: MemoryReservation | None = scope.pop("body_memory", None)
    if reservation is not None:
        reservation.release()


async def _receive_body(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    principal: Principal | None = request.scope.get("principal")
    reservation = connection_memory(request.scope).requests.open(None if principal is None else principal.user)
    request.scope["body_memory"] = reservation
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise BodyTooLarge(limit)
        reservation.grow(len(part))
        parts.append(part)
        if not message.get("more_body", False):
            try:
                require_memory_to_decode(size)
                return parts[0] if len(parts) == 1 else b"".join(parts)
            except MemoryError as error:
                raise Unavailable("there is no memory for this request now") from error


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a value as a JSON answer. Raises MemoryError."""
    return Response(_ENCODER.encode(value), status, headers, "application/json")
