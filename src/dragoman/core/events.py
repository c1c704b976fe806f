"""The events of a session's log. Each is durable before anyone sees it; all state is folded from them. Pure.

An event has neither a position nor a time; `LoggedEvent` adds them. Payloads are JSON and stored as they were
encoded. A field may be added with a default. One that is renamed keeps its stored name, as in
`msgspec.field(name="door")`, because old logs stay readable.
"""

from datetime import datetime
from typing import Literal, get_args

import msgspec

from dragoman.core.content import (
    Block,
    Call,
    Json,
    JsonObject,
    Message,
    MessageStatus,
    ToolMessage,
    Usage,
    UserMessage,
    to_plain_value,
)
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId, RunId, SessionId
from dragoman.core.json_memory import JsonEncoder, require_memory_to_decode
from dragoman.core.run_metadata import HasMetadata
from dragoman.core.tools import ToolGrant, ToolSpec

StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal", "max_steps", "cancelled", "error", "interrupted"]
"""Why a run ended (shared rules, 24). `tool_use`: the application has to act; `interrupted`: a crash cut it."""

CallKind = Literal["client", "permission", "question", "inline", "fork", "missing"]
"""Who has to act on a call: the client executes it, the user approves it, the user answers it, the server executes it
at once, a sub-agent works on it, or no such tool exists."""

WaitKind = Literal["client", "permission", "question"]
"""What a call waits for: a result of the application, a decision of the user, or the answer to a question."""

CallOutcome = Literal["done", "failed", "denied", "cancelled", "interrupted"]

Mode = Literal["planning", "executing"]
"""What the agent may do: only read and plan, or everything."""

ProtocolName = str
"""The protocol of a request: `aap`, `ag-ui`, `runs`, `agentscope`, `blade`, `mcp`, `openai`, `ai-sdk`, `a2a`.
`scheduler` stands for the server's own scheduler."""


class EncryptedValue(msgspec.Struct, frozen=True, tag="sealed"):
    """An encrypted secret. `length` is the length of the plain text in characters."""

    ciphertext: str
    length: int


OptionValue = str | EncryptedValue


class Replay(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The recording that a session replays: the events of `source` up to `up_to`, except for the hidden ranges.

    While `is_on`, runs replay the recording instead of running the agent. `position` counts the recorded turns that
    have started, of `total`; the next one comes after event `after`.
    """

    source: SessionId
    up_to: int
    total: int
    hidden_ranges: tuple[tuple[int, int], ...] = msgspec.field(default=(), name="hidden")
    after: int = 0
    position: int = 0
    speed: Literal[1, 2, 5] = 1
    is_on: bool = True


class Lifetime(msgspec.Struct, frozen=True, kw_only=True):
    """How long an unlisted session is kept at rest, in seconds since its last change."""

    idle_s: int
    """Without calls that wait. 0: only until its answer was sent; a crash ends its run, too."""
    waiting_s: int
    """While calls wait for the application."""


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of a session.

    `tools` is `all` (approval as each tool declares, except for those trusted since) or the enabled tools; None enables
    none. `variant` names a variant of the agent, and `env` holds variables for its tools.
    """

    tools: Literal["all"] | tuple[ToolGrant, ...] | None = None
    trusted_tools: tuple[str, ...] = msgspec.field(default=(), name="trusted")
    options: dict[str, OptionValue] = {}
    client_tools: tuple[ToolSpec, ...] = ()
    title: str | None = None
    labels: dict[str, str] = {}
    memory_enabled: bool | None = None
    """Whether the agent gets the user's memories; None: as the agent declares, else not (shared rules, 23)."""
    model: str | None = None
    """The model that was requested last."""
    mode: Mode = "executing"
    variant: str | None = None
    env: dict[str, str] = {}
    pinned: bool = False
    shared: bool = False
    """Whether every user of the server may read the session."""
    persistent: bool = False
    """Whether the session is exempt from automatic cleanup."""
    replay: Replay | None = None
    unlisted: bool = False
    """Whether the session is left out of all lists and searches."""
    lifetime: Lifetime | None = None
    """When the session is deleted, as long as it is unlisted; None: never."""
    deleted_runs: tuple[RunId, ...] = ()
    """Runs that a client deleted: they cannot be retrieved any more, but their messages stay, as others follow them."""

    @property
    def is_ephemeral(self) -> bool:
        """Whether the session ends with its answer."""
        return self.unlisted and self.lifetime is not None and not self.lifetime.idle_s


class SettingsChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of settings. Options are merged by key, and deleted runs are added to the earlier ones.

    Every other field that is set replaces the old value. None leaves it as it is, so it cannot clear one: that takes an
    empty value, or an event of its own.
    """

    tools: Literal["all"] | tuple[ToolGrant, ...] | None = None
    trusted_tools: tuple[str, ...] | None = msgspec.field(default=None, name="trusted")
    options: dict[str, OptionValue] = {}
    client_tools: tuple[ToolSpec, ...] | None = None
    title: str | None = None
    labels: dict[str, str] | None = None
    memory_enabled: bool | None = None
    model: str | None = None
    mode: Mode | None = None
    variant: str | None = None
    env: dict[str, str] | None = None
    pinned: bool | None = None
    shared: bool | None = None
    persistent: bool | None = None
    replay: Replay | None = None
    unlisted: bool | None = None
    lifetime: Lifetime | None = None
    deleted_runs: tuple[RunId, ...] | None = None

    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return self == _NO_CHANGE

    def needs_agent(self) -> bool:
        """Whether the session's agent has to be known in order to check the change."""
        return bool(self.options or self.client_tools or self.tools)


_NO_CHANGE = SettingsChange()


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive pieces of a block: the first is number `first` after event `after`; `lengths` are their characters.

    Stored with the closed block, so that a replay sends exactly the pieces that were sent live.
    """

    after: int
    first: int
    lengths: list[int]


class SessionCreated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="session_created"):
    """The first event of every session. `name` is the client's own name of it; earlier releases did not record it."""

    agent: str
    settings: SessionSettings
    protocol: ProtocolName = msgspec.field(name="door")
    name: str | None = None


class SettingsChanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="settings_changed"):
    """The owner changed settings, which apply from here on."""

    change: SettingsChange


