"""What a server leaves in its data folder for people on this machine: its address, and the first key (setting
`first_key`), which is created at the first start and printed at every start.
"""

import asyncio
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from dragoman.core.tools import AgentSpec
from dragoman.engine.services.keys import KeyRing

KEY_FILE = "first-key"
ADDRESS_FILE = "address"
"""The address of the server that was started last on the folder."""


def announce_ready(folder: Path, url: str) -> None:
    """Print the line that says that requests are accepted, and write the address for `dragoman chat`."""
    _write(folder / ADDRESS_FILE, local_url(url))
    sys.stdout.write(f"ready {url}\n")
    sys.stdout.flush()


def local_url(url: str) -> str:
    """A server's URL as clients on this machine use it, also if it listens on all addresses."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


async def ensure_bootstrap_key(folder: Path, keys: KeyRing) -> str:
    """Return the key stored in the folder; create a new one if there is none or it was revoked."""
    file = folder / KEY_FILE
    stored = await asyncio.to_thread(_read, file)
    if stored is not None and keys.is_valid(stored):
        return stored
    secret, _ = await keys.create("first key")
    await asyncio.to_thread(_write, file, secret)
    return secret


def curl_line(base: str, key: str | None, agent: AgentSpec) -> str:
    """A shell command that streams an answer over OpenAI's API, which most people know.

    It sends the first message that the agent suggests, or asks what the agent can do.

    Args:
        base: the URL at which OpenAI's API is mounted.
        key: the API key; None on a server without keys.
        agent: the agent to call.
    """
    auth = f" -H 'Authorization: Bearer {key}'" if key else ""
    message = agent.starters[0] if agent.starters else "What can you do?"
    body = msgspec.json.encode({"model": agent.name, "input": message, "stream": True}).decode()
    return f"curl -sN {base}/responses{auth} -H 'Content-Type: application/json' -d {shlex.quote(body)}"


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None


def _write(file: Path, line: str) -> None:
    with suppress(FileNotFoundError):
        file.unlink()
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened_file:
        opened_file.write(line + "\n")
