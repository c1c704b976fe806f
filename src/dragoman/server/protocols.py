"""The protocols that a server can mount. Mounting one more takes a factory and an entry in `PROTOCOLS`.

Each factory imports its protocol only if the settings turn it on.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from starlette.routing import BaseRoute, Mount, Route

from dragoman.asgi.routing import StreamGuard
from dragoman.asgi.security import App
from dragoman.engine.engine import Engine
from dragoman.engine.expiry import ExpiredSessions
from dragoman.engine.scheduler import Scheduler
from dragoman.engine.services.audit import AuditLog
from dragoman.engine.services.keys import KeyRing
from dragoman.engine.services.limits import ConcurrencyLimit
from dragoman.engine.services.memories import MemoryService
from dragoman.engine.services.profiles import ProfileService
from dragoman.engine.services.shares import ShareService
from dragoman.engine.services.uploads import Uploads
from dragoman.ports.bus import Bus
from dragoman.ports.environment import Clock
from dragoman.ports.models import Transcriber
from dragoman.protocols.kit import openapi
from dragoman.protocols.kit.access import AccessControl
from dragoman.server.access_control import reserve_for_user
from dragoman.server.lazy_import import lazy_imports
from dragoman.server.oidc import mcp_authorization
from dragoman.settings import Settings
from dragoman.stores.encryption import LINKS_KEY, load_keys


class ServerContext(NamedTuple):
    """What a protocol may be built from."""

    settings: Settings
    version: str
    engine: Engine
    access: AccessControl
    keys: KeyRing
    audit: AuditLog
    clock: Clock
    bus: Bus
    memories: MemoryService
    profiles: ProfileService
    schedules: Scheduler
    expired_sessions: ExpiredSessions
    shares: ShareService
    uploads: Uploads
    transcriber: Transcriber | None
    readiness: Callable[[], Awaitable[str]]
    """Returns `ready`, or why the server is not."""

    def guard(self, app: App, protocol: str, *, takes_websockets: bool = False) -> StreamGuard:
        """Wrap a protocol's app, so that its streams are counted and end when their key is revoked."""
        return StreamGuard(app, protocol, self.access.authenticator, takes_websockets=takes_websockets)

    def mount(
        self, path: str, app: App, protocol: str, routes: Sequence[openapi.Route], *, takes_websockets: bool = False
    ) -> "MountedProtocol":
        """Mount a protocol whose paths are all below one, guarded."""
        guarded = self.guard(app, protocol, takes_websockets=takes_websockets)
        return MountedProtocol([Mount(path, app=guarded)], openapi.with_prefix(routes, path))


async def _nothing_to_close() -> None:
    pass


class MountedProtocol(NamedTuple):
    """A protocol as the server mounts it."""

    routes: Sequence[BaseRoute]
    openapi_routes: Sequence[openapi.Route]
    close: Callable[[], Awaitable[None]] = _nothing_to_close
    """Closes the protocol's connections. Called when the server drains and again when it stops."""


ProtocolFactory = Callable[[ServerContext], MountedProtocol | None]
"""Builds a protocol; returns None if it is turned off."""


def mount_aap(context: ServerContext) -> MountedProtocol | None:
    """AAP v3."""
    settings = context.settings
    if not settings.aap:
        return None
    from dragoman.protocols.aap import http

    app = http.app(
        context.engine,
        context.access,
        http.AapOptions(
            body_limit=settings.body_bytes, public_meta=settings.public_meta, public_url=settings.public_url
        ),
    )
    return context.mount(settings.aap_path, app, "aap", http.OPENAPI_ROUTES)


def mount_agui(context: ServerContext) -> MountedProtocol | None:
    """AG-UI's standard endpoint."""
    settings = context.settings
    if not settings.ag_ui:
        return None
    from dragoman.protocols.agui import http

    app = http.app(
        context.engine,
        context.access,
        http.AguiOptions(
            body_limit=settings.body_bytes,
            on_disconnect=settings.ag_ui_on_disconnect,
            min_client_version=settings.ag_ui_min_client,
        ),
    )
    return context.mount(settings.ag_ui_path, app, "ag-ui", http.OPENAPI_ROUTES)


