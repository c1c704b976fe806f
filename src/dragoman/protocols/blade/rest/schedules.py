"""Blade's scheduled tasks over REST. Thin: decode, ask the schedule book, encode. Source: specification, section 13."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.ids import UserId
from dragoman.core.schedules import ScheduleId, upcoming_times
from dragoman.engine.scheduler import Scheduler
from dragoman.ports.environment import Clock
from dragoman.protocols.blade.rest import bodies
from dragoman.protocols.blade.rest.router import Route, json_body
from dragoman.protocols.blade.wire import schedules as wire
from dragoman.protocols.kit.http import json_response, principal_of

BODY_LIMIT = 2 * 1024 * 1024
"""A prompt is a message's text, which may be long."""
DEFAULT_RUNS_LIMIT = 100
MAX_RUNS_LIMIT = 1000
DEFAULT_PREVIEW_COUNT = 5
MAX_PREVIEW_COUNT = 50

TimeZoneLookup = Callable[[UserId], str]
"""The time zone of a user who names none."""


def routes(book: Scheduler, clock: Clock, time_zone_of: TimeZoneLookup) -> list[Route]:
    """What answers below `/api/scheduled-tasks`."""
    door = _ScheduleHandlers(book, clock, time_zone_of)
    return [
        Route("POST", "scheduled-tasks", door.create),
        Route("GET", "scheduled-tasks", door.list),
        Route("GET", "scheduled-tasks/calendar", door.calendar),
        Route("GET", "scheduled-tasks/preview", door.preview),
        Route("GET", "scheduled-tasks/{task}", door.get),
        Route("PATCH", "scheduled-tasks/{task}", door.change),
        Route("DELETE", "scheduled-tasks/{task}", door.remove),
        Route("POST", "scheduled-tasks/{task}/start", door.start),
        Route("POST", "scheduled-tasks/{task}/stop", door.stop),
        Route("GET", "scheduled-tasks/{task}/runs", door.runs),
    ]


class _ScheduleHandlers:
    def __init__(self, book: Scheduler, clock: Clock, zone_of: TimeZoneLookup) -> None:
        self._book = book
        self._clock = clock
        self._time_zone_of = zone_of

    async def create(self, request: Request) -> Response:
        body = bodies.decode(wire.NewTask, await json_body(request, BODY_LIMIT))
        user = principal_of(request).user
        asked = wire.schedule_of(body, user, time_zone=self._time_zone_of(user), now=self._clock.now())
        return json_response(wire.to_task_info(await self._book.create(asked)), 201)

    async def list(self, request: Request) -> Response:
        await self._book.refresh()
        return json_response([wire.to_task_info(each) for each in self._book.for_user(principal_of(request).user)])

    async def get(self, request: Request) -> Response:
        await self._book.refresh()
        return json_response(wire.to_task_info(self._book.get(principal_of(request).user, _task_id(request))))

    async def change(self, request: Request) -> Response:
        body = bodies.decode(wire.TaskChanges, await json_body(request, BODY_LIMIT))
        return await self._apply_changes(request, wire.changes_of(body, self._clock.now()))

    async def start(self, request: Request) -> Response:
        return await self._apply_changes(request, {"enabled": True})

    async def stop(self, request: Request) -> Response:
        return await self._apply_changes(request, {"enabled": False})

    async def remove(self, request: Request) -> Response:
        await self._book.remove(principal_of(request).user, _task_id(request))
        return Response(status_code=204)

    async def runs(self, request: Request) -> Response:
        offset = bodies.parse_int(request.query_params, "offset", 0, minimum=0, maximum=999_999_999)
        limit = bodies.parse_int(request.query_params, "limit", DEFAULT_RUNS_LIMIT, minimum=1, maximum=MAX_RUNS_LIMIT)
        fires = await self._book.fires(principal_of(request).user, _task_id(request), offset, limit)
        return json_response([wire.to_task_run(fire) for fire in fires])

    async def calendar(self, request: Request) -> Response:
        first, end = wire.parse_span(request.query_params)
        found = await self._book.calendar(principal_of(request).user, first, end)
        return json_response(
            [
                wire.to_calendar_entry(each.schedule, each.times, is_truncated=each.is_truncated)
                for each in found
                if each.times
            ]
        )

    async def preview(self, request: Request) -> Response:
        """What somebody who writes a task looks at; an addition of ours."""
        query = request.query_params
        zone = query.get("timezone") or self._time_zone_of(principal_of(request).user)
        count = bodies.parse_int(query, "count", DEFAULT_PREVIEW_COUNT, minimum=1, maximum=MAX_PREVIEW_COUNT)
        times = upcoming_times(query.get("cron", ""), zone, self._clock.now(), count)
        return json_response(wire.SchedulePreview(timezone=zone, occurrences=times))

    async def _apply_changes(self, request: Request, changes: dict[str, object]) -> Response:
        changed = await self._book.change(principal_of(request).user, _task_id(request), **changes)
        return json_response(wire.to_task_info(changed))


def _task_id(request: Request) -> ScheduleId:
    return wire.parse_task_id(request.path_params["task"])
