"""The asynchronous face of the library: a client, its sessions, and their runs."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import msgspec

from dragoman.agents.worker_threads import run_in_thread
from dragoman.client.codec import SessionConfig, SessionHandle, TurnInput, UserInput
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
from dragoman.client.images import ImageLike, to_image_urls
from dragoman.client.pending import match_answers
from dragoman.client.tools import Toolbox, ToolLike
from dragoman.client.transports import ProtocolName, Transport, create_transport

Decision = Allow | Deny | bool | None
"""What a callback says to a permission. None: nothing, so that the run ends and waits."""
QuestionAnswer = Choice | Deny | str | Sequence[str] | None
"""What a callback says to a question: own words, or labels of options (of the only question), or a whole `Choice`."""

OnPermission = Callable[[Permission], Decision | Awaitable[Decision]]
OnQuestion = Callable[[Question], QuestionAnswer | Awaitable[QuestionAnswer]]
CallbackRunner = Callable[[Callable[[Any], Any], Any], Awaitable[Any]]
"""How a callback that is not async is called."""


async def _run_in_thread(callback: Callable[[Any], Any], request: object) -> object:
    """Call it in a thread, because it may wait for a person."""
    return await run_in_thread(lambda: callback(request))


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
        self._transport: Transport = create_transport(protocol, url, key, timeouts)
        self._timeouts = timeouts
        self._callback_runner: CallbackRunner = _run_in_thread

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Runs go on at the server."""
        await self._transport.close()

    def run_callbacks_with(self, callback_runner: CallbackRunner) -> None:
        """Call callbacks that are not async by this, instead of in a thread. Before sessions are made."""
        self._callback_runner = callback_runner

    async def agents(self) -> tuple[Agent, ...]:
        """What the server offers, as far as the protocol tells."""
        return await self._transport.agents()

    async def create(
        self,
        agent: str = "",
        *,
        tools: Iterable[ToolLike] = (),
        server_tools: Iterable[str] | None = None,
        trusted_tools: Iterable[str] = (),
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
        if isinstance(server_tools, str) or isinstance(trusted_tools, str):
            got = server_tools if isinstance(server_tools, str) else trusted_tools
            raise TypeError(f"server_tools and trusted_tools are lists of names, got {got!r}")
        toolbox = Toolbox(tools)
        wanted = SessionConfig(
            agent=agent,
            tools=toolbox.specs,
            server_tools=None if server_tools is None else tuple(server_tools),
            trusted_tools=tuple(trusted_tools),
            options=options or {},
        )
        talk = await self._transport.create(wanted, uuid4().hex)
        return AsyncSession(
            self._transport, talk, toolbox, on_permission, on_question, self._timeouts, self._callback_runner
        )

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
        talk = await self._transport.open(session_id, SessionConfig(agent=agent, tools=toolbox.specs))
        return AsyncSession(
            self._transport, talk, toolbox, on_permission, on_question, self._timeouts, self._callback_runner
        )

    async def sessions(self) -> AsyncGenerator[SessionInfo, None]:
        """All sessions of the key's owner, newest first; pages are fetched as they are needed.

        Raises:
            Unsupported: the protocol has no list.
        """
        after = ""
        while True:
            page, after = await self._transport.sessions(after)
            for each in page:
                yield each
            if not after:
                return


class AsyncSession:
    """One conversation. Made by `AsyncClient.create` and `AsyncClient.open`."""

    def __init__(
        self,
        transport: Transport,
        handle: SessionHandle,
        toolbox: Toolbox,
        on_permission: OnPermission | None,
        on_question: OnQuestion | None,
        timeouts: Timeouts,
        callback_runner: CallbackRunner,
    ) -> None:
        self._transport = transport
        self._handle = handle
        self._toolbox = toolbox
        self._on_permission = on_permission
        self._on_question = on_question
        self._timeouts = timeouts
        self._callback_runner = callback_runner

    @property
    def id(self) -> str:
        """By which it is opened again, through any protocol."""
        return self._handle.id

    @property
    def agent(self) -> str:
        """The name of its agent; empty where the protocol does not tell."""
        return self._handle.agent

    @property
    def pending(self) -> tuple[Pending, ...]:
        """What waited for an answer when this client last heard of the session."""
        return self._handle.pending

    def run(self, text: str = "", *, images: Iterable[ImageLike] = ()) -> "AsyncRun":
        """Say something, and follow what the agent makes of it, with calls of functions and callbacks, to the end.

        The message is sent when the iteration begins. A lost connection comes back by itself; each event comes once.
        """
        return self._make_run(lambda: UserInput(text=text, images=to_image_urls(images)))

    def answer(self, *answers: Answer) -> "AsyncRun":
        """Answer what is pending, and follow the run that goes on. Functions of this client answer for themselves.

        Raises (when the iteration begins):
            Unanswerable: an answer fits nothing that waits.
        """
        return self._make_run(lambda: match_answers(self._handle.pending, answers))

    def resume(self) -> "AsyncRun":
        """Follow the newest run from its start, live if it is not over: after a restart of this program, say."""
        return self._make_run(None)

    async def ask(self, text: str = "", *, images: Iterable[ImageLike] = ()) -> Reply:
        """Say something and wait for the whole answer.

        Raises:
            RunFailed: the run ended with an error.
        """
        return await self.run(text, images=images).reply()

    async def history(self) -> tuple[Message, ...]:
        """All messages so far."""
        return await self._transport.history(self._handle)

    async def info(self) -> SessionInfo:
        """The session as it is now. What is pending is known afterwards."""
        info = await self._transport.session_info(self._handle)
        self._handle.pending = info.pending
        return info

    async def stop(self) -> None:
        """Stop the run, whoever follows it. Its iteration ends with `cancelled`.

        Raises:
            Unsupported: the protocol has no way to.
        """
        await self._transport.stop(self._handle)

    async def delete(self) -> None:
        """End the session and all of it."""
        await self._transport.delete(self._handle)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _make_run(self, turn_input: Callable[[], TurnInput] | None) -> "AsyncRun":
        return AsyncRun(self._events(turn_input), self._handle, self._timeouts.run_s)

    async def _events(self, first: Callable[[], TurnInput] | None) -> AsyncGenerator[Event, None]:
        """The events of exchange after exchange, until there is nothing that this client could answer."""
        given = None if first is None else first()
        self._handle.run_id = ""
        while True:
            if isinstance(given, tuple):
                for shown, result in await self._run_client_tools(given):
                    yield shown
                    given = (*given, result)
            ended: Ended | None = None
            exchange = (
                self._transport.resume(self._handle) if given is None else self._transport.run_turn(self._handle, given)
            )
            async with aclosing(exchange):
                async for event in exchange:
                    if isinstance(event, Ended):
                        ended = event
                    else:
                        yield event
            assert ended is not None, "an exchange ends with its end"
            given = await self._collect_answers(ended.pending)
            if given is None:
                yield ended
                return

    async def _run_client_tools(self, turn_input: tuple[Answer, ...]) -> list[tuple[ToolResult, Result]]:
        """What this client's functions give for the calls that have no answer otherwise. They run side by side."""
        answered = {each.call_id for each in turn_input}
        calls = [
            each
            for each in self._handle.pending
            if isinstance(each, ClientCall) and each.call_id not in answered and each.name in self._toolbox
        ]
        results = await asyncio.gather(*(self._toolbox.run(each, self.id, self._handle.run_id) for each in calls))
        return [
            (ToolResult(call_id=call.call_id, name=call.name, text=result.text, images=result.images), result)
            for call, result in zip(calls, results, strict=True)
        ]

    async def _collect_answers(self, pending: Sequence[Pending]) -> tuple[Answer, ...] | None:
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
                answer = to_permission_answer(each, await self._run_callback(self._on_permission, each))
            else:
                answer = to_question_answer(each, await self._run_callback(self._on_question, each))
            if answer is None:
                return None
            answers.append(answer)
        return tuple(answers)

    async def _run_callback(self, callback: Callable[[Any], Any] | None, request: Permission | Question) -> Any:  # noqa: ANN401  # checked by who asks
        if callback is None:
            return None
        if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None)):  # noqa: B004  # of a callable object
            return await callback(request)
        said = await self._callback_runner(callback, request)
        return await said if inspect.isawaitable(said) else said


