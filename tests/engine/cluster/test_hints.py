"""Hints that are none of ours, or another release's: they are ignored, and what is right is heard after them."""

import asyncio
from collections.abc import Sequence

from structlog.typing import EventDict

from dragoman.buses.local import LocalBus
from dragoman.core.events import LoggedEvent
from dragoman.core.ids import SessionId
from dragoman.engine.cluster.delta_relay import SUBSCRIBE_SUBJECT, DeltaRelay
from dragoman.engine.cluster.list_notifier import LIST_CHANGED_SUBJECT, MAX_CONCURRENT_LOOKUPS, SessionListNotifier
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.bus import DELTAS_SUBJECT_PREFIX
from dragoman.ports.log import Append
from tests.engine.world import DEADLINE_S, World, open_session, play


def ignored(subject: str, payloads: Sequence[str]) -> list[EventDict]:
    """The log lines about hints that cannot be parsed."""
    return [
        {"event": "invalid hint", "log_level": "debug", "subject": subject, "length": len(payload)}
        for payload in payloads
    ]


async def test_a_hint_of_a_change_that_is_malformed_is_ignored(world: World, log_records: list[EventDict]) -> None:
    engine, bus = await world.start(), LocalBus()
    live = await open_session(engine)
    right: list[str] = []
    looked: list[SessionId] = []
    has_looked = asyncio.Event()

    async def refresh(live: LiveSession) -> None:
        looked.append(live.state.session_id)
        has_looked.set()

    here, there = [SessionListNotifier(engine.sessions, world.store, bus, refresh) for _ in range(2)]
    here.owners = lambda: [world.owner]
    end = bus.subscribe(LIST_CHANGED_SUBJECT, right.append)

    def commit(batch: Sequence[Append]) -> None:
        there.send(batch, "there")

    engine.report_commits_to(commit)
    await play(engine, live, "go")
    end()
    bus.subscribe(LIST_CHANGED_SUBJECT, lambda payload: here.on_hint(payload, "here"))
    head = right[0].rsplit(" ", 1)[0]
    wrong = ["", " ", "x", right[0] + " 1", head, *(f"{head} {after}" for after in ("", "x", "-1", "1.5", "9" * 5000))]
    for payload in wrong:
        bus.publish(LIST_CHANGED_SUBJECT, payload)
    assert [each for each in log_records if "subject" in each] == ignored(LIST_CHANGED_SUBJECT, wrong)
    bus.publish(LIST_CHANGED_SUBJECT, right[0])
    async with asyncio.timeout(DEADLINE_S):
        await has_looked.wait()
    assert looked == [live.state.session_id], "the wrong ones made nobody look"


async def test_a_watcher_that_fails_does_not_keep_a_change_of_another_server_from_the_others(
    world: World, log_records: list[EventDict]
) -> None:
    here_engine, there_engine, bus = await world.start(), await world.start(), LocalBus()
    heard = asyncio.Event()

    def fails(_session: SessionView, _events: Sequence[LoggedEvent]) -> None:
        raise ValueError("a defect of a protocol")

    async def refresh(_: LiveSession) -> None:
        raise AssertionError("the session is not in memory here")

    here_engine.watch(fails, lambda *_: None)
    here_engine.watch(lambda *_: heard.set(), lambda *_: None)
    here, there = [
        SessionListNotifier(each.sessions, world.store, bus, refresh) for each in (here_engine, there_engine)
    ]
    here.owners = lambda: [world.owner]
    bus.subscribe(LIST_CHANGED_SUBJECT, lambda payload: here.on_hint(payload, "here"))
    there_engine.report_commits_to(lambda batch: there.send(batch, "there"))
    await open_session(there_engine)
    async with asyncio.timeout(DEADLINE_S):
        await heard.wait()
        await here.lookups.wait()
    assert {each["event"] for each in log_records if each["log_level"] == "error"} == {"a watcher failed"}


async def test_a_flood_of_changes_is_looked_up_in_part(world: World) -> None:
    engine, bus = await world.start(), LocalBus()
    live = await open_session(engine)
    is_over = asyncio.Event()
    looked = 0

    async def refresh(_: LiveSession) -> None:
        nonlocal looked
        looked += 1
        await is_over.wait()

    here, there = [SessionListNotifier(engine.sessions, world.store, bus, refresh) for _ in range(2)]
    here.owners = lambda: [world.owner]
    hints: list[str] = []
    bus.subscribe(LIST_CHANGED_SUBJECT, hints.append)
    engine.report_commits_to(lambda batch: there.send(batch, "there"))
    await play(engine, live, "go")
    for _ in range(MAX_CONCURRENT_LOOKUPS + 10):
        here.on_hint(hints[0], "here")
    await asyncio.sleep(0)  # each has begun
    assert looked == MAX_CONCURRENT_LOOKUPS
    is_over.set()
    async with asyncio.timeout(DEADLINE_S):
        await here.lookups.wait()
    await asyncio.sleep(0)  # they are forgotten in the next turn of the loop
    here.on_hint(hints[0], "here")
    await asyncio.sleep(0)
    assert looked == MAX_CONCURRENT_LOOKUPS + 1, "later ones are looked up again"


async def test_who_follows_in_a_way_that_nobody_understands_is_sent_nothing(
    world: World, log_records: list[EventDict]
) -> None:
    engine, bus = await world.start(), LocalBus()
    live = await open_session(engine)
    here, there = [DeltaRelay(bus, engine.sessions, address) for address in ("here", "there")]
    bus.subscribe(SUBSCRIBE_SUBJECT, here.on_subscribe)
    sent: list[str] = []
    bus.subscribe(f"{DELTAS_SUBJECT_PREFIX}.there", sent.append)
    wrong = ["", " ", bus.deltas_group or "", f"{bus.deltas_group} there", "there"]
    for payload in wrong:
        bus.publish(SUBSCRIBE_SUBJECT, payload)

    def commit(batch: Sequence[Append]) -> None:
        here.send(batch, "here")

    engine.report_commits_to(commit)
    await play(engine, live, "go")
    assert [each for each in log_records if "subject" in each] == ignored(SUBSCRIBE_SUBJECT, wrong)
    assert sent == []
    there.announce([live.state.session_id])
    await play(engine, live, "go on")
    assert sent, "who asks as it should be is sent what is written"
