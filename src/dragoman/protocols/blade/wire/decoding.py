"""Checks Blade's query parameters. Pure. A broken rule raises `Invalid` with the parameter in `path`."""

from collections.abc import Mapping

from dragoman.core.refusals import Invalid
from dragoman.protocols.kit.decoding import parse_whole_number

MAX_OFFSET = 999_999_999


def parse_int(query: Mapping[str, str], name: str, default: int, *, minimum: int, maximum: int) -> int:
    """Read a whole number from the query. Raises Invalid if it is not one, or is out of bounds."""
    number = parse_whole_number(query.get(name) or str(default), minimum, maximum)
    if number is None:
        raise Invalid(f"must be a whole number from {minimum} to {maximum}", path=name)
    return number


def parse_page(query: Mapping[str, str], *, default: int, maximum: int) -> tuple[int, int]:
    """Read `offset` and `limit` from the query, the limit being `default` if absent. Raises Invalid."""
    offset = parse_int(query, "offset", 0, minimum=0, maximum=MAX_OFFSET)
    return offset, parse_int(query, "limit", default, minimum=1, maximum=maximum)