class MessageAdded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="message_added"):
    """A complete message was added: of the user, or a seed of any role."""

    message: Message


class RunQueued(HasMetadata, frozen=True, kw_only=True, omit_defaults=True, tag="run_queued"):
    """A run was queued. Its messages enter the history, and its change applies, when it starts."""

    run_id: RunId
    protocol: ProtocolName = msgspec.field(name="door")
    inputs: tuple[UserMessage, ...] = ()
    change: SettingsChange = SettingsChange()
    client_run_id: str | None = None
    client_tools: tuple[ToolSpec, ...] = ()
    parameters: JsonObject = msgspec.field(default_factory=dict)


class RunStarted(HasMetadata, frozen=True, kw_only=True, omit_defaults=True, tag="run_started"):
    """A run started. `inputs` are user messages that enter the history later, by `MessageAdded` events.

    `client_tools` are the application's tools for this run alone; `dropped_tools` names those that were left out.
    """

    run_id: RunId
    protocol: ProtocolName = msgspec.field(name="door")
    inputs: tuple[UserMessage, ...] = ()
    client_run_id: str | None = None
    client_tools: tuple[ToolSpec, ...] = ()
    dropped_tools: tuple[str, ...] = ()
    parameters: JsonObject = msgspec.field(default_factory=dict)


class RunResumed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="run_resumed"):
    """Another process continued the run.

    `attempt` counts this process and those that died while executing the run, since one of its tools last ran to its
    end.
    """

    run_id: RunId
    attempt: int


class RunParked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="run_parked"):
    """The server shut down gracefully during the run. The next one continues it; this does not count as an attempt."""

    run_id: RunId


class RunStopped(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="run_stopped"):
    """The run ended, and the session accepts new input. `code` and `message` are for clients: no internal details."""

    run_id: RunId
    reason: StopReason
    code: str | None = None
    message: str | None = None
    usage: Usage = Usage()


class MessageOpened(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="message_opened"):
    """A model step started. `internal`: it consists of calls of internal tools, and no client sees it."""

    message_id: MessageId
    loop: LoopId = ROOT
    internal: bool = False


