"""A session as the fold of its log. Pure: `state = fold(events)`; what may happen next is decided in `admission`.

                 submit                    stopped, nothing open
      idle ───────────────► running ───────────────────────────► idle
       ▲                     ▲   │ stopped with calls that wait
       │   cancelled         │   ▼
       └─────────────────── waiting   (the last answer, or a new message, starts a run)

The state contains what is needed to continue, never the messages, so a long session costs no more than a new one.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Literal, assert_never

import msgspec

from dragoman.core.content import Json, JsonObject, Usage, UserMessage, text_of
from dragoman.core.events import (
    AnswerGiven,
    BlockClosed,
    Branched,
    CallOpened,
    CallParked,
    CallSettled,
    CallStarted,
    CardUpdated,
    Compaction,
    CompactionMade,
    Event,
    LoggedEvent,
    MemoriesInjected,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    PlanUpdated,
    ProtocolName,
    RunParked,
    RunQueued,
    RunResumed,
    RunStarted,
    RunStopped,
    SessionCreated,
    SessionSettings,
    SettingsChange,
    SettingsChanged,
    SharedStateReplaced,
    StageChanged,
    StopReason,
    UnknownEvent,
)
from dragoman.core.ids import ROOT, CallId, LoopId, MessageId, RunId, SessionId, UserId, fork_loop, forking_call
from dragoman.core.json_memory import JsonEncoder
from dragoman.core.open_calls import OpenCall, is_sleep
from dragoman.core.ranges import contains
from dragoman.core.run_metadata import NO_METADATA, RunMetadata, given_state
from dragoman.core.titles import title_from
from dragoman.core.tools import ToolSpec

Status = Literal["idle", "running", "waiting"]


class OpenMessage(msgspec.Struct, kw_only=True):
    """A model step in progress."""

    message_id: MessageId
    closed_block_count: int = msgspec.field(default=0, name="blocks")


class ActiveRun(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The active run. `pending_inputs` are messages that enter the history when its open calls are settled."""

    run_id: RunId
    protocol: ProtocolName = msgspec.field(name="door")
    started_seq: int
    attempt: int = 1
    parked: bool = False
    pending_inputs: tuple[UserMessage, ...] = msgspec.field(default=(), name="held")
    client_run_id: str | None = None
    client_tools: tuple[ToolSpec, ...] = ()
    parameters: JsonObject = {}
    metadata: RunMetadata = NO_METADATA
    usage: Usage = Usage()
    memories: tuple[int, ...] | None = None
    """The ids of the memories that its agent got; None before they were chosen."""
    steps: dict[LoopId, int] = {}
    """The model steps of each loop, without those that a crash cut off."""
    server_calls: int = 0
    """How many calls of its agent count against `RunMetadata.max_calls`."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an application chose for a run, and keeps for the run that continues it."""

    client_tools: tuple[ToolSpec, ...] = ()
    parameters: JsonObject = {}


