"""Reading threads that serve users in turn, so that the many reads of one user do not delay the reads of the others."""

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic, TypeVar

from dragoman.core.principal import CALLER
from dragoman.core.refusals import LimitReached, StoreUnavailable

C = TypeVar("C")
T = TypeVar("T")
SEARCH_THREADS = 1
"""Searches have a thread of their own: all other reads are short, and never wait for one."""
MAX_SEARCHES_PER_USER = 8
"""Searches of one user that run or wait at the same time."""
RETRY_SEARCH_AFTER_S = 1


class _Job:
    __slots__ = ("done", "is_abandoned", "user", "work")

    def __init__(self, work: Callable[..., Any], user: object, done: asyncio.Future[Any]) -> None:
        self.work = work
        self.user = user
        self.done = done
        self.is_abandoned = False


class FairThreads(Generic[C]):
    """Threads with one connection each. Waiting reads of one user are executed in order, users take turns.

    The user of a read is the `CALLER` of the task that asks for it. A read without one is on its own.
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
        """Start no thread before the first read.

        Args:
            threads: number of threads.
            name: prefix of their names.
            connect: opens a connection, on its thread.
            run: runs a read on a connection. The last argument tells whether the caller was cancelled meanwhile.
            limit_per_user: how many reads of one user may run or wait at the same time.
        """
        self._executor = ThreadPoolExecutor(threads, name)
        self._connect = connect
        self._run = run
        self._limit_per_user = limit_per_user
        self._local = threading.local()
        self._lock = threading.Lock()
        self._queues: OrderedDict[object, deque[_Job]] = OrderedDict()
        """Waiting reads by user; the first user is next."""
        self._unfinished: dict[object, int] = {}
        """Number of reads by user; counted only if there is a limit."""
        self.connections: list[C] = []

    async def read(self, work: Callable[..., T]) -> T:
        """Run a read. If the caller is cancelled before it starts, it never does.

        Raises:
            LimitReached: too many reads of this user run or wait.
            StoreUnavailable: the database is closed, or cannot be read.
        """
        job = self._enqueue(work)
        try:
            value: T = await job.done
        except asyncio.CancelledError:
            self._abandon(job)
            raise
        return value

    def submit(self, work: Callable[..., T]) -> asyncio.Future[T]:
        """Run a read for several callers, even if all are cancelled. Raises as `read` does."""
        return self._enqueue(work).done

    def shut_down(self) -> None:
        """Finish all reads and end the threads. The connections are left to the caller."""
        self._executor.shutdown()

    def _enqueue(self, work: Callable[..., Any]) -> _Job:
        caller = CALLER.get()
        user = object() if caller is None else caller
        job = _Job(work, user, asyncio.get_running_loop().create_future())
        with self._lock:
            if self._limit_per_user is not None:
                unfinished = self._unfinished.get(user, 0)
                if unfinished >= self._limit_per_user:
                    raise LimitReached(
                        f"too many searches at the same time: at most {self._limit_per_user}",
                        retry_after_s=RETRY_SEARCH_AFTER_S,
                    )
                self._unfinished[user] = unfinished + 1
            self._queues.setdefault(user, deque()).append(job)
        try:
            self._executor.submit(self._run_next)  # one call for each waiting read, of whichever user
        except RuntimeError as error:
            raise StoreUnavailable("the database is closed") from error
        return job

    def _abandon(self, job: _Job) -> None:
        job.is_abandoned = True
        with self._lock:
            waiting = self._queues.get(job.user)
            if waiting is not None and job in waiting:
                waiting.remove(job)
                if not waiting:
                    del self._queues[job.user]
                self._forget(job.user)

    def _run_next(self) -> None:
        with self._lock:
            if not self._queues:
                return  # a read was abandoned
            user, jobs = self._queues.popitem(last=False)
            job = jobs.popleft()
            if jobs:
                self._queues[user] = jobs  # behind all others
        value: Any = None
        failure: BaseException | None = None
        try:
            if not job.is_abandoned:
                value = self._run_on_connection(job)
        except BaseException as error:  # noqa: BLE001  # passed on to the caller
            failure = error
        finally:
            with self._lock:
                self._forget(job.user)
        with suppress(RuntimeError):  # the event loop is closed, nobody waits
            job.done.get_loop().call_soon_threadsafe(_resolve, job.done, value, failure)

    def _run_on_connection(self, job: _Job) -> Any:  # noqa: ANN401  # what the job returns
        connection: C | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
            self.connections.append(connection)
        return self._run(connection, job.work, lambda: job.is_abandoned)

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
