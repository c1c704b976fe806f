"""Schedules and their fires in SQLite."""

import sqlite3
from collections.abc import Sequence
from functools import partial

from dragoman.core.ids import SessionId, UserId
from dragoman.core.schedules import Fire, FireId, Schedule, ScheduleId
from dragoman.stores.decoding import decoding
from dragoman.stores.lookups import MAX_FIRES_PER_SCHEDULE
from dragoman.stores.sqlite.database import Database
from dragoman.stores.times import from_us, time_or_none, to_us, us_or_none


class SqliteSchedules:
    """`ScheduleStore` over one database."""

    def __init__(self, database: Database) -> None:
        self._run = database.writer.run
        self._read = database.read

    async def put(self, schedule: Schedule) -> None:
        """Store a schedule, replacing any previous one of its id."""
        await self._run(partial(_put, schedule))

    async def remove(self, schedule_id: ScheduleId) -> None:
        """Remove a schedule and all its fires."""
        await self._run(partial(_remove, schedule_id))

    async def all(self) -> Sequence[Schedule]:
        """List all schedules, oldest first."""
        with decoding("a schedule"):
            return await self._read(_all_schedules)

    async def claim_fire(self, schedule: Schedule, fire: Fire) -> bool:
        """Store a fire and its updated schedule together. Returns False if that time was already claimed."""
        return await self._run(partial(_claim_fire, schedule, fire))

    async def update_fire(self, fire: Fire) -> None:
        """Store a fire's outcome. Does nothing if the fire no longer exists."""
        values = (fire.session_id, fire.status, fire.error, us_or_none(fire.finished_at), fire.fire_id)
        await self._run(
            lambda connection: connection.execute(
                "UPDATE fires SET session_id = ?, status = ?, error = ?, finished_at = ? WHERE fire_id = ?", values
            )
        )

    async def fires(self, schedule_id: ScheduleId, offset: int, limit: int) -> Sequence[Fire]:
        """Return a page of a schedule's fires, newest first."""
        where = "schedule_id = ? ORDER BY due_at DESC LIMIT ? OFFSET ?"
        return await self._read(lambda connection: _fires(connection, where, (schedule_id, limit, offset)))

    async def running_fires(self) -> Sequence[Fire]:
        """List the fires that have not ended, oldest first."""
        return await self._read(lambda connection: _fires(connection, "status = 'running' ORDER BY due_at, fire_id"))


def _put(schedule: Schedule, connection: sqlite3.Connection) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO schedules VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            schedule.schedule_id,
            schedule.user,
            schedule.title,
            schedule.prompt,
            schedule.cron,
            schedule.time_zone,
            schedule.enabled,
            us_or_none(schedule.expires_at),
            schedule.skip_confirmations,
            schedule.model,
            to_us(schedule.created_at),
            to_us(schedule.updated_at),
            us_or_none(schedule.next_at),
            us_or_none(schedule.last_at),
            schedule.agent,
            schedule.reports_to,
            schedule.task_depth,
        ),
    )


def _remove(schedule_id: ScheduleId, connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM fires WHERE schedule_id = ?", (schedule_id,))
    connection.execute("DELETE FROM schedules WHERE schedule_id = ?", (schedule_id,))


def _claim_fire(schedule: Schedule, fire: Fire, connection: sqlite3.Connection) -> bool:
    made = connection.execute(
        "INSERT OR IGNORE INTO fires VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            fire.fire_id,
            fire.schedule_id,
            to_us(fire.due_at),
            fire.session_id,
            fire.status,
            fire.error,
            to_us(fire.started_at),
            us_or_none(fire.finished_at),
        ),
    )
    _put(schedule, connection)
    connection.execute(
        "DELETE FROM fires WHERE schedule_id = ? AND status <> 'running' AND due_at <="
        " (SELECT due_at FROM fires WHERE schedule_id = ? ORDER BY due_at DESC LIMIT 1 OFFSET ?)",
        (fire.schedule_id, fire.schedule_id, MAX_FIRES_PER_SCHEDULE),
    )
    return made.rowcount == 1


def _all_schedules(connection: sqlite3.Connection) -> list[Schedule]:
    rows = connection.execute(
        "SELECT schedule_id, user, title, prompt, cron, time_zone, enabled, expires_at, skip_confirmations, model,"
        " created_at, updated_at, next_at, last_at, agent, reports_to, task_depth FROM schedules"
        " ORDER BY created_at, schedule_id"
    )
    return [
        Schedule(
            schedule_id=ScheduleId(schedule_id),
            user=UserId(user),
            title=title,
            prompt=prompt,
            cron=cron,
            time_zone=time_zone,
            enabled=bool(enabled),
            expires_at=time_or_none(expires_at),
            skip_confirmations=bool(skip_confirmations),
            model=model,
            created_at=from_us(created_at),
            updated_at=from_us(updated_at),
            next_at=time_or_none(next_at),
            last_at=time_or_none(last_at),
            agent=agent,
            reports_to=None if reports_to is None else SessionId(reports_to),
            task_depth=task_depth,
        )
        for (
            schedule_id, user, title, prompt, cron, time_zone, enabled, expires_at, skip_confirmations, model,
            created_at, updated_at, next_at, last_at, agent, reports_to, task_depth,
        ) in rows
    ]  # fmt: skip


def _fires(connection: sqlite3.Connection, where: str, values: Sequence[object] = ()) -> list[Fire]:
    rows = connection.execute(
        "SELECT fire_id, schedule_id, due_at, session_id, status, error, started_at, finished_at FROM fires"  # noqa: S608
        f" WHERE {where}",
        values,
    )
    return [
        Fire(
            fire_id=FireId(fire_id),
            schedule_id=ScheduleId(schedule_id),
            due_at=from_us(due_at),
            session_id=None if session_id is None else SessionId(session_id),
            status=status,
            error=error,
            started_at=from_us(started_at),
            finished_at=time_or_none(finished_at),
        )
        for fire_id, schedule_id, due_at, session_id, status, error, started_at, finished_at in rows
    ]
