"""Agent API, section 5: calls that wait for the client, and their answers."""

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from dragoman.server.loading import load
from tests.conversations import call, calls, script
from tests.protocols.agentscope.client import (
    AgentScopeClient,
    approval,
    data,
    output,
    pending,
    request_body,
    texts,
    tool,
    user,
)
from tests.protocols.agentscope.stream import Event
from tests.requirements import requirement
from tests.servers import AppServerFactory

Json = Any


def a_name() -> str:
    return f"s-{uuid4()}"


def types(response: Event) -> list[str]:
    return [message["type"] for message in response["output"]]


PICK = script(call("pick", hint="x"), {"say": "You picked {result}"})
STAMP = script(call("stamp", text="x"), {"say": "Then: {result}"})


async def picking(alice: AgentScopeClient) -> tuple[str, str]:
    """Start a session whose agent calls a client tool; return the session's name and the call's id."""
    name = a_name()
    first = await alice.run(PICK, session_id=name, tools=[tool("pick")])
    return name, pending(first)["pick"]


@requirement("agentscope:calls:client", "agentscope:calls:client-output")
async def test_a_call_of_a_client_tool_ends_the_response_and_its_output_continues_the_session(
    alice: AgentScopeClient,
) -> None:
    name = a_name()
    first = await alice.run(PICK, session_id=name, tools=[tool("pick")])
    assert (first["status"], types(first)) == ("completed", ["function_call"])
    payload = first["output"][0]["content"][0]["data"]
    assert payload == {"call_id": payload["call_id"], "name": "pick", "arguments": '{"hint":"x"}'}
    second = await alice.run(output(payload["call_id"], "green"), session_id=name)
    assert (types(second), texts(second)) == (["message"], "You picked green")
    assert second["id"] != first["id"]


@requirement("agentscope:calls:structured-output")
@pytest.mark.parametrize(("value", "read"), [({"a": [1]}, '{"a":[1]}'), ("", ""), (False, "false"), (3, "3")])
async def test_an_output_that_is_not_text_is_read_as_json(alice: AgentScopeClient, value: Json, read: str) -> None:
    name, call_id = await picking(alice)
    assert texts(await alice.run(output(call_id, value), session_id=name)) == f"You picked {read}"


@requirement("agentscope:calls:client-output")
@pytest.mark.parametrize("kind", ["plugin_call_output", "mcp_call_output", "component_call_output"])
async def test_an_output_of_any_type_answers_the_call(alice: AgentScopeClient, kind: str) -> None:
    name, call_id = await picking(alice)
    answer = data(kind, "tool", {"call_id": call_id, "output": "green"})
    assert texts(await alice.run(answer, session_id=name)) == "You picked green"


@requirement("agentscope:calls:kept-options", "agentscope:durable:restart")
async def test_a_run_that_continues_after_an_answer_keeps_its_tools_and_parameters(
    open_app_server: AppServerFactory,
) -> None:
    async with open_app_server() as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        asked = {"model": "picker", "tools": [tool("pick")], "temperature": 0.5, "max_tokens": 9}
        first = await alice.run("pick two", session_id="s-1", **asked)
        second = await alice.run(output(pending(first)["pick"], "red"), session_id="s-1", temperature=1.5)
        assert types(second) == ["function_call"]
        await server.restart()
        alice = AgentScopeClient(server.connection, server.key("alice"))
        third = await alice.run(output(pending(second)["pick"], "blue"), session_id="s-1", seed=7)
        assert json.loads(texts(third)) == {
            "picked": ["red", "blue"],
            "parameters": {"temperature": 1.5, "max_tokens": 9, "seed": 7},
        }


@requirement("agentscope:calls:kept-options", "agentscope:tools:function")
async def test_an_answer_can_take_the_tools_away_and_a_new_message_begins_without_them(alice: AgentScopeClient) -> None:
    name = a_name()
    picks_twice = script(call("pick", hint="x"), call("pick", hint="y"), {"say": "Then: {result}"})
    first = await alice.run(picks_twice, session_id=name, tools=[tool("pick")])
    second = await alice.run(output(pending(first)["pick"], "red"), session_id=name, tools=[])
    assert texts(second) == "Then: Tool not found: pick"
    await alice.run(PICK, session_id=name, tools=[tool("pick")])
    assert texts(await alice.run(PICK, session_id=name)) == "You picked Tool not found: pick"


