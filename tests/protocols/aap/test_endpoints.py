"""AAP, sections 3, 11 and 12: making, reading, listing and deleting sessions."""

import asyncio
from typing import Any

import pytest

from tests.protocols.aap.client import (
    AapClient,
    Session,
    assert_refusal,
    assert_unchanged,
    assistant_calls,
    assistant_text,
    call,
    calls,
    client_tool,
    enabled_tools,
    result,
    script,
    user,
)
from tests.protocols.aap.stream import normalize_frames
from tests.requirements import requirement
from tests.servers import AppServerFactory

# --- creation ---------------------------------------------------------------------------------------------------------


@requirement("aap:create:201", "aap:create:location")
async def test_creation_is_201_with_the_id_and_its_url(aap_client: AapClient) -> None:
    reply = await aap_client.post("/sessions", {"agent": {"name": "rehearsal"}})
    assert reply.status == 201
    assert set(reply.json) == {"sessionId"}
    assert reply.headers["location"].endswith(f"/aap/v3/sessions/{reply.json['sessionId']}")


@requirement("aap:create:does-not-run")
async def test_creation_stores_and_never_runs_the_agent(aap_client: AapClient) -> None:
    session = await aap_client.create(messages=[user(script({"say": "nobody asked"}))])
    assert [message["role"] for message in await session.history()] == ["user"]
    assert (await session.info())["_meta"]["status"] == "idle"


@requirement("aap:create:agent-required")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"agent": None},
        {"agent": "rehearsal"},
        {"agent": {}},
        {"agent": {"name": None}},
        {"agent": {"name": 7}},
        {"agent": {"name": "rehearsal", "tools": "add"}},
        {"agent": {"name": "rehearsal", "tools": ["add"]}},
        {"agent": {"name": "rehearsal", "tools": [{"trust": True}]}},
        {"agent": {"name": "rehearsal", "tools": [{"name": "add", "trust": "yes"}]}},
        {"agent": {"name": "rehearsal", "options": []}},
        {"agent": {"name": "rehearsal"}, "messages": {}},
        {"agent": {"name": "rehearsal"}, "messages": "hello"},
        {"agent": {"name": "rehearsal"}, "tools": {}},
        [],
        "words",
        7,
        None,
    ],
)
async def test_a_creation_of_another_shape_is_refused(aap_client: AapClient, body: Any) -> None:
    session = await aap_client.create()
    async with assert_unchanged(session):
        reply = await aap_client.request(
            "POST", "/sessions", body if body is not None else None, raw=b"null" if body is None else None
        )
        assert_refusal(reply, 400, "invalid_request", has_path=isinstance(body, dict))


@requirement("aap:create:unknown-agent")
@pytest.mark.parametrize("name", ["nobody", "Rehearsal", "rehearsal "])
async def test_an_unknown_agent_is_404(aap_client: AapClient, name: str) -> None:
    session = await aap_client.create()
    async with assert_unchanged(session):
        assert_refusal(await aap_client.post("/sessions", {"agent": {"name": name}}), 404, "unknown_agent")


@requirement("aap:create:checks-early", "aap:undeclared:tool", "aap:options:unknown", "aap:options:select")
@pytest.mark.parametrize(
    ("fields", "code", "extra"),
    [
        ({"agent": {"name": "rehearsal", "tools": [{"name": "nothing"}]}}, "unknown_tool", {}),
        ({"agent": {"name": "rehearsal", "tools": [{"name": "whisper"}]}}, "unknown_tool", {}),
        ({"agent": {"name": "rehearsal", "tools": enabled_tools("add", "add")}}, "duplicate_tool_name", {}),
        ({"agent": {"name": "rehearsal", "options": {"colour": "red"}}}, "unknown_option", {}),
        (
            {"agent": {"name": "rehearsal", "options": {"style": "quiet"}}},
            "invalid_option_value",
            {"allowed": ["plain", "loud"]},
        ),
        ({"tools": [client_tool("add")]}, "duplicate_tool_name", {}),
        ({"tools": [client_tool("x"), client_tool("x")]}, "duplicate_tool_name", {}),
        ({"agent": {"name": "plain"}, "tools": [client_tool("x")]}, "client_tools_unsupported", {}),
        ({"messages": [user([{"type": "image", "url": "http://a.example/x.png"}])]}, "image_unsupported", {}),
    ],
)
async def test_creation_refuses_what_a_turn_would_refuse(
    aap_client: AapClient, fields: dict[str, Any], code: str, extra: dict[str, Any]
) -> None:
    session = await aap_client.create()
    async with assert_unchanged(session):
        assert_refusal(
            await aap_client.post("/sessions", {"agent": {"name": "rehearsal"}, **fields}), 400, code, **extra
        )


