"""One session over every protocol: what one does, all others show and can continue (shared rules 1, 11, 17, 20).

`ProtocolClients` has a client for each protocol of one server. Each test acts over one and checks the others.
"""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.protocols.a2a.client import A2aClient, said
from tests.protocols.aap.client import AapClient, Session, call, enabled_tools, grant, script, user
from tests.protocols.agentscope.client import AgentScopeClient, approval, pending, request_body
from tests.protocols.agentscope.client import texts as text_of
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.agui.run_service import RunServiceClient, StreamReader, run_input
from tests.protocols.aisdk.client import Pages
from tests.protocols.aisdk.client import user as page_message
from tests.protocols.blade.client import RestClient, SocketClient
from tests.protocols.blade.driver import url_of
from tests.protocols.every_protocol import for_every_protocol
from tests.protocols.mcp.client import NEW, McpClient
from tests.protocols.openai.client import OpenAiClient
from tests.protocols.openai.client import approval as approval_item
from tests.servers import ServerProcess, SocketServer, running_socket_server, server_process

Json = Any


class ProtocolClients:
    """The clients of one key, one per protocol, which talk to one agent."""

    def __init__(self, server: SocketServer | ServerProcess, name: str, *, agent: str = "rehearsal") -> None:
        key = server.key(name)
        self.aap = AapClient(server.connection, key)
        self.ag_ui = Endpoint(server.connection, key)
        self.runs = RunServiceClient(server.connection, key)
        self.agentscope = AgentScopeClient(server.connection, key)
        self.openai = OpenAiClient(server.connection, key)
        self.ai_sdk = Pages(server.connection, key, agent)
        self.blade = RestClient(url_of(server), key)
        self.tab = SocketClient(url_of(server), key)
        self.a2a = A2aClient(server.connection, key, agent=agent)
        self.mcp = McpClient(server.connection, key, version=NEW)

    async def histories_by_protocol(self, session_id: str) -> Mapping[str, list[str]]:
        """The texts of the user and the agent, from each protocol that has a history."""
        aap = await Session(self.aap, session_id).history()
        ag_ui = await self.ag_ui.messages(session_id)
        service = (await self.runs.get(f"/history?threadId={session_id}")).json["messages"]
        turns = await self.blade.messages(f"sess_{session_id}")
        path = f"/conversations/{conversation_of(session_id)}/items?order=asc&limit=100"
        items = (await self.openai.get(path))["data"]
        ai_sdk = await self.ai_sdk.history(session_id)
        return for_every_protocol(
            {
                "ai_sdk": [message_text(each["parts"]) for each in ai_sdk],
                "aap": [message_text(each["content"]) for each in aap if each["role"] != "tool"],
                "agui": [
                    message_text(each.get("content") or "") for each in ag_ui if each["role"] in ("user", "assistant")
                ],
                "run_service": [each["content"] for each in service],
                "blade": [message_text(each["blocks"]) for each in turns if each["role"] != "system"],
                "openai": [
                    "".join(part["text"] for part in each["content"]) for each in items if each["type"] == "message"
                ],
            },
            without={
                "agentscope": "it shows a response, not a session",
                "mcp": "it shows the messages of one call",
                "a2a": "a task is one run",
            },
        )


def conversation_of(session_id: str) -> str:
    """The session's id in OpenAI's API."""
    return f"conv_{session_id.replace('-', '')}"


def message_text(content: Json) -> str:
    """The text of a message, in any protocol's form."""
    if isinstance(content, str):
        return content
    return "".join(each.get("text") or each.get("content") or "" for each in content if each["type"] == "text")


@pytest.fixture(scope="module")
async def app_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    async with running_socket_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def protocol_clients(app_server: SocketServer) -> ProtocolClients:
    return ProtocolClients(app_server, "alice")


