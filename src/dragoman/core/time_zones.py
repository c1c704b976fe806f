"""Valid time zone names and times, as clients send them. Pure, except for the list of zones.

The list includes that of the package `tzdata`: some machines have no zones, others lack older names such as
`Asia/Calcutta`, which browsers still send.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from zoneinfo import available_timezones

from dragoman.core.content import Json

PSEUDO = frozenset({"localtime", "posixrules", "Factory", "posix", "right"})
"""Names in zone folders that are not IANA zones or depend on the machine."""


EVENT_TIME_ZONE = "event_timezone"
"""The argument in which a call names the zone of its event."""


def zone_of_call(arguments: Mapping[str, object], run_zone: str) -> str:
    """The zone of a call's event: the one that the call names, else that of the run."""
    named = arguments.get(EVENT_TIME_ZONE)
    return named if isinstance(named, str) and is_zone(named) else run_zone


def is_zone(name: str) -> bool:
    """Whether the name is that of an IANA zone, such as `Europe/Berlin`, `UTC` or `Etc/GMT+8`."""
    return name in _names()


@cache
def _names() -> frozenset[str]:
    return frozenset(available_timezones() - PSEUDO)


_INSTANT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}):([0-9]{2})(?:\.[0-9]+)?(?:[Zz]|[+-]([0-9]{2}):([0-9]{2}))"
)


def is_instant(value: Json) -> bool:
    """Whether a value is an RFC 3339 time: with an offset or `Z`; leap seconds are allowed."""
    if not isinstance(value, str) or (match := _INSTANT.fullmatch(value)) is None:
        return False
    day, minute, second, offset_hours, offset_minutes = match.groups(default="0")
    try:
        datetime.fromisoformat(f"{day}T{minute}:00+00:00")
    except ValueError:
        return False
    return int(second) <= 60 and int(offset_hours) <= 23 and int(offset_minutes) <= 59
