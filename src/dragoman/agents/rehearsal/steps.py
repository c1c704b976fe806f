"""The steps of rehearsal scripts, and the segments that they form. Values only."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dragoman.core.content import Data, Image, Json, JsonObject, StreamedBlockKind, Usage
from dragoman.core.events import PlanUpdated

DEFAULT_DELTA_CHARS = 8
"""Characters per delta if a script does not specify `size`."""


class BlockStep(msgspec.Struct, frozen=True):
    """A text or a thinking block: one string cut into deltas of `size` characters, or the deltas themselves."""

    kind: StreamedBlockKind
    text: str | tuple[str, ...]
    size: int = DEFAULT_DELTA_CHARS
    every_ms: float = 0


Milliseconds = Annotated[float, Meta(ge=0, le=86_400_000)]


class Emit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text block of `count` deltas, each exactly `text`, in which `{i}` and `{i3}` are the delta's index."""

    count: Annotated[int, Meta(ge=0, le=2**31)]
    text: str
    every_ms: Milliseconds = 0


class Burst(msgspec.Struct, frozen=True):
    """`count` deltas of 1,000 characters, without a pause."""

    count: int


class ShowBlock(msgspec.Struct, frozen=True):
    """Adds a whole block."""

    block: Image | Data


class ShowCard(msgspec.Struct, frozen=True):
    """Attaches a user interface to the answer."""

    card: JsonObject


class Recall(msgspec.Struct, frozen=True):
    """Says earlier texts of the session."""

    what: Literal["user", "system", "memory"]


class SayOption(msgspec.Struct, frozen=True):
    """Says the value of an option."""

    name: str


class SayMetadata(msgspec.Struct, frozen=True):
    """Says a value of the run's metadata."""

    name: str


class SayStartCount(msgspec.Struct, frozen=True):
    """Says how often the slow tool was started with a tag."""

    tag: str


class Wait(msgspec.Struct, frozen=True):
    """Waits."""

    ms: float


class Crash(msgspec.Struct, frozen=True):
    """Raises an unexpected error."""

    text: str


class Fail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Raises an `AgentError`."""

    code: str
    message: str


Step = (
    BlockStep
    | Emit
    | Burst
    | ShowBlock
    | ShowCard
    | PlanUpdated
    | Usage
    | Recall
    | SayOption
    | SayMetadata
    | SayStartCount
    | Wait
    | Crash
    | Fail
)


class RequestedCall(msgspec.Struct, frozen=True):
    """A tool call. With an `output`, the call has its own tool, which returns that value."""

    name: str
    input: JsonObject
    output: Json | UnsetType = UNSET
    server: str | None = None


class End(msgspec.Struct, frozen=True):
    """Ends a model step with its calls. `is_many`: the script has them as `calls`."""

    calls: tuple[RequestedCall, ...] = ()
    is_many: bool = False


class Stop(msgspec.Struct, frozen=True):
    """Ends the run."""

    reason: Literal["max_tokens", "refusal"]


class Segment(msgspec.Struct, frozen=True):
    """One model step. Only the last one of a script has no `end`; it may have a stop reason instead."""

    steps: tuple[Step, ...]
    end: End | None = None
    stop: Literal["max_tokens", "refusal"] | None = None


Script = tuple[Segment, ...]