async def test_every_protocol_continues_a_session_and_all_histories_are_the_same(
    protocol_clients: ProtocolClients,
) -> None:
    session = await protocol_clients.aap.create()
    await session.run("over AAP")
    await protocol_clients.ag_ui.run(an_input("over AG-UI", thread=session.id))
    await protocol_clients.runs.play(session.id, "over the run service")
    response = await protocol_clients.agentscope.run("over the Agent API", session_id=session.id)
    assert response["status"] == "completed"
    await protocol_clients.tab.connect()
    await protocol_clients.tab.send(f"sess_{session.id}", "over Blade")
    await protocol_clients.tab.leave()
    conversation = conversation_of(session.id)
    assert (await protocol_clients.openai.respond("over OpenAI's API", conversation=conversation))["output"]
    prompts = [
        "over AAP",
        "over AG-UI",
        "over the run service",
        "over the Agent API",
        "over Blade",
        "over OpenAI's API",
        "over MCP",
        "over the AI SDK",
        "over A2A",
    ]
    assert (await protocol_clients.mcp.said("over MCP", session_id=session.id))["text"] == "You said: over MCP"
    page = await protocol_clients.ai_sdk.post(session.id, page_message("over the AI SDK", "u1"))
    assert page.text == "You said: over the AI SDK"
    assert said(await protocol_clients.a2a.send("over A2A", contextId=session.id)) == "You said: over A2A"
    histories = await protocol_clients.histories_by_protocol(session.id)
    assert [each for each in histories["aap"] if each in prompts] == prompts
    assert len(histories["aap"]) == 18
    assert histories == dict.fromkeys(histories, histories["aap"])


@pytest.mark.slow
async def test_what_one_protocol_asks_another_answers_and_a_cut_answer_goes_on_over_a_third(tmp_path: Path) -> None:
    """One conversation: a tool, a question, approvals and a server that is killed, each over other protocols."""
    async with server_process(tmp_path) as server:
        clients = ProtocolClients(server, "alice")
        tools = [*enabled_tools("add"), *enabled_tools("stamp", trust=False)]
        session_id = (await clients.aap.create(server_tools=tools)).id
        conversation = conversation_of(session_id)
        first = await clients.openai.respond("over OpenAI's API", conversation=conversation)
        added = script(call("add", a=20, b=22), {"say": "It is {result}."})
        assert (await clients.ai_sdk.post(session_id, page_message(added, "u1"))).text == "It is 42."
        asked = await clients.mcp.said("ask me", session_id=session_id)
        assert asked["status"] == "input_required"
        answered = await clients.a2a.send("production", taskId=asked["run_id"])
        assert said(answered) == "You chose production."

        stamps = script(call("stamp", text="it"), {"say": "done: {result}"})
        waiting = await clients.a2a.send(stamps, contextId=session_id)
        page = (await clients.ai_sdk.history(session_id))[-1]
        part = page["parts"][-1]
        part |= {"state": "approval-responded", "approval": {**part["approval"], "approved": True}}
        assert (await clients.ai_sdk.post(session_id, page)).text == "done: stamped it"
        assert said(await clients.a2a.get(waiting["id"])) == "done: stamped it"

        await clients.runs.play(session_id, stamps)
        items = (await clients.openai.get(f"/conversations/{conversation}/items?limit=1"))["data"]
        given = approval_item(items[0], approve=True)
        done = await clients.openai.respond([given], conversation=conversation)
        assert done["output"][-1]["content"][0]["text"] == "done: stamped it"

        endless = script({"say": "begun "}, {"emit": {"count": 100_000, "text": "x", "every_ms": 20}})
        turn = await Session(clients.aap, session_id).open(endless, mode="delta")
        await turn.until("text_delta")
        await server.crash()
        clients = ProtocolClients(server, "alice")
        await clients.tab.connect()
        assert await clients.agentscope.stop(session_id=session_id)
        stopped = await clients.mcp.said("", session_id=session_id)
        assert stopped["status"] == "cancelled"
        assert stopped["text"].startswith("begun x"), "the step was played again; its cut words are left out"
        await clients.tab.send(f"sess_{session_id}", "over Blade")
        await clients.tab.leave()
        await clients.ag_ui.run(an_input("over AG-UI", thread=session_id))
        last = await clients.openai.respond("recall", conversation=conversation)
        assert last["output"][0]["content"][0]["text"].endswith("over Blade | over AG-UI")
        histories = await clients.histories_by_protocol(session_id)
        texts = {protocol: "".join(each) for protocol, each in histories.items()}
        question = "Which environment?\n- staging\n- production"
        assert texts["openai"].count(question) == 1, "a question is text there, and a call elsewhere"
        texts["openai"] = texts["openai"].replace(question, "")
        assert texts == dict.fromkeys(texts, texts["aap"])
        assert await clients.openai.get(f"/responses/{first['id']}") == first


