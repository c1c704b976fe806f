"""Blade's scheduled tasks over REST. Thin: decode, ask the schedule book, encode. Source: specification, section 13."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.ids import UserId
from dragoman.core.schedules import ScheduleId, upcoming
from dragoman.engine.scheduler import ScheduleBook
from dragoman.ports import Clock
from dragoman.protocols.blade.rest import bodies
from dragoman.protocols.blade.rest.router import Route, json_body
from dragoman.protocols.blade.wire import schedules as wire
from dragoman.protocols.kit.http import caller_of, json_answer

BODY_LIMIT = 2 * 1024 * 1024
"""A prompt is a message's text, which may be long."""
RUNS = 100
MOST_RUNS = 1000
PREVIEWED = 5
MOST_PREVIEWED = 50

ZoneOf = Callable[[UserId], str]
"""The time zone of a user who names none."""


def routes(book: ScheduleBook, clock: Clock, zone_of: ZoneOf) -> list[Route]:
    """What answers below `/api/scheduled-tasks`."""
    door = _Door(book, clock, zone_of)
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


class _Door:
    def __init__(self, book: ScheduleBook, clock: Clock, zone_of: ZoneOf) -> None:
        self._book = book
        self._clock = clock
        self._zone_of = zone_of

    async def create(self, request: Request) -> Response:
        body = bodies.decode(wire.NewTask, await json_body(request, BODY_LIMIT))
        user = caller_of(request).user
        asked = wire.schedule_of(body, user, time_zone=self._zone_of(user), now=self._clock.now())
        return json_answer(wire.shown(await self._book.create(asked)), 201)

    async def list(self, request: Request) -> Response:
        await self._book.refresh()
        return json_answer([wire.shown(each) for each in self._book.of(caller_of(request).user)])

    async def get(self, request: Request) -> Response:
        await self._book.refresh()
        return json_answer(wire.shown(self._book.get(caller_of(request).user, _asked(request))))

    async def change(self, request: Request) -> Response:
        body = bodies.decode(wire.ChangedTask, await json_body(request, BODY_LIMIT))
        return await self._changed(request, wire.changes_of(body, self._clock.now()))

    async def start(self, request: Request) -> Response:
        return await self._changed(request, {"enabled": True})

    async def stop(self, request: Request) -> Response:
        return await self._changed(request, {"enabled": False})

    async def remove(self, request: Request) -> Response:
        await self._book.remove(caller_of(request).user, _asked(request))
        return Response(status_code=204)

    async def runs(self, request: Request) -> Response:
        offset = bodies.number(request.query_params, "offset", 0, least=0, most=999_999_999)
        limit = bodies.number(request.query_params, "limit", RUNS, least=1, most=MOST_RUNS)
        fires = await self._book.fires(caller_of(request).user, _asked(request), offset, limit)
        return json_answer([wire.shown_fire(fire) for fire in fires])

    async def calendar(self, request: Request) -> Response:
        first, end = wire.span_of(request.query_params)
        found = await self._book.calendar(caller_of(request).user, first, end)
        return json_answer([wire.entry(each.schedule, each.times, is_cut=each.is_cut) for each in found if each.times])

    async def preview(self, request: Request) -> Response:
        """What somebody who writes a task looks at; an addition of ours."""
        query = request.query_params
        zone = query.get("timezone") or self._zone_of(caller_of(request).user)
        count = bodies.number(query, "count", PREVIEWED, least=1, most=MOST_PREVIEWED)
        times = upcoming(query.get("cron", ""), zone, self._clock.now(), count)
        return json_answer(wire.Preview(timezone=zone, occurrences=times))

    async def _changed(self, request: Request, changes: dict[str, object]) -> Response:
        changed = await self._book.change(caller_of(request).user, _asked(request), **changes)
        return json_answer(wire.shown(changed))


def _asked(request: Request) -> ScheduleId:
    return wire.read_task(request.path_params["task"])
