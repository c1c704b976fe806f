"""A server with NATS beside its database: it starts without it, tells whether it is there, and needs it for nothing."""

import asyncio
import json
from pathlib import Path

import pytest

from dragoman.buses import nats as nats_module
from dragoman.server.app import build
from dragoman.settings import SettingsError, load
from tests.buses.nats_server import Nats
from tests.protocols.aap.agents import AGENTS
from tests.protocols.aap.client import AapClient
from tests.requirements import requirement
from tests.servers import AppServer, running_server

DEADLINE_S = 20.0


async def readiness(server: AppServer) -> tuple[int, object]:
    answer = await server.connection.open("GET", "/readyz")
    return answer.status, json.loads(await answer.read())


async def counted(server: AppServer) -> dict[str, float]:
    text = (await (await server.connection.open("GET", "/metrics")).read()).decode()
    rows = (line.rpartition(" ") for line in text.splitlines() if line.startswith("dragoman_bus_"))
    return {name: float(value) for name, _, value in rows}


async def until(server: AppServer, bus: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await readiness(server) != (200, {"status": "ready", "bus": bus}):  # noqa: ASYNC110  # as a balancer does
            await asyncio.sleep(0.01)


@requirement("faults:45:back")
async def test_a_server_lives_without_its_nats_and_reports_it(
    tmp_path: Path, postgres_url: str, nats: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_module, "RETRY_DELAY_S", 0.02)
    nats.stop()
    async with running_server(tmp_path, agents=AGENTS, database=postgres_url, nats=nats.url) as house:
        assert await readiness(house) == (200, {"status": "ready", "bus": "away"})
        session = await house.aap_client("alice").create()
        await session.run("without")
        nats.start()
        await until(house, "connected")
        await session.run("with")
        assert (await counted(house))["dragoman_bus_connected"] == 1
        nats.stop()
        await until(house, "away")
        await session.run("without again")
        assert (await counted(house))["dragoman_bus_connected"] == 0
        assert len(await session.history()) == 6


async def test_two_servers_hear_of_each_other_over_nats(tmp_path: Path, postgres_url: str, nats: Nats) -> None:
    """What one of them answers is read at the other, which had it in memory before."""
    settings = {"agents": AGENTS, "database": postgres_url, "nats": nats.url}
    async with running_server(tmp_path / "one", **settings) as one, running_server(tmp_path / "two", **settings) as two:
        for house in (one, two):
            await until(house, "connected")
        here = await one.aap_client("alice").create()
        there = here.as_client(AapClient(two.connection, one.key("alice")))
        for said in range(3):
            await here.run(f"here {said}")
            assert await there.history() == await here.history()
            await there.run(f"there {said}")
            assert await here.history() == await there.history()
        assert len(await here.history()) == 12
        hints = [await counted(house) for house in (one, two)]
    assert all(each['dragoman_bus_hints_total{outcome="heard"}'] > 0 for each in hints), "both wrote, and both heard"


def test_nats_without_a_database_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        SettingsError, match=r"setting nats \(flag --nats\): NATS connects servers on a shared PostgreSQL"
    ):
        load({"nats": "nats://127.0.0.1:4222"}, {})


def test_a_subject_that_nats_would_not_take_is_refused() -> None:
    for subject in ("", "a b", "a.", "a.*", ">"):
        with pytest.raises(SettingsError, match="setting nats_subject"):
            load({"nats_subject": subject}, {})


async def test_an_address_that_is_none_is_refused_and_not_shown(tmp_path: Path, postgres_url: str) -> None:
    house = AppServer(tmp_path, database=postgres_url, nats="https://ann:canary@there")
    with pytest.raises(SettingsError, match="setting nats: expected an address such as nats://") as refused:
        async with build(house.settings).running():
            pytest.fail("it started")
    assert "canary" not in str(refused.value)
