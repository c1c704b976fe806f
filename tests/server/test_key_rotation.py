"""Rotating encryption keys: old data stays readable, and old copies of the file are refused."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from dragoman.cli.main import commands
from dragoman.core.upload_links import Links
from dragoman.server.key_files import check_key_files, rotate
from dragoman.server.stores import open_stores_at
from dragoman.settings import SettingsError
from dragoman.stores.encryption import KEY_FILES
from tests.servers import running_server


@pytest.mark.one_server
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_sessions_continue_after_both_keys_were_rotated(
    tmp_path: Path, postgres_url: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    database = postgres_url if store == "postgres" else None
    flags = ["--data", str(folder), *(["--database", postgres_url] if database else [])]
    async with running_server(folder, database=database) as server:
        session = await server.aap_client("alice").create(options={"token": "secret"})
        await session.run("first")
        in_use = await asyncio.to_thread(CliRunner().invoke, commands, ["keys", "rotate", "secrets.key", *flags])
        assert in_use.exit_code == 1, "a server is running"
        await server.stop()
        monkeypatch.setattr("tests.servers.write_key_files", lambda folder, database: None)  # they are not to be reset
        before = {name: (folder / name).read_bytes() for name in KEY_FILES}
        for name in KEY_FILES:
            rotated = await asyncio.to_thread(CliRunner().invoke, commands, ["keys", "rotate", name, *flags])
            assert rotated.output.startswith(f"{folder / name} has a new key; its fingerprint is ")
            assert (folder / name).read_bytes()[32:] == before[name]
        await server.start()
        again = session.as_client(server.aap_client("alice"))
        assert (await again.run("second")).stop == "end_turn"
        await server.stop()
        rotated_key = (folder / "secrets.key").read_bytes()
        (folder / "secrets.key").write_bytes(before["secrets.key"])
        with pytest.raises(
            RuntimeError, match=r"copy secrets\.key and links\.key from a backup, or from the data folder"
        ):
            await server.start()
        refused = await asyncio.to_thread(CliRunner().invoke, commands, ["keys", "rotate", "secrets.key", *flags])
        assert (refused.exit_code, "is not the key with which the data was written" in refused.output) == (1, True)
        (folder / "secrets.key").unlink()
        with pytest.raises(RuntimeError, match=r"secrets\.key is missing, and the data was written with it"):
            await server.start()
        (folder / "secrets.key").write_bytes(rotated_key)
        await server.start()
        assert (await session.as_client(server.aap_client("alice")).run("third")).stop == "end_turn"
        await server.stop()
        (folder / "secrets.key").unlink()
        lost = await asyncio.to_thread(
            CliRunner().invoke, commands, ["keys", "rotate", "--lost", "secrets.key", *flags]
        )
        assert lost.output.startswith(f"{folder / 'secrets.key'} is the key of the data now; its fingerprint is ")
        await server.start()
        assert (await server.aap_client("alice").get("/sessions")).status == 401, "its digest had another pepper"


async def test_a_rotation_that_a_crash_interrupted_is_finished_by_the_next_one(
    tmp_path: Path, postgres_url: str
) -> None:
    """The key is in the file, but the database does not know it: servers have to wait until it does."""
    file = tmp_path / "secrets.key"
    with closing(open_stores_at(postgres_url)) as stores:
        fingerprints = stores.key_fingerprints
        await check_key_files(tmp_path, fingerprints)
        before = await fingerprints.find(file.name)
        assert before is not None
        rotated = await rotate(tmp_path, file.name, fingerprints)
        content = file.read_bytes()
        await fingerprints.replace(file.name, before)  # what is left if the server dies before this is written

        with pytest.raises(SettingsError, match=r"was interrupted: run dragoman keys rotate secrets\.key again"):
            await check_key_files(tmp_path, fingerprints)
        assert await rotate(tmp_path, file.name, fingerprints) == rotated == await fingerprints.find(file.name)
        assert file.read_bytes() == content, "no further key"
        await check_key_files(tmp_path, fingerprints)


async def test_a_cut_off_key_is_refused_with_advice_that_helps(tmp_path: Path) -> None:
    with closing(open_stores_at(str(tmp_path))) as stores:
        await check_key_files(tmp_path, stores.key_fingerprints)
        key = tmp_path / "secrets.key"
        key.write_bytes(key.read_bytes()[:20])
        advice = (
            r"got 20 bytes: copy .*\. If it is lost: delete the file and run dragoman keys rotate --lost secrets\.key$"
        )
        with pytest.raises(SettingsError, match=advice):
            await check_key_files(tmp_path, stores.key_fingerprints)
        key.unlink()
        await rotate(tmp_path, "secrets.key", stores.key_fingerprints, is_lost=True)
        await check_key_files(tmp_path, stores.key_fingerprints)


def test_links_of_an_older_key_remain_valid() -> None:
    path = "0000/0001/attachments/a-1"
    old, both, new = Links(b"old"), Links(b"new", b"old"), Links(b"new")
    for links in (old, both, new):
        made = links.make("https://here", path, 99)
        assert (links.read(made) is None) == (both.read(made) is None)
    assert old.read(both.make("https://here", path, 99)) is None
