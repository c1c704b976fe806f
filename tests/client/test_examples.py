"""The examples of the client library, run as programs."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.asgi_client import DEADLINE_S
from tests.servers import SocketServer

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


async def run_example(name: str, *arguments: str, typed: str = "") -> str:
    """Run an example and return its output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / name),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(2 * DEADLINE_S):
        output, _ = await process.communicate(typed.encode())
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_asking_from_a_plain_program(socket_server: SocketServer) -> None:
    url, key = socket_server.connection.url, socket_server.key("alice")
    first = await run_example("client_ask.py", url, key, "hello")
    assert first.startswith("Hello! I am the rehearsal agent.\n")
    session_id = first.splitlines()[1].partition(":")[0]
    second = await run_example("client_ask.py", url, key, "Grüße", session_id)
    assert second == f"You said: Grüße\n{session_id}: 4 messages so far\n"


@pytest.mark.parametrize("protocol", ["aap", "ag-ui"])
async def test_following_a_run_with_a_tool_and_a_permission(socket_server: SocketServer, protocol: str) -> None:
    script = '{"script": [{"call": {"name": "stamp", "input": {"text": "x"}}}, {"say": "so: {results}"}]}'
    arguments = (socket_server.connection.url, socket_server.key("alice"), script, protocol, "rehearsal")
    lines = (await run_example("client_stream.py", *arguments, typed="y\n")).splitlines()
    assert lines[:-1] == [
        "[stamp {'text': 'x'}]",
        "? stamp {'text': 'x'} [y/n] [stamp returned stamped x]",
        "so: stamped x",
        "end_turn",
    ]


CLIENTS = (
    *("a2a_client.py", "agentscope_client.py", "blade_client.py", "chat_bot.py", "client_ask.py", "client_stream.py"),
    *("mcp_client/client.py", "run_service_client.py"),
)


@pytest.mark.parametrize("name", CLIENTS)
def test_an_example_without_arguments_says_how_to_call_it(name: str) -> None:
    ran = subprocess.run([sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, timeout=DEADLINE_S)
    assert ran.returncode != 0
    assert Path(name).name in ran.stderr
    assert "Traceback" not in ran.stderr
