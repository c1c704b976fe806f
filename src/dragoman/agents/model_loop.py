"""The loop of model calls and tool calls. One object runs one loop of one run.

    context ──► request ──► model ──► text, calls ──► step closed, calls run ─┐
       ▲                                                                      │ if there were calls
       └──────────────────────────────────────────────────────────────────────┘

Nothing is stored between runs. The context is read from the session before each model call.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog

from dragoman.agents.builtins import RejectedCallTool, ask_spec, check_builtin, fork_spec
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
from dragoman.core.content import (
    UNPARSED_ARGUMENTS,
    AssistantMessage,
    JsonObject,
    Message,
    Usage,
    UserMessage,
    encode_json,
    is_too_deep,
)
from dragoman.core.events import StopReason
from dragoman.core.headless import output_instruction
from dragoman.core.ids import MessageId
from dragoman.core.run_metadata import application_context
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
"""Share of the context window that a conversation may fill before its older part is summarized."""
MAX_ANSWER_RESERVE_TOKENS = 4096
"""Maximum number of tokens reserved for the answer if the agent sets no `max_tokens`; also at most a quarter of the
context window."""
MAX_UNPARSED_CHARS = 2000

Instructions = str | Callable[[Run], str | Awaitable[str]]
"""The system prompt, or a function that returns it before each model call."""

log = structlog.get_logger(__name__)


class ModelAgent(contract.Agent, Protocol):
    """The attributes of an agent that the loop uses."""

    model_name: str
    instructions: Instructions
    subagents: tuple[contract.Agent, ...]
    max_tokens: int | None
    max_run_tokens: int | None
    max_messages: int
    context_window: int | None
    parameters: JsonObject


class ModelLoop:
    """Runs an agent that has a model."""

    def __init__(self, agent: ModelAgent, model: Model, run: contract.Run) -> None:
        self._agent = agent
        self._model = model
        self._run = run
        self._compactor = Compactor(model, agent.model_name)
        self._context_window = agent.context_window or model.context_window
        self._run_usage = Usage()
        self._last_answer_usage: Usage | None = None
        """Usage of the newest answer of this run since the last compaction: the model's own count of the context."""
        self._has_answered = False
        """Whether a model call of this loop is over."""
        self._has_output = False
        """Whether part of the current answer was sent, so that the model call cannot be repeated."""
        self._may_compact = True

    async def play(self) -> StopReason | None:
        """Call the model and its tools until it answers without a call. Returns the stop reason."""
        run = self._run
        messages = await run.context(self._agent.max_messages)
        if _is_answered(messages):
            return None  # the server died between the end of the answer and the end of the run
        while True:
            finished, calls = await self._call_model(messages)
            self._has_answered = True
            for call in calls:
                self._request_call(call)
            usage = finished.usage
            if self._compactor.usage != Usage():  # summaries written for this step
                usage = (usage or Usage()) + self._compactor.usage
                self._compactor.usage = Usage()
            model = finished.model or self._agent.model_name
            await run.end_step(
                usage=usage,
                model=model,
                context_window=self._context_window,
                provider_data=finished.provider_data,
            )
            if not calls:
                return "end_turn" if finished.stop == "tool_use" else finished.stop
            self._run_usage += usage or Usage()
            limit = self._agent.max_run_tokens
            if limit is not None and self._run_usage.input_tokens + self._run_usage.output_tokens >= limit:
                return "max_tokens"
            self._last_answer_usage = finished.usage
            messages = await run.context(self._agent.max_messages)

    # --- calling the model ------------------------------------------------------------------------------------------

    async def _call_model(self, messages: Sequence[Message]) -> tuple[Finished, Sequence[CallRequested]]:
        """Call the model once, and stream its answer. A request that is too long is compacted and repeated once."""
        tools = self._tools()
        instructions = await self._instructions(messages)
        budget = self._budget(estimate_tokens(instructions) + tokens_of_tools(tools))
        messages = await self._compact_if_needed(messages, budget)
        is_retry = False
        while True:
            request = await self._request(messages, instructions, tools, budget)
            try:
                return await self._stream_answer(request)
            except ContextTooLong as error:
                if is_retry or self._has_output:
                    raise _to_agent_error(error) from error
                is_retry = True
                budget = min(budget or tokens_of_all(request.messages), tokens_of_all(request.messages)) // 2
                messages = await self._compact_if_needed(messages, budget)
            except ModelFailed as error:
                raise _to_agent_error(error) from error

    async def _stream_answer(self, request: ModelRequest) -> tuple[Finished, Sequence[CallRequested]]:
        """Stream the answer into the run. The calls of an answer that was cut off are dropped."""
        run = self._run
        self._has_output = False
        calls: list[CallRequested] = []
        finished: Finished | None = None
        async with closing(self._model.stream(request)) as events:
            async for event in events:
                match event:
                    case TextDelta(text=text):
                        self._has_output = True
                        if run.emit(text):
                            await run.drain()
                    case ThinkingDelta(text=text):
                        self._has_output = True
                        if run.think(text):
                            await run.drain()
                    case CallRequested():
                        calls.append(event)
                    case Finished():
                        finished = event
        if finished is None:
            raise ModelFailed("the model's stream ended without a stop reason")
        return finished, () if finished.stop in ("max_tokens", "refusal") else calls

    def _request_call(self, requested: CallRequested) -> None:
        """Make the call. If its arguments are not valid, it reaches neither the tool nor the user, but fails."""
        name, arguments = replace_surrogates(requested.name), requested.input
        tool: RunnableTool | None = self._memory_tool if name == WRITE_MEMORY else None
        if arguments is None or not _is_sendable(arguments):
            tool = RejectedCallTool(name, "the arguments are not a JSON object; call the tool again with valid JSON")
            arguments = {UNPARSED_ARGUMENTS: replace_surrogates(requested.raw[:MAX_UNPARSED_CHARS])}
        else:
            try:
                self._check(name, arguments)
            except ToolFailed as error:
                tool = RejectedCallTool(name, str(error))
        self._run.call(name, arguments, tool=tool)

    def _check(self, name: str, arguments: JsonObject) -> None:
        if name in self._agent.spec.builtins:
            check_builtin(name, arguments, [agent.spec for agent in self._agent.subagents])
        elif any(tool.name == name for tool in self._run.offered_tools()):
            tool = self._agent.tool(name)
            if isinstance(tool, FunctionTool):
                tool.check(arguments)

    # --- the request ------------------------------------------------------------------------------------------------

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
        """The tool that stores memories, if memory is on and no other tool has its name."""
        is_taken = any(tool.name == WRITE_MEMORY for tool in self._run.offered_tools())
        return None if is_taken else self._run.memory_tool

    async def _instructions(self, messages: Sequence[Message]) -> str:
        instructions = self._agent.instructions
        if not isinstance(instructions, str):
            returned = instructions(Run(self._run, self._agent, messages, can_act=False))
            instructions = returned if isinstance(returned, str) else await returned
        metadata = self._run.metadata
        return "\n\n".join(
            filter(
                None,
                (
                    instructions,
                    self._run.memories,
                    metadata.instructions,
                    application_context(metadata),
                    output_instruction(metadata.output_schema),
                ),
            )
        )

    async def _request(
        self, messages: Sequence[Message], instructions: str, tools: Sequence[ToolSpec], budget: int | None
    ) -> ModelRequest:
        agent = self._agent
        summary = await self._run.summary()
        before = [] if summary is None else [UserMessage(id=MessageId("summary"), content=summary)]
        after = replace_unsupported_images(order_for_model(messages), agent.spec.capabilities)
        if budget is not None:
            after = fit_to_budget(after, budget - tokens_of_all(before))
        parameters = {**agent.parameters, **self._run.parameters}
        if self._has_answered and parameters.get("tool_choice") != "none":
            parameters.pop("tool_choice", None)  # an application that forces a call wants one, not one in every step
        return ModelRequest(
            model=agent.model_name,
            messages=[*before, *after],
            instructions=instructions,
            tools=tools,
            max_tokens=parameters.pop("max_tokens", agent.max_tokens),
            parameters=parameters,
            output_schema=self._run.metadata.output_schema,
        )

    # --- the context window -----------------------------------------------------------------------------------------

    def _budget(self, overhead: int) -> int | None:
        """Maximum tokens of the conversation; None if the context window is not known."""
        if self._context_window is None:
            return None
        reserve = self._agent.max_tokens or min(MAX_ANSWER_RESERVE_TOKENS, self._context_window // 4)
        return max(
            min(int(self._context_window * COMPACTION_THRESHOLD), self._context_window - reserve) - overhead,
            self._context_window // 8,
        )

    async def _compact_if_needed(self, messages: Sequence[Message], budget: int | None) -> Sequence[Message]:
        """Replace the older part of the context with a summary if the context is too long. Returns the context."""
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
        """An estimate of the context's tokens, based on the model's own count if there is one."""
        summary = await self._run.summary()
        estimate = tokens_of_all(messages) + (estimate_tokens(summary) if summary else 0)
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            if isinstance(message, AssistantMessage) and message.usage is not None:
                usage = self._last_answer_usage
                if usage is None and summary is None:  # with a summary, the recorded usage may predate the compaction
                    usage = message.usage
                counted = 0 if usage is None else usage.input_tokens + usage.output_tokens
                return max(estimate, counted + tokens_of_all(messages[index + 1 :]))
        return estimate


def _to_agent_error(error: ModelFailed) -> AgentError:
    """The error for clients. The provider's message goes to the log, and to clients only if the model says so."""
    log.warning("model failed", code=error.code, error=str(error))
    if error.shown_message is not None:
        return AgentError(error.code, error.shown_message)
    if isinstance(error, ModelUnavailable):
        return AgentError(error.code, "The model is currently unavailable")
    if isinstance(error, ContextTooLong):
        return AgentError(error.code, "The conversation is too long for the model")
    return AgentError(error.code, "The model failed to answer")


def _is_sendable(arguments: JsonObject) -> bool:
    """Whether the arguments can be stored and sent. Not every model adapter guarantees it."""
    try:
        encode_json(arguments)
    except (TypeError, ValueError, RecursionError):
        return False
    return not is_too_deep(arguments)


def _is_answered(messages: Sequence[Message]) -> bool:
    """Whether the conversation ends with a complete answer."""
    last = messages[-1] if messages else None
    return isinstance(last, AssistantMessage) and last.status == "completed" and not last.calls()