# --- deletion ---------------------------------------------------------------------------------------------------------


@requirement("aap:delete:204", "aap:delete:gone", "aap:delete:twice-is-404")
async def test_deletion_is_204_and_leaves_nothing_behind(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        client = server.aap_client("alice")
        kept, session = await client.create(), await client.create()
        await session.run("hello")
        assert (await session.delete()).status == 204
        assert_refusal(await session.delete(), 404, "session_not_found")
        assert_refusal(await client.get(session.path), 404, "session_not_found")
        assert_refusal(await client.get(f"{session.path}/history?type=full"), 404, "session_not_found")
        assert_refusal(await session.post([user("hello")]), 404, "session_not_found")
        assert_refusal(await session.events("0"), 404, "session_not_found")
        assert [each["sessionId"] for each in (await client.get("/sessions")).json["sessions"]] == [kept.id]


@requirement("aap:delete:gone", "aap:delete:twice-is-404")
async def test_deleting_a_waiting_session_takes_its_calls_along(aap_client: AapClient) -> None:
    session = await aap_client.create(tools=[client_tool("paint")])
    asked = await session.run(script(call("paint")))
    assert (await session.delete()).status == 204
    assert_refusal(await session.post([result(asked.calls[0], "blue")]), 404, "session_not_found")


@requirement("aap:delete:cancels-turn", "aap:delete:nothing-stored-after", "aap:turn:delete-cancels")
async def test_deleting_ends_the_running_turn_with_error_and_nothing_comes_after(aap_client: AapClient) -> None:
    session = await aap_client.create()
    reading = await session.open(script({"say": "one"}, {"wait_ms": 600_000}, {"say": "two"}))
    await reading.until("text_delta")
    assert (await session.delete()).status == 204
    rest = await reading.read_to_end()
    assert [frame.event for frame in rest] == ["turn_stop"]
    assert rest[0].data["stopReason"] == "error"
    assert_refusal(await aap_client.get(session.path), 404, "session_not_found")


@requirement("aap:delete:cancels-turn", "aap:turn:delete-cancels")
async def test_deleting_answers_a_turn_of_mode_none_with_error(aap_client: AapClient) -> None:
    session = await aap_client.create()
    watching = await session.watch()
    turn = asyncio.create_task(session.run(script({"say": "one"}, {"wait_ms": 600_000})))
    await watching.until("text_delta")
    assert (await session.delete()).status == 204
    assert (await turn).stop == "error"


@requirement("aap:delete:cancels-turn")
async def test_deleting_cancels_the_tools_of_the_running_turn(aap_client: AapClient, tool_gates: Any) -> None:
    session = await aap_client.create("gated", server_tools=enabled_tools("hold"))
    reading = await session.open(script(call("hold", gate="deleted")))
    await tool_gates.entered("deleted")
    assert (await session.delete()).status == 204
    await tool_gates.cancelled("deleted")
    assert (await reading.read_to_end())[-1].data["stopReason"] == "error"


# --- history ----------------------------------------------------------------------------------------------------------


@requirement("aap:history:type-required")
@pytest.mark.parametrize("query", ["", "?type=", "?type=Full", "?type=all", "?type=full,compacted", "?kind=full"])
async def test_a_history_without_a_known_type_is_refused(aap_client: AapClient, query: str) -> None:
    session = await aap_client.create()
    assert_refusal(await aap_client.get(f"{session.path}/history{query}"), 400, "invalid_history_type")


@requirement("aap:history:asked-key-only", "aap:history:empty", "aap:history:compacted")
async def test_a_new_sessions_histories_are_empty_lists_under_the_asked_key(aap_client: AapClient) -> None:
    session = await aap_client.create()
    for kind in ("full", "compacted"):
        assert (await aap_client.get(f"{session.path}/history?type={kind}")).json == {"history": {kind: []}}


@requirement("aap:history:undeclared")
@pytest.mark.parametrize("agent", ["plain", "rehearsal-bare"])
@pytest.mark.parametrize("kind", ["full", "compacted"])
async def test_a_history_that_is_not_declared_is_404(aap_client: AapClient, agent: str, kind: str) -> None:
    session = await aap_client.create(agent)
    assert_refusal(await aap_client.get(f"{session.path}/history?type={kind}"), 404, "history_not_supported")
    assert_refusal(await aap_client.get(f"{session.path}/history?type=x"), 400, "invalid_history_type")


@requirement("aap:history:full", "aap:history:compacted", "aap:step:stored-once")
async def test_the_full_history_is_exact_and_only_grows(aap_client: AapClient) -> None:
    session = await aap_client.create(
        server_tools=[*enabled_tools("add"), *enabled_tools("stamp", trust=False)], tools=[client_tool("paint")]
    )
    grown: list[dict[str, Any]] = []
    plays = (
        "hello",
        script({"think": "so"}, {"say": "a"}, call("add", a=1, b=2), {"say": "b {result}"}),
        script(
            calls(("stamp", {"text": "x"}), ("paint", {"c": None}), ("add", {"a": 2, "b": 2})), {"say": "{results}"}
        ),
        "again",
    )
    for play in plays:
        await session.run(play)
        history = await session.history()
        assert history[: len(grown)] == grown
        assert len(history) > len(grown)
        assert await session.history("compacted") == history
        grown = history
    add, (stamp, paint, more) = grown[3]["content"][-1], grown[7]["content"]
    closed = sorted(grown[9:11], key=lambda message: str(message["toolCallId"] == paint["toolCallId"]))
    assert [*grown[:9], *closed, *grown[11:]] == [
        user("hello"),
        assistant_text("Hello! I am the rehearsal agent."),
        user(plays[1]),
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "so"}, {"type": "text", "text": "a"}, add]},
        result(add["toolCallId"], "3"),
        assistant_text("b 3"),
        user(plays[2]),
        {"role": "assistant", "content": [stamp, paint, more]},
        result(more["toolCallId"], "4"),
        result(stamp["toolCallId"], "Tool call cancelled: a new user message arrived"),
        result(paint["toolCallId"], "Tool call cancelled: a new user message arrived"),
        user("again"),
        assistant_text("You said: again"),
    ]
    assert [each["name"] for each in (add, stamp, paint, more)] == ["add", "stamp", "paint", "add"]


