"""Valid time zone names. Pure, except for the list of zones.

The list includes that of the package `tzdata`: some machines have no zones, others lack older names such as
`Asia/Calcutta`, which browsers still send.
"""

from functools import cache
from zoneinfo import available_timezones

PSEUDO = frozenset({"localtime", "posixrules", "Factory", "posix", "right"})
"""Names in zone folders that are not IANA zones or depend on the machine."""


def is_zone(name: str) -> bool:
    """Whether the name is that of an IANA zone, such as `Europe/Berlin`, `UTC` or `Etc/GMT+8`."""
    return name in _names()


@cache
def _names() -> frozenset[str]:
    return frozenset(available_timezones() - PSEUDO)
