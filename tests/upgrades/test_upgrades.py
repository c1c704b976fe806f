"""Data of every release: later servers show the same histories, and go on with them. `make.py` makes the data."""

import json
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from dragoman.server.stores import open_stores
from dragoman.settings import Settings
from tests.protocols.aap.client import AapClient, Session, grant, result
from tests.servers import AppServer
from tests.stores.postgres import Server as Postgres
from tests.upgrades.agents import everything, worker
from tests.upgrades.exports import export_protocols, export_stores
from tests.upgrades.make import RELEASES

Json = Any
CUT = "cut"
"""The session whose run was cut. The first server that opens the data ends or continues it."""
RELEASE_ARCHIVES = sorted(RELEASES.iterdir())


class Data(NamedTuple):
    """A copy of a release's data, and what was expected of it when it was made."""

    folder: Path
    database: str | None
    expected: Json

    @asynccontextmanager
    async def server(self) -> AsyncIterator[AppServer]:
        """A server on the data, in the time of its making: no budget is of another month, and nothing is due."""
        agents, keys = (everything, worker), self.expected["api_keys"]
        server = AppServer(self.folder, agents, manual_clock=True, keys=keys, database=self.database)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()

    async def exported(self) -> Json:
        """The content of the stores, while no server uses them."""
        with closing(open_stores(Settings(data=str(self.folder), database=self.database))) as stores:
            return json.loads(json.dumps(await export_stores(stores)))


@pytest.fixture(params=RELEASE_ARCHIVES, ids=lambda archive: archive.name.removesuffix(".tar.xz"))
def unpacked(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture(params=["sqlite", "postgres"])
def data(request: pytest.FixtureRequest, unpacked: Path, postgres: Postgres) -> Data:
    database = None
    if request.param == "postgres":
        database = postgres.new("template1")
        dump = (unpacked / "postgres.sql").read_text(encoding="utf-8")
        statements = "\n".join(line for line in dump.split("\n") if not line.startswith(("\\restrict", "\\unrestrict")))
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(statements.encode())
        (unpacked / "data" / "dragoman.db").unlink()
    return Data(unpacked / "data", database, json.loads((unpacked / "expected.json").read_text(encoding="utf-8")))


@pytest.mark.one_server
async def test_data_of_a_release_is_shown_as_it_was_and_continues(data: Data) -> None:
    expected = data.expected
    assert await data.exported() == expected["stores"]
    async with data.server() as server:
        alice = server.aap_client("alice")
        at_rest = {name: session_id for name, session_id in expected["sessions"].items() if name != CUT}
        shown = await export_protocols(alice, at_rest)
        assert without_additions(shown) == {name: expected["protocols"][name] for name in at_rest}
        await check_accounts(server, expected)
        await play_on({name: Session(alice, session_id) for name, session_id in expected["sessions"].items()})
    after = await data.exported()
    with closing(open_stores(Settings(data=str(data.folder), database=data.database))) as stores:
        has_pepper = {key.name: key.pepper is not None for key in await stores.keys.all()}
    assert (has_pepper["alice"], has_pepper["limited"], has_pepper["bob"]) == (True, True, False), "bob's was not used"
    for session_id, log in expected["stores"]["logs"].items():
        assert after["logs"][session_id][: len(log)] == log
    assert after["audit"][-len(expected["stores"]["audit"]) :] == expected["stores"]["audit"]


def without_additions(shown: Json) -> Json:
    """What is shown without the members that later releases have added: which tool an answer over Blade allows."""
    if isinstance(shown, list):
        return [without_additions(each) for each in shown]
    if not isinstance(shown, dict):
        return shown
    added = {"permission"} if {"selections", "custom", "answers"} <= shown.keys() else set[str]()
    return {name: without_additions(value) for name, value in shown.items() if name not in added}


async def check_accounts(server: AppServer, expected: Json) -> None:
    """Keys, budgets, memories, schedules and links."""
    secrets = expected["secrets"]
    limited = AapClient(server.connection, secrets["limited"], base="")
    budgets = {each["holder"]: each for each in (await limited.get("/usage")).json["budgets"]}
    assert (budgets["key"]["limit"], budgets["key"]["used"]) == (1000, 25)
    alice = AapClient(server.connection, server.key("alice"), base="/api")
    assert (await raw(alice, "/memories"))["total"] == len(expected["stores"]["memories"])
    (task,) = await raw(alice, "/scheduled-tasks")
    assert (task["title"], task["cron"], task["timezone"]) == ("report", "0 9 * * *", "Europe/Berlin")
    assert await raw(AapClient(server.connection, None, base="/api"), f"/share/{secrets['share']}")
    assert await raw(AapClient(server.connection, secrets["blade"], base="/api"), "/sessions")
    assert (await AapClient(server.connection, secrets["revoked"]).get("/sessions")).status == 401


async def raw(client: AapClient, path: str) -> Json:
    stream = await client.open("GET", path)
    body = await stream.read()
    assert stream.status == 200, (path, body)
    return json.loads(body)


async def play_on(sessions: dict[str, Session]) -> None:
    """Answer open calls, and continue sessions at rest."""
    approval = sessions["an open approval"]
    (stamp,) = await open_calls(approval)
    assert (await approval.run([grant(stamp["toolCallId"])])).text == "Then: stamped x"
    question = sessions["an open question"]
    (asked,) = await open_calls(question)
    chosen = json.dumps({"selections": ["production"]})
    assert (await question.run([result(asked["toolCallId"], chosen)])).text == "You chose production."
    application = sessions["open calls of the application"]
    painted = [result(each["toolCallId"], each["input"]["colour"]) for each in await open_calls(application)]
    assert (await application.run(painted)).text == "red, blue"
    waiting = sessions["a call that waits for the application"]
    (careful,) = await open_calls(waiting)
    assert (await waiting.run([result(careful["toolCallId"], "yes")])).text == "careful with this: yes"
    assert (await sessions["everything"].run("and on")).text == "message 4: and on"
    cut = sessions[CUT]
    reader = await cut.watch("0")
    assert (await cut.client.post(f"{cut.path}/stop", None)).status == 200
    await reader.read_to_end()
    assert "half an answer" in json.dumps((await cut.history())[-1])
    for session in (cut, sessions["branches"], sessions["compacted"], sessions["pictures"]):
        assert (await session.run("hello")).text == "Hello! I am the rehearsal agent."


async def open_calls(session: Session) -> list[Json]:
    """The calls that have no result."""
    history = await session.history()
    blocks = [block for each in history if isinstance(each["content"], list) for block in each["content"]]
    settled = {each["toolCallId"] for each in history if each["role"] == "tool"}
    return [each for each in blocks if each["type"] == "tool_use" and each["toolCallId"] not in settled]
