"""The example client against the server."""

import asyncio
import os
import sys
from pathlib import Path

from tests.asgi_client import DEADLINE_S
from tests.protocols.blade.client import RestClient
from tests.requirements import requirement

EXAMPLE = Path(__file__).parents[3] / "examples" / "blade_client.py"


@requirement("blade:clients:example")
async def test_the_example_talks_answers_and_ends(alice: RestClient) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLE),
        alice.url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "BLADE_KEY": alice.key},
    )
    async with asyncio.timeout(2 * DEADLINE_S):
        output, _ = await process.communicate(b"add 2 and 3\nask me\n2\n\n")
    assert process.returncode == 0
    assert output.decode() == (
        '> [add {"a":2,"b":3}]\nThe sum is 5.\n'
        "> Which environment?\n  1. staging\n  2. production\n\n"
        "> You chose production.\n"
        "> "
    )
