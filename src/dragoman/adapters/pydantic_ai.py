"""Agents of Pydantic AI, served unchanged. The framework runs its own loop; see `pydantic_ai_capability`.

A run continues from its messages: the framework takes up the calls of the last response by itself, and the capability
answers those that are on record. Decisions and results of the application are handed over as deferred tool results.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, Unpack, cast

import structlog
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.models import Model
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.run import AgentRunResult
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved
from pydantic_ai.toolsets import ExternalToolset, FunctionToolset
from pydantic_ai.usage import RunUsage, UsageLimits

from dragoman.adapters.base import FrameworkAgent, WrapperOptions
from dragoman.adapters.frameworks import PYDANTIC_AI, needs_argument, no_model, own_runtime
from dragoman.adapters.model_errors import end_of_run
from dragoman.adapters.pydantic_ai_capability import ASKING, Bridge, StreamingBridge, add_result, settle
from dragoman.adapters.pydantic_ai_history import History, read_history, value_of
from dragoman.adapters.run_info import RunInfo, value_for
from dragoman.core.agent import Agent, AgentError, Recorded, Run
from dragoman.core.answers import INTERRUPTED_RESULT, answer_text, denied_result
from dragoman.core.content import ToolMessage
from dragoman.core.events import StopReason
from dragoman.core.inputs import Decision
from dragoman.core.tools import ServerTool, ToolPolicy, ToolSpec

CONTEXT_MESSAGES = 1000
"""The messages of a session that the framework gets, before those of the turn."""
_OWN_RUNTIME = "pydantic_ai.durable_exec"
_NO_DEPS: Any = object()

log = structlog.get_logger(__name__)


class PydanticAIAgent(FrameworkAgent):
    """An agent of Pydantic AI.

    Args:
        agent: the framework's agent.
        deps: its dependencies, or a function (async or not) of `RunInfo` that makes them for each run.
        usage_limits: handed on; they count the whole turn.
        model_settings: handed on.
        wrapper_options: see `WrapperOptions`.

    Raises:
        Refused: the agent cannot be served; the message says why.
        TypeError: an option does not exist.
    """

    framework = PYDANTIC_AI

    def __init__(
        self,
        agent: AbstractAgent[Any, Any],
        *,
        deps: Any | Callable[[RunInfo], Any] = _NO_DEPS,  # noqa: ANN401  # the agent's own type
        usage_limits: UsageLimits | None = None,
        model_settings: ModelSettings | None = None,
        **wrapper_options: Unpack[WrapperOptions],
    ) -> None:
        description = agent.description
        super().__init__(
            agent,
            own_name=agent.name,
            own_description=description if isinstance(description, str) else None,
            own=("deps", "usage_limits", "model_settings"),
            **wrapper_options,
        )
        if type(agent).__module__.startswith(_OWN_RUNTIME):
            raise own_runtime(self.name)
        if agent.model is None and agent.root_capability.get_model() is None:
            raise no_model(self.name, 'Agent("openai:gpt-5-mini", …)')
        if deps is _NO_DEPS and agent.deps_type not in (type(None), object):
            needs = f"needs deps of type {agent.deps_type.__name__}"
            raise needs_argument(self.name, needs, PydanticAIAgent, "deps")
        self._agent = agent
        self._deps = None if deps is _NO_DEPS else deps
        self._usage_limits = usage_limits
        self._model_settings = model_settings
        output = agent.output_type
        self._output_type = [*(output if isinstance(output, list | tuple) else [output]), DeferredToolRequests]
        self._bridge = StreamingBridge if _streams(agent.model) else Bridge
        self.declare_tools(
            _server_tool(tool.tool_def)
            for toolset in agent.toolsets
            if isinstance(toolset, FunctionToolset)
            for tool in toolset.tools.values()
        )

    async def start(self) -> None:
        """Learn the tools of all toolsets, also of MCP servers. Those that cannot be listed yet are not declared."""
        context = RunContext[Any](deps=None, model=cast(Any, None), usage=RunUsage())
        found = {tool.spec.name: tool for tool in self.spec.tools}
        for toolset in self._agent.toolsets:
            async with toolset:  # not the agent, which would open its model: that may lack its key until the first run
                try:
                    tools = await toolset.get_tools(context)
                except Exception:  # noqa: BLE001  # an author's function of the run's dependencies may raise anything
                    log.info(
                        "the tools of a toolset are known only during runs", agent=self.name, toolset=toolset.label
                    )
                    continue
                found.update((name, _server_tool(tool.tool_def)) for name, tool in tools.items())
        self.declare_tools(found.values())

    async def close(self) -> None:
        """Nothing is open between two runs: the framework opens its toolsets for each."""

    async def play(self, run: Run) -> StopReason | None:
        """Answer the input, or continue where the log ends."""
        history = read_history([each for each in await run.context(CONTEXT_MESSAGES) if each.loop == run.loop])
        if history.unreadable:
            log.warning(
                "steps of another version of Pydantic AI are reconstructed from visible messages",
                session_id=run.session_id,
                steps=history.unreadable,
            )
        if history.prompt is None and not history.calls and not history.is_request_open:
            return None  # the answer is complete
        answers = await self._settle_left(run, history)
        if any(each.state == "waiting" for each in run.recorded()):
            return None
        declared = frozenset(tool.spec.name for tool in self.spec.tools)
        bridge = self._bridge(run, history, declared)
        own_tools = [
            ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
            for tool in run.offered_tools()
            if tool.name not in declared
        ]
        info = RunInfo.of(run)
        agent, output_type = _with_deferred_calls(self._agent, self._output_type)
        try:
            result: AgentRunResult[Any] = await agent.run(
                history.prompt,
                message_history=history.messages,
                deferred_tool_results=answers,
                output_type=output_type,
                capabilities=[bridge],
                toolsets=[ExternalToolset(own_tools)] if own_tools else None,
                deps=await value_for(self._deps, info),
                usage_limits=self._usage_limits,
                usage=history.usage(),
                model_settings=self._model_settings,
                metadata={
                    "user": info.user,
                    "session_id": info.session_id,
                    "run_id": info.run_id,
                    "forwarded": info.forwarded,
                },
                infer_name=False,
            )
        except AgentError:
            raise
        except Exception as error:  # noqa: BLE001  # of the framework, a model or the author: one table says which
            await bridge.close_step()
            return end_of_run(error)
        output = result.output
        if isinstance(output, DeferredToolRequests):
            await bridge.wait_for(output)
            return None
        await bridge.finish(output)
        return "max_tokens" if result.response.finish_reason == "length" else None

    async def _settle_left(self, run: Run, history: History) -> DeferredToolResults | None:
        """Settle what needs no tool, and return what the framework is told about the calls of the last step.

        None: it takes them up by itself, and the bridge answers those that are on record.
        """
        left = {each.call.origin or each.call.call_id: each for each in run.recorded()}
        for origin, recorded in left.items():
            if origin.startswith(ASKING):
                continue
            if (asking := left.get(f"{ASKING}{origin}")) is not None:
                await _settle_asking(history, origin, recorded, asking)
            elif recorded.state == "started":
                await self._settle_interrupted(history, origin, recorded)
            elif recorded.state == "answered":
                await _settle_answered(history, origin, recorded)
        opened = {origin for origin, (_, result) in history.calls.items() if result is None}
        granted = {origin for origin in opened if origin in left and isinstance(left[origin].answer, Decision)}
        if not history.calls or (opened and not granted):
            return None
        for origin in opened - granted:  # an approval of another call must not run it
            await settle(history, origin, left[origin], INTERRUPTED_RESULT, "interrupted")
        results = DeferredToolResults()
        for origin, (_, result) in history.calls.items():
            if result is None:
                results.approvals[origin] = ToolApproved()
            else:
                add_result(results, origin, result)
        return results

    async def _settle_interrupted(self, history: History, origin: str, recorded: Recorded) -> None:
        """Apply the tool's rule to a call that ran when the server died."""
        rule = self.restart_rule(recorded.call.name)
        if rule == "ask" and recorded.may_ask_again:
            recorded.wait("permission", repeat=True)
        elif rule != "repeat":
            await settle(history, origin, recorded, INTERRUPTED_RESULT, "interrupted")


