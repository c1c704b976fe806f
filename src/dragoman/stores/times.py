"""Times as databases store them: whole microseconds since 1970, UTC."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_us(at: datetime) -> int:
    """Convert a time to its stored form."""
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def from_us(us: int) -> datetime:
    """The inverse of `to_us`."""
    return _EPOCH + timedelta(microseconds=us)


def us_or_none(at: datetime | None) -> int | None:
    """Convert an optional time to its stored form."""
    return None if at is None else to_us(at)


def time_or_none(us: int | None) -> datetime | None:
    """The inverse of `us_or_none`."""
    return None if us is None else from_us(us)
