"""Our addition to AAP: stopping a turn."""

from tests.protocols.aap.client import AapClient, script
from tests.protocols.aap.stream import check_turn, fold
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


@requirement("aap:stop:nothing-runs")
async def test_with_nothing_running_a_stop_says_so_and_changes_nothing(aap_client: AapClient) -> None:
    session = await aap_client.create()
    await session.run("hello")
    before = await session.state()
    reply = await aap_client.post(f"{session.path}/stop", None)
    assert (reply.status, reply.json) == (200, {"stopped": False})
    assert await session.state() == before
