"""What readers see: live, late, slow or resumed, it is the same stream, and it is the history."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from dragoman.core.agent import Run
from dragoman.core.content import AssistantMessage, Thinking
from dragoman.core.events import BlockClosed, LoggedEvent, MessageClosed
from dragoman.core.history import messages_of
from dragoman.core.ids import ROOT, SessionId
from dragoman.core.refusals import SessionNotFound, ShuttingDown
from dragoman.core.stream import START, Cursor, Piece, Record, cursor_of, expand
from dragoman.engine.sessions import log_pages
from dragoman.engine.sessions import reader as reader_module
from dragoman.engine.sessions import replay_buffer as replay_buffer_module
from dragoman.engine.sessions.live_session import LiveSession
from tests.engine.faulty_log import FaultyLog
from tests.engine.world import (
    ANN,
    DEADLINE_S,
    CallTool,
    Script,
    Think,
    World,
    fork,
    is_stop,
    open_session,
    play,
    read,
    read_all,
    reasons,
    reload,
    send,
    texts,
    wait_for_end,
    wait_until_durable,
)


def block_text(records: list[Record], message_id: str, index: int) -> str:
    """The text of a block, put together from its pieces."""
    return "".join(
        each.text
        for each in records
        if isinstance(each, Piece) and (each.message_id, each.index) == (message_id, index)
    )


def check_stream(records: list[Record]) -> None:
    """A stream from the start holds every text twice: piece by piece, and whole."""
    assert [cursor_of(each) for each in records] == sorted({cursor_of(each) for each in records})
    for each in records:
        if isinstance(each, LoggedEvent) and isinstance(each.event, BlockClosed) and each.event.cuts:
            event = each.event
            assert block_text(records, event.message_id, event.index) == event.block.text  # type: ignore[union-attr]  # only texts have cuts


# --- one stream -------------------------------------------------------------------------------------------------------


async def test_live_stream_replayed_stream_and_history_are_one(any_world: World) -> None:
    any_world.echo()
    any_world.scripts |= {
        "below": [["from ", wait_until_durable, "below"]],
        "go": [
            [
                Think("hm "),
                wait_until_durable,
                Think("yes"),
                "so ",
                wait_until_durable,
                "far",
                CallTool("echo", {"value": 1}),
            ],
            ["then", fork("below"), CallTool("echo", {"value": {"a": [1]}})],
            ["done"],
        ],
    }
    engine = await any_world.start()
    live = await open_session(engine)
    reading = asyncio.create_task(read(engine, live))
    await play(engine, live, "go")
    seen = await reading
    check_stream(seen)
    assert await read_all(engine, live) == seen, "a late reader sees the same"
    stored = await any_world.events(live.state.session_id)
    assert expand(stored) == seen, "the log gives the same"
    engine = await any_world.restart(engine)
    assert await read_all(engine, await reload(engine, live)) == seen, "the next server gives the same"
    assert texts(messages_of(stored)) == [
        "go",
        "so far echo()",
        "1",
        "then Agent() echo()",
        '{"a":[1]}',
        "from below",
        "done",
    ]
    thought = messages_of(stored)[1]
    assert isinstance(thought, AssistantMessage)
    assert thought.content[0] == Thinking("hm yes")


@pytest.mark.parametrize("seed", range(12))
async def test_readers_that_come_at_any_moment_and_position_see_the_tail_of_the_same_stream(
    any_world: World, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small ring and small pages, so that readers fall out of memory and back in again and again."""
    monkeypatch.setattr(replay_buffer_module, "MAX_RECORDS", 4)
    monkeypatch.setattr(log_pages, "PAGE_EVENTS", 7)
    monkeypatch.setattr(log_pages, "PAGE_PIECES", 1 + seed % 3)
    monkeypatch.setattr(reader_module, "STEP_RECORDS", 3 + seed % 4)
    chance = random.Random(seed)
    log = FaultyLog(any_world.store)
    log.delay(chance.randrange(4))

    async def now_and_then(run: Run | None = None) -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)

    any_world.echo()
    any_world.scripts["below"] = [
        ["b1 ", now_and_then, wait_until_durable, "b2 ", now_and_then, "b3"],
        ["b4 ", wait_until_durable],
    ]
    steps: Script = [[f"step {place} ", wait_until_durable, now_and_then, "and on"] for place in range(6)]
    any_world.scripts["go"] = [
        [
            "a1 ",
            now_and_then,
            wait_until_durable,
            "a2 ",
            CallTool("echo", {"value": "x"}),
            CallTool("echo", {"value": "y"}),
        ],
        [Think("t1 "), now_and_then, wait_until_durable, Think("t2"), fork("below"), "a3", fork("below")],
        *steps,
    ]
    engine = await any_world.start(log)
    live = await open_session(engine)
    everything: list[Record] = []
    readings: list[asyncio.Task[tuple[Cursor, list[Record]]]] = []

    async def join(after: Cursor) -> tuple[Cursor, list[Record]]:
        """Read both runs, now and then on a new connection."""
        seen: list[Record] = []
        cursor = after
        while sum(map(is_stop, seen)) < 2:
            with engine.follow(live, cursor) as reader:
                while sum(map(is_stop, seen)) < 2 and chance.random() < 0.9:
                    seen += await reader.next()
                    await now_and_then()
                cursor = reader.cursor
        return after, seen

    async def watch() -> None:
        with engine.follow(live, START) as reader:
            while sum(map(is_stop, everything)) < 2:
                for record in await reader.next():
                    everything.append(record)
                    if sum(map(is_stop, everything)) == 0 and chance.random() < 0.4:
                        after = chance.choice([START, cursor_of(record), cursor_of(chance.choice(everything))])
                        readings.append(asyncio.create_task(join(after)))

    async with asyncio.timeout(DEADLINE_S):
        watching = asyncio.create_task(watch())
        await play(engine, live, "go")
        await play(engine, live, "go")
        await watching
        check_stream(everything)
        assert len(readings) > 3, "hardly anybody joined"
        for after, seen in await asyncio.gather(*readings):
            assert seen == [each for each in everything if cursor_of(each) > after]
    assert expand(await any_world.events(live.state.session_id)) == everything


