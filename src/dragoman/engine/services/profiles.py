"""The users' profiles: kept in memory, because every run asks for one, and durable before a change is told."""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from dragoman.core.ids import UserId
from dragoman.core.profile import Profile, checked
from dragoman.core.refusals import StoreUnavailable
from dragoman.ports import Bus, Profiles

SUBJECT = "profiles"
"""What the bus says when a profile changed; not whose."""

log = structlog.get_logger(__name__)


class ProfileBook:
    """All profiles of a server."""

    def __init__(self, profiles: Profiles, bus: Bus) -> None:
        """Args:
        profiles: where they are.
        bus: tells of profiles that changed elsewhere.
        """
        self._profiles = profiles
        self._bus = bus
        self._known: dict[UserId, Profile] = {}
        self._change = asyncio.Lock()
        self._reading: set[asyncio.Task[None]] = set()
        self._end_hearing: Callable[[], None] = lambda: None

    async def start(self) -> None:
        """Read what is stored, and again when it changed elsewhere."""
        await self.read()
        self._end_hearing = self._bus.subscribe(SUBJECT, self._heard)

    def close(self) -> None:
        """Read no more."""
        self._end_hearing()
        for task in self._reading:
            task.cancel()

    async def read(self) -> None:
        """Read what is stored."""
        async with self._change:
            await self._read()

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
            await self._read()  # another server may have changed the other setting just now
            profile = checked(msgspec.structs.replace(self.of(user), **settings))
            await self._profiles.put(profile)
            self._known[user] = profile
        self._bus.publish(SUBJECT, "")
        return profile

    async def _read(self) -> None:
        self._known = {profile.user: profile for profile in await self._profiles.all()}

    def _heard(self, _: str) -> None:
        task = asyncio.create_task(self._read_again(), name="profiles")
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _read_again(self) -> None:
        try:
            await self.read()
        except StoreUnavailable as error:  # whoever looks after the store's changes comes by again
            log.warning("profiles not read again", cause=repr(error.__cause__))
