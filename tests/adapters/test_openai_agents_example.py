"""The example as it is served: handoffs and approvals over AAP."""

from pathlib import Path

from dragoman.server.loading import load
from tests.protocols.aap.client import enabled_tools, grant
from tests.servers import AppServer

FOLDER = Path(__file__).parents[2] / "examples" / "openai_agents"


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
