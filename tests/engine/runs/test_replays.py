"""Recordings shown again: the same turns under new ids, with the pauses that there were, and no agent at work."""

from collections.abc import Sequence

import pytest
from msgspec import structs

from dragoman.core.content import Image
from dragoman.core.events import CallOpened, CallSettled, LoggedEvent, RunStopped, SettingsChange
from dragoman.core.ids import UserId
from dragoman.core.inputs import Choice, Create, Decision, Result
from dragoman.core.refusals import Conflict, SessionBusy
from dragoman.core.tools import Capabilities, ToolSpec
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.live_session import to_live_session
from dragoman.engine.sessions.view import SessionView
from tests.engine.world import (
    CallTool,
    Think,
    World,
    answer_request,
    ask_user,
    fork,
    open_session,
    play,
    read_all,
    reasons,
    reload,
    send,
    texts,
    user_request,
    wait_for_end,
    wait_until_durable,
)

PICTURE = "data:image/png;base64," + "A" * 40_000


async def play_replay(engine: Engine, source: SessionView, pauses: list[float] | None = None) -> SessionView:
    """A replay, all of whose turns were played. What it would have waited is noted instead."""

    async def note(seconds: float) -> None:
        if pauses is not None:
            pauses.append(round(seconds, 3))

    engine.replays.sleep = note
    live = await engine.create_replay(source, 1, protocol="test")
    while (turn := await engine.replays.next_turn(live)) is not None:
        await play(engine, live, turn.text)
    return live


async def visible_history(world: World, session: SessionView) -> list[str]:
    return texts(await world.history(session.state.session_id))


@pytest.mark.one_server
async def test_a_replay_repeats_everything_without_running_the_agent(any_world: World) -> None:
    any_world.echo()
    any_world.echo("allowed", needs_approval=True)
    any_world.scripts |= {
        "below": [["under", ask_user("a", "b")], ["chosen"]],
        "first": [[Think("hm"), "one ", "word", CallTool("echo", {"value": 1}), fork("below")], ["end"]],
        "second": [[CallTool("allowed", {"value": "x"})], ["done"]],
    }
    engine = await any_world.start()
    source = await open_session(engine)
    await play(engine, source, "first")
    [question] = source.state.waiting_calls()
    await send(engine, source, answer_request(Choice(call_id=question.call.call_id, selections={"0": [1]})))
    await wait_for_end(source)
    await play(engine, source, "second")
    [gated] = source.state.waiting_calls()
    await send(engine, source, answer_request(Decision(call_id=gated.call.call_id, granted=False, reason="no")))
    await wait_for_end(source)
    contexts = len(any_world.scripted_agent.contexts)

    live = await play_replay(engine, source)

    assert len(any_world.scripted_agent.contexts) == contexts, "the agent was not asked"
    assert await visible_history(any_world, live) == await visible_history(any_world, source)
    assert live.state.settings.replay is not None
    assert (live.state.settings.replay.position, live.state.settings.replay.total) == (2, 2)
    before, again = [calls_of(await any_world.events(each.state.session_id)) for each in (source, live)]
    assert [(each.call.name, each.call.input, each.kind) for each in again] == [
        (each.call.name, each.call.input, each.kind) for each in before
    ]
    assert not {each.call.call_id for each in again} & {each.call.call_id for each in before}
    assert await read_all(engine, live) == await read_all(await any_world.restart(engine), live)


def calls_of(events: Sequence[LoggedEvent]) -> list[CallOpened]:
    return [each.event for each in events if isinstance(each.event, CallOpened)]


async def test_the_pauses_are_those_of_the_recording_divided_by_the_speed_and_none_is_long(world: World) -> None:
    async def after(seconds: float, run: object) -> None:
        await wait_until_durable(run)  # type: ignore[arg-type]  # a run
        world.clock.move(seconds)

    world.scripts["go"] = [
        ["a", lambda run: after(0, run), "b", lambda run: after(0.9, run)],
        [lambda run: after(60, run), "late"],
    ]
    engine = await world.start()
    source = await open_session(engine)
    await play(engine, source, "go")
    pauses: list[float] = []
    live = await play_replay(engine, source, pauses)
    assert pauses == [0.3, 0.3, 0.3, 2.0]
    assert live.state.settings.replay is not None
    pauses.clear()
    fast = await engine.create_replay(source, 5, protocol="test")
    await play(engine, fast, "go")
    assert pauses == [0.06, 0.06, 0.06, 2.0]


async def test_a_run_that_failed_or_was_stopped_ends_as_it_did(world: World) -> None:
    async def fail(run: object) -> None:
        raise RuntimeError("private")

    gate = world.pausing_tool("slow")
    world.scripts |= {"fails": [["half", wait_until_durable, fail]], "slow": [["x", CallTool("slow")]]}
    engine = await world.start()
    source = await open_session(engine)
    await play(engine, source, "fails")
    await send(engine, source, "slow")
    await gate.entered.wait()
    await engine.stop_run(source)
    live = await play_replay(engine, source)
    logs = [await world.events(each.state.session_id) for each in (source, live)]
    stops = [[each.event for each in log if isinstance(each.event, RunStopped)] for log in logs]
    assert [(each.reason, each.message) for each in stops[1]] == [
        ("error", "The agent failed"),
        ("cancelled", None),
    ]
    assert reasons(logs[0]) == reasons(logs[1])
    assert await visible_history(world, live) == await visible_history(world, source)


