"""What a protocol gives for its streams: an encoder from the records of a session to frames."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import structlog

from dragoman.core.refusals import StoreUnavailable
from dragoman.core.stream import Record

log = structlog.get_logger(__name__)


class FrameEncoder(Protocol):
    """Turns the records of a session's stream into frames. Plain calls; it waits for nothing."""

    @property
    def is_over(self) -> bool:
        """Whether the stream ends with the frames made so far."""

    @property
    def keep_alive(self) -> bytes:
        """What is sent after a silence, such as `frames.KEEP_ALIVE`, or after `Reader.nudge`. It may end the stream."""

    def feed(self, record: Record) -> bytes:
        """Return the frames of a record; often none."""

    def close(self, error: Exception) -> bytes:
        """Return the frames that end a stream before its time.

        Args:
            error: `SessionNotFound` when the session was deleted; `ShuttingDown` and `StoreUnavailable` when the run
                continues and the client may come back; `Unauthenticated` when it may come back with another key or
                token; anything else is a fault of the server, which is in the log.
        """


class Chunk(NamedTuple):
    """What is written next. After the last one the stream closes."""

    body: bytes
    is_last: bool = False


def encode_records(encoder: FrameEncoder, records: Sequence[Record]) -> tuple[bytes, bool]:
    """Return the frames of some records, and whether they are the last: a `Chunk` without the cost of making one."""
    frames, feed, record, is_last = [], encoder.feed, None, False
    try:
        for record in records:
            frames.append(feed(record))
            if encoder.is_over:
                is_last = True
                break
    except MemoryError:
        log.warning("stream ended for lack of memory", record=type(record).__name__)
        frames.append(encoder.close(StoreUnavailable("there is no memory for this stream now")))
        is_last = True
    except Exception as error:  # the root of a stream: it ends well-formed even after a fault of ours
        log.error("stream failed", record=type(record).__name__, exc_info=error)
        frames.append(encoder.close(error))
        is_last = True
    return b"".join(frames), is_last
