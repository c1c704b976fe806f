"""An in-memory session for one agent: `core.agent.Run` without an engine. It can crash after any delta and any step."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dragoman.core.agent import Agent, Paused, Recorded, RunnableTool, ToolFailed
from dragoman.core.answers import failed_result, not_found_result, result_content
from dragoman.core.content import (
    AssistantMessage,
    Block,
    Call,
    InputBlock,
    Json,
    JsonObject,
    Message,
    StreamedBlockKind,
    Text,
    Thinking,
    ToolMessage,
    Usage,
    UserMessage,
    text_of,
)
from dragoman.core.events import PlanUpdated, StopReason
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId, RunId, SessionId, UserId, fork_loop
from dragoman.core.run_metadata import NO_METADATA, RunMetadata, effective_time_zone
from dragoman.core.time_zones import zone_of_call
from dragoman.core.tools import ASK_USER_QUESTION, FORK, ToolSpec

DRAIN_AFTER = 100


class Killed(BaseException):
    """The simulated server has crashed."""


class InMemoryStarts:
    """A `StartLog` in memory."""

    def __init__(self) -> None:
        self.tags: list[str] = []

    def append(self, tag: str) -> None:
        self.tags.append(tag)

    def count(self, tag: str) -> int:
        return self.tags.count(tag)


class OpenCall(NamedTuple):
    """A call without a result."""

    call: Call
    loop: LoopId
    tool: RunnableTool | None


class Context:
    """A `core.agent.ToolContext`."""

    def __init__(self, run: "MemoryRun", call_id: CallId, arguments: JsonObject | None = None) -> None:
        self.session_id, self.run_id, self.call_id = run.session_id, run.run_id, call_id
        self.user, self.options, self.metadata = run.user, run.options, run.metadata
        self.granted = False
        self.answer: str | None = None
        self.answers: Sequence[Sequence[str]] = ()
        self.time_zone = zone_of_call(arguments or {}, run.time_zone)
        self.elapsed_s = 0.0
        self.is_settled = False
        self.keep, self.kept = run.keep, run.kept

    def attach(self, private: Json) -> None:
        raise AssertionError("no tool of these tests attaches anything")


class Session:
    """The messages of all loops, and the pending calls. Tools run immediately, except for those of the application.

    Args:
        client_tools: the names of the application's tools, whose calls wait for `answer`.
        dies_after_steps: the server crashes after that many model steps.
        dies_after_deltas: the server crashes after that many deltas.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        client_tools: Iterable[str] = (),
        options: Mapping[str, str] | None = None,
        metadata: RunMetadata = NO_METADATA,
        history: Iterable[Message] = (),
        dies_after_steps: int | None = None,
        dies_after_deltas: int | None = None,
    ) -> None:
        self.agent = agent
        self.client_tools = set(client_tools)
        self.options = options or {}
        self.metadata = metadata
        self.messages = list(history)
        self.open: list[OpenCall] = []
        self.deltas: list[tuple[StreamedBlockKind, str]] = []
        self.plans: list[PlanUpdated] = []
        self.cards: list[Json] = []
        self.call_tools: list[RunnableTool] = []
        self.drains = 0
        self.steps = 0
        self.dies_after_steps = dies_after_steps
        self.dies_after_deltas = dies_after_deltas
        self._ids = 0
        self._call_ids = 0

    # --- from outside ---------------------------------------------------------------------------------------------

    async def send(self, content: str | tuple[InputBlock, ...]) -> StopReason:
        """Add a user message and run the agent."""
        self.messages.append(UserMessage(id=self.new_id(), content=content))
        return await self.play()

    def answer(
        self,
        content: str | tuple[InputBlock, ...],
        *,
        is_error: bool = False,
        raw: Json | msgspec.UnsetType = msgspec.UNSET,
    ) -> None:
        """Settle the first pending call."""
        each = next(each for each in self.open if self.is_waiting(each))
        self.settle(each, content, is_error=is_error, raw=raw)

    async def play(self) -> StopReason:
        """Run the agent again, on a new run."""
        run = MemoryRun(self, ROOT, self.agent)
        try:
            await run.settle()
            reason = await self.agent.play(run)
            run.finish()
        except Paused:
            return "tool_use"
        except Killed:
            run.finish("cut")
            raise
        return reason or "end_turn"

    def reply_messages(self, loop: LoopId | None = ROOT) -> list[Message]:
        """The messages of a loop (None: of all) from the last user message on, without those interrupted by a crash."""
        messages = [
            each
            for each in self.messages
            if loop in (None, each.loop) and not (isinstance(each, AssistantMessage) and each.status == "cut")
        ]
        last = max((index for index, each in enumerate(messages) if isinstance(each, UserMessage)), default=-1)
        return messages[last + 1 :]

    def blocks(self) -> list[list[Block]]:
        """The contents of the assistant messages in the root loop's answer; calls without their ids."""
        return [
            [msgspec.structs.replace(each, call_id="") if isinstance(each, Call) else each for each in message.content]
            for message in self.reply_messages()
            if isinstance(message, AssistantMessage) and not isinstance(message.content, str)
        ]

    def text(self) -> str:
        """The text of the root loop's answer."""
        return "".join(text_of(each.content) for each in self.reply_messages() if isinstance(each, AssistantMessage))

    # --- from inside ----------------------------------------------------------------------------------------------

    def new_id(self) -> MessageId:
        self._ids += 1
        return MessageId(f"m{self._ids}")

    def new_call_id(self) -> CallId:
        self._call_ids += 1
        return CallId(f"c{self._call_ids}")

    def is_waiting(self, each: OpenCall) -> bool:
        return each.tool is None and (each.call.name in self.client_tools or each.call.name == ASK_USER_QUESTION)

    def settle(
        self,
        each: OpenCall,
        content: str | tuple[InputBlock, ...],
        *,
        is_error: bool = False,
        raw: Json | msgspec.UnsetType = msgspec.UNSET,
    ) -> None:
        self.open.remove(each)
        call = each.call
        self.messages.append(
            ToolMessage(
                id=self.new_id(),
                call_id=call.call_id,
                name=call.name,
                content=content,
                loop=each.loop,
                is_error=is_error,
                raw=raw,
            )
        )

    def count_delta(self, kind: StreamedBlockKind, text: str) -> None:
        self.deltas.append((kind, text))
        if self.dies_after_deltas is not None and len(self.deltas) >= self.dies_after_deltas:
            self.dies_after_deltas = None
            raise Killed

    def count_step(self) -> None:
        self.steps += 1
        if self.dies_after_steps is not None and self.steps >= self.dies_after_steps:
            self.dies_after_steps = None
            raise Killed


