"""The existing clients: the published Python client, and the web client's merge rule.

`stream.check` passes every stream that a test of this folder reads through both of them. The tests here use the Python
client over a socket, asynchronous and blocking, and check what it does with a refusal.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import requests

from tests.conversations import call, script
from tests.protocols.agentscope import official_client
from tests.protocols.agentscope.client import output, request_body, texts
from tests.protocols.agentscope.stream import check
from tests.protocols.agentscope.web_client import WebView
from tests.requirements import requirement
from tests.servers import SocketServer

EVERYTHING = script(
    {"think": "hm"},
    {"say": ["a", "é", "🧑‍🚀"]},
    {"image": "https://example.org/a.png"},
    {"data": {"k": 1}},
    call("add", a=1, b=2),
    {"mcp": {"server": "weather", "name": "forecast", "input": {}, "output": {"rain": True}}},
    {"plan": {"status": "draft", "steps": []}},
    {"say": "{result}"},
    call("stamp", text="x"),
)
EXAMPLE = Path(__file__).parents[3] / "examples" / "agentscope_client.py"


@requirement("agentscope:clients:python", "agentscope:clients:python-blocking")
async def test_both_python_clients_read_everything(socket_server: SocketServer) -> None:
    url, key = f"{socket_server.connection.url}/process", socket_server.key("alice")
    with official_client.suppress_client_logs():
        events = [event async for event in official_client.events_of(url, key, request_body(EVERYTHING))]
        again = await asyncio.to_thread(
            official_client.events_in_turn, url, key, request_body(EVERYTHING, stream=False)
        )
    types = ["reasoning", "message", "plugin_call", "plugin_call_output", "mcp_call", "mcp_call_output"]
    for end in (check(events), check(again, is_complete=True)):
        assert [each["type"] for each in end["output"]] == [*types, "message", "message", "mcp_approval_request"]
        assert texts(end) == 'aé🧑‍🚀{"rain":true}'


@requirement("agentscope:request:unknown-model", "agentscope:request:answering-agent", "agentscope:clients:python")
async def test_the_python_client_s_model_name_gets_an_answer_that_names_the_agent(socket_server: SocketServer) -> None:
    url, key = f"{socket_server.connection.url}/process", socket_server.key("alice")
    request = official_client.simple_text_request("hello", model="qwen-max")
    end = check([event async for event in official_client.events_of(url, key, request)])
    assert (end["status"], end["model"]) == ("completed", "rehearsal")


@requirement("agentscope:tools:any-object", "agentscope:clients:python")
async def test_a_tool_without_parameters_of_the_python_client_is_called(socket_server: SocketServer) -> None:
    url, key = f"{socket_server.connection.url}/process", socket_server.key("alice")
    tool = {"name": "pick", "description": "Choose", "parameters": {}}
    body = request_body(script(call("pick", anything=[1])), tools=[{"type": "function", "function": tool}])
    end = check([event async for event in official_client.events_of(url, key, body)])
    assert end["output"][0]["content"][0]["data"]["arguments"] == '{"anything":[1]}'


@requirement("agentscope:clients:python", "agentscope:stream:frames")
@pytest.mark.parametrize("odd", ["\x85", "\u2028", "\u2029", "\x0b\x0c\x1c\x1e", "\r\n\r\n", "\ufeff", "\x00", "é🧑‍🚀"])
async def test_no_character_breaks_a_line_for_the_python_client(socket_server: SocketServer, odd: str) -> None:
    """The asynchronous client splits lines at Unicode separators, and silently drops the broken JSON."""
    url, key = f"{socket_server.connection.url}/process", socket_server.key("alice")
    body = request_body(script({"say": [f"a{odd}", "b"]}, call("lookup", q=odd)), session_id=f"{odd}-{len(odd)}")
    with official_client.suppress_client_logs():
        events = [event async for event in official_client.events_of(url, key, body)]
        again = await asyncio.to_thread(official_client.events_in_turn, url, key, body)
    for end in (check(events), check(again)):
        assert (texts(end), end["session_id"]) == (f"a{odd}b", body["session_id"])
        assert end["output"][-1]["content"][0]["data"]["output"] == f"looked up {odd}"


@requirement("agentscope:clients:python-refused")
async def test_a_refusal_raises_in_the_python_client(socket_server: SocketServer) -> None:
    url, key = f"{socket_server.connection.url}/process", socket_server.key("alice")
    for given, body, status in (
        (key, request_body(output("nothing", "x")), 409),
        ("wrong", request_body("hello"), 401),
    ):
        with pytest.raises(httpx.HTTPStatusError) as raised:
            _ = [event async for event in official_client.events_of(url, given, body)]
        assert raised.value.response.status_code == status
        with pytest.raises(requests.HTTPError):
            await asyncio.to_thread(official_client.events_in_turn, url, given, body)


@requirement("agentscope:clients:web")
def test_the_web_client_s_rule_is_as_strict_as_the_original() -> None:
    """The fold loses content when a server breaks the rule, so a stream that passes the check obeys it."""
    content = {"object": "content", "type": "text", "msg_id": "m", "index": 0}
    view = WebView()
    view.feed({"object": "message", "type": "message", "id": "m", "status": "created", "content": None})
    view.feed({**content, "delta": False, "text": "first"})
    view.feed({**content, "delta": False, "text": "second", "index": 1})
    assert [each["text"] for each in view.response["output"][0]["content"]] == ["second"]
    with pytest.raises(ValueError, match="not enough values"):
        view.feed({**content, "msg_id": "nobody", "delta": True, "text": "x"})
    with pytest.raises(AssertionError):
        view.feed({"object": "error"})


@requirement("agentscope:example")
async def test_the_example_client_works(socket_server: SocketServer) -> None:
    steps = script(call("stamp", text="x"), {"say": "Then: {result}"})
    command = [sys.executable, str(EXAMPLE), socket_server.connection.url, socket_server.key("alice"), steps]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    said, _ = await asyncio.wait_for(process.communicate(b"y\n"), 20)
    assert process.returncode == 0
    assert said.decode().splitlines()[-1] == "Then: stamped x"
    assert '? stamp {"text":"x"}' in said.decode()
