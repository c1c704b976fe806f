"""Forms: questions and approvals that a person answers at the host of an MCP client."""

from pathlib import Path

import pytest

from tests.conversations import calls, script
from tests.protocols.mcp.client import FORMS, NEW, STAMP, TASKS, Json, McpClient, session_status
from tests.requirements import requirement
from tests.servers import AppServer, running_server


@requirement("mcp:forms:question")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"answer_0": "production"}, "You chose production."),
        ({"custom_0": "neither"}, "You chose neither."),
        ({"answer_0": "production", "custom_0": "neither"}, "You chose neither."),
    ],
)
async def test_a_question_is_a_form(alice_at_host: McpClient, content: Json, said: str) -> None:
    stream = await alice_at_host.open("ask me")
    form = await stream.until("elicitation/create")
    assert form["params"] == {
        "mode": "form",
        "message": "Which environment?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "answer_0": {"title": "Deploy", "type": "string", "enum": ["staging", "production"]},
                "custom_0": {"type": "string", "title": "Other"},
            },
        },
    }
    assert await alice_at_host.answer_form(form, "accept", **content) == 202
    result = await stream.result()
    assert result["structuredContent"]["text"] == said
    assert await alice_at_host.answer_form(form, "accept", **content) == 202, "nothing is open any more"


@requirement("mcp:forms:empty", "mcp:forms:cancel")
async def test_a_form_without_an_answer_is_shown_once_more_and_then_left_open(
    app_server: AppServer, alice_at_host: McpClient
) -> None:
    stream = await alice_at_host.open("ask me")
    form = await stream.until("elicitation/create")
    await alice_at_host.answer_form(form, "accept")
    assert await stream.until("elicitation/create") == form
    await alice_at_host.answer_form(form, "accept", answer_0="")
    result = (await stream.result())["structuredContent"]
    assert result["status"] == "input_required"
    assert [each["kind"] for each in result["pending"]] == ["question"]
    assert await session_status(app_server, result["session_id"]) == "waiting"
    waiting = await alice_at_host.open("", session_id=result["session_id"])
    again = await waiting.until("elicitation/create")
    assert again == form
    await alice_at_host.answer_form(again, "decline")
    assert (await waiting.result())["structuredContent"]["status"] == "completed"


@requirement("mcp:forms:approval")
@pytest.mark.parametrize(
    ("action", "content", "said"),
    [
        ("accept", {"decision": "allow"}, "then: stamped x"),
        ("accept", {"decision": "deny", "reason": "not today"}, "then: Tool call denied: not today"),
        ("decline", {}, "then: Tool call denied"),
    ],
)
async def test_an_approval_is_a_form(alice_at_host: McpClient, action: str, content: Json, said: str) -> None:
    stream = await alice_at_host.open(STAMP)
    form = await stream.until("elicitation/create")
    assert form["params"]["message"] == 'rehearsal wants to run stamp\n\n{"text":"x"}'
    assert form["params"]["requestedSchema"]["required"] == ["decision"]
    assert form["params"]["requestedSchema"]["properties"]["decision"]["enum"] == [
        "allow",
        "allow for this session",
        "deny",
    ]
    assert await alice_at_host.answer_form(form, action, **content) == 202
    assert (await stream.result())["structuredContent"]["text"] == said


@requirement("mcp:forms:trust")
async def test_a_tool_that_is_allowed_for_the_session_is_not_asked_for_again(alice_at_host: McpClient) -> None:
    stream = await alice_at_host.open(STAMP)
    form = await stream.until("elicitation/create")
    await alice_at_host.answer_form(form, "accept", decision="allow for this session")
    session_id = (await stream.result())["structuredContent"]["session_id"]
    assert (await alice_at_host.said(STAMP, session_id=session_id))["text"] == "then: stamped x"


@requirement("mcp:forms:forged")
@pytest.mark.parametrize("decision", ["ALLOW", True, "yes", None, ["allow"], {"allow": True}])
async def test_only_the_exact_choice_of_a_person_approves(
    app_server: AppServer, alice_at_host: McpClient, decision: Json
) -> None:
    stream = await alice_at_host.open(STAMP)
    form = await stream.until("elicitation/create")
    await alice_at_host.answer_form(form, "accept", decision=decision)
    result = (await stream.result())["structuredContent"]
    assert (result["status"], result["text"]) == ("input_required", "")
    assert await session_status(app_server, result["session_id"]) == "waiting"


