"""The provider of `clients/provider.mjs`, as a process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.asgi_client import DEADLINE_S
from tests.nodejs import node, require_package

SCRIPT = Path(__file__).parent / "clients" / "provider.mjs"


@asynccontextmanager
async def node_provider(*, token_lifetime_s: int = 300) -> AsyncIterator[str]:
    """Run the provider. Returns its address."""
    require_package(SCRIPT.parent, "oidc-provider")
    process = await asyncio.create_subprocess_exec(
        node(),
        SCRIPT,
        str(token_lifetime_s),
        cwd=SCRIPT.parent,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(3 * DEADLINE_S):
            address = b""
            while not address.startswith(b"http://"):
                address = await process.stdout.readline()
                assert address, "the provider did not start"
        yield address.decode().strip()
    finally:
        process.kill()
        await process.wait()
