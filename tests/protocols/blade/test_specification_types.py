"""Blade's objects have the members of the specification's examples, with values of the same types.

The examples are data. An object may have more members; one that may be null in the specification may be null here.
Source: seed 003.
"""

import json
import re
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import dragoman
from dragoman import agent, tool
from tests.conversations import script
from tests.protocols.blade.client import RestClient, socket_client
from tests.protocols.blade.rest.test_schedules import advance_and_fire
from tests.protocols.blade.rest_client import client_of
from tests.requirements import requirement
from tests.servers import running_server, running_socket_server

Json = Any

SESSION = {
    "id": "sess_xxx",
    "intent": "用户任务描述",
    "status": "created",
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
    "user_id": "user_xxx",
    "solution_id": "string?",
    "biz_role_id": "string?",
    "model": "string?",
    "shared": False,
    "is_pinned": False,
    "memory_enabled": True,
    "is_persistent": False,
    "replay_state": None,
}
SESSION_STATES = {"created", "running", "completed", "failed", "interrupted", "waiting_for_input"}
TURN = {
    "id": "entry_xxx",
    "sequence": 0,
    "turn_id": "turn_xxx",
    "loop_id": "root",
    "kind": "message",
    "role": "assistant",
    "status": "completed",
    "blocks": [],
    "tool_calls": [],
    "model": "claude-sonnet-4-20250514",
    "usage": {"input_tokens": 500, "output_tokens": 200},
    "duration_ms": 3500,
    "started_at": "2026-01-01T00:00:00Z",
    "context_window": 200000,
    "memory_refs": None,
    "parent_fork_tool_call_id": None,
}
TURN_STATES = {"streaming", "completed", "paused", "failed", "interrupted"}
BLOCK = {"type": "text", "content": "这是回复文本", "tool_call_id": None, "tool_name": None, "display_name": None}
BLOCK_CONTENTS: dict[str, type | None] = {
    "text": str,
    "thinking": str,
    "tool_use": dict,
    "tool_result": None,
    "tool_ui": dict,
    "tool_bridge": dict,
    "system_notification": str,
    "mode_change": dict,
    "planning_enter": None,
    "planning_exit": None,
    "plan_status": dict,
    "ask_user_answer": dict,
}
"""The types of blocks, and those of their contents; None: any."""
CALL = {
    "id": "tc_xxx",
    "tool_name": "Bash",
    "display_name": "执行命令",
    "arguments": '{"command": "ls -la"}',
    "status": "done",
    "result": "total 48\ndrwxr-xr-x ...",
    "duration_ms": 150,
    "pending_question_ref": None,
}
CALL_STATES = {"pending", "done", "error", "cancelled", "awaiting_answer"}
QUESTION_REF = {"child_loop_name": "string", "child_tool_call_id": "string", "description": "string?"}
MEMORY_REF = {"id": 1, "content_preview": "记忆内容预览...", "skill_name": "string?"}
PATCH = {
    "session_id": "sess_xxx",
    "sequence": 1,
    "turn_id": "turn_xxx",
    "loop_id": "root",
    "patch_type": "add_content",
    "data": {},
}
PATCH_DATA: dict[str, Json] = {
    "add_content": {"type": "text", "content": "新文本", "text_delta": "增量文本"},
    "add_tool_call": {
        "id": "tc_xxx",
        "tool_name": "Bash",
        "display_name": "执行命令",
        "arguments": '{"command": "ls"}',
        "status": "pending",
    },
    "tool_result": {"tool_call_id": "tc_xxx", "result": "执行结果...", "status": "done", "duration_ms": 150},
    "set_status": {"status": "completed"},
    "set_tool_status": {"tool_call_id": "tc_xxx", "status": "done"},
}
MEMORY = {
    "id": 1,
    "type": "feedback",
    "content": "记忆内容",
    "skill_name": None,
    "record_type": None,
    "scope": None,
    "owner": None,
    "topic": None,
    "mem0_id": None,
    "superseded_by": None,
    "write_reason": None,
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": None,
    "hit_count": 0,
    "last_hit_at": None,
    "disabled": False,
    "source_session": "sess_xxx",
}
API_KEY = {
    "id": "key_xxx",
    "name": "My Key",
    "masked": "sk-blade-v2-...xxxx",
    "plaintext": None,
    "created_at": "2026-01-01T00:00:00Z",
    "last_used_at": "2026-01-02T00:00:00Z",
}
TASK = {
    "id": "task_xxx",
    "title": "每日报告",
    "prompt": "生成今日数据摘要",
    "cron": "0 9 * * *",
    "timezone": "Asia/Shanghai",
    "enabled": True,
    "expires_at": None,
    "skip_confirmations": False,
    "model": None,
}
TASK_RUN = {
    "id": "run_xxx",
    "task_id": "task_xxx",
    "session_id": "sess_xxx",
    "status": "completed",
    "error": None,
    "triggered_at": "2026-01-01T09:00:00Z",
    "finished_at": "2026-01-01T09:05:00Z",
}
TASK_RUN_STATES = {"completed", "failed", "running"}
BRIDGE_RESULT: Json = {
    "ok": True,
    "_meta": {"bridge": {"action": "map.highlight", "payload": {"cityIds": ["hangzhou", "ningbo"]}}},
}
CARD_RESULTS: tuple[Json, ...] = tuple(
    {"_meta": {"ui": {**where, "target": target, "height": 320, "title": "卡片标题"}}}
    for where, target in (
        ({"resourceHTML": "<!doctype html>..."}, "inline"),
        ({"resourceUri": "https://..."}, "preview"),
    )
)
"""The example shows all members at once; of the first two, a card has one."""
NULLABLE = {"solution_id", "biz_role_id", "model", "usage", "started_at", "duration_ms", "result", "last_used_at"}
NULLABLE |= {"description", "skill_name", "finished_at", "source_session"}
"""Members that the specification's tables mark with a question mark, and whose example is not null."""
PREFIXES = ("sess_", "entry_", "turn_", "key_", "task_", "run_")
"""How IDs begin. Calls of the server's own, such as the question about a permission, have other prefixes than `tc_`."""

