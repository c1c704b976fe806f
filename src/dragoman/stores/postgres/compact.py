"""Gives the space of deleted data back to the file system."""

from contextlib import closing

import psycopg
from psycopg import sql

from dragoman.core.refusals import StoreUnavailable
from dragoman.stores.postgres.database import Database, connect

_TABLES = (
    "SELECT relname, pg_total_relation_size(oid) FROM pg_class"
    " WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
)


def compact(url: str) -> tuple[int, int]:
    """Compact all tables of a database. Returns their size in bytes before and after.

    Raises:
        DatabaseInUse: a server uses the database.
        WrongVersion, StoreUnavailable: as for `Database`.
    """
    with closing(Database(url)) as database:
        try:
            with closing(connect(database.conninfo)) as connection:
                connection.execute("SET lock_timeout = 0")
                before = _size(connection)
                for name, _ in connection.execute(_TABLES).fetchall():
                    connection.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(sql.Identifier(name)))
                return before, _size(connection)
        except psycopg.Error as error:
            raise StoreUnavailable(f"the database {database.display_url} cannot be compacted: {error}") from error


def _size(connection: psycopg.Connection) -> int:
    return sum(size for _, size in connection.execute(_TABLES))
