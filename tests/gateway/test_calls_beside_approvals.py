"""A remote agent that asks about one call of a step, and runs the other one after the answer."""

from pathlib import Path

import pytest

pytest.importorskip("langchain", reason="langchain is not installed")

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage

from dragoman import RemoteAgent
from dragoman.adapters.langgraph import LangGraphAgent
from dragoman.client import Allow, AsyncClient, Permission
from dragoman.client.transports import ClientProtocol
from tests.adapters.langgraph_models import ScriptedChatModel, calls, in_turn
from tests.servers import running_socket_server


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def look(at: str) -> str:
    """Look."""
    return f"saw {at}"


@pytest.mark.parametrize("protocol", ["aap", "ag-ui"])
async def test_the_result_of_the_other_call_is_shown_when_it_has_one(tmp_path: Path, protocol: ClientProtocol) -> None:
    model = ScriptedChatModel(script=in_turn(calls(("pay", {"amount": 1}), ("look", {"at": "it"})), AIMessage("ok")))
    graph = create_agent(model, [pay, look], middleware=[HumanInTheLoopMiddleware(interrupt_on={"pay": True})])
    agents = [LangGraphAgent(graph, name="bank")]
    async with running_socket_server(tmp_path / "remote", agents=agents, rehearsal=False) as remote:
        url = f"{remote.connection.url}{'/ag-ui/bank' if protocol == 'ag-ui' else ''}"
        ours = RemoteAgent(protocol, url, agent="bank", key=remote.key("alice"), name="ours")
        async with (
            running_socket_server(tmp_path / "gateway", agents=[ours], rehearsal=False) as gateway,
            AsyncClient(gateway.connection.url, key=gateway.key("alice")) as client,
        ):
            session = await client.create("ours")
            asked = await session.ask("pay")
            (permission,) = session.pending
            assert isinstance(permission, Permission)
            assert (permission.name, [each.name for each in asked.calls]) == ("pay", ["pay", "look"])
            async with session.answer(Allow(call_id=permission.call_id)) as run:
                assert [event async for event in run]
            results = [each.text for each in await session.history() if each.role == "tool"]
            assert sorted(results) == ["paid 1", "saw it"]
