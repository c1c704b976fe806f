"""Checks Blade's texts and query parameters. Pure. A broken rule raises `Invalid` with the field in `path`."""

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


def check_variables(variables: Mapping[str, str] | None, name: str) -> None:
    """Check the names of variables. Raises Invalid."""
    for each in variables or ():
        if "=" in each or any(char.isspace() or not char.isprintable() for char in each):
            raise Invalid(f"a name must not contain spaces, control characters or '=', got {each[:80]!r}", path=name)


def check_text(value: str, name: str, max_length: int) -> str:
    """Check that a text is not blank and has at most `max_length` characters. Raises Invalid."""
    if not 1 <= len(value) <= max_length:
        raise Invalid(f"must have 1 to {max_length} characters", path=name)
    if not value.strip():
        raise Invalid("must not be blank", path=name)
    if any("\ud800" <= each <= "\udfff" for each in value):
        raise Invalid("must be whole Unicode characters", path=name)
    return value
