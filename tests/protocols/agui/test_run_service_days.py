"""Days found by reading a log backwards are the days that reading it forwards gives, however it is cut into pages."""

from datetime import UTC, date, datetime, timedelta
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.core import content as core
from dragoman.core.events import (
    BlockClosed,
    CallOpened,
    CallSettled,
    CardUpdated,
    Event,
    LoggedEvent,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    RunStarted,
    RunStopped,
)
from dragoman.core.history_days import DayFinder, completes_message
from dragoman.core.ids import CallId, LoopId, MessageId, RunId
from dragoman.core.run_metadata import RunMetadata
from dragoman.protocols.agui.run_service.translate import history_message
from tests.requirements import requirement

FORK = LoopId("fork:c")


class RandomLogWriter:
    """Writes a log of runs at random."""

    def __init__(self, chance: Random, jumps: tuple[int, ...] = ()) -> None:
        self.chance = chance
        self.jumps = jumps
        """Minutes by which the clock is set at times."""
        self.at = datetime(2027, 1, 30, 20, tzinfo=UTC)
        self.log: list[LoggedEvent] = []
        self.visible: list[tuple[date, int, str, str]] = []
        """What a reader should see: day, ordinal, role, text."""
        self.ordinal = 0
        self._ids = 0

    def id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"

    def write(self, event: Event, run: RunId | None) -> None:
        self.at += timedelta(minutes=self.chance.choice([0, 0, 0, 1, 90, 400, 3000, *self.jumps]))
        logged = LoggedEvent(len(self.log) + 1, self.at, run, event)
        self.log.append(logged)
        self.ordinal += completes_message(logged)

    def see(self, role: str, text: str) -> None:
        self.visible.append((self.at.date(), self.ordinal, role, text))

    def run(self) -> None:
        run, is_internal = RunId(self.id()), self.chance.random() < 0.2
        self.write(RunStarted(run_id=run, protocol="runs", metadata=RunMetadata(internal=is_internal)), run)
        if self.chance.random() < 0.8:
            text = self.id()
            self.write(MessageAdded(message=core.UserMessage(id=MessageId(self.id()), content=text)), run)
            if not is_internal:
                self.see("user", text)
        for _ in range(self.chance.randrange(4)):
            self.step(run)
        self.write(RunStopped(run_id=run, reason="end_turn"), run)

    def step(self, run: RunId) -> None:
        message, loop = MessageId(self.id()), self.chance.choice([LoopId("root"), LoopId("root"), FORK])
        self.write(MessageOpened(message_id=message, loop=loop), run)
        text = ""
        for index in range(self.chance.randrange(4)):
            kind = self.chance.randrange(3)
            content = self.chance.choice(["", self.id()]) if kind == 0 else self.id()
            block = core.Text(content) if kind == 0 else core.Thinking(content) if kind == 1 else core.Data({})
            text += content if kind == 0 else ""
            self.write(BlockClosed(message_id=message, index=index, block=block, loop=loop), run)
        if self.chance.random() < 0.2:  # a run that waited is cancelled meanwhile
            self.write(RunStopped(run_id=RunId(self.id()), reason="cancelled"), None)
        if self.chance.random() < 0.2:
            self.write(CardUpdated(card={"type": "divider"}), run)
        call = core.Call(CallId(self.id()), "add", {})
        has_call = self.chance.random() < 0.3
        if has_call:
            self.write(CallOpened(message_id=message, index=9, call=call, kind="inline", loop=loop), run)
        self.write(MessageClosed(message_id=message, loop=loop), run)
        if loop == "root" and text:
            self.see("assistant", text)
        if has_call:
            result = core.ToolMessage(id=MessageId(self.id()), call_id=call.call_id, name="add", content="3", loop=loop)
            self.write(CallSettled(outcome="done", result=result), run)


def read(writer: RandomLogWriter, before: date | None, size: int) -> DayFinder:
    """Read a day from pages of that size."""
    found, end = DayFinder(writer.ordinal, before, lambda seq: True), len(writer.log)
    while end > 0:
        if found.feed(writer.log[max(0, end - size) : end]):
            break
        end -= size
    return found


def start_of(writer: RandomLogWriter, first: LoggedEvent | None) -> RunStarted | None:
    for logged in writer.log:
        if first is not None and isinstance(logged.event, RunStarted) and logged.event.run_id == first.run_id:
            return logged.event
    return None


@requirement("runs:history:day", "runs:history:seq", "runs:history:has-more")
@given(st.integers(0, 10_000), st.integers(0, 12), st.integers(1, 40))
@settings(max_examples=300, deadline=None)
def test_reading_backwards_in_pages_agrees_with_reading_forwards(seed: int, runs: int, size: int) -> None:
    writer = RandomLogWriter(Random(seed))
    for _ in range(runs):
        writer.run()
    days = sorted({day for day, *_ in writer.visible}, reverse=True)
    before: date | None = None
    for place, day in enumerate(days):
        found = read(writer, before, size)
        assert (found.day, found.has_more) == (day, place < len(days) - 1)
        messages = [history_message(each, str) for each in found.messages(start_of(writer, found.first))]
        entries = [
            (day, each.seq, type(each).__name__.removeprefix("History").lower(), each.content) for each in messages
        ]
        assert entries == [each for each in writer.visible if each[0] == day]
        before = day
    nothing = read(writer, before, size)
    assert (nothing.day, nothing.has_more, nothing.messages(start_of(writer, nothing.first))) == (None, False, [])


@requirement("runs:history:day", "runs:history:before")
@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 40))
@settings(max_examples=200, deadline=None)
def test_a_clock_that_is_set_back_hides_no_message(seed: int, runs: int, size: int) -> None:
    writer = RandomLogWriter(Random(seed), jumps=(-90, -3000, -9000))
    for _ in range(runs):
        writer.run()
    pages: list[list[int]] = []
    before: date | None = None
    while (found := read(writer, before, size)).day is not None:
        pages.insert(0, [each.ordinal for each in found.messages(start_of(writer, found.first))])
        assert found.has_more == (sum(map(len, pages)) < len(writer.visible))
        before = found.day
    assert [ordinal for page in pages for ordinal in page] == [ordinal for _, ordinal, *_ in writer.visible]
