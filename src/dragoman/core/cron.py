"""Cron expressions: five fields, evaluated on the wall clock of a zone, with rules for its jumps. Pure.

    minute  hour  day of month  month  weekday

A field is `*`, a number, a range `1-5` or a list `1,15`, each with an optional step `/10`. Months and weekdays may be
written with three letters. 0 and 7 are both Sunday. If both day fields are restricted, either may match.

| hour field | a time that the clock skips | a time that the clock shows twice |
|---|---|---|
| fixed | due once, at the first moment after the gap | due the first time |
| begins with `*` | not due | due both times |
"""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from heapq import heappop, heappush
from zoneinfo import ZoneInfo

import msgspec

from dragoman.core.refusals import Invalid

MAX_LENGTH = 100
"""Maximum number of characters of an expression."""
LAST_YEAR = 9000
_MINUTE, _DAY = timedelta(minutes=1), timedelta(days=1)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTH_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_PART = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?", re.ASCII)


class _Field(msgspec.Struct, frozen=True):
    """A field's name and bounds, and the names of its values from `first` on."""

    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()
    first: int = 0


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS, 1),
    _Field("weekday", 0, 7, _WEEKDAYS),
)


class Cron(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed expression. `times` are minutes of the day, in order; weekdays count from Sunday, 0.

    Args:
        has_fixed_hour: decides what happens when the clock jumps; see the table above.
        either_day: one matching day field is enough.
    """

    times: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    has_fixed_hour: bool
    either_day: bool

    def falls_on(self, day: date) -> bool:
        """Whether the expression matches a day."""
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_weekday if self.either_day else by_date and by_weekday


def parse(text: str) -> Cron:
    """Parse an expression. Raises Invalid if it is malformed or never matches."""
    fields = text.split()
    if len(text) > MAX_LENGTH or len(fields) != len(_FIELDS):
        raise Invalid(
            f"must have five fields, as in '0 9 * * mon-fri', and at most {MAX_LENGTH} characters", path="cron"
        )
    minutes, hours, days, months, weekdays = (_values(each, field) for each, field in zip(fields, _FIELDS, strict=True))
    cron = Cron(
        times=tuple(60 * hour + minute for hour in sorted(hours) for minute in sorted(minutes)),
        days=days,
        months=months,
        weekdays=frozenset(each % 7 for each in weekdays),
        has_fixed_hour=not fields[1].startswith("*"),
        either_day=not fields[2].startswith("*") and not fields[4].startswith("*"),
    )
    if not cron.either_day and min(days) > max(_MONTH_LENGTHS[month - 1] for month in months):
        raise Invalid("no such day is in any of these months", path="cron")
    return cron


def _values(text: str, field: _Field) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise Invalid(f"{part!r} is not a valid {field.name}", path="cron")
        star, low, high, step = match.groups()
        first = field.least if star else _value(low, field)
        if high is not None:
            last = _value(high, field)
            last = 7 if field.names == _WEEKDAYS and last == 0 and first > 0 else last  # a week may end with Sunday
        else:
            last = field.most if star or step else first
        if last < first or (step is not None and int(step) == 0):
            raise Invalid(f"{part!r} is not a valid {field.name}", path="cron")
        found.update(range(first, last + 1, int(step or 1)))
    return frozenset(found)


def _value(text: str, field: _Field) -> int:
    if text.lower() in field.names:
        return field.names.index(text.lower()) + field.first
    if not text.isdigit() or len(text) > 2 or not field.least <= int(text) <= field.most:
        raise Invalid(f"{text!r} is not a valid {field.name}", path="cron")
    return int(text)


# --- the times --------------------------------------------------------------------------------------------------------


def times_after(cron: Cron, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The times after `after` that are due, in order, in UTC."""
    waiting: list[datetime] = []
    last = after
    day = after.astimezone(zone).date() - _DAY
    while day.year <= LAST_YEAR:
        for each in _times_on(cron, zone, day):
            if each > after:
                heappush(waiting, each)
        day += _DAY
        # Where the clock goes back over midnight, an hour of the day before comes after the first minutes of the next.
        begins = _moment(datetime.combine(day, time()), zone, 0)
        while waiting and waiting[0] < begins:
            due = heappop(waiting)
            if due > last:
                yield due
                last = due


def next_time(cron: Cron, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The first time after `after` that is due; None if there is none up to the year 9000."""
    return next(times_after(cron, zone, after), None)


def last_time(cron: Cron, zone: ZoneInfo, first: datetime, until: datetime) -> datetime:
    """The last time up to `until` that is due; `first` is one that is due."""
    day, found = until.astimezone(zone).date() + _DAY, first
    while day >= first.astimezone(zone).date() - _DAY:
        is_found = found > first
        found = max((each for each in _times_on(cron, zone, day) if found < each <= until), default=found)
        if is_found:  # one more day was checked, for the same reason as above
            break
        day -= _DAY
    return found


def _times_on(cron: Cron, zone: ZoneInfo, day: date) -> list[datetime]:
    """The times of a day on the wall clock, in UTC, each once, not necessarily in order."""
    if not cron.falls_on(day):
        return []
    midnight = datetime.combine(day, time())
    begins, ends = _moment(midnight, zone, 0), _moment(midnight + _DAY, zone, 1)
    if ends - begins == _DAY and begins == _moment(midnight, zone, 1):  # the clock does not jump
        return [begins + minute * _MINUTE for minute in cron.times]
    found: dict[datetime, None] = {}
    for minute in cron.times:
        found |= dict.fromkeys(_moments(midnight + minute * _MINUTE, zone, has_fixed_hour=cron.has_fixed_hour))
    return list(found)


def _moments(wall: datetime, zone: ZoneInfo, *, has_fixed_hour: bool) -> list[datetime]:
    """The moments when a time is due that the wall clock shows once, twice, or never."""
    first, second = _moment(wall, zone, 0), _moment(wall, zone, 1)
    if first == second:
        return [first]
    if first < second:  # the clock was set back in between
        return [first] if has_fixed_hour else [first, second]
    return [_jump(second, first, zone)] if has_fixed_hour else []


def _moment(wall: datetime, zone: ZoneInfo, fold: int) -> datetime:
    return wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)


def _jump(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The moment between the two when the clock jumps: the first with the later offset."""
    offset = after.astimezone(zone).utcoffset()
    seconds, low = int((after - before).total_seconds()), 0
    while low < seconds:
        middle = (low + seconds) // 2
        if (before + timedelta(seconds=middle)).astimezone(zone).utcoffset() == offset:
            seconds = middle
        else:
            low = middle + 1
    return before + timedelta(seconds=low)
