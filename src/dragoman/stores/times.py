"""Times as the databases hold them: whole microseconds since 1970, UTC."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_us(at: datetime) -> int:
    """A time as a database holds it."""
    return (at - _EPOCH) // _MICROSECOND


def from_us(us: int) -> datetime:
    """The inverse of `to_us`."""
    return _EPOCH + timedelta(microseconds=us)


def us_or_none(at: datetime | None) -> int | None:
    """A time as a database holds it, if there is one."""
    return None if at is None else to_us(at)


def time_or_none(us: int | None) -> datetime | None:
    """The inverse of `us_or_none`."""
    return None if us is None else from_us(us)
