"""`dragoman chat` as a person meets it: on a real terminal, and in a pipe, over every protocol."""

import json
import struct
import zlib
from pathlib import Path

import pytest

from tests.conversations import call, script
from tests.servers import SocketServer
from tests.terminal.pseudo_terminal import CTRL_C, CTRL_D, at_terminal, in_pipe

ALL = ["aap", "ag-ui", "agentscope", "blade"]
STAMP = script(call("stamp", text="x"), {"say": "so: {result}"})
SLOW = script({"say": ["one", " moment"]}, {"wait_ms": 600_000}, {"say": "two"})
"""What it says does not stand in it as it will be said, so that its echo is no answer."""


def chat(server: SocketServer, *more: str) -> tuple[str, ...]:
    return ("chat", server.connection.url, "--key", server.key("alice"), *more)


# --- on a terminal ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ALL)
async def test_a_conversation_has_permissions_questions_and_an_interrupt(
    protocol: str, socket_server: SocketServer, tmp_path: Path
) -> None:
    async with at_terminal(tmp_path, *chat(socket_server, "--protocol", protocol)) as person:
        await person.until(f"over {protocol}")
        await person.until("> ")
        person.say(STAMP)
        await person.until('May this run?  stamp(text="x")')
        await person.until("[y]es")
        person.say("y")
        await person.until("so: stamped x")
        await person.until("> ")
        person.say("ask me")
        await person.until("1  staging")
        await person.until("your own: ")
        person.say("2")
        await person.until("You chose production.")
        await person.until("> ")
        person.say(SLOW)
        await person.until("one moment")
        person.type(CTRL_C)
        await person.until("stopped")
        await person.until("> ")
        person.type(CTRL_D)
        await person.until("--last")
        assert await person.code() == 0


async def test_a_terminal_that_was_closed_in_the_middle_of_a_run_comes_back_to_it(
    socket_server: SocketServer, tmp_path: Path
) -> None:
    async with at_terminal(tmp_path, *chat(socket_server)) as person:
        await person.until("> ")
        person.say(SLOW)
        await person.until("one moment")
        person.type(CTRL_C)
        await person.until("stopped")
        await person.until("> ")
        person.say("/session")
        session = (await person.until("come back with")).split()[-1]
        person.say(SLOW)
        await person.until("one moment")
    async with at_terminal(tmp_path, *chat(socket_server, "--session", session)) as person:
        await person.until(f"› {SLOW[:20]}")
        await person.until("one moment")
        person.say("/stop")
        await person.until("stopped")
        await person.until("> ")
        person.type(CTRL_D)
        assert await person.code() == 0
    async with at_terminal(tmp_path, *chat(socket_server, "--last", "--plain")) as person:
        await person.until("one moment")
        await person.until("> ")
        person.say("/quit")
        assert await person.code() == 0


async def test_a_question_left_open_is_asked_again_and_a_picture_goes_along(
    socket_server: SocketServer, tmp_path: Path
) -> None:
    (tmp_path / "dot.png").write_bytes(a_png())
    async with at_terminal(tmp_path, *chat(socket_server, "--plain")) as person:
        await person.until("> ")
        person.say("ask me")
        await person.until("your own: ")
        person.type(CTRL_D)
        await person.until("/answer asks again")
        await person.until("> ")
        person.say("/answer")
        await person.until("your own: ")
        person.say("neither")
        await person.until("You chose neither.")
        person.say("/image dot.png")
        await person.until("[picture: image/png")
        person.say("look")
        await person.until("You said: look")
        person.say("/history")
        await person.until("> [picture: image/png")
        person.say("/nonsense")
        await person.until("/help tells")
        person.type(CTRL_D)
        assert await person.code() == 0


def a_png() -> bytes:
    """One dot."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


# --- in a pipe --------------------------------------------------------------------------------------------------------


async def test_in_a_pipe_the_answer_alone_is_on_standard_output(socket_server: SocketServer, tmp_path: Path) -> None:
    code, out, aside = await in_pipe(tmp_path, *chat(socket_server, "--yes"), stdin="add 20 and 22\n")
    assert (code, out, aside) == (0, "The sum is 42.\n", "* add(a=20, b=22)\n  = 42\n")


async def test_in_a_pipe_what_happens_comes_as_lines_of_json(socket_server: SocketServer, tmp_path: Path) -> None:
    code, out, aside = await in_pipe(tmp_path, *chat(socket_server, "--json", "-m", "hello"))
    said, ended = [json.loads(line) for line in out.splitlines()]
    assert (code, said, aside) == (0, {"type": "Text", "text": "Hello! I am the rehearsal agent."}, "")
    assert (ended["type"], ended["reason"]) == ("Ended", "end_turn")


async def test_in_a_pipe_a_question_waits_and_the_exit_code_reports(
    socket_server: SocketServer, tmp_path: Path
) -> None:
    code, out, aside = await in_pipe(tmp_path, *chat(socket_server), stdin="ask me")
    assert (code, out) == (3, "")
    assert aside.startswith("it waits for\n  an answer to: Which environment?\ndragoman chat http://127.0.0.1:")


async def test_what_cannot_be_is_one_sentence(socket_server: SocketServer, tmp_path: Path) -> None:
    code, out, aside = await in_pipe(tmp_path, "chat", socket_server.connection.url, "--key", "wrong", "-m", "hello")
    assert (code, out) == (1, "")
    assert aside == (
        "dragoman: this key is not known here. Give a key with --key; on the server's machine "
        "`dragoman keys create --name me` makes one\n"
    )
    code, out, aside = await in_pipe(tmp_path, "chat", "http://127.0.0.1:9", stdin="hello")
    assert (code, out) == (1, "")
    assert aside.startswith("dragoman: no server answers at http://127.0.0.1:9: ")
