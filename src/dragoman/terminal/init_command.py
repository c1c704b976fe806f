"""`dragoman init`: writes a first agent and its test."""

import os
from pathlib import Path

from dragoman.terminal.first_agents import FirstAgent


class AgentFileNotWritable(Exception):
    """The file exists or cannot be written. The message says what to do."""


class InvalidFileName(Exception):
    """Python cannot import a file with this name. The message says what is expected."""


def write_first_agent(file: Path, kind: FirstAgent, dev_command: str) -> Path:
    """Write an agent and its test to new files.

    Args:
        file: the agent's file.
        kind: what to write.
        dev_command: the command that serves the file, for the error message.

    Returns:
        The test's file, `test_NAME.py` beside the agent's.

    Raises:
        InvalidFileName: Python cannot import a file with this name.
        AgentFileNotWritable: a file exists or cannot be written. Then nothing is written.
    """
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise InvalidFileName(f"expected a file that Python can import, such as app.py or my_agent.py, got {file.name}")
    test = file.with_name(f"test_{file.name}")
    if test.exists() and not file.exists():
        raise AgentFileNotWritable(f"{test} already exists. Name another file")
    values = {"{name}": file.name, "{module}": file.stem, "{test_name}": test.name}
    _write(file, kind.app, values, f"Name another file, or serve this one with: {dev_command}")
    _write(test, kind.test, values, "Name another file")
    return test


def _write(file: Path, text: str, values: dict[str, str], hint: str) -> None:
    for name, value in values.items():
        text = text.replace(name, value)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError as error:
        raise AgentFileNotWritable(f"{file} already exists. {hint}") from error
    except OSError as error:
        raise AgentFileNotWritable(f"cannot write {file}: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)
