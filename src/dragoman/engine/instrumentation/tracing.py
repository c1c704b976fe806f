"""Spans: one for a run, one for a tool call, one for a model call; never one for a delta.

Only the API of OpenTelemetry, and not even that until somebody asks for spans: then a span that goes nowhere costs
about 0.3 microseconds, where the API's own would cost 2. With an SDK it is about 11. The names are those of
OpenTelemetry's conventions for generative AI.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from structlog.contextvars import bind_contextvars

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_NO_SPAN: "AbstractContextManager[Span | None]" = nullcontext()


class _Tracing:
    tracer: "Tracer | None" = None


def enable() -> None:
    """Make spans from now on, with whatever SDK the process has set up."""
    from opentelemetry import trace

    _Tracing.tracer = trace.get_tracer("dragoman")


def disable() -> None:
    """Make no more spans."""
    _Tracing.tracer = None


def run_span(agent: str, session_id: str, run_id: str) -> "AbstractContextManager[Span | None]":
    """The span of a run. What its task logs from here on carries the ids of the session and the run."""
    bind_contextvars(session_id=session_id, run_id=run_id)
    if _Tracing.tracer is None:
        return _NO_SPAN
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent,
        "gen_ai.conversation.id": session_id,
        "dragoman.run.id": run_id,
    }
    return _current_span(_Tracing.tracer, f"invoke_agent {agent}", attributes)


def tool_span(name: str, call_id: str) -> "AbstractContextManager[Span | None]":
    """The span of a tool call."""
    if _Tracing.tracer is None:
        return _NO_SPAN
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": call_id,
    }
    return _current_span(_Tracing.tracer, f"execute_tool {name}", attributes)


def model_span(model: str) -> "Span | None":
    """The span of a model call. It is not the current one, and whoever asked for it ends it.

    A model's answer is an iterator that stops between two words, where its task does other things.
    """
    if _Tracing.tracer is None:
        return None
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
    return _Tracing.tracer.start_span(f"chat {model}", attributes=attributes)


def end_failed(span: "Span | None", error: BaseException) -> None:
    """End a span with the kind of the error that ended its work."""
    if span is not None:
        _note_failure(span, error)
        span.end()


@contextmanager
def _current_span(tracer: "Tracer", name: str, attributes: Mapping[str, str]) -> "Iterator[Span]":
    with tracer.start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except Exception as error:
            _note_failure(span, error)
            raise


def _note_failure(span: "Span", error: BaseException) -> None:
    """Its kind alone: the text of an error, and the frames of its trace, may hold what belongs to a user."""
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR))