class MemoryRun:
    """A `core.agent.Run` of a `Session`."""

    def __init__(self, session: Session, loop: LoopId, agent: Agent) -> None:
        self.session = session
        self.agent = agent
        self.session_id = SessionId("s")
        self.run_id = RunId("r")
        self.loop = loop
        self.user = UserId("alice")
        self.options = session.options
        self.parameters: JsonObject = {}
        self.metadata = session.metadata
        self.state: Json = None
        self.memories = ""
        self.memory_tool: RunnableTool | None = None
        self._blocks: list[Block] = []
        self._requested_calls: list[OpenCall] = []
        self._since_drain = 0

    @property
    def time_zone(self) -> str:
        return effective_time_zone(self.metadata)

    @property
    def is_handed_over(self) -> bool:
        return False

    def repeat_step(self) -> None:
        raise AssertionError("the rehearsal agent repeats no step")

    def emit(self, text: str) -> bool:
        return self._grow("text", text)

    def think(self, text: str) -> bool:
        return self._grow("thinking", text)

    def add(self, block: Block) -> None:
        self._blocks.append(block)
        if isinstance(block, Text | Thinking):
            self.session.count_delta("text" if isinstance(block, Text) else "thinking", block.text)

    def plan(self, plan: PlanUpdated) -> None:
        self.session.plans.append(plan)

    def stage(self, name: str | None) -> None:
        raise AssertionError("the rehearsal agent has no stages")

    def share(self, state: Json) -> None:
        raise AssertionError("the rehearsal agent shares no state")

    def card(self, card: Json) -> None:
        self.session.cards.append(card)

    def call(self, name: str, arguments: JsonObject, *, tool: RunnableTool | None = None) -> CallId:
        call_id = self.session.new_call_id()
        self._requested_calls.append(OpenCall(Call(call_id=call_id, name=name, input=arguments), self.loop, tool))
        if tool is not None:
            self.session.call_tools.append(tool)
        return call_id

    def record(
        self,
        name: str,
        arguments: JsonObject,
        *,
        origin: str | None = None,
        server: str | None = None,
        deniable: bool = False,
    ) -> Recorded:
        raise AssertionError("the rehearsal agent has its calls run by the engine")

    def recorded(self) -> Sequence[Recorded]:
        return ()

    async def drain(self) -> None:
        self.session.drains += 1
        self._since_drain = 0
        await asyncio.sleep(0)

    async def end_step(
        self,
        *,
        usage: Usage | None = None,
        model: str | None = None,
        context_window: int | None = None,
        provider_data: Json = None,
        private: Json = None,
    ) -> Sequence[ToolMessage]:
        requested, self._requested_calls = self._requested_calls, []
        self._blocks += [each.call for each in requested]
        self._close("completed", usage)
        self.session.open += requested
        results = await self.settle()
        self.session.count_step()
        return [results[each.call.call_id] for each in requested]

    def offered_tools(self) -> Sequence[ToolSpec]:
        return [tool.spec for tool in self.agent.spec.tools]

    async def turn(self) -> Sequence[Message]:
        if self.loop != ROOT:
            return self.session.reply_messages(self.loop)
        question = [each for each in self.session.messages if isinstance(each, UserMessage)][-1:]
        return [*question, *self.session.reply_messages()]

    async def history(self) -> AsyncGenerator[Message, None]:
        for message in reversed(self.session.messages):
            if message.loop == ROOT:
                yield message

    async def keep(self, writes: Mapping[str, bytes | None], *, durable: bool = True) -> None:
        raise AssertionError("the rehearsal agent keeps nothing")

    async def kept(self, below: str = "", *, after: str | None = None, limit: int = 1000) -> Mapping[str, bytes]:
        raise AssertionError("the rehearsal agent keeps nothing")

    async def summary(self) -> str | None:
        return None

    async def context(self, max_messages: int) -> Sequence[Message]:
        return self.session.messages[-max_messages:]

    async def compact(self, summary: str, keep_from: MessageId, *, tokens_before: int, tokens_after: int) -> None:
        raise AssertionError("the rehearsal agent compacts nothing")

    # --- as the engine does ---------------------------------------------------------------------------------------

    async def settle(self) -> dict[CallId, ToolMessage]:
        """Run the loop's open calls in reverse order, because nothing may rely on the order of results."""
        session = self.session
        for each in [each for each in reversed(session.open) if each.loop == self.loop]:
            if session.is_waiting(each):
                continue
            if each.call.name == FORK:
                await self._fork(each)
                continue
            tool = each.tool or self.agent.tool(each.call.name)
            if tool is None:
                session.settle(each, not_found_result(each.call.name), is_error=True)
                continue
            is_error, value = await run_tool(tool, each.call.input, Context(self, each.call.call_id, each.call.input))
            raw = value if isinstance(value, dict) else msgspec.UNSET
            session.settle(each, result_content(value), is_error=is_error, raw=raw)
        if any(each.loop == self.loop for each in session.open):
            raise Paused
        return {each.call_id: each for each in session.reply_messages(self.loop) if isinstance(each, ToolMessage)}

    async def _fork(self, each: OpenCall) -> None:
        child = self.agent.child(each.call)
        assert child is not None
        run = MemoryRun(self.session, fork_loop(each.call.call_id), child)
        try:
            await run.settle()
            await child.play(run)
            run.finish()
        except Paused:
            return
        except Killed:
            run.finish("cut")
            raise
        texts = [text_of(m.content) for m in self.session.reply_messages(run.loop) if isinstance(m, AssistantMessage)]
        self.session.settle(each, next((text for text in reversed(texts) if text), ""))

    def finish(self, status: Any = "completed") -> None:
        if self._blocks:
            self._close(status, None)

    def _close(self, status: Any, usage: Usage | None) -> None:
        blocks, self._blocks = tuple(self._blocks), []
        message = AssistantMessage(id=self.session.new_id(), content=blocks, loop=self.loop, status=status, usage=usage)
        self.session.messages.append(message)

    def _grow(self, kind: StreamedBlockKind, text: str) -> bool:
        last = self._blocks[-1]
        if kind == "text":
            assert isinstance(last, Text)
            self._blocks[-1] = Text(last.text + text)
        else:
            assert isinstance(last, Thinking)
            self._blocks[-1] = Thinking(last.text + text)
        self.session.count_delta(kind, text)
        self._since_drain += 1
        return self._since_drain >= DRAIN_AFTER


async def run_tool(tool: RunnableTool, arguments: JsonObject, context: Context) -> tuple[bool, Json]:
    """Run a tool as the engine would."""
    try:
        return False, await tool.run(arguments, context)
    except (ToolFailed, RuntimeError) as error:
        return True, failed_result(str(error))
