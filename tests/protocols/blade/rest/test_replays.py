"""Replays: whether a session has one, what is played, and what happens when the texts differ (section 5.6)."""

from typing import Any

import pytest

from tests.conversations import CONVERSATIONS, Conversation, Interruption, call, play, script
from tests.protocols.blade.client import RestClient, SocketClient, kinds, socket_client
from tests.protocols.blade.driver import BladeDriver
from tests.protocols.blade.patch_folding import FoldedTurns
from tests.requirements import requirement
from tests.servers import SocketServer

Json = Any
ASKS = {"questions": [{"question": "Which?", "options": [{"label": "a"}, {"label": "b"}]}]}
FIRST = script(
    {"think": "hm"},
    {"say": "one two three"},
    {"fork": {"description": "dig", "script": [{"ask": ASKS}, {"say": "chose {answer}"}]}},
    {"plan": {"status": "draft", "steps": [{"title": "go", "status": "pending"}]}},
    {"say": "found {result}"},
)
SECOND = script(call("stamp", text="x"), {"say": "{result}"})
VARYING = {"id", "turn_id", "loop_id", "parent_fork_tool_call_id", "sequence", "chat_run_id"}
TIMES = {"started_at", "duration_ms"}


async def recorded(caller: RestClient, *messages: str) -> str:
    """A session in which these messages were answered, and the first option of every question chosen."""
    session = await caller.session(intent="to be replayed")
    async with socket_client(caller.url, caller.key) as socket:
        for message in messages:
            reply = await socket.send(session, message)
            while reply[-1][1]["waiting_for_input"]:
                [call_id] = [
                    each["id"]
                    for turn in await caller.messages(session)
                    for each in turn["tool_calls"]
                    if each["tool_name"] == "AskUserQuestion" and each["status"] == "awaiting_answer"
                ]
                reply = await socket.send(
                    session, "", askuser_answer={"tool_call_id": call_id, "selections": {"0": [0]}}
                )
    return session


def ends_early(conversation: Conversation) -> bool:
    """Whether its session is deleted, or its server stopped, before the end."""
    return conversation.crashes() or any(
        isinstance(step, Interruption) and step.how == "delete" for step in conversation.steps
    )


async def replay_of(caller: RestClient, session: str, speed: int = 5) -> str:
    reply = await caller.request("POST", f"sessions/{session}/replay", {"speed": speed})
    assert (reply.status, list(reply.body)) == (200, ["session_id"]), reply
    return str(reply.body["session_id"])


def comparable_turns(turns: list[dict[str, Json]]) -> list[Json]:
    """Turns without what is another one's in every session: ids by their order, no times and no memories."""
    names: dict[str, str] = {}
    apart = VARYING | TIMES | {"memory_refs"}

    def renamed(value: Json) -> Json:
        match value:
            case {"status": status, "code": code, "message": _}:  # a replay has no sentence about an end
                return [status, code]
            case dict():
                return {name: renamed(each) for name, each in value.items() if name not in TIMES}
            case list():
                return [renamed(each) for each in value]
            case str() if value.startswith(("tc_", "perm_", "ask1_", "fork:")):
                return names.setdefault(value, f"id {len(names)}")
        return value

    return [renamed({name: each for name, each in turn.items() if name not in apart}) for turn in turns]


@requirement("blade:replay:plays")
async def test_a_replay_shows_the_turns_that_were_recorded_and_folds_as_every_chat_does(alice: RestClient) -> None:
    source = await recorded(alice, FIRST, SECOND)
    replay = await replay_of(alice, source)
    async with socket_client(alice.url, alice.key) as socket:
        events = [event for message in (FIRST, SECOND) for event in await socket.send(replay, message)]
    folded = FoldedTurns()
    for event in events:
        folded.feed(event)
    turns = await alice.messages(replay)
    assert comparable_turns(turns) == comparable_turns(await alice.messages(source))
    assert [turn["turn_id"] for turn in turns] == list(folded.turns)
    ends = [payload for name, payload in events if name == "chat:end"]
    assert [(each["status"], each["waiting_for_input"]) for each in ends] == [("completed", False)] * 2


@requirement("blade:replay:plays")
@pytest.mark.parametrize(
    "conversation",
    [each for each in CONVERSATIONS if each.needs <= BladeDriver.features and not ends_early(each)],
    ids=lambda each: each.name,
)
async def test_every_conversation_is_shown_again_as_it_was(
    alice: RestClient, shared_server: SocketServer, conversation: Conversation
) -> None:
    driver = BladeDriver()
    try:
        await play(conversation, driver, shared_server)
    finally:
        await driver.close()
    replay = await replay_of(alice, driver.session)
    async with socket_client(alice.url, alice.key) as socket:
        for _ in range((await alice.get(f"sessions/{replay}"))["replay_state"]["total"]):
            await socket.send(replay, "", replay_decision="keep_replay")
    assert comparable_turns(await alice.messages(replay)) == comparable_turns(await alice.messages(driver.session))


