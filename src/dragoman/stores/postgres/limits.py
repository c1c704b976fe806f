"""Limits on numbers of rows, which hold although several servers insert at the same time."""

from collections.abc import Mapping
from typing import LiteralString

from psycopg import Connection

from dragoman.stores.postgres.statements import statements

_LOCK = statements("accounts")["lock_limit"]


def has_room(
    connection: Connection, limit: int | None, what: str, count_sql: LiteralString, values: Mapping[str, object]
) -> bool:
    """Whether there are fewer than `limit` rows. Call it in the transaction that inserts the next one.

    Until that transaction ends, other servers that ask about the same `what` wait, so the number holds.

    Args:
        connection: the connection of the transaction.
        limit: the most rows that there may be; None for no limit.
        what: what is limited, such as `keys of ann`; the name of the lock.
        count_sql: the statement that counts the rows.
        values: its parameters.
    """
    if limit is None:
        return True
    connection.execute(_LOCK, {"what": what})
    row = connection.execute(count_sql, values).fetchone()
    return row is not None and row[0] < limit
