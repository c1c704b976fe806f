"""A stream whose key is revoked ends with the reason where its protocol has a form for it; the run continues.

The reason has no place in the run: whoever continues the stream with another key of the user gets exactly the rest.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.asgi_client import Stream
from tests.conversations import script
from tests.protocols.a2a.client import A2aClient, Dialect, TaskStream, message
from tests.protocols.agentscope.client import AgentScopeClient, request_body
from tests.protocols.aisdk.client import Pages
from tests.protocols.aisdk.client import user as page
from tests.protocols.every_protocol import for_every_protocol
from tests.protocols.openai.client import OpenAiClient
from tests.requirements import requirement
from tests.servers import AppServer, running_server

SLOW = script({"say": "one "}, {"wait_ms": 600_000})
REASON = "the API key or token is no longer valid; the run continues"


@asynccontextmanager
async def server_with_two_keys(tmp_path: Path) -> AsyncIterator[AppServer]:
    """A server on which `alice` and `alice_phone` are keys of one user."""
    async with running_server(tmp_path) as server:
        yield server


async def until_revoked(server: AppServer, stream: Stream) -> tuple[str, str]:
    """Read until the agent has said something, revoke the key, and return the frames before and after."""
    said = b""
    while b"one " not in said:
        chunk = await stream.chunk()
        assert chunk is not None, said
        said += chunk
    app: Any = server.connection.app
    await app.keys.revoke("alice_phone")
    rest = await stream.read()
    return said.decode(), rest.decode()


def data_of(frame: str) -> Any:
    """The JSON of a frame."""
    return json.loads(frame.partition("data: ")[2])


@requirement("openai:stream:revoked")
async def test_a_response_ends_with_an_error_event_and_continues_after_its_number(tmp_path: Path) -> None:
    async with server_with_two_keys(tmp_path) as server:
        phone, alice = (OpenAiClient(server.connection, server.key(name)) for name in ("alice_phone", "alice"))
        body = {"model": "rehearsal", "input": SLOW, "stream": True, "background": True}
        said, rest = await until_revoked(server, await phone.open("POST", "/responses", body))
        seen = [data_of(each) for each in said.strip().split("\n\n")]
        assert rest.startswith("event: error\n")
        assert data_of(rest) == {
            "type": "error",
            "sequence_number": seen[-1]["sequence_number"],
            "code": "invalid_api_key",
            "message": REASON,
            "param": "",
        }
        response_id = seen[0]["response"]["id"]
        stream = await alice.replay(response_id, after=data_of(rest)["sequence_number"])
        await alice.post(f"/responses/{response_id}/cancel", {})
        assert (await stream.end())["status"] == "cancelled"


@requirement("agentscope:stream:revoked")
async def test_a_response_of_the_agent_api_ends_with_an_error_message_that_repeats_its_number(tmp_path: Path) -> None:
    async with server_with_two_keys(tmp_path) as server:
        phone, alice = (AgentScopeClient(server.connection, server.key(name)) for name in ("alice_phone", "alice"))
        said, rest = await until_revoked(server, await phone.open("POST", "/process", request_body(SLOW, stream=True)))
        seen = [data_of(each) for each in said.strip().split("\n\n")]
        ended = data_of(rest)
        assert ended["sequence_number"] == seen[-1]["sequence_number"]
        assert (ended["object"], ended["type"], ended["status"]) == ("message", "error", "failed")
        assert (ended["code"], ended["message"]) == ("UNAUTHORIZED", REASON)
        assert ended["error"] == {"code": "UNAUTHORIZED", "message": REASON}
        assert "id: " not in rest
        response_id = seen[0]["id"]
        stream = await alice.replay(response_id, after=ended["sequence_number"])
        await alice.stop(response_id=response_id)
        assert (await stream.end())["status"] == "canceled"


@requirement("a2a:stream:revoked")
@pytest.mark.parametrize("dialect", ["rpc", "old", "http"])
async def test_a_stream_of_a_task_ends_with_an_error_of_its_binding(tmp_path: Path, dialect: Dialect) -> None:
    async with server_with_two_keys(tmp_path) as server:
        phone, alice = (
            A2aClient(server.connection, server.key(name), dialect=dialect) for name in ("alice_phone", "alice")
        )
        begun: TaskStream = await phone.stream("SendStreamingMessage", {"message": message(SLOW)})
        first = await begun.next()
        task_id = begun.task_id
        said, rest = await until_revoked(server, begun.stream)
        if dialect == "http":
            assert rest.startswith("event: error\n")
            assert data_of(rest)["error"]["status"] == "UNAUTHENTICATED"
        else:
            assert rest.startswith("data: ")
            assert data_of(rest)["id"] == 1
        assert data_of(rest)["error"]["message"] == REASON
        assert first is not None
        position = said.rpartition("id: ")[2].partition("\n")[0]
        stream = await alice.subscribe(task_id, after=position)
        await alice.cancel(task_id)
        await stream.rest()
        assert stream.statuses() == ["canceled"]
        assert stream.text() == ""


@requirement("ai-sdk:stream:revoked")
async def test_a_turn_of_the_ai_sdk_ends_with_an_error_and_an_end(tmp_path: Path) -> None:
    async with server_with_two_keys(tmp_path) as server:
        phone, alice = (Pages(server.connection, server.key(name)) for name in ("alice_phone", "alice"))
        _, rest = await until_revoked(server, await phone.open("POST", "", {"id": "c", "messages": [page(SLOW, "u1")]}))
        error, finish, done, _ = rest.split("\n\n")
        assert data_of(error) == {"type": "error", "errorText": REASON}
        assert (data_of(finish), done) == ({"type": "finish"}, "data: [DONE]")
        assert (await alice.request("POST", "/c/stop")).status == 200


TESTS = for_every_protocol(
    {
        "openai": test_a_response_ends_with_an_error_event_and_continues_after_its_number,
        "agentscope": test_a_response_of_the_agent_api_ends_with_an_error_message_that_repeats_its_number,
        "ai_sdk": test_a_turn_of_the_ai_sdk_ends_with_an_error_and_an_end,
        "a2a": test_a_stream_of_a_task_ends_with_an_error_of_its_binding,
    },
    without={
        "agui": "in agui/test_endpoint_threads.py",
        "run_service": "its stream ends, and the client continues after its last id: agui/test_run_service_events.py",
        "aap": "its only error ends the turn, which continues: abuse/test_wire.py",
        "mcp": "an answer would end the call; clients that reconnect get a new token for the 401",
        "blade": "the socket is disconnected",
    },
)