class BlockClosed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="block_closed"):
    """A block of the open message is complete. `cuts` are the pieces of a text or thinking block."""

    message_id: MessageId
    index: int
    block: Block
    loop: LoopId = ROOT
    cuts: list[Cut] = []


class CallOpened(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call_opened"):
    """The model called a tool. The call is a block of the open message, and stays open until it is settled.

    `internal`: the tool is internal, and no client sees the call. `recorded`: the agent runs the call itself.
    `deniable`: it does not if a user denies the call although nobody is asked about it. `repeat`: a crash interrupted a
    call that the user had allowed, and the user decides whether it runs again, as this call.
    """

    message_id: MessageId
    index: int
    call: Call
    kind: CallKind
    loop: LoopId = ROOT
    server: str | None = None
    internal: bool = False
    recorded: bool = False
    deniable: bool = False
    repeat: bool = False


class MessageClosed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="message_closed"):
    """A model step ended. All its calls are in the log."""

    message_id: MessageId
    status: MessageStatus = "completed"
    loop: LoopId = ROOT
    model: str | None = None
    usage: Usage | None = None
    context_window: int | None = None
    """The model's context window in tokens, if it is known."""
    provider_data: JsonObject | None = None
    """See `AssistantMessage`."""
    private: Json | msgspec.UnsetType = msgspec.UNSET
    """See `AssistantMessage`."""
    internal: bool = False


class CallStarted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call_started"):
    """The server is about to run the tool, which may have had effects from here on."""

    call_id: CallId
    internal: bool = False


class CallParked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call_parked"):
    """A call waits for the application from here on, although it was opened as one that does not.

    `kind` is what it waits for; None: a crash interrupted it, and the user decides whether it runs again. `note` is
    what the application sees: for a question, its questions in the form of the arguments of `AskUserQuestion`. The
    answer does not settle the call: it is kept for the agent or the tool that asked. `repeat`: the agent found that a
    crash interrupted the call, and asks whether it runs again. `call` is the call if an earlier run made it, because
    readers of this run alone do not know it.
    """

    call_id: CallId
    kind: WaitKind | None = None
    note: Json = None
    repeat: bool = False
    call: Call | None = None

    @property
    def is_repeat(self) -> bool:
        """Whether the user decides if a call that a crash interrupted runs again."""
        return self.repeat or self.kind is None


class AnswerGiven(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="answer_given"):
    """The application answered a waiting call. This is the record of who allowed what.

    `result` is the answer to a question or the application's result, of a call that it does not settle. `arguments` are
    those with which an edited call was allowed: another call, which follows, runs with them.
    """

    call_id: CallId
    granted: bool
    by: str
    reason: str | None = None
    result: ToolMessage | None = None
    arguments: JsonObject | None = None


class CallSettled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call_settled"):
    """A call got its final result. `by_client`: the application provided it and need not be notified.

    `arguments` are those of a call on which a sub-agent worked, for readers who begin in a later run than the call.
    """

    outcome: CallOutcome
    result: ToolMessage
    by_client: bool = False
    arguments: JsonObject | None = None
    internal: bool = False


class MemoryUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A memory that the agent got. `preview` is its beginning; the rest is stored elsewhere and can be deleted."""

    id: int
    preview: str
    skill_name: str | None = None


class MemoriesInjected(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="memories_injected"):
    """The user's memories that the agent gets in this run, if any."""

    memories: tuple[MemoryUse, ...] = ()


class CompactionMade(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="compaction_made"):
    """Older messages were summarized: the model gets `summary` instead of everything up to event `up_to`."""

    summary: str
    up_to: int
    archived_count: int = msgspec.field(name="archived")
    tokens_before: int
    tokens_after: int
    trigger: Literal["auto", "manual", "forced_retry"] = "auto"


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """The current compaction: `summary` replaces all messages up to event `up_to`."""

    seq: int
    summary: str
    up_to: int


class Branched(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="branched"):
    """The conversation continues from an earlier point, or in another branch (shared rules, 15).

    Nothing is removed from the log: the events in `hidden_ranges`, first and last included, no longer belong to the
    history. `compaction` is the current one of this branch.
    """

    hidden_ranges: tuple[tuple[int, int], ...] = msgspec.field(name="hidden")
    compaction: Compaction | None = msgspec.field(default=None, name="compacted")


