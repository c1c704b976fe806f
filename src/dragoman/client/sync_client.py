"""The blocking API, for programs without an event loop: a thin wrapper that runs `async_client` in a thread.

Callbacks that are not async are called in the thread that waits, so that they may use the terminal. Client tools run in
threads of their own, as with `AsyncClient`.
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
from dragoman.client.transports import ClientProtocol

Value = TypeVar("Value")


class _LoopThread:
    """An event loop in a thread, and the queue of callbacks for the thread that waits for it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._condition = threading.Condition()
        self._pending_callbacks: deque[Callable[[], None]] = deque()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dragoman-client", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether the loop is closed."""
        return self._loop.is_closed()

    def submit(self, coroutine: Coroutine[Any, Any, Value]) -> "Future[Value]":
        """Start a coroutine. Raises ClientError if the client is closed."""
        if self.is_closed:
            coroutine.close()
            raise ClientError("the client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        future.add_done_callback(lambda _: self._notify())
        return future

    def wait(self, future: "Future[Value]", *, serves_callbacks: bool = False) -> Value:
        """Wait for a result, optionally serving callbacks. A KeyboardInterrupt leaves both as they were."""
        while not future.done():
            with self._condition:
                while not (serves_callbacks and self._pending_callbacks) and not future.done():
                    self._condition.wait()
            if serves_callbacks and self._pending_callbacks:
                self._pending_callbacks[0]()  # an interrupted callback is called again
                self._pending_callbacks.popleft()
        return future.result()

    def run(self, coroutine: Coroutine[Any, Any, Value], *, serves_callbacks: bool = False) -> Value:
        """Run a coroutine and wait for its result. A KeyboardInterrupt cancels it."""
        future = self.submit(coroutine)
        try:
            return self.wait(future, serves_callbacks=serves_callbacks)
        except BaseException:
            future.cancel()
            raise

    async def run_callback(self, callback: Callable[[Any], Any], request: object) -> object:
        """Run a callback in the thread that waits."""
        result: Future[object] = Future()

        def call() -> None:
            if result.cancelled():
                return
            with suppress(InvalidStateError):  # cancelled in the meantime
                try:
                    returned = callback(request)
                except Exception as error:  # noqa: BLE001  # raised again where the result is awaited
                    result.set_exception(error)
                else:
                    result.set_result(returned)

        with self._condition:
            self._pending_callbacks.append(call)
            self._condition.notify_all()
        return await asyncio.wrap_future(result)

    def _notify(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def close(self) -> None:
        """Cancel the remaining tasks and end the thread."""
        self.run(_cancel_remaining_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_remaining_tasks() -> None:
    remaining = asyncio.all_tasks() - {asyncio.current_task()}
    for task in remaining:
        task.cancel()
    await asyncio.gather(*remaining, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


class Client:
    """`AsyncClient` for programs without an event loop: same names, same arguments, and each call waits.

    A context manager, for one thread at a time.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        protocol: ClientProtocol = "aap",
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
        """Close all connections. Runs continue on the server. May be called again."""
        if self._loop.is_closed:
            return
        self._loop.run(self._inner.close())
        self._loop.close()

    def agents(self) -> tuple[Agent, ...]:
        """List the server's agents. Details: `AsyncClient.agents`."""
        return self._loop.run(self._inner.agents())

    def create(
        self,
        agent: str = "",
        *,
        tools: Iterable[ToolLike] = (),
        server_tools: Iterable[str] | None = None,
        trusted_tools: Iterable[str] = (),
        declared_approval: bool = False,
        options: Mapping[str, str] | None = None,
        title: str = "",
        labels: Mapping[str, str] | None = None,
        history: Iterable[Message] = (),
        on_permission: OnPermission | None = None,
        on_question: OnQuestion | None = None,
    ) -> "Session":
        """Create a session. Arguments and errors: `AsyncClient.create`."""
        created = self._inner.create(
            agent,
            tools=tools,
            server_tools=server_tools,
            trusted_tools=trusted_tools,
            declared_approval=declared_approval,
            options=options,
            title=title,
            labels=labels,
            history=history,
            on_permission=on_permission,
            on_question=on_question,
        )
        return Session(self._loop.run(created), self._loop)

    def open(
        self,
        session_id: str,
        *,
        agent: str = "",
        tools: Iterable[ToolLike] = (),
        on_permission: OnPermission | None = None,
        on_question: OnQuestion | None = None,
    ) -> "Session":
        """Open an existing session. Arguments and errors: `AsyncClient.open`."""
        opened = self._inner.open(
            session_id, agent=agent, tools=tools, on_permission=on_permission, on_question=on_question
        )
        return Session(self._loop.run(opened), self._loop)

    def sessions(self) -> Iterator[SessionInfo]:
        """Iterate over all sessions of the key's owner, newest first."""
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
    """One conversation, from `Client.create` or `Client.open`. `AsyncSession` documents the details."""

    def __init__(self, inner: AsyncSession, loop: _LoopThread) -> None:
        self._inner = inner
        self._loop = loop

    @property
    def id(self) -> str:
        """The session's id."""
        return self._inner.id

    @property
    def agent(self) -> str:
        """The agent's name; empty if the protocol does not report it."""
        return self._inner.agent

    @property
    def pending(self) -> tuple[Pending, ...]:
        """What was waiting for an answer when the client last received the session's state."""
        return self._inner.pending

    def run(self, text: str = "", *, images: Iterable[ImageLike] = ()) -> "Run":
        """Send a message and iterate over the run's events."""
        return Run(self._inner.run(text, images=images), self._loop)

    def answer(self, *answers: Answer) -> "Run":
        """Answer what is pending and iterate over the run's events."""
        return Run(self._inner.answer(*answers), self._loop)

    def resume(self) -> "Run":
        """Iterate over the newest run from its start."""
        return Run(self._inner.resume(), self._loop)

    def ask(self, text: str = "", *, images: Iterable[ImageLike] = ()) -> Reply:
        """Send a message and wait for the whole reply. Raises RunFailed."""
        return self._loop.run(self._inner.ask(text, images=images), serves_callbacks=True)

    def history(self) -> tuple[Message, ...]:
        """Fetch all messages so far."""
        return self._loop.run(self._inner.history())

    def info(self) -> SessionInfo:
        """Fetch the session's current state, and update `pending`."""
        return self._loop.run(self._inner.info())

    def stop(self) -> bool:
        """Stop the current run, and return whether there was one. May be called while a `Run` is being iterated."""
        return self._loop.run(self._inner.stop())

    def delete(self) -> None:
        """Delete the session and everything in it."""
        self._loop.run(self._inner.delete())


class Run:
    """A run: an iterator of events that can be iterated once. The last event is `Ended`.

    A KeyboardInterrupt loses nothing: iterate again to get the remaining events, for example after `session.stop()`.
    """

    def __init__(self, inner: AsyncRun, loop: _LoopThread) -> None:
        self._inner = inner
        self._loop = loop
        self._next_event_future: Future[Event | None] | None = None
        self._task: asyncio.Task[Any] | None = None

    @property
    def id(self) -> str:
        """The run's id; empty until the server has sent it."""
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
        """Close the connection. The run continues on the server."""
        self._next_event_future = None
        self._loop.run(self._close())

    def reply(self) -> Reply:
        """Iterate to the end and return the whole run. Raises RunFailed."""
        return self._loop.run(self._inner.reply(), serves_callbacks=True)

    async def _next_event(self) -> Event | None:
        self._task = asyncio.current_task()
        return await anext(self._inner, None)

    async def _close(self) -> None:
        """Cancel what an interrupt left running, then close."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._inner.aclose()
