"""Plays the conversations of a release's data, with that release. Run by `make.py`, in a checkout of the release.

    python player.py FOLDER

FOLDER gets `data/` with the data folder, `postgres.sql` with a dump of the same in PostgreSQL, and `expected.json`.
Everything in it is a fixture: its keys open nothing else.
"""

import asyncio
import base64
import hashlib
import json
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

from agents import everything, worker
from exports import export_protocols, export_stores  # type: ignore[import-not-found]  # beside this file

from dragoman.core.events import Event
from dragoman.core.ids import UserId
from dragoman.core.token_budgets import TokenLimits
from dragoman.protocols.blade.wire.chat import parse_session_name
from dragoman.server.copy_between_stores import copy
from dragoman.server.key_files import check_key_files
from dragoman.server.stores import open_stores_at
from dragoman.stores.encryption import KEY_FILES
from dragoman.stores.sqlite.online_copy import copy_database
from tests.conversations import CONVERSATIONS, call, calls, play, script
from tests.protocols.a2a.client import A2aClient
from tests.protocols.aap.client import AapClient, client_tool, enabled_tools, user
from tests.protocols.aap.driver import AapDriver
from tests.protocols.agui.endpoint import Endpoint, an_input
from tests.protocols.agui.run_service import RunServiceClient, new_thread, run_input
from tests.protocols.aisdk.client import Pages
from tests.protocols.aisdk.client import user as page_user
from tests.protocols.openai.client import OpenAiClient
from tests.servers import AppServer
from tests.stores import postgres

Json = Any
REHEARSAL = {"solution_id": "rehearsal"}
UNFINISHED = "half an answer"


