"""Blade's scheduled tasks on the wire. Pure. Source: specification, sections 3.5 and 13."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dragoman.core.ids import UserId
from dragoman.core.refusals import Invalid
from dragoman.core.schedules import Fire, FireStatus, Schedule, ScheduleId, check_span, to_utc
from dragoman.protocols.blade.wire.chat import public_session_id

_ID_PREFIX = "task_"
_Instant = Annotated[datetime, Meta(tz=True)]


class TaskInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduled task as it is shown."""

    schedule_id: str = msgspec.field(name="id")
    title: str
    prompt: str
    cron: str
    time_zone: str = msgspec.field(name="timezone")
    enabled: bool
    expires_at: datetime | None
    skip_confirmations: bool
    model: str | None
    agent: str | None = msgspec.field(name="solution_id")
    next_at: datetime | None = msgspec.field(name="next_run_at")
    last_at: datetime | None = msgspec.field(name="last_run_at")
    created_at: datetime
    updated_at: datetime


class TaskRun(msgspec.Struct, frozen=True, kw_only=True):
    """A time at which a task was due, in `triggered_at`. A run that was missed or skipped has no session: `""`."""

    id: str
    task_id: str
    session_id: str
    status: FireStatus
    error: str | None
    triggered_at: datetime
    finished_at: datetime | None


class CalendarEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The times at which a task is due. If there are too many, `truncated` is true."""

    task_id: str
    title: str
    occurrences: list[datetime]
    truncated: bool = False


class SchedulePreview(msgspec.Struct, frozen=True, kw_only=True):
    """The next times of an expression, and its time zone."""

    timezone: str
    occurrences: list[datetime]


class NewTask(msgspec.Struct, frozen=True):
    """The body of a creation."""

    title: str
    prompt: str
    cron: str
    time_zone: str | None = msgspec.field(name="timezone", default=None)
    enabled: bool | None = None
    expires_at: _Instant | None = None
    skip_confirmations: bool | None = None
    model: str | None = None
    agent: str | None = msgspec.field(name="solution_id", default=None)


class TaskChanges(msgspec.Struct, frozen=True):
    """The body of a change. Null removes the expiry, the model or the agent; any other field it leaves unchanged."""

    title: str | None = None
    prompt: str | None = None
    cron: str | None = None
    time_zone: str | None = msgspec.field(name="timezone", default=None)
    enabled: bool | None = None
    expires_at: _Instant | UnsetType | None = UNSET
    skip_confirmations: bool | None = None
    model: str | UnsetType | None = UNSET
    agent: str | UnsetType | None = msgspec.field(name="solution_id", default=UNSET)


def public_task_id(schedule_id: ScheduleId) -> str:
    """Return a task's id for clients."""
    return _ID_PREFIX + schedule_id


def parse_task_id(text: str) -> ScheduleId:
    """Return the schedule of a task."""
    return ScheduleId(text.removeprefix(_ID_PREFIX))


def to_task_info(schedule: Schedule) -> TaskInfo:
    """Return a task as clients see it."""
    return msgspec.structs.replace(
        msgspec.convert(schedule, TaskInfo, from_attributes=True),
        schedule_id=public_task_id(schedule.schedule_id),
        next_at=schedule.next_at if schedule.enabled else None,
    )


def to_task_run(fire: Fire) -> TaskRun:
    """Return a run of a task as clients see it."""
    return TaskRun(
        id=f"run_{fire.fire_id}",
        task_id=public_task_id(fire.schedule_id),
        session_id="" if fire.session_id is None else public_session_id(fire.session_id),
        status=fire.status,
        error=fire.error,
        triggered_at=fire.due_at,
        finished_at=fire.finished_at,
    )


def schedule_of(body: NewTask, user: UserId, *, time_zone: str, now: datetime) -> Schedule:
    """Return a new schedule, without its id and its times; `time_zone` is used if the body names none."""
    return Schedule(
        schedule_id=ScheduleId(""),
        user=user,
        title=body.title,
        prompt=body.prompt,
        cron=body.cron,
        time_zone=time_zone if body.time_zone is None else body.time_zone,
        enabled=body.enabled is not False,
        expires_at=body.expires_at,
        skip_confirmations=bool(body.skip_confirmations),
        model=body.model or None,
        agent=body.agent or None,
        created_at=now,
        updated_at=now,
    )


def changes_of(body: TaskChanges) -> dict[str, object]:
    """Return the changed fields. An empty text removes the model or the agent, as null does."""
    values = ((each.name, getattr(body, each.name), each.default) for each in msgspec.structs.fields(body))
    changes = {name: value for name, value, default in values if value is not default}
    return {name: (value or None) if name in ("model", "agent") else value for name, value in changes.items()}


def parse_span(query: Mapping[str, str]) -> tuple[datetime, datetime]:
    """Read the span of the calendar. Raises Invalid if it is absent, or as `core.schedules.check_span` does."""
    return check_span(_parse_instant(query, "from"), _parse_instant(query, "to"))


def _parse_instant(query: Mapping[str, str], name: str) -> datetime:
    text = query.get(name, "").strip().replace(" ", "+")  # an unescaped plus sign arrives as a space
    try:
        return to_utc(msgspec.convert(text, _Instant), name)
    except msgspec.ValidationError as error:
        raise Invalid("must be a time with an offset, as in 2026-01-01T00:00:00Z", path=name) from error
