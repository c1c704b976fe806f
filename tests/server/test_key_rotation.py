"""Rotating encryption keys: old data stays readable, and old copies of the file are refused."""

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from dragoman.cli.main import commands
from dragoman.core.upload_links import Links
from dragoman.server.key_files import KEY_FILES
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
        if database:
            (folder / "secrets.key").write_bytes(before["secrets.key"])
            with pytest.raises(RuntimeError, match=r"copy secrets\.key and links\.key from the data folder of another"):
                await server.start()
            refused = await asyncio.to_thread(CliRunner().invoke, commands, ["keys", "rotate", "secrets.key", *flags])
            assert (refused.exit_code, "is not the key of this database's servers" in refused.output) == (1, True)
            (folder / "secrets.key").write_bytes(rotated_key)
        await server.start()


def test_links_of_an_older_key_remain_valid() -> None:
    path = "0000/0001/attachments/a-1"
    old, both, new = Links(b"old"), Links(b"new", b"old"), Links(b"new")
    for links in (old, both, new):
        made = links.make("https://here", path, 99)
        assert (links.read(made) is None) == (both.read(made) is None)
    assert old.read(both.make("https://here", path, 99)) is None
