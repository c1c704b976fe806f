"""Runs a server as a process: socket, event loop, signals, and the line that says that it is ready.

That line is the only output on standard output, so that programs can wait for it. Everything for people goes to
standard error.
"""

import asyncio
import gc
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

import structlog
import uvicorn

from dragoman.asgi.http_connection import Connection
from dragoman.asgi.security import App
from dragoman.core.refusals import StoreUnavailable
from dragoman.engine.instrumentation import tracing
from dragoman.engine.runs.loop_watchdog import LoopWatchdog
from dragoman.engine.services.connection_memory import ConnectionMemory
from dragoman.ports.models import ModelFailed
from dragoman.server.app import Application, build
from dragoman.server.bootstrap_key import announce_ready, curl_line, ensure_bootstrap_key, local_url
from dragoman.server.logging import configure_logging, configure_tracing, log_worker
from dragoman.server.version import full_version
from dragoman.settings import Settings, UnusableData
from dragoman.stores.errors import StoreInUse, WrongVersion
from dragoman.stores.sqlite.database import warn_about_old_sqlite

KEEP_ALIVE_TIMEOUT_S = 75
"""Longer than the minute after which most proxies close idle connections, so that the proxy closes them first."""
MAX_WEBSOCKET_MESSAGE_BYTES = 16 * 1024 * 1024
"""Largest WebSocket message."""
GRACEFUL_SHUTDOWN_TIMEOUT_S = 5
"""How long responses in progress may take after the drain."""

GC_THRESHOLDS = (20_000, 5, 200)
"""Collect rarely: streams make many small objects but no cycles, and the collector took 6 % of a busy server's time.
The middle generation is collected every 100,000 objects: a collection stops the server for as long as it takes to visit
what is new since the last one."""

GIL_SWITCH_INTERVAL_S = 0.0005
"""The interpreter's GIL switch interval. The database's writer thread releases the GIL for each row; with the default
of 5 ms a busy event loop would delay every commit, and so itself."""

Announce = Callable[[Application], Awaitable[None]]
"""Called when a server accepts requests."""

log = structlog.get_logger(__name__)


class Worker(NamedTuple):
    """What a worker inherits: one of several processes that share a port.

    Args:
        number: the worker's number, from 0; a restarted worker has its predecessor's.
        listening_socket: the socket that all workers share.
        supervisor_pipe: reaches its end when the supervisor exits.
        ready_pipe: written to when the worker accepts requests.
    """

    number: int
    listening_socket: socket.socket
    supervisor_pipe: int
    ready_pipe: int


class CannotStart(Exception):
    """The server cannot start. The message says why and what to do."""


def run(settings: Settings, environ: Mapping[str, str]) -> None:
    """Serve until a signal stops the server.

    Raises:
        CannotStart: the server could not start.
        SettingsError: a setting is invalid.
    """
    configure_logging(settings.log_format, settings.log_level)
    _run(settings, environ, None)
    log.info("stopped")


def serve_worker(worker: Worker, settings: Settings, environ: Mapping[str, str]) -> None:
    """Serve as one of several workers, until a signal stops it or the supervisor exits.

    Raises:
        CannotStart: the worker could not start.
        SettingsError: a setting is invalid.
    """
    log_worker(worker.number)
    _run(settings, environ, worker)
    log.info("stopped")


def serve_socket(listening: socket.socket, settings: Settings, environ: Mapping[str, str], announce: Announce) -> None:
    """Serve on a socket that another process has bound, until a signal stops the server.

    Args:
        listening: the socket.
        settings: the settings in force.
        environ: where models find their providers' keys.
        announce: called when the server accepts requests.

    Raises:
        CannotStart: the server could not start.
        SettingsError: a setting is invalid.
    """
    _run(settings, environ, None, listening, announce)


def _run(
    settings: Settings,
    environ: Mapping[str, str],
    worker: Worker | None,
    listening: socket.socket | None = None,
    announce: Announce | None = None,
) -> None:
    end_spans = _start_tracing(settings)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(settings, environ, worker, listening, announce))
    finally:
        end_spans()


