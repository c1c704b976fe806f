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
