"""Files with agents of Pydantic AI, served as they are."""

from pathlib import Path

import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed")

from dragoman.server.loading import load
from dragoman.terminal.first_agents import PYDANTIC_AI
from tests.protocols.aap.client import enabled_tools
from tests.protocols.agui.endpoint import an_input
from tests.servers import running_socket_server
from tests.test_one_session import ProtocolClients

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "pydantic_ai"


def test_the_example_with_a_providers_model_is_recognized() -> None:
    assert [agent.spec.name for agent in load(str(EXAMPLES / "bank.py"))] == ["support"]


async def test_an_agent_whose_provider_has_no_key_is_served_and_its_run_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    file = tmp_path / "without_key.py"
    file.write_text(PYDANTIC_AI.app)  # what `dragoman init` writes
    agents = load(str(file))
    async with running_socket_server(
        tmp_path / "data", agents=agents, rehearsal=False, agent_error_details=True
    ) as server:
        session = await ProtocolClients(server, "alice", agent="assistant").aap.create("assistant")
        turn = await session.run("What is 20 + 22?", "delta")
        assert turn.stop == "error"
        assert b"OPENAI_API_KEY" in turn.raw


async def test_the_example_is_served_on_every_protocol(tmp_path: Path) -> None:
    (support,) = load(str(EXAMPLES / "bank_rehearsal.py"))
    assert [tool.spec.name for tool in support.spec.tools] == ["caller", "balance", "block_card"]
    async with running_socket_server(tmp_path / "data", agents=[support], rehearsal=False) as server:
        clients = ProtocolClients(server, "alice", agent="support")
        clients.ag_ui.agent = "support"
        session = await clients.aap.create("support", server_tools=enabled_tools("balance", "block_card"))
        turn = await session.run("block my card", "delta")
        assert (turn.stop, turn.text) == ("end_turn", "One moment. One moment. Your card is taken care of.")
        assert list(turn.results.values()) == ["123.45", "the card of Ann is blocked"]
        shown = str(await clients.ag_ui.run(an_input("once more", thread=session.id)))
        assert "the card of Ann is blocked" in shown
        for answers in (await clients.histories_by_protocol(session.id)).values():
            assert sum("taken care of" in each for each in answers) == 2