async def _serve(
    settings: Settings,
    environ: Mapping[str, str],
    worker: Worker | None,
    listening: socket.socket | None,
    announce: Announce | None,
) -> None:
    if listening is None:
        listening = (
            bind_socket(settings.host, settings.port, settings.stalled_reader_s)
            if worker is None
            else worker.listening_socket
        )
    announce = announce or partial(_announce, listening=listening, worker=worker)
    number = None if worker is None else worker.number
    app = build(settings, environ=environ, progress=lambda text: log.info(text), worker=number)
    async with AsyncExitStack() as stack:
        stack.callback(listening.close)
        if worker is not None:
            loop = asyncio.get_running_loop()
            loop.add_reader(worker.supervisor_pipe, _on_supervisor_exit, loop, worker)
        try:
            await stack.enter_async_context(app.running())
        except Exception as error:  # the outer edge of the start: expected errors are reported without a traceback
            raise _to_startup_error(error, settings) from error
        try:
            listening.listen()  # uvloop would not report that it fails
        except OSError as error:  # another server that bound the port too was faster
            raise _cannot_listen(settings.host, settings.port, error) from error
        gc.collect()
        gc.freeze()  # objects that exist now live as long as the process: exclude them from collections
        gc.set_threshold(*GC_THRESHOLDS)
        sys.setswitchinterval(GIL_SWITCH_INTERVAL_S)
        structlog.configure(cache_logger_on_first_use=True)  # else each event makes a logger, also if it is not shown
        server = Server(
            uvicorn_config(app.asgi_app, settings, app.memory),
            app.drain,
            partial(announce, app),
            waits_for_runs=settings.drain_s > 0,
        )
        with LoopWatchdog():
            await server.serve(sockets=[listening])


def _to_startup_error(error: Exception, settings: Settings) -> Exception:
    """Convert an expected error to CannotStart; return any other unchanged, also a SettingsError."""
    from dragoman.agents.parameters import DeclarationError
    from dragoman.agents.serving import StartFailed
    from dragoman.models.registry import ModelNameError
    from dragoman.server.loading import LoadError

    if isinstance(
        error,
        StoreInUse
        | WrongVersion
        | UnusableData
        | LoadError
        | DeclarationError
        | StartFailed
        | ModelNameError
        | ModelFailed,
    ):
        return CannotStart(str(error))
    if isinstance(error, StoreUnavailable) and settings.database:
        return CannotStart(str(error))
    if isinstance(error, FileExistsError | NotADirectoryError):
        return CannotStart(f"{error.filename} is not a folder: choose another one with --data")
    if isinstance(error, OSError | sqlite3.Error | StoreUnavailable):
        cause = f": {error.__cause__}" if isinstance(error.__cause__, sqlite3.Error) else ""
        return CannotStart(f"cannot use the data folder {settings.folder}: {error}{cause}")
    return error


def bind_socket(host: str, port: int, send_timeout_s: float = 60.0) -> socket.socket:
    """Bind the server's socket. It does not listen yet, so that early connections are refused instead of waiting.

    Args:
        host: the address.
        port: the port; 0 for a free one.
        send_timeout_s: how long a client may read nothing before it is disconnected. Supported on Linux only.

    Raises:
        CannotStart: the address is not available.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotStart(f"cannot listen on {host}: {error.strerror}: choose another address with --host") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections inherit it
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(send_timeout_s * 1000))
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise _cannot_listen(host, port, error) from error
    return listening


def _cannot_listen(host: str, port: int, error: OSError) -> CannotStart:
    return CannotStart(
        f"cannot listen on {host} port {port}: {error.strerror}: choose another one with --host or --port"
    )


def url_of(host: str, port: int) -> str:
    """The server's URL."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _on_supervisor_exit(loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
    """Stop gracefully, because the supervisor has exited."""
    loop.remove_reader(worker.supervisor_pipe)
    signal.raise_signal(signal.SIGTERM)


async def _announce(app: Application, *, listening: socket.socket, worker: Worker | None) -> None:
    settings = app.settings
    url = url_of(settings.host, listening.getsockname()[1])
    log.info("serving", url=url, version=full_version(), agents=list(app.engine.agents), data=settings.data)
    if not settings.database and not settings.first_key:  # which is for trying the server out
        warn_about_old_sqlite()
    if worker is None or not worker.number:
        await _introduce(app, url)
    if worker is None:
        announce_ready(settings.folder, url)
    else:
        os.write(worker.ready_pipe, b"r")


