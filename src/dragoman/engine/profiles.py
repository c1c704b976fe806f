"""The users' profiles: kept in memory, because every run asks for one, and durable before a change is told."""

import asyncio

import msgspec

from dragoman.core.ids import UserId
from dragoman.core.profile import Profile, checked
from dragoman.ports import Profiles


class ProfileBook:
    """All profiles of a server. Whoever else may change them says so, and `start` reads them again."""

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles
        self._known: dict[UserId, Profile] = {}
        self._change = asyncio.Lock()

    async def start(self) -> None:
        """Read what is stored; again, when it may have changed elsewhere."""
        async with self._change:
            self._known = {profile.user: profile for profile in await self._profiles.all()}

    def of(self, user: UserId) -> Profile:
        """A user's profile; an empty one for a user who has set nothing."""
        return self._known.get(user) or Profile(user=user)

    async def change(self, user: UserId, **settings: str | None) -> Profile:
        """Set `time_zone`, `locale` or both; None takes a setting back. The new profile is durable.

        Raises:
            Invalid: a value cannot be what it is; nothing changed.
            StoreUnavailable: it could not be stored.
        """
        async with self._change:
            profile = checked(msgspec.structs.replace(self.of(user), **settings))
            await self._profiles.put(profile)
            self._known[user] = profile
            return profile
