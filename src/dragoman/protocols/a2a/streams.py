"""Event streams of tasks: what the records of a task become on the wire.

snapshot (`task`) ──► artifact updates, one for each piece, and status updates ──► the status that ends the stream

The snapshot is the fold at one position of the log, and the stream continues after it, so nothing is missing or double.
The id of an event is its position in the log: after it, a client can continue at any time.
"""

from dragoman.core.refusals import Unauthenticated
from dragoman.core.stream import Cursor, Piece, Record, cursor_of
from dragoman.protocols.a2a import wire
from dragoman.protocols.a2a.translate import TaskFold, text_part
from dragoman.protocols.a2a.versions import Codec
from dragoman.protocols.kit.frames import KEEP_ALIVE, encode_json


class TaskFrames:
    """Encodes the records of a task after a position.

    It begins where the fold is. What happened up to `seen` is folded, but not sent.
    """

    keep_alive = KEEP_ALIVE

    def __init__(self, fold: TaskFold, codec: Codec, *, seen: Cursor = Cursor(0)) -> None:  # noqa: B008  # immutable
        self.is_over = False
        self._fold = fold
        self._codec = codec
        self._seen = seen
        self._artifact: tuple[str, bool] | None = None
        """The artifact of the template, and whether it has begun there."""
        self._template = (b"", b"")

    def snapshot(self, at: Cursor, history_length: int | None = None) -> bytes:
        """The task as it is, as the first event."""
        return self._codec.frame(self._fold.task(history_length=history_length), "task", _position(at))

    def feed(self, record: Record) -> bytes:
        """The frames of a record."""
        if type(record) is Piece:
            return self._feed_piece(record)
        update = self._fold.feed(record)
        if update is None or (cursor := cursor_of(record)) <= self._seen:
            self.is_over = self._fold.is_over
            return b""
        if isinstance(update, wire.ArtifactUpdate):
            return self._codec.frame(update, "artifactUpdate", _position(cursor))
        self.is_over = update.status.state not in wire.OPEN_STATES
        return self._codec.frame(update, "statusUpdate", _position(cursor))

    def _feed_piece(self, piece: Piece) -> bytes:
        """The frame of a piece of text: what is the same for all pieces of an artifact is encoded once."""
        has_begun = self._fold.feed_piece(piece)
        if has_begun is None or (piece.after, piece.place) <= self._seen:
            return b""
        if self._artifact != (piece.message_id, has_begun):
            self._artifact = (piece.message_id, has_begun)
            self._template = self._template_of(piece.message_id, append=has_begun)
        head, tail = self._template
        text = encode_json(piece.text)
        return b"id: %d.%d%b%b%b" % (piece.after, piece.place, head, text, tail)

    def close(self, error: Exception) -> bytes:
        """Nothing if the client may subscribe again; an error if it may not."""
        return self._codec.no_access_frame(error) if isinstance(error, Unauthenticated) else b""

    def _template_of(self, artifact_id: str, *, append: bool) -> tuple[bytes, bytes]:
        fold = self._fold
        artifact = wire.Artifact(artifact_id=artifact_id, name="answer", parts=(text_part(""),))
        return self._codec.text_template(
            wire.ArtifactUpdate(
                task_id=fold.task_id, context_id=fold.context_id, artifact=artifact, append=append, last_chunk=False
            )
        )


class TaskWaiter:
    """Folds a task until it waits for somebody or is over, for answers that are one body."""

    keep_alive = b""

    def __init__(self, fold: TaskFold) -> None:
        self._fold = fold
        self.is_deleted = False

    @property
    def is_over(self) -> bool:
        """Whether the answer is complete."""
        return self.is_deleted or self._fold.phase in ("asking", "over")

    def feed(self, record: Record) -> bytes:
        """Fold a record."""
        self._fold.feed(record)
        return b""

    def close(self, error: Exception) -> bytes:
        """The session was deleted."""
        self.is_deleted = True
        return b""


def _position(cursor: Cursor) -> bytes:
    return b"%d.%d" % cursor if cursor.pieces else b"%d" % cursor.seq


def parse_position(text: str) -> Cursor | None:
    """The position that an event's id names; None if it is none."""
    seq, _, pieces = text.partition(".")
    if not (seq.isascii() and seq.isdigit() and len(seq) < 16 and len(pieces) < 16):
        return None
    if pieces and not (pieces.isascii() and pieces.isdigit()):
        return None
    return Cursor(int(seq), int(pieces or 0))
