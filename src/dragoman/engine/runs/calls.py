"""Execution of the calls of a step: each gets exactly one result, which is logged before the agent sees it.

A call is logged before its tool runs, and so is the mark that it is about to run. A call that a crash interrupted after
that mark is settled by the tool's declared policy and never silently repeated. Each call is asked about at most once:
if the user has allowed it already, the question whether to repeat it is a separate call (decision 24).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import structlog

from dragoman.core.admission import nesting_depth
from dragoman.core.agent import AgentError, Deferred, Paused, RunnableTool, ToolFailed
from dragoman.core.answers import (
    EDITED_RESULT,
    INTERRUPTED_RESULT,
    answer_text,
    answer_texts,
    denied_result,
    failed_result,
    not_found_result,
    result_content,
    settle_call,
    settle_with_value,
    to_plain_json,
)
from dragoman.core.content import Json, JsonObject, ToolMessage
from dragoman.core.events import (
    CallOpened,
    CallOutcome,
    CallParked,
    CallSettled,
    CallStarted,
    Event,
    MessageClosed,
    MessageOpened,
)
from dragoman.core.headless import cannot_ask, refusal_without_user
from dragoman.core.ids import CallId, MessageId
from dragoman.core.open_calls import OpenCall, is_sleep
from dragoman.core.time_zones import zone_of_call
from dragoman.core.tools import WRITE_MEMORY, is_trusted
from dragoman.engine.instrumentation.metrics import TOOL_CALLS
from dragoman.engine.instrumentation.tracing import tool_span
from dragoman.engine.runs.forks import close_fork, run_fork
from dragoman.engine.runs.run_context import LoopRun
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports.environment import Ids

MAX_DEPTH = 8
"""Maximum nesting of sub-agents."""
MAX_RETRY_DELAY_S = 60.0
"""The longest delay before a call that failed runs again."""

log = structlog.get_logger(__name__)


class CallContext:
    """`core.agent.ToolContext` of one call."""

    def __init__(self, run: LoopRun, opened: OpenCall) -> None:
        call, settings = opened.call, run.live.state.effective_settings()
        answer = run.answers.get(call.call_id)
        self.session_id = run.session_id
        self.run_id = run.run_id
        self.call_id = call.call_id
        self.user = run.user
        self.options = run.options
        self.metadata = run.metadata
        self.keep = run.keep
        self.kept = run.kept
        self.private: Json = None
        """What the tool attached to its result."""
        self.granted = opened.approved or is_trusted(call.name, settings.tools, settings.trusted_tools)
        self.answer = None if answer is None else answer_text(answer)
        self.answers: Sequence[Sequence[str]] = () if answer is None else answer_texts(answer)
        self._time_zone = zone_of_call(call.input, run.time_zone)
        now = run.live.state.updated_at  # the mark that the tool starts has just been logged
        self.elapsed_s = (now - (opened.opened_at or now)).total_seconds()
        self._live = run.live

    @property
    def time_zone(self) -> str:
        """The IANA zone of the call's event."""
        return self._time_zone

    @property
    def is_settled(self) -> bool:
        """Whether nobody can answer the call any more."""
        return self._live.has_ended or self.call_id not in self._live.state.calls

    def attach(self, private: Json) -> None:
        """Store a private value with the call's result."""
        self.private = private


