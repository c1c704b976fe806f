"""Concurrent requests: busy sessions, deadlines, repeated requests, deletion, shutdown."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from dragoman.core.agent import Run
from dragoman.core.content import Image, Text, UserMessage
from dragoman.core.events import LoggedEvent, RunStarted, RunStopped, SettingsChange
from dragoman.core.ids import CallId
from dragoman.core.inputs import Choice, Decision, Submit, UserInput
from dragoman.core.refusals import (
    AgentNotFound,
    CallAlreadySettled,
    IdempotencyKeyReused,
    Invalid,
    SessionBusy,
    SessionNotFound,
    ShuttingDown,
    StoreUnavailable,
    UnknownCall,
)
from dragoman.core.tools import Capabilities
from dragoman.engine.engine import Engine
from dragoman.engine.runs import runner as runs_module
from dragoman.engine.runs.submissions import BusyPolicy
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.live_session import LiveSession
from tests.engine.engine_group import ClusterWorld
from tests.engine.engine_under_test import EngineUnderTest
from tests.engine.faulty_log import FaultyLog
from tests.engine.world import (
    ANN,
    DEADLINE_S,
    CallTool,
    PauseGate,
    World,
    answer_request,
    ask_user,
    is_stop,
    open_session,
    play,
    read,
    reasons,
    reload,
    send,
    texts,
    user_request,
    wait_for_end,
    wait_until_durable,
    waiting_tools,
)
from tests.requirements import requirement


async def wait_until_gate_entered(gate: PauseGate) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await gate.entered.wait()


async def session_at_gate(world: World, **options: Any) -> tuple[EngineUnderTest, LiveSession, PauseGate]:
    """A session whose run is paused."""
    gate = world.pausing_tool("gate")
    world.scripts["go"] = [["one ", wait_until_durable, gate, "two"]]
    engine = await world.start(**options)
    live = await open_session(engine)
    await send(engine, live, "go")
    await wait_until_gate_entered(gate)
    return engine, live, gate


# --- a second input during a run --------------------------------------------------------------------------------------


async def test_refuse(any_world: World) -> None:
    engine, live, gate = await session_at_gate(any_world)
    before = await any_world.events(live.state.session_id)
    with pytest.raises(SessionBusy):
        await send(engine, live, "again")
    assert await any_world.events(live.state.session_id) == before, "what is refused changes nothing"
    gate.opened.set()
    await wait_for_end(live)
    await play(engine, live, "again")
    assert texts(await any_world.history(live.state.session_id)) == ["go", "one two", "again", "You said: again"]


async def test_queue(any_world: World) -> None:
    engine, live, gate = await session_at_gate(any_world)
    queued = [await send(engine, live, f"later {place}", "queue") for place in range(3)]
    assert all(each.is_queued for each in queued)
    assert texts(await any_world.history(live.state.session_id)) == ["go"], "not before its run starts"
    gate.opened.set()
    await wait_for_end(live)
    assert texts(await any_world.history(live.state.session_id)) == [
        "go",
        "one two",
        *(text for place in range(3) for text in (f"later {place}", f"You said: later {place}")),
    ]
    events = [each.event for each in await any_world.events(live.state.session_id)]
    starts = [event.run_id for event in events if isinstance(event, RunStarted)]
    assert starts[1:] == [each.run_id for each in queued]


async def test_supersede(any_world: World) -> None:
    engine, live, _ = await session_at_gate(any_world)
    await send(engine, live, "instead", "supersede")
    await wait_for_end(live)
    assert texts(await any_world.history(live.state.session_id)) == ["go", "one ", "instead", "You said: instead"]
    assert reasons(await any_world.events(live.state.session_id)) == ["cancelled", "end_turn"]


@pytest.mark.parametrize("busy", ["refuse", "queue", "supersede"])
async def test_answers_to_a_busy_session_are_refused_and_stop_nothing(any_world: World, busy: BusyPolicy) -> None:
    any_world.scripts["ask"] = [[ask_user("a", "b"), CallTool("gate")], ["done"]]
    gate = any_world.pausing_tool("gate")
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "ask")
    await wait_until_gate_entered(gate)
    while not waiting_tools(live.state):
        await live.next_commit()
    (call,) = live.state.waiting_calls()
    before = len(await any_world.events(live.state.session_id))
    for request in (
        answer_request(Choice(call_id=call.call.call_id, selections={"0": [0]})),
        answer_request(Decision(call_id=CallId("nobody's"), granted=True)),
        Submit(protocol="test"),
    ):
        with pytest.raises((SessionBusy, Invalid)):
            await send(engine, live, request, busy)
    assert len(await any_world.events(live.state.session_id)) == before
    gate.opened.set()
    await wait_for_end(live)
    assert (live.state.last_stop, waiting_tools(live.state)) == ("tool_use", ["AskUserQuestion"])


@pytest.mark.parametrize("busy", ["refuse", "queue", "supersede"])
@pytest.mark.one_server
async def test_a_hundred_messages_at_once(any_world: World, busy: BusyPolicy) -> None:
    """One run at a time, in the order of acknowledgement; the log checker verifies the former."""
    engine = await any_world.start()
    live = await open_session(engine)
    acknowledged: list[str] = []

    async def speak(place: int) -> None:
        try:
            submitted = await engine.start_run(live, user_request(f"{place}"), by=ANN, busy=busy)
        except SessionBusy:
            return
        assert submitted.run_id is not None
        acknowledged.append(f"{place}")
        await live.until_durable(live.state.seq)

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(speak(place) for place in range(100)))
    await wait_for_end(live)
    said = texts(await any_world.history(live.state.session_id))
    assert [text for text in said if not text.startswith("You said")] == acknowledged
    if busy == "refuse":
        assert acknowledged == ["0"]
    elif busy == "queue":
        assert acknowledged == [f"{place}" for place in range(100)]
        assert said[1::2] == [f"You said: {place}" for place in range(100)]
    else:
        assert len(acknowledged) == 100, "who supersedes is never refused"
        assert said[-1] == f"You said: {acknowledged[-1]}"


async def test_what_is_wrong_with_a_request_is_reported_before_anything_happens(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    before = await any_world.events(live.state.session_id)
    for request, refusal in (
        (Submit(protocol="test"), Invalid),
        (answer_request(Decision(call_id=CallId("x"), granted=True)), UnknownCall),
        (user_request("x" * (1024 * 1024 + 1)), Invalid),
        (user_request("x", change=SettingsChange(options={"nothing": "x"})), Invalid),
    ):
        with pytest.raises(refusal):
            await send(engine, live, request)
    assert await any_world.events(live.state.session_id) == before
    with pytest.raises(AgentNotFound):
        await open_session(engine, agent="nobody")


@pytest.mark.parametrize("busy", ["queue", "supersede"])
async def test_a_large_image_of_a_queued_run_is_stored_outside_the_log(any_world: World, busy: BusyPolicy) -> None:
    any_world.scripted_agent.spec_fields["capabilities"] = Capabilities(image_data=True)
    engine, live, gate = await session_at_gate(any_world)
    picture = Image("data:image/png;base64," + "A" * 50_000)
    request = Submit(protocol="test", messages=(UserInput(content=(Text("look"), picture)),))
    with pytest.raises(SessionBusy):
        await send(engine, live, request)
    assert any_world.blobs.contents == {}, "what is refused leaves nothing"
    await send(engine, live, request, busy)
    gate.opened.set()
    await wait_for_end(live)
    assert [content.decode() for content in any_world.blobs.contents.values()] == [picture.url]
    assert max(len(str(each.event)) for each in await any_world.events(live.state.session_id)) < 10_000
    newest = any_world.scripted_agent.contexts[-1][-1]
    assert isinstance(newest, UserMessage)
    assert newest.content == (Text("look"), picture), "and its model sees it"
    await engine.delete(live)
    assert any_world.blobs.contents == {}


async def test_settings_sent_with_a_message_apply_to_its_run(any_world: World) -> None:
    any_world.echo()
    any_world.scripts["go"] = [[CallTool("echo", {"value": 1})], ["done"]]
    engine = await any_world.start()
    live = await open_session(engine, tools=None)
    await play(engine, live, "go")
    await play(engine, live, user_request("go", change=SettingsChange(tools="all")))
    engine = await any_world.restart(engine)
    live = await reload(engine, live)
    await play(engine, live, "go")
    assert texts(await any_world.history(live.state.session_id))[2::4] == ["Tool not found: echo", "1", "1"]


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.one_server
async def test_of_two_simultaneous_answers_the_first_counts(any_world: World) -> None:
    any_world.scripts["go"] = [[ask_user("a", "b")], ["done"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    (call,) = live.state.waiting_calls()
    given = [Choice(call_id=call.call.call_id, selections={"0": [place]}) for place in (1, 0)]
    outcomes = await asyncio.gather(
        *(engine.start_run(live, answer_request(choice), by=ANN) for choice in given), return_exceptions=True
    )
    await wait_for_end(live)
    assert [type(each).__name__ for each in outcomes] == ["SubmitResult", "SessionBusy"]
    with pytest.raises(CallAlreadySettled):
        await send(engine, live, answer_request(given[1]))
    assert '"labels":["b"]' in texts(await any_world.history(live.state.session_id))[2]


async def test_a_stop_and_an_answer_at_once_have_one_outcome(any_world: World) -> None:
    any_world.scripts["go"] = [[ask_user("a", "b")], ["done"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "go")
    (call,) = live.state.waiting_calls()
    answer = answer_request(Choice(call_id=call.call.call_id, selections={"0": [0]}))
    stopped, answered = await asyncio.gather(
        engine.stop_run(live), engine.start_run(live, answer, by=ANN), return_exceptions=True
    )
    await wait_for_end(live)
    history = texts(await any_world.history(live.state.session_id))
    if isinstance(answered, BaseException):
        assert stopped is True
        assert isinstance(answered, (CallAlreadySettled, UnknownCall))
        assert history[2:] == ["Tool call cancelled: the run was stopped"]
    else:  # of requests that travel between servers, the second may arrive first
        assert isinstance(any_world, ClusterWorld)
        assert '"labels":["a"]' in history[2]


# --- deadlines --------------------------------------------------------------------------------------------------------


async def test_a_run_that_exceeds_its_time_limit_is_ended(any_world: World) -> None:
    engine, live, gate = await session_at_gate(any_world, run_timeout_s=0.1)
    seen = await read(engine, live)
    stop = seen[-1].event if isinstance(seen[-1], LoggedEvent) else None
    assert isinstance(stop, RunStopped)
    assert (stop.reason, stop.code) == ("error", "timeout")
    assert gate.cancelled.is_set()
    assert texts(await any_world.history(live.state.session_id)) == ["go", "one "]


async def test_a_run_that_ignores_its_time_limit_is_ended_nevertheless(
    any_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent swallows the cancellation and continues; the session does not wait for it."""
    monkeypatch.setattr(runs_module, "STOP_TIMEOUT_S", 0.05)
    over = asyncio.Event()

    async def stay(run: Run) -> None:
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()

    any_world.scripts["go"] = [["one ", wait_until_durable, stay]]
    engine = await any_world.start(run_timeout_s=0.1)
    live = await open_session(engine)
    await send(engine, live, "go")
    try:
        await wait_for_end(live)
        assert reasons(await any_world.events(live.state.session_id)) == ["error"]
        await play(engine, live, "hello")
    finally:
        over.set()


