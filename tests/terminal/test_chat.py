"""`dragoman chat` in a real terminal and in a pipe, over every protocol."""

import json
import struct
import zlib
from pathlib import Path

import pytest

from tests.conversations import call, script
from tests.servers import SocketServer
from tests.terminal.pseudo_terminal import CTRL_C, CTRL_D, at_terminal, in_pipe

ALL = ["aap", "ag-ui", "agentscope", "blade", "openai", "a2a", "run-service"]
STAMP = script(call("stamp", text="x"), {"say": "so: {result}"})
SLOW = script({"say": ["one", " moment"]}, {"wait_ms": 600_000}, {"say": "two"})
"""The text is split, so that the echo of the input does not look like the answer."""


def chat(server: SocketServer, *more: str) -> tuple[str, ...]:
    return ("chat", server.connection.url, "--key", server.key("alice"), *more)


# --- in a terminal ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ALL)
async def test_a_conversation_has_permissions_questions_and_an_interrupt(
    protocol: str, socket_server: SocketServer, tmp_path: Path
) -> None:
    async with at_terminal(tmp_path, *chat(socket_server, "--protocol", protocol)) as user:
        await user.until(f"over {protocol}")
        await user.until("> ")
        user.say(STAMP)
        await user.until('Allow this call?  stamp(text="x")')
        await user.until("[y]es")
        user.say("y")
        await user.until("so: stamped x")
        await user.until("> ")
        user.say("ask me")
        await user.until("1  staging")
        await user.until("your own text: ")
        user.say("2")
        await user.until("You chose production.")
        await user.until("> ")
        user.say(SLOW)
        await user.until("one moment")
        user.type(CTRL_C)
        await user.until("stopped")
        await user.until("> ")
        user.type(CTRL_D)
        await user.until("--last")
        assert await user.code() == 0


async def test_what_is_typed_before_a_question_is_the_next_message_and_never_the_answer(
    socket_server: SocketServer, tmp_path: Path
) -> None:
    asks = script({"say": ["one", " moment"]}, {"wait_ms": 1_500}, call("stamp", text="x"), {"say": "so: {result}"})
    async with at_terminal(tmp_path, *chat(socket_server, "--plain")) as user:
        await user.until("> ")
        user.say(asks)
        await user.until("one moment")
        user.say("no, wait")
        user.type("y")
        await user.until("[y]es")
        user.say("")
        await user.until("[y]es")
        user.say("n")
        await user.until("reason, or an empty line for none: ")
        user.say("not today")
        await user.until("so: Tool call denied: not today")
        await user.until("You said: no, wait")
        await user.until("> ")
        user.type(CTRL_D)
        assert await user.code() == 0


async def test_lines_that_are_pasted_are_one_message(socket_server: SocketServer, tmp_path: Path) -> None:
    async with at_terminal(tmp_path, *chat(socket_server, "--plain")) as user:
        await user.until("> ")
        assert "\x1b[?2004h" in user.raw, "the terminal marks what is pasted"
        user.type("\x1b[200~line one\rline two\x1b[201~")
        await user.until("line two")
        user.type("\r")
        await user.until("You said: line one\nline two")
        await user.until("> ")
        user.type(CTRL_D)
        await user.until("--last")
        assert await user.code() == 0


@pytest.mark.parametrize("protocol", ALL)
async def test_tools_that_need_no_approval_run_without_asking(
    protocol: str, socket_server: SocketServer, tmp_path: Path
) -> None:
    async with at_terminal(tmp_path, *chat(socket_server, "--protocol", protocol, "--plain")) as user:
        await user.until("> ")
        user.say("add 20 and 22")
        assert "Allow this call?" not in await user.until("The sum is 42.")
        await user.until("> ")
        user.type(CTRL_D)
        assert await user.code() == 0


async def test_a_run_is_shown_again_after_the_terminal_was_closed(socket_server: SocketServer, tmp_path: Path) -> None:
    async with at_terminal(tmp_path, *chat(socket_server)) as user:
        await user.until("> ")
        user.say(SLOW)
        await user.until("one moment")
        user.type(CTRL_C)
        await user.until("stopped")
        await user.until("> ")
        user.say("/session")
        session = (await user.until("to continue later")).split()[-1]
        user.say(SLOW)
        await user.until("one moment")
    async with at_terminal(tmp_path, *chat(socket_server, "--session", session)) as user:
        await user.until(f"› {SLOW[:20]}")
        await user.until("one moment")
        user.say("/stop")
        await user.until("stopped")
        await user.until("> ")
        user.type(CTRL_D)
        assert await user.code() == 0
    async with at_terminal(tmp_path, *chat(socket_server, "--last", "--plain")) as user:
        await user.until("one moment")
        await user.until("> ")
        user.say("/quit")
        assert await user.code() == 0


