"""One approval runs a tool once: after a crash the user is asked again, and the approval of before counts no more.

A payment is allowed, its server dies while the tool runs, and the client repeats its request to the next server.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import dragoman
from dragoman import agent, tool
from tests.asgi_client import DEADLINE_S
from tests.crash.answer_senders import SENDERS, Answer, calling
from tests.protocols.aap.client import AapClient, Session, grant
from tests.protocols.agentscope.client import AgentScopeClient, approval, request_body
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.agui.run_service import RunServiceClient
from tests.protocols.blade.client import RestClient, socket_client
from tests.protocols.blade.driver import url_of
from tests.requirements import requirement
from tests.servers import SocketServer, running_socket_server

Json = Any


class Till:
    """Where payments arrive. The first one gets stuck."""

    def __init__(self) -> None:
        self.payments: list[int] = []
        self.first_arrived = asyncio.Event()

    async def take(self, amount: int) -> str:
        self.payments.append(amount)
        if len(self.payments) == 1:
            self.first_arrived.set()
            await asyncio.Event().wait()
        return f"paid {amount}"


TILL = Till()


@tool(needs_approval=True, on_restart="ask")
async def pay(amount: int) -> str:
    """Pay."""
    return await TILL.take(amount)


@agent(tools=[pay], history=True)
async def shop(run: dragoman.Run) -> AsyncIterator[str]:
    """Pays five for whatever is said."""
    yield f"Result: {await run.call('pay', amount=5)}."


Approve = Callable[[SocketServer, str, str], Coroutine[Any, Any, object]]
FindCall = Callable[[SocketServer, str], Coroutine[Any, Any, str]]


async def approve_over_aap(server: SocketServer, session: str, call_id: str) -> object:
    return await Session(AapClient(server.connection, server.key("alice")), session).post([grant(call_id)])


async def call_over_aap(server: SocketServer, session: str) -> str:
    """The last call without a result, as the official client finds it."""
    history = await Session(AapClient(server.connection, server.key("alice")), session).history()
    answered = {each["toolCallId"] for each in history if each["role"] == "tool"}
    last = [each for each in history if each["role"] == "assistant"][-1]
    (call_id,) = {block["toolCallId"] for block in last["content"] if block["type"] == "tool_use"} - answered
    return str(call_id)


async def approve_over_ag_ui(server: SocketServer, session: str, call_id: str) -> object:
    resume = [{"interruptId": call_id, "status": "resolved", "payload": {"approved": True}}]
    body = an_input(thread=session, messages=[], resume=resume)
    client = Endpoint(server.connection, server.key("alice"), agent="shop")
    return await client.run(body, headers={"X-Run-On-Disconnect": "continue"})


async def call_over_ag_ui(server: SocketServer, session: str) -> str:
    hydrated = await Endpoint(server.connection, server.key("alice"), agent="shop").hydrate(session)
    (interrupt,) = hydrated.events[-1]["outcome"]["interrupts"]
    return str(interrupt["id"])


async def approve_over_run_service(server: SocketServer, session: str, call_id: str) -> object:
    service = RunServiceClient(server.connection, server.key("alice"))
    return await service.post(f"/runs/{session}/answers", {"answers": [{"callId": call_id, "granted": True}]})


async def approve_over_agent_api(server: SocketServer, session: str, call_id: str) -> object:
    body = request_body(approval(call_id, approve=True), session_id=session)
    return await AgentScopeClient(server.connection, server.key("alice")).request("POST", "/process", body)


async def approve_over_blade(server: SocketServer, session: str, call_id: str) -> object:
    given = {"tool_call_id": f"tc_{call_id}", "selections": {"0": [0]}}
    async with socket_client(url_of(server), server.key("alice")) as socket:
        return await socket.call("chat:send", {"session_id": f"sess_{session}", "message": "", "askuser_answer": given})


def approve_over(protocol: str) -> Approve:
    """Approve as the campaign of crashes does."""

    async def approve(server: SocketServer, session: str, call_id: str) -> object:
        async with calling(url_of(server), server.key("alice")) as alice:
            return await SENDERS[protocol](alice, Answer(session, call_id, "grant", ""))

    return approve


async def call_over_blade(server: SocketServer, session: str) -> str:
    turns = await RestClient(url_of(server), server.key("alice")).messages(f"sess_{session}")
    (call_id,) = [
        each["id"]
        for turn in turns
        for each in turn["tool_calls"]
        if each["status"] == "awaiting_answer" and each["tool_name"] == "pay"
    ]
    return str(call_id).removeprefix("tc_")


@requirement("faults:41:approvals")
@pytest.mark.parametrize(
    ("approve", "find_call"),
    [
        pytest.param(approve_over_aap, call_over_aap, id="aap"),
        pytest.param(approve_over_ag_ui, call_over_ag_ui, id="ag-ui"),
        pytest.param(approve_over_run_service, call_over_ag_ui, id="run-service"),
        pytest.param(approve_over_agent_api, call_over_aap, id="agent-api"),
        pytest.param(approve_over_blade, call_over_blade, id="blade"),
        pytest.param(approve_over("openai"), call_over_aap, id="openai"),
        pytest.param(approve_over("ai sdk"), call_over_aap, id="ai-sdk"),
        pytest.param(approve_over("mcp"), call_over_aap, id="mcp"),
        pytest.param(approve_over("a2a"), call_over_aap, id="a2a"),
    ],
)
async def test_an_approval_repeated_after_a_crash_runs_nothing_and_the_new_question_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approve: Approve, find_call: FindCall
) -> None:
    till = Till()
    monkeypatch.setattr(f"{__name__}.TILL", till)
    async with running_socket_server(tmp_path, agents=[shop], rehearsal=False) as server:
        session = await ask_to_pay(server)
        first = await find_call(server, session.id)
        stuck = asyncio.create_task(approve(server, session.id, first))
        async with asyncio.timeout(DEADLINE_S):
            await till.first_arrived.wait()
        await server.restart()
        stuck.cancel()
        await asyncio.wait([stuck])
        session = Session(AapClient(server.connection, server.key("alice")), session.id)
        await wait_until(session, "waiting")
        before = await session.history()
        await approve(server, session.id, first)
        assert (till.payments, await session.history()) == ([5], before), "the old approval counts no more"
        second = await find_call(server, session.id)
        assert second != first
        await approve(server, session.id, second)
        await wait_until(session, "idle")
        assert till.payments == [5, 5]
        texts = [block["text"] for block in (await session.history())[-1]["content"] if block["type"] == "text"]
        assert texts == ["Result: paid 5."]


async def ask_to_pay(server: SocketServer) -> Session:
    """A session that every protocol can use, whose payment waits for permission."""
    thread = str(uuid4())
    await Endpoint(server.connection, server.key("alice"), agent="shop").run(an_input("pay", thread=thread))
    session = Session(AapClient(server.connection, server.key("alice")), thread)
    assert (await session.info())["_meta"]["status"] == "waiting"
    return session


async def wait_until(session: Session, status: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while (await session.info())["_meta"]["status"] != status:
            pass
