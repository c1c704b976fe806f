"""What the programs have in common."""

import asyncio
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn

COUNTED = [f"{number} " for number in range(30)]
"""What an agent says that counts, in pieces."""
PAUSE_S = 0.01
"""How long it waits between two of them."""


async def pause() -> None:
    """Wait between two pieces."""
    await asyncio.sleep(PAUSE_S)


def pay(amount: int) -> str:
    """Pay an amount."""
    with Path(sys.argv[1]).open("a", encoding="utf-8") as file:
        file.write(f"{amount}\n")
    return f"paid {amount}"


def serve(app: Any) -> None:
    """Serve an app until the input ends."""
    listening = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    threading.Thread(target=_exit_with_input, daemon=True).start()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])


def _exit_with_input() -> None:
    sys.stdin.read()
    os._exit(0)
