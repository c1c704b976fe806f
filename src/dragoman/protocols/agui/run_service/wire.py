"""The run service on the wire: `RunAgentInput` and all other bodies and parameters. What they mean: `runs_rules`. Pure.

Every field of the protocol's own objects is taken in camelCase and in snake_case; where both are there, camelCase wins.
Inside opaque values (`state`, a tool's `parameters`, a call's `arguments`, `forwardedProps`) names are as they are.

Source: seed 002; the run service's specification, A.3.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dragoman.core.content import Json, JsonObject, is_too_deep
from dragoman.core.ids import SessionId


class _In(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What clients send: unknown fields are ignored."""


class _Out(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What we send."""


# --- RunAgentInput ----------------------------------------------------------------------------------------------------


class TextPart(_In, frozen=True, kw_only=True, tag="text", tag_field="type"):
    """Words."""

    text: str


class BinaryPart(_In, frozen=True, kw_only=True, tag="binary", tag_field="type"):
    """A picture, by a link of ours."""

    mime_type: str
    id: str | None = None
    url: str | None = None
    data: str | None = None
    filename: str | None = None


class Source(_In, frozen=True, kw_only=True):
    """Where a picture of AG-UI 1.0 is."""

    type: str
    value: str | None = None
    mime_type: str | None = None


class ImagePart(_In, frozen=True, kw_only=True, tag="image", tag_field="type"):
    """A picture as AG-UI 1.0 writes it; it means what a binary part means."""

    source: Source


Part = TextPart | BinaryPart | ImagePart


class UserMessage(_In, frozen=True, kw_only=True, tag="user", tag_field="role"):
    """What the person says: the one message that this door stores."""

    id: str
    content: str | tuple[Part, ...]
    name: str | None = None
    encrypted_value: str | None = None


class Function(_In, frozen=True, kw_only=True):
    """What a call calls. `arguments` is JSON in a string."""

    name: str
    arguments: str


class ToolCall(_In, frozen=True, kw_only=True):
    """A call in an assistant message."""

    id: str
    type: Literal["function"]
    function: Function
    encrypted_value: str | None = None


class AssistantMessage(_In, frozen=True, kw_only=True, tag="assistant", tag_field="role"):
    """What the agent said, as the client holds it; not used."""

    id: str
    content: str | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    encrypted_value: str | None = None


class SystemMessage(_In, frozen=True, kw_only=True, tag="system", tag_field="role"):
    """Instructions, as the client holds them; not used."""

    id: str
    content: str
    name: str | None = None
    encrypted_value: str | None = None


class DeveloperMessage(_In, frozen=True, kw_only=True, tag="developer", tag_field="role"):
    """Instructions, as the client holds them; not used."""

    id: str
    content: str
    name: str | None = None
    encrypted_value: str | None = None


class ReasoningMessage(_In, frozen=True, kw_only=True, tag="reasoning", tag_field="role"):
    """What the agent thought, as the client holds it; not used."""

    id: str
    content: str | None = None
    encrypted_value: str | None = None


class ActivityMessage(_In, frozen=True, kw_only=True, tag="activity", tag_field="role"):
    """What the agent did, as the client holds it; not used."""

    id: str
    activity_type: str | None = None
    content: Json = None


class ToolMessage(_In, frozen=True, kw_only=True, tag="tool", tag_field="role"):
    """The result of a call. One that answers an open call of a front-end tool of this thread is used."""

    id: str
    content: str
    tool_call_id: str
    error: str | None = None
    encrypted_value: str | None = None


Message = (
    UserMessage | AssistantMessage | SystemMessage | DeveloperMessage | ReasoningMessage | ActivityMessage | ToolMessage
)


class Tool(_In, frozen=True, kw_only=True):
    """A tool of the front end."""

    name: str
    description: str
    parameters: JsonObject


class Context(_In, frozen=True, kw_only=True):
    """Something that the application wants the agent to know."""

    description: str
    value: str


class RunAgentInput(_In, frozen=True, kw_only=True):
    """The body of `POST /runs`."""

    thread_id: str
    run_id: Annotated[str, Meta(min_length=1)]
    parent_run_id: str | None = None
    state: Json = None
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] | None = None
    context: tuple[Context, ...] | None = None
    forwarded_props: Json = None

    @property
    def user(self) -> UserMessage:
        """The user's message, once the rules have said that it is there."""
        return next(message for message in self.messages if isinstance(message, UserMessage))

    def parts(self) -> Sequence[Part]:
        """The user's message as parts."""
        content = self.user.content
        return (TextPart(text=content),) if isinstance(content, str) else content

    def pictures(self) -> list[BinaryPart]:
        """The pictures of the user's message, in either spelling."""
        return [picture for part in self.parts() if (picture := picture_of(part)) is not None]

    def text(self) -> str:
        """All text of the user's message."""
        return "".join(part.text for part in self.parts() if isinstance(part, TextPart))


def picture_of(part: Part) -> BinaryPart | None:
    """A part as a binary part; None when it is no picture. One that names no type is taken as an image."""
    match part:
        case BinaryPart():
            return part
        case ImagePart(source=source):
            mime_type = "image/*" if source.mime_type is None else source.mime_type
            if source.type == "data":
                return BinaryPart(mime_type=mime_type, data=source.value or "")
            return BinaryPart(mime_type=mime_type, url=source.value if source.type == "url" else None)
        case _:
            return None


# --- decoding ---------------------------------------------------------------------------------------------------------


class InvalidBody(Exception):
    """A body is no JSON, or not of its form. `location`: where."""

    def __init__(self, location: Sequence[str | int]) -> None:
        super().__init__("the body is not of the form that was expected")
        self.location = location


def decode_input(raw: bytes) -> RunAgentInput:
    """Read the body of `POST /runs`; its rules are another matter. Raises Misshapen."""
    return _decode(raw, RunAgentInput, _normalize_run)


def decode_answers(raw: bytes) -> "Answers":
    """Read the body of `POST /runs/{thread_id}/answers`. Raises Misshapen."""
    return _decode(
        raw, Answers, lambda body: _map_member(body, "answers", lambda each: _to_camel_case(each, _ANSWER_NAMES))
    )


def decode_profile(raw: bytes) -> "ProfileChange":
    """Read the body of `PATCH /profile`. Raises Misshapen."""
    return _decode(raw, ProfileChange, lambda body: body)


def canonical_json(raw: bytes) -> bytes:
    """A body as JSON with its members in order, so that equal requests are equal bytes. Raises Misshapen."""
    return msgspec.json.encode(_read(raw), order="deterministic")


Body = TypeVar("Body")


def _decode(raw: bytes, kind: type[Body], normalize: Callable[[Json], Json]) -> Body:
    try:
        return msgspec.convert(normalize(_read(raw)), kind)
    except msgspec.ValidationError as error:
        raise InvalidBody(location_of(str(error))) from error


def _read(raw: bytes) -> Json:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # bad UTF-8 and depth raise the last two
        raise InvalidBody([]) from error
    if is_too_deep(value):
        raise InvalidBody([])
    return value


_PATH = re.compile(r" - at `\$(.*)`$")
_MISSING = re.compile(r"missing required field `([^`]*)`")
_PATH_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]+)\]")


