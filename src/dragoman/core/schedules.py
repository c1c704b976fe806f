"""Schedules, which send a prompt at certain times: their validation, and what is due. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Literal, NewType
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

import msgspec

from dragoman.core.cron import Cron, last_time, next_time, parse, times_after
from dragoman.core.events import ProtocolName, RunStopped
from dragoman.core.ids import CallId, SessionId, UserId
from dragoman.core.refusals import Invalid
from dragoman.core.time_zones import is_zone
from dragoman.core.tools import ScheduledPrompt

ScheduleId = NewType("ScheduleId", str)
FireId = NewType("FireId", str)
FireStatus = Literal["running", "completed", "failed"]

PROTOCOL: ProtocolName = "scheduler"
"""What sessions and runs have in place of a protocol if the scheduler began them."""
MAX_TITLE_LENGTH = MAX_MODEL_LENGTH = 200
MISFIRE_GRACE_TIME = timedelta(minutes=5)
"""How late a fire may start after its due time, such as after downtime of the server."""
MAX_CALENDAR_SPAN = timedelta(days=366)
ANSWER_TIMEOUT = timedelta(hours=24)
"""How long a fire waits for its user to answer."""
MISSED = "missed: server was not running"
SKIPPED = "skipped: previous run still running"
NO_ANSWER = "no answer within 24 hours"
STOPPED_WHILE_WAITING = "the run was stopped while it waited"
SESSION_DELETED = "the session was deleted"
INTERNAL_ERROR = "an internal error; the log of the server has the details"
NOT_STARTED = "the run could not be started"
MAX_TASK_DEPTH = 8
"""How many background tasks may follow from each other."""
NOT_SERVED = "missed: no server has the agent {agent!r}"
_VERSION_DIGIT = 14
"""Index of the version in a UUID's text. Source: RFC 9562, section 4.2."""
_DECLARED = UUID("6f1c3c52-1f0e-5a0c-9b43-0d6a5e0f7a11")
"""The namespace of the ids of schedules that agents declare."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt and its times. `next_at` is the next due time, even if the schedule expires before it."""

    schedule_id: ScheduleId
    user: UserId
    title: str
    prompt: str
    cron: str
    time_zone: str
    enabled: bool = True
    expires_at: datetime | None = None
    skip_confirmations: bool = False
    model: str | None = None
    agent: str | None = None
    """The agent that gets the prompt: the one that declares the schedule, or that the user chose. None: the default
    one."""
    reports_to: SessionId | None = None
    """Of a background task: the session that gets the result. Such a schedule fires once, and is in no list."""
    task_depth: int = 0
    """Of a background task: how many led to it, with itself."""
    created_at: datetime
    updated_at: datetime
    next_at: datetime | None = None
    last_at: datetime | None = None

    @property
    def is_declared(self) -> bool:
        """Whether the agent declares it. Only then the id is a UUID made from a name, of version 5 (`declared`)."""
        return self.agent is not None and self.schedule_id[_VERSION_DIGIT : _VERSION_DIGIT + 1] == "5"

    @property
    def parsed_times(self) -> tuple[Cron, ZoneInfo]:
        """The parsed expression and zone."""
        return parse(self.cron), ZoneInfo(self.time_zone)

    def is_expired(self, now: datetime) -> bool:
        """Whether the schedule has expired."""
        return self.expires_at is not None and self.expires_at <= now


class BackgroundTask(msgspec.Struct, frozen=True, kw_only=True):
    """Work that an agent starts in a separate session; the agent's session gets the result later.

    `task_id` is the id of the call that starts it, and also that of the new session. `depth` counts the background
    tasks that led to it, with itself.
    """

    task_id: CallId
    user: UserId
    reports_to: SessionId
    agent: str
    prompt: str
    depth: int = 1


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """One due time of a schedule, and its result."""

    fire_id: FireId
    schedule_id: ScheduleId
    due_at: datetime
    session_id: SessionId | None = None
    status: FireStatus
    error: str | None = None
    started_at: datetime
    finished_at: datetime | None = None


def validate(schedule: Schedule, now: datetime) -> Schedule:
    """The schedule with its next due time. Raises Invalid with the wrong field as path."""
    _check("title", schedule.title, MAX_TITLE_LENGTH)
    _check("prompt", schedule.prompt, None)
    if schedule.model is not None:
        _check("model", schedule.model, MAX_MODEL_LENGTH)
    cron, zone = _parse(schedule.cron, schedule.time_zone)
    return msgspec.structs.replace(schedule, next_at=next_time(cron, zone, now))


def for_task(task: BackgroundTask, now: datetime) -> Schedule:
    """The schedule that represents a background task.

    Raises:
        Invalid: there is nothing to do, or too many tasks led to this one.
    """
    _check("task", task.prompt, None)
    if task.depth > MAX_TASK_DEPTH:
        raise Invalid(f"{MAX_TASK_DEPTH} background tasks led to this one already: no more may follow without the user")
    title = " ".join(task.prompt.split())[:MAX_TITLE_LENGTH]
    return Schedule(
        schedule_id=ScheduleId(task.task_id),
        user=task.user,
        title=title,
        prompt=task.prompt,
        cron="0 0 1 1 *",
        time_zone="UTC",
        enabled=False,
        agent=task.agent,
        reports_to=task.reports_to,
        task_depth=task.depth,
        created_at=now,
        updated_at=now,
    )


