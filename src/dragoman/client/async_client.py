"""The asynchronous face of the library: a client, its sessions, and their runs."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import msgspec

from dragoman.agents.worker_threads import in_thread
from dragoman.client.codec import Given, Said, Talk, Wanted
from dragoman.client.connection import Timeouts
from dragoman.client.errors import RunFailed, TimedOut
from dragoman.client.events import (
    Agent,
    Allow,
    Answer,
    Choice,
    ClientCall,
    Deny,
    Ended,
    Event,
    Message,
    Pending,
    Permission,
    Question,
    Reply,
    Result,
    SessionInfo,
    ToolResult,
)
from dragoman.client.images import ImageLike, urls_of
from dragoman.client.pending import fitted
from dragoman.client.tools import Toolbox, ToolLike
from dragoman.client.transports import Door, ProtocolName, door_of

Decision = Allow | Deny | bool | None
"""What a callback says to a permission. None: nothing, so that the run ends and waits."""
Chosen = Choice | Deny | str | Sequence[str] | None
"""What a callback says to a question: own words, or labels of options (of the only question), or a whole `Choice`."""

OnPermission = Callable[[Permission], Decision | Awaitable[Decision]]
OnQuestion = Callable[[Question], Chosen | Awaitable[Chosen]]
Caller = Callable[[Callable[[Any], Any], Any], Awaitable[Any]]
"""How a callback that is not async is called."""


async def _called(callback: Callable[[Any], Any], asked: object) -> object:
    """Call it in a thread, because it may wait for a person."""
    return await in_thread(lambda: callback(asked))


class AsyncClient:
    """A server, seen through one protocol with one key. An async context manager.

    Args:
        url: its address, such as `http://127.0.0.1:8000`. A path in it is where the protocol is mounted; without one
            the usual place is taken.
        key: sent as a bearer token.
        protocol: `aap`, `ag-ui`, `agentscope` or `blade`.
        timeouts: how long is waited for what.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        protocol: ProtocolName = "aap",
        timeouts: Timeouts = Timeouts(),  # noqa: B008  # frozen
    ) -> None:
        self.url = url
        self.key = key
        self.protocol = protocol
        self._door: Door = door_of(protocol, url, key, timeouts)
        self._timeouts = timeouts
        self._caller: Caller = _called

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Runs go on at the server."""
        await self._door.close()

    def call_with(self, caller: Caller) -> None:
        """Call callbacks that are not async by this, instead of in a thread. Before sessions are made."""
        self._caller = caller

    async def agents(self) -> tuple[Agent, ...]:
        """What the server offers, as far as the protocol tells."""
        return await self._door.agents()

    async def create(
        self,
        agent: str = "",
        *,
        tools: Iterable[ToolLike] = (),
        use: Iterable[str] | None = None,
        trust: Iterable[str] = (),
        options: Mapping[str, str] | None = None,
        on_permission: OnPermission | None = None,
        on_question: OnQuestion | None = None,
    ) -> "AsyncSession":
        """Make a session.

        Args:
            agent: its name; the server's first, if not given.
            tools: typed functions of this program that the agent may call.
            use: which tools of the server's are on; all of them, if not given.
            trust: which of them run without asking, where they would ask.
            options: settings of the agent.
            on_permission: asked before such a call runs. Without it the run ends and waits (`session.answer`).
            on_question: asked what the agent asks.

        Raises:
            Misdeclared: one of the functions cannot be a tool.
            Refused: the server takes no such session.
            Unsupported: the protocol cannot express one of the wishes.
        """
        if isinstance(use, str) or isinstance(trust, str):
            raise TypeError(f"use and trust are lists of names, got {use if isinstance(use, str) else trust!r}")
        toolbox = Toolbox(tools)
        wanted = Wanted(
            agent=agent,
            tools=toolbox.specs,
            use=None if use is None else tuple(use),
            trust=tuple(trust),
            options=options or {},
        )
        talk = await self._door.create(wanted, uuid4().hex)
        return AsyncSession(self._door, talk, toolbox, on_permission, on_question, self._timeouts, self._caller)

    async def open(
        self,
        session_id: str,
        *,
        agent: str = "",
        tools: Iterable[ToolLike] = (),
        on_permission: OnPermission | None = None,
        on_question: OnQuestion | None = None,
    ) -> "AsyncSession":
        """Go on with a session, whoever made it.

        Args:
            session_id: its id.
            agent: its agent's name, which only AG-UI has to be told.
            tools: as in `create`; without any the session keeps what it has.
            on_permission: as in `create`.
            on_question: as in `create`.

        Raises:
            NotFound: there is no such session of the key's owner.
        """
        toolbox = Toolbox(tools)
        talk = await self._door.open(session_id, Wanted(agent=agent, tools=toolbox.specs))
        return AsyncSession(self._door, talk, toolbox, on_permission, on_question, self._timeouts, self._caller)

    async def sessions(self) -> AsyncGenerator[SessionInfo, None]:
        """All sessions of the key's owner, newest first; pages are fetched as they are needed.

        Raises:
            Unsupported: the protocol has no list.
        """
        after = ""
        while True:
            page, after = await self._door.sessions(after)
            for each in page:
                yield each
            if not after:
                return


class AsyncSession:
    """One conversation. Made by `AsyncClient.create` and `AsyncClient.open`."""

    def __init__(
        self,
        door: Door,
        talk: Talk,
        toolbox: Toolbox,
        on_permission: OnPermission | None,
        on_question: OnQuestion | None,
        timeouts: Timeouts,
        caller: Caller,
    ) -> None:
        self._door = door
        self._talk = talk
        self._toolbox = toolbox
        self._on_permission = on_permission
        self._on_question = on_question
        self._timeouts = timeouts
        self._caller = caller

    @property
    def id(self) -> str:
        """By which it is opened again, through any protocol."""
        return self._talk.id

    @property
    def agent(self) -> str:
        """The name of its agent; empty where the protocol does not tell."""
        return self._talk.agent

    @property
    def pending(self) -> tuple[Pending, ...]:
        """What waited for an answer when this client last heard of the session."""
        return self._talk.pending

    def run(self, text: str = "", *, images: Iterable[ImageLike] = ()) -> "AsyncRun":
        """Say something, and follow what the agent makes of it, with calls of functions and callbacks, to the end.

        The message is sent when the iteration begins. A lost connection comes back by itself; each event comes once.
        """
        return self._follow(lambda: Said(text=text, images=urls_of(images)))

    def answer(self, *answers: Answer) -> "AsyncRun":
        """Answer what is pending, and follow the run that goes on. Functions of this client answer for themselves.

        Raises (when the iteration begins):
            Unanswerable: an answer fits nothing that waits.
        """
        return self._follow(lambda: fitted(self._talk.pending, answers))

    def resume(self) -> "AsyncRun":
        """Follow the newest run from its start, live if it is not over: after a restart of this program, say."""
        return self._follow(None)

    async def ask(self, text: str = "", *, images: Iterable[ImageLike] = ()) -> Reply:
        """Say something and wait for the whole answer.

        Raises:
            RunFailed: the run ended with an error.
        """
        return await self.run(text, images=images).reply()

    async def history(self) -> tuple[Message, ...]:
        """All messages so far."""
        return await self._door.history(self._talk)

    async def info(self) -> SessionInfo:
        """The session as it is now. What is pending is known afterwards."""
        info = await self._door.look(self._talk)
        self._talk.pending = info.pending
        return info

    async def stop(self) -> None:
        """Stop the run, whoever follows it. Its iteration ends with `cancelled`.

        Raises:
            Unsupported: the protocol has no way to.
        """
        await self._door.stop(self._talk)

    async def delete(self) -> None:
        """End the session and all of it."""
        await self._door.delete(self._talk)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _follow(self, given: Callable[[], Given] | None) -> "AsyncRun":
        return AsyncRun(self._events(given), self._talk, self._timeouts.run_s)

    async def _events(self, first: Callable[[], Given] | None) -> AsyncGenerator[Event, None]:
        """The events of exchange after exchange, until there is nothing that this client could answer."""
        given = None if first is None else first()
        self._talk.run_id = ""
        while True:
            if isinstance(given, tuple):
                for shown, result in await self._results(given):
                    yield shown
                    given = (*given, result)
            ended: Ended | None = None
            exchange = self._door.resume(self._talk) if given is None else self._door.play(self._talk, given)
            async with aclosing(exchange):
                async for event in exchange:
                    if isinstance(event, Ended):
                        ended = event
                    else:
                        yield event
            assert ended is not None, "an exchange ends with its end"
            given = await self._decided(ended.pending)
            if given is None:
                yield ended
                return

    async def _results(self, given: tuple[Answer, ...]) -> list[tuple[ToolResult, Result]]:
        """What this client's functions give for the calls that have no answer otherwise. They run side by side."""
        answered = {each.call_id for each in given}
        calls = [
            each
            for each in self._talk.pending
            if isinstance(each, ClientCall) and each.call_id not in answered and each.name in self._toolbox
        ]
        results = await asyncio.gather(*(self._toolbox.run(each, self.id, self._talk.run_id) for each in calls))
        return [
            (ToolResult(call_id=call.call_id, name=call.name, text=result.text, images=result.images), result)
            for call, result in zip(calls, results, strict=True)
        ]

    async def _decided(self, pending: Sequence[Pending]) -> tuple[Answer, ...] | None:
        """What people say to all that waits for them; None when something stays open, or nothing is."""
        if not pending:
            return None
        if any(isinstance(each, ClientCall) and each.name not in self._toolbox for each in pending):
            return None
        answers: list[Answer] = []
        for each in pending:
            if isinstance(each, ClientCall):
                continue
            if isinstance(each, Permission):
                answer = decision_of(each, await self._told(self._on_permission, each))
            else:
                answer = choice_of(each, await self._told(self._on_question, each))
            if answer is None:
                return None
            answers.append(answer)
        return tuple(answers)

    async def _told(self, callback: Callable[[Any], Any] | None, asked: Permission | Question) -> Any:  # noqa: ANN401  # checked by who asks
        if callback is None:
            return None
        if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None)):  # noqa: B004  # of a callable object
            return await callback(asked)
        said = await self._caller(callback, asked)
        return await said if inspect.isawaitable(said) else said


