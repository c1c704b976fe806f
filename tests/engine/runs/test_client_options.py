"""What clients choose themselves: a session's id or name, a run's id, tools and settings for one run, trust."""

import asyncio
from contextlib import suppress

import pytest

from dragoman.core.events import RunStarted
from dragoman.core.ids import SessionId, UserId
from dragoman.core.inputs import Create, Decision, Result, Submit, UserInput
from dragoman.core.refusals import IdempotencyKeyReused, IdTaken, LimitExceeded, SessionBusy, SessionNotFound
from dragoman.core.tools import ToolSpec
from dragoman.engine.services.idempotency import IdempotencyKey
from tests.engine.world import (
    ANN,
    DEADLINE_S,
    CallTool,
    PauseGate,
    World,
    answer_request,
    open_session,
    play,
    reload,
    send,
    texts,
    user_request,
    wait_for_end,
    waiting_tools,
)

BOB = UserId("bob")
CHOSEN = SessionId("11111111-2222-4333-8444-555555555555")
DRAW = ToolSpec(name="draw", description="Draws.", parameters={"type": "object"})


# --- ids and names ----------------------------------------------------------------------------------------------------


async def test_a_session_has_the_id_that_its_client_chose(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine, session_id=CHOSEN)
    assert live.state.session_id == CHOSEN
    engine = await any_world.restart(engine)
    assert (await engine.find_session(ANN, CHOSEN.upper())).state.session_id == CHOSEN
    with pytest.raises(IdTaken):
        await open_session(engine, session_id=CHOSEN)
    with pytest.raises(IdTaken):
        await engine.create(BOB, Create(protocol="test", agent="player", session_id=CHOSEN))
    assert await engine.exists_for_other_owner(BOB, CHOSEN)
    assert not await engine.exists_for_other_owner(ANN, CHOSEN)


async def test_session_names_are_separate_for_each_owner(any_world: World) -> None:
    engine = await any_world.start()
    mine = await open_session(engine, name="holiday")
    theirs = await engine.create(BOB, Create(protocol="test", agent="player", name="holiday"))
    assert mine.state.session_id != theirs.state.session_id
    assert (await engine.find_session(ANN, "holiday")) is mine
    assert (await engine.find_session(BOB, "holiday")) is theirs
    with pytest.raises(IdTaken):
        await open_session(engine, name="holiday")
    with pytest.raises(SessionNotFound):
        await engine.find_session(ANN, "work")


async def test_another_owners_id_is_only_a_name(any_world: World) -> None:
    engine = await any_world.start()
    await open_session(engine, session_id=CHOSEN)
    with pytest.raises(SessionNotFound):
        await engine.find_session(BOB, CHOSEN)
    named = await engine.create(BOB, Create(protocol="test", agent="player", name=CHOSEN))
    assert (await engine.find_session(BOB, CHOSEN)) is named
    assert (await engine.find_session(ANN, CHOSEN)).state.session_id == CHOSEN


@pytest.mark.parametrize("chosen", [{"session_id": CHOSEN}, {"name": "holiday"}])
async def test_one_of_many_simultaneous_requests_for_an_id_gets_it(any_world: World, chosen: dict[str, str]) -> None:
    engine = await any_world.start()
    async with asyncio.timeout(DEADLINE_S):
        made = await asyncio.gather(*(open_session(engine, **chosen) for _ in range(10)), return_exceptions=True)
    refused = [each for each in made if isinstance(each, IdTaken)]
    assert len(refused) == 9
    found = await engine.find_session(ANN, *chosen.values())
    assert [each for each in made if each not in refused] == [found]
    await play(engine, found, "hello")


async def test_simultaneous_creations_and_messages_in_one_session_all_succeed(any_world: World) -> None:
    engine = await any_world.start()

    async def speak(text: str) -> None:
        while True:
            try:
                async with engine.session(ANN, CHOSEN) as live:
                    submitted = await engine.start_run(live, user_request(text), by=ANN, busy="queue")
                    await live.until_durable(submitted.seq)
                    return
            except SessionNotFound:
                with suppress(IdTaken):
                    await open_session(engine, session_id=CHOSEN)

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(speak(f"hello {place}") for place in range(10)))
    live = await engine.find_session(ANN, CHOSEN)
    await wait_for_end(live)
    heard = texts(await engine.history.messages(live))
    assert {f"hello {place}" for place in range(10)} <= set(heard)


async def test_an_id_may_be_used_again_after_its_session_is_gone(any_world: World) -> None:
    engine = await any_world.start()
    await play(engine, await open_session(engine, session_id=CHOSEN), "old")
    await engine.delete(await engine.find_session(ANN, CHOSEN))
    live = await engine.create(BOB, Create(protocol="test", agent="player", session_id=CHOSEN, tools="all"))
    assert texts(await engine.history.messages(live)) == []


# --- runs -------------------------------------------------------------------------------------------------------------


async def test_a_runs_key_lasts_as_long_as_its_session(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    key = IdempotencyKey("protocol:run-1", "f", lasts=True)
    async with engine.reserve_key(ANN, key) as earlier:
        assert earlier is None
        submitted = await engine.start_run(live, user_request("hello"), by=ANN, idempotency_key=key)
    await wait_for_end(live)
    any_world.clock.move(90 * 24 * 3600)
    await play(engine, live, user_request("and again"))
    engine = await any_world.restart(engine)
    found = await engine.find_idempotency_record(ANN, key.name)
    assert found is not None
    assert (found.session_id, found.run_id) == (live.state.session_id, submitted.run_id)
    assert await engine.find_idempotency_record(BOB, key.name) is None
    with pytest.raises(IdempotencyKeyReused):
        async with engine.reserve_key(ANN, IdempotencyKey(key.name, "another", lasts=True)):
            pass
    await engine.delete(await reload(engine, live))
    assert await engine.find_idempotency_record(ANN, key.name) is None


async def test_tools_of_a_run_apply_to_that_run_alone(any_world: World) -> None:
    any_world.scripts["draw"] = [[CallTool("draw")]]
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, user_request("draw", client_tools=(DRAW,)))
    assert waiting_tools(live.state) == ["draw"], "the application runs it"
    await play(engine, live, user_request("draw"))
    assert waiting_tools(live.state) == []
    assert texts(await engine.history.messages(live))[-1] == "Tool not found: draw"


