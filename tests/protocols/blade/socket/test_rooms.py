"""Rooms: what happens to subscribers when a session leaves the memory, is deleted, or cannot be projected."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dragoman.core.audit import Actor
from dragoman.core.ids import UserId
from dragoman.core.principal import Principal
from dragoman.core.refusals import StoreUnavailable
from dragoman.engine.instrumentation.counted_log import CountedLog
from dragoman.engine.services.unread_responses import UnreadResponses
from dragoman.engine.sessions import registry
from dragoman.engine.sessions.reader import Reader
from dragoman.ports.log import Append
from dragoman.protocols.blade.projection.emitter import PatchOptions
from dragoman.protocols.blade.projection.projection import Projection
from dragoman.protocols.blade.socket import room, rooms
from dragoman.protocols.blade.socket.client_socket import (
    COUNTED_QUEUE_BYTES,
    DISCONNECT_QUEUE_BYTES,
    PacketQueue,
    Socket,
    event_packet,
)
from tests.asgi_client import DEADLINE_S
from tests.conversations import script
from tests.engine.world import open_session, running_world
from tests.protocols.blade.client import RestClient, flat, kinds, socket_client
from tests.protocols.blade.driver import url_of
from tests.protocols.blade.patch_folding import FoldedTurns, of_seed
from tests.requirements import requirement
from tests.servers import running_socket_server
from tests.stores.simulated import SimulatedLog


@requirement("blade:rooms:deleted")
async def test_a_subscriber_of_a_deleted_session_sees_the_chats_end_and_no_more(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as client_socket:
        await client_socket.call(
            "chat:send", {"session_id": session, "message": script({"say": "x"}, {"wait_ms": 600_000})}
        )
        await client_socket.until("turn:patch")
        await alice.request("DELETE", f"sessions/{session}")
        assert kinds(await client_socket.until("chat:end")) == ["turn:end", "chat:end"]
        reply = await client_socket.call("session:subscribe", {"session_id": session})
        assert reply["code"] == "forbidden"


@requirement("blade:rooms:fault")
async def test_a_fault_of_ours_is_reported_once_and_harms_no_other_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Projection.feed
    broken: set[str] = set()
    fed = 0

    def failing(self: Projection, record: Any) -> Any:
        nonlocal fed
        if f"sess_{self._session_id}" in broken:
            fed += 1
            raise RuntimeError("a fault")
        return feed(self, record)

    monkeypatch.setattr(Projection, "feed", failing)
    monkeypatch.setattr(room, "RELOAD_DELAY_S", 0.0)
    async with running_socket_server(tmp_path) as app_server:
        alice = RestClient(url_of(app_server), app_server.key("alice"))
        bad, good = await alice.session(), await alice.session()
        broken.add(bad)
        async with socket_client(alice.url, alice.key) as client_socket:
            reply = await client_socket.call("session:subscribe", {"session_id": bad})
            assert reply["code"] == "internal"
            assert reply["message"].startswith("the server failed; reference ")
            assert (await alice.request("GET", f"sessions/{bad}/messages")).status == 500
            before = fed
            assert kinds(await client_socket.send(good, "hello"))[-1] == "chat:end"
            assert fed == before, "nobody tries again and again"


@requirement("blade:rooms:left")
async def test_a_room_that_nobody_waits_for_any_more_reads_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, left = asyncio.Event(), asyncio.Event()

    async def never(reader: Reader) -> Any:
        reading.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    monkeypatch.setattr(Reader, "next", never)
    async with running_world(SimulatedLog()) as world:
        engine = await world.start()
        opening = asyncio.create_task(rooms.Rooms(engine, PatchOptions()).open(await open_session(engine)))
        async with asyncio.timeout(DEADLINE_S):
            await reading.wait()
            opening.cancel()
            await left.wait()


@dataclass
class Line:
    """The Engine.IO half of a connection that nobody reads from."""

    queue: PacketQueue = field(default_factory=PacketQueue)
    closed: bool = False
    closing: bool = False
    last_ping: float | None = None

    def schedule_ping(self) -> None:
        """Nobody would answer it."""

    async def close(self, wait: bool = True, abort: bool = False) -> None:
        """Nothing is connected."""


@requirement("blade:catch-up:never-reads")
async def test_what_a_client_has_read_is_no_unread_response_any_more() -> None:
    unread = UnreadResponses(COUNTED_QUEUE_BYTES)
    line = Line()
    socket = Socket("one", Principal(user=UserId("alice"), scopes=frozenset()), Actor(), line, unread)
    part = event_packet("turn:end", b'"%s"' % (b"x" * (COUNTED_QUEUE_BYTES // 2)))
    for _ in range(3):
        socket.send(part)
    assert unread.is_slow("alice")
    for _ in range(3):
        assert await line.queue.get() is part
    assert not unread.is_slow("alice")


@requirement("blade:catch-up:never-reads")
async def test_who_never_reads_is_cut_off_when_too_much_waits() -> None:
    line, cuts = Line(), 0
    alice = Principal(user=UserId("alice"), scopes=frozenset())
    socket = Socket("one", alice, Actor(), line, UnreadResponses(10 * DISCONNECT_QUEUE_BYTES))

    def cut() -> None:
        nonlocal cuts
        cuts += 1

    socket.disconnect = cut
    ending = event_packet("turn:end", b'"%s"' % (b"x" * (1024 * 1024)))
    for _ in range(DISCONNECT_QUEUE_BYTES // len(ending.data)):
        socket.send(ending)
    assert cuts == 0
    for _ in range(2):
        socket.send(ending)
    assert (cuts, line.queue.qsize()) == (1, DISCONNECT_QUEUE_BYTES // len(ending.data) + 1), (
        "and nothing more is queued for it"
    )


@requirement("blade:rooms:lost")
async def test_who_follows_a_session_continues_when_its_store_failed_and_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "RELOAD_DELAY_S", 0.01)
    monkeypatch.setattr(registry, "RELOAD_DELAY_S", 0.01)
    commit = CountedLog.commit
    failures = 0

    async def failing(self: CountedLog, batch: Sequence[Append]) -> Sequence[bool]:
        nonlocal failures
        closing = (each for append in batch for each in append.payloads if b'"block_closed"' in each)
        if not failures and any(b"two" in each for each in closing):
            failures += 1
            raise StoreUnavailable("the disk is full")
        return await commit(self, batch)

    monkeypatch.setattr(CountedLog, "commit", failing)
    async with running_socket_server(tmp_path) as app_server:
        alice = RestClient(url_of(app_server), app_server.key("alice"))
        session = await alice.session()
        async with socket_client(alice.url, alice.key) as plain, socket_client(alice.url, alice.key) as raw:
            await raw.call("session:subscribe", {"session_id": session, "event_format": "raw"})
            events = await plain.send(session, script({"say": "one"}, {"wait_ms": 50}, {"say": "two"}, {"step": True}))
            batched = flat(await raw.until("chat:end"))
        turns = await alice.messages(session)
    assert failures == 1
    followed = [each for each in events if each[0] != "session:updated" or "stream_sequence" in each[1]]
    assert [payload["stream_sequence"] for _, payload in followed] == list(range(1, len(followed) + 1))
    folded = FoldedTurns()
    for event in followed:
        folded.feed(event)
    assert list(map(of_seed, folded.turns.values())) == list(map(of_seed, turns))
    assert [turn["status"] for turn in turns] == ["completed", "interrupted", "completed"]
    assert ["".join(each["content"] for each in turn["blocks"]) for turn in turns[1:]] == ["one", "onetwo"]
    assert [each for each in batched if each[0] != "session:updated"] == [
        each for each in followed if each[0] != "session:updated"
    ]
