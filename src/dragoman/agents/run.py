"""The run as an agent function sees it.

    recorded steps         new steps
    ───────────────►───────────────────────────►
    text: not sent again   text: sent
    calls: return the      calls: executed, or wait
    recorded results       for the application

When a run resumes, after an answer or after a server crash, the function is called again from its beginning. The steps
that are already in the history are replayed without effect, until the function reaches new ones.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, ParamSpec, TypeVar, overload

import msgspec
import structlog

from dragoman.agents.builtins import MAX_SLEEP_S, Choice, Question, Questions
from dragoman.agents.parameters import TypeHint
from dragoman.agents.step_batch import RequestedCall, StepBatcher
from dragoman.agents.tool import FunctionTool
from dragoman.core import agent as contract
from dragoman.core.agent import AgentError, Paused, RunnableTool, ToolFailed
from dragoman.core.answers import answer_text
from dragoman.core.content import (
    AssistantMessage,
    Block,
    Call,
    Json,
    JsonObject,
    Message,
    Text,
    Thinking,
    ToolMessage,
    Usage,
    UserMessage,
    encode_json,
    text_of,
    to_plain_value,
)
from dragoman.core.events import PlanUpdated
from dragoman.core.ids import CallId, RunId, SessionId, UserId
from dragoman.core.memories import MemoryKind
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.tools import ASK_USER_QUESTION, FORK, SLEEP, START, WRITE_MEMORY

P = ParamSpec("P")
T = TypeVar("T")

Plan = PlanUpdated
Callee = RunnableTool | str

log = structlog.get_logger(__name__)


class Step(msgspec.Struct, frozen=True):
    """A recorded step: its calls and their results."""

    calls: tuple[Call, ...]
    results: Mapping[CallId, ToolMessage]


# Large: everything that an agent function can do.
class Run:
    """A run, as agent functions see it.

    Args:
        run: the engine's run.
        agent: the agent that runs.
        turn: the messages of the run's loop, beginning with the newest user message.
        can_act: False for a function that only returns instructions and must not answer.
    """

    def __init__(
        self, run: contract.Run, agent: contract.Agent, turn: Sequence[Message], *, can_act: bool = True
    ) -> None:
        self.session_id: SessionId = run.session_id
        self.run_id: RunId = run.run_id
        self.user: UserId = run.user
        self.options: Mapping[str, str] = run.options
        """The effective option values, including defaults. Secrets are in plain text."""
        self.parameters: JsonObject = run.parameters
        """Model parameters that the application chose for this run, by their OpenAI names."""
        self.metadata: RunMetadata = run.metadata
        """What is stored with the run beside its input, such as `client_time` or `forwarded`."""
        self.state: Json = run.state
        """The session's state, shared with the application: as either replaced it last. None if there is none."""
        self.memories = run.memories
        """Memories of the user, as text for a model's instructions; empty if there are none."""
        self.message: UserMessage | None = next(
            (each for each in reversed(turn) if isinstance(each, UserMessage)), None
        )
        """The newest user message."""
        self._run = run
        self._agent = agent
        self._can_act = can_act
        self._recorded_steps = _steps(turn)
        self._step_index = 0
        self._is_live = can_act and not self._recorded_steps
        """Shortcut for the hot path: True where `_may_act` would return True."""
        self._has_output = False
        self._step = StepBatcher(self._make_step).make
        self._is_over = False
        self._usage: Usage | None = None
        self._private: Json = None
        self._stage: str | None = None

    @property
    def time_zone(self) -> str:
        """The IANA zone of the run's events."""
        return self._run.time_zone

    @property
    def text(self) -> str:
        """The text of the newest user message, or the result of the background task that started the run."""
        text = "" if self.message is None else text_of(self.message.content)
        finished = self.metadata.finished_task
        return text if finished is None else text.removeprefix(finished.heading())

    def option(self, name: str) -> str:
        """The effective value of an option. Raises KeyError if the agent does not declare it."""
        return self.options[name]

    async def messages(self, limit: int = 100) -> Sequence[Message]:
        """The conversation up to and including the newest user message, oldest first, at most `limit` messages.

        Later messages of this run are left out, so that the result is the same when the function is called again.
        """
        messages: list[Message] = []
        has_begun = not self._can_act or self.message is None
        async with aclosing(self._run.history()) as newest_first:
            async for message in newest_first:
                if len(messages) >= limit:
                    break
                has_begun = has_begun or (self.message is not None and message.id == self.message.id)
                if has_begun:
                    messages.append(message)
        messages.reverse()
        return messages

    # --- output -----------------------------------------------------------------------------------------------------

    def emit(self, text: str) -> bool:
        """Append text to the answer.

        Returns:
            True if the caller should `await drain()` before it continues, so that other tasks get their turn.
        """
        if text:
            self._has_output = True
        return (self._is_live or self._may_act()) and self._run.emit(text)

    def think(self, text: str) -> bool:
        """Append text to the visible thinking. Returns as `emit` does."""
        if text:
            self._has_output = True
        return (self._is_live or self._may_act()) and self._run.think(text)

    def add(self, block: Block) -> None:
        """Add a whole block, such as an image. Raises TypeError for a call; use `call` instead."""
        if isinstance(block, Call):
            raise TypeError("use `await run.call(…)` to make a call")
        if isinstance(block, Text):
            self.emit(block.text)
        elif isinstance(block, Thinking):
            self.think(block.text)
        else:
            self._has_output = True
            if self._may_act():
                self._run.add(block)

    def plan(self, plan: Plan) -> None:
        """Publish a plan, replacing the previous one."""
        if self._may_act():
            self._run.plan(plan)

    def stage(self, name: str | None) -> None:
        """Leave the current stage of the work and enter another, such as `router` or `worker`. None: enter none.

        A resumed run enters the stage of its first new step.
        """
        self._stage = name
        if self._may_act():
            self._run.stage(name)

    def share(self, state: Json) -> None:
        """Replace the state that is shared with the application. Also sets `state`.

        Raises:
            ValueError: the value is nested too deeply.
        """
        self.state = state
        if self._may_act():
            self._run.share(state)

    def card(self, card: Json) -> None:
        """Attach a user interface (UI schema 2.0) to the answer."""
        if self._may_act():
            self._has_output = True
            self._run.card(card)

    def add_usage(self, *, input_tokens: int = 0, output_tokens: int = 0) -> None:
        """Add to the token usage of the current step."""
        self._usage = (self._usage or Usage()) + Usage(input_tokens=input_tokens, output_tokens=output_tokens)

    def attach(self, private: Json) -> None:
        """Store a private value with the message of the current step, as `AssistantMessage.private`.

        `messages` gives it back; no client ever sees it. It replaces one that was attached to the step before.
        """
        self._private, self._has_output = private, True

    async def keep(self, writes: Mapping[str, bytes | None]) -> None:
        """Keep values with the session, by key; None removes one. They are durable when this returns.

        No client ever sees them. What a resumed run kept in its recorded steps is not written again.

        Raises:
            ValueError: a key or a value is not valid.
            AgentError: the session's values would be larger than the setting `kept_bytes`.
        """
        if self._may_act():
            await self._run.keep(writes)

    async def kept(self, below: str = "", *, after: str | None = None, limit: int = 1000) -> Mapping[str, bytes]:
        """The values kept with the session whose keys begin with `below` and follow `after`, in order of their keys.

        They are those of now, even in the recorded steps of a resumed run.
        """
        return await self._run.kept(below, after=after, limit=limit)

    async def drain(self) -> None:
        """Yield to other tasks, and wait while too much of this run's output is not durable yet."""
        await self._run.drain()

    # --- calls ------------------------------------------------------------------------------------------------------

    @overload
    async def call(self, tool: FunctionTool[P, T], /, *args: P.args, **arguments: P.kwargs) -> T: ...

    @overload
    async def call(self, tool: Callee, /, **arguments: object) -> Json: ...

    async def call(self, tool: Callee, /, *args: object, **arguments: object) -> Any:
        """Call a tool of this agent or of the application, and return its result.

        Args:
            tool: the tool, whose types then apply to arguments and result, or its name.
            args: positional arguments; only for tools that are functions.
            arguments: keyword arguments.

        Raises:
            ToolFailed: the tool failed, was denied or cancelled, or does not exist.
        """
        (result,) = await self._step([(_name(tool), _arguments(tool, args, arguments))])
        return _result_value(self._agent, result)

    async def call_all(self, calls: Sequence[tuple[Callee, Mapping[str, object]]]) -> list[Json]:
        """Call several tools in parallel, and return their results in the order of the calls.

        Raises:
            ToolFailed: one of them failed. All calls have ended by then.
        """
        if not calls:
            return []
        results = await self._step([(_name(tool), _arguments(tool, (), arguments)) for tool, arguments in calls])
        return [_result_value(self._agent, result) for result in results]

    async def ask(
        self,
        question: str,
        choices: Sequence[str | tuple[str, str]] = (),
        *,
        header: str = "",
        multiple: bool = False,
    ) -> str:
        """Ask the user, and return the answer: the label of the chosen option, or the user's own text.

        Args:
            question: the full question.
            choices: labels, or pairs of label and description.
            header: one or two words above the question.
            multiple: whether several choices may be picked. They are returned joined by a comma.

        Raises:
            ToolFailed: the user declined to answer.
        """
        if ASK_USER_QUESTION not in self._agent.spec.builtins:
            raise RuntimeError(
                f"agent {self._agent.spec.name} cannot ask questions: it was created with ask_user=False"
            )
        options = tuple(Choice(each) if isinstance(each, str) else Choice(*each) for each in choices)
        questions = Questions((Question(question, options=options, header=header, multi_select=multiple),))
        arguments = _to_json(msgspec.to_builtins(questions, enc_hook=to_plain_value))
        (result,) = await self._step([(ASK_USER_QUESTION, arguments)])
        _raise_if_failed(result)
        return answer_text(result)

    async def remember(
        self, content: str, *, reason: str, kind: MemoryKind = "experience", topic: str | None = None
    ) -> None:
        """Store a memory of the user: one sentence, and the reason for storing it.

        Raises:
            ToolFailed: memory is off in this session, the sentence is too long, or the user has too many memories.
        """
        memory = {"content": content, "reason": reason, "type": kind, "topic": topic}
        await self.call(WRITE_MEMORY, **{name: value for name, value in memory.items() if value is not None})

    async def fork(self, agent: contract.Agent | str, task: str) -> str:
        """Delegate a task to a sub-agent, and return its answer.

        Raises:
            ToolFailed: the sub-agent failed.
        """
        if FORK not in self._agent.spec.builtins:
            raise RuntimeError(f"agent {self._agent.spec.name} has no sub-agents")
        name = agent if isinstance(agent, str) else agent.spec.name
        (result,) = await self._step([(FORK, {"agent": name, "task": task})])
        _raise_if_failed(result)
        return text_of(result.content)

    async def sleep(self, seconds: float) -> None:
        """Wait, over any number of restarts of the server. No client sees it, and other calls of this run wait too.

        Stopping the run ends the sleep. The time does not count for the time limit of runs.

        Args:
            seconds: from now on, at most a year.

        Raises:
            ValueError: the number is negative or too large.
        """
        if not 0 <= seconds <= MAX_SLEEP_S:
            raise ValueError(f"expected 0 to {MAX_SLEEP_S:g} seconds, got {seconds!r}")
        await self._step([(self._builtin(SLEEP), {"seconds": seconds})])

    async def start(self, agent: contract.Agent | str, task: str) -> SessionId:
        """Start work that continues after the answer: a served agent gets the task in a new session of the same user.

        When it has ended and this session is at rest, its result starts a run here, whose `text` is the result and
        whose `metadata.finished_task` says of what.

        Returns:
            The id of the new session.

        Raises:
            ToolFailed: no agent of that name is served, the task is blank, or eight background tasks led to this run.
        """
        name = agent if isinstance(agent, str) else agent.spec.name
        (result,) = await self._step([(self._builtin(START), {"agent": name, "task": task})])
        _raise_if_failed(result)
        return SessionId(text_of(result.content))

    def _builtin(self, name: str) -> str:
        """Check that the agent has a built-in tool. Raises RuntimeError."""
        if self._agent.tool(name) is None:
            raise RuntimeError(
                f"agent {self._agent.spec.name} has no {name}: nothing serves it, or it is not a function"
            )
        if not self._is_builtin(name):
            raise RuntimeError(f"agent {self._agent.spec.name} has a tool of its own named {name}")
        return name

    def _is_builtin(self, name: str) -> bool:
        builtin: Mapping[str, RunnableTool] = getattr(self._agent, "builtin_tools", {})
        return name in builtin and self._agent.tool(name) is builtin[name]

    async def close(self) -> None:
        """End the last step. Called after the function has returned."""
        if self._may_act():
            if self._has_output:
                await self._run.end_step(usage=self._usage, private=self._private)
            return
        if self._has_output:
            self._replay_step([])
        if not self._is_live:
            log.warning(
                "agent function ended before its recorded steps", session_id=self.session_id, run_id=self.run_id
            )

    # --- recorded and new steps -------------------------------------------------------------------------------------

    def _may_act(self) -> bool:
        """Whether the function's current step is new, so that its output and calls take effect.

        Raises:
            Paused: the run has ended in order to wait. The function caught `Paused` and must not continue.
        """
        if self._is_over:
            raise Paused
        if not self._can_act:
            raise RuntimeError("a function that returns instructions cannot answer")
        return self._step_index >= len(self._recorded_steps)

    async def _make_step(self, calls: Sequence[RequestedCall]) -> Sequence[ToolMessage]:
        if not self._may_act():
            return self._replay_step(calls)
        for name, arguments in calls:
            tool = self._agent.tool(name)
            if name == WRITE_MEMORY and tool is None:
                tool = self._run.memory_tool
            elif not self._is_builtin(name):
                tool = None  # the session decides about the agent's own tools
            self._run.call(name, arguments, tool=tool)
        usage, self._usage, self._has_output = self._usage, None, False
        private, self._private = self._private, None
        try:
            return await self._run.end_step(usage=usage, private=private)
        except Paused:
            self._is_over, self._is_live = True, False
            raise

    def _replay_step(self, calls: Sequence[RequestedCall]) -> Sequence[ToolMessage]:
        step = self._recorded_steps[self._step_index]
        if [call.name for call in step.calls] != [name for name, _ in calls]:
            log.error(
                "agent function did not repeat its recorded steps",
                session_id=self.session_id,
                run_id=self.run_id,
                recorded=[call.name for call in step.calls],
                now=[name for name, _ in calls],
            )
            raise AgentError("replay_mismatch", "The agent did not repeat its earlier steps")
        if any(call.input != _to_json(arguments) for call, (_, arguments) in zip(step.calls, calls, strict=True)):
            log.warning(
                "agent function repeated a call with different arguments", run_id=self.run_id, step=self._step_index
            )
        if any(call.call_id not in step.results for call in step.calls):
            raise AgentError("replay_mismatch", "The result of an earlier step is missing")
        self._step_index += 1
        self._is_live = self._step_index >= len(self._recorded_steps)
        self._usage, self._private, self._has_output = None, None, False
        if self._is_live and self._stage is not None:
            self._run.stage(self._stage)
        return [step.results[call.call_id] for call in step.calls]


