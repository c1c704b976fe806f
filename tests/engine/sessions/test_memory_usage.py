"""What stays in memory and what is read again: long sessions cost no more than new ones."""

import asyncio
import gc
import weakref
from collections.abc import Sequence

import pytest

from dragoman.core.agent import Run
from dragoman.core.content import AssistantMessage, Message, Text, ToolMessage, UserMessage
from dragoman.core.events import (
    CompactionMade,
    Event,
    LoggedEvent,
    MessageAdded,
    SessionCreated,
    SessionSettings,
    encode,
)
from dragoman.core.history import Assembler, messages_of
from dragoman.core.ids import MessageId, SessionId
from dragoman.core.inputs import Choice
from dragoman.core.refusals import SessionNotFound, ShuttingDown
from dragoman.core.session import encode_head, fold, initial_state
from dragoman.engine.engine import Engine
from dragoman.engine.sessions import history as past_module
from dragoman.engine.sessions import recent_messages as recent_messages_module
from dragoman.engine.sessions import registry as sessions_module
from dragoman.engine.sessions.live_session import LiveSession, to_live_session
from dragoman.ports.log import Append, SessionStore, Snapshot
from tests.engine.faulty_log import FaultyLog
from tests.engine.world import (
    ANN,
    DEADLINE_S,
    CallTool,
    World,
    answer_request,
    ask_user,
    fork,
    open_session,
    play,
    reload,
    send,
    texts,
    wait_for_end,
    wait_until_durable,
)


async def long_session(world: World, messages: int) -> SessionId:
    """A stored session with so many messages, that nobody has in memory."""
    session_id = SessionId(world.ids.new())
    events: list[Event] = [SessionCreated(agent="player", settings=SessionSettings(tools="all"), protocol="test")]
    for place in range(messages):
        message_id = MessageId(world.ids.new())
        message: Message = (
            AssistantMessage(id=message_id, content=(Text(f"answer {place}"),))
            if place % 2
            else UserMessage(id=message_id, content=f"question {place}")
        )
        events.append(MessageAdded(message=message))
    logged = [LoggedEvent(seq, world.clock.now(), None, event) for seq, event in enumerate(events, 1)]
    state = fold(initial_state(session_id, ANN, logged[0]), logged[1:])
    append = Append(
        session_id=session_id,
        owner=ANN,
        epoch=await world.store.claim_epoch(),
        after=0,
        events=logged,
        payloads=[encode(event) for event in events],
        head=encode_head(state, with_settings=True),
        is_new=True,
    )
    assert await world.store.commit([append]) == [True]
    return session_id


async def found(engine: Engine, session_id: SessionId) -> LiveSession:
    async with asyncio.timeout(DEADLINE_S):
        return to_live_session(await engine.find_session(ANN, session_id))


# --- long sessions ----------------------------------------------------------------------------------------------------


async def test_a_run_of_a_session_with_ten_thousand_messages_reads_no_more_than_its_tail(any_world: World) -> None:
    session_id = await long_session(any_world, 10_000)
    read: dict[str, int] = {}

    async def look_back(run: Run) -> None:
        before = log.events_read
        async for message in run.history():
            read["the newest of the history"] = log.events_read - before
            if message.content == "question 9990":
                break
        read["the history as far as it goes"] = log.events_read - before

    log = FaultyLog(any_world.store)
    any_world.echo()
    any_world.scripts["go"] = [[CallTool("echo", {"value": 1})], ["said"], [look_back]]
    engine = await any_world.start(log)
    live = await found(engine, session_id)
    assert log.events_read == 0, "to bring it into memory takes its state alone"
    any_world.scripted_agent.context_messages = 20
    await play(engine, live, "go")
    assert len(any_world.scripted_agent.contexts[0]) == 20
    assert log.events_read <= 4 * past_module.BACK_PAGE, "a page for each time that it looks back"
    assert read["the history as far as it goes"] <= past_module.BACK_PAGE
    engine = await any_world.restart(engine)
    log = FaultyLog(any_world.store)
    await any_world.stop(engine)
    engine = await any_world.start(log)
    live = await found(engine, session_id)
    for _ in range(20):
        await play(engine, live, "hello")
    before = log.events_read
    await play(engine, live, "hello")
    assert log.events_read == before, "what it needs is in memory"


