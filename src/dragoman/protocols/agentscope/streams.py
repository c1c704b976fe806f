"""Streams of responses, live and replayed: opened, kept alive, ended (sections 6 and 7.2)."""

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile

import structlog

from dragoman.core.events import AnswerGiven, CallOpened, CallSettled, Event
from dragoman.core.ids import CallId, RunId, forking_call
from dragoman.core.refusals import SessionNotFound, ShuttingDown, StoreUnavailable
from dragoman.core.stream import Cursor, Record
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.reader import Reader
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.environment import Clock
from dragoman.protocols.agentscope import wire
from dragoman.protocols.agentscope.translate import ResponseEvents
from dragoman.protocols.kit.http import Chunk, EventStream, LiveSource

log = structlog.get_logger(__name__)

KEEP_ALIVE = b": keep-alive\n\n"
LEADING_ANSWERS_LIMIT = 400
"""Events with which a run may begin that are answers."""


class _FrameSource:
    """What a stream, or somebody who waits for a response, does with its reader."""

    __slots__ = ("_clock", "_events", "_reader", "_release")

    def __init__(self, reader: Reader, events: ResponseEvents, clock: Clock, release: Callable[[], None]) -> None:
        self._reader = reader
        self._events = events
        self._clock = clock
        self._release = release

    def encode(self, records: Sequence[Record]) -> Chunk:
        """What goes out for these records; the last chunk when they end the response."""
        events, frames = self._events, []
        for record in records:
            try:
                frames.append(events.feed(record))
            except Exception as error:  # a stream's root: it ends well-formed even over a fault of ours
                log.error("stream failed", record=type(record).__name__, exc_info=error)
                frames.append(self._abort("INTERNAL_ERROR", "The server failed"))
                return Chunk(b"".join(frames), is_last=True)
            if events.is_over:
                return Chunk(b"".join(frames), is_last=True)
        return Chunk(b"".join(frames))

    async def next_chunk(self) -> Chunk:
        """The next chunk, or a sign of life."""
        try:
            while True:
                records = await self._reader.next()
                if not records:
                    return Chunk(self._events.heartbeat() if self._events.run_metadata.heartbeat else KEEP_ALIVE)
                chunk = self.encode(records)
                if chunk.body or chunk.is_last:
                    return chunk
        except SessionNotFound:
            return Chunk(self._abort("SESSION_DELETED", "The session was deleted"), is_last=True)
        except (ShuttingDown, StoreUnavailable):
            return Chunk(b"", is_last=True)  # the run is not over: the client goes on from its last number

    def close(self) -> None:
        """The stream has ended."""
        self._reader.__exit__(None, None, None)
        self._release()

    def _abort(self, code: str, message: str) -> bytes:
        return self._events.abort(code, message, self._clock.now())


async def open_stream(
    reader: Reader, events: ResponseEvents, clock: Clock, release: Callable[[], None] = lambda: None
) -> EventStream:
    """Open a stream once its first record is durable: what fails before that is still an HTTP status."""
    following = _FrameSource(reader, events, clock, release)
    reader.__enter__()
    try:
        first = following.encode(await reader.next())
    except BaseException:
        reader.__exit__(None, None, None)
        raise
    return EventStream(first, following.next_chunk, following.close, LiveSource(reader, following.encode))


async def wait_for_response(reader: Reader, events: ResponseEvents, clock: Clock) -> wire.AgentResponse:
    """Wait for a run's end; its terminal response."""
    begun = reader.cursor.seq + 1
    following = _FrameSource(reader, events, clock, lambda: None)
    try:
        while not following.encode(await reader.next()).is_last:
            pass
    except SessionNotFound:
        events.abort("SESSION_DELETED", "The session was deleted", clock.now())
    except (ShuttingDown, StoreUnavailable) as error:
        if reader.cursor.seq < begun:
            raise  # nothing was accepted yet
        raise type(error)("the run was accepted and goes on when the server is back: do not send it again") from error
    if events.response is None:
        raise SessionNotFound("the session was deleted")
    return events.response


async def response_events(
    engine: Engine,
    live: SessionView,
    run_id: RunId,
    first_seq: int,
    *,
    skip: int = 0,
    may_begin_with_answers: bool = True,
) -> ResponseEvents:
    """What tells a run's events.

    Args:
        engine: the engine.
        live: the run's session.
        run_id: the run.
        first_seq: its first event.
        skip: events that the reader has seen.
        answers: whether the run may have begun with answers to open calls.
    """
    earlier = await _earlier_calls(engine, live, first_seq) if may_begin_with_answers else {}
    return ResponseEvents(run_id, live.state.session_id, earlier=earlier, skip=skip)


async def _earlier_calls(engine: Engine, live: SessionView, first_seq: int) -> Mapping[CallId, CallOpened]:
    """The calls that were open when a run began, where it began with answers to some of them."""
    await live.until_durable(first_seq)  # its answers are durable with it
    if not isinstance(await _event_at(engine, live, first_seq + 1), AnswerGiven):
        return {}
    begun = await engine.history.events(live, first_seq, first_seq + LEADING_ANSWERS_LIMIT)
    answers = takewhile(lambda event: isinstance(event, AnswerGiven | CallSettled), (each.event for each in begun))
    missing = {event.call_id for event in answers if isinstance(event, AnswerGiven)}
    settled: set[CallId] = set()
    found: dict[CallId, CallOpened] = {}
    async for page in engine.history.newest_events(live, first_seq):
        for logged in reversed(page):
            event = logged.event
            if isinstance(event, CallSettled):
                settled.add(event.result.call_id)
            elif isinstance(event, CallOpened) and event.call.call_id not in settled:
                found[event.call.call_id] = event
                if (above := forking_call(event.loop)) is not None:
                    missing.add(above)
        missing -= found.keys()
        if not missing:
            break
    return found


async def _event_at(engine: Engine, live: SessionView, seq: int) -> Event | None:
    found = await engine.history.events(live, seq - 1, seq)
    return found[0].event if found else None


def reader_of(engine: Engine, live: SessionView, first_seq: int) -> Reader:
    """A reader of a run from its first event on."""
    return engine.follow(live, Cursor(first_seq - 1))
