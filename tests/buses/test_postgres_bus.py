"""The bus through the database against the contract, within a server, between two, and over a restart of PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from structlog.testing import capture_logs

from dragoman.buses.postgres import PostgresBus
from dragoman.ports.bus import Bus
from tests.buses.contract import DEADLINE_S, BusContract, RecordingSubscriber
from tests.descriptors import no_free_descriptors
from tests.stores.postgres import server


@asynccontextmanager
async def server_bus(url: str) -> AsyncIterator[PostgresBus]:
    """A server's bus, once it hears the others."""
    bus = PostgresBus(url)
    bus.start()
    async with asyncio.timeout(DEADLINE_S):
        while not bus.is_connected:  # noqa: ASYNC110  # its thread tells nobody
            await asyncio.sleep(0.005)
    yield bus
    await bus.close()


class TestWithin(BusContract):
    @pytest.fixture
    async def bus(self, postgres_url: str) -> AsyncIterator[Bus]:
        async with server_bus(postgres_url) as bus:
            yield bus


class TestBetween(BusContract):
    """The same contract, published at one server and heard at another."""

    @pytest.fixture
    async def bus(self, postgres_url: str) -> AsyncIterator[Bus]:
        async with server_bus(postgres_url) as one, server_bus(postgres_url) as other:
            yield TwoBuses(one, other)


class TwoBuses:
    def __init__(self, one: PostgresBus, other: PostgresBus) -> None:
        self.deltas_group = one.deltas_group
        self.publish = one.publish
        self.subscribe = other.subscribe


async def test_hints_continue_when_the_database_is_back() -> None:
    with server() as postgres:
        url = postgres.url("postgres")
        async with server_bus(url) as one, server_bus(url) as other:
            await asyncio.to_thread(postgres.stop)
            one.publish("log", "lost")
            await asyncio.to_thread(postgres.start)
            ear = RecordingSubscriber(other, "log")
            async with asyncio.timeout(DEADLINE_S):
                while "again" not in ear.received:
                    one.publish("log", "again")
                    await asyncio.sleep(0.05)
            assert set(ear.received) <= {"lost", "again"}


async def test_hints_go_on_after_a_time_without_file_descriptors(postgres_url: str) -> None:
    async with server_bus(postgres_url) as one, server_bus(postgres_url) as other:
        with psycopg.connect(postgres_url, autocommit=True) as stranger, no_free_descriptors(), capture_logs() as logs:
            stranger.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            one.publish("log", "lost")
            async with asyncio.timeout(DEADLINE_S):
                while not any("Too many open files" in each["cause"] for each in logs):  # noqa: ASYNC110  # as above
                    await asyncio.sleep(0.005)
        ear = RecordingSubscriber(other, "log")
        async with asyncio.timeout(DEADLINE_S):
            while "again" not in ear.received:
                one.publish("log", "again")
                await asyncio.sleep(0.05)


async def test_what_others_notify_on_our_channel_does_no_harm(postgres_url: str) -> None:
    name = "'dragoman_' || substr(md5(current_schema()), 1, 16)"
    async with server_bus(postgres_url) as one, server_bus(postgres_url) as other:
        ear = RecordingSubscriber(other, "log")
        with psycopg.connect(postgres_url, autocommit=True) as stranger:
            for said in ("", "x", "x log"):
                stranger.execute(f"SELECT pg_notify({name}, %s)".encode(), (said,))
        one.publish("log", "fine")
        assert await ear.until("fine") == ["fine"]