class SessionState(msgspec.Struct, kw_only=True):
    """The state of a session after event `seq`. Only `apply` changes it, in place."""

    session_id: SessionId
    owner: UserId
    agent: str
    created_at: datetime
    updated_at: datetime
    settings: SessionSettings
    seq: int = 0
    run: ActiveRun | None = None
    queue: list[RunQueued] = []
    calls: dict[CallId, OpenCall] = {}
    open_messages: dict[LoopId, OpenMessage] = {}
    last_run: RunId | None = None
    last_run_seq: int = 0
    last_stop: StopReason | None = None
    usage: Usage = Usage()
    compaction: Compaction | None = msgspec.field(default=None, name="compacted")
    message_count: int = msgspec.field(default=0, name="messages")
    """Messages of the root loop that are complete, visible or not; a message's ordinal counts them."""
    hidden_ranges: tuple[tuple[int, int], ...] = msgspec.field(default=(), name="hidden")
    """The events outside the active branch, as ordered ranges, first and last included."""
    fallback_title: str = msgspec.field(default="", name="opening")
    """The beginning of the user's first message; empty before there is one."""
    first_messages: tuple[tuple[int, str], ...] = ()
    """The first messages of all branches: the event of each, and its beginning."""
    resends_history: bool = False
    """Whether a client has sent its complete history with new messages, so that what it omits counts as removed."""
    shared_state_seq: int | None = None
    """The last event with a shared state (shared rules, 33); 0 before there is one. None: an earlier release did not
    record it."""
    turn_state_seq: int | None = None
    """The same as of the user's last message, for a run that continues after answers."""
    asking_options: RunOptions | None = None
    """The options of the last run, if it ended with calls that wait."""
    name: str | None = None
    """The client's own name of the session (shared rules, 1)."""

    def title(self) -> str:
        """The title for people: the one that was set, else the beginning of the first message.

        A protocol may set the beginning of the first message; then it follows that message.
        """
        follows = any(self.settings.title == beginning for _, beginning in self.first_messages)
        return self.fallback_title if follows and self.fallback_title else self.settings.title or self.fallback_title

    def status(self) -> Status:
        """What a client may do next."""
        if self.run is not None or self.queue:
            return "running"
        return "waiting" if any(call.is_waiting() for call in self.calls.values()) else "idle"

    def expires_at(self) -> datetime | None:
        """When the session, if it is at rest until then, is deleted; None: never."""
        lifetime = self.settings.lifetime
        if lifetime is None or not self.settings.unlisted:
            return None
        is_waiting = self.status() == "waiting"
        return self.updated_at + timedelta(seconds=lifetime.waiting_s if is_waiting else lifetime.idle_s)

    def is_visible(self, seq: int) -> bool:
        """Whether the message that event `seq` completed belongs to the active branch (shared rules, 15)."""
        return not contains(self.hidden_ranges, seq)

    def effective_settings(self) -> SessionSettings:
        """The settings for the active run, with its own mode and tools before the session's (shared rules, 17)."""
        if self.run is None or not (self.run.client_tools or self.run.metadata.mode):
            return self.settings
        own = self.run.client_tools
        names = {tool.name for tool in own}
        others = (tool for tool in self.settings.client_tools if tool.name not in names)
        mode = self.run.metadata.mode or self.settings.mode
        return msgspec.structs.replace(self.settings, client_tools=(*own, *others), mode=mode)

    def is_sleeping(self) -> bool:
        """Whether the active run does nothing but wait for the end of a `Sleep`."""
        calls = [call for call in self.calls.values() if call.kind != "fork"]
        return bool(calls) and not self.open_messages and all(map(is_sleep, calls))

    def waiting_calls(self) -> Iterator[OpenCall]:
        """The calls that the application has to act on, in the order they were made."""
        return (call for call in self.calls.values() if call.is_waiting())

    def calls_in_loop(self, loop: LoopId) -> list[OpenCall]:
        """The open calls of a loop, in order."""
        return [call for call in self.calls.values() if call.loop == loop]

    def parent_call(self, loop: LoopId) -> OpenCall | None:
        """The open call whose sub-agent runs in the loop."""
        call_id = forking_call(loop)
        return None if call_id is None else self.calls.get(call_id)

    def answerable_calls(self) -> dict[CallId, OpenCall]:
        """The waiting call that an answer to each id means: the call itself, or the first that waits below it."""
        found: dict[CallId, OpenCall] = {}
        for call in self.waiting_calls():
            above: OpenCall | None = call
            while above is not None:
                found.setdefault(above.call.call_id, call)
                above = self.parent_call(above.loop)
        return found


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """A session at rest, as it is stored; `decode_head` restores the state.

    The settings, which can be large and change rarely, are separate, and None if they have not changed. `is_unlisted`
    and `expires_at` are for the lists and for deleting what has expired.
    """

    seq: int
    created_at: datetime
    updated_at: datetime
    state: bytes
    settings: bytes | None
    is_unlisted: bool = False
    expires_at: datetime | None = None


_ENCODER = JsonEncoder()
_STATE_DECODER = msgspec.json.Decoder(SessionState)
_SETTINGS_DECODER = msgspec.json.Decoder(SessionSettings)


