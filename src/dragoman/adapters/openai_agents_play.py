"""One played run of an agent of the OpenAI Agents SDK: the SDK's own loop, between the log and its tools.

    model step ──► step and run state in one commit ──► decide about each call ──► tools, each under its own marks ──► …

The SDK stops after each model response that calls function tools, because the clones' tools always need approval.
Calls that need nobody continue at once. What is on record is given again without running it.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Literal

import msgspec
import structlog
from agents import (
    FunctionTool,
    Handoff,
    ItemHelpers,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunResultStreaming,
    RunState,
    Tool,
    UserError,
)
from agents.agent_tool_state import drop_agent_tool_run_result, get_agent_tool_state_scope
from agents.items import ToolApprovalItem
from agents.run_internal.tool_execution import function_needs_approval
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall
from pydantic_core import to_json

from dragoman.adapters.openai_agents_clone import AnyAgent, Clones, Invoke, ToolRaised
from dragoman.adapters.openai_agents_items import (
    Item,
    StepValue,
    arguments_of,
    input_items,
    last_agent,
    result_value,
    to_tool_output,
)
from dragoman.adapters.openai_agents_mcp import forget_tools, tools_of
from dragoman.adapters.openai_agents_nested import encode_without_contexts, pending_approvals
from dragoman.adapters.openai_agents_stream import CallRecord, StreamFollower, origin_of
from dragoman.core.agent import Recorded, Run
from dragoman.core.answers import INTERRUPTED_RESULT, denied_result, failed_result, not_found_result
from dragoman.core.content import AssistantMessage, Message, ToolMessage, UserMessage, encode_json
from dragoman.core.events import CallOutcome, StopReason
from dragoman.core.ids import CallId
from dragoman.core.inputs import Decision
from dragoman.core.tools import OnRestart, ToolSpec

MAX_MESSAGES = 2000
"""The messages of a session that a model gets at most."""
STATE_KEY = "oai/state"
"""The key of the SDK's run state among the values that are kept with the session."""

log = structlog.get_logger(__name__)


class StoredState(msgspec.Struct, frozen=True, kw_only=True):
    """The SDK's run state after a model step, as it is kept with the session.

    Args:
        start: the agent with which the SDK's run began.
        calls: the calls of the step. They tell whether the state belongs to the current branch of the session.
        nested: the calls of agents that are tools which wait for an approval, and the tool's call of each.
        state: the SDK's own form. Its input is None if it can be built from the session's messages.
    """

    start: str
    calls: tuple[CallId, ...]
    nested: dict[str, str]
    state: dict[str, Any]


