"""What the rehearsal agent can play: steps, and the model steps that they make up. Values only."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from dragoman.core.content import Data, Image, Json, JsonObject, StreamedBlockKind, Usage
from dragoman.core.events import PlanUpdated

DEFAULT_DELTA_CHARS = 8
"""Characters per delta, where a script does not say."""


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
    """So many long deltas in one go."""

    count: int


class ShowBlock(msgspec.Struct, frozen=True):
    """A whole block."""

    block: Image | Data


class ShowCard(msgspec.Struct, frozen=True):
    """The user interface of the answer."""

    card: JsonObject


class Recall(msgspec.Struct, frozen=True):
    """Says what the session remembers."""

    what: Literal["user", "system", "memory"]


class SayOption(msgspec.Struct, frozen=True):
    """Says an option's value."""

    name: str


class SayMetadata(msgspec.Struct, frozen=True):
    """Says a property of the run."""

    name: str


class SayStartCount(msgspec.Struct, frozen=True):
    """Says how often the slow tool was started."""

    tag: str


class Wait(msgspec.Struct, frozen=True):
    """Nothing, for a while."""

    ms: float


class Crash(msgspec.Struct, frozen=True):
    """An error that the agent did not expect."""

    text: str


class Fail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent's own error."""

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
    """A call to make. With an `output` it brings its own tool, which returns just that."""

    name: str
    input: JsonObject
    output: Json | UnsetType = UNSET
    server: str | None = None


class End(msgspec.Struct, frozen=True):
    """The end of a model step, with its calls. `is_many`: they were written as `calls`."""

    calls: tuple[RequestedCall, ...] = ()
    is_many: bool = False


class Stop(msgspec.Struct, frozen=True):
    """Ends the run."""

    reason: Literal["max_tokens", "refusal"]


class Segment(msgspec.Struct, frozen=True):
    """One model step. Only the last of a script has no end of its own, but perhaps a reason to stop for."""

    steps: tuple[Step, ...]
    end: End | None = None
    stop: Literal["max_tokens", "refusal"] | None = None


Script = tuple[Segment, ...]
