"""A server with NATS in addition to its database: it reports whether NATS is connected and works without it."""

import asyncio
import json
from pathlib import Path

import pytest

from dragoman.buses import nats as nats_module
from dragoman.server.app import build
from dragoman.settings import SettingsError
from dragoman.settings_loading import load
from tests.buses.nats_server import Nats
from tests.protocols.aap.agents import AGENTS
from tests.protocols.aap.client import AapClient
from tests.requirements import requirement
from tests.servers import AppServer, running_server

DEADLINE_S = 60.0


async def readiness(server: AppServer) -> tuple[int, object]:
    answer = await server.connection.open("GET", "/readyz")
    return answer.status, json.loads(await answer.read())


async def bus_metrics(server: AppServer) -> dict[str, float]:
    text = (await (await server.connection.open("GET", "/metrics")).read()).decode()
    rows = (line.rpartition(" ") for line in text.splitlines() if line.startswith("dragoman_bus_"))
    return {name: float(value) for name, _, value in rows}


async def until(server: AppServer, bus: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await readiness(server) != (200, {"status": "ready", "bus": bus}):  # noqa: ASYNC110  # polls like a load balancer
            await asyncio.sleep(0.01)


@requirement("faults:45:back")
async def test_a_server_works_without_nats_and_reports_it(
    tmp_path: Path, postgres_url: str, nats: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_module, "RETRY_DELAY_S", 0.02)
    nats.stop()
    async with running_server(tmp_path, agents=AGENTS, database=postgres_url, nats=nats.url) as server:
        assert await readiness(server) == (200, {"status": "ready", "bus": "away"})
        session = await server.aap_client("alice").create()
        await session.run("without")
        nats.start()
        await until(server, "connected")
        await session.run("with")
        assert (await bus_metrics(server))["dragoman_bus_connected"] == 1
        nats.stop()
        await until(server, "away")
        await session.run("without again")
        assert (await bus_metrics(server))["dragoman_bus_connected"] == 0
        assert len(await session.history()) == 6


async def test_two_servers_exchange_hints_over_nats(tmp_path: Path, postgres_url: str, nats: Nats) -> None:
    """What one server writes is read at the other, which had an older state in memory."""
    settings = {"agents": AGENTS, "database": postgres_url, "nats": nats.url}
    async with running_server(tmp_path / "one", **settings) as one, running_server(tmp_path / "two", **settings) as two:
        for server in (one, two):
            await until(server, "connected")
        session_on_one = await one.aap_client("alice").create()
        session_on_two = session_on_one.as_client(AapClient(two.connection, one.key("alice")))
        for turn in range(3):
            await session_on_one.run(f"on one {turn}")
            assert await session_on_two.history() == await session_on_one.history()
            await session_on_two.run(f"on two {turn}")
            assert await session_on_one.history() == await session_on_two.history()
        assert len(await session_on_one.history()) == 12
        hints = [await bus_metrics(server) for server in (one, two)]
    assert all(each['dragoman_bus_hints_total{outcome="received"}'] > 0 for each in hints), (
        "both sent hints, and both received some"
    )


def test_nats_without_a_database_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        SettingsError, match=r"setting nats \(flag --nats\): NATS connects servers on a shared PostgreSQL"
    ):
        load({"nats": "nats://127.0.0.1:4222"}, {})


def test_an_invalid_nats_subject_is_refused() -> None:
    for subject in ("", "a b", "a.", "a.*", ">"):
        with pytest.raises(SettingsError, match="setting nats_subject"):
            load({"nats_subject": subject}, {})


async def test_an_invalid_address_is_refused_and_not_shown(tmp_path: Path, postgres_url: str) -> None:
    server = AppServer(tmp_path, database=postgres_url, nats="https://ann:canary@there")
    with pytest.raises(SettingsError, match="setting nats: expected an address such as nats://") as refused:
        async with build(server.settings).running():
            pytest.fail("it started")
    assert "canary" not in str(refused.value)