def location_of(text: str) -> list[str | int]:
    """Where the decoder found a fault, as a path of names and places. Its own words go to nobody."""
    path, missing = _PATH.search(text), _MISSING.search(text)
    found: list[str | int] = [name or int(place) for name, place in _PATH_STEP.findall(path[1] if path else "")]
    return [*found, missing[1]] if missing else found


# --- spelling ---------------------------------------------------------------------------------------------------------


def _to_camel_case(value: Json, names: Mapping[str, str]) -> Json:
    """An object with camelCase in place of the snake_case of these names; anything else as it is."""
    if not isinstance(value, dict):
        return value
    renamed = {camel: value[snake] for snake, camel in names.items() if snake in value and camel not in value}
    return {**value, **renamed} if renamed else value


def _map_member(value: Json, name: str, change: Callable[[Json], Json]) -> Json:
    """An object whose member `name`, each item of it if it is a list, went through `change`."""
    if not isinstance(value, dict) or name not in value:
        return value
    inner = value[name]
    return {**value, name: list(map(change, inner)) if isinstance(inner, list) else change(inner)}


_RUN_NAMES = {
    "thread_id": "threadId",
    "run_id": "runId",
    "parent_run_id": "parentRunId",
    "forwarded_props": "forwardedProps",
}
_MESSAGE_NAMES = {
    "tool_calls": "toolCalls",
    "tool_call_id": "toolCallId",
    "encrypted_value": "encryptedValue",
    "activity_type": "activityType",
}


_ANSWER_NAMES = {"call_id": "callId"}


def _normalize_run(value: Json) -> Json:
    return _map_member(_to_camel_case(value, _RUN_NAMES), "messages", _normalize_message)


def _normalize_message(value: Json) -> Json:
    message = _to_camel_case(value, _MESSAGE_NAMES)
    message = _map_member(
        message, "toolCalls", lambda call: _to_camel_case(call, {"encrypted_value": "encryptedValue"})
    )
    if isinstance(message, dict) and message.get("role") == "user":
        return _map_member(message, "content", _normalize_part)
    return message


def _normalize_part(value: Json) -> Json:
    part = _to_camel_case(value, {"mime_type": "mimeType"})
    return _map_member(part, "source", lambda source: _to_camel_case(source, {"mime_type": "mimeType"}))


# --- answers, the profile ---------------------------------------------------------------------------------------------


