"""A call that a crash interrupted, and that waits for a person: every protocol says that it may have run already.

`pay` ran without asking, `transfer` after an approval, when their server died.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

import dragoman
from dragoman import agent, tool
from dragoman.core.content import Call
from dragoman.core.events import CallOpened, CallParked, LoggedEvent
from dragoman.core.ids import CallId, MessageId, RunId
from dragoman.core.question_text import repeat_question
from dragoman.protocols.openai.chat_events import AddedText, ShownRun, approval_notice
from tests.asgi_client import DEADLINE_S
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.every_protocol import for_every_protocol
from tests.protocols.mcp.client import FORMS, McpClient
from tests.requirements import requirement
from tests.servers import SocketServer, running_socket_server
from tests.test_one_session import ProtocolClients, conversation_of

Json = Any
AT = datetime(2026, 11, 27, tzinfo=UTC)


class Till:
    """Where payments arrive, and get stuck while `is_stuck`."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[str] = asyncio.Queue()
        self.is_stuck = True

    async def take(self, who: str) -> str:
        await self.arrived.put(who)
        if self.is_stuck:
            await asyncio.Event().wait()
        return f"paid {who}"


TILL = Till()


@tool(on_restart="ask")
async def pay(who: str) -> str:
    """Pay."""
    return await TILL.take(who)


@tool(needs_approval=True, on_restart="ask")
async def transfer(who: str) -> str:
    """Pay, if somebody allows it."""
    return await TILL.take(who)


@agent(tools=[pay, transfer], history=True)
async def shop(run: dragoman.Run) -> AsyncIterator[str]:
    """Pays with the tool that the message names."""
    yield await run.call(run.text, who="Bob")


class Crashed:
    """A server after a crash, and its sessions by the name of the tool that waits."""

    def __init__(self, server: SocketServer, sessions: dict[str, str]) -> None:
        self.server = server
        self.sessions = sessions
        self.clients = ProtocolClients(server, "alice", agent="shop")


@pytest.fixture(scope="module")
async def crashed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Crashed]:
    async with running_socket_server(tmp_path_factory.mktemp("shop"), agents=[shop], rehearsal=False) as server:
        clients, stays = ProtocolClients(server, "alice", agent="shop"), {"X-Run-On-Disconnect": "continue"}
        clients.ag_ui.agent = "shop"
        pays, transfers = (an_input(each, thread=str(uuid4())) for each in ("pay", "transfer"))
        (asked,) = (await clients.ag_ui.run(transfers)).events[-1]["outcome"]["interrupts"]
        assert (asked["message"], asked.get("metadata")) == ("Allow the call of transfer?", None)
        allowed = [{"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}]
        thread = transfers["threadId"]
        stuck = [
            asyncio.create_task(clients.ag_ui.run(body, headers=stays))
            for body in (pays, an_input(thread=thread, messages=[], resume=allowed))
        ]
        async with asyncio.timeout(DEADLINE_S):
            assert [await TILL.arrived.get() for _ in stuck] == ["Bob", "Bob"]
        await server.restart()
        for task in stuck:
            task.cancel()
        await asyncio.wait(stuck)
        TILL.is_stuck = False
        found = Crashed(server, {"pay": pays["threadId"], "transfer": thread})
        async with asyncio.timeout(DEADLINE_S):
            for session in found.sessions.values():
                path = f"/sessions/{session}"
                while (await found.clients.aap.get(path)).json["_meta"]["status"] != "waiting":
                    pass
        yield found


TOOLS = pytest.mark.parametrize("name", ["pay", "transfer"])


@TOOLS
@requirement("faults:41:repeats")
async def test_every_protocol_says_that_a_call_may_have_run_already(crashed: Crashed, name: str) -> None:
    clients, session, sentence = crashed.clients, crashed.sessions[name], repeat_question(name)
    hydrated = await Endpoint(crashed.server.connection, crashed.server.key("alice"), agent="shop").hydrate(session)
    (interrupt,) = hydrated.events[-1]["outcome"]["interrupts"]
    (pending,) = (await clients.aap.get(f"/sessions/{session}")).json["_meta"]["pending"]
    turns = await clients.blade.messages(f"sess_{session}")
    (waiting,) = [call for turn in turns for call in turn["tool_calls"] if call["pending_question_ref"] is not None]
    assert (waiting["tool_name"], waiting["pending_question_ref"]["repeat"]) == (name, True)
    items = (await clients.openai.get(f"/conversations/{conversation_of(session)}/items?order=desc&limit=100"))["data"]
    *_, part = [
        part for each in await clients.ai_sdk.history(session) for part in each["parts"] if "toolCallId" in part
    ]
    result = await clients.mcp.call(
        "", session_id=session, more={"name": "shop", "arguments": {"message": "", "session_id": session}}
    )
    task, *_ = (await clients.a2a.list(contextId=session))["tasks"]
    said = for_every_protocol(
        {
            "aap": (pending["repeat"], sentence),
            "agui": (interrupt["metadata"]["dragoman"]["repeat"], interrupt["message"]),
            "blade": (waiting["pending_question_ref"]["repeat"], waiting["pending_question_ref"]["description"]),
            "openai": (items[0]["repeat"], sentence),
            "ai_sdk": tuple(part["callProviderMetadata"]["dragoman"].values()),
            "mcp": (
                result["structuredContent"]["pending"][0]["repeat"],
                result["content"][0]["text"].splitlines()[0],
            ),
            "a2a": (
                task["status"]["message"]["parts"][1]["data"]["pending"][0]["repeat"],
                task["status"]["message"]["parts"][0]["text"][: len(sentence)],
            ),
        },
        without={
            "run_service": "its events are those of AG-UI: tests/client/test_repeats.py",
            "agentscope": "it shows a response, not a session: tests/client/test_repeats.py",
        },
    )
    assert said == dict.fromkeys(said, (True, sentence))
    assert part["state"] == "approval-requested"


@TOOLS
@requirement("faults:41:repeats", "mcp:forms:trust")
async def test_a_form_of_mcp_asks_whether_the_call_runs_again_and_offers_no_rule_for_later_ones(
    crashed: Crashed, name: str
) -> None:
    client = McpClient(crashed.server.connection, crashed.server.key("alice"), capabilities=FORMS)
    await client.initialize()
    arguments = {"message": "", "session_id": crashed.sessions[name]}
    form = await (await client.open("", more={"name": "shop", "arguments": arguments})).until("elicitation/create")
    assert form["params"]["message"].splitlines()[0] == repeat_question(name)
    assert form["params"]["requestedSchema"]["properties"]["decision"]["enum"] == ["allow", "deny"]


def test_chat_completions_say_that_a_call_may_have_run_already() -> None:
    """They have no form for an approval, and show a sentence instead."""
    call = Call(CallId("c"), "pay", {})
    opened = CallOpened(message_id=MessageId("m"), index=0, call=call, kind="inline")
    again = CallOpened(message_id=MessageId("n"), index=0, call=call, kind="permission", repeat=True)
    notice = f"{repeat_question('pay')} {approval_notice('pay')}"
    for events in ((opened, CallParked(call_id=CallId("c"))), (again,)):
        shown = ShownRun()
        *_, last = [shown.feed(LoggedEvent(1, AT, RunId("r"), each)) for each in events]
        assert last == AddedText("content", notice)
