"""A user at a terminal: the program on a real pseudo-terminal, and what its screen shows."""

import asyncio
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

DEADLINE_S = 60
COMMAND = (sys.executable, "-m", "dragoman")
CONTROL_SEQUENCES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f]")
"""Colors and cursor movements."""
CTRL_C, CTRL_D = "\x03", "\x04"


def environ(home: Path, **more: str) -> dict[str, str]:
    """The environment of a user without settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DRAGOMAN_", "XDG_"))}
    return inherited | {"HOME": str(home), "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"} | more


class TerminalUser:
    """Types, and reads what the screen shows."""

    def __init__(self, terminal: int, process: asyncio.subprocess.Process) -> None:
        self._terminal = terminal
        self._process = process
        self._more = asyncio.Event()
        self._is_over = False
        self._read_to = 0
        self.raw = ""
        asyncio.get_running_loop().add_reader(terminal, self._read)

    @property
    def screen_text(self) -> str:
        """Everything that was shown, without colors."""
        return CONTROL_SEQUENCES.sub("", self.raw)

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def say(self, line: str) -> None:
        self.type(line + "\r")

    async def until(self, text: str) -> str:
        """Wait for a text; returns what was shown between the last wait and it."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while (position := self.screen_text.find(text, self._read_to)) < 0:
                    assert not self._is_over, (
                        f"the program ended without showing {text!r}, but: {self.screen_text[self._read_to :]}"
                    )
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"{text!r} was not shown in time, but: {self.screen_text[self._read_to :]}") from None
        before = self.screen_text[self._read_to : position]
        self._read_to = position + len(text)
        return before

    async def code(self) -> int:
        """Wait for the program's end and return its exit code."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._process.wait()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._terminal)
        os.close(self._terminal)

    def _read(self) -> None:
        read = b""
        with suppress(OSError):  # Linux reports a closed terminal this way
            read = os.read(self._terminal, 65536)
        if not read:
            self._is_over = True
            asyncio.get_running_loop().remove_reader(self._terminal)
        self.raw += read.decode(errors="replace")
        self._more.set()


@asynccontextmanager
async def at_terminal(home: Path, *arguments: str, **environment: str) -> AsyncIterator[TerminalUser]:
    """Run the program on a terminal of its own."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=home,
        env=environ(home, **environment),
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(terminal)
    user = TerminalUser(controller, process)
    try:
        yield user
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        user.close()


async def in_pipe(
    home: Path, *arguments: str, stdin: str = "", environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run the program in a pipe; returns its exit code, standard output and standard error."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=home,
        env=environ(home, **(environment or {})),
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate(stdin.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None, "communicate() waited for the end"
    return process.returncode, out.decode(), err.decode()
