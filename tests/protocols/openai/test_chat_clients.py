"""Chat Completions with the clients that people use: OpenAI's own, LangChain's, and Pydantic AI's."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import openai
import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic import BaseModel, SecretStr
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.nodejs import run_node
from tests.protocols.openai.client import TOO_LONG, call, script
from tests.requirements import requirement
from tests.servers import SocketServer

CLIENTS = Path(__file__).parent / "clients"
GREETING = "Hello! I am the rehearsal agent."
PAINT: Any = {"type": "function", "function": {"name": "paint", "parameters": {"type": "object", "properties": {}}}}
PAINTING = script({"say": "First: "}, call("paint", colour="red"), {"say": "it is {result}"})


class Number(BaseModel):
    """What an answer is parsed into."""

    n: int


def paint(colour: str) -> str:
    """Paint something."""
    return f"painted {colour}"


@pytest.fixture
async def client(socket_server: SocketServer) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client with alice's key."""
    async with AsyncOpenAI(base_url=f"{socket_server.connection.url}/v1", api_key=socket_server.key("alice")) as client:
        yield client


def said(*texts: str) -> Any:
    """Messages of the user and the agent in turns."""
    return [{"role": "assistant" if index % 2 else "user", "content": text} for index, text in enumerate(texts)]


@requirement("openai-chat:answer:json", "openai-chat:answer:stream", "openai-chat:answer:usage")
async def test_openais_client_reads_answers_and_streams(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="rehearsal", messages=said("hello"))
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (GREETING, "stop")
    assert answer._request_id is not None
    text, usage = "", None
    stream = await client.chat.completions.create(
        model="rehearsal",
        messages=said("hello", GREETING, "think"),
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in stream:
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        usage = chunk.usage or usage
    assert text == "Done thinking."
    assert usage is not None
    assert usage.total_tokens > 0


@requirement("openai-chat:answer:calls", "openai-chat:session:calls")
async def test_openais_stream_helper_collects_calls_whose_results_continue(client: AsyncOpenAI) -> None:
    messages = said(PAINTING)
    async with client.chat.completions.stream(model="rehearsal", messages=messages, tools=[PAINT]) as stream:
        kinds = {event.type async for event in stream}
        message = (await stream.get_final_completion()).choices[0].message
    assert {"content.delta", "content.done", "tool_calls.function.arguments.done"} <= kinds
    assert message.tool_calls is not None
    (made,) = message.tool_calls
    messages += [message, {"role": "tool", "tool_call_id": made.id, "content": "red"}]
    answer = await client.chat.completions.create(model="rehearsal", messages=messages, tools=[PAINT])
    assert answer.choices[0].message.content == "it is red"


@requirement("openai-chat:request:parameters")
async def test_openais_client_parses_what_fits_its_type(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.parse(
        model="rehearsal", messages=said(script({"say": '{"n": 3}'})), response_format=Number
    )
    assert answer.choices[0].message.parsed == Number(n=3)


@requirement("openai-chat:answer:failed")
async def test_openais_client_does_not_repeat_a_failed_run(socket_server: SocketServer) -> None:
    url, key = f"{socket_server.connection.url}/v1", socket_server.key("alice")
    requests: list[Any] = []

    async def count(request: Any) -> None:
        requests.append(request)

    http = openai.DefaultAsyncHttpxClient(event_hooks={"request": [count]})
    client = AsyncOpenAI(base_url=url, api_key=key, http_client=http)
    failing = said(script({"say": "half"}, {"fail": {"code": "no_paint", "message": "There is no paint"}}))
    with pytest.raises(openai.InternalServerError, match="There is no paint") as raised:
        await client.chat.completions.create(model="rehearsal", messages=failing)
    assert (raised.value.code, len(requests)) == ("no_paint", 1)
    with pytest.raises(openai.APIError, match="There is no paint"):
        async for _ in await client.chat.completions.create(model="rehearsal", messages=failing, stream=True):
            pass
    await client.close()


@requirement("openai-chat:answer:too-long", "openai:stream:too-long")
@pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])
async def test_langchain_knows_a_conversation_that_is_too_long(socket_server: SocketServer, responses: bool) -> None:
    async with openai.DefaultAsyncHttpxClient() as http:
        model = ChatOpenAI(
            model="rehearsal",
            base_url=f"{socket_server.connection.url}/v1",
            api_key=SecretStr(socket_server.key("alice")),
            use_responses_api=responses,
            http_async_client=http,
        )
        with pytest.raises(ContextOverflowError):
            await model.ainvoke(script(TOO_LONG))
        if not responses:
            with pytest.raises(ContextOverflowError):
                [chunk async for chunk in model.astream(script(TOO_LONG))]


