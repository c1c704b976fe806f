"""The contract between the engine and agents: how an agent is run, and what it can do meanwhile. Pure: types only.

The engine implements `Run`; `dragoman.agents` contains the agents. An agent keeps no state between two runs: it reads
what it needs to continue from the history.
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
    """An agent's own failure, with a code and a message for clients. Other exceptions are only logged.

    Args:
        code: snake_case, for programs.
        message: a sentence, for people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ToolFailed(Exception):
    """A tool's failure as a result: the model reads the message and continues."""


class Paused(BaseException):
    """The step needs the application: the run ends, and a later one continues. Do not catch this."""


class ToolContext(Protocol):
    """What a tool knows about its call."""

    session_id: SessionId
    run_id: RunId
    call_id: CallId
    user: UserId
    options: Mapping[str, str]
    """The agent's effective options, including defaults. Secrets are in plain text."""
    metadata: RunMetadata
    """What is stored with the run beside its input, such as `client_time`, `user` or `model`."""

    @property
    def time_zone(self) -> str:
        """The IANA zone of the call's event: its argument `event_timezone`, else that of the run."""

    def attach(self, private: Json) -> None:
        """Store a private value with the call's result, as `ToolMessage.private`. It replaces an earlier one."""

    async def keep(self, writes: Mapping[str, bytes | None]) -> None:
        """Keep values with the session, as `Run.keep` does."""

    async def kept(self, below: str = "", *, after: str | None = None, limit: int = 1000) -> Mapping[str, bytes]:
        """The values kept with the session, as `Run.kept` returns them."""


class RunnableTool(Protocol):
    """A server tool that can be run."""

    @property
    def declaration(self) -> ServerTool:
        """The tool's specification and policy."""

    async def run(self, arguments: JsonObject, context: ToolContext) -> Json:
        """Run the tool. It is cancelled on stop and on timeout.

        Raises:
            Exception: any; its message becomes the result `Tool execution failed: MESSAGE`.
        """