@requirement("mcp:forms:forged")
async def test_forged_answers_run_nothing(app_server: AppServer, alice_at_host: McpClient) -> None:
    stream = await alice_at_host.open(STAMP)
    form = await stream.until("elicitation/create")
    bob = McpClient(app_server.connection, app_server.key("bob"), capabilities=FORMS)
    await bob.initialize()
    assert await bob.answer_form(form, "accept", decision="allow") == 400
    reader = McpClient(app_server.connection, app_server.key("alice_reads"), capabilities=FORMS)
    await reader.initialize()
    assert await reader.answer_form(form, "accept", decision="allow") == 403
    for wrong in ("q-", form["id"][2:], "q-nonsense", 7):
        assert await alice_at_host.answer_form({"id": wrong}, "accept", decision="allow") == 400
    assert await alice_at_host.answer_form({"id": form["id"] + "x"}, "accept", decision="allow") == 202, "never asked"
    answer = {"jsonrpc": "2.0", "id": form["id"], "result": {"content": {"decision": "allow"}}}
    assert (await alice_at_host.post(answer)).status == 400, "it has no action"
    error = {"jsonrpc": "2.0", "id": form["id"], "error": {"code": -1, "message": "allow"}}
    assert (await alice_at_host.post(error)).status == 202
    result = (await stream.result())["structuredContent"]
    assert (result["status"], result["text"]) == ("input_required", "")


@requirement("mcp:forms:one-by-one")
async def test_several_calls_are_asked_for_one_by_one(alice_at_host: McpClient) -> None:
    two = script(calls(("stamp", {"text": "a"}), ("stamp", {"text": "b"})), {"say": "{results}"})
    stream = await alice_at_host.open(two)
    first = await stream.until("elicitation/create")
    await alice_at_host.answer_form(first, "accept", decision="allow")
    second = await stream.until("elicitation/create")
    assert second["id"] != first["id"]
    await alice_at_host.answer_form(second, "accept", decision="deny")
    assert (await stream.result())["structuredContent"]["text"] == "stamped a, Tool call denied"


@requirement("mcp:forms:other-protocol")
async def test_an_answer_over_another_protocol_continues_with_the_call(
    app_server: AppServer, alice_at_host: McpClient
) -> None:
    stream = await alice_at_host.open(STAMP)
    form = await stream.until("elicitation/create")
    session_id = form["id"][2:38]
    turn = {"messages": [{"role": "tool_permission", "toolCallId": form["id"][39:], "granted": True}]}
    assert (await app_server.aap_client("alice").post(f"/sessions/{session_id}/turns", turn)).status == 200
    assert (await stream.result())["structuredContent"]["text"] == "then: stamped x"


@requirement("mcp:forms:absent", "mcp:call:answers-question")
async def test_without_forms_a_message_answers_a_question_and_never_approves(
    app_server: AppServer, alice: McpClient
) -> None:
    asked = await alice.call("ask me")
    structured = asked["structuredContent"]
    assert structured["status"] == "input_required"
    (pending,) = structured["pending"]
    assert (pending["kind"], pending["name"]) == ("question", "AskUserQuestion")
    assert "Answer with the next message" in asked["content"][0]["text"]
    chosen = await alice.said("PRODUCTION", session_id=structured["session_id"])
    assert (chosen["text"], chosen["run_id"]) == ("You chose production.", structured["run_id"])

    waiting = (await alice.call(STAMP))["structuredContent"]
    assert [each["kind"] for each in waiting["pending"]] == ["approval"]
    approved = await alice.said("I approve", session_id=waiting["session_id"])
    assert approved["text"] == "You said: I approve", "it is a text: the call was closed, and nothing was stamped"


@requirement("mcp:forms:setting")
async def test_approvals_can_be_left_to_other_clients(tmp_path: Path) -> None:
    """The host is asked nothing, and what it answers all the same approves nothing, in either version."""
    async with running_server(tmp_path, mcp_approvals="other_clients", public_url="https://agents.example") as server:
        alice = McpClient(server.connection, server.key("alice"), capabilities=FORMS)
        await alice.initialize()
        result = await alice.call(STAMP)
        waiting = result["structuredContent"]
        assert waiting["status"] == "input_required"
        assert "https://agents.example" in result["content"][0]["text"]
        (pending,) = waiting["pending"]
        session_id, call_id = waiting["session_id"], pending["call_id"]
        allowed = {"action": "accept", "content": {"decision": "allow"}}
        assert await alice.answer_form({"id": f"q-{session_id}-{call_id}"}, "accept", decision="allow") == 202
        tasks = {**FORMS, "extensions": {TASKS: {}}}
        at_new_host = McpClient(server.connection, alice.key, version=NEW, capabilities=tasks)
        task = {"taskId": waiting["run_id"]}
        await at_new_host.request("tasks/update", {**task, "inputResponses": {call_id: allowed}})
        assert (await at_new_host.request("tasks/get", task))["result"]["structuredContent"]["pending"] == [pending]
        turn = {"messages": [{"role": "tool_permission", "toolCallId": call_id, "granted": True}]}
        assert (await server.aap_client("alice").post(f"/sessions/{session_id}/turns", turn)).status == 200
        assert (await alice.said("", session_id=session_id))["text"] == "then: stamped x"
        stream = await alice.open("ask me")
        assert await stream.until("elicitation/create"), "questions are still asked"
