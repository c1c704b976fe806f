"""A model that is tried again, and replaced by others, as long as its answer has not begun."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from itertools import count
from typing import NamedTuple

import msgspec
import structlog

from dragoman.core.content import ToolMessage
from dragoman.ports.models import (
    ContextTooLong,
    Finished,
    Model,
    ModelEvent,
    ModelFailed,
    ModelRequest,
    ModelUnavailable,
)

BACKOFF_S = 0.5
"""Delay before the first retry; it doubles with each further one."""
MAX_BACKOFF_S = 8.0

log = structlog.get_logger(__name__)


class NamedModel(NamedTuple):
    """A model with its name for the log and the history."""

    name: str
    model: Model


class RetryingModel:
    """Calls the first model that answers.

    A call that fails as unavailable before its first event, or that has an empty answer, is repeated. If that does not
    help, or the model rejects the request, the next model gets it. Nothing is repeated once an answer has begun.

    Args:
        models: the model, and its fallbacks in order.
        retries: how often a call of each model is repeated.
        max_delay_s: the longest delay before a retry. A server that asks for more is not tried again.
        shows_errors: whether clients receive the message of a model's error.
        sleep: waits the given number of seconds before a retry.
    """

    def __init__(
        self,
        models: Sequence[NamedModel],
        *,
        retries: int,
        max_delay_s: float,
        shows_errors: bool = False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._models = models
        self._retries = retries
        self._max_delay_s = max_delay_s
        self._shows_errors = shows_errors
        self._sleep = sleep
        first = models[0].model
        self.accepts_images: bool = getattr(first, "accepts_images", True)
        self.accepts_files: bool = getattr(first, "accepts_files", True)

    @property
    def context_window(self) -> int | None:
        """The context window of the first model, in tokens."""
        return self._models[0].model.context_window

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Call the model, and stream its answer."""
        for index, named in enumerate(self._models):
            has_begun = False
            try:
                async with aclosing(self._stream_with_retries(named, request)) as events:
                    async for event in events:
                        has_begun = True
                        if index and isinstance(event, Finished):
                            event = msgspec.structs.replace(event, model=named.name)
                        yield event
                return
            except ModelFailed as error:
                is_last = named is self._models[-1]
                if has_begun or is_last or isinstance(error, ContextTooLong):
                    if self._shows_errors and error.shown_message is None:
                        error.shown_message = f"The model {named.name} failed: {error}"
                    raise
                log.warning("model failed, using a fallback", model=named.name, error=str(error))

    async def _stream_with_retries(self, named: NamedModel, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        for attempt in count():
            has_begun = False
            try:
                async with aclosing(named.model.stream(request)) as events:
                    async for event in events:
                        if not has_begun and _is_empty_answer(event, request):
                            raise ModelUnavailable("the answer was empty")
                        has_begun = True
                        yield event
                return
            except ModelUnavailable as error:
                delay_s = max(min(BACKOFF_S * 2**attempt, MAX_BACKOFF_S), error.retry_after_s or 0)
                if has_begun or attempt >= self._retries or not error.may_retry or delay_s > self._max_delay_s:
                    raise
                log.warning("model unavailable, retrying", model=named.name, error=str(error), delay_s=delay_s)
            await self._sleep(delay_s)


def _is_empty_answer(first: ModelEvent, request: ModelRequest) -> bool:
    """Whether an answer that begins with this event says nothing. After the result of a tool a model may be silent."""
    is_end = isinstance(first, Finished) and first.stop == "end_turn"
    return is_end and not (request.messages and isinstance(request.messages[-1], ToolMessage))
