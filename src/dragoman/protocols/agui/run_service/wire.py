"""The bodies and parameters of the run service. What they must satisfy beyond their shape is in `rules`. Pure.

Fields of the protocol's own objects are accepted in camelCase and in snake_case; camelCase wins. Names inside opaque
values (`state`, a tool's `parameters`, a call's `arguments`, `forwardedProps`) are left as they are.

Source: seed 002; the run service's specification, A.3.
"""

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dragoman.core.content import Json, JsonObject
from dragoman.core.ids import SessionId
from dragoman.protocols.agui import wire as agui_wire
from dragoman.protocols.agui.content import AssistantMessage, DeveloperMessage, SystemMessage, TextPart, WireStruct
from dragoman.protocols.kit.decoding import check_depth, convert_value, decode_json


class _Out(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the service sends."""


# --- RunAgentInput ----------------------------------------------------------------------------------------------------


class BinaryPart(WireStruct, frozen=True, kw_only=True, tag="binary", tag_field="type"):
    """An image, by a signed link of this server."""

    mime_type: str
    id: str | None = None
    url: str | None = None
    data: str | None = None
    filename: str | None = None


class Source(WireStruct, frozen=True, kw_only=True):
    """Where an image of AG-UI 1.0 is."""

    type: str
    value: str | None = None
    mime_type: str | None = None


class ImagePart(WireStruct, frozen=True, kw_only=True, tag="image", tag_field="type"):
    """An image in the form of AG-UI 1.0. It means the same as a binary part."""

    source: Source


Part = TextPart | BinaryPart | ImagePart


class UserMessage(WireStruct, frozen=True, kw_only=True, tag="user", tag_field="role"):
    """A user message. The only one that is stored."""

    id: str
    content: str | tuple[Part, ...]
    name: str | None = None


class ReasoningMessage(WireStruct, frozen=True, kw_only=True, tag="reasoning", tag_field="role"):
    """Reasoning. Not used."""

    id: str
    content: str | None = None


class ActivityMessage(WireStruct, frozen=True, kw_only=True, tag="activity", tag_field="role"):
    """An activity. Not used."""

    id: str
    activity_type: str | None = None
    content: Json = None


class ToolMessage(WireStruct, frozen=True, kw_only=True, tag="tool", tag_field="role"):
    """The result of a call. Used if it answers an open call of a front-end tool of this thread."""

    id: str
    content: str
    tool_call_id: str
    error: str | None = None


Message = (
    UserMessage | AssistantMessage | SystemMessage | DeveloperMessage | ReasoningMessage | ActivityMessage | ToolMessage
)


class Tool(agui_wire.Tool, frozen=True, kw_only=True):
    """A tool of the front end. Here, all its fields are required."""

    description: str
    parameters: JsonObject


class RunAgentInput(WireStruct, frozen=True, kw_only=True):
    """The body of `POST /runs`."""

    thread_id: str
    run_id: Annotated[str, Meta(min_length=1)]
    parent_run_id: str | None = None
    state: Json = None
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] | None = None
    context: tuple[agui_wire.ContextEntry, ...] | None = None
    forwarded_props: Json = None

    @property
    def user(self) -> UserMessage:
        """The user message. Only after the rules have been checked."""
        return next(message for message in self.messages if isinstance(message, UserMessage))

    def parts(self) -> Iterator[Part]:
        """The parts of all user messages: rules and idempotency look at them before there must be exactly one."""
        for message in self.messages:
            if isinstance(message, UserMessage):
                yield from (TextPart(text=message.content),) if isinstance(message.content, str) else message.content

    def images(self) -> list[BinaryPart]:
        """The images of the user message, in either form."""
        return [image_of(part) for part in self.parts() if not isinstance(part, TextPart)]

    def text(self) -> str:
        """All text of the user message."""
        return "".join(part.text for part in self.parts() if isinstance(part, TextPart))


def image_of(part: BinaryPart | ImagePart) -> BinaryPart:
    """An image in either form as a binary part. Without a media type it counts as an image."""
    if isinstance(part, BinaryPart):
        return part
    source = part.source
    mime_type = "image/*" if source.mime_type is None else source.mime_type
    if source.type == "data":
        return BinaryPart(mime_type=mime_type, data=source.value or "")
    return BinaryPart(mime_type=mime_type, url=source.value if source.type == "url" else None)


# --- decoding ---------------------------------------------------------------------------------------------------------


def decode_input(raw: bytes) -> RunAgentInput:
    """Decode the body of `POST /runs`, before its rules are checked. Raises InvalidJson or InvalidBody."""
    body = _map_member(_to_camel_case(_read(raw)), "messages", _normalize_message)
    return convert_value(body, RunAgentInput)


def decode_answers(raw: bytes) -> "Answers":
    """Decode the body of `POST /runs/{thread_id}/answers`. Raises InvalidJson or InvalidBody."""
    return convert_value(_map_member(_read(raw), "answers", _to_camel_case), Answers)


def decode_profile(raw: bytes) -> "ProfileChange":
    """Decode the body of `PATCH /profile`. Raises InvalidJson or InvalidBody."""
    return convert_value(_read(raw), ProfileChange)


def canonical_json(raw: bytes) -> bytes:
    """A body as JSON with sorted members, so that equal requests are equal bytes. Raises InvalidJson or InvalidBody."""
    return msgspec.json.encode(_read(raw), order="deterministic")


def _read(raw: bytes) -> Json:
    value = decode_json(raw)
    check_depth(value)
    return value


# --- spelling ---------------------------------------------------------------------------------------------------------


def _to_camel_case(value: Json) -> Json:
    """An object with its names in camelCase; other values unchanged."""
    if not isinstance(value, dict):
        return value
    return {agui_wire.camel_case(name): each for name, each in value.items() if "_" in name} | value


def _map_member(value: Json, name: str, change: Callable[[Json], Json]) -> Json:
    """An object with `change` applied to its member `name`, or to each item of it if it is a list."""
    if not isinstance(value, dict) or name not in value:
        return value
    inner = value[name]
    return {**value, name: list(map(change, inner)) if isinstance(inner, list) else change(inner)}


def _normalize_message(value: Json) -> Json:
    message = _map_member(_to_camel_case(value), "toolCalls", _to_camel_case)
    if isinstance(message, dict) and message.get("role") == "user":
        return _map_member(message, "content", lambda part: _map_member(_to_camel_case(part), "source", _to_camel_case))
    return message


# --- answers, the profile ---------------------------------------------------------------------------------------------


class Answer(WireStruct, frozen=True, kw_only=True):
    """The answer to a call that waits (shared rules, 22)."""

    call_id: str
    granted: bool | None = None
    reason: str | None = None
    result: Json = UNSET
    error: str | None = None
    selections: Json = None
    custom: Json = None


class Answers(WireStruct, frozen=True, kw_only=True):
    """The body of `POST /runs/{thread_id}/answers`."""

    answers: Annotated[tuple[Answer, ...], Meta(min_length=1, max_length=1000)]


class ProfileSettingsChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to a profile; null removes a setting."""

    timezone: str | UnsetType | None = UNSET
    locale: str | UnsetType | None = UNSET


class ProfileChange(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `PATCH /profile`."""

    settings: ProfileSettingsChange


# --- responses --------------------------------------------------------------------------------------------------------


class TaskAccepted(_Out, frozen=True, kw_only=True):
    """A run was accepted."""

    task_id: str
    thread_id: SessionId
    run_id: str
    created: bool
    """Whether the request created the thread."""


class AnswersAccepted(_Out, frozen=True, kw_only=True):
    """Answers were accepted. While calls are `pending`, no run starts, and `run_id` is the run that waits."""

    task_id: str
    thread_id: SessionId
    run_id: str
    created: Literal[False] = False
    pending: tuple[str, ...]


class CancelResponse(_Out, frozen=True, kw_only=True):
    """`accepted`: the run was active or queued, and will stop."""

    thread_id: SessionId
    run_id: str
    accepted: bool


class Attachment(_Out, frozen=True, kw_only=True):
    """An image of a message, with a link signed for this response."""

    mime_type: str
    url: str


class HistoryUser(_Out, frozen=True, kw_only=True, tag="user", tag_field="role"):
    """A user message."""

    id: str
    seq: int
    content: str
    attachments: tuple[Attachment, ...]
    timestamp: datetime


class HistoryAssistant(msgspec.Struct, frozen=True, kw_only=True, tag="assistant", tag_field="role"):
    """An assistant message. `status` and `metadata` are absent if it is complete."""

    id: str
    seq: int
    content: str
    ui_schema: JsonObject | None
    timestamp: datetime
    status: Literal["partial_success", "failed"] | UnsetType = UNSET
    metadata: JsonObject | UnsetType = UNSET
    """The same as in the event that ended the message."""


HistoryMessage = HistoryUser | HistoryAssistant


class History(_Out, frozen=True, kw_only=True):
    """One day of a thread."""

    scope: Literal["history_day"] = "history_day"
    thread_id: SessionId | None
    day: date | None
    has_more: bool
    messages: tuple[HistoryMessage, ...]


class ThreadInfo(_Out, frozen=True, kw_only=True):
    """A thread. `status`: `running` also while runs are queued, `waiting` for answers, else `idle`."""

    thread_id: SessionId
    title: str
    agent_type: str = msgspec.field(name="agent_type")
    status: Literal["idle", "running", "waiting"]
    created_at: datetime
    updated_at: datetime


class ThreadPage(_Out, frozen=True, kw_only=True):
    """A user's threads, newest first. `next` is null on the last page."""

    threads: tuple[ThreadInfo, ...]
    next: str | None


class RunFailure(_Out, frozen=True, kw_only=True):
    """Why a run failed."""

    code: str
    message: str


Status = Literal["queued", "running", "waiting", "completed", "cancelled", "failed"]


class RunStatus(_Out, frozen=True, kw_only=True):
    """A run. `stopReason` says how it ended; `waiting`: it ended with calls that wait for an answer."""

    task_id: str
    thread_id: SessionId
    run_id: str
    status: Status
    stop_reason: str | None = None
    error: RunFailure | None = None


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """An uploaded object and a link to it."""

    bucket: str
    path: str
    mime_type: str
    url: str


class StoredObjectPage(msgspec.Struct, frozen=True):
    """A user's uploaded objects, newest first."""

    items: list[StoredObject]


class SignedUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A new link to an object."""

    bucket: str
    path: str
    url: str


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a recording."""

    text: str


class ProfileSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A profile's settings; null if not set."""

    timezone: str | None
    locale: str | None


class ProfileResponse(_Out, frozen=True, kw_only=True):
    """A user's settings for all agents."""

    user_id: str
    settings: ProfileSettings


# --- query parameters -------------------------------------------------------------------------------------------------

IDLE_DEFAULT, IDLE_HIGHEST = 300, 3600
POSITION_DIGITS = 18
"""A number with more digits is beyond every event there will ever be."""

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EVENT_ID = re.compile(r"([0-9]+)-([0-9]+)")


def parse_day(text: str) -> date | None:
    """Read `YYYY-MM-DD`; None if it is not a day."""
    if _DAY.fullmatch(text) is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


class EventId(NamedTuple):
    """The id of an event, `SEQ-N`: an event of the log, and the ordinal among the stream's events since then.

    Ids grow along the thread and are the same in every replay.
    """

    seq: int
    ordinal: int

    def __str__(self) -> str:
        return f"{self.seq}-{self.ordinal}"


START_EVENT_ID = EventId(0, 0)


def parse_event_id(text: str) -> EventId | None:
    """Read an event id; None if it does not have the form of one. An id that was never sent is a position too."""
    match = _EVENT_ID.fullmatch(text)
    return None if match is None else EventId(*map(_bounded_int, match.groups()))


def _bounded_int(digits: str) -> int:
    digits = digits.lstrip("0")
    return int(digits or 0) if len(digits) <= POSITION_DIGITS else 10**POSITION_DIGITS
