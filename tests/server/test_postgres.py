"""A server on PostgreSQL: works as on SQLite, and is ready only while the database is available."""

import asyncio
import base64
import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from dragoman.cli.keys import AdminRequestError, handle_in_database
from dragoman.server.admin_socket import CreateKey, ListKeys, RevokeKey
from dragoman.server.app import build
from dragoman.settings import SettingsError
from dragoman.stores.postgres import database as postgres_database
from dragoman.stores.postgres.database import DatabaseInUse
from dragoman.stores.sqlite.database import Database
from tests.conversations import CONVERSATIONS, Conversation, play
from tests.conversations import Server as Served
from tests.extent import sampled
from tests.protocols.aap.agents import AGENTS
from tests.protocols.aap.client import AapClient
from tests.protocols.aap.driver import AapDriver
from tests.requirements import requirement
from tests.servers import COMMAND, AppServer, running_server, server_process
from tests.stores.postgres import Server
from tests.stores.postgres import server as postgres_server

DEADLINE_S = 60.0
EXPRESSIBLE = [each for each in CONVERSATIONS if each.needs <= AapDriver.features]


def name_of(value: object) -> str:
    return value.name.replace(" ", "-") if isinstance(value, Conversation) else str(value)


def aap_client_of(server: Served) -> AapClient:
    return AapClient(server.connection, server.key("alice"))


@pytest.fixture
async def app_server(tmp_path: Path, postgres_url: str) -> AsyncIterator[AppServer]:
    async with running_server(tmp_path, agents=AGENTS, database=postgres_url) as server:
        yield server


async def status(server: AppServer, path: str) -> tuple[int, str]:
    answer = await server.connection.open("GET", path)
    return answer.status, (await answer.read()).decode()


# --- conversations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("conversation", sampled([each for each in EXPRESSIBLE if not each.crashes()], 2), ids=name_of)
async def test_a_conversation_survives_a_restart_before_every_step(
    app_server: AppServer, conversation: Conversation
) -> None:
    await play(conversation, AapDriver("delta", aap_client_of), app_server, restart_before=lambda index: index > 0)


@pytest.mark.parametrize("conversation", [each for each in EXPRESSIBLE if each.crashes()], ids=name_of)
async def test_a_conversation_survives_a_killed_server(
    tmp_path: Path, postgres_url: str, conversation: Conversation
) -> None:
    async with server_process(tmp_path, "--database", postgres_url) as server:
        await play(conversation, AapDriver("delta", aap_client_of), server)


# --- its start --------------------------------------------------------------------------------------------------------


async def test_a_second_server_on_the_database_serves_the_same_sessions(app_server: AppServer, tmp_path: Path) -> None:
    async with running_server(tmp_path / "other", agents=AGENTS, database=app_server.settings.database) as other:
        session = await app_server.aap_client("alice").create()
        on_other = session.as_client(AapClient(other.connection, app_server.key("alice")))
        assert (await session.run("hello")).stop == "end_turn"
        assert (await on_other.run("hello")).stop == "end_turn"
        assert (await session.run("hello")).stop == "end_turn"
        assert await session.history() == await on_other.history()
        assert len(await on_other.history()) == 6
        assert (await on_other.delete()).status == 204
        assert (await session.client.get(session.path)).status == 404


@pytest.mark.parametrize("name", ["secrets.key", "links.key"])
@pytest.mark.parametrize("is_missing", [True, False])
async def test_a_server_with_another_key_than_the_others_does_not_start(
    app_server: AppServer, tmp_path: Path, name: str, is_missing: bool
) -> None:
    other = AppServer(tmp_path / "other", agents=AGENTS, database=app_server.settings.database)
    await other.prepare()
    right = (other.folder / name).read_bytes()
    (other.folder / name).unlink()
    if not is_missing:
        (other.folder / name).write_bytes(b"another!" * 4)
    wrong = "is missing" if is_missing else "has the fingerprint"
    with pytest.raises(SettingsError, match=f"{name} {wrong}.*copy secrets.key and links.key from a backup"):
        async with build(other.settings, agents=AGENTS).running():
            pytest.fail("it started")
    (other.folder / name).write_bytes(right)
    async with build(other.settings, agents=AGENTS).running():
        pass


async def test_exclusive_access_to_the_database_is_refused_while_a_server_runs(app_server: AppServer) -> None:
    assert app_server.settings.database is not None
    with pytest.raises(DatabaseInUse, match="another program uses this database alone"):
        await asyncio.to_thread(postgres_database.Database, app_server.settings.database)


