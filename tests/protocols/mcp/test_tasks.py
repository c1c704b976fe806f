"""Tasks of the version 2026-07-28: a long call becomes one, which is asked for, answered and cancelled."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from dragoman.agents.rehearsal.agent import rehearsal
from dragoman.core.agent import Run
from dragoman.core.events import StopReason
from tests.agents.in_memory_run import InMemoryStarts
from tests.asgi_client import DEADLINE_S
from tests.conversations import call, script
from tests.protocols.aap.client import user
from tests.protocols.mcp.client import FORMS, META, NEW, TASKS, Json, McpClient
from tests.requirements import requirement
from tests.servers import AppServer, running_server

SLOW = script({"say": "one "}, {"wait_ms": 600_000}, {"say": "two"})
STAMP = script(call("stamp", text="x"), {"say": "then: {result}"})


class GatedAgent:
    """The rehearsal agent, which begins to play when the gate is open."""

    def __init__(self) -> None:
        self._agent = rehearsal(InMemoryStarts())
        self.spec = self._agent.spec
        self.tool = self._agent.tool
        self.child = self._agent.child
        self.gate = asyncio.Event()

    async def play(self, run: Run) -> StopReason | None:
        await self.gate.wait()
        return await self._agent.play(run)


@pytest.fixture(scope="module")
def agent() -> GatedAgent:
    return GatedAgent()


@pytest.fixture
def gate(agent: GatedAgent) -> asyncio.Event:
    """Calls become tasks as long as it is closed."""
    agent.gate.clear()
    return agent.gate


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory, agent: GatedAgent) -> AsyncIterator[AppServer]:
    """A server on which a call soon becomes a task."""
    folder = tmp_path_factory.mktemp("tasks")
    async with running_server(folder, agents=[agent], rehearsal=False, mcp_task_after_s=0.001) as running:
        yield running


@pytest.fixture
def alice(server: AppServer) -> McpClient:
    """A client that knows tasks and shows forms."""
    capabilities = {**FORMS, "extensions": {TASKS: {}}}
    return McpClient(server.connection, server.key("alice"), version=NEW, capabilities=capabilities)


async def until(client: McpClient, task_id: str, status: str) -> Json:
    """Ask for a task until it has a status."""
    async with asyncio.timeout(DEADLINE_S):
        while (task := await client.request("tasks/get", {"taskId": task_id}))["status"] != status:
            assert task["status"] == "working"
    return task


@requirement("mcp:tasks:created", "mcp:tasks:get")
async def test_a_long_call_becomes_a_task_whose_result_is_that_of_the_call(
    alice: McpClient, gate: asyncio.Event
) -> None:
    created = await alice.call(script({"say": "one "}, {"step": True}, {"say": "two"}))
    task_id, created_at = created["taskId"], created["createdAt"]
    assert created.pop("_meta")[f"{META}serverInfo"]
    assert created == {
        "resultType": "task",
        "taskId": task_id,
        "status": "working",
        "createdAt": created_at,
        "lastUpdatedAt": created["lastUpdatedAt"],
        "ttlMs": None,
        "pollIntervalMs": 2000,
    }
    gate.set()
    task = await until(alice, task_id, "completed")
    assert (task["resultType"], task["taskId"], task["createdAt"]) == ("complete", task_id, created_at)
    structured = task["result"]["structuredContent"]
    assert (structured["text"], structured["run_id"], task["result"]["isError"]) == ("one \n\ntwo", task_id, False)
    gate.clear()
    failed = await alice.call(script({"fail": "internal words"}))
    gate.set()
    task = await until(alice, failed["taskId"], "completed")
    assert (task["result"]["isError"], task["result"]["structuredContent"]["status"]) == (True, "failed")


@requirement("mcp:tasks:header")
async def test_a_client_that_repeats_no_task_in_a_header_gets_its_tasks(alice: McpClient, gate: asyncio.Event) -> None:
    """FastMCP's client sends no `Mcp-Name` with the methods of tasks. A header that disagrees is refused."""
    task_id = (await alice.call("hello"))["taskId"]
    gate.set()
    await until(alice, task_id, "completed")
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        message = alice.message(method, {"taskId": task_id})
        headers = [each for each in alice.headers(message) if each[0] != "mcp-name"]
        stream = await alice.connection.open("POST", "/mcp", headers=headers, body=json.dumps(message).encode())
        assert (stream.status, json.loads(await stream.read())["result"]["resultType"]) == (200, "complete")
        refused = await alice.post(message, mcp_name=str(uuid4()))
        assert (refused.status, json.loads(refused.body)["error"]["code"]) == (400, -32020)


