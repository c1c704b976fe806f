"""A model whose calls are counted and traced. Its output is unchanged."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from dragoman.engine.instrumentation.metrics import MODEL_CALLS, MODEL_SECONDS, MODEL_TOKENS
from dragoman.engine.instrumentation.tracing import end_failed, model_span
from dragoman.ports.models import Finished, Model, ModelEvent, ModelFailed, ModelRequest


class CountedModel:
    """Wraps a model.

    Args:
        model: the model.
        name: its name in metrics and spans, such as `openai:gpt-5-mini`.
    """

    def __init__(self, model: Model, name: str) -> None:
        self._model = model
        self._name = name
        self.accepts_images: bool = getattr(model, "accepts_images", True)
        self.accepts_files: bool = getattr(model, "accepts_files", True)

    @property
    def context_window(self) -> int | None:
        """The context window of the wrapped model, in tokens."""
        return self._model.context_window

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream the answer of the wrapped model."""
        started_at, outcome, span = time.perf_counter(), "cancelled", model_span(self._name)
        finished: Finished | None = None
        is_first = True
        try:
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    if is_first:
                        is_first = False
                        MODEL_SECONDS.labels(model=self._name).observe(time.perf_counter() - started_at)
                    if type(event) is Finished:
                        finished = event
                    yield event
            outcome = "finished" if finished is None else finished.stop
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            outcome = error.code if isinstance(error, ModelFailed) else "failed"
            end_failed(span, error)
            span = None
            raise
        finally:
            MODEL_CALLS.labels(model=self._name, outcome=outcome).inc()
            usage = None if finished is None else finished.usage
            if usage is not None:
                MODEL_TOKENS.labels(model=self._name, direction="read").inc(usage.input_tokens)
                MODEL_TOKENS.labels(model=self._name, direction="written").inc(usage.output_tokens)
            if span is not None:
                span.set_attribute("gen_ai.response.finish_reasons", (outcome,))
                if usage is not None:
                    span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
                    span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
                span.end()
