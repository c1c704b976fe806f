"""Calls that several tasks of an agent function make at the same moment, as one model step.

A step is closed, and its calls are executed together, before the next one begins. A function that starts two tasks, of
which each makes a call, makes them in the same cycle of the event loop: they belong to one step. A call that comes
while a step is executed belongs to the next one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from dragoman.core.content import JsonObject, ToolMessage

RequestedCall = tuple[str, JsonObject]
"""The name of a tool, and the arguments."""


class _Batch:
    def __init__(self) -> None:
        self.calls: list[RequestedCall] = []
        self.results: asyncio.Future[Sequence[ToolMessage]] = asyncio.get_running_loop().create_future()


class StepBatcher:
    """Collects the calls of one step.

    Args:
        make_step: makes a step of the calls, and returns their results in order.
    """

    def __init__(self, make_step: Callable[[Sequence[RequestedCall]], Awaitable[Sequence[ToolMessage]]]) -> None:
        self._make_step = make_step
        self._open: _Batch | None = None
        """The step that other tasks can still join."""
        self._executing: _Batch | None = None

    async def make(self, calls: Sequence[RequestedCall]) -> Sequence[ToolMessage]:
        """Make calls in one step, together with those that other tasks make at the same moment.

        Raises:
            Paused: a call of the step waits for the application.
        """
        while self._open is None and self._executing is not None:
            await asyncio.wait([self._executing.results])
        batch = self._open
        if batch is not None:
            first = len(batch.calls)
            batch.calls += calls
            return (await asyncio.shield(batch.results))[first : first + len(calls)]
        batch = self._open = _Batch()
        batch.calls += calls
        try:
            await asyncio.sleep(0)  # the function's other tasks join
            self._open, self._executing = None, batch
            results = await self._make_step(batch.calls)
            batch.results.set_result(results)
            return results[: len(calls)]
        except BaseException as error:  # also Paused: the tasks that joined end like this one
            batch.results.set_exception(error)
            batch.results.exception()  # there may be nobody who joined
            raise
        finally:
            self._open = self._executing = None
