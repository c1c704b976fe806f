"""The contract of every model: one suite for all adapters."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from dragoman.ports.models import CallRequested, Finished, ModelEvent, ModelUnavailable, TextDelta, ThinkingDelta
from tests.models.adapter_fixtures import (
    BROKEN,
    CALLS,
    AdapterHarness,
    embedded_harness,
    openai_harness,
    provider_harness,
)
from tests.models.request_builders import (
    ADD,
    TIMEOUT_S,
    a_request,
    assistant,
    call,
    events_of,
    events_until,
    result,
    user,
)

HARNESSES = {"openai": openai_harness, "embedded": embedded_harness, "providers": provider_harness}
every_model = pytest.mark.parametrize("kind", HARNESSES)
every_scripted_model = pytest.mark.parametrize("kind", ["openai", "providers"])


@pytest.fixture
async def harness(kind: str) -> AsyncIterator[AdapterHarness]:
    async with HARNESSES[kind]() as stage:
        await stage.model.start()
        yield stage
        await stage.model.aclose()


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@every_model
async def test_an_answer_consists_of_deltas_and_one_end_with_usage(harness: AdapterHarness) -> None:
    harness.expect("text")
    *deltas, last = await events_of(harness.model, a_request("Say hello."))
    assert deltas
    assert all(isinstance(delta, TextDelta) and delta.text for delta in deltas)
    assert isinstance(last, Finished)
    assert last.stop == "end_turn"
    assert last.usage is not None
    assert last.usage.input_tokens > 0
    assert last.usage.output_tokens > 0


@every_model
async def test_a_conversation_can_have_many_calls(harness: AdapterHarness) -> None:
    spoken = [user("Say hello.")]
    for _ in range(3):
        harness.expect("text")
        text = text_of(await events_of(harness.model, a_request(*spoken)))
        spoken += [assistant(text), user("Say it again.")]  # type: ignore[list-item]  # a list of one kind so far


@every_model
async def test_abandoned_answers_release_their_resources(harness: AdapterHarness) -> None:
    """More answers are abandoned than the model can generate concurrently."""
    for _ in range(5):
        harness.expect("endless")
        assert text_of(await events_until(harness.model, a_request("Count to one thousand."), 2))
    harness.expect("text")
    assert text_of(await events_of(harness.model, a_request("Say hello.", max_tokens=20)))


@every_model
async def test_a_cancelled_call_ends_and_leaves_the_model_working(harness: AdapterHarness) -> None:
    begun = asyncio.Event()

    async def listen() -> None:
        async with aclosing(harness.model.stream(a_request("Count to one thousand."))) as events:
            async for _ in events:
                begun.set()

    harness.expect("endless")
    async with asyncio.timeout(TIMEOUT_S):
        task = asyncio.create_task(listen())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    harness.expect("text")
    assert text_of(await events_of(harness.model, a_request("Say hello.", max_tokens=20)))


@every_model
async def test_unpaired_calls_and_results_do_not_break_a_conversation(harness: AdapterHarness) -> None:
    harness.expect("text")
    request = a_request(
        result("lost", "1"), user("Hi."), assistant(call("c1"), call("c2")), result("c2", "2"), user("Say hello.")
    )
    assert isinstance((await events_of(harness.model, request))[-1], Finished)


@every_model
async def test_starting_and_closing_twice_is_allowed(harness: AdapterHarness) -> None:
    await harness.model.start()
    await harness.model.aclose()
    await harness.model.aclose()


@every_model
async def test_a_closed_model_is_unavailable(harness: AdapterHarness) -> None:
    await harness.model.aclose()
    with pytest.raises(ModelUnavailable):
        await events_of(harness.model, a_request())


@every_model
async def test_the_first_call_starts_the_model(kind: str) -> None:
    async with HARNESSES[kind]() as stage:
        stage.expect("text")
        assert text_of(await events_of(stage.model, a_request("Say hello.", max_tokens=20)))
        await stage.model.aclose()


@every_scripted_model
async def test_parallel_calls_are_complete_and_have_the_providers_ids(harness: AdapterHarness) -> None:
    harness.expect("calls")
    events = await events_of(harness.model, a_request("Add.", tools=[ADD]))
    assert text_of(events) == "I add."
    calls = [event for event in events if isinstance(event, CallRequested)]
    assert {each.id: each.input for each in calls} == CALLS
    assert {each.name for each in calls} == {"add"}
    assert isinstance(events[-1], Finished)
    assert events[-1].stop == "tool_use"


@every_scripted_model
async def test_arguments_that_are_not_json_are_passed_as_raw_text(harness: AdapterHarness) -> None:
    harness.expect("broken arguments")
    events = await events_of(harness.model, a_request("Add.", tools=[ADD]))
    assert events[0] == CallRequested(id="c1", name="add", input=None, raw=BROKEN)


@every_scripted_model
async def test_thinking_is_separate_from_the_text(harness: AdapterHarness) -> None:
    harness.expect("thinking")
    events = await events_of(harness.model, a_request("Well?"))
    assert events[:-1] == [ThinkingDelta("Hm."), TextDelta("Yes.")]
