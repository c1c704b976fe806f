"""Blocking functions of users, run so that they stop nothing else.

Each call gets a thread of its own, which the process does not wait for at its end: a thread cannot be stopped from
outside, and one that hangs must not keep the server from going.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from weakref import WeakKeyDictionary

MAX_THREADS = 64
"""At work at once, for each event loop. Further calls wait; that counts towards their tools' time."""

Value = TypeVar("Value")

_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def run_in_thread(function: Callable[[], Value]) -> Value:
    """Call the function in a thread, with this task's context variables, and give what it returns or raises.

    When the caller is cancelled, the thread goes on, and nobody hears of its result; it keeps its slot until it ends.
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
        except BaseException as raised:  # noqa: BLE001  # a thread's root; it is raised again in the caller
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    try:
        threading.Thread(target=work, name="dragoman-tool", daemon=True).start()
    except RuntimeError:  # the system has no more threads
        slots.release()
        raise
    value, error = await done
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # without an error there is a value
