"""An ordinary MCP server based on the official SDK: `python mcp_program.py stdio | http FD`."""

import asyncio
import base64
import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import Context, Elicit, Image, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("program", log_level="CRITICAL")
PIXEL = base64.b64decode("R0lGODlhAQABAAAAACwAAAAAAQABAAA=")


def note(text: str) -> None:
    """Notify the test, which listens there."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(os.environ["NOTES"])
        line.sendall(text.encode())


class Weather(BaseModel):
    """The weather."""

    place: str
    degrees: float


@server.tool(title="Add")
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def weather(place: str) -> Weather:
    """Tell the weather."""
    return Weather(place=place, degrees=21.5)


@server.tool(structured_output=False)
def picture() -> list[object]:
    """Show a picture."""
    return ["Here:", Image(data=PIXEL, format="gif")]


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("it rained")


@server.tool()
def environment(name: str) -> str:
    """Return an environment variable."""
    return os.environ.get(name, "unset")


@server.tool()
async def wait() -> str:
    """Wait forever."""
    note("waiting")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        note("cancelled")
        raise
    return "never"


@server.tool()
def die() -> str:
    """End the process."""
    os._exit(3)


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def die_once(mark: str) -> str:
    """End the process at the first call."""
    if not Path(mark).exists():
        Path(mark).write_text("died")
        os._exit(3)
    return "alive"


@server.tool()
def forecast() -> list[str]:
    """Tell the weather of the next days."""
    return ["sun", "rain"]


@server.tool()
async def grow(context: Context) -> str:
    """Get another tool."""

    def grown() -> str:
        """Be new."""
        return "new"

    server.add_tool(grown)
    await context.notify_tools_changed()
    return "done"


@server.tool()
def token(context: Context) -> str:
    """Return a header of the request."""
    return (context.headers or {}).get("authorization", "none")


class Choice(BaseModel):
    """What the user is asked."""

    agreed: bool


async def ask(place: str) -> Elicit[Choice]:
    """Ask whether to travel."""
    return Elicit(f"Travel to {place}?", Choice)


@server.tool()
def travel(place: str, choice: Annotated[Choice, Resolve(ask)]) -> str:
    """Travel, if the user wants to."""
    return f"went to {place}: {choice.agreed}"


@server.tool(name="dotted.name")
def odd() -> str:
    """Have a name that models do not accept."""
    return "odd"


if __name__ == "__main__":
    if sys.argv[1] == "http":
        uvicorn.run(server.streamable_http_app(), fd=int(sys.argv[2]), log_level="critical")
    else:
        server.run()
