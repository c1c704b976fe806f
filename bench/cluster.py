"""Several servers on one PostgreSQL, with or without NATS, as processes that may run on all cores.

PostgreSQL comes from a wheel and runs with its default settings, including `fsync`. What was streamed is compared with
its rows by plain SQL.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import psycopg

from bench import check, process
from bench.load import Client, Session
from bench.subjects import BENCH_FOLDER, Workspace
from tests.buses import nats_server
from tests.stores import postgres

_PROGRAM = [sys.executable, "-m", "dragoman"]
_EVENTS = "SELECT session_id, seq, type, payload FROM events WHERE session_id = ANY (%s) ORDER BY session_id, seq"
_OWNERS = "SELECT DISTINCT node FROM sessions WHERE session_id = ANY (%s)"
_POSTGRES_DEFAULTS = {
    "shared_buffers": "128MB",
    "autovacuum": "on",
    "max_connections": "100",
}


class Cluster:
    """A context manager that runs PostgreSQL, optionally NATS, and `count` servers."""

    def __init__(self, workspace: Workspace, count: int, *, with_nats: bool) -> None:
        self._workspace = workspace
        self._stack = ExitStack()
        self._cores = workspace.cores
        with process.on(self._cores):
            self.postgres = self._stack.enter_context(postgres.server(fsync=True, settings=_POSTGRES_DEFAULTS))
            self.nats = self._stack.enter_context(nats_server.server()) if with_nats else None
        self.database = self.postgres.url("postgres")
        self._folders = [workspace.folder("server") for _ in range(count)]
        for name in ("secrets.key", "links.key"):  # the servers of one installation share these keys
            key = os.urandom(32)
            for folder in self._folders:
                (folder / name).write_bytes(key)
        self.servers: list[process.Server] = []
        self.clients: list[Client] = []

    def __enter__(self) -> Self:
        try:
            command = [*_PROGRAM, "keys", "create", "--name", "bench", "--database", self.database]
            command += ["--data", str(self._folders[0])]
            self._key = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
            for number in range(len(self._folders)):
                self.start(number)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for server in self.servers:
            server.stop(signal.SIGKILL)
        self._stack.close()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def start(self, number: int) -> Client:
        """Start a server, or restart it after it has stopped."""
        folder = self._folders[number]
        command = [
            *_PROGRAM,
            "serve",
            str(BENCH_FOLDER / "agents.py"),
            "--rehearsal",
            "--data",
            str(folder),
            "--port",
            "0",
        ]
        command += ["--database", self.database, "--max-runs-per-user", "0", "--max-streams-per-user", "0"]
        if self.nats is not None:
            command += ["--nats", self.nats.url]
        server = process.start(command, cores=self._cores, log=folder / "server.log")
        client = Client(server, "/aap/v3", self._key)
        if number < len(self.servers):
            self.servers[number], self.clients[number] = server, client
        else:
            self.servers.append(server)
            self.clients.append(client)
        return client

    def cpu_s(self) -> dict[str, float]:
        """CPU time of each process so far, in seconds. Servers are numbered."""
        used = {f"server {number}": server.cpu_s() for number, server in enumerate(self.servers)}
        used["PostgreSQL"] = process.cpu_s(self.postgres.process_id)
        if self.nats is not None:
            used["NATS"] = process.cpu_s(self.nats.process_id)
        return used

    async def verify(self, number: int, sessions: Sequence[Session]) -> str:
        """Compare what was streamed with the history that a server returns, and with the rows of the database.

        Returns:
            Why the figures are invalid; empty if there is no difference.
        """
        try:
            await check.history(self.clients[number], sessions)
            with psycopg.connect(self.database) as connection:
                check.rows(connection.execute(_EVENTS, ([session.id for session in sessions],)), sessions)
        except check.Mismatch as mismatch:
            return str(mismatch)
        return ""

    def owners(self, connection: psycopg.Connection, sessions: Sequence[Session]) -> set[str]:
        """The names of the servers that currently own these sessions, according to the database."""
        return {str(node) for (node,) in connection.execute(_OWNERS, ([session.id for session in sessions],))}
