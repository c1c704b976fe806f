"""Agent API, section 7.3: background tasks."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.asgi_client import DEADLINE_S
from tests.conversations import call, calls, script
from tests.protocols.agentscope.client import AgentScopeClient, data, output, pending, request_body, texts, tool
from tests.requirements import requirement
from tests.servers import AppServerFactory, server_process

Json = Any

WAIT = script({"say": "one"}, {"wait_ms": 600_000})


async def submit(runtime: AgentScopeClient, *messages: Json, **more: Json) -> Json:
    reply = await runtime.request("POST", "/process/task", request_body(*messages, **more))
    assert reply.status == 200, reply.body
    return reply.json


async def state(runtime: AgentScopeClient, task: Json) -> Json:
    return (await runtime.request("GET", f"/process/task/{task['task_id']}")).json


async def wait_for_task(runtime: AgentScopeClient, task: Json) -> Json:
    """Wait for the end of the task's response; return the task's state."""
    reading = await runtime.follow("GET", f"/process/responses/{task['response_id']}/events")
    await reading.end()
    return await state(runtime, task)


@requirement("agentscope:task:submit", "agentscope:task:states")
async def test_a_task_can_be_polled_and_followed(alice: AgentScopeClient) -> None:
    task = await submit(alice, WAIT)
    assert task == {
        "task_id": task["task_id"],
        "status": "submitted",
        "queue": "dragoman",
        "message": f"Task {task['task_id']} submitted to queue dragoman",
        "response_id": f"response_{task['task_id']}",
        "session_id": task["session_id"],
    }
    running = await state(alice, task)
    assert running == {
        "task_id": task["task_id"],
        "status": "running",
        "result": None,
        "started_at": running["started_at"],
    }
    assert await alice.stop(session_id=task["session_id"])
    finished = await wait_for_task(alice, task)
    assert finished == {"task_id": task["task_id"], "status": "finished", "result": finished["result"]}
    assert (finished["result"]["status"], texts(finished["result"])) == ("canceled", "one")


@requirement("agentscope:task:states")
@pytest.mark.parametrize(("steps", "status"), [("hello", "completed"), (script({"fail": "x"}), "failed")])
async def test_a_finished_task_has_the_terminal_response_even_if_it_failed(
    alice: AgentScopeClient, steps: str, status: str
) -> None:
    name = f"s-{uuid4()}"
    task = await submit(alice, steps, id=name, session_id=name)
    assert (task["response_id"], task["session_id"]) == (name, name)
    finished = await wait_for_task(alice, task)
    assert (finished["status"], finished["result"]["status"]) == ("finished", status)
    assert finished["result"] == (await alice.request("GET", f"/process/responses/{name}")).json


@requirement("agentscope:once:attach", "agentscope:once:conflict")
async def test_a_task_that_is_submitted_twice_runs_once(alice: AgentScopeClient) -> None:
    name = f"s-{uuid4()}"
    assert await submit(alice, "hello", id=name) == await submit(alice, "hello", id=name)
    assert await alice.assert_refused("POST", "/process", request_body("hello", id=name)) == "RESPONSE_EXISTS"


@requirement("agentscope:task:timeout", "agentscope:status:timeout")
async def test_a_task_past_its_timeout_is_an_error(alice: AgentScopeClient) -> None:
    task = await submit(alice, WAIT, timeout=0.1)
    ended = await wait_for_task(alice, task)
    assert ended == {
        "task_id": task["task_id"],
        "status": "error",
        "result": "The task took longer than its timeout",
    }
    response = (await alice.request("GET", f"/process/responses/{task['response_id']}")).json
    assert (response["status"], texts(response)) == ("failed", "one")
    assert response["error"] == {"code": "TIMEOUT", "message": "The task took longer than its timeout"}


@requirement("agentscope:task:timeout")
async def test_a_task_within_its_timeout_finishes(alice: AgentScopeClient) -> None:
    task = await submit(alice, "hello", timeout=600)
    assert (await wait_for_task(alice, task))["status"] == "finished"


@requirement("agentscope:task:timeout-value")
@pytest.mark.parametrize("value", [0, -1, "soon", True, [1], 1e300])
async def test_a_timeout_that_is_not_a_positive_number_of_seconds_is_refused(
    alice: AgentScopeClient, value: Json
) -> None:
    assert (
        await alice.assert_refused("POST", "/process/task", request_body("hello", timeout=value)) == "INVALID_REQUEST"
    )


@requirement("agentscope:task:unknown")
async def test_only_the_owner_s_tasks_are_found(alice: AgentScopeClient, bob: AgentScopeClient) -> None:
    task, run = await submit(alice, "hello"), await alice.run("hello")
    await wait_for_task(alice, task)
    path = f"/process/task/{task['task_id']}"
    assert await bob.assert_refused("GET", path) == "TASK_NOT_FOUND"
    for name in (str(uuid4()), "x", run["id"].removeprefix("response_"), task["response_id"]):
        assert await alice.assert_refused("GET", f"/process/task/{name}") == "TASK_NOT_FOUND"


@requirement("agentscope:task:answers")
async def test_a_task_must_answer_all_open_calls(alice: AgentScopeClient) -> None:
    name = f"s-{uuid4()}"
    both = script(calls(("pick", {}), ("draw", {})), {"say": "{results}"})
    call_ids = pending(await alice.run(both, session_id=name, tools=[tool("pick"), tool("draw")]))
    one, other = output(call_ids["pick"], "a"), output(call_ids["draw"], "b")
    assert await alice.assert_refused("POST", "/process/task", request_body(one, session_id=name)) == "NOTHING_PENDING"
    task = await submit(alice, one, other, session_id=name)
    assert texts((await wait_for_task(alice, task))["result"]) == "a, b"


@requirement("agentscope:task:submit", "agentscope:session:busy")
async def test_a_task_is_refused_for_the_same_reasons_as_a_request(alice: AgentScopeClient) -> None:
    task = await submit(alice, WAIT)
    body = request_body("hello", session_id=task["session_id"])
    assert await alice.assert_refused("POST", "/process/task", body) == "SESSION_BUSY"
    assert await alice.assert_refused("POST", "/process/task", {"input": []}) == "INVALID_REQUEST"
    unknown = data("function_call_output", "tool", {"call_id": "x", "output": "x"})
    assert await alice.assert_refused("POST", "/process/task", request_body(unknown)) == "NOTHING_PENDING"
    assert await alice.stop(session_id=task["session_id"])


@requirement("agentscope:task:restart")
async def test_a_deadline_survives_a_restart(open_app_server: AppServerFactory) -> None:
    async with open_app_server() as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        task = await submit(alice, script({"say": "one"}, {"step": True}, {"wait_ms": 600_000}), timeout=0.5)
        await server.restart()
        alice = AgentScopeClient(server.connection, server.key("alice"))
        async with asyncio.timeout(DEADLINE_S):
            ended = await wait_for_task(alice, task)
        assert (ended["status"], ended["result"]) == ("error", "The task took longer than its timeout")


@requirement("agentscope:task:restart", "agentscope:durable:kill")
async def test_a_task_survives_a_server_that_is_killed(tmp_path: Path) -> None:
    async with server_process(tmp_path) as server:
        alice = AgentScopeClient(server.connection, server.key("alice"))
        steps = script(call("add", a=1, b=2), {"wait_ms": 300}, {"say": "{result}"})
        task = await submit(alice, steps)
        await server.crash()
        alice = AgentScopeClient(server.connection, server.key("alice"))
        finished = await wait_for_task(alice, task)
        assert (finished["status"], texts(finished["result"])) == ("finished", "3")
