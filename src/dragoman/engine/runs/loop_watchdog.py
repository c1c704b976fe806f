"""Logs what blocks the event loop: while code computes or waits without `await`, no stream continues.

A thread detects the block while it lasts and logs the line of code that causes it.
"""

import asyncio
import sys
import threading
import time
from itertools import islice, takewhile
from traceback import walk_stack
from types import FrameType

import structlog

from dragoman.engine.runs.run_context import LoopRun

BLOCKED_THRESHOLD_S = 1.0
"""Time without a heartbeat after which the loop counts as blocked."""
HEARTBEATS_PER_THRESHOLD = 4
"""Heartbeats and checks per threshold."""
MAX_STACK_LINES = 6
"""Logged lines of the stack, innermost first."""

log = structlog.get_logger(__name__)


class LoopWatchdog:
    """A thread that checks whether the loop responds. Use it as a context manager, on the loop."""

    def __init__(self, threshold_s: float = BLOCKED_THRESHOLD_S) -> None:
        self._threshold_s = threshold_s
        self._heartbeat_interval_s = threshold_s / HEARTBEATS_PER_THRESHOLD
        self._last_heartbeat_at = 0.0
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle
        self._loop_thread_id = 0
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="dragoman-watchdog", daemon=True)

    def __enter__(self) -> "LoopWatchdog":
        self._loop, self._loop_thread_id = asyncio.get_running_loop(), threading.get_ident()
        self._heartbeat()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        self._is_stopped.set()
        self._thread.join()

    def _heartbeat(self) -> None:
        self._last_heartbeat_at = time.monotonic()
        self._timer = self._loop.call_later(self._heartbeat_interval_s, self._heartbeat)

    def _watch(self) -> None:
        blocked: float | None = None
        while not self._is_stopped.wait(self._heartbeat_interval_s):
            last = self._last_heartbeat_at
            if blocked is not None and last > blocked:
                log.warning("the event loop is no longer blocked", blocked_s=round(last - blocked, 1))
                blocked = None
            elif blocked is None and time.monotonic() - last > self._threshold_s + self._heartbeat_interval_s:
                blocked = last
                frame = sys._current_frames().get(self._loop_thread_id)
                log.warning(
                    "the event loop is blocked",
                    note="no stream continues meanwhile: code that computes, or waits without await, must not be async",
                    **_current_run(frame),
                    at=_stack_lines(frame),
                )


def _current_run(frame: FrameType | None) -> dict[str, str]:
    """The run whose code blocks the loop, if any."""
    for each, _ in walk_stack(frame):
        run = each.f_locals.get("run")
        if isinstance(run, LoopRun):
            return {"agent": run.agent.spec.name, "session_id": run.session_id, "run_id": run.run_id}
    return {}


def _stack_lines(frame: FrameType | None) -> list[str]:
    """The innermost lines of the stack, up to the loop's own."""
    inside = takewhile(lambda each: each[0].f_globals.get("__name__") != "asyncio.runners", walk_stack(frame))
    return [f"{each.f_code.co_filename}:{line} {each.f_code.co_name}" for each, line in islice(inside, MAX_STACK_LINES)]
