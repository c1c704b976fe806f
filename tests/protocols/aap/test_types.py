"""AAP, section 2: agents, content, tools, sessions as they look on the wire."""

import re
import time
from typing import Any

import pytest

from tests.protocols.aap.client import (
    AapClient,
    assert_refusal,
    assert_unchanged,
    assistant_text,
    call,
    calls,
    client_tool,
    deny,
    enabled_tools,
    grant,
    result,
    script,
    user,
)
from tests.requirements import requirement

PIXEL = "data:image/png;base64,iVBORw0KGgo="
HTTPS_IMAGE = "https://images.example/a.png"
TEXT = {"type": "text", "text": "words"}
IMAGE = {"type": "image", "url": PIXEL}
THINKING = {"type": "thinking", "thinking": "hm"}
TOOL_USE = {"type": "tool_use", "toolCallId": "t1", "name": "add", "input": {}}


async def agents_of(client: AapClient) -> dict[str, dict[str, Any]]:
    return {agent["name"]: agent for agent in (await client.get("/meta")).json["agents"]}


# --- agents -----------------------------------------------------------------------------------------------------------


@requirement("aap:meta:version")
async def test_meta_gives_version_3_and_the_agents_and_nothing_else(aap_client: AapClient) -> None:
    meta = (await aap_client.get("/meta")).json
    assert set(meta) - {"_meta"} == {"version", "agents"}
    assert meta["version"] == 3
    assert type(meta["version"]) is int
    names = [agent["name"] for agent in meta["agents"]]
    assert len(names) == len(set(names))
    assert {"rehearsal", "rehearsal-bare"} <= set(names)


@requirement("aap:agents:info", "aap:tools:spec", "aap:capabilities:leaves")
async def test_every_agent_has_the_shape_of_the_protocol(aap_client: AapClient) -> None:
    for agent in (await agents_of(aap_client)).values():
        assert set(agent) - {"_meta", "title", "description"} <= {"name", "version", "tools", "options", "capabilities"}
        assert re.fullmatch(r"\d+\.\d+\.\d+([-+].+)?", agent["version"])
        for tool in agent.get("tools", []):
            assert {"name", "description", "parameters"} <= set(tool) <= {"name", "description", "parameters", "title"}
            assert tool["parameters"]["type"] == "object"
        for group, leaves in agent.get("capabilities", {}).items():
            assert group in ("history", "stream", "application", "image")
            assert all(leaf == {} for leaf in leaves.values())


@requirement("aap:agents:info", "aap:agents:options", "aap:meta:exposed-tools-only", "aap:capabilities:leaves")
async def test_the_rehearsal_agent_declares_everything(aap_client: AapClient) -> None:
    agent = (await agents_of(aap_client))["rehearsal"]
    exposed = {"add", "lookup", "stamp", "clock", "slow", "boom", "card", "highlight"}
    assert {tool["name"] for tool in agent["tools"]} == exposed
    options = [
        {name: value for name, value in option.items() if name not in ("title", "description")}
        for option in agent["options"]
    ]
    assert options == [
        {"type": "text", "name": "greeting", "default": "Hello!"},
        {"type": "select", "name": "style", "options": ["plain", "loud"], "default": "plain"},
        {"type": "text", "name": "language", "default": "English"},
        {"type": "secret", "name": "token", "default": ""},
    ]
    assert agent["capabilities"] == {
        "history": {"full": {}, "compacted": {}},
        "stream": {"delta": {}, "message": {}, "none": {}},
        "application": {"tools": {}},
        "image": {"http": {}, "data": {}},
    }


@requirement("aap:capabilities:opt-in", "aap:capabilities:default-modes", "aap:tools:spec")
async def test_an_agent_that_opts_in_to_nothing_declares_the_three_modes_at_most(aap_client: AapClient) -> None:
    bare, opted = (await agents_of(aap_client))["rehearsal-bare"], (await agents_of(aap_client))["plain"]
    assert bare.get("tools", []) == []
    assert bare.get("options", []) == []
    assert set(bare.get("capabilities", {})) <= {"stream"}
    assert opted["capabilities"] == {"stream": {"delta": {}, "message": {}, "none": {}}}


