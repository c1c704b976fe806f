"""`dragoman chat` as a person meets it: on a real terminal, and in a pipe, over every protocol."""

from pathlib import Path

import pytest

from tests.conversations import call, script
from tests.serving import SocketHouse
from tests.terminal.typist import CTRL_C, CTRL_D, at_terminal

ALL = ["aap", "ag-ui", "agentscope", "blade"]
STAMP = script(call("stamp", text="x"), {"say": "so: {result}"})
SLOW = script({"say": ["on", "e moment"]}, {"wait_ms": 600_000}, {"say": "two"})


def chat(house: SocketHouse, *more: str) -> tuple[str, ...]:
    return ("chat", house.line.url, "--key", house.key("alice"), *more)


@pytest.mark.parametrize("protocol", ALL)
async def test_a_conversation_with_a_permission_and_a_question(
    protocol: str, socket_house: SocketHouse, tmp_path: Path
) -> None:
    async with at_terminal(tmp_path, *chat(socket_house, "--protocol", protocol)) as person:
        await person.until(f"over {protocol}")
        await person.until("> ")
        person.say("hello")
        await person.until("Hello! I am the rehearsal agent.")
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
        person.type(CTRL_D)
        await person.until("--last")
        assert await person.code() == 0


@pytest.mark.parametrize("protocol", ALL)
async def test_ctrl_c_stops_the_run_and_twice_leaves_at_the_prompt(
    protocol: str, socket_house: SocketHouse, tmp_path: Path
) -> None:
    async with at_terminal(tmp_path, *chat(socket_house, "--protocol", protocol)) as person:
        await person.until("> ")
        person.say(SLOW)
        await person.until("one moment")
        person.type(CTRL_C)
        await person.until("stopped")
        await person.until("> ")
        person.type(CTRL_C)
        await person.until("once more leaves")
        person.type(CTRL_C)
        assert await person.code() == 0