async def test_a_run_of_a_long_session_is_as_quick_as_one_of_a_new_one(any_world: World) -> None:
    """By the number of reads, which do not depend on the machine."""
    reads: list[int] = []
    for messages in (10, 10_000):
        session_id = await long_session(any_world, messages)
        log = FaultyLog(any_world.store)
        engine = await any_world.start(log)
        live = await found(engine, session_id)
        any_world.scripted_agent.context_messages = 4
        await play(engine, live, "hello")
        reads.append(log.reads)
        await any_world.stop(engine)
    assert reads[0] == reads[1]


# --- in and out of memory ---------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory of few sessions."""
    monkeypatch.setattr(sessions_module, "MIN_RECENT_SESSIONS", 1)


@pytest.mark.one_server
async def test_sessions_that_nobody_uses_leave_the_memory_and_come_back_as_they_were(any_world: World) -> None:
    any_world.scripts["go"] = [[ask_user("a", "b")], ["thanks"]]
    engine = await any_world.start(sessions_in_memory=5)
    ids: list[SessionId] = []
    gone: list[weakref.ref[LiveSession]] = []
    for _ in range(40):
        live = await open_session(engine)
        await play(engine, live, "go")
        ids.append(live.state.session_id)
        gone.append(weakref.ref(live))
        del live
        assert engine.sessions_in_memory <= 6
    gc.collect()
    assert sum(each() is not None for each in gone) <= 6, "somebody still holds them"
    for session_id in ids:
        live = await found(engine, session_id)
        (call,) = live.state.waiting_calls()
        await play(engine, live, answer_request(Choice(call_id=call.call.call_id, selections={"0": [0]})))
        assert texts(await any_world.history(session_id))[-1] == "thanks"
        del live
    assert engine.sessions_in_memory <= 6


@pytest.mark.one_server
async def test_sessions_that_are_used_stay_in_memory(any_world: World) -> None:
    gate = any_world.pausing_tool("gate")
    any_world.scripts["go"] = [["one ", wait_until_durable, gate, "two"]]
    engine = await any_world.start(sessions_in_memory=3)
    running, watched, held = [await open_session(engine) for _ in range(3)]
    await send(engine, running, "go")
    async with engine.session(ANN, held.state.session_id) as same:
        assert same is held
        with engine.follow(watched, watched.durable_cursor):
            for _ in range(30):
                await play(engine, await open_session(engine), "hello")
            for live in (running, watched, held):
                assert await found(engine, live.state.session_id) is live
    gate.opened.set()
    await wait_for_end(running)
    for _ in range(30):
        await open_session(engine)
    assert await found(engine, running.state.session_id) is not running


@pytest.mark.one_server
async def test_those_who_ask_for_a_session_at_the_same_moment_get_the_same(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "hello")
    await any_world.stop(engine)
    log = FaultyLog(any_world.store)
    log.delay(3)
    engine = await any_world.start(log)
    before = log.reads
    async with asyncio.timeout(DEADLINE_S):
        same = await asyncio.gather(*(found(engine, live.state.session_id) for _ in range(20)))
    assert len({id(each) for each in same}) == 1
    assert log.reads == before + 1


async def test_who_gives_up_asking_for_a_session_does_not_take_it_from_others(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    await any_world.stop(engine)
    log = FaultyLog(any_world.store)
    log.delay(5)
    engine = await any_world.start(log)
    first = asyncio.create_task(found(engine, live.state.session_id))
    second = asyncio.create_task(found(engine, live.state.session_id))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).state.session_id == live.state.session_id


class BlockingLog(FaultyLog):
    """A store whose deletions, or loads, last as long as the test wants. A load sees what was there when it began."""

    def __init__(self, store: SessionStore, what: str) -> None:
        super().__init__(store)
        self._what = what
        self.started = asyncio.Event()
        self.may_continue = asyncio.Event()

    async def _wait(self, what: str) -> None:
        if what == self._what:
            self.started.set()
            await self.may_continue.wait()

    async def delete(self, session_id: SessionId, agents: Sequence[str] = ()) -> None:
        await self._wait("delete")
        await super().delete(session_id, agents)

    async def load(self, session_id: SessionId) -> Snapshot | None:
        found = await super().load(session_id)
        await self._wait("load")
        return found


