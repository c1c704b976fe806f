"""The scheduler: each due time of a schedule is claimed in the store, then runs in a new session.

    due ──claimed──► running ──session at rest──► completed, failed
             │
             └──► failed at once: missed, or the previous one still runs

The claim contains the id of the session before it exists, so that after a crash it is created once.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial

import msgspec
import structlog

from dragoman.core.events import RunStopped, SettingsChange
from dragoman.core.ids import SessionId, UserId
from dragoman.core.inputs import Answer, Choice, Create, Decision, Result, Submit, UserInput
from dragoman.core.open_calls import OpenCall
from dragoman.core.refusals import (
    AgentNotFound,
    Conflict,
    Invalid,
    LimitReached,
    NotFound,
    Refused,
    SessionBusy,
    SessionNotFound,
    Unavailable,
)
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.schedules import (
    ANSWER_TIMEOUT,
    INTERNAL_ERROR,
    MISFIRE_GRACE_TIME,
    NO_ANSWER,
    NOT_SERVED,
    NOT_STARTED,
    PROTOCOL,
    SESSION_DELETED,
    SKIPPED,
    BackgroundTask,
    Due,
    Expired,
    Fire,
    FireId,
    FireStatus,
    Schedule,
    ScheduleId,
    check_expiry,
    declared,
    due_action,
    fire_result,
    for_task,
    occurrences,
    update_declared,
    validate,
)
from dragoman.engine.engine import Engine
from dragoman.engine.instrumentation.metrics import SCHEDULE_FIRES
from dragoman.engine.sessions.live_session import LiveSession, to_live_session
from dragoman.engine.task_results import deliver_result
from dragoman.ports.accounts import ScheduleStore
from dragoman.ports.cluster import ScheduleClaims
from dragoman.ports.environment import Clock, Ids

CHECK_INTERVAL_S = 30.0
"""How often the clock is checked, however far the next time is: the clock may be set."""
CLUSTER_CHECK_INTERVAL_S = 5.0
"""The interval in a cluster, where other servers may change schedules or die during a fire."""
RETRY_DELAY_S = 1.0
MAX_SCHEDULES_PER_USER = 1000
"""Schedules of one user."""
MAX_OCCURRENCES = 1000
NO_USER_ANSWER = "no answer, use your judgement"
NOT_REPEATED = "the server restarted while it ran, and nobody can be asked whether to run it again"

log = structlog.get_logger(__name__)


class Occurrences(msgspec.Struct, frozen=True):
    """The times when a schedule is due within a span; only the first ones of very many."""

    schedule: Schedule
    times: list[datetime]
    is_truncated: bool


# Large: the cached schedules, their timer and their fires change together.
class Scheduler:
    """All schedules, cached in memory. The store is authoritative; in a cluster it is read again.

    Args:
        store: stores them.
        engine: runs them.
        clock: decides what is due.
        ids: for schedules, fires and sessions.
        max_concurrent_fires: further fires wait.
        memory_enabled: whether memory is on in their sessions, if the agent does not declare it.
        cluster_store: the other servers on the store; None if there can be none.
    """

    def __init__(
        self,
        store: ScheduleStore,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        *,
        max_concurrent_fires: int = 50,
        memory_enabled: bool | None = True,
        cluster_store: ScheduleClaims | None = None,
    ) -> None:
        self._cluster_store = cluster_store
        self._known_version = -1
        """The version of the schedules that are cached; -1 before the first read."""
        self._store = store
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._memory_enabled = memory_enabled
        self._slots = asyncio.Semaphore(max_concurrent_fires)
        self._schedules: dict[ScheduleId, Schedule] = {}
        self._lock = asyncio.Lock()
        """Held while a schedule is changed or advanced, so that neither overwrites the other."""
        self.fire_tasks: dict[asyncio.Task[None], ScheduleId] = {}
        """The fires in progress on this server."""
        self._own_fires: set[FireId] = set()
        """The fires that run on this server."""
        self._worker: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self, *, run_timer: bool = True) -> None:
        """Load the schedules, and continue the fires that a previous server left unfinished.

        Args:
            run_timer: check the times; else the caller calls `tick`.
        """
        await self.refresh()
        await self._install_declared()
        await self._take_over_fires()
        if run_timer:
            self._worker = asyncio.create_task(self._run(), name="schedules")

    async def _install_declared(self) -> None:
        """Store what the agents that are served here declare, and remove what they do not declare any more."""
        agents, now = self._engine.agents, self._clock.now()
        wanted = [declared(name, each, now) for name, agent in agents.items() for each in agent.spec.schedules]
        ids = {each.schedule_id for each in wanted}
        async with self._lock:
            for schedule in wanted:
                before = self._schedules.get(schedule.schedule_id)
                after = schedule if before is None else update_declared(before, schedule)
                if after is not before:
                    await self._save(after)
            for each in [each for each in self._schedules.values() if each.agent in agents and each.is_declared]:
                if each.schedule_id not in ids and each.reports_to is None:
                    await self._store.remove(each.schedule_id)
                    del self._schedules[each.schedule_id]

    def _is_served(self, schedule: Schedule) -> bool:
        return schedule.agent is None or self._engine.find_spec(schedule.agent) is not None

    def _is_ours(self, schedule: Schedule, now: datetime) -> bool:
        """Whether this server fires a schedule that is due: it has the agent, or no server that has it came in time."""
        if self._is_served(schedule):
            return True
        assert schedule.next_at is not None, "it is due"
        return not schedule.is_declared and now - schedule.next_at >= MISFIRE_GRACE_TIME

    def _check_agent(self, name: str | None) -> None:
        """Raise Invalid if the server does not have the agent that a user chose."""
        try:
            if name is not None:
                self._engine.agent(name)
        except AgentNotFound as error:
            raise Invalid(str(error)) from error

    async def refresh(self) -> None:
        """Read the schedules, at startup and when another server has changed them."""
        known = 0 if self._cluster_store is None else await self._cluster_store.schedules_version()
        if known != self._known_version:
            self._schedules = {schedule.schedule_id: schedule for schedule in await self._store.all()}
            self._known_version = known

    async def _take_over_fires(self) -> None:
        """Continue the fires of a previous server, or of servers that died."""
        ours = None if self._cluster_store is None else await self._cluster_store.claim_abandoned_fires()
        if ours is not None and not ours:
            return
        for fire in await self._store.running_fires():
            schedule = self._schedules.get(fire.schedule_id)
            if schedule is not None and (ours is None or fire.fire_id in ours) and fire.fire_id not in self._own_fires:
                self._start_fire(fire, schedule)

    async def close(self) -> None:
        """Stop firing schedules. Fires in progress are continued by the next server."""
        tasks = [*([] if self._worker is None else [self._worker]), *self.fire_tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- keeping --------------------------------------------------------------------------------------------------

    async def create(self, schedule: Schedule) -> Schedule:
        """Create a schedule; durable on return. Its id, timestamps and next time are set here.

        Raises:
            Invalid: a field is not valid.
            Conflict: the user has reached the limit.
        """
        self._check_agent(schedule.agent)
        now = self._clock.now()
        created = validate(
            msgspec.structs.replace(
                schedule,
                schedule_id=ScheduleId(self._ids.new()),
                expires_at=check_expiry(schedule.expires_at, now),
                created_at=now,
                updated_at=now,
                last_at=None,
            ),
            now,
        )
        async with self._lock:
            await self.refresh()
            if len(self.for_user(schedule.user)) >= MAX_SCHEDULES_PER_USER:
                raise Conflict(f"there are {MAX_SCHEDULES_PER_USER} scheduled tasks already")
            await self._save(created)
        return created

    def for_user(self, user: UserId) -> list[Schedule]:
        """The user's schedules, oldest first."""
        return [each for each in self._schedules.values() if each.user == user and each.reports_to is None]

    def get(self, user: UserId, schedule_id: ScheduleId) -> Schedule:
        """A schedule of the user. Raises NotFound."""
        schedule = self._schedules.get(schedule_id)
        if schedule is None or schedule.user != user or schedule.reports_to is not None:
            raise NotFound("there is no such scheduled task")
        return schedule

    async def change(self, user: UserId, schedule_id: ScheduleId, **changes: object) -> Schedule:
        """Change some fields. If cron, zone or `enabled` change, the next time is computed again.

        Raises:
            NotFound, Invalid: nothing changed.
            Conflict: an expired schedule cannot be enabled.
        """
        async with self._lock:
            await self.refresh()
            now = self._clock.now()
            before = self.get(user, schedule_id)
            after = msgspec.structs.replace(before, **changes)
            if after.agent != before.agent:
                if before.is_declared:
                    raise Invalid(f"this task is declared by the agent {before.agent!r}, which cannot be changed")
                self._check_agent(after.agent)
            if changes.get("expires_at") is not None:
                after = msgspec.structs.replace(after, expires_at=check_expiry(after.expires_at, now))
            if changes.get("enabled") and after.is_expired(now):
                raise Conflict("this scheduled task has expired")
            is_moved = (after.cron, after.time_zone, after.enabled) != (before.cron, before.time_zone, before.enabled)
            found = validate(after, now)
            if not is_moved:
                found = msgspec.structs.replace(found, next_at=before.next_at)
            if after != before:
                await self._save(msgspec.structs.replace(found, updated_at=now))
            return self._schedules[schedule_id]

    async def start_task(self, task: BackgroundTask) -> SessionId:
        """Start a background task; durable on return. The same task again has no effect. Returns its session.

        Raises:
            AgentNotFound, Invalid, Unavailable: nothing was started.
        """
        self._engine.agent(task.agent)
        session_id, now = SessionId(task.task_id), self._clock.now()
        async with self._lock:
            await self.refresh()
            schedule = self._schedules.get(ScheduleId(task.task_id))
            if schedule is None:
                with suppress(SessionNotFound):
                    await self._engine.find_session(task.user, session_id)
                    return session_id  # it was started before, and its result is delivered
                schedule = for_task(task, now)
                await self._save(schedule)
            fire = Fire(
                fire_id=FireId(self._ids.new()),
                schedule_id=schedule.schedule_id,
                due_at=schedule.created_at,
                session_id=session_id,
                status="running",
                started_at=now,
            )
            if await self._store.claim_fire(schedule, fire):
                self._start_fire(fire, schedule)
        return session_id

    async def remove(self, user: UserId, schedule_id: ScheduleId) -> None:
        """Remove a schedule. What it has started continues. Raises NotFound."""
        async with self._lock:
            await self.refresh()
            self.get(user, schedule_id)
            await self._store.remove(schedule_id)
            del self._schedules[schedule_id]

    async def fires(self, user: UserId, schedule_id: ScheduleId, offset: int, limit: int) -> Sequence[Fire]:
        """The fires of a schedule, newest first. Raises NotFound."""
        await self.refresh()
        self.get(user, schedule_id)
        return await self._store.fires(schedule_id, offset, limit)

    async def calendar(self, user: UserId, first: datetime, end: datetime) -> list[Occurrences]:
        """The times when the user's enabled schedules are due, from `first` up to but not including `end`."""
        await self.refresh()
        enabled = [schedule for schedule in self.for_user(user) if schedule.enabled]
        return await asyncio.to_thread(lambda: [_occurrences(schedule, first, end) for schedule in enabled])

    async def _save(self, schedule: Schedule) -> None:
        await self._store.put(schedule)
        self._schedules[schedule.schedule_id] = schedule
        self._changed.set()

    # --- the times ------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Start what is due now."""
        if self._engine.is_draining:
            return
        async with self._lock:
            if self._cluster_store is not None:
                await self.refresh()
                await self._take_over_fires()
            now = self._clock.now()
            due = [
                each
                for each in self._schedules.values()
                if each.enabled and each.next_at and each.next_at <= now and self._is_ours(each, now)
            ]
            running = await self._running_schedules() if due else frozenset()
            for schedule in sorted(due, key=lambda each: (each.next_at, each.schedule_id)):
                await self._advance(schedule, now, is_running=schedule.schedule_id in running)

    async def _running_schedules(self) -> frozenset[ScheduleId]:
        """The schedules with a fire that is running, on any server."""
        if self._cluster_store is None:
            return frozenset(self.fire_tasks.values())
        return frozenset(fire.schedule_id for fire in await self._store.running_fires())

    async def _advance(self, schedule: Schedule, now: datetime, *, is_running: bool) -> None:
        match due_action(schedule, now, is_running=is_running):
            case Expired():
                await self._save(msgspec.structs.replace(schedule, enabled=False, updated_at=now))
            case Due(due_at=due_at, next_at=next_at, error=error):
                if not self._is_served(schedule):
                    error = NOT_SERVED.format(agent=schedule.agent)
                moved = msgspec.structs.replace(
                    schedule, next_at=next_at, last_at=schedule.last_at if error else due_at
                )
                fire = Fire(
                    fire_id=FireId(self._ids.new()),
                    schedule_id=schedule.schedule_id,
                    due_at=due_at,
                    session_id=None if error else SessionId(self._ids.new()),
                    status="failed" if error else "running",
                    error=error,
                    started_at=now,
                    finished_at=now if error else None,
                )
                is_ours = await self._store.claim_fire(moved, fire)
                self._schedules[schedule.schedule_id] = moved
                if error:
                    SCHEDULE_FIRES.labels(outcome="skipped" if error == SKIPPED else "missed").inc()
                    log.warning("schedule not fired", schedule_id=schedule.schedule_id, due_at=due_at, why=error)
                elif is_ours:
                    self._start_fire(fire, moved)

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self.tick()
            except Unavailable as error:
                log.warning("failed to check schedules", cause=repr(error.__cause__))
                await asyncio.sleep(RETRY_DELAY_S)
            except Exception:  # the root of a task that must continue
                log.exception("failed to check schedules")
                await asyncio.sleep(RETRY_DELAY_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._until_due()):
                    await self._changed.wait()

    def _until_due(self) -> float:
        """Seconds until the next check."""
        longest = CHECK_INTERVAL_S if self._cluster_store is None else CLUSTER_CHECK_INTERVAL_S
        served = filter(self._is_served, self._schedules.values())
        due = min((each.next_at for each in served if each.enabled and each.next_at), default=None)
        if due is None or self._engine.is_draining:
            return longest
        return min(max(0.0, (due - self._clock.now()).total_seconds()), longest)

    # --- a fire ---------------------------------------------------------------------------------------------------

    def _start_fire(self, fire: Fire, schedule: Schedule) -> None:
        task = asyncio.create_task(self._run_fire(fire, schedule), name=f"schedule {schedule.schedule_id}")
        self.fire_tasks[task] = schedule.schedule_id
        self._own_fires.add(fire.fire_id)
        task.add_done_callback(partial(self._on_fire_done, fire.fire_id))

    def _on_fire_done(self, fire_id: FireId, task: asyncio.Task[None]) -> None:
        self.fire_tasks.pop(task, None)
        self._own_fires.discard(fire_id)

    async def _run_fire(self, fire: Fire, schedule: Schedule) -> None:
        """Run a fire to its end. If the store fails, it is tried again; after a stop, the next server continues."""
        while True:
            try:
                status, error = await self._fire_result(fire, schedule)
                if schedule.reports_to is not None:
                    is_done = status == "completed"
                    await deliver_result(self._engine, schedule, succeeded=is_done, error=error)
                    await self._store.remove(schedule.schedule_id)
                    self._schedules.pop(schedule.schedule_id, None)
                    return
                ended = msgspec.structs.replace(fire, status=status, error=error, finished_at=self._clock.now())
                await self._store.update_fire(ended)
                SCHEDULE_FIRES.labels(outcome=status).inc()
            except Unavailable:
                if self._engine.is_draining:
                    return
                await asyncio.sleep(RETRY_DELAY_S)
            except Exception:  # the root of a fire's task
                log.exception("fire failed", fire_id=fire.fire_id)
                return
            else:
                return

    async def _fire_result(self, fire: Fire, schedule: Schedule) -> tuple[FireStatus, str | None]:
        assert fire.session_id is not None, "a fire that runs has a session"
        try:
            async with self._slots, self._started_session(fire.session_id, schedule) as live:
                while live.state.status() == "running" and not live.has_ended:
                    await live.next_commit()
            async with self._engine.session(schedule.user, fire.session_id) as session:
                return await self._wait_for_result(to_live_session(session), fire, schedule)
        except SessionNotFound:
            return "failed", SESSION_DELETED
        except Unavailable:
            raise
        except Refused as error:
            return "failed", f"{NOT_STARTED}: {error}"
        except Exception:  # a fire that stays `running` would make the later ones wait for it
            log.exception("fire failed", fire_id=fire.fire_id)
            return "failed", INTERNAL_ERROR

    @asynccontextmanager
    async def _started_session(self, session_id: SessionId, schedule: Schedule) -> AsyncIterator[LiveSession]:
        """The fire's session, which is created and gets the prompt unless that was done before."""
        engine = self._engine
        try:
            await engine.find_session(schedule.user, session_id)
        except SessionNotFound:
            agent = schedule.agent or engine.default_agent
            memory = engine.agent(agent).spec.memory
            create = Create(
                protocol=PROTOCOL,
                agent=agent,
                session_id=session_id,
                tools="all",
                memory_enabled=self._memory_enabled if memory is None else memory,
                change=SettingsChange(title=schedule.title, model=schedule.model),
            )
            await engine.create(schedule.user, create)
        async with engine.session(schedule.user, session_id) as session:
            live, state = to_live_session(session), session.state
            if state.last_run is None and state.run is None and not state.queue:
                prompt = Submit(
                    protocol=PROTOCOL,
                    messages=(UserInput(content=schedule.prompt),),
                    metadata=RunMetadata(internal=True, task_depth=schedule.task_depth),
                )
                try:
                    submitted = await engine.start_run(live, prompt, by=schedule.user)
                except LimitReached:
                    await engine.delete(live)  # a start that is refused leaves no session behind
                    raise
                await live.until_durable(submitted.seq)
            yield live

    async def _wait_for_result(
        self, live: LiveSession, fire: Fire, schedule: Schedule
    ) -> tuple[FireStatus, str | None]:
        """Wait until the session is idle. Answer its calls if it should not wait for its user."""
        while True:
            live.raise_if_ended()
            commit = live.next_commit()
            match live.state.status():
                case "idle":
                    await live.until_durable(live.state.seq)
                    return fire_result(await self._last_stop(live))
                case "waiting" if schedule.skip_confirmations:
                    await self._answer(live, schedule.user)
                case "waiting" if self._clock.now() >= fire.started_at + ANSWER_TIMEOUT:
                    return "failed", NO_ANSWER
            await asyncio.wait([commit], timeout=CHECK_INTERVAL_S)
            live.replay_buffer.forget_waker(commit)

    async def _last_stop(self, live: LiveSession) -> RunStopped:
        async for page in self._engine.history.newest_events(live):
            for logged in reversed(page):
                if isinstance(logged.event, RunStopped):
                    return logged.event
        raise SessionNotFound("the session has no run")

    async def _answer(self, live: LiveSession, user: UserId) -> None:
        answers = tuple(_unattended_answer(call) for call in live.state.waiting_calls())
        with suppress(SessionBusy):  # another answer was faster
            await self._engine.start_run(live, Submit(protocol=PROTOCOL, answers=answers), by=user)


def _unattended_answer(call: OpenCall) -> Answer:
    """The answer to a call if nobody can be asked. One that may have run already does not run again."""
    call_id = call.call.call_id
    if call.is_repeat:
        return Decision(call_id=call_id, granted=False, reason=NOT_REPEATED)
    if call.waits_for == "permission":
        return Decision(call_id=call_id, granted=True)
    questions = call.shown().input.get("questions")
    if call.kind == "question" and isinstance(questions, list) and questions:
        return Choice(call_id=call_id, custom={str(index): NO_USER_ANSWER for index in range(len(questions))})
    return Result(call_id=call_id, content=NO_USER_ANSWER, is_error=call.kind == "client")


def _occurrences(schedule: Schedule, first: datetime, end: datetime) -> Occurrences:
    found: list[datetime] = []
    for each in occurrences(schedule, first, end):
        if len(found) == MAX_OCCURRENCES:
            return Occurrences(schedule, found, is_truncated=True)
        found.append(each)
    return Occurrences(schedule, found, is_truncated=False)