async def _settle_answered(history: History, origin: str, recorded: Recorded) -> None:
    """Settle a call with what the application answered, unless the answer is that it may run."""
    answer = recorded.answer
    if isinstance(answer, ToolMessage):
        is_question = isinstance(answer.raw, dict) and "answers" in answer.raw
        value = answer_text(answer) if is_question else value_of(answer)
        await settle(history, origin, recorded, value, "failed" if answer.is_error else "done")
    elif isinstance(answer, Decision) and not answer.granted:
        await settle(history, origin, recorded, denied_result(answer.reason), "denied")


async def _settle_asking(history: History, origin: str, recorded: Recorded, asking: Recorded) -> None:
    """Settle the call that asked for one more approval of another one, which runs again if it was given."""
    answer = asking.answer
    if asking.state == "answered" and isinstance(answer, Decision):
        if answer.granted:
            await asking.done("Approved")
        else:
            await asking.done(denied_result(answer.reason), outcome="denied")
            await settle(history, origin, recorded, denied_result(answer.reason), "denied")
        return
    if asking.state == "new":  # the server died before it waited
        asking.wait("permission")
    recorded.suspend()


def _with_deferred_calls(agent: AbstractAgent[Any, Any], output_type: Any) -> tuple[AbstractAgent[Any, Any], Any]:  # noqa: ANN401  # the framework's own type
    """An agent whose run may end with calls that wait, and the output type to run it with.

    The framework takes no output type for an agent with output validators, so that one is copied for the run, with an
    output schema that allows such calls.
    """
    if isinstance(agent, WrapperAgent):
        inner, output_type = _with_deferred_calls(agent.wrapped, output_type)
        wrapper = copy(agent)
        wrapper.wrapped = inner
        return wrapper, output_type
    if not getattr(agent, "_output_validators", None):
        return agent, output_type
    agent = copy(agent)
    schema = agent._output_schema = copy(agent._output_schema)  # type: ignore[attr-defined]
    schema.allows_deferred_tools = True
    return agent, None


def _streams(model: object) -> bool:
    if isinstance(model, FunctionModel):
        return model.stream_function is not None
    return not isinstance(model, Model) or type(model).request_stream is not Model.request_stream


def _server_tool(tool: ToolDefinition) -> ServerTool:
    return ServerTool(
        spec=ToolSpec(name=tool.name, description=tool.description or "", parameters=tool.parameters_json_schema),
        policy=ToolPolicy(needs_approval=tool.kind == "unapproved"),
    )


def as_agent(value: object, name: str) -> Agent | None:
    """The wrapper of an agent of Pydantic AI; None for any other value. Raises Refused if it cannot be served."""
    if not isinstance(value, AbstractAgent):
        return None
    return PydanticAIAgent(value, name=name, title=value.name)