@requirement(
    "aap:history:at-acceptance",
    "aap:step:input-stored-first",
    "aap:history:no-open-text",
    "aap:turn:history-while-running",
)
async def test_the_history_of_a_running_turn_has_the_message_and_not_the_open_text(aap_client: AapClient) -> None:
    session = await aap_client.create()
    play = script({"say": "first"}, {"step": True}, {"say": "second"}, {"wait_ms": 600_000})
    reading = await session.open(play, stream="delta")
    assert (await reading.until("turn_start")).event == "turn_start"
    assert (await session.history())[0] == user(play)
    text = ""
    while text != "firstsecond":
        text += (await reading.until("text_delta")).data["delta"]
    assert await session.history() == [user(play), assistant_text("first")]
    await session.delete()


@requirement("aap:step:input-stored-first")
@pytest.mark.parametrize("mode", ["delta", "message"])
async def test_overrides_are_in_force_when_the_turn_starts(aap_client: AapClient, mode: str) -> None:
    session = await aap_client.create()
    play = script({"wait_ms": 600_000})
    fields: dict[str, Any] = {
        "agent": {"tools": enabled_tools("add"), "options": {"style": "loud"}},
        "tools": [client_tool("paint")],
    }
    reading = await session.open(play, stream=mode, **fields)
    await reading.until("turn_start")
    shown = await session.info()
    assert shown["agent"]["tools"] == enabled_tools("add")
    assert shown["agent"]["options"] == {"style": "loud"}
    assert shown["tools"] == [client_tool("paint")]
    assert shown["_meta"]["status"] == "running"
    assert await session.history() == [user(play)]
    await session.delete()


