"""Agent API, section 7: stops, lost connections, replays, and requests that come twice."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from dragoman.core.ids import UserId
from dragoman.core.inputs import Submit, UserInput
from tests.conversations import call, calls, script
from tests.protocols.agentscope.client import Runtime, asks, texts, tool, user
from tests.protocols.agentscope.stream import check
from tests.requirements import requirement
from tests.servers import House, HouseMaker

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
async def test_a_stop_ends_the_stream_with_what_there_was(alice: Runtime) -> None:
    name = a_name()
    running = await alice.stream(asks(WAIT, session_id=name))
    await running.until_said("one")
    assert await alice.stop(session_id=name)
    end = await running.end()
    assert [(each["object"], each["status"]) for each in running.events[-3:]] == [
        ("content", "canceled"),
        ("message", "canceled"),
        ("response", "canceled"),
    ]
    assert (texts(end), end["error"], len(end["output"])) == ("one", None, 1)


@requirement("agentscope:stop:running")
async def test_a_stop_while_a_tool_runs_settles_its_call(alice: Runtime) -> None:
    name = a_name()
    running = await alice.stream(asks(script(call("slow", seconds=600)), session_id=name))
    await running.until(8)
    assert await alice.stop(session_id=name)
    end = await running.end()
    assert (end["status"], [each["type"] for each in end["output"]]) == (
        "canceled",
        ["plugin_call", "plugin_call_output"],
    )
    assert end["output"][1]["content"][0]["data"]["output"] == "Tool call cancelled: the run was stopped"


@requirement("agentscope:stop:running", "agentscope:calls:several")
async def test_a_stop_settles_also_what_waits_for_a_word_after_telling_it_as_a_call(alice: Runtime) -> None:
    name = a_name()
    both = script(calls(("stamp", {"text": "x"}), ("slow", {"seconds": 600})))
    running = await alice.stream(asks(both, session_id=name))
    await running.until(12)
    assert await alice.stop(session_id=name)
    end = await running.end()
    told = [each["type"] for each in end["output"]]
    assert (end["status"], told[:2]) == ("canceled", ["mcp_approval_request", "plugin_call"])
    assert sorted(told[2:]) == ["plugin_call", "plugin_call_output", "plugin_call_output"]


@requirement("agentscope:stop:nothing")
async def test_nothing_is_canceled_where_nothing_runs(alice: Runtime, bob: Runtime) -> None:
    name = a_name()
    end = await alice.run("hello", session_id=name)
    for what in ({"session_id": name}, {"session_id": a_name()}, {"response_id": end["id"]}, {"response_id": "x"}):
        assert await alice.stop(**what) is False
    running = await alice.stream(asks(WAIT, session_id=a_name()))
    await running.until_said("one")
    begun = running.events[0]
    assert await bob.stop(session_id=begun["session_id"], response_id=begun["id"]) is False
    assert await alice.stop(response_id=begun["id"]) is True
    assert (await running.end())["status"] == "canceled"


@requirement("agentscope:stop:response-id")
@pytest.mark.parametrize("own_id", [None, "r"])
async def test_a_response_is_stopped_by_its_id(alice: Runtime, own_id: str | None) -> None:
    running = await alice.stream(asks(WAIT, id=own_id and f"{own_id}-{uuid4()}"))
    await running.until_said("one")
    assert await alice.stop(response_id=running.events[0]["id"])
    assert (await running.end())["status"] == "canceled"


@requirement("agentscope:stop:neither")
@pytest.mark.parametrize("body", [{"input": []}, {"session_id": ""}, {"session_id": None, "response_id": None}])
async def test_a_stop_names_a_session_or_a_response(alice: Runtime, body: Json) -> None:
    assert await alice.refused("POST", "/stop", body) == "INVALID_REQUEST"


# --- lost connections -------------------------------------------------------------------------------------------------


@requirement("agentscope:durable:disconnect", "agentscope:replay:live")
async def test_a_run_goes_on_without_its_client_which_comes_back_for_the_rest(alice: Runtime) -> None:
    steps = script({"say": "one"}, {"wait_ms": 100}, {"say": "two"})
    running = await alice.stream(asks(steps))
    await running.until_said("one")
    await running.leave()
    seen = running.events
    rest = await alice.replay(seen[0]["id"], seen[-1]["sequence_number"])
    assert texts(check([*seen, *await rest.rest()])) == "onetwo"


@requirement("agentscope:replay:events", "agentscope:replay:any-cut", "agentscope:replay:same-numbers")
@pytest.mark.parametrize("is_whole", [False, True])
async def test_the_tail_of_a_replay_is_the_tail_of_the_stream_wherever_it_was_cut(
    alice: Runtime, is_whole: bool
) -> None:
    running = await alice.stream(asks(LONG, stream=not is_whole))
    events = await running.rest()
    check(events, is_whole=is_whole)
    replayed = await alice.replay(events[0]["id"])
    assert await replayed.rest() == events
    for after in range(-1, len(events)):
        rest = await alice.follow("GET", f"/process/responses/{events[0]['id']}/events?after={after}")
        assert await rest.rest() == events[after + 1 :]


@requirement("agentscope:replay:last-event-id")
async def test_a_position_may_stand_in_a_header(alice: Runtime) -> None:
    events = await (await alice.stream(asks("hello"))).rest()
    path = f"/process/responses/{events[0]['id']}/events"
    rest = await alice.follow("GET", path, headers={"last-event-id": "3"})
    assert await rest.rest() == events[4:]
    rest = await alice.follow("GET", f"{path}?after=5", headers={"last-event-id": "3"})
    assert await rest.rest() == events[6:]


@requirement("agentscope:replay:position")
@pytest.mark.parametrize("after", ["8", "99", "-2", "x", "1.5", "1" * 30, "٣"])
async def test_a_position_that_is_not_there_is_refused(alice: Runtime, after: str) -> None:
    end = await alice.run("hello")
    path = f"/process/responses/{end['id']}/events?after={after}".encode().decode("latin-1")
    assert await alice.refused("GET", path) == "INVALID_REQUEST"


@requirement("agentscope:replay:response")
async def test_a_response_is_told_as_it_stands(alice: Runtime) -> None:
    running = await alice.stream(asks(WAIT))
    await running.until_said("one")
    path = f"/process/responses/{running.events[0]['id']}"
    assert (await alice.ask("GET", path)).json == running.events[1]
    await alice.stop(response_id=running.events[0]["id"])
    end = await running.end()
    assert (await alice.ask("GET", path)).json == end


@requirement("agentscope:status:queued", "agentscope:replay:any-protocol")
async def test_a_run_that_waits_for_another_is_queued_and_can_be_followed(alice: Runtime, house: House) -> None:
    name = a_name()
    running = await alice.stream(asks(WAIT, session_id=name))
    await running.until_said("one")
    engine = house.line.app.engine  # type: ignore[attr-defined]  # the app of a house is the server's
    async with engine.session(UserId("alice"), name) as live:
        waits = Submit(door="runs", messages=(UserInput(content="hello"),))
        queued = await engine.submit(live, waits, by=UserId("alice"), busy="queue")
        await live.until_durable(queued.seq)
    path = f"/process/responses/response_{queued.run_id}"
    told = (await alice.ask("GET", path)).json
    assert (told["status"], told["id"], told["output"]) == ("queued", f"response_{queued.run_id}", None)
    following = await alice.follow("GET", f"{path}/events")
    assert await alice.stop(response_id=running.events[0]["id"])
    assert texts(await running.end()) == "one"
    end = await following.end()
    assert (end["status"], texts(end)) == ("completed", "Hello! I am the rehearsal agent.")
    assert (await alice.ask("GET", path)).json == end


@requirement("agentscope:replay:unknown", "agentscope:once:own")
async def test_an_unknown_and_a_foreign_response_are_the_same(alice: Runtime, bob: Runtime) -> None:
    made, chosen = await alice.run("hello"), await alice.run("hello", id=a_name())
    for name in (made["id"], chosen["id"], "response_x", f"response_{uuid4()}", "%00", "a/b/c", "x" * 300):
        for path in (f"/process/responses/{name}", f"/process/responses/{name}/events"):
            assert await bob.refused("GET", path) == "RESPONSE_NOT_FOUND"


@requirement("agentscope:request:id", "agentscope:replay:events")
async def test_an_id_with_signs_in_it_is_found_in_a_path(alice: Runtime) -> None:
    chosen = f"a/b c?é%{uuid4()}"
    end = await alice.run("hello", id=chosen)
    path = "/process/responses/" + "".join(f"%{byte:02x}" for byte in chosen.encode())
    assert (await alice.ask("GET", path)).json == end
    assert (await (await alice.follow("GET", f"{path}/events")).end()) == end


@requirement("agentscope:replay:session")
async def test_a_session_s_newest_response_is_told_from_its_beginning(alice: Runtime, bob: Runtime) -> None:
    name = a_name()
    path = f"/process/sessions/{name}/events"
    assert (await alice.ask("GET", path)).status == 204
    first = await alice.run("hello", session_id=name)
    assert await (await alice.follow("GET", path)).end() == first
    running = await alice.stream(asks(WAIT, session_id=name))
    await running.until_said("one")
    watching = await alice.follow("GET", path)
    await watching.until_said("one")
    assert (await bob.ask("GET", path)).status == 204
    assert await alice.stop(session_id=name)
    assert await watching.end() == await running.end()


@requirement("agentscope:durable:drain")
async def test_a_server_that_stops_ends_a_stream_and_tells_the_rest_when_it_is_back(open_house: HouseMaker) -> None:
    async with open_house() as house:
        alice = Runtime(house.line, house.key("alice"))
        steps = script({"say": "one"}, {"step": True}, {"wait_ms": 200}, {"say": "two"})
        running = await alice.stream(asks(steps))
        await running.until_said("one")
        await house.restart()
        seen = await running.rest()
        assert seen[-1]["object"] != "response"
        alice = Runtime(house.line, house.key("alice"))
        rest = await (await alice.replay(seen[0]["id"], seen[-1]["sequence_number"])).rest()
        end = check([*seen, *rest])
        assert texts(end) == "onetwo"
        assert (await (await alice.replay(end["id"])).rest()) == [*seen, *rest]


@requirement("agentscope:durable:drain", "agentscope:errors:draining")
async def test_a_client_that_waits_for_the_whole_answer_is_told_that_it_goes_on(open_house: HouseMaker) -> None:
    async with open_house() as house:
        alice = Runtime(house.line, house.key("alice"))
        body = asks(script({"say": "one"}, {"step": True}, {"wait_ms": 300}, {"say": "two"}), id="r-1", stream=False)
        waiting = asyncio.ensure_future(alice.ask("POST", "/process", body, headers={"accept": "application/json"}))
        await alice.until_begun("r-1")
        await house.restart()
        reply = await waiting
        assert (reply.status, reply.json["error"]["code"]) == (503, "UNAVAILABLE")
        assert "goes on" in reply.json["error"]["message"]
        alice = Runtime(house.line, house.key("alice"))
        reply = await alice.ask("POST", "/process", body, headers={"accept": "application/json"})
        assert (reply.status, texts(reply.json)) == (200, "onetwo")


@requirement("agentscope:stream:output", "agentscope:stop:running")
async def test_a_session_that_is_deleted_under_a_stream_ends_it_as_canceled(alice: Runtime, house: House) -> None:
    name = a_name()
    running = await alice.stream(asks(WAIT, session_id=name))
    await running.until_said("one")
    assert (await house.face("alice").ask("DELETE", f"/sessions/{name}")).status == 204
    end = await running.end()
    assert (end["status"], texts(end)) == ("canceled", "one")
    assert await alice.refused("GET", f"/process/responses/{end['id']}") == "RESPONSE_NOT_FOUND"
    assert (await alice.run("hello", session_id=name))["status"] == "completed"


# --- requests that come twice -----------------------------------------------------------------------------------------


@requirement("agentscope:once:attach")
async def test_the_same_request_attaches_to_the_response_that_it_began(alice: Runtime) -> None:
    body = asks(user(WAIT, id="m-1"), id=a_name())
    running = await alice.stream(body)
    await running.until_said("one")
    again = await alice.stream(asks(user(WAIT, id="m-2", status="created", sequence_number=7), id=body["id"]))
    await again.until_said("one")
    assert await alice.stop(response_id=body["id"])
    assert await again.end() == await running.end()
    assert await alice.run(user(WAIT, id="m-3"), id=body["id"]) == running.events[-1]


@requirement("agentscope:once:attach", "agentscope:durable:restart")
async def test_an_id_is_remembered_as_long_as_its_session(open_house: HouseMaker) -> None:
    async with open_house(held_clock=True) as house:
        alice = Runtime(house.line, house.key("alice"))
        first = await alice.run("hello", id="r-1")
        house.clock.advance(days=30)
        await house.restart()
        alice = Runtime(house.line, house.key("alice"))
        assert await alice.run("hello", id="r-1") == first
        assert await alice.refused("POST", "/process", asks("other", id="r-1")) == "RESPONSE_EXISTS"


@requirement("agentscope:once:conflict")
async def test_another_request_with_the_same_id_is_refused(alice: Runtime) -> None:
    name, chosen = a_name(), a_name()
    await alice.run("hello", id=chosen, session_id=name)
    for body in (
        asks("other", id=chosen, session_id=name),
        asks("hello", id=chosen),
        asks("hello", id=chosen, session_id=a_name()),
        asks("hello", id=chosen, session_id=name, temperature=1),
        asks("hello", id=chosen, session_id=name, tools=[tool("x")]),
    ):
        reply = await alice.ask("POST", "/process", body)
        told = {"code": "RESPONSE_EXISTS", "message": "this id was used with another request"}
        assert (reply.status, reply.json) == (409, {"error": told})


@requirement("agentscope:once:concurrent")
async def test_two_at_the_same_moment_make_one_response(alice: Runtime) -> None:
    chosen, name = a_name(), a_name()
    ends = await asyncio.gather(*(alice.run("hello", id=chosen, session_id=name) for _ in range(5)))
    assert [end == ends[0] for end in ends] == [True] * 5
    assert texts(await alice.run(script({"recall": "user"}), session_id=name)) == "hello"


@requirement("agentscope:once:own")
async def test_another_owner_may_use_the_same_id(alice: Runtime, bob: Runtime) -> None:
    chosen = a_name()
    hers, his = await alice.run("hello", id=chosen), await bob.run("think", id=chosen)
    assert hers["session_id"] != his["session_id"]
    assert (await bob.ask("GET", f"/process/responses/{chosen}")).json == his
