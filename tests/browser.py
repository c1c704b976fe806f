"""A headless Chromium under remote control, over the DevTools protocol. Its console is watched."""

import asyncio
import base64
import itertools
import json
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

Json = Any
TIMEOUT_S = 60.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-component-update",
    "--disable-renderer-backgrounding",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-port=0",
)
WAIT_SCRIPT = """
new Promise((resolve) => {
  const look = () => { const found = (CONDITION); found ? resolve(found) : setTimeout(look, 10); };
  look();
})
"""


class Browser:
    """Chromium, which runs. Its pages share what it keeps, as windows of one user do."""

    def __init__(self, websocket: ClientConnection) -> None:
        self._websocket = websocket
        self._numbers = itertools.count(1)
        self._pending_commands: dict[int, asyncio.Future[Json]] = {}
        self._pages: dict[str, Page] = {}

    async def page(self) -> "Page":
        """Open another window."""
        target = await self.send_command("Target.createTarget", url="about:blank")
        attached = await self.send_command("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = self._pages[attached["sessionId"]] = Page(self, attached["sessionId"], target["targetId"])
        for domain in ("Page", "Runtime", "Log"):
            await page.send_command(f"{domain}.enable")
        return page

    async def listen(self) -> None:
        """Take what the browser says, until it ends."""
        async for line in self._websocket:
            said = json.loads(line)
            if "id" in said:
                answer = self._pending_commands.pop(said["id"])
                if not answer.done():  # nobody waits any longer
                    answer.set_result(said)
            elif said.get("sessionId") in self._pages:
                self._pages[said["sessionId"]].on_event(said["method"], said["params"])

    async def send_command(self, method: str, session: str | None = None, **parameters: Json) -> Json:
        """Send a command of the DevTools protocol; its result."""
        number = next(self._numbers)
        self._pending_commands[number] = answer = asyncio.get_running_loop().create_future()
        to = {} if session is None else {"sessionId": session}
        await self._websocket.send(json.dumps({"id": number, "method": method, "params": parameters, **to}))
        async with asyncio.timeout(TIMEOUT_S):
            said = await answer
        assert "error" not in said, (method, said)
        return said["result"]


class Page:
    """One window."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target
        self.console: list[str] = []
        """Warnings, errors, and exceptions that nobody caught."""

    async def send_command(self, method: str, **parameters: Json) -> Json:
        """Send a command of the DevTools protocol to this window; its result."""
        return await self._browser.send_command(method, self._session, **parameters)

    async def go(self, url: str, ready: str = "document.readyState === 'complete'") -> None:
        """Load a page and wait until it is ready; one that is open already is loaded anew."""
        await self.send_command("Page.navigate", url="about:blank")
        await self.send_command("Page.navigate", url=url)
        await self.until(f"location.href !== 'about:blank' && ({ready})")

    async def reload(self) -> None:
        """Load the page again. The browser first answers for the old document, which must not be taken for the new."""
        await self.run("window.isOld = true")
        await self.send_command("Page.reload")
        await self.until("!window.isOld")

    async def run(self, script: str) -> Json:
        """Evaluate an expression."""
        result = await self.send_command("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def until(self, condition: str) -> Json:
        """Wait until an expression holds; its value. It may be asked while the page changes to another one.

        Raises:
            AssertionError: it does not hold in time. The error shows what the page shows.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    try:
                        return await self.run(WAIT_SCRIPT.replace("CONDITION", condition))
                    except AssertionError as error:
                        if "navigated or closed" not in str(error) and "context was destroyed" not in str(error):
                            raise
        except TimeoutError:
            shown = await self.run("`${location.href} (${document.visibilityState})\\n${document.body?.innerText}`")
            raise AssertionError(f"not within {TIMEOUT_S:.0f} s: {condition}\nThe page shows:\n{shown}") from None

    async def bring_to_front(self) -> None:
        """Bring the window to the front: only there words are taken and frames are drawn."""
        await self.send_command("Page.bringToFront")

    async def type(self, text: str) -> None:
        """Type into what has the focus, as a keyboard does."""
        await self.bring_to_front()
        await self.send_command("Input.insertText", text=text)

    async def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key, such as `Enter`, `Escape` or `Tab`."""
        await self.bring_to_front()
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38, " ": 32}
        pressed: Json = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": 8 if shift else 0}
        if key == "Enter":
            pressed["text"] = "\r"
        await self.send_command("Input.dispatchKeyEvent", type="keyDown", **pressed)
        await self.send_command("Input.dispatchKeyEvent", type="keyUp", **pressed)

    async def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.send_command("Emulation.setDeviceMetricsOverride", **size)

    async def screenshot(self, path: Path) -> None:
        """Keep what the window shows, as a PNG."""
        shot = await self.send_command("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.parent.mkdir, parents=True, exist_ok=True)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))

    async def close(self) -> None:
        """Close the window."""
        await self._browser.send_command("Target.closeTarget", targetId=self._target)

    def on_event(self, method: str, params: Json) -> None:
        """Take what the browser says about this window."""
        if method == "Runtime.exceptionThrown":
            self.console.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("warning", "error"):
            self.console.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("warning", "error"):
            self.console.append(str(params["entry"]))


@asynccontextmanager
async def browser(profile: Path) -> AsyncIterator[Browser]:
    """Chromium with a fresh profile, from its start to its end."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium on this machine")
    process = await asyncio.create_subprocess_exec(
        program, *FLAGS, f"--user-data-dir={profile}", "about:blank", stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            address = await _address(process)
        async with connect(address, max_size=None, ping_interval=None) as line:  # a busy browser answers late
            running = Browser(line)
            listening = asyncio.create_task(running.listen())
            yield running
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


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name there
        pass


@contextmanager
def http_server(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """A web server in a thread; its origin."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def web_site(folder: Path) -> AbstractContextManager[str]:
    """A web site with the files of a folder; its origin."""
    return http_server(partial(_Files, directory=str(folder)))