async def test_a_question_left_open_is_asked_again_and_an_image_is_attached(
    socket_server: SocketServer, tmp_path: Path
) -> None:
    (tmp_path / "dot.png").write_bytes(a_png())
    async with at_terminal(tmp_path, *chat(socket_server, "--plain")) as user:
        await user.until("> ")
        user.say("ask me")
        await user.until("your own text: ")
        user.type(CTRL_D)
        await user.until("to answer: /answer")
        await user.until("> ")
        user.say("/answer")
        await user.until("your own text: ")
        user.say("neither")
        await user.until("You chose neither.")
        user.say("/image dot.png")
        await user.until("[image: image/png")
        user.say("look")
        await user.until("You said: look")
        user.say("/history")
        await user.until("> [image: image/png")
        user.say("/nonsense")
        await user.until("/help lists")
        await user.until("> ")  # before the prompt, the key is lost
        user.type(CTRL_D)
        assert await user.code() == 0


def a_png() -> bytes:
    """A PNG with one pixel."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


# --- in a pipe --------------------------------------------------------------------------------------------------------


async def test_in_a_pipe_only_the_answer_is_on_standard_output(socket_server: SocketServer, tmp_path: Path) -> None:
    code, out, err = await in_pipe(tmp_path, *chat(socket_server), stdin="add 20 and 22\n")
    assert (code, out, err) == (0, "The sum is 42.\n", "* add(a=20, b=22)\n  = 42\n")


@pytest.mark.parametrize("protocol", [*ALL, "openai-chat"])
async def test_without_an_agent_the_servers_first_one_answers(
    protocol: str, socket_server: SocketServer, tmp_path: Path
) -> None:
    code, out, err = await in_pipe(tmp_path, *chat(socket_server, "--protocol", protocol, "-m", "hello"))
    assert (code, out, err) == (0, "Hello! I am the rehearsal agent.\n", "")


async def test_with_json_events_are_lines_of_json(socket_server: SocketServer, tmp_path: Path) -> None:
    code, out, err = await in_pipe(tmp_path, *chat(socket_server, "--json", "-m", "hello"))
    text, ended = [json.loads(line) for line in out.splitlines()]
    assert (code, text, err) == (0, {"type": "Text", "text": "Hello! I am the rehearsal agent."}, "")
    assert (ended["type"], ended["reason"]) == ("Ended", "end_turn")


async def test_in_a_pipe_a_question_stays_pending_and_the_exit_code_says_so(
    socket_server: SocketServer, tmp_path: Path
) -> None:
    code, out, err = await in_pipe(tmp_path, *chat(socket_server), stdin="ask me")
    assert (code, out) == (3, "")
    assert err.startswith(
        "waiting for:\n  an answer to: Which environment?\nto answer: dragoman chat http://127.0.0.1:"
    )


async def test_images_that_are_given_as_options_are_sent_without_a_text(
    socket_server: SocketServer, tmp_path: Path
) -> None:
    (tmp_path / "dot.png").write_bytes(a_png())
    async with at_terminal(tmp_path, *chat(socket_server, "--image", "dot.png")) as user:
        assert await user.code() == 0
        assert "/help" not in user.screen_text
    async with at_terminal(tmp_path, *chat(socket_server, "--last", "--plain")) as user:
        await user.until("> [image: image/png")


@pytest.mark.parametrize("protocol", ["aap", "blade"])
async def test_a_first_message_that_is_refused_leaves_no_conversation(
    protocol: str, socket_server: SocketServer, tmp_path: Path
) -> None:
    (tmp_path / "dot.png").write_bytes(a_png())
    listing = ("sessions", "list", "--url", socket_server.connection.url, "--key", socket_server.key("alice"))
    before = await in_pipe(tmp_path, *listing)
    arguments = ("--protocol", protocol, "--agent", "rehearsal-bare", "--image", "dot.png", "-m", "what is this?")
    code, out, err = await in_pipe(tmp_path, *chat(socket_server, *arguments))
    assert (code, out, err) == (1, "", "dragoman: agent 'rehearsal-bare' takes no images\n")
    assert await in_pipe(tmp_path, *listing) == before
    assert before[0] == 0


async def test_an_error_is_one_line_on_standard_error(socket_server: SocketServer, tmp_path: Path) -> None:
    code, out, err = await in_pipe(tmp_path, "chat", socket_server.connection.url, "--key", "wrong", "-m", "hello")
    assert (code, out) == (1, "")
    assert err == (
        "dragoman: this key is not known here. Pass a key with --key; "
        "`dragoman keys create --name me` on the server's machine makes one\n"
    )
    code, out, err = await in_pipe(tmp_path, "chat", "http://127.0.0.1:9", stdin="hello")
    assert (code, out) == (1, "")
    assert err.startswith("dragoman: no server answers at http://127.0.0.1:9: ")
