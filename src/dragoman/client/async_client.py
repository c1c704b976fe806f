"""The asynchronous API: `AsyncClient`, its sessions and their runs."""

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
    Notice,
    Pending,
    Permission,
    Question,
    Reply,
    Restarted,
    Result,
    SessionInfo,
    ToolResult,
)
from dragoman.client.images import ImageLike, to_image_urls
from dragoman.client.pending import match_answers
from dragoman.client.tools import Toolbox, ToolLike
from dragoman.client.transport import Transport
from dragoman.client.transports import ClientProtocol, create_transport

Decision = Allow | Deny | bool | None
"""What `on_permission` returns. None: no decision, so the run ends and stays pending."""
QuestionAnswer = Choice | Deny | str | Sequence[str] | None
"""What `on_question` returns: free text, labels of the first question's options, or a `Choice`. None: no answer."""

OnPermission = Callable[[Permission], Decision | Awaitable[Decision]]
OnQuestion = Callable[[Question], QuestionAnswer | Awaitable[QuestionAnswer]]
CallbackRunner = Callable[[Callable[[Any], Any], Any], Awaitable[Any]]
"""Runs a callback that is not async."""


async def _run_in_thread(callback: Callable[[Any], Any], request: object) -> object:
    """Run the callback in a thread, because it may wait for a person."""
    return await run_in_thread(lambda: callback(request))


