"""The page at `/docs`: its commands are executed by a shell as they stand there."""

import asyncio
import html
import json
import os
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dragoman.asgi.docs_page import curl_command, render
from tests.protocols.blade.driver import url_of
from tests.servers import running_socket_server

Json = Any


def command_of(page: str, method: str, path: str) -> str:
    """The command for an operation."""
    head = f"<b>{method}</b> <code>{html.escape(path)}</code>"
    (operation,) = [each for each in page.split("<details>") if head in each]
    found = re.search("<pre>(curl .*?)</pre>", operation, re.DOTALL)
    assert found is not None, f"no command for {method} {path}"
    return html.unescape(found[1])


async def output_of(command: str, **variables: str) -> Json:
    process = await asyncio.create_subprocess_shell(
        f"{command} --fail-with-body", env={"PATH": os.environ["PATH"], **variables}, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    return json.loads(output)


async def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    async with running_socket_server(tmp_path) as server:
        variables = {"URL": url_of(server), "KEY": server.key("alice"), "USER": "nobody"}
        async with httpx2.AsyncClient(base_url=variables["URL"]) as http:
            page = (await http.get("/docs")).text
            document = (await http.get("/openapi.json")).json()
        created = await output_of(command_of(page, "POST", "/api/sessions"), **variables)
        variables["SESSION_ID"] = created["session_id"]
        changed = await output_of(command_of(page, "PATCH", "/api/sessions/{session}/pin"), **variables)
        shown = await output_of(command_of(page, "GET", "/api/sessions/{session}"), **variables)
        assert (shown["intent"], shown["is_pinned"], changed["is_pinned"]) == ("a task", True, True)
        for path, methods in document["paths"].items():
            for method in methods:
                assert "{" not in command_of(page, method.upper(), path).rpartition("$URL")[2].replace("${", "")


@pytest.mark.parametrize(
    ("method", "path", "operation", "command"),
    [
        ("GET", "/health", {"security": []}, 'curl -sS "$URL/health"'),
        ("DELETE", "/keys/{key}", {}, 'curl -sS -H "Authorization: Bearer $KEY" -X DELETE "$URL/keys/${KEY_ID}"'),
        (
            "POST",
            "/runs/{run_id}",
            {
                "requestBody": {"content": {"application/json": {"example": {"text": "it's"}}}},
                "responses": {"200": {"content": {"text/event-stream": {}}}},
            },
            (
                'curl -sS -N -H "Authorization: Bearer $KEY" '
                """-H 'Content-Type: application/json' -d '{"text":"it'"'"'s"}' """
                '"$URL/runs/${RUN_ID}"'
            ),
        ),
    ],
)
def test_a_command_has_what_its_operation_needs(method: str, path: str, operation: Json, command: str) -> None:
    assert curl_command(method, path, {"responses": {}, **operation}) == command


def test_what_is_in_backticks_is_code() -> None:
    info = {"title": "A server", "version": "1", "description": "Errors are `{<code>}`."}
    page = render({"info": info, "paths": {}, "components": {"schemas": {}}}).decode()
    assert "<p>Errors are <code>{&lt;code&gt;}</code>.</p>" in page