def test_an_unreachable_database_is_reported_on_one_line_without_its_password(tmp_path: Path) -> None:
    url = "postgresql://ann:canary@127.0.0.1:1/agents"
    command = [*COMMAND, "serve", "--rehearsal", "--port", "0", "--data", str(tmp_path), "--database", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("dragoman: the database postgresql://ann@127.0.0.1:1/agents cannot be used: ")
    assert "canary" not in done.stderr
    assert "Traceback" not in done.stderr


def test_the_driver_is_not_imported_without_a_database() -> None:
    code = (
        "import sys, dragoman.server.runner, dragoman.cli.main, dragoman.cli.keys; sys.exit('psycopg' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=DEADLINE_S, check=False).returncode == 0


def test_a_missing_driver_is_reported_with_how_to_install_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['psycopg'] = None; from dragoman.cli.main import main; main()"
    command = [sys.executable, "-c", code, "serve", "--data", str(tmp_path), "--database", "postgresql://x/y"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        (
            "dragoman: a PostgreSQL database is configured, but its driver is not installed: pip install"
            " 'dragoman[postgres]', or in a checkout make run EXTRAS=postgres\n"
        ),
    )


def test_migrate_updates_the_schema_without_serving(postgres: Server, tmp_path: Path) -> None:
    url = postgres.new("template0")
    Database(tmp_path).close()
    outputs = []
    for flags in (["--database", url], ["--database", url], ["--data", str(tmp_path)]):
        done = subprocess.run([*COMMAND, "migrate", *flags], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        outputs.append(done.stdout)
    postgres.drop(url)
    newest = max(postgres_database.migrations())
    assert outputs[:2] == [f"schema {newest}, was 0\n", f"schema {newest}\n"]
    assert re.fullmatch(r"schema \d+\n", outputs[2])


# --- keys and profiles ------------------------------------------------------------------------------------------------


async def test_keys_created_and_revoked_on_the_command_line_reach_a_running_server(app_server: AppServer) -> None:
    url = app_server.settings.database
    assert url is not None
    created = await asyncio.to_thread(handle_in_database, url, CreateKey(name="new", user="alice", scopes=["use"]))
    client = AapClient(app_server.connection, created.secret)
    async with asyncio.timeout(DEADLINE_S):
        while (await client.get("/meta")).status == 401:  # noqa: ASYNC110  # nothing signals that the server has seen the key
            await asyncio.sleep(0.05)
    session = await client.create()
    watch = await session.watch()
    revoked = await asyncio.to_thread(handle_in_database, url, RevokeKey(which="new"))
    assert [key.name for key in revoked.keys] == ["new"]
    await watch.read_to_end()  # the stream ends
    assert (await client.get("/meta")).status == 401
    names = [key.name for key in (await asyncio.to_thread(handle_in_database, url, ListKeys())).keys]
    assert names == ["alice", "alice_phone", "alice_reads", "bob", "admin"]


def test_a_request_to_an_unreachable_database_is_refused() -> None:
    with pytest.raises(AdminRequestError, match="cannot be used"):
        handle_in_database("postgresql://ann:canary@127.0.0.1:1/agents", ListKeys())


# --- its readiness ----------------------------------------------------------------------------------------------------


@requirement("faults:44:away")
async def test_a_server_whose_database_is_gone_is_not_ready_until_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database, "RETRY_TIMEOUT_S", 0.2)
    with postgres_server() as postgres:
        async with running_server(tmp_path, database=postgres.url("postgres")) as server:
            session = await server.aap_client("alice").create()
            assert (await status(server, "/readyz"))[0] == 200
            await asyncio.to_thread(postgres.stop)
            code, body = await status(server, "/readyz")
            assert (code, json.loads(body)) == (
                503,
                {"status": "store unavailable", "reason": "the database cannot be used now"},
            )
            refused = await server.aap_client("alice").open("POST", "/sessions", {"agent": {"name": "rehearsal"}})
            assert (refused.status, json.loads(await refused.read())["code"]) == (503, "unavailable")
            await asyncio.to_thread(postgres.start)
            assert (await status(server, "/readyz"))[0] == 200
            assert (await session.run("hello")).stop == "end_turn"


@requirement("faults:44:away")
async def test_a_run_that_an_outage_interrupted_resumes_when_the_database_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database, "RETRY_TIMEOUT_S", 0.1)
    with postgres_server() as postgres:
        async with running_server(tmp_path, database=postgres.url("postgres")) as server:
            session = await server.aap_client("alice").create()
            script = {"script": [{"say": "before "}, {"wait_ms": 600}, {"say": "after"}]}
            turn = await session.open(json.dumps(script))
            await turn.until("text_delta")
            await asyncio.to_thread(postgres.stop)
            await turn.read_to_end()  # the stream ends when the run cannot write its next delta
            await asyncio.to_thread(postgres.start)
            watch = await session.watch()
            await watch.until("turn_stop")
            texts = [block["text"] for block in (await session.history())[-1]["content"]]
            assert texts == ["before ", "after"]


async def test_large_attachments_are_stored_in_the_database_and_deleted_with_their_session(
    app_server: AppServer, postgres_url: str
) -> None:
    def stored() -> int:
        with psycopg.connect(postgres_url) as connection:
            return len(connection.execute("SELECT FROM blobs").fetchall())

    image = {"type": "image", "url": "data:image/png;base64," + base64.b64encode(IMAGE_BYTES).decode()}
    session = await app_server.aap_client("alice").create("pixels")
    await session.run([{"role": "user", "content": [image]}])
    assert await asyncio.to_thread(stored) == 1
    assert not (app_server.folder / "blobs").exists()
    assert (await session.client.request("DELETE", session.path)).status == 204
    assert await asyncio.to_thread(stored) == 0


IMAGE_BYTES = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
) + bytes(50_000)


# --- several servers --------------------------------------------------------------------------------------------------


async def test_requests_of_a_key_are_counted_on_all_servers_together(tmp_path: Path, postgres_url: str) -> None:
    limit = {"database": postgres_url, "requests_per_minute": 600}
    async with running_server(tmp_path / "one", **limit) as one:
        shutil.copytree(tmp_path / "one", tmp_path / "other", ignore=shutil.ignore_patterns("*.sock"))
        async with running_server(tmp_path / "other", **limit) as other:
            key = one.key("alice")
            here, there = AapClient(one.connection, key), AapClient(other.connection, key)
            async with asyncio.timeout(DEADLINE_S):
                asked = 1
                while await left_of(there) >= 550 - asked:  # its own requests leave 600 - asked, or more
                    asked += 1
                    await here.get("/sessions")


async def left_of(client: AapClient) -> int:
    """How many requests a key may send, after one more."""
    shown = (await client.get("/sessions")).headers["ratelimit"]
    return int(shown.partition(";r=")[2].partition(";")[0])
