"""Streams and histories: positions, parts of every kind, ends, and that both are functions of the log."""

from itertools import count
from typing import Any

import pytest

from dragoman.core.refusals import all_refusals
from dragoman.protocols.aisdk.errors import ERRORS
from dragoman.protocols.aisdk.wire import client_version_of
from dragoman.protocols.kit.errors import REQUEST_ERRORS
from tests.conversations import call, script
from tests.protocols.aisdk.client import Pages, Reply, parse, user
from tests.requirements import requirement
from tests.servers import ServerProcess

Json = Any
_numbers = count()
CARD = {"root": "a", "elements": {"a": {"type": "Text", "props": {"content": "Hi"}}}}
PARTS = script(
    {"plan": {"status": "in_progress", "steps": [{"title": "First", "status": "done"}]}},
    {"think": "Hm."},
    {"say": "Some text."},
    {"image": "https://example.org/a.png"},
    {"data": {"a": [1]}},
    call("add", a=1, b=2),
    call("stamp", text="x"),
    {"say": "So {result}."},
    {"usage": {"input_tokens": 3, "output_tokens": 4}},
)


@pytest.fixture
def chat() -> str:
    """A chat of one's own."""
    return f"stream-{next(_numbers)}"


async def approve(pages: Pages, chat: str, tool: str = "stamp", **headers: str) -> Reply:
    message = (await pages.history(chat))[-1]
    for part in message["parts"]:
        if part["type"] == f"tool-{tool}":
            part |= {"state": "approval-responded", "approval": {"id": part["toolCallId"], "approved": True}}
    return await pages.post(chat, message, headers=headers)


@requirement("ai-sdk:stream:parts", "ai-sdk:stream:ids", "ai-sdk:stream:metadata", "ai-sdk:tools:flags")
async def test_a_turn_of_two_runs_to_the_chunk(pages: Pages, chat: str) -> None:
    first = await pages.post(chat, user(PARTS, "u1"))
    second = await approve(pages, chat)
    assert first.types == [
        "start",
        "data-plan",
        "start-step",
        *("reasoning-start", "reasoning-delta", "reasoning-end"),
        *("text-start", "text-delta", "text-end", "file", "data-block"),
        *("tool-input-start", "tool-input-delta", "tool-input-available", "tool-output-available"),
        "finish-step",
        "start-step",
        *("tool-input-start", "tool-input-delta", "tool-input-available", "tool-approval-request"),
        "finish-step",
        "finish",
    ]
    assert first.headers["x-vercel-ai-ui-message-stream"] == "v1"
    started, finished = second.chunks[0], second.chunks[-1]
    assert started == first.chunks[0], "one message"
    assert started["messageId"] == first.headers["x-workflow-run-id"] != second.headers["x-workflow-run-id"]
    assert started["messageMetadata"]["sessionId"] == first.headers["x-dragoman-session"]
    usage = finished["messageMetadata"]["usage"]
    assert usage["totalTokens"] == usage["inputTokens"] + usage["outputTokens"]
    assert usage["totalTokens"] > first.chunks[-1]["messageMetadata"]["usage"]["totalTokens"], "of the message"
    assert [chunk for chunk in second.chunks if chunk["type"] == "text-start"] == [{"type": "text-start", "id": "3.0"}]
    flags = [chunk.get("providerExecuted") for chunk in first.chunks if chunk["type"] == "tool-input-available"]
    assert (flags, second.chunks[1]["providerExecuted"]) == ([True, None], True)


@requirement("ai-sdk:position:suffix", "ai-sdk:position:wrong", "ai-sdk:resume:missed")
async def test_from_any_position_a_stream_is_the_rest_of_itself(pages: Pages, chat: str) -> None:
    first = await pages.post(chat, user(PARTS, "u1"))
    second = await approve(pages, chat)
    run = second.headers["x-workflow-run-id"]
    whole = await pages.request("GET", f"/{chat}/stream?startIndex=0")
    for path, body in (
        (f"/{run}", second.body),
        (f"/{first.headers['x-workflow-run-id']}", first.body),
        (f"/{chat}", whole.body),
    ):
        indexes, chunks = parse(body)
        assert indexes == list(range(len(chunks)))
        frames = body.split(b"\n\n")
        for start in range(0, len(chunks), 3):
            rest = b"\n\n".join(frames[start:])
            assert (await pages.request("GET", f"{path}/stream?startIndex={start}")).body == rest
            if start:
                after = {"last-event-id": str(start - 1)}
                assert (await pages.request("GET", f"{path}/stream", headers=after)).body == rest
            behind = await pages.request("GET", f"{path}/stream?startIndex={start - len(chunks)}")
            assert (behind.body, behind.headers["x-workflow-stream-tail-index"]) == (rest, str(len(chunks) - 1))
        end = b"\n\n".join(frames[-3:])
        assert (await pages.request("GET", f"{path}/stream?startIndex={10**18}")).body == end
        assert (await pages.request("GET", f"{path}/stream?startIndex={-(10**18)}")).body == body
    for wrong in ("abc", "1.5", "9" * 30):
        assert (await pages.request("GET", f"/{chat}/stream?startIndex={wrong}")).code == "invalid_cursor"
    missed = await pages.request("GET", f"/{chat}/stream?after=u1")
    assert missed.body == whole.body
    known = whole.chunks[0]["messageId"]
    assert (await pages.request("GET", f"/{chat}/stream?after={known}")).status == 204
    assert whole.types.count("start") == whole.types.count("finish") == 1


