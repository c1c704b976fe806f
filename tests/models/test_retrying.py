"""Retries and fallback models, in front of a small server with scripted answers."""

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.core.content import ToolMessage, Usage
from dragoman.core.ids import CallId, MessageId
from dragoman.models.openai import OpenAIModel
from dragoman.models.retrying import BACKOFF_S, NamedModel, RetryingModel
from dragoman.ports.models import (
    ContextTooLong,
    Finished,
    ModelEvent,
    ModelFailed,
    ModelRequest,
    ModelUnavailable,
    TextDelta,
)
from tests.models.fake_openai_server import DONE, Answer, FakeOpenAIServer, chunk, fake_openai_server, refusal, usage
from tests.models.request_builders import a_request, events_and_failure, events_of
from tests.protocols.aap.client import AapClient
from tests.servers import running_server

HELLO = Answer([chunk({"content": "Hello"}, "stop"), usage(5, 2), DONE])
HELLO_EVENTS = [TextDelta("Hello"), Finished(stop="end_turn", usage=Usage(5, 2))]
BUSY = refusal(503, b"busy")


@pytest.fixture
async def server() -> AsyncIterator[FakeOpenAIServer]:
    async with fake_openai_server() as server:
        yield server


@pytest.fixture
async def fallback() -> AsyncIterator[FakeOpenAIServer]:
    async with fake_openai_server() as server:
        yield server


@pytest.fixture
async def delays() -> list[float]:
    """The delays before retries in seconds, recorded instead of waited for."""
    return []


@pytest.fixture
async def model(
    server: FakeOpenAIServer, fallback: FakeOpenAIServer, delays: list[float]
) -> AsyncIterator[RetryingModel]:
    async def pause(seconds: float) -> None:
        delays.append(seconds)

    first, second = (OpenAIModel("gpt-x", base_url=each.base_url, api_key="sk-4711") for each in (server, fallback))
    named = [NamedModel("openai:first", first), NamedModel("openai:second", second)]
    yield RetryingModel(named, retries=2, max_delay_s=60, shows_errors=True, sleep=pause)
    await first.aclose()
    await second.aclose()


async def test_a_busy_server_is_tried_again_with_growing_delays(
    model: RetryingModel, server: FakeOpenAIServer, delays: list[float]
) -> None:
    server.answers = [BUSY, BUSY, HELLO]
    assert await events_of(model, a_request()) == HELLO_EVENTS
    assert delays == [BACKOFF_S, 2 * BACKOFF_S]


async def test_the_delay_that_a_server_asks_for_is_kept(
    model: RetryingModel, server: FakeOpenAIServer, delays: list[float]
) -> None:
    server.answers = [refusal(429, b"slow down", **{"retry-after": "30"}), HELLO]
    assert await events_of(model, a_request()) == HELLO_EVENTS
    assert delays == [30]


async def test_a_server_that_asks_for_too_long_a_delay_is_replaced_at_once(
    model: RetryingModel, server: FakeOpenAIServer, fallback: FakeOpenAIServer, delays: list[float]
) -> None:
    server.answers, fallback.answers = [refusal(429, b"tomorrow", **{"retry-after": "86400"})], [HELLO]
    assert await events_of(model, a_request()) == [
        TextDelta("Hello"),
        Finished(stop="end_turn", usage=Usage(5, 2), model="openai:second"),
    ]
    assert delays == []


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(Answer([], is_cut=True), id="after the head"),
        pytest.param(Answer([chunk({"role": "assistant"})], is_cut=True), id="after the role"),
        pytest.param(Answer([]), id="an empty body"),
        pytest.param(Answer([chunk({"content": ""}, "stop"), DONE]), id="an empty answer"),
    ],
)
async def test_an_answer_that_ends_before_its_first_word_is_asked_for_again(
    model: RetryingModel, server: FakeOpenAIServer, delays: list[float], cut: Answer
) -> None:
    server.answers = [cut, HELLO]
    assert await events_of(model, a_request()) == HELLO_EVENTS
    assert delays == [BACKOFF_S]


async def test_a_dropped_connection_is_replaced(model: RetryingModel, server: FakeOpenAIServer) -> None:
    server.connections_to_drop, server.answers = 1, [HELLO]
    assert await events_of(model, a_request()) == HELLO_EVENTS


async def test_nothing_is_repeated_after_the_first_word(
    model: RetryingModel, server: FakeOpenAIServer, fallback: FakeOpenAIServer
) -> None:
    server.answers = [Answer([chunk({"content": "Hel"})], is_cut=True)]
    events, failed = await events_and_failure(model, a_request())
    assert (events, isinstance(failed, ModelUnavailable)) == ([TextDelta("Hel")], False)
    assert (len(server.received), fallback.received) == (1, [])