class AsyncRun:
    """A run as it is told: an async iterator of events, whose last is `Ended`. To be iterated once.

    Leaving it early (`aclose`, or the end of `async with`) closes the connection; the run goes on at the server.
    """

    def __init__(self, events: AsyncGenerator[Event, None], talk: Talk, limit_s: float | None) -> None:
        self._events = events
        self._talk = talk
        self._limit_s = limit_s
        self._deadline: float | None = None

    @property
    def id(self) -> str:
        """The run's id, once the server has told it."""
        return self._talk.run_id

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._limit_s is not None and self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._limit_s
        limit = asyncio.timeout_at(self._deadline)
        try:
            async with limit:
                return await anext(self._events)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimedOut(f"the run took longer than {self._limit_s} s; it goes on at the server") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._events.aclose()

    async def reply(self) -> Reply:
        """The whole run, to its end.

        Raises:
            RunFailed: it ended with an error.
        """
        async with self:
            reply = Reply(events=tuple([event async for event in self]))
        ended = reply.ended
        if ended.reason in ("error", "interrupted"):
            problem = ended.problem
            words = problem.message if problem else "the server does not tell why"
            raise RunFailed(f"the run failed: {words}", code=problem.code if problem else "", reply=reply)
        return reply


# --- what callbacks may say -------------------------------------------------------------------------------------------


def decision_of(permission: Permission, said: Decision) -> Answer | None:
    """The answer in a callback's word."""
    match said:
        case None:
            return None
        case bool():
            return Allow(call_id=permission.call_id) if said else Deny(call_id=permission.call_id)
        case Allow() | Deny():
            return msgspec.structs.replace(said, call_id=permission.call_id)
    raise TypeError(f"on_permission gives a bool, Allow, Deny or None, got {said!r}")


def choice_of(question: Question, said: Chosen) -> Answer | None:
    """The answer in a callback's word: a string that is an option's label selects it."""
    match said:
        case None:
            return None
        case Choice() | Deny():
            return msgspec.structs.replace(said, call_id=question.call_id)
        case str():
            labels = [option.label for option in question.questions[0].options] if question.questions else []
            if len(question.questions) == 1 and said in labels:
                return Choice(call_id=question.call_id, selections={0: (said,)})
            return Choice(call_id=question.call_id, custom=dict.fromkeys(range(len(question.questions)), said))
        case list() | tuple():
            return Choice(call_id=question.call_id, selections={0: tuple(said)})
    raise TypeError(f"on_question gives a str, labels, Choice, Deny or None, got {said!r}")
