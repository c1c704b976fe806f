"""`dragoman sessions`, and the protocols of the commands."""

import json
from pathlib import Path
from typing import get_args

import pytest

from dragoman.cli.main import PROTOCOLS
from dragoman.client import AsyncClient
from dragoman.client.transports import ClientProtocol
from tests.servers import SocketServer
from tests.terminal.pseudo_terminal import at_terminal, in_pipe


async def test_sessions_are_a_table_in_a_terminal_and_lines_of_json_in_a_pipe(
    socket_server: SocketServer, tmp_path: Path
) -> None:
    server = ("--url", socket_server.connection.url, "--key", socket_server.key("bob"))
    async with AsyncClient(socket_server.connection.url, key=socket_server.key("bob")) as client:
        for text in ("hello", "recall"):
            await (await client.create("rehearsal")).ask(text)
    code, out, _ = await in_pipe(tmp_path, "sessions", "list", *server)
    newest, oldest = [json.loads(line) for line in out.splitlines()]
    assert (code, newest["agent"], newest["status"]) == (0, "rehearsal", "idle")
    async with at_terminal(tmp_path, "sessions", "list", "--limit", "1", *server) as user:
        await user.until("TITLE")
        await user.until(newest["id"])
        assert await user.code() == 0
        assert oldest["id"] not in user.screen_text
    async with at_terminal(tmp_path, "sessions", "show", oldest["id"], *server) as user:
        await user.until("› hello")
        await user.until("Hello! I am the rehearsal agent.")
        assert await user.code() == 0
    code, out, err = await in_pipe(tmp_path, "sessions", "export", "--output", "all.jsonl", *server)
    assert (code, out, err) == (0, "", "")
    exported = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [(each["session"]["id"], each["messages"][0]["blocks"]) for each in exported] == [
        (newest["id"], [{"type": "Text", "text": "recall"}]),
        (oldest["id"], [{"type": "Text", "text": "hello"}]),
    ]
    code, _, err = await in_pipe(tmp_path, "sessions", "export", "--output", "all.jsonl", *server)
    assert (code, err) == (1, "dragoman: all.jsonl already exists: name another file\n")


@pytest.mark.parametrize("protocol", ["aap", "ag-ui", "openai"])
async def test_a_conversation_that_does_not_exist_is_named_with_the_command_that_lists_them(
    socket_server: SocketServer, tmp_path: Path, protocol: str
) -> None:
    server = (socket_server.connection.url, "--key", socket_server.key("bob"), "--protocol", protocol)
    code, out, err = await in_pipe(tmp_path, "chat", *server, "--session", "nowhere", "-m", "hello")
    assert (code, out) == (1, "")
    assert err.endswith(": nowhere. `dragoman sessions list` shows your conversations and their IDs\n")


@pytest.mark.parametrize("command", ["show", "export"])
async def test_show_and_export_name_the_session_that_does_not_exist(
    socket_server: SocketServer, tmp_path: Path, command: str
) -> None:
    server = ("--url", socket_server.connection.url, "--key", socket_server.key("bob"))
    code, out, err = await in_pipe(tmp_path, "sessions", command, "nowhere", *server)
    assert (code, out) == (1, "")
    assert err.startswith("dragoman: there is no such session: nowhere. `dragoman sessions list` ")


def test_the_command_line_lists_the_clients_protocols() -> None:
    """It has a list of its own, so that `--help` and `serve` start without the client library."""
    assert tuple(PROTOCOLS.choices) == get_args(ClientProtocol)
