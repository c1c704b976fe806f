"""AAP, section 15: turns without a reader, input that is wrong, limits."""

import json
from typing import Any

import pytest

from tests.protocols.aap.client import (
    AapClient,
    Message,
    Session,
    Turn,
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
from tests.protocols.aap.stream import MODES, STREAMS, Mode, fold, parse_frames
from tests.requirements import requirement
from tests.servers import AppServer

Json = Any


async def session_with_mixed_calls(aap_client: AapClient) -> tuple[Session, Turn]:
    """A session that waits for a client tool and a permission, one inline call of the step being done."""
    session = await aap_client.create(
        server_tools=[*enabled_tools("add"), *enabled_tools("stamp", trust=False)], tools=[client_tool("paint")]
    )
    step = calls(("paint", {"c": 1}), ("stamp", {"text": "x"}), ("add", {"a": 1, "b": 2}))
    return session, await session.run(script(step, {"say": "{results}"}))


async def status(session: Session) -> str:
    answer: str = (await session.info())["_meta"]["status"]
    return answer


# --- the turn without its reader --------------------------------------------------------------------------------------


@requirement("aap:turn:disconnect-goes-on", "aap:suite:leave-anywhere")
@pytest.mark.parametrize("mode", STREAMS)
async def test_a_reader_may_leave_at_every_event_and_the_turn_is_whole(
    aap_client: AapClient, mode: Mode, tool_gates: Any
) -> None:
    agent: Json = {"server_tools": enabled_tools("hold")}
    tool_gates.open("leave")
    play = script({"think": "hm"}, {"say": "one"}, call("hold", gate="leave"), {"say": "two"})
    whole = await (await aap_client.create("gated", **agent)).run(play, mode)
    for count in range(len(whole.frames)):
        session = await aap_client.create("gated", **agent)
        reading = await session.open(play, stream=mode)
        for _ in range(count):
            await reading.next()
        await reading.disconnect()
        watching = await session.watch("0", f"?stream={mode}")
        await watching.until("turn_stop")
        assert [message["role"] for message in await session.history()] == ["user", "assistant", "tool", "assistant"]
        assert await status(session) == "idle"


def lines_of(client: AapClient) -> list[tuple[str, str]]:
    return [("content-type", "application/json"), ("authorization", f"Bearer {client.key}")]


@requirement("aap:turn:disconnect-goes-on")
async def test_a_turn_of_mode_none_continues_without_its_client(app_server: AppServer, tool_gates: Any) -> None:
    client = app_server.aap_client("alice")
    session = await client.create("gated", server_tools=enabled_tools("hold"))
    body = json.dumps({"messages": [user(script(call("hold", gate="gone"), {"say": "done"}))]}).encode()
    asking = app_server.connection.begin(
        "POST", f"{client.base}{session.path}/turns", headers=lines_of(client), body=body
    )
    await tool_gates.entered("gone")
    await asking.disconnect()
    assert await status(session) == "running"
    tool_gates.open("gone")
    await (await session.watch("0")).until("turn_stop")
    assert (await session.history())[-1] == assistant_text("done")


@requirement("aap:order:refusal-changes-nothing")
@pytest.mark.parametrize("path", ["/sessions", "TURNS"])
async def test_a_body_that_never_comes_to_its_end_changes_nothing(app_server: AppServer, path: str) -> None:
    client = app_server.aap_client("alice")
    session = await client.create()
    whole = {"agent": {"name": "rehearsal"}} if path == "/sessions" else {"messages": [user("hello")]}
    target = f"{client.base}{path.replace('TURNS', f'{session.path}/turns')}"
    async with assert_unchanged(session):
        asking = app_server.connection.begin(
            "POST", target, headers=lines_of(client), body=[json.dumps(whole).encode()], is_request_truncated=True
        )
        await asking.disconnect()
        await asking.wait_until_released()
        assert asking.status in (0, 400)


# --- input ------------------------------------------------------------------------------------------------------------


@requirement("aap:turn:no-messages")
@pytest.mark.parametrize(
    "body", [{}, {"messages": []}, {"messages": None}, {"messages": {}}, {"messages": "hello"}, [], "hello", 7]
)
async def test_a_turn_without_messages_is_refused(aap_client: AapClient, body: Any) -> None:
    session = await aap_client.create()
    async with assert_unchanged(session):
        reply = await aap_client.post(f"{session.path}/turns", body)
        assert_refusal(reply, 400, "invalid_request", has_path=isinstance(body, dict))


@requirement("aap:turn:unknown-mode")
@pytest.mark.parametrize("mode", ["sse", "Delta", "", 7, True, [], {}])
async def test_an_unknown_mode_is_refused(aap_client: AapClient, mode: Any) -> None:
    session = await aap_client.create()
    async with assert_unchanged(session):
        assert_refusal(await session.post([user("hello")], stream=mode), 400, "invalid_request")


@requirement("aap:turn:bad-json")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"messages": [}',
        b"\xff\xfe",
        b'{"messages": "\xff"}',
        b"{} x",
        b"{'a': 1}",
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"messages": NaN}',
    ],
)
async def test_malformed_json_is_400_everywhere(aap_client: AapClient, raw: bytes) -> None:
    session = await aap_client.create()
    async with assert_unchanged(session):
        for path in ("/sessions", f"{session.path}/turns"):
            assert_refusal(await aap_client.request("POST", path, raw=raw), 400, "invalid_json")


