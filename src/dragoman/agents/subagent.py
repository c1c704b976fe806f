"""An agent that works on a task given by another agent.

It runs on a run whose conversation consists of the task and of its own messages since, so any agent can be a sub-agent
without being written for it.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence

import msgspec

from dragoman.core.agent import Agent, Run, RunnableTool
from dragoman.core.content import JsonObject, Message, UserMessage
from dragoman.core.events import StopReason
from dragoman.core.ids import MessageId
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.tools import AgentSpec, ToolSpec


class SubAgent:
    """An agent together with its task."""

    def __init__(self, agent: Agent, task: str) -> None:
        self._agent = agent
        self._task = task
        self.tool = agent.tool
        self.child = agent.child

    @property
    def spec(self) -> AgentSpec:
        """The agent's specification."""
        return self._agent.spec

    async def play(self, run: Run) -> StopReason | None:
        """Run the agent with the task as its user message."""
        return await self._agent.play(TaskRun(run, self._agent.spec, self._task))


# Large: it has every attribute of `core.agent.Run`.
class TaskRun:
    """The `Run` of a sub-agent's loop, with the task in place of the user's message.

    Compactions last only as long as this object: the log stores those of the session's own conversation only. The
    attributes are those of `core.agent.Run`.
    """

    def __init__(self, run: Run, spec: AgentSpec, task: str) -> None:
        self.session_id = run.session_id
        self.run_id = run.run_id
        self.loop = run.loop
        self.user = run.user
        self.options: Mapping[str, str] = run.options
        self.parameters: JsonObject = run.parameters
        # The schema is that of the run's answer, not of a sub-agent's.
        self.metadata: RunMetadata = msgspec.structs.replace(run.metadata, output_schema=None)
        self.state = run.state
        self.memories = run.memories
        self.memory_tool: RunnableTool | None = run.memory_tool
        self.emit = run.emit
        self.think = run.think
        self.add = run.add
        self.plan = run.plan
        self.stage = run.stage
        self.share = run.share
        self.card = run.card
        self.call = run.call
        self.record = run.record
        self.recorded = run.recorded
        self.drain = run.drain
        self.repeat_step = run.repeat_step
        self.end_step = run.end_step
        self.keep = run.keep
        self.kept = run.kept
        self._run = run
        self._own_tool_names = {tool.spec.name for tool in spec.tools}
        self._task = UserMessage(id=MessageId(f"task:{run.loop}"), content=task, loop=run.loop)
        self._summary: str | None = None
        self._keep_from: MessageId | None = None

    @property
    def time_zone(self) -> str:
        """The IANA time zone of the run's events."""
        return self._run.time_zone

    @property
    def is_handed_over(self) -> bool:
        """Whether the run is continued later, although its task is cancelled now."""
        return self._run.is_handed_over

    def offered_tools(self) -> Sequence[ToolSpec]:
        """The agent's own tools. The application's tools are only for the agent that the application talks to."""
        return [tool for tool in self._run.offered_tools() if tool.name in self._own_tool_names]

    async def turn(self) -> Sequence[Message]:
        """The task and all messages of this loop."""
        return [self._task, *await self._run.turn()]

    async def history(self) -> AsyncGenerator[Message, None]:
        """The messages of `turn`, newest first."""
        for message in reversed(await self.turn()):
            yield message

    async def summary(self) -> str | None:
        """The summary of the newest compaction."""
        return self._summary

    async def context(self, max_messages: int) -> Sequence[Message]:
        """The messages since the last compaction. `max_messages` has no effect, because all of them are one turn."""
        messages = list(await self.turn())
        start = next((index for index, each in enumerate(messages) if each.id == self._keep_from), 0)
        return messages[start:]

    async def compact(self, summary: str, keep_from: MessageId, *, tokens_before: int, tokens_after: int) -> None:
        """Replace the messages before `keep_from` with the summary."""
        self._summary, self._keep_from = summary, keep_from
