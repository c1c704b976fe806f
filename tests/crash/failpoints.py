"""Fail points: at a chosen step of its own a server kills itself, as if somebody had pulled the plug at that moment.

Runs inside the server's process, around the store, and nowhere in the product. A step is one of these:

    statement   before a statement of a transaction (or of a connection's set-up) is run
    commit      all statements are run, the transaction is not committed
    committed   the transaction is durable, and nobody has been told
    published   what a session wrote is given to its readers, and no byte of it has left

Migrations, claims, appends, deletions, keys and the rehearsal agent's tally all pass through them.
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
    """The `time`-th time, from 1, that a process comes to a step of that kind."""

    kind: FailPointKind
    occurrence: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.occurrence}"


def parse_fail_point(text: str) -> FailPoint:
    """Read what `str` writes."""
    where, _, time = text.partition(":")
    return FailPoint(next(each for each in FAIL_POINT_KINDS if each == where), int(time))


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
    """Put the fuse into every connection that writes, and behind every publication."""
    from dragoman.engine.sessions.live_session import LiveSession

    class Watched(sqlite3.Connection):
        """A connection that tells its steps. Those of a reading one are not durable and do not count."""

        _reads = False

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if "query_only" in sql:
                self._reads = True
            if self._reads or sql == "ROLLBACK":
                return super().execute(sql, parameters)
            counter.reach("commit" if sql == "COMMIT" else "statement")
            done = super().execute(sql, parameters)
            if sql == "COMMIT":
                counter.reach("committed")
            return done

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

    def connect_watched(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **{**kwargs, "factory": Watched})
        return connection

    sqlite3.connect = connect_watched  # type: ignore[assignment]  # the overloads say the same
    publish = LiveSession.publish

    def published(session: LiveSession) -> None:
        publish(session)
        counter.reach("published")

    LiveSession.publish = published  # type: ignore[method-assign, assignment]  # a function is a method here