async def test_a_model_that_becomes_unavailable_after_its_first_word_is_not_called_again() -> None:
    calls = 0

    class Failing:
        context_window = None

        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
            nonlocal calls
            calls += 1
            yield TextDelta("Hel")
            raise ModelUnavailable("gone")

    async def pause(seconds: float) -> None:
        pass

    named = [NamedModel("first", Failing()), NamedModel("second", Failing())]
    events, failed = await events_and_failure(RetryingModel(named, retries=2, max_delay_s=60, sleep=pause), a_request())
    assert (events, str(failed), calls) == ([TextDelta("Hel")], "gone", 1)


async def test_a_rejected_request_goes_to_the_fallback(
    model: RetryingModel, server: FakeOpenAIServer, fallback: FakeOpenAIServer, delays: list[float]
) -> None:
    server.answers, fallback.answers = [refusal(401, {"error": {"message": "wrong key sk-4711"}})], [HELLO]
    assert (await events_of(model, a_request()))[0] == TextDelta("Hello")
    assert delays == []


async def test_a_request_that_is_too_long_is_left_to_the_agent(model: RetryingModel, server: FakeOpenAIServer) -> None:
    server.answers = [refusal(400, {"error": {"message": "too long", "code": "context_length_exceeded"}})]
    with pytest.raises(ContextTooLong):
        await events_of(model, a_request())


async def test_the_reason_is_shown_without_the_key(
    model: RetryingModel, server: FakeOpenAIServer, fallback: FakeOpenAIServer
) -> None:
    server.answers, fallback.answers = [BUSY] * 3, [refusal(404, {"error": {"message": "no model x for sk-4711"}})]
    with pytest.raises(ModelFailed) as failed:
        await events_of(model, a_request())
    assert failed.value.shown_message == "The model openai:second failed: status 404: no model x for ***"


async def test_a_model_may_be_silent_after_the_result_of_a_tool(model: RetryingModel, server: FakeOpenAIServer) -> None:
    server.answers = [Answer([chunk({}, "stop"), DONE])]
    result = ToolMessage(id=MessageId("m"), call_id=CallId("c"), name="add", content="3")
    assert await events_of(model, a_request("add", result)) == [Finished(stop="end_turn")]


# --- on a server ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "The model openai-compatible:x failed: status 400: x does not support tools"),
        ({"model_error_details": False}, "The model failed to answer"),
        ({"trusted_proxies": ("10.0.0.1",)}, "The model failed to answer"),
    ],
)
async def test_in_development_the_client_reads_why_the_model_failed(
    tmp_path: Path, server: FakeOpenAIServer, settings: dict[str, Any], message: str
) -> None:
    server.answers = [refusal(400, {"error": {"message": "x does not support tools"}})]
    model = f"openai-compatible:x@{server.base_url}"
    async with running_server(tmp_path, rehearsal=False, default_model=model, **settings) as started:
        alice: AapClient = started.aap_client("alice")
        turn = await (await alice.create("assistant")).run("hello")
    assert turn.error == {"code": "model_error", "message": message}


async def test_the_fallback_models_of_the_settings_answer(
    tmp_path: Path, server: FakeOpenAIServer, fallback: FakeOpenAIServer
) -> None:
    server.answers, fallback.answers = [refusal(404, {"error": {"message": "gone"}})], [HELLO]
    names: dict[str, Any] = {
        "default_model": f"openai-compatible:x@{server.base_url}",
        "fallback_models": (f"openai-compatible:y@{fallback.base_url}",),
    }
    async with running_server(tmp_path, rehearsal=False, **names) as started:
        alice: AapClient = started.aap_client("alice")
        assert (await (await alice.create("assistant")).run("hello")).text == "Hello"
    assert fallback.received[0].body["model"] == "y"


@pytest.mark.parametrize(
    ("settings", "refusals", "retry_after", "text"),
    [
        ({"model_retries": 0}, 1, "0", ""),
        ({"model_retries": 1}, 1, "0", "Hello"),
        ({"model_retries": 1}, 2, "0", ""),
        ({"model_retries": 1, "model_retry_max_s": 0}, 1, "1", ""),
    ],
)
async def test_as_many_retries_are_made_as_the_settings_say(
    tmp_path: Path,
    server: FakeOpenAIServer,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    refusals: int,
    retry_after: str,
    text: str,
) -> None:
    monkeypatch.setattr("dragoman.models.retrying.BACKOFF_S", 0)
    server.answers = [refusal(503, b"busy", **{"retry-after": retry_after})] * refusals + [HELLO]
    model = f"openai-compatible:x@{server.base_url}"
    async with running_server(tmp_path, rehearsal=False, default_model=model, **settings) as started:
        alice: AapClient = started.aap_client("alice")
        assert (await (await alice.create("assistant")).run("hello")).text == text