class CallRunner:
    """Settles those open calls of loops that do not need the application."""

    def __init__(self, ids: Ids, on_woken: Callable[[LiveSession], None]) -> None:
        self._new_id = ids.new
        self._on_woken = on_woken
        """Called when a run has slept."""

    async def settle(
        self, run: LoopRun, tools_by_call: Mapping[CallId, RunnableTool] = MappingProxyType({})
    ) -> Mapping[CallId, ToolMessage]:
        """Run those of a loop's open calls that can be run, in parallel, and settle them.

        Calls that the user decided about are settled in the order of the decisions, all others as they complete.

        Args:
            run: the loop.
            tools_by_call: tools that came with their calls.

        Raises:
            Paused: calls are left that need the application.
        """
        live = run.live
        crashed, run.after_crash = run.after_crash, False
        to_repeat = self._settle_after_crash(run) if crashed else []
        open_calls = [call for call in live.state.calls_in_loop(run.loop) if not call.recorded]
        edited = [call for call in open_calls if call.edited is not None]
        ready = [call for call in open_calls if not (call.is_waiting() or call in to_repeat or call in edited)]
        to_run = [
            call
            for call in ready
            if call.granted is not False and (call.kind in ("inline", "permission") or call.keeps_answer)
        ]
        if to_run:
            seq = run.append([CallStarted(call_id=call.call.call_id, internal=call.internal) for call in to_run])
            await live.until_durable(seq)
        results: dict[CallId, ToolMessage] = {}
        decided = sorted((call for call in ready if call.granted is not None), key=lambda call: call.answered_seq)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._result(run, call, tools_by_call, crashed)) for call in decided]
            group.create_task(self._record_in_order(run, tasks, results))
            for call in ready:
                if call.granted is None:
                    group.create_task(self._record_when_ready(run, call, tools_by_call, crashed, results))
        if self._open_again(run, to_repeat, edited):
            return {**results, **await self.settle(run, tools_by_call)}
        left = [call for call in live.state.calls_in_loop(run.loop) if not call.recorded and call.edited is None]
        answerable = live.state.answerable_calls() if left else {}
        for call in left:
            if call.call.call_id not in answerable:  # its tool cancelled the task in which it ran
                self._record_result(
                    run, settle_call(call, "failed", failed_result("it cancelled itself"), self._new_id), results
                )
        if answerable.keys() & {call.call.call_id for call in left}:
            raise Paused
        return results

    async def _record_in_order(
        self, run: LoopRun, tasks: list[asyncio.Task[CallSettled | None]], results: dict[CallId, ToolMessage]
    ) -> None:
        for task in tasks:
            await asyncio.wait([task])  # unlike `await task`, this does not raise if the task cancelled itself
            if not task.cancelled():
                self._record_result(run, task.result(), results)

    async def _record_when_ready(
        self,
        run: LoopRun,
        call: OpenCall,
        tools_by_call: Mapping[CallId, RunnableTool],
        crashed: bool,
        results: dict[CallId, ToolMessage],
    ) -> None:
        self._record_result(run, await self._result(run, call, tools_by_call, crashed), results)

    def _record_result(self, run: LoopRun, event: CallSettled | None, results: dict[CallId, ToolMessage]) -> None:
        if event is not None:
            call = run.live.state.calls.get(event.result.call_id)
            if call is not None and call.kind == "fork":
                close_fork(run, call.call.call_id)
            run.append((event,))
            if call is not None and is_sleep(call):
                self._on_woken(run.live)
            results[event.result.call_id] = event.result

    def _settle_after_crash(self, run: LoopRun) -> list[OpenCall]:
        """Apply the tools' restart policies to the calls that were running when the server died.

        Returns:
            The calls that the user had allowed, and has to be asked about again.
        """
        to_repeat: list[OpenCall] = []
        for call in run.live.state.calls_in_loop(run.loop):
            if not call.started or call.kind == "fork" or call.recorded:
                continue
            tool = run.agent.tool(call.call.name)
            policy = tool.declaration.policy.on_restart if tool is not None else "fail"
            if policy == "ask" and cannot_ask(run.metadata, "permission"):
                policy = "fail"
            if policy == "ask" and call.granted:
                to_repeat.append(call)
            elif policy == "ask":
                run.append((CallParked(call_id=call.call.call_id, call=call.unknown_call),))
            elif policy == "fail":
                run.append((settle_call(call, "interrupted", INTERRUPTED_RESULT, self._new_id),))
        return to_repeat

    def _open_again(self, run: LoopRun, to_ask: Sequence[OpenCall], edited: Sequence[OpenCall]) -> bool:
        """End calls, and open them again in a new step, with new ids. Returns whether there is a new step.

        If another call of their step still waits for the user, there is none: a step follows the results of the last.
        Then interrupted calls only end, and edited ones wait for the other call.

        Args:
            run: the loop.
            to_ask: calls that a crash interrupted, and about which the user is asked again.
            edited: calls that the user allowed with other arguments, with which they run.
        """
        if not to_ask and not edited:
            return False
        answerable = run.live.state.answerable_calls()
        if any(call.call.call_id in answerable for call in run.live.state.calls_in_loop(run.loop)):
            run.append([settle_call(call, "interrupted", INTERRUPTED_RESULT, self._new_id) for call in to_ask])
            return False
        calls = [*to_ask, *edited]
        new_ids = [CallId(self._new_id()) for _ in calls]
        message_id = MessageId(self._new_id())
        events: list[Event] = []
        for call, new_id in zip(calls, new_ids, strict=True):
            outcome: CallOutcome = "interrupted" if call.edited is None else "cancelled"
            text = INTERRUPTED_RESULT if call.edited is None else EDITED_RESULT
            events.append(settle_call(call, outcome, text, self._new_id, repeated_by=new_id))
        events.append(MessageOpened(message_id=message_id, loop=run.loop))
        for index, (call, new_id) in enumerate(zip(calls, new_ids, strict=True)):
            arguments = call.call.input if call.edited is None else call.edited
            again = CallOpened(
                message_id=message_id,
                index=index,
                call=msgspec.structs.replace(call.call, call_id=new_id, input=arguments),
                kind="permission" if call.edited is None else "inline",
                loop=run.loop,
                server=call.server,
                repeat=call.edited is None,
            )
            events.append(again)
        run.append([*events, MessageClosed(message_id=message_id, loop=run.loop)])
        return True

    async def _result(
        self, run: LoopRun, call: OpenCall, tools_by_call: Mapping[CallId, RunnableTool], crashed: bool
    ) -> CallSettled | None:
        """A call's result; None if its tool or sub-agent waits for the application."""
        if call.granted is False:
            return settle_call(call, "denied", denied_result(call.reason), self._new_id)
        if call.kind == "fork":
            return await self._fork_result(run, call, crashed)
        tool = tools_by_call.get(call.call.call_id) or run.agent.tool(call.call.name)
        if tool is None and call.call.name == WRITE_MEMORY:
            tool = run.memory_tool
        if call.kind == "missing" or tool is None:
            return settle_call(call, "failed", not_found_result(call.call.name), self._new_id)
        answer = run.answers.get(call.call.call_id)
        if answer is not None and answer.is_error:  # what the application was asked for failed there
            return settle_call(call, "failed", answer.content, self._new_id)
        policy = tool.declaration.policy
        while True:
            await run.services.wait_for_valid_lease()
            context = CallContext(run, call)
            try:
                with tool_span(call.call.name, call.call.call_id):
                    outcome, value, may_retry = await run_tool(tool, call.call.input, context)
            except Deferred as deferred:
                return self._defer(run, call, deferred, context)
            if not may_retry or call.attempts > policy.retries:
                break
            delay_s = min(policy.retry_delay_s * 2 ** (call.attempts - 1), MAX_RETRY_DELAY_S)
            log.info("tool failed, retrying", tool=call.call.name, call_id=call.call.call_id, delay_s=delay_s)
            await asyncio.sleep(delay_s)
            seq = run.append((CallStarted(call_id=call.call.call_id, internal=call.internal),))
            await run.live.until_durable(seq)
        TOOL_CALLS.labels(outcome=outcome).inc()
        private = await run.kept_values.store_private(context.private)
        return settle_with_value(call, outcome, value, self._new_id, private=private)

    def _defer(self, run: LoopRun, call: OpenCall, deferred: Deferred, context: CallContext) -> CallSettled | None:
        """Let a call wait as its tool asks. Returns its result if it cannot wait."""
        kind = deferred.kind
        if call.internal:
            return settle_call(call, "failed", failed_result("an internal tool cannot wait"), self._new_id)
        if kind == "permission" and context.granted:
            return settle_call(call, "failed", failed_result("it asked for an approval that it has"), self._new_id)
        if kind != "client" and cannot_ask(run.metadata, kind):
            return settle_call(call, "failed", failed_result(refusal_without_user(kind)), self._new_id)
        try:
            note = to_plain_json(deferred.note)
        except (TypeError, ValueError, RecursionError):
            note = msgspec.UNSET
        if note is msgspec.UNSET:
            text = failed_result("the note of what it waits for cannot be written as JSON")
            return settle_call(call, "failed", text, self._new_id)
        run.append((CallParked(call_id=call.call.call_id, kind=kind, note=note, call=call.unknown_call),))
        return None

    async def _fork_result(self, run: LoopRun, call: OpenCall, crashed: bool) -> CallSettled | None:
        child = run.agent.child(call.call)
        if child is None:
            return settle_call(call, "failed", failed_result("there is no such sub-agent"), self._new_id)
        if nesting_depth(call, run.live.state.calls) >= MAX_DEPTH:
            return settle_call(call, "failed", failed_result("sub-agents are nested too deeply"), self._new_id)
        try:
            text = await run_fork(run, call, child, after_crash=crashed)
        except Paused:
            return None
        except AgentError as error:
            return settle_call(call, "failed", failed_result(error.message), self._new_id)
        except asyncio.CancelledError:
            raise
        except BaseException:  # whatever a sub-agent raises is its call's result
            log.exception("sub-agent failed", call_id=call.call.call_id)
            return settle_call(call, "failed", failed_result("the sub-agent failed"), self._new_id)
        return settle_call(call, "done", result_content(text), self._new_id)


