"""Running the calls of a step: each gets exactly one result, in the log before the agent sees it.

A call is in the log before its tool runs, and so is the mark that it is about to run. What a crash cut off after that
mark is settled by the tool's declared policy, never silently repeated.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import msgspec
import structlog

from dragoman.core.agent import Agent, AgentError, Paused, RunnableTool, ToolFailed
from dragoman.core.answers import (
    INTERRUPTED,
    denial,
    failure,
    not_found,
    object_with_meta,
    plain,
    result_content,
    settled,
    without,
)
from dragoman.core.content import Json, JsonObject, ToolMessage
from dragoman.core.events import CallOutcome, CallParked, CallSettled, CallStarted, Event
from dragoman.core.ids import CallId, LoopId, RunId, SessionId, UserId
from dragoman.core.session import OpenCall
from dragoman.core.tools import WRITE_MEMORY, ServerTool
from dragoman.engine.instrumentation.metrics import TOOL_CALLS
from dragoman.engine.instrumentation.tracing import tool_span
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.ports import Ids

MAX_DEPTH = 8
"""Sub-agents below one another."""

log = structlog.get_logger(__name__)


class Playing(Protocol):
    """The loop whose calls are run."""

    live: LiveSession
    agent: Agent
    session_id: SessionId
    run_id: RunId
    loop: LoopId
    user: UserId
    options: Mapping[str, str]
    props: JsonObject
    memory_tool: RunnableTool | None
    secrets: frozenset[str]
    """Option values that neither the model nor a client may read."""
    after_crash: bool
    """Whether calls that are marked as started were cut off by a crash; `settle` takes note of it once."""

    @property
    def time_zone(self) -> str:
        """The zone of the run's events."""

    def append(self, events: Sequence[Event]) -> int:
        """Add events of this run to the log. Raises CancelledError when the run is over."""


class Context:
    """`core.agent.ToolContext` of one call."""

    def __init__(self, run: Playing, call_id: CallId) -> None:
        self.session_id = run.session_id
        self.run_id = run.run_id
        self.call_id = call_id
        self.user = run.user
        self.options = run.options
        self.props = run.props
        self._zone = run.time_zone

    @property
    def time_zone(self) -> str:
        """See `ToolContext.time_zone`."""
        return self._zone


ForkPlayer = Callable[[Playing, OpenCall, Agent, bool], Awaitable[str]]
"""Plays a sub-agent below a call until it ends or pauses, after a crash or not; gives its last words."""


ForkCloser = Callable[[Playing, CallId], None]
"""Closes what the sub-agent below a call left open."""


Sure = Callable[[], Awaitable[None]]
"""Waits until this server surely has its sessions, and no other one."""


