"""Fail points: a server kills itself at a chosen step, as if the power had failed at that moment.

Runs inside the server's process, around the store; the product does not contain it. The steps are:

    statement   before a statement of a transaction (or of a connection's set-up) is executed
    commit      all statements have been executed, the transaction is not committed
    committed   the transaction is durable, and nothing has been acknowledged
    published   readers were given what a session wrote, and no byte of it has been sent

Migrations, claims, appends, deletions, keys and the rehearsal agent's tally all pass through these steps.
"""

import os
import signal
import sqlite3
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, NamedTuple, get_args

FailPointKind = Literal["statement", "commit", "committed", "published"]
FAIL_POINT_KINDS: tuple[FailPointKind, ...] = get_args(FailPointKind)


class FailPoint(NamedTuple):
    """The n-th time, from 1, that a process reaches a step of this kind."""

    kind: FailPointKind
    occurrence: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.occurrence}"


def parse_fail_point(text: str) -> FailPoint:
    """Parse the output of `str`."""
    kind, _, occurrence = text.partition(":")
    return FailPoint(next(each for each in FAIL_POINT_KINDS if each == kind), int(occurrence))


def die() -> None:
    """End this process at once, as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


class FailPointCounter:
    """Counts the steps, and ends the process at the chosen one."""

    def __init__(self, point: FailPoint | None, end: Callable[[], None] = die) -> None:
        self._point = point
        self._end = end
        self.counts = dict.fromkeys(FAIL_POINT_KINDS, 0)

    def reach(self, kind: FailPointKind) -> None:
        self.counts[kind] += 1
        if self._point is not None and self._point == (kind, self.counts[kind]):
            self._end()


def install(counter: FailPointCounter) -> None:
    """Count the steps of every connection that writes, and every publication."""
    from dragoman.engine.sessions.live_session import LiveSession

    class CountedConnection(sqlite3.Connection):
        """A connection that reports its steps. Those of a read-only connection do not count, because they are not
        durable.
        """

        _reads = False

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if "query_only" in sql:
                self._reads = True
            if self._reads or sql == "ROLLBACK":
                return super().execute(sql, parameters)
            counter.reach("commit" if sql == "COMMIT" else "statement")
            cursor = super().execute(sql, parameters)
            if sql == "COMMIT":
                counter.reach("committed")
            return cursor

        def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
            counter.reach("statement")
            return super().executemany(sql, parameters)

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
        ) -> Literal[False]:
            counter.reach("commit")
            super().__exit__(kind, error, traceback)
            counter.reach("committed")
            return False

    connect = sqlite3.connect

    def connect_counted(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **{**kwargs, "factory": CountedConnection})
        return connection

    sqlite3.connect = connect_counted  # type: ignore[assignment]  # the overloads are the same
    publish = LiveSession.publish

    def published(session: LiveSession) -> None:
        publish(session)
        counter.reach("published")

    LiveSession.publish = published  # type: ignore[method-assign, assignment]  # a function is a method here
