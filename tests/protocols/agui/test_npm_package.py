"""The npm package `@dragoman/ag-ui` (`web/packages/ag-ui`), on top of the official client, 1.0 and 0.x."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.client.cutting_proxy import cutting_proxy
from tests.conversations import script
from tests.nodejs import bundle
from tests.protocols.agui.official_clients import (
    CLIENTS,
    VERSIONS,
    Agent,
    OfficialClients,
    Version,
    check,
    official_clients,
    user,
)
from tests.requirements import requirement
from tests.servers import SocketServer, server_process

Json = Any
PACKAGE = Path(__file__).parents[3] / "web" / "packages" / "ag-ui" / "index.js"
LONG = script({"emit": {"count": 400, "text": "abcd ", "every_ms": 2}})
HANG = script({"say": "begun"}, {"wait_ms": 600_000})

both = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture(scope="module")
async def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[Version, Path]:
    """The package, bundled as applications do it, for each version."""
    folder = tmp_path_factory.mktemp("package")
    return {
        version: await bundle(
            PACKAGE,
            folder / f"{version}.mjs",
            CLIENTS,
            "--platform=node",
            f"--alias:@ag-ui/client=ag-ui-{version}",
        )
        for version in VERSIONS
    }


class Pages:
    """Opens pages: each has its own agent of the package."""

    def __init__(self, official: OfficialClients, module: Path, version: Version, key: str) -> None:
        self._official = official
        self._module = module
        self._version: Version = version
        self._key = key

    async def open(self, url: str, thread: str) -> Agent:
        return await self._official.open(
            self._version, f"{url}/ag-ui/rehearsal", thread=thread, key=self._key, module=str(self._module)
        )


@pytest.fixture
def pages(
    agui_clients: OfficialClients, socket_server: SocketServer, modules: dict[Version, Path], version: Version
) -> Pages:
    return Pages(agui_clients, modules[version], version, socket_server.key("alice"))


def texts(messages: list[Json]) -> list[tuple[str, str]]:
    return [(each["role"], each.get("content", "")) for each in messages if each["role"] in ("user", "assistant")]


@requirement("ag-ui-b:package:reconnects")
@both
async def test_a_run_survives_lost_connections_without_a_gap_or_a_repetition(
    pages: Pages, socket_server: SocketServer
) -> None:
    lengths = iter([0, 700, 3000])
    async with cutting_proxy(socket_server.connection.url, lambda: next(lengths, None)) as proxy:
        page = await pages.open(proxy.url, str(uuid4()))
        ran = check(await page.send_and_run(LONG))
        assert proxy.cut_count == 3
    assert ran.text == "abcd " * 400
    assert [each for each in ran.types if each != "TEXT_MESSAGE_CONTENT"] == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]


@requirement("ag-ui-b:package:reloads")
@both
async def test_a_new_page_shows_the_thread_and_joins_its_active_run(pages: Pages, socket_server: SocketServer) -> None:
    url, thread = socket_server.connection.url, str(uuid4())
    first = await pages.open(url, thread)
    check(await first.send_and_run("add 20 and 22"))
    await first.say(user(LONG))
    running = first.begin()
    await first.until("TEXT_MESSAGE_CONTENT")
    lengths = iter([900])
    async with cutting_proxy(url, lambda: next(lengths, None)) as proxy:
        second = await pages.open(proxy.url, thread)
        shown = await second.connect()
        assert proxy.cut_count == 1
    assert texts(shown["messages"]) == texts((await running).messages)


@requirement("ag-ui-b:package:reloads")
@both
async def test_a_thread_without_messages_is_empty(pages: Pages, socket_server: SocketServer) -> None:
    page = await pages.open(socket_server.connection.url, str(uuid4()))
    assert (await page.connect())["messages"] == []


@requirement("ag-ui-b:package:stops")
@both
async def test_aborting_stops_the_run_on_the_server(pages: Pages, socket_server: SocketServer) -> None:
    url, thread = socket_server.connection.url, str(uuid4())
    first = await pages.open(url, thread)
    await first.say(user(HANG))
    running = first.begin()
    await first.wait_for_text("begun")
    second = await pages.open(url, thread)
    watching = asyncio.create_task(second.connect())
    await first.abort()
    await running
    assert [each["content"] for each in (await watching)["messages"]] == [HANG, "begun"]


@requirement("ag-ui-b:package:reconnects")
async def test_a_run_continues_when_the_server_is_killed(tmp_path: Path, modules: dict[Version, Path]) -> None:
    async with (
        server_process(tmp_path) as server,
        official_clients() as official,
        cutting_proxy(server.connection.url, lambda: None) as proxy,
    ):
        pages = Pages(official, modules["1"], "1", server.key("alice"))
        page = await pages.open(proxy.url, str(uuid4()))
        await page.say(user(script({"say": "one"}, {"step": True}, {"wait_ms": 300}, {"say": "two"})))
        running = page.begin()
        await page.wait_for_text("one")
        await proxy.until_restarted(server, server.crash())
        ran = check(await running)
        assert ran.types[-1] == "RUN_FINISHED"
        shown = await (await pages.open(proxy.url, page.thread)).connect()
    assert texts(shown["messages"]) == texts(ran.messages)
