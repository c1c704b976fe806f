"""A session whose agent is no longer served: it can be read over every protocol, and its turns are clearly refused."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID, uuid4

import pytest

import dragoman
from dragoman import agent
from tests.protocols.a2a.client import A2aClient, said
from tests.protocols.a2a.client import message as a2a_message
from tests.protocols.aap.client import AapClient, Session, assert_refusal, user
from tests.protocols.agentscope.client import AgentScopeClient, request_body
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.agui.run_service import RunServiceClient, run_input
from tests.protocols.aisdk.client import Pages
from tests.protocols.aisdk.client import user as page_message
from tests.protocols.blade.client import RestClient, socket_client
from tests.protocols.blade.driver import url_of
from tests.protocols.mcp.client import NEW, OLD, McpClient
from tests.protocols.openai.client import OpenAiClient
from tests.requirements import requirement
from tests.servers import SocketServer, running_server, running_socket_server


@agent(history=True)
async def gone(run: dragoman.Run) -> AsyncIterator[str]:
    """Answers once, and is then removed."""
    yield f"You said: {run.text}"


@agent(history=True)
async def left(run: dragoman.Run) -> AsyncIterator[str]:
    """The agent that is left."""
    yield "somebody else"


@agent(history=True)
async def busy(run: dragoman.Run) -> AsyncIterator[str]:
    """Answers until it is stopped, and is then removed."""
    yield "So"
    await asyncio.Event().wait()


class OldThread(NamedTuple):
    """A thread whose agent was removed, and its server."""

    server: SocketServer
    id: str
    response: str
    """The id of its turn's response in OpenAI's API."""

    @property
    def key(self) -> str:
        return self.server.key("alice")


@pytest.fixture(scope="module")
async def thread(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OldThread]:
    async with running_socket_server(tmp_path_factory.mktemp("gone"), agents=[gone, left], rehearsal=False) as server:
        client = OpenAiClient(server.connection, server.key("alice"))
        conversation = (await client.post("/conversations", {}))["id"]
        response = await client.respond("hello", model="gone", conversation=conversation)
        thread = OldThread(server, str(UUID(conversation.removeprefix("conv_"))), response["id"])
        server.app_server.agents = [left]
        await server.restart()
        yield thread


@requirement("aap:errors:agent-not-served")
async def test_aap_shows_the_history_and_answers_a_turn_with_409(thread: OldThread) -> None:
    session = Session(AapClient(thread.server.connection, thread.key), thread.id)
    assert [each["role"] for each in await session.history()] == ["user", "assistant"]
    assert (await session.info())["agent"]["name"] == "gone"
    assert_refusal(await session.post([user("and now?")]), 409, "agent_not_served")
    assert len(await session.history()) == 2


@requirement("ag-ui-b:threads:agent-not-served")
async def test_ag_ui_shows_the_thread_and_answers_a_run_with_an_error_event(thread: OldThread) -> None:
    endpoint = Endpoint(thread.server.connection, thread.key, agent="gone")
    assert [each["role"] for each in await endpoint.messages(thread.id)] == ["user", "assistant"]
    assert (await endpoint.connect(an_input(thread=thread.id, messages=[]))).types[-1] == "RUN_FINISHED"
    (error,) = (await endpoint.run(an_input("and now?", thread=thread.id))).events
    assert (error["type"], error["code"]) == ("RUN_ERROR", "agent_not_served")
    unknown = await endpoint.run(an_input("a new thread"))
    assert (unknown.status, unknown.json["code"]) == (404, "unknown_agent")


@requirement("runs:errors:agent-not-served")
@pytest.mark.parametrize("agent_type", ["gone", "worker"])
async def test_the_run_service_shows_the_history_and_answers_a_run_with_409(thread: OldThread, agent_type: str) -> None:
    service = RunServiceClient(thread.server.connection, thread.key)
    history = await service.get(f"/history?threadId={thread.id}")
    assert [each["content"] for each in history.json["messages"]] == ["hello", "You said: hello"]
    body = run_input(thread.id, "and now?")
    body["forwardedProps"]["agent_type"] = agent_type
    refused = await service.post("/runs", body)
    assert (refused.status, refused.json["code"]) == (409, "AGENT_NOT_SERVED")
    body["threadId"] = str(uuid4())
    assert (await service.post("/runs", body)).status == (202 if agent_type == "worker" else 422)


@requirement("runs:errors:agent-not-served")
async def test_a_run_queued_for_a_removed_agent_fails_when_the_one_before_it_is_cancelled(
    tmp_path: Path,
) -> None:
    async with running_server(tmp_path, agents=[busy, left], rehearsal=False, drain_s=0) as server:
        service, thread_id = RunServiceClient(server.connection, server.key("alice")), str(uuid4())
        for number, text in enumerate(["hello", "and now?"]):
            body = run_input(thread_id, text, f"r-{number}")
            body["forwardedProps"]["agent_type"] = "busy"
            await service.submit(body)
        await server.restart([left])
        service = RunServiceClient(server.connection, server.key("alice"))
        cancelled = await service.request("POST", f"/runs/{thread_id}/cancel?runId=r-0")
        assert (cancelled.status, cancelled.json["accepted"]) == (202, True)
        assert (await service.events(thread_id, "r-0"))[-1].event["outcome"]["type"] == "cancelled"
        error = (await service.events(thread_id, "r-1"))[-1].event
        assert (error["type"], error["code"]) == ("RUN_ERROR", "agent_gone")
        shown = (await service.history(thread_id))["messages"]
        assert [each["content"] for each in shown if each["role"] == "user"] == ["hello", "and now?"]


@requirement("agentscope:errors:agent-not-served")
@pytest.mark.parametrize("model", [None, "gone", "qwen-max"])
async def test_the_agent_api_answers_a_request_with_409(thread: OldThread, model: str | None) -> None:
    client = AgentScopeClient(thread.server.connection, thread.key)
    body = request_body("and now?", session_id=thread.id, **({} if model is None else {"model": model}))
    assert await client.assert_refused("POST", "/process", body) == "AGENT_NOT_SERVED"


@requirement("openai:errors:agent-not-served")
async def test_openais_api_shows_the_items_and_answers_a_request_with_400(thread: OldThread) -> None:
    client = OpenAiClient(thread.server.connection, thread.key)
    conversation = f"conv_{thread.id.replace('-', '')}"
    items = (await client.get(f"/conversations/{conversation}/items?order=asc"))["data"]
    assert [each["role"] for each in items] == ["user", "assistant"]
    body = {"input": "and now?", "conversation": conversation}
    previous = {"input": "and now?", "previous_response_id": thread.response}
    for request in (body, previous, {**body, "model": "gone"}, {**previous, "model": "gone"}):
        assert await client.refused("POST", "/responses", request) == (400, "agent_not_served", "")
    elsewhere = await client.refused("POST", "/responses", {**body, "model": "left"})
    assert elsewhere == (400, "model_mismatch", "model")
    new = await client.refused("POST", "/responses", {"input": "hello", "model": "gone"})
    assert new == (404, "model_not_found", "model")
    response = await client.get(f"/responses/{thread.response}")
    assert response["output"][0]["content"][0]["text"] == "You said: hello"


@requirement("openai:errors:agent-not-served")
async def test_a_chat_with_a_session_key_is_answered_with_400(thread: OldThread) -> None:
    client = OpenAiClient(thread.server.connection, thread.key)
    said = [("user", "hello"), ("assistant", "You said: hello"), ("user", "and now?")]
    messages = [{"role": role, "content": content} for role, content in said]
    body = {"model": "gone", "messages": messages, "metadata": {"dragoman_session": thread.id}}
    assert await client.refused("POST", "/chat/completions", body) == (400, "agent_not_served", "")
    new = await client.refused("POST", "/chat/completions", {**body, "metadata": {}})
    assert new == (404, "model_not_found", "model")


@requirement("ai-sdk:errors:agent-not-served")
async def test_the_ai_sdk_shows_the_messages_and_answers_a_request_with_409(thread: OldThread) -> None:
    pages = Pages(thread.server.connection, thread.key, agent="gone")
    shown = await pages.history(thread.id)
    assert [each["role"] for each in shown] == ["user", "assistant"]
    refused = await pages.post(thread.id, *shown, page_message("and now?", "u2"))
    assert (refused.status, refused.code) == (409, "agent_not_served")


@requirement("a2a:errors:agent-not-served")
async def test_a2a_shows_the_task_and_refuses_a_message(thread: OldThread) -> None:
    client = A2aClient(thread.server.connection, thread.key, agent="gone")
    (task,) = (await client.list(contextId=thread.id))["tasks"]
    assert said(await client.get(task["id"])) == "You said: hello"
    refused = await client.request("SendMessage", {"message": a2a_message("and now?", contextId=thread.id)})
    assert "'gone', is not served here" in json.loads(refused.body)["error"]["message"]
    nobody = A2aClient(thread.server.connection, thread.key, agent="nobody")
    for method, params in (("ListTasks", {}), ("SendMessage", {"message": a2a_message("hello")})):
        unknown = await nobody.request(method, params)
        assert json.loads(unknown.body)["error"]["message"] == "there is no such agent"


@requirement("mcp:resources:agent-not-served")
@pytest.mark.parametrize("version", [OLD, NEW])
async def test_mcp_shows_the_conversation_and_has_no_tool_for_it(thread: OldThread, version: str) -> None:
    host = McpClient(thread.server.connection, thread.key, version=version)
    if version == OLD:
        await host.initialize()
    uri = f"dragoman://sessions/{thread.id}"
    assert uri in [each["uri"] for each in (await host.request("resources/list"))["resources"]]
    (content,) = (await host.request("resources/read", {"uri": uri}))["contents"]
    assert "You said: hello" in content["text"]
    assert [each["name"] for each in (await host.request("tools/list"))["tools"]] == ["left"]


@requirement("blade:errors:agent-not-served")
async def test_blade_shows_the_session_and_refuses_a_chat(thread: OldThread) -> None:
    rest, session = RestClient(url_of(thread.server), thread.key), f"sess_{thread.id}"
    assert [turn["role"] for turn in await rest.messages(session)] == ["user", "assistant"]
    assert session in [each["id"] for each in (await rest.get("sessions"))["items"]]
    renamed = await rest.request("PATCH", f"sessions/{session}", {"intent": "an old one"})
    assert (renamed.status, renamed.body["intent"]) == (200, "an old one")
    async with socket_client(rest.url, rest.key) as socket:
        answer = await socket.call("chat:send", {"session_id": session, "message": "and now?"})
        assert (answer["status"], answer["code"]) == ("error", "agent_not_served")


@requirement("blade:errors:agent-not-served")
async def test_a_session_of_a_removed_agent_can_be_deleted(thread: OldThread) -> None:
    rest = RestClient(url_of(thread.server), thread.key)
    assert (await rest.request("DELETE", f"sessions/sess_{thread.id}")).status == 200
