"""An event loop without time: when nothing is ready it is at once as late as the next timer.

What runs on it belongs to a machine, or to the world around them. A machine can be paused, as by SIGSTOP: its turn does
not come, its timers fire late, all at once. It can be killed, as by SIGKILL: between one await and the next it is gone.
Nothing here is random and nothing waits for anything outside, so that the same program runs the same way each time.
"""

import asyncio
from asyncio import Handle, TimerHandle
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T")

MAX_TURNS = 300_000
"""A world that goes on for longer turns in circles."""

_machine: ContextVar["Machine | None"] = ContextVar("machine", default=None)


class LoopStuck(Exception):
    """Nothing is ready and nothing is due: everybody waits for somebody else. Or it never ends."""


class Machine:
    """Where tasks run together, stop together and die together."""

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        self.name = name
        self.is_paused = False
        self.is_dead = False
        self.died = asyncio.Event()
        self.tasks: set[asyncio.Task[Any]] = set()
        self._loop = loop
        self._deferred: list[Handle] = []
        self._context = copy_context()
        self._context.run(_machine.set, self)

    def run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a task on it; whatever that begins is here too."""
        return self._loop.create_task(work, context=self._context)

    def soon(self, callback: Callable[..., Any], *args: Any) -> None:
        """Let something happen on it in its next turn."""
        self._loop.call_soon(callback, *args, context=self._context)

    def pause(self) -> None:
        """Stop the machine where it stands."""
        self.is_paused = True
        self._deferred += self._loop.take_callbacks(self)

    def resume(self) -> None:
        """Let it go on, with everything that came meanwhile."""
        self.is_paused = False
        late, self._deferred = self._deferred, []
        self._loop.put_back(late)

    def kill(self) -> None:
        """End it. What it would have done next stays undone."""
        self.pause()
        self.is_dead = True
        self.died.set()

    def defer_if_paused(self, handle: Handle) -> bool:
        """Keep a turn that comes too late, if it does."""
        if self.is_paused:
            self._deferred.append(handle)
        return self.is_paused

    async def cancel_remaining_tasks(self) -> None:
        """End the tasks of a dead one for good, once nobody looks any more. Some do not want to."""
        while living := [task for task in self.tasks if not task.done()]:
            for task in living:
                task.cancel()
            self.resume()  # a step that was due takes the cancellation; nothing else would
            await asyncio.sleep(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. It never asks the selector: nothing comes from outside."""

    _stopping: bool
    """The base's own: this turn is the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.turns = 0
        self.fault: BaseException | None = None
        """What went wrong where nobody waits."""
        self._current: deque[Handle] = deque()
        """Callbacks of this turn that are still to be called."""
        self._next: deque[Handle] = deque()
        """Callbacks of the next turn."""
        self._timers: list[tuple[float, int, Machine | None, TimerHandle]] = []
        """A heap; timers of the same time fire in the order in which they were set."""
        self._timer_count = 0
        self.set_task_factory(_task)  # type: ignore[arg-type]  # more general than it has to be

    def time(self) -> float:
        """See `asyncio`: what the clock would show."""
        return self.now

    def _run_once(self) -> None:
        """Take a turn: call what is ready. If nothing is, it is at once as late as the next timer."""
        self.turns += 1
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        timers = self._timers
        if not self._next and not self._stopping:
            while timers and timers[0][3]._cancelled:
                heappop(timers)
            if not timers:
                raise LoopStuck(f"at {self.now:.3f} s everybody waits")
            self.now = max(self.now, timers[0][0])
        if self.turns > MAX_TURNS:
            raise LoopStuck(f"at {self.now:.3f} s it still goes on")
        while timers and timers[0][0] <= self.now:
            _, _, machine, timer = heappop(timers)
            if not timer._cancelled and (machine is None or not machine.defer_if_paused(timer)):
                self._next.append(timer)
        current = self._current = self._next
        self._next = deque()
        while current:
            handle = current.popleft()
            if not handle._cancelled:
                handle._run()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """See `asyncio`: it ends the world, which would be a wrong one from here on."""
        if isinstance(found := context.get("exception"), AssertionError):
            self.fault = found

    def call_soon(  # type: ignore[override]  # the types of its arguments are nobody's business here
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Handle:
        """See `asyncio`; the turn of a machine that is paused comes when it goes on."""
        machine = _machine.get() if context is None else context.get(_machine)
        handle = Handle(callback, args, self, context)
        if machine is None or not machine.defer_if_paused(handle):
            self._next.append(handle)
        return handle

    def call_at(  # type: ignore[override]  # as above
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        """See `asyncio`; as for `call_soon`."""
        machine = _machine.get() if context is None else context.get(_machine)
        timer = TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        heappush(self._timers, (when, self._timer_count, machine, timer))
        return timer

    def call_later(  # type: ignore[override]  # as above
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        """See `asyncio`."""
        return self.call_at(self.now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """Nothing to count: a cancelled timer goes when its time comes."""

    def take_callbacks(self, machine: Machine) -> list[Handle]:
        """Take a machine's turns away, in their order."""
        taken: list[Handle] = []
        for turns in (self._current, self._next):
            for _ in range(len(turns)):
                handle = turns.popleft()
                (taken if _context_of(handle).get(_machine) is machine else turns).append(handle)
        return taken

    def put_back(self, handles: list[Handle]) -> None:
        """Give turns back."""
        self._next.extend(handles)


def _context_of(handle: Handle) -> Context:
    context: Context = handle._context  # type: ignore[attr-defined]  # asyncio's own, until Python 3.12 shows it
    return context


def _task(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], **given: Any) -> asyncio.Task[T]:
    task = asyncio.Task(work, loop=loop, **given)
    context: Mapping[Any, Any] = given.get("context") or copy_context()
    machine = context.get(_machine)
    if machine is not None:
        machine.tasks.add(task)
        task.add_done_callback(machine.tasks.discard)
    return task


def world_context() -> Context:
    """A context that belongs to no machine: for what goes on between them."""
    context = copy_context()
    context.run(_machine.set, None)
    return context


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a world to its end."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
