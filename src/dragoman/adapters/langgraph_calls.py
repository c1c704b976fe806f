"""The tool calls of a run of a graph: each runs at most once, whatever the graph does after a crash.

A tool of a tool node asks here before it runs. What the log has as its result is given again; what a crash interrupted
follows the tool's restart policy; everything else is marked as started first, and settled as soon as it is done.

A tool may interrupt the graph several times. LangGraph finds the answers of a task by their order in it, in which a
call that has its result has no place any more. So each call has its own answers here, and each of its interrupts an id
of its own.

    lg-run/LOOP/interrupts   `ToolInterrupts`
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from hashlib import sha256
from itertools import count
from typing import Any, Protocol

import msgspec
from langchain_core.messages import ToolMessage as LangChainResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt

from dragoman.adapters.langgraph_messages import dump_result, load_result, result_of
from dragoman.core.agent import Recorded, Run
from dragoman.core.answers import INTERRUPTED_RESULT, denied_result, failed_result
from dragoman.core.content import AssistantMessage, JsonObject, Message, ToolMessage
from dragoman.core.events import CallOutcome
from dragoman.core.ids import CallId
from dragoman.core.inputs import Decision
from dragoman.core.tools import ASK_USER_QUESTION, OnRestart

SCRATCHPAD = "__pregel_scratchpad"
"""Where LangGraph's `interrupt` finds the answers, in the `configurable` of a task."""
AGAIN = -1
"""In place of an interrupt's number: it asks whether a call that a crash interrupted may run again."""
NESTED = -2
"""In place of an interrupt's number: a graph in the tool raised it, and LangGraph gives it the answer."""


class ToolInterrupt(msgspec.Struct, frozen=True, array_like=True):
    """An interrupt that a tool raised."""

    call_id: CallId
    number: int
    """How many the call raised before, `AGAIN` or `NESTED`."""
    is_first: bool = True
    """Whether the call itself waits for the answer."""


class ToolInterrupts(msgspec.Struct):
    """The interrupts of a graph's tools, and the answers to them."""

    inside: dict[str, ToolInterrupt] = {}
    """The interrupts that were raised inside tools of open calls, by id."""
    answers: dict[CallId, list[Any]] = {}
    """The answers that open calls got, in order."""


