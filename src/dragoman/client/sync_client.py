"""The same library for programs without an event loop: each call waits. A thin skin over `aio`, on a thread of its own.

Callbacks that are not async are called in the thread that waits, so that they may use the terminal; functions of the
application run in threads of their own, as in `aio`.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from dragoman.client.async_client import AsyncClient, AsyncRun, AsyncSession, OnPermission, OnQuestion
from dragoman.client.connection import Timeouts
from dragoman.client.errors import ClientError
from dragoman.client.events import Agent, Answer, Event, Message, Pending, Reply, SessionInfo
from dragoman.client.images import ImageLike
from dragoman.client.tools import ToolLike
from dragoman.client.transports import ProtocolName

Value = TypeVar("Value")


class _LoopThread:
    """An event loop on a thread of its own, and the callbacks that wait for whoever waits for it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._condition = threading.Condition()
        self._pending_callbacks: deque[Callable[[], None]] = deque()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dragoman-client", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether its thread has ended."""
        return self._loop.is_closed()

    def submit(self, work: Coroutine[Any, Any, Value]) -> "Future[Value]":
        """Start it; `wait` gives what comes of it. Raises ClientError: the client is closed."""
        if self.is_closed:
            work.close()
            raise ClientError("an open client was expected, this one is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.add_done_callback(lambda _: self._notify())
        return future

    def wait(self, future: "Future[Value]", *, serves_callbacks: bool = False) -> Value:
        """Wait for it, and serve callbacks meanwhile where asked to. A KeyboardInterrupt leaves both as they were."""
        while not future.done():
            with self._condition:
                while not (serves_callbacks and self._pending_callbacks) and not future.done():
                    self._condition.wait()
            if serves_callbacks and self._pending_callbacks:
                self._pending_callbacks[0]()  # an interrupted one is asked again
                self._pending_callbacks.popleft()
        return future.result()

    def run(self, work: Coroutine[Any, Any, Value], *, serves_callbacks: bool = False) -> Value:
        """Do it, and wait for what comes of it. A KeyboardInterrupt cancels it."""
        future = self.submit(work)
        try:
            return self.wait(future, serves_callbacks=serves_callbacks)
        except BaseException:
            future.cancel()
            raise

    async def run_callback(self, callback: Callable[[Any], Any], request: object) -> object:
        """Call it in the thread that waits."""
        done: Future[object] = Future()

        def ask() -> None:
            if done.cancelled():
                return
            with suppress(InvalidStateError):  # cancelled meanwhile: nobody waits for it any more
                try:
                    said = callback(request)
                except Exception as error:  # noqa: BLE001  # it is raised again where the callback was called
                    done.set_exception(error)
                else:
                    done.set_result(said)

        with self._condition:
            self._pending_callbacks.append(ask)
            self._condition.notify_all()
        return await asyncio.wrap_future(done)

    def _notify(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def close(self) -> None:
        """End the thread, once what is left over has been cancelled."""
        self.run(_cancel_remaining_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_remaining_tasks() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


class Client:
    """A server, seen through one protocol with one key. A context manager; for one thread at a time.

    See `AsyncClient`, whose names and arguments it has.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        protocol: ProtocolName = "aap",
        timeouts: Timeouts = Timeouts(),  # noqa: B008  # frozen
    ) -> None:
        self.protocol = protocol
        self._inner = AsyncClient(url, key=key, protocol=protocol, timeouts=timeouts)
        self._loop = _LoopThread()
        self._inner.run_callbacks_with(self._loop.run_callback)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """See `AsyncClient.close`. May be called again."""
        if self._loop.is_closed:
            return
        self._loop.run(self._inner.close())
        self._loop.close()

    def agents(self) -> tuple[Agent, ...]:
        """See `AsyncClient.agents`."""
        return self._loop.run(self._inner.agents())

    def create(
        self,
        agent: str = "",
        *,
        tools: Iterable[ToolLike] = (),
        server_tools: Iterable[str] | None = None,
        trusted_tools: Iterable[str] = (),
        options: Mapping[str, str] | None = None,
        on_permission: OnPermission | None = None,
        on_question: OnQuestion | None = None,
    ) -> "Session":
        """See `AsyncClient.create`."""
        made = self._inner.create(
            agent,
            tools=tools,
            server_tools=server_tools,
            trusted_tools=trusted_tools,
            options=options,
            on_permission=on_permission,
            on_question=on_question,
        )
        return Session(self._loop.run(made), self._loop)

    def open(
        self,
        session_id: str,
        *,
        agent: str = "",
        tools: Iterable[ToolLike] = (),
        on_permission: OnPermission | None = None,
        on_question: OnQuestion | None = None,
    ) -> "Session":
        """See `AsyncClient.open`."""
        opened = self._inner.open(
            session_id, agent=agent, tools=tools, on_permission=on_permission, on_question=on_question
        )
        return Session(self._loop.run(opened), self._loop)

    def sessions(self) -> Iterator[SessionInfo]:
        """See `AsyncClient.sessions`."""
        inner = self._inner.sessions()
        try:
            while (each := self._loop.run(_next_or_none(inner))) is not None:
                yield each
        finally:
            if not self._loop.is_closed:
                self._loop.run(inner.aclose())


async def _next_or_none(items: AsyncGenerator[Value, None]) -> Value | None:
    return await anext(items, None)


class Session:
    """One conversation. See `AsyncSession`."""

    def __init__(self, inner: AsyncSession, loop: _LoopThread) -> None:
        self._inner = inner
        self._loop = loop

    @property
    def id(self) -> str:
        """See `AsyncSession.id`."""
        return self._inner.id

    @property
    def agent(self) -> str:
        """See `AsyncSession.agent`."""
        return self._inner.agent

    @property
    def pending(self) -> tuple[Pending, ...]:
        """See `AsyncSession.pending`."""
        return self._inner.pending

    def run(self, text: str = "", *, images: Iterable[ImageLike] = ()) -> "Run":
        """See `AsyncSession.run`."""
        return Run(self._inner.run(text, images=images), self._loop)

    def answer(self, *answers: Answer) -> "Run":
        """See `AsyncSession.answer`."""
        return Run(self._inner.answer(*answers), self._loop)

    def resume(self) -> "Run":
        """See `AsyncSession.resume`."""
        return Run(self._inner.resume(), self._loop)

    def ask(self, text: str = "", *, images: Iterable[ImageLike] = ()) -> Reply:
        """See `AsyncSession.ask`."""
        return self._loop.run(self._inner.ask(text, images=images), serves_callbacks=True)

    def history(self) -> tuple[Message, ...]:
        """See `AsyncSession.history`."""
        return self._loop.run(self._inner.history())

    def info(self) -> SessionInfo:
        """See `AsyncSession.info`."""
        return self._loop.run(self._inner.info())

    def stop(self) -> None:
        """See `AsyncSession.stop`. May be called while a `Run` of the session is not over."""
        self._loop.run(self._inner.stop())

    def delete(self) -> None:
        """See `AsyncSession.delete`."""
        self._loop.run(self._inner.delete())


class Run:
    """A run as it is told: an iterator of events, whose last is `Ended`. See `AsyncRun`.

    A KeyboardInterrupt loses nothing: iterating again goes on where it came, after `session.stop()` for example.
    """

    def __init__(self, inner: AsyncRun, loop: _LoopThread) -> None:
        self._inner = inner
        self._loop = loop
        self._next_event_future: Future[Event | None] | None = None
        self._task: asyncio.Task[Any] | None = None

    @property
    def id(self) -> str:
        """See `AsyncRun.id`."""
        return self._inner.id

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        if self._next_event_future is None:
            self._next_event_future = self._loop.submit(self._next_event())
        event = self._loop.wait(self._next_event_future, serves_callbacks=True)
        self._next_event_future = None
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """See `AsyncRun.aclose`."""
        self._next_event_future = None
        self._loop.run(self._close())

    def reply(self) -> Reply:
        """See `AsyncRun.reply`."""
        return self._loop.run(self._inner.reply(), serves_callbacks=True)

    async def _next_event(self) -> Event | None:
        self._task = asyncio.current_task()
        return await anext(self._inner, None)

    async def _close(self) -> None:
        """Close, once what an interrupt left under way has ended."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._inner.aclose()