class Answer(_In, frozen=True, kw_only=True):
    """What the user or the front end says about a call that waits (rulings, 22)."""

    call_id: str
    granted: bool | None = None
    reason: str | None = None
    result: Json = UNSET
    selections: Json = None
    custom: Json = None


class Answers(_In, frozen=True, kw_only=True):
    """The body of `POST /runs/{thread_id}/answers`."""

    answers: Annotated[tuple[Answer, ...], Meta(min_length=1, max_length=1000)]


class ProfileSettingsChange(msgspec.Struct, frozen=True, kw_only=True):
    """What of a profile changes; null takes a setting back."""

    timezone: str | UnsetType | None = UNSET
    locale: str | UnsetType | None = UNSET


class ProfileChange(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `PATCH /profile`."""

    settings: ProfileSettingsChange


# --- what we send -----------------------------------------------------------------------------------------------------


class TaskAccepted(_Out, frozen=True, kw_only=True):
    """A run that was taken."""

    task_id: str
    thread_id: SessionId
    run_id: str
    created: bool
    """Whether the request made the thread."""


class AnswersAccepted(_Out, frozen=True, kw_only=True):
    """Answers that were taken. While calls are `pending` no run begins, and the run named is the one that asked."""

    task_id: str
    thread_id: SessionId
    run_id: str
    created: Literal[False] = False
    pending: tuple[str, ...]


class CancelResponse(_Out, frozen=True, kw_only=True):
    """What became of a wish to stop a run. `accepted`: it was active or queued, and stops."""

    thread_id: SessionId
    run_id: str
    accepted: bool


class Attachment(_Out, frozen=True, kw_only=True):
    """A picture of a history's message, by a link that was signed for this answer."""

    mime_type: str
    url: str


class HistoryUser(_Out, frozen=True, kw_only=True, tag="user", tag_field="role"):
    """What the person said."""

    id: str
    seq: int
    content: str
    attachments: tuple[Attachment, ...]
    timestamp: datetime


class HistoryAssistant(msgspec.Struct, frozen=True, kw_only=True, tag="assistant", tag_field="role"):
    """What the agent said."""

    id: str
    seq: int
    content: str
    ui_schema: JsonObject | None
    timestamp: datetime


HistoryMessage = HistoryUser | HistoryAssistant


class History(_Out, frozen=True, kw_only=True):
    """One day of a thread."""

    scope: Literal["history_day"] = "history_day"
    thread_id: SessionId | None
    day: date | None
    has_more: bool
    messages: tuple[HistoryMessage, ...]


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object that was uploaded, and a link to it."""

    bucket: str
    path: str
    mime_type: str
    url: str


class StoredObjectPage(msgspec.Struct, frozen=True):
    """The objects that somebody has uploaded, the newest first."""

    items: list[StoredObject]


class SignedUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A fresh link to an object."""

    bucket: str
    path: str
    url: str


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What was said in a recording."""

    text: str


class ProfileSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A profile's settings; null where nothing is set."""

    timezone: str | None
    locale: str | None


class ProfileResponse(_Out, frozen=True, kw_only=True):
    """What a user has set for all agents."""

    user_id: str
    settings: ProfileSettings


# --- query parameters -------------------------------------------------------------------------------------------------

IDLE_DEFAULT, IDLE_LOWEST, IDLE_HIGHEST = 300, 1, 3600
POSITION_DIGITS = 18
"""What has more lies behind every event there will ever be."""

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EVENT_ID = re.compile(r"([0-9]+)-([0-9]+)")


def parse_day(text: str) -> date | None:
    """Read `YYYY-MM-DD`; None when it is no day."""
    if _DAY.fullmatch(text) is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def parse_idle_limit(text: str) -> int | None:
    """Read `idle_limit`; None when it is none from 1 to 3600."""
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        return None
    return int(text) if IDLE_LOWEST <= int(text) <= IDLE_HIGHEST else None


class EventId(NamedTuple):
    """An event's place in its thread: its record's place in the log, and its place among those of the record.

    They grow along the thread, and are the same in every replay: `SEQ-N`, where `N` is ten times the number of pieces
    since event `SEQ`, plus the place among the events that one record becomes.
    """

    seq: int
    ordinal: int

    def __str__(self) -> str:
        return f"{self.seq}-{self.ordinal}"


START_EVENT_ID = EventId(0, 0)


def parse_event_id(text: str) -> EventId | None:
    """Read an event's id; None when it has not the form of one. One that was never given out is a position too."""
    found = _EVENT_ID.fullmatch(text)
    return None if found is None else EventId(*(_bounded_int(each) for each in found.groups()))


def _bounded_int(digits: str) -> int:
    digits = digits.lstrip("0")
    return int(digits or 0) if len(digits) <= POSITION_DIGITS else 10**POSITION_DIGITS