@requirement("openai-chat:session:key", "openai-chat:session:list")
async def test_openais_client_keeps_a_session_with_a_default_header(
    client: AsyncOpenAI, socket_server: SocketServer
) -> None:
    kept = client.with_options(default_headers={"X-Dragoman-Session": str(uuid4())})
    history = ["add 1 and 2"]
    for following in ("recall", "hello"):
        answer = await kept.chat.completions.create(model="rehearsal", messages=said(*history))
        history += [answer.choices[0].message.content or "", following]
    assert history == ["add 1 and 2", "The sum is 3.", "recall", "add 1 and 2", "hello"]


@requirement("openai-chat:answer:stream", "openai-chat:session:calls")
async def test_langchain_talks_calls_tools_and_continues(socket_server: SocketServer) -> None:
    async with openai.DefaultAsyncHttpxClient() as http:
        await talk_with_langchain(
            ChatOpenAI(
                model="rehearsal",
                base_url=f"{socket_server.connection.url}/v1",
                api_key=SecretStr(socket_server.key("alice")),
                stream_usage=True,
                http_async_client=http,
            )
        )


async def talk_with_langchain(model: ChatOpenAI) -> None:
    assert (await model.ainvoke("hello")).content == GREETING
    streamed = [chunk async for chunk in model.astream("hello")]
    assert "".join(str(chunk.content) for chunk in streamed) == GREETING
    tools = model.bind_tools([PAINT])
    asked = HumanMessage(PAINTING)
    called = await tools.ainvoke([asked])
    (made,) = called.tool_calls
    assert (made["name"], made["args"]) == ("paint", {"colour": "red"})
    answer = await tools.ainvoke([asked, called, ToolMessage("red", tool_call_id=made["id"])])
    assert answer.content == "it is red"
    assert answer.usage_metadata is not None


@requirement("openai-chat:answer:stream", "openai-chat:session:calls")
async def test_pydantic_ai_runs_its_tools_in_a_loop(client: AsyncOpenAI) -> None:
    provider = OpenAIProvider(openai_client=client)
    agent = Agent(OpenAIChatModel("rehearsal", provider=provider), tools=[paint], instructions="Be brief.")
    first = await agent.run("hello")
    assert first.output == GREETING
    painted = await agent.run(PAINTING, message_history=first.all_messages())
    assert painted.output == "it is painted red"
    async with agent.run_stream("hello", message_history=painted.all_messages()) as streamed:
        assert await streamed.get_output() == GREETING


@requirement("openai-chat:answer:stream", "openai-chat:session:calls", "openai-chat:session:disconnect")
async def test_openais_client_for_javascript_and_the_ai_sdk(socket_server: SocketServer) -> None:
    url = f"{socket_server.connection.url}/v1"
    printed = await run_node(CLIENTS / "chat.mjs", url, socket_server.key("alice"))
    assert json.loads(printed) == {
        "deltas": ["First:", "it is painted red"],
        "tools": "it is painted red",
        "chunks": 3,
        "stream": GREETING,
        "failed": [500, "no_paint", "500 Out", "string"],
        "stopped": "one",
        "following": GREETING,
        "sdkTools": "it is painted red",
        "sdkStream": GREETING,
        "sdkTokens": True,
        "sdkFailed": ["Out", 1],
        "sdkStreamFailed": [["Out"], 1],
    }
