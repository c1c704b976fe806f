"""The buses against the contract, and NATS in bad days: away from the start, gone, stalled, foreign, refused."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import nats as nats_driver
import psutil
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from structlog.testing import capture_logs

from dragoman.buses import nats as nats_module
from dragoman.buses.local import LocalBus
from dragoman.buses.nats import HintCounts, NatsBus, parse_urls
from dragoman.ports.bus import DELTAS_SUBJECT_PREFIX, MAX_HINT_BYTES, Bus
from tests.buses.contract import DEADLINE_S, BusContract, RecordingSubscriber
from tests.buses.nats_server import Nats, server
from tests.client.cutting_proxy import cutting_proxy
from tests.requirements import requirement


@pytest.fixture(autouse=True)
def _no_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_module, "RETRY_DELAY_S", 0.02)


@asynccontextmanager
async def server_bus(
    url: str, *, subject: str = "dragoman", waits: bool = True, key: bytes | None = None
) -> AsyncIterator[NatsBus]:
    """A server's bus."""
    bus = NatsBus(url, subject=subject, key=key)
    bus.start()
    if waits:
        await connected(bus)
    yield bus
    async with asyncio.timeout(DEADLINE_S):
        await bus.close()


async def connected(bus: NatsBus, is_connected: bool = True) -> None:
    """Wait until a bus is connected, or is no more."""
    async with asyncio.timeout(DEADLINE_S):
        while bus.is_connected != is_connected:  # noqa: ASYNC110  # only the log says so
            await asyncio.sleep(0.005)


def connections_to(nats: Nats) -> set[int]:
    """The local ports of this process's connections to a NATS."""
    connections = psutil.Process().net_connections("tcp")
    return {each.laddr.port for each in connections if tuple(each.raddr)[1:] == (nats.port,)}


class TestLocal(BusContract):
    @pytest.fixture
    def bus(self) -> Bus:
        return LocalBus()


class TestNats(BusContract):
    @pytest.fixture
    async def bus(self, nats: Nats) -> AsyncIterator[Bus]:
        async with server_bus(nats.url) as bus:
            yield bus


class TestNatsBetweenServers(BusContract):
    """Hints from one server to another: the same contract, published at the one and heard at the other."""

    @pytest.fixture
    async def bus(self, nats: Nats) -> AsyncIterator[Bus]:
        async with server_bus(nats.url) as one, server_bus(nats.url) as other:
            yield TwoBuses(one, other)


class TwoBuses:
    def __init__(self, one: NatsBus, other: NatsBus) -> None:
        self.deltas_group = one.deltas_group
        self.publish = one.publish
        self.subscribe = other.subscribe


class TestNatsUnavailable(BusContract):
    """Alone in its process a server loses nothing when NATS is not there."""

    @pytest.fixture
    async def bus(self) -> AsyncIterator[Bus]:
        async with server_bus("nats://127.0.0.1:1", waits=False) as bus:
            yield bus


@requirement("faults:45:back")
async def test_words_are_heard_with_the_same_key_alone_and_nats_sees_none_of_them(nats: Nats) -> None:
    """Who listens there without the key, or with another one, hears nothing; nor is what it makes up heard."""
    there, seen = f"{DELTAS_SUBJECT_PREFIX}.there", list[bytes]()
    key, another = b"k" * 32, b"a" * 32

    async def watch(message: Msg) -> None:
        seen.append(message.data)

    async with (
        server_bus(nats.url, key=key) as one,
        server_bus(nats.url, key=key) as other,
        server_bus(nats.url, key=another) as stranger,
    ):
        spy = await nats_driver.connect(nats.url)
        await spy.subscribe("dragoman.>", cb=watch)
        await spy.flush()
        near, far = RecordingSubscriber(other, there), RecordingSubscriber(stranger, there)
        probes = 0
        async with asyncio.timeout(DEADLINE_S):
            while not near.received:  # until NATS knows the address
                probes += 1
                one.publish(there, f"probe {probes}")
                await asyncio.sleep(0.01)
        stranger.publish(there, "made up")
        await spy.publish(f"dragoman.{there}", b"made up, without a key")
        await spy.flush()
        one.publish(there, "said " * 20_000)
        await near.until("said " * 20_000)
        await spy.drain()
    assert (one.deltas_group, one.deltas_group == other.deltas_group, one.deltas_group == stranger.deltas_group) == (
        other.deltas_group,
        True,
        False,
    )
    assert all(payload.startswith(("probe ", "said ")) for payload in near.received)
    assert far.received == ["made up"], "what it said itself"
    assert not [data for data in seen if b"probe" in data or b"said" in data]
    assert [data for data in seen if len(data) > 100_000], "and it was sent"