@requirement("aap:history:cut-step", "aap:turn:failure")
@pytest.mark.parametrize("fault", ["internal words", {"code": "teapot", "message": "short and stout"}])
async def test_a_step_cut_by_a_failure_keeps_its_text_and_leaves_nothing_pending(
    aap_client: AapClient, fault: Any
) -> None:
    session = await aap_client.create(server_tools=enabled_tools("add"))
    play = script(call("add", a=1, b=1), {"say": "half a sen"}, {"fail": fault})
    turn = await session.run(play)
    history = await session.history()
    assert turn.stop == "error"
    assert history == [
        user(play),
        assistant_calls(turn.calls[0]),
        result(turn.calls[0], "2"),
        assistant_text("half a sen"),
    ]
    assert (await session.run("hello")).stop == "end_turn"


@requirement("aap:history:cut-step")
async def test_calls_of_a_step_that_failed_before_its_end_are_dropped(aap_client: AapClient) -> None:
    session = await aap_client.create("gated", server_tools=enabled_tools("hold"))
    play = "say, call and fail"
    turn = await session.run(play)
    assert (turn.stop, await session.history()) == ("error", [user(play), assistant_text("about to call")])
    assert (await session.info())["_meta"].get("pending", []) == []


@requirement("aap:history:compaction", "aap:history:full")
async def test_a_compaction_is_silent_keeps_pairs_whole_and_leaves_the_full_history(
    aap_client: AapClient, tool_gates: Any
) -> None:
    session = await aap_client.create("gated", server_tools=enabled_tools("hold"), tools=[client_tool("paint")])
    tool_gates.open("summed")
    await session.run("hello")
    await session.run(script(call("hold", gate="summed"), {"say": "so"}))
    before = await session.history()
    turn = await session.run("compact", "delta")
    assert [event for event, _ in normalize_frames(turn.frames)] == ["turn_start", "text_delta", "turn_stop"]
    full, compacted = await session.history(), await session.history("compacted")
    assert full == [*before, user("compact"), assistant_text("summed up")]
    assert len(compacted) < len(full) + 1
    assert compacted != full
    known: set[str] = set()
    for message in compacted:
        if message["role"] == "assistant":
            known |= {block["toolCallId"] for block in message["content"] if block["type"] == "tool_use"}
        if message["role"] == "tool":
            assert message["toolCallId"] in known
    asked = await session.run(script(call("paint"), {"say": "{result}"}))
    assert (await session.history("compacted"))[-1] == assistant_calls(*asked.calls)
    assert (await session.run([result(asked.calls[0], "blue")])).text == "blue"


@requirement("aap:history:no-foreign-system")
async def test_a_history_holds_no_system_entry_that_was_not_seeded(aap_client: AapClient) -> None:
    session = await aap_client.create(messages=[{"role": "system", "content": "seeded"}], options={"style": "loud"})
    await session.run(
        script({"plan": {"status": "in_progress", "steps": [{"title": "a", "status": "pending"}]}}, {"say": "x"})
    )
    await session.run(script({"fail": "x"}))
    system = [message for message in await session.history() if message["role"] == "system"]
    assert system == [{"role": "system", "content": "seeded"}]


