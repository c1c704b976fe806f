"""Runs: starting, executing, stopping and parking them, and recovering them after a crash."""

import asyncio
from contextlib import aclosing
from typing import NamedTuple

import structlog

from dragoman.core import admission
from dragoman.core.agent import AgentError, Paused
from dragoman.core.answers import FAILED_RUN_RESULT, INTERRUPTED_RESULT, STOPPED_RESULT, settle_call
from dragoman.core.content import (
    AssistantMessage,
    Json,
    MessageStatus,
    SystemMessage,
    Usage,
    text_of,
)
from dragoman.core.events import (
    Event,
    MessageAdded,
    RunParked,
    RunResumed,
    RunStarted,
    RunStopped,
    SettingsChanged,
    StopReason,
)
from dragoman.core.headless import output_error
from dragoman.core.ids import MessageId, RunId, UserId
from dragoman.core.open_calls import OpenCall
from dragoman.core.session import SessionState
from dragoman.engine.fair_turns import FairTurns
from dragoman.engine.instrumentation.metrics import RUNS_ACTIVE, RUNS_STARTED, RUNS_STOPPED
from dragoman.engine.instrumentation.tracing import run_span
from dragoman.engine.runs.calls import CallRunner
from dragoman.engine.runs.error_text import describe_error
from dragoman.engine.runs.forks import close_loop
from dragoman.engine.runs.loop_setup import LoopSetup, add_pending_inputs
from dragoman.engine.runs.replays import is_replay
from dragoman.engine.runs.run_context import LeaseCheck, LoopRun, LoopServices, StepLimitReached
from dragoman.engine.runs.time_limits import TimeLimits
from dragoman.engine.services.attachments import Attachments
from dragoman.engine.services.served_agents import ServedAgents
from dragoman.engine.sessions.history import History
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports.environment import Ids

STOP_TIMEOUT_S = 5.0
"""How long a stopped agent or tool may take to end; then the run ends without it."""
MAX_SCHEMA_ATTEMPTS = 3
"""Number of answers that an agent may give to match a schema."""

log = structlog.get_logger(__name__)


class RunEnd(NamedTuple):
    """How a run ends, as `RunStopped` records it."""

    reason: StopReason
    code: str | None = None
    message: str | None = None


