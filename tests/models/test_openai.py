"""The adapter for OpenAI-compatible servers, against a small server with scripted answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from dragoman.core.content import Usage
from dragoman.models import openai
from dragoman.models.openai import OpenAIModel
from dragoman.models.openai_wire import Dialect
from dragoman.ports.models import CallRequested, ContextTooLong, Finished, ModelFailed, ModelUnavailable, TextDelta
from tests.models.fake_openai_server import (
    DONE,
    Answer,
    FakeOpenAIServer,
    call_delta,
    chunk,
    fake_openai_server,
    refusal,
    usage,
)
from tests.models.request_builders import TIMEOUT_S, a_request, events_and_failure, events_of, events_until

KEY = "sk-test-4711"
HELLO = Answer([chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk({}, "stop"), usage(5, 2), DONE])
HELLO_EVENTS = [TextDelta("Hel"), TextDelta("lo"), Finished(stop="end_turn", usage=Usage(5, 2))]


@pytest.fixture
async def server() -> AsyncIterator[FakeOpenAIServer]:
    async with fake_openai_server() as server:
        yield server


@pytest.fixture
async def model(server: FakeOpenAIServer) -> AsyncIterator[OpenAIModel]:
    model = OpenAIModel("gpt-x", base_url=server.base_url, api_key=KEY)
    yield model
    await model.aclose()


async def test_a_request_has_key_and_body_and_is_answered(model: OpenAIModel, server: FakeOpenAIServer) -> None:
    server.answers = [HELLO]
    assert await events_of(model, a_request("Hi")) == HELLO_EVENTS
    received = server.received[0]
    assert (received.path, received.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert received.body["messages"] == [{"role": "user", "content": "Hi"}]


async def test_deltas_arrive_while_the_model_is_still_generating(model: OpenAIModel, server: FakeOpenAIServer) -> None:
    go_on = asyncio.Event()
    server.answers = [Answer([chunk({"content": "Hel"}), go_on, chunk({"content": "lo"}, "stop"), DONE])]
    async with asyncio.timeout(TIMEOUT_S), aclosing(model.stream(a_request())) as events:
        assert await anext(events) == TextDelta("Hel")
        go_on.set()
        assert [event async for event in events] == [TextDelta("lo"), Finished(stop="end_turn")]


async def test_connections_are_reused_between_calls(model: OpenAIModel, server: FakeOpenAIServer) -> None:
    server.answers = [HELLO, HELLO, HELLO]
    for _ in range(3):
        assert await events_of(model, a_request()) == HELLO_EVENTS
    assert server.connections == 1


async def test_an_abandoned_call_closes_the_connection(model: OpenAIModel, server: FakeOpenAIServer) -> None:
    server.answers = [Answer([chunk({"content": "Hel"}), asyncio.Event()])]
    assert await events_until(model, a_request(), 1) == [TextDelta("Hel")]
    async with asyncio.timeout(TIMEOUT_S):
        await server.disconnects.wait()


async def test_a_cancelled_call_closes_the_connection(model: OpenAIModel, server: FakeOpenAIServer) -> None:
    begun = asyncio.Event()

    async def call() -> None:
        async with aclosing(model.stream(a_request())) as events:
            async for _ in events:
                begun.set()

    server.answers = [Answer([chunk({"content": "Hel"}), asyncio.Event()]), HELLO]
    async with asyncio.timeout(TIMEOUT_S):
        task = asyncio.create_task(call())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.disconnects.wait()
    assert await events_of(model, a_request()) == HELLO_EVENTS


async def test_concurrent_conversations_do_not_mix(model: OpenAIModel, server: FakeOpenAIServer) -> None:
    go_on = asyncio.Event()
    count = 20
    server.answers = [
        Answer([chunk({"content": f"{n} "}), go_on, chunk({"content": f"{n}"}, "stop"), DONE]) for n in range(count)
    ]

    async def answer_text() -> str:
        events = await events_of(model, a_request())
        return "".join(event.text for event in events if isinstance(event, TextDelta))

    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(answer_text()) for _ in range(count)]
        await server.has_received(count)  # all calls are open now
        go_on.set()
    assert sorted(call.result() for call in calls) == sorted(f"{n} {n}" for n in range(count))


# --- failures ---------------------------------------------------------------------------------------------------------


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(("beginning", "message"), [(b"", "no answer within"), (HEAD, "the answer was interrupted")])
async def test_a_silent_server_is_unavailable_and_not_to_be_retried(
    beginning: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may still be working, and a retry would double its load."""
    monkeypatch.setattr(openai, "READ_TIMEOUT_S", 0.05)
    released = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(beginning)
        await released.wait()
        writer.close()

    silent = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with silent:
        port = silent.sockets[0].getsockname()[1]
        impatient = OpenAIModel("gpt-x", base_url=f"http://127.0.0.1:{port}/v1")
        with pytest.raises(ModelUnavailable, match=message) as failed:
            await events_of(impatient, a_request())
        assert not failed.value.may_retry
        released.set()
        await impatient.aclose()


