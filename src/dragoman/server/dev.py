"""`dragoman dev`: serves agents, and reloads them when their files are saved.

    this process: socket, watcher ──spawns──► server: imports the files, opens the stores, serves on the socket

The next server is there in advance, with everything imported but the agents' files. It imports those while the last one
still serves, which therefore stays if they have an error. The socket is never closed: requests wait while the servers
change places, which takes some tenths of a second. Runs are parked and continue in the next server, as at every stop of
a server.
"""

import asyncio
import multiprocessing
import os
import pkgutil
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import msgspec
import structlog
from watchfiles import PythonFilter, watch

from dragoman import protocols
from dragoman.server.app import Application
from dragoman.server.bootstrap_key import announce_ready
from dragoman.server.loading import is_remote
from dragoman.server.logging import configure_logging
from dragoman.server.runner import CannotStart, bind_socket, print_first_steps, serve_socket, url_of
from dragoman.settings import Settings, SettingsError
from dragoman.settings_loading import LoadedSettings

CHECK_INTERVAL_MS = 50
"""How often the watcher is interrupted, to see what the servers report and whether they still live."""
STOP_TIMEOUT_S = 10.0
"""How long a server may take to stop."""

DEVELOPMENT = {
    "first_key": True,
    "log_format": "console",
    "log_level": "debug",
    "drain_s": 0.0,
    "models_required": False,
}
"""Settings that `dragoman dev` has unless they are given. Only for clients on this machine it also shows errors."""

log = structlog.get_logger(__name__)


class Report(msgspec.Struct, frozen=True):
    """What a server reports to the watching process."""

    state: Literal["loaded", "ready", "failed"]
    text: str = ""
    """Of `ready` the console's address, of `failed` the reason."""
    files: frozenset[str] = frozenset()
    """Of `loaded` the files of all imported modules."""


def development_settings(loaded: LoadedSettings) -> Settings:
    """The settings in force, where they are not given with the defaults for development."""
    settings = loaded.settings
    changes = {**DEVELOPMENT, "agent_error_details": True} if settings.is_loopback else DEVELOPMENT
    given = {name for name, source in loaded.sources.items() if source != "default"}
    return msgspec.structs.replace(settings, **{name: value for name, value in changes.items() if name not in given})


def run(settings: Settings, environ: Mapping[str, str], *, opens_console: bool) -> None:
    """Serve until Ctrl-C or a signal.

    Args:
        settings: from `development_settings`, with at least one file in `agents`.
        environ: where models find their providers' keys.
        opens_console: open the console in the browser when the first server is ready.

    Raises:
        CannotStart: a file does not exist, or the address is not available.
    """
    configure_logging(settings.log_format, settings.log_level)
    files = [_path_of(each) for each in settings.agents if not is_remote(each)]
    if not files:
        raise CannotStart("there is no file to watch: dragoman serve serves remote agents alone")
    listening = bind_socket(settings.host, settings.port, settings.stalled_reader_s)
    stop_requested = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: stop_requested.set())  # an exception could end the start of a server halfway
    servers = _Servers(listening, settings, environ)
    console_file = ConsoleFile(settings.folder)
    with listening:
        try:
            has_begun = False
            for changes in watch(  # from before the first import, so that no change is missed
                *{file.parent for file in files},
                watch_filter=PythonFilter(ignore_paths=[settings.folder.resolve()]),
                stop_event=stop_requested,
                yield_on_timeout=True,
                rust_timeout=CHECK_INTERVAL_MS,
            ):
                console_url = servers.check()
                if console_url and opens_console and settings.console:
                    _open_browser(console_url, console_file)
                    opens_console = False
                changed = servers.used({path for _, path in changes})
                if changed:
                    log.info("files changed", files=sorted(_relative(Path(path)) for path in changed))
                if changed or not has_begun:
                    servers.replace()
                has_begun = True
        finally:
            servers.stop()
            console_file.delete()
    log.info("stopped")


class _Servers:
    """The server that serves, the one that is being started in its place, and one in advance.

    Nothing here waits for an import, which may never end: a server that is being started can be replaced too.
    """

    def __init__(self, listening: socket.socket, settings: Settings, environ: Mapping[str, str]) -> None:
        self._arguments = (listening, settings, dict(environ))
        self._current: _Server | None = None
        self._starting: _Server | None = None
        """The server whose report is awaited. It is the current one as soon as it has imported its files."""
        self._next: _Server | None = None
        self._is_first = True
        self._began_at = 0.0
        self._files: frozenset[str] | None = None
        """The files that the newest version consists of; None if it is not imported yet, or cannot be."""

    def used(self, paths: set[str]) -> set[str]:
        """Those of some files that matter: the imported ones, or all as long as these are not known."""
        return paths if self._files is None else paths & self._files

    def replace(self) -> None:
        """Begin to start a server with the files as they are now, in place of the present one."""
        if self._starting is not None:
            self._starting.stop()
            if self._starting is self._current:
                self._current = None
        if self._next is not None and not self._next.is_alive:
            self._next.stop()
            self._next = None
        self._began_at = time.monotonic()
        self._starting, self._next = self._next or _Server(*self._arguments), None
        self._files = None
        self._starting.proceed()

    def check(self) -> str | None:
        """Go on with the start if the server has reported, and start another if the one that served has died.

        Returns:
            The console's address when a new server is ready, else None.
        """
        if self._current is not None and self._current is not self._starting and not self._current.is_alive:
            self._current.stop()
            log.error("the server died, restarting it", exit_code=self._current.exit_code)
            self._current = None
            if self._starting is None:
                self.replace()
        if self._starting is None or (report := self._starting.report()) is None:
            return None
        if report.state == "loaded":
            self._files = report.files
            if self._current is not None:
                self._current.stop()
            self._current = self._starting
            self._current.proceed(is_first=self._is_first)
            return None
        if report.state == "failed":
            self._files = None
            self._starting.stop()
            if self._starting is self._current:
                self._current = None
            _print_failure(report.text, is_serving=self._current is not None)
        elif not self._is_first:
            log.info("serving the new files", seconds=round(time.monotonic() - self._began_at, 2))
        self._starting, self._next = None, _Server(*self._arguments)
        self._is_first = self._is_first and report.state == "failed"
        return report.text if report.state == "ready" else None

    def stop(self) -> None:
        """Stop all servers."""
        for server in {self._next, self._starting, self._current}:
            if server is not None:
                server.stop()


