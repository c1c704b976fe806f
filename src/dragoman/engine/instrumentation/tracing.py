"""Spans: one for a run, one for a tool call, one for a model call; never one for a delta.

Only the OpenTelemetry API is used, and it is imported only when tracing is enabled: without tracing a span costs about
0.3 microseconds instead of the API's 2; with an SDK it costs about 11. The names follow OpenTelemetry's conventions for
generative AI.
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
    """Enable spans, with the SDK that the process has configured."""
    from opentelemetry import trace

    _Tracing.tracer = trace.get_tracer("dragoman")


def disable() -> None:
    """Disable spans."""
    _Tracing.tracer = None


def run_span(agent: str, session_id: str, run_id: str) -> "AbstractContextManager[Span | None]":
    """The span of a run. Log records of its task have the ids of the session and the run from here on."""
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
    """The span of a model call. It is not made current, and the caller has to end it.

    A model's answer is an iterator, and its task does other things between two deltas.
    """
    if _Tracing.tracer is None:
        return None
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
    return _Tracing.tracer.start_span(f"chat {model}", attributes=attributes)


def end_failed(span: "Span | None", error: BaseException) -> None:
    """End a span with the type of the error that ended its work."""
    if span is not None:
        _record_failure(span, error)
        span.end()


@contextmanager
def _current_span(tracer: "Tracer", name: str, attributes: Mapping[str, str]) -> "Iterator[Span]":
    with tracer.start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except Exception as error:
            _record_failure(span, error)
            raise


def _record_failure(span: "Span", error: BaseException) -> None:
    """Record only the type: the message and the traceback of an error may contain user data."""
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR))
