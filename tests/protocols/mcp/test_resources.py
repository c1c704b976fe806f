"""Conversations as MCP resources."""

import json
from pathlib import Path

import pytest

from dragoman.protocols.mcp import resources
from tests.conversations import call, script
from tests.protocols.mcp.client import McpClient
from tests.requirements import requirement
from tests.servers import AppServer, running_server


@requirement("mcp:resources:list", "mcp:resources:read")
async def test_conversations_are_resources(app_server: AppServer, alice: McpClient) -> None:
    session_id = (await alice.said("hello"))["session_id"]
    await alice.said(script({"think": "hidden"}, call("add", a=1, b=2), {"say": "{result}"}), session_id=session_id)
    uri = f"dragoman://sessions/{session_id}"
    page = await alice.request("resources/list")
    (listed,) = [each for each in page["resources"] if each["uri"] == uri]
    assert (listed["name"], listed["mimeType"]) == ("hello", "text/markdown")
    assert listed["annotations"]["lastModified"].endswith("Z")
    templates = (await alice.request("resources/templates/list"))["resourceTemplates"]
    assert [each["uriTemplate"] for each in templates] == ["dragoman://sessions/{session_id}"]
    (content,) = (await alice.request("resources/read", {"uri": uri}))["contents"]
    assert content["text"].startswith("**user**\n\nhello\n\n**assistant**\n\nHello! I am the rehearsal agent.\n")
    assert content["text"].endswith("*called add*\n\n**assistant**\n\n3\n")
    assert "hidden" not in content["text"].replace('"hidden"', "")
    await alice.said(script({"say": "half"}, {"fail": "internal"}), session_id=session_id)
    (content,) = (await alice.request("resources/read", {"uri": uri}))["contents"]
    assert content["text"].endswith("**assistant**\n\nhalf\n\n*(failed before its end)*\n")
    bob = McpClient(app_server.connection, app_server.key("bob"))
    await bob.initialize()
    for wrong in (uri + "0", "dragoman://sessions/", "file:///etc/passwd", 7, None):
        assert await alice.error("resources/read", {"uri": wrong}) == (200, -32002)
    assert await bob.error("resources/read", {"uri": uri}) == (200, -32002)
    refused = json.loads((await bob.post(bob.message("resources/read", {"uri": uri}))).body)["error"]
    assert refused == {"code": -32002, "message": "there is no such resource", "data": {"uri": uri}}
    bare = await alice.said("hello", more={"name": "rehearsal-bare"})
    own = f"dragoman://sessions/{bare['session_id']}"
    assert await alice.error("resources/read", {"uri": own}) == (200, -32002), "its agent declares no history"
    assert await alice.error("resources/list", {"cursor": "x"}) == (200, -32602)


@requirement("mcp:resources:list")
async def test_a_page_is_not_empty_because_newer_conversations_are_with_other_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts show the first page, and few ask for the next one."""
    monkeypatch.setattr(resources, "PAGE", 2)
    async with running_server(tmp_path) as server:
        alice = McpClient(server.connection, server.key("alice"))
        await alice.initialize()
        sessions = [(await alice.said("hello"))["session_id"] for _ in range(4)]
        for _ in range(3):
            await alice.said("hello", more={"name": "rehearsal-bare"})
        page = await alice.request("resources/list")
        rest = await alice.request("resources/list", {"cursor": page["nextCursor"]})
    listed = [each["uri"].rpartition("/")[2] for each in (*page["resources"], *rest["resources"])]
    assert (listed, len(page["resources"])) == (sessions[::-1], 3)
    assert "nextCursor" not in rest


@requirement("mcp:resources:setting")
async def test_resources_can_be_turned_off(tmp_path: Path) -> None:
    async with running_server(tmp_path, mcp_resources=False) as server:
        alice = McpClient(server.connection, server.key("alice"))
        assert (await alice.initialize())["capabilities"] == {"tools": {"listChanged": False}}
        assert await alice.error("resources/list") == (200, -32601)
