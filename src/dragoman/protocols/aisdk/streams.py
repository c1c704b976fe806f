"""Event streams of chats: what the records of a turn become on the wire.

A frame's id is the index of its chunk, counted from 0. It is a function of the log, so a client can continue after any
chunk, also after a restart. Source: specification of AI SDK, 5, 7.
"""

from dragoman.core.refusals import Unauthenticated
from dragoman.core.stream import Piece, Record
from dragoman.protocols.aisdk.translate import FAILED_MESSAGE, TurnChunks
from dragoman.protocols.aisdk.wire import Chunk
from dragoman.protocols.kit.frames import KEEP_ALIVE, RESUMABLE, encode_json

DONE = b"data: [DONE]\n\n"
NOTHING = b'data: {"type":"finish"}\n\n' + DONE
"""An empty stream, for clients that ask for a position and take 204 for an error."""


class ChunkFrames:
    """Encodes the chunks of a turn as frames, up to its end.

    Args:
        turn: makes the chunks.
        skip: how many of them the client has seen. They are counted and not encoded, except for the last one.
    """

    keep_alive = KEEP_ALIVE

    def __init__(self, turn: TurnChunks, skip: int = 0) -> None:
        self._turn = turn
        self._skip = skip
        self.count = 0
        """The number of chunks so far, with those that were skipped."""
        self.is_over = False
        """Whether the last frame ended the stream."""

    def feed(self, record: Record) -> bytes:
        """The frames of a record."""
        index = self.count
        if type(record) is Piece and index >= self._skip:
            part = self._turn.open_part
            if part is not None and part.index == record.index and part.message_id == record.message_id:
                self.count = index + 1  # nearly all frames are this
                return b"id: %d\ndata: %b%b}\n\n" % (index, part.delta_head, encode_json(record.text))
        chunks = self._turn.feed(record)
        self.is_over = self._turn.is_over
        return b"".join(map(self._frame, chunks)) if chunks else b""

    def close(self, error: Exception) -> bytes:
        """End the stream before its run; without an end if the run continues, so that clients reconnect."""
        if isinstance(error, Unauthenticated):
            return b"data: %b\n\n%b" % (encode_json({"type": "error", "errorText": str(error)}), NOTHING)
        if isinstance(error, RESUMABLE):
            return b""
        return self._frame({"type": "error", "errorText": FAILED_MESSAGE}) + self._frame({"type": "finish"})

    def _frame(self, chunk: Chunk) -> bytes:
        index, self.count = self.count, self.count + 1
        is_last = chunk["type"] == "finish"
        if index < self._skip and not is_last:
            return b""
        return b"id: %d\ndata: %b\n\n%b" % (index, encode_json(chunk), DONE if is_last else b"")


def complete_stream(*chunks: Chunk) -> bytes:
    """A stream whose chunks are all known."""
    frames = [b"id: %d\ndata: %b\n\n" % (index, encode_json(chunk)) for index, chunk in enumerate(chunks)]
    return b"".join((*frames, DONE))
