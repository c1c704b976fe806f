"""The example as it is served: handoffs and approvals over AAP, and `kill -9` in the real program."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dragoman.agents.loading import load
from dragoman.core.answers import INTERRUPTED_RESULT
from tests.asgi_client import DEADLINE_S
from tests.protocols.aap.client import AapClient, Session, enabled_tools, grant
from tests.servers import AppServer, server_process

FOLDER = Path(__file__).parents[2] / "examples" / "openai_agents"

SLOW_APP = """
# The example with a shipping agent whose tools write down that they were begun, and wait for a file.
import asyncio
import sys
from pathlib import Path

sys.path.insert(0, {examples!r})
import offline
from agents import function_tool
from offline import triage
from support_desk import refund

HERE = Path(__file__).parent


async def begin(name):
    with (HERE / "begun").open("a") as file:
        file.write(name + "\\n")
    while not (HERE / f"{{name}} may end").exists():
        await asyncio.sleep(0.01)


@function_tool
async def pack() -> str:
    "Pack."
    await begin("pack")
    return "packed"


@function_tool
async def weigh() -> str:
    "Weigh."
    await begin("weigh")
    return "weighed"


class ShippingModel(offline.RuleModel):
    async def stream_response(self, system_instructions, input, *args, **kwargs):
        outputs = [each["output"] for each in input if each.get("type") == "function_call_output"]
        if len(outputs) == 3:
            await begin("answer")
            items = [offline.message(", ".join(outputs))]
        elif len(outputs) == 2:
            items = [offline.call("refund", {{"order_id": "A17", "amount": 59}})]
        else:
            items = [offline.call("pack", {{}}), offline.call("weigh", {{}})]
        async for event in offline.stream(*items):
            yield event


triage.model = ShippingModel()
triage.tools = [pack, weigh, refund]
"""


async def wait_for_line(path: Path, line: str, count: int = 1) -> None:
    """Wait until another process has written a line so many times."""

    def lines() -> list[str]:
        return path.read_text().split("\n") if path.exists() else []

    async with asyncio.timeout(DEADLINE_S):
        while lines().count(line) < count:  # noqa: ASYNC110  # another process writes
            await asyncio.sleep(0.01)


async def wait_for_block(session: Session, kind: str, **fields: str) -> dict[str, Any]:
    """The block of that kind in the history, as soon as there is one."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            for message in await session.history():
                for block in message["content"] if message["role"] == "assistant" else ():
                    if block["type"] == kind and fields.items() <= block.items():
                        return dict(block)
            await asyncio.sleep(0.05)


async def test_the_example_hands_off_and_refunds_after_an_approval_that_survives_a_restart(tmp_path: Path) -> None:
    assert [agent.spec.name for agent in load(str(FOLDER / "support_desk.py"))] == ["triage"]
    server = AppServer(tmp_path, load(str(FOLDER / "offline.py")))
    await server.prepare()
    await server.start()
    try:
        session = await server.aap_client("alice").create(
            "triage", server_tools=[*enabled_tools("find_order"), {"name": "refund"}]
        )
        turn = await session.run("Please refund order A17")
        assert (turn.stop, [call.name for call in turn.calls]) == (
            "tool_use", ["transfer_to_billing_agent", "find_order", "refund"]
        )  # fmt: skip
        await server.restart()
        done = await session.as_client(server.aap_client("alice")).run([grant(turn.calls[-1])])
        assert (done.stop, done.text) == ("end_turn", "Refunded 59.00 EUR for order A17 to alice ")
    finally:
        await server.stop()


@pytest.mark.slow
async def test_kills_in_a_tool_while_an_approval_waits_and_in_the_answer_run_nothing_twice(tmp_path: Path) -> None:
    app, begun = tmp_path / "slow_desk.py", tmp_path / "begun"
    app.write_text(SLOW_APP.format(examples=str(FOLDER)))
    async with server_process(tmp_path / "data", agents=app) as server:

        def client() -> AapClient:
            return AapClient(server.connection, server.key("alice"))

        session = await client().create("triage", server_tools=[*enabled_tools("pack", "weigh"), {"name": "refund"}])
        stream = await session.open("Send it")
        await wait_for_line(begun, "weigh")
        (tmp_path / "pack may end").touch()
        await stream.until("tool_result")
        await server.crash()  # in one tool, beside another that is done
        call = await wait_for_block(session.as_client(client()), "tool_use", name="refund")
        await server.crash()  # while an approval waits
        await session.as_client(client()).open([grant(call["toolCallId"])])
        await wait_for_line(begun, "answer")
        await server.crash()  # in the answer
        await wait_for_line(begun, "answer", 2)
        (tmp_path / "answer may end").touch()
        session = session.as_client(client())
        await wait_for_block(session, "text")
        assert [message["content"] for message in await session.history() if message["role"] == "tool"] == [
            "packed", INTERRUPTED_RESULT, "Refunded 59.00 EUR for order A17 to alice"
        ]  # fmt: skip
        assert sorted(begun.read_text().split()) == ["answer", "answer", "pack", "weigh"]