async def test_a_request_that_exceeds_the_context_window_is_reported(
    model: OpenAIModel, server: FakeOpenAIServer
) -> None:
    server.answers = [refusal(400, {"error": {"message": "too long", "code": "context_length_exceeded"}})]
    with pytest.raises(ContextTooLong):
        await events_of(model, a_request())


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 422])
async def test_a_rejected_request_fails(model: OpenAIModel, server: FakeOpenAIServer, status: int) -> None:
    server.answers = [refusal(status, {"error": {"message": "no"}})]
    with pytest.raises(ModelFailed, match=f"status {status}: no") as failed:
        await events_of(model, a_request())
    assert type(failed.value) is ModelFailed


async def test_an_endless_error_body_is_read_only_in_part(model: OpenAIModel, server: FakeOpenAIServer) -> None:
    server.answers = [Answer([b"x" * 30_000] * 100, status=400)]
    with pytest.raises(ModelFailed) as failed:
        await events_of(model, a_request())
    assert len(str(failed.value)) < 1000


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer([chunk({"content": "Hel"})], is_cut=True), id="cut in the text"),
        pytest.param(Answer([chunk({"content": "Hel"})]), id="ended without a reason"),
        pytest.param(
            Answer([chunk({"content": "Hel"}), chunk(call_delta(0, '{"a": ', id="c", name="add"))], is_cut=True),
            id="cut in a call's arguments",
        ),
        pytest.param(Answer([chunk({"content": "Hel"}), b"data: {nonsense\n\n"]), id="nonsense"),
        pytest.param(Answer([chunk({"content": "Hel"}), b'data: {"error": {"message": "boom"}}\n\n']), id="an error"),
    ],
)
async def test_an_interrupted_answer_fails(model: OpenAIModel, server: FakeOpenAIServer, answer: Answer) -> None:
    server.answers = [answer]
    events, failed = await events_and_failure(model, a_request())
    assert (isinstance(failed, ModelUnavailable), events) == (False, [TextDelta("Hel")])


async def test_an_answer_interrupted_before_its_first_word_is_unavailable(
    model: OpenAIModel, server: FakeOpenAIServer
) -> None:
    server.answers = [Answer([chunk({"role": "assistant"})], is_cut=True), Answer([])]
    for _ in range(2):
        with pytest.raises(ModelUnavailable):
            await events_of(model, a_request())


async def test_a_server_that_refuses_stream_options_is_asked_without_them(
    model: OpenAIModel, server: FakeOpenAIServer
) -> None:
    error = {"detail": [{"loc": ["body", "stream_options"], "msg": "extra fields not permitted"}]}
    server.answers = [refusal(422, error), HELLO, HELLO]
    for _ in range(2):
        assert await events_of(model, a_request()) == HELLO_EVENTS
    assert ["stream_options" in each.body for each in server.received] == [True, False, False]


async def test_a_server_that_refuses_the_schema_of_an_answer_is_asked_without_it(
    model: OpenAIModel, server: FakeOpenAIServer
) -> None:
    error = {"error": {"message": "This response_format type is unavailable now"}}
    server.answers = [refusal(400, error), HELLO, HELLO]
    for schema in ({"type": "array", "minItems": 3}, {"type": "object"}):
        assert await events_of(model, a_request(output_schema=schema)) == HELLO_EVENTS
    assert [
        each.body.get("response_format") and each.body["response_format"]["json_schema"]["schema"]
        for each in server.received
    ] == [{"type": "array", "minItems": 3}, None, {"type": "object"}]


async def test_a_refusal_for_another_reason_is_not_repeated_without_the_schema(
    model: OpenAIModel, server: FakeOpenAIServer
) -> None:
    server.answers = [refusal(400, {"error": {"message": "This model does not exist"}})]
    with pytest.raises(ModelFailed, match="does not exist"):
        await events_of(model, a_request(output_schema={"type": "object"}))


