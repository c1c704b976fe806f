"""User profiles: cached in memory, because every run needs one. A change is durable before it is visible."""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from dragoman.core.ids import UserId
from dragoman.core.profile import Profile, validate
from dragoman.core.refusals import StoreUnavailable
from dragoman.core.token_budgets import TokenLimits
from dragoman.engine.background_tasks import BackgroundTasks
from dragoman.engine.services.audit import AuditLog
from dragoman.ports.accounts import ProfileStore
from dragoman.ports.bus import Bus

PROFILES_CHANGED_SUBJECT = "profiles"
"""The bus subject for changed profiles; the message does not say whose."""

log = structlog.get_logger(__name__)


class ProfileService:
    """All profiles of a server.

    Args:
        profiles: stores them.
        bus: announces changes on other servers.
        audit: records changes of token limits.
    """

    def __init__(self, profiles: ProfileStore, bus: Bus, audit: AuditLog | None = None) -> None:
        self._profiles = profiles
        self._bus = bus
        self._audit = audit
        self._cache: dict[UserId, Profile] = {}
        self._lock = asyncio.Lock()
        self._reload_tasks = BackgroundTasks()
        self._unsubscribe: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Load the profiles, and reload them when they change on another server."""
        await self.reload()
        self._unsubscribe = self._bus.subscribe(PROFILES_CHANGED_SUBJECT, self._on_change)

    def close(self) -> None:
        """Stop reloading."""
        self._unsubscribe()
        self._reload_tasks.cancel()

    async def reload(self) -> None:
        """Load the profiles from the store."""
        async with self._lock:
            await self._reload_locked()

    def for_user(self, user: UserId) -> Profile:
        """A user's profile; an empty one if the user has set nothing."""
        return self._cache.get(user) or Profile(user=user)

    def users(self) -> set[UserId]:
        """The users who have a profile."""
        return set(self._cache)

    def retention_days(self) -> dict[UserId, int]:
        """The retention of the users' sessions in days, of those who have one of their own."""
        return {each.user: each.retention_days for each in self._cache.values() if each.retention_days is not None}

    def token_limits(self, user: UserId, default: TokenLimits) -> TokenLimits:
        """A user's token limits: the user's own, or else the default."""
        own = self._cache.get(user)
        if own is None:
            return default
        return TokenLimits(
            default.per_day if own.tokens_per_day is None else own.tokens_per_day,
            default.per_month if own.tokens_per_month is None else own.tokens_per_month,
        )

    async def change(self, user: UserId, **settings: str | int | None) -> Profile:
        """Set settings of a user's profile; None clears one.

        Returns the new profile, which is durable.

        Raises:
            Invalid: a value is invalid; nothing changed.
            StoreUnavailable: it could not be stored.
        """
        async with self._lock:
            await self._reload_locked()  # another server may have changed the other setting just now
            old = self.for_user(user)
            profile = validate(msgspec.structs.replace(old, **settings))
            await self._profiles.put(profile)
            self._cache[user] = profile
        self._bus.publish(PROFILES_CHANGED_SUBJECT, "")
        if self._audit is not None and _own_limits(profile) != _own_limits(old):
            await self._audit.record("user.limited", target=user, detail=f"tokens {_own_limits(profile)}")
        return profile

    async def _reload_locked(self) -> None:
        self._cache = {profile.user: profile for profile in await self._profiles.all()}

    def _on_change(self, _: str) -> None:
        self._reload_tasks.start(self._reload_after_change(), "profiles")

    async def _reload_after_change(self) -> None:
        try:
            await self.reload()
        except StoreUnavailable as error:  # the next change, or the check of the store, tries again
            log.warning("profiles not reloaded", cause=repr(error.__cause__))


def _own_limits(profile: Profile) -> str:
    """A user's own limits, in words."""
    periods = {"day": profile.tokens_per_day, "month": profile.tokens_per_month}
    return (
        ", ".join(f"{limit or 'unlimited'} a {period}" for period, limit in periods.items() if limit is not None)
        or "as the server's settings say"
    )
