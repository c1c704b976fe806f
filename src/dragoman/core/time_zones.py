"""Valid time zone names. Pure, except for the list of zones.

The list includes that of the package `tzdata`: some machines have no zones, others lack older names such as
`Asia/Calcutta`, which browsers still send.
"""

from collections.abc import Mapping
from functools import cache
from zoneinfo import available_timezones

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
