"""Decisions about calls of a step about which nobody is asked: each is followed, or refused."""

from pathlib import Path
from typing import Any

import pytest

from dragoman.core.inputs import Decision
from dragoman.core.refusals import InvalidAnswer
from tests.engine.world import answer_request
from tests.protocols.aap.client import AapClient
from tests.servers import running_socket_server


@pytest.mark.parametrize("granted", [True, False])
async def test_a_handoff_beside_a_call_that_waits_is_not_denied_because_the_sdk_carries_it_out(granted: bool) -> None:
    pytest.importorskip("agents", reason="the extra openai-agents is not installed")
    from agents import Agent

    from tests.adapters.openai_model import CallOf
    from tests.adapters.test_openai_agents import pay, talk

    def build(model: Any) -> Any:
        billing = Agent(name="Billing", model=model)
        return Agent(name="Triage", model=model, tools=[pay], handoffs=[billing])

    step = [CallOf("pay", {"amount": 1}), CallOf("transfer_to_billing")]
    async with talk({"go": [step, ["Done."]]}, agent=build) as chat:
        await chat.say("go")
        handoff = next(id_ for id_, call in chat.live.state.calls.items() if call.call.name != "pay")
        paid = [Decision(call_id=call.call.call_id, granted=True) for call in chat.live.state.waiting_calls()]
        both = answer_request(*paid, Decision(call_id=handoff, granted=granted))
        if not granted:
            with pytest.raises(InvalidAnswer, match="cannot be denied: nobody is asked about it"):
                await chat.say(both)
            both = answer_request(*paid)
        assert (await chat.say(both))[-3:] == ["text: Done.", "step", "end: end_turn"]


@pytest.mark.parametrize("granted", [True, False])
async def test_a_tool_that_a_node_calls_itself_is_not_denied_because_nothing_stops_the_node(
    tmp_path: Path, granted: bool
) -> None:
    pytest.importorskip("langgraph", reason="the extra langgraph is not installed")
    from langchain_core.messages import AIMessage, ToolMessage
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.types import interrupt

    from dragoman.adapters.langgraph import LangGraphAgent
    from tests.adapters.langgraph_models import calls

    ran: list[str] = []

    def model(state: MessagesState) -> dict[str, Any]:
        is_first = not isinstance(state["messages"][-1], ToolMessage)
        return {"messages": calls(("pay", {"amount": 1})) if is_first else AIMessage("ok")}

    def ask(state: MessagesState) -> dict[str, Any]:
        interrupt("Which account?")
        return {}

    def tools(state: MessagesState) -> dict[str, Any]:
        (call,) = getattr(state["messages"][-1], "tool_calls", [])
        ran.append(call["name"])
        return {"messages": ToolMessage("paid", tool_call_id=call["id"])}

    graph = StateGraph(MessagesState).add_node(model).add_node(ask).add_node(tools)
    graph.add_edge(START, "model").add_edge("ask", "tools").add_edge("tools", "model")
    graph.add_conditional_edges(
        "model", lambda state: "ask" if getattr(state["messages"][-1], "tool_calls", ()) else "__end__"
    )
    agents = [LangGraphAgent(graph, name="bank")]
    async with running_socket_server(tmp_path, agents=agents, rehearsal=False) as server:
        client = AapClient(server.connection, server.key("alice"))
        session = await client.create("bank")
        asked = {call.name: call.id for call in (await session.run("pay")).calls}
        answer = {"role": "tool", "toolCallId": asked["AskUserQuestion"], "content": "savings"}
        decision = {"role": "tool_permission", "toolCallId": asked["pay"], "granted": granted}
        turns = f"/sessions/{session.id}/turns"
        response = await client.post(turns, {"messages": [answer, decision]})
        if not granted:
            assert (response.status, ran) == (400, [])
            assert "cannot be denied: nobody is asked about it" in response.json["error"]
            response = await client.post(turns, {"messages": [answer]})
        assert response.json["messages"][-1]["content"][-1]["text"] == "ok"
        assert ran == ["pay"]
