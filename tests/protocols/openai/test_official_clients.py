"""OpenAI's API, section 9: the clients that people use, over a real socket."""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.asgi_client import DEADLINE_S
from tests.nodejs import run_node
from tests.protocols.openai.client import call, function, output, script
from tests.requirements import requirement
from tests.servers import SocketServer

Json = Any
CLIENTS = Path(__file__).parent / "clients"
PICK = script(call("pick", n=1), {"say": "got {result}"})


class Point(BaseModel):
    x: int


@pytest.fixture
async def client(socket_server: SocketServer) -> AsyncIterator[openai.AsyncOpenAI]:
    """The official client for Python."""
    url = f"{socket_server.connection.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=socket_server.key("alice"), max_retries=0) as client:
        yield client


@requirement("openai:clients:python")
async def test_the_python_client_creates_streams_parses_and_calls_tools(client: openai.AsyncOpenAI) -> None:
    assert "rehearsal" in [model.id async for model in client.models.list()]
    first = await client.responses.create(model="rehearsal", input="one")
    async with client.responses.stream(model="rehearsal", input="recall", previous_response_id=first.id) as stream:
        events = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert (final.output_text, events[0], events[-1]) == ("one", "response.created", "response.completed")
    async with client.responses.stream(response_id=final.id, starting_after=3) as stream:
        assert [event.type async for event in stream] == events[4:]
    parsed = await client.responses.parse(model="rehearsal", input=script({"say": '{"x": 3}'}), text_format=Point)
    assert parsed.output_parsed == Point(x=3)
    tools: Json = [{**function("pick"), "strict": False}]
    asked = await client.responses.create(model="rehearsal", input=PICK, tools=tools)
    assert asked.output[0].type == "function_call"
    answers: Json = [output(asked.output[0].call_id, "it")]
    done = await client.responses.create(model="rehearsal", input=answers, previous_response_id=asked.id)
    assert done.output_text == "got it"
    compacted = await client.responses.compact(model="rehearsal", previous_response_id=final.id)
    window: Json = [each.model_dump(exclude_unset=True, warnings=False) for each in compacted.output]
    window.append({"role": "user", "content": "recall"})
    assert (await client.responses.create(model="rehearsal", input=window)).output_text == "one | recall"
    with pytest.raises(openai.NotFoundError) as refused:
        await client.responses.create(model="nix", input="x")
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    assert refused.value.request_id is not None