async def test_a_bus_is_connected_when_nats_has_confirmed_that_it_listens(nats: Nats) -> None:
    """NATS executes commands in order, so that the answer to a PING confirms what was sent before it."""
    async with cutting_proxy(nats.url, lambda: None) as proxy, server_bus(proxy.url.replace("http", "nats")):
        assert b"SUB dragoman.*" in bytes(proxy.sent).rpartition(b"PING\r\n")[0]


async def test_a_bus_finds_back_by_itself_and_reports_once(nats: Nats) -> None:
    """What is said meanwhile is lost, and counted; who said it heard it."""
    with capture_logs() as logs:
        nats.stop()
        async with server_bus(nats.url, waits=False) as one, server_bus(nats.url, waits=False) as other:
            near, far = RecordingSubscriber(one, "log"), RecordingSubscriber(other, "log")
            one.publish("log", "before")
            for said in ("first", "second"):
                nats.start()
                await connected(one)
                await connected(other)
                one.publish("log", said)
                await far.until(said)
                nats.stop()
                await connected(one, False)
                one.publish("log", f"after {said}")
            assert near.received == ["before", "first", "after first", "second", "after second"]
            assert far.received == ["first", "second"]
            assert (one.hint_counts, other.hint_counts) == (
                HintCounts(sent=2, received=0, lost=3),
                HintCounts(sent=0, received=2, lost=0),
            )
    events = [each["event"] for each in logs]
    assert events.count("bus connected") == 4
    assert events.count("bus connection lost") == 4
    assert events.count("cannot reach the bus") <= 2, "at most once for each before its first connection"