@requirement("ai-sdk:version:7", "ai-sdk:version:5")
async def test_a_joined_turn_shows_approvals_as_the_version_of_the_client_knows_them(pages: Pages, chat: str) -> None:
    await pages.post(chat, user(PARTS, "u1"))
    await approve(pages, chat)
    kinds_of = {}
    for version in ("5.0.277", "6", "7.1", "nonsense"):
        reply = await pages.request("GET", f"/{chat}/stream?startIndex=0", headers={"x-ai-sdk-version": version})
        kinds_of[version] = [kind for kind in reply.types if "approval" in kind]
        assert ("finishReason" in reply.chunks[-1]) == (version != "5.0.277")
    asked = "tool-approval-request"
    assert kinds_of == {
        "5.0.277": ["data-approval"],
        "6": [asked],
        "7.1": [asked, "tool-approval-response"],
        "nonsense": [asked],
    }
    assert [client_version_of(version, 7) for version in (None, "4", "5", "6.0.1", "9")] == [7, 5, 5, 6, 7]


@requirement("ai-sdk:stream:inner")
async def test_a_call_of_a_sub_agent_that_waits_is_a_call_of_the_message(pages: Pages, chat: str) -> None:
    inner = [{"call": {"name": "stamp", "input": {"text": "x"}}}, {"say": "inner {result}"}]
    fork = {"fork": {"description": "look", "script": inner}}
    first = await pages.post(chat, user(script({"say": "Out. "}, fork, {"say": "Got: {result}"}), "u1"))
    names = [chunk["toolName"] for chunk in first.chunks if chunk["type"] == "tool-input-start"]
    assert (names, first.chunks[-1]["finishReason"]) == (["Agent", "stamp"], "tool-calls")
    second = await approve(pages, chat)
    assert second.text == "Got: inner stamped x"
    states = [part["state"] for part in (await pages.history(chat))[-1]["parts"] if part["type"].startswith("tool-")]
    assert states == ["output-available", "output-available"]


@requirement("ai-sdk:ends:abort", "ai-sdk:ends:broken", "ai-sdk:resume:open")
async def test_a_stopped_and_a_deleted_chat_end_for_their_readers(pages: Pages, chat: str) -> None:
    slow = script({"say": "Half. "}, {"wait_ms": 60_000})
    for how, ending in (("stop", ["text-end", "finish-step", "abort", "finish"]), ("delete", None)):
        posted = await pages.open("POST", "", {"id": chat, "messages": [user(slow, how)]})
        head = await posted.chunk() or b""
        while b"Half" not in head:
            head += await posted.chunk() or b""
        assert [each["role"] for each in await pages.history(chat)][-1] == "user"
        (*_, half) = await pages.history(chat, "?open=1")
        assert half["parts"][-1] == {"type": "text", "text": "Half. ", "state": "streaming"}
        joined = await pages.open("GET", f"/{chat}/stream")
        if how == "stop":
            await pages.request("POST", f"/{chat}/stop")
        else:
            await pages.request("DELETE", f"/{chat}")
        kinds_of = [head + await posted.read(), await joined.read()]
        for body in kinds_of:
            kinds = [each["type"] for each in parse(body)[1]]
            assert kinds[-1] == "finish"
            assert ending is None or kinds[-4:] == ending


@requirement("ai-sdk:ends:broken", "ai-sdk:stream:cut", "ai-sdk:position:suffix", "ai-sdk:history:equal")
async def test_a_turn_survives_the_death_of_its_server(tmp_path: Any) -> None:
    server = ServerProcess(tmp_path / "data")
    await server.start()
    try:
        chat, text = "crash", script({"say": "Before. "}, {"wait_ms": 2_000}, {"say": "After."})
        pages = Pages(server.connection, server.key("alice"))
        posted = await pages.open("POST", "", {"id": chat, "messages": [user(text, "u1")]})
        head = b""
        while b"Before" not in head:
            head += await posted.chunk() or b""
        await posted.disconnect()
        await server.crash()
        pages = Pages(server.connection, server.key("alice"))
        _, seen = parse(head, is_complete=False)
        rest = await pages.request("GET", f"/{chat}/stream?startIndex={len(seen)}")
        whole = await pages.request("GET", f"/{chat}/stream?startIndex=0")
        assert whole.body == head + rest.body
        assert whole.chunks[-1]["messageMetadata"]["cutSteps"] == [1]
        (_, message) = await pages.history(chat)
        assert [part["text"] for part in message["parts"] if part["type"] == "text"] == [
            "Before. ",
            "Before. ",
            "After.",
        ]
        assert message["metadata"]["cutSteps"] == [1]
    finally:
        await server.stop()


@requirement("ai-sdk:errors:table")
def test_every_refusal_has_an_answer() -> None:
    for kind in (*all_refusals(), *REQUEST_ERRORS):
        assert kind in ERRORS.rows, kind
