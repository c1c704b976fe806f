"""The admin socket: lets the command line talk to a server that runs on the same data folder.

A Unix socket in the data folder that only the server's user may open. Whoever may open it may also read the database,
so it requires no key. Each request is one line of JSON, and so is each reply. It knows no engine.
"""

import asyncio
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol, assert_never

import msgspec
import structlog

from dragoman.core.audit import ACTOR, Actor, AuditEntry
from dragoman.core.ids import KeyId, UserId
from dragoman.core.profile import Profile
from dragoman.core.refusals import Invalid, Refused
from dragoman.core.token_budgets import TokenLimits
from dragoman.ports.accounts import ApiKey

SOCKET_FILE = "admin.sock"
MAX_LINE_BYTES = 64 * 1024
REQUEST_TIMEOUT_S = 10.0
MAX_SOCKET_PATH_BYTES = 100
"""Just below the kernel's limit for the path of a socket."""

log = structlog.get_logger(__name__)


class CreateKey(
    msgspec.Struct, frozen=True, kw_only=True, tag="keys.create", tag_field="do", forbid_unknown_fields=True
):
    """Create a key."""

    name: str
    user: str
    scopes: list[str]
    expires_at: datetime | None = None
    tokens_per_day: int = 0
    tokens_per_month: int = 0


class ListKeys(msgspec.Struct, frozen=True, tag="keys.list", tag_field="do", forbid_unknown_fields=True):
    """List all keys."""


class RevokeKey(
    msgspec.Struct, frozen=True, kw_only=True, tag="keys.revoke", tag_field="do", forbid_unknown_fields=True
):
    """Revoke a key."""

    which: str


class LimitKey(msgspec.Struct, frozen=True, kw_only=True, tag="keys.limit", tag_field="do", forbid_unknown_fields=True):
    """Change a key's token limits. Null leaves one as it is; 0 removes it."""

    which: str
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None


class SetUser(msgspec.Struct, frozen=True, kw_only=True, tag="users.set", tag_field="do", forbid_unknown_fields=True):
    """Change a user's profile. Unset members stay as they are; null removes a value."""

    user: str
    time_zone: str | msgspec.UnsetType | None = msgspec.UNSET
    locale: str | msgspec.UnsetType | None = msgspec.UNSET
    retention_days: int | msgspec.UnsetType | None = msgspec.UNSET
    tokens_per_day: int | msgspec.UnsetType | None = msgspec.UNSET
    tokens_per_month: int | msgspec.UnsetType | None = msgspec.UNSET


class ListAudit(
    msgspec.Struct, frozen=True, kw_only=True, tag="audit.list", tag_field="do", forbid_unknown_fields=True
):
    """List entries of the audit log, newest first."""

    limit: int = 100
    user: str | None = None
    action: str | None = None


Request = CreateKey | ListKeys | RevokeKey | LimitKey | SetUser | ListAudit


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What may be shown of a key."""

    key_id: KeyId
    name: str
    user: UserId
    masked: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    token_limits: TokenLimits


class Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a request: `error`, or the affected keys or profile. `secret` is the new key itself."""

    error: str | None = None
    is_invalid: bool = False
    """Whether the error is one of the request's values."""
    keys: list[KeyInfo] = []
    secret: str | None = None
    profile: Profile | None = None
    audit: list[AuditEntry] = []


class KeyService(Protocol):
    """Manages the keys."""

    async def create(
        self,
        name: str,
        *,
        user: UserId = ...,
        scopes: Sequence[str] = ...,
        expires_at: datetime | None = ...,
        token_limits: TokenLimits = ...,
    ) -> tuple[str, ApiKey]:
        """Create a key. Returns its secret and the key."""

    def all(self) -> Sequence[ApiKey]:
        """Return all keys."""

    async def revoke(self, which: str) -> ApiKey:
        """Revoke a key."""

    async def limit(self, which: str, *, per_day: int | None = ..., per_month: int | None = ...) -> ApiKey:
        """Change a key's token limits."""


class ProfileService(Protocol):
    """Manages the users' profiles."""

    async def change(self, user: UserId, **settings: str | int | None) -> Profile:
        """Change a profile."""


class ServerNotRunning(Exception):
    """No server is listening on the folder's socket."""


class AuditService(Protocol):
    """Reads the audit log."""

    async def page(
        self, *, before: str | None = ..., limit: int = ..., user: str | None = ..., action: str | None = ...
    ) -> list[AuditEntry]:
        """Return entries, newest first."""


