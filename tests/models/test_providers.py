"""Providers through Pydantic AI: translation in both directions, and calls over its OpenAI client."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from pydantic_ai import messages as theirs
from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelOverloadedError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelServerError,
    UserError,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider

from dragoman.core.content import Data, File, Image, SystemMessage, Text, Thinking, Usage
from dragoman.core.ids import MessageId
from dragoman.models.optional_dependencies import MissingOptionalDependency
from dragoman.models.providers import API_KEY_VARIABLES, ProviderModel
from dragoman.models.providers_wire import (
    to_final_events,
    to_model_error,
    to_provider_messages,
    to_provider_parameters,
    to_provider_settings,
)
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
from tests.models.request_builders import (
    ADD,
    TIMEOUT_S,
    a_request,
    assistant,
    call,
    events_and_failure,
    events_of,
    events_until,
    result,
    user,
)

KEY = "sk-test-4711"
PICTURE = "data:image/png;base64,iVBORw0KGgo="


def parts_of(message: theirs.ModelMessage) -> list[Any]:
    """The parts of a Pydantic AI message, without their timestamps."""
    return [
        {name: value for name, value in vars(part).items() if name in {"content", "tool_name", "tool_call_id", "args"}}
        for part in message.parts
    ]


def test_a_conversation_becomes_requests_and_responses_and_the_last_request_has_the_instructions() -> None:
    request = a_request(
        SystemMessage(id=MessageId("s"), content="Seed."),
        user("Add."),
        assistant(Thinking("Hm."), Text("I add."), call("c1", a=1), call("unanswered", a=2)),
        result("c1", "3"),
        result("lost", "4"),
        user("And?"),
        instructions="Be brief.",
    )
    first, answer, last = to_provider_messages(request)
    assert parts_of(first) == [{"content": "Seed."}, {"content": "Add."}]
    assert parts_of(answer) == [{"content": "I add."}, {"tool_name": "add", "tool_call_id": "c1", "args": {"a": 1}}]
    assert parts_of(last) == [{"tool_name": "add", "tool_call_id": "c1", "content": "3"}, {"content": "And?"}]
    assert isinstance(last, theirs.ModelRequest)
    assert last.instructions == "Be brief."


def test_images_and_files_are_translated() -> None:
    content = (
        Text("See:"),
        Image("https://example.org/a.png"),
        Image(PICTURE),
        Data({"n": 1}),
        File("https://example.org/a.mp3", media="audio", media_type="audio/mpeg"),
        File("data:application/pdf;base64,JVBERg==", media_type="application/pdf"),
        File("ftp://example.org/a", name="a"),
    )
    (part,) = to_provider_messages(a_request(user(content)))[0].parts
    assert isinstance(part, theirs.UserPromptPart)
    assert part.content == [
        "See:",
        theirs.ImageUrl("https://example.org/a.png"),
        theirs.BinaryContent(b"\x89PNG\r\n\x1a\n", media_type="image/png"),
        '{"n":1}',
        theirs.AudioUrl("https://example.org/a.mp3", media_type="audio/mpeg"),
        theirs.BinaryContent(b"%PDF", media_type="application/pdf"),
        "[file a (unknown type), at ftp://example.org/a: not shown]",
    ]


def test_a_failed_result_is_marked_as_failed() -> None:
    part = to_provider_messages(a_request(assistant(call("c1")), result("c1", "no", is_error=True)))[1].parts[0]
    assert isinstance(part, theirs.ToolReturnPart)
    assert part.outcome == "failed"


def test_an_image_that_cannot_be_decoded_is_refused() -> None:
    with pytest.raises(ModelFailed, match="base64"):
        to_provider_messages(a_request(user((Image("data:image/png;base64,%%%x"),))))


def test_parameters_are_renamed_and_unknown_ones_are_passed_unchanged() -> None:
    parameters = {"temperature": 0.5, "stop": "x", "reasoning_effort": "low", "verbosity": "low", "max_tokens": 1}
    assert to_provider_settings(a_request("Hi", parameters=parameters, max_tokens=9)) == {
        "temperature": 0.5,
        "stop_sequences": ["x"],
        "thinking": "low",
        "extra_body": {"verbosity": "low"},
        "max_tokens": 9,
    }


def test_a_choice_of_tools_is_a_list_of_names_and_sent_only_with_tools() -> None:
    named = {"tool_choice": {"type": "function", "function": {"name": "add"}}}
    assert to_provider_settings(a_request("Hi", tools=[ADD], parameters=named)) == {"tool_choice": ["add"]}
    assert to_provider_settings(a_request("Hi", tools=[ADD], parameters={"tool_choice": "none"})) == {
        "tool_choice": "none"
    }
    assert to_provider_settings(a_request("Hi", parameters=named)) == {}


def test_tools_keep_their_schema() -> None:
    (tool,) = to_provider_parameters(a_request("Hi", tools=[ADD])).function_tools
    assert (tool.name, tool.description, tool.parameters_json_schema) == ("add", ADD.description, ADD.parameters)
    tools = [msgspec.structs.replace(ADD, strict=strict) for strict in (None, True)]
    found = to_provider_parameters(a_request("Hi", tools=tools)).function_tools
    assert [each.strict for each in found] == [None, True]


def their_response(*parts: theirs.ModelResponsePart, **more: Any) -> theirs.ModelResponse:
    return theirs.ModelResponse(parts=list(parts), **more)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal"), (None, "end_turn")],
)
def test_finish_reasons_become_stop_reasons(reason: Any, stop: Any) -> None:
    assert to_final_events(their_response(finish_reason=reason)) == [Finished(stop=stop)]


def test_a_call_truncated_by_the_limit_is_dropped() -> None:
    whole = theirs.ToolCallPart("add", '{"a": 1}', tool_call_id="c1")
    cut = theirs.ToolCallPart("add", '{"a": ', tool_call_id="c2")
    assert to_final_events(their_response(whole, cut, finish_reason="length")) == [
        CallRequested(id="c1", name="add", input={"a": 1}, raw='{"a": 1}'),
        Finished(stop="max_tokens"),
    ]


@pytest.mark.parametrize("more", [{"finish_reason": "error"}, {"state": "incomplete"}])
def test_an_interrupted_answer_is_a_failure(more: dict[str, Any]) -> None:
    with pytest.raises(ModelFailed, match="was interrupted"):
        to_final_events(their_response(theirs.TextPart("Hel"), **more))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModelRateLimitError("m", "busy"), ModelUnavailable),
        (ModelQuotaExceededError("m", "no money"), ModelUnavailable),
        (ModelOverloadedError("m", "busy"), ModelUnavailable),
        (ModelServerError("m", "boom"), ModelUnavailable),
        (ModelConnectionError("m", "gone"), ModelUnavailable),
        (ModelContextWindowExceededError("m", "too long"), ContextTooLong),
        (ModelAuthenticationError("m", "who?"), ModelFailed),
        (ModelHTTPError(400, "m"), ModelFailed),
        (ModelAPIError("m", "what?"), ModelFailed),
        (ContentFilterError("no"), ModelFailed),
        (AgentRunError("what?"), ModelFailed),
        (UserError("wrong"), ModelFailed),
    ],
)
def test_errors_of_pydantic_ai_are_converted(error: Any, kind: type[ModelFailed]) -> None:
    assert type(to_model_error(error)) is kind


# --- over their OpenAI client -----------------------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[FakeOpenAIServer]:
    async with fake_openai_server() as server:
        yield server


@pytest.fixture
async def model(server: FakeOpenAIServer) -> AsyncIterator[ProviderModel]:
    def make() -> OpenAIChatModel:
        return OpenAIChatModel("gpt-x", provider=OpenAIProvider(base_url=server.base_url, api_key=KEY))

    model = ProviderModel("test:chat", {"OPENAI_API_KEY": KEY}, model_factory=make)
    yield model
    await model.aclose()


async def test_a_complete_call_over_pydantic_ais_client(model: ProviderModel, server: FakeOpenAIServer) -> None:
    server.answers = [
        Answer(
            [
                chunk({"role": "assistant", "content": "I "}),
                chunk({"content": "add."}),
                chunk(call_delta(0, '{"a": 1', id="c1", name="add")),
                chunk(call_delta(0, ', "b": 2}')),
                chunk({}, "tool_calls"),
                usage(9, 5),
                DONE,
            ]
        )
    ]
    request = a_request(
        user("Add."), assistant(call("c0", a=0)), result("c0", "0"), instructions="Be brief.", tools=[ADD], max_tokens=9
    )
    assert await events_of(model, request) == [
        TextDelta("I "),
        TextDelta("add."),
        CallRequested(id="c1", name="add", input={"a": 1, "b": 2}, raw='{"a": 1, "b": 2}'),
        Finished(stop="tool_use", usage=Usage(9, 5)),
    ]
    body = server.received[0].body
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool"]
    assert body["tools"][0]["function"]["name"] == "add"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refusal(400, {"error": {"message": "too long", "code": "context_length_exceeded"}}), ContextTooLong),
        (refusal(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}), ModelFailed),
        (Answer([chunk({"content": "Hel"})], is_cut=True), ModelFailed),
    ],
)
async def test_failures_over_pydantic_ais_client_are_converted(
    model: ProviderModel, server: FakeOpenAIServer, answer: Answer, kind: type[ModelFailed]
) -> None:
    server.answers = [answer]
    _, failed = await events_and_failure(model, a_request())
    assert isinstance(failed, kind)
    assert KEY not in str(failed)


async def test_an_abandoned_call_over_pydantic_ais_client_closes_the_connection(
    model: ProviderModel, server: FakeOpenAIServer
) -> None:
    server.answers = [Answer([chunk({"content": "Hel"}), asyncio.Event()])]
    assert await events_until(model, a_request(), 1) == [TextDelta("Hel")]
    async with asyncio.timeout(TIMEOUT_S):
        await server.disconnects.wait()


async def test_the_event_loop_is_not_blocked_while_the_library_is_imported() -> None:
    created, ticked = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def make() -> TestModel:
        loop.call_soon_threadsafe(ticked.set)
        asyncio.run_coroutine_threadsafe(ticked.wait(), loop).result(TIMEOUT_S)  # fails if the loop is blocked
        loop.call_soon_threadsafe(created.set)
        return TestModel(custom_output_text="Hi")

    model = ProviderModel("test:test", {}, model_factory=make)
    await model.start()
    assert created.is_set()
    assert (await events_of(model, a_request()))[-1] == Finished(stop="end_turn", usage=Usage(51, 1))
    await model.aclose()


@pytest.mark.parametrize("provider", API_KEY_VARIABLES)
async def test_a_provider_uses_the_key_in_the_mapping(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for names in API_KEY_VARIABLES.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    for name in API_KEY_VARIABLES[provider]:
        model = ProviderModel(f"{provider}:openai/some-model", {name: KEY})
        await model.start()
        await model.aclose()
    with pytest.raises(ModelFailed, match="API_KEY"):
        await ProviderModel(f"{provider}:openai/some-model", {}).start()


async def test_an_unknown_provider_is_reported() -> None:
    with pytest.raises(ModelFailed, match="nobody"):
        await ProviderModel("nobody:nothing", {}).start()


async def test_a_missing_provider_package_is_reported() -> None:
    def make() -> TestModel:
        raise ImportError("Please install `groq`")

    with pytest.raises(MissingOptionalDependency, match="groq"):
        await ProviderModel("groq:x", {}, model_factory=make).start()
