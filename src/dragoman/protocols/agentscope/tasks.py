"""Background tasks: ordinary runs with a deadline of their own, which holds over a restart too (section 7.3).

The deadline stands in the log, with what the door noted about the run. Here it is only watched.
"""

import asyncio
from datetime import datetime

import structlog

from dragoman.core.ids import RunId
from dragoman.core.refusals import Refused
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.agentscope import wire
from dragoman.protocols.agentscope.inputs import read_run_metadata
from dragoman.protocols.agentscope.translate import ResponseEvents

QUEUE = "dragoman"
"""The name of the one queue, which the answers of this protocol have to tell."""
TIMER_MARGIN_S = 0.02
"""By how much a timer may be early, seen from the clock."""

log = structlog.get_logger(__name__)


class Deadlines:
    """Stops tasks whose time is up."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stopping: set[asyncio.Task[None]] = set()
        if engine.cluster is not None:
            engine.cluster.on_taken_over(self._resume)

    def resume(self) -> None:
        """Watch the tasks that were taken up after a restart."""
        for live in self._engine.running_sessions():
            self._resume(live)

    def _resume(self, live: SessionView) -> None:
        run = live.state.run
        if run is None:  # it has just ended, and its task is on its way out
            return
        deadline = read_run_metadata(run.protocol, run.metadata).deadline
        if deadline is not None:
            self.schedule_stop(live, run.run_id, deadline)

    def schedule_stop(self, live: SessionView, run_id: RunId, deadline: datetime) -> None:
        """Stop an active run when its time is up."""
        left_s = max(0.0, (deadline - self._engine.clock.now()).total_seconds()) + TIMER_MARGIN_S
        timer = asyncio.get_running_loop().call_later(left_s, self._stop, live, run_id)
        self._engine.on_run_end(live, timer.cancel)

    def _stop(self, live: SessionView, run_id: RunId) -> None:
        task = asyncio.create_task(self._stop_run(live, run_id), name="the end of a task's time")
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _stop_run(self, live: SessionView, run_id: RunId) -> None:
        try:
            await self._engine.stop_run(live, run_id)
        except Refused as refused:
            log.info("task not stopped", session_id=live.state.session_id, run_id=run_id, why=str(refused))


def task_submitted(task_id: str, response_id: str, session_id: str) -> wire.TaskSubmitted:
    """The answer to a new task."""
    return wire.TaskSubmitted(
        task_id=task_id,
        queue=QUEUE,
        message=f"Task {task_id} submitted to queue {QUEUE}",
        response_id=response_id,
        session_id=session_id,
    )


def task_state(task_id: str, events: ResponseEvents) -> wire.TaskState:
    """How a task stands, after all records of its run so far."""
    response, begun = events.response, events.started_at
    if response is None or begun is None:
        return wire.TaskState(task_id=task_id, status="pending", result=None)
    if not events.is_over:
        return wire.TaskState(task_id=task_id, status="running", result=None, started_at=begun.timestamp())
    if events.is_timed_out:
        assert response.error is not None, "what failed says why"
        return wire.TaskState(task_id=task_id, status="error", result=response.error.message)
    return wire.TaskState(task_id=task_id, status="finished", result=response)
