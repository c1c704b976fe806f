"""A session's stream: the log's events and the pieces of its blocks, in one order that never changes. Pure.

A position is a pair: the last event seen, and the number of pieces after it (`Cursor`). Live readers get pieces as they
become durable; a replay splits closed blocks into the same pieces again (`expand`), so both see the same records.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, final

import msgspec

from dragoman.core.content import StreamedBlockKind, Text, Thinking
from dragoman.core.events import BlockClosed, Cut, LoggedEvent
from dragoman.core.ids import LoopId, MessageId

PIECE_LIMIT = 4096
"""Maximum number of characters of a piece (shared rules, 7)."""


class Cursor(NamedTuple):
    """A position in a session's stream: after event `seq` and the first `pieces` pieces that follow it."""

    seq: int
    pieces: int = 0


START = Cursor(0)


@final  # so that the type checker knows what a record is that is no piece
class Piece(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The text that one commit added to an open block. `place` counts the pieces after event `after`, from 1."""

    after: int
    place: int
    message_id: MessageId
    index: int
    kind: StreamedBlockKind
    text: str
    loop: LoopId


Record = LoggedEvent | Piece
"""One item of the stream."""


def cursor_of(record: Record) -> Cursor:
    """The position directly after a record."""
    if type(record) is Piece:
        return Cursor(record.after, record.place)
    return Cursor(record.seq)


def split_into_pieces(text: str) -> list[str]:
    """Split new text into pieces of at most `PIECE_LIMIT` characters."""
    if len(text) <= PIECE_LIMIT:
        return [text]
    return [text[start : start + PIECE_LIMIT] for start in range(0, len(text), PIECE_LIMIT)]


def gather_cuts(pieces: Iterable[Piece]) -> list[Cut]:
    """The positions and lengths of a block's pieces, as its closing event stores them."""
    cuts: list[Cut] = []
    lengths: list[int] = []
    after = next_place = -1
    for piece in pieces:
        if piece.after != after or piece.place != next_place:
            after, next_place, lengths = piece.after, piece.place, []
            cuts.append(Cut(after, next_place, lengths))
        lengths.append(len(piece.text))
        next_place += 1
    return cuts


def pieces_of(closed: BlockClosed) -> list[Piece]:
    """The pieces in which a closed block was streamed. A block that is neither text nor thinking has none."""
    block = closed.block
    if not isinstance(block, Text | Thinking):
        return []
    kind: StreamedBlockKind = "text" if isinstance(block, Text) else "thinking"
    pieces, start = [], 0
    for each in closed.cuts:
        for place, length in enumerate(each.lengths, each.first):
            text = block.text[start : start + length]
            pieces.append(Piece(each.after, place, closed.message_id, closed.index, kind, text, closed.loop))
            start += length
    return pieces


def expand(events: Sequence[LoggedEvent], open_pieces: Iterable[Piece] = (), after: Cursor = START) -> list[Record]:
    """The records of a part of the log that ends where no block is open, or whose open pieces are given.

    Args:
        events: in order, without gaps.
        open_pieces: the pieces so far of the blocks that are still open at the end of `events`.
        after: records up to this position are left out.
    """
    records: list[Record] = list(open_pieces)
    for logged in events:
        if isinstance(logged.event, BlockClosed):
            records.extend(pieces_of(logged.event))
        records.append(logged)
    records.sort(key=cursor_of)
    return [record for record in records if cursor_of(record) > after]