@requirement("blade:replay:plays")
async def test_the_recorded_changes_of_mode_hold_whatever_the_client_sends(alice: RestClient) -> None:
    source = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        for mode in ("planning", "planning", "executing"):
            await socket.send(source, "hello", mode=mode)
        replay = await replay_of(alice, source)
        for _ in range(3):
            await socket.send(replay, "hello", mode="executing")
    turns = await alice.messages(replay)
    assert [turn["role"] for turn in turns].count("system") == 2
    assert comparable_turns(turns) == comparable_turns(await alice.messages(source))


@requirement("blade:replay:state")
async def test_the_progress_of_a_replay_is_in_its_session_and_is_reported_when_it_changes(alice: RestClient) -> None:
    source = await recorded(alice, "hello", "hello again")
    replay = await replay_of(alice, source, speed=2)
    state = {"source_session_id": source, "status": "waiting", "speed": 2, "position": 0, "total": 2}
    detail = await alice.get(f"sessions/{replay}")
    assert (detail["replay_state"], detail["intent"], detail["status"]) == (state, "to be replayed", "created")
    assert (await alice.get(f"sessions/{source}"))["replay_state"] is None
    listed = {each["id"]: each for each in (await alice.get("sessions?limit=200"))["items"]}
    assert listed[replay]["replay_state"] == state

    def states(events: list[Any]) -> list[Json]:
        result = [payload.get("replay_state") for name, payload in events if name == "session:updated"]
        return [(each["status"], each["position"]) for each in result if each]

    async with socket_client(alice.url, alice.key) as socket:
        first, second = await socket.send(replay, "hello"), await socket.send(replay, "hello again")
    assert states(first) == [("replaying", 1), ("waiting", 1)]
    assert states(second) == [("replaying", 2), ("finished", 2)]
    assert kinds(second)[-2:] == ["session:updated", "chat:end"]
    assert (await alice.get(f"sessions/{replay}"))["replay_state"] == {**state, "status": "finished", "position": 2}


async def refused(socket: SocketClient, session: str, message: str, **fields: Json) -> dict[str, Json]:
    reply = await socket.call("chat:send", {"session_id": session, "message": message, **fields})
    assert reply["status"] == "error", reply
    return reply


@requirement("blade:replay:mismatch")
async def test_other_words_play_nothing_until_the_client_says_which_are_to_stand_there(alice: RestClient) -> None:
    source = await recorded(alice, "hello", "hello again", "hello more")
    replay = await replay_of(alice, source)
    async with socket_client(alice.url, alice.key) as socket:
        assert (await refused(socket, replay, "hullo"))["code"] == "replay_input_mismatch"
        [event] = await socket.until("replay:input_mismatch")
        assert event[1] == {"session_id": replay, "expected": "hello", "received": "hullo"}
        assert await alice.messages(replay) == []
        assert (await alice.get(f"sessions/{replay}"))["replay_state"]["position"] == 0
        await socket.send(replay, "hullo", replay_decision="continue_replay")
        await socket.send(replay, "", replay_decision="keep_replay")
        await socket.send(replay, " hello more\n")
        assert (await refused(socket, replay, "", replay_decision="continue_replay"))["code"] == "bad_request"
    turns = await alice.messages(replay)
    assert ["".join(block["content"] for block in turn["blocks"]) for turn in turns] == [
        "hullo",
        "Hello! I am the rehearsal agent.",
        "hello again",
        "You said: hello again",
        " hello more\n",
        "You said: hello more",
    ]


@requirement("blade:replay:over", "blade:replay:autonomous")
async def test_when_the_recording_is_over_nothing_runs_until_the_replay_is_left(alice: RestClient) -> None:
    source = await recorded(alice, "hello")
    replay = await replay_of(alice, source)
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(replay, "hello")
        over = "the recording is over: set the replay's status to autonomous to continue"
        assert await refused(socket, replay, "live") == {"status": "error", "code": "bad_request", "message": over}
        left = await alice.request("PATCH", f"sessions/{replay}/replay", {"status": "autonomous"})
        assert left.body["replay_state"]["status"] == "autonomous"
        await socket.send(replay, "live")
    assert (await alice.messages(replay))[-1]["blocks"][0]["content"] == "You said: live"


