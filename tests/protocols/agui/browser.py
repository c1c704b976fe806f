"""A headless Chromium under remote control, over the DevTools protocol. Its console is watched."""

import asyncio
import itertools
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

Json = Any
WAIT_S = 30.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-port=0",
)
UNTIL = """
new Promise((resolve) => {
  const look = () => { const found = (CONDITION); found ? resolve(found) : setTimeout(look, 10); };
  look();
})
"""


class Page:
    """One page."""

    def __init__(self, line: ClientConnection) -> None:
        self._line = line
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Json]] = {}
        self._session: str | None = None
        self.console: list[str] = []
        """Warnings, errors, and exceptions that nobody caught."""

    async def open(self, url: str) -> None:
        target = await self._ask("Target.createTarget", url="about:blank")
        attached = await self._ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self._ask(f"{domain}.enable")
        await self.go(url)

    async def go(self, url: str) -> None:
        """Load a page; one that is open already is loaded anew."""
        await self._ask("Page.navigate", url="about:blank")
        await self._ask("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && document.querySelector('#say')?.onsubmit")

    async def run(self, script: str) -> Json:
        """Evaluate an expression."""
        result = await self._ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def until(self, condition: str) -> Json:
        """Wait until an expression holds; its value."""
        return await self.run(UNTIL.replace("CONDITION", condition))

    async def listen(self) -> None:
        """Take what the browser says, until it ends."""
        async for line in self._line:
            said = json.loads(line)
            if "id" in said:
                self._asked.pop(said["id"]).set_result(said)
            elif said["method"] == "Runtime.exceptionThrown":
                self.console.append(str(said["params"]["exceptionDetails"]))
            elif said["method"] == "Runtime.consoleAPICalled" and said["params"]["type"] in ("warning", "error"):
                self.console.append(str(said["params"]["args"]))
            elif said["method"] == "Log.entryAdded" and said["params"]["entry"]["level"] in ("warning", "error"):
                self.console.append(str(said["params"]["entry"]))

    async def _ask(self, method: str, **parameters: Json) -> Json:
        number = next(self._numbers)
        self._asked[number] = answer = asyncio.get_running_loop().create_future()
        session = {} if self._session is None else {"sessionId": self._session}
        await self._line.send(json.dumps({"id": number, "method": method, "params": parameters, **session}))
        async with asyncio.timeout(WAIT_S):
            said = await answer
        assert "error" not in said, (method, said)
        return said["result"]


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Page]:
    """Chromium with a fresh profile, from its start to its end."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium on this machine")
    process = await asyncio.create_subprocess_exec(
        program, *FLAGS, f"--user-data-dir={profile}", "about:blank", stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(WAIT_S):
            address = await _address(process)
        async with connect(address, max_size=None) as line:
            page = Page(line)
            listening = asyncio.create_task(page.listen())
            yield page
            listening.cancel()
            await asyncio.wait([listening])
    finally:
        process.kill()
        await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async for line in process.stderr:
        _, _, address = line.decode().strip().partition("DevTools listening on ")
        if address:
            return address
    raise RuntimeError(f"Chromium ended with {await process.wait()}")
