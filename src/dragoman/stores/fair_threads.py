"""Reading threads that serve users in turn, so that the many reads of one user do not delay the reads of the others."""

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from dragoman.core.audit import ACTOR
from dragoman.core.refusals import LimitReached, StoreUnavailable


class Closable(Protocol):
    """A connection to a database."""

    def close(self) -> None:
        """End it."""


C = TypeVar("C", bound=Closable)
T = TypeVar("T")
SEARCH_THREADS = 1
"""Searches have a separate thread: all other reads are short, and never wait for one."""
MAX_SEARCHES_PER_USER = 8
"""Searches of one user that run or wait at the same time."""
RETRY_SEARCH_AFTER_S = 1


Finish = Callable[[Any, BaseException | None], None]
"""Called with the value of a read, or with its error, on the event loop."""


class _Job:
    __slots__ = ("finish", "is_abandoned", "loop", "user", "work")

    def __init__(self, work: Callable[..., Any], user: object, finish: Finish) -> None:
        self.work = work
        self.user = user
        self.finish = finish
        self.loop = asyncio.get_running_loop()
        self.is_abandoned = False


class FairThreads(Generic[C]):
    """Threads with one connection each. Waiting reads of one user are executed in order, users take turns.

    The user of a read is the `ACTOR` of the task that asks for it. A read without one takes a turn by itself.

    No thread is started before the first read.

    Args:
        threads: number of threads.
        name: prefix of their names.
        connect: opens a connection, on its thread.
        run: runs a read on a connection. The last argument tells whether the caller was cancelled in the meantime.
        limit_per_user: how many reads of one user may run or wait at the same time.
    """

    def __init__(
        self,
        threads: int,
        name: str,
        *,
        connect: Callable[[], C],
        run: Callable[[C, Callable[..., Any], Callable[[], bool]], Any],
        limit_per_user: int | None = None,
    ) -> None:
        self._max_threads = threads
        self._name = name
        self._connect = connect
        self._run = run
        self._limit_per_user = limit_per_user
        self._threads: list[threading.Thread] = []
        self._is_shut_down = False
        self._wakeups: SimpleQueue[bool] = SimpleQueue()
        """True for each read, of whichever user; False ends a thread."""
        self._lock = threading.Lock()
        self._queues: OrderedDict[object, deque[_Job]] = OrderedDict()
        """Waiting reads by user; the first user is next."""
        self._open_wakeups = 0
        """Number of reads that need a thread."""
        self._unfinished: dict[object, int] = {}
        """Number of reads by user; counted only if there is a limit."""
        self.connections: list[C] = []

    async def read(self, work: Callable[..., T]) -> T:
        """Run a read. If the caller is cancelled before it starts, it never does.

        Raises:
            LimitReached: too many reads of this user run or wait.
            StoreUnavailable: the database is closed, or cannot be read.
        """
        actor = ACTOR.get()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        job = self._enqueue(work, object() if actor is None else actor.user, partial(_resolve, done))
        try:
            return await done
        except asyncio.CancelledError:
            self._abandon(job)
            raise

    def submit(self, work: Callable[..., Any], finish: Finish) -> None:
        """Run a read for several callers, even if all are cancelled, and call `finish`. Raises as `read` does."""
        self._enqueue(work, object(), finish)

    def shut_down(self) -> None:
        """Finish all reads and end the threads. The connections are left to the caller."""
        with self._lock:
            self._is_shut_down = True
        for _ in self._threads:
            self._wakeups.put(False)
        for thread in self._threads:
            thread.join()

    def _enqueue(self, work: Callable[..., Any], user: object, finish: Finish) -> _Job:
        job = _Job(work, user, finish)
        with self._lock:
            if self._is_shut_down:
                raise StoreUnavailable("the database is closed")
            if self._limit_per_user is not None:
                unfinished = self._unfinished.get(user, 0)
                if unfinished >= self._limit_per_user:
                    raise LimitReached(
                        f"too many searches at the same time: at most {self._limit_per_user}",
                        retry_after_s=RETRY_SEARCH_AFTER_S,
                    )
            if len(self._threads) < min(self._open_wakeups + 1, self._max_threads):
                self._start_thread()
            self._queues.setdefault(user, deque()).append(job)
            self._open_wakeups += 1
            if self._limit_per_user is not None:
                self._unfinished[user] = self._unfinished.get(user, 0) + 1
        self._wakeups.put(True)
        return job

    def _start_thread(self) -> None:
        """Start one more thread. If that fails and others run, these do its work, and the next read tries again."""
        thread = threading.Thread(target=self._run_jobs, name=f"{self._name}_{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            if not self._threads:
                raise StoreUnavailable("the system allows no thread that could read the database") from error
            return
        self._threads.append(thread)

    def _abandon(self, job: _Job) -> None:
        job.is_abandoned = True
        with self._lock:
            waiting = self._queues.get(job.user)
            if waiting is not None and job in waiting:
                waiting.remove(job)
                if not waiting:
                    del self._queues[job.user]
                self._forget(job.user)

    # --- on the threads -------------------------------------------------------------------------------------------

    def _run_jobs(self) -> None:
        connection: C | None = None
        while self._wakeups.get():
            connection = self._run_next(connection)

    def _run_next(self, connection: C | None) -> C | None:
        """Run the next read, if it was not abandoned, on a new connection if there is none. Returns the connection."""
        with self._lock:
            if not self._queues:
                self._open_wakeups -= 1
                return connection
            user, jobs = self._queues.popitem(last=False)
            job = jobs.popleft()
            if jobs:
                self._queues[user] = jobs  # after all others
        value: Any = None
        failure: BaseException | None = None
        try:
            if not job.is_abandoned:
                if connection is None:
                    connection = self._connect()
                    self.connections.append(connection)
                value = self._run(connection, job.work, lambda: job.is_abandoned)
        except MemoryError:  # not kept: its frames hold cursors, and these a snapshot of the database
            failure = StoreUnavailable("there is no memory to read this now")
            if connection is not None:  # no later read may see what this one saw
                self.connections.remove(connection)
                connection.close()
                connection = None
        except BaseException as error:  # noqa: BLE001  # passed on to the caller
            failure = error
        with self._lock:
            self._open_wakeups -= 1
            self._forget(user)
        with suppress(RuntimeError):  # the event loop is closed, nobody waits
            job.loop.call_soon_threadsafe(job.finish, value, failure)
        failure = None  # breaks the reference cycle through its traceback
        return connection

    def _forget(self, user: object) -> None:
        if self._limit_per_user is not None:
            self._unfinished[user] -= 1
            if not self._unfinished[user]:
                del self._unfinished[user]


def _resolve(done: asyncio.Future[Any], value: object, failure: BaseException | None) -> None:
    if done.done():
        return  # its caller is gone
    if failure is None:
        done.set_result(value)
    else:
        done.set_exception(failure)
