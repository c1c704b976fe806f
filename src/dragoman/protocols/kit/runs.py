"""Finding runs, starting them once, and following sessions with answers that count as streams."""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import NamedTuple

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from dragoman.core.history import EarlierCall
from dragoman.core.ids import CallId, RunId, UserId, parse_session_id
from dragoman.core.inputs import Submit
from dragoman.core.principal import Principal
from dragoman.core.refusals import SessionNotFound, ShuttingDown, StoreUnavailable
from dragoman.core.stream import Cursor
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.reader import Reader
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.log import IdempotencyRecord, RunLocation
from dragoman.protocols.kit.access import AdmitStream
from dragoman.protocols.kit.app import principal_of
from dragoman.protocols.kit.connection import while_connected
from dragoman.protocols.kit.frame_encoder import FrameEncoder
from dragoman.protocols.kit.sse import EventStream

OnClose = Callable[[bool], None]
"""Called once when an answer has ended, with whether the client disconnected."""


class RunHandle(NamedTuple):
    """The run behind an answer.

    Attributes:
        session: its session.
        run_id: the run; another id if none was started.
        first_seq: its first event; 0 if none was started, because the session waits for more answers.
        may_begin_with_answers: whether it may begin with answers to calls of earlier runs.
        is_new: whether this very request started it. Following any other counts as one more stream.
        request: what was asked for by a request that started none.
    """

    session: SessionView
    run_id: RunId
    first_seq: int
    may_begin_with_answers: bool = True
    is_new: bool = False
    request: Submit | None = None

    @property
    def before(self) -> Cursor:
        """The position after which the run begins."""
        return Cursor(self.first_seq - 1)


async def find_run(engine: Engine, owner: UserId, run_id: str) -> RunHandle | None:
    """Find a run of the owner's, whichever protocol started it; None also if its session is being deleted."""
    known = parse_session_id(run_id)
    row = None if known is None else await engine.history.find_run(owner, RunId(known))
    if row is None:
        return None
    try:
        return RunHandle(await engine.find_session(owner, row.session_id), row.run_id, row.first_seq)
    except SessionNotFound:
        return None


async def find_run_in(engine: Engine, session: SessionView, run_id: RunId) -> RunLocation | None:
    """Find a run of a session."""
    row = await engine.history.find_run(session.state.owner, run_id)
    return row if row is not None and row.session_id == session.state.session_id else None


async def start_once(
    engine: Engine,
    owner: UserId,
    key: IdempotencyKey | None,
    start: Callable[[], Awaitable[RunHandle]],
    find: Callable[[IdempotencyRecord], Awaitable[RunHandle]],
) -> RunHandle:
    """Start a run, or find the one that an earlier request with the same key started.

    A run with a key is durable when this returns, so that another request with the key finds it. `start` stores the
    key with the run; `find` gets the record of the earlier request.
    """
    if key is None:
        return await start()
    async with engine.reserve_key(owner, key) as earlier:
        if earlier is not None:
            return await find(earlier)
        run = await start()
        await run.session.until_durable(run.first_seq)
        return run


async def earlier_calls(engine: Engine, handle: RunHandle) -> Mapping[CallId, EarlierCall]:
    """The calls of earlier runs that a run begins to answer."""
    return (
        await engine.history.answered_calls(handle.session, handle.first_seq) if handle.may_begin_with_answers else {}
    )


async def feed_durable(engine: Engine, handle: RunHandle, encoder: FrameEncoder) -> None:
    """Feed an encoder with the durable records of a run, up to the run's end. Waits for the first one."""
    await handle.session.until_durable(handle.first_seq)
    for record in await engine.history.run_records(handle.session, handle.run_id, handle.first_seq):
        if not encoder.is_over:
            encoder.feed(record)