async def test_a_crowd_that_reads_an_old_session_at_once_delays_nobody_and_has_the_log_read_once(world: World) -> None:
    world.scripts["go"] = [[word for place in range(250) for word in (f"{place} ", wait_until_durable)]]
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    await world.stop(engine)
    log = FaultyLog(world.store)
    live = await reload(engine := await world.start(log), live)
    read_before, iterations, iteration_of_step = log.events_read, 0, list[int]()

    async def join() -> list[Record]:
        seen: list[Record] = []
        with engine.follow(live, START) as reader:
            while not any(map(is_stop, seen)):
                seen += await reader.next()
                iteration_of_step.append(iterations)
        return seen

    readings = [asyncio.create_task(join()) for _ in range(20)]
    async with asyncio.timeout(DEADLINE_S):
        while not all(each.done() for each in readings):
            await asyncio.sleep(0)
            iterations += 1
    whole = expand(await world.events(live.state.session_id))
    assert [await each for each in readings] == [whole] * 20
    assert log.events_read - read_before == len(await world.events(live.state.session_id))
    assert max(Counter(iteration_of_step).values()) == 1, "others have their turn after each step"


async def test_a_reader_between_a_blocks_end_and_its_commit_gets_its_pieces(world: World) -> None:
    """The block has left the session's open ones, its end is not in the log yet: its pieces stand nowhere else."""
    log = FaultyLog(world.store)
    gate, end = world.pausing_tool("gate"), world.pausing_tool("end")
    world.scripts["go"] = [
        ["one ", wait_until_durable, "two ", wait_until_durable, gate, "three", CallTool("end")],
        ["four"],
    ]
    engine = await world.start(log)
    live = await open_session(engine)
    await send(engine, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
    log.block_commits = asyncio.Event()
    gate.opened.set()
    async with asyncio.timeout(DEADLINE_S):
        await log.commit_blocked.wait()
    assert live.blocks == {}, "the block is closed, and its end under way"
    with engine.follow(live, START) as reader:
        first = list(await reader.next())
        assert "".join(each.text for each in first if isinstance(each, Piece)) == "one two "
        log.block_commits.set()
        end.opened.set()
        async with asyncio.timeout(DEADLINE_S):
            while not is_stop(first[-1]):
                first += await reader.next()
    check_stream(first)
    assert expand(await world.events(live.state.session_id)) == first


async def test_a_page_that_ends_with_the_stop_of_a_queued_run_loses_no_piece(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queued run ends in the middle of another one's words: no place where a replay may be cut."""
    monkeypatch.setattr(log_pages, "PAGE_EVENTS", 8)
    gate = world.pausing_tool("gate")
    world.scripts["go"] = [["one ", wait_until_durable, gate, "two"], *[["more"]] * 6]
    engine = await world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
    for place in range(3):
        queued = await send(engine, live, f"later {place}", "queue")
        assert await engine.stop_run(live, queued.run_id)
    gate.opened.set()
    await wait_for_end(live)
    assert await read_all(engine, live) == expand(await world.events(live.state.session_id))


@pytest.mark.one_server
async def test_a_reader_of_a_session_that_was_stored_with_open_blocks_sees_them_end(any_world: World) -> None:
    gate = any_world.pausing_tool("gate")
    any_world.scripts["go"] = [["one ", wait_until_durable, "two ", wait_until_durable, gate, "three"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    await gate.entered.wait()
    before = await read_all(engine, live)
    assert "".join(each.text for each in before if isinstance(each, Piece)) == "one two "
    engine = await any_world.restart(engine)
    gate.opened.set()
    live = await reload(engine, live)
    await wait_for_end(live)
    after = await read(engine, live, cursor_of(before[-1]))
    assert before + after == expand(await any_world.events(live.state.session_id))
    assert texts(await any_world.history(live.state.session_id)) == ["go", "one two ", "one two three"]


async def test_a_position_after_the_end_of_the_stream_waits_for_what_comes(world: World) -> None:
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "one")
    reading = asyncio.create_task(read(engine, live, live.durable_cursor))
    await play(engine, live, "two")
    seen = await reading
    assert seen[0].seq > 1  # type: ignore[union-attr]  # an event is first
    assert [each for each in await read_all(engine, live) if cursor_of(each) >= cursor_of(seen[0])] == seen


# --- slow readers, many readers ---------------------------------------------------------------------------------------


def records_in_memory(live: LiveSession) -> list[Record]:
    """All records that the session has for its readers."""
    buffer = live.replay_buffer
    ranges = (buffer.records_from(index) for index in range(buffer.end_index + 1))
    return next(records for records in ranges if records is not None)


async def test_a_reader_that_never_reads_keeps_nothing_in_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_buffer_module, "MAX_RECORDS", 50)
    monkeypatch.setattr(replay_buffer_module, "MAX_BYTES", 10_000)
    kept = 0

    async def measured(run: Run) -> None:
        nonlocal kept
        await wait_until_durable(run)
        kept = max(
            kept,
            len(buffered := records_in_memory(live)),
            sum(len(each.text) for each in buffered if isinstance(each, Piece)) // 200,
        )

    world.scripts["many"] = [[f"{place}", measured] for place in range(300)]
    world.scripts["long"] = [["x" * 4000, measured] for _ in range(40)]
    engine = await world.start()
    world.agents["player"].spec_fields["max_steps"] = 1000  # type: ignore[attr-defined]  # the scripted agent's declaration
    live = await open_session(engine)
    with engine.follow(live, START) as reader:
        await play(engine, live, "many")
        await play(engine, live, "long")
        assert 50 <= kept <= 100 + 8, "the ring holds at most twice its measure"
        seen: list[Record] = []
        async with asyncio.timeout(DEADLINE_S):
            while sum(map(is_stop, seen)) < 2:
                seen += await reader.next()
    assert seen == expand(await world.events(live.state.session_id)), "and it misses nothing when it reads at last"


async def test_silence_gives_heartbeats_and_they_leave_nothing_behind(world: World) -> None:
    engine = await world.start(heartbeat_interval_s=0.001)
    live = await open_session(engine)
    with engine.follow(live, live.durable_cursor) as reader:
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(50):
                assert await reader.next() == ()
        assert len(live.replay_buffer.wakers) <= 1, "a silent reader must not grow"
    assert len(live.replay_buffer.wakers) == 0, "nor must one that left"


async def test_a_heartbeat_comes_before_its_time_is_over(world: World) -> None:
    """Proxies cut what is silent for longer, and clients count on the figure."""
    engine = await world.start(heartbeat_interval_s=9_000)
    live = await open_session(engine)
    with engine.follow(live, live.durable_cursor) as reader:
        waiting = asyncio.create_task(reader.next())
        looks = 0
        while not waiting.done():
            await asyncio.sleep(0)
            reader.on_silence_check()
            looks += 1
            await asyncio.sleep(0)
        assert await waiting == ()
    assert looks * engine.readers.check_interval_s <= 9_000


async def test_readers_that_leave_leave_nothing_behind(world: World) -> None:
    engine = await world.start()
    live = await open_session(engine)
    for _ in range(50):
        task = asyncio.create_task(read(engine, live, live.durable_cursor))
        await asyncio.sleep(0)
        assert live.reference_count == 1
        task.cancel()
        await asyncio.wait([task])
    assert (live.reference_count, len(live.replay_buffer.wakers), len(engine.readers)) == (0, 0, 0)


async def test_a_reader_that_comes_while_the_server_stops_gets_what_is_there_and_ends(world: World) -> None:
    """A client connects again as soon as its stream has ended, to the server that still listens."""
    world.scripts["go"] = ["words"]
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    await engine.drain(0)
    with engine.follow(live, START) as reader:
        async with asyncio.timeout(DEADLINE_S):
            seen = await reader.next()
            with pytest.raises(ShuttingDown):
                await reader.next()
    assert reasons(list(seen)) == ["end_turn"]


async def test_a_deleted_session_ends_its_readers_after_what_they_may_see(any_world: World) -> None:
    gate = any_world.pausing_tool("gate")
    any_world.scripts["go"] = [["one ", wait_until_durable, gate]]
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "go")
    await gate.entered.wait()
    seen: list[Record] = []
    with engine.follow(live, START) as reader:
        async with asyncio.timeout(DEADLINE_S):
            while not seen or not isinstance(seen[-1], Piece):
                seen += await reader.next()
            await engine.delete(live)
            while not is_stop(seen[-1]):
                seen += await reader.next()
            with pytest.raises(SessionNotFound):
                await reader.next()
    check_stream(seen)
    assert reasons(seen) == ["cancelled"]
    assert await any_world.events(live.state.session_id) == []


async def test_a_slow_reader_of_a_session_that_is_deleted_meanwhile_never_skips_anything(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is gone when it answers. What came into memory since then must not follow as if nothing was missing."""
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "hello")
    engine = await world.restart(engine)
    session_id = live.state.session_id
    read_events, asked, answer = world.store.events, asyncio.Event(), asyncio.Event()

    async def slow(session_id: SessionId, after: int, limit: int) -> Sequence[LoggedEvent]:
        asked.set()
        await answer.wait()
        return await read_events(session_id, after, limit)

    async with asyncio.timeout(DEADLINE_S), engine.session(ANN, session_id) as again:
        with engine.follow(again, START) as reader:
            monkeypatch.setattr(world.store, "events", slow)
            first = asyncio.create_task(reader.next())
            await asked.wait()
            await play(engine, again, "hello")
            await world.store.delete(session_id)  # as another server does
            answer.set()
            with pytest.raises(SessionNotFound):
                await first
            monkeypatch.undo()


async def test_words_of_several_loops_do_not_mix(any_world: World) -> None:
    any_world.scripts["below"] = [
        ["b", wait_until_durable, "b", wait_until_durable, "b"],
        ["c", wait_until_durable, "c"],
    ]
    any_world.scripts["go"] = [[fork("below"), fork("below"), fork("below")], ["end"]]
    engine = await any_world.start()
    live = await open_session(engine)
    reading = asyncio.create_task(read(engine, live))
    await play(engine, live, "go")
    seen = await reading
    check_stream(seen)
    closed = [each.event for each in seen if isinstance(each, LoggedEvent) and isinstance(each.event, MessageClosed)]
    loops = {event.loop for event in closed} - {ROOT}
    assert len(loops) == 3
    for loop in loops:
        assert texts(messages_of(await any_world.events(live.state.session_id), loop)) == ["bbb", "cc"]


async def test_every_delta_of_a_burst_is_in_the_history(any_world: World) -> None:
    """Deltas are merged into pieces, none is lost, and no piece is too long."""
    said = [f"{place} " for place in range(3000)]
    any_world.scripts["go"] = [[*said, "€" * 20_000, "\U0001f600" * 5000]]
    engine = await any_world.start(commit_window_s=0.002)
    live = await open_session(engine)
    reading = asyncio.create_task(read(engine, live))
    await play(engine, live, "go")
    pieces = [each for each in await reading if isinstance(each, Piece)]
    assert "".join(each.text for each in pieces) == "".join(said) + "€" * 20_000 + "\U0001f600" * 5000
    assert max(len(each.text) for each in pieces) <= 4096
    assert len(pieces) < 300, "deltas that come together share a piece"


async def test_text_that_cannot_be_sent_is_made_sendable(any_world: World) -> None:
    any_world.scripts["go"] = [["a\ud800b", wait_until_durable, Think("\udfff")]]
    engine = await any_world.start()
    live = await open_session(engine)
    reading = asyncio.create_task(read(engine, live))
    await play(engine, live, "go")
    assert [each.text for each in await reading if isinstance(each, Piece)] == ["a?b", "?"]
