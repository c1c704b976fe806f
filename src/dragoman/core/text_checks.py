"""Checks of short texts that users enter. Pure. A broken rule raises `Invalid` with the field in `path`."""

from collections.abc import Mapping

from dragoman.core.refusals import Invalid


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
