"""`dragoman init`: a first agent file, to be served as it is and to be changed."""

import os
from pathlib import Path


class AgentFileNotWritable(Exception):
    """There is something already, or it cannot be written; the message says what to do."""


TEMPLATE = '''\
"""A first agent. Serve it: dragoman serve --first-key {name}"""

from dragoman import Agent, tool


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


# A tool that a person has to allow each time.
@tool(needs_approval=True)
def send(to: str, text: str) -> str:
    """Send a message to somebody."""
    return f"sent to {{to}}"


# Without model="openai:gpt-5-mini" or the like it takes what it finds: a provider's key in the environment, or else the
# small embedded model, which talks, but calls no tools.
assistant = Agent(
    "assistant",
    tools=[add, send],
    instructions="You are a helpful assistant. Use your tools where they help.",
    history=True,
)
'''


def write_first_agent(file: Path, serve_command: str) -> None:
    """Write it, and never over anything.

    Args:
        file: where.
        serve: the command that serves it, for the message.

    Raises:
        CannotWrite: it is there already, or cannot be written.
    """
    if file.suffix != ".py":
        raise AgentFileNotWritable(f"a Python file was expected, such as app.py, got {file}")
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError as error:
        raise AgentFileNotWritable(
            f"{file} is there already: name another file, or serve it with: {serve_command}"
        ) from error
    except OSError as error:
        raise AgentFileNotWritable(f"{file} cannot be written: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(TEMPLATE.format(name=file.name))
