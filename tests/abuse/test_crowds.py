"""Many concurrent clients. Cases 27 and 31 to 33."""

import asyncio
from typing import Any

from dragoman.server.app import Application
from tests.protocols.aap.agents import ToolGates
from tests.protocols.aap.client import call, enabled_tools, grant, script, user
from tests.servers import AppServer, AppServerFactory

Json = Any
MANY = 1000


async def test_a_thousand_readers_of_one_session_all_see_its_turn(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        session = await server.aap_client("alice").create()
        readers = [await session.watch() for _ in range(MANY)]
        await session.run("hello", "delta")
        lasts = await asyncio.gather(*(reader.until("turn_stop") for reader in readers))
        assert {last.data["stopReason"] for last in lasts} == {"end_turn"}
        await asyncio.gather(*(reader.disconnect() for reader in readers))


async def test_a_thousand_sessions_with_a_reader_each_are_served_and_over_the_limit_is_429(
    open_app_server: AppServerFactory,
) -> None:
    async with open_app_server(max_streams_per_user=MANY, sessions_in_memory=100) as server:
        aap = server.aap_client("alice")
        sessions = [await aap.create() for _ in range(MANY)]
        readers = [await session.watch() for session in sessions]
        over = await aap.get(f"{sessions[0].path}/events")
        assert (over.status, over.json["code"]) == (429, "rate_limited")
        await sessions[500].run("hello")
        assert (await readers[500].until("turn_stop")).data["stopReason"] == "end_turn"
        await asyncio.gather(*(reader.disconnect() for reader in readers))


async def test_a_hundred_messages_during_a_turn_are_409_and_the_turn_is_untouched(
    app_server: AppServer, tool_gates: ToolGates
) -> None:
    session = await app_server.aap_client("alice").create("gated", server_tools=enabled_tools("hold"))
    reading = await session.open(script(call("hold", gate="crowd"), {"say": "done"}))
    await tool_gates.entered("crowd")
    replies = await asyncio.gather(*(session.post([user(f"me too {place}")]) for place in range(100)))
    assert {(reply.status, reply.json["code"]) for reply in replies} == {(409, "turn_in_progress")}
    tool_gates.open("crowd")
    await reading.read_to_end()
    assert [message["role"] for message in await session.history()] == ["user", "assistant", "tool", "assistant"]


async def test_concurrent_answers_and_a_stop_have_one_outcome(app_server: AppServer) -> None:
    session = await app_server.aap_client("alice").create(server_tools=enabled_tools("stamp", trust=False))
    app: Json = app_server.connection.app
    assert isinstance(app, Application)
    for _ in range(20):
        turn = await session.run(script(call("stamp", text="x"), {"say": "done"}))
        owner: Json = "alice"
        identity: Json = session.id
        async with app.engine.session(owner, identity) as live:
            first, second, _ = await asyncio.gather(
                session.post([grant(turn.calls[0])]), session.post([grant(turn.calls[0])]), app.engine.stop_run(live)
            )
        assert [first.status, second.status].count(200) <= 1
        assert {first.status, second.status} <= {200, 400, 409}
        results = [each for each in await session.history() if each.get("toolCallId") == turn.calls[0].id]
        assert len(results) == 1
        assert (await session.info())["_meta"]["status"] == "idle"


async def test_fifty_equal_concurrent_posts_run_one_turn_and_another_body_is_409(app_server: AppServer) -> None:
    session = await app_server.aap_client("alice").create()
    lines = {"idempotency-key": "of-the-crowd"}
    posts = [session.post([user("hello")], headers=lines) for _ in range(50)]
    replies = await asyncio.gather(*posts, session.post([user("other")], headers=lines))
    assert {reply.status for reply in replies[:-1]} == {200}
    assert len({reply.body for reply in replies[:-1]}) == 1
    assert (replies[-1].status, replies[-1].json["code"]) == (409, "idempotency_conflict")
    assert len(await session.history()) == 2