# Large: the life of a run is one state machine: start, stop, finish, recover.
class Runner:
    """The runs that are executed in this process, and their tasks."""

    def __init__(
        self,
        *,
        setup: LoopSetup,
        agents: ServedAgents,
        history: History,
        attachments: Attachments,
        ids: Ids,
        wait_for_valid_lease: LeaseCheck,
        timeout_s: float,
        max_attempts: int,
        shows_errors: bool,
        shows_model_errors: bool,
    ) -> None:
        self._setup = setup
        self._agents = agents
        self._history = history
        self._ids = ids
        self._timeout_s = timeout_s
        self._max_attempts = max_attempts
        self._shows_errors = shows_errors
        self._shows_model_errors = shows_model_errors
        self._services = LoopServices(
            calls=CallRunner(ids, self._restart_time_limit),
            history=history,
            attachments=attachments,
            ids=ids,
            wait_for_valid_lease=wait_for_valid_lease,
            turns=FairTurns(),
            is_parking=self.is_parking,
        )
        self._live_by_owner: dict[UserId, dict[asyncio.Task[None], LiveSession]] = {}
        """The sessions whose runs are executed here."""
        self._tasks: dict[asyncio.Task[None], LiveSession] = {}
        self._time_limits = TimeLimits(timeout_s, self._on_timeout)
        self._cancelled_tasks: set[asyncio.Task[None]] = set()
        """The tasks that were cancelled by a stop."""
        self._timed_out_tasks: dict[asyncio.Task[None], asyncio.TimerHandle] = {}
        """The tasks that were cancelled by their time limit, each with the timer that ends its run without it."""
        self._is_parking = False

    # --- control --------------------------------------------------------------------------------------------------

    def start(self, live: LiveSession, *, after_crash: bool = False) -> None:
        """Execute the session's active run, which is already in the log."""
        assert live.state.run is not None, "a run is logged before it is executed"
        RUNS_STARTED.inc()
        RUNS_ACTIVE.inc()
        run_id = live.state.run.run_id
        task = asyncio.create_task(self._execute(live, run_id, after_crash=after_crash))
        live.run_task = task
        self._live_by_owner.setdefault(live.state.owner, {})[task] = live
        self._tasks[task] = live
        self._time_limits.start(task)
        task.add_done_callback(self._on_task_done)

    def count_unfinished_runs(self, owner: UserId) -> int:
        """The owner's runs that are executed here, and those queued after them."""
        sessions = {live for live in self._live_by_owner.get(owner, {}).values() if not live.has_ended}
        return sum((live.state.run is not None) + len(live.state.queue) for live in sessions)

    def is_parking(self) -> bool:
        """Whether runs that are cancelled now continue on the next server."""
        return self._is_parking

    def take_over(self, live: LiveSession) -> None:
        """Continue a run whose server died, or end it if its agent cannot continue (shared rules, 25).

        A run of an agent that is not served here waits for a server that serves it. That of an ephemeral session ends:
        nobody waits for its answer any more.
        """
        run, agent = live.state.run, self._agents.find(live.state.agent)
        is_over = is_replay(live.state) or live.state.settings.is_ephemeral
        if agent is None and not is_over:
            log.warning("run waits for its agent", session_id=live.state.session_id, agent=live.state.agent)
            return
        if run is None:
            self._start_queued(live)
            return
        self._close_open(live, run.run_id, "cut")
        attempt = run.attempt if run.parked else run.attempt + 1
        is_lost = agent is None or not agent.spec.can_resume or attempt > self._max_attempts
        if is_lost or is_over:
            lost = list(reversed(live.state.calls.values())) if is_over else _unanswerable(live.state)
            events: list[Event] = [settle_call(call, "interrupted", INTERRUPTED_RESULT, self._ids.new) for call in lost]
            live.append(events, run.run_id)
            end = RunEnd("interrupted", "interrupted", "The server restarted while it answered")
            self._write_run_stopped(live, run.run_id, end)
            return
        log.info("run recovered", session_id=live.state.session_id, run_id=run.run_id, attempt=attempt)
        live.append((RunResumed(run_id=run.run_id, attempt=attempt),), run.run_id)
        self.start(live, after_crash=True)

    async def stop(self, live: LiveSession, run_id: RunId | None) -> bool:
        """Stop a run, or all runs, and cancel waiting calls; see `Engine.stop_run`."""
        state, active = live.state, live.state.run
        queued = [each.run_id for each in state.queue if run_id is None or each.run_id == run_id]
        if queued:
            live.append([RunStopped(run_id=each, reason="cancelled") for each in queued], None)
        stopped = bool(queued)
        if active is not None and run_id in (None, active.run_id):
            stopped = True
            task = live.run_task
            if task is not None:
                self._cancel(task)
                await asyncio.wait([task], timeout=STOP_TIMEOUT_S)
            if _is_active(live, active.run_id):
                self._end_cancelled(live, active.run_id)
        elif active is None and run_id is None and state.calls:
            stopped = True
            live.append(admission.cancel_open_calls(state, STOPPED_RESULT, self._ids.new), None)
        await live.until_durable(live.state.seq)
        return stopped

    async def drain(self, grace_s: float) -> None:
        """Let runs end within the grace period, then park the rest: cancel them without an end in the log."""
        sessions = (item for each in self._live_by_owner.values() for item in each.items())
        awake = [task for task, live in sessions if not live.state.is_sleeping()]
        if awake:
            await asyncio.wait(awake, timeout=grace_s)
        self._is_parking = True
        for task in self._tasks:
            self._cancel(task)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_TIMEOUT_S)
        self._time_limits.close()

    def _cancel(self, task: asyncio.Task[None]) -> None:
        self._cancelled_tasks.add(task)
        task.cancel()

    # --- execution ------------------------------------------------------------------------------------------------

    async def _execute(self, live: LiveSession, run_id: RunId, *, after_crash: bool) -> None:
        """Execute a run to its end. The root of its task."""
        try:
            with run_span(live.state.agent, live.state.session_id, run_id):
                run = await self._setup.root(live, run_id, self._services, after_crash=after_crash)
                # No deeper than here: every delta resumes all coroutines on the way to the agent.
                returned = await run.agent.play(run)
                while self._prepare_next_play(run, returned):
                    returned = await run.agent.play(run)
                end = RunEnd(await self._finish(run, returned))
        except BaseException as error:  # noqa: BLE001  # not even a SystemExit may end the server
            if live.has_ended:
                return
            end = self._end_after(error, live, run_id)
        if live.has_ended or not _is_active(live, run_id):
            return  # the run was ended without an agent that ignored its cancellation
        if asyncio.current_task() not in self._cancelled_tasks:
            self._end_run(live, run_id, end)
        elif self._is_parking:
            live.append((RunParked(run_id=run_id),), run_id)
        else:  # even if the agent caught the cancellation
            self._end_cancelled(live, run_id)

    def _end_after(self, error: BaseException, live: LiveSession, run_id: RunId) -> RunEnd:
        """How a run ends whose agent raised. An error that nobody expected is logged."""
        match error:
            case Paused():
                return RunEnd("tool_use")
            case StepLimitReached():
                return RunEnd("max_steps", error.code, error.message)
            case AgentError():
                details = f": {error.details}" if self._shows_model_errors and error.details else ""
                return RunEnd("error", error.code, f"{error.message}{details}")
            case asyncio.CancelledError() if asyncio.current_task() in self._timed_out_tasks:
                return self._timeout_end()
        if asyncio.current_task() not in self._cancelled_tasks:
            log.error("run failed", session_id=live.state.session_id, run_id=run_id, exc_info=error)
        details = f": {describe_error(error)}" if self._shows_errors else ""
        return RunEnd("error", "agent_error", f"The agent failed{details}")

    def _prepare_next_play(self, run: LoopRun, returned: StopReason | None) -> bool:
        """Prepare a run for its agent to play again; False if an agent that returned so has nothing more to do.

        It has if a call was denied, or if a message came beside the answers: that enters the history when the recorded
        calls that were answered together with it have their results.
        """
        if returned not in (None, "end_turn", "tool_use"):
            return False
        run.finish()
        if run.has_new_denials():
            return True
        active = run.live.state.run
        if active is None or not active.pending_inputs:
            return False
        run.append(admission.cancel_open_calls(run.live.state, admission.CANCELLED_BY_NEW_MESSAGE, self._ids.new))
        add_pending_inputs(run.live, run.run_id)
        return True

    async def _finish(self, run: LoopRun, reason: StopReason | None) -> StopReason:
        """Close what the agent left open, and make sure that its answer matches the requested schema."""
        run.finish()
        if run.settle_unfinished():
            return "tool_use"
        schema = run.metadata.output_schema
        if schema is not None and reason in (None, "end_turn"):
            return await self._retry_until_schema_fits(run, schema)
        return reason or "end_turn"

    async def _retry_until_schema_fits(self, run: LoopRun, schema: Json) -> StopReason:
        """Have the agent answer again until its answer matches the schema.

        Raises:
            AgentError: `MAX_SCHEMA_ATTEMPTS` answers did not match.
        """
        reason: StopReason | None = None
        answers = 1
        while (wrong := output_error(schema, await self._last_answer(run))) is not None and reason in (
            None,
            "end_turn",
        ):
            if answers == MAX_SCHEMA_ATTEMPTS:
                raise AgentError("output_invalid", f"The answer does not fit the schema: {wrong}")
            answers += 1
            notice = (
                f"The answer does not fit the JSON Schema that was asked for: {wrong}. Answer again, with JSON alone."
            )
            message = SystemMessage(id=MessageId(self._ids.new()), content=notice, origin="notice")
            run.append((MessageAdded(message=message),))
            reason = await run.agent.play(run)
            run.finish()
        return reason or "end_turn"

    async def _last_answer(self, run: LoopRun) -> str:
        """The text of the agent's last message."""
        async with aclosing(self._history.root_messages_newest_first(run.live)) as messages:
            async for message in messages:
                if isinstance(message, AssistantMessage):
                    return text_of(message.content)
        return ""

    # --- ending ---------------------------------------------------------------------------------------------------

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        live = self._tasks.pop(task)
        self._time_limits.stop(task)
        sessions = self._live_by_owner[live.state.owner]
        del sessions[task]
        if not sessions:
            del self._live_by_owner[live.state.owner]
        self._cancelled_tasks.discard(task)
        if (timer := self._timed_out_tasks.pop(task, None)) is not None:
            timer.cancel()
        RUNS_ACTIVE.dec()
        if live.run_task is task:
            live.run_task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("run's task failed", session_id=live.state.session_id, exc_info=error)

    def _write_run_stopped(self, live: LiveSession, run_id: RunId, end: RunEnd) -> None:
        """Write the run's end, and start the next queued run."""
        add_pending_inputs(live, run_id)
        active = live.state.run
        usage = Usage() if active is None else active.usage
        stopped = RunStopped(run_id=run_id, reason=end.reason, code=end.code, message=end.message, usage=usage)
        live.append((stopped,), run_id)
        RUNS_STOPPED.labels(reason=end.reason).inc()
        facts = {"code": end.code} if end.code else {}
        log.debug("run ended", agent=live.state.agent, reason=end.reason, session_id=live.state.session_id, **facts)
        self._start_queued(live)

    def _end_run(self, live: LiveSession, run_id: RunId, end: RunEnd) -> None:
        """End a run whose agent has returned or failed."""
        if end.reason not in ("tool_use", "end_turn"):
            self._close_open(live, run_id, "completed" if end.reason in ("max_tokens", "refusal") else "failed")
            live.append(admission.cancel_open_calls(live.state, FAILED_RUN_RESULT, self._ids.new), run_id)
        self._write_run_stopped(live, run_id, end)

    def _on_timeout(self, task: asyncio.Task[None]) -> None:
        """Cancel a run, unless it sleeps; it has a few seconds to end."""
        live = self._tasks[task]
        run = live.state.run
        if live.run_task is not task or run is None:
            task.cancel()  # its run was ended without it
            return
        if live.state.is_sleeping():
            self._time_limits.start(task)
            return
        loop = asyncio.get_running_loop()
        self._timed_out_tasks[task] = loop.call_later(STOP_TIMEOUT_S, self._end_overdue, live, run.run_id)
        task.cancel()

    def _restart_time_limit(self, live: LiveSession) -> None:
        """Restart a run's time limit: the time for which it sleeps does not count."""
        task = live.run_task
        if task in self._tasks and task not in self._timed_out_tasks and live.state.run is not None:
            self._time_limits.start(task)

    def _end_overdue(self, live: LiveSession, run_id: RunId) -> None:
        """End a run after its time limit without an agent that ignored its cancellation."""
        if not live.has_ended and not self._is_parking and _is_active(live, run_id):
            self._end_run(live, run_id, self._timeout_end())

    def _timeout_end(self) -> RunEnd:
        return RunEnd("error", "timeout", f"The run took longer than {self._timeout_s:g} s")

    def _end_cancelled(self, live: LiveSession, run_id: RunId) -> None:
        self._close_open(live, run_id, "interrupted")
        live.append(admission.cancel_open_calls(live.state, STOPPED_RESULT, self._ids.new), run_id)
        self._write_run_stopped(live, run_id, RunEnd("cancelled", "cancelled", "The run was stopped"))

    def _start_queued(self, live: LiveSession) -> None:
        if not live.state.queue or self._is_parking:
            return
        queued = live.state.queue[0]
        started = RunStarted(
            run_id=queued.run_id,
            protocol=queued.protocol,
            client_run_id=queued.client_run_id,
            client_tools=queued.client_tools,
            parameters=queued.parameters,
            metadata=queued.metadata,
        )
        change: list[Event] = [] if queued.change.is_empty() else [SettingsChanged(change=queued.change)]
        cancelled = admission.cancel_open_calls(live.state, admission.CANCELLED_BY_NEW_MESSAGE, self._ids.new)
        added = [MessageAdded(message=each) for each in queued.inputs]
        live.append([*change, *cancelled, started, *added], queued.run_id)
        self.start(live)

    def _close_open(self, live: LiveSession, run_id: RunId, status: MessageStatus) -> None:
        """Close every open message with its content so far."""
        for loop in list(live.state.open_messages):
            close_loop(live, run_id, loop, status)


def _unanswerable(state: SessionState) -> list[OpenCall]:
    """The open calls that neither wait nor have one below them that does; the deepest first."""
    answerable = state.answerable_calls()
    return [call for call in reversed(state.calls.values()) if call.call.call_id not in answerable]


def _is_active(live: LiveSession, run_id: RunId) -> bool:
    return live.state.run is not None and live.state.run.run_id == run_id