@requirement("faults:45:stalled")
async def test_a_nats_that_stalls_makes_nobody_wait(nats: Nats, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints are dropped at a bound; the connection ends by itself, although much is unread, and so does the server."""
    monkeypatch.setattr(nats_module, "PING_INTERVAL_S", 0.05)
    monkeypatch.setattr(nats_module, "MAX_QUEUED_HINTS", 100)
    monkeypatch.setattr(nats_module, "MAX_UNSENT_BYTES", 100_000)
    monkeypatch.setattr(nats_module, "CLOSE_TIMEOUT_S", 0.1)
    async with server_bus(nats.url) as bus:
        ear = RecordingSubscriber(bus, "log")
        first = connections_to(nats)
        nats.stall()
        said = 0
        async with asyncio.timeout(DEADLINE_S):
            while bus.is_connected or bus.hint_counts.lost == 0:
                bus.publish("log", "x" * MAX_HINT_BYTES)
                said += 1
                await asyncio.sleep(0)
            while first & connections_to(nats):  # noqa: ASYNC110  # only the system knows
                await asyncio.sleep(0.005)
        assert len(ear.received) == said
        assert bus.hint_counts.sent + bus.hint_counts.lost == said


async def test_a_connection_that_fails_while_it_is_closed_is_made_again(
    nats: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = Client.close

    async def close_and_fail(client: Client) -> None:
        await close(client)
        raise ConnectionResetError("Connection lost")

    monkeypatch.setattr(Client, "close", close_and_fail)
    async with server_bus(nats.url) as bus:
        nats.stop()
        await connected(bus, False)
        nats.start()
        await connected(bus)


async def test_installations_that_share_a_nats_are_apart_by_their_subjects(nats: Nats) -> None:
    async with (
        server_bus(nats.url, subject="a.one") as one,
        server_bus(nats.url, subject="a.two") as two,
        server_bus(nats.url, subject="a.one") as again,
    ):
        heard, not_heard = RecordingSubscriber(again, "log"), RecordingSubscriber(two, "log")
        one.publish("log", "mine")
        two.publish("log", "yours")
        await heard.until("mine")
        await not_heard.until("yours")
        assert (heard.received, not_heard.received) == (["mine"], ["yours"])


async def test_what_others_say_on_our_subject_does_no_harm(nats: Nats) -> None:
    async with server_bus(nats.url) as bus:
        ear = RecordingSubscriber(bus, "log")
        stranger = Client()
        await stranger.connect(nats.url)
        for content in (b"\xff\xfe", b"x" * (MAX_HINT_BYTES + 1), b"fine"):
            await stranger.publish("dragoman.log", content)
        assert await ear.until("fine") == ["fine"]
        await stranger.close()


async def test_a_wrong_password_is_logged_and_never_shown() -> None:
    with server("--user", "ann", "--pass", "rose-of-jericho") as nats, capture_logs() as logs:
        host = nats.url.removeprefix("nats://")
        async with server_bus(f"nats://ann:rose-of-jericho@{host}"):
            pass
        async with server_bus(f"nats://ann:wrong-password@{host}", waits=False) as bus:
            async with asyncio.timeout(DEADLINE_S):
                while not any(each["event"] == "cannot reach the bus" for each in logs):  # noqa: ASYNC110  # as above
                    await asyncio.sleep(0.005)
            assert not bus.is_connected
    assert "uthorization" in str(logs[-1]["cause"])
    assert "rose" not in str(logs)
    assert "wrong-password" not in str(logs)


async def test_a_connection_whose_driver_hangs_while_closing_is_closed(
    nats: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients: list[Client] = []

    async def hang(client: Client) -> None:
        clients.append(client)  # otherwise the garbage collector would close its socket
        await asyncio.sleep(DEADLINE_S)

    monkeypatch.setattr(Client, "close", hang)
    monkeypatch.setattr(nats_module, "CLOSE_TIMEOUT_S", 0.1)
    async with server_bus(nats.url):
        pass
    await asyncio.sleep(0)  # a socket is closed with the next turn of the loop
    assert (len(clients), connections_to(nats)) == (1, set())


async def test_one_of_several_servers_is_enough(nats: Nats) -> None:
    async with server_bus(f"nats://127.0.0.1:1, {nats.url}") as bus:
        assert bus.is_connected


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_task_of_the_driver_that_fails_while_closing_reports_nothing_to_the_loop(
    nats: Nats, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """Its exception would surface whenever the task is collected, in whatever runs then.

    The driver cancels its tasks but does not wait for them. One of them may itself be closing the connection.
    """

    async def fail_when_closed(_: Client) -> None:
        if is_late:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(DEADLINE_S)
        try:
            await asyncio.sleep(DEADLINE_S)
        finally:
            raise ConnectionResetError("Connection lost")

    monkeypatch.setattr(Client, "_ping_interval", fail_when_closed)
    gc.collect()  # what other tests left
    reports: list[object] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: reports.append(context))
    try:
        async with server_bus(nats.url):
            pass
        gc.collect()
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(before)
    assert reports == []


async def test_what_was_said_before_the_end_is_still_sent(nats: Nats, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits, and what the driver is about to send."""
    publish, is_sending = Client.publish, asyncio.Event()

    async def publish_later(client: Client, subject: str, payload: bytes) -> None:
        is_sending.set()
        await asyncio.sleep(0)
        await publish(client, subject, payload)

    monkeypatch.setattr(Client, "publish", publish_later)
    async with server_bus(nats.url) as other:
        ear = RecordingSubscriber(other, "asked")
        async with server_bus(nats.url) as one:
            one.publish("asked", "I leave")
        assert await ear.until("I leave") == ["I leave"]
        is_sending.clear()
        async with server_bus(nats.url) as one:
            one.publish("asked", "I leave, too")
            await is_sending.wait()
        assert await ear.until("I leave, too") == ["I leave", "I leave, too"]


@pytest.mark.parametrize("address", ["", ",", "127.0.0.1:4222", "http://h:1", "nats://", "nats://h/path"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="expected an address such as nats://"):
        parse_urls(address)