@requirement("blade:replay:refused")
async def test_a_replay_takes_no_whatif_and_no_schema(alice: RestClient) -> None:
    replay = await replay_of(alice, await recorded(alice, "hello"))
    async with socket_client(alice.url, alice.key) as socket:
        for field in ({"whatif": {"from_step": 0}}, {"output_schema": {"type": "object"}}):
            assert (await refused(socket, replay, "hello", **field))["code"] == "bad_request"
        answer = {"tool_call_id": "tc_none", "selections": {"0": [0]}}
        assert (await refused(socket, replay, "", askuser_answer=answer))["code"] == "no_pending_question"


@requirement("blade:replay:pace")
async def test_a_replay_can_be_hurried_and_stopped_while_it_plays(alice: RestClient) -> None:
    slow = script({"say": "first"}, {"wait_ms": 2_000}, {"say": " last"})
    replay = await replay_of(alice, await recorded(alice, slow), speed=1)
    async with socket_client(alice.url, alice.key) as socket:
        reply = await socket.call("chat:send", {"session_id": replay, "message": slow})
        assert reply["status"] == "ok"
        await socket.until("turn:patch")
        faster = await alice.request("PATCH", f"sessions/{replay}/replay", {"speed": 5, "status": None})
        assert (faster.status, faster.body["replay_state"]["speed"]) == (200, 5)
        assert faster.body["replay_state"]["status"] == "replaying"
        assert (await refused(socket, replay, "else"))["code"] == "session_busy"
        assert await socket.call("chat:stop", {"session_id": replay}) == {"status": "stopped"}
    assert (await alice.get(f"sessions/{replay}"))["status"] == "interrupted"


@requirement("blade:replay:preview")
async def test_a_preview_says_whether_a_session_can_be_shown_again(alice: RestClient) -> None:
    empty = await alice.session(intent="empty")
    path = f"sessions/{empty}/replay/preview"
    reply = {"session_id": empty, "intent": "empty", "supported": False, "reason": "the session has no completed turn"}
    assert await alice.get(path) == reply
    assert (await alice.request("POST", f"sessions/{empty}/replay", {"speed": 1})).status == 409
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(empty, "hello")
        assert await alice.get(path) == {**reply, "supported": True, "reason": None}
        waits = script({"say": "x"}, {"wait_ms": 600_000})
        await socket.call("chat:send", {"session_id": empty, "message": waits})
        assert await alice.get(path) == {**reply, "reason": "a chat of this session is running"}
        assert (await alice.request("POST", f"sessions/{empty}/replay", {"speed": 1})).status == 409
        await socket.call("chat:stop", {"session_id": empty})


@requirement("blade:replay:refused")
@pytest.mark.parametrize("body", [{"speed": 3}, {"speed": "2"}, {"speed": None}, {"speed": True}, []])
async def test_a_wrong_speed_is_refused(alice: RestClient, body: Json) -> None:
    reply = await alice.request("POST", f"sessions/{await recorded(alice, 'hello')}/replay", body)
    assert (reply.status, list(reply.body)) == (422, ["detail"])


@requirement("blade:replay:refused")
async def test_only_its_owner_shows_a_session_again_and_only_a_replay_can_be_changed(
    alice: RestClient, bob: RestClient
) -> None:
    source = await recorded(alice, "hello")
    change = {"speed": 2}
    for path, method in (("replay", "POST"), ("replay", "PATCH"), ("replay/preview", "GET")):
        assert (await bob.request(method, f"sessions/{source}/{path}", change)).status == 404
    await alice.request("PATCH", f"sessions/{source}/sharing", {"shared": True})
    assert (await bob.request("POST", f"sessions/{source}/replay", change)).status == 403
    assert (await bob.get(f"sessions/{source}/replay/preview"))["supported"] is True
    reply = await alice.request("PATCH", f"sessions/{source}/replay", change)
    assert (reply.status, reply.body) == (409, {"detail": "this session is not a replay"})
    replay = await replay_of(alice, source)
    for body in ({"status": "finished"}, {"speed": 4}):
        assert (await alice.request("PATCH", f"sessions/{replay}/replay", body)).status == 422


@requirement("blade:replay:source")
async def test_a_replay_whose_recording_was_deleted_says_so(alice: RestClient) -> None:
    source = await recorded(alice, "hello")
    replay = await replay_of(alice, source)
    await alice.request("DELETE", f"sessions/{source}")
    async with socket_client(alice.url, alice.key) as socket:
        reply = await refused(socket, replay, "hello")
    assert (reply["code"], reply["message"]) == ("bad_request", "the recorded session was deleted")
