"""Sessions over REST, on the wire: what is sent and what comes back. Pure. Source: specification, 5.2 to 5.4."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from dragoman.core.answers import compact
from dragoman.core.content import Json
from dragoman.core.refusals import Invalid
from dragoman.core.tokens import tokens_of_text
from dragoman.protocols.blade.projection.turns import Growing
from dragoman.protocols.blade.rest.bodies import In, text
from dragoman.protocols.blade.wire import chat

INTENT = 1000
NAME = 255
ENV = 200
"""Variables of a session."""
ENV_CHARS = 10_000
PREVIEW = 80
WORDS = 500
"""Characters that may be searched for."""
MESSAGES = 1000
"""Messages whose tokens are counted at a time."""


class CreateSession(In, frozen=True, kw_only=True):
    """`POST /api/sessions`."""

    intent: str | None = ""
    solution_id: str | None = None
    biz_role_id: str | None = None
    model: str | None = None
    memory_enabled: bool | None = None
    is_persistent: bool | None = None
    env: dict[str, str] | None = None
    disable_tools: tuple[str, ...] | None = None
    options: dict[str, str] | None = None
    """Ours to add: values for options that the agent declares."""


class Rename(In, frozen=True, kw_only=True):
    """`PATCH /api/sessions/{id}`."""

    intent: str


class Environment(In, frozen=True, kw_only=True):
    """`PUT …/env`."""

    env: dict[str, str]


class Pin(In, frozen=True, kw_only=True):
    """`PATCH …/pin`."""

    pinned: bool


class Sharing(In, frozen=True, kw_only=True):
    """`PATCH …/sharing`."""

    shared: bool


class Remembering(In, frozen=True, kw_only=True):
    """`PATCH …/memory`."""

    memory_enabled: bool


class AtCheckpoint(In, frozen=True, kw_only=True):
    """`POST …/rewind` and `…/switch-branch`."""

    checkpoint_id: str


class Checkout(AtCheckpoint, frozen=True, kw_only=True):
    """`POST …/checkout`."""

    position: chat.Position = "before"


class TokenizePrompt(In, frozen=True, kw_only=True):
    """`POST /api/sessions/tokenize/prompt`."""

    prompt: str
    model: str | None = None


class TokenizeMessages(In, frozen=True, kw_only=True):
    """`POST /api/sessions/tokenize/messages`."""

    messages: tuple[Json, ...]
    model: str | None = None


class Created(msgspec.Struct, frozen=True):
    """A new session."""

    session_id: str


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of sessions."""

    items: Sequence[chat.Session]
    total: int
    limit: int
    offset: int
    content_match_truncated: bool = False


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in the tree of a session's history."""

    entry_id: str
    parent_entry_id: str | None
    turn_id: str
    loop_id: str
    role: str
    kind: str
    sequence: int
    status: str
    checkpoint_id: str | None
    active: bool
    deprecated: bool
    tokens: int
    created_at: datetime | None
    blocks: list[chat.Block]


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A place to which a session can go back."""

    checkpoint_id: str
    turn_id: str
    sequence: int
    created_at: datetime | None
    preview: str
    active: bool


def checked_env(env: Mapping[str, str], path: str = "env") -> dict[str, str]:
    """Variables of a bounded number and size. Raises Invalid."""
    if len(env) > ENV:
        raise Invalid(f"must have at most {ENV} variables", path=path)
    for name, value in env.items():
        if not name or len(name) > NAME or len(value) > ENV_CHARS:
            raise Invalid(f"a name has 1 to {NAME} characters, a value at most {ENV_CHARS}", path=path)
    return dict(env)


def optional(value: str | None, name: str, most: int = NAME) -> str | None:
    """A text that may be missing, or empty, which means the same."""
    return text(value, name, most) if value else None


def checkpoint_of(growing: Growing, *, active: bool) -> Checkpoint:
    """A user's turn as a checkpoint."""
    turn = growing.turn
    return Checkpoint(
        checkpoint_id=chat.checkpoint_id(growing.first_seq),
        turn_id=turn.turn_id,
        sequence=turn.sequence,
        created_at=turn.started_at,
        preview=text_of(turn)[:PREVIEW],
        active=active,
    )


def node_of(growing: Growing, parent: str | None, *, active: bool) -> Node:
    """A turn as an entry in the tree."""
    turn = growing.turn
    return Node(
        entry_id=turn.id,
        parent_entry_id=parent,
        turn_id=turn.turn_id,
        loop_id=turn.loop_id,
        role=turn.role,
        kind=turn.kind,
        sequence=turn.sequence,
        status=turn.status,
        checkpoint_id=chat.checkpoint_id(growing.first_seq) if growing.cut_at is not None else None,
        active=active,
        deprecated=turn.deprecated,
        tokens=tokens_of(turn),
        created_at=turn.started_at,
        blocks=turn.blocks,
    )


def text_of(turn: chat.Turn) -> str:
    """A turn's plain text."""
    return "".join(block.content for block in turn.blocks if block.type == "text")


def tokens_of(turn: chat.Turn) -> int:
    """About how many tokens a turn has."""
    if turn.kind == "compaction":
        return tokens_of_text(turn.summary_full or "")
    return sum(tokens_of_value(block.content) for block in turn.blocks)


def tokens_of_value(value: Json) -> int:
    """About how many tokens a text, or a value as JSON, has."""
    return tokens_of_text(value if isinstance(value, str) else compact(value))
