"""Blade's scheduled tasks over REST. Source: specification, section 13."""

from collections.abc import Callable, Mapping

from dragoman.core.ids import UserId
from dragoman.core.principal import Principal
from dragoman.core.schedules import upcoming_times
from dragoman.engine.scheduler import Scheduler
from dragoman.ports.environment import Clock
from dragoman.protocols.blade.rest.endpoints import PAGE_QUERY, BladeHandlers, endpoint, parse_int, parse_page
from dragoman.protocols.blade.wire import schedules as wire
from dragoman.protocols.kit.endpoints import query

BODY_LIMIT = 2 * 1024 * 1024
"""A prompt is the text of a message, which may be long."""
DEFAULT_RUNS_LIMIT, MAX_RUNS_LIMIT = 100, 1000
DEFAULT_PREVIEW_COUNT, MAX_PREVIEW_COUNT = 5, 50
_TASKS, _TASK = "/scheduled-tasks", "/scheduled-tasks/{task}"
_CALENDAR_QUERY = (
    query("from", "the first moment, with an offset"),
    query("to", "the moment after the last, at most 366 days later"),
)
_PREVIEW_QUERY = (
    query("cron", "the expression"),
    query("timezone", "your own by default"),
    query("count", f"1 to {MAX_PREVIEW_COUNT}, {DEFAULT_PREVIEW_COUNT} by default"),
)
_NEW_TASK = {"title": "Report", "prompt": "Write it", "cron": "0 9 * * mon-fri", "timezone": "Europe/Berlin"}

TimeZoneLookup = Callable[[UserId], str]
"""Returns the time zone of a user, for tasks that name none."""


class ScheduleHandlers(BladeHandlers):
    """Handlers below `/scheduled-tasks`."""

    def __init__(self, scheduler: Scheduler, clock: Clock, time_zone_of: TimeZoneLookup) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._time_zone_of = time_zone_of

    @endpoint("POST", _TASKS, example=_NEW_TASK, status=201, body_limit=BODY_LIMIT)
    async def create(self, principal: Principal, body: wire.NewTask) -> wire.TaskInfo:
        """Create a scheduled task."""
        user = principal.user
        schedule = wire.schedule_of(body, user, time_zone=self._time_zone_of(user), now=self._clock.now())
        return wire.to_task_info(await self._scheduler.create(schedule))

    @endpoint("GET", _TASKS)
    async def list_all(self, principal: Principal) -> list[wire.TaskInfo]:
        """List your scheduled tasks."""
        await self._scheduler.refresh()
        return [wire.to_task_info(each) for each in self._scheduler.for_user(principal.user)]

    @endpoint("GET", f"{_TASKS}/calendar", parameters=_CALENDAR_QUERY)
    async def calendar(self, principal: Principal, query: Mapping[str, str]) -> list[wire.CalendarEntry]:
        """List the times at which tasks are due."""
        first, end = wire.parse_span(query)
        entries = await self._scheduler.calendar(principal.user, first, end)
        return [
            wire.CalendarEntry(
                task_id=wire.public_task_id(each.schedule.schedule_id),
                title=each.schedule.title,
                occurrences=list(each.times),
                truncated=each.is_truncated,
            )
            for each in entries
            if each.times
        ]

    @endpoint("GET", f"{_TASKS}/preview", parameters=_PREVIEW_QUERY)
    async def preview(self, principal: Principal, query: Mapping[str, str]) -> wire.SchedulePreview:
        """Preview the next times of an expression."""
        zone = query.get("timezone") or self._time_zone_of(principal.user)
        count = parse_int(query, "count", DEFAULT_PREVIEW_COUNT, minimum=1, maximum=MAX_PREVIEW_COUNT)
        times = upcoming_times(query.get("cron", ""), zone, self._clock.now(), count)
        return wire.SchedulePreview(timezone=zone, occurrences=times)

    @endpoint("GET", _TASK)
    async def get(self, principal: Principal, task: str) -> wire.TaskInfo:
        """Get a scheduled task."""
        await self._scheduler.refresh()
        return wire.to_task_info(self._scheduler.get(principal.user, wire.parse_task_id(task)))

    @endpoint("PATCH", _TASK, example={"cron": "0 10 * * *"}, body_limit=BODY_LIMIT)
    async def change(self, principal: Principal, task: str, body: wire.TaskChanges) -> wire.TaskInfo:
        """Change a scheduled task."""
        return await self._change(principal, task, wire.changes_of(body))

    @endpoint("DELETE", _TASK)
    async def remove(self, principal: Principal, task: str) -> None:
        """Delete a scheduled task."""
        await self._scheduler.remove(principal.user, wire.parse_task_id(task))

    @endpoint("POST", f"{_TASK}/start")
    async def start(self, principal: Principal, task: str) -> wire.TaskInfo:
        """Enable a scheduled task."""
        return await self._change(principal, task, {"enabled": True})

    @endpoint("POST", f"{_TASK}/stop")
    async def stop(self, principal: Principal, task: str) -> wire.TaskInfo:
        """Disable a scheduled task."""
        return await self._change(principal, task, {"enabled": False})

    @endpoint("GET", f"{_TASK}/runs", parameters=PAGE_QUERY)
    async def runs(self, principal: Principal, task: str, query: Mapping[str, str]) -> list[wire.TaskRun]:
        """List a task's runs, newest first."""
        offset, limit = parse_page(query, default=DEFAULT_RUNS_LIMIT, maximum=MAX_RUNS_LIMIT)
        fires = await self._scheduler.fires(principal.user, wire.parse_task_id(task), offset, limit)
        return [wire.to_task_run(fire) for fire in fires]

    async def _change(self, principal: Principal, task: str, changes: dict[str, object]) -> wire.TaskInfo:
        return wire.to_task_info(await self._scheduler.change(principal.user, wire.parse_task_id(task), **changes))
