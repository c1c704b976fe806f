"""The readers of a session get the frames that each would get alone, although they share the encoding."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.core.stream import Cursor, Record
from dragoman.engine.sessions.log_pages import LogPage, PagePart
from dragoman.protocols.aap.streams import SessionFrames
from dragoman.protocols.aap.translate import TurnFrames
from dragoman.protocols.agentscope.translate import ResponseEvents
from dragoman.protocols.agui.streams import Position, RunEncoder, ThreadEncoder
from dragoman.protocols.agui.translate import Translator
from dragoman.protocols.kit.frame_encoder import FrameEncoder, encode_records
from dragoman.protocols.kit.shared_frames import SharedFrames
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
    POSITIONS.map(lambda skip: lambda: ResponseEvents(RUN, SESSION, "agent", skip=skip)),
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


@settings(max_examples=extent(300, 15))
@given(
    steps=STEPS,
    reason=REASONS,
    reader=st.one_of(READERS),
    part_sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    leaving=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_readers_that_share_pages_of_the_log_get_what_each_gets_alone(
    steps: Any,
    reason: str,
    reader: Callable[[], FrameEncoder],
    part_sizes: Sequence[int],
    leaving: Sequence[int],
    order: Any,
) -> None:
    """Each leaves the log after some pages and continues alone, whatever the others do meanwhile."""
    records = records_of(steps, reason)
    pages, key = list(in_pages(records, part_sizes)), object()
    streams = [StreamOfLog(SharedFrames(reader(), key), pages, count) for count in leaving]
    turns = [stream for stream in streams for _ in stream.parts]
    order.shuffle(turns)
    for stream in turns:
        stream.read_part()
    lone = reader()
    expected = b"".join([lone.feed(record) for record in copies(records) if not lone.is_over])
    assert [b"".join(stream.frames) for stream in streams] == [expected] * len(streams)


class StreamOfLog:
    """Reads some pages together with other streams, and the rest alone."""

    def __init__(self, shared: SharedFrames, pages: Sequence[Sequence[PagePart]], shared_count: int) -> None:
        self.parts = [(part, number < shared_count) for number, page in enumerate(pages) for part in page]
        self.frames: list[bytes] = []
        self._left = iter(self.parts)
        self._shared = shared
        self._encoder: FrameEncoder | None = None
        self._is_over = False

    def read_part(self) -> None:
        """Read the next part, if the stream has not ended."""
        part, is_shared = next(self._left)
        if self._is_over:
            return
        if is_shared:
            body, self._is_over = self._shared.chunk(part)
        else:
            self._encoder = self._encoder or self._shared.own_encoder()
            body, self._is_over = encode_records(self._encoder, part.records)
        self.frames.append(body)


def in_pages(records: Sequence[Record], part_sizes: Sequence[int]) -> Iterator[list[PagePart]]:
    """The records in pages of so many parts, of the sizes given."""
    start = 0
    while start < len(records):
        ends = [start + sum(part_sizes[: count + 1]) for count in range(len(part_sizes))]
        page = LogPage(records[start : ends[-1]], None, {})
        starts = [start, *ends[:-1]]
        slices = [records[first:end] for first, end in zip(starts, ends, strict=True)]
        yield [PagePart(page, number, part) for number, part in enumerate(slices) if part]
        start = ends[-1]


def copies(records: Sequence[Record]) -> list[Record]:
    """Equal records that no reader has seen."""
    return [msgspec.structs.replace(record) for record in records]
