"""The loop of model and tools: one object plays one loop of one run.

    context ──► request ──► model ──► words, calls ──► step closed, calls run ─┐
       ▲                                                                       │ there were calls
       └───────────────────────────────────────────────────────────────────────┘

Nothing is kept between two runs. What the model is told is read off the session before each call.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec
import structlog

from dragoman.agents.builtins import UNPARSED_ARGUMENTS, RejectedCallTool, ask_spec, check_builtin, fork_spec
from dragoman.agents.compaction import Compactor
from dragoman.agents.run import Run
from dragoman.agents.stream_cleanup import closing
from dragoman.agents.tool import FunctionTool
from dragoman.agents.window import (
    fit_to_budget,
    order_for_model,
    replace_unsupported_images,
    tokens_of_all,
    tokens_of_tools,
)
from dragoman.core import agent as contract
from dragoman.core.agent import AgentError, RunnableTool, ToolFailed
from dragoman.core.answers import replace_surrogates
from dragoman.core.application_context import application_context
from dragoman.core.content import AssistantMessage, JsonObject, Message, Usage, UserMessage, is_too_deep
from dragoman.core.events import StopReason
from dragoman.core.headless import output_instruction
from dragoman.core.ids import MessageId
from dragoman.core.tokens import estimate_tokens
from dragoman.core.tools import ASK_USER_QUESTION, FORK, WRITE_MEMORY, ToolSpec
from dragoman.ports.models import (
    CallRequested,
    ContextTooLong,
    Finished,
    Model,
    ModelFailed,
    ModelRequest,
    ModelUnavailable,
    TextDelta,
    ThinkingDelta,
)

COMPACTION_THRESHOLD = 0.8
"""Of the context window: what a conversation may fill before its older part is summed up."""
MAX_ANSWER_RESERVE_TOKENS = 4096
"""Tokens kept free for the answer, where the agent sets no limit: at most so many, and a quarter of the window."""
MAX_UNPARSED_CHARS = 2000

Instructions = str | Callable[[Run], str | Awaitable[str]]
"""What ranks above the conversation, or a function that gives it before each call of the model."""

log = structlog.get_logger(__name__)


class ModelAgent(contract.Agent, Protocol):
    """What the loop has to know of the agent that it plays; see `model.Agent`."""

    model_name: str
    instructions: Instructions
    subagents: tuple[contract.Agent, ...]
    max_tokens: int | None
    max_run_tokens: int | None
    max_messages: int
    context_window: int | None
    parameters: JsonObject


class ModelLoop:
    """Plays an agent that has a model."""

    def __init__(self, agent: ModelAgent, model: Model, run: contract.Run) -> None:
        self._agent = agent
        self._model = model
        self._run = run
        self._compactor = Compactor(model, agent.model_name)
        self._context_window = agent.context_window or model.context_window
        self._run_usage = Usage()
        self._last_answer_usage: Usage | None = None
        """What the newest answer used, if it was made here and since the last compaction: it measures the context."""
        self._reported_summary_usage = Usage()
        """Of what summaries cost, the part that is part of some step's usage already."""
        self._may_compact = True

    async def play(self) -> StopReason | None:
        """See `Agent.play`."""
        run = self._run
        messages = await run.context(self._agent.max_messages)
        if _is_answered(messages):
            return None  # the server died between the answer's end and the run's
        while True:
            finished, calls = await self._call_model(messages)
            for call in calls:
                self._request_call(call)
            await run.end_step(usage=self._step_usage(finished), model=self._agent.model_name)
            if not calls:
                return "end_turn" if finished.stop == "tool_use" else finished.stop
            self._run_usage += finished.usage or Usage()
            limit = self._agent.max_run_tokens
            spent = self._run_usage + self._compactor.usage
            if limit is not None and spent.input_tokens + spent.output_tokens >= limit:
                return "max_tokens"
            self._last_answer_usage = finished.usage
            messages = await run.context(self._agent.max_messages)

    # --- asking the model -------------------------------------------------------------------------------------------

    async def _call_model(self, messages: Sequence[Message]) -> tuple[Finished, Sequence[CallRequested]]:
        """One call of the model, spoken as it comes. Calls of an answer that broke off are not made."""
        tools = self._tools()
        instructions = await self._instructions(messages)
        budget = self._budget(estimate_tokens(instructions) + tokens_of_tools(tools))
        messages = await self._compact_if_needed(messages, budget)
        is_second = False
        while True:
            request = await self._request(messages, instructions, tools, budget)
            said = _StreamProgress()
            try:
                return await self._stream_answer(request, said)
            except ContextTooLong as error:
                if is_second or said.has_output:
                    raise _to_agent_error(error) from error
                is_second = True
                budget = min(budget or tokens_of_all(request.messages), tokens_of_all(request.messages)) // 2
                messages = await self._compact_if_needed(messages, budget)
            except ModelFailed as error:
                raise _to_agent_error(error) from error

    async def _stream_answer(
        self, request: ModelRequest, progress: "_StreamProgress"
    ) -> tuple[Finished, Sequence[CallRequested]]:
        run = self._run
        calls: list[CallRequested] = []
        finished: Finished | None = None
        async with closing(self._model.stream(request)) as events:
            async for event in events:
                match event:
                    case TextDelta(text=text):
                        progress.has_output = True
                        if run.emit(text):
                            await run.drain()
                    case ThinkingDelta(text=text):
                        progress.has_output = True
                        if run.think(text):
                            await run.drain()
                    case CallRequested():
                        calls.append(event)
                    case Finished():
                        finished = event
        if finished is None:
            raise ModelFailed("the model's answer has no end")
        return finished, () if finished.stop in ("max_tokens", "refusal") else calls

    def _request_call(self, requested: CallRequested) -> None:
        """Ask for a tool, or tell the model why not. What cannot be right reaches neither the tool nor the user."""
        name, arguments = replace_surrogates(requested.name), requested.input
        if arguments is None or not _is_sendable(arguments):
            refused = RejectedCallTool(name, "the arguments are not a JSON object; call the tool again with valid JSON")
            self._run.call(
                name, {UNPARSED_ARGUMENTS: replace_surrogates(requested.raw[:MAX_UNPARSED_CHARS])}, tool=refused
            )
            return
        try:
            self._check(name, arguments)
        except ToolFailed as error:
            self._run.call(name, arguments, tool=RejectedCallTool(name, str(error)))
        else:
            self._run.call(name, arguments, tool=self._memory_tool if name == WRITE_MEMORY else None)

    def _check(self, name: str, arguments: JsonObject) -> None:
        spec = self._agent.spec
        if name in spec.builtins:
            check_builtin(name, arguments, [agent.spec for agent in self._agent.subagents])
        elif any(tool.name == name for tool in self._run.offered_tools()):
            tool = self._agent.tool(name)
            if isinstance(tool, FunctionTool):
                tool.check(arguments)

    # --- what the model is told -------------------------------------------------------------------------------------

    def _tools(self) -> Sequence[ToolSpec]:
        builtins = self._agent.spec.builtins
        tools = list(self._run.offered_tools())
        if ASK_USER_QUESTION in builtins:
            tools.append(ask_spec())
        if FORK in builtins:
            tools.append(fork_spec([agent.spec for agent in self._agent.subagents]))
        if self._memory_tool:
            tools.append(self._memory_tool.declaration.spec)
        return tools

    @property
    def _memory_tool(self) -> RunnableTool | None:
        """The tool for it, where memory is on and no other tool has its name."""
        is_taken = any(tool.name == WRITE_MEMORY for tool in self._run.offered_tools())
        return None if is_taken else self._run.memory_tool

    async def _instructions(self, messages: Sequence[Message]) -> str:
        instructions = self._agent.instructions
        if not isinstance(instructions, str):
            words = instructions(Run(self._run, self._agent, messages, can_act=False))
            instructions = words if isinstance(words, str) else await words
        props = self._run.metadata
        return "\n\n".join(
            filter(None, (instructions, self._run.memories, application_context(props), output_instruction(props)))
        )

    async def _request(
        self, messages: Sequence[Message], instructions: str, tools: Sequence[ToolSpec], budget: int | None
    ) -> ModelRequest:
        agent = self._agent
        summary = await self._run.summary()
        before = [] if summary is None else [UserMessage(id=MessageId("summary"), content=summary)]
        said = replace_unsupported_images(order_for_model(messages), agent.spec.capabilities)
        if budget is not None:
            said = fit_to_budget(said, budget - tokens_of_all(before))
        parameters = {**agent.parameters, **self._run.parameters}
        return ModelRequest(
            model=agent.model_name,
            messages=[*before, *said],
            instructions=instructions,
            tools=tools,
            max_tokens=parameters.pop("max_tokens", agent.max_tokens),
            parameters=parameters,
        )

    # --- staying within the window ----------------------------------------------------------------------------------

    def _budget(self, overhead: int) -> int | None:
        """Tokens that the conversation may have; None when nobody knows the window."""
        if self._context_window is None:
            return None
        reserve = self._agent.max_tokens or min(MAX_ANSWER_RESERVE_TOKENS, self._context_window // 4)
        return max(
            min(int(self._context_window * COMPACTION_THRESHOLD), self._context_window - reserve) - overhead,
            self._context_window // 8,
        )

    async def _compact_if_needed(self, messages: Sequence[Message], budget: int | None) -> Sequence[Message]:
        """The context, after a summary took the place of its older part, if it had grown too long."""
        limit = self._agent.max_messages
        is_long = budget is not None and await self._count_tokens(messages) > budget
        if not self._may_compact or not (is_long or len(messages) >= limit):
            return messages
        if not await self._compactor.compact(self._run, messages, budget or tokens_of_all(messages)):
            self._may_compact = False
            return messages
        self._last_answer_usage = None
        return await self._run.context(limit)

    async def _count_tokens(self, messages: Sequence[Message]) -> int:
        """About how many tokens the context has, going by what the model itself counted, if it did."""
        summary = await self._run.summary()
        estimate = tokens_of_all(messages) + (estimate_tokens(summary) if summary else 0)
        for place in range(len(messages) - 1, -1, -1):
            message = messages[place]
            if isinstance(message, AssistantMessage) and message.usage is not None:
                # Where there is a summary, what the history says of earlier answers may be from before it.
                usage = (
                    self._last_answer_usage
                    if self._last_answer_usage is not None or summary is not None
                    else message.usage
                )
                counted = 0 if usage is None else usage.input_tokens + usage.output_tokens
                return max(estimate, counted + tokens_of_all(messages[place + 1 :]))
        return estimate

    def _step_usage(self, finished: Finished) -> Usage | None:
        """What a step used: the answer, and the summaries that were made for it."""
        summaries, self._reported_summary_usage = (
            _subtract_usage(self._compactor.usage, self._reported_summary_usage),
            self._compactor.usage,
        )
        if summaries == Usage():
            return finished.usage
        return (finished.usage or Usage()) + summaries


def _subtract_usage(all_of_it: Usage, part: Usage) -> Usage:
    return Usage(
        input_tokens=all_of_it.input_tokens - part.input_tokens,
        output_tokens=all_of_it.output_tokens - part.output_tokens,
    )


class _StreamProgress:
    """Whether something of an answer was spoken: then it cannot be begun again."""

    has_output = False


def _to_agent_error(error: ModelFailed) -> AgentError:
    """What clients are told. What the provider said is for the log alone."""
    log.warning("model failed", code=error.code, error=str(error))
    if isinstance(error, ModelUnavailable):
        return AgentError(error.code, "The model cannot be reached at the moment")
    if isinstance(error, ContextTooLong):
        return AgentError(error.code, "The conversation is too long for the model")
    return AgentError(error.code, "The model failed to answer")


def _is_sendable(arguments: JsonObject) -> bool:
    """Whether arguments can be stored and sent. An adapter that parses with other means may let anything through."""
    try:
        msgspec.json.encode(arguments)
    except (TypeError, ValueError, RecursionError):
        return False
    return not is_too_deep(arguments)


def _is_answered(messages: Sequence[Message]) -> bool:
    """Whether the conversation ends with a whole answer."""
    last = messages[-1] if messages else None
    return isinstance(last, AssistantMessage) and last.status == "completed" and not last.calls()
