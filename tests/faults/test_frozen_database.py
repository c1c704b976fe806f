"""PostgreSQL that stands still with all connections open, for longer than a request waits. Case 44.

Its processes are really suspended (SIGSTOP), as when its machine is.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from psycopg import Connection

from dragoman.core.ids import SessionId
from dragoman.core.refusals import OutcomeUnknown, StoreUnavailable
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.log import PostgresLog
from tests.conversations import script
from tests.engine.log_checker import check_session
from tests.extent import extent
from tests.protocols.a2a.client import message
from tests.protocols.aap.client import AapClient
from tests.protocols.agentscope.client import request_body
from tests.protocols.agui.endpoint import an_input
from tests.protocols.agui.run_service import new_thread, run_input
from tests.protocols.aisdk.client import user as page_message
from tests.protocols.every_protocol import for_every_protocol
from tests.protocols.mcp.client import META, NEW
from tests.requirements import requirement
from tests.servers import AppServer, ServerProcess, running_server, server_process
from tests.stores.contract import DEADLINE_S, SessionWriter, commit_accepted, new_session_in, started, stopped
from tests.stores.postgres import Server
from tests.stores.postgres import server as postgres_server

Json = Any
REASON = "the database does not answer"
FREEZES = extent(20, 2)


async def until_it_answers(database: Database) -> None:
    """Wait until the store takes work again."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await database.probe()
            except StoreUnavailable:
                await asyncio.sleep(0.05)
            else:
                return


# --- the store --------------------------------------------------------------------------------------------------------


@requirement("faults:44:frozen")
async def test_what_a_frozen_database_refused_never_takes_effect() -> None:
    with postgres_server() as postgres, closing(Database(postgres.url("postgres"))) as database:
        store = PostgresLog(database)
        writing = await new_session_in(store)
        before = [*writing.log]
        append = writing.append(started(1), stopped(1))
        with postgres.suspended():
            asked = (store.commit([append]), store.delete(writing.session_id), store.load(writing.session_id))
            for outcome in await asyncio.gather(*asked, return_exceptions=True):
                assert (type(outcome), str(outcome)) == (StoreUnavailable, REASON)
            assert not database.watchdog.is_answering
            with pytest.raises(StoreUnavailable, match=REASON):  # at once
                await store.load(writing.session_id)
        await until_it_answers(database)
        assert [*await store.events(writing.session_id, 0, 100)] == before
        assert await commit_accepted(store, append) == [True]
        assert [*await store.events(writing.session_id, 0, 100)] == writing.log


@requirement("faults:44:frozen")
@pytest.mark.parametrize("hosts", ["{frozen},{missing}", "{missing},{frozen}"])
async def test_a_frozen_database_is_noticed_whatever_the_other_hosts_of_its_address_answer(
    hosts: str, tmp_path: Path
) -> None:
    with postgres_server() as postgres:
        url = postgres.url("postgres")
        folder = url.partition("?host=")[2]
        url = url.replace(folder, hosts.format(frozen=folder, missing=tmp_path / "missing"))
        with closing(Database(url)) as database:
            store = PostgresLog(database)
            writing = await new_session_in(store)
            append = writing.append(started(1), stopped(1))
            with postgres.suspended(), pytest.raises(StoreUnavailable, match=REASON):
                async with asyncio.timeout(DEADLINE_S):
                    await store.commit([append])
            await until_it_answers(database)
            assert await commit_accepted(store, append) == [True]


class FrozenAtCommit:
    """A connection whose server is suspended in the moment in which the commit is sent."""

    def __init__(self, connection: Connection, postgres: Server) -> None:
        self._connection = connection
        self._suspended = postgres.suspended()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: Any, **options: Any) -> Any:
        if statement == "COMMIT":
            self._suspended.__enter__()
        return cast("Any", self._connection).execute(statement, *values, **options)

    def resume(self) -> None:
        self._suspended.__exit__(None, None, None)