@requirement("aap:turn:several-users")
@pytest.mark.parametrize("mode", MODES)
async def test_several_user_messages_are_stored_in_order(aap_client: AapClient, mode: Mode) -> None:
    session = await aap_client.create()
    messages: list[Message] = [user("a"), user([{"type": "text", "text": "b"}]), user("hello")]
    turn = await session.run(messages, mode)
    assert await session.history() == [*messages, assistant_text("Hello! I am the rehearsal agent.")]
    assert turn.messages == [assistant_text("Hello! I am the rehearsal agent.")]


@requirement("aap:turn:answer-after-user")
async def test_an_answer_after_a_user_message_is_refused(aap_client: AapClient) -> None:
    session, asked = await session_with_mixed_calls(aap_client)
    paint, stamp, _ = asked.calls
    async with assert_unchanged(session):
        for messages in ([user("a"), result(paint, "x"), grant(stamp)], [result(paint, "x"), user("a"), grant(stamp)]):
            assert_refusal(await session.post(messages), 400, "invalid_request")


@requirement("aap:turn:same-id-twice")
async def test_the_same_id_twice_in_one_request_is_refused(aap_client: AapClient) -> None:
    session, asked = await session_with_mixed_calls(aap_client)
    paint, stamp, _ = asked.calls
    async with assert_unchanged(session):
        for messages in (
            [result(paint, "x"), grant(stamp), result(paint, "x")],
            [result(paint, "x"), grant(stamp), deny(stamp)],
            [result(paint, "x"), result(stamp, "x"), grant(stamp)],
        ):
            assert_refusal(await session.post(messages), 400, "invalid_request")


@requirement("aap:turn:unknown-call")
async def test_an_unknown_id_among_right_ones_is_refused_while_waiting(aap_client: AapClient) -> None:
    session, asked = await session_with_mixed_calls(aap_client)
    paint, stamp, _ = asked.calls
    async with assert_unchanged(session):
        assert_refusal(
            await session.post([result(paint, "x"), grant(stamp), result("nowhere", "x")]), 400, "unknown_tool_call"
        )
        assert_refusal(await session.post([result("nowhere", "x")]), 400, "unknown_tool_call")


# --- limits -----------------------------------------------------------------------------------------------------------

MIB = 1024 * 1024


@requirement("aap:turn:oversized")
async def test_a_body_over_the_limit_is_413_and_ends_the_connection(aap_client: AapClient) -> None:
    session = await aap_client.create()
    too_much = [b'{"messages": "', *[b"x" * MIB] * 16, b'"}']
    for raw in (b"".join(too_much), too_much):
        for path in ("/sessions", f"{session.path}/turns"):
            async with assert_unchanged(session):
                reply = await aap_client.request("POST", path, raw=raw)
                assert_refusal(reply, 413, "body_too_large", limit=16 * MIB)
                assert reply.headers["connection"].lower() == "close"


