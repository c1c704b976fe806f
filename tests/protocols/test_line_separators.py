"""Characters at which some clients end a line, such as those with `iter_lines` of httpx, end none in a stream."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.conversations import script
from tests.protocols.a2a.client import message
from tests.protocols.agentscope.client import request_body
from tests.protocols.agui.endpoint import an_input
from tests.protocols.agui.run_service import run_input
from tests.protocols.aisdk.client import user
from tests.protocols.every_protocol import for_every_protocol
from tests.requirements import requirement
from tests.servers import running_socket_server
from tests.test_one_session import ProtocolClients

SAID = "a\u2028b\u2029c\u0085d\u001ee\u000bf"
PLAY = script({"say": SAID})


async def over_aap(clients: ProtocolClients) -> bytes:
    return (await (await clients.aap.create()).run(PLAY, "delta")).raw


async def over_ag_ui(clients: ProtocolClients) -> bytes:
    return (await clients.ag_ui.run(an_input(PLAY))).body


async def over_the_run_service(clients: ProtocolClients) -> bytes:
    thread = str(uuid4())
    await clients.runs.submit(run_input(thread, PLAY))
    return await clients.runs.raw_events(thread, "r-1")


async def over_the_agent_api(clients: ProtocolClients) -> bytes:
    return (await clients.agentscope.request("POST", "/process", request_body(PLAY))).body


async def over_responses(clients: ProtocolClients) -> bytes:
    return (await clients.openai.request("POST", "/responses", {"input": PLAY, "stream": True})).body


async def over_chat_completions(clients: ProtocolClients) -> bytes:
    body = {"model": "rehearsal", "messages": [{"role": "user", "content": PLAY}], "stream": True}
    return (await clients.openai.request("POST", "/chat/completions", body)).body


async def over_the_ai_sdk(clients: ProtocolClients) -> bytes:
    return (await clients.ai_sdk.post(str(uuid4()), user(PLAY, "m-1"))).body


async def over_a2a(clients: ProtocolClients) -> bytes:
    return await (await clients.a2a.stream("SendStreamingMessage", {"message": message(PLAY)})).stream.read()


async def over_mcp(clients: ProtocolClients) -> bytes:
    return await (await clients.mcp.open(PLAY, token=1)).stream.read()


STREAMS = for_every_protocol(
    {
        "aap": over_aap,
        "agui": over_ag_ui,
        "run_service": over_the_run_service,
        "agentscope": over_the_agent_api,
        "openai": over_responses,
        "chat_completions": over_chat_completions,
        "ai_sdk": over_the_ai_sdk,
        "a2a": over_a2a,
        "mcp": over_mcp,
    },
    without={"blade": "it streams over Socket.IO"},
    variants=("chat_completions",),
)


@requirement("aap:sse:framing", "agentscope:stream:frames", "ag-ui-b:wire:frames")
@pytest.mark.parametrize("protocol", STREAMS)
async def test_no_character_of_an_answer_ends_a_line(tmp_path: Path, protocol: str) -> None:
    stream: Callable[[ProtocolClients], Awaitable[bytes]] = STREAMS[protocol]
    async with running_socket_server(tmp_path) as server:
        raw = (await stream(ProtocolClients(server, "alice"))).decode()
    assert "\\u2028" in raw
    assert raw.splitlines() == raw.removesuffix("\n").split("\n")
