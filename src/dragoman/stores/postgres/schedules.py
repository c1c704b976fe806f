"""Schedules and their fires in PostgreSQL."""

from collections.abc import Sequence
from functools import partial

import msgspec
from psycopg import Connection

from dragoman.core.refusals import StoreUnavailable
from dragoman.core.schedules import Fire, Schedule, ScheduleId
from dragoman.stores.lookups import MAX_FIRES_PER_SCHEDULE
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.statements import statements
from dragoman.stores.times import to_us

_SQL = statements("schedules")
_SCHEDULE = msgspec.json.Decoder(Schedule)
_FIRE = msgspec.json.Decoder(Fire)


class PostgresSchedules:
    """`ScheduleStore` over one database. A unique key ensures that only one server claims a fire."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, schedule: Schedule) -> None:
        """Store a schedule, replacing any previous one of its id."""
        await self._database.write(partial(_put, schedule))

    async def remove(self, schedule_id: ScheduleId) -> None:
        """Remove a schedule and all its fires."""
        values = {"schedule": schedule_id}
        await self._database.write(lambda connection: connection.execute(_SQL["remove"], values))

    async def all(self) -> Sequence[Schedule]:
        """List all schedules, oldest first."""
        rows = await self._database.read(lambda connection: connection.execute(_SQL["all"]).fetchall())
        return [_SCHEDULE.decode(body) for (body,) in rows]

    async def claim_fire(self, schedule: Schedule, fire: Fire) -> bool:
        """Store a fire and its updated schedule together. Returns False if that time was already claimed."""
        return await self._database.write(partial(_claim, schedule, fire, self._database.node_id))

    async def update_fire(self, fire: Fire) -> None:
        """Store a fire's outcome. Does nothing if the fire no longer exists."""
        values = _fire(fire)
        await self._database.write(lambda connection: connection.execute(_SQL["update_fire"], values))

    async def fires(self, schedule_id: ScheduleId, offset: int, limit: int) -> Sequence[Fire]:
        """Return a page of a schedule's fires, newest first."""
        values = {"schedule": schedule_id, "offset": offset, "limit": limit}
        rows = await self._database.read(lambda connection: connection.execute(_SQL["fires"], values).fetchall())
        return [_FIRE.decode(body) for (body,) in rows]

    async def running_fires(self) -> Sequence[Fire]:
        """List the fires that have not ended, oldest first."""
        rows = await self._database.read(lambda connection: connection.execute(_SQL["running_fires"]).fetchall())
        return [_FIRE.decode(body) for (body,) in rows]


def _put(schedule: Schedule, connection: Connection) -> None:
    values = {
        "schedule": schedule.schedule_id,
        "created_at": to_us(schedule.created_at),
        "body": msgspec.json.encode(schedule).decode(),
    }
    connection.execute(_SQL["put"], values)


def _claim(schedule: Schedule, fire: Fire, node: str | None, connection: Connection) -> bool:
    """Claim a fire and update its schedule, unless another server has changed or removed the schedule."""
    found = connection.execute(_SQL["lock_schedule"], {"schedule": schedule.schedule_id, "node": node}).fetchone()
    if found is None and node is not None:
        return False
    if found is not None and not found[1]:
        raise StoreUnavailable("this server's lease has expired")
    made = connection.execute(_SQL["claim_fire"], {**_fire(fire), "node": node}).rowcount == 1
    if found is None or node is None or _SCHEDULE.decode(found[0]).updated_at == schedule.updated_at:
        _put(schedule, connection)
    connection.execute(_SQL["forget"], {"schedule": fire.schedule_id, "limit": MAX_FIRES_PER_SCHEDULE})
    return made


def _fire(fire: Fire) -> dict[str, object]:
    return {
        "fire": fire.fire_id,
        "schedule": fire.schedule_id,
        "due_at": to_us(fire.due_at),
        "is_running": fire.status == "running",
        "body": msgspec.json.encode(fire).decode(),
    }
