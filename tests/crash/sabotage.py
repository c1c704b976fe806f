"""Servers that break the promises on purpose. The campaigns must find them; otherwise they would prove nothing.

Runs inside the server's process.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

COMMIT_DELAY_S = 0.1


def acknowledge_first() -> None:
    """Acknowledge a commit at once, and write it later."""
    from dragoman.ports.log import Append
    from dragoman.stores.sqlite.log import SqliteLog

    commit = SqliteLog.commit
    writing: set[asyncio.Task[None]] = set()
    order = asyncio.Lock()

    async def late(log: SqliteLog, batch: Sequence[Append]) -> None:
        async with order:
            await asyncio.sleep(COMMIT_DELAY_S)
            await commit(log, batch)

    async def commit_later(log: SqliteLog, batch: Sequence[Append]) -> Sequence[bool]:
        task = asyncio.create_task(late(log, batch))
        writing.add(task)
        task.add_done_callback(writing.discard)
        return [True] * len(batch)

    SqliteLog.commit = commit_later  # type: ignore[method-assign, assignment]  # a function is a method here


def repeat_started_tools() -> None:
    """After a crash, run every tool again, whatever its policy."""
    from dragoman.core.open_calls import OpenCall
    from dragoman.engine.runs.calls import CallRunner
    from dragoman.engine.runs.run_context import LoopRun

    def forget(runner: CallRunner, run: LoopRun) -> list[OpenCall]:
        return []

    CallRunner._settle_after_crash = forget  # type: ignore[method-assign, assignment]  # a function is a method here


def abandon_runs() -> None:
    """Never resume runs that a crash interrupted."""
    from dragoman.engine.runs.runner import Runner
    from dragoman.engine.sessions.live_session import LiveSession

    def leave(runs: Runner, live: LiveSession) -> None:
        pass

    Runner.take_over = leave  # type: ignore[method-assign, assignment]  # a function is a method here


SABOTAGES: Mapping[str, Callable[[], None]] = MappingProxyType(
    {"acknowledge-first": acknowledge_first, "repeat-tools": repeat_started_tools, "leave-runs": abandon_runs}
)
