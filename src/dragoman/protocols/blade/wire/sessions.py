"""The bodies of Blade's session endpoints. Pure. Source: specification, 5.2 to 5.4."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from dragoman.core.answers import compact_json
from dragoman.core.content import Json
from dragoman.core.text_checks import check_text
from dragoman.core.tokens import estimate_tokens
from dragoman.protocols.blade.projection.turns import TurnBuilder
from dragoman.protocols.blade.wire import chat

MAX_INTENT_CHARS = 1000
MAX_NAME_CHARS = 255
CHECKPOINT_PREVIEW_CHARS = 80
MAX_QUERY_CHARS = 500


class CreateSession(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /api/sessions`."""

    intent: str | None = ""
    solution_id: str | None = None
    biz_role_id: str | None = None
    model: str | None = None
    memory_enabled: bool | None = None
    is_persistent: bool | None = None
    env: chat.Variables | None = None
    disable_tools: tuple[str, ...] | None = None
    options: dict[str, str] | None = None
    """An addition of ours: values for options that the agent declares."""


class Rename(msgspec.Struct, frozen=True, kw_only=True):
    """`PATCH /api/sessions/{id}`."""

    intent: str


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """`PUT …/env`."""

    env: chat.Variables


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """`PATCH …/pin`."""

    pinned: bool


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """`PATCH …/sharing`."""

    shared: bool


class MemorySetting(msgspec.Struct, frozen=True, kw_only=True):
    """`PATCH …/memory`."""

    memory_enabled: bool


class CheckpointRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`POST …/rewind` and `…/switch-branch`."""

    checkpoint_id: str


class Checkout(CheckpointRequest, frozen=True, kw_only=True):
    """`POST …/checkout`."""

    position: chat.Position = "before"


class TokenizePrompt(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /api/sessions/tokenize/prompt`."""

    prompt: str
    model: str | None = None


class TokenizeMessages(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /api/sessions/tokenize/messages`."""

    messages: Annotated[tuple[Json, ...], Meta(max_length=1000)]
    model: str | None = None


class CreatedSession(msgspec.Struct, frozen=True):
    """A new session."""

    session_id: str


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of sessions."""

    items: Sequence[chat.Session]
    total: int
    limit: int
    offset: int
    content_match_truncated: bool = False


class HistoryNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node in the tree of a session's history."""

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
    cut: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    """Whether the server crashed during this step, which was repeated."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The entries of all branches, and the tokens of the model's other input."""

    nodes: list[HistoryNode]
    system_prompt_tokens: int = 0
    tools_tokens: int
    tokenizer_model: str = "estimate"


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A place to which a session can go back."""

    checkpoint_id: str
    turn_id: str
    sequence: int
    created_at: datetime | None
    preview: str
    active: bool


class RewindResult(msgspec.Struct, frozen=True, kw_only=True):
    """The turns that left the messages, and the text that began them."""

    session_id: str
    checkpoint_id: str
    leaf_entry_id: str | None
    removed_turn_ids: list[str]
    message: str


class CheckoutResult(msgspec.Struct, frozen=True, kw_only=True):
    """The turns up to a checkpoint."""

    checkpoint_id: str
    position: chat.Position
    turns: list[chat.Turn]


class SwitchBranchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The last entry of the branch that is active now."""

    session_id: str
    leaf_entry_id: str


class CompactResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a compaction."""

    status: str = "ok"
    compaction_id: str
    archived_count: int
    tokens_before: int
    tokens_after: int
    saved_ratio: float
    trigger: str


def optional_text(value: str | None, name: str) -> str | None:
    """Check a text that may be null or empty, which both mean None. Raises Invalid."""
    return check_text(value, name, MAX_NAME_CHARS) if value else None


def checkpoint_of(builder: TurnBuilder, *, active: bool) -> Checkpoint:
    """Return a user's turn as a checkpoint."""
    turn = builder.turn
    return Checkpoint(
        checkpoint_id=chat.checkpoint_id(builder.first_seq),
        turn_id=turn.turn_id,
        sequence=turn.sequence,
        created_at=turn.started_at,
        preview=text_of(turn)[:CHECKPOINT_PREVIEW_CHARS],
        active=active,
    )


def node_of(builder: TurnBuilder, parent: TurnBuilder | None, *, active: bool) -> HistoryNode:
    """Return a turn as a node of the tree; `parent` is the entry before it."""
    turn = builder.turn
    fields = ("turn_id", "loop_id", "role", "kind", "sequence", "status", "deprecated", "blocks", "cut")
    return HistoryNode(
        entry_id=turn.id,
        parent_entry_id=None if parent is None else parent.turn.id,
        checkpoint_id=chat.checkpoint_id(builder.first_seq) if builder.is_checkpoint else None,
        active=active,
        tokens=tokens_of(turn),
        created_at=turn.started_at,
        **{name: getattr(turn, name) for name in fields},
    )


def text_of(turn: chat.Turn) -> str:
    """Return the plain text of a turn."""
    return "".join(block.content for block in turn.blocks if block.type == "text")


def tokens_of(turn: chat.Turn) -> int:
    """Estimate the tokens of a turn."""
    if turn.kind == "compaction":
        return estimate_tokens(turn.summary_full or "")
    return sum(tokens_of_value(block.content) for block in turn.blocks)


def tokens_of_value(value: Json) -> int:
    """Estimate the tokens of a text, or of another value as JSON."""
    return estimate_tokens(value if isinstance(value, str) else compact_json(value))
