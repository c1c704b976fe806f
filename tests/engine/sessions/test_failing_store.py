"""A store that refuses, hangs or lies for a while: nothing acknowledged is lost, all goes on when it is well."""

import asyncio
from collections.abc import Sequence

import pytest

from dragoman.core.content import AssistantMessage, Image
from dragoman.core.events import RunResumed
from dragoman.core.history import messages_of
from dragoman.core.inputs import Choice, Submit, UserInput
from dragoman.core.refusals import StoreUnavailable
from dragoman.core.stream import START, Piece, Record, cursor_of, expand
from dragoman.core.tools import Capabilities
from dragoman.engine.engine import Engine
from dragoman.engine.sessions import registry as sessions_module
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports.log import Append
from tests.engine.faulty_log import FaultyLog, Moment
from tests.engine.world import (
    ANN,
    DEADLINE_S,
    CallTool,
    World,
    answer_request,
    ask_user,
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


@pytest.fixture(autouse=True)
def short_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that failed are loaded again at once."""
    monkeypatch.setattr(sessions_module, "RELOAD_DELAY_S", 0.001)


async def wait_until_idle(engine: Engine, live: LiveSession) -> LiveSession:
    """The session, once no run of it is active any more, through however many failures."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                live = await reload(engine, live)
                await wait_for_end(live)
                return live
            except StoreUnavailable:
                await asyncio.sleep(0)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_commit_that_fails_at_any_time_takes_nothing_back(world: World, moment: Moment) -> None:
    world.echo()
    world.scripts["go"] = [
        ["one ", wait_until_durable, "two ", wait_until_durable, CallTool("echo", {"value": 1})],
        ["three ", wait_until_durable, "four"],
    ]
    for commit in range(2, 12):
        log = FaultyLog(world.store)
        log.fail_at(commit, moment=moment)
        engine = await world.start(log)
        live = await open_session(engine)
        seen: list[Record] = []

        async def follow(engine: Engine, live: LiveSession, seen: list[Record]) -> None:
            with engine.follow(live, START) as reader:
                while True:
                    seen += await reader.next()

        following = asyncio.create_task(follow(engine, live, seen))
        acknowledged = True
        try:
            await send(engine, live, "go")
        except StoreUnavailable:
            acknowledged = False
        live = await wait_until_idle(engine, live)
        following.cancel()
        await asyncio.wait([following])
        events = await world.events(live.state.session_id)
        assert expand(events)[: len(seen)] == seen, f"commit {commit}: what was seen was taken back"
        assert acknowledged or moment == "after" or len(events) == 1, f"commit {commit}: refused, and yet there"
        if acknowledged:
            assert reasons(events) == ["end_turn"], f"commit {commit}: the run has no end"
        whole = [message for message in messages_of(events) if not is_cut(message)]
        assert texts(whole) in ([], ["go", "one two  echo()", "1", "three four"], *_with_interruption())
        await world.stop(engine)


def is_cut(message: object) -> bool:
    return isinstance(message, AssistantMessage) and message.status == "cut"


def _with_interruption() -> list[list[str]]:
    return [["go", "one two  echo()", "Tool call interrupted: the server restarted", "three four"]]


async def test_a_run_whose_commit_failed_continues_although_nobody_asks_for_it(any_world: World) -> None:
    log = FaultyLog(any_world.store)
    gate = any_world.pausing_tool("gate")
    any_world.scripts["go"] = [["one ", wait_until_durable, gate, "two"]]
    engine = await any_world.start(log)
    live = await open_session(engine)
    await send(engine, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
    log.fail_at(log.commits + 1, count=5)
    gate.opened.set()
    async with asyncio.timeout(DEADLINE_S):
        while not reasons(await any_world.events(live.state.session_id)):  # noqa: ASYNC110  # nobody asks the engine
            await asyncio.sleep(0.001)
    events = await any_world.events(live.state.session_id)
    assert texts(messages_of(events)) == ["go", "one ", "one two"]
    assert sum(isinstance(each.event, RunResumed) for each in events) >= 1


async def test_readers_are_notified_and_can_continue_where_they_were(any_world: World) -> None:
    log = FaultyLog(any_world.store)
    gate = any_world.pausing_tool("gate")
    any_world.scripts["go"] = [["one ", wait_until_durable, gate, "two"]]
    engine = await any_world.start(log)
    live = await open_session(engine)
    seen: list[Record] = []
    with engine.follow(live, START) as reader:
        await send(engine, live, "go")
        async with asyncio.timeout(DEADLINE_S):
            await gate.entered.wait()
            while not seen or not isinstance(seen[-1], Piece):
                seen += await reader.next()
            log.fail_at(log.commits + 1)
            gate.opened.set()
            with pytest.raises(StoreUnavailable):
                await reader.next()
    live = await wait_until_idle(engine, live)
    seen += await read(engine, live, cursor_of(seen[-1]))
    assert seen == expand(await any_world.events(live.state.session_id))


async def test_one_sessions_failure_leaves_others_alone(any_world: World) -> None:
    """An append that is refused, because another server has the session, touches no other of its commit."""

    class Claimed(FaultyLog):
        async def commit(self, batch: Sequence[Append]) -> Sequence[bool]:
            for append in batch:
                if append.session_id == victim and append.events:
                    append.after += 1
            return await super().commit(batch)

    victim = None
    engine = await any_world.start(Claimed(any_world.store))
    sessions = [await open_session(engine) for _ in range(10)]
    victim = sessions[3].state.session_id
    outcomes = await asyncio.gather(*(play(engine, live, "hello") for live in sessions), return_exceptions=True)
    assert [isinstance(each, StoreUnavailable) for each in outcomes] == [place == 3 for place in range(10)]
    for place, live in enumerate(sessions):
        said = texts(await any_world.history(live.state.session_id))
        assert said == ([] if place == 3 else ["hello", "You said: hello"])
    victim = None
    live = await wait_until_idle(engine, sessions[3])
    await play(engine, live, "again")


async def test_answers_that_were_not_stored_can_be_given_again(any_world: World) -> None:
    any_world.scripts["go"] = [[ask_user("a", "b")], ["thanks"]]
    log = FaultyLog(any_world.store)
    engine = await any_world.start(log)
    live = await open_session(engine)
    await play(engine, live, "go")
    (call,) = live.state.waiting_calls()
    answer = answer_request(Choice(call_id=call.call.call_id, selections={"0": [0]}))
    log.fail_at(log.commits + 1)
    with pytest.raises(StoreUnavailable):
        await send(engine, live, answer)
    live = await wait_until_idle(engine, live)
    assert live.state.status() == "waiting"
    await play(engine, live, answer)
    assert texts(await any_world.history(live.state.session_id))[-1] == "thanks"


async def test_a_session_that_could_not_be_made_is_not_there(any_world: World) -> None:
    log = FaultyLog(any_world.store)
    engine = await any_world.start(log)
    log.fail_at(1)
    with pytest.raises(StoreUnavailable):
        await open_session(engine)
    assert await any_world.store.page(ANN, None, 10) == []
    await play(engine, await open_session(engine), "hello")


async def test_a_deletion_that_failed_leaves_no_pictures_and_can_be_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `kill -9` in its middle: pictures of a session that is gone would be nobody's, and there for ever."""
    world.scripted_agent.spec_fields["capabilities"] = Capabilities(image_data=True)
    log = FaultyLog(world.store)
    engine = await world.start(log)
    live = await open_session(engine)
    picture = UserInput(content=(Image("data:image/png;base64," + "A" * 50_000),))
    await engine.start_run(live, Submit(protocol="test", messages=(picture,)), by=ANN)
    await wait_for_end(live)
    assert await world.blobs.names()

    async def refused(*_: object) -> None:
        raise StoreUnavailable("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(log, "delete", refused)
        with pytest.raises(StoreUnavailable):
            await engine.delete(live)
    assert await world.blobs.names() == []
    again = await reload(engine, live)
    await engine.delete(again)
    assert await engine.page(ANN, None, 10) == []


async def test_a_slow_store_delays_its_sessions_and_loses_nothing(any_world: World) -> None:
    """While a commit hangs, words gather; nobody sees what is not durable."""
    log = FaultyLog(any_world.store)
    any_world.scripts["go"] = [[*(f"{place} " for place in range(500)), "end"]]
    engine = await any_world.start(log)
    live = await open_session(engine)
    log.block_commits = asyncio.Event()
    submitting = asyncio.create_task(send(engine, live, "go"))
    async with asyncio.timeout(DEADLINE_S):
        await log.commit_blocked.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    assert not submitting.done(), "nothing is acknowledged"
    assert len(await read_all(engine, live)) == 1, "nothing is shown"
    log.block_commits.set()
    await submitting
    await wait_for_end(live)
    assert texts(await any_world.history(live.state.session_id))[-1].endswith("498 499 end")


async def test_an_agent_that_waits_when_it_is_asked_keeps_little_in_memory(any_world: World) -> None:
    """A model faster than the disk: while a commit hangs, so does the agent."""
    log = FaultyLog(any_world.store)
    gate = any_world.pausing_tool("gate")
    any_world.scripts["go"] = [[gate, *["x" * 1000] * 2000]]
    engine = await any_world.start(log)
    live = await open_session(engine)
    await send(engine, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()
    log.block_commits = asyncio.Event()
    gate.opened.set()
    async with asyncio.timeout(DEADLINE_S):
        await log.commit_blocked.wait()
    for _ in range(500):
        await asyncio.sleep(0)
    gathered = sum(len(text) for block in live.blocks.values() for text in block.pending_deltas)
    gathered += sum(len(piece.text) for append in log.blocked_batch for piece in append.pieces)
    assert 0 < gathered <= 100_000, "it was asked to wait, and did"
    log.block_commits.set()
    await wait_for_end(live)
    assert len(texts(await any_world.history(live.state.session_id))[-1]) == 2_000_000