class CallRunner:
    """Settles the open calls of loops, as far as that needs no application."""

    def __init__(self, ids: Ids, play_fork: ForkPlayer, close_fork: ForkCloser, sure: Sure) -> None:
        self._new_id = ids.new
        self._sure = sure
        self._play_fork = play_fork
        self._close_fork = close_fork

    async def settle(
        self, run: Playing, brought: Mapping[CallId, RunnableTool] = MappingProxyType({})
    ) -> Mapping[CallId, ToolMessage]:
        """Run what can be run of a loop's open calls, in parallel, and settle it.

        Calls that the user decided about are settled in the order of the decisions, all others as they get ready.

        Args:
            brought: tools that came with their calls.

        Raises:
            Paused: calls are left that need the application.
        """
        live = run.live
        crashed, run.after_crash = run.after_crash, False
        if crashed:
            for call in live.state.in_loop(run.loop):
                if call.started and call.kind != "fork":
                    self._after_crash(run, call)
        ready = [call for call in live.state.in_loop(run.loop) if not call.waits()]
        to_run = [call for call in ready if call.granted is not False and call.kind in ("inline", "permission")]
        if to_run:
            seq = run.append([CallStarted(call_id=call.call.call_id) for call in to_run])
            await live.until_durable(seq)
        results: dict[CallId, ToolMessage] = {}
        decided = sorted((call for call in ready if call.granted is not None), key=lambda call: call.answered_seq)
        async with asyncio.TaskGroup() as group:
            working = [group.create_task(self._result(run, call, brought, crashed)) for call in decided]
            group.create_task(self._in_order(run, working, results))
            for call in ready:
                if call.granted is None:
                    group.create_task(self._when_ready(run, call, brought, crashed, results))
        left = live.state.in_loop(run.loop)
        answerable = live.state.answerable() if left else {}
        for call in left:
            if call.call.call_id not in answerable:  # its tool cancelled the very task in which it ran
                self._note(run, settled(call, "failed", failure("it cancelled itself"), self._new_id), results)
        if answerable.keys() & {call.call.call_id for call in left}:
            raise Paused
        return results

    async def _in_order(
        self, run: Playing, working: list[asyncio.Task[CallSettled | None]], results: dict[CallId, ToolMessage]
    ) -> None:
        for task in working:
            await asyncio.wait([task])  # which, unlike `await task`, does not end with a task that cancelled itself
            if not task.cancelled():
                self._note(run, task.result(), results)

    async def _when_ready(
        self,
        run: Playing,
        call: OpenCall,
        brought: Mapping[CallId, RunnableTool],
        crashed: bool,
        results: dict[CallId, ToolMessage],
    ) -> None:
        self._note(run, await self._result(run, call, brought, crashed), results)

    def _note(self, run: Playing, event: CallSettled | None, results: dict[CallId, ToolMessage]) -> None:
        if event is not None:
            call = run.live.state.calls.get(event.result.call_id)
            if call is not None and call.kind == "fork":
                self._close_fork(run, call.call.call_id)
            run.append((event,))
            results[event.result.call_id] = event.result

    def _after_crash(self, run: Playing, call: OpenCall) -> None:
        """Deal with a call that was running when the server died, as its tool's policy says."""
        tool = run.agent.tool(call.call.name)
        policy = tool.declaration.policy.on_restart if tool is not None else "fail"
        if policy == "ask":
            run.append((CallParked(call_id=call.call.call_id),))
        elif policy == "fail":
            run.append((settled(call, "interrupted", INTERRUPTED, self._new_id),))

    async def _result(
        self, run: Playing, call: OpenCall, brought: Mapping[CallId, RunnableTool], crashed: bool
    ) -> CallSettled | None:
        """A call's result; None when it is a sub-agent that waits for the application."""
        if call.granted is False:
            return settled(call, "denied", denial(call.reason), self._new_id)
        if call.kind == "fork":
            return await self._fork(run, call, crashed)
        tool = brought.get(call.call.call_id) or run.agent.tool(call.call.name)
        if tool is None and call.call.name == WRITE_MEMORY:
            tool = run.memory_tool
        if call.kind == "missing" or tool is None:
            return settled(call, "failed", not_found(call.call.name), self._new_id)
        await self._sure()
        with tool_span(call.call.name, call.call.call_id):
            outcome, value = await run_tool(tool, call.call.input, Context(run, call.call.call_id))
        TOOL_CALLS.labels(outcome=outcome).inc()
        return self._settled(run, call, tool.declaration, outcome, value)

    def _settled(
        self, run: Playing, call: OpenCall, declaration: ServerTool, outcome: CallOutcome, value: Json
    ) -> CallSettled:
        try:
            content = result_content(value)
            shown = without(content, run.secrets) if run.secrets else content
            keeps = isinstance(content, str) and (not isinstance(value, str) or object_with_meta(value) is not value)
            raw = plain(value) if keeps and shown == content else msgspec.UNSET
            return settled(call, outcome, shown, self._new_id, raw=raw)
        except (TypeError, ValueError, RecursionError):
            text = failure(f"the tool {declaration.spec.name} returned a value that is no JSON")
            return settled(call, "failed", text, self._new_id)

    async def _fork(self, run: Playing, call: OpenCall, crashed: bool) -> CallSettled | None:
        child = run.agent.child(call.call)
        if child is None:
            return settled(call, "failed", failure("there is no such sub-agent"), self._new_id)
        if _depth(run.live, call) > MAX_DEPTH:
            return settled(call, "failed", failure("sub-agents are nested too deeply"), self._new_id)
        try:
            words = await self._play_fork(run, call, child, crashed)
        except Paused:
            return None
        except AgentError as error:
            return settled(call, "failed", failure(error.message), self._new_id)
        except asyncio.CancelledError:
            raise
        except BaseException:  # a sub-agent's failure is its call's result, whatever it raises
            log.exception("sub-agent failed", call_id=call.call.call_id)
            return settled(call, "failed", failure("the sub-agent failed"), self._new_id)
        return settled(call, "done", result_content(words), self._new_id)


def _depth(live: LiveSession, call: OpenCall) -> int:
    depth, parent = 1, live.state.parent(call.loop)
    while parent is not None:
        depth, parent = depth + 1, live.state.parent(parent.loop)
    return depth


async def run_tool(tool: RunnableTool, arguments: JsonObject, context: Context) -> tuple[CallOutcome, Json]:
    """Run a tool within its time. Its failure is a result, whatever it raises; only a cancellation goes on."""
    timeout_s = tool.declaration.policy.timeout_s
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            return "done", await tool.run(arguments, context)
    except TimeoutError as error:
        if limit.expired():
            return "failed", failure(f"it took longer than {timeout_s:g} s")
        return "failed", failure(_words(error))
    except ToolFailed as error:
        return "failed", failure(_words(error))
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # user code: even a SystemExit of it must not end the server
        log.warning("tool failed", tool=tool.declaration.spec.name, call_id=context.call_id, exc_info=error)
        return "failed", failure(_words(error))


def _words(error: BaseException) -> str:
    """What an error says; its kind, when it says nothing or cannot even be asked."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001  # user code too
        return type(error).__name__
