"""The SDK's stream of one run, as output and steps of ours; and the calls of the newest step.

The SDK's loop runs in a task of its own and is ahead of its stream. What must be in the log before a tool runs
therefore waits until the stream has been followed up to the end of the model's response.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from agents import (
    ModelResponse,
    RunContextWrapper,
    RunHooks,
    RunResultStreaming,
    RunState,
    Tool,
    ToolCallOutputItem,
)
from agents import Usage as TheirUsage
from agents.items import ToolApprovalItem
from agents.tool import FunctionTool
from openai.types.responses import Response, ResponseFunctionToolCall

from dragoman.adapters.openai_agents_clone import AnyAgent
from dragoman.adapters.openai_agents_items import (
    Item,
    ResultValue,
    StepValue,
    arguments_of,
    result_blocks,
    step_value,
)
from dragoman.adapters.openai_agents_native import NativeCall, native_call
from dragoman.core.agent import Recorded, Run
from dragoman.core.answers import INTERRUPTED_RESULT
from dragoman.core.content import AssistantMessage, Image, Json, JsonObject, Message, ToolMessage, Usage
from dragoman.core.events import CallOutcome, StopReason
from dragoman.core.ids import CallId, MessageId


class CallRecord:
    """The calls of the newest step by the provider's ids, and those results that are known."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.calls: dict[str, Recorded] = {}
        """The calls without a result."""
        self.results: dict[str, ToolMessage] = {}
        self.nested: dict[str, str] = {}
        """The calls inside an agent that is a tool which need an approval, and the tool's call of each."""
        self.settled_late: set[str] = set()
        """The calls whose tool has returned, and whose result guardrails may still replace."""
        self.has_functions = False
        """Whether a function or a handoff was called."""
        self._native: set[str] = set()
        self._paused: set[str] = set()
        """The calls of agents that are tools which have stopped for an approval."""
        self._ids: tuple[CallId, ...] = ()

    def call_ids(self) -> tuple[CallId, ...]:
        """The calls of the step, by our ids."""
        return self._ids

    def is_native(self, origin: str) -> bool:
        """Whether a call is of a tool that is not a function."""
        return origin in self._native

    def restore(self, turn: Sequence[Message]) -> None:
        """Take the newest step of a turn from the log."""
        step = next((each for each in reversed(turn) if isinstance(each, AssistantMessage)), None)
        if step is None:
            return
        value = step_value(step)
        native = [native_call(item) for item in (value.items if value is not None else ())]
        self._native = {call.origin for call in native if call is not None}
        origins = {call.call_id: call.origin or call.call_id for call in step.calls()}
        self._ids = tuple(origins)
        self.has_functions = len(origins) > len(self._native)
        self.calls = {origins[each.call.call_id]: each for each in self._run.recorded() if each.call.call_id in origins}
        for message in turn:
            if isinstance(message, ToolMessage) and message.call_id in origins:
                self.results[origins[message.call_id]] = message

    async def settle_lost(self) -> None:
        """Settle the open calls of a step whose state is lost."""
        for origin in list(self.calls):
            await self.settle(origin, INTERRUPTED_RESULT, outcome="interrupted")

    def begin(self, functions: Iterable[ResponseFunctionToolCall], native: Sequence[NativeCall]) -> None:
        """Record the calls of a new step; they are in the log when the step has ended."""
        self.results, self.nested, self.settled_late = {}, {}, set()
        self._paused = set()
        record = self._run.record
        self.calls = {
            call.call_id: record(call.name, arguments_of(call.arguments), origin=call.call_id) for call in functions
        }
        self.calls |= {
            call.origin: record(call.name, call.arguments, origin=call.origin, server=call.server) for call in native
        }
        self.has_functions = len(self.calls) > len(native)
        self._native = {call.origin for call in native}
        self._ids = tuple(each.call.call_id for each in self.calls.values())

    async def settle(
        self,
        origin: str,
        result: Json,
        *,
        outcome: CallOutcome = "done",
        output: Sequence[Item] | None = None,
        item: Item | None = None,
        agent: str | None = None,
    ) -> ToolMessage:
        """Give a call its result, durably. See `ResultValue` for what belongs to it."""
        call = self.calls.pop(origin)
        value = ResultValue(
            agent=agent, output=None if output is None else tuple(output), item=item, native=origin in self._native
        )
        private = None if value == ResultValue() else msgspec.to_builtins(value)
        await call.done(result, outcome=outcome, private=private)
        message = ToolMessage(
            id=MessageId(""),
            call_id=call.call.call_id,
            name=call.call.name,
            content=result if isinstance(result, (str, tuple)) else "",
            is_error=outcome != "done",
            private=msgspec.UNSET if private is None else private,
        )
        self.results[origin] = message
        return message

    async def settle_output(self, origin: str, output: Any, outcome: CallOutcome = "done") -> None:  # noqa: ANN401
        """Give a call the output that the SDK sends to the model."""
        if isinstance(output, str):
            await self.settle(origin, output, outcome=outcome)
        else:
            await self.settle(origin, result_blocks(output), outcome=outcome, output=output)

    async def settle_from(self, item: ToolCallOutputItem) -> None:
        """Settle a call that has no result yet, with the output item that the SDK made: of a tool that ran into its
        time limit, that guardrails rejected, or that is not a function.
        """
        raw: Any = item.raw_item
        made: Item = raw if isinstance(raw, dict) else raw.model_dump(mode="json", exclude_none=True)
        origin = str(made.get("call_id") or made.get("id"))
        if origin not in self.calls:
            return
        if origin in self._native:
            await self.settle(origin, item.output, item=made)
        else:
            outcome: CallOutcome = "done" if origin in self.settled_late else "failed"
            await self.settle_output(origin, made["output"], outcome)

    async def start_native(self) -> None:
        """Mark the calls of tools that the SDK is about to run without asking."""
        for origin, call in self.calls.items():
            if origin in self._native and call.state == "new":
                await call.start()

    def used_ids(self, origin: str) -> set[str]:
        """The ids of all calls of the step, and of those that wait inside agents other than that of one call."""
        return {*self.calls, *self.results, *(each for each, outer in self.nested.items() if outer != origin)}

    def note_nested(self, origin: str, approvals: Sequence[ToolApprovalItem]) -> bool:
        """Note the approvals that an agent which is a tool waits for. Returns whether there are any."""
        for item in approvals:
            self.nested[origin_of(item.raw_item)] = origin
            self._paused.add(origin)
        return bool(approvals)

    def ask_for_nested(self, state: RunState[Any, Any]) -> None:
        """Let the calls of agents that have stopped for an approval wait for it."""
        items = state.get_interruptions()
        for origin in [each for each in self.calls if each in self._paused]:
            inner = [item for item in items if self.nested.get(origin_of(item.raw_item)) == origin]
            note = {"calls": [{"name": item.tool_name, "input": arguments_of(item.arguments)} for item in inner]}
            self.calls[origin].wait("permission", note=note)
        self._paused = set()

    def handoff(self, name: str, arguments: JsonObject) -> tuple[str, ToolMessage | None]:
        """The handoff of the newest step that is carried out: the first of its name that has no result.

        Returns:
            The provider's id of the call, and its result if it was carried out before.
        """
        for origin, call in self.calls.items():
            if (call.call.name, call.call.input) == (name, arguments):
                return origin, None
        for origin, message in self.results.items():
            if message.name == name:
                return origin, message
        raise RuntimeError(f"handoff {name} is not on record")


