"""Call an agent over MCP: `python client.py URL KEY AGENT MESSAGE`. Needs `pip install mcp`."""

import asyncio
import sys
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult


def read_line(prompt: str) -> str:
    """A line that the user types; empty at the end of the input."""
    try:
        return input(prompt)
    except EOFError:
        return ""


async def ask(context: object, params: ElicitRequestParams) -> ElicitResult:
    """Show a form of the agent to the user: a question, or a call that needs approval."""
    assert isinstance(params, ElicitRequestFormParams), "the server sends no other forms"
    print(params.message)
    content: dict[str, str | int | float | bool | list[str] | None] = {}
    for name, field in params.requested_schema["properties"].items():
        choices = f" ({', '.join(field['enum'])})" if "enum" in field else ""
        if given := await asyncio.to_thread(read_line, f"{field['title']}{choices}: "):
            content[name] = given
    return ElicitResult(action="accept" if content else "cancel", content=content or None)


async def show_progress(progress: float, total: float | None, message: str | None) -> None:
    print(f"[{message}]", file=sys.stderr)


async def main(url: str, key: str, agent: str, message: str) -> None:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=120) as http,
        Client(streamable_http_client(url, http_client=http), elicitation_callback=ask) as client,
    ):
        arguments = {"message": message}
        while True:
            result = await client.call_tool(agent, arguments, progress_callback=show_progress)
            answer: dict[str, Any] = result.structured_content
            if answer["status"] != "working":
                break
            arguments = {"message": "", "session_id": answer["session_id"]}  # it takes long: wait for the rest
        print(answer["text"] or answer["status"])


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:5]))
