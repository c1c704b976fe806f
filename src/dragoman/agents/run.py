"""What a function knows of the run that it plays in, and what it can do there.

    played before          now
    ───────────────►───────────────────────────►
    text: not sent again   text: sent
    calls: the results     calls: run, or wait for
    on record              the application

A run that goes on, because an answer came or a server died, calls the function again from its beginning. The steps that
are in the history already are followed through without a trace, until the function reaches what is new.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, overload

import msgspec
import structlog

from dragoman.agents.builtins import Choice, Question, Questions
from dragoman.agents.parameters import TypeHint
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
    text_of,
)
from dragoman.core.events import PlanUpdated
from dragoman.core.ids import CallId, RunId, SessionId, UserId
from dragoman.core.memories import MemoryKind
from dragoman.core.tools import ASK_USER_QUESTION, FORK, WRITE_MEMORY

P = ParamSpec("P")
T = TypeVar("T")

Plan = PlanUpdated
Callee = RunnableTool | str

log = structlog.get_logger(__name__)


class Step(msgspec.Struct, frozen=True):
    """A step on record: its calls and their results."""

    calls: tuple[Call, ...]
    results: Mapping[CallId, ToolMessage]


class Run:
    """A run, as functions see it.

    Args:
        run: the engine's.
        agent: whose run it is.
        turn: what the run's loop did since the newest user message, that one included.
        acts: whether the function is the one who answers; one that only gives instructions looks on.
    """

    def __init__(
        self, run: contract.Run, agent: contract.Agent, turn: Sequence[Message], *, can_act: bool = True
    ) -> None:
        self.session_id: SessionId = run.session_id
        self.run_id: RunId = run.run_id
        self.user: UserId = run.user
        self.options: Mapping[str, str] = run.options
        """The options in force, defaults filled in, secrets in clear."""
        self.parameters: JsonObject = run.parameters
        """Settings of the model that the application chose for this run, by their OpenAI names."""
        self.metadata: JsonObject = run.metadata
        """What the protocol noted about the run."""
        self.state: Json = run.metadata.get("state")
        """The state shared with the application, as it sent or `share` replaced it; None where there is none."""
        self.memories = run.memories
        """What is remembered of the user, in words for a model's instructions; empty when nothing is."""
        self.message: UserMessage | None = next(
            (each for each in reversed(turn) if isinstance(each, UserMessage)), None
        )
        """The newest message of the user."""
        self._run = run
        self._agent = agent
        self._can_act = can_act
        self._recorded_steps = _steps(turn)
        self._step_index = 0
        self._is_live = can_act and not self._recorded_steps
        """Whether what the function does now is neither on record nor forbidden: `_may_act` says which."""
        self._has_output = False
        self._is_calling = False
        self._is_over = False
        self._usage: Usage | None = None
        self._stage: str | None = None

    @property
    def time_zone(self) -> str:
        """The IANA zone of the run's events."""
        return self._run.time_zone

    @property
    def text(self) -> str:
        """The text of the newest user message."""
        return "" if self.message is None else text_of(self.message.content)

    def option(self, name: str) -> str:
        """The value in force of an option. Raises KeyError: the agent declares no such option."""
        return self.options[name]

    async def messages(self, limit: int = 100) -> Sequence[Message]:
        """The conversation up to the newest user message, oldest first, at most so many messages.

        What this run did since is not among them, so that it is the same when the function is called again.
        """
        found: list[Message] = []
        has_begun = not self._can_act or self.message is None
        async for message in self._run.history():
            if len(found) >= limit:
                break
            has_begun = has_begun or (self.message is not None and message.id == self.message.id)
            if has_begun:
                found.append(message)
        found.reverse()
        return found

    # --- saying -----------------------------------------------------------------------------------------------------

    def emit(self, text: str) -> bool:
        """Add words to the answer. True: `await drain()` before you go on, so that others get their turn."""
        if text:
            self._has_output = True
        return (self._is_live or self._may_act()) and self._run.emit(text)

    def think(self, text: str) -> bool:
        """Add words to the thinking that is shown, as `emit` does."""
        if text:
            self._has_output = True
        return (self._is_live or self._may_act()) and self._run.think(text)

    def add(self, block: Block) -> None:
        """Add a whole block, such as a picture. Raises TypeError: calls are made with `call`."""
        if isinstance(block, Call):
            raise TypeError("a call is made with `await run.call(…)`")
        if isinstance(block, Text):
            self.emit(block.text)
        elif isinstance(block, Thinking):
            self.think(block.text)
        else:
            self._has_output = True
            if self._may_act():
                self._run.add(block)

    def plan(self, plan: Plan) -> None:
        """Show a plan."""
        if self._may_act():
            self._run.plan(plan)

    def stage(self, name: str | None) -> None:
        """Enter a stage of the work, such as `router` or `worker`; the one before is over. None: only that.

        A run that goes on enters the stage in which it has something new to do.
        """
        self._stage = name
        if self._may_act():
            self._run.stage(name)

    def share(self, state: Json) -> None:
        """Replace the state that is shared with the application; `state` is it from here on.

        Raises:
            ValueError: it has too many levels.
        """
        self.state = state
        if self._may_act():
            self._run.share(state)

    def card(self, card: Json) -> None:
        """Give the answer a user interface (UI schema 2.0)."""
        if self._may_act():
            self._run.card(card)

    def add_usage(self, *, input_tokens: int = 0, output_tokens: int = 0) -> None:
        """Note tokens that the step under way used."""
        used = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        self._usage = used if self._usage is None else self._usage + used

    async def drain(self) -> None:
        """Give way to others, and wait while too much of this run is not durable yet."""
        await self._run.drain()

    # --- calling ----------------------------------------------------------------------------------------------------

    @overload
    async def call(self, tool: FunctionTool[P, T], /, *args: P.args, **arguments: P.kwargs) -> T: ...

    @overload
    async def call(self, tool: Callee, /, **arguments: object) -> Json: ...

    async def call(self, tool: Callee, /, *args: object, **arguments: object) -> Any:
        """Call a tool of this agent, or of the application, and give what it returned.

        Args:
            tool: itself, which types arguments and result, or its name.
            args: only for a tool that is a function.
            arguments: by name.

        Raises:
            ToolFailed: it failed, was denied or cancelled, or there is no such tool.
        """
        (result,) = await self._step([(_name(tool), _arguments(tool, args, arguments))])
        return self._result_value(result)

    async def call_all(self, calls: Sequence[tuple[Callee, Mapping[str, object]]]) -> list[Json]:
        """Call several tools in parallel; results in the order of the calls.

        Raises:
            ToolFailed: one failed; all have ended by then.
        """
        if not calls:
            return []
        results = await self._step([(_name(tool), _arguments(tool, (), arguments)) for tool, arguments in calls])
        return [self._result_value(result) for result in results]

    async def ask(
        self,
        question: str,
        choices: Sequence[str | tuple[str, str]] = (),
        *,
        header: str = "",
        multiple: bool = False,
    ) -> str:
        """Ask the person, and give the answer: the label of the choice, or the person's own words.

        Args:
            question: in full.
            choices: labels, or pairs of label and description.
            header: one or two words over it.
            multiple: several choices may be picked; they come joined by a comma.

        Raises:
            ToolFailed: the person declined to answer.
        """
        if ASK_USER_QUESTION not in self._agent.spec.builtins:
            raise RuntimeError(f"agent {self._agent.spec.name} cannot ask: it was made with ask_user=False")
        options = tuple(Choice(each) if isinstance(each, str) else Choice(*each) for each in choices)
        asked = Questions((Question(question, options=options, header=header, multi_select=multiple),))
        (result,) = await self._step([(ASK_USER_QUESTION, msgspec.to_builtins(asked))])
        _raise_if_failed(result)
        return answer_text(result)

    async def remember(
        self, content: str, *, reason: str, kind: MemoryKind = "experience", topic: str | None = None
    ) -> None:
        """Write down what is to be remembered of the user, in one sentence, and why.

        Raises:
            ToolFailed: the session's memory is off, or the sentence is too long.
        """
        note = {"content": content, "reason": reason, "type": kind, "topic": topic}
        await self.call(WRITE_MEMORY, **{name: value for name, value in note.items() if value is not None})

    async def fork(self, agent: contract.Agent | str, task: str) -> str:
        """Give a sub-agent a task, and give its answer.

        Raises:
            ToolFailed: it failed.
        """
        if FORK not in self._agent.spec.builtins:
            raise RuntimeError(f"agent {self._agent.spec.name} has no sub-agents")
        name = agent if isinstance(agent, str) else agent.spec.name
        (result,) = await self._step([(FORK, {"agent": name, "task": task})])
        _raise_if_failed(result)
        return text_of(result.content)

    async def close(self) -> None:
        """End the last step, after the function has ended."""
        if self._may_act():
            if self._has_output:
                await self._run.end_step(usage=self._usage)
            return
        if self._has_output:
            self._replay_step([])
        if not self._is_live:
            log.warning("the function ended before its record did", session_id=self.session_id, run_id=self.run_id)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _may_act(self) -> bool:
        """Whether what the function does now is to be done; if not, it is on record.

        Raises:
            Paused: the run has ended to wait. The function caught that, and must not go on.
        """
        if self._is_over:
            raise Paused
        if not self._can_act:
            raise RuntimeError("a function that gives instructions cannot answer")
        return self._step_index >= len(self._recorded_steps)

    async def _step(self, calls: Sequence[tuple[str, JsonObject]]) -> Sequence[ToolMessage]:
        if not self._may_act():
            return self._replay_step(calls)
        if self._is_calling:
            raise RuntimeError("one call after the other; several at once are made with `await run.call_all(…)`")
        for name, arguments in calls:
            is_memory = name == WRITE_MEMORY and self._agent.tool(name) is None
            self._run.call(name, arguments, tool=self._run.memory_tool if is_memory else None)
        usage, self._usage, self._has_output = self._usage, None, False
        self._is_calling = True
        try:
            return await self._run.end_step(usage=usage)
        except Paused:
            self._is_over, self._is_live = True, False
            raise
        finally:
            self._is_calling = False

    def _replay_step(self, calls: Sequence[tuple[str, JsonObject]]) -> Sequence[ToolMessage]:
        step = self._recorded_steps[self._step_index]
        if [call.name for call in step.calls] != [name for name, _ in calls]:
            log.error(
                "the function took other steps than before",
                session_id=self.session_id,
                run_id=self.run_id,
                before=[call.name for call in step.calls],
                now=[name for name, _ in calls],
            )
            raise AgentError("replay_mismatch", "The agent did not take the same steps again")
        if any(call.input != _to_json(arguments) for call, (_, arguments) in zip(step.calls, calls, strict=True)):
            log.warning(
                "the function called with other arguments than before", run_id=self.run_id, step=self._step_index
            )
        if any(call.call_id not in step.results for call in step.calls):
            raise AgentError("replay_mismatch", "The result of an earlier step is not on record")
        self._step_index += 1
        self._is_live = self._step_index >= len(self._recorded_steps)
        self._usage, self._has_output = None, False
        if self._is_live and self._stage is not None:
            self._run.stage(self._stage)
        return [step.results[call.call_id] for call in step.calls]

    def _result_value(self, result: ToolMessage) -> Json:
        """What a tool returned, as far as its result tells."""
        _raise_if_failed(result)
        tool = self._agent.tool(result.name)
        if not isinstance(tool, FunctionTool):
            return result.content if result.raw is msgspec.UNSET else result.raw
        value = result.raw
        if value is msgspec.UNSET:
            value = result.content if tool.returns is str else _decode_json(result.content)
        return _convert_result(value, tool.returns)


