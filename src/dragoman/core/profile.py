"""User profiles: time zone and locale for all agents and protocols (shared rules, 6); retention; budgets. Pure."""

import re

import msgspec

from dragoman.core.ids import UserId
from dragoman.core.refusals import Invalid
from dragoman.core.time_zones import is_zone
from dragoman.core.token_budgets import MAX_TOKENS

_LOCALE = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,4}")

MAX_RETENTION_DAYS = 36_500


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A user's profile; None for what is not set."""

    user: UserId
    time_zone: str | None = None
    """An IANA name: the zone of events if neither the tool's caller nor the device names one."""
    locale: str | None = None
    """A language tag such as `de` or `zh-CN`."""
    retention_days: int | None = None
    """After how many days without change sessions are deleted; 0: never; None: the server's setting applies."""
    tokens_per_day: int | None = None
    """How many tokens runs may use in a day; 0: any number; None: the server's setting applies."""
    tokens_per_month: int | None = None
    """The same for a month."""


def validate(profile: Profile) -> Profile:
    """Return the profile if its values are valid. Raises Invalid."""
    if profile.time_zone is not None and not is_zone(profile.time_zone):
        raise Invalid(f"{profile.time_zone[:80]!r} is not an IANA time zone such as Europe/Berlin", path="timezone")
    if profile.locale is not None and _LOCALE.fullmatch(profile.locale) is None:
        raise Invalid(f"{profile.locale[:80]!r} is not a language tag such as de or zh-CN", path="locale")
    if profile.retention_days is not None and not 0 <= profile.retention_days <= MAX_RETENTION_DAYS:
        raise Invalid(f"expected 0 to {MAX_RETENTION_DAYS} days, got {profile.retention_days}", path="retention_days")
    for name, tokens in (("tokens_per_day", profile.tokens_per_day), ("tokens_per_month", profile.tokens_per_month)):
        if tokens is not None and not 0 <= tokens <= MAX_TOKENS:
            raise Invalid(f"expected 0 to {MAX_TOKENS} tokens, got {tokens}", path=name)
    return profile
