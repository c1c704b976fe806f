"""Blade's scheduled tasks on the wire. Pure: no server, no clock, no storage. Source: specification, §§3.5 and 13."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dragoman.core.ids import UserId
from dragoman.core.refusals import Invalid
from dragoman.core.schedules import Fire, FireStatus, Schedule, ScheduleId
from dragoman.protocols.blade.wire.chat import public_session_id

MAX_CALENDAR_SPAN = timedelta(days=366)
_ID_PREFIX = "task_"
_Instant = Annotated[datetime, Meta(tz=True)]


class TaskInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduled task as it is shown."""

    id: str
    title: str
    prompt: str
    cron: str
    timezone: str
    enabled: bool
    expires_at: datetime | None
    skip_confirmations: bool
    model: str | None
    next_run_at: datetime | None
    last_run_at: datetime | None
    created_at: datetime
    updated_at: datetime


class TaskRun(msgspec.Struct, frozen=True, kw_only=True):
    """A time that came due. `triggered_at` is that time."""

    id: str
    task_id: str
    session_id: str | None
    status: FireStatus
    error: str | None
    triggered_at: datetime
    finished_at: datetime | None


class CalendarEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a task is due. Of very many times the first are told, and that it is so."""

    task_id: str
    title: str
    occurrences: list[datetime]
    truncated: bool = False


class SchedulePreview(msgspec.Struct, frozen=True, kw_only=True):
    """The next times of an expression, and the zone that it was read in."""

    timezone: str
    occurrences: list[datetime]


class NewTask(msgspec.Struct, frozen=True):
    """The body of a creation."""

    title: str
    prompt: str
    cron: str
    timezone: str | None = None
    enabled: bool | None = None
    expires_at: _Instant | None = None
    skip_confirmations: bool | None = None
    model: str | None = None


class TaskChanges(msgspec.Struct, frozen=True):
    """The body of a change. Null takes the expiry or the model away, and leaves everything else as it is."""

    title: str | None = None
    prompt: str | None = None
    cron: str | None = None
    timezone: str | None = None
    enabled: bool | None = None
    expires_at: _Instant | UnsetType | None = UNSET
    skip_confirmations: bool | None = None
    model: str | UnsetType | None = UNSET


def public_task_id(schedule_id: ScheduleId) -> str:
    """A task's id as clients have it."""
    return _ID_PREFIX + schedule_id


def parse_task_id(text: str) -> ScheduleId:
    """A task's id as we have it."""
    return ScheduleId(text.removeprefix(_ID_PREFIX))


def to_task_info(schedule: Schedule) -> TaskInfo:
    """A task as clients see it."""
    return TaskInfo(
        id=public_task_id(schedule.schedule_id),
        title=schedule.title,
        prompt=schedule.prompt,
        cron=schedule.cron,
        timezone=schedule.time_zone,
        enabled=schedule.enabled,
        expires_at=schedule.expires_at,
        skip_confirmations=schedule.skip_confirmations,
        model=schedule.model,
        next_run_at=schedule.next_at if schedule.enabled else None,
        last_run_at=schedule.last_at,
        created_at=schedule.created_at,
        updated_at=schedule.updated_at,
    )


def to_task_run(fire: Fire) -> TaskRun:
    """A run of a task as clients see it."""
    return TaskRun(
        id=f"run_{fire.fire_id}",
        task_id=public_task_id(fire.schedule_id),
        session_id=None if fire.session_id is None else public_session_id(fire.session_id),
        status=fire.status,
        error=fire.error,
        triggered_at=fire.due_at,
        finished_at=fire.finished_at,
    )


def schedule_of(body: NewTask, user: UserId, *, time_zone: str, now: datetime) -> Schedule:
    """A new schedule, but for its id and its times.

    Args:
        body: as it came.
        user: whose.
        time_zone: if the body names none.
        now: the time.

    Raises:
        Invalid: it has expired.
    """
    return Schedule(
        schedule_id=ScheduleId(""),
        user=user,
        title=body.title,
        prompt=body.prompt,
        cron=body.cron,
        time_zone=time_zone if body.timezone is None else body.timezone,
        enabled=True if body.enabled is None else body.enabled,
        expires_at=None if body.expires_at is None else _check_future(body.expires_at, now),
        skip_confirmations=bool(body.skip_confirmations),
        model=body.model or None,
        created_at=now,
        updated_at=now,
    )


def changes_of(body: TaskChanges, now: datetime) -> dict[str, object]:
    """What a change changes, by the schedule's own names. Raises Invalid: it would have expired."""
    changes: dict[str, object] = {
        "time_zone" if name == "timezone" else name: value
        for name in ("title", "prompt", "cron", "timezone", "enabled", "skip_confirmations")
        if (value := getattr(body, name)) is not None
    }
    if body.expires_at is not UNSET:
        changes["expires_at"] = None if body.expires_at is None else _check_future(body.expires_at, now)
    if body.model is not UNSET:
        changes["model"] = body.model or None
    return changes


def to_calendar_entry(schedule: Schedule, times: Sequence[datetime], *, is_truncated: bool) -> CalendarEntry:
    """A task's line in the calendar."""
    return CalendarEntry(
        task_id=public_task_id(schedule.schedule_id),
        title=schedule.title,
        occurrences=list(times),
        truncated=is_truncated,
    )


def parse_span(query: Mapping[str, str]) -> tuple[datetime, datetime]:
    """The calendar's span. Raises Invalid: it is not told, is empty, or is longer than 366 days."""
    first, end = _parse_instant(query, "from"), _parse_instant(query, "to")
    if not timedelta(0) < end - first <= MAX_CALENDAR_SPAN:
        raise Invalid(f"must be after from, by at most {MAX_CALENDAR_SPAN.days} days", path="to")
    return first, end


def _parse_instant(query: Mapping[str, str], name: str) -> datetime:
    # A plus sign that was not escaped arrives as a space.
    given = query.get(name, "").strip().replace(" ", "+")
    try:
        return _to_utc(msgspec.convert(given, _Instant), name)
    except msgspec.ValidationError as error:
        raise Invalid("must be a time with an offset, as in 2026-01-01T00:00:00Z", path=name) from error


def _check_future(at: datetime, now: datetime) -> datetime:
    if (moment := _to_utc(at, "expires_at")) <= now:
        raise Invalid("must be in the future", path="expires_at")
    return moment


def _to_utc(at: datetime, name: str) -> datetime:
    try:
        moment = at.astimezone(UTC)
    except OverflowError as error:
        raise Invalid("is out of range", path=name) from error
    if not 1970 <= moment.year <= 9000:
        raise Invalid("is out of range", path=name)
    return moment
