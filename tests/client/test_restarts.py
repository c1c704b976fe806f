"""A server that is killed in the middle of an answer: what the client shows, and what it takes for the answer."""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import pytest

from dragoman.client import AsyncClient, Ended, Message, Reply, Restarted, Text, Thinking
from dragoman.client.events import Event
from dragoman.client.transports import ClientProtocol
from tests.asgi_client import DEADLINE_S
from tests.client.cutting_proxy import cutting_proxy
from tests.client.driver import FEATURES, OBSERVABLE, TIMEOUTS
from tests.conversations import ObservedThinking, script
from tests.servers import COMMAND, server_process

PROTOCOLS: list[ClientProtocol] = list(FEATURES)
STORY = script(
    {"say": "First. "},
    {"step": True},
    {"think": "Hm. "},
    {"say": "Once upon "},
    {"wait_ms": 1000},
    {"say": "a time."},
)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_words_that_a_kill_cut_off_are_not_part_of_the_answer(
    tmp_path: Path, protocol: ClientProtocol
) -> None:
    async with (
        server_process(tmp_path) as server,
        cutting_proxy(server.connection.url, lambda: None) as proxy,
        AsyncClient(proxy.url, key=server.key("alice"), protocol=protocol, timeouts=TIMEOUTS) as client,
    ):
        session = await client.create("rehearsal")
        events: list[Event] = []
        async with session.run(STORY) as run:
            async for event in run:
                events.append(event)
                if isinstance(event, Text) and said(events) == "First. Once upon ":
                    await proxy.until_restarted(server, server.crash())
        thinking = "Hm. " if ObservedThinking in OBSERVABLE[protocol] else ""
        reply = Reply(events=tuple(events))
        assert (reply.text, reply.thinking) == ("First. Once upon a time.", thinking)
        cut = [each for each in events if isinstance(each, Restarted)]
        assert cut == [Restarted(text="Once upon ", thinking=thinking)]
        place = events.index(cut[0])
        assert said(events[:place]) == "First. Once upon "
        assert said(events[place:]) == "Once upon a time."

        replayed = await session.resume().reply()
        assert replayed.text == reply.text
        if protocol != "a2a":  # a task that is over is its answer
            assert [each for each in replayed.events if isinstance(each, Restarted)] == cut
        if "history" in FEATURES[protocol]:
            history = [(each.text, each.interrupted, each.cut) for each in await session.history() if is_spoken(each)]
            assert history == [
                ("First. ", False, False),
                ("Once upon ", True, True),
                ("Once upon a time.", False, False),
            ]

        assert (await session.ask("hello")).text == "Hello! I am the rehearsal agent."


@pytest.mark.parametrize("protocol", ["aap", "blade"])
async def test_the_terminal_shows_the_words_that_a_kill_cut_off_on_a_line_of_their_own(
    tmp_path: Path, protocol: ClientProtocol
) -> None:
    async with server_process(tmp_path) as server, cutting_proxy(server.connection.url, lambda: None) as proxy:
        key = server.key("alice")
        arguments = ("chat", proxy.url, "--protocol", protocol, "--agent", "rehearsal", "--key", key, "-m", STORY)
        chat = await asyncio.create_subprocess_exec(
            *COMMAND, *arguments, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd=tmp_path
        )
        assert chat.stdout is not None
        async with asyncio.timeout(2 * DEADLINE_S):
            shown = await chat.stdout.readuntil(b"Once upon ")
            await proxy.until_restarted(server, server.crash())
            rest, notes = await chat.communicate()
    assert chat.returncode == 0, notes
    lines = (shown + rest).decode().splitlines()
    assert lines == ["First. Once upon ", "Once upon a time."]
    assert "the server restarted: the last words were cut off and are repeated" in notes.decode().splitlines()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_words_of_a_run_that_is_stopped_stay(client: AsyncClient, protocol: ClientProtocol) -> None:
    session = await client.create("rehearsal")
    events: list[Event] = []
    async with session.run(script({"say": "one "}, {"wait_ms": 600_000}, {"say": "two"})) as run:
        async for event in run:
            events.append(event)
            if isinstance(event, Text):
                await session.stop()
    assert isinstance(events[-1], Ended)
    assert events[-1].reason == "cancelled"
    assert Reply(events=tuple(events)).text == "one "
    if "history" in FEATURES[protocol]:
        (message,) = (await session.history())[1:]
        assert (message.text, message.interrupted, message.cut) == ("one ", True, False)


def said(events: list[Event]) -> str:
    return "".join(each.text for each in events if isinstance(each, Text))


def is_spoken(message: Message) -> bool:
    return message.role == "assistant" and any(isinstance(each, Text) for each in message.blocks)


def test_thinking_counts_like_text() -> None:
    events = (
        Thinking(text="a"),
        Thinking(text="b"),
        Restarted(thinking="b"),
        Thinking(text="bc"),
        Ended(reason="end_turn"),
    )
    assert (Reply(events=events).thinking, Reply(events=events).text) == ("abc", "")
