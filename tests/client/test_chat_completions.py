"""The client over Chat Completions, where it keeps the history itself."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman.client import (
    AsyncClient,
    Ended,
    Message,
    RunFailed,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unreachable,
    Unsupported,
)
from dragoman.client.codec import SessionConfig, UserInput
from dragoman.client.events import Event, Usage
from dragoman.client.openai_chat import OpenAiChatCodec
from dragoman.client.sse import Frame
from tests.client.cutting_proxy import cutting_proxy
from tests.conversations import call, script
from tests.servers import SocketServer

pytestmark = pytest.mark.parametrize("protocol", ["openai-chat"])


RECALL = script({"recall": "user"})


def paint(colour: str) -> str:
    """Paint."""
    return f"{colour} paint"


async def test_a_conversation_with_reasoning_tools_and_a_history(client: AsyncClient) -> None:
    session = await client.create("rehearsal", tools=[paint])
    reply = await session.ask(script({"think": "Hm."}, call("paint", colour="red"), {"say": "so: {result}"}))
    assert [type(each) for each in reply.events] == [Thinking, ToolCall, ToolResult, Text, Ended]
    assert (reply.text, reply.end.reason) == ("so: red paint", "end_turn")
    assert reply.end.usage is not None
    await session.ask("hello")
    assert (await session.ask(RECALL)).text == "hello"
    history = await session.history()
    assert [each.role for each in history] == ["user", "assistant", "tool", "assistant"] + ["user", "assistant"] * 2
    seeded = await client.create("rehearsal", history=history)
    assert (await seeded.ask("recall")).text == "hello"
    assert "rehearsal" in [each.name for each in await client.agents()]


async def test_an_agent_has_to_be_named_because_the_api_has_no_default(client: AsyncClient) -> None:
    with pytest.raises(Unsupported, match="no default agent"):
        await client.create()


async def test_runs_end_early_and_the_session_continues(client: AsyncClient) -> None:
    session = await client.create("rehearsal")
    assert (await session.ask(script({"say": "cut of"}, {"stop": "max_tokens"}))).end.reason == "max_tokens"
    assert (await session.ask(script({"say": "no"}, {"stop": "refusal"}))).end.reason == "refusal"
    with pytest.raises(RunFailed) as failed:
        await session.ask(script({"say": "half"}, {"fail": "internal details"}))
    assert failed.value.reply.text == "half"
    assert (await session.ask("hello")).text == "Hello! I am the rehearsal agent."


async def test_a_stream_that_is_cut_is_lost(socket_server: SocketServer, protocol: Any) -> None:
    async with (
        cutting_proxy(socket_server.connection.url, lambda: 3000) as proxy,
        AsyncClient(proxy.url, key=socket_server.key("alice"), protocol=protocol) as client,
    ):
        session = await client.create("rehearsal")
        with pytest.raises(Unreachable, match="this server cannot resume streams"):
            await session.ask("word " * 2000)


async def test_what_needs_a_session_on_the_server_is_unsupported(client: AsyncClient) -> None:
    session = await client.create("rehearsal")
    for attempt in (
        session.stop(),
        session.delete(),
        session.resume().reply(),
        client.open("x"),
        client.create(title="x"),
    ):
        with pytest.raises(Unsupported, match=r"^Chat Completions (cannot|keeps|has)"):
            await attempt


def test_chunks_of_other_servers_are_read(protocol: Any) -> None:
    """No role, arguments in pieces, an error in the middle of a stream, a usage of its own."""
    codec = OpenAiChatCodec("/api/v1")
    handle = codec.create(SessionConfig(agent="m", history=(Message(role="user", blocks=(Text(text="a"),)),)), "once")
    turn = codec.turn(handle, UserInput(text="b", images=("https://x/y.png",)), "once")
    assert turn.request.path == "/api/v1/chat/completions"
    chunks: list[Any] = [
        {"id": "c", "choices": [{"delta": {"reasoning": "Hm"}}]},
        {"id": "c", "choices": [{"delta": {"content": "Let me "}}]},
        {"id": "c", "choices": [{"delta": {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "look"}}]}}]},
        {"id": "c", "choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"at":'}}]}}]},
        {"id": "c", "choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}}]},
        {"id": "c", "choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}},
    ]
    frames = [*(Frame("", msgspec.json.encode(each), "") for each in chunks), Frame("", b"[DONE]", "")]
    events: list[Event] = [event for frame in frames for event in turn.feed(frame)]
    assert events[:3] == [
        Thinking(text="Hm"),
        Text(text="Let me "),
        ToolCall(id="1", name="look", arguments={"at": 1}),
    ]
    assert isinstance(events[3], Ended)
    assert (events[3].reason, events[3].usage, len(events[3].pending)) == ("tool_use", Usage(3, 2), 1)
    sent = msgspec.json.decode(codec.turn(handle, UserInput(text="c"), "once").request.body or b"")["messages"]
    assert [each["role"] for each in sent] == ["user", "user", "assistant", "tool", "user"]
    assert sent[1]["content"][1] == {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
    failing = codec.turn(handle, UserInput(text="d"), "once")
    (ended,) = failing.feed(Frame("", b'{"error":{"message":"overloaded","code":529}}', ""))
    assert isinstance(ended, Ended)
    assert ended.problem is not None
    assert (ended.reason, ended.problem.code, ended.problem.message) == ("error", "529", "overloaded")


async def test_a_server_without_responses_names_chat_completions(protocol: Any, tmp_path: Path) -> None:
    """Everything but Chat Completions is 404, in plain text."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 18\r\nConnection: close\r\n\r\n404 page not found")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener, AsyncClient(url, key="k", protocol="openai") as client:
        session = await client.create("m")
        with pytest.raises(Unsupported, match=r"no Responses at /v1/responses.*404 page not found.*'openai-chat'"):
            await session.ask("hello")
