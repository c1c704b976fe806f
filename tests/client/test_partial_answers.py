"""Several pending calls that are answered one by one."""

import msgspec
import pytest

from dragoman.client import Allow, AsyncClient, Deny, Ended, Result, Text, ToolResult
from dragoman.client.pending import UnmatchedAnswer
from dragoman.client.transports import ClientProtocol
from tests.conversations import call, calls, script

ALL: list[ClientProtocol] = ["aap", "ag-ui", "agentscope", "blade", "openai"]
STAMP = script(call("stamp", text="x"), {"say": "so: {result}"})
TWO_STAMPS = script(calls(("stamp", {"text": "a"}), ("stamp", {"text": "b"})), {"say": "{results}"})


@pytest.mark.parametrize("protocol", ALL)
async def test_two_permissions_are_answered_one_by_one(client: AsyncClient) -> None:
    session = await client.create("rehearsal")
    asked = await session.ask(TWO_STAMPS)
    first, second = asked.end.pending
    partly = await session.answer(Deny(call_id=second.call_id, reason="no")).reply()
    assert partly.events[-1] == msgspec.structs.replace(partly.end, reason="tool_use", pending=(first,))
    assert list(session.pending) == [first]
    with pytest.raises(UnmatchedAnswer):
        await session.answer(Allow(call_id=second.call_id)).reply()
    done = await session.answer(Allow(call_id=first.call_id)).reply()
    assert (done.text, done.end.reason) == ("stamped a, Tool call denied: no", "end_turn")
    assert list(session.pending) == []
    assert [type(each) for each in done.events if not isinstance(each, Text)] == [ToolResult, ToolResult, Ended]


@pytest.mark.parametrize("protocol", ALL)
async def test_a_permission_is_not_answered_with_a_result(client: AsyncClient) -> None:
    session = await client.create("rehearsal")
    (pending,) = (await session.ask(STAMP)).end.pending
    with pytest.raises(UnmatchedAnswer, match="Result does not answer a Permission"):
        await session.answer(Result(call_id=pending.call_id, text="stamped by me")).reply()
    assert (await session.answer(Allow()).reply()).text == "so: stamped x"


@pytest.mark.parametrize("protocol", ALL)
async def test_a_message_cancels_a_partly_answered_request(client: AsyncClient) -> None:
    session = await client.create("rehearsal")
    first, _ = (await session.ask(TWO_STAMPS)).end.pending
    await session.answer(Allow(call_id=first.call_id)).reply()
    assert (await session.ask("hello")).text == "Hello! I am the rehearsal agent."
    again = (await session.ask(TWO_STAMPS)).end.pending
    assert len(again) == 2
    assert (await session.answer(*(Allow(call_id=each.call_id) for each in again)).reply()).text == (
        "stamped a, stamped b"
    )


@pytest.mark.parametrize("protocol", ALL)
async def test_stopping_cancels_a_partly_answered_request(client: AsyncClient) -> None:
    session = await client.create("rehearsal")
    first, _ = (await session.ask(TWO_STAMPS)).end.pending
    await session.answer(Allow(call_id=first.call_id)).reply()
    assert await session.stop() is True
    again = (await session.ask(TWO_STAMPS)).end.pending
    assert (await session.answer(*(Allow(call_id=each.call_id) for each in again)).reply()).text == (
        "stamped a, stamped b"
    )


@pytest.mark.parametrize("protocol", ["aap", "ag-ui", "openai"])
async def test_what_was_answered_is_no_longer_pending_after_a_look_at_the_session(client: AsyncClient) -> None:
    session = await client.create("rehearsal")
    first, second = (await session.ask(TWO_STAMPS)).end.pending
    await session.answer(Allow(call_id=first.call_id)).reply()
    assert [each.call_id for each in (await session.info()).pending] == [first.call_id, second.call_id]
    assert [each.call_id for each in session.pending] == [second.call_id]
    assert (await session.answer(Allow()).reply()).text == "stamped a, stamped b"


@pytest.mark.parametrize("protocol", ALL)
async def test_an_answer_without_arguments_asks_the_callback(client: AsyncClient) -> None:
    decisions = [None, True]
    session = await client.create("rehearsal", on_permission=lambda _: decisions.pop(0))
    assert (await session.ask(STAMP)).end.reason == "tool_use"
    assert (await session.answer().reply()).text == "so: stamped x"
