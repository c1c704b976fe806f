"""What agents and tools store for themselves: private values of messages, values kept with the session, oblivion."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from dragoman.core.agent import AgentError, Run, ToolContext
from dragoman.core.content import AssistantMessage, Json, JsonObject, Message, ToolMessage
from dragoman.core.events import CallSettled, MessageAdded, MessageClosed, decode, encode
from dragoman.core.ids import CallId, MessageId, SessionId
from dragoman.core.refusals import StoreUnavailable
from dragoman.engine.sessions.kept_values import KeepLimits
from tests.engine.faulty_log import FaultyLog
from tests.engine.world import (
    ANN,
    DEADLINE_S,
    ScriptedAgent,
    World,
    open_session,
    play,
    reload,
    send,
    user_request,
    wait_for_end,
)


def private_values(messages: Sequence[Message]) -> list[Json]:
    return [each.private for each in messages if isinstance(each, AssistantMessage | ToolMessage) and each.private]


def test_messages_of_older_logs_have_no_private_value_and_new_ones_keep_theirs() -> None:
    closed = MessageClosed(message_id=MessageId("m"))
    assert encode(closed) == b'{"type":"message_closed","message_id":"m"}'
    result = ToolMessage(id=MessageId("r"), call_id=CallId("c"), name="t", content="", private={"a": [1]})
    for event in (
        MessageClosed(message_id=MessageId("m"), private="p"),
        CallSettled(outcome="done", result=result),
        MessageAdded(message=AssistantMessage(id=MessageId("m"), content="", private=[None])),
    ):
        assert decode(encode(event)) == event


async def test_kept_values_are_there_in_later_runs_until_they_are_removed_or_the_session_is_deleted(
    any_world: World,
) -> None:
    seen: list[Mapping[str, bytes]] = []

    async def write(run: Run) -> None:
        await run.keep({"a/1": b"one", "a/2": b"two", "b": b"three"})
        await run.keep({"a/1": None, "a/2": b"changed"})

    async def look(run: Run) -> None:
        seen.append(await run.kept("a/"))
        seen.append(await run.kept(after="a/2", limit=1))

    any_world.scripts |= {"write": [[write, "written"]], "look": [["looking", look]]}
    engine = await any_world.start()
    live, other = await open_session(engine), await open_session(engine)
    await play(engine, live, "write")
    await play(engine, other, "look")
    engine = await any_world.restart(engine)
    await play(engine, await reload(engine, live), "look")
    assert seen == [{}, {}, {"a/2": b"changed"}, {"b": b"three"}]
    await engine.delete(await reload(engine, live))
    assert await any_world.store.kept(live.state.session_id, "", None, 10) == {}


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_kept_values_are_in_one_commit_with_the_events_before_them(any_world: World, moment: str) -> None:
    log = FaultyLog(any_world.store)
    engine = await any_world.start(log)
    live = await open_session(engine)
    attempts = 0

    async def write(run: Run) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            await live.until_durable(live.state.seq)
            log.die_at(log.commits + 1, "before" if moment == "before" else "after")
        run.stage("writing")
        await run.keep({"a": str(attempts).encode()})

    any_world.scripts["go"] = [[write, "done"]]
    await send(engine, live, "go")
    async with asyncio.timeout(DEADLINE_S):
        await log.died.wait()
    found = await any_world.store.kept(live.state.session_id, "", None, 10)
    types = [type(each.event).__name__ for each in await any_world.events(live.state.session_id)]
    assert (found, "StageChanged" in types) == (({}, False) if moment == "before" else ({"a": b"1"}, True))
    await any_world.kill(engine)
    engine = await any_world.start()
    live = await reload(engine, live)
    await wait_for_end(live)
    assert await any_world.store.kept(live.state.session_id, "", None, 10) == {"a": b"2"}


async def test_a_run_that_lost_its_session_keeps_nothing(world: World) -> None:
    refused = asyncio.Event()

    async def write(run: Run) -> None:
        if not refused.is_set():  # the session is loaded again, and its run continued
            session.fail(StoreUnavailable("another server has it"))
            with pytest.raises(StoreUnavailable, match="another server"):
                await run.keep({"a": b""})
            refused.set()

    world.scripts["go"] = [[write, "done"]]
    engine = await world.start()
    session = await open_session(engine)
    async with asyncio.timeout(DEADLINE_S):
        await engine.start_run(session, user_request("go"), by=ANN)
        await refused.wait()
    assert await world.store.kept(session.state.session_id, "", None, 10) == {}


async def test_keys_values_and_sessions_have_limits(world: World) -> None:
    refused: list[str] = []

    async def write(run: Run) -> None:
        for key, value in (("", b""), ("a\0", b""), ("k" * 513, b""), ("\ud800", b""), ("big", b"x" * 11)):
            with pytest.raises(ValueError, match=r"a key must have|may have 10"):
                await run.keep({key: value})
        for _ in range(20):
            await run.keep({"same": b"x" * 10})  # written again and again, it counts once
        await run.keep({"k" * 512: b"x" * 10})
        try:
            await run.keep({"one more": b"x" * 6})
        except AgentError as error:
            refused.append(error.code)
        await run.keep({"small": b"x" * 5})

    world.scripts["go"] = [[write, "done"]]
    engine = await world.start(keep=KeepLimits(value_bytes=10, session_bytes=25))
    live = await open_session(engine)
    await play(engine, live, "go")
    assert (live.state.last_stop, refused) == ("end_turn", ["kept_limit"])
    assert list(await world.store.kept(live.state.session_id, "", None, 10)) == ["k" * 512, "same", "small"]


async def test_values_that_become_durable_later_have_the_same_limit(world: World) -> None:
    refused: list[str] = []

    async def rewrite(run: Run) -> None:
        for _ in range(20):
            await run.keep({"same": b"x" * 100}, durable=False)  # written again and again, it counts once

    async def fill(run: Run) -> None:
        await run.keep({"same": b"x" * 1000})

    async def add(run: Run) -> None:
        for name in ("one", "two"):
            try:
                await run.keep({name: b"x" * 5}, durable=False)
            except AgentError as error:
                refused.append(f"{name}: {error.code}")

    world.scripts |= {"rewrite": [[rewrite, "."]], "fill": [[fill, "."]], "add": [[add, "."]]}
    engine = await world.start(keep=KeepLimits(value_bytes=1000, session_bytes=1000))
    live = await open_session(engine)
    for prompt in ("rewrite", "fill", "add"):
        await play(engine, live, prompt)
        assert live.state.last_stop == "end_turn"
    assert refused == ["two: kept_limit"]


async def test_an_agent_gets_its_private_values_back_with_its_messages(any_world: World) -> None:
    turns: list[Sequence[Message]] = []

    async def tool(arguments: JsonObject) -> str:
        context: ToolContext = echo.contexts[-1]
        context.attach({"receipt": 7})
        await context.keep({"receipt": b"7"})
        return "paid " + str(len(await context.kept()))

    async def first(run: Run) -> None:
        run.emit("thinking")
        run.call("pay", {})
        await run.end_step(private={"signature": "s"})
        turns.append(await run.turn())

    async def second(run: Run) -> None:
        run.emit("done")
        await run.end_step()
        turns.append([each async for each in run.history()][::-1])
        turns.append(await run.context(100))

    echo = any_world.tool("pay", tool)
    any_world.scripts["go"] = [[first, second]]
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    assert live.state.last_stop == "end_turn"
    assert [private_values(turn) for turn in turns] == [[{"signature": "s"}, {"receipt": 7}]] * 3
    assert private_values(await any_world.history(live.state.session_id)) == [{"signature": "s"}, {"receipt": 7}]


async def test_large_private_values_are_stored_outside_the_log_while_there_is_room(any_world: World) -> None:
    turns: list[Sequence[Message]] = []
    large = {"picture": "x" * 1000}

    async def tool(arguments: JsonObject) -> str:
        echo.contexts[-1].attach(large)
        return "seen"

    async def first(run: Run) -> None:
        run.call("look", {})
        await run.end_step(private=large)
        turns.append(await run.turn())

    async def second(run: Run) -> None:
        run.emit("done")
        await run.end_step(private="no room" * 300)
        turns.append([each async for each in run.history()][::-1])
        turns.append(await run.context(100))

    echo = any_world.tool("look", tool)
    any_world.scripts["go"] = [[first, second]]
    engine = await any_world.start(keep=KeepLimits(private_bytes=50, value_bytes=100, session_bytes=3000))
    live = await open_session(engine)
    await play(engine, live, "go")
    assert live.state.last_stop == "end_turn"
    assert [private_values(turn) for turn in turns] == [[large, large]] * 3
    logged = [encode(each.event) for each in await any_world.events(live.state.session_id)]
    assert not any(b"xxx" in each for each in logged)


class ForgettingAgent(ScriptedAgent):
    """Keeps something elsewhere, and forgets it at the second attempt."""

    forgotten: list[SessionId] = []  # noqa: RUF012  # one list for all servers

    async def forget(self, session_id: SessionId) -> None:
        self.forgotten.append(session_id)
        if self.forgotten.count(session_id) == 1:
            raise ConnectionError("the other database is away")


async def test_an_agent_forgets_a_deleted_session_even_if_it_fails_at_first(any_world: World) -> None:
    agent = any_world.agents["player"] = ForgettingAgent(any_world.scripts, any_world.tools)
    agent.forgotten.clear()
    engine = await any_world.start()
    kept, gone = await open_session(engine), await open_session(engine)
    await play(engine, gone, "hello")
    await engine.delete(await reload(engine, gone))
    assert agent.forgotten == [gone.state.session_id]
    assert await any_world.store.load(gone.state.session_id) is None
    for _ in range(2):
        engine = await any_world.restart(engine)
        assert agent.forgotten == [gone.state.session_id] * 2
    assert await any_world.store.load(kept.state.session_id) is not None


async def test_an_agent_that_is_served_again_forgets_what_was_deleted_meanwhile(world: World) -> None:
    agent = ForgettingAgent(world.scripts, world.tools, name="other")
    agent.forgotten.clear()
    world.agents["other"] = agent
    engine = await world.start()
    live = await open_session(engine, agent="other")
    del world.agents["other"]
    engine = await world.restart(engine)
    await engine.delete(await reload(engine, live))
    assert agent.forgotten == []
    world.agents["other"] = agent
    engine = await world.restart(engine)
    assert agent.forgotten == [live.state.session_id]
