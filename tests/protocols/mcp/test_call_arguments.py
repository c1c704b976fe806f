"""`tools/call`: what arguments mean, which are refused, and files in both directions."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from dragoman import Capabilities, File, Run, Text, agent
from dragoman.core.content import Block
from tests.conversations import script
from tests.protocols.mcp.client import Json, McpClient
from tests.requirements import requirement
from tests.servers import AppServer, running_server


@requirement("mcp:call:options", "mcp:call:files")
async def test_options_and_files_go_to_the_agent(alice: McpClient) -> None:
    image = {"mime_type": "image/png", "data": "iVBORw0KGgo="}
    said = await alice.said(script({"option": "style"}), options={"style": "loud"}, files=[image])
    assert (said["status"], said["text"]) == ("completed", "loud")
    other = await alice.said(script({"option": "style"}), session_id=said["session_id"], options={"style": "plain"})
    assert other["text"] == "plain"


@requirement("mcp:call:refused")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({}, "invalid_arguments", "message"),
        ({"message": 5}, "invalid_arguments", "message"),
        ({"message": "hello", "session_id": "default"}, "session_not_found", "leave session_id out"),
        ({"message": "hello", "session_id": str(uuid4())}, "session_not_found", "leave session_id out"),
        ({"message": ""}, "invalid_arguments", "session_id"),
        ({"message": "hello", "sessionId": "x"}, "invalid_arguments", "sessionId"),
        ({"message": "hello", "options": {"approve": "yes"}}, "invalid_arguments", "no option named 'approve'"),
        ({"message": "hello", "options": {"token": "secret"}}, "invalid_arguments", "no option named 'token'"),
        ({"message": "hello", "options": {"style": "odd"}}, "invalid_arguments", "plain, loud"),
        ({"message": "hello", "files": [{"mime_type": "image/png"}]}, "invalid_arguments", "data or url"),
        (
            {"message": "hello", "files": [{"mime_type": "image/png", "url": "http://169.254.169.254/"}]},
            "invalid_arguments",
            "https://",
        ),
        ({"message": "hello", "files": [{"mime_type": "a/b\r\nc", "data": ""}]}, "invalid_arguments", "mime_type"),
        ({"message": "x" * (1024 * 1024 + 1)}, "invalid_arguments", "exceeds the limit"),
        ([], "invalid_arguments", "object"),
    ],
)
async def test_a_wrong_call_is_a_result_that_a_model_can_act_on(
    app_server: AppServer, alice: McpClient, arguments: Json, code: str, words: str
) -> None:
    before = len((await alice.request("resources/list"))["resources"])
    result = await alice.request("tools/call", {"name": "rehearsal", "arguments": arguments})
    assert result["isError"] is True
    assert (result["structuredContent"]["session_id"], result["structuredContent"]["text"]) == ("", "")
    assert result["structuredContent"]["error"]["code"] == code
    assert words in result["content"][0]["text"]
    assert len((await alice.request("resources/list"))["resources"]) == before, "nothing was left behind"


@requirement("mcp:call:refused")
async def test_files_for_an_agent_that_takes_none_and_sessions_of_other_agents_and_users_are_refused(
    app_server: AppServer, alice: McpClient
) -> None:
    files = [{"mime_type": "image/png", "data": "iVBORw0KGgo="}]
    params: Json = {"name": "rehearsal-bare", "arguments": {"message": "hello", "files": files}}
    assert "takes no images" in (await alice.request("tools/call", params))["content"][0]["text"]
    session_id = (await alice.said("hello"))["session_id"]
    params = {"name": "rehearsal-bare", "arguments": {"message": "hello", "session_id": session_id}}
    assert "rehearsal" in (await alice.request("tools/call", params))["content"][0]["text"]
    bob = McpClient(app_server.connection, app_server.key("bob"))
    await bob.initialize()
    for message in ("hello", ""):
        refused = await bob.call(message, session_id=session_id)
        assert refused["structuredContent"]["error"]["code"] == "session_not_found"


@requirement("mcp:result:blocks")
async def test_images_and_data_are_part_of_the_result(alice: McpClient) -> None:
    pixel, named = "data:image/png;base64,iVBORw0KGgo=", "data:image/png;name=a.png;base64,iVBORw0KGgo="
    result = await alice.call(
        script(
            {"say": "look"},
            {"image": pixel},
            {"image": named},
            {"image": "https://example.org/a.png"},
            {"data": {"a": 1}},
        )
    )
    assert result["content"][:-1] == [
        {"type": "text", "text": "look"},
        {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
        {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
        {"type": "resource_link", "uri": "https://example.org/a.png", "name": "file"},
        {"type": "text", "text": '{"a":1}'},
    ]
    assert result["structuredContent"]["data"] == [{"a": 1}]


@requirement("mcp:call:files", "mcp:result:blocks")
async def test_files_that_an_agent_gives_are_content_and_audio_reaches_it_as_audio(tmp_path: Path) -> None:
    @agent(images=True)
    async def mirror(run: Run) -> AsyncIterator[Block]:
        assert run.message is not None
        for block in run.message.content:
            yield Text(block.media) if isinstance(block, File) else Text("no file")
            if not isinstance(block, str):
                yield block

    async with running_server(tmp_path, agents=[mirror]) as server:
        alice = McpClient(server.connection, server.key("alice"))
        await alice.initialize()
        files = [
            {"mime_type": "audio/wav", "data": "UklGRg=="},
            {"mime_type": "application/pdf", "data": "JVBERg==", "name": "the report.pdf"},
            {"mime_type": "text/csv", "data": "MQ=="},
        ]
        content = (await alice.call("these", files=files, more={"name": "mirror"}))["content"]
    pdf = {"uri": "file:///the%20report.pdf", "mimeType": "application/pdf", "blob": "JVBERg=="}
    assert content[0] == {"type": "text", "text": "no filetheseaudiofilefile"}
    assert content[1:-1] == [
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {"type": "resource", "resource": pdf},
        {"type": "resource", "resource": {"uri": "file:///file", "mimeType": "text/csv", "blob": "MQ=="}},
    ]


@requirement("mcp:call:files", "mcp:tools:list")
async def test_an_agent_without_images_reads_documents_and_one_without_files_is_offered_none(tmp_path: Path) -> None:
    @agent
    async def reader(run: Run) -> AsyncIterator[Block]:
        assert run.message is not None
        files = [block for block in run.message.content if isinstance(block, File)]
        yield Text(", ".join(f"{each.name} {each.media_type}" for each in files))

    @agent(capabilities=Capabilities(files=False))
    async def talker(run: Run) -> str:
        return "Hello."

    document = {"mime_type": "application/pdf", "data": "JVBERg==", "name": "report.pdf"}
    async with running_server(tmp_path, agents=[reader, talker]) as server:
        alice = McpClient(server.connection, server.key("alice"))
        await alice.initialize()
        tools = (await alice.request("tools/list"))["tools"]
        offered = {each["name"]: "files" in each["inputSchema"]["properties"] for each in tools}
        said = await alice.call("read", files=[document], more={"name": "reader"})
        refused = await alice.call("read", files=[document], more={"name": "talker"})
    assert (offered["reader"], offered["talker"]) == (True, False)
    assert said["structuredContent"]["text"] == "report.pdf application/pdf"
    assert refused["isError"] is True
    assert "takes no files" in refused["content"][0]["text"]


@requirement("mcp:call:files", "mcp:call:options")
async def test_members_that_a_model_leaves_empty_count_as_absent(alice: McpClient) -> None:
    """With strict schemas a model has to write every member: it leaves those empty that it does not need, or null."""
    image = {"mime_type": "image/png", "data": "iVBORw0KGgo=", "name": "", "url": ""}
    said = await alice.said("hello", session_id="", files=[image, {**image, "name": None, "url": None}], options={})
    assert (said["status"], said["text"]) == ("completed", "Hello! I am the rehearsal agent.")
    again = await alice.said("hello", session_id=None, files=None, options={"style": None})
    assert again["status"] == "completed"
    assert again["session_id"] != said["session_id"]