def declared(agent: str, prompt: ScheduledPrompt, now: datetime) -> Schedule:
    """The schedule that an agent declares. Its id is the same on every server. Raises Invalid with the wrong field."""
    if not prompt.user.strip():
        raise Invalid("must not be blank", path="user")
    schedule = Schedule(
        schedule_id=ScheduleId(str(uuid5(_DECLARED, f"{agent}/{prompt.name}"))),
        user=UserId(prompt.user),
        title=prompt.name,
        prompt=prompt.prompt,
        cron=prompt.cron,
        time_zone=prompt.time_zone,
        skip_confirmations=prompt.skip_confirmations,
        agent=agent,
        created_at=now,
        updated_at=now,
    )
    return validate(schedule, now)


def update_declared(before: Schedule, schedule: Schedule) -> Schedule:
    """A stored schedule as its agent declares it now. It keeps its history, and its next time if the times are equal.

    Whether it is enabled is its user's decision.
    """
    is_moved = (before.cron, before.time_zone) != (schedule.cron, schedule.time_zone)
    after = msgspec.structs.replace(
        schedule,
        enabled=before.enabled,
        created_at=before.created_at,
        updated_at=before.updated_at,
        next_at=schedule.next_at if is_moved else before.next_at,
        last_at=before.last_at,
    )
    return before if after == before else msgspec.structs.replace(after, updated_at=schedule.updated_at)


def check_expiry(at: datetime | None, now: datetime) -> datetime | None:
    """The time at which a schedule is to expire, in UTC. Raises Invalid if it has passed."""
    if at is not None and (at := to_utc(at, "expires_at")) <= now:
        raise Invalid("must be in the future", path="expires_at")
    return at


def check_span(first: datetime, end: datetime) -> tuple[datetime, datetime]:
    """A span of the calendar. Raises Invalid if it is empty, or longer than 366 days."""
    if not timedelta(0) < end - first <= MAX_CALENDAR_SPAN:
        raise Invalid(f"must be after from, by at most {MAX_CALENDAR_SPAN.days} days", path="to")
    return first, end


def to_utc(at: datetime, name: str) -> datetime:
    """A time in UTC. Raises Invalid if it is too far away to be computed with."""
    try:
        moment = at.astimezone(UTC)
    except OverflowError as error:
        raise Invalid("is out of range", path=name) from error
    if not 1970 <= moment.year <= 9000:
        raise Invalid("is out of range", path=name)
    return moment


def upcoming_times(cron: str, time_zone: str, now: datetime, count: int) -> list[datetime]:
    """The next times of an expression that is not stored. Raises the same errors as `validate`."""
    return list(islice(times_after(*_parse(cron, time_zone), now), count))


def _parse(cron: str, time_zone: str) -> tuple[Cron, ZoneInfo]:
    parsed = parse(cron)
    if not is_zone(time_zone):
        raise Invalid(f"{time_zone[:80]!r} is not an IANA time zone such as Europe/Berlin", path="timezone")
    return parsed, ZoneInfo(time_zone)


def _check(name: str, value: str, most: int | None) -> None:
    if not value.strip() or (most is not None and len(value) > most):
        raise Invalid(f"must have 1 to {most} characters" if most else "must not be blank", path=name)
    if any("\ud800" <= each <= "\udfff" or each == "\0" for each in value):
        raise Invalid("must be whole Unicode characters", path=name)


class Expired(msgspec.Struct, frozen=True):
    """The schedule has expired and has to be disabled."""


class Due(msgspec.Struct, frozen=True):
    """A due time; `next_at` is the one after it."""

    due_at: datetime
    next_at: datetime | None
    error: str | None = None
    """Why it is not fired."""


def due_action(schedule: Schedule, now: datetime, *, is_running: bool) -> Expired | Due | None:
    """What to do about a schedule now. Of several due times in the past, only the last one counts.

    Args:
        schedule: the schedule.
        now: the time.
        is_running: whether the previous fire is still running.
    """
    first = schedule.next_at
    if not schedule.enabled or first is None or first > now:
        return None
    if schedule.is_expired(first):
        return Expired()
    cron, zone = schedule.parsed_times
    last = last_time(cron, zone, first, now)
    if schedule.is_expired(last):  # it expired while the server was down
        assert schedule.expires_at is not None, "it has expired"
        last = last_time(cron, zone, first, schedule.expires_at - timedelta(microseconds=1))
    upcoming = next_time(cron, zone, now)
    if now - last >= MISFIRE_GRACE_TIME:
        return Due(last, upcoming, MISSED)
    return Due(last, upcoming, SKIPPED if is_running else None)


def occurrences(schedule: Schedule, first: datetime, end: datetime) -> Iterator[datetime]:
    """The times from `first` up to, not including, `end`, and before it expires."""
    cron, zone = schedule.parsed_times
    end = end if schedule.expires_at is None else min(end, schedule.expires_at)
    for each in times_after(cron, zone, first - timedelta(microseconds=1)):
        if each >= end:
            return
        yield each


def fire_result(stop: RunStopped) -> tuple[FireStatus, str | None]:
    """The result of a fire whose session is at rest, by the end of its last run."""
    if stop.reason == "tool_use":  # it waited for an answer that is no longer needed
        return "failed", STOPPED_WHILE_WAITING
    if stop.reason in ("cancelled", "interrupted", "error"):
        return "failed", stop.message or stop.reason
    return "completed", None
