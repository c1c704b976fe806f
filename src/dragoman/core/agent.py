"""The contract between the engine and agents: how an agent is run, and what it can do during a run. Pure: types only.

The engine implements `Run`; `dragoman.agents` contains the agents. An agent keeps no state between two runs: it reads
what it needs to continue from the history.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from dragoman.core.content import Block, Call, Json, JsonObject, Message, ToolMessage, Usage
from dragoman.core.events import CallOutcome, PlanUpdated, StopReason, WaitKind
from dragoman.core.ids import CallId, LoopId, MessageId, RunId, SessionId, UserId
from dragoman.core.inputs import Decision
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.tools import AgentSpec, ServerTool, ToolSpec


class AgentError(Exception):
    """An agent's own failure, with a code and a message for clients. Other exceptions are only logged.

    Args:
        code: snake_case, for programs.
        message: a sentence, for people.
        details: what the model's provider said. It may contain a secret: clients get it only during development.
    """

    def __init__(self, code: str, message: str, *, details: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class ToolFailed(Exception):
    """A tool's failure as a result: the model reads the message and continues."""


class Deferred(Exception):
    """Raised by a tool: its call waits for the application, and the tool runs again from its beginning afterwards.

    Then `context.answer` holds the answer. What the tool did before it raised this happens again.

    Args:
        kind: `question` asks the user; `client` waits for a result that the application sends.
        note: of a question `{"questions": [{"question": "…", "options": [{"label": "…"}]}]}`; else any JSON.
    """

    kind: WaitKind

    def __init__(self, kind: Literal["question", "client"], note: Json = None) -> None:
        super().__init__(f"the call waits for the application: {kind}")
        self.kind = kind
        self.note = note


class NeedsApproval(Deferred):
    """Raised by a tool: the user has to approve its call, and then the tool runs again with `context.granted`.

    Args:
        note: any JSON that is stored with the question.
    """

    def __init__(self, note: Json = None) -> None:
        super().__init__("question", note)
        self.kind = "permission"


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
    granted: bool
    """Whether the user approved this call, or the session trusts the tool."""
    answer: str | None
    """The answer that the tool waited for with `Deferred`, as text: the application's result, or the chosen labels or
    own words for each question, joined with commas. None before there is one."""
    answers: Sequence[Sequence[str]]
    """The answer to a question by its questions: for each the chosen labels, or the user's own words."""

    @property
    def time_zone(self) -> str:
        """The IANA zone of the call's event: its argument `event_timezone`, else that of the run."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the call was made, as of this start of the tool: more than 0 after a crash or an answer."""

    @property
    def is_settled(self) -> bool:
        """Whether the call has its result, or its session was deleted: then nobody can answer it any more."""

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


Needs = Literal["nothing", "permission", "missing"]
"""What a recorded call needs by the session's grants and the tool's policy: the user's permission, or it must not run,
because the agent declares no such tool or the session has not enabled it."""

RecordedState = Literal["new", "started", "waiting", "answered"]
"""What has happened to a recorded call that has no result."""


