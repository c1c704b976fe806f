"""Runs whose clients disconnected: they are stopped, unless somebody else reads them."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

import structlog

from dragoman.core.ids import RunId, SessionId
from dragoman.core.refusals import SessionBusy
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView

DISCONNECT_GRACE_S = 0.3
"""How long a new message waits for the previous run's client to disconnect.

A client that stops a run closes one connection and opens another; either may reach the server first.
"""
POLL_INTERVAL_S = 0.005

log = structlog.get_logger(__name__)


class AbandonedRuns:
    """Stops the runs of one protocol whose clients disconnect.

    Args:
        engine: the engine.
        protocol: the protocol.
        on_stopped: called with the session after such a run was stopped, or was left alone because somebody reads it.
    """

    def __init__(
        self, engine: Engine, protocol: str, on_stopped: Callable[[SessionView], None] = lambda session: None
    ) -> None:
        self._engine = engine
        self._protocol = protocol
        self._on_stopped = on_stopped
        self._stopping: dict[SessionId, asyncio.Task[bool]] = {}

    def stop(self, session: SessionView, run_id: RunId) -> None:
        """Stop a run that nobody reads, in a separate task: the request's task is being cancelled."""
        if session.reader_count:
            return
        session_id, lease = session.state.session_id, ExitStack()
        lease.enter_context(self._engine.lease(session))

        def done(task: asyncio.Task[bool]) -> None:
            lease.close()
            if self._stopping.get(session_id) is task:
                del self._stopping[session_id]
            if not task.cancelled() and (error := task.exception()) is not None:
                log.warning("failed to stop an abandoned run", session_id=session_id, exc_info=error)
            self._on_stopped(session)

        task = asyncio.create_task(
            self._engine.stop_run(session, run_id, only_if_unwatched=True), name=f"stop {run_id}"
        )
        self._stopping[session_id] = task
        task.add_done_callback(done)

    def on_close(self, session: SessionView, run_id: RunId) -> Callable[[bool], None]:
        """What to call when the answer to the client that started a run closes: it stops the run if the client left."""

        def close(has_disconnected: bool) -> None:
            if has_disconnected:
                self.stop(session, run_id)

        return close

    async def until_stopped(self, session: SessionView) -> None:
        """Wait for the end of a run that is being stopped because its client disconnected."""
        stopping = self._stopping.get(session.state.session_id)
        if stopping is not None:
            await asyncio.wait([stopping])

    async def stop_active(self, session: SessionView) -> None:
        """Stop the active run if a client of this protocol started it and nobody reads it any more.

        Raises:
            SessionBusy: another protocol's client started it, it is still read, or runs are queued after it.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + DISCONNECT_GRACE_S
        while True:
            await self.until_stopped(session)
            active = session.state.run
            if active is None and not session.state.queue:
                return
            if active is None or active.protocol != self._protocol or session.state.queue or clock() > deadline:
                raise SessionBusy
            if not await self._engine.stop_run(session, active.run_id, only_if_unwatched=True):
                await asyncio.sleep(POLL_INTERVAL_S)