PLAY = script(
    {"think": "hm"},
    {"plan": {"status": "in_progress", "steps": [{"title": "dig", "status": "pending"}]}},
    {"say": "So: "},
    {"calls": [{"name": "add", "input": {"a": 1, "b": 2}}, {"name": "card", "input": {"title": "x"}}]},
    {"call": {"name": "highlight", "input": {"city": "hangzhou"}}},
    {"usage": {"input_tokens": 5, "output_tokens": 2}},
    {"say": "done"},
)
QUESTION = {"questions": [{"question": "Where?", "options": [{"label": "here"}, {"label": "there"}]}]}
ASKING = script(
    {"fork": {"description": "dig", "script": [{"ask": QUESTION}, {"say": "{answer}"}]}}, {"say": "{result}"}
)


def assert_like(actual: Json, example: dict[str, Json]) -> None:
    """An object has the members of an example, with values of the same types."""
    assert example.keys() <= actual.keys(), sorted(example.keys() - actual.keys())
    for name, value in example.items():
        got = actual[name]
        if value is None or (got is None and name in NULLABLE):
            continue
        assert type(got) is type(value), (name, got)
        if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", value):
            assert datetime.fromisoformat(got).tzinfo is not None, (name, got)
        if got and isinstance(value, str) and value.endswith("_xxx") and value.startswith(PREFIXES):
            assert got.startswith(value.removesuffix("xxx")), (name, got)


def assert_turn(turn: Json) -> None:
    assert_like(turn, TURN)
    assert turn["status"] in TURN_STATES
    assert turn["kind"] in ("message", "compaction")
    assert turn["role"] in ("user", "assistant", "system")
    for block in turn["blocks"]:
        assert_like(block, {**BLOCK, "content": None})
        kind = BLOCK_CONTENTS[block["type"]]
        assert kind is None or type(block["content"]) is kind
    for call in turn["tool_calls"]:
        assert_like(call, {**CALL, "result": None})
        assert call["status"] in CALL_STATES
    for memory in turn["memory_refs"] or ():
        assert_like(memory, MEMORY_REF)


