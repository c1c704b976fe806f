"""What an agent does not support is refused before the run, by every protocol in its own terms; nothing is left behind.

`rehearsal-bare` accepts neither images nor tools of the application, and the model of `reader` gets no files.
"""

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from dragoman import Agent
from dragoman.testing import Scripted
from tests.protocols.a2a.client import A2aClient, message
from tests.protocols.aap.client import AapClient, assert_refusal, client_tool, user
from tests.protocols.agentscope.client import AgentScopeClient, request_body, tool
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.agui.run_service import RunServiceClient, run_input
from tests.protocols.aisdk.client import Pages
from tests.protocols.blade.client import RestClient, socket_client
from tests.protocols.blade.driver import url_of
from tests.protocols.openai.client import OpenAiClient
from tests.requirements import requirement
from tests.servers import SocketServer, running_socket_server

Json = Any
URL = "https://example.org/x.png"
FILE = "data:application/pdf;base64,aGk="
PAINT = {"name": "paint", "description": "", "parameters": {"type": "object"}}


class TextModel(Scripted):
    """A model that gets neither images nor files."""

    accepts_images = accepts_files = False


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    reader = Agent("reader", model=TextModel([]))
    async with running_socket_server(tmp_path_factory.mktemp("bare"), agents=[reader]) as server:
        yield server


def message_with(content: Json) -> Json:
    return {"role": "user", "type": "message", "content": [content]}


async def session_count(server: SocketServer) -> int:
    alice = RestClient(url_of(server), server.key("alice"))
    return int((await alice.get("sessions"))["total"])