@requirement("agentscope:calls:unknown", "agentscope:calls:answered")
async def test_only_a_waiting_call_accepts_an_output_and_only_once(alice: AgentScopeClient) -> None:
    name, call_id = await picking(alice)
    assert (
        await alice.assert_refused("POST", "/process", request_body(output("c", "x"), session_id=name))
        == "NOTHING_PENDING"
    )
    assert await alice.assert_refused("POST", "/process", request_body(output(call_id, "x"))) == "NOTHING_PENDING"
    await alice.run(output(call_id, "green"), session_id=name)
    assert (
        await alice.assert_refused("POST", "/process", request_body(output(call_id, "x"), session_id=name))
        == "NOTHING_PENDING"
    )


@requirement("agentscope:calls:answered")
async def test_of_concurrent_outputs_one_is_accepted(alice: AgentScopeClient) -> None:
    name, call_id = await picking(alice)
    body = request_body(output(call_id, "green"), session_id=name)
    replies = await asyncio.gather(*(alice.request("POST", "/process", body) for _ in range(4)))
    assert sorted(reply.status for reply in replies) == [200, 409, 409, 409]


@requirement("agentscope:calls:unknown")
@pytest.mark.parametrize(
    "message",
    [
        data("function_call_output", "tool", {"output": "x"}),
        data("function_call_output", "tool", {"call_id": 3, "output": "x"}),
        {"type": "function_call_output", "role": "tool", "content": "x"},
        data("mcp_approval_response", "user", {"approval_request_id": "x"}),
        data("mcp_approval_response", "user", {"approval_request_id": "x", "approve": "yes"}),
        data("mcp_approval_response", "user", {"approval_request_id": "x", "approve": True, "reason": 3}),
        data("mcp_approval_response", "user", {"approve": True}),
    ],
)
async def test_a_malformed_answer_is_refused(alice: AgentScopeClient, message: Json) -> None:
    name, _ = await picking(alice)
    assert await alice.assert_refused("POST", "/process", request_body(message, session_id=name)) == "INVALID_REQUEST"


@requirement("agentscope:calls:no-output", "agentscope:errors:form")
@pytest.mark.parametrize("payload", [{}, {"output": None}])
@pytest.mark.parametrize("kind", ["function_call_output", "plugin_call_output"])
async def test_an_answer_without_an_output_is_refused_and_the_call_still_waits(
    alice: AgentScopeClient, kind: str, payload: Json
) -> None:
    name, call_id = await picking(alice)
    body = request_body(data(kind, "tool", {"call_id": call_id, **payload}), session_id=name)
    reply = await alice.request("POST", "/process", body)
    assert (reply.status, reply.json["error"]["code"]) == (422, "INVALID_REQUEST")
    assert reply.json["detail"][0]["loc"] == ["body", "input", 0, "content", 0, "data", "output"]
    assert texts(await alice.run(output(call_id, "green"), session_id=name)) == "You picked green"


@requirement("agentscope:calls:fitting")
async def test_a_call_accepts_only_the_kind_of_answer_it_waits_for(alice: AgentScopeClient) -> None:
    """A client cannot give the result of a server's tool, and a client tool needs no approval."""
    name, call_id = await picking(alice)
    approving = a_name()
    stamp = pending(await alice.run(STAMP, session_id=approving))["stamp"]
    question = a_name()
    choose = pending(await alice.run("ask me", session_id=question))["AskUserQuestion"]
    for session, wrong in (
        (name, approval(call_id, approve=True)),
        (name, approval(call_id, approve=False)),
        (approving, output(stamp, "forged")),
        (approving, data("plugin_call_output", "tool", {"call_id": stamp, "output": "forged"})),
        (question, approval(choose, approve=True)),
    ):
        assert (
            await alice.assert_refused("POST", "/process", request_body(wrong, session_id=session)) == "NOTHING_PENDING"
        )
    assert texts(await alice.run(output(call_id, "green"), session_id=name)) == "You picked green"
    assert texts(await alice.run(approval(stamp, approve=True), session_id=approving)) == "Then: stamped x"
    assert texts(await alice.run(output(choose, "staging"), session_id=question)) == "You chose staging."


@requirement("agentscope:calls:fitting")
async def test_a_sub_agent_s_call_is_answered_only_by_its_own_id(alice: AgentScopeClient) -> None:
    name = a_name()
    steps = script({"fork": {"description": "dig", "script": [call("stamp", text="x")]}}, {"say": "{result}"})
    first = await alice.run(steps, session_id=name)
    above = first["output"][0]["content"][0]["data"]["call_id"]
    for wrong in (approval(above, approve=True), output(above, "forged")):
        assert await alice.assert_refused("POST", "/process", request_body(wrong, session_id=name)) == "NOTHING_PENDING"
    end = await alice.run(approval(pending(first)["stamp"], approve=True), session_id=name)
    assert (end["status"], types(end)[:2]) == ("completed", ["plugin_call", "plugin_call_output"])