@pytest.mark.parametrize("name", ["my own chat", "日本語", "a/b?c", "0d8f5c1e-3a52-4a0e-9a5b-0f8a4f0c2b11"])
async def test_a_clients_name_for_a_session_works_over_every_protocol(
    protocol_clients: ProtocolClients, name: str
) -> None:
    await protocol_clients.agentscope.run("first", session_id=name)
    assert [message_text(each["content"]) for each in await protocol_clients.ag_ui.messages(name)][:1] == ["first"]
    assert text_of(await protocol_clients.agentscope.run("second", session_id=name))
    listed = (await protocol_clients.blade.get("sessions?limit=1"))["items"]
    (session_id,) = [each["id"].removeprefix("sess_") for each in listed]
    history = await Session(protocol_clients.aap, session_id).history()
    assert [message_text(each["content"]) for each in history if each["role"] == "user"] == ["first", "second"]


async def test_a_permission_requested_over_one_protocol_is_given_over_another(
    protocol_clients: ProtocolClients,
) -> None:
    session = await protocol_clients.aap.create(server_tools=enabled_tools("stamp", trust=False))
    turn = await session.run(script(call("stamp", text="it"), {"say": "done: {result}"}))
    assert turn.stop == "tool_use"
    (call_id,) = [each.id for each in turn.calls]
    hydrated = await protocol_clients.ag_ui.hydrate(session.id)
    (interrupt,) = hydrated.events[-1]["outcome"]["interrupts"]
    assert interrupt["toolCallId"] == call_id
    turns = await protocol_clients.blade.messages(f"sess_{session.id}")
    assert [each["status"] for turn in turns for each in turn["tool_calls"] if each["id"] == f"tc_{call_id}"] == [
        "awaiting_answer"
    ]
    response = await protocol_clients.agentscope.run(approval(call_id, approve=True), session_id=session.id)
    assert text_of(response).startswith("done: ")
    waited = await protocol_clients.mcp.said("", session_id=session.id)
    assert (waited["status"], waited["text"]) == ("completed", text_of(response))
    again = await protocol_clients.agentscope.assert_refused(
        "POST", "/process", request_body(approval(call_id, approve=True), session_id=session.id)
    )
    assert again == "NOTHING_PENDING"
    histories = await protocol_clients.histories_by_protocol(session.id)
    texts = {protocol: list(filter(None, each)) for protocol, each in histories.items()}
    assert texts == dict.fromkeys(texts, texts["blade"])
    assert (await session.info())["_meta"]["status"] == "idle"


async def test_an_approval_that_the_agent_api_asks_for_is_given_over_aap(protocol_clients: ProtocolClients) -> None:
    name = f"asked-{uuid4()}"
    response = await protocol_clients.agentscope.run(json.dumps(scripted(call("stamp", text="it"))), session_id=name)
    (call_id,) = pending(response).values()
    listed = (await protocol_clients.blade.get("sessions?limit=1"))["items"]
    session = Session(protocol_clients.aap, listed[0]["id"].removeprefix("sess_"))
    info = await session.info()
    assert info["_meta"]["status"] == "waiting"
    turn = await session.run([grant(call_id)])
    assert turn.stop == "end_turn"


def scripted(*steps: Json) -> Json:
    return {"script": list(steps)}


async def test_a_run_started_over_one_protocol_is_watched_and_stopped_over_the_others(
    protocol_clients: ProtocolClients,
) -> None:
    session = await protocol_clients.aap.create()
    endless = script({"say": "begun "}, {"emit": {"count": 100_000, "text": "x", "every_ms": 20}})
    turn = await session.open(endless, mode="delta")
    watcher = StreamReader(await protocol_clients.runs.open(session.id))
    await watcher.until("TEXT_MESSAGE_CONTENT")
    assert (await protocol_clients.ag_ui.run(an_input("me too", thread=session.id))).events[0]["code"] == "thread_busy"
    assert (
        await protocol_clients.agentscope.assert_refused(
            "POST", "/process", request_body("me too", session_id=session.id)
        )
        == "SESSION_BUSY"
    )
    assert (await session.post([user("me too")])).status == 409
    refused = {"input": "me too", "conversation": conversation_of(session.id)}
    assert (await protocol_clients.openai.refused("POST", "/responses", refused))[:2] == (409, "conversation_busy")
    assert (await protocol_clients.mcp.said("me too", session_id=session.id))["error"]["code"] == "session_busy"
    assert await protocol_clients.agentscope.stop(session_id=session.id)
    frames = await watcher.until("RUN_FINISHED")
    assert frames[-1].event["outcome"] == {"type": "cancelled"}
    assert (await turn.read_to_end())[-1].event == "turn_stop"
    assert [
        each["id"]
        for each in (await protocol_clients.blade.get("sessions?limit=5"))["items"]
        if each["status"] == "running"
    ] == []