@requirement("ag-ui-b:input:unusable")
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"tools": [PAINT]}, "client_tools_unsupported"),
        (
            {"content": [{"type": "text", "text": "see"}, {"type": "image", "source": {"type": "url", "value": URL}}]},
            "image_unsupported",
        ),
        (
            {"content": [{"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}}]},
            "image_unsupported",
        ),
    ],
)
async def test_ag_ui_refuses_it_with_400_and_makes_no_thread(server: SocketServer, fields: Json, code: str) -> None:
    before = await session_count(server)
    endpoint = Endpoint(server.connection, server.key("alice"), agent="rehearsal-bare")
    body = an_input(fields.pop("content", "hello")) | fields
    reply = await endpoint.run(body)
    assert (reply.status, reply.json["code"]) == (400, code)
    assert await session_count(server) == before


@requirement("ag-ui-b:input:unusable")
async def test_ag_ui_refuses_a_file_with_400_and_makes_no_thread(server: SocketServer) -> None:
    before = await session_count(server)
    endpoint = Endpoint(server.connection, server.key("alice"), agent="reader")
    source = {"type": "data", "value": "aGk=", "mimeType": "application/pdf"}
    reply = await endpoint.run(an_input([{"type": "document", "source": source}]))
    assert (reply.status, reply.json["code"]) == (400, "file_unsupported")
    assert await session_count(server) == before


@requirement("agentscope:errors:unsupported")
@pytest.mark.parametrize(
    ("agent", "body"),
    [
        ("rehearsal-bare", request_body("hello", tools=[tool("paint")])),
        ("rehearsal-bare", request_body(message_with({"type": "image", "image_url": URL}))),
        ("reader", request_body(message_with({"type": "file", "file_url": FILE}))),
    ],
)
async def test_the_agent_api_refuses_it_with_422_and_makes_no_session(
    server: SocketServer, agent: str, body: Json
) -> None:
    before = await session_count(server)
    client = AgentScopeClient(server.connection, server.key("alice"))
    refused = await client.assert_refused("POST", "/process", {**body, "model": agent})
    assert refused == "INVALID_REQUEST"
    assert await session_count(server) == before


@requirement("runs:errors:unsupported")
async def test_the_run_service_refuses_client_tools_with_422(server: SocketServer) -> None:
    before = await session_count(server)
    service = RunServiceClient(server.connection, server.key("alice"))
    body = run_input(str(uuid4()), tools=[PAINT], forwardedProps={"agent_type": "rehearsal-bare"})
    refused = await service.post("/runs", body)
    assert (refused.status, refused.json["code"]) == (422, "AGENT_RUN_INPUT_INVALID")
    assert "takes no tools" in refused.json["detail"]
    assert await session_count(server) == before


@requirement("runs:errors:unsupported")
async def test_the_run_service_refuses_an_uploaded_image_with_422(server: SocketServer) -> None:
    before = await session_count(server)
    service = RunServiceClient(server.connection, server.key("alice"))
    link = (await service.upload()).json["url"]
    image = {"type": "binary", "mimeType": "image/png", "url": link}
    body = run_input(str(uuid4()), [image], forwardedProps={"agent_type": "rehearsal-bare"})
    refused = await service.post("/runs", body)
    assert (refused.status, refused.json["code"]) == (422, "AGENT_RUN_MESSAGES_INVALID")
    assert "takes no images" in refused.json["detail"]
    assert await session_count(server) == before


@requirement("aap:turn:image")
async def test_aap_refuses_it_with_400(server: SocketServer) -> None:
    client = AapClient(server.connection, server.key("alice"))
    body = {"agent": {"name": "rehearsal-bare"}, "tools": [client_tool("paint")]}
    assert_refusal(await client.post("/sessions", body), 400, "client_tools_unsupported")
    session = await client.create("rehearsal-bare")
    image = {"type": "image", "url": URL}
    assert_refusal(await session.post([user([image])]), 400, "image_unsupported")


@requirement("blade:errors:unsupported")
async def test_blade_refuses_it_with_an_acknowledgement(server: SocketServer) -> None:
    alice = RestClient(url_of(server), server.key("alice"))
    session = await alice.session(solution_id="rehearsal-bare")
    message = [{"type": "image_url", "image_url": {"url": URL}}]
    async with socket_client(alice.url, alice.key) as socket:
        answer = await socket.call("chat:send", {"session_id": session, "message": message})
    assert (answer["status"], answer["code"]) == ("error", "bad_request"), json.dumps(answer)


@requirement("openai:request:nothing-stored")
@pytest.mark.parametrize(
    ("path", "member", "more"),
    [
        ("/responses", "input", {"tools": [{"type": "function", **PAINT}]}),
        ("/chat/completions", "messages", {"tools": [{"type": "function", "function": PAINT}]}),
    ],
)
async def test_openais_apis_refuse_client_tools_with_400(
    server: SocketServer, path: str, member: str, more: Json
) -> None:
    before = await session_count(server)
    client = OpenAiClient(server.connection, server.key("alice"))
    body = {"model": "rehearsal-bare", member: [{"role": "user", "content": "hello"}], **more}
    assert await client.refused("POST", path, body) == (400, "client_tools_unsupported", "tools")
    assert await session_count(server) == before


@requirement("ai-sdk:errors:table")
@pytest.mark.parametrize(
    ("part", "more", "reason"),
    [
        ({"type": "file", "mediaType": "image/png", "url": URL}, {}, b"takes no images"),
        ({"type": "text", "text": "hello"}, {"tools": [PAINT]}, b"takes no tools"),
    ],
)
async def test_the_ai_sdk_refuses_it_with_400_and_makes_no_chat(
    server: SocketServer, part: Json, more: Json, reason: bytes
) -> None:
    before = await session_count(server)
    pages = Pages(server.connection, server.key("alice"), "rehearsal-bare")
    refused = await pages.post(str(uuid4()), {"id": "m-1", "role": "user", "parts": [part]}, **more)
    assert (refused.status, reason in refused.body) == (400, True)
    assert await session_count(server) == before


@requirement("a2a:errors:table")
async def test_a2a_refuses_an_image_and_makes_no_task(server: SocketServer) -> None:
    before = await session_count(server)
    client = A2aClient(server.connection, server.key("alice"), agent="rehearsal-bare")
    image = {"url": URL, "mediaType": "image/png"}
    refused = await client.error("SendMessage", {"message": message([{"text": "see"}, image])})
    assert refused == (-32005, "CONTENT_TYPE_NOT_SUPPORTED")
    assert await session_count(server) == before
