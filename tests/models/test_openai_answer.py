"""Parsing the answers of OpenAI-compatible servers."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dragoman.core.content import Usage
from dragoman.models.openai_answer import (
    MAX_ARGUMENTS_CHARS,
    MAX_CALLS,
    AnswerReader,
    classify_error_body,
    parse_arguments,
)
from dragoman.ports.models import (
    CallRequested,
    ContextTooLong,
    Finished,
    ModelEvent,
    ModelFailed,
    ModelUnavailable,
    TextDelta,
    ThinkingDelta,
)
from tests.models.fake_openai_server import DONE, call_delta, chunk, event, usage


def read(*chunks: bytes) -> list[ModelEvent]:
    """The events of a complete answer."""
    reader = AnswerReader(new_id=lambda: "new")
    events = [event for data in chunks for event in reader.feed(data.removeprefix(b"data: ").strip())]
    return events + reader.close()


def call_requested(call_id: str, raw: str, name: str = "add") -> CallRequested:
    return CallRequested(id=call_id, name=name, input=parse_arguments(raw), raw=raw)


def test_text_thinking_usage_and_end_are_in_order() -> None:
    assert read(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "Hm"}),
        chunk({"reasoning": "m."}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, "stop"),
        usage(7, 2),
        DONE,
    ) == [
        ThinkingDelta("Hm"),
        ThinkingDelta("m."),
        TextDelta("Hel"),
        TextDelta("lo"),
        Finished(stop="end_turn", usage=Usage(7, 2)),
    ]


def test_cached_and_reasoning_tokens_are_parts_of_the_usage() -> None:
    counts = {"prompt_tokens": 7, "completion_tokens": 5}
    parts: dict[str, Any] = {
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    unknown: dict[str, Any] = {"prompt_tokens_details": None, "completion_tokens_details": {"reasoning_tokens": None}}
    for details, (cached, reasoning) in [(parts, (4, 3)), (unknown, (0, 0))]:
        assert read(chunk({"content": "x"}, "stop"), chunk(usage={**counts, **details}), DONE)[-1] == Finished(
            stop="end_turn",
            usage=Usage(input_tokens=7, output_tokens=5, cached_tokens=cached, reasoning_tokens=reasoning),
        )


def test_reasoning_sent_under_both_names_is_read_once() -> None:
    assert read(chunk({"reasoning_content": "Hm.", "reasoning": "Hm."}), chunk({}, "stop"))[0] == ThinkingDelta("Hm.")


def test_parallel_calls_are_assembled_from_their_deltas() -> None:
    assert read(
        chunk(call_delta(0, "", id="c1", name="add")),
        chunk(call_delta(0, '{"a": 1')),
        chunk(call_delta(1, '{"a"', id="c2", name="sub")),
        chunk(call_delta(0, ', "b": 2}')),
        chunk(call_delta(1, ": 3}")),
        chunk({}, "tool_calls"),
        DONE,
    ) == [
        CallRequested(id="c1", name="add", input={"a": 1, "b": 2}, raw='{"a": 1, "b": 2}'),
        CallRequested(id="c2", name="sub", input={"a": 3}, raw='{"a": 3}'),
        Finished(stop="tool_use"),
    ]


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param(
            [chunk(call_delta(0, "{}", id="c1", name="add")), chunk(call_delta(0, "{}", id="c2", name="add"))],
            id="all numbered 0",
        ),
        pytest.param(
            [chunk(call_delta(None, "{}", id="c1", name="add")), chunk(call_delta(None, "{}", id="c2", name="add"))],
            id="not numbered",
        ),
        pytest.param(
            [
                chunk(call_delta(0, "{", id="c1", name="add")),
                chunk(call_delta(0, "}", id="c1", name="add")),
                chunk(call_delta(1, "{}", id="c2", name="add")),
            ],
            id="id and name in each piece",
        ),
    ],
)
def test_calls_with_wrong_indexes_are_distinguished(chunks: list[bytes]) -> None:
    assert read(*chunks, chunk({}, "tool_calls"))[:-1] == [call_requested("c1", "{}"), call_requested("c2", "{}")]


def test_calls_without_ids_get_new_ones() -> None:
    chunks = [chunk(call_delta(None, "{}", name="add")), chunk(call_delta(None, "{}", name="sub"))]
    assert read(*chunks, chunk({}, "stop")) == [
        call_requested("new", "{}"),
        call_requested("new", "{}", "sub"),
        Finished(stop="tool_use"),
    ]


@pytest.mark.parametrize(
    ("raw", "parsed"),
    [
        ("", {}),
        ('{"a": ', None),
        ("[1]", None),
        ('"x"', None),
        ("[" * 100_000, None),
        ('{"a": "\\ud800"}', None),
        ('{"a": 1} x', None),
        ('{"a": {"b": null}}', {"a": {"b": None}}),
    ],
)
def test_arguments_that_are_not_an_object_leave_the_call_without_input(raw: str, parsed: object) -> None:
    call = read(chunk(call_delta(0, raw, id="c1", name="add")), chunk({}, "tool_calls"))[0]
    assert isinstance(call, CallRequested)
    assert (call.input, call.raw) == (parsed, raw)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("tool_calls", "end_turn"),
        ("eos", "end_turn"),
    ],
)
def test_finish_reasons_without_calls_become_stop_reasons(reason: str, stop: str) -> None:
    assert read(chunk({}, reason)) == [Finished(stop=stop)]  # type: ignore[arg-type]  # a value of the table


@pytest.mark.parametrize(("reason", "stop"), [("length", "max_tokens"), ("content_filter", "refusal")])
@pytest.mark.parametrize("raw", ['{"a": 1', "", '{"a": 1, "b": '])
def test_a_truncated_call_is_dropped_and_earlier_ones_remain(reason: str, stop: str, raw: str) -> None:
    whole, cut = chunk(call_delta(0, '{"a": 1}', id="c1", name="add")), chunk(call_delta(1, raw, id="c2", name="add"))
    assert read(whole, cut, chunk({}, reason)) == [call_requested("c1", '{"a": 1}'), Finished(stop=stop)]  # type: ignore[arg-type]  # as above


def test_a_refusal_text_is_a_refusal() -> None:
    assert read(chunk({"refusal": "I can't."}), chunk({}, "stop")) == [TextDelta("I can't."), Finished(stop="refusal")]


def test_further_choices_are_ignored() -> None:
    other = event({"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]})
    assert read(other, chunk({"content": "yes"}, "stop")) == [TextDelta("yes"), Finished(stop="end_turn")]


@pytest.mark.parametrize("chunks", [[], [chunk({"content": "Hel"})]])
def test_an_answer_without_a_finish_reason_is_a_failure(chunks: list[bytes]) -> None:
    with pytest.raises(ModelFailed, match="without a finish reason"):
        read(*chunks)


@pytest.mark.parametrize(
    "data",
    [
        b"{", b"null", b'"x"', b"[" * 100_000, b'{"choices": {}}', b'{"choices": [{"delta": {"content": 1}}]}',
        b'{"choices": [{"delta": {"content": "\xff"}}]}',
    ],
)  # fmt: skip
def test_an_invalid_chunk_is_a_failure_with_a_short_message(data: bytes) -> None:
    with pytest.raises(ModelFailed, match="expected a chunk of a chat completion") as failed:
        read(data)
    assert len(str(failed.value)) < 1000


def test_an_excessive_answer_is_stopped() -> None:
    reader = AnswerReader(new_id=lambda: "new")
    for number in range(MAX_CALLS):
        reader.feed(chunk(call_delta(number, "{}", id=f"c{number}", name="add"))[6:])
    with pytest.raises(ModelFailed, match=f"more than {MAX_CALLS} calls"):
        reader.feed(chunk(call_delta(MAX_CALLS, "{}", id="more", name="add"))[6:])
    with pytest.raises(ModelFailed, match="arguments are longer"):
        read(chunk(call_delta(0, " " * (MAX_ARGUMENTS_CHARS + 1), id="c1", name="add")))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "boom", "code": "server_error"}, ModelFailed),
        ({"message": "try later", "code": 503}, ModelUnavailable),
        ({"message": "busy", "type": "overloaded_error"}, ModelUnavailable),
        ({"message": "too long", "code": "context_length_exceeded"}, ContextTooLong),
        ("just text", ModelFailed),
    ],
)
def test_an_error_inside_a_stream_is_classified(error: object, kind: type[ModelFailed]) -> None:
    with pytest.raises(ModelFailed) as failed:
        read(chunk({"content": "Hel"}), event({"error": error}))
    assert type(failed.value) is kind


@pytest.mark.parametrize("reason", ["error", "abort"])
def test_the_finish_reason_of_an_aborted_answer_is_a_failure(reason: str) -> None:
    with pytest.raises(ModelFailed, match=reason):
        read(chunk({}, reason))


OPENAI_TOO_LONG = (
    b'{"error": {"message": "This model\'s maximum context length is 128000 tokens. However, your messages resulted in '
    b'130000 tokens.", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}}'
)
LLAMA_TOO_LONG = (
    b'{"error":{"code":400,"message":"request (6031 tokens) exceeds the available context size (4096 tokens), try '
    b'increasing it","type":"exceed_context_size_error","n_prompt_tokens":6031,"n_ctx":4096}}'
)
VLLM_TOO_LONG = (
    b'{"object":"error","message":"This model\'s maximum context length is 4096 tokens. However, you requested 5000 '
    b'tokens","type":"BadRequestError","param":null,"code":400}'
)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, OPENAI_TOO_LONG, ContextTooLong),
        (400, LLAMA_TOO_LONG, ContextTooLong),
        (400, VLLM_TOO_LONG, ContextTooLong),
        (413, b"<html>Too large</html>", ContextTooLong),
        (400, b'{"error": {"message": "unknown parameter"}}', ModelFailed),
        (401, b'{"error": {"message": "Incorrect API key provided"}}', ModelFailed),
        (404, b'{"error": "model not found"}', ModelFailed),
        (422, b'{"detail": [{"loc": ["body"], "msg": "field required"}]}', ModelFailed),
        (429, b'{"error": {"message": "Request too large: 30000 tokens per minute"}}', ModelUnavailable),
        (408, b"", ModelUnavailable),
        (500, b"\xff\x00", ModelUnavailable),
        (503, b'{"error": {"message": "Loading model"}}', ModelUnavailable),
        (529, b"[" * 100_000, ModelUnavailable),
    ],
)  # fmt: skip
def test_error_statuses_are_classified(status: int, body: bytes, kind: type[ModelFailed]) -> None:
    failed = classify_error_body(status, body)
    assert type(failed) is kind
    assert str(failed).startswith(f"status {status}")
    assert len(str(failed)) < 1000


@given(st.binary(max_size=60), st.sampled_from([None, 400, 404, 500]))
@example('{"error": {"code": "²"}}'.encode(), None)
def test_any_error_body_is_a_failure(body: bytes, status: int | None) -> None:
    assert isinstance(classify_error_body(status, body), ModelFailed)


names = st.sampled_from(["choices", "delta", "error", "usage", "index", "tool_calls", "code"])
chunks = st.recursive(
    st.none() | st.text(max_size=5) | st.integers(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(names, each),
)


@given(chunks)
def test_any_chunk_yields_events_or_a_failure(value: object) -> None:
    try:
        events = read(event(value), chunk({}, "stop"))
    except ModelFailed:
        return
    assert isinstance(events[-1], Finished)


# --- what local servers do --------------------------------------------------------------------------------------------


def test_done_without_a_finish_reason_ends_the_answer() -> None:
    assert read(chunk({"content": "Hi"}), DONE) == [TextDelta("Hi"), Finished(stop="end_turn")]
    assert read(chunk(call_delta(0, "{}", id="c", name="add")), DONE) == [
        call_requested("c", "{}"),
        Finished(stop="tool_use"),
    ]


def test_a_legacy_function_call_is_a_call() -> None:
    assert read(
        chunk({"function_call": {"name": "add", "arguments": ""}}),
        chunk({"function_call": {"arguments": '{"a": 1'}}),
        chunk({"function_call": {"arguments": "}"}}),
        chunk({}, "function_call"),
    ) == [call_requested("new", '{"a": 1}'), Finished(stop="tool_use")]


THOUGHT = "<think>\nHm, a < b.\n</think>\n\nThe answer <think> is 5."


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_reasoning_in_tags_at_the_beginning_of_the_text_is_reasoning(size: int) -> None:
    parts = [THOUGHT[start : start + size] for start in range(0, len(THOUGHT), size)]
    events = read(*(chunk({"content": part}) for part in parts), chunk({}, "stop"))
    thinking = "".join(each.text for each in events if isinstance(each, ThinkingDelta))
    text = "".join(each.text for each in events if isinstance(each, TextDelta))
    assert (thinking, text) == ("\nHm, a < b.\n", "The answer <think> is 5.")


@pytest.mark.parametrize("text", ["<thin", "<b>bold</b>", " plain", "<", "x <think>y</think>"])
def test_other_text_is_not_changed(text: str) -> None:
    events = read(*(chunk({"content": letter}) for letter in text), chunk({}, "stop"))
    assert "".join(each.text for each in events if isinstance(each, TextDelta)) == text


def test_reasoning_that_never_ends_is_reasoning() -> None:
    assert read(chunk({"content": "<think>Hm"}), chunk({}, "length")) == [
        ThinkingDelta("Hm"),
        Finished(stop="max_tokens"),
    ]
