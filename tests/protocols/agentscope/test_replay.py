"""Agent API, section 7: stops, lost connections, replays, and repeated requests."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from dragoman.core.ids import UserId
from dragoman.core.inputs import Submit, UserInput
from tests.conversations import call, calls, script
from tests.protocols.agentscope.client import AgentScopeClient, request_body, texts, tool, user
from tests.protocols.agentscope.stream import check
from tests.requirements import requirement
from tests.servers import AppServer, AppServerFactory

Json = Any

WAIT = script({"say": "one"}, {"wait_ms": 600_000}, {"say": "two"})
LONG = script(
    {"think": "hm"},
    {"say": ["a", "b", "c"]},
    {"image": "https://example.org/a.png"},
    call("add", a=1, b=2),
    {"say": "{result}"},
    {"plan": {"status": "draft", "steps": []}},
    call("boom"),
    {"emit": {"count": 20, "text": "{i} ", "every_ms": 3}},
    {"stop": "max_tokens"},
)


def a_name() -> str:
    return f"s-{uuid4()}"


# --- stopping ---------------------------------------------------------------------------------------------------------


@requirement("agentscope:stop:running", "agentscope:status:content", "agentscope:stream:output")
async def test_a_stop_ends_the_stream_with_the_partial_output(alice: AgentScopeClient) -> None:
    name = a_name()
    running = await alice.stream(request_body(WAIT, session_id=name))
    await running.wait_for_text("one")
    assert await alice.stop(session_id=name)
    end = await running.end()
    assert [(each["object"], each["status"]) for each in running.events[-3:]] == [
        ("content", "canceled"),
        ("message", "canceled"),
        ("response", "canceled"),
    ]
    assert (texts(end), end["error"], len(end["output"])) == ("one", None, 1)


@requirement("agentscope:stop:running")
async def test_a_stop_while_a_tool_runs_settles_its_call(alice: AgentScopeClient) -> None:
    name = a_name()
    running = await alice.stream(request_body(script(call("slow", seconds=600)), session_id=name))
    await running.until(8)
    assert await alice.stop(session_id=name)
    end = await running.end()
    assert (end["status"], [each["type"] for each in end["output"]]) == (
        "canceled",
        ["plugin_call", "plugin_call_output"],
    )
    assert end["output"][1]["content"][0]["data"]["output"] == "Tool call cancelled while it ran: the run was stopped"


@requirement("agentscope:stop:running", "agentscope:calls:several")
async def test_a_stop_also_settles_a_call_that_waits_for_approval_and_sends_the_call_first(
    alice: AgentScopeClient,
) -> None:
    name = a_name()
    both = script(calls(("stamp", {"text": "x"}), ("slow", {"seconds": 600})))
    running = await alice.stream(request_body(both, session_id=name))
    await running.until(12)
    assert await alice.stop(session_id=name)
    end = await running.end()
    types = [each["type"] for each in end["output"]]
    assert (end["status"], types[:2]) == ("canceled", ["mcp_approval_request", "plugin_call"])
    assert sorted(types[2:]) == ["plugin_call", "plugin_call_output", "plugin_call_output"]


@requirement("agentscope:stop:nothing")
async def test_a_stop_cancels_nothing_if_nothing_is_running(alice: AgentScopeClient, bob: AgentScopeClient) -> None:
    name = a_name()
    end = await alice.run("hello", session_id=name)
    for what in ({"session_id": name}, {"session_id": a_name()}, {"response_id": end["id"]}, {"response_id": "x"}):
        assert await alice.stop(**what) is False
    running = await alice.stream(request_body(WAIT, session_id=a_name()))
    await running.wait_for_text("one")
    created = running.events[0]
    assert await bob.stop(session_id=created["session_id"], response_id=created["id"]) is False
    assert await alice.stop(response_id=created["id"]) is True
    assert (await running.end())["status"] == "canceled"


@requirement("agentscope:stop:response-id")
@pytest.mark.parametrize("own_id", [None, "r"])
async def test_a_response_is_stopped_by_its_id(alice: AgentScopeClient, own_id: str | None) -> None:
    running = await alice.stream(request_body(WAIT, id=own_id and f"{own_id}-{uuid4()}"))
    await running.wait_for_text("one")
    assert await alice.stop(response_id=running.events[0]["id"])
    assert (await running.end())["status"] == "canceled"


@requirement("agentscope:stop:neither")
@pytest.mark.parametrize("body", [{"input": []}, {"session_id": ""}, {"session_id": None, "response_id": None}])
async def test_a_stop_without_a_session_or_response_id_is_refused(alice: AgentScopeClient, body: Json) -> None:
    assert await alice.assert_refused("POST", "/stop", body) == "INVALID_REQUEST"


# --- lost connections -------------------------------------------------------------------------------------------------


@requirement("agentscope:durable:disconnect", "agentscope:replay:live")
async def test_a_run_continues_without_its_client_which_reads_the_rest_later(alice: AgentScopeClient) -> None:
    steps = script({"say": "one"}, {"wait_ms": 100}, {"say": "two"})
    running = await alice.stream(request_body(steps))
    await running.wait_for_text("one")
    await running.disconnect()
    events = running.events
    rest = await alice.replay(events[0]["id"], events[-1]["sequence_number"])
    assert texts(check([*events, *await rest.read_to_end()])) == "onetwo"


@requirement("agentscope:replay:events", "agentscope:replay:any-cut", "agentscope:replay:same-numbers")
@pytest.mark.parametrize("is_whole", [False, True])
async def test_the_tail_of_a_replay_is_the_tail_of_the_stream_wherever_it_was_cut(
    alice: AgentScopeClient, is_whole: bool
) -> None:
    running = await alice.stream(request_body(LONG, stream=not is_whole))
    events = await running.read_to_end()
    check(events, is_complete=is_whole)
    replayed = await alice.replay(events[0]["id"])
    assert await replayed.read_to_end() == events
    for after in range(-1, len(events)):
        rest = await alice.follow("GET", f"/process/responses/{events[0]['id']}/events?after={after}")
        assert await rest.read_to_end() == events[after + 1 :]


@requirement("agentscope:replay:last-event-id")
async def test_a_position_may_be_sent_in_a_header(alice: AgentScopeClient) -> None:
    events = await (await alice.stream(request_body("hello"))).read_to_end()
    path = f"/process/responses/{events[0]['id']}/events"
    rest = await alice.follow("GET", path, headers={"last-event-id": "3"})
    assert await rest.read_to_end() == events[4:]
    rest = await alice.follow("GET", f"{path}?after=5", headers={"last-event-id": "3"})
    assert await rest.read_to_end() == events[6:]


@requirement("agentscope:replay:position")
@pytest.mark.parametrize("after", ["8", "99", "-2", "x", "1.5", "1" * 30, "٣"])
async def test_an_unknown_position_is_refused(alice: AgentScopeClient, after: str) -> None:
    end = await alice.run("hello")
    path = f"/process/responses/{end['id']}/events?after={after}".encode().decode("latin-1")
    assert await alice.assert_refused("GET", path) == "INVALID_REQUEST"


@requirement("agentscope:replay:response")
async def test_the_current_state_of_a_response_can_be_read(alice: AgentScopeClient) -> None:
    running = await alice.stream(request_body(WAIT))
    await running.wait_for_text("one")
    path = f"/process/responses/{running.events[0]['id']}"
    assert (await alice.request("GET", path)).json == running.events[1]
    await alice.stop(response_id=running.events[0]["id"])
    end = await running.end()
    assert (await alice.request("GET", path)).json == end


@requirement("agentscope:status:queued", "agentscope:replay:any-protocol")
async def test_a_run_that_waits_for_another_is_queued_and_can_be_followed(
    alice: AgentScopeClient, app_server: AppServer
) -> None:
    name = a_name()
    running = await alice.stream(request_body(WAIT, session_id=name))
    await running.wait_for_text("one")
    engine = app_server.connection.app.engine  # type: ignore[attr-defined]  # the app of a server is the server's
    async with engine.session(UserId("alice"), name) as live:
        submit = Submit(protocol="runs", messages=(UserInput(content="hello"),))
        queued = await engine.start_run(live, submit, by=UserId("alice"), busy="queue")
        await live.until_durable(queued.seq)
    path = f"/process/responses/response_{queued.run_id}"
    response = (await alice.request("GET", path)).json
    assert (response["status"], response["id"], response["output"]) == ("queued", f"response_{queued.run_id}", None)
    following = await alice.follow("GET", f"{path}/events")
    assert await alice.stop(response_id=running.events[0]["id"])
    assert texts(await running.end()) == "one"
    end = await following.end()
    assert (end["status"], texts(end)) == ("completed", "Hello! I am the rehearsal agent.")
    assert (await alice.request("GET", path)).json == end


@requirement("agentscope:replay:unknown", "agentscope:once:own")
async def test_unknown_and_foreign_responses_are_indistinguishable(
    alice: AgentScopeClient, bob: AgentScopeClient
) -> None:
    generated, chosen = await alice.run("hello"), await alice.run("hello", id=a_name())
    for name in (generated["id"], chosen["id"], "response_x", f"response_{uuid4()}", "%00", "a/b/c", "x" * 300):
        for path in (f"/process/responses/{name}", f"/process/responses/{name}/events"):
            assert await bob.assert_refused("GET", path) == "RESPONSE_NOT_FOUND"


@requirement("agentscope:request:id", "agentscope:replay:events")
async def test_an_id_with_special_characters_is_found_by_its_path(alice: AgentScopeClient) -> None:
    chosen = f"a/b c?é%{uuid4()}"
    end = await alice.run("hello", id=chosen)
    path = "/process/responses/" + "".join(f"%{byte:02x}" for byte in chosen.encode())
    assert (await alice.request("GET", path)).json == end
    assert (await (await alice.follow("GET", f"{path}/events")).end()) == end


@requirement("agentscope:replay:session")
async def test_a_session_s_latest_response_is_replayed_from_its_beginning(
    alice: AgentScopeClient, bob: AgentScopeClient
) -> None:
    name = a_name()
    path = f"/process/sessions/{name}/events"
    assert (await alice.request("GET", path)).status == 204
    first = await alice.run("hello", session_id=name)
    assert await (await alice.follow("GET", path)).end() == first
    running = await alice.stream(request_body(WAIT, session_id=name))
    await running.wait_for_text("one")
    watching = await alice.follow("GET", path)
    await watching.wait_for_text("one")
    assert (await bob.request("GET", path)).status == 204
    assert await alice.stop(session_id=name)
    assert await watching.end() == await running.end()


@requirement("agentscope:durable:drain")
async def test_a_stopping_server_ends_a_stream_and_sends_the_rest_after_a_restart(
    open_app_server: AppServerFactory,
) -> None:
    async with open_app_server() as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        steps = script({"say": "one"}, {"step": True}, {"wait_ms": 2_000}, {"say": "two"})
        running = await alice.stream(request_body(steps))
        await running.wait_for_text("one")
        await server.restart()
        events = await running.read_to_end()
        assert events[-1]["object"] != "response"
        alice = AgentScopeClient(server.connection, server.key("alice"))
        rest = await (await alice.replay(events[0]["id"], events[-1]["sequence_number"])).read_to_end()
        end = check([*events, *rest])
        assert texts(end) == "onetwo"
        assert (await (await alice.replay(end["id"])).read_to_end()) == [*events, *rest]


@requirement("agentscope:durable:drain", "agentscope:errors:draining")
async def test_a_client_that_waits_for_the_response_learns_that_the_run_continues(
    open_app_server: AppServerFactory,
) -> None:
    async with open_app_server() as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        body = request_body(
            script({"say": "one"}, {"step": True}, {"wait_ms": 2_000}, {"say": "two"}), id="r-1", stream=False
        )
        waiting = asyncio.ensure_future(alice.request("POST", "/process", body, headers={"accept": "application/json"}))
        await alice.wait_until_started("r-1")
        await server.restart()
        reply = await waiting
        assert (reply.status, reply.json["error"]["code"]) == (503, "UNAVAILABLE")
        assert "continues" in reply.json["error"]["message"]
        alice = AgentScopeClient(server.connection, server.key("alice"))
        reply = await alice.request("POST", "/process", body, headers={"accept": "application/json"})
        assert (reply.status, texts(reply.json)) == (200, "onetwo")


@requirement("agentscope:stream:output", "agentscope:stop:running")
async def test_deleting_the_session_ends_its_stream_as_canceled(alice: AgentScopeClient, app_server: AppServer) -> None:
    name = a_name()
    running = await alice.stream(request_body(WAIT, session_id=name))
    await running.wait_for_text("one")
    assert (await app_server.aap_client("alice").request("DELETE", f"/sessions/{name}")).status == 204
    end = await running.end()
    assert (end["status"], texts(end)) == ("canceled", "one")
    assert await alice.assert_refused("GET", f"/process/responses/{end['id']}") == "RESPONSE_NOT_FOUND"
    assert (await alice.run("hello", session_id=name))["status"] == "completed"


# --- repeated requests ------------------------------------------------------------------------------------------------


@requirement("agentscope:once:attach")
async def test_the_same_request_attaches_to_the_response_that_it_began(alice: AgentScopeClient) -> None:
    body = request_body(user(WAIT, id="m-1"), id=a_name())
    running = await alice.stream(body)
    await running.wait_for_text("one")
    again = await alice.stream(request_body(user(WAIT, id="m-2", status="created", sequence_number=7), id=body["id"]))
    await again.wait_for_text("one")
    assert await alice.stop(response_id=body["id"])
    assert await again.end() == await running.end()
    assert await alice.run(user(WAIT, id="m-3"), id=body["id"]) == running.events[-1]


@requirement("agentscope:once:attach", "agentscope:durable:restart")
async def test_an_id_is_remembered_as_long_as_its_session(open_app_server: AppServerFactory) -> None:
    async with open_app_server(manual_clock=True) as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        first = await alice.run("hello", id="r-1")
        server.clock.advance(days=30)
        await server.restart()
        alice = AgentScopeClient(server.connection, server.key("alice"))
        assert await alice.run("hello", id="r-1") == first
        assert await alice.assert_refused("POST", "/process", request_body("other", id="r-1")) == "RESPONSE_EXISTS"


@requirement("agentscope:once:conflict")
async def test_another_request_with_the_same_id_is_refused(alice: AgentScopeClient) -> None:
    name, chosen = a_name(), a_name()
    await alice.run("hello", id=chosen, session_id=name)
    for body in (
        request_body("other", id=chosen, session_id=name),
        request_body("hello", id=chosen),
        request_body("hello", id=chosen, session_id=a_name()),
        request_body("hello", id=chosen, session_id=name, temperature=1),
        request_body("hello", id=chosen, session_id=name, tools=[tool("x")]),
    ):
        reply = await alice.request("POST", "/process", body)
        error = {"code": "RESPONSE_EXISTS", "message": "this id was used with another request"}
        assert (reply.status, reply.json) == (409, {"error": error})


@requirement("agentscope:once:concurrent")
async def test_two_at_the_same_moment_make_one_response(alice: AgentScopeClient) -> None:
    chosen, name = a_name(), a_name()
    ends = await asyncio.gather(*(alice.run("hello", id=chosen, session_id=name) for _ in range(5)))
    assert [end == ends[0] for end in ends] == [True] * 5
    assert texts(await alice.run(script({"recall": "user"}), session_id=name)) == "hello"


@requirement("agentscope:once:own")
async def test_another_owner_may_use_the_same_id(alice: AgentScopeClient, bob: AgentScopeClient) -> None:
    chosen = a_name()
    first, second = await alice.run("hello", id=chosen), await bob.run("think", id=chosen)
    assert first["session_id"] != second["session_id"]
    assert (await bob.request("GET", f"/process/responses/{chosen}")).json == second
