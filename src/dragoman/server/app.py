"""The composition root: opens what the settings ask for, and puts it together into one ASGI application.

    settings ──► stores, bus, keys, models, agents ──► engine ──► protocols ──► SecurityMiddleware

This is the only module that knows all of them. Resources close in the reverse order, also when opening fails halfway.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal

import structlog
from starlette.routing import BaseRoute, Route, Router

from dragoman.agents import serving
from dragoman.agents.base import ModelResolver
from dragoman.asgi import ops_endpoints
from dragoman.asgi.console import WebConsole
from dragoman.asgi.key_endpoints import KeyHandlers
from dragoman.asgi.ops_endpoints import OpsHandlers
from dragoman.asgi.routing import PathRouter
from dragoman.asgi.security import Message, Receive, SecurityMiddleware, Send
from dragoman.asgi.user_endpoints import UserHandlers
from dragoman.core.agent import Agent, ReportsStatus
from dragoman.core.content import JsonObject
from dragoman.core.input_checks import InputLimits
from dragoman.core.time_zones import is_zone
from dragoman.core.token_budgets import TokenLimits
from dragoman.engine.engine import Engine
from dragoman.engine.expiry import ExpiredSessions
from dragoman.engine.instrumentation import metrics
from dragoman.engine.instrumentation.counted_log import CountedLog
from dragoman.engine.parts import EngineOptions, EngineServices, EngineStores, Environment
from dragoman.engine.scheduler import Scheduler
from dragoman.engine.services.audit import AuditLog
from dragoman.engine.services.connection_memory import ConnectionMemory
from dragoman.engine.services.keys import KEYS_CHANGED_SUBJECT, KeyRing
from dragoman.engine.services.limits import RateLimit
from dragoman.engine.services.memories import MemoryService
from dragoman.engine.services.profiles import ProfileService
from dragoman.engine.services.rate_sharing import RateSharing
from dragoman.engine.services.served_agents import ServedAgents
from dragoman.engine.services.shares import ShareService
from dragoman.engine.services.token_budgets import TokenBudgets
from dragoman.engine.services.uploads import Uploads
from dragoman.engine.sessions.kept_values import KeepLimits
from dragoman.ports.bus import Bus
from dragoman.ports.environment import Cipher, Clock
from dragoman.ports.models import Transcriber
from dragoman.ports.stores import Stores
from dragoman.protocols.kit import openapi
from dragoman.protocols.kit.app import ProtocolApp
from dragoman.protocols.kit.errors import STANDARD_ROWS, ErrorTable
from dragoman.server.access_control import make_access_control
from dragoman.server.admin_socket import AdminSocket
from dragoman.server.agents import load_agents, start_agents, start_models
from dragoman.server.bus import OpenedBus, open_bus
from dragoman.server.clock_and_ids import RandomIds, SystemClock
from dragoman.server.key_files import check_key_files, load_key_hasher
from dragoman.server.logging import SECRETS
from dragoman.server.oidc import ProviderLogin, check_login_settings, make_token_verifier, open_issuer
from dragoman.server.protocols import PROTOCOLS, MountedProtocol, ProtocolFactory, ServerContext
from dragoman.server.readiness import Readiness
from dragoman.server.stores import open_stores, watch_for_changes
from dragoman.server.version import full_version
from dragoman.server.worker_metrics import WorkerMetrics
from dragoman.settings import Settings, SettingsError
from dragoman.stores.encryption import SECRETS_KEY, LazyCipher

if TYPE_CHECKING:
    from dragoman.identity.issuer import Issuer

State = Literal["starting", "ready", "draining", "drained"]

log = structlog.get_logger(__name__)


# Large: the composition root; it has an attribute for each part that it opens.
class Application:
    """A server as an ASGI application. It serves inside `running()`, or inside its ASGI lifespan."""

    def __init__(
        self,
        settings: Settings,
        *,
        agents: Sequence[Agent],
        clock: Clock,
        environ: Mapping[str, str],
        progress: Callable[[str], None],
        worker: int | None,
        resolve_model: ModelResolver | None,
        protocols: Sequence[ProtocolFactory],
    ) -> None:
        self.settings = settings
        self.state: State = "starting"
        self.memory = ConnectionMemory(settings.bodies_bytes, settings.unread_bytes)
        self.keys: KeyRing
        self.audit: AuditLog
        self._issuer: Issuer | None = None
        self.profiles: ProfileService
        self.budgets: TokenBudgets
        self.memories: MemoryService
        self.engine: Engine
        self.schedules: Scheduler
        self.expired_sessions: ExpiredSessions
        self._worker = worker
        self._worker_metrics: WorkerMetrics | None = None
        self._clock = clock
        self._ids = RandomIds()
        self._environ = environ
        self._agents = tuple(agents)
        self._start_models = partial(
            start_models,
            settings,
            environ=environ,
            progress=progress,
            clock=clock,
            resolve_model=resolve_model,
        )
        self._start_agents = partial(
            start_agents, settings, progress=progress, warns_about_unused_tools=resolve_model is None
        )
        self._stores: Stores
        self._bus: OpenedBus
        self._log: CountedLog
        self._protocol_factories = protocols
        self._protocols: list[MountedProtocol] = []
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
        """Handle an ASGI request. The server process calls `asgi_app` directly, which saves a coroutine."""
        await self.asgi_app(scope, receive, send)

    # --- lifecycle ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open everything, serve, and close everything.

        Raises:
            FolderInUse, WrongVersion, LoadError, DeclarationError, StartFailed, ModelFailed …: the server cannot start.
                The message is written for the person at the terminal.
        """
        async with AsyncExitStack() as stack:
            await self._open(stack)
            metrics.INFO.labels(version=full_version()).set(1)
            self.state = "ready"
            try:
                yield
            finally:
                await self._drain_if_needed()

    async def drain(self, grace_s: float | None = None) -> None:
        """Refuse new work, end the streams, give the runs their grace period and park those that remain.

        May be cancelled, and called again with less grace.

        Args:
            grace_s: replaces the setting `drain_s`.
        """
        self.state = "draining"
        await self.engine.drain(self.settings.drain_s if grace_s is None else grace_s)
        for protocol in self._protocols:
            await protocol.close()
        self.state = "drained"

    async def _drain_if_needed(self) -> None:
        """Drain unless that is done; without grace if a drain was begun and abandoned."""
        if self.state != "drained":
            await self.drain(None if self.state == "ready" else 0)

    async def _open(self, stack: AsyncExitStack) -> None:
        settings = self.settings
        # Settings first: a model takes seconds to load. Both before the stores, so that an error leaves no data folder.
        check_login_settings(settings)
        if not is_zone(settings.time_zone):
            raise SettingsError(
                f"setting time_zone: expected an IANA time zone such as Europe/Berlin, got {settings.time_zone!r}"
            )
        to_serve = await self._start_models([*self._agents, *load_agents(settings.agents)], stack=stack)
        self._stores = open_stores(settings, self._worker)
        stack.callback(self._stores.close)
        await check_key_files(settings.folder, self._stores.key_fingerprints)
        _warn_if_others_can_read(settings)
        self._bus = open_bus(settings, self._stores.database_url, stack)
        await self._open_accounts(stack)
        self._issuer = await open_issuer(self.settings, stack)
        agents, default_agent = await self._start_agents(to_serve, stack=stack)
        transcriber = self._open_transcriber(stack)
        await self._start_engine(agents, default_agent, stack)
        if self._worker is not None:
            self._worker_metrics = WorkerMetrics(settings.folder, self._worker, settings.workers, self._update_gauges)
            await self._worker_metrics.start()
            stack.push_async_callback(self._worker_metrics.close)
        self._mount_protocols(transcriber, stack)

    async def _open_accounts(self, stack: AsyncExitStack) -> None:
        """Open keys and profiles, follow changes that others make to them, and open the admin socket."""
        stores, bus = self._stores, self._bus.bus
        self.audit = AuditLog(stores.audit, self._clock, self._ids)
        await self.audit.start()
        stack.push_async_callback(self.audit.close)
        self.keys = KeyRing(
            stores.keys,
            bus,
            self._clock,
            self._ids,
            wrong_key_limit=self._shared_limit(self.settings.wrong_keys_per_minute, "wrong keys", stack),
            audit=self.audit,
            hasher=load_key_hasher(self.settings.folder),
        )
        await self.keys.start()
        stack.push_async_callback(self.keys.close)
        self.profiles = ProfileService(stores.profiles, bus, self.audit)
        await self.profiles.start()
        default = TokenLimits(self.settings.tokens_per_day, self.settings.tokens_per_month)
        self.budgets = TokenBudgets(
            stores.token_usage,
            self._clock,
            of_user=lambda user: self.profiles.token_limits(user, default),
            of_key=self.keys.token_limits,
        )
        stack.callback(self.profiles.close)
        if stores.accounts_version is not None:
            watch = asyncio.create_task(watch_for_changes(stores, partial(self._reload_accounts, bus)), name="watch")
            stack.push_async_callback(asyncio.wait, [watch])
            stack.callback(watch.cancel)
        if not self._worker:  # workers share the data folder: the first one serves its socket
            admin = AdminSocket(self.settings.folder, self.keys, self.profiles, self.audit)
            await admin.start()
            stack.push_async_callback(admin.close)

    def _shared_limit(self, per_minute: int, what: str, stack: AsyncExitStack) -> RateLimit:
        """A rate limit that counts on all servers of the database."""
        limit = RateLimit(per_minute, what)
        if per_minute and self._stores.database_url is not None:
            sharing = RateSharing(limit, self._bus.bus, f"rate-{what.replace(' ', '-')}")
            task = asyncio.create_task(sharing.run(), name=f"share the limit of {what}")
            stack.push_async_callback(asyncio.wait, [task])
            stack.callback(task.cancel)
        return limit

    async def _reload_accounts(self, bus: Bus) -> None:
        """Reload keys and profiles, which changed in the database."""
        bus.publish(KEYS_CHANGED_SUBJECT, "")
        await self.profiles.reload()

    def _open_transcriber(self, stack: AsyncExitStack) -> Transcriber | None:
        if self.settings.transcription_model is None:
            return None
        from dragoman.models.transcription import resolve_transcriber

        transcriber = resolve_transcriber(self.settings.transcription_model, self._environ)
        stack.push_async_callback(transcriber.aclose)
        return transcriber

    async def _start_engine(self, agents: Mapping[str, Agent], default_agent: str, stack: AsyncExitStack) -> None:
        settings, stores = self.settings, self._stores
        self.memories = MemoryService(stores.memories, self._clock)
        self._log = CountedLog(stores.log)
        self.engine = Engine(
            EngineStores(log=self._log, index=stores.log, blobs=stores.blobs, cluster_store=stores.cluster_store),
            Environment(
                bus=self._bus.bus,
                cipher=_SecretTrackingCipher(LazyCipher(settings.folder / SECRETS_KEY)),
                clock=self._clock,
                ids=self._ids,
            ),
            ServedAgents(agents, default_agent),
            EngineServices(budgets=self.budgets, memories=self.memories, profiles=self.profiles, audit=self.audit),
            EngineOptions(
                input_limits=InputLimits(
                    text_chars=settings.text_chars,
                    seeds=settings.seeds,
                    client_tools=settings.client_tools,
                    schema_bytes=settings.schema_bytes,
                ),
                sessions_in_memory=settings.sessions_in_memory,
                run_timeout_s=settings.run_timeout_s,
                heartbeat_interval_s=settings.heartbeat_s,
                max_runs_per_user=settings.max_runs_per_user,
                keep=KeepLimits(
                    value_bytes=settings.kept_value_bytes,
                    session_bytes=settings.kept_bytes,
                    private_bytes=settings.private_bytes,
                ),
                shows_errors=settings.agent_error_details,
                shows_model_errors=settings.shows_model_errors,
            ),
        )
        self.schedules = Scheduler(
            stores.schedules,
            self.engine,
            self._clock,
            self._ids,
            max_concurrent_fires=settings.schedule_runs,
            memory_enabled=settings.blade_memory,
            cluster_store=stores.cluster_store,
        )
        serving.bind_tasks(tuple(agents.values()), self.schedules.start_task)
        await self.engine.start()
        stack.push_async_callback(self.engine.close)
        await self.schedules.start()
        stack.push_async_callback(self.schedules.close)
        self.expired_sessions = ExpiredSessions(self.engine, self.settings.retention_days, self.profiles.retention_days)
        await self.expired_sessions.start()
        stack.push_async_callback(self.expired_sessions.close)

    # --- routes ---------------------------------------------------------------------------------------------------

    def _mount_protocols(self, transcriber: Transcriber | None, stack: AsyncExitStack) -> None:
        settings = self.settings
        tokens = make_token_verifier(settings, self._issuer, self._clock)
        requests = self._shared_limit(settings.requests_per_minute, "requests", stack)
        access = make_access_control(settings, self.keys, tokens, self._clock, self.audit, requests, self.memory)
        readiness = Readiness(lambda: self.state, self._log, self._stores)
        context = ServerContext(
            settings=settings,
            version=full_version(),
            engine=self.engine,
            access=access,
            keys=self.keys,
            clock=self._clock,
            bus=self._bus.bus,
            memories=self.memories,
            profiles=self.profiles,
            schedules=self.schedules,
            expired_sessions=self.expired_sessions,
            shares=ShareService(
                self._stores.shares,
                self._clock,
                guess_limit=self._shared_limit(settings.wrong_keys_per_minute, "unknown links", stack),
                audit=self.audit,
            ),
            audit=self.audit,
            uploads=Uploads(self._stores.blobs, self._ids),
            transcriber=transcriber,
            readiness=readiness.check,
        )
        for factory in self._protocol_factories:
            if (protocol := factory(context)) is not None:
                self._protocols.append(protocol)
                stack.push_async_callback(protocol.close)
        documented = [
            *ops_endpoints.API.routes(OpsHandlers, KeyHandlers, UserHandlers),
            *(route for each in self._protocols for route in each.openapi_routes),
        ]
        ops = OpsHandlers(
            readiness=readiness.check,
            audit=self.audit,
            budgets=self.budgets,
            are_metrics_public=settings.is_loopback if settings.public_metrics is None else settings.public_metrics,
            extra_status=lambda: self._extra_status(readiness.reason),
            exposition=self._exposition,
            build_openapi=lambda: build_openapi(documented),
        )
        routes = [route for protocol in self._protocols for route in protocol.routes]
        if settings.console:
            routes = _with_console(routes, settings.cors_origins, ProviderLogin.from_settings(settings, self._issuer))
        users = UserHandlers(self.profiles, self.keys, self.budgets)
        own = [*ops.routes(), *KeyHandlers(self.keys).routes(), *users.routes()]
        without_rate_limit = access._replace(authenticate=access.authenticator.authenticate)
        app = ProtocolApp("server", own, ErrorTable(STANDARD_ROWS), without_rate_limit)
        self._path_router.set_routes([*routes, *(Route(f"/{each.path}", app) for each in own), *ops.pages()])

    def _extra_status(self, reason: str | None) -> Mapping[str, str]:
        """Why the store is unavailable, runs that wait for an agent, and the states of the bus and remote agents."""
        nats = self._bus.nats
        bus = {} if nats is None else {"bus": "connected" if nats.is_connected else "away"}
        waiting = self.engine.waiting_run_count
        runs = {"runs_waiting_for_agent": str(waiting)} if waiting else {}
        remote = {
            name: agent.status() for name, agent in self.engine.agents.items() if isinstance(agent, ReportsStatus)
        }
        remotes = {"remote_agents": ", ".join(f"{name} {remote[name]}" for name in sorted(remote))} if remote else {}
        reasons = {} if reason is None else {"reason": reason}
        return {**reasons, **runs, **bus, **remotes}

    async def _exposition(self) -> bytes:
        if self._worker_metrics is not None:
            return await self._worker_metrics.exposition()
        self._update_gauges()
        return metrics.exposition()

    def _update_gauges(self) -> None:
        """Set the metrics that are sampled, not counted."""
        metrics.SESSIONS_IN_MEMORY.set(self.engine.sessions_in_memory)
        metrics.RUNS_WAITING.set(self.engine.waiting_run_count)
        if self._bus.nats is not None:
            metrics.BUS_CONNECTED.set(self._bus.nats.is_connected)
            for outcome, count in self._bus.nats.hint_counts._asdict().items():
                metrics.BUS_HINTS.labels(outcome=outcome).value = count


