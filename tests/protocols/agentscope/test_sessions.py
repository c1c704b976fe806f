"""Agent API, section 2.1 and the shared rules on identity: the owner and the id of a session."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

from tests.conversations import script
from tests.protocols.aap.client import AapClient
from tests.protocols.agentscope.client import AgentScopeClient, request_body, texts
from tests.requirements import requirement
from tests.servers import AppServer

Json = Any

WAIT = script({"say": "one"}, {"wait_ms": 600_000})


def a_name() -> str:
    return f"s-{uuid4()}"


async def user_texts(runtime: AgentScopeClient, session_id: str) -> str:
    """The user's messages in the session so far, without scripts."""
    return texts(await runtime.run(script({"recall": "user"}), session_id=session_id))


@requirement("agentscope:request:session-id", "agentscope:session:uuid")
async def test_a_session_without_an_id_gets_a_uuid_that_continues_it(alice: AgentScopeClient) -> None:
    first = await alice.run("one")
    assert UUID(first["session_id"]).version == 7
    assert await user_texts(alice, first["session_id"]) == "one"
    assert await user_texts(alice, first["session_id"].upper()) == "one"


@requirement("agentscope:session:uuid", "agentscope:session:any-protocol")
async def test_a_uuid_from_the_client_becomes_the_session_s_id(alice: AgentScopeClient, app_server: AppServer) -> None:
    chosen = str(uuid4())
    assert (await alice.run("one", session_id=chosen.upper()))["session_id"] == chosen
    assert await user_texts(alice, chosen) == "one"
    session = (await app_server.aap_client("alice").get(f"/sessions/{chosen}")).json
    assert session["sessionId"] == chosen


@requirement("agentscope:session:name", "agentscope:session:any-protocol")
async def test_any_other_id_is_a_name_in_the_caller_s_scope(
    alice: AgentScopeClient, bob: AgentScopeClient, app_server: AppServer
) -> None:
    name = a_name()
    assert (await alice.run("one", session_id=name))["session_id"] == name
    assert (await bob.run("two", session_id=name))["session_id"] == name
    assert (await user_texts(alice, name), await user_texts(bob, name)) == ("one", "two")
    ids = [(await app_server.aap_client(who).get(f"/sessions/{name}")).json["sessionId"] for who in ("alice", "bob")]
    assert len({UUID(each) for each in ids}) == 2
    phone = AgentScopeClient(app_server.connection, app_server.key("alice_phone"))
    assert await user_texts(phone, name) == "one"


@requirement("agentscope:session:foreign")
async def test_another_owner_s_id_is_only_a_name_for_the_caller(
    alice: AgentScopeClient, bob: AgentScopeClient, app_server: AppServer
) -> None:
    alice_id = (await alice.run("hers"))["session_id"]
    assert (await bob.run("his", session_id=alice_id))["session_id"] == alice_id
    assert (await user_texts(alice, alice_id), await user_texts(bob, alice_id)) == ("hers", "his")
    assert (await alice.request("GET", f"/process/sessions/{alice_id}/events")).status == 200
    bob_id = (await app_server.aap_client("bob").get(f"/sessions/{alice_id}")).json["sessionId"]
    assert bob_id != alice_id


@requirement("agentscope:session:busy", "agentscope:stop:free")
async def test_a_session_runs_one_response_at_a_time(alice: AgentScopeClient) -> None:
    name = a_name()
    running = await alice.stream(request_body(WAIT, session_id=name))
    await running.wait_for_text("one")
    reply = await alice.request("POST", "/process", request_body("hello", session_id=name))
    assert (reply.status, reply.json["error"]["code"]) == (409, "SESSION_BUSY")
    assert reply.headers["retry-after"] == "1"
    assert await alice.stop(session_id=name)
    assert (await alice.run("hello", session_id=name))["status"] == "completed"
    assert (await running.end())["status"] == "canceled"


@requirement("agentscope:session:busy")
async def test_of_concurrent_first_requests_one_runs(alice: AgentScopeClient) -> None:
    name = a_name()
    replies = await asyncio.gather(
        *(alice.open("POST", "/process", request_body(WAIT, session_id=name)) for _ in range(5)),
        return_exceptions=False,
    )
    assert sorted(reply.status for reply in replies) == [200, 409, 409, 409, 409]
    assert await alice.stop(session_id=name)
    assert await user_texts(alice, name) == "none"


@requirement("agentscope:session:anonymous")
async def test_requests_without_a_session_run_concurrently(alice: AgentScopeClient) -> None:
    running = [await alice.stream(request_body(WAIT)) for _ in range(3)]
    for each in running:
        await each.wait_for_text("one")
    ids = [each.events[0]["session_id"] for each in running]
    assert len(set(ids)) == 3
    for each in ids:
        assert await alice.stop(session_id=each)
    assert [(await each.end())["status"] for each in running] == ["canceled"] * 3


@requirement("agentscope:session:refused-leaves-nothing")
async def test_a_refused_first_request_leaves_no_session(alice: AgentScopeClient, app_server: AppServer) -> None:
    aap: AapClient = app_server.aap_client("alice")
    for body in (
        request_body("x" * 2_000_000),
        request_body({"role": "user", "content": [{"type": "image", "image_url": "ftp://x"}]}),
        request_body("hello", tools=[{"name": "no good name", "parameters": {"type": "object"}}]),
    ):
        name = a_name()
        assert await alice.assert_refused("POST", "/process", {**body, "session_id": name}) == "INVALID_REQUEST"
        assert (await aap.get(f"/sessions/{name}")).status == 404
        assert (await alice.request("GET", f"/process/sessions/{name}/events")).status == 204


@requirement("agentscope:replay:any-protocol")
async def test_a_run_of_another_protocol_can_be_followed(alice: AgentScopeClient, app_server: AppServer) -> None:
    session = await app_server.aap_client("alice").create(server_tools=[{"name": "add", "trust": True}])
    await session.run("add 1 and 2")
    reading = await alice.follow("GET", f"/process/sessions/{session.id}/events")
    end = await reading.end()
    assert (end["session_id"], texts(end)) == (session.id, "The sum is 3.")
    assert (await alice.request("GET", f"/process/responses/{end['id']}")).json == end
