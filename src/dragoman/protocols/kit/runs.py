"""Starting runs once, and following sessions with answers that count as streams."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from dragoman.core.ids import RunId, UserId
from dragoman.core.principal import Principal
from dragoman.core.stream import Cursor
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.log import IdempotencyRecord
from dragoman.protocols.kit.app import AdmitStream, principal_of
from dragoman.protocols.kit.body import read_answer
from dragoman.protocols.kit.frame_encoder import FrameEncoder
from dragoman.protocols.kit.sse import EventStream

OnClose = Callable[[bool], None]
"""Called once when an answer has ended, with whether the client disconnected."""


class StartedRun(Protocol):
    """What a protocol knows of a run that a request started or found."""

    @property
    def session(self) -> SessionView:
        """The run's session."""

    @property
    def first_seq(self) -> int:
        """The run's first event."""


Run = TypeVar("Run", bound=StartedRun)


async def start_once(
    engine: Engine,
    owner: UserId,
    key: IdempotencyKey | None,
    start: Callable[[], Awaitable[Run]],
    find: Callable[[IdempotencyRecord], Awaitable[Run]],
) -> Run:
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


async def feed_durable(
    engine: Engine, session: SessionView, run_id: RunId, first_seq: int, encoder: FrameEncoder
) -> None:
    """Feed an encoder with the durable records of a run, up to the run's end. Waits for the first one."""
    await session.until_durable(first_seq)
    for record in await engine.history.run_records(session, run_id, first_seq):
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


def _do_nothing(_has_disconnected: bool) -> None:
    pass
