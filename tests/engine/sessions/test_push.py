"""Readers that take records in the moment in which they are durable see what all others see."""

import asyncio
import gc
import random
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from types import FrameType
from typing import Any, cast

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from dragoman.core.events import LoggedEvent
from dragoman.core.ids import RunId
from dragoman.core.refusals import SessionNotFound
from dragoman.core.stream import START, Record, cursor_of, expand
from dragoman.engine.engine import Engine
from dragoman.engine.sessions import log_pages, reader
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.log import Append
from dragoman.protocols.aap.streams import SessionFrames
from dragoman.protocols.aap.translate import TurnFrames
from dragoman.protocols.kit.connection import PUSH_EXTENSION
from dragoman.protocols.kit.sse import EventStream
from tests.engine.world import DEADLINE_S, World, is_stop, open_session, play, read, reasons, send, wait_until_durable


class StopReading(Exception):
    """The reader has seen the end of the run."""


async def read_pushed(engine: Engine, live: LiveSession, chance: random.Random, refusals: float) -> list[Record]:
    """Read until the run ends, as a reader that refuses some of the pushed records."""
    seen: list[Record] = []
    taken = 0

    def take(records: Sequence[Record]) -> bool:
        nonlocal taken
        if chance.random() < refusals:
            return False
        taken += 1
        seen.extend(records)
        if is_stop(records[-1]):
            raise StopReading
        return True

    with engine.follow(live, START) as reader:
        reader.push = take
        async with asyncio.timeout(DEADLINE_S):
            try:
                while not seen or not is_stop(seen[-1]):
                    seen += await reader.next()
                    assert reader.cursor == cursor_of(seen[-1])
            except StopReading:
                pass
    if refusals in (0, 1):
        assert (taken > 0) == (refusals == 0), "it did what it was meant to try"
    return seen


@pytest.mark.parametrize("refusals", [0, 0.3, 1])
@pytest.mark.one_server
async def test_pushed_records_and_given_ones_are_one_stream(any_world: World, refusals: float) -> None:
    any_world.scripts["go"] = [[word for place in range(20) for word in (f"{place} ", wait_until_durable)]]
    engine = await any_world.start()
    live = await open_session(engine)
    readings = [asyncio.create_task(read_pushed(engine, live, random.Random(seed), refusals)) for seed in range(3)]
    pulling = asyncio.create_task(read(engine, live))
    async with asyncio.timeout(DEADLINE_S):
        while len(live.replay_buffer.followers) < len(readings):  # noqa: ASYNC110  # nothing signals it
            await asyncio.sleep(0)  # a slow store would give them the whole run at once
    await play(engine, live, "go")
    whole = await pulling
    assert [await each for each in readings] == [whole] * 3
    assert expand(await any_world.events(live.state.session_id)) == whole
    assert (live.reference_count, live.replay_buffer.followers) == (0, {})


class ReadyPipe:
    """A client that takes everything."""

    has_arrived = True

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def is_ready(self) -> bool:
        return True

    def write(self, body: bytes) -> None:
        self.written.append(body)

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        pass


class ResumingClient(ReadyPipe):
    """A client that leaves after the end of the session's third turn."""

    def __init__(self) -> None:
        super().__init__()
        self.has_old_turns = asyncio.Event()

    def write(self, body: bytes) -> None:
        super().write(body)
        ends = b"".join(self.written).count(b"event: turn_stop")
        if ends == 2:
            self.has_old_turns.set()
        if ends == 3:
            raise ClientDisconnect

    async def send(self, message: Any) -> None:
        self.write(message.get("body", b""))

    async def follow(self, engine: Engine, live: LiveSession, share: str | None) -> None:
        """Resume the session's stream from its beginning."""
        stream = await EventStream(engine.follow(live, START), SessionFrames(None), share=share).open(b"")
        scope = {"type": "http", "method": "GET", "headers": [], "extensions": {PUSH_EXTENSION: self}}
        await stream(scope, cast("Receive", None), self.send)


async def test_streams_that_share_the_frames_of_the_log_continue_live(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_pages, "PAGE_EVENTS", 7)
    monkeypatch.setattr(reader, "STEP_RECORDS", 3)
    world.scripts["go"] = [["one ", wait_until_durable, "two"]]
    engine = await world.start()
    live = await open_session(engine)
    for _ in range(2):
        await play(engine, live, "go")
    live.replay_buffer.clear()
    clients = [ResumingClient() for _ in range(4)]
    shares = ["alike", "alike", "alike", None]
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as streams:
        for client, share in zip(clients, shares, strict=True):
            streams.create_task(client.follow(engine, live, share))
        for client in clients:
            await client.has_old_turns.wait()
        await play(engine, live, "go")
    bodies = {b"".join(client.written) for client in clients}
    assert len(bodies) == 1