async def test_a_queued_run_keeps_the_session_busy_for_other_protocols(protocol_clients: ProtocolClients) -> None:
    thread = str(uuid4())
    slow = json.dumps(scripted({"say": "slow"}, {"emit": {"count": 100_000, "text": "x", "every_ms": 20}}))
    await protocol_clients.runs.submit(run_input(thread, slow, "r-1"))
    await protocol_clients.runs.submit(run_input(thread, "next", "r-2"))
    assert (
        await protocol_clients.agentscope.assert_refused("POST", "/process", request_body("me", session_id=thread))
        == "SESSION_BUSY"
    )
    assert (await protocol_clients.runs.post(f"/runs/{thread}/cancel?runId=r-1", b"")).json["accepted"] is True
    frames = await protocol_clients.runs.events(thread, "r-2")
    assert frames[-1].type == "RUN_FINISHED"
    histories = await protocol_clients.histories_by_protocol(thread)
    assert histories["aap"][-2] == "next"


async def test_a_session_deleted_over_one_protocol_is_gone_from_all(
    protocol_clients: ProtocolClients,
) -> None:
    session = await protocol_clients.aap.create()
    await session.run("hello")
    assert (await protocol_clients.runs.request("DELETE", f"/sessions/{session.id}")).status == 204
    assert (await protocol_clients.aap.get(f"/sessions/{session.id}")).status == 404
    assert (await protocol_clients.blade.request("GET", f"sessions/sess_{session.id}")).status == 404
    assert (await protocol_clients.ag_ui.hydrate(session.id)).status == 404
    path = f"/conversations/{conversation_of(session.id)}"
    assert (await protocol_clients.openai.refused("GET", path))[0] == 404
    assert (await protocol_clients.runs.get(f"/history?threadId={session.id}")).status == 404
    assert (await protocol_clients.mcp.said("", session_id=session.id))["error"]["code"] == "session_not_found"
    assert (await protocol_clients.a2a.list(contextId=session.id))["tasks"] == []


async def test_what_is_left_when_a_regenerated_answer_is_taken_back_is_the_same_over_every_protocol(
    protocol_clients: ProtocolClients,
) -> None:
    session = await protocol_clients.aap.create()
    for text in ("first", "second"):
        await session.run(text)
    shown = await protocol_clients.ag_ui.messages(session.id)
    await protocol_clients.ag_ui.run(an_input(thread=session.id, messages=shown[:3]))
    path = f"sessions/sess_{session.id}"
    newest = (await protocol_clients.blade.get(f"{path}/checkpoints"))[-1]
    back = await protocol_clients.blade.request("POST", f"{path}/rewind", {"checkpoint_id": newest["checkpoint_id"]})
    assert back.body["message"] == "second"
    histories = await protocol_clients.histories_by_protocol(session.id)
    assert histories["aap"] == ["first", "You said: first"]
    assert histories == dict.fromkeys(histories, histories["aap"])


async def test_a_branch_shows_nothing_of_the_calls_that_waited_on_another_one(
    protocol_clients: ProtocolClients,
) -> None:
    session = await protocol_clients.aap.create(server_tools=enabled_tools("stamp", trust=False))
    await session.run("first")
    before = await protocol_clients.ag_ui.messages(session.id)
    path = f"sessions/sess_{session.id}"
    (checkpoint,) = await protocol_clients.blade.get(f"{path}/checkpoints")
    at = {"checkpoint_id": checkpoint["checkpoint_id"]}
    await protocol_clients.blade.request("POST", f"{path}/rewind", at)
    assert (await session.run(script(call("stamp", text="it")))).stop == "tool_use"
    assert (await protocol_clients.blade.request("POST", f"{path}/switch-branch", at)).status == 200
    assert await protocol_clients.ag_ui.messages(session.id) == before
    assert (await session.history())[2:] == []


