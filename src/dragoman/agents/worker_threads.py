"""Run users' blocking functions without blocking the event loop.

Each call gets its own daemon thread: a thread cannot be stopped from outside, and one that hangs must not keep the
server from exiting.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from weakref import WeakKeyDictionary

MAX_THREADS = 64
"""Maximum number of concurrent threads for each event loop. Further calls wait, which counts toward their timeout."""

Value = TypeVar("Value")

_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def run_in_thread(function: Callable[[], Value]) -> Value:
    """Call the function in a thread, with this task's context variables, and return or raise its outcome.

    If the caller is cancelled, the thread continues and its result is discarded. It occupies its slot until it ends.
    """
    loop = asyncio.get_running_loop()
    slots = _slots.setdefault(loop, asyncio.Semaphore(MAX_THREADS))
    await slots.acquire()
    done: asyncio.Future[tuple[Value | None, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Value | None, error: BaseException | None) -> None:
        slots.release()
        if not done.done():
            done.set_result((value, error))

    def work() -> None:
        value, error = None, None
        try:
            value = context.run(function)
        except BaseException as raised:  # noqa: BLE001  # a thread's root; the caller raises it again
            error = raised
        with suppress(RuntimeError):  # the loop is closed, so nobody is waiting
            loop.call_soon_threadsafe(settle, value, error)

    try:
        threading.Thread(target=work, name="dragoman-tool", daemon=True).start()
    except RuntimeError:  # the system cannot start another thread
        slots.release()
        raise
    value, error = await done
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # without an error there is a value
