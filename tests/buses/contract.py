"""What every bus promises: the contract of `Bus`. An adapter's tests bring a fixture `bus`, one that works."""

import asyncio

from structlog.testing import capture_logs

from dragoman.ports import PAYLOAD_BYTES, Bus

DEADLINE_S = 20.0


class Ear:
    """Somebody who listens."""

    def __init__(self, bus: Bus, subject: str) -> None:
        self.heard: list[str] = []
        self._news = asyncio.Event()
        self.end = bus.subscribe(subject, self._hear)

    def _hear(self, payload: str) -> None:
        self.heard.append(payload)
        self._news.set()

    async def until(self, payload: str) -> list[str]:
        """What was heard, once that was among it."""
        async with asyncio.timeout(DEADLINE_S):
            while payload not in self.heard:
                self._news.clear()
                await self._news.wait()
        return self.heard


class BusContract:
    """To be inherited."""

    async def test_a_hint_is_heard_by_all_who_listen_for_its_subject(self, bus: Bus) -> None:
        one, two, other = Ear(bus, "log"), Ear(bus, "log"), Ear(bus, "keys")
        bus.publish("keys", "k")
        bus.publish("log", "a")
        assert [await one.until("a"), await two.until("a"), await other.until("k")] == [["a"], ["a"], ["k"]]

    async def test_who_ended_hears_nothing_more(self, bus: Bus) -> None:
        one, two = Ear(bus, "log"), Ear(bus, "log")
        bus.publish("log", "a")
        await one.until("a")
        one.end()
        one.end()
        bus.publish("log", "b")
        await two.until("b")
        assert (one.heard, two.heard) == (["a"], ["a", "b"])

    async def test_who_hears_may_end_and_begin_to_listen(self, bus: Bus) -> None:
        later: list[Ear] = []

        def hear(payload: str) -> None:
            end()
            later.append(Ear(bus, "log"))

        end = bus.subscribe("log", hear)
        beside = Ear(bus, "log")
        bus.publish("log", "a")
        await beside.until("a")
        bus.publish("log", "b")
        assert "b" in await later[0].until("b")
        assert len(later) == 1

    async def test_what_one_listener_raises_is_logged_and_nobody_else_notices(self, bus: Bus) -> None:
        def stumble(payload: str) -> None:
            raise ValueError("a slip of a listener's")

        end = bus.subscribe("log", stumble)
        beside = Ear(bus, "log")
        with capture_logs() as logs:
            for payload in ("a", "b"):
                bus.publish("log", payload)
            assert await beside.until("b") == ["a", "b"]
        end()
        told = [each for each in logs if each["log_level"] == "error"]
        assert told == [{"event": "a hint was not heard", "log_level": "error", "exc_info": True, "subject": "log"}] * 2

    async def test_a_payload_is_any_text_up_to_the_bound(self, bus: Bus) -> None:
        ear = Ear(bus, "log")
        payloads = ["", "ü 💡\r\n\0", "x" * PAYLOAD_BYTES, "end"]
        for payload in payloads:
            bus.publish("log", payload)
        assert await ear.until("end") == payloads
