"""Hooks into Pydantic AI's loop for one run: the model step, the tool call, and the stream of events.

A step is in the log, with its calls, before a tool runs. A call runs once: if the log has its result, the framework
gets that result and the tool is not called.
"""

import asyncio
from collections.abc import AsyncIterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

import msgspec
from pydantic import TypeAdapter
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import (
    AbstractCapability,
    CapabilityOrdering,
    WrapModelRequestHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
)
from pydantic_ai.messages import (
    AgentStreamEvent,
    BinaryImage,
    CustomEvent,
    FilePart,
    FunctionToolResultEvent,
    ModelMessage,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    UserContent,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_core import to_json, to_jsonable_python

from dragoman.adapters.pydantic_ai_history import ASKING_KEY, History, blocks_of, keep_messages, value_of
from dragoman.core.agent import Recorded, Run
from dragoman.core.answers import failed_result, not_found_result
from dragoman.core.content import Data, Image, Json, JsonObject, Text, Thinking, ToolMessage, Usage, text_of
from dragoman.core.events import CallOutcome
from dragoman.core.ids import MessageId
from dragoman.core.inputs import Decision

RETRY_KEY = "pydantic_ai_retry"
"""In the private value of a result: the text with which the tool asked the model to try again."""
DENIED_KEY = "pydantic_ai_denied"
"""In the private value of a result: the user denied the call."""
BESIDE_KEY = "pydantic_ai_beside"
"""In the private value of a result: what the tool returned beside it, for the model and for the application."""
UNPARSED_KEY = "_raw"
ASKING = "approval of "
"""Before a call's id: the origin of the call that asks for one more approval of it."""


class Bridge(AbstractCapability[Any]):
    """One played run between the framework and the log. For models that do not stream; see `StreamingBridge`.

    Args:
        run: the engine's run.
        history: what the framework was given.
        declared: the names of the tools that clients switch on and off.
    """

    def __init__(self, run: Run, history: History, declared: frozenset[str]) -> None:
        self._run = run
        self._prompt = history.prompt, history.prompt_id
        self._declared = declared
        self._seen = len(history.messages)
        """The number of messages that are kept with earlier steps."""
        self._open_step: _Step | None = None
        """A step without calls, until it is known whether it is the last one."""
        self._has_streamed = False
        self._is_answer_text: bool | None = None
        """Whether the last response answers by its text, and not by a call of an output tool; None: there was none."""
        self.results: dict[str, ToolMessage] = {
            origin: result for origin, (_, result) in history.calls.items() if result is not None
        }
        """The results on record of the last step's calls, by the framework's id."""
        self.calls: dict[str, Recorded] = {each.call.origin or each.call.call_id: each for each in run.recorded()}
        """The calls of the last step that have no result."""

    def get_ordering(self) -> CapabilityOrdering:
        """Innermost: what other capabilities make of a call or a step is theirs."""
        return CapabilityOrdering(position="innermost")

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """Leave out the tools that the session has switched off."""
        offered = {tool.name for tool in self._run.offered_tools()}
        return [each for each in tool_defs if each.name in offered or each.name not in self._declared]

    # --- the step -------------------------------------------------------------------------------------------------

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """Put the step with its calls into the log before the framework runs them."""
        await self.settle_answered(ctx.messages)
        if self._open_step is not None:  # the framework did not take it as the answer: it asks again
            self._open_step.messages += ctx.messages[self._seen :]
            self._seen = len(ctx.messages)
            await self.close_step()
        self._has_streamed = False
        response: ModelResponse = await handler(request_context)
        if not self._has_streamed:
            await self._say(response)
        new = [*ctx.messages[self._seen :], response]
        self._seen = len(ctx.messages) + 1
        step = _Step(new, response)
        outputs = {tool.name for tool in request_context.model_request_parameters.output_tools}
        requested = [part for part in response.tool_calls if part.tool_name not in outputs]
        self._is_answer_text = len(requested) == len(response.tool_calls)
        native = [part for part in response.parts if isinstance(part, NativeToolCallPart)]
        if not requested and not native:
            self._open_step = step
            return response
        self.results = {}
        self.calls = {part.tool_call_id: self._record(part) for part in requested}
        run_by_provider = {part.tool_call_id: self._record(part) for part in native}
        await self._end_step(step)
        for part in response.parts:
            if isinstance(part, NativeToolReturnPart) and part.tool_call_id in run_by_provider:
                await run_by_provider.pop(part.tool_call_id).done(_to_json(part.content))
        return response

    def _record(self, part: ToolCallPart | NativeToolCallPart) -> Recorded:
        arguments: JsonObject
        try:
            arguments = part.args_as_dict(raise_if_invalid=True)
        except (ValueError, AssertionError):  # the framework tells the model
            arguments = {UNPARSED_KEY: part.args_as_json_str()}
        return self._run.record(part.tool_name, arguments, origin=part.tool_call_id)

    async def finish(self, output: object) -> None:
        """End the last step with the run's output, unless that is the text of the step."""
        if isinstance(output, str) if self._is_answer_text is None else self._is_answer_text:
            await self.close_step()
        else:
            await self.close_step(
                output if isinstance(output, str) else to_json(output, fallback=str, bytes_mode="base64").decode()
            )

    async def close_step(self, output: str | None = None) -> None:
        """End the step that is open, if there is one, after adding the answer's text."""
        step, self._open_step = self._open_step, None
        if output is not None:
            self._run.add(Text(output))
        if step is not None:
            await self._end_step(step)
        elif output is not None:
            await self._run.end_step()

    async def _end_step(self, step: "_Step") -> None:
        for part in step.response.parts:
            if isinstance(part, FilePart) and isinstance(part.content, BinaryImage):
                self._run.add(Image(part.content.data_uri))
        used = step.response.usage
        await self._run.end_step(
            usage=Usage(
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
                cached_tokens=used.cache_read_tokens,
                reasoning_tokens=used.output_reasoning_tokens,
            ),
            model=step.response.model_name,
            private=keep_messages(step.messages, *self._prompt),
        )

    async def _say(self, response: ModelResponse) -> None:
        """Give the answer of a model that does not stream."""
        for part in response.parts:
            if isinstance(part, TextPart) and part.content:
                self._run.add(Text(part.content))
            elif isinstance(part, ThinkingPart) and part.content:
                self._run.add(Thinking(part.content))
        await self._run.drain()

    # --- calls ----------------------------------------------------------------------------------------------------

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:  # noqa: ANN401  # whatever the tool returns
        """Run a call that the log has no result of."""
        result = self.results.get(call.tool_call_id)
        if result is not None:
            value = as_result(result)
            if isinstance(value, Exception):
                raise value
            return value
        recorded = self.calls.get(call.tool_call_id)
        if recorded is None:  # of a tool that gives the answer
            return await handler(args)
        if recorded.needs == "missing" and call.tool_name in self._declared:
            text = not_found_result(call.tool_name)
            await self._done(call.tool_call_id, text, "failed")
            raise ToolFailed(text)
        if recorded.needs == "permission" and not ctx.tool_call_approved:
            raise ApprovalRequired
        if recorded.state != "started":  # else it has just asked for an approval that the session gives by itself
            await recorded.start()
        try:
            value = await handler(args)
        except (ApprovalRequired, CallDeferred, asyncio.CancelledError):
            raise
        except ToolRetryError as error:
            text = str(error.tool_retry.content)
            await self._done(call.tool_call_id, text, "failed", private={RETRY_KEY: text})
            raise
        except ToolFailedError as error:
            await self._done(call.tool_call_id, error.tool_failed.model_response_str(wrap_if_error=False), "failed")
            raise
        except Exception as error:  # whatever the author's tool raises ends the run; the log knows why the call ended
            await self._done(call.tool_call_id, failed_result(type(error).__name__), "failed")
            raise
        returned = value.return_value if isinstance(value, ToolReturn) else value
        visible = blocks_of(returned)
        if visible is returned:
            visible = _to_json(returned)
        private = {BESIDE_KEY: _beside(value)} if value is not returned else None
        await self._done(call.tool_call_id, visible, "done", private=private)
        return value

    async def _done(self, origin: str, result: Json, outcome: CallOutcome, *, private: Json = None) -> None:
        recorded = self.calls.pop(origin)
        await recorded.done(result, outcome=outcome, private=private)

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Approve what the session trusts, and answer what is on record."""
        results = DeferredToolResults()
        for part in (*requests.approvals, *requests.calls):
            recorded, result = self.calls.get(part.tool_call_id), self.results.get(part.tool_call_id)
            if result is not None:
                add_result(results, part.tool_call_id, result)
            elif recorded is not None and recorded.trusted and part in requests.approvals:
                results.approvals[part.tool_call_id] = ToolApproved()
        return results if results.approvals or results.calls else None

    async def settle_rejected(self, event: FunctionToolResultEvent) -> None:
        """Settle a call that the framework answered without running its tool, such as one with wrong arguments."""
        if event.tool_call_id in self.calls:
            await self._done(event.tool_call_id, event.part.model_response_str(wrap_if_error=False), "failed")

    async def settle_answered(self, messages: Sequence[ModelMessage]) -> None:
        """Settle the calls that the newest request answers without their tools, of models that do not stream."""
        for part in messages[-1].parts if self.calls and messages else ():
            if isinstance(part, ToolReturnPart) and part.tool_call_id in self.calls:
                await self._done(part.tool_call_id, part.model_response_str(wrap_if_error=False), "failed")

    async def wait_for(self, requests: DeferredToolRequests) -> None:
        """Let the calls wait that the framework has left to the application."""
        for part in (*requests.approvals, *requests.calls):
            recorded = self.calls.get(part.tool_call_id)
            if recorded is None:
                continue
            note = _to_json(requests.metadata.get(part.tool_call_id))
            match requests.kind(part.tool_call_id):
                case "approval" if isinstance(recorded.answer, Decision):
                    await ask_again(self._run, part.tool_call_id, recorded, note)
                case "approval":
                    recorded.wait("permission", note=note)
                case "question":
                    recorded.wait("question", note=_questions(note, recorded))
                case _:
                    recorded.wait("client", note=note)


class StreamingBridge(Bridge):
    """A bridge for models that stream."""

    async def wrap_run_event_stream(
        self, ctx: RunContext[Any], *, stream: AsyncIterable[AgentStreamEvent]
    ) -> AsyncIterable[AgentStreamEvent]:
        """Pass on what the model says. The hot path: every delta comes through here."""
        run = self._run
        async for event in stream:
            if isinstance(event, PartDeltaEvent):
                delta = event.delta
                if isinstance(delta, TextPartDelta):
                    if run.emit(delta.content_delta):
                        await run.drain()
                elif isinstance(delta, ThinkingPartDelta) and delta.content_delta and run.think(delta.content_delta):
                    await run.drain()
            elif isinstance(event, PartStartEvent):
                self._has_streamed = True
                if isinstance(event.part, TextPart):
                    run.emit(event.part.content)
                elif isinstance(event.part, ThinkingPart) and event.part.content:
                    run.think(event.part.content)
            elif isinstance(event, FunctionToolResultEvent):
                await self.settle_rejected(event)
            elif isinstance(event, CustomEvent) and is_dataclass(event):
                run.add(Data(_to_json(event)))
            yield event


@dataclass(slots=True)
class _Step:
    messages: list[ModelMessage]
    """The messages since the step before, the response included."""
    response: ModelResponse


def _to_json(value: object) -> Any:  # noqa: ANN401  # JSON
    """Whatever the author's code made, as JSON: bytes in base64, as the framework itself shows them to models."""
    return to_jsonable_python(value, fallback=str, bytes_mode="base64")


_BESIDE: TypeAdapter[Any] = TypeAdapter(str | list[UserContent] | None)


def _beside(value: ToolReturn[Any]) -> dict[str, Any]:
    """What a tool returned beside its result, as JSON."""
    content = value.content if value.content is None or isinstance(value.content, str) else list(value.content)
    return {
        "content": _BESIDE.dump_python(content, mode="json"),
        "metadata": _to_json(value.metadata),
        "tools": value.tools,
    }


def as_result(result: ToolMessage) -> Any:  # noqa: ANN401  # whatever the tool returned
    """What the framework is given for a result on record: the value, or what its tool raised."""
    if not result.is_error:
        beside = result.private.get(BESIDE_KEY) if isinstance(result.private, dict) else None
        if not isinstance(beside, dict):
            return value_of(result)
        content = _BESIDE.validate_python(beside["content"])
        return ToolReturn(value_of(result), content=content, metadata=beside["metadata"], tools=beside["tools"])
    retry = result.private.get(RETRY_KEY) if isinstance(result.private, dict) else None
    return ModelRetry(retry) if isinstance(retry, str) else ToolFailed(text_of(result.content))


def add_result(results: DeferredToolResults, origin: str, result: ToolMessage) -> None:
    """Tell the framework the result of a call that it does not run."""
    if isinstance(result.private, dict) and DENIED_KEY in result.private:
        results.approvals[origin] = ToolDenied(text_of(result.content))
    else:
        results.calls[origin] = as_result(result)


async def ask_again(run: Run, origin: str, recorded: Recorded, note: Json) -> None:
    """Ask for one more approval of a call, with a call of its own: a client may repeat the approval that it gave."""
    asking = run.record(recorded.call.name, recorded.call.input, origin=f"{ASKING}{origin}")
    await run.end_step(private={ASKING_KEY: origin})
    asking.wait("permission", note=note)
    recorded.suspend()


async def settle(history: History, origin: str, recorded: Recorded, value: Json, outcome: CallOutcome) -> None:
    """Settle a call that does not run, in the log and in what the framework is given."""
    private = {DENIED_KEY: True} if outcome == "denied" else None
    await recorded.done(value, outcome=outcome, private=private)
    call = recorded.call
    history.calls[origin] = (
        call,
        ToolMessage(
            id=MessageId(""),
            call_id=call.call_id,
            name=call.name,
            content=value if isinstance(value, str) else "",
            raw=msgspec.UNSET if isinstance(value, str) else value,
            is_error=outcome != "done",
            private=msgspec.UNSET if private is None else private,
        ),
    )


def _questions(note: Json, recorded: Recorded) -> JsonObject:
    """The questions in the metadata of a deferred call: as they are, or one made of `question` and `options`."""
    found: Mapping[str, Any] = note if isinstance(note, dict) else {}
    if "questions" in found:
        return dict(found)
    arguments = recorded.call.input
    text = next(
        (str(each[key]) for each in (found, arguments) for key in ("question", "message", "prompt") if each.get(key)),
        recorded.call.name,
    )
    given = found.get("options") or found.get("choices") or arguments.get("options") or ()
    labels = [str(each.get("label", each)) if isinstance(each, dict) else str(each) for each in given]
    return {"questions": [{"question": text, "options": [{"label": label} for label in labels]}]}
