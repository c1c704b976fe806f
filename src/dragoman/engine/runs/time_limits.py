"""The time limit of runs. All have the same one, so the oldest ends first, and one timer serves them all."""

import asyncio
from collections.abc import Callable

Task = asyncio.Task[None]


class TimeLimits:
    """Counts the time of the runs' tasks.

    Args:
        limit_s: the time that a run may take.
        on_late: called with each task that has taken so long.
    """

    def __init__(self, limit_s: float, on_late: Callable[[Task], None]) -> None:
        self._limit_s = limit_s
        self._on_late = on_late
        self._deadlines: dict[Task, float] = {}
        """By the clock of the event loop, the earliest first."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self, task: Task) -> None:
        """Start to count a task's time, or restart."""
        self._deadlines.pop(task, None)
        loop = asyncio.get_running_loop()
        self._deadlines[task] = loop.time() + self._limit_s
        if self._timer is None:
            self._timer = loop.call_later(self._limit_s, self._check)

    def stop(self, task: Task) -> None:
        """Stop counting a task's time. The timer stays for the next one."""
        self._deadlines.pop(task, None)

    def close(self) -> None:
        """Stop the timer. No task is late any more."""
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._deadlines:
            task, deadline = next(iter(self._deadlines.items()))
            if deadline > loop.time():
                self._timer = loop.call_at(deadline, self._check)
                return
            del self._deadlines[task]
            self._on_late(task)
