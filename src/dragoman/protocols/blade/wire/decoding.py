"""Checks Blade's query parameters. Pure. A broken rule raises `Invalid` with the parameter in `path`."""

from collections.abc import Mapping

from dragoman.core.refusals import Invalid

MAX_OFFSET = 999_999_999


def parse_int(query: Mapping[str, str], name: str, default: int, *, minimum: int, maximum: int) -> int:
    """Read a whole number from the query. Raises Invalid if it is not one, or is out of bounds."""
    value = query.get(name, "")
    if not value:
        return default
    if not (value.isascii() and value.isdigit() and len(value) < 10 and minimum <= int(value) <= maximum):
        raise Invalid(f"must be a whole number from {minimum} to {maximum}", path=name)
    return int(value)


def parse_page(query: Mapping[str, str], *, default: int, maximum: int) -> tuple[int, int]:
    """Read `offset` and `limit` from the query, the limit being `default` if absent. Raises Invalid."""
    offset = parse_int(query, "offset", 0, minimum=0, maximum=MAX_OFFSET)
    return offset, parse_int(query, "limit", default, minimum=1, maximum=maximum)
