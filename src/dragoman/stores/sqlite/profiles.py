"""Users' profiles in SQLite."""

from collections.abc import Sequence

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
                "SELECT user, time_zone, locale, retention_days FROM profiles"
            ).fetchall()
        )
        return [
            Profile(user=UserId(user), time_zone=time_zone, locale=locale, retention_days=retention_days)
            for user, time_zone, locale, retention_days in rows
        ]

    async def put(self, profile: Profile) -> None:
        """Store a user's profile, replacing any previous one."""
        row = (profile.user, profile.time_zone, profile.locale, profile.retention_days)
        await self._database.writer.run(
            lambda connection: connection.execute("INSERT OR REPLACE INTO profiles VALUES (?, ?, ?, ?)", row)
        )