@requirement("agentscope:calls:new-message")
async def test_a_plain_message_closes_open_calls(alice: AgentScopeClient) -> None:
    name, call_id = await picking(alice)
    assert texts(await alice.run("hello", session_id=name)) == "Hello! I am the rehearsal agent."
    assert (
        await alice.assert_refused("POST", "/process", request_body(output(call_id, "x"), session_id=name))
        == "NOTHING_PENDING"
    )


@requirement("agentscope:calls:partial")
@pytest.mark.parametrize("is_stream", [True, False])
async def test_answers_are_accepted_one_by_one(alice: AgentScopeClient, is_stream: bool) -> None:
    name = a_name()
    both = script(calls(("pick", {}), ("stamp", {"text": "x"})), {"say": "{results}"})
    first = await alice.run(both, session_id=name, tools=[tool("pick")])
    call_ids = pending(first)
    assert types(first) == ["function_call", "mcp_approval_request"]
    body = request_body(output(call_ids["pick"], "green"), session_id=name, stream=is_stream, id=a_name())
    if is_stream:
        response = await (await alice.stream(body)).end()
    else:
        response = (await alice.request("POST", "/process", body, headers={"accept": "application/json"})).json
    assert (response["status"], response["output"], response["id"], response["session_id"]) == (
        "completed",
        [],
        body["id"],
        name,
    )
    again = await (await alice.stream(body | {"stream": True})).end()
    assert (again["output"], again["id"]) == ([], body["id"])
    second = await alice.run(first["output"][1], approval(call_ids["stamp"], approve=True), session_id=name)
    assert (types(second), texts(second)) == (["plugin_call", "plugin_call_output", "message"], "green, stamped x")


@requirement("agentscope:calls:question")
@pytest.mark.parametrize(
    ("answer", "expected_text"),
    [
        ('{"selections": ["production"]}', "production"),
        ("staging please", "staging please"),
        ({"selections": [0]}, "staging"),
    ],
)
async def test_a_question_is_a_function_call_and_its_output_is_the_answer(
    alice: AgentScopeClient, answer: Json, expected_text: str
) -> None:
    name = a_name()
    first = await alice.run("ask me", session_id=name)
    assert types(first) == ["function_call"]
    second = await alice.run(output(pending(first)["AskUserQuestion"], answer), session_id=name)
    assert (types(second), texts(second)) == (["message"], f"You chose {expected_text}.")


@requirement("agentscope:calls:question")
async def test_an_answer_with_an_unknown_option_is_refused_and_can_be_corrected(alice: AgentScopeClient) -> None:
    name = a_name()
    call_id = pending(await alice.run("ask me", session_id=name))["AskUserQuestion"]
    wrong = request_body(output(call_id, '{"selections": ["moon"]}'), session_id=name)
    assert await alice.assert_refused("POST", "/process", wrong) == "INVALID_REQUEST"
    assert texts(await alice.run(output(call_id, "neither"), session_id=name)) == "You chose neither."


@requirement("agentscope:calls:seeded")
async def test_a_new_session_can_start_with_a_call_and_its_output(alice: AgentScopeClient) -> None:
    opened = data("function_call", "assistant", {"call_id": "c-1", "name": "pick", "arguments": '{"hint":"x"}'})
    end = await alice.run(user(PICK), opened, output("c-1", "green"), tools=[tool("pick")])
    assert texts(end) == "You picked green"


@requirement("agentscope:calls:seeded", "agentscope:approval:not-forged")
async def test_a_session_that_starts_with_calls_does_not_wait_for_them(alice: AgentScopeClient) -> None:
    """Otherwise a client could approve a call without an approval request."""
    name = a_name()
    pick = data("function_call", "assistant", {"call_id": "c-1", "name": "pick", "arguments": "{}"})
    stamp = data("plugin_call", "assistant", {"call_id": "c-2", "name": "stamp", "arguments": '{"text":"forged"}'})
    body = request_body("hello", pick, stamp, output("c-1", "green"), session_id=name, tools=[tool("pick")])
    assert await alice.assert_refused("POST", "/process", body) == "NOTHING_PENDING"
    late = request_body(approval("c-2", approve=True), session_id=name)
    assert await alice.assert_refused("POST", "/process", late) == "NOTHING_PENDING"


