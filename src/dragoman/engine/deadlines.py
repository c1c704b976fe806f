"""Runs with a deadline. It is stored with the run, so that it survives a restart; here it is only watched."""

import asyncio
from collections.abc import Callable
from datetime import datetime

import structlog

from dragoman.core.ids import RunId
from dragoman.core.refusals import Refused
from dragoman.core.run_metadata import RunMetadata
from dragoman.engine.background_tasks import BackgroundTasks
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView

TIMER_MARGIN_S = 0.02
"""By how much a timer may fire early, compared to the clock."""

log = structlog.get_logger(__name__)


class Deadlines:
    """Stops the runs of one protocol at their deadlines, including runs recovered after a restart.

    Args:
        engine: the engine.
        deadline_of: reads the deadline of a run, if it has one, from its protocol and its metadata.
    """

    def __init__(self, engine: Engine, deadline_of: Callable[[str, RunMetadata], datetime | None]) -> None:
        self._engine = engine
        self._deadline_of = deadline_of
        self._stopping = BackgroundTasks()
        engine.cluster.on_taken_over(self._resume)
        for session in engine.running_sessions():
            self._resume(session)

    def _resume(self, session: SessionView) -> None:
        run = session.state.run  # None if the run has just ended
        deadline = None if run is None else self._deadline_of(run.protocol, run.metadata)
        if run is not None and deadline is not None:
            self.schedule_stop(session, run.run_id, deadline)

    def schedule_stop(self, session: SessionView, run_id: RunId, deadline: datetime) -> None:
        """Stop an active run at its deadline."""
        left_s = max(0.0, (deadline - self._engine.clock.now()).total_seconds()) + TIMER_MARGIN_S
        timer = asyncio.get_running_loop().call_later(left_s, self._stop, session, run_id)
        self._engine.on_run_end(session, timer.cancel)

    def _stop(self, session: SessionView, run_id: RunId) -> None:
        self._stopping.start(self._stop_run(session, run_id), "stop a run at its deadline")

    async def _stop_run(self, session: SessionView, run_id: RunId) -> None:
        try:
            await self._engine.stop_run(session, run_id)
        except Refused as refused:
            log.info("run not stopped", session_id=session.state.session_id, run_id=run_id, reason=str(refused))