async def test_a_branch_after_calls_that_were_answered_later_shows_them_as_cancelled_over_every_protocol(
    protocol_clients: ProtocolClients,
) -> None:
    session = await protocol_clients.aap.create(server_tools=enabled_tools("stamp", trust=False))
    turn = await session.run(script(call("stamp", text="it"), {"say": "done: {result}"}))
    (call_id,) = [each.id for each in turn.calls]
    asking = await protocol_clients.ag_ui.messages(session.id)
    await session.run([grant(call_id)])
    items_path = f"/conversations/{conversation_of(session.id)}/items?order=asc"
    asked = next(
        each for each in (await protocol_clients.openai.get(items_path))["data"] if each["id"].startswith("mcpr_")
    )
    response = f"resp_{asked['id'].split('_')[1]}"
    await protocol_clients.openai.respond("instead", previous_response_id=response)
    cancelled = "Tool call cancelled: a new user message arrived"

    ag_ui = await protocol_clients.ag_ui.messages(session.id)
    assert ag_ui[: len(asking)] == asking
    (result,) = [each for each in ag_ui if each["role"] == "tool"]
    assert (result["toolCallId"], result["content"]) == (call_id, cancelled)
    assert [each["content"] for each in await session.history() if each["role"] == "tool"] == [cancelled]
    (page,) = [
        part
        for each in await protocol_clients.ai_sdk.history(session.id)
        for part in each["parts"]
        if "state" in part
        if part.get("toolCallId") == call_id
    ]
    assert (page["state"], page["errorText"]) == ("output-error", cancelled)
    blade = await protocol_clients.blade.messages(f"sess_{session.id}")
    assert {each["id"]: (each["status"], each["result"]) for turn in blade for each in turn["tool_calls"]} == {
        f"tc_{call_id}": ("cancelled", None),
        f"perm_{call_id}": ("cancelled", None),
    }
    assert not [block for turn in blade for block in turn["blocks"] if block["type"] == "tool_result"]
    items = (await protocol_clients.openai.get(items_path))["data"]
    assert [each["type"] for each in items] == ["message", "mcp_approval_request", "mcp_call", "message", "message"]
    assert items[2]["error"]["content"] == cancelled
    histories = await protocol_clients.histories_by_protocol(session.id)
    texts = {protocol: list(filter(None, each)) for protocol, each in histories.items()}
    assert texts == dict.fromkeys(texts, texts["aap"])
    # a page that resends what it shows continues the same branch
    shown = [*ag_ui, {"id": "u9", "role": "user", "content": "recall"}]
    assert (await protocol_clients.ag_ui.run(an_input(thread=session.id, messages=shown))).text.endswith("instead")
    assert (await protocol_clients.ag_ui.messages(session.id))[: len(ag_ui)] == ag_ui


async def test_another_user_cannot_see_the_session(protocol_clients: ProtocolClients, app_server: SocketServer) -> None:
    session = await protocol_clients.aap.create()
    await session.run("mine")
    bob = ProtocolClients(app_server, "bob")
    assert (await bob.aap.get(f"/sessions/{session.id}")).status == 404
    assert (await bob.blade.request("GET", f"sessions/sess_{session.id}/messages")).status == 404
    assert (await bob.ag_ui.run(an_input("hello", thread=session.id))).status == 403
    assert (await bob.runs.post("/runs", run_input(session.id))).status == 403
    assert (await bob.mcp.said("hello", session_id=session.id))["error"]["code"] == "session_not_found"
    assert said(await bob.a2a.send(script({"recall": "user"}), contextId=session.id)) != "mine"
    own = await bob.agentscope.run("hello", session_id=session.id)
    assert own["status"] == "completed"
    histories = await protocol_clients.histories_by_protocol(session.id)
    assert histories["aap"][0] == "mine"
    assert len(histories["aap"]) == 2


async def test_a_large_image_is_shown_over_every_protocol(protocol_clients: ProtocolClients) -> None:
    session = await protocol_clients.aap.create()
    image = "data:image/png;base64," + "iVBO" * 20_000
    await session.run([user([{"type": "text", "text": "look"}, {"type": "image", "url": image}])])
    (block,) = [
        each
        for each in (await protocol_clients.blade.messages(f"sess_{session.id}"))[0]["blocks"]
        if "attachment" in each
    ]
    assert block["content"] == "[image image/png 59 KB]"
    assert block["attachment"].pop("url").startswith("/api/sessions/")
    assert block["attachment"] == {"kind": "image", "name": None, "media_type": "image/png", "size": 60_000}
    (part,) = [
        each for each in (await protocol_clients.ag_ui.messages(session.id))[0]["content"] if each["type"] == "image"
    ]
    assert part["source"] == {"type": "data", "value": image.partition(",")[2], "mimeType": "image/png"}
    (message, _) = (await protocol_clients.runs.get(f"/history?threadId={session.id}")).json["messages"]
    assert message["attachments"] == [{"mimeType": "image/png", "url": image}]
    assert (await session.history())[0]["content"][1]["url"] == image
