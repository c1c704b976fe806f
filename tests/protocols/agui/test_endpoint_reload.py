"""A reload equals what was seen live: the same messages and the same events beside them, in both official clients."""

import random
from typing import Any
from uuid import uuid4

import pytest

from tests.conversations import script
from tests.protocols.agui.endpoint import Endpoint, Event
from tests.protocols.agui.official_clients import (
    VERSIONS,
    Agent,
    Message,
    OfficialClients,
    RunResult,
    Version,
    check,
    user,
)
from tests.requirements import requirement
from tests.servers import SocketServer

Json = Any
CARD = {"card": {"type": "badge", "label": "done"}}
IMAGE = {"image": "https://example.org/x.png"}
DATA = {"data": {"rows": [1, None, "x"]}}
INVALID_CARD: Json = {"card": {"type": "badge"}}
ADD = {"call": {"name": "add", "input": {"a": 1, "b": 2}}}
STEPS: tuple[Json, ...] = (
    {"say": "some words "},
    {"say": "x" * 9000},
    {"think": "hm, hm"},
    CARD,
    INVALID_CARD,
    IMAGE,
    DATA,
    ADD,
    {"calls": [{"name": "lookup", "input": {"q": "x"}}, {"name": "boom", "input": {}}]},
    {"step": True},
    {"plan": {"status": "draft", "steps": [{"title": "one", "status": "pending"}]}},
    {"fork": {"description": "d", "script": [IMAGE, {"think": "below"}, CARD, {"say": "gold"}]}},
)


def random_scripts(seed: int) -> list[str]:
    chance = random.Random(seed)
    return [script(*chance.choices(STEPS, k=chance.randint(1, 8))) for _ in range(6)]


def beside(ran: RunResult) -> list[Event]:
    return [event for event in ran.events if event["type"] == "CUSTOM"]


def without_error(message: Message) -> Message:
    """A message as the stream gives it: only a snapshot can say that a result is an error."""
    return {name: value for name, value in message.items() if name != "error"}


async def open_client(official: OfficialClients, server: SocketServer, version: Version, thread: str) -> Agent:
    url = f"{server.connection.url}/ag-ui/rehearsal"
    return await official.open(version, url, thread=thread, key=server.key("alice"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(4))
@requirement("ag-ui-b:hydrate:as-live", "ag-ui-b:clients:no-warnings")
async def test_a_reload_shows_what_was_seen_live(
    agui_clients: OfficialClients, socket_server: SocketServer, version: Version, seed: int
) -> None:
    thread = str(uuid4())
    live = await open_client(agui_clients, socket_server, version, thread)
    runs = [check(await live.send_and_run(text)) for text in random_scripts(seed)]
    reloaded = check(await (await open_client(agui_clients, socket_server, version, thread)).run())
    assert [without_error(each) for each in reloaded.messages] == runs[-1].messages
    assert beside(reloaded) == [event for ran in runs for event in beside(ran)]


@pytest.mark.parametrize("version", VERSIONS)
@requirement("ag-ui-b:hydrate:as-live", "ag-ui-b:connect:joins")
async def test_a_client_that_joins_a_run_has_what_the_first_one_has(
    agui_clients: OfficialClients, socket_server: SocketServer, version: Version
) -> None:
    thread = str(uuid4())
    url, key = f"{socket_server.connection.url}/ag-ui/rehearsal", socket_server.key("alice")
    first = await agui_clients.open(version, url, thread=thread, key=key)
    begun: Json = [CARD, ADD, {"think": "hm"}, IMAGE, {"step": True}, {"think": "hm"}, DATA, CARD]
    await first.say(user(script(*begun, {"say": "so far"}, {"wait_ms": 600_000})))
    live = first.begin()
    await first.wait_for_text("so far")
    second = await agui_clients.open(version, f"{url}/connect", thread=thread, key=key)
    joined = second.begin()
    await second.wait_for_text("so far")
    await Endpoint(socket_server.connection, key).request("POST", f"rehearsal/stop/{thread}")
    seen, joining = check(await live), check(await joined)
    assert joining.messages == seen.messages
    assert beside(joining) == beside(seen)