def _steps(turn: Sequence[Message]) -> list[Step]:
    """The steps of a turn."""
    results = {each.call_id: each for each in turn if isinstance(each, ToolMessage)}
    return [Step(each.calls(), results) for each in turn if isinstance(each, AssistantMessage) and each.content]


def _name(tool: Callee) -> str:
    return tool if isinstance(tool, str) else tool.declaration.spec.name


def _arguments(tool: Callee, args: Sequence[object], arguments: Mapping[str, object]) -> JsonObject:
    if args:
        if not isinstance(tool, FunctionTool):
            raise TypeError("arguments of a tool that is no function are given by name")
        arguments = tool.bind_arguments(*args, **arguments)
    return _to_json(arguments)


def _to_json(arguments: Mapping[str, object]) -> JsonObject:
    """The arguments as JSON. Raises TypeError: they have no form in it."""
    plain: JsonObject = msgspec.to_builtins(dict(arguments), str_keys=True)
    return plain


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


def _convert_result(value: Json, returns: TypeHint) -> Json:
    """The value as the type that the function says it returns, if it can be read as such."""
    if returns is msgspec.UNSET or returns is str:
        return value
    if isinstance(value, tuple) and len(value) == 1 and type(value[0]) is returns:  # one block
        return value[0]
    try:
        return msgspec.convert(value, returns)
    except (msgspec.ValidationError, TypeError):
        return value