async def test_a_stream_that_has_ended_needs_no_garbage_collection(world: World) -> None:
    world.scripts["go"] = [[word for place in range(20) for word in (f"{place} ", wait_until_durable)]]
    engine = await world.start()
    live = await open_session(engine)
    pipe, sent = ReadyPipe(), list[bytes]()

    async def send_part(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def serve() -> weakref.ref[EventStream]:
        run_id = (await send(engine, live, "go")).run_id
        assert run_id is not None
        stream = await EventStream(engine.follow(live, START), TurnFrames(run_id, "delta")).open(b"")
        scope = {"type": "http", "method": "GET", "headers": [], "extensions": {PUSH_EXTENSION: pipe}}
        async with asyncio.timeout(DEADLINE_S):
            await stream(scope, cast("Receive", None), send_part)
        return weakref.ref(stream)

    gc.disable()
    try:
        assert (await asyncio.create_task(serve()))() is None, "nothing refers to it"
    finally:
        gc.enable()
    assert pipe.written, "records were pushed"
    assert b"turn_stop" in sent[-1]


async def test_a_deleted_session_that_a_stream_follows_needs_no_garbage_collection(world: World) -> None:
    """Where few objects are made, the oldest garbage is collected hours later."""
    engine = await world.start()
    sent: list[bytes] = []

    async def send_part(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def serve() -> weakref.ref[EventStream]:
        live = await open_session(engine)
        frames = TurnFrames(RunId("another"), "delta")
        stream = await EventStream(engine.follow(live, live.durable_cursor), frames).open(b": ")
        scope = {"type": "http", "method": "GET", "headers": [], "extensions": {PUSH_EXTENSION: ReadyPipe()}}
        streaming = asyncio.create_task(stream(scope, cast("Receive", None), send_part))
        await asyncio.sleep(0)
        await engine.delete(live)
        async with asyncio.timeout(DEADLINE_S):
            await streaming
        return weakref.ref(stream)

    gc.disable()
    try:
        assert (await asyncio.create_task(serve()))() is None, "nothing refers to it"
    finally:
        gc.enable()
    assert any(b"session_deleted" in each for each in sent)


async def test_a_push_that_fails_ends_its_own_reader_and_no_other(world: World) -> None:
    gate = world.pausing_tool("gate")
    world.scripts["go"] = [["one ", wait_until_durable, gate, "two"]]
    engine = await world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
        with engine.follow(live, live.durable_cursor) as failing:
            failing.push = lambda records: bool(1 // 0)
            reading = asyncio.create_task(read(engine, live))
            waiting = asyncio.create_task(failing.next())
            await asyncio.sleep(0)
            gate.opened.set()
            with pytest.raises(ZeroDivisionError):
                await waiting
        assert reasons(await reading) == ["end_turn"]


async def test_a_session_that_is_deleted_ends_who_follows(world: World) -> None:
    engine = await world.start()
    live = await open_session(engine)
    with engine.follow(live, live.durable_cursor) as reader:
        reader.push = lambda records: True
        waiting = asyncio.create_task(reader.next())
        await asyncio.sleep(0)
        await engine.delete(live)
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(SessionNotFound):
                await waiting


async def test_silence_gives_heartbeats_to_who_follows(world: World) -> None:
    engine = await world.start(heartbeat_interval_s=0.001)
    live = await open_session(engine)
    with engine.follow(live, live.durable_cursor) as reader:
        reader.push = lambda records: True
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(50):
                assert await reader.next() == ()
        assert live.replay_buffer.followers == {}, "it follows only while it waits"


async def test_a_watcher_that_fails_blocks_nobody(world: World) -> None:
    """The committer of all sessions calls it: if that ended, nothing would become durable any more."""
    counts: list[int] = []

    def fails(session: SessionView, events: Sequence[LoggedEvent]) -> None:
        counts.append(len(events))
        raise RuntimeError("a bug of a protocol")

    engine = await world.start()
    engine.watch(fails, lambda *_: None)
    live = await open_session(engine)
    async with asyncio.timeout(DEADLINE_S):
        await play(engine, live, "go")
    assert reasons(await world.events(live.state.session_id)) == ["end_turn"]
    assert sum(counts) == live.state.seq


async def test_a_commit_that_cannot_be_reported_blocks_nobody(world: World) -> None:
    """Other servers learn of it from hints, and hints may be lost."""
    counts: list[int] = []

    def fails(batch: Sequence[Append]) -> None:
        counts.append(len(batch))
        raise ValueError("a bug of a bus")

    engine = await world.start()
    engine.report_commits_to(fails)
    live = await open_session(engine)
    async with asyncio.timeout(DEADLINE_S):
        await play(engine, live, "go")
    assert reasons(await world.events(live.state.session_id)) == ["end_turn"]
    assert len(counts) > 1


def calls_while(act: Callable[[], object]) -> int:
    """The Python frames that are entered meanwhile, those of generators at each step."""
    count = 0

    def profile(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()  # what it calls for garbage of other tests does not count
    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


async def test_waking_a_reader_costs_the_same_however_many_follow_the_session(world: World) -> None:
    engine = await world.start()
    live = await open_session(engine)
    calls: list[int] = []
    async with AsyncExitStack() as stack:
        for count in (3, 300):
            readers = [stack.enter_context(engine.follow(live, live.durable_cursor)) for _ in range(count)]
            for each in readers:
                each.push = lambda records: True
            waiting = [asyncio.create_task(each.next()) for each in readers]
            await asyncio.sleep(0)
            calls.append(calls_while(readers[count // 2].nudge))
            assert await waiting[count // 2] == ()
            for task in waiting:
                task.cancel()
    assert calls[0] == calls[1]


async def test_heartbeats_of_many_readers_leave_room_for_others(world: World) -> None:
    engine = await world.start(heartbeat_interval_s=0.001)
    live = await open_session(engine)
    turn = 0
    beats: Counter[int] = Counter()

    async def read_silence(following: reader.Reader) -> None:
        with following:
            following.push = lambda records: True
            for _ in range(3):
                assert await following.next() == ()
                beats[turn] += 1

    reading = [
        asyncio.create_task(read_silence(engine.follow(live, live.durable_cursor)))
        for _ in range(5 * reader.READERS_PER_CHECK)
    ]
    async with asyncio.timeout(DEADLINE_S):
        while not all(each.done() for each in reading):
            await asyncio.sleep(0)
            turn += 1
    await asyncio.gather(*reading)
    assert max(beats.values()) <= reader.READERS_PER_CHECK