class Run(Protocol):
    """What an agent gets to execute one loop of one run."""

    session_id: SessionId
    run_id: RunId
    loop: LoopId
    user: UserId
    options: Mapping[str, str]
    """The effective options, including defaults. Secrets are in plain text."""
    parameters: JsonObject
    """Model parameters that the application chose for this run, by their OpenAI names."""
    metadata: RunMetadata
    """What is stored with the run beside its input."""
    state: Json
    """The state that is shared with the application, as it was when the turn began. None if there is none."""
    memories: str
    """The user's memories as text for a model's instructions; empty if there are none or memory is off."""
    memory_tool: RunnableTool | None
    """The built-in tool that stores memories; None if the session's memory is off."""

    @property
    def time_zone(self) -> str:
        """The IANA zone of the run's events."""

    def emit(self, text: str) -> bool:
        """Add text to the answer's open text block. This never waits.

        Returns:
            True if the agent should `await drain()` before it continues.
        """

    def think(self, text: str) -> bool:
        """Add text to the open thinking block, like `emit`."""

    def add(self, block: Block) -> None:
        """Add a complete block (image, data, file). A text or thinking block is opened and may grow."""

    def plan(self, plan: PlanUpdated) -> None:
        """Publish a plan."""

    def stage(self, name: str | None) -> None:
        """Enter a stage of the work, and leave the previous one. None: only leave it."""

    def share(self, state: Json) -> None:
        """Replace the state that is shared with the application. Raises ValueError if it is nested too deeply."""

    def card(self, card: Json) -> None:
        """Add a user interface (UI schema 2.0) to the answer."""

    def call(self, name: str, arguments: JsonObject, *, tool: RunnableTool | None = None) -> CallId:
        """Request a call in this step. `end_step` executes it, together with the step's other calls.

        Args:
            name: the tool's name.
            arguments: its arguments.
            tool: a hidden tool that comes with the call; by default the enabled tool with that name.
        """

    async def drain(self) -> None:
        """Yield to other tasks, and wait while too much of this run is not durable yet."""

    async def end_step(
        self,
        *,
        usage: Usage | None = None,
        model: str | None = None,
        context_window: int | None = None,
        provider_data: JsonObject | None = None,
        private: Json = None,
    ) -> Sequence[ToolMessage]:
        """Close the model step, execute its calls, and return their results in the order of the calls.

        Args:
            usage: the step's tokens.
            model: the model's name.
            context_window: the model's context window in tokens.
            provider_data: what the model's provider needs back with this step's message.
            private: a value of the agent's own, as `AssistantMessage.private`: it belongs to the message, is hidden
                with its branch and deleted with its session, and no client ever sees it. One that is larger than the
                setting `private_bytes` is not stored.

        Raises:
            Paused: a call needs the application.
            AgentError: `max_steps`, if the run has no step left.
        """

    async def keep(self, writes: Mapping[str, bytes | None]) -> None:
        """Keep values with the session, by key, in one commit with what the run has written before. None removes one.

        They are durable when this returns. No client ever sees them, branches do not affect them, and they are deleted
        with the session. A run that lost its session to another server can write none.

        Raises:
            ValueError: a key or a value is not valid: see `check_kept`.
            AgentError: `kept_limit`: the session's values would be larger than the setting `kept_bytes`.
        """

    async def kept(self, below: str = "", *, after: str | None = None, limit: int = 1000) -> Mapping[str, bytes]:
        """The values kept with the session whose keys begin with `below`, in the order of their keys.

        Args:
            below: the beginning of the keys.
            after: only keys behind this one, to continue.
            limit: maximum number of values.
        """

    def offered_tools(self) -> Sequence[ToolSpec]:
        """The enabled tools, as a model receives them: the application's and the agent's own."""

    async def turn(self) -> Sequence[Message]:
        """This loop's messages since the last user message, that one included. A sub-agent's loop: all of them.

        A message that a crash cut off is left out, because its step is repeated. A call that was repeated with the
        user's permission after a crash has the result of its repetition.
        """

    def history(self) -> AsyncIterator[Message]:
        """The session's root messages, newest first, read on demand."""

    async def summary(self) -> str | None:
        """The summary of the newest compaction; `context` begins after the messages that it replaces."""

    async def context(self, max_messages: int) -> Sequence[Message]:
        """The messages that a model should get, oldest first: the newest since the last compaction.

        The number may exceed `max_messages` to include all messages since the newest user message.
        """

    async def compact(self, summary: str, keep_from: MessageId, *, tokens_before: int, tokens_after: int) -> None:
        """Record that `summary` replaces all messages before message `keep_from`."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A summary that replaces all messages before message `keep_from`."""

    text: str
    keep_from: MessageId
    tokens_before: int
    tokens_after: int


@runtime_checkable
class Summarizer(Protocol):
    """An agent that can summarize a conversation on request, outside of a run."""

    async def summarize(self, messages: Sequence[Message], previous_summary: str | None) -> Summary | None:
        """Summarize all but the newest messages and the previous summary. Returns None if that is not possible."""


@runtime_checkable
class Living(Protocol):
    """An agent that has to be started. One that is also a sub-agent of others may be started several times."""

    async def start(self) -> None:
        """Start what the agent depends on, on the event loop of the server."""

    async def close(self) -> None:
        """Undo one `start`."""


@runtime_checkable
class Forgetting(Protocol):
    """An agent that keeps something of its sessions elsewhere."""

    async def forget(self, session_id: SessionId) -> None:
        """Delete what was kept of a session, whose own deletion is durable. This is called at least once for each.

        If it raises, or the server dies, it is called again when a server that serves the agent starts.
        """


class Agent(Protocol):
    """An agent that can be served. It may also be `Living`, `Forgetting` and a `Summarizer`."""

    @property
    def spec(self) -> AgentSpec:
        """The agent's declaration."""

    def tool(self, name: str) -> RunnableTool | None:
        """The tool of that name, exposed or hidden."""

    def child(self, call: Call) -> "Agent | None":
        """The sub-agent for a call of the built-in tool `Agent`; None if the call names none."""

    async def play(self, run: Run) -> StopReason | None:
        """Answer the input. Returns the stop reason; None means `end_turn`. Cancelled when the run is stopped."""
