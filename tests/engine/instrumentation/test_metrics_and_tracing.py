"""Metrics and spans: what is counted and shown, and that neither contains users' data."""

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client.parser import text_string_to_metric_families

from dragoman.core.content import Usage
from dragoman.engine.instrumentation import metrics, tracing
from dragoman.engine.instrumentation.counted_model import CountedModel
from dragoman.engine.instrumentation.metrics import Counter, Gauge, Histogram
from dragoman.engine.instrumentation.tracing import model_span, run_span, tool_span
from dragoman.ports.models import Finished, Model, ModelEvent, ModelRequest, ModelUnavailable, TextDelta

CANARY = "canary-5e8f"


def samples() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All numbers of the exposition, as a reader of the format finds them."""
    text = metrics.exposition().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


# --- metrics ----------------------------------------------------------------------------------------------------------


def test_counted_values_are_exposed() -> None:
    before = samples()
    metrics.RUNS_STARTED.inc()
    metrics.RUNS_STOPPED.labels(reason="end_turn").inc(2)
    metrics.RUNS_ACTIVE.inc()
    metrics.RUNS_ACTIVE.dec()
    metrics.COMMIT_SECONDS.observe(0.003)
    metrics.COMMIT_SECONDS.observe(100)
    after = samples()

    def grown(name: str, **labels: str) -> float:
        key = (name, tuple(sorted(labels.items())))
        return after[key] - before.get(key, 0)

    assert grown("dragoman_runs_started_total") == 1
    assert grown("dragoman_runs_stopped_total", reason="end_turn") == 2
    assert grown("dragoman_runs_active") == 0
    assert grown("dragoman_commit_seconds_bucket", le="0.0025") == 0
    assert grown("dragoman_commit_seconds_bucket", le="0.005") == 1
    assert grown("dragoman_commit_seconds_bucket", le="+Inf") == 2
    assert grown("dragoman_commit_seconds_sum") == pytest.approx(100.003)


def test_metrics_of_the_process_are_exposed() -> None:
    names = {name for name, _ in samples()}
    assert {"process_resident_memory_bytes", "process_open_fds", "python_gc_collections_total"} <= names


def test_every_metric_is_defined_once_and_by_the_rules_of_prometheus() -> None:
    names = [metric.name for metric in metrics.ALL_METRICS]
    assert len(set(names)) == len(names) > 10
    for metric in metrics.ALL_METRICS:
        assert metric.name.startswith("dragoman_")
        assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket")), "the format adds these"
        assert metric.help
        assert not metric.help.endswith(".")


def test_a_label_that_a_metric_does_not_have_is_refused() -> None:
    metric = Gauge("", "", ["protocol"])
    with pytest.raises(KeyError):
        metric.labels(session="x")
    with pytest.raises(AssertionError):
        metric.labels(protocol="aap", session="x")


def test_label_values_of_a_metric_are_counted_separately() -> None:
    counter, histogram = Counter("", "", ["code"]), Histogram("", "", ["model"], bounds=(1.0,))
    counter.labels(code="a").inc()
    counter.labels(code="b").inc(5)
    histogram.labels(model="m").observe(1.0)
    assert {key: part.value for key, part in counter.children.items()} == {("a",): 1, ("b",): 5}
    assert histogram.labels(model="m").counts == [1, 0]


# --- spans ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Spans are made, and found here when they have ended."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    tracing.enable()
    yield exporter
    tracing.disable()
    provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_no_span_is_created_unless_tracing_is_enabled() -> None:
    with run_span("assistant", "s", "r") as run, tool_span("add", "c") as tool:
        assert (run, tool, model_span("m")) == (None, None, None)


def test_a_tool_call_is_below_its_run(spans: InMemorySpanExporter) -> None:
    with run_span("assistant", "s-1", "r-1"), tool_span("add", "c-1"):
        pass
    tool, run = spans.get_finished_spans()
    assert (run.name, attributes(run)) == (
        "invoke_agent assistant",
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "assistant",
            "gen_ai.conversation.id": "s-1",
            "dragoman.run.id": "r-1",
        },
    )
    assert (tool.name, attributes(tool)) == (
        "execute_tool add",
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add", "gen_ai.tool.call.id": "c-1"},
    )
    assert tool.parent is not None
    assert run.context is not None
    assert tool.parent.span_id == run.context.span_id


def test_a_span_shows_the_type_of_a_failure_but_not_its_message(spans: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match=CANARY), run_span("assistant", "s", "r"), tool_span("add", "c"):
        raise ValueError(CANARY)
    for span in spans.get_finished_spans():
        assert attributes(span)["error.type"] == "ValueError"
        assert span.status.status_code is StatusCode.ERROR
        assert CANARY not in span.to_json()


# --- model calls ------------------------------------------------------------------------------------------------------


class ScriptedModel:
    """A scripted model that knows whether its stream was closed."""

    context_window = 4096

    def __init__(self, *said: ModelEvent | BaseException) -> None:
        self.parts = said
        self.is_closed = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        try:
            for each in self.parts:
                if isinstance(each, BaseException):
                    raise each
                yield each
        finally:
            self.is_closed = True


REQUEST = ModelRequest(model="m", messages=())
ANSWER = (TextDelta("Hel"), TextDelta("lo"), Finished(stop="end_turn", usage=Usage(input_tokens=7, output_tokens=2)))


async def test_a_counted_model_returns_the_models_output_unchanged() -> None:
    model: Model = CountedModel(ScriptedModel(*ANSWER), "test:plain")
    assert model.context_window == 4096
    assert [event async for event in model.stream(REQUEST)] == list(ANSWER)


async def test_a_model_call_is_counted_with_its_tokens_and_traced(spans: InMemorySpanExporter) -> None:
    [event async for event in CountedModel(ScriptedModel(*ANSWER), "test:counted").stream(REQUEST)]
    shown = samples()
    assert shown["dragoman_model_calls_total", (("model", "test:counted"), ("outcome", "end_turn"))] == 1
    assert shown["dragoman_model_tokens_total", (("direction", "read"), ("model", "test:counted"))] == 7
    assert shown["dragoman_model_tokens_total", (("direction", "written"), ("model", "test:counted"))] == 2
    assert shown["dragoman_model_first_seconds_count", (("model", "test:counted"),)] == 1
    (span,) = spans.get_finished_spans()
    assert (span.name, attributes(span)) == (
        "chat test:counted",
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "test:counted",
            "gen_ai.response.finish_reasons": ("end_turn",),
            "gen_ai.usage.input_tokens": 7,
            "gen_ai.usage.output_tokens": 2,
        },
    )


async def test_a_failed_model_call_is_counted_and_raised(spans: InMemorySpanExporter) -> None:
    model = CountedModel(ScriptedModel(TextDelta("Hel"), ModelUnavailable(CANARY)), "test:failing")
    with pytest.raises(ModelUnavailable, match=CANARY):
        [event async for event in model.stream(REQUEST)]
    shown = samples()
    assert shown["dragoman_model_calls_total", (("model", "test:failing"), ("outcome", "model_unavailable"))] == 1
    (span,) = spans.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR
    assert CANARY not in span.to_json()


async def test_closing_a_model_call_closes_the_models_stream() -> None:
    scripted = ScriptedModel(*ANSWER)
    stream = CountedModel(scripted, "test:left").stream(REQUEST)
    async with aclosing(cast("Any", stream)):
        assert await anext(stream) == TextDelta("Hel")
    assert scripted.is_closed
    assert samples()["dragoman_model_calls_total", (("model", "test:left"), ("outcome", "cancelled"))] == 1


# --- docs -------------------------------------------------------------------------------------------------------------


def test_every_metric_has_its_line_in_the_docs_with_its_labels() -> None:
    page = (Path(__file__).parents[3] / "docs" / "observability.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(dragoman_\w+?)(_total)?` \| (\w+) \|(.*?)\| .+ \|$", page, re.MULTILINE)
    documented = [(name, kind, bool(total), re.findall(r"`(\w+)`", labels)) for name, total, kind, labels in rows]
    assert documented == [
        (metric.name, type(metric).__name__.lower(), type(metric) is Counter, list(metric.label_names))
        for metric in metrics.ALL_METRICS
    ]
