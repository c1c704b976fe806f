"""Our addition to AAP: stopping a turn."""

import pytest

from tests.protocols.aap.agents import ToolGates
from tests.protocols.aap.client import AapClient, calls, client_tool, enabled_tools, script
from tests.protocols.aap.stream import STREAMS, Mode, check_turn, fold
from tests.requirements import requirement


@requirement("aap:stop:ends-the-turn")
async def test_a_turn_that_is_stopped_ends_as_cancelled_and_keeps_what_it_said(aap_client: AapClient) -> None:
    session = await aap_client.create()
    reading = await session.open(script({"say": "one"}, {"wait_ms": 600_000}, {"say": "two"}))
    await reading.until("text_delta")
    reply = await aap_client.post(f"{session.path}/stop", None)
    assert (reply.status, reply.json) == (200, {"stopped": True})
    assert (await session.info())["_meta"]["status"] == "idle"
    await reading.read_to_end()
    check_turn(reading.frames, "delta")
    assert fold(reading.frames) == [{"role": "assistant", "content": [{"type": "text", "text": "one"}]}]
    end = reading.frames[-1].data
    assert (end["stopReason"], end["_meta"]["error"]["code"]) == ("error", "cancelled")
    assert (await session.history())[-1]["content"] == [{"type": "text", "text": "one"}]


@requirement("aap:sse:results-of-server-tools", "aap:stop:ends-the-turn")
@pytest.mark.parametrize("mode", STREAMS)
async def test_the_results_of_a_stopped_turn_are_of_server_tools_only(
    aap_client: AapClient, tool_gates: ToolGates, mode: Mode
) -> None:
    session = await aap_client.create("gated", server_tools=enabled_tools("hold"), tools=[client_tool("paint")])
    gate = f"stopped-{mode}"
    reading = await session.open(script(calls(("paint", {}), ("hold", {"gate": gate}))), stream=mode)
    await tool_gates.entered(gate)
    assert (await aap_client.post(f"{session.path}/stop", None)).json == {"stopped": True}
    await reading.read_to_end()
    frames = reading.frames
    paint, hold = (frame.data["toolCallId"] for frame in frames if frame.event == "tool_call")
    assert [frame.data["toolCallId"] for frame in frames if frame.event == "tool_result"] == [hold]
    closed = [message["toolCallId"] for message in await session.history() if message["role"] == "tool"]
    assert sorted(closed) == sorted([paint, hold])


@requirement("aap:stop:nothing-runs")
async def test_with_nothing_running_a_stop_says_so_and_changes_nothing(aap_client: AapClient) -> None:
    session = await aap_client.create()
    await session.run("hello")
    before = await session.state()
    reply = await aap_client.post(f"{session.path}/stop", None)
    assert (reply.status, reply.json) == (200, {"stopped": False})
    assert await session.state() == before
