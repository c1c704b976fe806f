"""A person allows a call with other arguments: it runs with them, and every history shows what really ran.

AG-UI has a place for such an answer. What it does to a session is seen over every protocol.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

import dragoman
from dragoman import agent, tool
from dragoman.core.answers import EDITED_RESULT
from tests.asgi_client import DEADLINE_S
from tests.conversations import call, calls, script
from tests.protocols.aap.client import AapClient, Session, grant
from tests.protocols.agui.endpoint import Endpoint, Reply, an_input
from tests.protocols.blade.client import RestClient
from tests.protocols.blade.driver import url_of
from tests.requirements import requirement
from tests.servers import SocketServer, running_socket_server

Json = Any


class Till:
    """Where payments arrive. The first one gets stuck."""

    def __init__(self) -> None:
        self.payments: list[int] = []
        self.first_arrived = asyncio.Event()


TILL = Till()


@tool(needs_approval=True, on_restart="ask")
async def pay(amount: int) -> str:
    """Pay."""
    TILL.payments.append(amount)
    if len(TILL.payments) == 1:
        TILL.first_arrived.set()
        await asyncio.Event().wait()
    return f"paid {amount}"


@agent(tools=[pay], history=True)
async def shop(run: dragoman.Run) -> AsyncIterator[str]:
    """Pays five for whatever is said."""
    yield f"Result: {await run.call('pay', amount=5)}."


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketServer]:
    async with running_socket_server(tmp_path_factory.mktemp("edited"), agents=[shop]) as server:
        yield server


def endpoint_of(server: SocketServer, name: str = "rehearsal") -> Endpoint:
    return Endpoint(server.connection, server.key("alice"), agent=name)


async def ask(server: SocketServer, text: str, name: str = "rehearsal") -> tuple[str, list[Json]]:
    """A thread in which calls wait, and their interrupts."""
    thread = str(uuid4())
    reply = await endpoint_of(server, name).run(an_input(text, thread=thread))
    return thread, reply.events[-1]["outcome"]["interrupts"]


async def approve(
    server: SocketServer, thread: str, answers: dict[str, Json], name: str = "rehearsal", **headers: str
) -> Reply:
    """Approve calls, some with other arguments."""
    payloads = {
        call_id: {"approved": True, **({} if edited is None else {"editedArgs": edited})}
        for call_id, edited in answers.items()
    }
    resume = [{"interruptId": each, "status": "resolved", "payload": payload} for each, payload in payloads.items()]
    return await endpoint_of(server, name).run(an_input(thread=thread, messages=[], resume=resume), headers=headers)


def calls_and_results(messages: list[Json]) -> list[Json]:
    """The arguments of all calls of AG-UI messages, and all results."""
    found: list[Json] = []
    for each in messages:
        found += [json.loads(made["function"]["arguments"]) for made in each.get("toolCalls", ())]
        found += [each["content"]] if each["role"] == "tool" else []
    return found


@requirement("ag-ui-b:interrupts:edited")
async def test_an_edited_call_runs_with_the_arguments_of_the_approval(server: SocketServer) -> None:
    thread, (interrupt,) = await ask(server, script(call("stamp", text="x"), {"say": "Then: {result}"}))
    assert interrupt["responseSchema"]["properties"]["editedArgs"] == {"type": "object"}
    reply = await approve(server, thread, {interrupt["id"]: {"text": "y"}})
    assert reply.types == [
        "RUN_STARTED",
        "TOOL_CALL_RESULT",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    first, started, arguments, _, second = reply.events[1:6]
    assert (first["toolCallId"], first["content"]) == (interrupt["id"], EDITED_RESULT)
    assert (started["toolCallName"], arguments["delta"]) == ("stamp", '{"text":"y"}')
    assert (second["toolCallId"], second["content"]) == (started["toolCallId"], "stamped y")
    assert reply.text == "Then: stamped y"


@requirement("ag-ui-b:interrupts:edited")
async def test_every_history_shows_the_call_that_ran(server: SocketServer) -> None:
    thread, (interrupt,) = await ask(server, script(call("stamp", text="x"), {"say": "Then: {result}"}))
    await approve(server, thread, {interrupt["id"]: {"text": "y"}})
    expected = [{"text": "x"}, EDITED_RESULT, {"text": "y"}, "stamped y"]
    assert calls_and_results(await endpoint_of(server).messages(thread)) == expected
    found: list[Json] = []
    for each in await Session(AapClient(server.connection, server.key("alice")), thread).history():
        blocks = each["content"] if isinstance(each["content"], list) else []
        found += [block["input"] for block in blocks if block["type"] == "tool_use"]
        found += [each["content"]] if each["role"] == "tool" else []
    assert found == expected
    turns = await RestClient(url_of(server), server.key("alice")).messages(f"sess_{thread}")
    stamped = [made for turn in turns for made in turn["tool_calls"] if made["tool_name"] == "stamp"]
    assert [made["status"] for made in stamped] == ["cancelled", "done"]
    assert "stamped y" in json.dumps(stamped[1])


@requirement("ag-ui-b:interrupts:edited")
@pytest.mark.parametrize("edited", [{"text": 7}, {"txt": "y"}, {}, "y"])
async def test_arguments_that_the_tool_does_not_take_leave_the_interrupt_open(
    server: SocketServer, edited: Json
) -> None:
    thread, (interrupt,) = await ask(server, script(call("stamp", text="x"), {"say": "Then: {result}"}))
    reply = await approve(server, thread, {interrupt["id"]: edited})
    assert [(each["type"], each["code"]) for each in reply.events] == [("RUN_ERROR", "interrupt_invalid")]
    assert (await approve(server, thread, {interrupt["id"]: None})).text == "Then: stamped x"


@requirement("ag-ui-b:interrupts:edited")
async def test_of_two_calls_the_edited_one_is_opened_again(server: SocketServer) -> None:
    two = calls(("stamp", {"text": "a"}), ("stamp", {"text": "b"}))
    thread, (first, second) = await ask(server, script(two, {"say": "done"}))
    await approve(server, thread, {first["id"]: None, second["id"]: {"text": "c"}})
    assert calls_and_results(await endpoint_of(server).messages(thread)) == [
        {"text": "a"},
        {"text": "b"},
        "stamped a",
        EDITED_RESULT,
        {"text": "c"},
        "stamped c",
    ]


@requirement("ag-ui-b:interrupts:edited")
async def test_a_call_of_a_sub_agent_can_be_edited(server: SocketServer) -> None:
    below = [call("stamp", text="x"), {"say": "did: {result}"}]
    text = script({"fork": {"description": "dig", "script": below}}, {"say": "found {result}"})
    thread, (interrupt,) = await ask(server, text)
    assert (await approve(server, thread, {interrupt["id"]: {"text": "y"}})).text.endswith("found did: stamped y")


async def restart_while_paying(server: SocketServer, monkeypatch: pytest.MonkeyPatch) -> tuple[Till, str]:
    """A thread whose call was edited, and ran while the server restarted."""
    till = Till()
    monkeypatch.setattr(f"{__name__}.TILL", till)
    thread, (interrupt,) = await ask(server, "pay", "shop")
    paying = asyncio.create_task(
        approve(server, thread, {interrupt["id"]: {"amount": 7}}, "shop", **{"X-Run-On-Disconnect": "continue"})
    )
    async with asyncio.timeout(DEADLINE_S):
        await till.first_arrived.wait()
    await server.restart()
    paying.cancel()
    await asyncio.wait([paying])
    return till, thread


@requirement("ag-ui-b:interrupts:edited")
async def test_after_a_restart_an_edited_call_is_asked_about_with_its_new_arguments(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    till, thread = await restart_while_paying(server, monkeypatch)
    session = Session(AapClient(server.connection, server.key("alice")), thread)
    async with asyncio.timeout(DEADLINE_S):
        while (info := (await session.info())["_meta"])["status"] != "waiting":
            pass
    (pending,) = info["pending"]
    assert (pending["name"], pending["input"]) == ("pay", {"amount": 7})
    await session.post([grant(pending["toolCallId"])])
    assert till.payments == [7, 7]
    last = (await session.history())[-1]["content"]
    assert [block["text"] for block in last if block["type"] == "text"] == ["Result: paid 7."]


@requirement("ag-ui-b:interrupts:edited")
async def test_a_call_that_waits_again_under_the_same_id_cannot_be_edited(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    till, thread = await restart_while_paying(server, monkeypatch)
    endpoint = endpoint_of(server, "shop")
    async with asyncio.timeout(DEADLINE_S):
        while (end := (await endpoint.connect(an_input(thread=thread, messages=[]))).events[-1]["outcome"])[
            "type"
        ] != "interrupt":
            pass
    (interrupt,) = end["interrupts"]
    assert interrupt["responseSchema"]["properties"].keys() == {"approved", "reason", "remember"}
    refused = await approve(server, thread, {interrupt["id"]: {"amount": 1}}, "shop")
    assert [each.get("code") for each in refused.events] == ["interrupt_invalid"]
    assert (await approve(server, thread, {interrupt["id"]: None}, "shop")).text == "Result: paid 7."
    assert till.payments == [7, 7]
