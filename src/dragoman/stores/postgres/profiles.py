"""Users' profiles in PostgreSQL."""

from collections.abc import Sequence

import msgspec

from dragoman.core.profile import Profile
from dragoman.stores.postgres.database import Database
from dragoman.stores.postgres.statements import statements

_SQL = statements("accounts")
_BODY = msgspec.json.Decoder(Profile)


class PostgresProfiles:
    """`ProfileStore` over one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> Sequence[Profile]:
        """List all profiles."""
        rows = await self._database.read(lambda connection: connection.execute(_SQL["profiles"]).fetchall())
        return [_BODY.decode(body) for (body,) in rows]

    async def put(self, profile: Profile) -> None:
        """Store a user's profile, replacing any previous one."""
        values = {"user": profile.user, "body": msgspec.json.encode(profile).decode()}
        await self._database.write(lambda connection: connection.execute(_SQL["put_profile"], values))