@requirement("aap:limits:text")
async def test_a_text_of_1_mib_is_taken_and_a_longer_one_refused(aap_client: AapClient) -> None:
    session = await aap_client.create(tools=[client_tool("paint")])
    fits = "x" * MIB
    assert (await session.post([user(fits)])).status == 200
    async with assert_unchanged(session):
        for content in (fits + "x", [{"type": "text", "text": fits + "x"}]):
            assert_refusal(await session.post([user(content)]), 400, "limit_exceeded")
            assert_refusal(
                await aap_client.post("/sessions", {"agent": {"name": "rehearsal"}, "messages": [user(content)]}),
                400,
                "limit_exceeded",
            )
    asked = await session.run(script(call("paint")))
    async with assert_unchanged(session):
        assert_refusal(await session.post([result(asked.calls[0], fits + "x")]), 400, "limit_exceeded")


@requirement("aap:limits:seeds")
async def test_a_thousand_seeds_are_taken_and_one_more_refused(aap_client: AapClient) -> None:
    seeds = [user(str(place)) for place in range(1000)]
    session = await aap_client.create(messages=seeds)
    assert await session.history() == seeds
    async with assert_unchanged(session):
        assert_refusal(
            await aap_client.post("/sessions", {"agent": {"name": "rehearsal"}, "messages": [*seeds, user("x")]}),
            400,
            "limit_exceeded",
        )


@requirement("aap:limits:client-tools", "aap:limits:schema")
async def test_128_client_tools_of_64_kib_are_taken_and_more_refused(aap_client: AapClient) -> None:
    tools = [client_tool(f"tool_{place}") for place in range(128)]
    session = await aap_client.create(tools=tools)
    assert (await session.info())["tools"] == tools
    padding = 64 * 1024 - len(b'{"x":""}')
    fits, over = (client_tool("x", parameters={"x": "y" * count}) for count in (padding, padding + 100))
    assert (await session.post([user("hello")], tools=[fits])).status == 200
    async with assert_unchanged(session):
        for bad in ([*tools, client_tool("more")], [over]):
            assert_refusal(await session.post([user("hello")], tools=bad), 400, "limit_exceeded")
            assert_refusal(
                await aap_client.post("/sessions", {"agent": {"name": "rehearsal"}, "tools": bad}),
                400,
                "limit_exceeded",
            )


# --- text that is hard to carry ---------------------------------------------------------------------------------------


@requirement("aap:transport:json-utf8", "aap:content:stored-as-sent")
@pytest.mark.parametrize(
    "text", ["\\u0000", "\\u202e", "\\ufeff", "\\ud83e\\uddd1", "\\ud800", "\\udfff x", "a\\u0008b"]
)
async def test_odd_characters_come_back_as_they_came_or_are_refused_whole(aap_client: AapClient, text: str) -> None:
    session = await aap_client.create()
    raw = b'{"messages": [{"role": "user", "content": "' + text.encode() + b'"}], "stream": "delta"}'
    before = await session.state()
    reply = await aap_client.request("POST", f"{session.path}/turns", raw=raw)
    if reply.status == 400:
        assert reply.json["code"] in ("invalid_json", "invalid_request")
        assert await session.state() == before
    else:
        content = json.loads(f'"{text}"').encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert fold(parse_frames(reply.body)) == [assistant_text(f"You said: {content}")]
        assert await session.history() == [user(content), assistant_text(f"You said: {content}")]


@requirement("aap:calls:client-tool", "aap:content:stored-as-sent")
@pytest.mark.parametrize("number", ["0", "-0.0", "1e-7", "1.5", "9007199254740993", "1" * 40, "1e300"])
async def test_numbers_of_a_calls_input_keep_their_value(aap_client: AapClient, number: str) -> None:
    session = await aap_client.create(tools=[client_tool("paint")])
    play = '{"script": [{"call": {"name": "paint", "input": {"n": ' + number + "}}}]}"
    asked = await session.run(play, "delta")
    assert asked.calls[0].input == {"n": json.loads(number)}
