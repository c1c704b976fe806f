"""The contract between the engine and whatever is served: how an agent is asked to play, and what it can do meanwhile.

Pure: types only. The engine implements `Run`; `dragoman.agents` holds the agents. An agent keeps nothing between
two runs: what it needs to go on, it reads off the history.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from dragoman.core.content import Block, Call, Json, JsonObject, Message, ToolMessage, Usage
from dragoman.core.events import PlanUpdated, StopReason
from dragoman.core.ids import CallId, LoopId, MessageId, RunId, SessionId, UserId
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.tools import AgentSpec, ServerTool, ToolSpec


class AgentError(Exception):
    """An agent's own failure: code and message are written for clients. Any other exception stays in the log.

    Args:
        code: snake_case, for programs.
        message: a sentence, for people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ToolFailed(Exception):
    """A tool's failure as a result: the model reads the message and goes on."""


class Paused(BaseException):
    """The step needs the application: the run ends here and a later one goes on. Not for catching."""


class ToolContext(Protocol):
    """What a tool may know about its call."""

    session_id: SessionId
    run_id: RunId
    call_id: CallId
    user: UserId
    options: Mapping[str, str]
    """The agent's options in force, defaults filled in, secrets in clear."""
    metadata: RunMetadata
    """What is stored with the run beside its input, such as `client_time`, `user` or `model`."""

    @property
    def time_zone(self) -> str:
        """The IANA zone of the run's events."""


class RunnableTool(Protocol):
    """A server tool that can be run."""

    @property
    def declaration(self) -> ServerTool:
        """Its face and its policy."""

    async def run(self, arguments: JsonObject, context: ToolContext) -> Json:
        """Do it. Cancelled on stop and when its time is up.

        Raises:
            Exception: any; its message becomes the result `Tool execution failed: MESSAGE`.
        """


class Run(Protocol):
    """What an agent has while it plays: one loop of one run."""

    session_id: SessionId
    run_id: RunId
    loop: LoopId
    user: UserId
    options: Mapping[str, str]
    """Options in force, defaults filled in, secrets in clear."""
    parameters: JsonObject
    """Settings of the model that the application chose for this run, by their OpenAI names."""
    metadata: RunMetadata
    """What is stored with the run beside its input."""
    memories: str
    """What is remembered of the user, in words for a model's instructions; empty when nothing is, or is to be told."""
    memory_tool: RunnableTool | None
    """The built-in tool by which memories are written down; None where the session's memory is off."""

    @property
    def time_zone(self) -> str:
        """The IANA zone of the run's events."""

    def emit(self, text: str) -> bool:
        """Add words to the answer's open text block. A plain call: it never waits.

        Returns:
            True when enough has gathered that the agent should `await drain()` before it goes on.
        """

    def think(self, text: str) -> bool:
        """Add words to the open thinking block, as `emit` does."""

    def add(self, block: Block) -> None:
        """Add a whole block (image, data, file). A text or a thinking begins a new block, which may go on growing."""

    def plan(self, plan: PlanUpdated) -> None:
        """Show a plan."""

    def stage(self, name: str | None) -> None:
        """Enter a stage of the work; the one before is over. None: only that."""

    def share(self, state: Json) -> None:
        """Replace the state that is shared with the application. Raises ValueError when it has too many levels."""

    def card(self, card: Json) -> None:
        """Give the answer a user interface (UI schema 2.0)."""

    def call(self, name: str, arguments: JsonObject, *, tool: RunnableTool | None = None) -> CallId:
        """Ask for a tool in this step. It runs in `end_step`, together with the step's other calls.

        Args:
            tool: a hidden tool that comes with the call; else the name decides, by the tools in force.
        """

    async def drain(self) -> None:
        """Give way to others, and wait while too much of this run is not durable yet."""

    async def end_step(self, *, usage: Usage | None = None, model: str | None = None) -> Sequence[ToolMessage]:
        """Close the model step: its message, then run its calls and give their results, in the order of the calls.

        Raises:
            Paused: a call needs the application.
            AgentError: `max_steps`, when the next step would be one too many.
        """

    def offered_tools(self) -> Sequence[ToolSpec]:
        """The tools in force, as a model should be told of them: the application's and the agent's own."""

    async def turn(self) -> Sequence[Message]:
        """This loop's messages since the last user message, that one included. A sub-agent's loop: all of them.

        A message that a crash cut off is left out: its step is to be played again.
        """

    def history(self) -> AsyncIterator[Message]:
        """The session's root messages, newest first, read as far as one asks."""

    async def summary(self) -> str | None:
        """The newest compaction's summary; `context` begins after what it stands for."""

    async def context(self, max_messages: int) -> Sequence[Message]:
        """What a model should read, oldest first: the newest messages since the last compaction, at most so many.

        All since the newest user message are among them, if they are more.
        """

    async def compact(self, summary: str, keep_from: MessageId, *, tokens_before: int, tokens_after: int) -> None:
        """Record that `summary` stands for everything before message `keep_from`, in place of the older messages."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What stands for a conversation's older messages, all those before message `keep_from`."""

    text: str
    keep_from: MessageId
    tokens_before: int
    tokens_after: int


@runtime_checkable
class Summarizer(Protocol):
    """An agent that can sum up a conversation when somebody asks for it, outside of a run."""

    async def summarize(self, messages: Sequence[Message], previous_summary: str | None) -> Summary | None:
        """Sum up all but the newest messages, whose summary so far is `earlier`; None when that cannot be done."""


class Agent(Protocol):
    """Something that can be served."""

    @property
    def spec(self) -> AgentSpec:
        """Its face."""

    def tool(self, name: str) -> RunnableTool | None:
        """The tool of that name, exposed or hidden."""

    def child(self, call: Call) -> "Agent | None":
        """The sub-agent behind a call of the built-in tool `Agent`; None when the call makes no sense."""

    async def play(self, run: Run) -> StopReason | None:
        """Answer. Returns the reason to stop for; None is `end_turn`. Cancelled when the run is stopped."""
