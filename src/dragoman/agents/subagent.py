"""An agent at work on a task that another agent gave it.

It plays on a run whose conversation is the task and what it did about it since: any agent can be a sub-agent, and none
has to know.
"""

from collections.abc import AsyncIterator, Mapping, Sequence

from dragoman.core.agent import Agent, Run, RunnableTool
from dragoman.core.content import Block, Call, Json, JsonObject, Message, ToolMessage, Usage, UserMessage
from dragoman.core.events import PlanUpdated, StopReason
from dragoman.core.ids import CallId, MessageId
from dragoman.core.tools import AgentSpec, ToolSpec


class SubAgent:
    """`core.agent.Agent`: another one, with a task."""

    def __init__(self, agent: Agent, task: str) -> None:
        self._agent = agent
        self._task = task

    @property
    def spec(self) -> AgentSpec:
        """See `Agent.spec`."""
        return self._agent.spec

    def tool(self, name: str) -> RunnableTool | None:
        """See `Agent.tool`."""
        return self._agent.tool(name)

    def child(self, call: Call) -> Agent | None:
        """See `Agent.child`."""
        return self._agent.child(call)

    async def play(self, run: Run) -> StopReason | None:
        """See `Agent.play`."""
        return await self._agent.play(TaskRun(run, self._agent.spec, self._task))


class TaskRun:
    """`core.agent.Run` of a sub-agent's loop, with the task in the place of the user's message.

    Compactions are kept for as long as the object lives: the log has them for the session's own conversation only.
    """

    def __init__(self, run: Run, spec: AgentSpec, task: str) -> None:
        self.session_id = run.session_id
        self.run_id = run.run_id
        self.loop = run.loop
        self.user = run.user
        self.options: Mapping[str, str] = run.options
        self.parameters: JsonObject = run.parameters
        self.metadata: JsonObject = run.metadata
        self.memories = run.memories
        self.memory_tool: RunnableTool | None = run.memory_tool
        self._run = run
        self._own_tool_names = {tool.spec.name for tool in spec.tools}
        self._task = UserMessage(id=MessageId(f"task:{run.loop}"), content=task, loop=run.loop)
        self._summary: str | None = None
        self._keep_from: MessageId | None = None

    @property
    def time_zone(self) -> str:
        """See `Run.time_zone`."""
        return self._run.time_zone

    def emit(self, text: str) -> bool:
        """See `Run.emit`."""
        return self._run.emit(text)

    def think(self, text: str) -> bool:
        """See `Run.think`."""
        return self._run.think(text)

    def add(self, block: Block) -> None:
        """See `Run.add`."""
        self._run.add(block)

    def plan(self, plan: PlanUpdated) -> None:
        """See `Run.plan`."""
        self._run.plan(plan)

    def stage(self, name: str | None) -> None:
        """See `Run.stage`."""
        self._run.stage(name)

    def share(self, state: Json) -> None:
        """See `Run.share`."""
        self._run.share(state)

    def card(self, card: Json) -> None:
        """See `Run.card`."""
        self._run.card(card)

    def call(self, name: str, arguments: JsonObject, *, tool: RunnableTool | None = None) -> CallId:
        """See `Run.call`."""
        return self._run.call(name, arguments, tool=tool)

    async def drain(self) -> None:
        """See `Run.drain`."""
        await self._run.drain()

    async def end_step(self, *, usage: Usage | None = None, model: str | None = None) -> Sequence[ToolMessage]:
        """See `Run.end_step`."""
        return await self._run.end_step(usage=usage, model=model)

    def offered_tools(self) -> Sequence[ToolSpec]:
        """See `Run.offered`. The application's tools are for the agent that the application talks to."""
        return [tool for tool in self._run.offered_tools() if tool.name in self._own_tool_names]

    async def turn(self) -> Sequence[Message]:
        """See `Run.turn`."""
        return [self._task, *await self._run.turn()]

    async def history(self) -> AsyncIterator[Message]:
        """See `Run.history`."""
        for message in reversed(await self.turn()):
            yield message

    async def summary(self) -> str | None:
        """See `Run.summary`."""
        return self._summary

    async def context(self, max_messages: int) -> Sequence[Message]:
        """See `Run.context`."""
        messages = list(await self.turn())
        begin = next((place for place, each in enumerate(messages) if each.id == self._keep_from), 0)
        return messages[begin:]  # all of it is one turn

    async def compact(self, summary: str, keep_from: MessageId, *, tokens_before: int, tokens_after: int) -> None:
        """See `Run.compact`."""
        self._summary, self._keep_from = summary, keep_from
