"""Background tasks: ordinary runs, possibly with a deadline (section 7.3).

The deadline is stored with the run, so it survives a restart. This module only watches it.
"""

import asyncio
from datetime import datetime

import structlog

from dragoman.core.ids import RunId
from dragoman.core.refusals import Refused
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.agentscope import wire
from dragoman.protocols.agentscope.inputs import read_response_options
from dragoman.protocols.agentscope.translate import ResponseEvents

TIMER_MARGIN_S = 0.02
"""By how much a timer may fire early, compared to the clock."""

log = structlog.get_logger(__name__)


class Deadlines:
    """Stops tasks at their deadlines."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stopping: set[asyncio.Task[None]] = set()
        engine.cluster.on_taken_over(self._resume)

    def resume(self) -> None:
        """Watch the tasks that were recovered after a restart."""
        for session in self._engine.running_sessions():
            self._resume(session)

    def _resume(self, session: SessionView) -> None:
        run = session.state.run  # None if the run has just ended
        deadline = None if run is None else read_response_options(run.protocol, run.metadata).deadline
        if run is not None and deadline is not None:
            self.schedule_stop(session, run.run_id, deadline)

    def schedule_stop(self, session: SessionView, run_id: RunId, deadline: datetime) -> None:
        """Stop an active run at its deadline."""
        left_s = max(0.0, (deadline - self._engine.clock.now()).total_seconds()) + TIMER_MARGIN_S
        timer = asyncio.get_running_loop().call_later(left_s, self._stop, session, run_id)
        self._engine.on_run_end(session, timer.cancel)

    def _stop(self, session: SessionView, run_id: RunId) -> None:
        task = asyncio.create_task(self._stop_run(session, run_id), name="stop a task at its deadline")
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _stop_run(self, session: SessionView, run_id: RunId) -> None:
        try:
            await self._engine.stop_run(session, run_id)
        except Refused as refused:
            log.info("task not stopped", session_id=session.state.session_id, run_id=run_id, reason=str(refused))


def task_state(task_id: str, events: ResponseEvents) -> wire.TaskState:
    """The state of a task whose records so far were fed to `events`."""
    response, started_at = events.response, events.started_at
    if response is None or started_at is None:
        return wire.TaskState(task_id=task_id, status="pending", result=None)
    if not events.is_over:
        return wire.TaskState(task_id=task_id, status="running", result=None, started_at=started_at.timestamp())
    if events.is_timed_out:
        assert response.error is not None, "a failed response has an error"
        return wire.TaskState(task_id=task_id, status="error", result=response.error.message)
    return wire.TaskState(task_id=task_id, status="finished", result=response)
