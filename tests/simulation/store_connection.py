"""A machine's way to the store, with everything that may happen on it.

A request travels, takes effect in one moment, and its answer travels back. On each way it may be slow and be overtaken
by others; a fault makes it fail before or after it took effect, take effect in part, or take effect twice.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, Literal, cast

from dragoman.core.refusals import StoreUnavailable
from dragoman.ports.log import Append, SessionStore
from tests.simulation.virtual_loop import Machine, VirtualLoop, world_context

WriteFault = Literal["refused", "unanswered", "torn", "repeated"]
OperationHook = Callable[[str, tuple[Any, ...]], None]

LATENCIES_S = (0.0, 0.0, 0.0003, 0.001, 0.002)
RARE_LATENCY_S = 0.3


class StoreConnection:
    """What one machine sees of the store."""

    def __init__(self, machine: Machine, store: SessionStore, chance: Random, on_operation: OperationHook) -> None:
        self.writes: deque[WriteFault] = deque()
        """What happens to the next writes."""
        self.reads_failing = 0
        """How many of the next reads fail."""
        self.failing: Counter[str] = Counter()
        """How often requests of a name fail from now on."""
        self.slowness = 1.0
        self.node = ""
        """The name under which this machine writes, where there are several."""
        self._machine = machine
        self._store = store
        self._chance = chance
        self._on_operation = on_operation
        self._context = world_context()
        self._in_flight: dict[int, Callable[[], None]] = {}
        self._count = 0

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        def call(*given: Any) -> Awaitable[Any]:
            return self._call(name, given)

        return call

    @property
    def store(self) -> SessionStore:
        """The store, as the engine takes it."""
        return cast(SessionStore, self)

    def clear_faults(self) -> None:
        """Nothing goes wrong any more."""
        self.writes.clear()
        self.reads_failing = 0

    def cut(self) -> None:
        """The machine is dead: what is on the way takes effect now or never, before anybody else comes.

        Where there are others already, it may also take effect later.
        """
        for number, arrive in list(self._in_flight.items()):
            if self._chance.random() < 0.5:
                arrive()
            elif not self.node or self._chance.random() < 0.5:
                del self._in_flight[number]

    async def _call(self, name: str, args: tuple[Any, ...]) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        answer: asyncio.Future[Any] = loop.create_future()
        if self._machine.is_dead:
            return await answer
        self._count += 1
        number = self._count
        if name == "commit" and self.node:
            args = (*args, self.node, self._machine.name)

        def arrive() -> None:
            if self._in_flight.pop(number, None) is None:
                return
            fault = self._fault(name)
            value: Any = None
            failure: Exception | None = None
            if fault == "refused":
                failure = StoreUnavailable("the disk is full")
            else:
                value = self._perform(name, args, fault)
                if fault in ("unanswered", "torn"):
                    failure = StoreUnavailable("the connection broke")
            loop.call_later(self._latency_s(), give, value, failure, context=self._context)

        def give(value: Any, failure: Exception | None) -> None:
            if answer.done() or self._machine.is_dead:
                return
            if failure is None:
                answer.set_result(value)
            else:
                answer.set_exception(failure)

        self._in_flight[number] = arrive
        loop.call_later(self._latency_s(), arrive, context=self._context)
        return await answer

    def _fault(self, name: str) -> str | None:
        if name in ("commit", "delete"):
            return self.writes.popleft() if self.writes else None
        if self.failing[name] > 0:
            self.failing[name] -= 1
            return "refused"
        if self.reads_failing > 0:
            self.reads_failing -= 1
            return "refused"
        return None

    def _perform(self, name: str, args: tuple[Any, ...], fault: str | None) -> Any:
        if name == "commit":
            batch: list[Append] = list(args[0])
            by = args[1:]
            if fault == "torn":
                batch = [append for append in batch if self._chance.random() < 0.5]
            self._on_operation(
                self._machine.name, tuple((each.session_id, each.after, each.payloads) for each in batch)
            )
            first = _done(self._store.commit(batch, *by))
            if fault == "repeated" and all(each.events for each in batch):
                return _done(self._store.commit(batch, *by))
            return first
        return _done(getattr(self._store, name)(*args))

    def _latency_s(self) -> float:
        seldom = self._chance.random() < 0.02
        return self.slowness * (self._chance.uniform(0, RARE_LATENCY_S) if seldom else self._chance.choice(LATENCIES_S))


def _done(work: Coroutine[Any, Any, Any]) -> Any:
    """The value of what never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the simulated store waits for nothing")
