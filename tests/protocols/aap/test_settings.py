"""AAP, sections 8, 9, 10 and 13: overrides, options and secrets, seeds, capabilities."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from dragoman.core.tools import SecretOption, SelectOption, TextOption
from tests.protocols.aap.agents import Player, Tool, agent_with_option, wait_at_gate
from tests.protocols.aap.client import (
    AapClient,
    Session,
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
from tests.protocols.aap.stream import MODES, Mode
from tests.requirements import requirement
from tests.servers import AppServerFactory

CANARY = "c4n4ry-sk-7d1f0e"
PIXEL = {"type": "image", "url": "data:image/png;base64,iVBORw0KGgo="}
LINKED = {"type": "image", "url": "https://images.example/a.png"}

# --- overrides --------------------------------------------------------------------------------------------------------


async def option_values(session: Session) -> tuple[Any, Any, Any]:
    info = await session.info()
    return info["agent"].get("tools", []), info["agent"].get("options", {}), info.get("tools", [])


@requirement(
    "aap:overrides:agent-tools",
    "aap:overrides:client-tools",
    "aap:overrides:options",
    "aap:overrides:last",
    "aap:clients:unchanged-left-out",
)
@pytest.mark.parametrize("mode", MODES)
async def test_overrides_replace_lists_merge_options_and_last(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create(
        server_tools=enabled_tools("add"), options={"style": "loud"}, tools=[client_tool("paint")]
    )
    first = (enabled_tools("add"), {"style": "loud"}, [client_tool("paint")])
    nothing: tuple[dict[str, Any], ...] = (
        {},
        {"agent": {}},
        {"agent": {"name": "rehearsal"}},
        {"agent": {"options": {}}},
    )
    for fields in nothing:
        await session.run("hello", mode, **fields)
        assert await option_values(session) == first
    await session.run("hello", mode, agent={"tools": enabled_tools("lookup", "boom")})
    assert await option_values(session) == (enabled_tools("lookup", "boom"), *first[1:])
    await session.run("hello", mode, agent={"options": {"greeting": "Hi", "style": "plain"}})
    assert await option_values(session) == (
        enabled_tools("lookup", "boom"),
        {"greeting": "Hi", "style": "plain"},
        first[2],
    )
    await session.run("hello", mode, tools=[client_tool("draw"), client_tool("cut")])
    assert (await option_values(session))[2] == [client_tool("draw"), client_tool("cut")]
    await session.run("hello", mode, agent={"tools": []}, tools=[])
    assert await option_values(session) == ([], {"greeting": "Hi", "style": "plain"}, [])
    assert "tools" not in await session.info()


@requirement("aap:overrides:agent-tools", "aap:overrides:client-tools", "aap:overrides:last")
async def test_what_is_switched_on_and_off_is_so_in_the_same_turn_and_after(aap_client: AapClient) -> None:
    session = await aap_client.create(server_tools=enabled_tools("add"), tools=[client_tool("paint")])
    play = script(call("add", a=1, b=2), {"say": "{result}"})
    off = await session.run(play, agent={"tools": []})
    assert off.text == (await session.run(play)).text == "Tool not found: add"
    assert (await session.run(play, agent={"tools": enabled_tools("add", trust=False)})).stop == "tool_use"
    assert (await session.run(play, agent={"tools": enabled_tools("add")})).text == "3"
    gone = await session.run(script(call("paint"), {"say": "{result}"}), tools=[client_tool("draw")])
    assert gone.text == "Tool not found: paint"
    assert (await session.run(script(call("draw")))).stop == "tool_use"


@requirement("aap:overrides:agent-name")
async def test_the_agents_name_may_be_repeated_and_not_changed(aap_client: AapClient) -> None:
    session = await aap_client.create()
    assert (await session.run("hello", agent={"name": "rehearsal", "options": {"style": "loud"}})).stop == "end_turn"
    async with assert_unchanged(session):
        for name in ("rehearsal-bare", "nobody", ""):
            assert_refusal(await session.post([user("hello")], agent={"name": name}), 400, "agent_name_fixed")


@requirement("aap:overrides:unique-names", "aap:turn:duplicate-tools")
@pytest.mark.parametrize("name", ["add", "stamp", "whisper"])
async def test_a_client_tool_may_not_have_the_name_of_any_tool_of_the_agent(aap_client: AapClient, name: str) -> None:
    session = await aap_client.create(server_tools=enabled_tools("add"))
    async with assert_unchanged(session):
        assert_refusal(await session.post([user("hello")], tools=[client_tool(name)]), 400, "duplicate_tool_name")
        assert_refusal(
            await aap_client.post("/sessions", {"agent": {"name": "rehearsal"}, "tools": [client_tool(name)]}),
            400,
            "duplicate_tool_name",
        )


# --- options ----------------------------------------------------------------------------------------------------------


def requires_options(*names: str) -> str:
    return script(*(step for name in names for step in ({"option": name}, {"say": ";"})))


@requirement("aap:options:effective", "aap:session:options-as-set", "aap:overrides:options")
async def test_an_options_value_is_the_sessions_and_else_the_default(aap_client: AapClient) -> None:
    session = await aap_client.create(options={"greeting": "Hi", "token": "12345"})
    play = requires_options("greeting", "style", "language", "token")
    assert (await session.run(play)).text == "Hi;plain;English;set(5);"
    assert (
        await session.run(play, agent={"options": {"style": "loud", "greeting": "Hello!"}})
    ).text == "Hello!;loud;English;set(5);"
    assert (
        await session.run(play, agent={"options": {"token": "", "language": "日本語"}})
    ).text == "Hello!;loud;日本語;unset;"


@requirement(
    "aap:options:unknown",
    "aap:options:select",
    "aap:options:strings",
    "aap:options:size",
    "aap:turn:bad-names",
    "aap:errors:allowed",
)
@pytest.mark.parametrize(
    ("options", "codes", "extra"),
    [
        ({"colour": "red"}, {"unknown_option"}, {}),
        ({"Style": "loud"}, {"unknown_option"}, {}),
        ({"style": "quiet"}, {"invalid_option_value"}, {"allowed": ["plain", "loud"]}),
        ({"style": ""}, {"invalid_option_value"}, {"allowed": ["plain", "loud"]}),
        ({"greeting": 7}, {"invalid_request", "invalid_option_value"}, None),
        ({"greeting": ["a"]}, {"invalid_request", "invalid_option_value"}, None),
        ({"token": True}, {"invalid_request", "invalid_option_value"}, None),
        ({"greeting": "x" * (64 * 1024 + 1)}, {"invalid_option_value", "limit_exceeded"}, None),
        ({"token": "ü" * (32 * 1024 + 1)}, {"invalid_option_value", "limit_exceeded"}, None),
    ],
)
async def test_a_bad_option_is_refused_at_creation_and_in_a_turn(
    aap_client: AapClient, options: Any, codes: set[str], extra: Any
) -> None:
    session = await aap_client.create()
    async with assert_unchanged(session):
        for reply in (
            await aap_client.post("/sessions", {"agent": {"name": "rehearsal", "options": options}}),
            await session.post([user("hello")], agent={"options": options}),
        ):
            assert (reply.status, reply.json["code"] in codes) == (400, True), reply
            if extra is not None:
                assert_refusal(reply, 400, *codes, **extra)


@requirement("aap:options:size")
async def test_an_option_of_64_kib_is_taken(aap_client: AapClient) -> None:
    session = await aap_client.create(options={"greeting": "x" * (64 * 1024)})
    assert (await session.info())["agent"]["options"] == {"greeting": "x" * (64 * 1024)}


@requirement("aap:options:default-at-run", "aap:options:removed", "aap:secrets:known-without-agent")
async def test_defaults_are_read_at_the_run_and_lost_options_and_agents_stay_shown(
    open_app_server: AppServerFactory,
) -> None:
    async with open_app_server(
        agents=[agent_with_option("mode", default="one"), agent_with_option("key", secret=True)]
    ) as server:
        set_, unset = [
            await server.aap_client("alice").create("optioned-mode", options=options)
            for options in ({"mode": "mine"}, {})
        ]
        secret = await server.aap_client("alice").create("optioned-key", options={"key": CANARY})
        assert (await unset.run("mode")).text == "one"
        await server.restart(agents=[agent_with_option("mode", default="two")])
        set_, unset, secret = (each.as_client(server.aap_client("alice")) for each in (set_, unset, secret))
        assert ((await unset.run("mode")).text, (await set_.run("mode")).text) == ("two", "mine")
        assert (await secret.info())["agent"] | {"tools": []} == {
            "name": "optioned-key",
            "options": {"key": "***"},
            "tools": [],
        }
        listed = (await server.aap_client("alice").get("/sessions")).body
        assert CANARY.encode() not in listed
        await server.restart(agents=[agent_with_option("other", name="optioned-mode", default="x")])
        set_ = set_.as_client(server.aap_client("alice"))
        assert (await set_.info())["agent"]["options"] == {"mode": "mine"}
        assert (await set_.run("other")).text == "x"
        assert_refusal(await set_.post([user("x")], agent={"options": {"mode": "new"}}), 400, "unknown_option")


# --- secrets ----------------------------------------------------------------------------------------------------------


@requirement("aap:secrets:never-shown", "aap:secrets:never-stored-plain")
async def test_a_secret_is_in_no_byte_that_leaves_and_in_no_file(
    open_app_server: AppServerFactory,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    later = CANARY + "-later"
    async with open_app_server() as server:
        client = server.aap_client("alice")
        session = await client.create(options={"token": CANARY}, server_tools=enabled_tools("boom", "slow"))
        replies = [
            await session.post([user(script({"option": "token"}, call("boom"), {"fail": "x"}))], stream=mode)
            for mode in MODES
        ]
        replies += [
            await session.post([user("hello")], agent={"options": {"token": later}}),
            await session.post([user("hello")], agent={"options": {"token": CANARY, "colour": CANARY}}),
            await session.post([user("hello")], agent={"options": {"token": CANARY}, "name": "other"}),
            await client.get(session.path),
            await client.get("/sessions"),
            await client.get(f"{session.path}/history?type=full"),
            await client.get(f"{session.path}/history?type=compacted"),
            await session.events("0"),
            await client.get("/meta"),
        ]
        assert {reply.status for reply in replies} == {200, 400}
        reading = await session.open(script({"say": "x"}, {"wait_ms": 600_000}))
        await reading.until("text_delta")
        folder = server.folder
        assert [str(path) for path in folder.rglob("*") if path.is_file() and leaks(path.read_bytes(), CANARY)] == []
        await session.delete()
        for reply in replies:
            assert not leaks(reply.body + repr(reply.headers).encode(), CANARY), reply
    assert [str(path) for path in folder.rglob("*") if path.is_file() and leaks(path.read_bytes(), CANARY)] == []
    printed = "".join(capfd.readouterr()) + caplog.text
    assert not leaks(printed.encode(), CANARY)


def leaks(content: bytes, secret: str) -> bool:
    """The word stands in the content, as it is or in a form that anybody could turn back."""
    plain = secret.encode()
    forms = [plain, secret.encode("utf-16-le"), plain.hex().encode(), plain[::-1]]
    forms += [base64.b64encode(b"x" * shift + plain)[4 * bool(shift) : -4] for shift in range(3)]
    return any(form in content for form in forms)


@requirement("aap:secrets:never-shown")
async def test_the_search_for_the_canary_finds_it_in_every_form() -> None:
    secret = CANARY.encode()
    for form in (
        secret,
        CANARY.encode("utf-16-le"),
        secret.hex().encode(),
        base64.b64encode(b"ab" + secret + b"yz"),
        b"x" + secret,
    ):
        assert leaks(b"before" + form + b"after", CANARY)
    assert not leaks(b"nothing here", CANARY)


@requirement("aap:secrets:stars-keep", "aap:secrets:stars-at-creation", "aap:clients:playground")
async def test_three_stars_change_no_secret_and_give_none(aap_client: AapClient) -> None:
    session = await aap_client.create(options={"token": "12345"})
    play = requires_options("token")
    assert (await session.run(play, agent={"options": {"token": "***", "style": "loud"}})).text == "set(5);"
    assert (await session.info())["agent"]["options"] == {"style": "loud", "token": "***"}
    assert (await session.run(play, agent={"options": {"token": "****"}})).text == "set(4);"
    assert (await session.run(play, agent={"options": {"token": ""}})).text == "unset;"
    assert (await session.info())["agent"]["options"]["token"] == ""
    given_none = await aap_client.create(options={"token": "***", "greeting": "***"})
    assert (await given_none.info())["agent"]["options"] == {"greeting": "***"}
    assert (await given_none.run(requires_options("token", "greeting"))).text == "unset;***;"


@requirement("aap:clients:playground")
async def test_a_session_made_and_changed_as_the_playground_does(aap_client: AapClient) -> None:
    agents = {agent["name"]: agent for agent in (await aap_client.get("/meta")).json["agents"]}
    filled_in = {option["name"]: option["default"] for option in agents["rehearsal"]["options"]}
    references = [{"name": tool["name"], "trust": tool["name"] == "add"} for tool in agents["rehearsal"]["tools"]]
    session = await aap_client.create(server_tools=references, options={**filled_in, "token": "12345"})
    back = (await session.info())["agent"]["options"]
    assert back == {**filled_in, "token": "***"}
    turn = await session.run(requires_options("token", "style"), "delta", agent={"options": {**back, "style": "loud"}})
    assert turn.text == "set(5);loud;"
    named = {each["name"]: each.get("trust", False) for each in (await session.info())["agent"]["tools"]}
    assert named == {each["name"]: each["trust"] for each in references}


# --- seeds ------------------------------------------------------------------------------------------------------------


def uses(*ids: str, name: str = "paint") -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "toolCallId": each, "name": name, "input": {}} for each in ids],
    }


@requirement("aap:seeds:open-history", "aap:seeds:model-sees", "aap:history:compacted")
async def test_seeds_open_the_history_and_the_agent_sees_them(aap_client: AapClient) -> None:
    seeds = [
        {"role": "system", "content": "Be brief."},
        user("first"),
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, *uses("c1")["content"]]},
        result("c1", [{"type": "text", "text": "blue"}]),
        {"role": "system", "content": "Be kind."},
        {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
        user("second"),
    ]
    session = await aap_client.create(messages=seeds)
    assert await session.history() == await session.history("compacted") == seeds
    turn = await session.run(script({"recall": "user"}, {"say": " / "}, {"recall": "system"}))
    assert turn.text == "first | second / Be brief. | Be kind."
    assert (await session.history())[: len(seeds)] == seeds


@requirement(
    "aap:seeds:no-permission", "aap:seeds:orphan-result", "aap:seeds:second-result", "aap:seeds:open-calls-further-back"
)
@pytest.mark.parametrize(
    "seeds",
    [
        [user("x"), uses("c1"), grant("c1")],
        [result("c1", "x")],
        [user("x"), result("c1", "x"), uses("c1")],
        [user("x"), uses("c1"), result("c2", "x")],
        [user("x"), uses("c1"), result("c1", "x"), result("c1", "y")],
        [user("x"), uses("c1"), user("y"), assistant_text("z")],
        [user("x"), uses("c1"), assistant_text("z")],
        [user("x"), uses("c1"), uses("c2"), result("c2", "y")],
        [user("x"), uses("c1", "c1"), result("c1", "y")],
        [user("x"), uses("c1"), result("c1", "y"), uses("c1"), result("c1", "z")],
    ],
)
async def test_seeds_whose_calls_and_results_do_not_fit_are_refused(
    aap_client: AapClient, seeds: list[dict[str, Any]]
) -> None:
    session = await aap_client.create()
    async with assert_unchanged(session):
        assert_refusal(
            await aap_client.post("/sessions", {"agent": {"name": "rehearsal"}, "messages": seeds}),
            400,
            "invalid_request",
        )


@requirement("aap:seeds:open-calls", "aap:resume:client-tools-named", "aap:meta-field:pending")
async def test_open_calls_of_the_last_assistant_seed_wait_for_their_kinds_of_answer(aap_client: AapClient) -> None:
    blocks = [*uses("c1")["content"], *uses("c2", name="stamp")["content"], *uses("c3")["content"]]
    blocks[1]["input"] = {"text": "seeded"}
    seeds = [
        user(script(calls(("paint", {}), ("stamp", {}), ("paint", {})), {"say": "{results}"})),
        {"role": "assistant", "content": blocks},
        result("c3", "seen"),
    ]
    session = await aap_client.create(
        messages=seeds, server_tools=enabled_tools("stamp", trust=False), tools=[client_tool("paint")]
    )
    info = await session.info()
    assert info["_meta"]["status"] == "waiting"
    kinds = [(each["toolCallId"], each["kind"]) for each in info["_meta"]["pending"]]
    assert kinds == [("c1", "client"), ("c2", "permission")]
    async with assert_unchanged(session):
        assert_refusal(await session.post([result("c1", "blue")]), 400, "tool_results_missing", missing=["c2"])
        assert_refusal(await session.post([grant("c1"), grant("c2")]), 400, "invalid_request")
    turn = await session.run([result("c1", "blue"), grant("c2")])
    assert turn.messages == [result("c2", "stamped seeded"), assistant_text("blue, stamped seeded, seen")]


@requirement("aap:seeds:disabled-tool", "aap:texts:not-found")
@pytest.mark.parametrize("mode", MODES)
async def test_a_grant_for_a_seeded_call_of_a_disabled_tool_answers_tool_not_found(
    aap_client: AapClient, mode: Mode
) -> None:
    seeds = [user(script(call("stamp"), {"say": "{result}"})), uses("c1", name="stamp")]
    for messages, text in (([grant("c1")], "Tool not found: stamp"), ([deny("c1")], "Tool call denied")):
        session = await aap_client.create(messages=seeds)
        assert [each["kind"] for each in (await session.info())["_meta"]["pending"]] == ["permission"]
        turn = await session.run(messages, mode)
        assert turn.messages == [result("c1", text), assistant_text(text)]
    session = await aap_client.create(messages=seeds)
    turn = await session.run([grant("c1")], mode, agent={"tools": enabled_tools("stamp", trust=False)})
    assert turn.messages[0]["content"] != "Tool not found: stamp", "the same request enables the tool"


@requirement("aap:seeds:open-calls", "aap:texts:cancelled")
async def test_a_user_message_closes_seeded_open_calls(aap_client: AapClient) -> None:
    seeds = [user("x"), uses("c1")]
    session = await aap_client.create(messages=seeds, tools=[client_tool("paint")])
    await session.run("hello")
    assert await session.history() == [
        *seeds,
        result("c1", "Tool call cancelled: a new user message arrived"),
        user("hello"),
        assistant_text("Hello! I am the rehearsal agent."),
    ]


@requirement("aap:seeds:open-calls", "aap:seeds:images")
async def test_seeds_of_an_agent_without_images_are_refused_with_them(aap_client: AapClient) -> None:
    for image in (PIXEL, LINKED):
        for seeds in (
            [user([image])],
            [user("x"), {"role": "assistant", "content": [image]}],
            [user("x"), uses("c1"), result("c1", [image])],
        ):
            assert_refusal(
                await aap_client.post("/sessions", {"agent": {"name": "plain"}, "messages": seeds}),
                400,
                "image_unsupported",
            )
    assert (await aap_client.post("/sessions", {"agent": {"name": "plain"}, "messages": [user("x")]})).status == 201


# --- capabilities -----------------------------------------------------------------------------------------------------


@requirement("aap:undeclared:stream-mode", "aap:errors:supported")
@pytest.mark.parametrize(
    ("agent", "supported"), [("only-delta", ["delta"]), ("only-none", ["none"]), ("streams", ["delta", "message"])]
)
async def test_a_mode_that_is_not_declared_is_refused_and_the_others_work(
    aap_client: AapClient, agent: str, supported: list[str]
) -> None:
    declared = {each["name"]: each for each in (await aap_client.get("/meta")).json["agents"]}[agent]["capabilities"][
        "stream"
    ]
    assert declared == {mode: {} for mode in supported}
    session = await aap_client.create(agent)
    for mode in MODES:
        reply = await session.post([user("hello")], stream=mode)
        if mode in supported:
            assert reply.status == 200
        else:
            assert sorted(reply.json["supported"]) == supported
            assert_refusal(reply, 400, "unsupported_stream_mode", supported=reply.json["supported"])
    assert (await session.post([user("hello")])).status == (200 if "none" in supported else 400)


@requirement("aap:undeclared:stream-mode", "aap:capabilities:default-modes")
async def test_the_bare_rehearsal_agent_takes_exactly_the_modes_that_it_declares(aap_client: AapClient) -> None:
    bare = {each["name"]: each for each in (await aap_client.get("/meta")).json["agents"]}["rehearsal-bare"]
    supported = set(bare.get("capabilities", {}).get("stream", {"none": {}}))
    session = await aap_client.create("rehearsal-bare")
    statuses = {mode: (await session.post([user("hello")], stream=mode)).status for mode in MODES}
    assert statuses == {mode: 200 if mode in supported else 400 for mode in MODES}


@requirement("aap:undeclared:client-tools")
@pytest.mark.parametrize("agent", ["plain", "rehearsal-bare"])
async def test_client_tools_that_are_not_declared_are_refused_and_none_are_fine(
    aap_client: AapClient, agent: str
) -> None:
    tools = [client_tool("paint")]
    session = await aap_client.create(agent, tools=[])
    assert_refusal(
        await aap_client.post("/sessions", {"agent": {"name": agent}, "tools": tools}), 400, "client_tools_unsupported"
    )
    assert_refusal(await session.post([user("hello")], tools=tools), 400, "client_tools_unsupported")
    assert "tools" not in await session.info()
    assert (await session.post([user("hello")], tools=[])).status == 200


@requirement("aap:undeclared:image", "aap:turn:image")
@pytest.mark.parametrize(
    ("agent", "good", "bad"),
    [("plain", [], [PIXEL, LINKED]), ("links", [LINKED], [PIXEL]), ("pixels", [PIXEL], [LINKED])],
)
async def test_an_image_needs_the_capability_of_its_kind(
    aap_client: AapClient, agent: str, good: list[Any], bad: list[Any]
) -> None:
    session = await aap_client.create(agent)
    for image in bad:
        assert_refusal(await session.post([user([{"type": "text", "text": "see"}, image])]), 400, "image_unsupported")
        assert_refusal(
            await aap_client.post("/sessions", {"agent": {"name": agent}, "messages": [user([image])]}),
            400,
            "image_unsupported",
        )
    for image in good:
        assert (await session.post([user([image])])).status == 200
        assert (
            await aap_client.post("/sessions", {"agent": {"name": agent}, "messages": [user([image])]})
        ).status == 201
    refused = await session.info()
    assert refused["_meta"]["status"] == "idle"


@requirement("aap:undeclared:image")
async def test_an_image_in_a_result_needs_the_capability_too(aap_client: AapClient) -> None:
    session = await aap_client.create("tools-no-images", tools=[client_tool("paint")])
    asked = await session.run(script(call("paint")))
    assert_refusal(await session.post([result(asked.calls[0], [PIXEL])]), 400, "image_unsupported")
    assert (await session.post([result(asked.calls[0], "words")])).status == 200


@requirement("aap:undeclared:image-url")
@pytest.mark.parametrize(
    "url",
    [
        "http://images.example/a.png",
        "https://",
        "https:///a.png",
        "ftp://images.example/a.png",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "images.example/a.png",
        "",
        "data:text/html;base64,PGI+",
        "data:image/png,plain",
        "data:image/png;base64,not base64!",
        "data:;base64,iVBORw0KGgo=",
    ],
)
async def test_another_kind_of_url_is_no_image(aap_client: AapClient, url: str) -> None:
    session = await aap_client.create(tools=[client_tool("paint")])
    asked = await session.run(script(call("paint")))
    image = {"type": "image", "url": url}
    async with assert_unchanged(session):
        assert_refusal(await session.post([user([image])]), 400, "image_unsupported")
        assert_refusal(await session.post([result(asked.calls[0], [image])]), 400, "image_unsupported")
        assert_refusal(
            await aap_client.post("/sessions", {"agent": {"name": "rehearsal"}, "messages": [user([image])]}),
            400,
            "image_unsupported",
        )


@requirement("aap:undeclared:tool", "aap:turn:bad-names")
@pytest.mark.parametrize("name", ["nothing", "whisper", "Add", "", "paint", "AskUserQuestion", "Agent"])
async def test_a_server_tool_that_is_not_exposed_cannot_be_turned_on(aap_client: AapClient, name: str) -> None:
    session = await aap_client.create(tools=[client_tool("paint")])
    async with assert_unchanged(session):
        assert_refusal(await session.post([user("hello")], agent={"tools": [{"name": name}]}), 400, "unknown_tool")
        assert_refusal(
            await aap_client.post("/sessions", {"agent": {"name": "rehearsal", "tools": [{"name": name}]}}),
            400,
            "unknown_tool",
        )


# --- registration -----------------------------------------------------------------------------------------------------

TWICE = (TextOption(name="mood"), SecretOption(name="mood"))
ODD = (SelectOption(name="mood", options=("good", "bad"), default="odd"),)


@requirement("aap:agents:unique-options", "aap:agents:select-default", "aap:agents:unique-tools")
@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (Player("moody", options=TWICE), "mood"),
        (Player("moody", options=ODD), "odd"),
        (Player("moody", [Tool("hold", wait_at_gate), Tool("hold", wait_at_gate)]), "hold"),
        (Player("moody", [Tool("hold", wait_at_gate), Tool("hold", wait_at_gate, exposed=False)]), "hold"),
    ],
)
async def test_an_agent_that_declares_nonsense_is_not_served_at_all(
    open_app_server: AppServerFactory, agent: Player, expected: str
) -> None:
    with pytest.raises(RuntimeError, match=expected):
        async with open_app_server(agents=[agent]):
            pass


# --- shape ------------------------------------------------------------------------------------------------------------


@requirement("aap:errors:path", "aap:errors:body", "aap:clients:error-text")
@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": 7}]}, "messages"),
        ({"messages": [user("a")], "stream": 7}, "stream"),
        ({"messages": [user("a")], "agent": {"tools": [{"name": 7}]}}, "tools"),
        ({"messages": [user("a")], "tools": [client_tool("ok"), {"name": "x"}]}, "tools"),
        ({"messages": [deny("x", "r") | {"granted": 1}]}, "granted"),
        ({}, "messages"),
    ],
)
async def test_an_invalid_request_names_the_path_of_its_field(aap_client: AapClient, body: Any, path: str) -> None:
    session = await aap_client.create()
    reply = await aap_client.post(f"{session.path}/turns", body)
    assert reply.status == 400
    assert path in reply.json["path"]
    assert json.loads(reply.body)["code"] == "invalid_request"