class Recorded(Protocol):
    """A call that the agent runs itself."""

    call: Call
    needs: Needs
    trusted: bool
    """Whether the session runs the tool without asking, whatever the agent wants to ask."""

    @property
    def state(self) -> RecordedState:
        """What has happened to the call. `started` in a run that continues after a crash: it may have had effects."""

    @property
    def may_ask_again(self) -> bool:
        """Whether the user can be asked if the call, which a crash interrupted, runs again.

        Not if it was approved: clients that repeat that approval, whose response they never saw, would approve again.
        """

    @property
    def answer(self) -> ToolMessage | Decision | None:
        """The application's newest answer. A denial is always a `Decision`, whatever the call waited for."""

    async def start(self) -> None:
        """Mark the call as started, durably: from here on it may have had effects.

        Raises:
            RuntimeError: the step in which it was recorded has not ended, or the call has its result.
        """

    async def done(
        self, result: Json, *, outcome: CallOutcome = "done", private: Json = None, durable: bool = True
    ) -> None:
        """Settle the call with its result, durably.

        Args:
            result: a string or blocks as the model reads them, or any JSON.
            outcome: anything but `done` marks the result as an error.
            private: what the agent needs back with the result, and nobody else sees (`ToolMessage.private`).
            durable: False returns at once, as for `Run.keep`.

        Raises:
            RuntimeError: as for `start`.
        """

    def wait(self, kind: WaitKind, *, note: Json = None, repeat: bool = False) -> None:
        """Let the call wait for the application. When the agent returns, the run ends with `tool_use`.

        The answer starts the next run, whose `recorded` has the call with its `answer`. In a headless run, in which
        nobody can be asked, the agent is played again at once, with a denial as answer.

        Args:
            kind: what it waits for.
            note: of a question its `{"questions": [...]}`, which is shown in place of the call's arguments; else any
                JSON that is stored with the call.
            repeat: a crash interrupted the call, and the user decides whether it runs again.

        Raises:
            RuntimeError: as for `start`.
        """

    def suspend(self) -> None:
        """Leave the call open when the agent returns while another call waits: it runs again afterwards."""


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

    @property
    def is_handed_over(self) -> bool:
        """Whether the run is continued later, here or on another server, although its task is cancelled now."""

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

    def record(
        self,
        name: str,
        arguments: JsonObject,
        *,
        origin: str | None = None,
        server: str | None = None,
        deniable: bool = False,
    ) -> Recorded:
        """Note a call of this step that the agent runs itself. It is in the log when `end_step` returns.

        The engine neither runs the call nor waits for it, and another step may begin before it has its result. What is
        neither settled nor waiting when the agent returns is settled as cancelled.

        Args:
            name: the tool's name.
            arguments: its arguments.
            origin: the framework's own id of the call, to find it again.
            server: the label of the tool's MCP server.
            deniable: whether the agent leaves the call out if it has a denial before it begins, although the call did
                not wait. Else such a denial is refused.
        """

    def recorded(self) -> Sequence[Recorded]:
        """The recorded calls of this loop that have no result yet, in order: after a crash or an answer, those of the
        run before.
        """

    async def drain(self) -> None:
        """Yield to other tasks, and wait while too much of this run is not durable yet."""

    def repeat_step(self) -> None:
        """Close the open message as `cut`: its content is void, and the next message repeats the step.

        The calls that were requested or recorded since the last step are dropped. Nothing happens without a message.
        """

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
                setting `private_bytes` is stored outside the log, and counts as one that is kept (see `keep`).

        Raises:
            Paused: a call needs the application.
            AgentError: `max_steps`, if the run has no step left.
        """

    async def keep(self, writes: Mapping[str, bytes | None], *, durable: bool = True) -> None:
        """Keep values with the session, by key, in one commit with what the run has written before. None removes one.

        They are durable when this returns. No client ever sees them, branches do not affect them, and they are deleted
        with the session. A run that lost its session to another server can write none.

        Args:
            writes: the values.
            durable: False returns at once. The values are durable a few milliseconds later, and never after anything
                that the run writes next: a crash keeps a prefix of what a run has written. `kept` returns them.

        Raises:
            ValueError: a key or a value is not valid: see `check_kept`.
            AgentError: `kept_limit`: the session's values would be larger than the setting `kept_bytes`.
        """

    async def kept(self, below: str = "", *, after: str | None = None, limit: int = 1000) -> Mapping[str, bytes]:
        """The values kept with the session whose keys begin with `below`, in the order of their keys.

        Args:
            below: the beginning of the keys.
            after: only keys after this one, for the next page.
            limit: maximum number of values.
        """

    def offered_tools(self) -> Sequence[ToolSpec]:
        """The enabled tools, as a model receives them: the application's and the agent's own."""

    async def turn(self) -> Sequence[Message]:
        """This loop's messages from the last user message on. A sub-agent's loop: all of them.

        A message that a crash cut off is left out, because its step is repeated. A call that was repeated with the
        user's permission after a crash has the result of its repetition.
        """

    def history(self) -> AsyncGenerator[Message, None]:
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
    """A summary that replaces all messages before message `keep_from`. `usage` is what writing it has cost."""

    text: str
    keep_from: MessageId
    tokens_before: int
    tokens_after: int
    usage: Usage = Usage()


@runtime_checkable
class Summarizer(Protocol):
    """An agent that can summarize a conversation on request, outside of a run."""

    async def summarize(self, messages: Sequence[Message], previous_summary: str | None) -> Summary | None:
        """Summarize all but the newest messages and the previous summary. Returns None if that is not possible."""


@runtime_checkable
class Startable(Protocol):
    """An agent that has to be started. One that is also a sub-agent of others may be started several times."""

    async def start(self) -> None:
        """Start what the agent depends on, on the event loop of the server."""

    async def close(self) -> None:
        """Undo one `start`."""


@runtime_checkable
class KeepsSessionData(Protocol):
    """An agent that keeps something of its sessions elsewhere."""

    async def forget(self, session_id: SessionId) -> None:
        """Delete what was kept of a session, whose own deletion is durable. This is called at least once for each.

        If it raises, or the server dies, it is called again when a server that serves the agent starts.
        """


@runtime_checkable
class ReportsStatus(Protocol):
    """An agent that depends on another server."""

    def status(self) -> str:
        """One word for `/readyz`, such as `available`."""


class Agent(Protocol):
    """An agent that can be served. It may also be `Startable`, `KeepsSessionData`, `ReportsStatus` or `Summarizer`."""

    @property
    def spec(self) -> AgentSpec:
        """The agent's declaration."""

    def tool(self, name: str) -> RunnableTool | None:
        """The tool of that name, exposed or hidden."""

    def child(self, call: Call) -> "Agent | None":
        """The sub-agent for a call of the built-in tool `Agent`; None if the call names none."""

    async def play(self, run: Run) -> StopReason | None:
        """Answer the input. Returns the stop reason; None means `end_turn`. Cancelled when the run is stopped."""