async def test_only_the_active_branch_is_replayed_and_waiting_calls_are_cancelled(world: World) -> None:
    world.scripts |= {"asks": [["well?", ask_user("a", "b")], ["never"]]}
    engine = await world.start()
    source = await open_session(engine)
    await play(engine, source, "kept")
    end = source.state.seq
    await play(engine, source, "hidden")
    await engine.rewind(source, end + 1)
    await play(engine, source, "asks")
    live = await play_replay(engine, source)
    assert await visible_history(world, live) == [
        "kept",
        "You said: kept",
        "asks",
        "well? AskUserQuestion()",
        "Tool call cancelled: the run was stopped",
    ]
    assert live.state.status() == "idle"


async def test_a_replay_includes_client_results_and_readable_images(world: World) -> None:
    world.scripted_agent.spec_fields["capabilities"] = Capabilities(client_tools=True, image_data=True)
    paint = ToolSpec(name="paint", description="", parameters={"type": "object"})
    world.scripts["go"] = [[CallTool("paint")], ["nice"]]
    engine = await world.start()
    source = await open_session(engine, client_tools=(paint,))
    await play(engine, source, "go")
    [call] = source.state.waiting_calls()
    await send(engine, source, answer_request(Result(call_id=call.call.call_id, content=(Image(PICTURE),))))
    await wait_for_end(source)
    live = await play_replay(engine, source)
    await engine.delete(source)
    [_, _, result, _] = await engine.history.messages(live)
    assert result.content == (Image(PICTURE),)
    kinds = [each.kind for each in calls_of(await world.events(live.state.session_id))]
    assert kinds == ["inline"], "it is nobody's to answer"


async def test_a_replay_that_a_restart_interrupts_ends_and_leaves_no_call_open(world: World) -> None:
    world.scripts["go"] = [[ask_user("a", "b")], ["end"]]
    engine = await world.start()
    source = await open_session(engine)
    await play(engine, source, "go")
    [question] = source.state.waiting_calls()
    world.clock.move(1)
    await send(engine, source, answer_request(Choice(call_id=question.call.call_id, selections={"0": [0]})))
    await wait_for_end(source)

    async def for_ever(_: float) -> None:
        await world.pausing_tool("never")()

    engine.replays.sleep = for_ever
    live = await engine.create_replay(source, 1, protocol="test")
    await send(engine, live, "go")
    while not live.state.calls:
        await to_live_session(live).next_commit()
    await wait_for_end(await reload(await world.restart(engine), live))
    events = await world.events(live.state.session_id)
    assert reasons(events) == ["interrupted"]
    assert [each.event.outcome for each in events if isinstance(each.event, CallSettled)] == ["interrupted"]


async def test_a_session_without_turns_or_with_a_run_cannot_be_replayed(world: World) -> None:
    gate = world.pausing_tool("slow")
    world.scripts["slow"] = [[CallTool("slow")]]
    engine = await world.start()
    source = await open_session(engine)
    with pytest.raises(Conflict, match="no completed turn"):
        await engine.create_replay(source, 1, protocol="test")
    await send(engine, source, "slow")
    await gate.entered.wait()
    with pytest.raises(SessionBusy):
        await engine.create_replay(source, 1, protocol="test")
    gate.opened.set()
    await wait_for_end(source)


async def test_a_replay_whose_recording_is_over_or_gone_fails_until_it_is_left(world: World) -> None:
    engine = await world.start()
    source = await open_session(engine)
    await play(engine, source, "a")
    await play(engine, source, "b")
    live, gone = [await engine.create_replay(source, 1, protocol="test") for _ in range(2)]
    for text in ("a", "another text", "c"):
        await play(engine, live, text)
    assert reasons(await world.events(live.state.session_id)) == ["end_turn", "end_turn", "error"]
    assert await visible_history(world, live) == ["a", "You said: a", "another text", "You said: b", "c"]
    replay = live.state.settings.replay
    assert replay is not None
    await engine.change(live, SettingsChange(replay=structs.replace(replay, is_on=False)))
    await play(engine, live, "d")
    assert (await visible_history(world, live))[-1] == "You said: d"
    await engine.delete(source)
    await play(engine, gone, user_request("a"))
    [*_, stop] = await world.events(gone.state.session_id)
    assert isinstance(stop.event, RunStopped)
    assert (stop.event.code, stop.event.message) == ("recording_gone", "The recorded session was deleted")


async def test_a_recording_whose_id_is_another_owners_by_now_is_visible_to_nobody(world: World) -> None:
    engine = await world.start()
    source = await open_session(engine)
    await play(engine, source, "mine")
    live = await engine.create_replay(source, 1, protocol="test")
    await engine.delete(source)
    asked = Create(protocol="test", agent="player", session_id=source.state.session_id)
    theirs = await engine.create(UserId("bob"), asked)
    await engine.start_run(theirs, user_request("a secret of Bob's"), by=UserId("bob"))
    await wait_for_end(theirs)
    await play(engine, live, "mine")
    [*_, stop] = await world.events(live.state.session_id)
    assert isinstance(stop.event, RunStopped)
    assert stop.event.code == "recording_gone"
    assert await visible_history(world, live) == ["mine"]
