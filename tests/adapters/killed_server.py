"""Servers that are killed: `python -m tests.adapters.killed_server FRAMEWORK FOLDER [WORK]`.

It forks a server for each line of its input. The frameworks are imported once; a fork has their modules, and runs the
program as `dragoman serve` does. WORK is what the agent does: `campaign`, the default, or `scenes`, in which tools and
answers hang until their server is killed.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from dragoman.cli import main as cli
from dragoman.core.agent import Agent
from tests.adapters.scenes import AGENT, CallOf, Pause, Script
from tests.adapters.scripted_agents import Effects, build
from tests.servers import make_keys, settings_for

APP = """
from tests.adapters.killed_server import killed_agent

agent = killed_agent({framework!r}, {folder!r}, {work!r})
"""
HANG = "hang at"
"""Before an effect in the file: it hangs at one more of its starts."""
WORK_S = 0.02
"""How long a tool and the second half of an answer take."""


class WrittenEffects(Effects):
    """Effects that outlive the server. Each prompt has two calls at a time, and then one that must be allowed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.pause: Callable[[], Awaitable[None]] = self.answer  # type: ignore[assignment]  # it only has to be called

    def script_for(self, prompts: Sequence[str]) -> Script:
        number = int(prompts[-1].rpartition(" ")[2])
        return [
            ["so ", CallOf("add", {"a": number, "b": 1}), CallOf("add", {"a": number, "b": 2})],
            [CallOf("pay", {"amount": number})],
            ["all ", Pause(), "done"],
        ]

    async def begin(self, tool: str, *arguments: object) -> None:
        self._write(" ".join(map(str, (tool, *arguments))))
        await asyncio.sleep(WORK_S)

    async def answer(self) -> None:
        self._write("answer")
        await asyncio.sleep(WORK_S)

    def _write(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


class HangingEffects(WrittenEffects):
    """Effects of the scenes. Models write down when they are asked; what hangs does so once for each coming kill."""

    def script_for(self, prompts: Sequence[str]) -> Script:
        self._write(f"asked {prompts[-1]}")
        return super(WrittenEffects, self).script_for(prompts)

    async def begin(self, tool: str, *arguments: object) -> None:
        await self._hang_or_go(" ".join(map(str, (tool, *arguments))))

    async def answer(self) -> None:
        await self._hang_or_go("answer")

    async def _hang_or_go(self, line: str) -> None:
        self._write(line)
        lines = self._path.read_text(encoding="utf-8").splitlines()
        if lines.count(line) <= lines.count(f"{HANG} {line}"):
            await asyncio.Event().wait()


WORK: dict[str, Callable[[Path], Effects]] = {"campaign": WrittenEffects, "scenes": HangingEffects}


def killed_agent(framework: str, folder: str, work: str) -> Agent:
    """The agent of a framework whose effects are written to the folder."""
    agent: Agent = build(framework, WORK[work](Path(folder) / "effects"), name=AGENT)
    return agent


def main(framework: str, folder: str, work: str = "campaign") -> None:
    """Fork a server for each line of the input, one at a time."""
    killed_agent(framework, folder, work)  # imports the framework
    app = Path(folder) / "app.py"
    app.write_text(APP.format(framework=framework, folder=folder, work=work), encoding="utf-8")
    data = Path(folder) / "data"
    say(f"key {asyncio.run(make_keys(settings_for(data)))['alice']}")
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            sys.argv = ["dragoman", "serve", str(app), "--port", "0", "--data", str(data)]
            cli.main()
        say(f"pid {pid}")
        os.waitpid(pid, 0)
        say("dead")


def say(line: str) -> None:
    """Tell the campaign something."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