@requirement("mcp:tasks:update")
async def test_what_a_task_waits_for_is_answered_once(alice: McpClient, gate: asyncio.Event) -> None:
    task_id = (await alice.call(STAMP))["taskId"]
    gate.set()
    task = await until(alice, task_id, "input_required")
    ((call_id, form),) = task["inputRequests"].items()
    assert form["params"]["message"].startswith("rehearsal wants to run stamp")
    allow = {"action": "accept", "content": {"decision": "allow"}}
    forged: tuple[Json, ...] = (
        {},
        {"unknown": allow},
        {call_id: {"action": "accept", "content": {"decision": "ALLOW"}}},
    )
    for responses in forged:
        assert await alice.request("tasks/update", {"taskId": task_id, "inputResponses": responses})
    assert (await alice.request("tasks/get", {"taskId": task_id}))["status"] == "input_required"
    for _ in range(2):
        updated = await alice.request("tasks/update", {"taskId": task_id, "inputResponses": {call_id: allow}})
        assert set(updated) == {"resultType", "_meta"}
    task = await until(alice, task_id, "completed")
    assert task["result"]["structuredContent"]["text"] == "then: stamped x"


@requirement("mcp:tasks:cancel")
@pytest.mark.parametrize(("message", "status"), [(SLOW, "working"), (STAMP, "input_required")])
async def test_a_task_is_cancelled_while_it_runs_and_while_it_waits(
    alice: McpClient, gate: asyncio.Event, message: str, status: str
) -> None:
    task_id = (await alice.call(message))["taskId"]
    gate.set()
    await until(alice, task_id, status)
    for _ in range(2):
        cancelled = await alice.request("tasks/cancel", {"taskId": task_id})
        assert set(cancelled) == {"resultType", "_meta"}
    assert (await alice.request("tasks/get", {"taskId": task_id}))["status"] == "cancelled"


@requirement("mcp:tasks:unknown")
async def test_unknown_and_foreign_tasks_look_the_same_and_need_the_extension(
    server: AppServer, alice: McpClient, gate: asyncio.Event
) -> None:
    task_id = (await alice.call(SLOW))["taskId"]
    gate.set()
    bob = McpClient(server.connection, server.key("bob"), version=NEW, capabilities=alice.capabilities)
    plain = McpClient(server.connection, server.key("alice"), version=NEW)
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        wrong_ids: tuple[Json, ...] = (str(uuid4()), "nonsense", 7, None)
        for wrong in wrong_ids:
            answer = await alice.post(alice.message(method, {"taskId": wrong}), mcp_name=str(wrong))
            assert answer.status == 400
            assert json.loads(answer.body)["error"]["code"] in (-32602, -32020)
        assert await bob.error(method, {"taskId": task_id}) == (400, -32602)
        answer = await plain.post(plain.message(method, {"taskId": task_id}))
        assert json.loads(answer.body)["error"]["code"] == -32021
        assert json.loads(answer.body)["error"]["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    reader = McpClient(server.connection, server.key("alice_reads"), version=NEW, capabilities=alice.capabilities)
    assert (await reader.request("tasks/get", {"taskId": task_id}))["status"] == "working"
    assert await reader.error("tasks/cancel", {"taskId": task_id}) == (403, -32600)
    await alice.request("tasks/cancel", {"taskId": task_id})


@requirement("mcp:tasks:get")
async def test_a_turn_of_another_protocol_is_a_task_too(
    server: AppServer, alice: McpClient, gate: asyncio.Event
) -> None:
    gate.set()
    session = await server.aap_client("alice").create()
    turn = (await session.post([user("hello")])).json
    task = await alice.request("tasks/get", {"taskId": turn["_meta"]["turnId"]})
    assert task["result"]["structuredContent"]["text"] == "Hello! I am the rehearsal agent."


@requirement("mcp:tasks:created")
async def test_a_client_without_tasks_waits(tmp_path: Path) -> None:
    async with running_server(tmp_path, mcp_task_after_s=0.001) as server:
        plain = McpClient(server.connection, server.key("alice"), version=NEW)
        assert (await plain.said(script({"wait_ms": 50}, {"say": "done"})))["text"] == "done"