@requirement("blade:specification:objects")
async def test_sessions_and_turns_have_the_members_of_the_examples(alice: RestClient) -> None:
    await alice.request("POST", "memories", {"content": "Ann likes tea"})
    session = await alice.session(intent="用户任务描述", solution_id="rehearsal")
    created = await alice.get(f"sessions/{session}")
    assert_like(created, SESSION)
    assert (created["intent"], created["status"], created["solution_id"]) == ("用户任务描述", "created", "rehearsal")
    async with socket_client(alice.url, alice.key) as socket:
        await socket.call("session:subscribe", {"session_id": session})
        await socket.send(session, PLAY, mode="planning")
        await socket.send(session, PLAY, mode="executing")
        await socket.send(session, ASKING)
        waiting = await alice.get(f"sessions/{session}")
        turns = await alice.messages(session)
        refs = [ref for turn in turns for each in turn["tool_calls"] if (ref := each["pending_question_ref"])]
        assert refs
        for ref in refs:
            assert_like(ref, QUESTION_REF)
        answer = {"tool_call_id": refs[0]["child_tool_call_id"], "selections": {"0": [0]}}
        await socket.send(session, "", askuser_answer=answer)
    assert waiting["status"] == "waiting_for_input"
    done = await alice.get(f"sessions/{session}")
    assert_like(done, SESSION)
    assert {done["status"], waiting["status"]} <= SESSION_STATES
    turns = await alice.messages(session)
    for turn in turns:
        assert_turn(turn)
    assert [turn["sequence"] for turn in turns] == list(range(len(turns)))
    shown = {block["type"] for turn in turns for block in turn["blocks"]}
    assert (
        {
            "text",
            "thinking",
            "tool_use",
            "tool_result",
            "tool_ui",
            "tool_bridge",
            "plan_status",
            "ask_user_answer",
        }
        <= shown
        <= BLOCK_CONTENTS.keys()
    )


@requirement("blade:specification:patches")
async def test_every_patch_has_the_members_of_its_example(alice: RestClient) -> None:
    session = await alice.session(solution_id="rehearsal")
    async with socket_client(alice.url, alice.key) as socket:
        await socket.call("session:subscribe", {"session_id": session})
        events = await socket.send(session, PLAY)
        events += await socket.send(session, script({"call": {"name": "stamp", "input": {"text": "x"}}}))
        (call,) = (
            payload["data"]["id"]
            for name, payload in events
            if name == "turn:patch" and payload["data"].get("tool_name") == "stamp"
        )
        events += await socket.send(session, "", askuser_answer={"tool_call_id": call, "selections": {"0": [0]}})
    patches = [payload for name, payload in events if name == "turn:patch"]
    assert {each["patch_type"] for each in patches} == PATCH_DATA.keys()
    for patch in patches:
        assert_like(patch, PATCH)
        if patch["patch_type"] == "add_content" and patch["data"]["type"] not in ("text", "thinking"):
            assert {"type", "content"} <= patch["data"].keys()
            continue
        example = PATCH_DATA[patch["patch_type"]]
        assert_like(patch["data"], {**example, "result": None} if "result" in example else example)


@requirement("blade:specification:objects")
async def test_the_meta_of_tools_reaches_the_page_as_the_examples_show(alice: RestClient) -> None:
    session = await alice.session(solution_id="rehearsal")
    async with socket_client(alice.url, alice.key) as socket:
        await socket.call("session:subscribe", {"session_id": session})
        await socket.send(session, PLAY)
    blocks = [block for turn in await alice.messages(session) for block in turn["blocks"]]
    (bridge,) = (block["content"] for block in blocks if block["type"] == "tool_bridge")
    assert bridge == {"action": "map.highlight", "payload": {"cityIds": ["hangzhou"]}}
    (card,) = (block["content"] for block in blocks if block["type"] == "tool_ui")
    assert_like(card, {"resourceHTML": "<!doctype html>...", "target": "inline", "height": 320})
    assert ("resourceUri" in card, card["target"]) == (False, "inline")


@tool(name="Bash", title="执行命令")
async def bash(command: str) -> str:
    """Run a command."""
    return str(CALL["result"])


@tool(name="map")
async def show_map() -> Json:
    """Highlight the cities of the example."""
    return BRIDGE_RESULT


@tool(name="cards")
async def show_card(number: int) -> Json:
    """Show a card of the example."""
    return CARD_RESULTS[number]


@agent(tools=[bash, show_map, show_card])
async def exemplary(run: dragoman.Run) -> AsyncIterator[str]:
    """Calls the tools of the examples."""
    await run.call("Bash", command="ls -la")
    await run.call("map")
    for number in range(len(CARD_RESULTS)):
        await run.call("cards", number=number)
    yield str(BLOCK["content"])


