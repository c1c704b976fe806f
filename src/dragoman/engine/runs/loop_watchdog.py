"""Tells who keeps the event loop: while somebody computes, or waits without `await`, nobody's stream goes on.

Nothing can be done about it from inside the loop, and little from outside: it is told while it lasts, with the line of
code where it happens, so that whoever wrote that line finds it.
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
"""From here on the loop counts as blocked."""
HEARTBEATS_PER_THRESHOLD = 4
"""How often in that time the loop shows that it turns, and is looked after."""
MAX_STACK_LINES = 6
"""Lines of the stack that are told, the innermost first."""

log = structlog.get_logger(__name__)


class LoopWatchdog:
    """A thread that looks whether the loop still turns. Use it as a context manager, on the loop."""

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
            beaten = self._last_heartbeat_at
            if blocked is not None and beaten > blocked:
                log.warning("the event loop goes on", blocked_s=round(beaten - blocked, 1))
                blocked = None
            elif blocked is None and time.monotonic() - beaten > self._threshold_s + self._heartbeat_interval_s:
                blocked = beaten
                frame = sys._current_frames().get(self._loop_thread_id)
                log.warning(
                    "the event loop is blocked",
                    note="no stream goes on meanwhile: what computes, or waits without await, must not be async",
                    **_current_run(frame),
                    at=_stack_lines(frame),
                )


def _current_run(frame: FrameType | None) -> dict[str, str]:
    """The run whose code has the loop, if one's has."""
    for each, _ in walk_stack(frame):
        run = each.f_locals.get("run")
        if isinstance(run, LoopRun):
            return {"agent": run.agent.spec.name, "session_id": run.session_id, "run_id": run.run_id}
    return {}


def _stack_lines(frame: FrameType | None) -> list[str]:
    """The innermost lines of the stack, up to the loop's own."""
    inside = takewhile(lambda each: each[0].f_globals.get("__name__") != "asyncio.runners", walk_stack(frame))
    return [f"{each.f_code.co_filename}:{line} {each.f_code.co_name}" for each, line in islice(inside, MAX_STACK_LINES)]
