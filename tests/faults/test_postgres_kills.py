"""A server on PostgreSQL that is killed repeatedly while it streams: nothing sent is lost or taken back."""

import asyncio
import json
from contextlib import closing
from pathlib import Path
from random import Random

import httpx2
import pytest

from dragoman.core.ids import SessionId, UserId
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.log import PostgresLog
from tests.engine.log_checker import check_session
from tests.extent import extent
from tests.protocols.aap.client import AapClient, Session
from tests.requirements import requirement
from tests.servers import ServerProcess, server_process
from tests.stores.postgres import server

KILLS = extent(12, 3)
CLIENTS = 3
WORDS = 12
DEADLINE_S = 60.0
"""How long an interrupted run may take to end."""


class Client:
    """Opens a session, runs a turn, and records what it received."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.is_accepted = False
        self.streamed_text = ""
        self.heard = asyncio.Semaphore(0)

    async def run_turn(self) -> None:
        """Read until the turn or the connection ends."""
        steps = [step for number in range(WORDS) for step in ({"say": f"word {number} "}, {"wait_ms": 15})]
        try:
            reading = await self.session.open(json.dumps({"script": steps}))
            self.is_accepted = True
            while (frame := await reading.next()) is not None:
                if frame.event == "text_delta":
                    self.streamed_text += frame.data["delta"]
                    self.heard.release()
        except (httpx2.TransportError, AssertionError):
            pass  # the server died, possibly in the middle of a frame

    async def history_text(self, aap_client: AapClient) -> str:
        """The agent's text in the history."""
        history = await self.session.as_client(aap_client).history()
        blocks = [block for message in history if message["role"] == "assistant" for block in message["content"]]
        return "".join(block["text"] for block in blocks)


async def kill_while_talking(running: ServerProcess, deltas: int) -> list[Client]:
    """Run turns of several clients and kill the server when all have heard something. The server is running again."""
    aap = AapClient(running.connection, running.key("alice"))
    clients = [Client(await aap.create()) for _ in range(CLIENTS)]
    talking = [asyncio.create_task(client.run_turn()) for client in clients]
    async with asyncio.timeout(DEADLINE_S):
        for client in clients * deltas:
            await client.heard.acquire()
    await running.crash()
    await asyncio.gather(*talking)
    return clients


async def at_rest(log: PostgresLog) -> None:
    """Wait until no run is active."""
    async with asyncio.timeout(DEADLINE_S):
        while await log.unfinished_sessions():  # noqa: ASYNC110  # only the database shows what the server does
            await asyncio.sleep(0.05)


@requirement("faults:41:postgres")
@pytest.mark.slow
async def test_what_was_sent_survives_every_kill_and_every_run_ends(tmp_path: Path) -> None:
    chance = Random(7)
    with server(fsync=True) as postgres:
        url = postgres.url("postgres")
        async with server_process(tmp_path, "--database", url) as running:
            with closing(Database(url, access="unlocked")) as database:
                log = PostgresLog(database)
                accepted = cut = 0
                for _ in range(KILLS):
                    clients = await kill_while_talking(running, chance.randrange(WORDS // 2))
                    await at_rest(log)
                    aap = AapClient(running.connection, running.key("alice"))
                    for client in clients:
                        text = await client.history_text(aap)
                        assert text.startswith(client.streamed_text)
                        assert bool(text) or not client.is_accepted
                        accepted += client.is_accepted
                        cut += client.is_accepted and client.streamed_text.count("word") < WORDS
                        await check_session(log, SessionId(client.session.id), {})
                assert len(await log.page(UserId("alice"), None, 1000)) == KILLS * CLIENTS
        assert accepted > KILLS, "the test is worth its name"
        assert cut