class ToolOutcome(NamedTuple):
    """How a tool ended. `may_retry`: it failed, but not with a result that it chose itself."""

    outcome: CallOutcome
    value: Json
    may_retry: bool = False


async def run_tool(tool: RunnableTool, arguments: JsonObject, context: CallContext) -> ToolOutcome:
    """Run a tool within its time limit. Whatever it raises becomes a result, except for a cancellation.

    Raises:
        Deferred: the tool waits for the application.
    """
    timeout_s = tool.declaration.policy.timeout_s
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            return ToolOutcome("done", await tool.run(arguments, context))
    except TimeoutError as error:
        text = f"it took longer than {timeout_s:g} s" if limit.expired() else _error_text(error)
        return ToolOutcome("failed", failed_result(text), may_retry=True)
    except ToolFailed as error:
        return ToolOutcome("failed", failed_result(_error_text(error)))
    except (asyncio.CancelledError, Deferred):
        raise
    except BaseException as error:  # user code: not even its SystemExit may end the server
        log.warning("tool failed", tool=tool.declaration.spec.name, call_id=context.call_id, exc_info=error)
        return ToolOutcome("failed", failed_result(_error_text(error)), may_retry=True)


def _error_text(error: BaseException) -> str:
    """An error's message; its type if the message is empty or `str` fails."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001  # user code too
        return type(error).__name__
