"""The versions of the protocol, at one address: the older ones have sessions, 2026-07-28 has none. Pure.

| a request                                                    | is of                                         |
|--------------------------------------------------------------|-----------------------------------------------|
| header `MCP-Protocol-Version: 2026-07-28`, or a body with it | the new version: it is self-contained         |
| anything else                                                | the old versions: it belongs to a session     |

Source: 2026-07-28, "Per-request protocol fields" and the routing headers of Streamable HTTP.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence

from dragoman.core.content import Json, JsonObject
from dragoman.protocols.mcp import wire
from dragoman.protocols.mcp.errors import HeaderMismatch, InvalidParams, UnsupportedVersion

VERSION_HEADER, METHOD_HEADER, NAME_HEADER = b"mcp-protocol-version", b"mcp-method", b"mcp-name"
NAMED_BY = {
    "tools/call": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The parameter that a method's `Mcp-Name` header repeats."""
_ENCODED = ("=?base64?", "?=")


def meta_of(params: Json) -> JsonObject:
    """The `_meta` of some parameters; empty if there is none."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}


def is_new(version: str | None, params: Json) -> bool:
    """Whether a message is of the new version."""
    return version == wire.NEW_VERSION or f"{wire.META}protocolVersion" in meta_of(params)


def read_new_client(headers: Iterable[tuple[bytes, bytes]], method: str, params: Json) -> wire.Client:
    """Check the headers of a request of the new version against its body; who sends it.

    Raises:
        HeaderMismatch: they disagree, or a header comes twice, so that a proxy and the server may read different ones.
        InvalidParams: the body lacks what every request has.
        UnsupportedVersion: the version is not served.
    """
    found = list(headers)
    version, sent_method, sent_name = (_only(found, each) for each in (VERSION_HEADER, METHOD_HEADER, NAME_HEADER))
    meta = meta_of(params)
    declared = meta.get(f"{wire.META}protocolVersion")
    if version is None or (declared is not None and version != declared):
        raise HeaderMismatch("MCP-Protocol-Version is missing, or unlike the version in the body")
    if sent_method != method:
        raise HeaderMismatch("Mcp-Method is missing, or unlike the method in the body")
    name = params.get(NAMED_BY[method]) if method in NAMED_BY and isinstance(params, dict) else None
    if sent_name is None and method.startswith("tasks/"):
        name = None  # FastMCP's client does not send it (decision 66)
    if name is not None and _decode(sent_name) != name:
        raise HeaderMismatch(f"Mcp-Name is missing, or unlike {NAMED_BY[method]} in the body")
    capabilities = meta.get(f"{wire.META}clientCapabilities")
    if not isinstance(declared, str) or not isinstance(capabilities, dict):
        raise InvalidParams(f"params._meta has {wire.META}protocolVersion and {wire.META}clientCapabilities")
    if declared != wire.NEW_VERSION:
        raise UnsupportedVersion(declared)
    extensions = capabilities.get("extensions")
    has_tasks = isinstance(extensions, dict) and wire.TASKS in extensions
    return wire.Client(declared, has_forms=wire.accepts_forms(capabilities), has_tasks=has_tasks)


def _only(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> str | None:
    values = [value for each, value in headers if each == name]
    if len(values) > 1:
        raise HeaderMismatch(f"{name.decode()} comes more than once")
    return values[0].decode("latin-1") if values else None


def _decode(value: str | None) -> str | None:
    """The value of a header, which is base64 if it is not plain ASCII."""
    prefix, suffix = _ENCODED
    if value is None or not (value.startswith(prefix) and value.endswith(suffix)):
        return value
    encoded = value[len(prefix) : -len(suffix)]
    try:
        raw = b64decode(encoded, validate=True)
        return raw.decode() if b64encode(raw).decode() == encoded else None
    except ValueError:
        return None


def complete(result: JsonObject, server: JsonObject, *, ttl_ms: int | None = None) -> JsonObject:
    """A result as the new version has it.

    Args:
        result: the result, with its `resultType` if that is not `complete`.
        server: what the server says about itself.
        ttl_ms: how long the client may keep it; None if it may not.
    """
    cached = {} if ttl_ms is None else {"ttlMs": ttl_ms, "cacheScope": "private"}
    return {"resultType": "complete", **result, **cached, "_meta": {f"{wire.META}serverInfo": server}}
