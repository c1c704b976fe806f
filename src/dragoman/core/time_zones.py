"""Which names are time zones that events may be in. Pure, but for the list of zones.

The list is the package `tzdata`'s, beside the machine's own: some machines have none, others have left out older names,
and browsers still send those (`Asia/Calcutta`).
"""

from functools import cache
from zoneinfo import available_timezones

PSEUDO = frozenset({"localtime", "posixrules", "Factory", "posix", "right"})
"""Names that stand in zone folders and are no zone of the IANA's, or stand for the machine's own."""


def is_zone(name: str) -> bool:
    """Whether that is the name of an IANA zone, such as `Europe/Berlin`, `UTC` or `Etc/GMT+8`."""
    return name in _names()


@cache
def _names() -> frozenset[str]:
    return frozenset(available_timezones() - PSEUDO)
