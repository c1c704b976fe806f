"""The example client of the run service, as its readers run it: over a socket, against the real program."""

import asyncio
import sys
from pathlib import Path

from tests.asgi_client import DEADLINE_S
from tests.protocols.agui.run_service import script
from tests.requirements import requirement
from tests.servers import server_process

EXAMPLE = Path(__file__).parents[3] / "examples" / "run_service_client.py"
STAMP = script({"say": "First. "}, {"call": {"name": "stamp", "input": {"text": "x"}}}, {"say": "Then: {result}"})


@requirement("runs:suite:example")
async def test_the_example_client_follows_a_run_and_asks_before_a_tool_runs(tmp_path: Path) -> None:
    async with server_process(tmp_path) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(EXAMPLE), server.connection.url, server.key("alice"), STAMP),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(DEADLINE_S):
            output, _ = await process.communicate(b"y\n")
    assert process.returncode == 0
    assert output.decode().splitlines() == [
        "First. ? Allow the call of stamp? [y/n]",
        "Then: stamped x",
        f"1 user: {STAMP}",
        "2 assistant: First. ",
        "4 assistant: Then: stamped x",
    ]
