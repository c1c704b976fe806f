"""Frames of pages of the log, made once for all streams that need the same ones.

If a thousand clients reconnect to one session, they read the same pages, each with its own encoder. Encoders are
deterministic: those that began alike and were fed the same records make the same frames and are in the same state. So
the first stream that comes to a part of a page encodes it for all. A stream gets an encoder of its own, a copy of the
shared one, when it has read the log and continues from memory.
"""

from collections.abc import Hashable
from copy import deepcopy

from dragoman.engine.sessions.log_pages import PagePart
from dragoman.protocols.kit.frame_encoder import Chunk, FrameEncoder, encode_records


class _PageFrames:
    """The frames of a page, for all streams that come to it in the same state."""

    def __init__(self, encoder: FrameEncoder) -> None:
        self.encoder = encoder
        self.state_after = object()
        """Stands for the state of an encoder that was fed the page."""
        self._chunks: list[Chunk] = []

    def chunk(self, part: PagePart) -> Chunk:
        """The frames of a part. Each stream comes to all parts in order, so that the encoder has had those before."""
        if part.number == len(self._chunks):
            self._chunks.append(Chunk(*encode_records(self.encoder, part.records)))
        return self._chunks[part.number]


class SharedFrames:
    """What one stream reads of the log, in frames.

    The encoder has been fed nothing. Encoders of its type with an equal key make the same frames.
    """

    __slots__ = ("_encoder", "_page", "_state")

    def __init__(self, encoder: FrameEncoder, key: Hashable) -> None:
        self._encoder = encoder
        self._state: Hashable = type(encoder), key
        self._page: _PageFrames | None = None

    def chunk(self, part: PagePart) -> Chunk:
        """The frames of the next part of the log."""
        if part.number == 0:
            known = part.page.derived.get(self._state)
            if not isinstance(known, _PageFrames):
                known = part.page.derived[self._state] = _PageFrames(self.own_encoder())
            self._page, self._state = known, known.state_after
        assert self._page is not None, "a page is read from its beginning"
        chunk = self._page.chunk(part)
        if chunk.is_last and not self._page.encoder.is_over:
            part.page.derived.clear()  # it failed: whoever reads the page next encodes it again
        return chunk

    def own_encoder(self) -> FrameEncoder:
        """An encoder that was fed what the stream has read. Not inside a page."""
        return self._encoder if self._page is None else deepcopy(self._page.encoder)
