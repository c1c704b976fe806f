"""Sessions, messages, branches and compaction over REST (specification, 5.1 to 5.4 and 10)."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conversations import call, script
from tests.protocols.blade.client import RestClient, kinds, socket_client
from tests.protocols.blade.driver import url_of
from tests.protocols.blade.patch_folding import SEED_FIELDS
from tests.requirements import requirement
from tests.servers import SocketServer, running_socket_server

Json = Any
LONG_MESSAGE = "a rather long message to begin with, so that there is something to summarize"
SESSION_FIELDS = [
    "id",
    "intent",
    "status",
    "created_at",
    "updated_at",
    "user_id",
    "solution_id",
    "biz_role_id",
    "model",
    "shared",
    "is_pinned",
    "memory_enabled",
    "is_persistent",
    "replay_state",
]


async def message_texts(alice: RestClient, session: str) -> list[str]:
    return [
        "".join(block["content"] for block in turn["blocks"] if block["type"] == "text")
        for turn in await alice.messages(session)
    ]


@requirement("blade:server:open")
async def test_what_a_client_asks_first_needs_no_key(shared_server: SocketServer) -> None:
    async with httpx2.AsyncClient(base_url=url_of(shared_server), verify=False) as http:
        assert (await http.get("/api/health")).json() == {"status": "ok"}
        version = (await http.get("/api/version/")).json()
        assert (version["version"], version["min_sdk"]) == ("2608.0.4", "0.4.17")
        config = (await http.get("/api/config")).json()
        assert (config["memoryEnabled"], config["asrEnabled"], config["sentryDsn"]) == (True, False, "")
        assert (await http.get("/api/sessions")).status_code == 401


@requirement("blade:server:about")
async def test_a_caller_learns_who_it_is_and_what_is_served(alice: RestClient) -> None:
    me = await alice.get("auth/me")
    since = (await alice.get("user/api-keys"))[0]["created_at"]
    assert (me["username"], me["scopes"], me["created_at"]) == ("alice", ["use"], since)
    solutions = (await alice.get("solutions"))["items"]
    assert [each["id"] for each in solutions] == ["rehearsal", "rehearsal-bare"]
    assert (await alice.get("solutions/rehearsal/biz-roles"))["items"] == []
    assert (await alice.request("GET", "solutions/none/biz-roles")).status == 404
    models = await alice.get("config/models")
    assert models["default"] in [each["id"] for each in models["models"]]


@requirement("blade:server:about")
async def test_a_caller_of_a_server_without_keys_exists_since_the_server_started(tmp_path: Path) -> None:
    async with running_socket_server(tmp_path, auth=False) as app_server:
        anybody = RestClient(url_of(app_server), "none")
        since = datetime.fromisoformat((await anybody.get("auth/me"))["created_at"])
        session = await anybody.get(f"sessions/{await anybody.session()}")
    assert timedelta() <= datetime.fromisoformat(session["created_at"]) - since < timedelta(minutes=10)


@requirement("blade:sessions:create", "blade:sessions:fields", "blade:sessions:detail")
async def test_a_new_session_has_every_field(alice: RestClient) -> None:
    session = await alice.session(
        intent="dig",
        solution_id="rehearsal-bare",
        biz_role_id="miner",
        model="m",
        memory_enabled=False,
        is_persistent=True,
        env={"A": "1"},
        template_id="ignored",
    )
    detail = await alice.get(f"sessions/{session}")
    assert list(detail)[:14] == SESSION_FIELDS
    varying = {name: detail.pop(name) for name in ("created_at", "updated_at", "solution")}
    assert detail == {
        "id": session,
        "intent": "dig",
        "status": "created",
        "user_id": "alice",
        "solution_id": "rehearsal-bare",
        "biz_role_id": "miner",
        "model": "m",
        "shared": False,
        "is_pinned": False,
        "memory_enabled": False,
        "is_persistent": True,
        "replay_state": None,
        "primary_skill_snapshot": None,
        "session_setup": {"mode": "executing", "disable_tools": []},
        "viewer_role": "owner",
        "env": {"A": "1"},
    }
    assert varying["solution"]["id"] == "rehearsal-bare"
    assert varying["created_at"].endswith("Z")


@requirement("blade:sessions:solution")
async def test_a_session_keeps_the_solution_that_was_set_when_the_default_agent_changes(tmp_path: Path) -> None:
    shown: list[list[str]] = []
    ids: list[str] = []
    for default in ("rehearsal", "rehearsal-bare"):
        async with running_socket_server(tmp_path, default_agent=default) as app_server:
            caller = RestClient(url_of(app_server), app_server.key("alice"))
            if not ids:
                ids = [await caller.session(solution_id=each) for each in ("rehearsal", "rehearsal-bare")]
                ids.append(await caller.session())
            shown.append([(await caller.get(f"sessions/{each}"))["solution_id"] for each in ids])
            listed = {each["id"]: each["solution_id"] for each in (await caller.get("sessions"))["items"]}
            assert [listed[each] for each in ids] == shown[-1]
    assert shown == [["rehearsal", "rehearsal-bare", "rehearsal"]] * 2


@requirement("blade:sessions:create")
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"solution_id": "none"}, 404),
        ({"intent": 7}, 422),
        ({"env": {"A": 1}}, 422),
        ({"disable_tools": "add"}, 422),
        ({"disable_tools": ["add", "unknown"]}, 422),
        ({"env": {"A=B": "1"}}, 422),
        ({"env": {"A B": "1"}}, 422),
        ({"env": {"A\x00": "1"}}, 422),
        ({"env": {"": "1"}}, 422),
        ({"options": {"none": "x"}}, 422),
        ({"options": {"style": "none"}}, 422),
        ({"options": {"greeting": 7}}, 422),
    ],
)
async def test_a_wrong_session_is_refused_with_one_sentence(alice: RestClient, body: Json, status: int) -> None:
    reply = await alice.request("POST", "sessions", body)
    assert (reply.status, list(reply.body)) == (status, ["detail"])
    assert isinstance(reply.body["detail"], str)


@requirement("blade:sessions:options")
async def test_a_session_can_be_made_with_the_options_of_its_agent(alice: RestClient) -> None:
    session = await alice.session(options={"greeting": "Ahoy!", "token": "12345"})
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, script({"option": "greeting"}, {"say": " "}, {"option": "token"}))
    reply = (await message_texts(alice, session))[-1]
    assert "Ahoy!" in reply
    assert "set(5)" in reply


@requirement("blade:sessions:disable-tools")
async def test_tools_can_be_switched_off_for_a_session(alice: RestClient) -> None:
    session = await alice.session(disable_tools=["add"])
    assert (await alice.get(f"sessions/{session}"))["session_setup"]["disable_tools"] == ["add"]
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, script(call("add", a=1, b=1), {"say": "{result}"}))
    assert (await message_texts(alice, session))[-1] == "Tool not found: add"


@requirement("blade:sessions:list", "blade:sessions:search", "blade:rest:paging")
async def test_sessions_are_listed_by_use_and_found_by_what_was_said(tmp_path: Any) -> None:
    async with running_socket_server(tmp_path) as app_server:
        alice, bob = (RestClient(url_of(app_server), app_server.key(name)) for name in ("alice", "bob"))
        created = [await alice.session(intent=f"number {number}") for number in range(3)]
        await bob.session(intent="number 9")
        async with socket_client(alice.url, alice.key) as socket:
            await socket.send(created[0], "杭州 is far")
        await alice.request("PATCH", f"sessions/{created[1]}/pin", {"pinned": True})
        page = await alice.get("sessions")
        assert [each["id"] for each in page["items"]] == [created[1], created[0], created[2]]
        assert (page["total"], page["limit"], page["offset"], page["content_match_truncated"]) == (3, 20, 0, False)
        second = await alice.get("sessions?limit=1&offset=1")
        assert ([each["id"] for each in second["items"]], second["total"]) == ([created[0]], 3)
        for text, result in (("NUMBER", 3), ("杭州", 1), ("bob", 0)):
            assert (await alice.get(f"sessions?q={text}"))["total"] == result
        assert (await alice.get("sessions?template_id_prefix=x"))["items"] == []
        for query in ("limit=0", "limit=201", "offset=-1", "limit=x"):
            assert (await alice.request("GET", f"sessions?{query}")).status == 422


@requirement("blade:sessions:list")
async def test_a_session_without_a_title_is_called_by_its_first_words_wherever_they_were_said(
    alice: RestClient,
) -> None:
    session = await alice.session()
    answer = {
        "stream": "none",
        "messages": [{"role": "user", "content": " What grows\nin the shade of a walnut tree?"}],
    }
    for text in (answer, {**answer, "messages": [{"role": "user", "content": "And elsewhere?"}]}):
        path = f"../aap/v3/sessions/{session.removeprefix('sess_')}/turns"
        assert (await alice.request("POST", path, text)).status == 200
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, "thanks")
    title = "What grows in the shade of a walnut…"
    listed = {each["id"]: each["intent"] for each in (await alice.get("sessions"))["items"]}
    assert listed[session] == title
    assert (await alice.get(f"sessions/{session}"))["intent"] == title
    assert (await alice.request("PATCH", f"sessions/{session}", {"intent": "Shade"})).body["intent"] == "Shade"


@requirement("blade:sessions:change")
async def test_a_session_can_be_changed_and_every_change_is_shown(alice: RestClient) -> None:
    session = await alice.session()
    assert (await alice.request("PATCH", f"sessions/{session}", {"intent": "new"})).body["intent"] == "new"
    assert (await alice.request("PATCH", f"sessions/{session}", {"intent": " "})).status == 422
    assert (await alice.request("PATCH", f"sessions/{session}/pin", {"pinned": True})).body["is_pinned"] is True
    env = {"env": {"B": "2"}}
    assert (await alice.request("PUT", f"sessions/{session}/env", env)).body["env"] == {"B": "2"}
    assert (await alice.request("PATCH", f"sessions/{session}/memory", {"memory_enabled": False})).body == {
        "memory_enabled": False
    }
    assert (await alice.request("PATCH", f"sessions/{session}/sharing", {"shared": True})).body == {"shared": True}
    detail = await alice.get(f"sessions/{session}/")
    stored = (detail["intent"], detail["is_pinned"], detail["memory_enabled"], detail["shared"], detail["env"])
    assert stored == ("new", True, False, True, {"B": "2"})


@requirement("blade:sessions:env")
async def test_variables_of_a_session_and_of_a_chat_stand_in_no_turn(alice: RestClient) -> None:
    session = await alice.session(env={"A": "hidden-1"})
    async with socket_client(alice.url, alice.key) as socket:
        events = await socket.send(session, "hello", runtime_env={"B": "hidden-2"})
    for reply in (events, await alice.messages(session), await alice.get(f"sessions/{session}/history")):
        assert "hidden" not in str(reply)


@requirement("blade:sessions:foreign")
async def test_another_users_session_is_not_there(alice: RestClient, bob: RestClient) -> None:
    session = await alice.session()
    for method, path, body in (
        ("GET", "", None),
        ("PATCH", "", {"intent": "x"}),
        ("DELETE", "", None),
        ("GET", "/messages", None),
        ("POST", "/rewind", {"checkpoint_id": "cp_1"}),
    ):
        assert (await bob.request(method, f"sessions/{session}{path}", body)).status == 404
        assert (await bob.request(method, f"sessions/sess_none{path}", body)).status == 404


@requirement("blade:sessions:viewer")
async def test_a_shared_session_can_be_read_by_others_and_by_them_alone_not_changed(
    alice: RestClient, bob: RestClient
) -> None:
    session = await alice.session(env={"A": "1"})
    await alice.request("PATCH", f"sessions/{session}/sharing", {"shared": True})
    detail = await bob.get(f"sessions/{session}")
    assert (detail["viewer_role"], "env" in detail) == ("viewer", False)
    assert (await bob.request("PATCH", f"sessions/{session}", {"intent": "x"})).status == 403
    assert (await bob.request("DELETE", f"sessions/{session}")).status == 403
    async with socket_client(bob.url, bob.key) as his, socket_client(alice.url, alice.key) as hers:
        assert (await his.call("session:subscribe", {"session_id": session}))["status"] == "ok"
        for name in ("chat:send", "chat:stop"):
            reply = await his.call(name, {"session_id": session, "message": "x"})
            assert reply["code"] == "forbidden"
        await hers.send(session, "hello")
        assert kinds(await his.until("chat:end"))[-1] == "chat:end"
        await alice.request("PATCH", f"sessions/{session}/sharing", {"shared": False})
        assert (await bob.request("GET", f"sessions/{session}")).status == 404
        received = len(his.events)
        await hers.send(session, "hello")
        assert len(his.events) == received


@requirement("blade:sessions:change-anytime")
async def test_a_viewer_is_cut_off_and_a_session_renamed_and_pinned_while_a_chat_runs(
    alice: RestClient, bob: RestClient
) -> None:
    session = await alice.session()
    path = f"sessions/{session}"
    await alice.request("PATCH", f"{path}/sharing", {"shared": True})
    async with socket_client(bob.url, bob.key) as his, socket_client(alice.url, alice.key) as hers:
        await his.call("session:subscribe", {"session_id": session})
        message = script({"say": "x" * 60, "size": 1, "every_ms": 50})
        await hers.call("chat:send", {"session_id": session, "message": message})
        await his.until("turn:patch")
        assert (await alice.request("PATCH", f"{path}/sharing", {"shared": False})).body == {"shared": False}
        assert (await alice.request("PATCH", path, {"intent": "new"})).body["intent"] == "new"
        assert (await alice.request("PATCH", f"{path}/pin", {"pinned": True})).body["is_pinned"] is True
        assert (await hers.until("chat:end"))[-1][1]["status"] == "completed"
    assert "chat:end" not in kinds(his.events)
    assert (await bob.request("GET", path)).status == 404
    assert (await message_texts(alice, session))[-1] == "x" * 60


@requirement("blade:sessions:delete")
async def test_a_deleted_session_is_gone(alice: RestClient) -> None:
    session = await alice.session()
    assert (await alice.request("DELETE", f"sessions/{session}")).body == {"deleted": True}
    assert (await alice.request("DELETE", f"sessions/{session}")).status == 404


@requirement("blade:sessions:ids")
async def test_a_session_is_found_by_its_prefixed_and_by_its_bare_id(alice: RestClient) -> None:
    session = await alice.session()
    assert session.startswith("sess_")
    assert (await alice.get(f"sessions/{session.removeprefix('sess_')}"))["id"] == session


@requirement("blade:turns:fields", "blade:turns:messages")
async def test_messages_are_a_bare_array_of_whole_turns(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, "add 2 and 3")
    turns = await alice.messages(session)
    assert [turn["role"] for turn in turns] == ["user", "assistant", "assistant"]
    for turn in turns:
        assert set(SEED_FIELDS) <= set(turn)
        assert turn["context_window"] == (0 if turn["role"] == "user" else 200_000)
    [call_made] = turns[1]["tool_calls"]
    assert (call_made["arguments"], call_made["status"], call_made["result"]) == ('{"a":2,"b":3}', "done", "5")
    assert turns[2]["usage"]["output_tokens"] > 0
    path = f"sessions/{session}/messages"
    assert await alice.get(f"{path}?limit=1&offset=1") == turns[1:2]


@requirement(
    "blade:branches:checkpoints",
    "blade:branches:rewind",
    "blade:branches:switch",
    "blade:branches:checkout",
    "blade:branches:alternatives",
)
async def test_a_session_goes_back_and_forth_between_its_branches(alice: RestClient) -> None:
    session = await alice.session()
    path = f"sessions/{session}"
    async with socket_client(alice.url, alice.key) as socket:
        for text in ("one", "two"):
            await socket.send(session, text)
        first, second = await alice.get(f"{path}/checkpoints")
        assert [each["preview"] for each in (first, second)] == ["one", "two"]
        before = await alice.messages(session)
        at = {"checkpoint_id": second["checkpoint_id"]}
        rewound = (await alice.request("POST", f"{path}/rewind", at)).body
        assert (rewound["message"], rewound["leaf_entry_id"]) == ("two", before[1]["id"])
        assert rewound["removed_turn_ids"] == [turn["turn_id"] for turn in before[2:]]
        await socket.until(lambda name, payload: (name, payload["session_id"]) == ("session:updated", session))
        assert await alice.messages(session) == before[:2]
        await socket.send(session, "other")
        assert [turn["sequence"] for turn in await alice.messages(session)] == [0, 1, 4, 5]
        whole = (await alice.request("POST", f"{path}/checkout", {**at, "position": "turn_end"})).body
        assert whole["turns"] == before
        part = (await alice.request("POST", f"{path}/checkout", at)).body
        assert part["turns"] == before[:2]
        active = [each["active"] for each in await alice.get(f"{path}/checkpoints")]
        assert active == [True, False, True]
        checkpoints = (await alice.get(f"{path}/checkpoints"))[1:]
        versions = {
            "alternatives": [{name: each[name] for name in ("checkpoint_id", "turn_id")} for each in checkpoints]
        }
        assert [turn.get("alternatives") for turn in await alice.messages(session)] == [
            *(None, None, versions["alternatives"], None)
        ]
        switched = (await alice.request("POST", f"{path}/switch-branch", at)).body
        assert switched["leaf_entry_id"] == before[3]["id"]
        assert await alice.messages(session) == [*before[:2], before[2] | versions, before[3]]
        await socket.send(session, script({"recall": "user"}))
        assert (await message_texts(alice, session))[-1] == "one | two", "the agent sees the branch alone"
    nodes = (await alice.get(f"{path}/history"))["nodes"]
    parents = {node["entry_id"]: node["parent_entry_id"] for node in nodes}
    assert parents[nodes[4]["entry_id"]] == before[1]["id"]
    assert parents[nodes[6]["entry_id"]] == before[3]["id"]


@requirement("blade:branches:refused")
async def test_branches_are_refused_where_they_make_no_sense(alice: RestClient) -> None:
    session = await alice.session()
    path = f"sessions/{session}"
    async with socket_client(alice.url, alice.key) as socket:
        await socket.call("chat:send", {"session_id": session, "message": script({"say": "x"}, {"wait_ms": 600_000})})
        await socket.until("turn:patch")
        [checkpoint] = await alice.get(f"{path}/checkpoints")
        at = {"checkpoint_id": checkpoint["checkpoint_id"]}
        for what in ("rewind", "switch-branch", "compact"):
            assert (await alice.request("POST", f"{path}/{what}", at)).status == 409
        assert (await alice.request("PUT", f"{path}/env", {"env": {"A": "1"}})).status == 409
        assert (await alice.request("POST", f"{path}/checkout", at)).status == 200
        await socket.call("chat:stop", {"session_id": session})
    for what in ("rewind", "checkout", "switch-branch"):
        assert (await alice.request("POST", f"{path}/{what}", {"checkpoint_id": "cp_999"})).status == 404
        assert (await alice.request("POST", f"{path}/{what}", {})).status == 422
    assert (await alice.request("POST", f"{path}/checkout", {**at, "position": "after"})).status == 422


@requirement("blade:compaction:rest", "blade:compaction:turn", "blade:compaction:socket")
async def test_a_session_can_be_summed_up_and_nobody_loses_their_history(alice: RestClient) -> None:
    session = await alice.session()
    path = f"sessions/{session}"
    async with socket_client(alice.url, alice.key) as socket:
        assert (await alice.request("POST", f"{path}/compact")).status == 409
        nothing = await socket.call("chat:compact", {"session_id": session})
        assert (nothing["status"], nothing["code"]) == ("error", "nothing_to_compact")
        assert (await socket.until("system:error"))[-1][1]["code"] == "nothing_to_compact", "announced, as all refusals"
        await socket.send(session, LONG_MESSAGE)
        assert (await alice.request("POST", f"{path}/compact")).status == 409, "one turn"
        await socket.send(session, "two")
        reply = (await alice.request("POST", f"{path}/compact")).body
        events = await socket.until("turn:end")
        assert [(name, payload["kind"]) for name, payload in events[-2:]] == [
            ("turn:start", "compaction"),
            ("turn:end", "compaction"),
        ]
        turns = await alice.messages(session)
        created = turns[-1]
        assert (created["role"], created["status"], created["blocks"]) == ("system", "completed", [])
        names = ("compaction_id", "archived_count", "tokens_before", "tokens_after", "saved_ratio", "trigger")
        assert reply == {"status": "ok", **{name: created[name] for name in names}}
        assert (created["trigger"], created["archived_count"]) == ("manual", 3)
        assert 0 < created["saved_ratio"] < 1
        assert created["summary_preview"] == created["summary_full"][:200]
        assert [turn["archived"] for turn in turns] == [True, True, True, False, False]
        await socket.send(session, LONG_MESSAGE)
        assert (await socket.call("chat:compact", {"session_id": session}))["status"] == "ok"


@requirement("blade:compaction:saves")
async def test_a_compaction_that_saves_nothing_is_refused(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        for text in ("hello", "think"):
            await socket.send(session, text)
        reply = await alice.request("POST", f"sessions/{session}/compact")
        assert reply.status == 409, reply
        assert (await socket.call("chat:compact", {"session_id": session}))["code"] == "nothing_to_compact"
    assert [turn["kind"] for turn in await alice.messages(session)] == ["message"] * 4


@requirement("blade:turns:unique")
async def test_sessions_with_the_same_conversation_share_no_id(alice: RestClient) -> None:
    names = ("id", "turn_id", "compaction_id", "chat_run_id")
    ids: list[set[str]] = []
    async with socket_client(alice.url, alice.key) as socket:
        for _ in range(2):
            session = await alice.session()
            await socket.send(session, LONG_MESSAGE, mode="planning")
            await socket.send(session, "ask me")
            call_id = (await alice.messages(session))[-1]["tool_calls"][0]["id"]
            await socket.send(session, "", askuser_answer={"tool_call_id": call_id, "selections": {"0": [0]}})
            assert (await alice.request("POST", f"sessions/{session}/compact")).status == 200
            turns = await alice.messages(session)
            assert [turn["role"] for turn in turns[:3]] == ["system", "user", "assistant"]
            assert turns[-1]["kind"] == "compaction"
            ids.append({turn[name] for turn in turns for name in names if turn[name] is not None})
    assert ids[0].isdisjoint(ids[1])


@requirement("blade:tokens:stats", "blade:tokens:count")
async def test_tokens_are_estimated(alice: RestClient) -> None:
    session = await alice.session()
    async with socket_client(alice.url, alice.key) as socket:
        await socket.send(session, "hello")
    stats = await alice.get(f"sessions/{session}/context-stats")
    assert stats["used_tokens"] == stats["messages_tokens"] + stats["tools_tokens"] > 0
    counted = await alice.request("POST", "sessions/tokenize/prompt", {"prompt": "hello there"})
    assert counted.body == {"token_count": 3, "model": None, "approximate": True}
    several = await alice.request(
        "POST", "sessions/tokenize/messages", {"messages": [{"role": "user", "content": "x"}, "y"]}
    )
    assert several.body["token_count"] == sum(several.body["per_message"])


@requirement("blade:scope:absent")
@pytest.mark.parametrize("path", ["sessions/SESSION/ls/%2E", "env", "chat-groups", "sessions/SESSION/tasks"])
async def test_what_is_not_there_is_not_found(alice: RestClient, path: str) -> None:
    session = await alice.session()
    reply = await alice.request("GET", path.replace("SESSION", session))
    assert (reply.status, reply.body) == (404, {"detail": "Not Found"})


@requirement("blade:scope:run-service")
async def test_the_run_service_keeps_its_place(alice: RestClient) -> None:
    async with httpx2.AsyncClient(base_url=alice.url, verify=False) as http:
        reply = await http.get("/api/v1/agent/nothing", headers={"authorization": f"Bearer {alice.key}"})
    assert reply.headers["content-type"] == "application/problem+json"