class SessionStreams:
    """Answers that follow a session.

    An answer counts against its caller's limit of open streams, unless it is that of a run which the request has
    started: such a run counts itself.

    Args:
        engine: the engine.
        admit_stream: counts a stream.
    """

    def __init__(self, engine: Engine, admit_stream: AdmitStream) -> None:
        self._engine = engine
        self._admit_stream = admit_stream

    async def open(
        self,
        principal: Principal,
        session: SessionView,
        after: Cursor,
        encoder: FrameEncoder,
        *,
        is_new_run: bool = False,
        share: Hashable = None,
        before: bytes | None = None,
        on_close: OnClose | None = None,
        ends_on_drain: bool = False,
        idle_limit_s: float | None = None,
    ) -> Response:
        """Follow a session with a stream. Raises LimitReached.

        Args:
            principal: who reads.
            session: the session.
            after: the position after which the stream begins.
            encoder: makes the frames.
            is_new_run: the request has started the run.
            share: as in `EventStream`, as are `on_close` and `idle_limit_s`.
            before: as in `EventStream.open`.
            ends_on_drain: end when the server begins to stop, not when the runs have ended.
        """
        reader = self._engine.follow(session, after, ends_on_drain=ends_on_drain)
        closing = self.admit(principal, is_new_run=is_new_run, on_close=on_close)
        stream = EventStream(reader, encoder, share=share, on_close=closing, idle_limit_s=idle_limit_s)
        return await stream.open(before)

    async def resume(
        self,
        principal: Principal,
        session: SessionView,
        after: Cursor,
        encoder: FrameEncoder,
        *,
        check_position: Callable[[FrameEncoder], None] = lambda _: None,
        share: Hashable = None,
        ends_on_drain: bool = False,
    ) -> Response:
        """Follow a run with a stream whose encoder skips what the client has; see `EventStream.resume`."""
        reader = self._engine.follow(session, after, ends_on_drain=ends_on_drain)
        closing = self.admit(principal)
        stream = EventStream(reader, encoder, share=share, on_close=closing)
        return await stream.resume(session.durable_cursor, check_position)

    async def read(
        self,
        request: Request,
        session: SessionView,
        after: Cursor,
        encoder: FrameEncoder,
        *,
        is_new_run: bool,
        on_close: OnClose | None = None,
    ) -> None:
        """Feed an encoder until its run is over, for an answer that is one body; see `read_answer`."""
        reader = self._engine.follow(session, after)
        closing = self.admit(principal_of(request), is_new_run=is_new_run, on_close=on_close)
        await read_answer(request, reader, encoder, closing)

    def admit(self, principal: Principal, *, is_new_run: bool = False, on_close: OnClose | None = None) -> OnClose:
        """Count an answer that follows a session. Returns what to call when it has ended. Raises LimitReached."""
        if is_new_run:
            return on_close or _do_nothing
        release = self._admit_stream(principal)

        def close(has_disconnected: bool) -> None:
            release()
            if on_close is not None:
                on_close(has_disconnected)

        return close


async def read_answer(
    request: Request, reader: Reader, encoder: FrameEncoder, on_close: Callable[[bool], None]
) -> None:
    """Feed an encoder until its run is over, for an answer that is one body.

    Args:
        request: what is answered.
        reader: as in `EventStream`.
        encoder: collects the answer.
        on_close: called once at the end, with whether the client disconnected.

    Raises:
        ClientDisconnect: the client left before the end.
        ShuttingDown, StoreUnavailable: the server stopped first.
    """
    has_left = False
    try:
        with reader:
            await while_connected(request, _read_to_end(reader, encoder))
    except ClientDisconnect:
        has_left = True
        raise
    finally:
        on_close(has_left)


async def _read_to_end(reader: Reader, encoder: FrameEncoder) -> None:
    """Feed an encoder until its run is over.

    Raises:
        ShuttingDown, StoreUnavailable: the server stopped first. The message says whether the run was accepted.
    """
    first_seq = reader.cursor.seq + 1
    try:
        while True:
            for record in await reader.next():
                encoder.feed(record)
                if encoder.is_over:
                    return
    except SessionNotFound as error:
        encoder.close(error)
    except (ShuttingDown, StoreUnavailable) as error:
        if reader.cursor.seq < first_seq:
            raise  # nothing was accepted yet
        kind = ShuttingDown if isinstance(error, ShuttingDown) else StoreUnavailable  # not that the outcome is unknown
        raise kind(
            "the run was accepted and continues when the server is back; do not send the request again"
        ) from error


def _do_nothing(_has_disconnected: bool) -> None:
    pass
