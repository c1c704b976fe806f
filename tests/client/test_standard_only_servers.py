"""Servers without Dragoman's extensions: the client works with them and says where it would need an extension."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from dragoman.client import AsyncClient, Ended, InvalidResponse, Permission, Text, ToolCall, Unreachable, Unsupported
from dragoman.client.agui import AguiCodec
from dragoman.client.codec import SessionConfig, Turn, UserInput
from dragoman.client.events import Event
from dragoman.client.sse import Frame
from dragoman.client.transports import ClientProtocol
from tests.asgi_client import DEADLINE_S
from tests.client.cutting_proxy import cutting_proxy
from tests.client.standard_only_server import standard_only_server
from tests.conversations import call, script

PROTOCOLS: list[ClientProtocol] = ["aap", "ag-ui", "agentscope", "openai"]
STAMP = script({"say": "Wait. "}, call("paint", colour="red"), call("stamp", text="x"), {"say": "so: {results}"})


def paint(colour: str) -> str:
    """Paint."""
    return f"{colour} paint"


@pytest.fixture(scope="module")
async def standard_only(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, str]]:
    async with standard_only_server(tmp_path_factory.mktemp("plain")) as server:
        yield server


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_conversation_needs_no_extension(standard_only: tuple[str, str], protocol: ClientProtocol) -> None:
    async with AsyncClient(standard_only[0], key=standard_only[1], protocol=protocol) as client:
        session = await client.create("rehearsal", tools=[paint], on_permission=lambda permission: True)
        reply = await session.ask(STAMP)
        assert reply.text == "Wait. so: stamped x"
        kinds = [type(event) for event in reply.events if isinstance(event, ToolCall | Permission | Ended)]
        assert kinds == [ToolCall, ToolCall, Permission, Ended]
        assert (await session.ask("hello")).text == "Hello! I am the rehearsal agent."


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_cut_stream_cannot_be_resumed(standard_only: tuple[str, str], protocol: ClientProtocol) -> None:
    async with AsyncClient(standard_only[0], key=standard_only[1], protocol=protocol) as client:
        session = await client.create("rehearsal")
        async with cutting_proxy(standard_only[0], lambda: 3000) as proxy:
            redirect(client, proxy.url)
            with pytest.raises(Unreachable, match="this server cannot resume streams: read the rest from the history"):
                await session.ask("word " * 2000)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_message_that_may_have_arrived_is_not_sent_again(
    standard_only: tuple[str, str], protocol: ClientProtocol
) -> None:
    bounds = [0, None]
    async with AsyncClient(standard_only[0], key=standard_only[1], protocol=protocol) as client:
        session = await client.create("rehearsal")
        async with cutting_proxy(standard_only[0], lambda: bounds.pop(0)) as proxy:
            redirect(client, proxy.url)
            with pytest.raises(Unreachable, match="it is unknown whether the message arrived: check the history"):
                await session.ask("hello")
        assert bounds == []


def redirect(client: AsyncClient, url: str) -> None:
    """Make the client use another address."""
    transport: Any = client._transport
    transport._connection.url = url


async def test_a_run_cannot_be_stopped_over_aap(standard_only: tuple[str, str]) -> None:
    async with AsyncClient(standard_only[0], key=standard_only[1]) as client:
        session = await client.create("rehearsal")
        with pytest.raises(Unsupported, match="this server cannot stop runs over this protocol"):
            await session.stop()


# --- AG-UI: servers without history -----------------------------------------------------------------------------------


def frames(*events: dict[str, Any]) -> list[Frame]:
    return [Frame("", msgspec.json.encode(event), "") for event in events]


def read_turn(turn: Turn, events: Sequence[Frame]) -> list[Event]:
    return [event for frame in events for event in turn.feed(frame)]


def test_a_server_without_history_is_sent_all_messages() -> None:
    codec = AguiCodec("/agent")
    handle = codec.create(SessionConfig(agent=""), "once")
    first = codec.turn(handle, UserInput(text="hi"), "r1")
    events = read_turn(
        first,
        frames(
            {"type": "RUN_STARTED", "threadId": "t", "runId": "r1"},
            {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m1", "role": "assistant", "delta": "let me "},
            {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m1", "delta": "see"},
            {"type": "TOOL_CALL_CHUNK", "toolCallId": "c1", "toolCallName": "look", "parentMessageId": "m1"},
            {"type": "TOOL_CALL_CHUNK", "delta": '{"at":'},
            {"type": "TOOL_CALL_CHUNK", "delta": "1}"},
            {"type": "TOOL_CALL_RESULT", "messageId": "m2", "toolCallId": "c1", "content": "a tree"},
            {"type": "TEXT_MESSAGE_START", "messageId": "m3", "role": "assistant"},
            {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m3", "delta": "A tree."},
            {"type": "TEXT_MESSAGE_END", "messageId": "m3"},
            {"type": "SOMETHING_NEW", "whatever": 1},
            {"type": "RUN_FINISHED", "threadId": "t", "runId": "r1"},
        ),
    )
    assert [each.text for each in events if isinstance(each, Text)] == ["let me ", "see", "A tree."]
    assert [(each.name, each.arguments) for each in events if isinstance(each, ToolCall)] == [("look", {"at": 1})]
    assert isinstance(events[-1], Ended)
    assert events[-1].reason == "end_turn"
    sent = msgspec.json.decode(codec.turn(handle, UserInput(text="and now?"), "r2").request.body or b"")["messages"]
    assert [{name: value for name, value in each.items() if name != "id"} for each in sent] == [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "let me see",
            "toolCalls": [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}}],
        },
        {"role": "tool", "toolCallId": "c1", "content": "a tree"},
        {"role": "assistant", "content": "A tree."},
        {"role": "user", "content": "and now?"},
    ]


def test_a_server_that_cuts_a_text_inside_a_character_does_not_end_the_run() -> None:
    codec = AguiCodec("/agent")
    turn = codec.turn(codec.create(SessionConfig(agent=""), "once"), UserInput(text="hi"), "r1")
    cut = rb'{"type":"TEXT_MESSAGE_CHUNK","messageId":"m1","role":"assistant","delta":"so \ud83d"}'
    events = read_turn(
        turn,
        [
            *frames({"type": "RUN_STARTED", "threadId": "t", "runId": "r1"}),
            Frame("", cut, ""),
            Frame("", cut.replace(rb"so \ud83d", rb"\ude00 far \ud83d\ude00"), ""),
            *frames({"type": "RUN_FINISHED", "threadId": "t", "runId": "r1"}),
        ],
    )
    assert [each.text for each in events if isinstance(each, Text)] == ["so \ufffd", "\ufffd far \U0001f600"]
    assert isinstance(events[-1], Ended)


def test_a_server_that_is_shutting_down_is_waited_for() -> None:
    codec = AguiCodec()
    turn = codec.turn(codec.create(SessionConfig(agent="a"), "once"), UserInput(text="hi"), "r1")
    started = Frame("", b'{"type":"RUN_STARTED","threadId":"t","runId":"r1"}', "1-0-1")
    assert list(turn.feed(started)) == []
    with pytest.raises(Unreachable, match="back soon"):
        turn.feed(*frames({"type": "RUN_ERROR", "code": "shutting_down", "message": "back soon"}))
    assert (turn.is_over, turn.can_resume) == (False, True)


# --- responses of something else --------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["ag-ui", "agentscope"])
@pytest.mark.parametrize("kind", ["text/html", "application/json"])
async def test_a_response_that_is_no_run_is_invalid_and_not_retried(protocol: ClientProtocol, kind: str) -> None:
    """For example a proxy's page: the request behind it may have run, so it is not sent again."""
    requests: list[bytes] = []
    body = b"<h1>Please log in</h1>" if kind == "text/html" else b"{}"
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind.encode(), len(body)) + body

    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(page, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    async with listener, AsyncClient(url, key="k", protocol=protocol) as client, asyncio.timeout(DEADLINE_S):
        session = await client.create("rehearsal")
        with pytest.raises(InvalidResponse, match=f"expected an event stream, got {len(body)} bytes of {kind}"):
            await session.ask("hello")
    assert len(requests) == 1
