"""Where everything meets: settings → store, bus, keys, models, agents → engine → protocols → one ASGI application.

The only module that knows them all. What it opens it closes in the opposite order, however far the opening came.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import structlog
from starlette.routing import BaseRoute, Mount, Route, Router

from dragoman.asgi import ops_endpoints
from dragoman.asgi.console import WebConsole
from dragoman.asgi.ops_endpoints import OpsEndpoints
from dragoman.asgi.routing import PathRouter, StreamGuard
from dragoman.asgi.security import Message, Receive, SecurityMiddleware, Send
from dragoman.buses.local import LocalBus
from dragoman.core.admission import InputLimits
from dragoman.core.agent import Agent
from dragoman.core.content import JsonObject
from dragoman.core.principal import Principal
from dragoman.core.refusals import StoreUnavailable
from dragoman.core.time_zones import is_zone
from dragoman.engine.engine import Engine, EngineOptions
from dragoman.engine.instrumentation import metrics
from dragoman.engine.instrumentation.counted_log import CountedLog
from dragoman.engine.scheduler import Scheduler
from dragoman.engine.services.keys import KEYS_CHANGED_SUBJECT as KEYS_CHANGED
from dragoman.engine.services.keys import Authenticator, KeyRing, NoKeys
from dragoman.engine.services.limits import ConcurrencyLimit, Limits, RateLimit, make_limits
from dragoman.engine.services.memories import MemoryService
from dragoman.engine.services.profiles import ProfileService
from dragoman.engine.services.shares import ShareService
from dragoman.engine.services.uploads import Uploads
from dragoman.lazy_import import lazy_imports
from dragoman.ports import Bus, Cipher, Clock, Transcriber
from dragoman.protocols.kit import openapi
from dragoman.server.admin_socket import AdminSocket
from dragoman.server.agents import prepare_agents
from dragoman.server.clock_and_ids import RandomIds, SystemClock
from dragoman.server.logging import SECRETS
from dragoman.server.stores import Stores, open_stores, watch_for_changes
from dragoman.settings import Settings, SettingsError
from dragoman.stores.encryption import LazyCipher, load_or_create_key

if TYPE_CHECKING:
    from dragoman.buses.nats import NatsBus
    from dragoman.protocols.blade.http import Blade
    from dragoman.protocols.kit.http import Admit, Authenticate

VERSION = version("dragoman")
State = Literal["starting", "ready", "draining", "drained"]
PROBE_TIMEOUT_S = 2.0
"""How long a store that failed may take to show that it writes again."""

log = structlog.get_logger(__name__)


class Application:
    """A server as an ASGI application. It works between the beginning and the end of `running`, or of its lifespan."""

    def __init__(
        self,
        settings: Settings,
        *,
        agents: Sequence[Agent],
        clock: Clock,
        environ: Mapping[str, str],
        progress: Callable[[str], None],
        worker: int | None = None,
    ) -> None:
        self.settings = settings
        self.state: State = "starting"
        self.keys: KeyRing
        self.profiles: ProfileService
        self.engine: Engine
        self.memories: MemoryService
        self.schedules: Scheduler
        self._shares: ShareService
        self._worker = worker
        self._extra_agents = tuple(agents)
        self._clock = clock
        self._environ = environ
        self._progress = progress
        self._stores: Stores
        self._transcriber: Transcriber | None
        self._uploads: Uploads
        self._log: CountedLog
        self._blade: Blade | None = None
        self._nats: NatsBus | None = None
        self._path_router = PathRouter(
            Router(default=ops_endpoints.not_found, lifespan=lambda _: self.running(), redirect_slashes=False)
        )
        self.asgi_app = SecurityMiddleware(
            self._path_router,
            origins=settings.cors_origins,
            hosts=settings.allowed_hosts,
            is_keyless=not settings.auth,
        )

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """See ASGI. Our own process calls the gate itself."""
        await self.asgi_app(scope, receive, send)

    # --- life -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open everything, serve, and close everything.

        Raises:
            FolderInUse, WrongVersion, LoadError, Misdeclared, StartFailed, ModelFailed …: it cannot start; the
                message is written for the person at the terminal.
        """
        async with AsyncExitStack() as stack:
            await self._open(stack)
            metrics.INFO.labels(version=VERSION).set(1)
            self.state = "ready"
            try:
                yield
            finally:
                await self._drain_if_needed()

    async def drain(self, grace_s: float | None = None) -> None:
        """Take no new work, end the streams, give the runs their grace and park the rest.

        May be cancelled, and asked for again with less grace.

        Args:
            grace_s: in place of the setting's.
        """
        self.state = "draining"
        await self.engine.drain(self.settings.drain_s if grace_s is None else grace_s)
        if self._blade is not None:
            await self._blade.close()
        self.state = "drained"

    async def _drain_if_needed(self) -> None:
        """Drain, if nobody did it before; in haste, if somebody began and gave up."""
        if self.state != "drained":
            await self.drain(None if self.state == "ready" else 0)

    async def _open(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        stores = self._stores = open_stores(settings, self._worker)
        stack.callback(stores.close)
        _warn_of_open_folder(settings)
        if not is_zone(settings.time_zone):
            raise SettingsError(f"setting time_zone: {settings.time_zone!r} is no IANA zone such as Europe/Berlin")
        bus, ids = self._open_bus(stores, stack), RandomIds()
        self.keys = KeyRing(
            stores.keys, bus, self._clock, ids, wrong_key_limit=RateLimit(settings.wrong_keys_per_minute, "wrong keys")
        )
        await self.keys.start()
        stack.push_async_callback(self.keys.close)
        self.memories = MemoryService(stores.memories, self._clock)
        self._shares = ShareService(stores.shares, self._clock)
        self.profiles = ProfileService(stores.profiles, bus)
        await self.profiles.start()
        stack.callback(self.profiles.close)
        if stores.accounts_version is not None:
            watching = asyncio.create_task(
                watch_for_changes(stores, partial(self._on_store_changed, bus)), name="watch"
            )
            stack.push_async_callback(asyncio.wait, [watching])
            stack.callback(watching.cancel)
        if not self._worker:  # one of several is enough
            admin = AdminSocket(settings.folder, self.keys, self.profiles)
            await admin.start()
            stack.push_async_callback(admin.close)
        agents, default = await prepare_agents(
            settings,
            self._extra_agents,
            environ=self._environ,
            progress=self._progress,
            clock=self._clock,
            stack=stack,
        )
        self._transcriber = None
        if settings.transcription_model is not None:
            from dragoman.models.transcription import resolve_transcriber

            self._transcriber = resolve_transcriber(settings.transcription_model, self._environ)
            stack.push_async_callback(self._transcriber.aclose)
        self._uploads = Uploads(stores.blobs, ids)
        self._log = CountedLog(stores.log)
        self.engine = Engine(
            log=self._log,
            index=stores.log,
            blobs=stores.blobs,
            bus=bus,
            cipher=_SecretTrackingCipher(LazyCipher(settings.folder / "secrets.key")),
            clock=self._clock,
            ids=ids,
            agents=agents,
            default_agent=default,
            limits=InputLimits(
                text_chars=settings.text_chars,
                seeds=settings.seeds,
                client_tools=settings.client_tools,
                schema_bytes=settings.schema_bytes,
            ),
            options=EngineOptions(
                sessions_in_memory=settings.sessions_in_memory,
                run_timeout_s=settings.run_timeout_s,
                heartbeat_interval_s=settings.heartbeat_s,
            ),
            memories=self.memories,
            profiles=self.profiles,
            cluster_store=stores.cluster_store,
        )
        await self.engine.start()
        stack.push_async_callback(self.engine.close)
        self.schedules = Scheduler(
            stores.schedules,
            self.engine,
            self._clock,
            ids,
            max_concurrent_fires=settings.schedule_runs,
            memory_enabled=settings.blade_memory,
            cluster_store=stores.cluster_store,
        )
        await self.schedules.start()
        stack.push_async_callback(self.schedules.close)
        self._path_router.set_routes(self._routes())
        if self._blade is not None:
            stack.push_async_callback(self._blade.close)

    def _open_bus(self, stores: Stores, stack: AsyncExitStack) -> Bus:
        """The way for hints: within the process, through the database, or over NATS, which need not be there yet."""
        settings = self.settings
        if settings.nats is None:
            if stores.database_url is None:
                return LocalBus()
            from dragoman.buses.postgres import PostgresBus

            bus = PostgresBus(stores.database_url)
            bus.start()
            stack.push_async_callback(bus.close)
            return bus
        try:
            from dragoman.buses.nats import NatsBus

            key = load_or_create_key(settings.folder / "secrets.key")
            credentials = _nats_credentials(settings)
            self._nats = NatsBus(settings.nats, subject=settings.nats_subject, key=key, credentials=credentials)
        except ModuleNotFoundError as error:
            raise SettingsError(
                "NATS is named, but its driver is not installed: make run EXTRAS=nats, or pip install '.[nats]'"
            ) from error
        except ValueError as error:
            raise SettingsError(f"setting nats: {error}") from error
        self._nats.start()
        stack.push_async_callback(self._nats.close)
        return self._nats

    async def _on_store_changed(self, bus: Bus) -> None:
        """Keys or profiles changed in the database, by this server or by another program."""
        bus.publish(KEYS_CHANGED, "")
        await self.profiles.reload()

    # --- doors ----------------------------------------------------------------------------------------------------

    def _routes(self) -> list[BaseRoute]:
        settings = self.settings
        doorkeeper: Authenticator = self.keys if settings.auth else NoKeys()
        shares = make_limits(
            requests_per_minute=settings.requests_per_minute,
            runs=settings.max_runs_per_user,
            streams=settings.max_streams_per_user,
        )
        entry = _AccessControl(
            doorkeeper,
            rate_limited(doorkeeper, shares),
            reserve_for_user(shares.runs),
            reserve_for_user(shares.streams),
        )
        described = list(ops_endpoints.ROUTES)
        routes: list[BaseRoute] = []
        if settings.aap:
            from dragoman.protocols.aap import http as aap
            from dragoman.protocols.aap import openapi as aap_routes

            face = aap.app(
                self.engine,
                entry.authenticate,
                aap.AapOptions(body_limit=settings.body_bytes, public_meta=settings.public_meta),
                admit_run=entry.admit_run,
                admit_stream=entry.admit_stream,
            )
            routes.append(Mount(settings.aap_path, app=StreamGuard(face, "aap", doorkeeper)))
            described += openapi.with_prefix(aap_routes.ROUTES, settings.aap_path)
        if settings.ag_ui:
            from dragoman.protocols.agui import http as ag_ui
            from dragoman.protocols.agui import openapi as ag_ui_routes

            endpoint = ag_ui.app(
                self.engine,
                entry.authenticate,
                ag_ui.AguiOptions(
                    body_limit=settings.body_bytes,
                    on_disconnect=settings.ag_ui_on_disconnect,
                    min_generation=settings.ag_ui_min_client,
                ),
                admit_run=entry.admit_run,
                admit_stream=entry.admit_stream,
            )
            routes.append(Mount(settings.ag_ui_path, app=StreamGuard(endpoint, "ag-ui", doorkeeper)))
            described += openapi.with_prefix(ag_ui_routes.ROUTES, settings.ag_ui_path)
        if settings.run_service:
            from dragoman.protocols.agui.run_service import openapi as run_service_routes

            routes.append(Mount(settings.run_service_path, app=self._run_service(entry)))
            described += openapi.with_prefix(run_service_routes.ROUTES, settings.run_service_path)
        if settings.agentscope:
            from dragoman.protocols.agentscope import http as agentscope
            from dragoman.protocols.agentscope import openapi as agentscope_routes
            from dragoman.protocols.agentscope.paths import all_paths

            path = settings.agentscope_path
            runtime = agentscope.app(
                self.engine,
                entry.authenticate,
                agentscope.AgentScopeOptions(path=path, body_limit=settings.body_bytes),
                admit_run=entry.admit_run,
                admit_stream=entry.admit_stream,
                state=self._readiness,
            )
            door = StreamGuard(runtime, "agentscope", doorkeeper)
            routes += [Route(each, door) for each in all_paths(path)]
            described += agentscope_routes.routes(path)
        if settings.blade and (blade_routes := self._blade_routes(entry)):
            from dragoman.protocols.blade.rest import openapi as rest_openapi
            from dragoman.protocols.blade.rest import session_openapi

            routes += blade_routes
            described += openapi.with_prefix((*session_openapi.ROUTES, *rest_openapi.ROUTES), "/api")
        public = settings.is_loopback if settings.public_metrics is None else settings.public_metrics
        own = OpsEndpoints(
            readiness=self._readiness,
            authenticator=doorkeeper,
            are_metrics_public=public,
            extra_status=self._bus_status,
            update_gauges=self._update_gauges,
            build_openapi=lambda: build_openapi(described),
        )
        if not settings.console:
            return [*routes, *own.routes()]
        at_root = [route.app for route in routes if isinstance(route, Route) and route.path == "/"]
        console = WebConsole(at_root[0] if at_root else ops_endpoints.not_found, frame_ancestors=settings.cors_origins)
        doors = [route for route in routes if not (isinstance(route, Route) and route.path == "/")]
        return [*doors, *console.routes(), *own.routes()]

    def _run_service(self, access: "_AccessControl") -> StreamGuard:
        from dragoman.protocols.agui.run_service import http
        from dragoman.protocols.agui.run_service.files import Files
        from dragoman.protocols.agui.run_service.links import Links

        settings = self.settings
        files = Files(
            uploads=self._uploads,
            links=Links(load_or_create_key(settings.folder / "links.key")),
            clock=self._clock,
            transcriber=self._transcriber,
            public_url=settings.public_url,
        )
        face = http.app(
            self.engine,
            access.authenticate,
            files,
            self.profiles,
            admit_run=access.admit_run,
            admit_stream=reserve_for_user(ConcurrencyLimit(settings.run_service_streams, "open event streams")),
            answers_limit=settings.body_bytes,
        )
        return StreamGuard(face, "runs", access.authenticator)

    def _blade_routes(self, access: "_AccessControl") -> list[BaseRoute]:
        try:
            with lazy_imports("aiohttp", "requests", "websocket"):  # what the Socket.IO library's client needs: 0.2 s
                from dragoman.protocols.blade import http as blade
        except ModuleNotFoundError as error:
            log.warning("Blade is not served", because=str(error), mend="install the extra `blade`")
            return []
        from dragoman.protocols.blade.rest import archives, keys, memories, schedules, sharing

        settings, zone = self.settings, self.settings.time_zone
        areas = [
            *memories.routes(self.memories),
            *keys.routes(self.keys, settings.blade_key_prefix),
            *archives.routes(self.engine, memory_default=settings.blade_memory),
            *sharing.routes(
                self.engine, self._shares, public_url=settings.public_url, is_enabled=settings.blade_public_sharing
            ),
            *schedules.routes(self.schedules, self._clock, lambda user: self.profiles.for_user(user).time_zone or zone),
        ]
        self._blade = blade.Blade(
            self.engine,
            access.authenticate,
            access.authenticator,
            blade.BladeOptions(
                server_info=blade.ServerInfo(
                    level=settings.blade_level,
                    oldest_client_level=blade.OLDEST_CLIENT_LEVEL,
                    server_version=VERSION,
                    sharing_enabled=settings.blade_public_sharing,
                    memory_enabled=settings.blade_memory,
                ),
                memory_default=settings.blade_memory,
                sync_patch_interval_s=settings.blade_sync_patch_ms / 1000,
            ),
            extra_routes=areas,
            admit_run=access.admit_run,
            admit_stream=access.admit_stream,
        )
        rest = StreamGuard(self._blade.rest, "blade", access.authenticator)
        return [Mount("/socket.io", app=self._blade.socket_server), Mount("/api", app=rest)]

    def _bus_status(self) -> Mapping[str, str]:
        """What readiness tells and does not depend on: without the bus the servers look each other's words up."""
        return {} if self._nats is None else {"bus": "connected" if self._nats.is_connected else "away"}

    def _update_gauges(self) -> None:
        """Set the metrics that are read and not counted."""
        metrics.SESSIONS_IN_MEMORY.set(self.engine.sessions_in_memory)
        if self._nats is not None:
            metrics.BUS_CONNECTED.set(self._nats.is_connected)
            for outcome, count in self._nats.hint_counts._asdict().items():
                metrics.BUS_HINTS.labels(outcome=outcome).value = count

    async def _readiness(self) -> str:
        """`ready`, or why not. A store that failed, or may have gone unseen, is asked to write something."""
        if self.state != "ready" or not (self._log.is_failing or self.settings.database):
            return self.state
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await self._stores.probe()
        except (StoreUnavailable, TimeoutError):
            return "store unavailable"
        self._log.is_failing = False
        return self.state


def build(
    settings: Settings,
    *,
    agents: Sequence[Agent] = (),
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
    worker: int | None = None,
) -> Application:
    """Put a server together. Nothing is opened before it runs.

    Args:
        settings: all choices.
        agents: agents to serve besides those of the settings' files.
        clock: the time; else this machine's.
        environ: where models find their providers' keys; else nowhere.
        progress: told what is done while the start takes its time.
        worker: its number among several processes that share the data folder and the port.
    """
    return Application(
        settings,
        agents=agents,
        clock=clock or SystemClock(),
        environ=environ or {},
        progress=progress,
        worker=worker,
    )


class _AccessControl(NamedTuple):
    """How every door lets its callers in: who they are, and what they may take at a time."""

    authenticator: Authenticator
    authenticate: "Authenticate"
    admit_run: "Admit"
    admit_stream: "Admit"


def reserve_for_user(limit: ConcurrencyLimit) -> "Admit":
    """Holds a place of each caller's share."""
    return lambda principal: limit.acquire(principal.user)


def rate_limited(authenticator: Authenticator, limits: Limits) -> "Authenticate":
    """Authentication that also counts the requests of each key."""

    def authenticate(header: str | None, address: str) -> Principal:
        principal = authenticator.authenticate(header, address)
        limits.requests.consume(principal.key_id or principal.user)
        return principal

    return authenticate


def build_openapi(routes: Sequence[openapi.Route]) -> JsonObject:
    """The OpenAPI document of this server."""
    about = 'An agent server. Errors are `{"error": a sentence, "code": for programs}`.'
    return openapi.document("Dragoman", VERSION, routes, description=about)


def _nats_credentials(settings: Settings) -> Path | None:
    """The file that says who this is to NATS, once it was seen to do so."""
    if settings.nats_credentials is None:
        return None
    from dragoman.buses.nats_credentials import read_credentials

    path = Path(settings.nats_credentials).expanduser()
    try:
        read_credentials(path)
    except (OSError, ValueError) as error:
        raise SettingsError(f"setting nats_credentials: {path}: {error}") from error
    return path


def _warn_of_open_folder(settings: Settings) -> None:
    mode = settings.folder.stat().st_mode & 0o777
    if mode & 0o077:
        log.warning("others may look into the data folder", mode=f"{mode:o}", mend=f"chmod 700 {settings.data}")


class _SecretTrackingCipher:
    """`Cipher` around another one, which keeps what it seals and opens out of the logs."""

    def __init__(self, cipher: Cipher) -> None:
        self._cipher = cipher

    def encrypt(self, plaintext: str) -> str:
        SECRETS.add(plaintext)
        return self._cipher.encrypt(plaintext)

    def decrypt(self, ciphertext: str) -> str:
        plain = self._cipher.decrypt(ciphertext)
        SECRETS.add(plain)
        return plain