async def test_a_session_that_is_being_deleted_does_not_come_back_however_many_others_come(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be loaded from what the deletion takes away, and be there without a log."""
    monkeypatch.setattr(sessions_module, "MIN_RECENT_SESSIONS", 0)
    store = BlockingLog(world.store, "delete")
    engine = await world.start(store, sessions_in_memory=1)
    live = await open_session(engine)
    deleting = asyncio.create_task(engine.delete(live))
    async with asyncio.timeout(DEADLINE_S):
        await store.started.wait()
        for _ in range(3):
            await open_session(engine)
        with pytest.raises(SessionNotFound):
            await engine.find_session(ANN, live.state.session_id)
        store.may_continue.set()
        await deleting
    with pytest.raises(SessionNotFound):
        await engine.find_session(ANN, live.state.session_id)


async def test_who_waits_for_a_session_when_the_server_stops_gets_an_error(world: World) -> None:
    session_id = await long_session(world, 4)
    store = BlockingLog(world.store, "load")
    engine = await world.start(store)
    asking = asyncio.create_task(engine.find_session(ANN, session_id))
    async with asyncio.timeout(DEADLINE_S):
        await store.started.wait()
        await world.stop(engine)
        with pytest.raises(ShuttingDown):
            await asking


async def test_a_name_that_is_none_is_no_session(any_world: World) -> None:
    engine = await any_world.start()
    for name in ("", "x", "../..", "0" * 36, "00000000-0000-0000-0000-000000000000", "a" * 10_000):
        with pytest.raises(SessionNotFound):
            await engine.find_session(ANN, name)


# --- looking back -----------------------------------------------------------------------------------------------------


async def mixed_session(world: World, engine: Engine) -> LiveSession:
    """A session with sub-agents side by side, tools, a stop, and a crash in a step."""
    world.echo()
    world.scripts |= {
        "below": [
            ["deep ", wait_until_durable, CallTool("echo", {"value": 1})],
            ["deeper ", wait_until_durable],
            ["up"],
        ],
        "go": [["top ", fork("below"), fork("below"), CallTool("echo", {"value": 2})], ["end"]],
        "call": [[CallTool("echo", {"value": place}) for place in range(5)], ["called"]],
    }
    gate = world.pausing_tool("gate")
    world.scripts["cut"] = [["one ", wait_until_durable, gate, "two"]]
    live = await open_session(engine)
    for script in ("go", "hello", "call"):
        await play(engine, live, script)
    await send(engine, live, "cut")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
        await engine.stop_run(live)
    return live


@pytest.mark.parametrize("page", [1, 2, 3, 5, 8, 13, 400])
async def test_what_is_read_back_page_by_page_is_the_history(
    any_world: World, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_module, "BACK_PAGE", page)
    engine = await any_world.start()
    live = await mixed_session(any_world, engine)
    events = await any_world.events(live.state.session_id)
    history = messages_of(events)
    engine = await any_world.restart(engine)
    live = await reload(engine, live)
    placed = [each async for each in engine.history.messages_newest_first(live)]
    assert [each.message for each in reversed(placed)] == all_messages(events), "all loops', in the order of their ends"
    assert [each.seq for each in placed] == sorted((each.seq for each in placed), reverse=True)
    assert [each async for each in engine.history.root_messages_newest_first(live)] == history[::-1]
    for most in (0, 1, 2, 5, len(history), 1000):
        context = [each.message for each in await engine.history.context(live, most)]
        assert context == history[len(history) - len(context) :]
        assert len(context) >= min(most, len(history)), "more only where the turn that is going on is longer"


def all_messages(events: Sequence[LoggedEvent]) -> list[Message]:
    """All messages of all loops, those without a block too."""
    assembler = Assembler()
    return [message for logged in events if (message := assembler.feed(logged)) is not None]


# --- compaction -------------------------------------------------------------------------------------------------------


async def compacting_session(world: World, keep: str) -> tuple[Engine, LiveSession]:
    """A session whose agent sums up everything before the newest message with that text."""
    world.echo()

    async def sum_up(run: Run) -> None:
        messages = await run.context(100)
        kept = next(message for message in reversed(messages) if texts([message])[0].startswith(keep))
        await run.compact(f"up to {keep}", kept.id, tokens_before=10, tokens_after=1)

    world.scripts |= {
        "call": [["asking ", CallTool("echo", {"value": "x"}), CallTool("echo", {"value": "y"})], ["answered"]],
        "sum up": [[sum_up, "summed up"], ["and done"]],
    }
    engine = await world.start()
    return engine, await open_session(engine)


@pytest.mark.parametrize("keep", ["call", "asking", "x", "y", "answered", "sum up"])
async def test_a_compaction_keeps_the_history_and_every_pair(any_world: World, keep: str) -> None:
    engine, live = await compacting_session(any_world, keep)
    await play(engine, live, "hello")
    await play(engine, live, "call")
    await play(engine, live, "sum up")
    full = ["hello", "You said: hello", "call", "asking  echo() echo()", "x", "y", "answered", "sum up"]
    history = await any_world.history(live.state.session_id)
    assert texts(history) == [*full, "summed up", "and done"], "nothing is lost"
    any_world.scripts["look"] = [["seen"]]
    for _ in range(2):
        engine = await any_world.restart(engine)
        live = await reload(engine, live)
        await play(engine, live, "look")
        context = any_world.scripted_agent.contexts[-1]
        assert any(text.startswith(keep) for text in texts(context)), "what was to be kept is there"
        assert texts(context)[0] != "hello"
        calls = {call.call_id for each in context if isinstance(each, AssistantMessage) for call in each.calls()}
        assert calls == {each.call_id for each in context if isinstance(each, ToolMessage)}, "a pair was torn apart"
    compacted = live.state.compaction
    assert compacted is not None
    assert compacted.summary == f"up to {keep}"


async def test_a_second_compaction_continues_from_the_first(any_world: World) -> None:
    engine, live = await compacting_session(any_world, "sum up")
    for _ in range(3):
        await play(engine, live, "call")
        await play(engine, live, "sum up")
    assert texts(any_world.scripted_agent.contexts[-1])[:2] == ["sum up", "summed up"]
    assert len(await any_world.history(live.state.session_id)) == 3 * 8
    events = [each.event for each in await any_world.events(live.state.session_id)]
    made = [event for event in events if isinstance(event, CompactionMade)]
    assert [event.archived_count for event in made] == [5, 8, 8], "each counts what is new"


async def test_a_compaction_never_goes_back(any_world: World) -> None:
    """A message that was summed up already is in no context, and cannot be kept any more."""
    engine, live = await compacting_session(any_world, "sum up")
    await play(engine, live, "call")
    await play(engine, live, "sum up")
    archived = (await any_world.history(live.state.session_id))[0]
    refused: list[str] = []

    async def go_back(run: Run) -> None:
        for message_id in (archived.id, MessageId(any_world.ids.new())):
            with pytest.raises(ValueError, match=str(message_id)):
                await run.compact("back", message_id, tokens_before=1, tokens_after=1)
            refused.append(message_id)

    any_world.scripts["back"] = [[go_back, "went on"]]
    before = live.state.compaction
    await play(engine, live, "back")
    assert (live.state.compaction, len(refused), live.state.last_stop) == (before, 2, "end_turn")


async def test_a_message_that_arrives_during_a_compaction_is_in_the_next_context(any_world: World) -> None:
    gate = any_world.pausing_tool("gate")
    engine, live = await compacting_session(any_world, "sum up")
    any_world.scripts["sum up"] = [[gate, *any_world.scripts["sum up"][0], wait_until_durable]]
    await play(engine, live, "call")
    await send(engine, live, "sum up")
    await send(engine, live, "hello", "queue")
    gate.opened.set()
    await wait_for_end(live)
    assert texts(any_world.scripted_agent.contexts[-1]) == ["sum up", "summed up", "hello"]


async def test_of_long_messages_fewer_stay_in_memory(any_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_messages_module, "MAX_BYTES", 10_000)
    engine = await any_world.start()
    live = await open_session(engine)
    for number in range(20):
        await play(engine, live, f"{number} " + "x" * 3000)
    assert 1 <= len(live.recent_messages.messages) <= 4
    assert len(await engine.history.messages(live)) == 40
    any_world.scripted_agent.contexts.clear()
    any_world.scripts["look"] = [["seen"]]
    await play(engine, live, "look")
    assert len(any_world.scripted_agent.contexts[-1]) == 41, "the rest is read from the log"
