"""What every bus promises: the contract of `Bus`. An adapter's tests provide a fixture `bus` that works."""

import asyncio

from structlog.testing import capture_logs

from dragoman.ports.bus import MAX_HINT_BYTES, Bus

DEADLINE_S = 60.0


class RecordingSubscriber:
    """Somebody who listens."""

    def __init__(self, bus: Bus, subject: str) -> None:
        self.received: list[str] = []
        self._received_event = asyncio.Event()
        self.end = bus.subscribe(subject, self._on_message)

    def _on_message(self, payload: str) -> None:
        self.received.append(payload)
        self._received_event.set()

    async def until(self, payload: str) -> list[str]:
        """Wait for a hint; return all that were received."""
        async with asyncio.timeout(DEADLINE_S):
            while payload not in self.received:
                self._received_event.clear()
                await self._received_event.wait()
        return self.received


class BusContract:
    """To be inherited."""

    async def test_a_hint_is_heard_by_all_who_listen_for_its_subject(self, bus: Bus) -> None:
        one, two, other = (
            RecordingSubscriber(bus, "log"),
            RecordingSubscriber(bus, "log"),
            RecordingSubscriber(bus, "keys"),
        )
        bus.publish("keys", "k")
        bus.publish("log", "a")
        assert [await one.until("a"), await two.until("a"), await other.until("k")] == [["a"], ["a"], ["k"]]

    async def test_who_ended_hears_nothing_more(self, bus: Bus) -> None:
        one, two = RecordingSubscriber(bus, "log"), RecordingSubscriber(bus, "log")
        bus.publish("log", "a")
        await one.until("a")
        one.end()
        one.end()
        bus.publish("log", "b")
        await two.until("b")
        assert (one.received, two.received) == (["a"], ["a", "b"])

    async def test_who_hears_may_end_and_begin_to_listen(self, bus: Bus) -> None:
        later: list[RecordingSubscriber] = []

        def hear(payload: str) -> None:
            end()
            later.append(RecordingSubscriber(bus, "log"))

        end = bus.subscribe("log", hear)
        beside = RecordingSubscriber(bus, "log")
        bus.publish("log", "a")
        await beside.until("a")
        bus.publish("log", "b")
        assert "b" in await later[0].until("b")
        assert len(later) == 1

    async def test_what_one_listener_raises_is_logged_and_nobody_else_notices(self, bus: Bus) -> None:
        def stumble(payload: str) -> None:
            raise ValueError("a slip of a listener's")

        end = bus.subscribe("log", stumble)
        beside = RecordingSubscriber(bus, "log")
        with capture_logs() as logs:
            for payload in ("a", "b"):
                bus.publish("log", payload)
            assert await beside.until("b") == ["a", "b"]
        end()
        errors = [each for each in logs if each["log_level"] == "error"]
        assert (
            errors == [{"event": "hint handler failed", "log_level": "error", "exc_info": True, "subject": "log"}] * 2
        )

    async def test_a_payload_is_any_text_up_to_the_bound(self, bus: Bus) -> None:
        ear = RecordingSubscriber(bus, "log")
        payloads = ["", "ü 💡\r\n\0", "x" * MAX_HINT_BYTES, "end"]
        for payload in payloads:
            bus.publish("log", payload)
        assert await ear.until("end") == payloads