# --- doing things once ------------------------------------------------------------------------------------------------


async def submit_with_idempotency_key(
    engine: Engine, live: LiveSession, key: str, fingerprint: str, text: str
) -> str | None:
    """Process a request like a protocol. Returns the run's id."""
    async with engine.reserve_key(ANN, IdempotencyKey(key, fingerprint)) as earlier:
        if earlier is not None:
            return earlier.run_id
        submitted = await engine.start_run(
            live, user_request(text), by=ANN, idempotency_key=IdempotencyKey(key, fingerprint), busy="queue"
        )
        await live.until_durable(live.state.seq)
        return submitted.run_id


async def test_fifty_equal_simultaneous_requests_start_one_run(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    async with asyncio.timeout(DEADLINE_S):
        made = await asyncio.gather(*(submit_with_idempotency_key(engine, live, "k", "f", "hello") for _ in range(50)))
    assert len(set(made)) == 1
    await wait_for_end(live)
    assert texts(await any_world.history(live.state.session_id)) == ["hello", "You said: hello"]
    engine = await any_world.restart(engine)
    live = await reload(engine, live)
    assert await submit_with_idempotency_key(engine, live, "k", "f", "hello") == made[0], "nor does one after a restart"
    with pytest.raises(IdempotencyKeyReused):
        await submit_with_idempotency_key(engine, live, "k", "another", "hello")


async def test_idempotency_keys_of_several_requests_in_one_commit_are_all_stored(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    keys = [f"k{place}" for place in range(20)]
    async with asyncio.timeout(DEADLINE_S):
        made = await asyncio.gather(*(submit_with_idempotency_key(engine, live, key, "f", key) for key in keys))
    assert len(set(made)) == 20
    async with asyncio.timeout(DEADLINE_S):
        again = await asyncio.gather(*(submit_with_idempotency_key(engine, live, key, "f", key) for key in keys))
    assert again == made
    await wait_for_end(live)


async def test_a_key_is_forgotten_after_three_days(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    first = await submit_with_idempotency_key(engine, live, "k", "f", "hello")
    any_world.clock.move(3 * 86_400)
    assert await submit_with_idempotency_key(engine, live, "k", "f", "hello") == first
    any_world.clock.move(1)
    assert await submit_with_idempotency_key(engine, live, "k", "f", "hello") != first
    await wait_for_end(live)


async def test_a_request_that_failed_may_be_repeated_with_its_key(world: World) -> None:
    log = FaultyLog(world.store)
    engine = await world.start(log)
    live = await open_session(engine)
    log.fail_at(log.commits + 1)
    with pytest.raises(StoreUnavailable):
        await submit_with_idempotency_key(engine, live, "k", "f", "hello")
    live = await reload(engine, live)
    assert await submit_with_idempotency_key(engine, live, "k", "f", "hello") is not None
    await wait_for_end(live)
    assert texts(await world.history(live.state.session_id)) == ["hello", "You said: hello"]


async def test_a_request_that_failed_after_it_took_effect_is_not_repeated(world: World) -> None:
    log = FaultyLog(world.store)
    engine = await world.start(log)
    live = await open_session(engine)
    log.fail_at(log.commits + 1, moment="after")
    with pytest.raises(StoreUnavailable):
        await submit_with_idempotency_key(engine, live, "k", "f", "hello")
    live = await reload(engine, live)
    assert live.state.last_run is not None, "it was not refused after all"
    assert await submit_with_idempotency_key(engine, live, "k", "f", "hello") == live.state.last_run
    await wait_for_end(live)
    assert texts(await world.history(live.state.session_id)) == ["hello", "You said: hello"]


# --- deletion ---------------------------------------------------------------------------------------------------------


async def test_a_session_that_is_deleted_during_its_run_is_gone(any_world: World) -> None:
    engine, live, gate = await session_at_gate(any_world)
    session_id = live.state.session_id
    async with asyncio.timeout(DEADLINE_S):
        await engine.delete(live)
    assert gate.cancelled.is_set()
    with pytest.raises(SessionNotFound):
        await reload(engine, live)
    with pytest.raises(SessionNotFound):
        await send(engine, live, "again")
    assert (await any_world.store.load(session_id), await any_world.events(session_id)) == (None, [])
    assert await any_world.store.unfinished_sessions() == []
    engine = await any_world.restart(engine)
    with pytest.raises(SessionNotFound):
        await reload(engine, live)


async def test_nobody_sees_a_session_while_it_is_being_deleted(world: World) -> None:
    """A request for the session must not recover the run that the deletion interrupted."""
    log = FaultyLog(world.store)
    engine = await world.start(log)
    live = await open_session(engine)
    await play(engine, live, "hello")
    log.delay(20)
    deleting = asyncio.create_task(engine.delete(live))
    seen: list[type[BaseException] | None] = []
    while not deleting.done():
        try:
            await reload(engine, live)
            seen.append(None)
        except SessionNotFound as error:
            seen.append(type(error))
        await asyncio.sleep(0)
    await deleting
    assert SessionNotFound in seen
    assert None not in seen[seen.index(SessionNotFound) :], "once gone, it stays gone"
    with pytest.raises(SessionNotFound):
        await reload(engine, live)
    assert await world.store.load(live.state.session_id) is None


async def test_a_deletion_that_failed_leaves_the_session(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await world.start()
    live = await open_session(engine)
    await play(engine, live, "hello")

    async def fail(*_: object) -> None:
        raise StoreUnavailable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(world.store, "delete", fail)
        with pytest.raises(StoreUnavailable):
            await engine.delete(live)
    live = await reload(engine, live)
    await play(engine, live, "again")
    await engine.delete(live)
    assert await world.store.load(live.state.session_id) is None


async def test_a_foreign_session_looks_like_a_missing_one(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    with pytest.raises(SessionNotFound) as foreign:
        await engine.find_session("bob", live.state.session_id)  # type: ignore[arg-type]  # a UserId is a str
    with pytest.raises(SessionNotFound) as unknown:
        await engine.find_session("bob", any_world.ids.new())  # type: ignore[arg-type]  # a UserId is a str
    assert str(foreign.value) == str(unknown.value)


# --- drain ------------------------------------------------------------------------------------------------------------


@requirement("faults:47:drains")
async def test_a_stopping_server_refuses_new_work_and_parks_its_runs(any_world: World) -> None:
    engine, live, gate = await session_at_gate(any_world)
    reading = asyncio.create_task(read(engine, live))
    other = await open_session(engine)
    with engine.follow(other, other.durable_cursor, ends_on_drain=True) as watching:
        await engine.drain(0)
        with pytest.raises(ShuttingDown):
            await watching.next()
    for attempt in (send(engine, live, "again"), open_session(engine)):
        with pytest.raises(ShuttingDown):
            await attempt
    with pytest.raises(ShuttingDown):
        await reading
    assert reasons(await any_world.events(live.state.session_id)) == [], "a parked run has no end"
    await any_world.stop(engine)
    gate.opened.set()
    engine = await any_world.start()
    live = await reload(engine, live)
    await wait_for_end(live)
    assert texts(await any_world.history(live.state.session_id)) == ["go", "one ", "one two"]
    assert engine.running_sessions() == []


async def test_a_run_that_ends_within_the_grace_period_is_not_parked(any_world: World) -> None:
    engine, live, gate = await session_at_gate(any_world)
    stopping = asyncio.create_task(any_world.stop(engine, grace_s=DEADLINE_S))
    await asyncio.sleep(0)
    gate.opened.set()
    await stopping
    assert texts(await any_world.history(live.state.session_id)) == ["go", "one two"]
    assert reasons(await any_world.events(live.state.session_id)) == ["end_turn"]


@pytest.mark.one_server  # the reader's own server plays the run
async def test_a_reader_sees_the_end_of_a_run_that_ends_within_the_grace_period(any_world: World) -> None:
    engine, live, gate = await session_at_gate(any_world)
    reading = asyncio.create_task(read(engine, live))
    stopping = asyncio.create_task(any_world.stop(engine, grace_s=DEADLINE_S))
    await asyncio.sleep(0)
    gate.opened.set()
    await stopping
    assert is_stop((await reading)[-1])


async def test_a_queued_run_survives_a_server_that_stops(any_world: World) -> None:
    """Even if the active run ends at the moment when all runs are parked."""
    engine, live, gate = await session_at_gate(any_world)
    await send(engine, live, "later", "queue")

    async def give_up(run: Run) -> None:
        try:
            await gate(run)
        except asyncio.CancelledError:
            return

    any_world.scripts["go"] = [["one ", wait_until_durable, give_up, "two"]]
    engine = await any_world.restart(engine)
    live = await reload(engine, live)
    await wait_until_gate_entered(gate)
    engine = await any_world.restart(engine)
    gate.opened.set()
    live = await reload(engine, live)
    await wait_for_end(live)
    assert texts(await any_world.history(live.state.session_id))[-2:] == ["later", "You said: later"]


@pytest.mark.one_server
async def test_parked_with_nothing_active_a_queued_run_is_found(any_world: World) -> None:
    """The server parks between the end of one run and the start of the next."""
    engine, live, gate = await session_at_gate(any_world)
    await send(engine, live, "later", "queue")
    engine.begin_parking()
    gate.opened.set()
    async with asyncio.timeout(DEADLINE_S):
        while live.state.run is not None:
            await live.next_commit()
        await live.until_durable(live.state.seq)
    engine = await any_world.restart(engine)
    assert live.state.session_id in {each.state.session_id for each in engine.sessions}, "its start has taken it up"
    live = await reload(engine, live)
    await wait_for_end(live)
    assert texts(await any_world.history(live.state.session_id))[-2:] == ["later", "You said: later"]
