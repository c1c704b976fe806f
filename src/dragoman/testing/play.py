"""Play a conversation with an agent: the real engine on a temporary store, without a server and without a network."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec

from dragoman.client.events import Deny
from dragoman.core.agent import Agent
from dragoman.core.answers import compact_json
from dragoman.core.content import (
    AssistantMessage,
    Block,
    Call,
    InputBlock,
    Json,
    JsonObject,
    Message,
    Text,
    Thinking,
    ToolMessage,
    Usage,
    UserMessage,
    text_of,
)
from dragoman.core.events import Event, RunStopped, SharedStateReplaced, StopReason, WaitKind
from dragoman.core.history import messages_of
from dragoman.core.ids import ROOT, UserId
from dragoman.core.inputs import Answer, Create, Decision, Result, Submit, UserInput
from dragoman.core.open_calls import OpenCall
from dragoman.core.question_text import choice_from_text, choice_of_labels
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.models import Model, ModelFailed, ModelRequest
from dragoman.server.app import build
from dragoman.server.loading import as_agent
from dragoman.server.logging import logging_warnings
from dragoman.settings import Settings
from dragoman.testing.scripted import Scripted

USER = UserId("tester")
PROTOCOL = "testing"

UserAnswer = bool | str | list[str] | tuple[str, ...] | Deny
"""An answer to what a run waits for.

