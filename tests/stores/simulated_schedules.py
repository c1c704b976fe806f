"""Schedules in dictionaries: the contract in the fewest words."""

from collections.abc import Sequence

from dragoman.core.schedules import Fire, FireId, Schedule, ScheduleId


class SimulatedSchedules:
    """`Schedules` in memory."""

    def __init__(self) -> None:
        self._schedules: dict[ScheduleId, Schedule] = {}
        self._fires: dict[FireId, Fire] = {}

    async def put(self, schedule: Schedule) -> None:
        self._schedules[schedule.schedule_id] = schedule

    async def remove(self, schedule_id: ScheduleId) -> None:
        self._schedules.pop(schedule_id, None)
        self._fires = {name: fire for name, fire in self._fires.items() if fire.schedule_id != schedule_id}

    async def all(self) -> Sequence[Schedule]:
        return sorted(self._schedules.values(), key=lambda each: (each.created_at, each.schedule_id))

    async def claim_fire(self, schedule: Schedule, fire: Fire) -> bool:
        is_new = all(
            (each.schedule_id, each.due_at) != (fire.schedule_id, fire.due_at) for each in self._fires.values()
        )
        if is_new:
            self._fires[fire.fire_id] = fire
        await self.put(schedule)
        return is_new

    async def update_fire(self, fire: Fire) -> None:
        if fire.fire_id in self._fires:
            self._fires[fire.fire_id] = fire

    async def fires(self, schedule_id: ScheduleId, offset: int, limit: int) -> Sequence[Fire]:
        found = [fire for fire in self._fires.values() if fire.schedule_id == schedule_id]
        return sorted(found, key=lambda fire: fire.due_at, reverse=True)[offset : offset + limit]

    async def running_fires(self) -> Sequence[Fire]:
        found = [fire for fire in self._fires.values() if fire.status == "running"]
        return sorted(found, key=lambda fire: (fire.due_at, fire.fire_id))
