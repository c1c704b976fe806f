"""Questions, permissions, sub-agents, modes, headless chats, what-if, `_meta` (specification, sections 8 and 14)."""

from typing import Any

import httpx2
import pytest

from tests.conversations import call, script
from tests.protocols.blade.client import Event, RestClient, SocketClient, kinds, socket_client
from tests.protocols.blade.patch_folding import FoldedTurns
from tests.requirements import requirement

Json = Any
TWO = {"question": "Which?", "options": [{"label": "a"}, {"label": "b"}], "multiSelect": True}
BOTH = {
    "calls": [
        {"name": "stamp", "input": {"text": "x"}},
        {"name": "AskUserQuestion", "input": {"questions": [TWO]}},
    ]
}
"""Parallel calls: of a tool that needs approval, and the question to the user."""


def ended(events: list[Event]) -> list[dict[str, Json]]:
    return [payload for name, payload in events if name == "turn:end"]


def patches(events: list[Event]) -> list[tuple[str, Json]]:
    return [(payload["patch_type"], payload["data"]) for name, payload in events if name == "turn:patch"]


async def answer(socket: SocketClient, session: str, call_id: str, **given: Json) -> list[Event]:
    return await socket.send(session, "", askuser_answer={"tool_call_id": call_id, **given})


@requirement("blade:questions:ask", "blade:questions:answer")
async def test_a_question_pauses_its_turn_and_the_answer_completes_it(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        request = await socket.send(session, "ask me")
        [question] = [data for kind, data in patches(request) if kind == "add_tool_call"]
        assert question["status"] == "awaiting_answer"
        assert ended(request)[-1]["status"] == "paused"
        assert (request[-1][1]["status"], request[-1][1]["waiting_for_input"]) == ("completed", True)
        assert (await alice.get(f"sessions/{session}"))["status"] == "waiting_for_input"
        given = await answer(socket, session, question["id"], selections={"0": [1]}, custom={})
    assert kinds(given) == [
        "chat:start",
        "turn:start",
        "turn:end",
        "turn:patch tool_result",
        "turn:patch set_status",
        "turn:end",
        "memory:inject:done",
        "turn:start",
        "turn:patch add_content",
        "turn:end",
        "chat:end",
    ]
    answers = [{"question": "Which environment?", "labels": ["production"], "custom": None}]
    assert ended(given)[0]["blocks"][0]["content"] == {
        "tool_call_id": question["id"],
        "selections": {"0": [1]},
        "custom": {},
        "answers": answers,
    }
    assert patches(given)[0][1]["result"] == {"answers": answers}
    assert (ended(given)[1]["turn_id"], ended(given)[1]["status"]) == (ended(request)[-1]["turn_id"], "completed")
    assert given[-1][1]["waiting_for_input"] is False


@requirement("blade:questions:text")
async def test_what_is_said_along_with_an_answer_is_in_its_turn(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        request = await socket.send(session, "ask me")
        given = {"tool_call_id": patches(request)[0][1]["id"], "selections": {"0": [0]}}
        events = await socket.send(session, "hello", askuser_answer=given)
    assert [block["type"] for block in ended(events)[0]["blocks"]] == ["ask_user_answer", "text"]
    turns = await alice.messages(session)
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant"]
    assert turns[-1]["blocks"][0]["content"] == "Hello! I am the rehearsal agent."


@requirement("blade:questions:check")
@pytest.mark.parametrize(
    "value",
    [{}, {"selections": {"0": [2]}}, {"selections": {"0": [0, 1]}}, {"custom": {"0": ""}}, {"selections": {"1": [0]}}],
)
async def test_a_wrong_answer_changes_nothing(alice: RestClient, value: dict[str, Json]) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        request = await socket.send(session, "ask me")
        call_id = patches(request)[0][1]["id"]
        before = await alice.messages(session)
        payload = {"session_id": session, "message": "", "askuser_answer": {"tool_call_id": call_id, **value}}
        reply = await socket.call("chat:send", payload)
        assert reply["code"] == "invalid_answer"
        assert await alice.messages(session) == before
        await answer(socket, session, call_id, custom={"0": "neither"})
        again = await socket.call("chat:send", payload)
        assert again["code"] == "no_pending_question"


@requirement("blade:questions:several")
async def test_questions_are_answered_one_by_one_and_the_last_answer_continues(alice: RestClient) -> None:
    session = await alice.session()
    both = {"calls": [{"name": "AskUserQuestion", "input": {"questions": [TWO]}}] * 2}
    async with socket_client(alice.url, alice.key) as socket:
        request = await socket.send(session, script(both, {"say": "{answer}"}))
        first, second = (data["id"] for kind, data in patches(request) if kind == "add_tool_call")
        early = await answer(socket, session, first, selections={"0": [0, 1]})
        assert kinds(early)[0] == "chat:start"
        assert (early[-1][1]["status"], early[-1][1]["waiting_for_input"]) == ("completed", True)
        assert (await alice.get(f"sessions/{session}"))["status"] == "waiting_for_input"
        late = await answer(socket, session, second, selections={"0": [0]})
        assert late[-1][1]["waiting_for_input"] is False
    folded = FoldedTurns()
    for event in (*request, *early, *late):
        folded.feed(event)


@requirement("blade:questions:superseded", "blade:chats:one-end")
@pytest.mark.parametrize("is_answer", [True, False])
async def test_a_message_that_leaves_an_allowed_call_behind_is_one_chat(alice: RestClient, is_answer: bool) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        request = await socket.send(session, script(BOTH, {"say": "."}))
        gated, _, question = (data["id"] for kind, data in patches(request) if kind == "add_tool_call")
        early = await answer(socket, session, gated, selections={"0": [0]})
        assert early[-1][1]["waiting_for_input"] is True
        given = {"askuser_answer": {"tool_call_id": question, "selections": {"0": [0]}}} if is_answer else {}
        late = await socket.send(session, "hello", **given)
    assert [name for name, _ in late if name in ("chat:start", "chat:end")] == ["chat:start", "chat:end"]
    assert late[-1][1]["waiting_for_input"] is False
    stamp = (await alice.messages(session))[1]["tool_calls"][0]
    assert stamp["status"] == "cancelled"
    folded = FoldedTurns()
    for event in (*request, *early, *late):
        folded.feed(event)


@requirement("blade:questions:superseded")
@pytest.mark.parametrize("how", ["message", "stop"])
async def test_a_question_that_is_left_behind_is_cancelled(alice: RestClient, how: str) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, script(BOTH, {"say": "."}))
        if how == "message":
            await socket.send(session, "hello")
        else:
            assert await socket.call("chat:stop", {"session_id": session}) == {"status": "stopped"}
    turn = (await alice.messages(session))[1]
    assert turn["status"] == "interrupted"
    assert [(each["status"], each["duration_ms"] >= 0) for each in turn["tool_calls"]] == [("cancelled", True)] * 3
    assert (await alice.get(f"sessions/{session}"))["status"] == ("completed" if how == "message" else "interrupted")


@requirement("blade:permissions:ask", "blade:permissions:session")
async def test_a_permission_is_asked_for_as_a_question_and_may_hold_for_the_session(alice: RestClient) -> None:
    session = await alice.session()
    stamp = script(call("stamp", text="x"), {"say": "{result}"})
    async with socket_client(alice.url, alice.key) as socket:
        request = await socket.send(session, stamp)
        gated, question = (data for kind, data in patches(request) if kind == "add_tool_call")
        assert (gated["tool_name"], question["tool_name"]) == ("stamp", "AskUserQuestion")
        turn = ended(request)[-1]
        assert turn["status"] == "paused"
        assert turn["tool_calls"][0]["pending_question_ref"] == {
            "child_loop_name": "root",
            "child_tool_call_id": question["id"],
            "description": "Allow stamp?",
        }
        given = await answer(socket, session, question["id"], selections={"0": [1]})
        assert [block["content"] for block in ended(given)[-1]["blocks"]] == ["stamped x"]
        calls = {each["tool_name"]: each for each in ended(given)[1]["tool_calls"]}
        assert (calls["stamp"]["status"], calls["stamp"]["result"]) == ("done", "stamped x")
        assert calls["AskUserQuestion"]["result"]["answers"][0]["labels"] == ["Allow for this session"]
        again = await socket.send(session, stamp)
        assert len([kind for kind, _ in patches(again) if kind == "add_tool_call"]) == 1, (
            "the question is not asked again"
        )


@requirement("blade:permissions:deny")
async def test_a_denied_call_ends_as_an_error(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        request = await socket.send(session, script(call("stamp", text="x"), {"say": "so what"}))
        gated = patches(request)[0][1]["id"]
        given = await answer(socket, session, gated, selections={"0": [2]}, custom={"0": "not today"})
    turn = ended(given)[1]
    assert (turn["tool_calls"][0]["status"], turn["tool_calls"][0]["result"]) == (
        "error",
        "Tool call denied: not today",
    )


@requirement("blade:sub-agents:turns", "blade:sub-agents:question")
async def test_a_question_of_a_sub_agent_bubbles_up_and_its_answer_goes_down(alice: RestClient) -> None:
    session = await alice.session()
    inner = [{"ask": {"questions": [TWO]}}, {"say": "chose {answer}"}]
    async with socket_client(alice.url, alice.key) as socket:
        request = await socket.send(
            session, script({"fork": {"description": "dig", "script": inner}}, {"say": "found {result}"})
        )
        child, parent = ended(request)[-2:]
        assert (child["status"], parent["status"]) == ("paused", "paused")
        [fork] = parent["tool_calls"]
        [question] = child["tool_calls"]
        assert child["parent_fork_tool_call_id"] == fork["id"]
        assert child["loop_id"] == f"fork:{fork['id']}"
        assert fork["status"] == "awaiting_answer"
        assert fork["pending_question_ref"] == {
            "child_loop_name": child["loop_id"],
            "child_tool_call_id": question["id"],
            "description": "dig",
        }
        given = await answer(socket, session, fork["id"], selections={"0": [1]})
    changes = [(kind, data.get("status")) for kind, data in patches(given) if kind in ("set_status", "set_tool_status")]
    assert ("set_tool_status", "pending") in changes
    assert ("set_status", "streaming") in changes
    assert [block["content"] for block in ended(given)[-1]["blocks"]] == ["found chose b"]
    folded = FoldedTurns()
    for event in (*request, *given):
        folded.feed(event)
    turns = await alice.messages(session)
    assert {turn["status"] for turn in turns} == {"completed"}
    assert [turn["loop_id"] == "root" for turn in turns] == [True, True, False, True, False, True]


@requirement("blade:modes:turn", "blade:modes:tools")
async def test_a_change_of_mode_is_a_turn_of_its_own_and_decides_what_may_be_called(alice: RestClient) -> None:
    session = await alice.session()
    act = script(call("boom"), call("add", a=1, b=1), {"say": "{result}"})
    async with socket_client(alice.url, alice.key) as socket:
        events = await socket.send(session, act, mode="planning")
        turns = await alice.messages(session)
        assert [(block["type"], block["content"]) for block in turns[0]["blocks"]] == [
            ("mode_change", {"from": "executing", "to": "planning"}),
            ("planning_enter", None),
        ]
        assert (turns[0]["role"], turns[1]["role"]) == ("system", "user")
        assert kinds(events)[1:4] == ["chat:start", "turn:start", "turn:end"]
        results = [data["result"] for kind, data in patches(events) if kind == "tool_result"]
        assert results == ["Tool not found: boom", "2"], "boom acts, add does not"
        stored = await socket.send(session, "hello")
        assert kinds(stored).count("turn:start") == 2, "the mode holds from here on"
        left = await socket.send(session, script(call("boom")), mode="executing")
        assert [data["result"] for kind, data in patches(left) if kind == "tool_result"] == [
            "Tool execution failed: boom"
        ]
    assert (await alice.get(f"sessions/{session}"))["session_setup"]["mode"] == "executing"


@requirement("blade:plans:block")
async def test_a_plan_is_a_block_of_the_turn_that_made_it(alice: RestClient) -> None:
    session = await alice.session()
    steps = [{"title": "dig", "status": "pending"}]
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, script({"say": "so: "}, {"plan": {"status": "draft", "steps": steps}}))
    [_, turn] = await alice.messages(session)
    blocks = {block["type"]: block["content"] for block in turn["blocks"]}
    assert blocks == {"text": "so: ", "plan_status": {"status": "draft", "steps": steps}}


@requirement("blade:headless:result", "blade:headless:asks-nobody")
async def test_a_headless_chat_gives_its_words_and_asks_nobody(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        events = await socket.send(session, "hello", headless=True)
        text = "Hello! I am the rehearsal agent."
        assert events[-1][1]["result"] == {"output": text, "result": text}
        alone = await socket.send(session, script({"ask": {"questions": [TWO]}}, {"say": "on"}), headless=True)
        assert [data["status"] for kind, data in patches(alone) if kind == "tool_result"] == ["error"]
        assert alone[-1][1]["result"] == {"output": "on", "result": "on"}
        failed = await socket.send(session, script({"fail": "internal"}), headless=True)
        assert (failed[-1][1]["status"], failed[-1][1]["result"]) == ("failed", {"err_msg": "The agent failed"})


@requirement("blade:headless:mode")
async def test_a_headless_chat_acts_and_leaves_the_session_planning(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, "hello", mode="planning")
        events = await socket.send(session, script(call("slow", seconds=0), {"say": "{result}"}), headless=True)
        assert events[-1][1]["result"]["output"] == "done"
        await socket.send(session, "hello")
        planned = await socket.send(session, script(call("slow", seconds=0), {"say": "{result}"}))
    assert (await alice.get(f"sessions/{session}"))["session_setup"]["mode"] == "planning"
    assert [turn["role"] for turn in await alice.messages(session)].count("system") == 1
    assert ended(planned)[-1]["blocks"][0]["content"].startswith("Tool not found")


@requirement("blade:headless:schema")
async def test_an_answer_with_a_schema_fits_it_or_the_chat_fails(alice: RestClient) -> None:
    session = await alice.session()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with socket_client(alice.url, alice.key) as socket:
        good = await socket.send(session, script({"say": '{"n": 3, "schema": 1}'}), headless=True, output_schema=schema)
        assert good[-1][1]["result"] == {"output": {"n": 3, "schema": 1}, "schema": schema, "n": 3}
        bad = await socket.send(session, script({"say": '{"n": "x"}'}), headless=True, output_schema=schema)
    assert bad[-1][1]["status"] == "failed"
    assert bad[-1][1]["result"] == {"err_msg": "The answer does not fit the schema: $.n: expected integer"}


@requirement("blade:whatif:branch", "blade:whatif:deprecated")
async def test_what_if_continues_from_an_earlier_entry_and_loses_nothing(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, "one")
        await socket.send(session, "two")
        first = (await alice.messages(session))[0]["id"]
        request = {"from_step": 2, "quotes": [{"text": "quoted"}], "deprecate_entry_ids": [first]}
        await socket.send(session, "other", whatif=request)
    turns = await alice.messages(session)
    texts = [turn["blocks"][0]["content"] for turn in turns]
    assert texts == ["one", "You said: one", "> quoted\n\nother", "You said: > quoted\n\nother"]
    assert [turn["deprecated"] for turn in turns] == [True, False, False, False]
    assert [turn["sequence"] for turn in turns] == [0, 1, 4, 5]
    nodes = (await alice.get(f"sessions/{session}/history"))["nodes"]
    assert [node["active"] for node in nodes] == [True, True, False, False, True, True]


@requirement("blade:meta:blocks")
async def test_meta_becomes_blocks_and_stays_in_the_result(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        events = await socket.send(session, script(call("card", title="T"), call("highlight", city="wien")))
    card, highlight = (turn for turn in ended(events) if turn["tool_calls"])
    assert [block["type"] for block in card["blocks"]] == ["tool_use", "tool_result", "tool_ui"]
    assert card["blocks"][2]["content"] == card["tool_calls"][0]["result"]["_meta"]["ui"]
    assert [block["type"] for block in highlight["blocks"]] == ["tool_use", "tool_result", "tool_bridge"]
    assert highlight["blocks"][2]["content"] == {"action": "map.highlight", "payload": {"cityIds": ["wien"]}}
    assert [kind for kind, _ in patches(events)] == ["add_tool_call", "tool_result", "add_content"] * 2


@requirement("blade:meta:check")
@pytest.mark.parametrize(
    "ui",
    [
        {"resourceHTML": "x", "resourceUri": "https://a.example"},
        {},
        {"resourceUri": "javascript:alert(1)"},
        {"resourceHTML": "x", "target": "elsewhere"},
        {"resourceHTML": "x", "height": -1},
        {"resourceHTML": "x" * (256 * 1024 + 1)},
    ],
)
async def test_a_bad_card_is_a_notification_and_the_call_stays_done(alice: RestClient, ui: dict[str, Json]) -> None:
    session = await alice.session()
    step = {"tool": {"name": "t", "input": {}, "output": {"ok": True, "_meta": {"ui": ui}}}}
    async with socket_client(alice.url, alice.key) as socket:
        events = await socket.send(session, script(step))
    [notice] = [payload for name, payload in events if name == "system:notification"]
    assert (notice["notification_type"], notice["status"]) == ("tool_meta_invalid", "warning")
    assert [each["status"] for each in ended(events)[-1]["tool_calls"]] == ["done"]


@requirement("blade:turns:results")
@pytest.mark.parametrize("value", ["text", 5, 2.5, True, None, [1, {"a": None}], {"a": [1]}])
async def test_a_tools_return_value_is_the_result_whatever_its_type(alice: RestClient, value: Json) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        events = await socket.send(session, script({"tool": {"name": "t", "input": {}, "output": value}}))
    turn = ended(events)[-1]
    assert [turn["tool_calls"][0]["result"], turn["blocks"][1]["content"]] == [value, value]
    assert patches(events)[1][1]["result"] == value


@requirement("blade:meta:check")
async def test_a_part_of_meta_that_is_null_is_not_there(alice: RestClient) -> None:
    session = await alice.session()
    step = {"tool": {"name": "t", "input": {}, "output": {"_meta": {"ui": None, "bridge": None}}}}
    async with socket_client(alice.url, alice.key) as socket:
        events = await socket.send(session, script(step))
    assert "system:notification" not in kinds(events)


@requirement("blade:meta:model")
async def test_the_model_never_sees_meta(alice: RestClient) -> None:
    session = await alice.session()
    steps = [{"tool": {"name": "t", "input": {}, "output": '{"ok": true, "_meta": {"bridge": {"action": "a"}}}'}}]
    async with socket_client(alice.url, alice.key) as socket:
        events = await socket.send(session, script(*steps, {"say": "{result}"}))
    assert ended(events)[-1]["blocks"][0]["content"] == '{"ok":true}'
    assert ended(events)[-2]["blocks"][-1]["type"] == "tool_bridge"


@requirement("blade:turns:media")
async def test_a_picture_in_an_answer_is_a_note_with_its_attachment(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        events = await socket.send(session, script({"image": "data:image/png;base64,iVBORw0KGgo="}))
    [block] = ended(events)[-1]["blocks"]
    assert (block["type"], block["content"]) == ("text", "[image image/png 1 KB]")
    url = block["attachment"]["url"]
    assert block["attachment"] == {"kind": "image", "name": None, "media_type": "image/png", "size": 8, "url": url}
    folded = FoldedTurns()
    for event in events:
        folded.feed(event)


@requirement("blade:sessions:other-protocols")
async def test_a_tool_of_the_applications_shows_as_pending_in_a_session_that_waits(alice: RestClient) -> None:
    paint = {"name": "paint", "description": "", "parameters": {"type": "object"}}
    async with httpx2.AsyncClient(base_url=alice.url, verify=False) as http:
        headers = {"authorization": f"Bearer {alice.key}"}
        created = await http.post(
            "/aap/v3/sessions", json={"agent": {"name": "rehearsal"}, "tools": [paint]}, headers=headers
        )
        aap_id = created.json()["sessionId"]
        request = {"stream": "none", "messages": [{"role": "user", "content": script(call("paint"))}]}
        await http.post(f"/aap/v3/sessions/{aap_id}/turns", json=request, headers=headers)
    session = f"sess_{aap_id}"
    assert (await alice.get(f"sessions/{session}"))["status"] == "waiting_for_input"
    [_, turn] = await alice.messages(session)
    assert (turn["status"], [each["status"] for each in turn["tool_calls"]]) == ("paused", ["pending"])
    assert session in [each["id"] for each in (await alice.get("sessions?limit=200"))["items"]]