def build(
    settings: Settings,
    *,
    agents: Sequence[Agent] = (),
    clock: Clock | None = None,
    environ: Mapping[str, str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
    worker: int | None = None,
    resolve_model: ModelResolver | None = None,
    protocols: Sequence[ProtocolFactory] = PROTOCOLS,
) -> Application:
    """Build a server. It opens nothing before it runs.

    Args:
        settings: the settings in force.
        agents: agents to serve in addition to those in the settings' files.
        clock: the clock; defaults to the system's.
        environ: where models find their providers' keys; defaults to nothing.
        progress: called with a line of text during slow steps of the start.
        worker: the number of this process among several that share the data folder and the port.
        resolve_model: returns the model for a name; defaults to those that the settings and `environ` give.
        protocols: what may be mounted; the settings turn each of them off.
    """
    return Application(
        settings,
        agents=agents,
        clock=clock or SystemClock(),
        environ=environ or {},
        progress=progress,
        worker=worker,
        resolve_model=resolve_model,
        protocols=protocols,
    )


def build_openapi(routes: Sequence[openapi.Route]) -> JsonObject:
    """The OpenAPI document of this server."""
    description = (
        'An agent server. An error is `{"error": …, "code": …}`: a sentence for people and a code for programs.'
    )
    return openapi.document("Dragoman", full_version(), routes, description=description)


def _with_console(
    routes: Sequence[BaseRoute], frame_ancestors: Sequence[str], login: ProviderLogin | None
) -> list[BaseRoute]:
    """Add the web console. A protocol that has a route at `/` still gets the requests there that ask for no page."""
    at_root = [route for route in routes if isinstance(route, Route) and route.path == "/"]
    fallback = at_root[0].app if at_root else ops_endpoints.not_found
    console = WebConsole(fallback, frame_ancestors=frame_ancestors, login=login)
    return [*(route for route in routes if route not in at_root), *console.routes()]


def _warn_if_others_can_read(settings: Settings) -> None:
    mode = settings.folder.stat().st_mode & 0o777
    if mode & 0o066:  # passing is harmless, and a bundled PostgreSQL of another user needs it
        log.warning("the data folder is accessible to other users", mode=f"{mode:o}", hint=f"chmod 700 {settings.data}")


class _SecretTrackingCipher:
    """A `Cipher` that keeps every secret passing through it out of the logs."""

    def __init__(self, cipher: Cipher) -> None:
        self._cipher = cipher

    def encrypt(self, plaintext: str) -> str:
        SECRETS.add(plaintext)
        return self._cipher.encrypt(plaintext)

    def decrypt(self, ciphertext: str) -> str:
        plaintext = self._cipher.decrypt(ciphertext)
        SECRETS.add(plaintext)
        return plaintext
