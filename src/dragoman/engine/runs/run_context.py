"""The context of a running agent: `core.agent.Run` over a session in memory.

One object is one loop of one run: the root loop, or that of a sub-agent below a call of the built-in tool `Agent`.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec
import structlog

from dragoman.core.admission import kind_of_call, offered_tools
from dragoman.core.agent import Agent, AgentError, Needs, RunnableTool, ToolContext, ToolFailed
from dragoman.core.content import (
    TOO_DEEP,
    Block,
    Call,
    Json,
    JsonObject,
    Message,
    StreamedBlockKind,
    Text,
    Thinking,
    ToolMessage,
    Usage,
    is_too_deep,
)
from dragoman.core.events import (
    BlockClosed,
    CallKind,
    CallOpened,
    CardUpdated,
    CompactionMade,
    Event,
    MessageClosed,
    MessageOpened,
    PlanUpdated,
    SharedStateReplaced,
    StageChanged,
)
from dragoman.core.headless import cannot_ask, refusal_without_user, too_many_calls
from dragoman.core.history import without_repetitions
from dragoman.core.ids import CallId, LoopId, MessageId, RunId, SessionId, UserId
from dragoman.core.run_metadata import NO_METADATA, RunMetadata, effective_time_zone
from dragoman.core.session import ActiveRun, is_limited
from dragoman.core.tools import AgentSpec, ServerTool, ToolPolicy, ToolSpec, is_trusted
from dragoman.core.ui_schema import check_card
from dragoman.engine.fair_turns import FairTurns
from dragoman.engine.runs.recorded_calls import RecordedCall, has_waiting, settle_unfinished, unread_denials
from dragoman.engine.services.attachments import Attachments
from dragoman.engine.services.token_budgets import RunBudget
from dragoman.engine.sessions.history import History
from dragoman.engine.sessions.kept_values import KeptValues
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.outbox import OpenBlock
from dragoman.ports.environment import Ids

log = structlog.get_logger(__name__)

DRAIN_AFTER = 32 * 1024
"""The budget of output after which `emit` asks the agent to yield to other tasks."""
DELTA_COST = 64
"""The cost of a delta besides its characters: 500 short deltas, or 32,000 characters, use up the budget."""


_NO_DENIALS: frozenset[tuple[CallId, int]] = frozenset()


class RequestedCall(NamedTuple):
    """A call of the open step.

    `tool` came with the call. `recorded`: the agent runs it itself. `deniable`: it does not if the call is denied
    before it begins.
    """

    call: Call
    tool: RunnableTool | None = None
    recorded: bool = False
    server: str | None = None
    deniable: bool = False


class StepLimitReached(AgentError):
    """The run reached its limit of model steps."""

    def __init__(self, limit: int) -> None:
        super().__init__("max_steps", f"the run reached its limit of {limit} steps")


LeaseCheck = Callable[[], Awaitable[None]]
"""Waits until this server certainly owns its sessions."""


class CallSettler(Protocol):
    """Executes the calls of loops. A protocol, because `calls.CallRunner` starts the loops of sub-agents itself."""

    async def settle(
        self, run: "LoopRun", tools_by_call: Mapping[CallId, RunnableTool] = MappingProxyType({})
    ) -> Mapping[CallId, ToolMessage]:
        """Settle those of a loop's open calls that do not need the application. Raises Paused if some are left."""


class LoopServices(NamedTuple):
    """What all loops on this server share.

    Attributes:
        wait_for_valid_lease: awaited before each model call and each attempt of a tool: only the server that certainly
            has the session makes them.
        is_parking: whether runs that are cancelled now continue on the next server.
    """

    calls: CallSettler
    history: History
    attachments: Attachments
    ids: Ids
    wait_for_valid_lease: LeaseCheck
    turns: FairTurns
    is_parking: Callable[[], bool]


