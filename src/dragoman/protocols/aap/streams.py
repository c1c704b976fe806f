"""Streams of turns: one turn to its end, or a session's turns one after the other, live and replayed (section 17)."""

from collections.abc import Callable, Sequence

from dragoman.core.events import LoggedEvent, RunStarted
from dragoman.core.ids import RunId
from dragoman.core.refusals import SessionNotFound, ShuttingDown, StoreUnavailable
from dragoman.core.stream import Record
from dragoman.engine.sessions.reader import Reader
from dragoman.protocols.aap import translate, wire
from dragoman.protocols.kit.http import Chunk, EventStream, LiveSource


class SingleTurnFrames:
    """The frames of one turn, and then the end."""

    __slots__ = ("_frames",)

    def __init__(self, frames: translate.TurnFrames) -> None:
        self._frames = frames

    def encode(self, records: Sequence[Record]) -> Chunk:
        """What goes out for these records; the last chunk when they end the turn."""
        feed, frames = self._frames.feed, []
        for record in records:
            frames.append(feed(record))
            if self._frames.is_over:
                return Chunk(b"".join(frames), is_last=True)
        return Chunk(b"".join(frames))

    def abort(self, code: str, message: str) -> bytes:
        """What ends the turn when its session is gone."""
        return self._frames.abort(code, message)


class SessionFrames:
    """The frames of all turns, one after the other, each in the mode it was asked in."""

    def __init__(self, requested_mode: wire.StreamMode | None, frames: translate.TurnFrames | None) -> None:
        self._requested_mode = requested_mode
        self._frames = frames

    @property
    def _is_between_turns(self) -> bool:
        return self._frames is None or self._frames.is_over

    def encode(self, records: Sequence[Record]) -> Chunk:
        """What goes out for these records."""
        parts: list[bytes] = []
        for record in records:
            started = record.event if isinstance(record, LoggedEvent) else None
            if isinstance(started, RunStarted) and self._is_between_turns:
                mode = self._requested_mode or mode_of(started.metadata)
                self._frames = translate.TurnFrames(started.run_id, mode, prefix=f"{started.run_id}/")
            if self._frames is not None and not self._is_between_turns:
                parts.append(self._frames.feed(record))
        return Chunk(b"".join(parts))

    def abort(self, code: str, message: str) -> bytes:
        """What ends the open turn, if there is one, when its session is gone."""
        if self._frames is None or self._frames.is_over:
            return b""
        return self._frames.abort(code, message)


class _FrameSource:
    """What a stream does with its reader."""

    __slots__ = ("_frames", "_reader", "_release")

    def __init__(self, reader: Reader, frames: SingleTurnFrames | SessionFrames, release: Callable[[], None]) -> None:
        self._reader = reader
        self._frames = frames
        self._release = release

    async def next_chunk(self) -> Chunk:
        """The next chunk; empty when a ping is due."""
        try:
            while True:
                records = await self._reader.next()
                chunk = self._frames.encode(records)
                if chunk.body or chunk.is_last or not records:
                    return chunk
        except SessionNotFound:
            return Chunk(self._frames.abort("session_deleted", "The session was deleted"), is_last=True)
        except (ShuttingDown, StoreUnavailable):
            return Chunk(b"", is_last=True)  # the turn is not over: the client goes on from its last id

    def close(self) -> None:
        """The stream has ended."""
        self._reader.__exit__(None, None, None)
        self._release()


async def open_stream(
    reader: Reader, frames: SingleTurnFrames | SessionFrames, release: Callable[[], None] = lambda: None
) -> EventStream:
    """Open a stream once its first frame is durable: what fails before that is still an HTTP status."""
    following = _FrameSource(reader, frames, release)
    reader.__enter__()
    try:
        first = Chunk(b"") if isinstance(frames, SessionFrames) else frames.encode(await reader.next())
    except BaseException:
        reader.__exit__(None, None, None)
        raise
    return EventStream(first, following.next_chunk, following.close, LiveSource(reader, frames.encode))


async def summarise(reader: Reader, run_id: RunId) -> wire.TurnResponse:
    """Wait for a turn's end; its answer in `none` mode."""
    summary, started = translate.TurnSummary(run_id), reader.cursor.seq + 1
    try:
        while summary.answer is None:
            for record in await reader.next():
                summary.feed(record)
    except SessionNotFound:
        summary.abort("session_deleted", "The session was deleted")
    except (ShuttingDown, StoreUnavailable) as error:
        if reader.cursor.seq < started:
            raise  # nothing was accepted yet
        raise type(error)("the turn was accepted and goes on when the server is back: do not send it again") from error
    assert summary.answer is not None, "the run is over"
    return summary.answer


def mode_of(metadata: dict[str, object]) -> wire.StreamMode:
    """The mode in which a turn was asked for; delta when it was asked for none, or through another protocol."""
    return "message" if metadata.get("stream") == "message" else "delta"
