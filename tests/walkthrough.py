"""Runs the shell commands of a page of the documentation as they are printed, and compares their output.

A section of a page is one session of a shell. Each block `sh` is executed. A block `text` after it is its expected
output, in which `…` stands for any text within a line.
"""

import asyncio
import os
import re
from pathlib import Path
from typing import NamedTuple

from tests.asgi_client import DEADLINE_S

DOCS = Path(__file__).parent.parent / "docs"
_BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END_OF_STEP = "\x1e"


class Step(NamedTuple):
    """A block of commands, and its expected output; None if the page does not show it."""

    commands: str
    expected: str | None


def steps_of(page: str, heading: str) -> list[Step]:
    """The steps of a section of a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    _, found, rest = text.partition(f"\n## {heading}\n")
    assert found, f"{page} has no section {heading!r}"
    steps: list[Step] = []
    for kind, content in _BLOCK.findall(rest.partition("\n## ")[0]):
        if kind == "sh":
            steps.append(Step(content, None))
        else:
            assert steps, f"{page}: output before the first command"
            assert steps[-1].expected is None, f"{page}: two outputs of {steps[-1].commands!r}"
            steps[-1] = steps[-1]._replace(expected=content)
    return steps


def first_block(page: str, language: str) -> str:
    """The first code block of a page in a language."""
    _, found, rest = (DOCS / page).read_text(encoding="utf-8").partition(f"\n```{language}\n")
    assert found, f"{page} has no block {language!r}"
    return rest.partition("\n```")[0]


async def outputs_of(steps: list[Step], folder: Path, **variables: str) -> list[str]:
    """Run the steps in one shell, and return the output of each. The first command that fails ends the test."""
    script = "".join(f"{step.commands}\nprintf '{_END_OF_STEP}'\n" for step in steps)
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-euo",
        "pipefail",
        "-c",
        script,
        cwd=folder,
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(2 * DEADLINE_S):
        output, errors = await process.communicate()
    outputs = output.decode().split(_END_OF_STEP)
    assert process.returncode == 0, (outputs[-1], errors.decode())
    return outputs[:-1]


def assert_output(step: Step, output: str) -> None:
    """Compare the output of a step with the page."""
    if step.expected is None:
        return
    pattern = re.escape(step.expected.strip()).replace("…", r"[^\n]*")
    assert re.fullmatch(pattern, output.strip()), f"{step.commands}\nprinted:\n{output}\nexpected:\n{step.expected}"