def encode_head(state: SessionState, *, with_settings: bool) -> Head:
    """Encode a state."""
    return Head(
        seq=state.seq,
        created_at=state.created_at,
        updated_at=state.updated_at,
        state=_ENCODER.encode(msgspec.structs.replace(state, settings=SessionSettings())),
        settings=_ENCODER.encode(state.settings) if with_settings else None,
        is_unlisted=state.settings.unlisted,
        expires_at=state.expires_at(),
    )


def decode_head(state: bytes | str, settings: bytes | str) -> SessionState:
    """Decode the result of `encode_head`."""
    decoded = _STATE_DECODER.decode(state)
    decoded.settings = _SETTINGS_DECODER.decode(settings)
    return decoded


def apply_change(settings: SessionSettings, change: SettingsChange) -> SessionSettings:
    """The settings after a change."""
    if change.is_empty():
        return settings
    given = {name: value for name in _REPLACED_FIELDS if (value := getattr(change, name)) is not None}
    if change.options:
        given["options"] = {**settings.options, **change.options}
    if change.deleted_runs:
        given["deleted_runs"] = tuple(dict.fromkeys((*settings.deleted_runs, *change.deleted_runs)))
    return msgspec.structs.replace(settings, **given)


_REPLACED_FIELDS = tuple(name for name in SettingsChange.__struct_fields__ if name not in ("options", "deleted_runs"))


def initial_state(session_id: SessionId, owner: UserId, logged: LoggedEvent) -> SessionState:
    """The state after a session's first event."""
    created = logged.event
    if not isinstance(created, SessionCreated):
        raise ValueError(f"the first event of a session is its creation, got {created!r} (session {session_id})")
    return SessionState(
        session_id=session_id,
        owner=owner,
        agent=created.agent,
        created_at=logged.at,
        updated_at=logged.at,
        settings=created.settings,
        seq=logged.seq,
        shared_state_seq=0,
        turn_state_seq=0,
        name=created.name,
    )


def is_limited(opened: CallOpened) -> bool:
    """Whether a call counts against `RunMetadata.max_calls`: clients see it, and the server executes it."""
    is_own = opened.loop == ROOT and not (opened.recorded or opened.internal)
    return is_own and opened.kind not in ("client", "question")


def shared_state_in(event: Event) -> Json | msgspec.UnsetType:
    """The shared state that an event sets."""
    if isinstance(event, SharedStateReplaced):
        return event.state
    return given_state(event.metadata) if isinstance(event, RunStarted) else msgspec.UNSET


def fold(state: SessionState, events: Iterable[LoggedEvent]) -> SessionState:
    """Apply the events in order."""
    for logged in events:
        apply(state, logged)
    return state


