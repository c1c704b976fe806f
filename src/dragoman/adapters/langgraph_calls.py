"""The tool calls of a run of a graph: each runs at most once, whatever the graph does after a crash.

A tool of a tool node asks here before it runs. What the log has as its result is given again; what a crash interrupted
follows the tool's restart policy; everything else is marked as started first, and settled as soon as it is done.

    lg-run/LOOP/asked   the interrupts that were raised inside tools, each with the call
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec
from langchain_core.messages import ToolMessage as LangChainResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt, interrupt

from dragoman.adapters.langgraph_messages import dump_result, load_result, result_of
from dragoman.core.agent import Recorded, Run
from dragoman.core.answers import INTERRUPTED_RESULT, denied_result
from dragoman.core.content import AssistantMessage, JsonObject, Message, ToolMessage
from dragoman.core.events import CallOutcome
from dragoman.core.inputs import Decision
from dragoman.core.tools import ASK_USER_QUESTION, OnRestart

AGAIN = "!"
"""Before a call's id: the interrupt asks whether a call that a crash interrupted may run again."""


class Rules(Protocol):
    """What the agent says about a run's tools and words."""

    speaks: frozenset[str] | None
    """The nodes whose words are the answer; None: all."""

    def restart_rule(self, tool: str) -> OnRestart:
        """What happens to a call that was running when the server died."""


class Calls:
    """The calls of one played run, by the ids that the models gave them."""

    def __init__(self, run: Run, rules: Rules, turn: Sequence[Message]) -> None:
        self._run = run
        self._rules = rules
        self._serializer = JsonPlusSerializer()
        self._open: dict[str, Recorded] = {each.call.origin: each for each in run.recorded() if each.call.origin}
        self._results: dict[str, ToolMessage] = {}
        results = {each.call_id: each for each in turn if isinstance(each, ToolMessage)}
        for message in turn:
            for call in message.calls() if isinstance(message, AssistantMessage) else ():
                if call.origin is not None and call.call_id in results:
                    self._results[call.origin] = results[call.call_id]
        self._crashed = {origin for origin, each in self._open.items() if each.state == "started"}
        """The calls that were running when the server died."""
        self._inside: dict[str, str] = {}
        """The interrupts that were raised inside tools, with their calls."""
        self.misfits: dict[str, str] = {}
        """Why the answers to interrupts do not fit, so that they are asked again."""
        self._key = f"lg-run/{run.loop}/asked"

    async def restore(self) -> None:
        """Read which calls were not interrupted by a crash, but wait inside their tools."""
        for value in (await self._run.kept(self._key, limit=1)).values():
            self._inside = msgspec.json.decode(value, type=dict[str, str])
        self._crashed -= set(self._inside.values())
        self._crashed |= {each.removeprefix(AGAIN) for each in self._inside.values() if each.startswith(AGAIN)}

    def is_announced(self, origin: str) -> bool:
        """Whether a call is in the log."""
        return origin in self._open or origin in self._results

    def find(self, origin: str) -> Recorded | ToolMessage | None:
        """An open call or the result of one."""
        return self._open.get(origin) or self._results.get(origin)

    def waiting_inside(self, interrupt_id: str) -> Recorded | None:
        """The call in whose tool an interrupt was raised."""
        return self._open.get(self._inside.get(interrupt_id, "").removeprefix(AGAIN))

    def record(self, name: str, arguments: JsonObject, origin: str | None) -> Recorded:
        """Note a call. It is in the log when the run's step ends."""
        recorded = self._run.record(name, arguments, origin=origin)
        if origin is not None:
            self._open[origin] = recorded
            self._results.pop(origin, None)
        return recorded

    async def run_tool(self, tool: BaseTool, call: Any, config: RunnableConfig | None, options: Any) -> Any:  # noqa: ANN401  # as LangChain passes them
        """Run the tool of an announced call, unless the log has its result."""
        origin: str = call["id"]
        recorded = self._open.get(origin)
        if recorded is None:
            return load_result(self._serializer, self._results[origin], origin)
        refused = await self._refuse_after_crash(tool.name, origin, recorded)
        if refused is not None:
            return refused
        if recorded.state != "started":
            await recorded.start()
        if left := {each: other for each, other in self._inside.items() if other.removeprefix(AGAIN) == origin}:
            self._inside = {each: other for each, other in self._inside.items() if each not in left}
            await self._keep_inside()
        try:
            result = await tool.ainvoke(call, config, **options)
        except GraphInterrupt as error:
            await self._note_inside(error, origin)
            raise
        await self.settle(origin, result)
        return result

    async def _refuse_after_crash(self, name: str, origin: str, recorded: Recorded) -> LangChainResult | None:
        """What the model gets instead of a call that a crash interrupted; None if the tool runs."""
        rule = self._rules.restart_rule(name)
        if origin not in self._crashed:
            return None
        if rule == "repeat":
            self._crashed.discard(origin)
            return None
        if rule == "ask" and (recorded.state != "started" or recorded.may_ask_again):
            try:
                request = {"name": name, "args": recorded.call.input}
                answer = interrupt({"action_requests": [request]})
            except GraphInterrupt as error:
                await self._note_inside(error, AGAIN + origin)
                raise
            if answer["decisions"][0]["type"] == "approve":
                self._crashed.discard(origin)
                return None
        await recorded.done(INTERRUPTED_RESULT, outcome="interrupted")
        self._open.pop(origin, None)
        return LangChainResult(INTERRUPTED_RESULT, tool_call_id=origin, name=name, status="error")

    async def settle(self, origin: str, value: object) -> None:
        """Give a call the result that its tool returned, or that entered the state, if it has none yet."""
        recorded = self._open.pop(origin, None)
        if recorded is None:
            return
        content, is_error = result_of(value, origin)
        outcome: CallOutcome = "failed" if is_error else "done"
        if is_error and isinstance(recorded.answer, Decision) and not recorded.answer.granted:
            outcome = "denied"
        private = dump_result(self._serializer, value)
        # The tool's task ends next in most cases. What may have effects after that waits until all this is durable.
        await recorded.done(content, outcome=outcome, private=private, durable=False)

    async def answer(self, origin: str) -> None:
        """Settle a question or an approval that has no tool with its answer."""
        recorded = self._open.pop(origin, None)
        if recorded is None:
            return
        given = recorded.answer
        if isinstance(given, ToolMessage):
            await recorded.done(given.content if given.raw is msgspec.UNSET else given.raw)
        elif given is None or given.granted:  # no answer: the session trusts the tool
            await recorded.done("Approved")
        else:
            is_question = recorded.call.name == ASK_USER_QUESTION
            reason = "The user did not answer" if is_question else denied_result(given.reason)
            await recorded.done(reason, outcome="denied")

    async def fail_started(self, error: BaseException) -> None:
        """Settle the calls whose tools' exceptions end the run."""
        for recorded in self._run.recorded():
            if recorded.state == "started":
                await recorded.done(f"Tool execution failed: {str(error) or type(error).__name__}", outcome="failed")

    def is_repeat(self, interrupt_id: str) -> bool:
        """Whether an interrupt asks if a call that a crash interrupted runs again."""
        return self._inside.get(interrupt_id, "").startswith(AGAIN)

    async def _note_inside(self, error: GraphInterrupt, origin: str) -> None:
        interrupts: Sequence[Interrupt] = error.args[0] if error.args else ()
        self._inside |= {each.id: origin for each in interrupts}
        await self._keep_inside()

    async def _keep_inside(self) -> None:
        await self._run.keep({self._key: msgspec.json.encode(self._inside) if self._inside else None}, durable=False)
