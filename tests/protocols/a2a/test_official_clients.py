"""The official clients: `a2a-sdk` for Python over both bindings and in 0.3, and `@a2a-js/sdk`."""

import asyncio
import json
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.helpers import get_data_parts, get_stream_response_text, new_data_message, new_text_message
from a2a.types import (
    AgentInterface,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError, TaskNotFoundError

from tests.asgi_client import DEADLINE_S
from tests.conversations import call, script
from tests.nodejs import run_module, run_node
from tests.requirements import requirement
from tests.servers import SocketServer
from tests.walkthrough import first_block

CLIENTS = Path(__file__).parent / "clients"
EXAMPLE = Path(__file__).parents[3] / "examples" / "a2a_client.py"
STAMP = script(call("stamp", text="x"), {"say": "so {result}"})
SLOW = script({"say": "one "}, {"wait_ms": 600_000})
INTERFACES = [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3")]


@asynccontextmanager
async def python_client(server: SocketServer, binding: str, version: str, **config: Any) -> AsyncIterator[Client]:
    """The official client, with one of the interfaces of the agent's card."""
    headers = {"Authorization": f"Bearer {server.key('alice')}"}
    async with httpx.AsyncClient(headers=headers, timeout=DEADLINE_S) as http:
        card = await A2ACardResolver(http, f"{server.connection.url}/a2a/rehearsal").get_agent_card()
        chosen: list[AgentInterface] = [
            each
            for each in card.supported_interfaces
            if (each.protocol_binding, each.protocol_version) == (binding, version)
        ]
        assert len(chosen) == 1
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(chosen)
        settings = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding], **config)
        yield ClientFactory(settings).create(card)


def say(content: Any, **members: Any) -> SendMessageRequest:
    make = new_text_message if isinstance(content, str) else new_data_message
    return SendMessageRequest(message=make(content, role=Role.ROLE_USER, **members))


async def events_of(stream: AsyncIterator[StreamResponse]) -> list[StreamResponse]:
    return [each async for each in stream]


def text_of(events: list[StreamResponse]) -> str:
    return "".join(get_stream_response_text(each) for each in events if each.HasField("artifact_update"))


def pending(message: Message) -> Any:
    (asked,) = get_data_parts(message.parts)
    return asked["pending"]


