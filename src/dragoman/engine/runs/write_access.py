"""Write access to sessions: directly, or through the server that executes the session's run.

at rest ──claimed──► written here            running here ──► written here
                                             running elsewhere ──► a command to that server
"""

from types import TracebackType
from typing import assert_never

from dragoman.core import admission
from dragoman.core.events import RunQueued, SettingsChange, SettingsChanged
from dragoman.core.ids import RunId
from dragoman.core.input_checks import InputLimits
from dragoman.core.refusals import SessionBusy
from dragoman.core.session import apply_change
from dragoman.engine.cluster.cluster import Cluster
from dragoman.engine.cluster.remote_commands import ChangeSettings, Command, Done, Enqueue, Moved, Stop
from dragoman.engine.cluster.single_server import SingleServer
from dragoman.engine.runs.run_limit import RunLimit
from dragoman.engine.runs.runner import Runner
from dragoman.engine.services.idempotency import Idempotency
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports.log import IdempotencyRecord, LogLookup


class WriteAccess:
    """Writes to sessions. Without a cluster, every session is written here, and nothing waits."""

    def __init__(
        self,
        cluster: Cluster | SingleServer,
        runner: Runner,
        run_limit: RunLimit,
        idempotency: Idempotency,
        index: LogLookup,
        limits: InputLimits,
    ) -> None:
        self._cluster = cluster
        self._runner = runner
        self._run_limit = run_limit
        self._idempotency = idempotency
        self._index = index
        self._limits = limits

    def acquire(self, live: LiveSession) -> "WriteClaim":
        """Claim a session for writing. `async with` returns whether this server may write to it.

        If not, another server executes its run: the session is busy, and takes commands (`Cluster.send`).

        Raises:
            SessionNotFound: it was deleted.
            StoreUnavailable: it cannot be claimed now.
        """
        return WriteClaim(self, live)

    async def claim(self, live: LiveSession) -> bool:
        """Claim the session again, after a wait during which the claim may have been released. Returns as `acquire`."""
        return await self._cluster.claim(live)

    def release(self, live: LiveSession) -> None:
        """Give up a claim if nothing was written."""
        self._cluster.release(live)

    def may_write(self, live: LiveSession) -> bool:
        """Whether the session may be written here now."""
        return self._cluster.may_write(live)

    async def stop(self, live: LiveSession, run_id: RunId | None, *, only_if_unwatched: bool = False) -> bool:
        """Stop runs of a session, on whichever server; see `Engine.stop_run`."""
        while not (only_if_unwatched and await self._cluster.is_watched(live)):
            async with self.acquire(live) as may_write:
                if may_write:
                    return await self._runner.stop(live, run_id)
            done = await self._cluster.send(live, Stop(run_id, only_if_unwatched))
            if done is not None:
                return done.has_effect
        return False

    async def cancel_waiting_calls(self, live: LiveSession, run_id: RunId) -> bool:
        """Cancel the calls with which a run stopped; see `Engine.cancel_waiting_calls`."""
        async with self.acquire(live) as may_write:
            if not may_write or admission.is_busy(live.state) or live.state.last_run != run_id:
                return False
            return await self._runner.stop(live, None)

    async def enqueue(
        self, live: LiveSession, queued: RunQueued, idempotency_record: IdempotencyRecord | None
    ) -> int | None:
        """Queue a run after one that another server executes. Returns its event; None if there is no such run."""
        done = await self._cluster.send(live, Enqueue(queued, idempotency_record))
        if done is not None:
            return done.seq
        row = await self._index.find_run(queued.run_id)  # the other server may have died after it queued the run
        return None if row is None else row.first_seq

    async def change_settings(self, live: LiveSession, change: SettingsChange) -> None:
        """Change a session's settings, on whichever server. Raises SessionBusy if a run would be affected."""
        while True:
            async with self.acquire(live) as may_write:
                admission.check_settings_change(live.state, change)
                if may_write or change.is_empty():
                    await self._change_settings(live, change)
                    return
            if await self._cluster.send(live, ChangeSettings(change)) is not None:
                return

    async def perform(self, live: LiveSession, command: Command) -> Done | Moved:
        """Execute a command of another server for a session whose run is executed here."""
        match command:
            case Stop(run_id, only_if_unwatched):
                is_watched = only_if_unwatched and live.reader_count > 0  # the sender has checked all other servers
                has_effect = not is_watched and await self._runner.stop(live, run_id)
                return Done(live.state.seq, has_effect)
            case ChangeSettings(change):
                admission.check_settings_change(live.state, change)
                await self._change_settings(live, change)
                return Done(live.state.seq)
            case Enqueue(queued, record):
                row = await self._index.find_run(queued.run_id)
                if row is not None:  # it was done before, but the reply was lost
                    return Done(row.first_seq)
                async with self._idempotency.execution_for_other_server(record):
                    return await self._enqueue_here(live, queued, record)
            case _ as never:
                assert_never(never)

    async def _enqueue_here(
        self, live: LiveSession, queued: RunQueued, record: IdempotencyRecord | None
    ) -> Done | Moved:
        """Queue a run for another server, durably."""
        on_other_servers = await self._run_limit.count_on_other_servers(live.state.owner)
        if not admission.is_busy(live.state):
            return Moved()
        if len(live.state.queue) >= self._limits.queued_runs:
            raise SessionBusy(f"{self._limits.queued_runs} runs of this session are already queued")
        self._run_limit.check(live.state.owner, on_other_servers)
        seq = live.append((queued,), queued.run_id, idempotency_record=record)
        await live.until_durable(seq)
        return Done(seq)

    async def _change_settings(self, live: LiveSession, change: SettingsChange) -> None:
        if apply_change(live.state.settings, change) != live.state.settings:
            live.append((SettingsChanged(change=change),), None)
        await live.until_durable(live.state.seq)


class WriteClaim:
    """A claim on a session; see `WriteAccess.acquire`."""

    __slots__ = ("_live", "_write_access")

    def __init__(self, write_access: WriteAccess, live: LiveSession) -> None:
        self._write_access = write_access
        self._live = live

    async def __aenter__(self) -> bool:
        return await self._write_access.claim(self._live)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._write_access.release(self._live)
