"""Users' profiles in SQLite."""

from collections.abc import Sequence

import msgspec

from dragoman.core.ids import UserId
from dragoman.core.profile import Profile
from dragoman.stores.sqlite.database import Database


class SqliteProfiles:
    """`ProfileStore` over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> Sequence[Profile]:
        """List all profiles."""
        rows = await self._database.read(
            lambda connection: connection.execute(
                "SELECT user, time_zone, locale, retention_days, tokens_per_day, tokens_per_month FROM profiles"
            ).fetchall()
        )
        return [
            Profile(
                user=UserId(user),
                time_zone=time_zone,
                locale=locale,
                retention_days=retention_days,
                tokens_per_day=tokens_per_day,
                tokens_per_month=tokens_per_month,
            )
            for user, time_zone, locale, retention_days, tokens_per_day, tokens_per_month in rows
        ]

    async def put(self, profile: Profile) -> None:
        """Store a user's profile, replacing any previous one."""
        row = msgspec.structs.astuple(profile)
        await self._database.writer.run(
            lambda connection: connection.execute("INSERT OR REPLACE INTO profiles VALUES (?, ?, ?, ?, ?, ?)", row)
        )