async def _introduce(app: Application, url: str) -> None:
    """Say how to use the server, before it says that it is ready: a program that waits for that finds the first key."""
    settings = app.settings
    if settings.first_key:
        await print_first_steps(app, url)
    elif settings.auth and not app.keys.all():
        log.warning(
            "no API key exists yet",
            hint=f"start with --first-key, or: dragoman keys create --name NAME --data {settings.data}",
        )


async def print_first_steps(app: Application, url: str) -> str:
    """Print the first key, the console's address and a first request on standard error. Returns the address."""
    settings = app.settings
    key = await ensure_bootstrap_key(settings.folder, app.keys) if settings.auth else None
    local = local_url(url)
    console_url = f"{local}/#key={key}" if key else f"{local}/"
    curl = curl_line(local + settings.openai_path, key, app.engine.agent(app.engine.default_agent).spec)
    sys.stderr.write(f"\nkey   {key}\n" if key else "\n")
    sys.stderr.write(f"open  {console_url}\n")
    sys.stderr.write(f"try   {curl}\n" if settings.openai else "")
    sys.stderr.flush()
    return console_url


# --- uvicorn ----------------------------------------------------------------------------------------------------------


class Server(uvicorn.Server):
    """Uvicorn, with a drain: alone it would wait for open streams forever. A second signal skips the drain."""

    def __init__(
        self,
        config: uvicorn.Config,
        drain: Callable[[float | None], Awaitable[None]],
        announce: Callable[[], Awaitable[None]],
        *,
        waits_for_runs: bool = True,
    ) -> None:
        super().__init__(config)
        self._drain = drain
        self._announce = announce
        self._drain_task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._signal_count = 0
        self._waits_for_runs = waits_for_runs

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, and announce it."""
        await super().startup(sockets)
        await self._announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal: drain, then stop at once, then exit without cleaning up."""
        self._signal_count += 1
        if self._signal_count > 2:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if self._drain_task is None:
            if self._waits_for_runs:
                log.info("stopping", hint="waiting for running runs; a second signal stops them at once")
            self._drain_task = self._loop.create_task(self._drain_and_exit())
        else:
            self._drain_task.cancel()

    async def _drain_and_exit(self) -> None:
        """Drain while still listening, so that clients get a proper error instead of a refused connection."""
        try:
            await self._drain(None)
        except asyncio.CancelledError:
            self.force_exit = True
        finally:
            self.should_exit = True


def uvicorn_config(app: App, settings: Settings, memory: ConnectionMemory) -> uvicorn.Config:
    """How uvicorn serves the app: everything that has to do with HTTP connections."""
    connection: Any = partial(Connection, memory.responses)  # uvicorn calls it as a class
    websocket_connection: Any = "none"
    if settings.blade or settings.openai:
        from dragoman.asgi.websocket_connection import ParseTurns, WebSocketConnection

        websocket_connection = partial(WebSocketConnection, memory.requests, ParseTurns())
    return uvicorn.Config(
        app,
        http=connection,
        ws=websocket_connection,
        ws_max_size=MAX_WEBSOCKET_MESSAGE_BYTES,
        ws_ping_interval=None,  # Socket.IO has a heartbeat of its own, and OpenAI's sockets have a time limit
        ws_per_message_deflate=False,
        interface="asgi3",
        lifespan="off",  # `_serve` runs it, so that its errors are reported on one line
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_keep_alive=KEEP_ALIVE_TIMEOUT_S,
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_TIMEOUT_S,
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not available on this platform
        return None
    return uvloop.new_event_loop


def _start_tracing(settings: Settings) -> Callable[[], Any]:
    if not settings.otel:
        return lambda: None
    try:
        end = configure_tracing(endpoint=settings.otel_endpoint, headers=settings.otel_headers, version=full_version())
    except ImportError as error:
        raise CannotStart(
            "OpenTelemetry is turned on, but not installed: pip install 'dragoman[otel]', or in a checkout"
            " make run EXTRAS=otel"
        ) from error
    tracing.enable()
    return end
