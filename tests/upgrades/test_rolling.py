"""Two releases on one database: what runs goes on while its servers are replaced, one after the other.

The older release comes from its tag, so those tests need a clone with history and a minute: `make test FULL=1`.
"""

import asyncio
import os
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dragoman.buses.local import LocalBus
from dragoman.core.events import UnknownEvent, decode
from dragoman.core.ids import UserId
from dragoman.core.key_digests import KeyHasher
from dragoman.engine.services.keys import KeyRing
from dragoman.engine.sessions.live_session import to_live_session
from dragoman.server.clock_and_ids import RandomIds, SystemClock
from dragoman.server.stores import open_stores_at
from dragoman.stores.sqlite.database import Database
from tests.asgi_client import DEADLINE_S
from tests.extent import IS_FULL
from tests.protocols.aap.client import AapClient, Session
from tests.servers import START_DEADLINE_S, AppServer, SocketLine, write_key_files
from tests.stores.postgres import Server as Postgres

COMMIT = "b2ed6426"
"""The commit of release 0.1.0, which a clone may have without the tag."""
ROOT = Path(__file__).parents[2]
MOOD_CHANGED = decode(b'{"type": "mood_changed", "mood": 3}')
JOIN_OF_0_1_0 = (
    "INSERT INTO nodes (node, home, epoch, until) VALUES ('old', 'old', nextval('epochs'), now() + interval '1 hour')"
)
HERE = "192.0.2.1"


async def test_digests_get_no_pepper_while_a_server_of_0_1_0_runs(postgres_url: str) -> None:
    """It could not check them, and would go on with keys that are revoked."""
    pepper = b"pepper"
    with closing(open_stores_at(postgres_url)) as stores, psycopg.connect(postgres_url, autocommit=True) as older:
        older.execute(JOIN_OF_0_1_0)
        ring = KeyRing(stores.keys, LocalBus(), SystemClock(), RandomIds(), hasher=KeyHasher(pepper))
        secret, made = await ring.create("laptop")
        assert (made.digest, made.pepper) == (sha256(secret.encode()).digest(), None)
        ring.principal_for(secret, HERE)
        await ring.rehash()
        assert list(await stores.keys.all()) == [made]
        older.execute("DELETE FROM nodes")
        await ring.rehash()
        (stored,) = await stores.keys.all()
        assert stored.digest == KeyHasher(pepper).digest(secret, stored.pepper) != made.digest
        await ring.limit("laptop", per_day=70)
        other = KeyRing(stores.keys, LocalBus(), SystemClock(), RandomIds(), hasher=KeyHasher(pepper))
        await other.reload()
        assert other.principal_for(secret, HERE).key_id == made.key_id
        assert other.token_limits(made.key_id).per_day == 70


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of release 0.1.0."""
    if not IS_FULL:
        pytest.skip("starts programs of two releases: FULL=1")
    packed = subprocess.run(["git", "archive", COMMIT, "src"], cwd=ROOT, check=False, capture_output=True)
    if packed.returncode:
        pytest.skip(f"this clone does not have commit {COMMIT}: {packed.stderr.decode()}")
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


async def run(release: Path, *arguments: str) -> tuple[int | None, str]:
    """Run a command of the release to its end. Returns its exit code and all that it wrote."""
    process = await spawn(release, *arguments)
    async with asyncio.timeout(START_DEADLINE_S):
        output, _ = await process.communicate()
    return process.returncode, output.decode()


async def spawn(release: Path, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dragoman", *arguments),
        env={**os.environ, "PYTHONPATH": str(release)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


@asynccontextmanager
async def older_server(release: Path, folder: Path, url: str) -> AsyncIterator[SocketLine]:
    """A server of the release."""
    flags = ("--rehearsal", "--port", "0", "--data", str(folder), "--database", url, "--log-level", "error")
    process = await spawn(release, "serve", *flags)
    assert process.stdout is not None
    seen = []
    async with asyncio.timeout(START_DEADLINE_S):
        async for line in process.stdout:
            seen.append(line.decode())
            if line.startswith(b"ready "):
                break
    assert seen, "it wrote nothing"
    assert seen[-1].startswith("ready "), seen
    connection = SocketLine(seen[-1].split()[1])
    try:
        yield connection
    finally:
        await connection.close()
        process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            await process.communicate()


@pytest.mark.one_server
async def test_servers_of_0_1_0_are_replaced_one_after_the_other(
    release: Path, tmp_path: Path, postgres: Postgres
) -> None:
    url = postgres.new("template1")
    old_folder, new_folder = tmp_path / "old", tmp_path / "new"
    for folder in (old_folder, new_folder):
        write_key_files(folder, url)
    options = ("--user", "alice", "--data", str(old_folder), "--database", url)
    secrets = [(await run(release, "keys", "create", "--name", name, *options))[1].split()[-1] for name in "ab"]
    async with older_server(release, old_folder, url) as connection:
        session = await AapClient(connection, secrets[0]).create()
        on_old = [session.as_client(AapClient(connection, secret)) for secret in secrets]
        assert (await on_old[0].run("one")).text == "You said: one"
        newer = AppServer(new_folder, database=url, keys={"alice": secrets[0]})
        await newer.start()  # it migrates the database
        app: Any = newer.connection.app
        on_new = [session.as_client(AapClient(newer.connection, secret)) for secret in secrets]
        assert (await on_new[1].run("two")).text == "You said: two"
        await add_unknown_event(newer, session)
        assert (await on_old[1].run("three")).text == "You said: three"
        assert (await on_new[0].run("four")).text == "You said: four"
        history = await on_old[0].history()
        assert [each["content"] for each in history if each["role"] == "user"] == ["one", "two", "three", "four"]
        assert await on_new[0].history() == history
        made, _ = await app.keys.create("late", user=UserId("alice"))
        await until_status(AapClient(connection, made), 200)
        await app.keys.revoke(secrets[1])
        await until_status(AapClient(connection, secrets[1]), 401)
    assert (await on_new[0].run("five")).text == "You said: five"
    await newer.stop()
    with closing(open_stores_at(url)) as stores:
        peppers = {key.name: key.pepper is not None for key in await stores.keys.all()}
    assert peppers == {"a": True, "late": False}, "the one that was used without a server of 0.1.0"
    code, output = await run(release, "serve", "--data", str(old_folder), "--database", url)
    assert (code, "the database has schema 11, this release knows 10" in output) == (1, True), output


async def test_0_1_0_refuses_a_data_folder_of_a_later_release(release: Path, tmp_path: Path) -> None:
    Database(tmp_path).close()
    code, output = await run(release, "serve", "--data", str(tmp_path))
    assert (code, "this release knows 17: use the release that wrote it, or a newer" in output) == (1, True), output


async def add_unknown_event(server: AppServer, session: Session) -> None:
    """Write an event of a type that only an even later release knows."""
    assert isinstance(MOOD_CHANGED, UnknownEvent)
    app: Any = server.connection.app
    engine = app.engine
    async with engine.session(UserId("alice"), session.id) as view:
        live = to_live_session(view)
        async with engine._write_access.acquire(live):
            await live.until_durable(live.append((MOOD_CHANGED,), None))


async def until_status(client: AapClient, status: int) -> None:
    """A server polls the database for changes of keys that another one made."""
    async with asyncio.timeout(DEADLINE_S):
        while (await client.get("/sessions")).status != status:  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.05)