def _steps(turn: Sequence[Message]) -> list[Step]:
    """The recorded steps of a turn."""
    results = {each.call_id: each for each in turn if isinstance(each, ToolMessage)}
    return [Step(each.calls(), results) for each in turn if isinstance(each, AssistantMessage) and each.content]


def _name(tool: Callee) -> str:
    return tool if isinstance(tool, str) else tool.declaration.spec.name


def _arguments(tool: Callee, args: Sequence[object], arguments: Mapping[str, object]) -> JsonObject:
    if args:
        if not isinstance(tool, FunctionTool):
            raise TypeError("positional arguments are possible only for a tool that is a function")
        arguments = tool.bind_arguments(*args, **arguments)
    return _to_json(arguments)


def _to_json(arguments: Mapping[str, object]) -> JsonObject:
    """The arguments as JSON. Raises TypeError if JSON cannot represent them."""
    converted: JsonObject = msgspec.json.decode(encode_json(dict(arguments)))  # a tuple is a list in the log
    return converted


def _raise_if_failed(result: ToolMessage) -> None:
    if result.is_error:
        raise ToolFailed(text_of(result.content))


def _decode_json(content: Json) -> Json:
    if not isinstance(content, str):
        return content
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content


def _result_value(agent: contract.Agent, result: ToolMessage) -> Json:
    """The tool's return value, reconstructed from its result message. A client tool's is its text on every protocol."""
    _raise_if_failed(result)
    tool = agent.tool(result.name)
    if tool is None and result.name not in agent.spec.builtins:
        return result.content
    if not isinstance(tool, FunctionTool):
        return result.content if result.raw is msgspec.UNSET else result.raw
    value = result.raw
    if value is msgspec.UNSET:
        value = result.content if tool.returns is str else _decode_json(result.content)
    return _convert_result(value, tool.returns)


def _convert_result(value: Json, returns: TypeHint) -> Json:
    """Convert the value to the function's annotated return type, if possible."""
    if returns is msgspec.UNSET or returns is str:
        return value
    if isinstance(value, tuple) and len(value) == 1 and type(value[0]) is returns:  # a single block
        return value[0]
    try:
        return msgspec.convert(value, returns)
    except (msgspec.ValidationError, TypeError):
        return value
