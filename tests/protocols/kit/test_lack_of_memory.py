"""A stream whose next frame does not fit into the memory ends, and its client may come back for the rest."""

from collections.abc import Sequence

import pytest

from dragoman.core.ids import ROOT, MessageId
from dragoman.core.stream import Piece, Record
from dragoman.engine.sessions.log_pages import LogPage, PagePart
from dragoman.protocols.kit.frame_encoder import encode_records
from dragoman.protocols.kit.shared_frames import SharedFrames
from tests.requirements import requirement

PIECES: Sequence[Record] = [
    Piece(after=1, place=place, message_id=MessageId("m"), index=0, kind="text", text=str(place), loop=ROOT)
    for place in range(3)
]


class Encoder:
    """Has no memory for the second record until there is some."""

    keep_alive = b""
    is_over = False
    has_memory = False

    def feed(self, record: Record) -> bytes:
        assert isinstance(record, Piece)
        if record.place == 1 and not Encoder.has_memory:
            raise MemoryError
        return record.text.encode()

    def close(self, error: Exception) -> bytes:
        return f"<{type(error).__name__}>".encode()


@pytest.fixture(autouse=True)
def without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Encoder, "has_memory", False)


@requirement("faults:50:memory")
def test_the_stream_ends_as_one_that_can_be_resumed() -> None:
    assert encode_records(Encoder(), PIECES) == (b"0<StoreUnavailable>", True)


@requirement("faults:50:memory")
def test_who_comes_back_to_a_shared_page_gets_all_of_it() -> None:
    part = PagePart(LogPage(PIECES, None, {}), 0, PIECES)
    assert SharedFrames(Encoder(), "k").chunk(part) == (b"0<StoreUnavailable>", True)
    Encoder.has_memory = True
    assert SharedFrames(Encoder(), "k").chunk(part) == (b"012", False)
