"""The facts of a session's log. Each is durable before anyone sees it; all else is folded from them.

An event has no position and no time of its own: the log's row holds them (`Logged`). Payloads are JSON, written once
and stored as written; fields may be added with a default, never renamed (old logs are read for ever).
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
)
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId, RunId, SessionId
from dragoman.core.run_metadata import HasMetadata
from dragoman.core.tools import ToolGrant, ToolSpec

StopReason = Literal["end_turn", "tool_use", "max_tokens", "refusal", "max_steps", "cancelled", "error", "interrupted"]
"""Why a run ended (shared rules, 24). `tool_use`: the application has to act; `interrupted`: a crash cut it."""

CallKind = Literal["client", "permission", "question", "inline", "fork", "missing"]
"""Who has to do what about a call: the client runs it, the user allows it, the user answers it, the server runs it at
once, a sub-agent is it, there is no such tool."""

CallOutcome = Literal["done", "failed", "denied", "cancelled", "interrupted"]

Mode = Literal["planning", "executing"]
"""What the agent may do: think, read and plan, or everything."""

ProtocolName = str
"""The protocol through which something came: `aap`, `ag-ui`, `runs`, `agentscope`, `blade`."""


class EncryptedValue(msgspec.Struct, frozen=True, tag="sealed"):
    """A secret value, encrypted. `length` is that of the plain text, in characters."""

    ciphertext: str
    length: int


OptionValue = str | EncryptedValue


class Replay(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The recording that a session shows again: what `source` held up to event `up_to`, outside the `hidden` ranges.

    While `is_on`, runs play what was recorded, and no agent. `position` counts the recorded turns that were begun, of
    `total`; the next one is found behind event `after`.
    """

    source: SessionId
    up_to: int
    total: int
    hidden_ranges: tuple[tuple[int, int], ...] = msgspec.field(default=(), name="hidden")
    after: int = 0
    position: int = 0
    speed: Literal[1, 2, 5] = 1
    is_on: bool = True


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session's owner has set.

    `tools` is `all` (approval as each tool declares, but for those that were `trusted` since) or the tools turned on;
    as long as it is unset, none is on. `variant` names a variant of the agent, and `env` holds variables for its tools.
    """

    tools: Literal["all"] | tuple[ToolGrant, ...] | None = None
    trusted_tools: tuple[str, ...] = msgspec.field(default=(), name="trusted")
    options: dict[str, OptionValue] = {}
    client_tools: tuple[ToolSpec, ...] = ()
    title: str | None = None
    labels: dict[str, str] = {}
    memory_enabled: bool | None = None
    """Whether the agent is given the user's memories; None: as the agent declares, else not (shared rules, 23)."""
    model: str | None = None
    """The model that was asked for last."""
    mode: Mode = "executing"
    variant: str | None = None
    env: dict[str, str] = {}
    pinned: bool = False
    shared: bool = False
    """Whether every user of the server may read it."""
    persistent: bool = False
    """Whether no rule that tidies up may remove it."""
    replay: Replay | None = None


class SettingsChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of the settings changes. Options are merged by key, everything else replaces."""

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

    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return self == _NO_CHANGE


_NO_CHANGE = SettingsChange()


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive pieces of a block: the first stands `first` places after event `after`, each has so many characters.

    Kept with the closed block, so that every stream can be sent again in exactly the pieces in which it went out live.
    """

    after: int
    first: int
    lengths: list[int]


class SessionCreated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="session_created"):
    """The first event of every session."""

    agent: str
    settings: SessionSettings
    protocol: ProtocolName = msgspec.field(name="door")


class SettingsChanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="settings_changed"):
    """The owner changed settings; they hold from here on."""

    change: SettingsChange


class MessageAdded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="message_added"):
    """A message that came whole: of the user, or a seed of any role."""

    message: Message


class RunQueued(HasMetadata, frozen=True, kw_only=True, omit_defaults=True, tag="run_queued"):
    """A run waits for its turn. Its messages enter the history, and its change holds, when it starts."""

    run_id: RunId
    protocol: ProtocolName = msgspec.field(name="door")
    inputs: tuple[UserMessage, ...] = ()
    change: SettingsChange = SettingsChange()
    client_run_id: str | None = None
    client_tools: tuple[ToolSpec, ...] = ()
    parameters: JsonObject = msgspec.field(default_factory=dict)


class RunStarted(HasMetadata, frozen=True, kw_only=True, omit_defaults=True, tag="run_started"):
    """The agent is at work. `inputs` are user messages that enter the history as `MessageAdded` of their own later.

    `client_tools` are the application's for this run alone, and `dropped_tools` those of them that were left out.
    """

    run_id: RunId
    protocol: ProtocolName = msgspec.field(name="door")
    inputs: tuple[UserMessage, ...] = ()
    client_run_id: str | None = None
    client_tools: tuple[ToolSpec, ...] = ()
    dropped_tools: tuple[str, ...] = ()
    parameters: JsonObject = msgspec.field(default_factory=dict)


class RunResumed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="run_resumed"):
    """Another process went on with the run. `attempt` counts the processes that died of those that played it, and this
    one.
    """

    run_id: RunId
    attempt: int


class RunParked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="run_parked"):
    """The server stopped in good order while the run was played. The next one goes on; no attempt was used up."""

    run_id: RunId