async def test_a_connection_left_open_after_done_does_not_delay_the_answer(
    model: OpenAIModel, server: FakeOpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai, "TAIL_TIMEOUT_S", 0.01)
    server.answers = [Answer([chunk({"content": "Hello"}), DONE, asyncio.Event()])]
    assert await events_of(model, a_request()) == [TextDelta("Hello"), Finished(stop="end_turn")]


async def test_an_answer_interrupted_after_its_finish_reason_is_complete(
    model: OpenAIModel, server: FakeOpenAIServer
) -> None:
    server.answers = [Answer([chunk({"content": "Hello"}, "stop")], is_cut=True)]
    assert await events_of(model, a_request()) == [TextDelta("Hello"), Finished(stop="end_turn")]


async def test_a_connection_left_open_after_the_answer_does_not_delay_it(
    model: OpenAIModel, server: FakeOpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai, "TAIL_TIMEOUT_S", 0.01)
    server.answers = [Answer([chunk({"content": "Hello"}, "stop"), asyncio.Event()])]
    assert await events_of(model, a_request()) == [TextDelta("Hello"), Finished(stop="end_turn")]


async def test_an_endless_line_is_refused(model: OpenAIModel, server: FakeOpenAIServer) -> None:
    piece = b"data: " + b"x" * 1_000_000
    server.answers = [Answer([piece] * 10)]
    with pytest.raises(ModelFailed, match=r"longer than \d+ bytes"):
        await events_of(model, a_request())


async def test_an_answer_with_another_content_type_is_refused(model: OpenAIModel, server: FakeOpenAIServer) -> None:
    server.answers = [Answer([b"<html>Welcome</html>"], content_type="text/html")]
    with pytest.raises(ModelFailed, match="expected an event stream, got text/html"):
        await events_of(model, a_request())


async def test_a_call_with_invalid_arguments_has_their_raw_text(model: OpenAIModel, server: FakeOpenAIServer) -> None:
    server.answers = [Answer([chunk(call_delta(0, '{"a": 1,', id="c1", name="add")), chunk({}, "tool_calls"), DONE])]
    assert await events_of(model, a_request()) == [
        CallRequested(id="c1", name="add", input=None, raw='{"a": 1,'),
        Finished(stop="tool_use"),
    ]


# --- the key ----------------------------------------------------------------------------------------------------------


async def test_errors_never_contain_the_key(model: OpenAIModel, server: FakeOpenAIServer) -> None:
    body = {"error": {"message": f"Incorrect API key provided: {KEY}."}}
    server.answers = [refusal(401, body), Answer([chunk(error=body["error"])])]
    for _ in range(2):
        with pytest.raises(ModelFailed, match=r"provided: \*\*\*\.") as failed:
            await events_of(model, a_request())
        assert KEY not in f"{failed.value!r} {failed.value.__cause__!r} {failed.value.__context__!r}"
    assert KEY not in repr(model)


async def test_a_key_that_is_a_placeholder_is_masked_only_as_a_word(server: FakeOpenAIServer) -> None:
    """Local servers need no key, and many people set `none` or `x`."""
    model = OpenAIModel("gpt-x", base_url=server.base_url, api_key="x")
    server.answers = [refusal(400, {"error": {"message": "max_tokens exceeds the context of x"}})]
    with pytest.raises(ModelFailed, match=r"max_tokens exceeds the context of \*\*\*$"):
        await events_of(model, a_request())
    await model.aclose()


@pytest.mark.parametrize("key", ["sk-4711\n", "sk-4711 x", "sk-47é11", ""])
def test_an_invalid_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ValueError, match="API key") as refused:
        OpenAIModel("gpt-x", base_url="https://example.org/v1", api_key=key)
    assert "47" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["https://user:pw@example.org/v1", "ftp://example.org", "example.org", "http://", "http://h:x", ""]
)
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="model server") as refused:
        OpenAIModel("gpt-x", base_url=url)
    assert "pw" not in str(refused.value)


async def test_a_dialect_affects_the_request(server: FakeOpenAIServer) -> None:
    model = OpenAIModel("gpt-x", base_url=server.base_url, dialect=Dialect(limit_name="max_completion_tokens"))
    server.answers = [HELLO]
    await events_of(model, a_request(max_tokens=7))
    assert server.received[0].body["max_completion_tokens"] == 7
    assert "authorization" not in server.received[0].headers
    await model.aclose()
