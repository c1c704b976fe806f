"""The readers of a session get the frames that each would get alone, although they share the encoding of pieces."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.core.stream import Cursor, Record
from dragoman.protocols.aap.streams import SessionFrames
from dragoman.protocols.aap.translate import TurnFrames
from dragoman.protocols.agui.frames import Position
from dragoman.protocols.agui.streams import RunEncoder, ThreadEncoder
from dragoman.protocols.agui.translate import Translator
from dragoman.protocols.kit.sse import FrameEncoder
from tests.extent import extent
from tests.protocols.agentscope.test_translate import REASONS, RUN, SESSION, STEPS, records_of

POSITIONS = st.integers(0, 12)
READERS: Sequence[st.SearchStrategy[Callable[[], FrameEncoder]]] = [
    POSITIONS.map(lambda skip: lambda: TurnFrames(RUN, "delta", skip=skip)),
    POSITIONS.map(lambda skip: lambda: TurnFrames(RUN, "delta", prefix="run/", skip=skip)),
    st.just(lambda: TurnFrames(RUN, "message")),
    st.just(lambda: SessionFrames(None)),
    st.sampled_from(["1.0", "0.0.59"]).map(
        lambda generation: lambda: RunEncoder(Translator(RUN, thread_id=SESSION), generation)  # type: ignore[arg-type]  # a str
    ),
    st.just(lambda: ThreadEncoder(SESSION, None)),
    st.tuples(POSITIONS, POSITIONS).map(lambda at: lambda: ThreadEncoder(SESSION, Position(Cursor(*at), 1))),
]


@settings(max_examples=extent(300, 15))
@given(steps=STEPS, reason=REASONS, readers=st.lists(st.one_of(READERS), min_size=2, max_size=6))
def test_readers_of_one_session_get_what_each_gets_alone(
    steps: Any, reason: str, readers: Sequence[Callable[[], FrameEncoder]]
) -> None:
    records = records_of(steps, reason)
    together = [(reader(), list[bytes]()) for reader in readers]
    for record in records:
        for encoder, frames in together:
            frames.append(encoder.feed(record))
    for reader, (_, frames) in zip(readers, together, strict=True):
        alone = reader()
        assert frames == [alone.feed(copy) for copy in copies(records)]


def copies(records: Sequence[Record]) -> list[Record]:
    """Equal records that no reader has seen."""
    return [msgspec.structs.replace(record) for record in records]
