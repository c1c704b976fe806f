"""`dragoman init`: writes a first agent file."""

import os
from pathlib import Path


class AgentFileNotWritable(Exception):
    """The file exists or cannot be written. The message says what to do."""


TEMPLATE = '''\
"""A first agent. Serve it: dragoman serve --first-key {name}"""

from dragoman import Agent, tool


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


# A person has to approve each call of this tool.
@tool(needs_approval=True)
def send(to: str, text: str) -> str:
    """Send a message to a person."""
    return f"sent to {{to}}"


# Without model="openai:gpt-5-mini" or the like, the server picks a model: one for a provider's key in the environment,
# or the small embedded model, which can chat but cannot call tools.
assistant = Agent(
    "assistant",
    tools=[add, send],
    instructions="You are a helpful assistant. Use your tools where they help.",
    history=True,
)
'''


def write_first_agent(file: Path, serve_command: str) -> None:
    """Write the template to a new file.

    Args:
        file: the file's path.
        serve_command: the command that serves it, for the error message.

    Raises:
        AgentFileNotWritable: the file exists or cannot be written.
    """
    if file.suffix != ".py":
        raise AgentFileNotWritable(f"expected a Python file such as app.py, got {file}")
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError as error:
        raise AgentFileNotWritable(
            f"{file} already exists. Name another file, or serve this one with: {serve_command}"
        ) from error
    except OSError as error:
        raise AgentFileNotWritable(f"cannot write {file}: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(TEMPLATE.format(name=file.name))