To an approval True, False or `Deny(reason=…)`; to a question the label of an option, several of them or the user's own
text; to a call of a tool of the application its result as text.
"""


class PlayedCall(NamedTuple):
    """A call of a tool by the agent. `result` is what the model reads of it; None as long as it waits."""

    name: str
    arguments: JsonObject
    result: str | None = None
    is_error: bool = False


class Pending(NamedTuple):
    """What a run waits for. The arguments of a question are `{"questions": [{"question": …, "options": …}]}`."""

    kind: WaitKind
    name: str
    arguments: JsonObject


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that was played."""

    messages: tuple[Message, ...]
    """All messages of the conversation, without those of sub-agents."""
    events: tuple[Event, ...]
    """The session's log: everything that happened, with the sub-agents."""
    waiting: list[Pending]
    """What the conversation waits for at its end: approvals, answers and results that the test did not give."""
    stop: StopReason
    """How the last run ended: `end_turn`, `tool_use` if it waits, `max_steps`, `max_tokens` or `refusal`."""

    @property
    def text(self) -> str:
        """The agent's text since the last message of the user."""
        return "".join(text_of(each.content) for each in self._answer())

    @property
    def thinking(self) -> str:
        """The agent's reasoning since the last message of the user."""
        return "".join(each.text for each in self._blocks() if isinstance(each, Thinking))

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks of the answer to the last message (`Text`, `Thinking`, `Image`, `File`, `Data`), without calls."""
        return tuple(each for each in self._blocks() if not isinstance(each, Call))

    @property
    def calls(self) -> list[PlayedCall]:
        """All calls of tools in the conversation, in the order in which they were made."""
        results = {each.call_id: each for each in self.messages if isinstance(each, ToolMessage)}
        found = []
        for message in self.messages:
            for call in message.calls() if isinstance(message, AssistantMessage) else ():
                result = results.get(call.call_id)
                if result is None:
                    found.append(PlayedCall(call.name, call.input))
                else:
                    found.append(PlayedCall(call.name, call.input, text_of(result.content), result.is_error))
        return found

    @property
    def usage(self) -> Usage:
        """The tokens of all runs."""
        return sum((each.usage for each in self.events if isinstance(each, RunStopped)), Usage())

    @property
    def state(self) -> Json:
        """The state that the agent shared last; None if it shared none."""
        return next((each.state for each in reversed(self.events) if isinstance(each, SharedStateReplaced)), None)

    def _answer(self) -> list[AssistantMessage]:
        last = max((index for index, each in enumerate(self.messages) if isinstance(each, UserMessage)), default=-1)
        return [each for each in self.messages[last + 1 :] if isinstance(each, AssistantMessage)]

    def _blocks(self) -> Iterator[Block]:
        for message in self._answer():
            yield from (Text(message.content),) if isinstance(message.content, str) else message.content


class AgentFailed(Exception):
    """A run ended with an error.

    Args:
        code: the code that clients get, such as `tool_failed`; `agent_error` for an exception of the agent.
        message: the message, with an exception's line of code.
        played: the conversation up to then.
    """

    def __init__(self, code: str, message: str, played: Played) -> None:
        super().__init__(f"{message} (code {code})")
        self.code = code
        self.message = message
        self.played = played


class UnusedAnswers(AssertionError):
    """The agent did not ask for all of the answers, or did not call the scripted model. The message says which."""


def play(
    agent: object,
    *messages: str | Sequence[InputBlock],
    model: Model | None = None,
    answers: Sequence[UserAnswer] = (),
    options: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
) -> Played:
    """Have a conversation with an agent, from the first message to the last.

        played = play(assistant, "What is 20 + 22?", model=Scripted([call("add", a=20, b=22), "It is 42."]))
        assert played.text == "It is 42."

    Everything is as on a server: tools run, arguments are checked, approvals wait, the log is written and read. A run
    that waits gets the next one of `answers`; if there is none, it stays as it is: see `Played.waiting`.

    Args:
        agent: an agent of any kind: `Agent(…)`, a function under `@agent`, or an object of another framework.
        messages: the user's messages: texts, or lists of blocks such as `Text` and `Image`.
        model: the model of the agent and of its sub-agents, unless they have a model object of their own. Objects of
            other frameworks have their own, and stand-ins for it.
        answers: what the user answers, in the order in which the agent asks.
        options: values of the agent's options.
        timeout_s: the longest duration of a run.

    Raises:
        AgentFailed: a run ended with an error.
        UnusedAnswers: the agent did not ask for all answers, or never called the scripted model.
        TypeError: an answer does not fit what the run waits for, or `agent` is not an agent.
    """
    if _is_in_event_loop():
        raise RuntimeError("play() cannot run inside an event loop: use `await play_async(…)`, with the same arguments")
    return asyncio.run(play_async(agent, *messages, model=model, answers=answers, options=options, timeout_s=timeout_s))


async def play_async(
    agent: object,
    *messages: str | Sequence[InputBlock],
    model: Model | None = None,
    answers: Sequence[UserAnswer] = (),
    options: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
) -> Played:
    """The same as `play`, for tests that are coroutines."""
    if isinstance(answers, str):
        raise TypeError(f"expected a list of answers, got the text {answers!r}: write answers=[{answers!r}]")
    played = as_agent(agent, "agent")
    if played is None:
        raise TypeError(f"expected an agent, got {agent!r}")
    with TemporaryDirectory(prefix="dragoman-") as folder, logging_warnings():
        app = build(
            _settings(folder, timeout_s),
            agents=[played],
            resolve_model=lambda _: model or Scripted([_no_model]),
            protocols=(),
        )
        async with app.running():
            conversation = _Conversation(app.engine, played, list(answers), dict(options or {}))
            result = await conversation.play(messages)
    if isinstance(model, Scripted) and model.answers and not model.requests:
        raise UnusedAnswers(
            f"{played!r} never called the scripted model: either it did not have to, or its model is not the test's, "
            "because it is an object of another framework or has a model object of its own"
        )
    return result


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _settings(folder: str, timeout_s: float) -> Settings:
    """Settings of a server on a store that need not survive a power failure."""
    return Settings(
        data=folder,
        synchronous="normal",
        run_timeout_s=timeout_s,
        drain_s=0,
        agent_error_details=True,
        console=False,
    )


def _no_model(request: ModelRequest) -> ModelFailed:
    """The answer to an agent that is tested without a model."""
    error = ModelFailed(f"the agent calls a model ({request.model}): give the test one with model=Scripted([…])")
    error.shown_message = str(error)
    return error


class _Conversation:
    """The runs of one session."""

    def __init__(self, engine: Engine, agent: Agent, answers: list[UserAnswer], options: dict[str, str]) -> None:
        self._engine = engine
        self._agent = agent
        self._answers = answers
        self._options = options

    async def play(self, messages: Sequence[str | Sequence[InputBlock]]) -> Played:
        """Send the messages one after the other, and answer what the runs wait for."""
        if not messages:
            raise TypeError('expected at least one message: play(agent, "Hello")')
        create = Create(protocol=PROTOCOL, agent=self._agent.spec.name, tools="all", options=self._options)
        session = await self._engine.create(USER, create)
        for message in messages:
            content = message if isinstance(message, str) else tuple(message)
            await self._run(session, Submit(protocol=PROTOCOL, messages=(UserInput(content=content),)))
            while self._answers and (waiting := list(session.state.waiting_calls())):
                given = [self._answers.pop(0) for _ in waiting[: len(self._answers)]]
                pairs = zip(waiting, given, strict=False)
                await self._run(session, Submit(protocol=PROTOCOL, answers=tuple(_to_answer(*each) for each in pairs)))
        if self._answers:
            raise UnusedAnswers(f"the agent did not ask for all answers; left over: {self._answers!r}")
        return await self._played(session)

    async def _run(self, session: SessionView, request: Submit) -> None:
        """Send a request, and wait until its run has ended."""
        await self._engine.start_run(session, request, by=USER)
        ended = asyncio.Event()
        self._engine.on_run_end(session, ended.set)
        await ended.wait()
        await session.until_durable(session.state.seq)
        played = await self._played(session)
        stopped = [each for each in played.events if isinstance(each, RunStopped)][-1:]
        for each in stopped:
            if each.reason in ("error", "interrupted"):
                raise AgentFailed(each.code or each.reason, each.message or "The run failed", played)

    async def _played(self, session: SessionView) -> Played:
        events = await self._engine.history.events(session, 0)
        return Played(
            messages=tuple(messages_of(events, ROOT)),
            events=tuple(each.event for each in events),
            waiting=list(map(_to_pending, session.state.waiting_calls())),
            stop=session.state.last_stop or "end_turn",
        )


_EXPECTED: Mapping[WaitKind, str] = {
    "permission": "approval: answer with True, False or Deny(reason=…)",
    "question": "an answer: give an option's label, a list of labels, or a text",
    "client": "a result of the application: answer with its text",
}


def _to_pending(call: OpenCall) -> Pending:
    asked = call.shown()
    return Pending(call.waits_for, asked.name, asked.input)


def _to_answer(call: OpenCall, answer: UserAnswer) -> Answer:
    """The answer to a waiting call.

    Raises:
        TypeError: it does not fit; the message says what does.
    """
    call_id, pending = call.call.call_id, _to_pending(call)
    if isinstance(answer, Deny):
        return Decision(call_id=call_id, granted=False, reason=answer.reason or None)
    match pending.kind, answer:
        case "permission", bool():
            return Decision(call_id=call_id, granted=answer)
        case "question", str():
            return choice_from_text(call.shown(), answer)
        case "question", list() | tuple():
            return choice_of_labels(call.shown(), answer)
        case "client", str():
            return Result(call_id=call_id, content=answer)
    asked = f"{pending.name}({compact_json(pending.arguments)})"
    raise TypeError(f"{asked} waits for {_EXPECTED[pending.kind]}; got {answer!r}")
