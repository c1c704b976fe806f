"""The official clients: `mcp` for Python in all versions, both TypeScript clients, and the conformance suite."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.asgi_client import DEADLINE_S
from tests.conversations import call, script
from tests.nodejs import node, output_of, require_package, run_module, run_node
from tests.protocols.mcp.client import Json
from tests.requirements import requirement
from tests.servers import SocketServer, server_process
from tests.walkthrough import first_block

CLIENTS = Path(__file__).parent / "clients"
EXAMPLES = Path(__file__).parents[3] / "examples"
STAMP = script(call("stamp", text="x"), {"say": "{result}"})
MODES = ["legacy", "auto", "2026-07-28"]


async def answer_form(context: Any, params: Any) -> types.ElicitResult:
    """Answer a form, as a person at a host does."""
    if "decision" in params.requested_schema["properties"]:
        return types.ElicitResult(action="accept", content={"decision": "allow"})
    return types.ElicitResult(action="accept", content={"answer_0": "production"})


@asynccontextmanager
async def python_client(server: SocketServer, mode: str, **options: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {server.key('alice')}"}
    async with httpx2.AsyncClient(headers=headers, timeout=DEADLINE_S) as http:
        transport = streamable_http_client(f"{server.connection.url}/mcp", http_client=http)
        async with Client(transport, mode=mode, read_timeout_seconds=DEADLINE_S, **options) as client:
            yield client


def structured(result: types.CallToolResult) -> Json:
    return result.structured_content


@requirement("mcp:client:python")
@pytest.mark.parametrize("mode", MODES)
async def test_the_python_client_calls_an_agent_sees_progress_and_answers_forms(
    socket_server: SocketServer, mode: str
) -> None:
    seen: list[tuple[float, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, message))

    async with python_client(socket_server, mode, elicitation_callback=answer_form) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["rehearsal", "rehearsal-bare"]
        hello = await client.call_tool("rehearsal", {"message": "hello"}, progress_callback=on_progress)
        assert seen
        session_id = structured(hello)["session_id"]
        asked = await client.call_tool("rehearsal", {"message": "ask me", "session_id": session_id})
        assert structured(asked)["text"] == "You chose production."
        stamped = await client.call_tool("rehearsal", {"message": STAMP, "session_id": session_id})
        assert structured(stamped)["text"] == "stamped x"
        again = await client.call_tool("rehearsal", {"message": "", "session_id": session_id})
        assert structured(again) == structured(stamped)
        refused = await client.call_tool("rehearsal", {"message": "hello", "session_id": "default"})
        assert refused.is_error
        (resource, *_) = (await client.list_resources()).resources
        (content,) = (await client.read_resource(resource.uri)).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text.startswith("**user**\n\nhello\n")


@requirement("mcp:client:python")
@pytest.mark.parametrize("mode", MODES)
async def test_a_call_that_the_python_client_gives_up_is_cancelled(socket_server: SocketServer, mode: str) -> None:
    begun = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    long = script({"say": "one"}, {"wait_ms": 600_000})
    async with python_client(socket_server, mode) as client:
        hello = structured(await client.call_tool("rehearsal", {"message": "hello"}))
        arguments = {"message": long, "session_id": hello["session_id"]}
        task = asyncio.create_task(client.call_tool("rehearsal", arguments, progress_callback=on_progress))
        async with asyncio.timeout(DEADLINE_S):
            await begun.wait()
            task.cancel()
            await asyncio.wait([task])
            arguments = {"message": "hello", "session_id": hello["session_id"]}
            while (await client.call_tool("rehearsal", arguments)).is_error:
                pass


@requirement("mcp:client:python")
async def test_the_example_calls_an_agent_and_asks_its_user(socket_server: SocketServer) -> None:
    url, key = f"{socket_server.connection.url}/mcp", socket_server.key("alice")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / "mcp_client" / "client.py"), url, key, "rehearsal", "ask me"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(3 * DEADLINE_S):
        output, _ = await process.communicate(b"production\n\n")
    assert output.decode().endswith("You chose production.\n"), output


@requirement("mcp:client:python", "mcp:client:typescript")
@pytest.mark.parametrize(("language", "printed"), [("python", "You said: And again?\n"), ("ts", "You said: Hello!\n")])
async def test_the_programs_of_the_page_run_as_they_are_printed(
    socket_server: SocketServer, tmp_path: Path, language: str, printed: str
) -> None:
    program = first_block("protocols/mcp.md", language).replace("KEY", socket_server.key("alice"))
    program = program.replace("http://127.0.0.1:8000", socket_server.connection.url)
    program = program.replace('"assistant"', '"rehearsal"')
    if language == "python":
        assert await output_of(sys.executable, "-c", program) == printed
    else:
        require_package(CLIENTS, "@modelcontextprotocol/client")
        assert await run_module(program, tmp_path, CLIENTS) == printed


def assert_only_of_the_cancelled_call(errors: list[str]) -> None:
    """What a TypeScript client reports when it cancels a call whose progress is still on its way."""
    expected = ("abort", "enough", "progress notification for an unknown token")
    assert all(any(each in error.lower() for each in expected) for error in errors), errors


@requirement("mcp:client:typescript")
async def test_the_typescript_client_calls_resumes_answers_forms_and_cancels(socket_server: SocketServer) -> None:
    url = f"{socket_server.connection.url}/mcp"
    seen = json.loads(await run_node(CLIENTS / "client.mjs", url, socket_server.key("alice")))
    progress = seen.pop("progress")
    assert progress
    assert "dragoman://sessions/SESSION" in seen.pop("resources")
    assert_only_of_the_cancelled_call(seen.pop("errors"))
    assert seen == {
        "tools": ["rehearsal", "rehearsal-bare"],
        "forms": ["Which environment?", 'rehearsal wants to run stamp\n\n{"text":"x"}'],
        "resumed": "one \n\ntwo",
        "question": "You chose production.",
        "approval": "stamped x",
        "refused": True,
        "cancelled": "cancelled",
        "after": "Hello! I am the rehearsal agent.",
    }


@requirement("mcp:client:typescript")
@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_version_2_of_the_typescript_client_works_in_both_eras(
    socket_server: SocketServer, mode: str, version: str
) -> None:
    require_package(CLIENTS, "@modelcontextprotocol/client")
    url = f"{socket_server.connection.url}/mcp"
    seen = json.loads(await run_node(CLIENTS / "client2.mjs", url, socket_server.key("alice"), mode))
    assert_only_of_the_cancelled_call(seen.pop("errors"))
    assert seen == {
        "version": version,
        "tools": ["rehearsal", "rehearsal-bare"],
        "forms": ["Which environment?", 'rehearsal wants to run stamp\n\n{"text":"x"}'],
        "first": "The sum is 42.",
        "question": "You chose production.",
        "approval": "stamped x",
        "refused": True,
        "cancelled": "cancelled",
        "after": "Hello! I am the rehearsal agent.",
        "progress": True,
        "listed": True,
        "read": "add 20 and 22",
    }


SCENARIOS = {
    "@modelcontextprotocol/conformance": (
        "server-initialize",
        "ping",
        "tools-list",
        "resources-list",
        "server-sse-multiple-streams",
        "dns-rebinding-protection",
    ),
    "conformance-next": (
        "server-initialize",
        "server-session-lifecycle",
        "ping",
        "tools-list",
        "resources-list",
        "sep-2164-resource-not-found",
        "dns-rebinding-protection",
        "http-header-validation",
        "input-required-result-unsupported-methods",
        "input-required-result-validate-input",
    ),
}
"""For each release of the suite the scenarios that need no tools of its own test server. It sends no key."""


@pytest.mark.slow
@requirement("mcp:client:conformance")
@pytest.mark.parametrize("package", SCENARIOS)
async def test_the_conformance_suite_passes(tmp_path: Path, package: str) -> None:
    suite = require_package(CLIENTS, package) / "dist" / "index.js"
    async with server_process(tmp_path, "--no-auth") as server:
        for scenario in SCENARIOS[package]:
            url = server.connection.url.replace("127.0.0.1", "localhost")
            output = await output_of(node(), suite, "server", "--url", f"{url}/mcp", "--scenario", scenario)
            assert "0 failed, 0 warnings" in output, output
    assert os.listdir(tmp_path), "the server stored its data"
