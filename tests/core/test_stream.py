"""A stream's records have one order, whether they are seen live or made again from the log."""

from hypothesis import given
from hypothesis import strategies as st

from dragoman.core.content import Text
from dragoman.core.events import BlockClosed
from dragoman.core.ids import ROOT, MessageId
from dragoman.core.stream import (
    PIECE_LIMIT,
    START,
    Cursor,
    Piece,
    cursor_of,
    expand,
    gather_cuts,
    pieces_of,
    split_into_pieces,
)
from tests.core.log_generator import LogGenerator, conversations
from tests.core.strategies import words
from tests.engine.log_checker import check_pieces


@given(conversations)
def test_a_log_is_expanded_into_the_records_that_were_seen_live(scribe: LogGenerator) -> None:
    assert expand(scribe.log, scribe.open_pieces) == scribe.stream
    check_pieces(scribe.log)


@given(conversations, st.data())
def test_from_any_position_on_a_stream_is_the_tail_of_itself(scribe: LogGenerator, data: st.DataObject) -> None:
    whole = expand(scribe.log, scribe.open_pieces)
    place = data.draw(st.integers(0, len(whole)))
    after = START if place == 0 else cursor_of(whole[place - 1])
    assert expand(scribe.log, scribe.open_pieces, after) == whole[place:]
    assert expand(scribe.log[after.seq :], scribe.open_pieces, after) == whole[place:], "and so of the log behind it"


@given(conversations, st.data())
def test_a_position_that_was_never_issued_duplicates_nothing(scribe: LogGenerator, data: st.DataObject) -> None:
    after = Cursor(data.draw(st.integers(0, len(scribe.log) + 2)), data.draw(st.integers(0, 5)))
    whole = expand(scribe.log, scribe.open_pieces)
    assert expand(scribe.log, scribe.open_pieces, after) == [each for each in whole if cursor_of(each) > after]


@given(conversations)
def test_what_is_seen_is_never_taken_back(scribe: LogGenerator) -> None:
    """The stream as it was at each rest is the beginning of the stream as it is now."""
    for stop in scribe.stops:
        earlier = expand(scribe.log[:stop])
        assert scribe.stream[: len(earlier)] == earlier


@given(conversations)
def test_the_pieces_of_a_block_are_its_text(scribe: LogGenerator) -> None:
    places = [cursor_of(record) for record in scribe.stream]
    assert places == sorted(set(places)), "each has a place of its own"
    for record in scribe.stream:
        if isinstance(record, Piece):
            assert 0 < len(record.text) <= PIECE_LIMIT


@given(st.lists(st.tuples(st.integers(0, 5), words.filter(bool)), max_size=30))
def test_the_pieces_of_a_block_are_stored_compactly(steps: list[tuple[int, str]]) -> None:
    """Each step lets so many events pass, then adds a piece."""
    after, place = 1, 0
    pieces: list[Piece] = []
    for passed, text in steps:
        place = 1 if passed else place + 1
        after += passed
        pieces.append(Piece(after, place, MessageId("m"), 0, "text", text, ROOT))
    cuts = gather_cuts(pieces)
    text = "".join(piece.text for piece in pieces)
    closed = BlockClosed(message_id=MessageId("m"), index=0, block=Text(text), cuts=cuts)
    assert pieces_of(closed) == pieces
    assert len(cuts) <= 1 + sum(passed > 0 for passed, _ in steps)


@given(st.text(max_size=10) | st.integers(0, 3 * PIECE_LIMIT).map("x".__mul__))
def test_text_is_split_into_pieces_that_join_to_it(text: str) -> None:
    parts = split_into_pieces(text)
    assert "".join(parts) == text
    assert all(len(part) <= PIECE_LIMIT for part in parts)
    assert len(parts) == max(1, -(-len(text) // PIECE_LIMIT))
