"""The timeline of a turn's runs on the wire, an extension of Blade's REST. Pure."""

from datetime import datetime
from typing import Literal

import msgspec

from dragoman.core.content import Json, MessageStatus
from dragoman.core.events import CallKind, CallOutcome, StopReason, WaitKind
from dragoman.protocols.blade.wire.chat import Block, TokenUsage


class TimelineRun(msgspec.Struct, frozen=True, kw_only=True):
    """A chat. Without `ended_at` it is still active."""

    run_id: str = msgspec.field(name="chat_run_id")
    first_seq: int = msgspec.field(name="sequence")
    protocol: str
    started_at: datetime
    resumed_at: list[datetime]
    """When another process continued it after a restart."""
    ended_at: datetime | None
    reason: StopReason | None
    code: str | None
    message: str | None
    usage: TokenUsage


class TimelineStep(msgspec.Struct, frozen=True, kw_only=True):
    """A model call."""

    turn_id: str
    loop_id: str
    parent_fork_tool_call_id: str | None
    sequence: int
    started_at: datetime
    ended_at: datetime | None
    status: MessageStatus | None
    model: str | None
    usage: TokenUsage | None
    context_window: int | None
    blocks: list[Block]


class TimelineWait(msgspec.Struct, frozen=True, kw_only=True):
    """The time in which a call waits; `kind` is null if a crash interrupted it and the user decides."""

    kind: WaitKind | None
    started_at: datetime
    ended_at: datetime | None
    granted: bool | None


class TimelineCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call."""

    tool_call_id: str
    tool_name: str
    turn_id: str
    loop_id: str
    parent_fork_tool_call_id: str | None
    sequence: int
    kind: CallKind
    arguments: Json
    opened_at: datetime
    started_at: datetime | None
    """When the tool began to run in the server."""
    ended_at: datetime | None
    outcome: CallOutcome | None
    result: Json
    waits: list[TimelineWait]


class RunTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn did and when. `sequence` orders runs, steps and calls by their begin."""

    runs: list[TimelineRun]
    steps: list[TimelineStep]
    calls: list[TimelineCall]


class InputMessage(msgspec.Struct, frozen=True):
    """A message that a model got."""

    role: Literal["user", "assistant", "tool", "system"]
    blocks: list[Block]


class ModelInput(msgspec.Struct, frozen=True):
    """The messages before a model call. `summary` replaces older ones."""

    summary: str | None
    messages: list[InputMessage]