@requirement("blade:specification:objects")
async def test_what_tools_and_agents_return_in_the_examples_is_shown_as_there(tmp_path: Path) -> None:
    async with running_socket_server(tmp_path, agents=[exemplary]) as server:
        alice = RestClient(server.connection.url, server.key("alice"))
        session = await alice.session(solution_id="exemplary")
        async with socket_client(alice.url, alice.key) as socket:
            await socket.call("session:subscribe", {"session_id": session})
            await socket.send(session, SESSION["intent"])
        turns = await alice.messages(session)
    blocks = [block for turn in turns for block in turn["blocks"]]
    call = next(each for turn in turns for each in turn["tool_calls"] if each["tool_name"] == "Bash")
    same = ("tool_name", "display_name", "status", "result", "pending_question_ref")
    assert [call[name] for name in same] == [CALL[name] for name in same]
    assert json.loads(call["arguments"]) == json.loads(str(CALL["arguments"]))
    assert BLOCK in [{name: block.get(name) for name in BLOCK} for block in blocks]
    assert [each["content"] for each in blocks if each["type"] == "tool_bridge"] == [BRIDGE_RESULT["_meta"]["bridge"]]
    assert [each["content"] for each in blocks if each["type"] == "tool_ui"] == [
        each["_meta"]["ui"] for each in CARD_RESULTS
    ]


@requirement("blade:specification:objects")
async def test_memories_keys_and_tasks_have_the_members_of_the_examples(tmp_path: Path) -> None:
    async with running_server(tmp_path, manual_clock=True) as server, client_of(server, "alice") as alice:
        memory = await alice.request("POST", "memories", {"content": "记忆内容", "type": "feedback"})
        assert memory.status == 201
        assert_like(memory.body, MEMORY)
        made = (await alice.request("POST", "user/api-keys/", {"name": "My Key"})).body
        assert isinstance(made["plaintext"], str)
        for key in (await alice.request("GET", "user/api-keys/")).body:
            assert_like(key, API_KEY)
            assert key["plaintext"] is None
        names = tuple(name for name in TASK if name != "id")
        task = await alice.request("POST", "scheduled-tasks", {name: TASK[name] for name in names})
        assert task.status == 201
        assert_like(task.body, TASK)
        assert {name: task.body[name] for name in names} == {name: TASK[name] for name in names}
        await advance_and_fire(server, hours=13)
        (run,) = (await alice.request("GET", f"scheduled-tasks/{task.body['id']}/runs")).body
        assert_like(run, TASK_RUN)
        assert run["status"] in TASK_RUN_STATES
        assert (run["task_id"], run["status"]) == (task.body["id"], "completed")


@requirement("blade:specification:sent")
async def test_the_examples_are_accepted_as_bodies_and_objects_go_back_as_they_were_read(alice: RestClient) -> None:
    """The server chooses what only it can know. A memory is the exception: its number would name another one."""
    session = {**SESSION, "solution_id": "rehearsal", "biz_role_id": None, "model": None}
    made = await alice.request("POST", "sessions", session)
    task = await alice.request("POST", "scheduled-tasks", TASK)
    key = await alice.request("POST", "user/api-keys", API_KEY)
    assert (made.status, task.status, key.status) == (200, 201, 201)
    refused = await alice.request("POST", "memories", MEMORY)
    assert (refused.status, refused.body["detail"].partition(":")[0]) == (422, "id")
    own = {name: value for name, value in MEMORY.items() if name not in ("id", "created_at", "source_session")}
    memory = await alice.request("POST", "memories", own)
    assert memory.status == 201
    assert {name: memory.body[name] for name in own} == own
    ids = (made.body["session_id"], task.body["id"], memory.body["id"], key.body["key"]["id"])
    assert not {*ids} & {SESSION["id"], TASK["id"], API_KEY["id"]}
    objects = {
        f"sessions/{ids[0]}": await alice.get(f"sessions/{ids[0]}"),
        f"scheduled-tasks/{ids[1]}": task.body,
        f"memories/{ids[2]}": memory.body,
        f"user/api-keys/{ids[3]}": await alice.get(f"user/api-keys/{ids[3]}"),
    }
    for path, read in objects.items():
        changed = await alice.request("PATCH", path, read)
        assert changed.status == 200, (path, changed.body)
        assert {**changed.body, "updated_at": None} == {**read, "updated_at": None}, path