class Play:
    """One played run. It is the guard of the run's clones.

    Args:
        run: the engine's run.
        root: the application's agent.
        declared: the names of the agent's tools in its specification.
        restart_rule: what happens to a tool's call that was running when the server died.
        run_config: the SDK's configuration of the run.
        max_steps: maximum number of model steps.
    """

    def __init__(
        self,
        run: Run,
        root: AnyAgent,
        *,
        declared: Collection[str],
        restart_rule: Callable[[str], OnRestart],
        run_config: RunConfig,
        max_steps: int,
    ) -> None:
        offered = {tool.name: tool for tool in run.offered_tools()}
        self._run = run
        self._restart_rule = restart_rule
        self._run_config = run_config
        self._max_steps = max_steps
        self._client_tools = offered.keys() - declared
        off = [name for name in declared if name not in offered]
        self._clones = Clones(root, self, off, [client_tool(offered[name]) for name in sorted(self._client_tools)])
        self._record = CallRecord(run)
        self._input: list[Item] = []
        """The conversation up to the newest message of the user, as input items."""
        self._start = self._clones.root
        self._follower = StreamFollower(run, self._record, shows_stages=len(self._clones) > 1)
        self._is_state_kept = False

    @property
    def cut_off(self) -> StopReason | None:
        """Why the provider ended the answer before its end."""
        return self._follower.stop_reason

    async def play(self, context: object) -> StopReason | None:
        """Answer the input, from where the log ends. `context`: the SDK's run context."""
        turn = await self._run.turn()
        if _is_answered(turn):
            return None  # the server died between the end of the answer and the end of the run
        messages = await self._run.context(MAX_MESSAGES)
        self._record.restore(turn)
        self._input = input_items(_until_newest_user(messages))
        source: Any  # input items or a run state
        source = state = await self._stored_state(turn, context)
        if state is None:
            if self._record.calls:
                await self._take_up_handoff(context)
                await self._record.settle_lost()
                messages = await self._run.context(MAX_MESSAGES)
            self._start = self._clones.named(last_agent(messages))
            source = input_items(messages)
        elif not await self._decide(state):
            return None
        while True:
            result = Runner.run_streamed(
                self._start,
                source,
                context=context,
                max_turns=self._max_steps,
                hooks=self._follower.hooks,
                run_config=self._run_config,
            )
            await self._follower.follow(result)
            if not result.interruptions:
                await self._end(result)
                return None
            source = result.to_state()
            await self._follower.close_step()
            await self._keep(source)
            if not await self._decide(source):
                return None

    async def _take_up_handoff(self, context: object) -> None:
        """Carry out a handoff that a crash came before. Its step has no state, because the SDK does not stop there."""
        for call in list(self._record.calls.values()):
            given = self._clones.handoff(call.call.name)
            if given is not None:
                await given.on_invoke_handoff(RunContextWrapper(context), encode_json(call.call.input).decode())
                return

    async def _end(self, result: RunResultStreaming) -> None:
        """Close the last step. An output that no model spoke, such as that of a tool, is a step of its own."""
        await self._follower.close_step()
        if self._record.has_functions:
            text = _as_text(result.final_output)
            self._run.emit(text)
            value = StepValue(result.last_agent.name, ({"role": "assistant", "content": text},))
            await self._run.end_step(private=msgspec.to_builtins(value))
        if self._is_state_kept:
            await self._run.keep({STATE_KEY: None}, durable=False)

    # --- the state that is kept -------------------------------------------------------------------------------------

    async def _stored_state(self, turn: Sequence[Message], context: object) -> RunState[Any, Any] | None:
        """The kept state, if it belongs to the newest step of this branch."""
        newest = next((each for each in reversed(turn) if isinstance(each, AssistantMessage)), None)
        if newest is None or not newest.calls():
            return None
        encoded = (await self._run.kept(STATE_KEY)).get(STATE_KEY)
        if encoded is None:
            return None
        try:
            stored = msgspec.json.decode(encoded, type=StoredState)
            if set(stored.calls) != {call.call_id for call in newest.calls()}:
                return None
            if stored.state["original_input"] is None:
                stored.state["original_input"] = self._input
            start = self._clones.named(stored.start)
            state = await RunState.from_json(start, stored.state, context_deserializer=lambda _: context)
        except Exception as error:  # noqa: BLE001  # of another version of the SDK, or of an agent that has changed
            log.warning("run state cannot be read", session_id=self._run.session_id, error=str(error))
            return None
        self._start, self._is_state_kept = start, True
        self._record.nested = dict(stored.nested)
        return state

    async def _keep(self, state: RunState[Any, Any]) -> None:
        """Keep the state, in one commit with the step before. A state that cannot be stored is lost in a crash."""
        self._record.ask_for_nested(state)
        try:
            encoded = state.to_json(context_serializer=lambda _: {})
            if encoded["original_input"] == self._input:
                encoded["original_input"] = None
            stored = StoredState(
                start=self._start.name,
                calls=self._record.call_ids(),
                nested=self._record.nested,
                state=encoded,
            )
            written = encode_without_contexts(stored, encoded)
            await self._run.keep({STATE_KEY: written}, durable=False)  # the start of a call waits for it
        except (UserError, TypeError, ValueError) as error:
            log.warning("run state cannot be stored", session_id=self._run.session_id, error=str(error))
        else:
            self._is_state_kept = True

    # --- decisions about calls --------------------------------------------------------------------------------------

    async def _decide(self, state: RunState[Any, Any]) -> bool:
        """Decide about each call for which the SDK waits. Returns whether one of them continues."""
        goes_on = False
        for item in state.get_interruptions():
            verdict = await self._verdict(item, state)
            if verdict == "wait":
                continue
            goes_on = True
            if verdict == "run":
                state.approve(item)
            else:
                state.reject(item, rejection_message=verdict.text)
        return goes_on

    async def _verdict(self, item: ToolApprovalItem, state: RunState[Any, Any]) -> "Literal['run', 'wait'] | Rejected":
        origin = origin_of(item.raw_item)
        outer = self._record.nested.get(origin)
        if (outer or origin) in self._record.results:
            return "run"  # the guard gives the result again
        call = self._record.calls.get(outer or origin)
        if call is None:
            return Rejected(INTERRUPTED_RESULT)
        match call.state:
            case "waiting":
                return "wait"
            case "answered":
                return await self._answered(call, origin, is_nested=outer is not None)
            case "started":
                return await self._interrupted(call, outer)
            case "new":
                return await self._new(call, item, state)

    async def _answered(self, call: Recorded, origin: str, *, is_nested: bool) -> "Literal['run'] | Rejected":
        answer = call.answer
        if isinstance(answer, Decision) and not answer.granted:
            text = denied_result(answer.reason)
            if not is_nested:
                await self._record.settle(origin, text, outcome="denied")
            return Rejected(text)
        if self._record.is_native(origin):
            await self._record.settle(origin, "approved", item=_approval(origin))
        return "run"

    async def _interrupted(self, call: Recorded, outer: str | None) -> "Literal['run', 'wait'] | Rejected":
        """About a call that was running when the server died."""
        rule = self._restart_rule(call.call.name)
        if rule == "repeat":
            return "run"
        if rule == "ask" and call.may_ask_again:
            call.wait("permission", repeat=True)
            return "wait"
        await self._record.settle(call.call.origin or "", INTERRUPTED_RESULT, outcome="interrupted")
        return Rejected(INTERRUPTED_RESULT) if outer is None else "run"

    async def _new(
        self, call: Recorded, item: ToolApprovalItem, state: RunState[Any, Any]
    ) -> "Literal['run', 'wait'] | Rejected":
        name, origin = call.call.name, call.call.origin or ""
        if self._record.is_native(origin):
            call.wait("permission")
            return "wait"
        if name in self._client_tools:
            call.wait("client")
            return "wait"
        if call.needs == "missing":
            await self._record.settle(origin, not_found_result(name), outcome="failed")
            return Rejected(not_found_result(name))
        if call.needs == "permission" or (not call.trusted and await self._asks(item, state)):
            call.wait("permission")
            return "wait"
        return "run"

    async def _asks(self, item: ToolApprovalItem, state: RunState[Any, Any]) -> bool:
        """Whether the application's own rule asks the user about these arguments."""
        tool = self._clones.original_tool(item.agent.name, item.tool_name or "")
        if tool is None or isinstance(tool.needs_approval, bool):
            return tool is not None and bool(tool.needs_approval)
        context, raw = state._context, item.raw_item
        if context is None or not isinstance(raw, ResponseFunctionToolCall):
            return True
        return (await function_needs_approval(tool, context, raw)).outcome == "require_approval"

    # --- the guard --------------------------------------------------------------------------------------------------

    async def run_tool(self, tool: FunctionTool, context: ToolContext[Any], invoke: Invoke) -> object:
        """Answer a call from the record, or run the tool under its marks in the log."""
        record, origin = self._record, context.tool_call_id
        known = record.results.get(origin)
        if known is not None:
            if context.tool_call is not None and await pending_approvals(
                tool, context
            ):  # of an agent that a crash interrupted
                drop_agent_tool_run_result(context.tool_call, scope_id=get_agent_tool_state_scope(context))
            return to_tool_output(known)
        call = record.calls.get(origin)
        if call is None:
            raise RuntimeError(f"call {origin} of tool {tool.name} is not on record")
        if isinstance(call.answer, ToolMessage):
            outcome: CallOutcome = "failed" if call.answer.is_error else "done"
            return to_tool_output(await record.settle(origin, call.answer.content, outcome=outcome))
        await call.start()
        try:
            value = await invoke()
        except ToolRaised as raised:
            text = failed_result(type(raised.__cause__).__name__) if raised.words is None else raised.words
            await record.settle(origin, text, outcome="failed")
            if raised.words is None and raised.__cause__ is not None:
                raise raised.__cause__ from None
            return raised.words
        if record.note_nested(origin, await pending_approvals(tool, context, record.used_ids(origin))):
            return value
        if tool.tool_output_guardrails:
            record.settled_late.add(origin)  # with what the guardrails make of it
            return value
        assert context.tool_call is not None, "the SDK gives the call with its context"
        made = ItemHelpers.tool_call_output_item(
            context.tool_call,
            value,
            output_json_schema=tool.output_json_schema,
            output_type_adapter=tool._output_type_adapter,
        )
        await record.settle_output(origin, made["output"])
        return value

    async def mcp_tools(self, agent: AnyAgent, context: RunContextWrapper[Any]) -> list[Tool]:
        """The tools of the MCP servers of an original agent, whose connections may have been lost since."""
        return await tools_of(agent, context)

    def mcp_tool_raised(self, agent: AnyAgent) -> None:
        """Have the tools listed anew before the next step: the connection may be lost."""
        forget_tools(agent)

    async def hand_off(
        self, handoff: Handoff[Any, Any], arguments: str, invoke: Callable[[], Awaitable[AnyAgent]]
    ) -> AnyAgent:
        """The clone of the agent that takes over; the application's callback runs at most once."""
        await self._follower.close_step_of_response()
        origin, known = self._record.handoff(handoff.tool_name, arguments_of(arguments))
        if known is not None:
            return self._clones.named(result_value(known).agent)
        call = self._record.calls[origin]
        target = self._clones.target(handoff)
        try:
            if call.state == "started" and target is not None:  # the callback may have run before the crash
                agent = target
            else:
                await call.start()
                agent = self._clones.of(await invoke())
        except Exception as error:  # the application's callback may raise anything, and its call must have an end
            await self._record.settle(origin, failed_result(type(error).__name__), outcome="failed")
            raise
        await self._record.settle(origin, handoff.get_transfer_message(agent), agent=agent.name)
        return agent


class Rejected(msgspec.Struct, frozen=True):
    """A call does not run; the model reads the text as its result."""

    text: str


def client_tool(spec: ToolSpec) -> FunctionTool:
    """A tool of the application as the model sees it. Its body is never called: the guard has the result."""

    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        raise RuntimeError(f"the application runs {spec.name}")

    return FunctionTool(
        name=spec.name,
        description=spec.description,
        params_json_schema=dict(spec.parameters),
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )


def _approval(request: str) -> Item:
    return {"type": "mcp_approval_response", "approval_request_id": request, "approve": True}


def _is_answered(turn: Sequence[Message]) -> bool:
    last = turn[-1] if turn else None
    return isinstance(last, AssistantMessage) and last.status == "completed" and not last.calls()


def _until_newest_user(messages: Sequence[Message]) -> Sequence[Message]:
    last = max((place for place, each in enumerate(messages) if isinstance(each, UserMessage)), default=-1)
    return messages[: last + 1]


def _as_text(output: object) -> str:
    return output if isinstance(output, str) else to_json(output, fallback=str).decode()