class AsyncClient:
    """A client for one server, over one protocol, with one API key. An async context manager.

    Args:
        url: the server's address, such as `http://127.0.0.1:8000`. A path is where the protocol is mounted; without
            one the client uses the protocol's default path on a Dragoman server.
        key: the API key, sent as a bearer token.
        protocol: `aap`, `ag-ui`, `agentscope`, `blade`, `openai`, `openai-chat`, `a2a` or `run-service`.
        timeouts: time limits.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        protocol: ClientProtocol = "aap",
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
        """Close all connections. Runs continue on the server."""
        await self._transport.close()

    def run_callbacks_with(self, callback_runner: CallbackRunner) -> None:
        """Replace the thread in which callbacks that are not async run. Call it before creating sessions."""
        self._callback_runner = callback_runner

    async def agents(self) -> tuple[Agent, ...]:
        """List the server's agents, with as much detail as the protocol provides."""
        return await self._transport.agents()

    async def create(
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
    ) -> "AsyncSession":
        """Create a session.

        Args:
            agent: the agent's name; defaults to the server's first agent.
            tools: typed functions of this program that the agent may call.
            server_tools: names of the server's tools to enable; defaults to all.
            trusted_tools: names of the server's tools that run without asking for permission.
            declared_approval: enable all of the server's tools, and ask only for those that declare that they need
                approval. Other protocols always do; AAP otherwise asks for every tool that is not trusted. Other
                servers than Dragoman ignore it.
            options: option values for the agent.
            title: what people call the session; defaults to the beginning of its first message.
            labels: names and values for your own use, which the session keeps.
            history: the messages that the session begins with, such as those of `session.history()`.
            on_permission: called to decide on a tool call. Without it the run ends and waits for `session.answer`.
            on_question: called to answer a question of the agent.

        Raises:
            DeclarationError: one of the functions cannot be a tool.
            RequestRefused: the server refused to create the session.
            Unsupported: the protocol cannot express one of the arguments.
        """
        if isinstance(server_tools, str) or isinstance(trusted_tools, str):
            got = server_tools if isinstance(server_tools, str) else trusted_tools
            raise TypeError(f"server_tools and trusted_tools must be lists of names, got {got!r}")
        toolbox = Toolbox(tools)
        config = SessionConfig(
            agent=agent,
            tools=toolbox.specs,
            server_tools=None if server_tools is None else tuple(server_tools),
            trusted_tools=tuple(trusted_tools),
            declared_approval=declared_approval,
            options=options or {},
            title=title,
            labels=labels or {},
            history=tuple(history),
        )
        handle = await self._transport.create(config, uuid4().hex)
        return AsyncSession(
            self._transport, handle, toolbox, on_permission, on_question, self._timeouts, self._callback_runner
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
        """Open an existing session, whoever created it.

        Args:
            session_id: the session's id.
            agent: the agent's name; required by AG-UI only.
            tools: as in `create`; without any, the session keeps the tools it has.
            on_permission: as in `create`.
            on_question: as in `create`.

        Raises:
            NotFound: the key's owner has no such session.
        """
        toolbox = Toolbox(tools)
        handle = await self._transport.open(session_id, SessionConfig(agent=agent, tools=toolbox.specs))
        return AsyncSession(
            self._transport, handle, toolbox, on_permission, on_question, self._timeouts, self._callback_runner
        )

    async def sessions(self) -> AsyncGenerator[SessionInfo, None]:
        """Iterate over all sessions of the key's owner, newest first. Pages are fetched as needed.

        Raises:
            Unsupported: the protocol cannot list sessions.
        """
        after = ""
        while True:
            page, after = await self._transport.sessions(after)
            for each in page:
                yield each
            if not after:
                return


class AsyncSession:
    """One conversation, from `AsyncClient.create` or `AsyncClient.open`."""

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
        self._held_answers: dict[str, tuple[Pending, Answer]] = {}
        """Answers that are sent together with the missing ones, by call id."""

    @property
    def id(self) -> str:
        """The session's id. It opens the session again, over any protocol of the same server."""
        return self._handle.id

    @property
    def agent(self) -> str:
        """The agent's name; empty if the protocol does not report it."""
        return self._handle.agent

    @property
    def pending(self) -> tuple[Pending, ...]:
        """What was waiting when the client last received the session's state, without what it has answered since."""
        return self._handle.pending

    def run(self, text: str = "", *, images: Iterable[ImageLike] = ()) -> "AsyncRun":
        """Send a message and iterate over the run's events to its end, running client tools and callbacks on the way.

        The message is sent when the iteration begins. The client reconnects by itself and yields each event once.
        """
        return self._make_run(lambda: UserInput(text=text, images=to_image_urls(images)))

    def answer(self, *answers: Answer) -> "AsyncRun":
        """Answer what is pending and iterate over the run's events. Calls of client tools are answered by running them.

        If other calls still wait, the iteration ends at once with the reason `tool_use`; the run continues when they
        are answered too. Over AAP and AG-UI, which accept all answers together, they are sent with the last one.

        Raises (when the iteration begins):
            UnmatchedAnswer: an answer matches no pending request.
        """
        return self._make_run(lambda: match_answers(self._handle.pending, answers))

    def resume(self) -> "AsyncRun":
        """Iterate over the newest run from its start, live if it is still running, for example after a restart."""
        return self._make_run(None)

    async def ask(self, text: str = "", *, images: Iterable[ImageLike] = ()) -> Reply:
        """Send a message and wait for the whole reply.

        Raises:
            RunFailed: the run ended with an error.
        """
        return await self.run(text, images=images).reply()

    async def history(self) -> tuple[Message, ...]:
        """Fetch all messages so far."""
        return await self._transport.history(self._handle)

    async def info(self) -> SessionInfo:
        """Fetch the session's current state, and update `pending`."""
        info = await self._transport.session_info(self._handle)
        waiting = {each.call_id for each in info.pending}
        self._held_answers = {key: held for key, held in self._held_answers.items() if key in waiting}
        self._handle.pending = tuple(each for each in info.pending if each.call_id not in self._held_answers)
        return info

    async def stop(self) -> bool:
        """Stop the current run. Whoever iterates over it gets `Ended` with the reason `cancelled`.

        Returns:
            Whether there was something to stop: a run, or pending calls. True if the server does not say.

        Raises:
            Unsupported: the protocol or the server cannot stop runs.
        """
        is_stopped = await self._transport.stop(self._handle)
        self._held_answers.clear()
        return is_stopped

    async def delete(self) -> None:
        """Delete the session and everything in it."""
        await self._transport.delete(self._handle)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _make_run(self, turn_input: Callable[[], TurnInput] | None) -> "AsyncRun":
        return AsyncRun(self._events(turn_input), self._handle, self._timeouts.run_s)

    async def _events(self, first: Callable[[], TurnInput] | None) -> AsyncGenerator[Event, None]:
        """Run turn after turn, as long as this client can answer everything that is pending at the end of one."""
        turn_input = None if first is None else first()
        self._handle.run_id = ""
        if turn_input == ():
            turn_input = await self._collect_answers(self._handle.pending) or ()
        while True:
            if isinstance(turn_input, tuple):
                for tool_result, result in await self._run_client_tools(turn_input):
                    yield tool_result
                    turn_input = (*turn_input, result)
                turn_input = self._hold_answers(turn_input)
                if turn_input is None:
                    for each in self._handle.pending:
                        if isinstance(each, Permission):
                            yield each
                    yield Ended(reason="tool_use", pending=self._handle.pending)
                    return
            ended: Ended | None = None
            async with aclosing(self._turn_events(turn_input)) as turn:
                async for event in turn:
                    if isinstance(event, Ended):
                        ended = event
                    else:
                        yield event
            assert ended is not None, "a turn ends with Ended"
            turn_input = await self._collect_answers(ended.pending)
            if turn_input is None:
                yield ended
                return

    async def _turn_events(self, turn_input: TurnInput | None) -> AsyncGenerator[Event, None]:
        """Run a turn, or read the newest one. Steps that were interrupted and not repeated are not reported."""
        if isinstance(turn_input, UserInput):
            self._handle.pending += tuple(request for request, _ in self._held_answers.values())
            self._held_answers.clear()  # the message cancels all of it
        interrupted: dict[str, Restarted] = {}
        """By loop."""
        turn = (
            self._transport.resume(self._handle)
            if turn_input is None
            else self._transport.run_turn(self._handle, turn_input)
        )
        async with aclosing(turn):
            async for event in turn:
                if isinstance(event, Restarted):
                    interrupted[event.loop] = event
                    continue
                if not isinstance(event, Notice | Ended) and (restarted := interrupted.pop(event.loop, None)):
                    yield restarted
                yield event

    def _hold_answers(self, answers: tuple[Answer, ...]) -> tuple[Answer, ...] | None:
        """Return the answers to send now; None if the protocol needs others as well, and these are held back."""
        if not self._transport.needs_all_answers:
            return answers
        given = {each.call_id: each for each in answers}
        pending = self._handle.pending
        self._held_answers |= {each.call_id: (each, given[each.call_id]) for each in pending if each.call_id in given}
        self._handle.pending = tuple(each for each in pending if each.call_id not in given)
        if self._handle.pending:
            return None
        held, self._held_answers = self._held_answers, {}
        self._handle.pending = tuple(request for request, _ in held.values())
        return tuple(answer for _, answer in held.values())

    async def _run_client_tools(self, turn_input: tuple[Answer, ...]) -> list[tuple[ToolResult, Result]]:
        """Run this client's functions, concurrently, for the pending calls that `turn_input` does not answer."""
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
        """Ask the callbacks for answers to everything pending; None if nothing is pending or one has no answer."""
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

    async def _run_callback(self, callback: Callable[[Any], Any] | None, request: Permission | Question) -> Any:  # noqa: ANN401  # the caller checks it
        if callback is None:
            return None
        if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None)):  # noqa: B004  # an object with an async __call__
            return await callback(request)
        returned = await self._callback_runner(callback, request)
        return await returned if inspect.isawaitable(returned) else returned