class AsyncRun:
    """A run as it is told: an async iterator of events, whose last is `Ended`. To be iterated once.

    Leaving it early (`aclose`, or the end of `async with`) closes the connection; the run goes on at the server.
    """

    def __init__(self, events: AsyncGenerator[Event, None], handle: SessionHandle, limit_s: float | None) -> None:
        self._events = events
        self._handle = handle
        self._limit_s = limit_s
        self._deadline: float | None = None

    @property
    def id(self) -> str:
        """The run's id, once the server has told it."""
        return self._handle.run_id

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
        ended = reply.end
        if ended.reason in ("error", "interrupted"):
            problem = ended.problem
            words = problem.message if problem else "the server does not tell why"
            raise RunFailed(f"the run failed: {words}", code=problem.code if problem else "", reply=reply)
        return reply


# --- what callbacks may say -------------------------------------------------------------------------------------------


def to_permission_answer(permission: Permission, decision: Decision) -> Answer | None:
    """The answer in a callback's word."""
    match decision:
        case None:
            return None
        case bool():
            return Allow(call_id=permission.call_id) if decision else Deny(call_id=permission.call_id)
        case Allow() | Deny():
            return msgspec.structs.replace(decision, call_id=permission.call_id)
    raise TypeError(f"on_permission gives a bool, Allow, Deny or None, got {decision!r}")


def to_question_answer(question: Question, decision: QuestionAnswer) -> Answer | None:
    """The answer in a callback's word: a string that is an option's label selects it."""
    match decision:
        case None:
            return None
        case Choice() | Deny():
            return msgspec.structs.replace(decision, call_id=question.call_id)
        case str():
            labels = [option.label for option in question.questions[0].options] if question.questions else []
            if len(question.questions) == 1 and decision in labels:
                return Choice(call_id=question.call_id, selections={0: (decision,)})
            return Choice(call_id=question.call_id, custom=dict.fromkeys(range(len(question.questions)), decision))
        case list() | tuple():
            return Choice(call_id=question.call_id, selections={0: tuple(decision)})
    raise TypeError(f"on_question gives a str, labels, Choice, Deny or None, got {decision!r}")
