"""The whole application: its own endpoints, start, readiness, limits, and secrets."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from dragoman import Agent
from dragoman.server import app as server_app
from dragoman.server import logging
from dragoman.server.app import Application
from dragoman.server.version import full_version
from dragoman.settings import Settings, SettingsError, all_settings
from dragoman.settings_loading import MAX_NUMBER
from dragoman.stores.sqlite.database import FolderInUse
from tests.agents.agent_harness import ScriptedModel
from tests.asgi_client import Exchange
from tests.conversations import script
from tests.protocols.aap.client import AapClient
from tests.protocols.openai.client import OpenAiClient
from tests.requirements import requirement
from tests.servers import AppServer, running_server

CANARY = "canary-9d3b0c"


@pytest.fixture
async def app_server(tmp_path: Path) -> AsyncIterator[AppServer]:
    async with running_server(tmp_path) as server:
        yield server


def application(server: AppServer) -> Application:
    app = server.connection.app
    assert isinstance(app, Application)
    return app


async def get(
    server: AppServer, path: str, key: str | None = None, method: str = "GET"
) -> tuple[int, dict[str, str], bytes]:
    headers = [] if key is None else [("authorization", f"Bearer {server.key(key)}")]
    answer = await server.connection.request(method, path, headers=headers)
    return answer.status, answer.headers, answer.body


# --- its own endpoints ------------------------------------------------------------------------------------------------


async def test_it_reports_that_it_is_alive_and_ready(app_server: AppServer) -> None:
    for path, expected in (("/healthz", "ok"), ("/readyz", "ready")):
        status, headers, body = await get(app_server, path)
        assert (status, headers["content-type"], json.loads(body)) == (200, "application/json", {"status": expected})


async def test_the_api_reference_is_public_for_programs_and_people(app_server: AppServer) -> None:
    status, _, body = await get(app_server, "/openapi.json")
    document = json.loads(body)
    assert (status, document["openapi"], document["info"]["title"]) == (200, "3.1.0", "Dragoman")
    assert {"/healthz", "/readyz", "/metrics", "/aap/v3/sessions/{session}/turns"} <= set(document["paths"])
    assert [name for name, schema in document["components"]["schemas"].items() if not schema["description"]] == []
    status, headers, body = await get(app_server, "/docs")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in headers["content-security-policy"]
    assert all(path.encode() in body for path in document["paths"])
    status, headers, _ = await get(app_server, "/docs/")
    assert (status, headers["location"]) == (308, "../docs")


async def test_an_unknown_path_is_404_in_json(app_server: AppServer) -> None:
    for path in ("/nowhere", "/aap", "/aap/v2/meta", "//", "/healthz/x"):
        status, _, body = await get(app_server, path)
        assert (status, json.loads(body)["code"]) == (404, "not_found")


async def test_metrics_are_open_on_loopback_and_count(app_server: AppServer) -> None:
    session = await app_server.aap_client("alice").create(server_tools=[{"name": "add", "trust": True}])
    await session.run("add 1 and 2")
    await session.as_client(app_server.aap_client("bob")).client.get(session.path)
    status, headers, body = await get(app_server, "/metrics")
    assert (status, headers["content-type"].split(";")[0]) == (200, "text/plain")
    numbers = dict(line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#"))
    assert float(numbers["dragoman_runs_started_total"]) >= 1
    assert float(numbers['dragoman_runs_stopped_total{reason="end_turn"}']) >= 1
    assert float(numbers['dragoman_commits_total{outcome="written"}']) >= 1
    assert float(numbers["dragoman_events_total"]) >= 3
    assert float(numbers["dragoman_deltas_total"]) >= 1
    assert float(numbers["dragoman_sessions_in_memory"]) == 1
    assert float(numbers['dragoman_tool_calls_total{outcome="done"}']) >= 1
    assert float(numbers['dragoman_refused_total{code="session_not_found",protocol="aap"}']) >= 1
    assert float(numbers[f'dragoman_info{{version="{full_version()}"}}']) == 1


@pytest.mark.parametrize("choice", [{"host": "0.0.0.0"}, {"public_metrics": False}])
async def test_metrics_need_an_admin_key_off_loopback(tmp_path: Path, choice: dict[str, Any]) -> None:
    async with running_server(tmp_path, **choice) as server:
        statuses = [(await get(server, "/metrics", key))[0] for key in (None, "alice", "alice_reads", "admin")]
        assert statuses == [401, 403, 403, 200]
        assert json.loads((await get(server, "/metrics"))[2])["code"] == "unauthorized"


async def test_metrics_can_be_made_public(tmp_path: Path) -> None:
    async with running_server(tmp_path, host="0.0.0.0", public_metrics=True) as server:
        assert (await get(server, "/metrics"))[0] == 200


async def test_a_protocol_can_be_moved_or_switched_off(tmp_path: Path) -> None:
    async with running_server(tmp_path / "moved", aap_path="/deep/down/aap") as server:
        moved = AapClient(server.connection, server.key("alice"), base="/deep/down/aap")
        assert (await moved.get("/meta")).status == 200
        assert (await get(server, "/aap/v3/meta", "alice"))[0] == 404
    async with running_server(tmp_path / "off", aap=False) as server:
        assert (await get(server, "/aap/v3/meta", "alice"))[0] == 404


# --- start ------------------------------------------------------------------------------------------------------------


async def test_a_second_server_on_the_folder_refuses_to_start(app_server: AppServer) -> None:
    with pytest.raises(FolderInUse, match="another server uses the data folder"):
        async with server_app.build(app_server.settings).running():
            pytest.fail("it started")
    assert (await get(app_server, "/readyz"))[0] == 200


async def test_an_unknown_default_agent_is_refused_and_the_folder_is_unlocked(tmp_path: Path) -> None:
    wrong = Settings(data=str(tmp_path), rehearsal=True, default_agent="nobody")
    with pytest.raises(SettingsError, match="no agent 'nobody'; available agents: rehearsal, rehearsal-bare"):
        async with server_app.build(wrong).running():
            pytest.fail("it started")
    async with running_server(tmp_path, default_agent="rehearsal-bare") as server:
        assert application(server).engine.default_agent == "rehearsal-bare"


async def test_an_unknown_time_zone_is_refused(tmp_path: Path) -> None:
    wrong = Settings(data=str(tmp_path), rehearsal=True, time_zone="Mars/Olympus")
    with pytest.raises(SettingsError, match="expected an IANA time zone such as Europe/Berlin, got 'Mars/Olympus'"):
        async with server_app.build(wrong).running():
            pytest.fail("it started")


async def test_other_users_cannot_read_the_data_folder(app_server: AppServer) -> None:
    await (await app_server.aap_client("alice").create(options={"token": CANARY})).run("hello")
    modes = await asyncio.to_thread(
        lambda: {path.name: path.stat().st_mode & 0o077 for path in app_server.folder.rglob("*")}
    )
    assert {"dragoman.db", "dragoman.db-wal", "lock", "secrets.key", "admin.sock"} <= set(modes)
    assert set(modes.values()) == {0}


# --- readiness --------------------------------------------------------------------------------------------------------


@requirement("faults:47:drains")
async def test_a_draining_server_is_not_ready_refuses_work_and_stops_with_its_runs(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        session = await server.aap_client("alice").create()
        stream = await session.open(json.dumps({"script": [{"say": "a"}, {"wait_ms": 60_000}]}))
        await stream.until("text_delta")
        draining = asyncio.create_task(application(server).drain(60))
        await asyncio.sleep(0)
        status, headers, body = await get(server, "/readyz")
        assert (status, json.loads(body), headers["retry-after"]) == (503, {"status": "draining"}, "1")
        assert (await get(server, "/healthz"))[0] == 200
        refused = await server.aap_client("bob").post("/sessions", {"agent": {"name": "rehearsal"}})
        assert (refused.status, refused.json["code"]) == (503, "shutting_down")
        draining.cancel()
        with suppress(asyncio.CancelledError):
            await draining
    assert [frame.event for frame in await stream.read_to_end()] == [], (
        "the run is parked: its stream ends without turn_stop"
    )


async def test_readiness_and_metrics_show_runs_that_wait_for_an_agent(tmp_path: Path) -> None:
    async with running_server(tmp_path, public_metrics=True) as server:
        session = await server.aap_client("alice").create("rehearsal-bare")
        stream = await session.open(json.dumps({"script": [{"say": "a"}, {"wait_ms": 60_000}]}))
        await stream.until("text_delta")
        await server.stop()
        server.settings = msgspec.structs.replace(server.settings, rehearsal=False, agents=())
        server.agents = [Agent("other", model=ScriptedModel())]
        await server.start()
        status, _, body = await get(server, "/readyz")
        assert (status, json.loads(body)) == (200, {"status": "ready", "runs_waiting_for_agent": "1"})
        assert b"dragoman_runs_waiting_for_agent 1.0" in (await get(server, "/metrics"))[2]
        session = session.as_client(server.aap_client("alice"))
        assert (await session.info())["_meta"]["status"] == "running"
        assert (await server.aap_client("alice").post(f"{session.path}/stop", {})).json == {"stopped": True}
        assert json.loads((await get(server, "/readyz"))[2]) == {"status": "ready"}


async def test_an_open_stream_ends_when_its_key_is_revoked_and_the_run_continues(app_server: AppServer) -> None:
    session = await app_server.aap_client("alice_phone").create()
    script = {"script": [{"say": "before "}, {"wait_ms": 2_000}, {"say": "after"}]}
    turn = await session.open(json.dumps(script))
    watch = await session.as_client(app_server.aap_client("alice_phone")).watch()
    other = await session.as_client(app_server.aap_client("alice")).watch()
    await turn.until("text_delta")
    async with asyncio.timeout(60):
        await application(app_server).keys.revoke("alice_phone")
        assert "turn_stop" not in [frame.event for frame in await turn.read_to_end()]
        await watch.read_to_end()
    await other.until("turn_stop")
    assert (await app_server.aap_client("alice_phone").get("/meta")).status == 401
    await other.disconnect()


async def test_requests_per_key_are_limited_if_configured(tmp_path: Path) -> None:
    async with running_server(tmp_path, requests_per_minute=3) as server:
        replies = [await server.aap_client("alice").get("/sessions") for _ in range(4)]
        assert [reply.status for reply in replies] == [200, 200, 200, 429]
        assert replies[3].headers["retry-after"] == "20"
        assert [reply.headers["ratelimit"][:15] for reply in replies] == [f'"requests";r={n};' for n in (2, 1, 0, 0)]
        assert replies[3].headers["ratelimit-policy"] == '"requests";q=3;w=60'
        assert (await server.aap_client("bob").get("/sessions")).status == 200


async def test_open_streams_per_user_are_limited_and_a_closed_one_frees_its_place(tmp_path: Path) -> None:
    async with running_server(tmp_path, max_streams_per_user=1, heartbeat_s=0.1) as server:
        session = await server.aap_client("alice").create()
        watch = await session.watch()
        reply = await session.as_client(server.aap_client("alice_phone")).client.get(f"{session.path}/events")
        assert (reply.status, reply.json["code"]) == (429, "rate_limited")
        await watch.disconnect()
        assert isinstance(watch.exchange, Exchange)
        await watch.exchange.wait_until_released()
        again = await session.watch()
        await again.disconnect()


async def test_wrong_keys_are_limited_and_valid_ones_are_not(tmp_path: Path) -> None:
    async with running_server(tmp_path, wrong_keys_per_minute=2) as server:
        wrong = [
            (await AapClient(server.connection, f"sk-dragoman-{number}").get("/meta")).status for number in range(4)
        ]
        assert wrong == [401, 401, 429, 429]
        assert (await server.aap_client("alice").get("/meta")).status == 200


# --- secrets ----------------------------------------------------------------------------------------------------------


async def test_a_secret_option_is_in_no_log_even_if_an_agent_raises_it(tmp_path: Path) -> None:
    out = io.StringIO()
    logging.configure_logging("json", "debug", stream=out)
    try:
        async with running_server(tmp_path) as server:
            session = await server.aap_client("alice").create(options={"token": CANARY})
            turn = await session.run(script({"say": "One moment."}, {"fail": f"login with {CANARY} failed"}))
            assert turn.stop == "error"
            assert CANARY not in json.dumps([turn.messages, turn.meta, await session.info()])
            secret = server.key("alice")
            await AapClient(server.connection, f"{secret}x").get("/meta")
            await server.connection.request("GET", f"/aap/v3/meta?api_key={secret}")
    finally:
        structlog.reset_defaults()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    failed = [line for line in lines if line["event"] == "run failed"]
    assert len(failed) == 1, "the failure is logged, with its traceback and its run"
    assert "login with *** failed" in failed[0]["trace"]
    assert failed[0]["session_id"] == session.id
    assert CANARY not in out.getvalue()
    assert secret not in out.getvalue()


async def test_a_server_with_every_number_at_its_maximum_works(tmp_path: Path) -> None:
    numbers = [each for each in all_settings() if each.type in (int, float) and each.name not in ("port", "workers")]
    largest = {each.name: each.type(MAX_NUMBER if each.meta.le is None else each.meta.le) for each in numbers}
    with capture_logs() as logs:
        async with running_server(tmp_path, **largest) as server:
            session = await server.aap_client("alice").create()
            assert (await session.run("hello")).text
            response = await OpenAiClient(server.connection, server.key("alice")).respond("hello", store=False)
            assert response["status"] == "completed"
            await server.stop()
            await server.start()  # what expires at a time is looked for at the start
    assert [each for each in logs if each["log_level"] in ("warning", "error")] == []
