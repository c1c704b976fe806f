"""Going on from an earlier point: what is left behind stays in the log, and in no history (shared rules, 15)."""

from itertools import pairwise

import pytest

from dragoman.core.admission import CANCELLED_BY_NEW_MESSAGE
from dragoman.core.content import UserMessage
from dragoman.core.events import Branched, CompactionMade, MessageAdded, SettingsChange
from dragoman.core.ids import UserId
from dragoman.core.inputs import Decision
from dragoman.core.refusals import CallAlreadySettled, SessionBusy, SessionNotFound
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.live_session import LiveSession
from tests.engine.world import (
    CallTool,
    PauseGate,
    World,
    answer_request,
    open_session,
    play,
    read_all,
    reload,
    send,
    texts,
    user_request,
    wait_for_end,
    waiting_tools,
)


async def seq_of(world: World, live: LiveSession, text: str) -> int:
    """The event that added a user's message."""
    for logged in await world.events(live.state.session_id):
        event = logged.event
        if isinstance(event, MessageAdded) and isinstance(event.message, UserMessage) and event.message.content == text:
            return logged.seq
    raise AssertionError(f"no message {text!r}")


async def visible_history(engine: Engine, live: LiveSession) -> list[str]:
    return texts(await engine.history.messages(live))


async def test_a_rewound_session_continues_from_the_earlier_point(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    for text in ("one", "two", "three"):
        await play(engine, live, text)
    await engine.rewind(live, await seq_of(any_world, live, "two"))
    assert await visible_history(engine, live) == ["one", "You said: one"]
    any_world.scripts["other"] = [["else"]]
    await play(engine, live, "other")
    assert texts(any_world.scripted_agent.contexts[-1]) == ["one", "You said: one", "other"], (
        "nor does the model see it"
    )
    engine = await any_world.restart(engine)
    live = await reload(engine, live)
    assert await visible_history(engine, live) == ["one", "You said: one", "other", "else"]
    assert live.state.message_count == 8, "ordinals count what was left behind too"
    assert [type(each.event) for each in await any_world.events(live.state.session_id)].count(Branched) == 1


async def test_rewinding_twice_hides_what_either_left_behind(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    for text in ("one", "two", "three"):
        await play(engine, live, text)
    await engine.rewind(live, await seq_of(any_world, live, "three"))
    await play(engine, live, "four")
    await engine.rewind(live, await seq_of(any_world, live, "two"))
    await play(engine, live, "five")
    assert await visible_history(engine, live) == ["one", "You said: one", "five", "You said: five"]
    await play(engine, live, "six")
    await engine.rewind(live, await seq_of(any_world, live, "six"))
    assert await visible_history(engine, live) == ["one", "You said: one", "five", "You said: five"]
    ranges = live.state.hidden_ranges
    assert len(ranges) == 2
    assert all(first <= last for first, last in ranges)
    assert all(before[1] < after[0] for before, after in pairwise(ranges))


async def test_a_session_is_rewound_to_one_of_its_events_only(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "one")
    before = live.state.seq
    for seq in (-1, 0, 1, before + 1):
        with pytest.raises(ValueError, match=f"expected event 2 to {before}, got {seq}"):
            await engine.rewind(live, seq)
    assert (live.state.seq, live.state.hidden_ranges) == (before, ())


async def test_readers_of_the_stream_see_everything_that_happened(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "one")
    before = await read_all(engine, live)
    await engine.rewind(live, await seq_of(any_world, live, "one"))
    assert (await read_all(engine, live))[: len(before)] == before


async def test_a_session_that_is_busy_is_not_rewound(any_world: World) -> None:
    gate = PauseGate()
    any_world.scripts["wait"] = [[gate, "done"]]
    engine = await any_world.start()
    live = await open_session(engine)
    await send(engine, live, "wait")
    with pytest.raises(SessionBusy):
        await engine.rewind(live, 2)
    gate.opened.set()
    await wait_for_end(live)


async def test_calls_that_wait_are_closed_by_a_rewind(any_world: World) -> None:
    any_world.scripts["ask"] = [[CallTool("paint", {"value": 1})]]
    any_world.echo("paint", needs_approval=True)
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "ask")
    assert waiting_tools(live.state) == ["paint"]
    await engine.rewind(live, await seq_of(any_world, live, "ask"))
    assert waiting_tools(live.state) == []
    assert await visible_history(engine, live) == []


@pytest.mark.one_server
async def test_the_compaction_that_held_at_the_earlier_point_holds_again(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    for text in ("one", "two"):
        await play(engine, live, text)
    first = compaction("the first", await seq_of(any_world, live, "two") - 1)
    live.append([first], None)
    await play(engine, live, "three")
    live.append([compaction("the second", live.state.seq)], None)
    await play(engine, live, "four")
    await engine.rewind(live, await seq_of(any_world, live, "three"))
    assert live.state.compaction is not None
    assert (live.state.compaction.summary, live.state.compaction.up_to) == (first.summary, first.up_to)
    await engine.rewind(live, await seq_of(any_world, live, "two"))
    assert live.state.compaction is None


def compaction(summary: str, up_to: int) -> CompactionMade:
    return CompactionMade(summary=summary, up_to=up_to, archived_count=2, tokens_before=10, tokens_after=1)


async def test_an_answer_to_a_call_that_was_left_behind_is_refused(any_world: World) -> None:
    any_world.scripts["ask"] = [[CallTool("paint", {"value": 1})]]
    any_world.echo("paint", needs_approval=True)
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "ask")
    (call,) = live.state.waiting_calls()
    await engine.rewind(live, await seq_of(any_world, live, "ask"))
    with pytest.raises(CallAlreadySettled):
        await send(engine, live, answer_request(Decision(call_id=call.call.call_id, granted=True)))
    await play(engine, live, user_request("after"))
    assert await visible_history(engine, live) == ["after", "You said: after"]


async def test_a_call_that_was_open_where_a_branch_begins_is_cancelled_for_the_model_and_in_the_history(
    any_world: World,
) -> None:
    any_world.scripts["ask"] = [[CallTool("paint", {"value": 1})], ["painted"]]
    any_world.echo("paint", needs_approval=True)
    engine = await any_world.start()
    live = await open_session(engine)
    await play(engine, live, "ask")
    (call,) = live.state.waiting_calls()
    asked_at = live.state.seq
    await play(engine, live, answer_request(Decision(call_id=call.call.call_id, granted=True)))
    assert await visible_history(engine, live) == ["ask", "paint()", "1", "painted"]
    await engine.rewind(live, asked_at + 1)
    shown = ["ask", "paint()", CANCELLED_BY_NEW_MESSAGE]
    assert await visible_history(engine, live) == shown
    await play(engine, live, "other")
    assert texts(any_world.scripted_agent.contexts[-1]) == [*shown, "other"]
    engine = await any_world.restart(engine)
    live = await reload(engine, live)
    assert await visible_history(engine, live) == [*shown, "other", "You said: other"]
    await play(engine, live, "more")
    assert texts(any_world.scripted_agent.contexts[-1]) == [*shown, "other", "You said: other", "more"]
    with pytest.raises(CallAlreadySettled):
        await send(engine, live, answer_request(Decision(call_id=call.call.call_id, granted=True)))


async def test_the_branch_that_was_left_can_be_continued(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    for text in ("one", "two"):
        await play(engine, live, text)
    left_at = live.state.seq
    await engine.rewind(live, await seq_of(any_world, live, "two"))
    await play(engine, live, "other")
    await engine.switch_branch(live, ((left_at + 1, live.state.seq),))
    assert await visible_history(engine, live) == ["one", "You said: one", "two", "You said: two"]
    await play(engine, live, "three")
    assert texts(any_world.scripted_agent.contexts[-1]) == ["one", "You said: one", "two", "You said: two", "three"]


async def test_a_run_refuses_other_branches_and_settings_except_for_title_pin_and_sharing(
    any_world: World,
) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    gate = PauseGate()
    any_world.scripts["wait"] = [[gate]]
    await send(engine, live, "wait")
    for refused in (engine.switch_branch(live, ()), engine.change(live, SettingsChange(env={"A": "1"}))):
        with pytest.raises(SessionBusy):
            await refused
    await engine.change(live, SettingsChange(title="t", pinned=True, shared=True))
    settings = live.state.settings
    assert (settings.title, settings.pinned, settings.shared, live.state.run is None) == ("t", True, True, False)
    gate.opened.set()
    await wait_for_end(live)
    before = live.state.seq
    await engine.change(live, SettingsChange(title="u"))
    await engine.change(live, SettingsChange(title="u"))
    assert (live.state.settings.title, live.state.seq) == ("u", before + 1), "what changes nothing is not noted"


async def test_a_shared_session_can_be_found_by_others_who_ask_for_such(any_world: World) -> None:
    engine = await any_world.start()
    live = await open_session(engine)
    other, name = UserId("somebody else"), live.state.session_id
    with pytest.raises(SessionNotFound):
        await engine.find_session(other, name, include_shared=True)
    await engine.change(live, SettingsChange(shared=True))
    assert await engine.find_session(other, name, include_shared=True) is live
    with pytest.raises(SessionNotFound):
        await engine.find_session(other, name)