async def handle(request: Request, keys: KeyService, profiles: ProfileService, audit: AuditService) -> Reply:
    """Handle a request, in a running server or for a data folder without one."""
    try:
        match request:
            case CreateKey():
                secret, key = await keys.create(
                    request.name,
                    user=UserId(request.user),
                    scopes=request.scopes,
                    expires_at=request.expires_at,
                    token_limits=TokenLimits(request.tokens_per_day, request.tokens_per_month),
                )
                return Reply(secret=secret, keys=[to_key_info(key)])
            case ListKeys():
                return Reply(keys=[to_key_info(key) for key in keys.all()])
            case RevokeKey():
                return Reply(keys=[to_key_info(await keys.revoke(request.which))])
            case LimitKey():
                limits = {"per_day": request.tokens_per_day, "per_month": request.tokens_per_month}
                return Reply(keys=[to_key_info(await keys.limit(request.which, **limits))])
            case SetUser():
                given = {name: value for name, value in msgspec.structs.asdict(request).items() if name != "user"}
                settings = {name: value for name, value in given.items() if value is not msgspec.UNSET}
                return Reply(profile=await profiles.change(UserId(request.user), **settings))
            case ListAudit():
                return Reply(audit=await audit.page(limit=request.limit, user=request.user, action=request.action))
            case _:
                assert_never(request)
    except Refused as refused:
        return Reply(error=str(refused), is_invalid=isinstance(refused, Invalid))


class AdminSocket:
    """The server's end of the admin socket."""

    def __init__(self, folder: Path, keys: KeyService, profiles: ProfileService, audit: AuditService) -> None:
        self._folder = folder
        self._keys = keys
        self._profiles = profiles
        self._audit = audit
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Start listening. The caller holds the folder's lock, so an existing socket file is stale."""
        self._server = await asyncio.start_unix_server(
            self._serve, sock=bind_socket(self._folder, SOCKET_FILE), limit=MAX_LINE_BYTES
        )

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            with suppress(OSError):
                (self._folder / SOCKET_FILE).unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ACTOR.set(Actor())  # whoever may open the socket, and not the user in whose context the server started
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                while line := await reader.readline():
                    writer.write(msgspec.json.encode(await self._answer(line)) + b"\n")
                    await writer.drain()
        except (
            TimeoutError,
            ValueError,
            ConnectionError,
        ):  # the client is too slow, sent a line that is too long, or disconnected
            pass
        except Exception:  # the outer edge of a connection
            log.exception("admin request failed")
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> Reply:
        try:
            request = msgspec.json.decode(line, type=Request)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Reply(error=f"the server does not understand the request: {error}")
        return await handle(request, self._keys, self._profiles, self._audit)


def send_request(folder: Path, request: Request) -> Reply:
    """Send a request to the server that runs on a data folder.

    Raises:
        ServerNotRunning: there is none, or it is starting or stopping.
    """
    try:
        with short_socket_path(folder) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(REQUEST_TIMEOUT_S)
            connection.connect(path)
            connection.sendall(msgspec.json.encode(request) + b"\n")
            with connection.makefile("rb") as replies:
                line = replies.readline()
    except OSError as error:
        raise ServerNotRunning(str(error)) from error
    if not line:
        raise ServerNotRunning("the server closed the connection")
    return msgspec.json.decode(line, type=Reply)


def to_key_info(key: ApiKey) -> KeyInfo:
    """Convert a key to what may be shown of it."""
    return KeyInfo(
        key_id=key.key_id,
        name=key.name,
        user=key.user,
        masked=key.masked_key,
        scopes=sorted(key.scopes),
        created_at=key.created_at,
        expires_at=key.expires_at,
        last_used_at=key.last_used_at,
        token_limits=key.token_limits,
    )


def bind_socket(folder: Path, name: str) -> socket.socket:
    """Bind a socket in a folder that only the server's user may open. Replaces a stale one."""
    with short_socket_path(folder, name) as path:
        Path(path).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        previous_umask = os.umask(0o177)  # so that the file never has a wider mode
        try:
            listening.bind(path)
        finally:
            os.umask(previous_umask)
    return listening


@contextmanager
def short_socket_path(folder: Path, name: str = SOCKET_FILE) -> Iterator[str]:
    """Yield a path of the socket that is short enough for the kernel; a deep folder is named by a file descriptor."""
    path = str(folder / name)
    if len(os.fsencode(path)) < MAX_SOCKET_PATH_BYTES:
        yield path
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        by_descriptor = Path(f"/proc/self/fd/{descriptor}")
        yield str(by_descriptor / name) if by_descriptor.exists() else path
    finally:
        os.close(descriptor)