async def test_a_tool_that_the_agent_has_itself_is_left_out_and_reported(any_world: World) -> None:
    any_world.scripts["draw"] = [[CallTool("draw", {"value": 1})], ["drawn"]]
    any_world.echo("draw")
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, user_request("draw", client_tools=(DRAW,)))
    (started,) = [
        each.event for each in await any_world.events(live.state.session_id) if isinstance(each.event, RunStarted)
    ]
    assert (started.client_tools, started.dropped_tools) == ((), ("draw",))
    assert texts(await engine.history.messages(live))[-1] == "drawn"


async def test_a_wrong_tool_of_a_run_is_refused_and_changes_nothing(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    seq = live.state.seq
    with pytest.raises(LimitExceeded):
        await send(engine, live, user_request("hello", client_tools=(DRAW,) * 129))
    assert live.state.seq == seq


async def test_parameters_of_a_run_reach_the_agent(any_world: World) -> None:
    seen: list[object] = []

    async def look(run: object) -> None:
        seen.append(run.parameters)  # type: ignore[attr-defined]  # it is a run

    any_world.scripts["look"] = [[look, "seen"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, user_request("look", parameters={"temperature": 0.5}))
    await play(engine, live, user_request("look"))
    assert seen == [{"temperature": 0.5}, {}]


async def test_a_run_that_continues_after_answers_keeps_what_its_application_does_not_name(any_world: World) -> None:
    seen: list[object] = []

    async def look(run: object) -> None:
        seen.append(run.parameters)  # type: ignore[attr-defined]  # it is a run

    any_world.scripts["draw"] = [[CallTool("draw")], [look, CallTool("draw")], [look, CallTool("draw")], [look, "done"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, user_request("draw", client_tools=(DRAW,), parameters={"seed": 1, "temperature": 0.5}))
    engine = await any_world.restart(engine)
    live = await reload(engine, live)
    for fields, waiting in (
        ({"parameters": {"seed": 2}}, ["draw"]),
        ({}, ["draw"]),
        ({"client_tools": ()}, []),
    ):
        call_id = next(live.state.waiting_calls()).call.call_id
        await play(engine, live, answer_request(Result(call_id=call_id, content="drawn"), **fields))
        assert waiting_tools(live.state) == waiting
    assert seen == [{"seed": 2, "temperature": 0.5}] * 3
    assert texts(await engine.history.messages(live))[-1] == "done"


async def test_a_queued_run_keeps_its_tools_and_settings(any_world: World) -> None:
    gate = PauseGate()
    any_world.scripts |= {"wait": [[gate, "done"]], "draw": [[CallTool("draw")]]}
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "wait")
    await send(engine, live, user_request("draw", client_tools=(DRAW,), parameters={"seed": 1}), "queue")
    engine = await any_world.restart(engine)
    gate.opened.set()
    live = await reload(engine, live)
    await wait_for_end(live)
    assert waiting_tools(live.state) == ["draw"]


async def test_at_most_a_hundred_runs_are_queued(any_world: World) -> None:
    gate = PauseGate()
    any_world.scripts["wait"] = [[gate, "done"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "wait")
    for _ in range(100):
        await engine.start_run(live, user_request("hello"), by=ANN, busy="queue")
    with pytest.raises(SessionBusy):
        await engine.start_run(live, user_request("hello"), by=ANN, busy="queue")
    gate.opened.set()
    await engine.stop_run(live)


# --- messages and trust -----------------------------------------------------------------------------------------------


async def test_messages_are_known_by_our_ids_and_by_the_clients(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    request = Submit(protocol="test", messages=(UserInput(content="hello", client_id="c-1"),))
    await play(engine, live, request)
    said, answered = await engine.history.messages(live)
    known = await engine.history.find_message_ids(live, ["c-1", "c-2", said.id, answered.id])
    assert set(known) == {"c-1", said.id, answered.id}
    assert known["c-1"] == known[said.id] < known[answered.id]
    (logged,) = await engine.history.events(live, known["c-1"] - 1, known["c-1"])
    assert logged.seq == known["c-1"]


async def test_the_newest_events_come_first_page_by_page(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    for _ in range(150):
        await play(engine, live, "hello")
    pages = [page async for page in engine.history.newest_events(live)]
    assert len(pages) > 1
    backwards = [each for page in reversed(pages) for each in page]
    assert backwards == await any_world.events(live.state.session_id)


async def test_a_tool_that_is_allowed_for_the_session_needs_no_further_approval(any_world: World) -> None:
    any_world.scripts["paint"] = [[CallTool("paint", {"value": 1})], ["painted"]]
    any_world.echo("paint", needs_approval=True)
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "paint")
    (call,) = live.state.waiting_calls()
    await play(engine, live, answer_request(Decision(call_id=call.call.call_id, granted=True, remember=True)))
    await play(engine, live, "paint")
    assert waiting_tools(live.state) == []
    assert texts(await engine.history.messages(live))[-1] == "painted"
    engine = await any_world.restart(engine)
    live = await reload(engine, live)
    await play(engine, live, "paint")
    assert waiting_tools(live.state) == []
