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

BLOCKED_S = 1.0
"""From here on the loop counts as blocked."""
BEATS = 4
"""How often in that time the loop shows that it turns, and is looked after."""
LINES = 6
"""Lines of the stack that are told, the innermost first."""

log = structlog.get_logger(__name__)


class Watchdog:
    """A thread that looks whether the loop still turns. Use it as a context manager, on the loop."""

    def __init__(self, blocked_s: float = BLOCKED_S) -> None:
        self._blocked_s = blocked_s
        self._beat_s = blocked_s / BEATS
        self._beaten = 0.0
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle
        self._watched = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="dragoman-watchdog", daemon=True)

    def __enter__(self) -> "Watchdog":
        self._loop, self._watched = asyncio.get_running_loop(), threading.get_ident()
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        self._is_over.set()
        self._thread.join()

    def _beat(self) -> None:
        self._beaten = time.monotonic()
        self._timer = self._loop.call_later(self._beat_s, self._beat)

    def _watch(self) -> None:
        blocked: float | None = None
        while not self._is_over.wait(self._beat_s):
            beaten = self._beaten
            if blocked is not None and beaten > blocked:
                log.warning("the event loop goes on", blocked_s=round(beaten - blocked, 1))
                blocked = None
            elif blocked is None and time.monotonic() - beaten > self._blocked_s + self._beat_s:
                blocked = beaten
                frame = sys._current_frames().get(self._watched)
                log.warning(
                    "the event loop is blocked",
                    note="no stream goes on meanwhile: what computes, or waits without await, must not be async",
                    **_who(frame),
                    at=_lines(frame),
                )


def _who(frame: FrameType | None) -> dict[str, str]:
    """The run whose code has the loop, if one's has."""
    for each, _ in walk_stack(frame):
        run = each.f_locals.get("run")
        if isinstance(run, LoopRun):
            return {"agent": run.agent.spec.name, "session_id": run.session_id, "run_id": run.run_id}
    return {}


def _lines(frame: FrameType | None) -> list[str]:
    """The innermost lines of the stack, up to the loop's own."""
    inside = takewhile(lambda each: each[0].f_globals.get("__name__") != "asyncio.runners", walk_stack(frame))
    return [f"{each.f_code.co_filename}:{line} {each.f_code.co_name}" for each, line in islice(inside, LINES)]