def mount_run_service(context: ServerContext) -> MountedProtocol | None:
    """The AG-UI run service."""
    settings = context.settings
    if not settings.run_service:
        return None
    from dragoman.core.upload_links import Links
    from dragoman.protocols.agui.run_service import http
    from dragoman.protocols.agui.run_service.files import Files

    files = Files(
        engine=context.engine,
        uploads=context.uploads,
        links=Links(*load_keys(settings.folder / LINKS_KEY)),
        clock=context.clock,
        transcriber=context.transcriber,
        public_url=settings.public_url,
    )
    streams = ConcurrencyLimit(settings.run_service_streams, "open event streams")
    app = http.app(
        context.engine,
        context.access._replace(admit_stream=reserve_for_user(streams)),
        files,
        context.profiles,
        answers_limit=settings.body_bytes,
    )
    return context.mount(settings.run_service_path, app, "runs", http.OPENAPI_ROUTES)


def mount_agentscope(context: ServerContext) -> MountedProtocol | None:
    """The Agent API of AgentScope Runtime. It has paths at the root, so it gets routes and no mount."""
    settings = context.settings
    if not settings.agentscope:
        return None
    from dragoman.protocols.agentscope import http
    from dragoman.protocols.agentscope.paths import all_paths

    path = settings.agentscope_path
    app = http.app(
        context.engine,
        context.access,
        http.AgentScopeOptions(
            path=path, body_limit=settings.body_bytes, is_strict_model=settings.agentscope_strict_model
        ),
        state=context.readiness,
    )
    guarded = context.guard(app, "agentscope")
    routes = [Route(each, guarded) for each in all_paths(path)]
    return MountedProtocol(routes=routes, openapi_routes=http.openapi_routes(path))


def mount_ai_sdk(context: ServerContext) -> MountedProtocol | None:
    """The AI SDK's UI message stream."""
    settings = context.settings
    if not settings.ai_sdk:
        return None
    from dragoman.protocols.aisdk import http
    from dragoman.protocols.aisdk.wire import client_version_of

    app = http.app(
        context.engine,
        context.access,
        http.AiSdkOptions(
            body_limit=settings.body_bytes,
            on_disconnect=settings.ai_sdk_on_disconnect,
            client_version=client_version_of(settings.ai_sdk_version, 6),
        ),
    )
    return context.mount(settings.ai_sdk_path, app, "ai-sdk", http.OPENAPI_ROUTES)


def mount_mcp(context: ServerContext) -> MountedProtocol | None:
    """The Model Context Protocol. It answers discovery paths at the root, so it gets routes and no mount."""
    settings = context.settings
    if not settings.mcp:
        return None
    from dragoman.protocols.mcp import http
    from dragoman.protocols.mcp.options import McpOptions

    app = http.app(
        context.engine,
        context.access,
        McpOptions(
            path=settings.mcp_path,
            version=context.version,
            body_limit=settings.body_bytes,
            answer_within_s=settings.mcp_answer_within_s,
            task_after_s=settings.mcp_task_after_s,
            approvals=settings.mcp_approvals,
            on_disconnect=settings.mcp_disconnect,
            resources=settings.mcp_resources,
            public_url=settings.public_url,
            authorization=mcp_authorization(settings),
        ),
        load_keys(settings.folder / LINKS_KEY),
        context.bus,
    )
    guarded = context.guard(app, "mcp")
    return MountedProtocol(
        routes=[Route(each, guarded) for each in http.all_paths(settings.mcp_path)],
        openapi_routes=openapi.with_prefix(http.OPENAPI_ROUTES, settings.mcp_path),
    )