# --- listing ----------------------------------------------------------------------------------------------------------


async def page(aap_client: AapClient, query: str = "") -> tuple[list[str], str | None]:
    body = (await aap_client.get(f"/sessions{query}")).json
    assert set(body) - {"_meta"} <= {"sessions", "next"}
    return [each["sessionId"] for each in body["sessions"]], body.get("next")


async def pages(aap_client: AapClient, query: str = "") -> list[list[str]]:
    found, more = [], ""
    while True:
        ids, after = await page(aap_client, f"?{query}{more}")
        found.append(ids)
        if after is None:
            return found
        more = f"&after={after}"


@requirement("aap:list:sessions", "aap:list:newest-first", "aap:list:limit")
async def test_the_listing_gives_whole_sessions_newest_first_fifty_on_a_page(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        client = server.aap_client("alice")
        assert (await client.get("/sessions")).json == {"sessions": []}
        made = [await client.create(options={"token": "canary"}, tools=[client_tool("paint")]) for _ in range(101)]
        newest_first = [session.id for session in reversed(made)]
        assert await pages(client) == [newest_first[:50], newest_first[50:100], newest_first[100:]]
        assert await pages(client, "limit=1") == [[each] for each in newest_first]
        assert await pages(client, "limit=200") == [newest_first]
        first = (await client.get("/sessions?limit=1")).json["sessions"][0]
        assert first == await made[-1].info()
        assert first["agent"]["options"] == {"token": "***"}


@requirement("aap:list:sessions")
async def test_a_page_that_ends_with_the_last_session_has_no_next(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        client = server.aap_client("alice")
        made = [(await client.create()).id for _ in range(4)]
        assert await pages(client, "limit=2") == [made[:1:-1], made[1::-1]]
        assert await page(client, "?limit=4") == (made[::-1], None)


@requirement("aap:list:limit")
@pytest.mark.parametrize("limit", ["0", "201", "-1", "x", "1.5", "", "99999999999999999999"])
async def test_another_limit_is_refused(aap_client: AapClient, limit: str) -> None:
    assert_refusal(await aap_client.get(f"/sessions?limit={limit}"), 400, "invalid_request")


@requirement("aap:list:bad-cursor")
@pytest.mark.parametrize(
    "cursor", ["", "x", "0", "-1", "%00", "AAAA", "9" * 400, "../x", "01890a5d-ac96-774b-bcce-b302099a8057x"]
)
async def test_a_cursor_that_we_did_not_make_is_refused(aap_client: AapClient, cursor: str) -> None:
    assert_refusal(await aap_client.get(f"/sessions?after={cursor}"), 400, "invalid_cursor")


@requirement("aap:list:stable-cursor")
async def test_sessions_that_come_and_go_between_pages_cause_neither_repeats_nor_gaps(
    open_app_server: AppServerFactory,
) -> None:
    async with open_app_server() as server:
        client = server.aap_client("alice")
        made = [await client.create() for _ in range(12)]
        stay = [session.id for place, session in enumerate(made) if place % 3 != 1]
        seen, query = [], "?limit=2"
        for place in range(12):
            ids, after = await page(client, query)
            seen += ids
            if after is None:
                break
            await client.create()
            if place % 3 == 0:  # some that were seen, some that were not, and the very one the cursor stands on
                for session in (made[10], made[7]) if place == 0 else (made[4], made[1]):
                    await session.delete()
            query = f"?limit=2&after={after}"
        assert len(seen) == len(set(seen))
        assert [each for each in seen if each in stay] == stay[::-1]
        assert set(seen) <= {session.id for session in made}


@requirement("aap:list:stable-cursor")
async def test_a_turn_in_an_old_session_does_not_move_it(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        client = server.aap_client("alice")
        old, new = await client.create(), await client.create()
        await Session(client, old.id).run("hello")
        assert await page(client) == ([new.id, old.id], None)
