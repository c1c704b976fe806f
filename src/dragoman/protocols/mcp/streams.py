"""The stream that answers one call: progress, forms, and at last the result.

records before `live_from` ──► folded only          what the client has seen, or what happened before it connected
a run works                ──► progress             at most ten a second; what happens between is skipped
calls wait                 ──► a form for each      one after the other; or the result `input_required`
it takes too long          ──► the result `working`
the turn is over           ──► the result
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from dragoman.core.content import JsonObject
from dragoman.core.events import AnswerGiven, CallOpened, LoggedEvent
from dragoman.core.open_calls import OpenCall
from dragoman.core.refusals import SessionNotFound
from dragoman.core.stream import Cursor, Record, cursor_of
from dragoman.engine.sessions.reader import Reader
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.kit import json_rpc
from dragoman.protocols.kit.frames import KEEP_ALIVE, RESUMABLE, encode_json
from dragoman.protocols.kit.json_rpc import ErrorMessage, RequestId, ResultMessage, RpcError
from dragoman.protocols.mcp import wire
from dragoman.protocols.mcp.forms import form_id, form_of, input_requests, may_ask
from dragoman.protocols.mcp.options import McpOptions
from dragoman.protocols.mcp.tokens import EventIds, RequestState
from dragoman.protocols.mcp.translate import TurnSummary, refused_result, task_of, turn_result
from dragoman.protocols.mcp.versions import complete

PROGRESS_INTERVAL_S = 0.1


def encode_frame(message: object, event_id: bytes = b"") -> bytes:
    """A JSON-RPC message as an event of a stream."""
    return b"%bdata: %b\n\n" % (event_id, encode_json(message))


class AnsweredRequest(NamedTuple):
    """The request that a stream answers.

    Attributes:
        client: who sends it.
        id: its id.
        token: the client's token for progress; None if it wants none.
        digest: of the call, in the new version.
        shows_forms: whether the user may be asked; not after a form was closed.
        asked_again: whether the user has sent a form without an answer.
    """

    client: wire.Client
    id: RequestId
    token: RequestId | None = None
    digest: str = ""
    shows_forms: bool = True
    asked_again: bool = False


class CallFrames:
    """Encodes a turn as the answer to one request. A `FrameEncoder` that also has a clock.

    Args:
        session: the turn's session.
        turn: folds its records.
        request: what is answered.
        options: the protocol's settings.
        live_from: what happened up to this position is folded and not sent.
    """

    def __init__(
        self,
        session: SessionView,
        turn: TurnSummary,
        request: AnsweredRequest,
        options: McpOptions,
        *,
        live_from: Cursor,
    ) -> None:
        self.is_over = False
        self.result: JsonObject | None = None
        """The result, once there is one."""
        self.open_form: str | None = None
        """The id of the form that the user has before them."""
        self._session = session
        self._turn = turn
        self._request = request
        self._options = options
        self._live_from = live_from
        self._event_ids = EventIds(turn.run_id, request.id, request.token) if request.client.session else None
        self._progress_head = b"" if request.token is None else _progress_head(request.token)
        self._count = 0
        """The records of the turn so far: the number of a progress message."""
        self._is_live = False
        self._repeated_forms: set[str] = set()
        self._extra = b""
        self._last: bytes | None = None
        """The frames that end the stream, if it ends for another reason than a record."""
        self._nudge: Callable[[], None] = _do_nothing
        self._clock = asyncio.get_running_loop().time
        self._next_progress_at = 0.0
        self._skipped: asyncio.TimerHandle | None = None
        """Sends the newest progress after one that was skipped."""
        self._timer = _RunTimer(options.task_after_s if request.client.has_tasks else options.answer_within_s)

    def attach(self, reader: Reader) -> None:
        """Use this reader to send what no record causes."""
        self._nudge = reader.nudge

    def release(self) -> None:
        """The stream is closed."""
        self._timer.stop()
        self._nudge = _do_nothing
        self._forget_skipped()

    # --- frames ---------------------------------------------------------------------------------------------------

    @property
    def keep_alive(self) -> bytes:
        """What no record causes, once; else a comment."""
        if self._last is not None:
            return self._last
        extra, self._extra = self._extra, b""
        return extra or KEEP_ALIVE

    def feed(self, record: Record) -> bytes:
        """The frames of a record."""
        if self._last is not None:
            return self._last
        self._count += 1
        turn, before, cursor = self._turn, self._turn.phase, cursor_of(record)
        turn.feed(record)
        has_caught_up = not self._is_live
        if has_caught_up:
            if cursor < self._live_from:
                return b""
            self._is_live = True
        if turn.phase == "over":
            return self._finish(cursor)
        if turn.phase == "asking":
            is_news = has_caught_up or before == "running"
            is_answered = isinstance(record, LoggedEvent) and isinstance(record.event, AnswerGiven)
            return self._ask(cursor) if is_news or is_answered else b""
        if has_caught_up or before == "asking":
            self.open_form = None
            self._timer.start(self._on_late)
        return self._progress(record, cursor) if self._progress_head else b""

    def close(self, error: Exception) -> bytes:
        """The frames before a stream's end that no record causes. A client whose run continues reconnects for it."""
        if self.is_over or isinstance(error, RESUMABLE):
            return b""
        if isinstance(error, SessionNotFound):
            return self._end(refused_result("session_deleted", "the session was deleted"), self._live_from)
        failed = RpcError(code=json_rpc.INTERNAL_ERROR, message="the server failed")
        return encode_frame(ErrorMessage(id=self._request.id, error=failed))

    def _progress(self, record: Record, cursor: Cursor) -> bytes:
        """The progress at a record. What comes too early is skipped; the newest is sent when it is time."""
        now = self._clock()
        is_call = type(record) is LoggedEvent and isinstance(record.event, CallOpened)
        if now < self._next_progress_at and not is_call:
            if self._skipped is None:
                delay_s = self._next_progress_at - now
                self._skipped = asyncio.get_running_loop().call_later(delay_s, self._send_skipped, cursor)
            return b""
        self._next_progress_at = now + PROGRESS_INTERVAL_S
        self._extra = b""
        self._forget_skipped()
        return self._progress_frame(cursor)

    def _forget_skipped(self) -> None:
        if self._skipped is not None:
            self._skipped.cancel()
            self._skipped = None

    def _send_skipped(self, cursor: Cursor) -> None:
        self._skipped = None
        if self._turn.phase == "running" and not self.is_over:
            self._next_progress_at = self._clock() + PROGRESS_INTERVAL_S
            self._extra = self._progress_frame(cursor)
            self._nudge()

    def _progress_frame(self, cursor: Cursor) -> bytes:
        message = encode_json(self._turn.progress or "…")
        return b'%b%b%d,"message":%b}}\n\n' % (self.id_at(cursor), self._progress_head, self._count, message)

    def id_at(self, cursor: Cursor) -> bytes:
        """The line with the id of an event after a position."""
        return b"" if self._event_ids is None else self._event_ids.at(cursor)

    # --- what waits for a person ----------------------------------------------------------------------------------

    def _waiting(self) -> list[OpenCall]:
        """The calls that wait now. None if they have been answered, which the next records will show."""
        state = self._session.state
        return list(state.waiting_calls()) if state.run is None and state.last_run == self._turn.last_run else []

    def _ask(self, cursor: Cursor) -> bytes:
        """Show the next form, or end with what waits."""
        self._timer.stop()
        waiting = self._waiting()
        if not waiting:
            return b""
        if self._request.client.is_new:
            return self._ask_by_result(waiting, cursor)
        for call in waiting:
            if self._shows(call) and (form := form_of(call, self._session.state.agent, self._request.client.version)):
                self.open_form = form_id(self._session.state.session_id, call.call.call_id)
                asked = {"jsonrpc": "2.0", "id": self.open_form, "method": "elicitation/create", "params": form}
                return encode_frame(asked, self.id_at(cursor))
        return self._finish(cursor)

    def _ask_by_result(self, waiting: list[OpenCall], cursor: Cursor) -> bytes:
        """End with the forms of all calls. The client sends the request again, with what its user answers."""
        forms = input_requests(filter(self._shows, waiting), self._session.state.agent)
        if not forms:
            return self._finish(cursor)
        state = RequestState(self._turn.run_id, self._request.digest, self._request.asked_again)
        return self._end(
            {"resultType": "input_required", "inputRequests": forms, "requestState": state.encode()}, cursor
        )

    def _shows(self, call: OpenCall) -> bool:
        """Whether the client's user may be asked by a form."""
        may_show = self._request.client.has_forms and self._request.shows_forms
        return may_show and may_ask(call, self._options.approvals)

    def ask_again(self) -> None:
        """Show the open form once more; the second time, leave its call open."""
        if self.open_form is None or self.open_form in self._repeated_forms:
            self.leave_open()
            return
        self._repeated_forms.add(self.open_form)
        self._extra = self._ask(self._live_from)
        self._nudge()

    def leave_open(self) -> None:
        """End with the result `input_required`: the user closed the form."""
        self._end_with(self._finish(self._live_from))

    # --- the end --------------------------------------------------------------------------------------------------

    def end_silently(self) -> None:
        """End without a result: the client has cancelled the request."""
        self.is_over = True
        self._end_with(b"")

    def _end_with(self, frames: bytes) -> None:
        self._last = frames
        self._nudge()

    def _finish(self, cursor: Cursor) -> bytes:
        """End with the result of the turn as it is."""
        result = turn_result(
            self._turn,
            self._session.state.session_id,
            pending=self._waiting() if self._turn.phase == "asking" else (),
            approve_at=self._options.public_url or "",
            has_links=self._request.client.version != wire.OLD_VERSIONS[-1],
        )
        return self._end(result, cursor)

    def _end(self, result: JsonObject, cursor: Cursor) -> bytes:
        self.is_over, self.open_form = True, None
        self.result = complete(result, self._options.server_info) if self._request.client.is_new else result
        return encode_frame(ResultMessage(id=self._request.id, result=self.result), self.id_at(cursor))

    def _on_late(self) -> None:
        if self.is_over or self._turn.phase != "running":
            return
        if self._request.client.has_tasks:
            self._end_with(self._end({"resultType": "task", **task_of(self._turn, "working")}, self._live_from))
        else:
            self._end_with(self._finish(self._live_from))


class _RunTimer:
    """Measures how long runs take in sum; the time in which a person has a form before them does not count.

    It begins stopped, with the time that runs may take; 0 for any.
    """

    def __init__(self, limit_s: float) -> None:
        self._left_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def start(self, on_late: Callable[[], None]) -> None:
        """Go on, and call `on_late` when the time is over."""
        if self._left_s and self._handle is None:
            self._handle = self._loop.call_later(self._left_s, on_late)

    def stop(self) -> None:
        if self._handle is not None:
            self._left_s = max(0.001, self._handle.when() - self._loop.time())
            self._handle.cancel()
            self._handle = None


def _do_nothing() -> None:
    pass


def _progress_head(token: RequestId) -> bytes:
    return (
        b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%b,"progress":'
        % encode_json(token)
    )
