"""Chats over Socket.IO: connecting, sending, acknowledgements, refusals, stopping (specification, section 6)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest
from socketio.exceptions import ConnectionError as Refused  # type: ignore[import-untyped]  # the library is not annotated

from dragoman.engine.instrumentation.counted_log import CountedLog
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.log import Append
from dragoman.protocols.blade.access import lease_readable
from dragoman.protocols.blade.socket import inbox
from dragoman.protocols.blade.socket.client_socket import Socket
from dragoman.protocols.blade.socket.socketio_server import MAX_DETACHED_EVENTS
from tests.asgi_client import DEADLINE_S
from tests.conversations import call, script
from tests.protocols.blade.client import Event, RestClient, SocketClient, flat, kinds, socket_client
from tests.protocols.blade.driver import url_of
from tests.requirements import requirement
from tests.servers import running_socket_server

SLOW = script({"say": "one"}, {"wait_ms": 600_000}, {"say": "two"})


@requirement("blade:socket:connect")
@pytest.mark.parametrize("token", [None, "", "sk-dragoman-wrong", 7])
async def test_who_has_no_key_is_refused_at_connect(alice: RestClient, token: Any) -> None:
    knocking = SocketClient(alice.url, token)
    texts: list[Any] = []
    knocking.sio.on("connect_error", texts.append)
    with pytest.raises(Refused):
        await knocking.connect()
    assert texts == [{"message": "Unauthorized"}]
    await knocking.leave()


@requirement("blade:socket:transports")
@pytest.mark.parametrize("transports", [["websocket"], ["polling"], ["polling", "websocket"]])
async def test_both_transports_carry_a_chat(alice: RestClient, transports: list[str]) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key, transports) as socket:
        assert kinds(await socket.send(session, "hello"))[-1] == "chat:end"


@requirement("blade:chats:order", "blade:chats:acknowledged", "blade:chats:sender-is-subscribed")
async def test_a_plain_chat_is_reported_in_order_to_a_sender_who_never_subscribed(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        reply = await socket.call("chat:send", {"session_id": session, "message": "add 2 and 3"})
        events = await socket.until("chat:end")
    assert (reply["status"], reply["session_id"]) == ("ok", session)
    assert kinds(events) == [
        "session:updated",
        "chat:start",
        "turn:start",
        "turn:end",
        "memory:inject:done",
        "turn:start",
        "turn:patch add_tool_call",
        "turn:patch tool_result",
        "turn:end",
        "turn:start",
        "turn:patch add_content",
        "turn:end",
        "chat:end",
    ]
    assert [payload["stream_sequence"] for _, payload in events] == list(range(1, 14))
    assert {payload["chat_run_id"] for name, payload in events if name.startswith("chat")} == {reply["chat_run_id"]}
    assert events[0][1]["intent"] == "add 2 and 3"
    assert events[-1][1] == {
        "session_id": session,
        "status": "completed",
        "result": None,
        "finish_reason": "completed",
        "waiting_for_input": False,
        "stream_sequence": 13,
        "chat_run_id": reply["chat_run_id"],
    }


@requirement("blade:chats:order")
async def test_events_of_one_socket_are_handled_one_after_the_other(alice: RestClient) -> None:
    """Clients subscribe and send back to back, without waiting."""
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.emit("session:subscribe", {"session_id": session, "event_format": "raw", "after_sequence": 0})
        await socket.emit("chat:send", {"session_id": session, "message": "hello"})
        events = await socket.until("chat:end")
    assert "turn:events" in kinds(events)
    assert "turn:start" not in kinds(events)


@requirement("blade:raw:batches")
async def test_raw_sockets_get_batches_whose_ends_repeat_their_fields(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as raw, socket_client(alice.url, alice.key) as plain:
        await raw.call("session:subscribe", {"session_id": session, "event_format": "raw"})
        await plain.call("session:subscribe", {"session_id": session})
        await raw.emit("chat:send", {"session_id": session, "message": "hello"})
        batched, seen = await raw.until("chat:end"), await plain.until("chat:end")
    assert {name for name, _ in batched} == {"session:updated", "memory:inject:done", "turn:events", "chat:end"}
    assert flat(batched) == seen, "G5: two subscribers see the same"
    items = [item for name, payload in batched if name == "turn:events" for item in payload["events"]]
    for item in items:
        assert item["stream_sequence"] == item["payload"]["stream_sequence"]
        if item["type"] in ("turn:start", "turn:end"):
            repeated = {name: value for name, value in item.items() if name not in ("type", "payload")}
            assert repeated == item["payload"]


@requirement("blade:chats:busy")
async def test_a_second_message_is_refused_to_its_sender_alone(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket, socket_client(alice.url, alice.key) as other:
        await socket.call("chat:send", {"session_id": session, "message": SLOW})
        reply = await other.call("chat:send", {"session_id": session, "message": "hello"})
        assert (reply["status"], reply["code"]) == ("error", "session_busy")
        errors = [payload for name, payload in other.events if name == "system:error"]
        assert [(each["code"], each["session_id"]) for each in errors] == [("session_busy", session)]
        assert "system:error" not in kinds(socket.events)
        assert (await socket.call("chat:send", {"session_id": session, "message": "hello"}))["code"] == "session_busy"
        (own,) = [payload for name, payload in socket.events if name == "system:error"]
        assert "session_id" not in own, "clients would end the stream that this session has"
        assert await socket.call("chat:stop", {"session_id": session}) == {"status": "stopped"}


@requirement("blade:chats:refused")
@pytest.mark.parametrize(
    ("name", "payload", "code", "message"),
    [
        ("chat:send", None, "bad_request", "Missing session_id or message"),
        ("chat:send", {"message": "hello"}, "bad_request", "Missing session_id or message"),
        ("chat:send", {"session_id": "SESSION"}, "bad_request", "Missing session_id or message"),
        ("chat:send", {"session_id": "SESSION", "message": ""}, "bad_request", "Missing session_id or message"),
        ("chat:send", {"session_id": "FOREIGN", "message": "x"}, "forbidden", "Access denied"),
        ("chat:send", {"session_id": "sess_none", "message": "x"}, "forbidden", "Access denied"),
        ("session:subscribe", {"session_id": "FOREIGN"}, "forbidden", "Access denied"),
        ("session:subscribe", {"session_id": 7}, "bad_request", "session_id: Expected `str`, got `int`"),
        ("session:subscribe", {}, "bad_request", "session_id: this field is required"),
        ("chat:stop", {"session_id": "FOREIGN"}, "forbidden", "Access denied"),
        ("chat:send", {"session_id": "SESSION", "message": "x", "mode": "sleeping"}, "bad_request", None),
        ("chat:send", {"session_id": "SESSION", "message": [{"type": "video"}]}, "bad_request", None),
        (
            "chat:send",
            {"session_id": "SESSION", "message": "x", "output_schema": {"type": "text"}},
            "bad_request",
            None,
        ),
        ("chat:send", {"session_id": "SESSION", "message": "x", "whatif": {"from_step": 1}}, "bad_request", None),
        (
            "chat:send",
            {"session_id": "SESSION", "message": "", "askuser_answer": {"tool_call_id": "tc_none"}},
            "no_pending_question",
            None,
        ),
        (
            "chat:send",
            {"session_id": "SESSION", "message": [{"type": "file", "name": "a", "data": "%"}]},
            "bad_request",
            "message[0].data: a file's data must be base64",
        ),
    ],
)
async def test_what_is_refused_is_acknowledged_and_announced(
    alice: RestClient, bob: RestClient, name: str, payload: Any, code: str, message: str | None
) -> None:
    session, foreign = await alice.session(), await bob.session()
    names = {"SESSION": session, "FOREIGN": foreign}
    if isinstance(payload, dict) and payload.get("session_id") in names:
        payload = {**payload, "session_id": names[payload["session_id"]]}
    async with socket_client(alice.url, alice.key) as socket:
        reply = await socket.call(name, payload)
        [(_, error)] = await socket.until("system:error")
    assert (reply["status"], reply["code"]) == ("error", code)
    assert message is None or reply["message"] == message
    assert (error["code"], error["message"]) == (code, reply["message"])
    assert ("session_id" in error) == (
        reply["message"] != "Missing session_id or message" and isinstance(payload.get("session_id"), str)
    )
    assert await alice.messages(session) == []


@requirement("blade:chats:stop")
async def test_a_stopped_chat_keeps_its_words_and_ends_before_the_acknowledgement(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.call("chat:send", {"session_id": session, "message": SLOW})
        await socket.until("turn:patch")
        assert await socket.call("chat:stop", {"session_id": session, "chat_run_id": "chat_other"}) == {
            "status": "idle"
        }
        assert await socket.call("chat:stop", {"session_id": session}) == {"status": "stopped"}
        assert "chat:end" in kinds(socket.events)
        rest = await socket.until("chat:end")
        assert kinds(rest) == ["turn:end", "chat:end"]
        assert (rest[0][1]["status"], rest[0][1]["blocks"][0]["content"]) == ("interrupted", "one")
        assert (rest[1][1]["status"], rest[1][1]["finish_reason"]) == ("interrupted", None)
        assert (await alice.get(f"sessions/{session}"))["status"] == "interrupted"
        assert await socket.call("chat:stop", {"session_id": session}) == {"status": "idle"}
        assert kinds(await socket.send(session, "hello"))[-1] == "chat:end", "the next message works at once"


@requirement("blade:chats:left")
@pytest.mark.parametrize("form", [{}, {"event_format": "raw", "after_sequence": 0}])
async def test_who_stops_and_leaves_a_chat_gets_only_the_next_one(alice: RestClient, form: dict[str, Any]) -> None:
    session = await alice.session()
    subscription = {"session_id": session, **form}
    async with socket_client(alice.url, alice.key) as leaver, socket_client(alice.url, alice.key) as follower:
        await follower.call("session:subscribe", {"session_id": session})
        await leaver.call("session:subscribe", subscription)
        await leaver.call("chat:send", {"session_id": session, "message": SLOW})
        await leaver.until("turn:events" if form else "turn:patch")
        await leaver.emit("chat:stop", {"session_id": session})
        await leaver.emit("session:unsubscribe", {"session_id": session})
        await leaver.emit("session:subscribe", subscription)
        reply = await leaver.call("chat:send", {"session_id": session, "message": "hello"})
        assert reply["status"] == "ok"
        events = flat(await leaver.until("chat:end"))
        assert [each["chat_run_id"] for name, each in events if name == "chat:end"] == [reply["chat_run_id"]]
        assert [each["chat_run_id"] for name, each in events if name == "chat:start"][-1:] == [reply["chat_run_id"]]
        followed = [await follower.until("chat:end") for _ in range(2)]
    assert [each[-1][1]["status"] for each in followed] == ["interrupted", "completed"], "others get both ends"


@requirement("blade:chats:left")
async def test_who_leaves_a_stopped_chat_misses_its_end_however_long_the_session_takes_to_find(
    alice: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several servers the session is looked up in the store, which takes longer than the stop."""
    session, has_ended = await alice.session(), asyncio.Event()

    @asynccontextmanager
    async def find_late(*names: Any) -> AsyncIterator[SessionView]:
        await has_ended.wait()
        async with lease_readable(*names) as live:
            yield live

    async with socket_client(alice.url, alice.key) as leaver, socket_client(alice.url, alice.key) as follower:
        await follower.call("session:subscribe", {"session_id": session})
        await leaver.call("chat:send", {"session_id": session, "message": SLOW})
        await leaver.until("turn:patch")
        monkeypatch.setattr(inbox, "lease_readable", find_late)
        await leaver.emit("chat:stop", {"session_id": session})
        await leaver.emit("session:unsubscribe", {"session_id": session})
        await follower.until("chat:end")
        has_ended.set()
        reply = await leaver.call("chat:send", {"session_id": session, "message": "hello"})
        events = await leaver.until("chat:end")
    assert [each["chat_run_id"] for name, each in events if name == "chat:end"] == [reply["chat_run_id"]]


