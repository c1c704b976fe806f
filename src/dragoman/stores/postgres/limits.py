"""Limits on numbers of rows, which hold although several servers insert at the same time."""

from collections.abc import Mapping
from typing import LiteralString

from psycopg import Connection

from dragoman.stores.postgres.statements import statements

_LOCK = statements("accounts")["lock_limit"]


def has_room(
    connection: Connection, limit: int | None, what: str, count_sql: LiteralString, values: Mapping[str, object]
) -> bool:
    """Whether fewer than `limit` rows are counted; None: there is no limit.

    It remains so until the end of the transaction, because others who ask about `what` wait for it.
    """
    if limit is None:
        return True
    connection.execute(_LOCK, {"what": what})
    row = connection.execute(count_sql, values).fetchone()
    return row is not None and row[0] < limit
