"""Blade's memories on the wire. Pure. Source: specification, sections 3.5 and 11."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dragoman.core.memories import Memory, MemoryKind, MemoryTexts, RecordType
from dragoman.core.refusals import Invalid, NotFound
from dragoman.protocols.blade.wire.chat import public_session_id

_MAX_ID = 2**63 - 1


class MemoryInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A memory as it is shown."""

    id: int
    type: MemoryKind
    content: str
    skill_name: str | None
    record_type: RecordType | None
    scope: str | None
    owner: str | None
    topic: str | None
    mem0_id: str | None
    superseded_by: int | None
    write_reason: str | None
    created_at: datetime
    updated_at: datetime | None
    hit_count: int
    last_hit_at: datetime | None
    disabled: bool
    source_session: str


class MemoryPage(msgspec.Struct, frozen=True):
    """A page of the matching memories, and the number of all matches."""

    items: list[MemoryInfo]
    total: int


class MemoryBody(msgspec.Struct, frozen=True):
    """The texts of a memory. In a change, an empty text removes one; null leaves it unchanged."""

    content: str | None = None
    type: MemoryKind | None = None
    skill_name: str | None = None
    record_type: RecordType | Literal[""] | None = None
    scope: str | None = None
    owner: str | None = None
    topic: str | None = None
    mem0_id: str | None = None
    write_reason: str | None = None


class NewMemoryBody(MemoryBody, frozen=True):
    """The texts of a new memory. The other members are set by the server, and have no other value than in a new one."""

    id: None = None
    created_at: None = None
    source_session: Literal[""] | None = None
    superseded_by: None = None
    updated_at: None = None
    hit_count: Literal[0] | None = None
    last_hit_at: None = None
    disabled: bool | None = None


class MemorySwitchBody(msgspec.Struct, frozen=True):
    """The body of `PATCH /memories/{id}`."""

    disabled: bool


class MemoryBatchBody(msgspec.Struct, frozen=True):
    """An action on several memories."""

    action: Literal["delete", "disable", "enable"]
    ids: Annotated[list[Annotated[int, Meta(ge=0, le=_MAX_ID)]], Meta(min_length=1, max_length=100)]


def to_memory_info(memory: Memory) -> MemoryInfo:
    """Return a memory as clients see it."""
    fields = ("id", "superseded_by", "created_at", "updated_at", "hit_count", "last_hit_at", "disabled")
    return MemoryInfo(
        **msgspec.structs.asdict(memory.texts),
        **{name: getattr(memory, name) for name in fields},
        source_session="" if memory.source_session is None else public_session_id(memory.source_session),
    )


def texts_of(body: NewMemoryBody) -> MemoryTexts:
    """Return the texts of a new memory.

    Raises:
        Invalid: the content is absent, the reason is empty, or the memory is to be disabled.
    """
    if body.content is None:
        raise Invalid("this field is required", path="content")
    if body.write_reason == "":
        raise Invalid("must have 1 to 500 characters", path="write_reason")
    if body.disabled:
        raise Invalid("a new memory is enabled; use PATCH to disable it", path="disabled")
    return MemoryTexts(**changes_of(body))  # type: ignore[arg-type]  # the fields have the same names and types


def changes_of(body: MemoryBody) -> dict[str, str | None]:
    """Return the changed fields."""
    changes = {name: value for name in MemoryBody.__struct_fields__ if (value := getattr(body, name)) is not None}
    return {**changes, "record_type": None} if changes.get("record_type") == "" else changes


def parse_memory_id(text: str) -> int:
    """Read a memory's id. Raises NotFound if no memory can have it."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise NotFound("Memory not found")
    return int(text)
