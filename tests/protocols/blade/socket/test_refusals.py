"""What a refused event leaves behind: nothing, in the session and in who follows it (specification, §§6.1 and 8.7)."""

from typing import Any

import pytest

from tests.conversations import script
from tests.protocols.blade.client import RestClient, kinds, socket_client
from tests.requirements import requirement
from tests.servers import SocketServer

Json = Any
WAITING = script({"say": "one"}, {"wait_ms": 600_000})
PICTURE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]


@requirement("blade:whatif:refused")
@pytest.mark.parametrize(
    ("message", "code"),
    [(PICTURE, "bad_request"), ("x" * (1024 * 1024 + 1), "too_large"), ("x", "no_pending_question")],
)
async def test_a_refused_what_if_leaves_the_conversation_as_it_is(alice: RestClient, message: Json, code: str) -> None:
    session = await alice.session(solution_id="rehearsal-bare")  # which takes no pictures
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, "one")
        before = await alice.get(f"sessions/{session}/history")
        request = {"session_id": session, "message": message, "whatif": {"from_step": 0}}
        if code == "no_pending_question":
            request["askuser_answer"] = {"tool_call_id": "tc_none", "selections": {"0": [0]}}
        reply = await socket.call("chat:send", request)
        assert (reply["status"], reply["code"]) == ("error", "bad_request" if code == "no_pending_question" else code)
    assert await alice.get(f"sessions/{session}/history") == before


@requirement("blade:whatif:branch")
async def test_a_what_if_may_say_nothing_and_quotes_are_marked_line_by_line(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, "one")
        await socket.send(session, "", whatif={"from_step": 2, "quotes": [{"text": "a\nb"}, {"text": "c"}]})
        quoted = await alice.messages(session)
        assert quoted[2]["blocks"][0]["content"] == "> a\n> b\n> c\n\n"
        await socket.send(session, "", whatif={"from_step": 0, "quotes": None, "deprecate_entry_ids": None})
    assert [turn["blocks"][0]["content"] for turn in await alice.messages(session)] == ["", "You said: "]


@requirement("blade:chats:refused")
async def test_a_key_that_may_only_read_gets_the_same_sentence_from_rest_and_the_socket(
    alice: RestClient, shared_server: SocketServer
) -> None:
    session, reader = await alice.session(), RestClient(alice.url, shared_server.key("alice_reads"))
    status, body = await reader.request("PATCH", f"sessions/{session}/pin", {"pinned": True})
    async with socket_client(reader.url, reader.key) as socket:
        for event in ("chat:send", "chat:stop", "chat:compact"):
            reply = await socket.call(event, {"session_id": session, "message": "hello"})
            assert (reply["code"], reply["message"]) == ("forbidden", body["detail"])
    assert (status, body) == (403, {"detail": "this key lacks the scope 'use'"})


@requirement("blade:chats:busy")
async def test_who_is_refused_does_not_follow_the_chat(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket, socket_client(alice.url, alice.key) as other:
        await socket.call("chat:send", {"session_id": session, "message": WAITING})
        await socket.until("turn:patch")
        assert (await other.call("chat:send", {"session_id": session, "message": "x"}))["code"] == "session_busy"
        await socket.call("chat:stop", {"session_id": session})
        await other.call("session:unsubscribe", {"session_id": session})
    assert set(kinds(other.events)) == {"session:updated", "system:error"}, (
        "what its owner's lists need, and the refusal"
    )


@requirement("blade:chats:refused")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "m" * 256}, "model: must have 1 to 255 characters"),
        ({"runtime_env": {"A": "x" * 10_001}}, "runtime_env.A: Expected `str` of length <= 10000, got 10001"),
        (
            {"runtime_env": dict.fromkeys(map(str, range(201)), "")},
            "runtime_env: Expected `object` of length <= 200, got 201",
        ),
        ({"message": None}, "Missing session_id or message"),
        ({"message": [{"type": "text", "text": " "}, {"type": "text", "text": ""}]}, "Missing session_id or message"),
        (
            {"runtime_env": {"A=B": "x"}},
            "runtime_env: a name must not contain spaces, control characters or '=', got 'A=B'",
        ),
    ],
)
async def test_what_a_chat_brings_besides_its_message_is_bounded(
    alice: RestClient, fields: dict[str, Json], message: str
) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        reply = await socket.call("chat:send", {"session_id": session, "message": "x", **fields})
    assert reply == {"status": "error", "code": "bad_request", "message": message}


@requirement("blade:chats:nulls")
async def test_an_optional_field_may_be_null_and_an_empty_model_is_none(alice: RestClient) -> None:
    session = await alice.session(model="first")
    nothing = dict.fromkeys(("mode", "askuser_answer", "headless", "output_schema", "whatif", "runtime_env"))
    async with socket_client(alice.url, alice.key) as socket:
        request = {"session_id": session, "after_sequence": None, "resume": None, "event_format": None}
        assert (await socket.call("session:subscribe", request))["status"] == "ok"
        await socket.send(session, "ask me", model="", **nothing)
        assert (await alice.get(f"sessions/{session}"))["model"] == "first"
        call_id = (await alice.messages(session))[1]["tool_calls"][0]["id"]
        given = {"tool_call_id": call_id, "selections": None, "custom": {"0": "neither"}}
        assert (await socket.send(session, "", askuser_answer=given))[-1][1]["waiting_for_input"] is False


@requirement("blade:abuse:events")
async def test_an_event_that_is_none_of_ours_is_acknowledged_too(alice: RestClient) -> None:
    async with socket_client(alice.url, alice.key) as socket:
        reply = await socket.call("skills:changed", {"session_id": "x"})
        assert reply == {"status": "error", "code": "bad_request", "message": "there is no event 'skills:changed'"}


@requirement("blade:chats:stop")
async def test_a_stop_may_name_the_chat_that_waits_for_an_answer(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        chat = (await socket.send(session, "ask me"))[-1][1]["chat_run_id"]
        other = {"session_id": session, "chat_run_id": "chat_other"}
        assert await socket.call("chat:stop", other) == {"status": "idle"}
        assert await socket.call("chat:stop", {**other, "chat_run_id": chat}) == {"status": "stopped"}
    assert (await alice.get(f"sessions/{session}"))["status"] == "interrupted"


@requirement("blade:catch-up:resume")
async def test_a_number_that_no_event_has_is_answered_with_a_snapshot(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket, socket_client(alice.url, alice.key) as other:
        await socket.call("chat:send", {"session_id": session, "message": WAITING})
        await socket.until("turn:patch")
        reply = await other.call("session:subscribe", {"session_id": session, "after_sequence": 10_000})
        assert (reply["resumed"], reply["running"]) == (False, True)
        assert kinds(await other.until("turn:start"))[-2:] == ["chat:start", "turn:start"]
        await socket.call("chat:stop", {"session_id": session})