def mount_a2a(context: ServerContext) -> MountedProtocol | None:
    """Agent2Agent. The default agent's card is at the root, so there is a route besides the mount."""
    settings = context.settings
    if not settings.a2a:
        return None
    from dragoman.protocols.a2a import http

    app = http.app(
        context.engine,
        context.access,
        http.A2aOptions(
            path=settings.a2a_path,
            body_limit=settings.body_bytes,
            public_cards=settings.a2a_public_cards,
            has_keys=settings.auth,
            public_url=settings.public_url,
        ),
    )
    guarded = context.guard(app, "a2a")
    return MountedProtocol(
        routes=[Route(f"/{http.CARD_PATH}", guarded), Mount(settings.a2a_path, app=guarded)],
        openapi_routes=openapi.with_prefix(http.OPENAPI_ROUTES, settings.a2a_path),
    )


def mount_blade(context: ServerContext) -> MountedProtocol | None:
    """Blade: REST at `/api`, Socket.IO at `/socket.io`."""
    settings = context.settings
    if not settings.blade:
        return None
    with lazy_imports("aiohttp", "requests", "websocket"):  # for the Socket.IO library's client only; takes 0.2 s
        from dragoman.protocols.blade import http
    from dragoman.protocols.blade.projection.emitter import PatchOptions
    from dragoman.protocols.blade.rest.archives import ArchiveHandlers
    from dragoman.protocols.blade.rest.keys import KeyHandlers
    from dragoman.protocols.blade.rest.memories import MemoryHandlers
    from dragoman.protocols.blade.rest.schedules import ScheduleHandlers
    from dragoman.protocols.blade.rest.sharing import ShareHandlers

    blade = http.Blade(
        context.engine,
        context.access,
        http.ServerInfo(
            level=settings.blade_level,
            oldest_client_level=http.OLDEST_CLIENT_LEVEL,
            server_version=context.version,
            sharing_enabled=settings.blade_public_sharing,
            memory_enabled=settings.blade_memory,
        ),
        context.keys,
        areas=(
            MemoryHandlers(context.memories),
            KeyHandlers(context.keys, settings.blade_key_prefix),
            ArchiveHandlers(context.engine, context.audit, memory_default=settings.blade_memory),
            ShareHandlers(
                context.engine,
                context.shares,
                public_url=settings.public_url,
                is_enabled=settings.blade_public_sharing,
            ),
            ScheduleHandlers(
                context.schedules,
                context.clock,
                lambda user: context.profiles.for_user(user).time_zone or settings.time_zone,
            ),
        ),
        patches=PatchOptions(settings.blade_full_content, settings.blade_sync_patch_ms / 1000),
        unauthenticated_per_address=settings.blade_unauthenticated_per_address,
    )
    return MountedProtocol(
        routes=[Mount("/socket.io", app=blade.socket_server), Mount("/api", app=context.guard(blade.rest, "blade"))],
        openapi_routes=openapi.with_prefix(blade.openapi_routes, "/api"),
        close=blade.close,
    )


def mount_openai(context: ServerContext) -> MountedProtocol | None:
    """OpenAI's API."""
    settings = context.settings
    if not settings.openai:
        return None
    from dragoman.protocols.openai import http
    from dragoman.protocols.openai.handlers import OpenAiOptions

    app = http.app(
        context.engine,
        context.access,
        OpenAiOptions(
            body_limit=settings.body_bytes,
            on_disconnect=settings.openai_disconnect,
            keep_days=settings.openai_keep_days,
            wait_hours=settings.openai_wait_hours,
            session_headers=settings.openai_session_headers,
        ),
        context.expired_sessions,
    )
    return context.mount(settings.openai_path, app, "openai", http.OPENAPI_ROUTES, takes_websockets=True)


PROTOCOLS: tuple[ProtocolFactory, ...] = (
    mount_aap,
    mount_agui,
    mount_run_service,
    mount_agentscope,
    mount_ai_sdk,
    mount_mcp,
    mount_a2a,
    mount_blade,
    mount_openai,
)
"""All protocols. Where two claim a path, the first one gets it."""