@requirement("a2a:client:python")
@pytest.mark.parametrize(("binding", "version"), INTERFACES)
async def test_the_python_client_streams_answers_and_cancels(
    socket_server: SocketServer, binding: str, version: str
) -> None:
    async with python_client(socket_server, binding, version) as client:
        hello = await events_of(client.send_message(say("hello")))
        assert text_of(hello) == "Hello! I am the rehearsal agent."
        assert hello[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED
        context = hello[0].task.context_id
        asked = await events_of(client.send_message(say("ask me", context_id=context)))
        assert asked[-1].status_update.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        chosen = await events_of(client.send_message(say("production", task_id=asked[0].task.id, context_id=context)))
        assert text_of(chosen) == "You chose production."
        stamp = await events_of(client.send_message(say(STAMP, context_id=context)))
        assert stamp[-1].status_update.status.state == TaskState.TASK_STATE_AUTH_REQUIRED
        (waiting,) = pending(stamp[-1].status_update.status.message)
        given = {"answers": [{"callId": waiting["callId"], "granted": True}]}
        done = await events_of(client.send_message(say(given, task_id=stamp[0].task.id, context_id=context)))
        assert text_of(done) == "so stamped x"
        task = await client.get_task(GetTaskRequest(id=stamp[0].task.id))
        assert task.status.state == TaskState.TASK_STATE_COMPLETED
        assert [each.parts[0].text for each in task.artifacts] == ["so stamped x"]
        if version == "1.0":
            listed = await client.list_tasks(ListTasksRequest(context_id=context))
            assert (listed.total_size, listed.tasks[0].id) == (3, task.id)
        running = client.send_message(say(SLOW, context_id=context))
        first = await anext(running)
        following = client.subscribe(SubscribeToTaskRequest(id=first.task.id))
        assert (await anext(following)).task.id == first.task.id
        cancelled = await client.cancel_task(CancelTaskRequest(id=first.task.id))
        assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
        assert (await events_of(following))[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED
        await events_of(running)
        with pytest.raises((TaskNotFoundError, A2AClientError)):
            await client.get_task(GetTaskRequest(id=context))


@requirement("a2a:client:python", "a2a:errors:table")
@pytest.mark.parametrize(("binding", "version"), INTERFACES)
@pytest.mark.parametrize("streaming", [True, False])
async def test_the_python_client_says_why_a_message_was_refused(
    socket_server: SocketServer, binding: str, version: str, streaming: bool
) -> None:
    async with python_client(socket_server, binding, version, streaming=streaming) as client:
        with pytest.raises(A2AError, match="a message's text exceeds the limit of 1048576"):
            await events_of(client.send_message(say("x" * 1_048_577)))


@requirement("a2a:client:python")
@pytest.mark.parametrize(("binding", "version"), INTERFACES)
async def test_the_python_client_waits_for_a_task_or_polls_it(
    socket_server: SocketServer, binding: str, version: str
) -> None:
    async with python_client(socket_server, binding, version, streaming=False) as client:
        (answer,) = await events_of(client.send_message(say("hello")))
        task: Task = answer.task
        assert task.artifacts[0].parts[0].text == "Hello! I am the rehearsal agent."
        request = say(script({"wait_ms": 50}, {"say": "done"}))
        request.configuration.CopyFrom(SendMessageConfiguration(return_immediately=True))
        (begun,) = await events_of(client.send_message(request))
        assert begun.task.status.state == TaskState.TASK_STATE_WORKING
        async with asyncio.timeout(DEADLINE_S):
            while (
                await client.get_task(GetTaskRequest(id=begun.task.id))
            ).status.state == TaskState.TASK_STATE_WORKING:
                pass


@requirement("a2a:client:python")
async def test_the_example_asks_its_user(socket_server: SocketServer) -> None:
    url, key = f"{socket_server.connection.url}/a2a/rehearsal", socket_server.key("alice")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLE), url, key, STAMP), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(3 * DEADLINE_S):
        output, _ = await process.communicate(b"y\n")
    assert output.decode().endswith("> so stamped x\n"), output


@requirement("a2a:client:python")
async def test_the_first_lines_of_the_page_stream_an_answer(
    socket_server: SocketServer, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = first_block("protocols/a2a.md", "python").replace("KEY", socket_server.key("alice"))
    lines = lines.replace("http://127.0.0.1:8000/a2a/assistant", f"{socket_server.connection.url}/a2a/rehearsal")
    scope: dict[str, Any] = {}
    exec("async def run():\n" + textwrap.indent(lines, "    ") + "\n    await http.aclose()\n", scope)  # our own page
    capsys.readouterr()
    await scope["run"]()
    assert capsys.readouterr().out.endswith("You said: Hello!")


@requirement("a2a:client:javascript")
async def test_the_javascript_lines_of_the_page_print_an_answer(socket_server: SocketServer, tmp_path: Path) -> None:
    lines = first_block("protocols/a2a.md", "js").replace("KEY", socket_server.key("alice"))
    lines = lines.replace("http://127.0.0.1:8000/a2a/assistant", f"{socket_server.connection.url}/a2a/rehearsal")
    assert await run_module(lines, tmp_path, CLIENTS) == "You said: Hello!\n"


@requirement("a2a:client:javascript")
async def test_the_javascript_client_streams_answers_follows_and_cancels(socket_server: SocketServer) -> None:
    url = f"{socket_server.connection.url}/a2a/rehearsal/"
    seen = json.loads(await run_node(CLIENTS / "client.mjs", url, socket_server.key("alice")))
    assert seen.keys() == {f"{binding} {version}" for binding, version in INTERFACES}
    for found in seen.values():
        assert found == {
            "hello": [["working", "completed"], "Hello! I am the rehearsal agent."],
            "question": [["working", "input-required"], "completed", "You chose production."],
            "approval": [["working", "auth-required"], "so stamped x"],
            "get": ["completed", 1],
            "cancelled": "canceled",
            "followed": "canceled",
            "rest": "canceled",
            "unknown": "TaskNotFoundError",
        }
