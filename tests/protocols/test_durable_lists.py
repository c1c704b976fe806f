"""Lists of conversations show a change only when it is durable, over every protocol that has such a list."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dragoman.engine.instrumentation.counted_log import CountedLog
from dragoman.ports.log import Append
from tests.protocols.aisdk.client import Pages
from tests.protocols.mcp.client import NEW, McpClient
from tests.requirements import requirement
from tests.servers import running_server


@requirement("ai-sdk:chats:list", "mcp:resources:list", "blade:sessions:list")
async def test_a_list_waits_until_the_titles_in_it_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, seen = CountedLog.commit, list[str]()
    changing, may_commit = asyncio.Event(), asyncio.Event()

    async def late(self: CountedLog, batch: Sequence[Append]) -> Sequence[bool]:
        if any(b"Holidays" in payload for append in batch for payload in append.payloads):
            changing.set()
            await may_commit.wait()
            seen.append("committed")
        return await commit(self, batch)

    async with running_server(tmp_path) as server:
        alice, pages = server.aap_client("alice"), Pages(server.connection, server.key("alice"))
        client, session = McpClient(server.connection, server.key("alice"), version=NEW), await alice.create()

        async def list_chats() -> None:
            seen.append((await pages.request("GET", "")).json[0]["title"])

        async def list_resources() -> None:
            seen.append((await client.request("resources/list"))["resources"][0]["name"])

        async def sessions_of(name: str) -> Any:
            key = [("authorization", f"Bearer {server.key(name)}")]
            answer = await server.connection.open("GET", "/api/sessions", headers=key)
            return json.loads(await answer.read())["items"]

        async def list_sessions() -> None:
            seen.append((await sessions_of("alice"))[0]["intent"])

        monkeypatch.setattr(CountedLog, "commit", late)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pages.request("PATCH", f"/{session.id}", {"title": "Holidays"}))
            await changing.wait()
            tasks.create_task(list_chats())
            tasks.create_task(list_resources())
            tasks.create_task(list_sessions())
            for _ in range(3):  # enough time for an answer
                await sessions_of("bob")
            may_commit.set()
    assert seen == ["committed", "Holidays", "Holidays", "Holidays"]
