"""Make the pictures of README and documentation from the running product, for `make pictures`.

A real server and a headless Chromium: screenshots of the console, the protocol lens and the examples' pages, and a
recording of an answer whose server is killed while it streams. Every picture exists for light and dark pages.
"""

import asyncio
import base64
import io
import itertools
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from dragoman.client import AsyncClient
from tests.browser import Browser, Page, browser
from tests.console.console_page import ConsolePage

PROJECT_ROOT = Path(__file__).resolve().parent.parent
PICTURES = PROJECT_ROOT / "docs" / "pictures"
AGENT = "tools/pictures_agent.py"
THEMES = ("light", "dark")
SIZE = (1280, 920)
EXAMPLES = ("ag-ui-web", "assistant-ui", "copilotkit", "use_chat")
EXAMPLE_URL = "http://127.0.0.1:8080"  # where `npm start` serves each of them
EXAMPLE_SIZE = (960, 760)
CONSOLE_SIZE, LENS_SIZE = (500, 640), (860, 640)
MAX_RECORDING_BYTES = 1_000_000
QUESTION = "Which trains go to Vienna on Friday?"
FRAME_S = 0.12
MAX_FRAME_S = 1.5  # a slow machine takes long to start the server
SEEN_BEFORE_KILL, SEEN_AT_THE_END = "direct, costs", "closes at six"
SECONDS_DOWN = 1.2
SECONDS_AT_THE_END = 4

DOT = {"up": "#2dd4bf", "down": "#f87171"}
BAR, BAR_TEXT, BAR_HEIGHT = "#16201f", "#e6edec", 48