class PlanStep(msgspec.Struct, frozen=True):
    """A step of a plan."""

    title: str
    status: Literal["pending", "in_progress", "done", "skipped"]


class PlanUpdated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="plan_shown"):
    """The agent created or changed its plan."""

    status: Literal["draft", "approved", "in_progress", "done"]
    steps: tuple[PlanStep, ...]
    loop: LoopId = ROOT

    def content(self) -> JsonObject:
        """The plan as protocols send it that have no form of their own for it."""
        return {"status": self.status, "steps": [{"title": each.title, "status": each.status} for each in self.steps]}


class StageChanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="stage_changed"):
    """The agent entered a stage of its work, such as `router` or `worker`; None: it left the stage."""

    stage: str | None = None
    loop: LoopId = ROOT


class SharedStateReplaced(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="state_shared"):
    """The agent replaced the state that it shares with the application: any JSON value, which the core only stores."""

    state: Json
    loop: LoopId = ROOT


class CardUpdated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="card_shown"):
    """The agent added a user interface to its answer: a renderer tree of UI schema 2.0, as the agent wrote it.

    It belongs to the open message `message_id`; in logs of earlier releases, which have none, to the next text.
    """

    card: Json
    loop: LoopId = ROOT
    message_id: MessageId | None = None


class UnknownEvent(msgspec.Struct, frozen=True, kw_only=True, tag="unknown"):
    """An event of a type that this release does not know, written by a later one. Everything that reads a log skips it.

    It keeps its bytes, so that a copy of the log has it as it was.
    """

    event_type: str
    payload: bytes


Event = (
    SessionCreated
    | SettingsChanged
    | MessageAdded
    | RunQueued
    | RunStarted
    | RunResumed
    | RunParked
    | RunStopped
    | MessageOpened
    | BlockClosed
    | CallOpened
    | MessageClosed
    | CallStarted
    | CallParked
    | AnswerGiven
    | CallSettled
    | MemoriesInjected
    | CompactionMade
    | Branched
    | PlanUpdated
    | StageChanged
    | SharedStateReplaced
    | CardUpdated
    | UnknownEvent
)


class LoggedEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event at its position in the log. `seq` counts the session's events from 1 without gaps."""

    seq: int
    at: datetime
    run_id: RunId | None
    event: Event


class _EventType(msgspec.Struct):
    type: str


_ENCODER = JsonEncoder()
_TOLERANT_ENCODER = JsonEncoder(enc_hook=to_plain_value)
_DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_TYPE_DECODER = msgspec.json.Decoder(_EventType)
_EVENT_TYPES: dict[type[Event], str] = {kind: str(kind.__struct_config__.tag) for kind in get_args(Event)}


def type_of(event: Event) -> str:
    """The name of an event's type, as the log's column holds it."""
    return event.event_type if type(event) is UnknownEvent else _EVENT_TYPES[type(event)]


def encode(event: Event) -> bytes:
    """Write an event as JSON; `decode` reads it back. Raises UnicodeEncodeError on a lone surrogate."""
    return event.payload if type(event) is UnknownEvent else _ENCODER.encode(event)


def encode_plain(event: Event) -> tuple[Event, bytes]:
    """The event and its JSON. An event with values of derived classes, such as a subclass of `str`, becomes plain.

    Raises:
        TypeError, UnicodeEncodeError: a value cannot be represented.
    """
    try:
        return event, event.payload if type(event) is UnknownEvent else _ENCODER.encode(event)
    except TypeError:
        payload = _TOLERANT_ENCODER.encode(event)
        return decode(payload), payload


def decode(payload: bytes | str) -> Event:
    """Read an event back. Raises `msgspec.ValidationError` if it is damaged, MemoryError if there is no room for it."""
    require_memory_to_decode(len(payload))
    try:
        return _DECODER.decode(payload)
    except msgspec.ValidationError:
        event_type = _TYPE_DECODER.decode(payload).type
        if event_type in _EVENT_TYPES.values():
            raise
        return UnknownEvent(event_type=event_type, payload=payload.encode() if isinstance(payload, str) else payload)