class StreamFollower:
    """Turns the events of the SDK's stream into output, and its model responses into steps.

    Args:
        run: the engine's run.
        record: the calls of the newest step.
        shows_stages: whether the name of the agent that speaks is shown as a stage.
    """

    def __init__(self, run: Run, record: CallRecord, *, shows_stages: bool) -> None:
        self.hooks: RunHooks[Any] = _Hooks(self)
        self._run = run
        self._record = record
        self._shows_stages = shows_stages
        self._agent = ""
        self._response: Response | None = None
        """The newest response, until its step is closed."""
        self._outputs: list[Any] = []
        self._has_text = False
        self._is_ended = asyncio.Event()
        """Whether the stream has been followed up to the end of the newest model call."""
        self._is_ended.set()
        self._closing = asyncio.Lock()
        self.stop_reason: StopReason | None = None
        """Why the provider ended an answer before its end."""

    async def follow(self, result: RunResultStreaming) -> None:
        """Follow a run until it ends, or stops at its calls. If this is cancelled, so is the run."""
        run = self._run
        try:
            async for event in result.stream_events():
                if event.type == "raw_response_event":
                    data: Any = event.data  # one of more than 50 kinds
                    kind: str = data.type
                    if kind == "response.output_text.delta" or kind == "response.refusal.delta":
                        if self._response is not None:
                            await self.close_step()
                        self._has_text = True
                        if run.emit(data.delta):
                            await run.drain()
                    else:
                        await self._take(kind, data)
                elif event.type == "agent_updated_stream_event":
                    self._enter(event.new_agent)
                elif isinstance(event.item, ToolCallOutputItem):
                    await self._record.settle_from(event.item)
        finally:
            if not result.is_complete:
                result.cancel("immediate")
            if result.run_loop_task is not None:
                await asyncio.wait([result.run_loop_task])

    def model_starts(self) -> None:
        """The SDK is about to call a model: its stream is now behind."""
        self._is_ended.clear()

    async def close_step_of_response(self) -> None:
        """Wait for the end of the newest response in the stream, and close its step."""
        await self._is_ended.wait()
        await self.close_step()

    async def start_native(self) -> None:
        """Mark the calls that the SDK runs without asking, after their step is in the log."""
        await self.close_step_of_response()
        await self._record.start_native()

    async def close_step(self) -> None:
        """Close the step of the newest response, if it is not closed yet: its calls are in the log then."""
        async with self._closing:
            response, self._response = self._response, None
            if response is None:
                return
            outputs, self._outputs = response.output or self._outputs, []
            if not self._has_text:
                self._speak(outputs)
            self._has_text = False
            native = [call for call in map(native_call, outputs) if call is not None]
            functions = [each for each in outputs if isinstance(each, ResponseFunctionToolCall)]
            self._record.begin(functions, native)
            answer = ModelResponse(output=outputs, usage=TheirUsage(), response_id=None)
            value = StepValue(self._agent, tuple(map(dict, answer.to_input_items())))
            await self._run.end_step(
                usage=_usage_of(response), model=response.model or None, private=msgspec.to_builtins(value)
            )
            for call in native:
                if call.result is not msgspec.UNSET:
                    await self._record.settle(call.origin, call.result, outcome="failed" if call.is_error else "done")

    async def _take(self, kind: str, data: Any) -> None:  # noqa: ANN401  # one of the SDK's many events
        if kind in ("response.completed", "response.incomplete"):
            self._response = data.response
            self._is_ended.set()
            if kind == "response.incomplete":  # the SDK raises after it
                details = data.response.incomplete_details
                self.stop_reason = "refusal" if details and details.reason == "content_filter" else "max_tokens"
            return
        if self._response is not None:
            await self.close_step()
        if kind == "response.reasoning_summary_text.delta" or kind == "response.reasoning_text.delta":
            if self._run.think(data.delta):
                await self._run.drain()
        elif kind == "response.reasoning_summary_part.added" and data.summary_index > 0:
            self._run.think("\n\n")
        elif kind == "response.output_item.done":
            self._outputs.append(data.item)
            if data.item.type == "image_generation_call" and data.item.result:
                media = getattr(data.item, "output_format", None) or "png"
                self._run.add(Image(f"data:image/{media};base64,{data.item.result}"))

    def _speak(self, outputs: Sequence[Any]) -> None:
        """Add the words of a response that came without deltas."""
        for item in outputs:
            if item.type == "message":
                for part in item.content:
                    self._run.emit(part.text if part.type == "output_text" else part.refusal)

    def _enter(self, agent: AnyAgent) -> None:
        if self._shows_stages and agent.name != self._agent:
            self._run.stage(agent.name)
        self._agent = agent.name


class _Hooks(RunHooks[Any]):
    """What the SDK's loop reports before it continues."""

    def __init__(self, follower: StreamFollower) -> None:
        self._follower = follower

    async def on_llm_start(self, context: RunContextWrapper[Any], agent: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # D102
        """A model call begins."""
        self._follower.model_starts()

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Any, tool: Tool) -> None:  # noqa: ANN401
        """A tool begins. Functions are marked by their guard."""
        if not isinstance(tool, FunctionTool):
            await self._follower.start_native()


def origin_of(raw: Any) -> str:  # noqa: ANN401  # any kind of call item, or its JSON
    """The provider's id of a call."""
    if isinstance(raw, dict):
        return str(raw.get("call_id") or raw.get("id"))
    return str(getattr(raw, "call_id", None) or raw.id)


def _usage_of(response: Response) -> Usage | None:
    usage = response.usage
    if usage is None:
        return None
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.input_tokens_details.cached_tokens or 0,
        reasoning_tokens=usage.output_tokens_details.reasoning_tokens or 0,
    )