class _Server:
    """A server process."""

    def __init__(self, listening: socket.socket, settings: Settings, environ: dict[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_load_and_serve, args=(theirs, listening, settings, environ), name="dragoman-dev-server"
        )
        # Until the new process has left the terminal's process group, Ctrl-C reaches it too, during its imports. So it
        # inherits a blocked signal. The start of the tracker, which Python 3.11 does between, would unblock it.
        resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        theirs.close()

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        """The process's exit code."""
        return self._process.exitcode

    def report(self) -> Report | None:
        """The next report; None if there is none yet."""
        try:
            if not self._connection.poll():
                return None
            report = self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join(STOP_TIMEOUT_S)
            return Report("failed", f"the server exited with {self._process.exitcode}")
        assert isinstance(report, Report), "a server sends nothing else"
        return report

    def proceed(self, *, is_first: bool = False) -> None:
        """Let the server import its files, or serve if it has.

        Args:
            is_first: whether it is the first one, which says where it serves.
        """
        with suppress(ConnectionError):  # it has died, which `report` notices
            self._connection.send(is_first)

    def stop(self) -> None:
        """Stop the server and wait for its end."""
        self._process.terminate()
        self._process.join(STOP_TIMEOUT_S)
        if self._process.is_alive():
            log.warning("the server did not stop in time, killing it")
            self._process.kill()
            self._process.join()
        self._connection.close()


def _load_and_serve(
    connection: Connection, listening: socket.socket, settings: Settings, environ: dict[str, str]
) -> None:
    """Import the agents' files, and serve, each when the other process says so. Runs in a process of its own."""
    os.setpgrp()  # Ctrl-C is for the watching process, which stops this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # also one that came before
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    sys.dont_write_bytecode = True  # a file saved twice in a second would be taken from the cache
    configure_logging(settings.log_format, settings.log_level)
    from dragoman.agents import serving
    from dragoman.agents.parameters import DeclarationError
    from dragoman.server.loading import LoadError, load_all

    for package in pkgutil.walk_packages(protocols.__path__, f"{protocols.__name__}."):
        import_module(package.name)
    is_first = False

    async def announce(app: Application) -> None:
        loop = asyncio.get_running_loop()

        def on_parent_exit() -> None:
            loop.remove_reader(connection.fileno())
            signal.raise_signal(signal.SIGTERM)

        loop.add_reader(connection.fileno(), on_parent_exit)
        url = url_of(settings.host, listening.getsockname()[1])
        console_url = f"{url}/"
        if is_first:
            announce_ready(settings.folder, url)
            log.info(
                "serving", url=url, agents=list(app.engine.agents), hint="saved files are served at once; Ctrl-C stops"
            )
            if settings.first_key:
                console_url = await print_first_steps(app, url)
        connection.send(Report("ready", console_url))

    try:
        connection.recv()
        serving.check(load_all(settings.agents))
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        connection.send(Report("loaded", files=frozenset(str(Path(file).resolve()) for file in files if file)))
        is_first = connection.recv()
        serve_socket(listening, settings, environ, announce)
    except (LoadError, DeclarationError, CannotStart, SettingsError) as error:
        trace = error.__cause__ if isinstance(error, LoadError) else None
        if trace is not None and not isinstance(trace, SyntaxError):
            log.error("a file cannot be imported", exc_info=trace)
        connection.send(Report("failed", str(error)))
    except EOFError:  # the watching process has exited
        pass


def _path_of(location: str) -> Path:
    """The file of `FILE.py` or `FILE.py:NAME`."""
    path = Path(location).expanduser()
    if not path.exists():
        path = Path(location.rpartition(":")[0] or location).expanduser()
    if not path.is_file():
        raise CannotStart(f"{path}: no such file. `dragoman init {path.name}` writes a first agent")
    return path.resolve()


def _relative(path: Path) -> str:
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _print_failure(reason: str, *, is_serving: bool) -> None:
    log.error(reason)
    state = "the last version is still served" if is_serving else "nothing is served"
    log.error(state, hint="fix the error and save the file")


class ConsoleFile:
    """A page that leads a browser to the console.

    The console's address contains the key, and everybody on the machine can see the arguments of programs. So the
    browser gets the path of this file, which only its owner can read.

    Args:
        folder: where it is written.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "open-console.html"

    def write(self, url: str) -> Path:
        """Write it again: a file that is there may be readable for others."""
        self.delete()
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={url}">')
        return self._path.resolve()

    def delete(self) -> None:
        """Delete it, if it is there."""
        self._path.unlink(missing_ok=True)


def _open_browser(url: str, console_file: ConsoleFile) -> None:
    """Open the console in the browser of this desktop, if there is one."""
    has_desktop = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if has_desktop and sys.stderr.isatty():
        webbrowser.open(console_file.write(url).as_uri())