# Large: it implements `core.agent.Run`, which has this many attributes.
class LoopRun:
    """What an agent gets to execute one loop of a run; the engine's implementation of `core.agent.Run`."""

    __slots__ = (
        "_block",
        "_block_count",
        "_drain_budget",
        "_is_internal",
        "_message",
        "_pending_deltas",
        "_seen_denials",
        "_step_calls",
        "after_crash",
        "agent",
        "answers",
        "budget",
        "kept_values",
        "live",
        "loop",
        "memories",
        "memory_tool",
        "metadata",
        "options",
        "parameters",
        "root",
        "run_id",
        "services",
        "session_id",
        "state",
        "suspended",
        "user",
    )

    def __init__(
        self,
        live: LiveSession,
        run_id: RunId,
        agent: Agent,
        services: LoopServices,
        *,
        loop: LoopId,
        options: Mapping[str, str],
        kept_values: KeptValues,
        root: Agent | None = None,
        after_crash: bool = False,
    ) -> None:
        self.live = live
        self.agent = agent
        self.root = root or agent
        """The session's own agent; `agent` may be a sub-agent of it."""
        self.session_id: SessionId = live.state.session_id
        self.run_id = run_id
        self.loop = loop
        self.user: UserId = live.state.owner
        self.options = options
        active = live.state.run
        self.parameters: JsonObject = active.parameters if active is not None else {}
        self.metadata: RunMetadata = active.metadata if active is not None else NO_METADATA
        self.state: Json = None
        """The shared state when the turn began."""
        self.memories = ""
        """The user's memories as text; only in the root loop, since a sub-agent's task says what it needs."""
        self.memory_tool: RunnableTool | None = None
        self.budget: RunBudget | None = None
        """The token budgets that the run counts against."""
        self.after_crash = after_crash
        self.kept_values = kept_values
        self.answers: Mapping[CallId, ToolMessage] = {}
        """The answers that open calls of the loop have kept, as they were sent."""
        self.services = services
        self.suspended: set[CallId] = set()
        """The started recorded calls that run again when another call has its answer."""
        self._message: MessageId | None = None
        self._is_internal = False
        """Whether no client sees the open message."""
        self._block_count = 0
        self._block: OpenBlock | None = None
        self._pending_deltas: list[str] | None = None
        """The deltas of the open text block since the last commit started."""
        self._step_calls: list[RequestedCall] = []
        self._seen_denials = _NO_DENIALS
        self._drain_budget = DRAIN_AFTER

    @property
    def is_handed_over(self) -> bool:
        """Whether the run is continued later, although its task is cancelled now."""
        return self.services.is_parking() or self.live.has_ended

    @property
    def time_zone(self) -> str:
        """The IANA zone of the run's events."""
        return effective_time_zone(self.metadata)

    # --- speaking -------------------------------------------------------------------------------------------------

    def emit(self, text: str) -> bool:
        """Add text to the answer. This is the hot path of every delta: an append, and little else."""
        deltas = self._pending_deltas
        if not deltas:  # no text block is open, or this is its first delta since the last commit started
            return self._grow("text", text)
        deltas.append(text)
        self._drain_budget = left = self._drain_budget - (DELTA_COST + len(text))  # one large number less
        return left < 0

    def think(self, text: str) -> bool:
        """Add text to the reasoning."""
        return self._grow("thinking", text)

    def add(self, block: Block) -> None:
        """Add a complete block, or open a text or thinking block."""
        if isinstance(block, Text | Thinking):
            self._close_block()
            self._grow("text" if isinstance(block, Text) else "thinking", block.text)
            return
        message_id = self._ensure_open_message()
        self._close_block()
        self.append((BlockClosed(message_id=message_id, index=self._block_count, block=block, loop=self.loop),))
        self._block_count += 1

    def plan(self, plan: PlanUpdated) -> None:
        """Publish a plan."""
        self.append((PlanUpdated(status=plan.status, steps=plan.steps, loop=self.loop),))

    def stage(self, name: str | None) -> None:
        """Enter a stage of the work."""
        self.append((StageChanged(stage=name, loop=self.loop),), urgent=False)

    def share(self, state: Json) -> None:
        """Replace the shared state. Raises ValueError if it is too deep."""
        if is_too_deep(state):
            raise ValueError(TOO_DEEP)
        self.append((SharedStateReplaced(state=state, loop=self.loop),))

    def card(self, card: Json) -> None:
        """Add a user interface to the open message, which is opened if there is none. What is wrong in it is logged."""
        message_id = self._ensure_open_message()
        if faults := check_card(card)[1]:
            log.warning("card is not valid", agent=self.agent.spec.name, run_id=self.run_id, faults=faults)
        self.append((CardUpdated(card=card, loop=self.loop, message_id=message_id),))

    async def drain(self) -> None:
        """Yield to other tasks, and wait while much of this run is not durable."""
        self._drain_budget = DRAIN_AFTER
        self._active_run()
        block = self._block
        if block is not None and sum(map(len, block.pending_deltas)) > DRAIN_AFTER // 2:
            await self.live.next_commit()
        await self.services.turns.take(self.user)

    def repeat_step(self) -> None:
        """Close the open message as `cut`, because another one repeats its step."""
        self._step_calls = []
        if self._message is not None:
            self._close_block()
            self.append((MessageClosed(message_id=self._message, loop=self.loop, status="cut"),))
            self._message = None

    def _grow(self, kind: StreamedBlockKind, text: str) -> bool:
        block = self._block
        if block is None or block.kind != kind:
            if not text:
                return False
            message_id = self._ensure_open_message()
            self._close_block()
            block = self._block = self.live.open_block(message_id, self._block_count, kind, self.loop)
            self._pending_deltas = block.pending_deltas if kind == "text" else None
        block.pending_deltas.append(text)
        self.live.schedule_commit()
        self._drain_budget -= DELTA_COST + len(text)
        return self._drain_budget < 0

    def _ensure_open_message(self, *, internal: bool = False) -> MessageId:
        """The id of the open message, which is opened if there is none. Raises StepLimitReached."""
        active = self._active_run()
        if self._message is None:
            self._require_tokens()
            limit = self.agent.spec.max_steps
            if active.steps.get(self.loop, 0) >= limit:
                raise StepLimitReached(limit)
            self._message = MessageId(self.services.ids.new())
            self._block_count = 0
            self._is_internal = internal
            opened = MessageOpened(message_id=self._message, loop=self.loop, internal=internal)
            self.append((opened,), urgent=False)  # its first content follows, or its end
        return self._message

    def _require_tokens(self) -> None:
        """Raise AgentError if the run has no tokens left for a step."""
        if self.budget is not None:
            self.budget.require()

    def _close_block(self) -> None:
        if self._block is not None:
            self._active_run()
            self._block = self._pending_deltas = None
            self._block_count += 1
            self.live.close_block(self.loop, self.run_id)

    # --- calls ----------------------------------------------------------------------------------------------------

    def call(self, name: str, arguments: JsonObject, *, tool: RunnableTool | None = None) -> CallId:
        """Request a call, which `end_step` executes."""
        call_id = CallId(self.services.ids.new())
        self._step_calls.append(RequestedCall(Call(call_id=call_id, name=name, input=arguments), tool))
        return call_id

    def record(
        self,
        name: str,
        arguments: JsonObject,
        *,
        origin: str | None = None,
        server: str | None = None,
        deniable: bool = False,
    ) -> RecordedCall:
        """Note a call of this step that the agent runs itself."""
        call = Call(call_id=CallId(self.services.ids.new()), name=name, input=arguments, origin=origin)
        self._step_calls.append(RequestedCall(call, recorded=True, server=server, deniable=deniable))
        return self._recorded_call(call)

    def recorded(self) -> Sequence[RecordedCall]:
        """The recorded calls of this loop that have no result yet."""
        return [self._recorded_call(each.call) for each in self.live.state.calls_in_loop(self.loop) if each.recorded]

    def _recorded_call(self, call: Call) -> RecordedCall:
        kind = self._call_kind(call.name)
        needs: Needs = kind if kind in ("permission", "missing") else "nothing"
        settings = self.live.state.effective_settings()
        trusted = is_trusted(call.name, settings.tools, settings.trusted_tools)
        return RecordedCall(self, call, needs, trusted, self.services.ids.new, self.services.wait_for_valid_lease)

    async def restore_answers(self) -> None:
        """Read the answers that open calls of the loop have kept, with contents that are stored outside the log."""
        kept = [call.answer for call in self.live.state.calls_in_loop(self.loop) if call.answer is not None]
        if kept:
            restored = await self.services.attachments.restore(self.session_id, kept)
            self.answers = {each.call_id: each for each in restored}

    async def end_step(
        self,
        *,
        usage: Usage | None = None,
        model: str | None = None,
        context_window: int | None = None,
        provider_data: JsonObject | None = None,
        private: Json = None,
    ) -> Sequence[ToolMessage]:
        """Close the model step, execute its calls and return their results in order."""
        requested, self._step_calls = self._step_calls, []
        message_id = self._ensure_open_message(internal=bool(requested) and all(map(self._is_call_internal, requested)))
        self._close_block()
        events: list[CallOpened | MessageClosed] = []
        tools_by_call: dict[CallId, RunnableTool] = {}
        server_calls = self._active_run().server_calls
        for index, each in enumerate(requested, self._block_count):
            tool, declaration = each.tool, self._declaration_of(each)
            opened = CallOpened(
                message_id=message_id,
                index=index,
                call=each.call,
                kind=self._call_kind(each.call.name) if tool is None and not each.recorded else "inline",
                loop=self.loop,
                server=each.server or (declaration.server if declaration is not None else None),
                internal=declaration is not None and declaration.policy.internal,
                recorded=each.recorded,
                deniable=each.deniable,
            )
            server_calls += is_limited(opened)
            if (refusal := self._refusal_of(opened, server_calls)) is not None:
                tool = RefusedTool(each.call.name, refusal)
                opened = msgspec.structs.replace(opened, kind="inline", server=each.server)
            if tool is not None:
                tools_by_call[each.call.call_id] = tool
            events.append(opened)
        closed = MessageClosed(
            message_id=message_id,
            loop=self.loop,
            usage=usage,
            model=model,
            context_window=context_window,
            provider_data=provider_data,
            private=await self.kept_values.store_private(private),
            internal=self._is_internal,
        )
        events.append(closed)
        self.append(events, urgent=False)  # a call starts next, or the run ends, or the next step begins
        self._message = None
        if self.budget is not None and usage is not None:
            await self.budget.count(usage)
        own = [each.call.call_id for each in requested if not each.recorded]
        if not own:
            return ()
        results = await self.services.calls.settle(self, tools_by_call)
        return [results[call_id] for call_id in own]

    def _refusal_of(self, opened: CallOpened, server_calls: int) -> str | None:
        """Why a call is not executed, as the model reads it; None if nothing prevents it.

        `server_calls`: how many calls of the run count against its limit, with this one.
        """
        if opened.internal:
            return None
        if (opened.kind == "question" or opened.kind == "permission") and cannot_ask(self.metadata, opened.kind):
            return refusal_without_user(opened.kind)
        limit = self.metadata.max_calls
        return too_many_calls(limit) if limit is not None and is_limited(opened) and server_calls > limit else None

    def _declaration_of(self, requested: RequestedCall) -> ServerTool | None:
        return self.agent.spec.tool(requested.call.name) if requested.tool is None else requested.tool.declaration

    def _is_call_internal(self, requested: RequestedCall) -> bool:
        """Whether no client sees a call, because its tool is internal."""
        declared = self._declaration_of(requested)
        return declared is not None and declared.policy.internal

    def _call_kind(self, name: str) -> CallKind:
        return kind_of_call(name, self.agent.spec, self.live.state.effective_settings(), self._root_spec)

    @property
    def _root_spec(self) -> AgentSpec | None:
        return None if self.root is self.agent else self.root.spec

    def offered_tools(self) -> Sequence[ToolSpec]:
        """The enabled tools, as a model receives them."""
        return offered_tools(self.agent.spec, self.live.state.effective_settings(), self._root_spec)

    # --- private and kept values ----------------------------------------------------------------------------------

    async def keep(self, writes: Mapping[str, bytes | None], *, durable: bool = True) -> None:
        """Keep values with the session, in one commit with what the run has written before."""
        self._active_run()
        await self.kept_values.keep(writes, durable=durable)

    async def kept(self, below: str = "", *, after: str | None = None, limit: int = 1000) -> Mapping[str, bytes]:
        """The values kept with the session whose keys begin with `below`."""
        await self.services.wait_for_valid_lease()
        return await self.kept_values.kept(below, after=after, limit=limit)

    # --- history --------------------------------------------------------------------------------------------------

    async def turn(self) -> Sequence[Message]:
        """The loop's messages from the last user message on."""
        self._require_tokens()
        await self.services.wait_for_valid_lease()
        return await self._restore_attachments(
            without_repetitions(await self.services.history.turn(self.live, self.loop))
        )

    async def history(self) -> AsyncGenerator[Message, None]:
        """The session's root messages, newest first."""
        async with aclosing(self.services.history.root_messages_newest_first(self.live)) as messages:
            async for message in messages:
                (restored,) = await self.kept_values.restore_private((message,))
                yield restored

    async def summary(self) -> str | None:
        """The summary of the newest compaction."""
        compaction = self.live.state.compaction
        return None if compaction is None else compaction.summary

    async def context(self, max_messages: int) -> Sequence[Message]:
        """The messages that a model should get, oldest first."""
        self._require_tokens()
        await self.services.wait_for_valid_lease()
        placed = await self.services.history.context(self.live, max_messages)
        return await self._restore_attachments([each.message for each in placed])

    async def _restore_attachments(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Messages with everything that is stored outside the log."""
        restored = await self.services.attachments.restore(self.session_id, messages)
        return await self.kept_values.restore_private(restored)

    async def compact(self, summary: str, keep_from: MessageId, *, tokens_before: int, tokens_after: int) -> None:
        """Record a compaction. Raises ValueError if there is nothing before that message, or no such message."""
        up_to, archived = await self.services.history.extent_before(self.live, keep_from)
        if not up_to:
            raise ValueError(f"nothing to summarize before message {keep_from} (session {self.session_id})")
        compaction = CompactionMade(
            summary=summary,
            up_to=up_to,
            archived_count=archived,
            tokens_before=tokens_before,
            tokens_after=tokens_after,
        )
        self.append((compaction,))

    # --- end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Close a step that the agent left open when it returned."""
        if self._message is not None or self._step_calls:
            message_id = self._ensure_open_message()
            self._close_block()
            self._step_calls = []
            self.append((MessageClosed(message_id=message_id, loop=self.loop),))
            self._message = None

    def has_new_denials(self) -> bool:
        """Whether recorded calls were denied since this was asked last, so that the agent has to continue."""
        if not self.live.state.calls:
            return False
        new = unread_denials(self) - self._seen_denials
        self._seen_denials |= new
        return bool(new)

    def settle_unfinished(self) -> bool:
        """Settle the recorded calls that the agent left open, unless they wait. Returns whether one of them waits."""
        if not self.live.state.calls:
            return False
        settle_unfinished(self, self.services.ids.new)
        return has_waiting(self)

    # --- writing --------------------------------------------------------------------------------------------------

    def append(self, events: Sequence[Event], *, urgent: bool = True) -> int:
        """Add events of this run to the log. Returns the last one's number.

        Raises:
            CancelledError: the run is over.
        """
        self._active_run()
        return self.live.append(events, self.run_id, urgent=urgent)

    def _active_run(self) -> ActiveRun:
        """The run, if it is still active; after its end, an agent that continues may not write to the next one."""
        self.live.raise_if_ended()
        active = self.live.state.run
        if active is None or active.run_id != self.run_id:
            raise asyncio.CancelledError
        return active


class RefusedTool:
    """Replaces a call that is not executed: it fails with the reason, and the agent continues."""

    def __init__(self, name: str, reason: str) -> None:
        spec = ToolSpec(name=name, description="", parameters={"type": "object"})
        self.declaration = ServerTool(spec=spec, policy=ToolPolicy(exposed=False))
        """A hidden tool without parameters."""
        self._reason = reason

    async def run(self, arguments: JsonObject, context: ToolContext) -> Json:
        """Fail."""
        raise ToolFailed(self._reason)