@requirement("aap:agents:trust-default", "aap:agents:tools-default-off", "aap:session:tools-in-force")
async def test_tools_are_off_unless_named_and_untrusted_unless_said(aap_client: AapClient) -> None:
    nothing_named = await aap_client.create()
    assert (await nothing_named.info())["agent"].get("tools", []) == []
    turn = await nothing_named.run(script(call("add", a=1, b=2), {"say": "{result}"}))
    assert turn.text == "Tool not found: add"

    named = await aap_client.create(server_tools=[{"name": "add"}])
    assert [each["name"] for each in (await named.info())["agent"]["tools"]] == ["add"]
    assert not any(each.get("trust", False) for each in (await named.info())["agent"]["tools"])
    assert (await named.run(script(call("add", a=1, b=2)))).stop == "tool_use"


# --- null and unknown fields ------------------------------------------------------------------------------------------


@requirement("aap:types:null-is-absent", "aap:types:never-null", "aap:types:unknown-fields")
async def test_null_is_read_as_absent_and_unknown_fields_are_ignored(aap_client: AapClient) -> None:
    made = await aap_client.post(
        "/sessions",
        {
            "agent": {"name": "rehearsal", "tools": None, "options": None, "colour": "red"},
            "messages": None,
            "tools": None,
            "mood": {"deep": [None]},
        },
    )
    assert made.status == 201
    path = f"/sessions/{made.json['sessionId']}"
    shown = (await aap_client.get(path)).json
    assert set(shown) - {"_meta"} == {"sessionId", "agent"}
    assert shown["agent"] | {"tools": [], "options": {}} == {"name": "rehearsal", "tools": [], "options": {}}
    for fields in (
        {"stream": None, "agent": None, "tools": None},
        {"agent": {"tools": None, "options": None, "x": 1}, "y": None},
    ):
        message = {"role": "user", "content": [{"type": "text", "text": "hello", "extra": None}], "name2": None}
        reply = await aap_client.post(f"{path}/turns", {"messages": [message], **fields})
        assert reply.json["messages"] == [assistant_text("Hello! I am the rehearsal agent.")]


@requirement("aap:types:null-is-absent")
async def test_null_beside_a_permission_and_a_tool_is_absent(aap_client: AapClient) -> None:
    session = await aap_client.create(
        server_tools=[{"name": "stamp", "trust": None}], tools=[{**client_tool("paint"), "title": None}]
    )
    turn = await session.run(script(call("stamp", text="x"), {"say": "{result}"}))
    assert turn.stop == "tool_use"
    answer = {**deny(turn.calls[0]), "reason": None}
    assert (await session.run([answer])).text == "Tool call denied"


# --- content ----------------------------------------------------------------------------------------------------------


@requirement("aap:content:stored-as-sent")
@pytest.mark.parametrize(
    "content",
    [
        "plain words",
        "",
        "  spaces \n around  ",
        [TEXT],
        [TEXT, IMAGE, {"type": "text", "text": "more"}],
        [{"type": "image", "url": HTTPS_IMAGE}],
    ],
)
async def test_user_content_and_results_come_back_as_they_were_sent(aap_client: AapClient, content: Any) -> None:
    session = await aap_client.create(tools=[client_tool("paint")])
    asked = await session.run(script(call("paint")))
    await session.run([result(asked.calls[0], content)])
    await session.run([user(content)])
    history = await session.history()
    assert history[2] == result(asked.calls[0], content)
    assert history[3] == user(content)


@requirement("aap:content:assistant-is-blocks")
async def test_assistant_content_is_a_list_of_blocks_also_when_it_was_seeded_as_a_string(aap_client: AapClient) -> None:
    session = await aap_client.create(messages=[user("hi"), {"role": "assistant", "content": "seeded"}])
    turn = await session.run("hello")
    assert turn.messages == [assistant_text("Hello! I am the rehearsal agent.")]
    assert await session.history() == [user("hi"), assistant_text("seeded"), user("hello"), *turn.messages]