def apply(state: SessionState, logged: LoggedEvent) -> None:  # noqa: C901  # one case for each kind of event
    """Apply one event to the state.

    Raises:
        ValueError: there is a gap, or the log belongs to another session.
        KeyError: the event belongs to a call or a message that is not open.
    """
    if logged.seq != state.seq + 1:
        raise ValueError(f"expected event {state.seq + 1}, got {logged.seq} (session {state.session_id})")
    match logged.event:  # the events of every run first: a pattern that does not match costs more than one that does
        case BlockClosed(loop=loop):
            state.open_messages[loop].closed_block_count += 1
        case MessageOpened(message_id=message_id, loop=loop):
            state.open_messages[loop] = OpenMessage(message_id=message_id)
            if state.run is not None:
                state.run.steps[loop] = state.run.steps.get(loop, 0) + 1
        case MessageClosed(loop=loop, usage=usage, status=status):
            state.open_messages.pop(loop, None)
            state.message_count += loop == ROOT
            if status == "cut" and state.run is not None and loop in state.run.steps:
                state.run.steps[loop] -= 1
            if usage is not None and state.run is not None:
                state.run.usage += usage
        case MessageAdded(message=message):
            state.message_count += message.loop == ROOT
            if isinstance(message, UserMessage) and message.loop == ROOT:
                state.turn_state_seq = state.shared_state_seq
                is_untitled = not (state.fallback_title or state.settings.is_ephemeral)
                if is_untitled and (beginning := title_from(text_of(message.content))):
                    state.fallback_title = beginning
                    state.first_messages = (*state.first_messages, (logged.seq, beginning))
            if state.run is not None and state.run.pending_inputs:
                state.run.pending_inputs = tuple(each for each in state.run.pending_inputs if each.id != message.id)
        case RunStarted() as run:
            _remove_queued(state, run.run_id)
            for call in state.calls.values():
                call.is_of_earlier_run = True
            state.run = ActiveRun(
                run_id=run.run_id,
                protocol=run.protocol,
                started_seq=logged.seq,
                pending_inputs=run.inputs,
                client_run_id=run.client_run_id,
                client_tools=run.client_tools,
                parameters=run.parameters,
                metadata=run.metadata,
            )
            state.last_run, state.last_run_seq = run.run_id, logged.seq
            if shared_state_in(run) is not msgspec.UNSET:
                state.shared_state_seq = logged.seq
            state.resends_history |= run.metadata.resends_history
        case RunStopped() as stop:
            _remove_queued(state, stop.run_id)
            if state.run is not None and state.run.run_id == stop.run_id:
                options = RunOptions(client_tools=state.run.client_tools, parameters=state.run.parameters)
                state.asking_options = options if stop.reason == "tool_use" and options != RunOptions() else None
                state.run = None
                state.last_stop = stop.reason
            state.usage += stop.usage
        case CallOpened() as opened:
            state.open_messages[opened.loop].closed_block_count += 1
            state.calls[opened.call.call_id] = OpenCall.opened_by(opened, logged.at)
            if state.run is not None and not opened.repeat:
                state.run.server_calls += is_limited(opened)
        case CallStarted(call_id=call_id):
            call = state.calls[call_id]
            call.started, call.parked = True, False
            call.attempts += 1
        case CallSettled(result=result, outcome=outcome):
            state.calls.pop(result.call_id, None)
            state.message_count += result.loop == ROOT
            if state.run is not None and outcome in {"done", "failed"}:  # the run has made progress
                state.run.attempt = 1
            if state.run is not None and len(state.run.steps) > 1:
                state.run.steps.pop(fork_loop(result.call_id), None)
        case SettingsChanged(change=change):
            state.settings = apply_change(state.settings, change)
        case RunQueued() as queued:
            state.queue.append(queued)
        case RunResumed(attempt=attempt):
            if state.run is not None:
                state.run.attempt, state.run.parked = attempt, False
        case RunParked():
            if state.run is not None:
                state.run.parked = True
        case CallParked() as parked:
            state.calls[parked.call_id].park(parked)
        case AnswerGiven() as answer:
            call = state.calls[answer.call_id]
            call.granted, call.reason, call.answered_seq = answer.granted, answer.reason, logged.seq
            call.answer, call.edited = answer.result, answer.arguments
            call.approved |= answer.granted and call.kind == "permission"
            call.parked = call.started = False
            call.attempts = 0
        case MemoriesInjected(memories=memories):
            if state.run is not None:
                state.run.memories = tuple(each.id for each in memories)
        case CompactionMade(summary=summary, up_to=up_to):
            state.compaction = Compaction(seq=logged.seq, summary=summary, up_to=up_to)
        case Branched(hidden_ranges=hidden, compaction=compacted):
            state.hidden_ranges, state.compaction = hidden, compacted
            if state.first_messages:  # an earlier release did not record them
                shown = (beginning for seq, beginning in state.first_messages if not contains(hidden, seq))
                state.fallback_title = next(shown, "")
        case SharedStateReplaced():
            state.shared_state_seq = logged.seq
        case SessionCreated() | PlanUpdated() | StageChanged() | CardUpdated() | UnknownEvent():
            pass
        case _ as never:
            assert_never(never)
    state.seq = logged.seq  # last, so that an event that does not fit leaves the position unchanged
    state.updated_at = logged.at


def _remove_queued(state: SessionState, run_id: RunId) -> None:
    if state.queue:
        state.queue = [queued for queued in state.queue if queued.run_id != run_id]