@requirement("faults:44:unknown")
async def test_a_commit_that_was_sent_without_an_answer_is_reported_as_unknown_and_settled_before_the_next() -> None:
    with postgres_server() as postgres, closing(Database(postgres.url("postgres"))) as database:
        store = PostgresLog(database)
        writing = await new_session_in(store)
        before = [*writing.log]
        assert database.writer.connection is not None
        frozen = FrozenAtCommit(database.writer.connection, postgres)
        database.writer.connection = cast("Connection", frozen)
        try:
            with pytest.raises(OutcomeUnknown, match="so it may have been stored"):
                await commit_accepted(store, writing.append(started(1), stopped(1)))
        finally:
            frozen.resume()
        await until_it_answers(database)
        found = [*await store.events(writing.session_id, 0, 100)]
        assert found in (before, writing.log), "all of it or nothing"
        other = SessionWriter(2, epoch=await store.claim_epoch())
        assert await commit_accepted(store, other.new()) == [True]
        assert [*await store.events(writing.session_id, 0, 100)] == found, "and that stays so"


# --- the protocols ----------------------------------------------------------------------------------------------------

MCP_CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "rehearsal",
        "arguments": {"message": "hello"},
        "_meta": {f"{META}protocolVersion": NEW, f"{META}clientCapabilities": {}},
    },
}
REQUESTS: Mapping[str, tuple[str, Json, dict[str, str]]] = {
    "aap": ("/aap/v3/sessions", {"agent": {"name": "rehearsal"}}, {}),
    "agui": ("/ag-ui/rehearsal", an_input("hello"), {}),
    "run_service": ("/api/v1/agent/runs", run_input(new_thread()), {}),
    "agentscope": ("/process", request_body("hello"), {}),
    "openai": ("/v1/responses", {"model": "rehearsal", "input": "hello"}, {}),
    "ai_sdk": (
        "/ai-sdk/rehearsal",
        {"id": "chat", "messages": [page_message("hello", "u1")]},
        {"accept": "application/json"},
    ),
    "blade": ("/api/sessions", {}, {}),
    "mcp": (
        "/mcp",
        MCP_CALL,
        {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": NEW,
            "mcp-method": "tools/call",
            "mcp-name": "rehearsal",
        },
    ),
    "a2a": ("/a2a/rehearsal/message:send", {"message": message("hello")}, {"a2a-version": "1.0"}),
}
"""What creates a session, by protocol: path, body and headers."""
REFUSALS = for_every_protocol(
    {
        "aap": {"error": REASON, "code": "unavailable"},
        "agui": {"error": REASON, "code": "unavailable"},
        "run_service": {
            "type": "about:blank",
            "title": "Service Unavailable",
            "status": 503,
            "detail": REASON,
            "code": "AGENT_UNAVAILABLE",
        },
        "agentscope": {"error": {"code": "UNAVAILABLE", "message": REASON}},
        "openai": {"error": {"message": REASON, "type": "server_error", "param": "", "code": "unavailable"}},
        "ai_sdk": {"error": REASON, "code": "unavailable"},
        "blade": {"detail": REASON},
        "mcp": {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": REASON}},
        "a2a": {
            "error": {
                "code": 503,
                "status": "UNAVAILABLE",
                "message": REASON,
                "details": [
                    {
                        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                        "reason": "INTERNAL_ERROR",
                        "domain": "a2a-protocol.org",
                        "metadata": {},
                    }
                ],
            }
        },
    }
)


async def post(server: AppServer, protocol: str) -> tuple[str, int, Json]:
    """Send a protocol's request; returns its status and its body."""
    path, body, more = REQUESTS[protocol]
    headers = {"content-type": "application/json", "authorization": f"Bearer {server.key('alice')}", **more}
    stream = await server.connection.open("POST", path, headers=list(headers.items()), body=json.dumps(body).encode())
    return protocol, stream.status, json.loads(await stream.read())


@requirement("faults:44:frozen")
async def test_every_protocol_refuses_in_its_own_shape_while_the_database_is_frozen(tmp_path: Path) -> None:
    with postgres_server() as postgres:
        async with running_server(tmp_path, database=postgres.url("postgres")) as server:
            await server.aap_client("alice").create()
            with postgres.suspended():
                waited = await asyncio.gather(*(post(server, protocol) for protocol in REFUSALS))
                assert waited == [(protocol, 503, body) for protocol, body in REFUSALS.items()]
                ready = await server.connection.open("GET", "/readyz")
                assert (ready.status, json.loads(await ready.read())) == (
                    503,
                    {"status": "store unavailable", "reason": REASON},
                )


# --- the program ------------------------------------------------------------------------------------------------------


class Sender:
    """Sends numbered messages into a session, one after the other, and records what became of each."""

    def __init__(self, aap: AapClient, session: str) -> None:
        self._aap = aap
        self.session = session
        self.accepted: list[str] = []
        self.refused: list[str] = []
        self.unknown: list[str] = []

    async def send_until(self, stopping: asyncio.Event) -> None:
        for number in count(1):
            if stopping.is_set():
                return
            await self._send(f"message {number} of {self.session}")

    async def _send(self, text: str) -> None:
        body = {"messages": [{"role": "user", "content": text}], "stream": "delta"}
        async with asyncio.timeout(DEADLINE_S):
            stream = await self._aap.open("POST", f"/sessions/{self.session}/turns", body)
            raw = await stream.read()
        if stream.status == 200:
            self.accepted.append(text)
        else:
            error = json.loads(raw)["error"]
            (self.unknown if "may have been stored" in error else self.refused).append(text)
            await asyncio.sleep(0.05)  # a client that does not wait at all would only fill the log


async def at_rest(log: PostgresLog) -> None:
    """Wait until no run is active."""
    async with asyncio.timeout(DEADLINE_S):
        while await log.unfinished_sessions():  # noqa: ASYNC110  # only the database shows what the server does
            await asyncio.sleep(0.05)


@requirement("faults:44:frozen", "faults:44:unknown")
@pytest.mark.slow
async def test_after_every_freeze_the_program_continues_with_all_that_it_accepted_and_nothing_that_it_refused(
    tmp_path: Path,
) -> None:
    chance = Random(11)
    with postgres_server() as postgres:
        url = postgres.url("postgres")
        async with server_process(tmp_path, "--database", url) as running:
            aap = AapClient(running.connection, running.key("alice"))
            refused = 0
            with closing(Database(url, access="unlocked")) as database:
                log = PostgresLog(database)
                for _ in range(FREEZES):
                    senders = [Sender(aap, (await aap.create()).id) for _ in range(4)]
                    stopping = asyncio.Event()
                    sending = [asyncio.create_task(each.send_until(stopping)) for each in senders]
                    await asyncio.sleep(0.3 + chance.random())
                    with postgres.suspended():
                        async with asyncio.timeout(DEADLINE_S):
                            while not all(each.refused or each.unknown for each in senders):  # noqa: ASYNC110  # as above
                                await asyncio.sleep(0.05)
                    heard = [len(each.accepted) for each in senders]
                    async with asyncio.timeout(DEADLINE_S):
                        while not all(len(each.accepted) > n for each, n in zip(senders, heard, strict=True)):  # noqa: ASYNC110
                            await asyncio.sleep(0.05)
                    stopping.set()
                    await asyncio.gather(*sending)
                    await at_rest(log)
                    for each in senders:
                        history = (await aap.get(f"/sessions/{each.session}/history?type=full")).json["history"]["full"]
                        stored = [entry["content"] for entry in history if entry["role"] == "user"]
                        texts = [part if isinstance(part, str) else part[0]["text"] for part in stored]
                        assert len(texts) == len(set(texts)), "once"
                        assert [text for text in texts if text not in each.unknown] == each.accepted
                        assert not set(texts) & set(each.refused)
                        await check_session(log, SessionId(each.session), {})
                        refused += len(each.refused)
            assert refused, "the test is worth its name"


@requirement("faults:44:frozen")
@pytest.mark.slow
async def test_the_program_can_be_stopped_while_its_database_is_frozen(tmp_path: Path) -> None:
    with postgres_server() as postgres:
        running = ServerProcess(tmp_path, "--database", postgres.url("postgres"), "--drain-s", "1")
        await running.start()
        aap = AapClient(running.connection, running.key("alice"))
        session = await aap.create()
        turn = await session.open(script({"say": "begun"}, {"wait_ms": 1000}, {"say": ", and done"}))
        await turn.until("text_delta")
        with postgres.suspended():
            await running.stop()
        await running.start()
        session = session.as_client(AapClient(running.connection, running.key("alice")))
        async with asyncio.timeout(DEADLINE_S):
            while not (await session.history())[-1]["content"][-1]["text"].endswith(", and done"):  # noqa: ASYNC110  # nothing signals it
                await asyncio.sleep(0.05)
        await running.stop()