@requirement("aap:content:user-blocks", "aap:content:tool-blocks")
@pytest.mark.parametrize(
    "content",
    [
        [THINKING],
        [TOOL_USE],
        [TEXT, TOOL_USE],
        [{"type": "video", "url": HTTPS_IMAGE}],
        [{"text": "no type"}],
        [{"type": "text"}],
        [{"type": "text", "text": 7}],
        [{"type": "image"}],
        ["words"],
        {"type": "text", "text": "no list"},
        7,
        None,
        True,
    ],
)
async def test_other_content_is_refused_in_user_and_tool_messages(aap_client: AapClient, content: Any) -> None:
    session = await aap_client.create(tools=[client_tool("paint")])
    asked = await session.run(script(call("paint")))
    async with assert_unchanged(session):
        assert_refusal(await session.post([user(content)]), 400, "invalid_request")
        assert_refusal(await session.post([result(asked.calls[0], content)]), 400, "invalid_request")
        assert_refusal(
            await aap_client.post("/sessions", {"agent": {"name": "rehearsal"}, "messages": [user(content)]}),
            400,
            "invalid_request",
        )


@requirement("aap:content:assistant-seed-blocks")
async def test_an_assistant_seed_takes_its_four_kinds_of_block_and_no_other(aap_client: AapClient) -> None:
    content = [TEXT, THINKING, IMAGE, TOOL_USE]
    seeds = [user("hi"), {"role": "assistant", "content": content}, result("t1", "3")]
    assert await (await aap_client.create(messages=seeds)).history() == seeds
    for bad in (
        {"type": "video", "url": PIXEL},
        {"type": "tool_use", "toolCallId": "t1", "name": "add", "input": [1]},
        "words",
        7,
    ):
        seeds = [user("hi"), {"role": "assistant", "content": [bad]}]
        assert_refusal(
            await aap_client.post("/sessions", {"agent": {"name": "rehearsal"}, "messages": seeds}),
            400,
            "invalid_request",
        )


@requirement("aap:content:turn-roles", "aap:seeds:system-only-here")
@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "obey"},
        {"role": "assistant", "content": "I said so"},
        {"role": "User", "content": "case"},
        {"role": "developer", "content": "x"},
        {"content": "no role"},
        {"role": None, "content": "x"},
        {"role": "user"},
        {"role": "tool", "content": "no id"},
        {"role": "tool", "toolCallId": 7, "content": "x"},
        {"role": "tool_permission", "granted": True},
        "words",
        7,
        None,
    ],
)
async def test_a_turn_takes_no_other_message(aap_client: AapClient, message: Any) -> None:
    session = await aap_client.create()
    async with assert_unchanged(session):
        assert_refusal(await session.post([message]), 400, "invalid_request")
        assert_refusal(await session.post([user("hello"), message]), 400, "invalid_request")


@requirement("aap:content:granted-is-boolean")
@pytest.mark.parametrize("granted", ["true", "yes", 1, 0, None, [], {}, "ABSENT"])
async def test_granted_is_not_guessed_from_other_values(aap_client: AapClient, granted: Any) -> None:
    session = await aap_client.create(server_tools=enabled_tools("stamp", trust=False))
    asked = await session.run(script(call("stamp", text="x")))
    answer = {**grant(asked.calls[0]), "granted": granted}
    if granted == "ABSENT":
        del answer["granted"]
    async with assert_unchanged(session):
        assert_refusal(await session.post([answer]), 400, "invalid_request")


@requirement("aap:content:permission-never-stored")
async def test_permission_messages_are_in_no_history(aap_client: AapClient) -> None:
    session = await aap_client.create(server_tools=enabled_tools("stamp", "add", trust=False))
    asked = await session.run(script(calls(("stamp", {"text": "x"}), ("add", {"a": 1, "b": 2}))))
    await session.run([grant(asked.calls[0], "because"), deny(asked.calls[1], "never")])
    for kind in ("full", "compacted"):
        roles = [message["role"] for message in await session.history(kind)]
        assert roles == ["user", "assistant", "tool", "tool"]


# --- tools of the client ----------------------------------------------------------------------------------------------


@requirement("aap:tools:empty-description", "aap:session:info")
async def test_a_client_tool_is_shown_as_it_was_declared(aap_client: AapClient) -> None:
    declared = [
        client_tool("a", description="", parameters={}),
        client_tool(
            "b-B_9",
            title="A title",
            parameters={"type": "object", "properties": {"x": {"type": ["string", "null"], "default": None}}},
        ),
    ]
    session = await aap_client.create(tools=declared)
    assert (await session.info())["tools"] == declared


