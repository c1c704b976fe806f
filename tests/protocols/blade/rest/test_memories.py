"""Blade's memories over REST."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.core.ids import SessionId, UserId
from dragoman.core.memories import MemoryTexts
from dragoman.engine.services import memories
from tests import servers
from tests.conversations import call, script
from tests.protocols.aap.client import Session
from tests.protocols.blade.client import RestClient, socket_client
from tests.protocols.blade.driver import url_of
from tests.protocols.blade.rest_client import NOON, Client, RestFixture, client_of, running_rest_app
from tests.requirements import requirement
from tests.servers import SocketServer

SESSION = "01890a5d-ac96-774b-bcce-b302099a8057"


@pytest.fixture
async def rest_fixture(tmp_path: Path) -> AsyncIterator[RestFixture]:
    async with running_rest_app(tmp_path) as rest:
        yield rest


@pytest.fixture
async def alice(rest_fixture: RestFixture) -> Client:
    return await rest_fixture.client()


def memory(number: int = 1, **fields: Any) -> dict[str, Any]:
    """A memory as a client reads it."""
    return {
        "id": number,
        "type": "feedback",
        "content": "likes tea",
        "skill_name": None,
        "record_type": None,
        "scope": None,
        "owner": None,
        "topic": None,
        "mem0_id": None,
        "superseded_by": None,
        "write_reason": None,
        "created_at": NOON,
        "updated_at": None,
        "hit_count": 0,
        "last_hit_at": None,
        "disabled": False,
        "source_session": "",
        **fields,
    }


async def ids(client: Client, query: str = "") -> list[int]:
    status, body = await client.request("GET", f"memories?{query}")
    assert (status, body["total"]) == (200, len(body["items"]))
    return [each["id"] for each in body["items"]]


@requirement("blade:memories:create", "blade:memories:fields")
async def test_a_memory_is_created_and_read(alice: Client) -> None:
    assert await alice.request("POST", "memories", {"content": "likes tea"}) == (201, memory())
    everything = {
        "type": "experience", "content": "用户喜欢黑咖啡", "skill_name": "s", "record_type": "skill_comment",
        "scope": "sc",
        "owner": "o", "topic": "t", "mem0_id": "m", "write_reason": "said so",
    }  # fmt: skip
    assert await alice.request("POST", "memories/", {**everything, "unknown": 1}) == (201, memory(2, **everything))
    assert await alice.request("GET", "memories/2") == (200, memory(2, **everything))


@requirement("blade:memories:fields")
async def test_a_memory_names_the_session_in_which_it_was_written(rest_fixture: RestFixture, alice: Client) -> None:
    await rest_fixture.memories.add(UserId("alice"), MemoryTexts(content="likes tea"), source=SessionId(SESSION))
    assert await alice.request("GET", "memories/1") == (200, memory(source_session=f"sess_{SESSION}"))


@requirement("blade:memories:bounds")
@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({}, "content: this field is required"),
        ({"content": None}, "content: this field is required"),
        ({"content": ""}, "content: must have 1 to 500 characters"),
        ({"content": "x" * 501}, "content: must have 1 to 500 characters"),
        ({"content": " \t\n"}, "content: must not be blank"),
        ({"content": 5}, "content: Expected `str | null`, got `int`"),
        (
            {"content": "c", "type": "opinion"},
            "type: Invalid enum value 'opinion'; expected 'experience' or 'feedback'",
        ),
        (
            {"content": "c", "record_type": "skill"},
            "record_type: Invalid enum value 'skill'; expected 'memory' or 'skill_comment'",
        ),
        ({"content": "c", "write_reason": "r" * 501}, "write_reason: must have 1 to 500 characters"),
        ({"content": "c", "skill_name": "s" * 256}, "skill_name: must have 1 to 255 characters"),
        ({"content": "c", "scope": "s" * 256}, "scope: must have 1 to 255 characters"),
        ({"content": "c", "owner": "s" * 256}, "owner: must have 1 to 255 characters"),
        ({"content": "c", "topic": "s" * 256}, "topic: must have 1 to 255 characters"),
        ({"content": "c", "mem0_id": "s" * 256}, "mem0_id: must have 1 to 255 characters"),
    ],
)
async def test_a_text_out_of_bounds_is_422(alice: Client, body: dict[str, Any], detail: str) -> None:
    assert await alice.request("POST", "memories", body) == (422, {"detail": detail})
    await alice.request("POST", "memories", {"content": "likes tea"})
    if body.get("content") is not None:
        assert await alice.request("PUT", "memories/1", body) == (422, {"detail": detail})
    assert await alice.request("GET", "memories") == (200, {"items": [memory()], "total": 1})


@requirement("blade:memories:bounds")
async def test_a_new_memory_sets_no_member_of_the_server(alice: Client) -> None:
    as_shown = {"source_session": "", "superseded_by": None, "hit_count": 0, "disabled": False, "updated_at": None}
    for name, value in (
        *(("id", 7), ("created_at", "2026-01-01T00:00:00Z"), ("updated_at", "2026-01-01T00:00:00Z")),
        *(("disabled", True), ("hit_count", 7), ("source_session", "sess_1"), ("superseded_by", 1)),
    ):
        status, body = await alice.request("POST", "memories", {"content": "c", **as_shown, name: value})
        assert (status, body["detail"].split(":")[0]) == (422, name)
    assert await alice.request("POST", "memories", {"content": "likes tea", **as_shown}) == (201, memory())


@requirement("blade:memories:bounds")
async def test_a_new_memorys_reason_says_something_and_other_texts_may_be_empty(alice: Client) -> None:
    refused = (422, {"detail": "write_reason: must have 1 to 500 characters"})
    assert await alice.request("POST", "memories", {"content": "likes tea", "write_reason": ""}) == refused
    assert await alice.request("POST", "memories", {"content": "likes tea", "topic": ""}) == (201, memory())


@requirement("blade:memories:bounds")
async def test_500_characters_of_any_script_are_taken(alice: Client) -> None:
    assert await alice.request("POST", "memories", {"content": "咖" * 500}) == (201, memory(content="咖" * 500))


@requirement("blade:memories:list", "blade:memories:keyword")
async def test_memories_are_listed_newest_first_and_filtered(alice: Client) -> None:
    for body in (
        {"content": "likes Tea", "topic": "taste", "scope": "home"},
        {"content": "用户喜欢黑咖啡", "type": "experience", "skill_name": "brew"},
        {"content": "rude", "record_type": "skill_comment", "owner": "ann"},
    ):
        assert (await alice.request("POST", "memories", body)).status == 201
    await alice.request("PATCH", "memories/3", {"disabled": True})
    assert await ids(alice) == [3, 2, 1]
    expected = {
        "keyword=tea": [1], "keyword=TAST": [1], "keyword=%E5%92%96%E5%95%A1": [2], "keyword=": [3, 2, 1],
        "type=experience": [2], "type=feedback": [3, 1], "skill_name=brew": [2], "skill_name=bre": [],
        "record_type=skill_comment": [3], "scope=home": [1], "owner=ann": [3], "topic=taste": [1],
        "status=disabled": [3], "status=enabled": [2, 1], "status=superseded": [],
        "type=feedback&status=enabled": [1],
    }  # fmt: skip
    assert {query: await ids(alice, query) for query in expected} == expected
    page = await alice.request("GET", "memories?offset=1&limit=1")
    assert ([each["id"] for each in page.body["items"]], page.body["total"]) == ([2], 3)


@requirement("blade:memories:list")
@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("limit=0", "limit: must be a whole number from 1 to 100"),
        ("limit=101", "limit: must be a whole number from 1 to 100"),
        ("limit=x", "limit: must be a whole number from 1 to 100"),
        ("offset=-1", "offset: must be a whole number from 0 to 999999999"),
        ("type=opinion", "type: Invalid enum value 'opinion'; expected 'experience' or 'feedback'"),
        ("status=off", "status: Invalid enum value 'off'; expected 'disabled', 'enabled' or 'superseded'"),
    ],
)
async def test_a_query_out_of_bounds_is_422(alice: Client, query: str, detail: str) -> None:
    assert await alice.request("GET", f"memories?{query}") == (422, {"detail": detail})


@requirement("blade:memories:change")
async def test_a_change_leaves_what_it_does_not_name_and_an_empty_text_takes_away(
    rest_fixture: RestFixture, alice: Client
) -> None:
    await alice.request("POST", "memories", {"content": "likes tea", "topic": "taste", "record_type": "memory"})
    rest_fixture.clock.move(60)
    later = "2026-03-04T05:07:07Z"
    changed = memory(topic="taste", record_type="memory", updated_at=later, scope="home")
    assert await alice.request("PUT", "memories/1", {"scope": "home", "content": None}) == (200, changed)
    body = {"topic": "", "record_type": "", "type": "experience", "content": "likes coffee"}
    bare = memory(type="experience", content="likes coffee", scope="home", updated_at=later)
    assert await alice.request("PUT", "memories/1", body) == (200, bare)
    assert await alice.request("GET", "memories/1") == (200, bare)


@requirement("blade:memories:switch")
async def test_a_memory_is_disabled_and_enabled(alice: Client) -> None:
    await alice.request("POST", "memories", {"content": "likes tea"})
    off = memory(disabled=True, updated_at=NOON)
    assert await alice.request("PATCH", "memories/1", {"disabled": True}) == (200, off)
    assert await alice.request("PATCH", "memories/1", {"disabled": False}) == (200, {**off, "disabled": False})
    assert await alice.request("PATCH", "memories/1", {}) == (422, {"detail": "disabled: this field is required"})


@requirement("blade:memories:delete")
async def test_a_deleted_memory_is_gone(alice: Client) -> None:
    await alice.request("POST", "memories", {"content": "likes tea"})
    assert await alice.request("DELETE", "memories/1") == (200, {"ok": True})
    gone = {"detail": "there is no memory 1"}
    assert await alice.request("DELETE", "memories/1") == (404, gone)
    assert await alice.request("GET", "memories/1") == (404, gone)
    assert await alice.request("PUT", "memories/1", {"content": "c"}) == (404, gone)
    assert await alice.request("PATCH", "memories/1", {"disabled": True}) == (404, gone)


@requirement("blade:memories:batch")
async def test_a_batch_reports_how_many_it_changed(alice: Client) -> None:
    for _ in range(3):
        await alice.request("POST", "memories", {"content": "likes tea"})
    answers = [
        await alice.request("POST", "memories/batch", {"action": action, "ids": numbers})
        for action, numbers in (
            ("disable", [1, 1, 2, 99]),
            ("disable", [1, 2]),
            ("enable", [1, 2, 3]),
            ("delete", [2, 3, 99]),
        )
    ]
    assert answers == [(200, {"ok": True, "count": count}) for count in (2, 0, 2, 2)]
    assert await ids(alice) == [1]


@requirement("blade:memories:batch")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"action": "forget", "ids": [1]},
        {"action": "delete", "ids": []},
        {"action": "delete", "ids": list(range(101))},
        {"action": "delete", "ids": ["1"]},
        {"action": "delete", "ids": [True]},
        {"action": "delete", "ids": [10**30]},
        {"action": "delete", "ids": [-1]},
    ],
)
async def test_a_batch_out_of_bounds_is_422(alice: Client, body: dict[str, Any]) -> None:
    assert (await alice.request("POST", "memories/batch", body)).status == 422


@requirement("blade:memories:own")
async def test_another_users_memories_are_not_there(rest_fixture: RestFixture, alice: Client) -> None:
    await alice.request("POST", "memories", {"content": "likes tea"})
    bob = await rest_fixture.client("bob")
    gone = (404, {"detail": "there is no memory 1"})
    assert await ids(bob) == []
    assert await bob.request("GET", "memories/1") == gone
    assert await bob.request("PUT", "memories/1", {"content": "c"}) == gone
    assert await bob.request("PATCH", "memories/1", {"disabled": True}) == gone
    assert await bob.request("DELETE", "memories/1") == gone
    assert await bob.request("POST", "memories/batch", {"action": "delete", "ids": [1]}) == (
        200,
        {"ok": True, "count": 0},
    )
    assert await ids(alice) == [1]


@requirement("blade:memories:own")
@pytest.mark.parametrize("name", ["x", "-1", "1.0", "9" * 30, "%F0%9F%8D%B5"])
async def test_what_is_no_id_is_not_there(alice: Client, name: str) -> None:
    assert await alice.request("GET", f"memories/{name}") == (404, {"detail": "Memory not found"})


@requirement("blade:memories:injected")
async def test_a_chat_gets_memories_counts_them_and_refers_to_them(shared_server: SocketServer) -> None:
    caller = RestClient(url_of(shared_server), shared_server.key("bob"))
    written = (await caller.request("POST", "memories", {"content": "likes tea " + "very much " * 20})).body
    session, off = await caller.session(), await caller.session(memory_enabled=False)
    refs = [{"id": written["id"], "content_preview": written["content"][:80], "skill_name": None}]
    async with socket_client(caller.url, caller.key) as socket:
        events = await socket.send(session, script({"say": "one"}, call("add", a=1, b=2), {"say": "two"}))
        names = [name for name, _ in events]
        reply = next(payload for name, payload in events if name == "memory:inject:done")
        quiet = [name for name, _ in await socket.send(off, "hello")]
    assert (reply["memory_refs"], reply["count"], names.count("memory:inject:done")) == (refs, 1, 1)
    assert names.index("memory:inject:done") > names.index("turn:end"), "after the user's turn"
    turns = await caller.messages(session)
    assert [turn["memory_refs"] for turn in turns] == [None, refs, None]
    assert "memory:inject:done" not in quiet
    assert [turn["memory_refs"] for turn in await caller.messages(off)] == [None, None]
    hit = (await caller.request("GET", f"memories/{written['id']}")).body
    assert (hit["hit_count"], hit["last_hit_at"] is not None) == (1, True)
    await caller.request("DELETE", f"memories/{written['id']}")


@requirement("blade:memories:injected", "blade:memories:written")
async def test_the_rehearsal_agent_writes_memories_and_recalls_those_that_it_gets(tmp_path: Path) -> None:
    async with servers.running_socket_server(tmp_path) as app_server:
        caller = RestClient(url_of(app_server), app_server.key("alice"))
        session, off = await caller.session(), await caller.session(memory_enabled=False)
        recall = script({"recall": "memory"})
        writes = script(
            call("WriteMemory", content="likes tea", reason="said so", type="feedback"), {"say": "{result}"}
        )
        async with socket_client(caller.url, caller.key) as socket:
            await socket.send(session, recall)
            await socket.send(session, writes)
            await caller.request("POST", "memories", {"content": "drinks\nno coffee"})
            await socket.send(session, recall)
            await socket.send(off, recall)
            await socket.send(off, writes)
        written = (await caller.get("memories"))["items"][-1]
        assert (written["content"], written["source_session"]) == ("likes tea", session)
        said = [
            "".join(b["content"] for b in t["blocks"] if b["type"] == "text") for t in await caller.messages(session)
        ]
        assert (said[1], said[-1]) == ("none", "drinks no coffee | likes tea")
        turns = await caller.messages(off)
        assert turns[1]["blocks"][0]["content"] == "none"
        assert turns[3]["tool_calls"][0]["result"] == "Tool not found: WriteMemory"


@requirement("blade:memories:limit")
async def test_a_user_with_very_many_memories_gets_no_more_until_one_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "MAX_MEMORIES_PER_USER", 2)
    message = "there are 2 memories already: delete one"
    async with servers.running_socket_server(tmp_path) as app_server:
        caller, other = (RestClient(url_of(app_server), app_server.key(name)) for name in ("alice", "bob"))
        first = (await caller.request("POST", "memories", {"content": "likes tea"})).body
        session = await caller.session()
        write = script(call("WriteMemory", content="has a cat", reason="said so"), {"say": "{result}"})
        async with socket_client(caller.url, caller.key) as socket:
            await socket.send(session, write)
            await socket.send(session, write)
        results = [each["result"] for turn in await caller.messages(session) for each in turn["tool_calls"]]
        assert results[1] == f"Tool execution failed: {message}"
        assert await caller.request("POST", "memories", {"content": "one more"}) == (409, {"detail": message})
        assert (await other.request("POST", "memories", {"content": "likes tea"})).status == 201
        await caller.request("DELETE", f"memories/{first['id']}")
        assert (await caller.request("POST", "memories", {"content": "one more"})).status == 201


@requirement("blade:memories:private")
async def test_who_reads_a_shared_session_learns_nothing_of_its_owners_memories(tmp_path: Path) -> None:
    async with servers.running_socket_server(tmp_path) as app_server:
        owner, viewer = (RestClient(url_of(app_server), app_server.key(name)) for name in ("alice", "bob"))
        written = (await owner.request("POST", "memories", {"content": "a canary that is the owner's"})).body
        refs = [{"id": written["id"], "content_preview": written["content"], "skill_name": None}]
        session = await owner.session()
        await owner.request("PATCH", f"sessions/{session}/sharing", {"shared": True})
        waits = script({"say": "one"}, {"wait_ms": 600_000})
        async with (
            socket_client(owner.url, owner.key) as hers,
            socket_client(viewer.url, viewer.key) as plain,
            socket_client(viewer.url, viewer.key) as raw,
            socket_client(viewer.url, viewer.key) as late,
        ):
            await plain.call("session:subscribe", {"session_id": session})
            await raw.call("session:subscribe", {"session_id": session, "event_format": "raw"})
            reply = await hers.call("chat:send", {"session_id": session, "message": waits})
            assert reply["status"] == "ok"
            await hers.until("turn:patch")
            await late.call("session:subscribe", {"session_id": session})
            await late.until(lambda name, payload: name == "turn:start" and payload["role"] == "assistant")
            await late.call("session:subscribe", {"session_id": session, "after_sequence": 1})
            await hers.call("chat:stop", {"session_id": session})
            for each in (hers, plain, raw, late):
                await each.until("chat:end")
        known = [payload["memory_refs"] for name, payload in hers.events if name == "memory:inject:done"]
        seen = [payload for name, payload in plain.events if name == "memory:inject:done"]
        assert known == [refs]
        assert [(each["memory_refs"], each["count"]) for each in seen] == [([], 0)]
        numbers = [
            [each["stream_sequence"] for _, each in one.events if "stream_sequence" in each] for one in (hers, plain)
        ]
        assert numbers[0] == numbers[1]
        for each in (plain, raw, late):
            assert "canary" not in str(each.events)
        assert [turn["memory_refs"] for turn in await owner.messages(session)] == [None, refs]
        [checkpoint] = await viewer.get(f"sessions/{session}/checkpoints")
        whole = {"checkpoint_id": checkpoint["checkpoint_id"], "position": "turn_end"}
        for answer in (
            await viewer.request("GET", f"sessions/{session}/messages"),
            await viewer.request("POST", f"sessions/{session}/checkout", whole),
        ):
            assert answer.status == 200
            assert "canary" not in str(answer.body)


@requirement("blade:memories:injected")
async def test_a_session_made_over_blade_remembers_through_other_protocols_too_and_one_made_there_does_not(
    tmp_path: Path,
) -> None:
    """Rulings, 23."""
    async with servers.running_server(tmp_path) as app_server, client_of(app_server, "alice") as alice:
        await alice.request("POST", "memories", {"content": "likes tea"})
        created = (await alice.request("POST", "sessions", {})).body["session_id"]
        client = app_server.aap_client("alice")
        await Session(client, created.removeprefix("sess_")).run("hello")
        assert (await alice.request("GET", "memories/1")).body["hit_count"] == 1
        elsewhere = await client.create()
        await elsewhere.run("hello")
        assert (await alice.request("GET", "memories/1")).body["hit_count"] == 1
        assert (await alice.request("GET", f"sessions/{elsewhere.id}")).body["memory_enabled"] is False


@requirement("blade:memories:injected")
async def test_where_the_server_says_so_new_sessions_have_memory_off(tmp_path: Path) -> None:
    async with (
        servers.running_server(tmp_path, blade_memory=False) as app_server,
        client_of(app_server, "alice") as alice,
    ):
        created = [
            (await alice.request("POST", "sessions", body)).body["session_id"]
            for body in ({}, {"memory_enabled": True})
        ]
        flags = [(await alice.request("GET", f"sessions/{each}")).body["memory_enabled"] for each in created]
        assert (flags, (await alice.request("GET", "config")).body["memoryEnabled"]) == ([False, True], False)


@requirement("blade:memories:own")
async def test_a_key_that_reads_cannot_write(rest_fixture: RestFixture) -> None:
    reader = await rest_fixture.client(scope="read")
    assert (await reader.request("GET", "memories")).status == 200
    assert (await reader.request("POST", "memories", {"content": "c"})).status == 403