class Player:
    """Plays on one server, and remembers its sessions by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sessions: dict[str, str] = {}
        self.server = AppServer(folder, agents=(everything, worker), manual_clock=True)
        self.secrets: dict[str, Json] = {}

    async def blade(self, method: str, path: str, body: Json = None, *, key: str | None = None) -> Json:
        client = AapClient(self.server.connection, key or self.server.key("alice"), base="/api/")
        stream = await client.open(method, path, body)
        content = await stream.read()
        assert stream.status < 300, (path, content)
        return json.loads(content) if content else None

    async def play(self) -> None:
        await self.conversations()
        await self.open_calls()
        await self.parked()
        await self.accounts()
        await self.own_agent()
        await self.branches()
        await self.other_protocols()

    async def conversations(self) -> None:
        for conversation in CONVERSATIONS:
            if not conversation.crashes():
                driver = AapDriver("delta", lambda server: server.aap_client("alice"))  # type: ignore[attr-defined]
                await play(conversation, driver, self.server)
                if not await driver.is_gone():
                    self.sessions[conversation.name] = driver.session.id

    async def open_calls(self) -> None:
        alice = self.server.aap_client("alice")
        stamping = await alice.create(server_tools=enabled_tools("stamp", trust=False), options={"token": "secret"})
        assert (await stamping.run(script(call("stamp", text="x"), {"say": "Then: {result}"}))).stop == "tool_use"
        asking = await alice.create()
        assert (await asking.run("ask me")).stop == "tool_use"
        painting = await alice.create(tools=[client_tool("paint")])
        steps = calls(("paint", {"colour": "red"}), ("paint", {"colour": "blue"}))
        assert (await painting.run(script(steps, {"say": "{results}"}))).stop == "tool_use"
        pictures = await alice.create()
        noise = b"".join(hashlib.sha256(bytes([index % 7])).digest() for index in range(1200))
        for content in (b"\x89PNG\r\n\x1a\n", b"\x89PNG\r\n\x1a\n" + noise):  # the larger one becomes a blob
            url = f"data:image/png;base64,{base64.b64encode(content).decode()}"
            await pictures.run([user([{"type": "text", "text": "look"}, {"type": "image", "url": url}])])
        self.sessions |= {
            "an open approval": stamping.id,
            "an open question": asking.id,
            "open calls of the application": painting.id,
            "pictures": pictures.id,
        }

    async def parked(self) -> None:
        session = await self.server.aap_client("alice").create()
        steps = ({"say": "first. "}, {"step": True}, {"say": "counting "}, {"wait_ms": 300}, {"say": "done"})
        reader = await session.open(script(*steps))
        await reader.until("text_delta")
        await self.server.restart()
        await (await session.as_client(self.server.aap_client("alice")).watch("0")).read_to_end()
        self.sessions["a run over a restart"] = session.id

    async def accounts(self) -> None:
        app: Any = self.server.connection.app
        await app.profiles.change(UserId("alice"), time_zone="Europe/Berlin", locale="de-DE", tokens_per_month=10**9)
        limited, _ = await app.keys.create("limited", user=UserId("alice"), token_limits=TokenLimits(1000, 0))
        renamed = await self.blade("POST", "user/api-keys", {"name": "phone"})
        await self.blade("PATCH", f"user/api-keys/{renamed['key']['id']}", {"name": "new phone"})
        revoked, key = await app.keys.create("lost", user=UserId("alice"))
        await app.keys.revoke(key.key_id)
        self.secrets = {"limited": limited, "blade": renamed["plaintext"], "revoked": revoked}
        spending = await AapClient(self.server.connection, limited).create()
        await spending.run(script({"usage": {"input_tokens": 20, "output_tokens": 5}}, {"say": "spent"}))
        self.sessions["with a budget"] = spending.id
        await self.blade("POST", "memories", {"content": "likes tea", "topic": "taste"})
        memory = await self.blade("POST", "memories", {"content": "likes coffee"})
        await self.blade("PATCH", f"memories/{memory['id']}", {"disabled": True})
        task = {"title": "report", "prompt": "hello", "cron": "0 9 * * *", "timezone": "Europe/Berlin"}
        await self.blade("POST", "scheduled-tasks", task)

    async def own_agent(self) -> None:
        alice = self.server.aap_client("alice")
        session = await alice.create("everything")
        for text in ("hello", "remember", "again"):
            await session.run(text, headers={"idempotency-key": text})
        self.sessions["everything"] = session.id
        starting = await alice.create("everything")
        await starting.run("start")
        waiting = await alice.create("everything", server_tools=enabled_tools("careful"))
        await waiting.run("careful")
        self.sessions["a call that waits for the application"] = waiting.id
        self.sessions["a background task"] = starting.id

    async def branches(self) -> None:
        made = await self.blade("POST", "sessions", {**REHEARSAL, "intent": "branches", "env": {"NAME": "value"}})
        session = parse_session_name(made["session_id"])
        self.sessions["branches"] = session
        aap = self.server.aap_client("alice")
        for text in ("one " * 300, "two " * 300, script({"recall": "memory"})):
            reply = await aap.post(f"/sessions/{session}/turns", {"messages": [user(text)]})
            assert reply.status == 200, reply
        await self.blade("POST", f"sessions/{session}/compact")
        (first, *_) = await self.blade("GET", f"sessions/{session}/checkpoints")
        await self.blade("POST", f"sessions/{session}/rewind", {"checkpoint_id": first["checkpoint_id"]})
        await aap.post(f"/sessions/{session}/turns", {"messages": [user("instead")]})
        await self.blade("PATCH", f"sessions/{session}", {"intent": "renamed"})
        await self.blade("PATCH", f"sessions/{session}/pin", {"pinned": True})
        shared = await self.blade("POST", f"sessions/{session}/share", {"ttl_seconds": 86400 * 3000})
        self.secrets["share"] = shared["token"]
        compacted = parse_session_name((await self.blade("POST", "sessions", REHEARSAL))["session_id"])
        for text in ("one " * 300, "two " * 300, "three"):
            await aap.post(f"/sessions/{compacted}/turns", {"messages": [user(text)]})
        await self.blade("POST", f"sessions/{compacted}/compact")
        self.sessions["compacted"] = compacted

    async def other_protocols(self) -> None:
        connection, key = self.server.connection, self.server.key("alice")
        before = {each["sessionId"] for each in await self.listed()}
        await Endpoint(connection, key).run(an_input("hello", state={"shown": 1}))
        service = RunServiceClient(connection, key)
        thread = new_thread()
        await service.submit(run_input(thread, script({"wait_ms": 300}, {"say": "first"}), "r-1"))
        await service.play(thread, "the queued one", "r-2")
        await OpenAiClient(connection, key).respond(script({"think": "hm"}, {"say": "yes"}))
        await Pages(connection, key).post("page", page_user("hello", "m-1"))
        agent = A2aClient(connection, key)
        await agent.send("hello")
        after = [each["sessionId"] for each in await self.listed() if each["sessionId"] not in before]
        self.sessions |= {f"of another protocol {index}": session_id for index, session_id in enumerate(after)}

    async def listed(self) -> list[Json]:
        reply = await self.server.aap_client("alice").get("/sessions")
        found: list[Json] = reply.json["sessions"]
        return found

    async def begin_unfinished(self) -> None:
        """A run that the fixture cuts."""
        session = await self.server.aap_client("alice").create()
        reader = await session.open(script({"say": UNFINISHED}, {"wait_ms": 600_000}, {"say": "never said"}))
        await reader.until("text_delta")
        self.sessions["cut"] = session.id


async def write(target: Path) -> None:
    data = target / "data"
    data.mkdir(parents=True)
    with postgres.server() as database:
        player = Player(target / "live")
        await player.server.start()
        await player.play()
        await player.begin_unfinished()
        copy_database(player.folder, data / "dragoman.db", lambda *_: None)
        for name in (*KEY_FILES, "blobs"):
            (shutil.copytree if name == "blobs" else shutil.copy)(player.folder / name, data / name)
        protocols = await export_protocols(player.server.aap_client("alice"), player.sessions)
        await player.server.stop()
        database.new("template1")
        url = database.url("test_1")
        shutil.copytree(data, target / "copied")
        with closing(open_stores_at(str(target / "copied"))) as source, closing(open_stores_at(url)) as copied:
            stores = await export_stores(source)
            await copy(source, copied, lambda *_: None)
            await check_key_files(data, copied.key_fingerprints)
            assert await export_stores(copied) == stores
        dump = subprocess.run(  # noqa: ASYNC221  # nothing else runs
            [postgres.programs() / "pg_dump", "--no-owner", "--inserts", "--rows-per-insert=100", url],
            check=True,
            capture_output=True,
        )
        (target / "postgres.sql").write_bytes(dump.stdout)
    expected = {
        "api_keys": {name: player.server.key(name) for name in ("alice", "admin", "bob")},
        "secrets": player.secrets,
        "sessions": player.sessions,
        "stores": stores,
        "protocols": protocols,
    }
    (target / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1))
    written = {event["type"] for log in stores["logs"].values() for _, _, _, event in log}
    kinds = {kind.__struct_config__.tag for kind in get_args(Event)} - {"unknown"}
    assert written == kinds, f"not played: {kinds - written}"


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1])))