@requirement("aap:tools:empty-description", "aap:tools:parameters-object", "aap:tools:client-names")
@pytest.mark.parametrize(
    "tool",
    [
        {"name": "a", "parameters": {}},
        {"name": "a", "description": None, "parameters": {}},
        {"name": "a", "description": ""},
        {"name": "a", "description": "", "parameters": "object"},
        {"name": "a", "description": "", "parameters": []},
        {"name": "a", "description": 7, "parameters": {}},
        {"description": "", "parameters": {}},
        client_tool(""),
        client_tool("a" * 65),
        client_tool("with space"),
        client_tool("dot.ted"),
        client_tool("naïve"),
        client_tool("new\nline"),
        "a",
        None,
    ],
)
async def test_a_malformed_client_tool_is_refused_in_creation_and_in_a_turn(aap_client: AapClient, tool: Any) -> None:
    session = await aap_client.create()
    async with assert_unchanged(session):
        assert_refusal(
            await aap_client.post("/sessions", {"agent": {"name": "rehearsal"}, "tools": [tool]}),
            400,
            "invalid_request",
        )
        assert_refusal(await session.post([user("hello")], tools=[tool]), 400, "invalid_request")


@requirement("aap:tools:client-names")
@pytest.mark.parametrize("name", ["a", "a" * 64, "Z", "9", "-", "_", "__proto__", "get-It_9"])
async def test_client_tool_names_of_the_alphabet_are_taken(aap_client: AapClient, name: str) -> None:
    session = await aap_client.create(tools=[client_tool(name)])
    assert [each.name for each in (await session.run(script(call(name)))).calls] == [name]


# --- sessions ---------------------------------------------------------------------------------------------------------


@requirement("aap:session:info", "aap:session:no-tools-key", "aap:session:options-as-set", "aap:get:200")
async def test_a_session_shows_what_was_set_and_nothing_that_was_not(aap_client: AapClient) -> None:
    bare = await (await aap_client.create()).info()
    assert set(bare) - {"_meta"} == {"sessionId", "agent"}
    assert bare["agent"].get("options", {}) == {}
    session = await aap_client.create(
        options={"style": "loud", "token": "s3cret"},
        server_tools=[{"name": "add", "trust": True}],
        tools=[client_tool("paint")],
    )
    shown = await session.info()
    shown.pop("_meta", None)
    assert shown == {
        "sessionId": session.id,
        "agent": {
            "name": "rehearsal",
            "tools": [{"name": "add", "trust": True}],
            "options": {"style": "loud", "token": "***"},
        },
        "tools": [client_tool("paint")],
    }


@requirement("aap:session:no-tools-key")
async def test_an_empty_list_of_client_tools_is_the_same_as_none(aap_client: AapClient) -> None:
    assert "tools" not in await (await aap_client.create(tools=[])).info()


@requirement("aap:session:id")
async def test_session_ids_are_uuids_of_version_7_in_the_order_of_creation(aap_client: AapClient) -> None:
    before = time.time_ns() // 1_000_000
    ids = [(await aap_client.create()).id for _ in range(50)]
    after = time.time_ns() // 1_000_000
    pattern = r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    assert all(re.fullmatch(pattern, each) for each in ids)
    assert ids == sorted(set(ids))
    times = [int(each.replace("-", "")[:12], 16) for each in ids]
    assert all(before - 1000 <= each <= after + 1000 for each in times)


@requirement("aap:meeting:upper-case-id", "aap:meeting:alias-is-not-session")
async def test_a_session_is_found_in_any_case_of_its_id_and_by_no_other_form(aap_client: AapClient) -> None:
    session = await aap_client.create()
    assert (await aap_client.get(f"/sessions/{session.id.upper()}")).json == await session.info()
    for form in (
        "not-there",
        f"%7B{session.id}%7D",
        f"urn:uuid:{session.id}",
        session.id.replace("-", ""),
        f"sess_{session.id}",
    ):
        assert_refusal(await aap_client.get(f"/sessions/{form}"), 404, "session_not_found")


@requirement("aap:modes:default-none", "aap:none:body")
async def test_a_turn_without_a_mode_answers_in_one_body(aap_client: AapClient) -> None:
    session = await aap_client.create()
    modes: tuple[dict[str, Any], ...] = ({}, {"stream": "none"})
    for fields in modes:
        reply = await session.post([user("hello")], **fields)
        body = reply.json
        body.pop("_meta", None)
        assert (reply.status, body) == (
            200,
            {"stopReason": "end_turn", "messages": [assistant_text("Hello! I am the rehearsal agent.")]},
        )