# --- approvals --------------------------------------------------------------------------------------------------------


@requirement("agentscope:approval:request", "agentscope:approval:granted")
async def test_an_approved_call_runs_in_a_new_response_that_repeats_the_call(alice: AgentScopeClient) -> None:
    name = a_name()
    first = await alice.run(STAMP, session_id=name)
    assert (first["status"], types(first)) == ("completed", ["mcp_approval_request"])
    request = first["output"][0]["content"][0]["data"]
    assert request == {"id": request["id"], "name": "stamp", "arguments": '{"text":"x"}', "server_label": "agent"}
    second = await alice.run(first["output"][0], approval(request["id"], approve=True), session_id=name)
    called, settled, _ = second["output"]
    assert called["content"][0]["data"] == {"call_id": request["id"], "name": "stamp", "arguments": '{"text":"x"}'}
    assert settled["content"][0]["data"] == {"call_id": request["id"], "name": "stamp", "output": "stamped x"}
    assert texts(second) == "Then: stamped x"


@requirement("agentscope:approval:denied")
@pytest.mark.parametrize(
    ("reason", "expected"), [(None, "Tool call denied"), ("not on Fridays", "Tool call denied: not on Fridays")]
)
async def test_a_denied_call_is_reported_to_the_agent(
    alice: AgentScopeClient, reason: str | None, expected: str
) -> None:
    name = a_name()
    call_id = pending(await alice.run(STAMP, session_id=name))["stamp"]
    end = await alice.run(approval(call_id, approve=False, reason=reason), session_id=name)
    assert end["output"][1]["content"][0]["data"]["output"] == expected
    assert texts(end) == f"Then: {expected}"


@requirement("agentscope:approval:twice", "agentscope:approval:not-forged")
async def test_only_an_open_approval_request_can_be_answered_and_only_once(
    alice: AgentScopeClient, bob: AgentScopeClient
) -> None:
    name = a_name()
    first = await alice.run(STAMP, session_id=name)
    request, call_id = first["output"][0], pending(first)["stamp"]
    yes = approval(call_id, approve=True)
    for asker, body in (
        (alice, request_body(approval("nothing", approve=True), session_id=name)),
        (alice, request_body(request, yes)),
        (alice, request_body(request, yes, session_id=a_name())),
        (alice, request_body(STAMP, request, yes)),
        (bob, request_body(request, yes, session_id=name)),
        (bob, request_body(request, yes, session_id=first["session_id"])),
    ):
        assert await asker.assert_refused("POST", "/process", body) == "NOTHING_PENDING"
    assert texts(await alice.run(request, yes, session_id=name)) == "Then: stamped x"
    assert (
        await alice.assert_refused("POST", "/process", request_body(request, yes, session_id=name)) == "NOTHING_PENDING"
    )


@requirement("agentscope:approval:granted", "agentscope:history:resent")
async def test_an_answer_after_a_resent_history_is_found(alice: AgentScopeClient) -> None:
    name = a_name()
    earlier = await alice.run("hello", session_id=name)
    first = await alice.run(STAMP, session_id=name)
    sent = [user("hello"), *earlier["output"], user(STAMP), *first["output"]]
    end = await alice.run(*sent, approval(pending(first)["stamp"], approve=True), session_id=name)
    assert texts(end) == "Then: stamped x"


TRIP = Path(__file__).parents[3] / "examples" / "trip.py"


@requirement("agentscope:calls:question", "agentscope:approval:granted", "agentscope:durable:restart")
async def test_a_function_agent_asks_and_waits_across_restarts(open_app_server: AppServerFactory) -> None:
    async with open_app_server(agents=load(str(TRIP))) as server:
        first = await AgentScopeClient(server.connection, server.key("alice")).run(
            "Paris", model="trip", session_id="s-1"
        )
        question = first["output"][-1]["content"][0]["data"]
        train = json.loads(question["arguments"])["questions"][0]["options"][1]["label"]
        await server.restart()
        alice = AgentScopeClient(server.connection, server.key("alice"))
        second = await alice.run(output(question["call_id"], json.dumps({"selections": [1]})), session_id="s-1")
        assert types(second) == ["mcp_approval_request"]
        await server.restart()
        alice = AgentScopeClient(server.connection, server.key("alice"))
        answer = approval(pending(second)["buy"], approve=True)
        third = await alice.run(second["output"][0], answer, session_id="s-1")
        assert types(third) == ["plugin_call", "plugin_call_output", "message"]
        assert texts(third).startswith(f"Done: ticket for {train}, second class")
