"""Several servers on one PostgreSQL, with NATS or without, as processes that may run on all cores.

PostgreSQL comes from a wheel, with `fsync` and all else as it is by default. What was streamed is compared with its
rows by plain SQL.
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
    """A context manager: PostgreSQL, perhaps NATS, and so many servers, from their start to their end."""

    def __init__(self, workspace: Workspace, count: int, *, with_nats: bool) -> None:
        self._workspace = workspace
        self._stack = ExitStack()
        self._cores = workspace.cores
        with process.on(self._cores):
            self.postgres = self._stack.enter_context(postgres.server(fsync=True, settings=_POSTGRES_DEFAULTS))
            self.nats = self._stack.enter_context(nats_server.server()) if with_nats else None
        self.database = self.postgres.url("postgres")
        self._folders = [workspace.folder("node") for _ in range(count)]
        for name in ("secrets.key", "links.key"):  # an installation has one of each
            key = os.urandom(32)
            for folder in self._folders:
                (folder / name).write_bytes(key)
        self.servers: list[process.Server] = []
        self.clients: list[Client] = []

    def __enter__(self) -> Self:
        try:
            made = [*_PROGRAM, "keys", "create", "--name", "bench", "--database", self.database]
            made += ["--data", str(self._folders[0])]
            self._key = subprocess.run(made, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
            for number in range(len(self._folders)):
                self.start(number)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for node in self.servers:
            node.stop(signal.SIGKILL)
        self._stack.close()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def start(self, number: int) -> Client:
        """Start a server, or start it again after its end."""
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
        node = process.start(command, cores=self._cores, log=folder / "server.log")
        client = Client(node, "/aap/v3", self._key)
        if number < len(self.servers):
            self.servers[number], self.clients[number] = node, client
        else:
            self.servers.append(node)
            self.clients.append(client)
        return client

    def cpu_s(self) -> dict[str, float]:
        """What each part has used of the processors so far, in seconds; the servers by their number."""
        used = {f"node {number}": node.cpu_s() for number, node in enumerate(self.servers)}
        used["PostgreSQL"] = process.cpu_s(self.postgres.process_id)
        if self.nats is not None:
            used["NATS"] = process.cpu_s(self.nats.process_id)
        return used

    async def verify(self, number: int, sessions: Sequence[Session]) -> str:
        """Compare what was streamed with the history as a server tells it, and with the rows of the database.

        Returns:
            Why the row does not count; empty when everything is equal.
        """
        try:
            await check.history(self.clients[number], sessions)
            with psycopg.connect(self.database) as connection:
                check.rows(connection.execute(_EVENTS, ([session.id for session in sessions],)), sessions)
        except check.Mismatch as difference:
            return str(difference)
        return ""

    def owners(self, connection: psycopg.Connection, sessions: Sequence[Session]) -> set[str]:
        """The names of the servers that write these sessions, as the database has them now."""
        return {str(node) for (node,) in connection.execute(_OWNERS, ([session.id for session in sessions],))}