class ServerProcess:
    """`dragoman serve` as a user runs it, on a port that stays the same when it is restarted."""

    def __init__(self, folder: Path, *flags: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port = listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = ""
        self._folder = folder
        self._flags = flags
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it is ready."""
        settings = ("--log-level", "error", "--port", str(self.port), *self._flags)
        self._process = await self._dragoman("serve", AGENT, *settings)
        assert self._process.stdout is not None
        if not (await self._process.stdout.readline()).startswith(b"ready"):
            sys.exit("the server does not start")

    async def create_key(self) -> None:
        """Create an API key."""
        output, _ = await (await self._dragoman("keys", "create", "--name", "pictures")).communicate()
        self.key = output.decode().split()[-1]

    async def _dragoman(self, *arguments: str) -> asyncio.subprocess.Process:
        command = (sys.executable, "-m", "dragoman", *arguments, "--data", str(self._folder))
        return await asyncio.create_subprocess_exec(*command, cwd=PROJECT_ROOT, stdout=asyncio.subprocess.PIPE)

    @property
    def pid(self) -> int:
        """The process's number."""
        assert self._process is not None
        return self._process.pid

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop it with a signal."""
        assert self._process is not None
        self._process.send_signal(how)
        await self._process.wait()


@asynccontextmanager
async def running_server(*flags: str) -> AsyncIterator[ServerProcess]:
    """A server with an empty data folder."""
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder), *flags)
        await server.create_key()
        await server.start()
        try:
            yield server
        finally:
            await server.stop()


# --- screenshots ------------------------------------------------------------------------------------------------------


async def take_screenshots(chromium: Browser) -> None:
    """The console with an approval that waits, and the lens of the same session."""
    async with running_server() as server:
        async with AsyncClient(server.url, key=server.key) as client:
            session = await client.create("travel", declared_approval=True, title="A weekend in Vienna")
            await session.ask(QUESTION)
            await session.ask("The ICE at 9:16, please. A window seat.")
        for theme in THEMES:
            window = ConsolePage(await chromium.page(), server.url, server.key, PICTURES)
            await window.resize(*SIZE)
            await window.open()
            await window.set(theme=theme)
            await window.open("conversations", session.id)
            await window.wait_for_text("ICE 21")
            await save(window.page, f"console-{theme}")
            await window.open("lens", f"{session.id}/ag-ui.openai.aap")
            await window.until("document.querySelectorAll('.lens-row').length > 4")
            await save(window.page, f"lens-{theme}")
            await window.close()


async def take_pictures_of_examples(chromium: Browser) -> None:
    """The pages of `examples/`, started as their README pages say, with the answer of an agent."""
    async with running_server() as server:
        for name in EXAMPLES:
            folder = PROJECT_ROOT / "examples" / name
            if not (folder / "node_modules").is_dir():
                install = ("npm", "install", "--no-audit", "--no-fund")
                await (await asyncio.create_subprocess_exec(*install, cwd=folder)).wait()
            async with running_example(folder, server):
                page = await chromium.page()
                await page.resize(*EXAMPLE_SIZE)
                await page.go(EXAMPLE_URL, "!!document.querySelector('[name=key], textarea')")
                if await page.run("!!document.querySelector('[name=key]')"):
                    for field, value in (("server", server.url), ("agent", "travel"), ("key", server.key)):
                        await page.run(f"document.querySelector('[name={field}]').value = '{value}'")
                    await page.run("document.querySelector('[name=key]').form.requestSubmit()")
                await page.until("!!document.querySelector('textarea, #text')")
                await page.run("document.querySelector('textarea, #text').focus()")
                await page.type(QUESTION)
                while await page.run("document.querySelector('textarea, #text').value !== ''"):
                    await page.press("Enter")  # again, if the page was not ready
                    await asyncio.sleep(1)
                await page.until(f"document.body.innerText.includes('{SEEN_AT_THE_END}')")
                for theme in THEMES:
                    features = [{"name": "prefers-color-scheme", "value": theme}]
                    await page.send_command("Emulation.setEmulatedMedia", features=features)
                    await page.run(f"document.documentElement.classList.toggle('dark', {str(theme == 'dark').lower()})")
                    await save(page, f"example-{name.replace('_', '-')}-{theme}")
                await page.close()


@asynccontextmanager
async def running_example(folder: Path, server: ServerProcess) -> AsyncIterator[None]:
    """A page that its folder's `npm start` serves."""
    environ = {"DRAGOMAN_URL": server.url, "DRAGOMAN_KEY": server.key, "DRAGOMAN_AGENT": "travel"}
    process = await asyncio.create_subprocess_exec(
        "npm", "start", cwd=folder, env={**os.environ, **environ}, stdin=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        await until_example_is(served=True)
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # npm does not end what it started
        await process.wait()
        await until_example_is(served=False)


async def until_example_is(*, served: bool) -> None:
    """Wait until something accepts connections at the address of the examples, or nothing does."""
    while True:
        with socket.socket() as probe:
            if (probe.connect_ex(("127.0.0.1", 8080)) == 0) == served:
                return
        await asyncio.sleep(0.2)


async def save(page: Page, name: str) -> None:
    """Save what a page shows."""
    await page.bring_to_front()
    await page.run("document.fonts.ready.then(() => new Promise(requestAnimationFrame)).then(() => 1)")
    await asyncio.sleep(0.5)  # transitions
    picture = Image.open(io.BytesIO(await screenshot(page))).convert("RGB")
    write(name, lambda path: picture.save(path, "WEBP", quality=90, method=6))


def write(name: str, to: Callable[[Path], None]) -> None:
    """Write a picture, and print its size."""
    path = PICTURES / f"{name}.webp"
    to(path)
    sys.stdout.write(f"{path.relative_to(PROJECT_ROOT)}: {path.stat().st_size / 1000:.0f} KB\n")


# --- the recording ----------------------------------------------------------------------------------------------------


class Recording:
    """What several windows show side by side, below a line of a terminal."""

    def __init__(self, pages: Sequence[Page]) -> None:
        self.line, self.state = "", "up"
        self.finished = asyncio.Event()
        self._pages = pages
        self._frames: list[tuple[tuple[bytes, ...], str, str, float]] = []

    async def run(self) -> None:
        """Take frames until the recording is finished, and one after that."""
        is_last = False
        while not is_last:
            is_last = self.finished.is_set()
            began = time.monotonic()
            shots = await asyncio.gather(*map(screenshot, self._pages))
            self._frames.append((tuple(shots), self.line, self.state, began))
            await asyncio.sleep(max(0.0, FRAME_S - (time.monotonic() - began)))

    def save(self, name: str) -> None:
        """Write an animation that repeats."""
        distinct = [next(group) for _, group in itertools.groupby(self._frames, key=lambda frame: frame[:3])]
        pictures = [compose(*frame[:3]) for frame in distinct]
        begins = [frame[3] for frame in distinct]
        ends = [*begins[1:], self._frames[-1][3]]
        durations = [round(1000 * min(end - began, MAX_FRAME_S)) for began, end in zip(begins, ends, strict=True)]
        durations[-1] = round(1000 * SECONDS_AT_THE_END)
        options = {"save_all": True, "append_images": pictures[1:], "duration": durations, "loop": 0, "method": 4}
        write(name, lambda path: pictures[0].save(path, "WEBP", quality=75, **options))
        size = (PICTURES / f"{name}.webp").stat().st_size
        if size > MAX_RECORDING_BYTES:
            sys.exit(f"{name} has {size} bytes; at most {MAX_RECORDING_BYTES} are allowed")


async def screenshot(page: Page) -> bytes:
    """What a page shows, as PNG."""
    shot = await page.send_command("Page.captureScreenshot", format="png", optimizeForSpeed=True)
    return base64.b64decode(shot["data"])


def compose(shots: Sequence[bytes], line: str, state: str) -> Image.Image:
    """One frame."""
    pictures = [Image.open(io.BytesIO(shot)).convert("RGB") for shot in shots]
    size = (sum(each.width for each in pictures) + len(pictures) - 1, BAR_HEIGHT + pictures[0].height)
    frame = Image.new("RGB", size, BAR)
    drawing = ImageDraw.Draw(frame)
    drawing.ellipse((20, 18, 32, 30), fill=DOT[state])
    drawing.text((46, 13), line, fill=BAR_TEXT, font=ImageFont.load_default(18))
    left = 0
    for picture in pictures:
        frame.paste(picture, (left, BAR_HEIGHT))
        left += picture.width + 1
    return frame


async def record(chromiums: Sequence[Browser], theme: str) -> None:
    """An answer streams in the console and in the lens; its server is killed and started again.

    Each window has a browser of its own, because a browser draws only the window in front.
    """
    async with running_server() as server, AsyncClient(server.url, key=server.key) as client:
        session = await client.create("travel", declared_approval=True, title="A weekend in Vienna")
        await session.ask("Hi!")
        places = [("conversations", session.id), ("lens", f"{session.id}/ag-ui.openai")]
        windows = [ConsolePage(await each.page(), server.url, server.key, PICTURES) for each in chromiums]
        for window, place, size in zip(windows, places, (CONSOLE_SIZE, LENS_SIZE), strict=True):
            await window.resize(*size)
            await window.open()
            await window.set(theme=theme)
            await window.open(*place)
            await window.page.bring_to_front()
        await windows[1].until("document.querySelector('.lens-row')")
        recording = Recording([window.page for window in windows])
        recording.line = "$ dragoman serve app.py"
        frames = asyncio.create_task(recording.run())
        run = asyncio.create_task(session.ask(QUESTION))
        await windows[0].wait_for_text(SEEN_BEFORE_KILL)
        recording.line, recording.state = f"$ kill -9 {server.pid}", "down"
        await server.stop(signal.SIGKILL)
        await asyncio.sleep(SECONDS_DOWN)
        recording.line = "$ dragoman serve app.py    (starting)"
        await server.start()
        recording.line, recording.state = "$ dragoman serve app.py    (ready: the answer goes on)", "up"
        await run
        await windows[0].wait_for_text(SEEN_AT_THE_END)
        await windows[1].wait_for_text("RUN_FINISHED")
        recording.finished.set()
        await frames
        for window in windows:
            await window.close()
    recording.save(f"recording-{theme}")


async def main() -> None:
    """Make all pictures, or those whose names begin with an argument."""
    PICTURES.mkdir(exist_ok=True)
    wanted = sys.argv[1:] or ["screenshots", "examples", "recording"]
    async with AsyncExitStack() as stack:
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2)]
        chromiums = [await stack.enter_async_context(browser(folder)) for folder in folders]
        if "screenshots" in wanted:
            await take_screenshots(chromiums[0])
        if "examples" in wanted:
            await take_pictures_of_examples(chromiums[0])
        if "recording" in wanted:
            for theme in THEMES:
                await record(chromiums, theme)


if __name__ == "__main__":
    asyncio.run(main())