class Rules(Protocol):
    """What the agent says about a run's tools and words."""

    speaks: frozenset[str] | None
    """The nodes whose words are the answer; None: all."""

    def guards(self, tool: str) -> bool:
        """Whether the tool is one of a tool node, whose calls ask the run before they begin."""

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
        self._interrupts = ToolInterrupts()
        self._errors: dict[str, Exception] = {}
        """What tools raised at last."""
        self._raised: set[str] = set()
        """The interrupts that tools raised in this play and that have no answer yet."""
        self.misfits: dict[str, str] = {}
        """Why the answers to interrupts do not fit, so that they are asked again."""
        self._key = f"lg-run/{run.loop}/interrupts"

    async def restore(self) -> None:
        """Read which calls were not interrupted by a crash, but wait inside their tools."""
        for value in (await self._run.kept(self._key, limit=1)).values():
            stored = msgspec.json.decode(value, type=ToolInterrupts)
            is_open = {each.call.call_id for each in self._open.values()}
            self._interrupts = ToolInterrupts(
                inside={each: raised for each, raised in stored.inside.items() if raised.call_id in is_open},
                answers={each: given for each, given in stored.answers.items() if each in is_open},
            )
        for origin, recorded in self._open.items():
            mine = [each for each, raised in self._interrupts.inside.items() if raised.call_id == recorded.call.call_id]
            if any(self.is_repeat(each) for each in mine):
                self._crashed.add(origin)
            if any(not self.is_repeat(each) and not self.is_answered(each) for each in mine):
                self._crashed.discard(origin)

    def _call_of(self, raised: ToolInterrupt) -> Recorded | None:
        return next((each for each in self._open.values() if each.call.call_id == raised.call_id), None)

    def is_announced(self, origin: str) -> bool:
        """Whether a call is in the log."""
        return origin in self._open or origin in self._results

    def find(self, origin: str) -> Recorded | ToolMessage | None:
        """An open call or the result of one."""
        return self._open.get(origin) or self._results.get(origin)

    def tool_interrupt(self, interrupt_id: str) -> ToolInterrupt | None:
        """What is known of an interrupt that a tool raised; None: no tool raised it."""
        return self._interrupts.inside.get(interrupt_id)

    def waiting_inside(self, interrupt_id: str) -> Recorded | None:
        """The call that waits itself for the answer to an interrupt of its tool.

        That is the first interrupt of a call. For each further one a call of its own waits, because applications name
        an interrupt by its call: an approval must not be taken for that of the next one.
        """
        raised = self.tool_interrupt(interrupt_id)
        return self._call_of(raised) if raised is not None and raised.is_first else None

    def is_answered(self, interrupt_id: str) -> bool:
        """Whether an interrupt that a tool raised has its answer already, which a crash kept the tool from using."""
        raised = self.tool_interrupt(interrupt_id)
        recorded = None if raised is None else self._call_of(raised)
        if raised is None or recorded is None or interrupt_id in self._raised:
            return False
        if raised.number >= 0:
            return raised.number < len(self._answers(raised.call_id))
        if raised.number == AGAIN:
            return recorded.state == "started" and not recorded.may_ask_again
        if raised.is_first:
            return recorded.state == "started" and recorded.answer is not None
        return self._open.keys().isdisjoint((interrupt_id, f"{interrupt_id}#0"))

    async def deliver_answers(self, answers: Mapping[str, Any]) -> Set[str]:
        """Hand tools the answers to their interrupts, by id. Returns the ids of those that tools here raised."""
        inside = {
            each for each in answers if (asked := self.tool_interrupt(each)) is not None and asked.number != NESTED
        }
        for interrupt_id in inside:
            raised = self._interrupts.inside[interrupt_id]
            if raised.number != AGAIN:
                before = self._answers(raised.call_id)[: raised.number]
                self._interrupts.answers[raised.call_id] = [*before, answers[interrupt_id]]
        self._raised -= answers.keys()
        if inside:
            await self._store()
        return inside

    async def discard_answer(self, interrupt_id: str) -> None:
        """Forget the answer that a tool got to one of its interrupts."""
        raised = self.tool_interrupt(interrupt_id)
        if raised is not None and raised.number >= 0:
            self._interrupts.answers[raised.call_id] = self._answers(raised.call_id)[: raised.number]
            await self._store()

    def _answers(self, call_id: CallId) -> list[Any]:
        return self._interrupts.answers.get(call_id, [])

    def suspend(self) -> None:
        """Keep the calls open whose tools have asked, and run again when there are answers."""
        for interrupt_id, raised in self._interrupts.inside.items():
            recorded = self._call_of(raised)
            if recorded is not None and recorded.state == "started" and not self.is_answered(interrupt_id):
                recorded.suspend()

    def record(self, name: str, arguments: JsonObject, origin: str | None) -> Recorded:
        """Note a call. It is in the log when the run's step ends."""
        recorded = self._run.record(name, arguments, origin=origin, deniable=self._rules.guards(name))
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
        denial = self._denial(recorded)
        if denial is not None:
            result = LangChainResult(denial, tool_call_id=origin, name=tool.name, status="error")
            await self.settle(origin, result)
            return result
        if recorded.state != "started":
            await recorded.start()
        call_id = recorded.call.call_id
        counter = count()
        try:
            result = await tool.ainvoke(call, self._with_answers(config, call_id, counter), **options)
        except GraphInterrupt as error:
            number = len(self._answers(call_id))
            is_own = next(counter) > number
            raised = ToolInterrupt(call_id, number if is_own else NESTED, recorded.answer is None)
            raise await self._asked(error, raised) from None
        except Exception as error:  # the graph decides what becomes of it
            self._errors[origin] = error
            raise
        await self.settle(origin, result)
        return result

    def _denial(self, recorded: Recorded) -> str | None:
        """The result of a call that the user denied, although the graph had asked about another call of its step."""
        asked = any(raised.call_id == recorded.call.call_id for raised in self._interrupts.inside.values())
        answer = recorded.answer
        if asked or not isinstance(answer, Decision) or answer.granted:
            return None
        return denied_result(answer.reason)

    async def _refuse_after_crash(self, name: str, origin: str, recorded: Recorded) -> LangChainResult | None:
        """What the model gets instead of a call that a crash interrupted; None if the tool runs."""
        rule = self._rules.restart_rule(name)
        if origin not in self._crashed:
            return None
        if rule == "repeat":
            self._crashed.discard(origin)
            return None
        if rule == "ask" and recorded.state == "started" and recorded.may_ask_again:
            raised = ToolInterrupt(recorded.call.call_id, AGAIN)
            request = {"name": name, "args": recorded.call.input}
            raise await self._asked(GraphInterrupt((Interrupt({"action_requests": [request]}),)), raised)
        if recorded.state == "answered" and isinstance(recorded.answer, Decision) and recorded.answer.granted:
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
        self._interrupts.answers.pop(recorded.call.call_id, None)  # `restore` leaves out the rest of what is not open
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

    async def settle_failed(self) -> None:
        """Settle the calls whose tools raised, after an exception has ended the graph."""
        for recorded in self._run.recorded():
            error = self._errors.get(recorded.call.origin or "")
            if recorded.state == "started" and error is not None:
                await recorded.done(failed_result(type(error).__name__), outcome="failed")

    def is_repeat(self, interrupt_id: str) -> bool:
        """Whether an interrupt asks if a call that a crash interrupted runs again."""
        raised = self.tool_interrupt(interrupt_id)
        return raised is not None and raised.number == AGAIN

    def _with_answers(
        self, config: RunnableConfig | None, call_id: CallId, counter: Iterator[int]
    ) -> RunnableConfig | None:
        """A tool's config, with the answers of this call in place of those of its task.

        Args:
            config: as LangGraph passes it.
            call_id: the call.
            counter: counts the interrupts that the tool raises.
        """
        if config is None or SCRATCHPAD not in config.get("configurable", {}):
            return config
        scratchpad = config["configurable"][SCRATCHPAD]
        own = replace(scratchpad, interrupt_counter=counter.__next__, resume=self._answers(call_id))
        return {**config, "configurable": {**config["configurable"], SCRATCHPAD: own}}

    async def _asked(self, error: GraphInterrupt, raised: ToolInterrupt) -> GraphInterrupt:
        """The interrupt of a tool, under an id of its own. Those of a graph in the tool keep theirs."""
        interrupts: Sequence[Interrupt] = error.args[0] if error.args else ()
        if raised.number != NESTED:
            own_id = sha256(f"{raised.call_id} {raised.number}".encode()).hexdigest()[:32]  # as long as LangGraph's
            interrupts = [replace(each, id=own_id) for each in interrupts]
        self._interrupts.inside |= {each.id: raised for each in interrupts}
        self._raised |= {each.id for each in interrupts}
        await self._store()
        return GraphInterrupt(tuple(interrupts))

    async def _store(self) -> None:
        await self._run.keep({self._key: msgspec.json.encode(self._interrupts)}, durable=False)
