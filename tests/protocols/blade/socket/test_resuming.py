"""Coming back to a chat: snapshots, resuming by number, cut connections, slow sockets (specification, section 9)."""

import asyncio
from random import Random
from typing import Any

import httpx2
import pytest

from tests.conversations import script
from tests.protocols.blade.client import Event, RestClient, SocketClient, flat, kinds, socket_client
from tests.protocols.blade.driver import url_of
from tests.protocols.blade.patch_folding import FoldedTurns
from tests.requirements import requirement
from tests.servers import running_socket_server, server_process

Json = Any
CUTS = 200
COUNTING = script({"say": "first"}, {"step": True}, {"emit": {"count": 20, "text": "{i3} ", "every_ms": 2}})
COUNTING_SLOWLY = script({"emit": {"count": 50, "text": "{i3} ", "every_ms": 20}})
WAITING = script({"say": "one"}, {"wait_ms": 600_000}, {"say": "two"})


def numbers(events: list[Event]) -> list[int]:
    return [payload["stream_sequence"] for _, payload in events if "stream_sequence" in payload]


@requirement("blade:catch-up:snapshot", "blade:catch-up:goes-on")
async def test_who_subscribes_in_mid_chat_gets_a_snapshot_and_continues(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as first:
        await first.call("chat:send", {"session_id": session, "message": WAITING})
        await first.until("turn:patch")
    async with socket_client(alice.url, alice.key) as second:
        reply = await second.call("session:subscribe", {"session_id": session})
        assert (reply["status"], reply["running"]) == ("ok", True)
        [start, turn] = await second.until("turn:start")
        assert kinds([start, turn]) == ["chat:start", "turn:start"]
        assert numbers([start, turn]) == [], "they repeat old events"
        assert (turn[1]["patch_sequence"], turn[1]["blocks"][0]["content"]) == (1, "one")
        await second.call("chat:stop", {"session_id": session})
        rest = await second.until("chat:end")
        assert numbers(rest) == [reply["stream_sequence"] + 1, reply["stream_sequence"] + 2]


@requirement("blade:catch-up:idle")
async def test_nothing_is_sent_for_an_idle_session(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as first:
        sent = await first.send(session, "hello")
    async with socket_client(alice.url, alice.key) as second:
        reply = await second.call("session:subscribe", {"session_id": session, "after_sequence": 0})
        assert reply == {
            "status": "ok",
            "session_id": session,
            "running": False,
            "stream_sequence": numbers(sent)[-1],
        }
        again = await second.send(session, "hello")
        assert kinds(again)[0] == "chat:start"


@requirement("blade:catch-up:resume", "blade:numbers:stream")
async def test_what_was_missed_of_the_latest_chat_is_sent_again_with_its_numbers(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, "hello")
        sent = await socket.send(session, "add 1 and 2")
    after = numbers(sent)[3]
    for is_raw in (False, True):
        async with socket_client(alice.url, alice.key) as back:
            request: dict[str, Json] = {"session_id": session, "after_sequence": after, "resume": True}
            reply = await back.call("session:subscribe", request | ({"event_format": "raw"} if is_raw else {}))
            assert reply["resumed"] is True
            assert flat(await back.until("chat:end")) == sent[4:]
        async with socket_client(alice.url, alice.key) as back:
            request = {"session_id": session, "after_sequence": 0, "resume": True}
            await back.call("session:subscribe", request | ({"event_format": "raw"} if is_raw else {}))
            assert flat(await back.until("chat:end")) == sent, "from the start of a chat that has just ended"


@requirement("blade:catch-up:restart", "blade:numbers:stream")
async def test_after_a_restart_what_was_missed_has_the_same_numbers(tmp_path: Any) -> None:
    async with running_socket_server(tmp_path) as app_server:
        alice = RestClient(url_of(app_server), app_server.key("alice"))
        session = await alice.session()
        async with socket_client(alice.url, alice.key) as socket:
            sent = await socket.send(session, "add 1 and 2")
        turns = await alice.messages(session)
        await app_server.restart()
        alice = RestClient(url_of(app_server), app_server.key("alice"))
        assert await alice.messages(session) == turns
        async with socket_client(alice.url, alice.key) as back:
            request = {"session_id": session, "after_sequence": numbers(sent)[2]}
            await back.call("session:subscribe", request)
            assert await back.until("chat:end") == sent[3:]
        async with socket_client(alice.url, alice.key) as back:
            await back.call("session:subscribe", {"session_id": session, "after_sequence": -1})
            assert await back.until("chat:end") == sent[1:], "below zero: the whole latest chat, without the new title"


@requirement("blade:catch-up:cut", "blade:catch-up:no-socket")
async def test_a_connection_that_is_cut_200_times_loses_and_doubles_nothing(alice: RestClient) -> None:
    chance = Random(5)
    cuts = 0
    while cuts < CUTS:
        session = await alice.session()
        is_raw = chance.random() < 0.5
        socket = await opened(alice, session, 0, is_raw, resume=False)
        await socket.emit("chat:send", {"session_id": session, "message": COUNTING})
        seen: list[Event] = []
        while not any(name == "chat:end" for name, _ in seen):
            wanted = chance.randrange(1, 5)
            got = 0

            def enough(name: str, payload: dict[str, Json], wanted: int = wanted) -> bool:
                nonlocal got
                buffered = flat([(name, payload)])
                got += len(numbers(buffered))  # of this chat: the first one shows that the message has arrived
                return got >= wanted or any(each == "chat:end" for each, _ in buffered)

            came = flat(await socket.until(enough))
            seen += [each for each in came if numbers([each])]  # not what a socket hears that follows nothing yet
            if came[-1][0] != "chat:end":
                await socket.cut()
                cuts += 1
                socket = await opened(alice, session, numbers(seen)[-1] if seen else 0, is_raw, resume=True)
        await socket.leave()
        assert numbers(seen) == list(range(1, len(seen) + 1))
        folded = FoldedTurns()
        for event in seen:
            folded.feed(event)
        texts = [turn["blocks"] for turn in await alice.messages(session)]
        assert [turn["blocks"] for turn in folded.turns.values()] == texts


async def opened(alice: RestClient, session: str, after: int, is_raw: bool, *, resume: bool) -> SocketClient:
    socket = SocketClient(alice.url, alice.key)
    await socket.connect()
    request: dict[str, Json] = {"session_id": session, "after_sequence": after, "resume": resume}
    await socket.call("session:subscribe", request | ({"event_format": "raw"} if is_raw else {}))
    return socket


@requirement("blade:catch-up:slow")
async def test_a_slow_socket_is_cut_back_to_a_snapshot_and_disturbs_nobody(alice: RestClient) -> None:
    session = await alice.session()
    speech: list[dict[str, Json]] = [{"emit": {"count": 110, "text": "x" * 4096}}, {"step": True}]
    steps: list[dict[str, Json]] = [*speech * 23, {"say": "last"}, {"wait_ms": 600_000}]
    async with socket_client(alice.url, alice.key) as slow, socket_client(alice.url, alice.key) as quick:
        for each in (slow, quick):
            await each.call("session:subscribe", {"session_id": session})
        slow.transport.pause_reading()
        await quick.call("chat:send", {"session_id": session, "message": script(*steps)})
        await quick.until(lambda _, payload: payload.get("data", {}).get("text_delta") == "last")
        slow.transport.resume_reading()

        def is_snapshot(name: str, payload: dict[str, Json]) -> bool:
            return name == "turn:start" and payload["patch_sequence"] > 0

        missed = await slow.until(is_snapshot)
        assert sum(name == "turn:end" for name, _ in missed) == 1 + 23, "a turn that ended meanwhile is sent whole"
        snapshot = missed[-1][1]
        assert [block["content"] for block in snapshot["blocks"]] == ["last"]
        await quick.call("chat:stop", {"session_id": session})
        rest = await slow.until("chat:end")
        assert kinds(rest) == ["turn:end", "chat:end"]
        assert rest[0][1]["patch_sequence"] == snapshot["patch_sequence"]


@requirement("blade:socket:unsubscribe")
async def test_who_unsubscribes_hears_no_more(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket, socket_client(alice.url, alice.key) as other:
        await other.call("session:subscribe", {"session_id": session})
        assert await other.call("session:unsubscribe", {"session_id": session}) == {"status": "ok"}
        await socket.send(session, "hello")
        async with asyncio.timeout(60):
            await other.call("session:subscribe", {"session_id": session})
        assert [name for name, _ in other.events if name != "session:updated"] == []


async def imported_copy(alice: RestClient, session: str) -> list[dict[str, Any]]:
    """The turns of a session after its export and import."""
    headers = {"authorization": f"Bearer {alice.key}"}
    async with httpx2.AsyncClient(base_url=alice.url, headers=headers, verify=False) as http:
        archive = (await http.get(f"/api/sessions/{session}/export")).content
        copy = (await http.post("/api/sessions/import", files={"file": ("session.zip", archive)})).json()
    return await alice.messages(copy["id"])


@pytest.mark.slow
@requirement("blade:chats:cut")
@pytest.mark.parametrize("form", [{}, {"event_format": "raw"}])
async def test_a_step_that_a_crash_cut_off_is_marked_and_repeated_as_a_turn_of_its_own(
    tmp_path: Any, form: dict[str, Any]
) -> None:
    async with server_process(tmp_path) as running:
        alice = RestClient(running.connection.url, running.key("alice"))
        session = await alice.session()
        async with socket_client(alice.url, alice.key) as socket:
            await socket.call("chat:send", {"session_id": session, "message": COUNTING_SLOWLY})
            await socket.until("turn:patch")
        await running.crash()
        alice = RestClient(running.connection.url, running.key("alice"))
        async with socket_client(alice.url, alice.key) as socket:
            await socket.call("session:subscribe", {"session_id": session, "after_sequence": -1, **form})
            events = flat(await socket.until("chat:end"))
        _, cut, repeated = await alice.messages(session)
        nodes = (await alice.get(f"sessions/{session}/history"))["nodes"]
        imported = (await imported_copy(alice, session))[1:]
    assert (cut["cut"], cut["status"]) == (True, "interrupted")
    assert ("cut" in repeated, repeated["status"]) == (False, "completed")
    assert cut["chat_run_id"] == repeated["chat_run_id"]
    assert [("cut" in each, each["status"]) for each in (*nodes[1:], *imported)] == [
        (True, "interrupted"),
        (False, "completed"),
    ] * 2
    ends = [each for name, each in events if name == "turn:end" and each["role"] == "assistant"]
    assert [each["turn_id"] for each in ends] == [cut["turn_id"], repeated["turn_id"]]
    assert [each.get("cut") for each in ends] == [True, None]
    deltas = [each for name, each in events if name == "turn:patch"]
    for turn in (cut, repeated):
        text = "".join(each["data"]["text_delta"] for each in deltas if each["turn_id"] == turn["turn_id"])
        assert text == turn["blocks"][0]["content"], "live text belongs to one of the two turns"
    assert repeated["blocks"][0]["content"] == "".join(f"{number:03} " for number in range(50))
