"""AAP in each stream mode that an agent can declare: whole answers, whole blocks, deltas."""

from pathlib import Path

import pytest

from dragoman.client import AsyncClient, Ended, Permission, Reply, Text, Thinking, ToolCall, ToolResult, Unsupported
from dragoman.core.tools import Capabilities
from tests.client.cutting_proxy import cutting_proxy
from tests.conversations import call, script
from tests.protocols.aap.agents import Player, Tool
from tests.servers import running_socket_server

PLAY = script({"think": "hm"}, {"say": "So: "}, call("add", a=1, b=2), {"say": "{result}. "}, call("stamp", text="x"))
MODES: dict[str, Capabilities] = {
    "delta": Capabilities(history_full=True),
    "message": Capabilities(history_full=True, stream_modes=frozenset({"message", "none"})),
    "none": Capabilities(history_compacted=True, stream_modes=frozenset({"none"})),
    "silent": Capabilities(),
}


async def add(arguments: dict[str, int]) -> str:
    return str(arguments["a"] + arguments["b"])


async def stamp(arguments: dict[str, str]) -> str:
    return f"stamped {arguments['text']}"


AGENTS = [
    Player(name, [Tool("add", add), Tool("stamp", stamp)], capabilities=capabilities)
    for name, capabilities in MODES.items()
]


def normalized_reply(reply: Reply) -> list[tuple[type, str]]:
    """The events in a form that all modes have in common."""
    items: list[tuple[type, str]] = []
    for event in reply.events:
        match event:
            case Text(text=text) | Thinking(text=text):
                if items and items[-1][0] is type(event):
                    text = items.pop()[1] + text
                items.append((type(event), text))
            case ToolCall(name=name) | Permission(name=name):
                items.append((type(event), name))
            case ToolResult(text=text):
                items.append((type(event), text))
            case Ended(reason=reason):
                items.append((type(event), reason))
    return items


async def test_a_run_yields_the_same_events_in_every_stream_mode(tmp_path: Path) -> None:
    answers = []
    async with running_socket_server(tmp_path, agents=AGENTS) as server:
        async with AsyncClient(server.connection.url, key=server.key("alice")) as client:
            for mode in ("delta", "message", "none"):
                session = await client.create(mode, trusted_tools=["add"])
                answers.append(normalized_reply(await session.ask(PLAY)))
                assert [each.role for each in await session.history()][:2] == ["user", "assistant"]
            silent = await client.create("silent")
            with pytest.raises(Unsupported, match="agent 'silent' does not support history over AAP"):
                await silent.history()
        bounds: list[int | None] = [None, None, None, 0, 0, None]
        async with (
            cutting_proxy(server.connection.url, lambda: bounds.pop(0) if bounds else None) as proxy,
            AsyncClient(proxy.url, key=server.key("alice")) as client,
        ):
            session = await client.create("none", trusted_tools=["add"])
            answers.append(normalized_reply(await session.ask(PLAY)))
    assert answers[0] == [
        (Thinking, "hm"),
        (Text, "So: "),
        (ToolCall, "add"),
        (ToolResult, "3"),
        (Text, "3. "),
        (ToolCall, "stamp"),
        (Permission, "stamp"),
        (Ended, "tool_use"),
    ]
    assert answers == [answers[0]] * 4