@requirement("blade:chats:left")
async def test_a_stop_without_an_acknowledgement_waits_for_the_unsubscribe_that_follows(
    alice: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it takes to arrive: the chat goes on until then."""
    session, is_waiting, wait_for_event = await alice.session(), asyncio.Event(), Socket.wait_for_event

    async def wait_long(self: Socket, _: float) -> None:
        is_waiting.set()
        await wait_for_event(self, DEADLINE_S)

    monkeypatch.setattr(Socket, "wait_for_event", wait_long)
    async with socket_client(alice.url, alice.key) as leaver, socket_client(alice.url, alice.key) as follower:
        await follower.call("session:subscribe", {"session_id": session})
        await leaver.call("chat:send", {"session_id": session, "message": SLOW})
        await leaver.emit("chat:stop", {"session_id": session})
        ended, waiting = asyncio.create_task(follower.until("chat:end")), asyncio.create_task(is_waiting.wait())
        await asyncio.wait([ended, waiting], return_when=asyncio.FIRST_COMPLETED)
        assert (waiting.done(), ended.done()) == (True, False)
        await leaver.emit("session:unsubscribe", {"session_id": session})
        await ended
        reply = await leaver.call("chat:send", {"session_id": session, "message": "hello"})
        events = await leaver.until("chat:end")
    assert [each["chat_run_id"] for name, each in events if name == "chat:end"] == [reply["chat_run_id"]]


@requirement("blade:chats:left")
async def test_a_chat_of_another_tab_waits_for_a_stop_that_has_not_taken_effect(
    alice: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, another = await alice.session(), await alice.session()
    is_waiting, wait_for_event = asyncio.Event(), Socket.wait_for_event

    async def wait_long(self: Socket, _: float) -> None:
        is_waiting.set()
        await wait_for_event(self, DEADLINE_S)

    monkeypatch.setattr(Socket, "wait_for_event", wait_long)
    async with socket_client(alice.url, alice.key) as leaver, socket_client(alice.url, alice.key) as tab:
        await leaver.call("chat:send", {"session_id": session, "message": SLOW})
        await leaver.emit("chat:stop", {"session_id": session})
        await is_waiting.wait()
        sent = asyncio.create_task(tab.call("chat:send", {"session_id": session, "message": "hello"}))
        async with socket_client(alice.url, alice.key) as somebody:
            await somebody.send(another, "hello")
        await leaver.emit("session:unsubscribe", {"session_id": session})
        assert (await sent)["status"] == "ok"


@requirement("blade:chats:left")
async def test_rest_shows_how_a_chat_ended_only_when_that_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, seen = CountedLog.commit, []
    stopping, may_commit = asyncio.Event(), asyncio.Event()
    sessions: list[str] = []  # runs of other tests' servers may end meanwhile

    async def late(self: CountedLog, batch: Sequence[Append]) -> Sequence[bool]:
        ours = [payload for append in batch if append.session_id in sessions for payload in append.payloads]
        if any(b'"run_stopped"' in payload for payload in ours):
            stopping.set()
            await may_commit.wait()
            seen.append("committed")
        return await commit(self, batch)

    async def look(path: str) -> None:
        found = await alice.get(path)
        seen.append((found["items"][0] if "items" in found else found)["status"])

    monkeypatch.setattr(CountedLog, "commit", late)
    async with running_socket_server(tmp_path) as app_server:
        alice = RestClient(url_of(app_server), app_server.key("alice"))
        session = await alice.session()
        sessions.append(session.removeprefix("sess_"))
        async with socket_client(alice.url, alice.key) as socket, asyncio.TaskGroup() as tasks:
            await socket.call("chat:send", {"session_id": session, "message": SLOW})
            await socket.until("turn:patch")
            await socket.emit("chat:stop", {"session_id": session})
            await stopping.wait()
            for path in (f"sessions/{session}", "sessions"):
                tasks.create_task(look(path))
            for _ in range(3):  # enough time for an answer
                await alice.get("version")
            may_commit.set()
    assert seen == ["committed", "interrupted", "interrupted"]


@requirement("blade:chats:stop")
async def test_many_stops_at_once_are_all_answered_and_the_next_chat_is_complete(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.call("session:subscribe", {"session_id": session})
        for _ in range(MAX_DETACHED_EVENTS * 2):
            await socket.emit("chat:stop", {"session_id": session})
        stops = [socket.call("chat:stop", {"session_id": session}) for _ in range(MAX_DETACHED_EVENTS * 2)]
        assert await asyncio.gather(*stops) == [{"status": "idle"}] * len(stops)
        events = await socket.send(session, "hello")
    assert events[-1][1]["status"] == "completed"


@requirement("blade:chats:stop")
async def test_a_stop_cancels_the_calls_that_run(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.call("chat:send", {"session_id": session, "message": script(call("slow", seconds=600))})
        await socket.until("turn:patch")
        await socket.call("chat:stop", {"session_id": session})
        rest = await socket.until("chat:end")
    assert kinds(rest) == ["turn:patch set_tool_status", "turn:end", "chat:end"]
    turn = rest[1][1]
    assert (turn["status"], [each["status"] for each in turn["tool_calls"]]) == ("interrupted", ["cancelled"])
    assert turn["tool_calls"][0]["duration_ms"] == rest[0][1]["data"]["duration_ms"] >= 0


@requirement("blade:chats:failed")
async def test_a_failed_chat_ends_its_turn_says_why_and_ends(alice: RestClient) -> None:
    session = await alice.session()
    failing = script({"say": "half"}, {"fail": {"code": "model_error", "message": "The model is gone"}})
    async with socket_client(alice.url, alice.key) as socket:
        events = await socket.send(session, failing)
    assert kinds(events)[-3:] == ["turn:end", "system:error", "chat:end"]
    turn, error, end = (payload for _, payload in events[-3:])
    assert (turn["status"], turn["failure_reason"]) == ("failed", "The model is gone")
    assert (error["message"], error["code"], error["session_id"]) == ("The model is gone", "model_error", session)
    assert (end["status"], end["finish_reason"]) == ("failed", None)
    assert (await alice.get(f"sessions/{session}"))["status"] == "failed"


@requirement("blade:chats:end-in-messages")
async def test_how_a_chat_without_a_complete_answer_ended_is_in_its_end_and_in_the_messages(alice: RestClient) -> None:
    session = await alice.session()
    ends = []
    async with socket_client(alice.url, alice.key) as socket:
        for steps, status, code, message in (
            (({"fail": {"code": "quota", "message": "No more"}},), "failed", "quota", "No more"),
            (({"say": "x"}, {"stop": "max_tokens"}), "completed", "max_tokens", None),
            (({"stop": "refusal"},), "completed", "refusal", None),
            ([call("add", a=1, b=1)] * 26, "completed", "max_steps", "the run reached its limit of 25 steps"),
        ):
            events = await socket.send(session, script(*steps))
            ends.append({"status": status, "code": code, "message": message})
            assert events[-1][1]["chat_end"] == ends[-1]
        assert "chat_end" not in (await socket.send(session, "hello"))[-1][1]
    turns = await alice.messages(session)
    assert [turn["chat_end"] for turn in turns if "chat_end" in turn] == ends
    last_of_chats = [turn for turn, after in pairwise(turns) if after["role"] == "user"]
    assert all("chat_end" in turn for turn in last_of_chats)


@requirement("blade:chats:end-in-messages")
async def test_the_end_of_a_chat_on_another_branch_is_not_in_the_messages(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, "hello")
        await socket.send(session, script({"stop": "refusal"}))
    checkpoints = await alice.get(f"sessions/{session}/checkpoints")
    await alice.request("POST", f"sessions/{session}/rewind", {"checkpoint_id": checkpoints[-1]["checkpoint_id"]})
    assert [turn["role"] for turn in await alice.messages(session) if "chat_end" not in turn] == ["user", "assistant"]


@requirement("blade:chats:limit")
async def test_a_chat_at_the_limit_of_model_calls_is_completed(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        events = await socket.send(session, script(*[call("add", a=1, b=1)] * 26))
    assert (events[-1][1]["status"], events[-1][1]["finish_reason"]) == ("completed", "max_turns")


def session_events(session: str, listener: SocketClient) -> list[Event]:
    """The events of one session. Those of the sessions of other tests may arrive at any time."""
    return [(name, payload) for name, payload in listener.events if payload["session_id"] == session]


@requirement("blade:socket:updated")
async def test_changes_of_a_session_reach_the_owners_other_sockets_and_nobody_elses(
    alice: RestClient, bob: RestClient
) -> None:
    session = await alice.session()
    async with (
        socket_client(alice.url, alice.key) as subscribed,
        socket_client(alice.url, alice.key) as other,
        socket_client(bob.url, bob.key) as his,
    ):
        await alice.request("PATCH", f"sessions/{session}/pin", {"pinned": True})
        pinned = (await other.until(lambda _, payload: payload["session_id"] == session))[-1][1]
        assert pinned == {"session_id": session, "is_pinned": True}
        await subscribed.call("session:subscribe", {"session_id": session})
        await alice.request("PATCH", f"sessions/{session}", {"intent": "new"})
        for each in (subscribed, other):
            renamed = (await each.until(lambda _, payload: "intent" in payload))[-1][1]
            assert renamed == {"session_id": session, "intent": "new", "stream_sequence": 2}
        assert session_events(session, his) == []


@requirement("blade:socket:updated")
async def test_a_run_through_another_protocol_changes_status_and_title_in_the_lists_of_its_owner(
    alice: RestClient, bob: RestClient
) -> None:
    session = await alice.session()
    waits = script({"say": "x"}, {"wait_ms": 600_000})
    query = {"stream": "none", "messages": [{"role": "user", "content": waits}]}
    path = f"/aap/v3/sessions/{session.removeprefix('sess_')}/turns"
    async with (
        socket_client(alice.url, alice.key) as list_only,
        socket_client(bob.url, bob.key) as his,
        httpx2.AsyncClient(base_url=alice.url, verify=False) as http,
    ):
        turn = asyncio.create_task(http.post(path, json=query, headers={"authorization": f"Bearer {alice.key}"}))
        for status, reply in (("running", {"intent": "x"}), ("interrupted", {})):
            received = await list_only.until(lambda _, payload: payload["session_id"] == session)
            assert received[-1] == ("session:updated", {"session_id": session, "status": status, **reply})
            if status == "running":
                await list_only.call("chat:stop", {"session_id": session})
        assert (await turn).status_code == 200
        assert session_events(session, his) == []


@requirement("blade:socket:lists")
async def test_no_socket_gets_news_of_a_session_that_no_list_shows(alice: RestClient) -> None:
    """A chat completion has a session that ends with its answer."""
    asked = {"model": "rehearsal", "messages": [{"role": "user", "content": "hello"}]}
    headers = {"authorization": f"Bearer {alice.key}"}
    async with (
        socket_client(alice.url, alice.key) as listing,
        httpx2.AsyncClient(base_url=alice.url, verify=False) as http,
    ):
        assert (await http.post("/v1/chat/completions", json=asked, headers=headers)).status_code == 200
        session = await alice.session(intent="a task")
        seen = await listing.until(lambda _, payload: payload["session_id"] == session)
        for _, payload in seen:
            await alice.get(f"sessions/{payload['session_id']}")


@requirement("blade:socket:lists")
@pytest.mark.parametrize("is_following", [True, False])
async def test_every_socket_of_the_owner_gets_what_a_list_of_sessions_shows(
    alice: RestClient, is_following: bool
) -> None:
    async with socket_client(alice.url, alice.key) as listing, socket_client(alice.url, alice.key) as actor:

        async def updated(**fields: Any) -> None:
            """Wait until these fields of the session were sent."""

            def is_wanted(name: str, payload: dict[str, Any]) -> bool:
                return name == "session:updated" and {"session_id": session, **fields}.items() <= payload.items()

            await listing.until(is_wanted)

        session = await alice.session(intent="a task")
        await updated(intent="a task", status="created")
        if is_following:
            await listing.call("session:subscribe", {"session_id": session})
        await actor.send(session, "ask me")
        await updated(status="waiting_for_input")
        await actor.call("chat:stop", {"session_id": session})
        await updated(status="interrupted")
        await actor.send(session, "hello")
        await updated(status="completed")
        [checkpoint, *_] = await alice.get(f"sessions/{session}/checkpoints")
        await alice.request("POST", f"sessions/{session}/rewind", {"checkpoint_id": checkpoint["checkpoint_id"]})
        await updated(reload=True)
        await alice.request("DELETE", f"sessions/{session}")
        await updated(deleted=True)


@requirement("blade:chats:parts")
async def test_images_and_files_become_notes_and_reach_the_agent_whole(alice: RestClient) -> None:
    session = await alice.session()
    png = "data:image/png;base64,iVBORw0KGgo="
    parts = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": png}},
        {"type": "file", "name": "data.csv", "data": "YSxi"},
    ]
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, parts)
    [user, *_] = await alice.messages(session)
    urls = [block["attachment"].pop("url") for block in user["blocks"] if "attachment" in block]
    assert [url.rpartition("-")[2] for url in urls] == ["1", "2"], "the numbers of their parts"
    notes = [(block["content"], block.get("attachment")) for block in user["blocks"]]
    assert notes == [
        ("look", None),
        ("[image image/png 1 KB]", {"kind": "image", "name": None, "media_type": "image/png", "size": 8}),
        ("[file data.csv 1 KB]", {"kind": "file", "name": "data.csv", "media_type": "text/csv", "size": 3}),
    ]


@requirement("blade:socket:lists")
async def test_a_branch_of_a_session_that_nobody_follows_is_news_for_its_owners_lists(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as actor:
        await actor.send(session, "hello")
    [checkpoint, *_] = await alice.get(f"sessions/{session}/checkpoints")
    async with socket_client(alice.url, alice.key) as listing:
        await alice.request("POST", f"sessions/{session}/rewind", {"checkpoint_id": checkpoint["checkpoint_id"]})
        await listing.until(lambda _, payload: payload.get("session_id") == session and payload.get("reload") is True)


@requirement("blade:socket:lists")
async def test_a_title_taken_from_the_first_message_follows_its_versions(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as actor, socket_client(alice.url, alice.key) as listing:
        await actor.send(session, "hello")
        [first, *_] = await alice.get(f"sessions/{session}/checkpoints")
        await alice.request("POST", f"sessions/{session}/rewind", {"checkpoint_id": first["checkpoint_id"]})
        await actor.send(session, "goodbye")
        await listing.until(lambda _, payload: payload.get("intent") == "goodbye")
        assert (await alice.get(f"sessions/{session}"))["intent"] == "goodbye"
        await alice.request("PATCH", f"sessions/{session}", {"intent": "greetings"})
        [second, *_] = await alice.get(f"sessions/{session}/checkpoints")
        await alice.request("POST", f"sessions/{session}/rewind", {"checkpoint_id": second["checkpoint_id"]})
        await actor.send(session, "and again")
        assert (await alice.get(f"sessions/{session}"))["intent"] == "greetings", "somebody gave it"