class AsyncRun:
    """A run: an async iterator of events that can be iterated once. The last event is `Ended`.

    Leaving it early (`aclose`, or the end of `async with`) closes the connection; the run continues on the server.
    """

    def __init__(self, events: AsyncGenerator[Event, None], handle: SessionHandle, limit_s: float | None) -> None:
        self._events = events
        self._handle = handle
        self._limit_s = limit_s
        self._deadline: float | None = None

    @property
    def id(self) -> str:
        """The run's id; empty until the server has sent it."""
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
            raise TimedOut(f"the run took longer than {self._limit_s} s; it continues on the server") from error

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
        """Iterate to the end and return the whole run.

        Raises:
            RunFailed: the run ended with an error.
        """
        async with self:
            reply = Reply(events=tuple([event async for event in self]))
        ended = reply.end
        if ended.reason in ("error", "interrupted"):
            problem = ended.problem
            message = problem.message if problem else "the server gave no reason"
            raise RunFailed(f"the run failed: {message}", code=problem.code if problem else "", reply=reply)
        return reply


# --- return values of callbacks ---------------------------------------------------------------------------------------


def to_permission_answer(permission: Permission, decision: Decision) -> Answer | None:
    """Turn what `on_permission` returned into an answer."""
    match decision:
        case None:
            return None
        case bool():
            return Allow(call_id=permission.call_id) if decision else Deny(call_id=permission.call_id)
        case Allow() | Deny():
            return msgspec.structs.replace(decision, call_id=permission.call_id)
    raise TypeError(f"on_permission must return a bool, Allow, Deny or None, got {decision!r}")


def to_question_answer(question: Question, decision: QuestionAnswer) -> Answer | None:
    """Turn what `on_question` returned into an answer. A string that equals an option's label selects the option."""
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
    raise TypeError(f"on_question must return a str, labels, Choice, Deny or None, got {decision!r}")
