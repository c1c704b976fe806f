"""Kinds of stores: one more takes an adapter and its scheme, and the server and all commands can use it."""

from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from dragoman.cli.main import commands
from dragoman.ports.stores import DatabaseAdapter, Stores
from dragoman.server.stores import DATABASES, is_database_url, open_snapshot, open_stores
from dragoman.settings import Settings, SettingsError
from dragoman.stores.decoding import log_unreadable
from dragoman.stores.sqlite.adapter import SqliteAdapter


class SqliteByAddress:
    """A database of another kind, at `folder://PATH`: SQLite, so that it is complete."""

    def __init__(self) -> None:
        self._folders = SqliteAdapter(log_unreadable)

    def open(self, location: str) -> Stores:
        return self._folders.open(location.removeprefix("folder://"))

    def open_accounts(self, location: str) -> Stores:
        return self.open(location)

    def open_shared(self, location: str, *, folder_id: str, lease_s: float) -> Stores:
        return self.open(location)

    def open_snapshot(self, location: str) -> Stores:
        return self.open(location)

    def open_for_restore(self, location: str) -> tuple[Stores, Callable[[], Awaitable[None]]]:
        async def commit() -> None:
            pass

        return self.open(location), commit

    def migrate(self, location: str) -> tuple[int, int]:
        return self._folders.migrate(location.removeprefix("folder://"))

    def compact(self, location: str) -> tuple[int, int]:
        return self._folders.compact(location.removeprefix("folder://"))

    def accept_loss(self, location: str) -> None:
        self._folders.accept_loss(location.removeprefix("folder://"))


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    def factory() -> DatabaseAdapter:
        return SqliteByAddress()

    monkeypatch.setitem(DATABASES, "folder", factory)
    return f"folder://{tmp_path / 'elsewhere'}"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_every_command_uses_a_database_of_another_kind(tmp_path: Path, address: str) -> None:
    where = ("--data", str(tmp_path / "data"), "--database", address)
    assert "shown only now" in run("keys", "create", "--name", "laptop", *where)
    assert "laptop" in run("keys", "list", *where)
    run("migrate", *where)
    run("compact", *where)
    assert "0 sessions" in run("check", "--accept-loss", *where)
    run("backup", str(tmp_path / "backup.zip"), *where)
    run("copy", "--from", address, "--to", str(tmp_path / "copy"))
    assert "laptop" in run("keys", "list", "--data", str(tmp_path / "copy"))


def test_a_server_opens_a_database_of_another_kind(tmp_path: Path, address: str) -> None:
    with closing(open_stores(Settings(data=str(tmp_path / "data"), database=address))):
        assert (tmp_path / "elsewhere" / "dragoman.db").exists()


@pytest.mark.parametrize("location", ["mysql://h/d", "s3://bucket", "file:///x", "://"])
def test_an_unknown_kind_is_refused_with_the_known_ones(tmp_path: Path, location: str) -> None:
    expected = r"there is no database of the kind .*: expected an address with postgresql:// or postgres://"
    with pytest.raises(SettingsError, match=expected):
        open_stores(Settings(data=str(tmp_path / "data"), database=location))
    with pytest.raises(SettingsError, match=expected):
        open_snapshot(location, None)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("postgresql://host/name", True),
        ("host=localhost dbname=name", True),
        (" dbname = name", True),
        ("mysql://host/name", True),
        ("dragoman-data", False),
        ("/srv/release=7/data", False),
        ("./a=b", False),
    ],
)
def test_a_location_is_an_address_or_a_folder(location: str, expected: bool) -> None:
    assert is_database_url(location) == expected