@requirement("openai:clients:python")
async def test_the_python_client_polls_and_cancels_and_has_conversations(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(model="rehearsal", input="later", background=True)
    async with asyncio.timeout(DEADLINE_S):
        while response.status in ("queued", "in_progress"):
            response = await client.responses.retrieve(response.id)
    assert response.output_text == "You said: later"
    long = await client.responses.create(model="rehearsal", input=script({"wait_ms": 60_000}), background=True)
    assert (await client.responses.cancel(long.id)).status == "cancelled"
    conversation = await client.conversations.create(metadata={"k": "v"})
    said = await client.responses.create(model="rehearsal", input="one", conversation=conversation.id)
    items = [item async for item in client.conversations.items.list(conversation.id, order="asc")]
    assert [item.type for item in items] == ["message", "message"]
    sent = [item async for item in client.responses.input_items.list(said.id)]
    assert [item.type for item in sent] == ["message"]
    await client.responses.delete(said.id)
    assert (await client.conversations.delete(conversation.id)).deleted
    async with client.responses.stream(model="rehearsal", input=script({"say": "x"}, {"wait_ms": 60_000})) as stream:
        started = await anext(aiter(stream))
    assert started.type == "response.created"
    async with asyncio.timeout(DEADLINE_S):  # leaving the block closed the connection, which stops the run
        while (await client.responses.retrieve(started.response.id)).status == "in_progress":
            pass
    assert (await client.responses.retrieve(started.response.id)).status == "cancelled"


@requirement("openai:clients:python")
async def test_the_example_of_the_documentation_runs_as_it_is_printed(
    socket_server: SocketServer,
) -> None:
    page = (Path(__file__).parents[3] / "docs/protocols/openai.md").read_text(encoding="utf-8")
    code = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    code = code.replace("http://127.0.0.1:8000", socket_server.connection.url).replace('"assistant"', '"rehearsal"')
    code = code.replace("sk-dragoman-…", socket_server.key("alice"))
    printed = io.StringIO()
    await asyncio.to_thread(exec, f"{code}\nclient.close()", {"print": partial(print, file=printed)})
    assert printed.getvalue() == "You said: What is 20 + 22?\nYou said: And twice that?"


async def run_scenario(server: SocketServer, scenario: str, age: str) -> Json:
    """What a scenario of `client.mjs` saw, with the newest clients or with older ones."""
    script = CLIENTS / "client.mjs"
    return json.loads(await run_node(script, f"{server.connection.url}/v1", server.key("alice"), scenario, age))


AGES = pytest.mark.parametrize("age", ["newest", "older"])


@requirement("openai:clients:javascript")
@AGES
async def test_the_javascript_client_does_the_same(socket_server: SocketServer, age: str) -> None:
    seen = await run_scenario(socket_server, "javascript", age)
    types = seen.pop("types")
    assert (types[0], types[-1]) == ("response.created", "response.completed")
    assert seen == {
        "models": ["rehearsal", "rehearsal-bare"],
        "text": "You said: one",
        "recalled": "one",
        "tool": "got it",
        "parsed": {"x": 3},
        "background": "You said: later",
        "items": ["user", "assistant"],
        "deleted": True,
        "error": [404, "model_not_found", True],
    }


@requirement("openai:clients:ai-sdk")
@AGES
@pytest.mark.parametrize(
    ("scenario", "more"),
    [
        ("aiSdk", {"approved": "So: stamped paid.", "error": "no coffee", "loops": ["got it", "got it"]}),
        (
            "openResponses",
            {"json": {"x": 3}, "error": "no agent named 'nix' is served here; there are 'rehearsal', 'rehearsal-bare'"},
        ),
    ],
)
async def test_the_ai_sdk_has_turns_tools_and_approvals(
    socket_server: SocketServer, scenario: str, more: Json, age: str
) -> None:
    assert await run_scenario(socket_server, scenario, age) == {
        "one": "You said: one",
        "two": "You said: two",
        "recalled": "one | two",
        "tool": "got it",
        "server": "3",
        "after": ["one", "two", "recall"],
        "errors": False,
        **more,
    }


@requirement("openai:clients:frameworks")
async def test_pydantic_ai_has_turns_and_tools(client: openai.AsyncOpenAI) -> None:
    provider = OpenAIProvider(openai_client=client)
    agent = Agent(OpenAIResponsesModel("rehearsal", provider=provider))

    @agent.tool_plain
    def pick(n: int) -> str:
        return f"it {n}"

    first = await agent.run("one")
    second = await agent.run(PICK, message_history=first.all_messages())
    third = await agent.run("recall", message_history=second.all_messages())
    assert [first.output, second.output, third.output] == ["You said: one", "got it 1", "one"]


@requirement("openai:clients:frameworks")
async def test_langchain_has_turns_and_tools(socket_server: SocketServer) -> None:
    model = ChatOpenAI(
        model="rehearsal",
        base_url=f"{socket_server.connection.url}/v1",
        api_key=socket_server.key("alice"),  # type: ignore[arg-type]  # a plain text is accepted
        use_responses_api=True,
    )
    messages: Json = [HumanMessage("one")]
    first = await model.ainvoke(messages)
    messages += [first, HumanMessage(PICK)]
    asked = await model.bind_tools([function("pick")]).ainvoke(messages)
    messages += [asked, ToolMessage("it", tool_call_id=asked.tool_calls[0]["id"])]
    done = await model.ainvoke(messages)
    recalled = await model.ainvoke([*messages, done, HumanMessage("recall")])
    await model.root_async_client.close()
    assert [each.text for each in (first, done, recalled)] == ["You said: one", "got it", "one"]