class RunStopped(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="run_stopped"):
    """The run is over; the session takes new input. `code` and `message` are for clients: no internals."""

    run_id: RunId
    reason: StopReason
    code: str | None = None
    message: str | None = None
    usage: Usage = Usage()


class MessageOpened(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="message_opened"):
    """A model step begins."""

    message_id: MessageId
    loop: LoopId = ROOT


class BlockClosed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="block_closed"):
    """A block of the open message is complete. `cuts` tell the pieces of a text or thinking block."""

    message_id: MessageId
    index: int
    block: Block
    loop: LoopId = ROOT
    cuts: list[Cut] = []


class CallOpened(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call_opened"):
    """The model asked for a tool: the call is a block of the open message, and open until it is settled."""

    message_id: MessageId
    index: int
    call: Call
    kind: CallKind
    loop: LoopId = ROOT
    server: str | None = None


class MessageClosed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="message_closed"):
    """A model step ended. All its calls are in the log by now."""

    message_id: MessageId
    status: MessageStatus = "completed"
    loop: LoopId = ROOT
    model: str | None = None
    usage: Usage | None = None


class CallStarted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call_started"):
    """The server is about to run the tool. From here on it may have had effects."""

    call_id: CallId


class CallParked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call_parked"):
    """A call that a crash cut off waits for the user to say whether it shall run again."""

    call_id: CallId


class AnswerGiven(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="answer_given"):
    """The application decided about a call that waited. Kept as the record of who allowed what."""

    call_id: CallId
    granted: bool
    by: str
    reason: str | None = None


class CallSettled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="call_settled"):
    """A call has its result, for good. `by_client`: the application gave it, and needs no telling."""

    outcome: CallOutcome
    result: ToolMessage
    by_client: bool = False


class MemoryUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A memory that the agent was told of. `preview` is how it begins; the rest stays where it can be deleted."""

    id: int
    preview: str
    skill_name: str | None = None


class MemoriesInjected(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="memories_injected"):
    """What the agent is told in this run of what is remembered of the user; perhaps nothing."""

    memories: tuple[MemoryUse, ...] = ()


class CompactionMade(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="compaction_made"):
    """Older messages were summed up: the model sees `summary` in place of everything up to event `up_to`."""

    summary: str
    up_to: int
    archived_count: int = msgspec.field(name="archived")
    tokens_before: int
    tokens_after: int
    trigger: Literal["auto", "manual", "forced_retry"] = "auto"


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction in force: `summary` stands for all messages up to event `up_to`."""

    seq: int
    summary: str
    up_to: int


class Branched(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="branched"):
    """The conversation goes on from an earlier point, or in another branch (shared rules, 15).

    Nothing is taken out of the log: what happened in the `hidden` ranges of events, first and last included, no longer
    belongs to the history. `compacted` is the compaction in force on this branch.
    """

    hidden_ranges: tuple[tuple[int, int], ...] = msgspec.field(name="hidden")
    compaction: Compaction | None = msgspec.field(default=None, name="compacted")


class PlanStep(msgspec.Struct, frozen=True):
    """A step of a plan."""

    title: str
    status: Literal["pending", "in_progress", "done", "skipped"]


class PlanUpdated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="plan_shown"):
    """The agent made or changed its plan."""

    status: Literal["draft", "approved", "in_progress", "done"]
    steps: tuple[PlanStep, ...]
    loop: LoopId = ROOT


class StageChanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="stage_changed"):
    """The agent entered another stage of its work, such as `router` or `worker`; None: it is in none."""

    stage: str | None = None
    loop: LoopId = ROOT


class SharedStateReplaced(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="state_shared"):
    """The agent replaced the state that it shares with the application: any JSON value, which the core only keeps."""

    state: Json
    loop: LoopId = ROOT


class CardUpdated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="card_shown"):
    """The agent gave its answer a user interface: the renderer tree of UI schema 2.0, as the agent wrote it."""

    card: Json
    loop: LoopId = ROOT


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
    """An event at its place in the log. `seq` counts the session's events from 1 without gaps."""

    seq: int
    at: datetime
    run_id: RunId | None
    event: Event


class _EventType(msgspec.Struct):
    type: str


_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_TYPE_DECODER = msgspec.json.Decoder(_EventType)
_EVENT_TYPES = frozenset(kind.__struct_config__.tag for kind in get_args(Event))


def type_of(event: Event) -> str:
    """The name of an event's type, as the log's column holds it."""
    return event.event_type if isinstance(event, UnknownEvent) else str(event.__struct_config__.tag)


def encode(event: Event) -> bytes:
    """Write an event as JSON; `decode` reads it back. Raises UnicodeEncodeError on a lone surrogate."""
    return event.payload if isinstance(event, UnknownEvent) else _ENCODER.encode(event)


def decode(payload: bytes | str) -> Event:
    """Read an event back. Raises `msgspec.ValidationError` if it is damaged."""
    try:
        return _DECODER.decode(payload)
    except msgspec.ValidationError:
        event_type = _TYPE_DECODER.decode(payload).type
        if event_type in _EVENT_TYPES:
            raise
        return UnknownEvent(event_type=event_type, payload=payload.encode() if isinstance(payload, str) else payload)
