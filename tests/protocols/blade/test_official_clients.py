"""The official clients against the server: the vendor's for Python in four releases, Socket.IO's for JavaScript."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.nodejs import output_of, require_package, run_node
from tests.protocols.blade.client import RestClient
from tests.requirements import requirement

CLIENTS = Path(__file__).parent / "clients"
KIT = Path(__file__).parents[3] / "build" / "blade-kit"
RELEASES = ("1.0.14", "2608.0.4", "2610.0.4", "2612.0.0b53")


async def run_kit(release: str, name: str, *arguments: str) -> Any:
    """Run a program on a release of the vendor's client. Returns what it prints."""
    if not (KIT / release).is_dir():
        pytest.skip("blade-agent-kit needs Python 3.12 and is not installed (`make clients`): it was left out")
    command = [str(KIT / "venv" / "bin" / "python"), str(CLIENTS / name), *arguments]
    return last_line(await output_of(*command, environ={"PYTHONPATH": str(KIT / release)}))


def last_line(output: str) -> Any:
    """The last line that a program prints, as JSON."""
    return json.loads(output.splitlines()[-1])


@requirement("blade:clients:python")
@pytest.mark.parametrize("release", RELEASES)
async def test_the_vendors_client_works_unchanged(alice: RestClient, release: str) -> None:
    seen = await run_kit(release, "kit.py", alice.url, alice.key)
    assert seen == {
        "health": "ok",
        "intent": "a task",
        "listed": True,
        "env": {"A": "1"},
        "tools": ["The sum is 5.", [["add", "done"]], "completed"],
        "answered": "You chose production.",
        "stopped": "interrupted",
        "after leaving": "Hello! I am the rehearsal agent.",
        "failed": "The model is gone",
        "headless": "Hello! I am the rehearsal agent.",
        "schema": 3,
        "unfit": "The answer does not fit the schema: it is not valid JSON",
        "history": 11,
        "checkpoints": 4,
        "deleted": True,
    }


@requirement("blade:chats:left")
@pytest.mark.parametrize("release", RELEASES)
async def test_a_chat_started_right_after_leaving_one_gets_its_own_answer(alice: RestClient, release: str) -> None:
    seen = await run_kit(release, "leaving.py", alice.url, alice.key, "60")
    assert seen == [[str(number), "completed"] for number in range(60)], "every second one asked REST first"


@requirement("blade:chats:busy")
@pytest.mark.parametrize("release", RELEASES)
async def test_a_second_message_of_the_same_client_leaves_the_first_chat_alone(alice: RestClient, release: str) -> None:
    assert await run_kit(release, "refused.py", alice.url, alice.key) == ["onetwo", "completed"]


@requirement("blade:clients:javascript")
async def test_socket_io_of_javascript_connects_subscribes_sends_and_folds(alice: RestClient) -> None:
    require_package(CLIENTS, "socket.io-client")
    session = await alice.session()
    seen = last_line(await run_node(CLIENTS / "flows.mjs", alice.url, alice.key, session))
    assert seen["refused"] == "Unauthorized"
    assert seen["acknowledged"] == "ok"
    assert seen["transport"] == "websocket"
    assert seen["stopped"] == {"status": "stopped"}
    messages = await alice.messages(session)
    assert seen["turns"] == [[turn["turn_id"], turn["status"], turn["blocks"]] for turn in messages]
    assert seen["numbers"] == list(range(1, len(seen["numbers"]) + 1)), "also over the connection that was cut"
