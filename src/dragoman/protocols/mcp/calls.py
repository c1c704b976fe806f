"""`tools/call`: what a call begins, continues or waits for, and the stream that answers it.

message, no session_id          ──► a new session and its first turn
message, session_id             ──► the next turn; or the answer to a question that waits
empty message, session_id       ──► the newest turn, which runs or has ended
"""

import hashlib
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NamedTuple

import msgspec

from dragoman.core.admission import is_busy
from dragoman.core.content import Json, JsonObject
from dragoman.core.events import SettingsChange
from dragoman.core.ids import RunId
from dragoman.core.inputs import Create, Submit
from dragoman.core.open_calls import OpenCall
from dragoman.core.principal import Principal
from dragoman.core.question_text import answers_from_text
from dragoman.core.refusals import (
    AgentNotChangeable,
    AgentNotFound,
    AgentNotServed,
    Conflict,
    Invalid,
    Refused,
    SessionBusy,
    SessionNotFound,
)
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.stream import Cursor
from dragoman.core.tools import AgentSpec
from dragoman.engine.abandoned_runs import AbandonedRuns
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.view import SessionView
from dragoman.ports.log import RunLocation
from dragoman.protocols.kit.decoding import check_depth, convert_value, without_nulls
from dragoman.protocols.kit.errors import InvalidBody
from dragoman.protocols.kit.json_rpc import RequestId
from dragoman.protocols.kit.runs import SessionStreams
from dragoman.protocols.mcp import wire
from dragoman.protocols.mcp.errors import InvalidMessage, InvalidParams, is_for_model
from dragoman.protocols.mcp.forms import answer_from, form_id, parse_form_id
from dragoman.protocols.mcp.open_streams import OpenStreams
from dragoman.protocols.mcp.options import McpOptions
from dragoman.protocols.mcp.streams import AnsweredRequest, CallFrames
from dragoman.protocols.mcp.tokens import EventPosition, parse_request_state, request_digest
from dragoman.protocols.mcp.translate import PROTOCOL, TurnSummary, refused_result, user_input
from dragoman.protocols.mcp.turns import FollowedTurn, Turns, is_open
from dragoman.protocols.mcp.wire import MethodRequest

_DIGEST = "request"
"""The member of a run's metadata with a digest of the arguments, to recognize a request that is sent again."""


class OpenAnswer(NamedTuple):
    """A turn that is about to be followed: the reader's position, and what encodes it."""

    turn: FollowedTurn
    frames: CallFrames
    on_close: Callable[[bool], None]
    """Called when the stream is closed, with whether the client left."""


class Calls:
    """The calls of an engine's agents."""

    def __init__(
        self, engine: Engine, options: McpOptions, turns: Turns, streams: SessionStreams, open_streams: OpenStreams
    ) -> None:
        self._engine = engine
        self._options = options
        self._streams = streams
        self._turns = turns
        self._abandoned = AbandonedRuns(engine, PROTOCOL)
        self._open = open_streams

    # --- beginning ------------------------------------------------------------------------------------------------

    async def call(self, request: MethodRequest, stack: AsyncExitStack) -> OpenAnswer | JsonObject:
        """Begin, continue or wait.

        Args:
            request: a request of `tools/call`.
            stack: keeps the session in memory until its reader does.

        Returns:
            What to follow, or the result of a call that was refused.

        Raises:
            InvalidParams: there is no such tool.
            Forbidden, LimitReached, Unavailable: nothing was changed.
        """
        request.principal.require("use")
        params = request.params
        spec = self._tool(request, params.get("name"))
        if request.client.is_new and (state := params.get("requestState")) is not None:
            return await self._retry(request, state, stack)
        session: SessionView | None = None
        try:
            sent = params.get("arguments", {})
            check_depth(sent, "arguments")
            arguments = convert_value(without_nulls(sent), wire.Arguments, "arguments")
            if arguments.session_id:
                session = await stack.enter_async_context(
                    self._engine.session(request.principal.user, arguments.session_id)
                )
            turn = await self._start(request, spec, session, arguments, stack)
        except (Refused, InvalidBody) as error:
            if not is_for_model(error):
                raise
            return refused_result(*_explain(error), "" if session is None else session.state.session_id)
        return self._follow(request, turn, digest=request_digest(params))

    async def _retry(self, request: MethodRequest, state: Json, stack: AsyncExitStack) -> OpenAnswer:
        """Take the answers that a repeated call brings, and continue its turn.

        Raises:
            InvalidParams: `requestState` is not one of the caller's, or belongs to another call.
        """
        digest, repeated = request_digest(request.params), parse_request_state(state)
        turn = None
        if repeated is not None and repeated.digest == digest:
            turn = await self._turns.find(request.principal, RunId(repeated.run_id), stack)
        if repeated is None or turn is None:
            raise InvalidParams("requestState must be that of an earlier result of this call")
        taken = await self._turns.apply_responses(request.principal, turn, request.params.get("inputResponses"))
        asked_again = repeated.asked_again or taken.has_empty
        shows_forms = not taken.has_closed and not (repeated.asked_again and taken.has_empty)
        return self._follow(request, taken.turn, digest=digest, shows_forms=shows_forms, asked_again=asked_again)

    def _tool(self, request: MethodRequest, name: Json) -> AgentSpec:
        try:
            spec = self._engine.agent(name if isinstance(name, str) else "").spec
        except AgentNotFound:
            raise InvalidParams(f"Unknown tool: {name!r:.80}") from None
        if request.agent is not None and self._engine.agent(request.agent).spec.name != spec.name:
            raise InvalidParams(f"Unknown tool: {name!r:.80}")
        return spec

    async def _start(
        self,
        request: MethodRequest,
        spec: AgentSpec,
        session: SessionView | None,
        arguments: wire.Arguments,
        stack: AsyncExitStack,
    ) -> FollowedTurn:
        if session is not None and session.state.agent != spec.name:
            raise AgentNotChangeable(f"this session belongs to the tool {session.state.agent!r}")
        if not arguments.message and not arguments.files:
            if session is None:
                raise Invalid("an empty message needs the session_id of the conversation that it waits for")
            return await self._wait(request, session)
        if not request.client.session:
            return await self._submit(request, spec, session, arguments, None, stack)
        key = IdempotencyKey(_key_name(request.client.session, request.id), "")
        async with self._engine.reserve_key(request.principal.user, key) as earlier:
            row = await self._engine.find_run_of(earlier)
            if row is not None:
                attached = await self._attach(request, row, arguments, stack)
                if attached is not None:
                    return attached
            return await self._submit(request, spec, session, arguments, key, stack)

    async def _attach(
        self, request: MethodRequest, earlier: RunLocation, arguments: wire.Arguments, stack: AsyncExitStack
    ) -> FollowedTurn | None:
        """The turn that the same request began and that still runs; None if there is none.

        A client that reconnects to its MCP session counts from the beginning again, so another request may have its id.
        """
        turn = await self._turns.find(request.principal, earlier.run_id, stack)
        if turn is None or not is_open(turn.session):
            return None
        if (await self._turns.newest(turn.session)).run_id != turn.run_id:
            return None
        started = await self._engine.history.run_start(turn.session, earlier.first_seq)
        is_same = started is not None and started.metadata.protocol.get(_DIGEST) == _digest(arguments)
        return turn if is_same else None

    async def _wait(self, request: MethodRequest, session: SessionView) -> FollowedTurn:
        await session.until_durable(session.state.seq)
        first = await self._turns.newest(session)
        return FollowedTurn(session, first.run_id, first.first_seq, session.durable_cursor)

    async def _submit(
        self,
        request: MethodRequest,
        spec: AgentSpec,
        session: SessionView | None,
        arguments: wire.Arguments,
        key: IdempotencyKey | None,
        stack: AsyncExitStack,
    ) -> FollowedTurn:
        """Start the turn of a message, or answer the question that waits."""
        owner, message = request.principal.user, user_input(arguments, spec)
        change = SettingsChange(options=dict(arguments.options))
        metadata = RunMetadata(protocol={_DIGEST: _digest(arguments)})
        if session is not None and not is_busy(session.state):
            questions = [each for each in session.state.waiting_calls() if each.waits_for == "question"]
            if answers := answers_from_text(questions, arguments.message):
                if arguments.files:
                    raise Invalid("the agent asks a question, which is answered by a message without files")
                submit = Submit(protocol=PROTOCOL, answers=answers, change=change, metadata=metadata)
                return await self._turns.answer(owner, session, submit, key)
        is_new = session is None
        if session is None:
            create = Create(protocol=PROTOCOL, agent=spec.name, tools="all", options=dict(arguments.options))
            session = await self._engine.create(owner, create, run_follows=True)
            change = SettingsChange()
        stack.enter_context(self._engine.lease(session))
        async with self._engine.first_request(session, is_new=is_new):
            submit = Submit(protocol=PROTOCOL, messages=(message,), change=change, metadata=metadata)
            started = await self._engine.start_run(session, submit, by=owner, idempotency_key=key)
            assert started.run_id is not None, "a message always starts a run"
            await session.until_durable(started.seq)  # its id goes out with the first bytes of the stream
        return FollowedTurn(session, started.run_id, started.seq, Cursor(started.seq), started.run_id)

    # --- following ------------------------------------------------------------------------------------------------

    def _follow(
        self,
        request: MethodRequest,
        turn: FollowedTurn,
        *,
        digest: str = "",
        shows_forms: bool = True,
        asked_again: bool = False,
    ) -> OpenAnswer:
        client = request.client
        release = self._streams.admit(request.principal, is_new_run=turn.began is not None)
        answered = AnsweredRequest(client, request.id, request.progress_token, digest, shows_forms, asked_again)
        summary = TurnSummary(turn.run_id)
        frames = CallFrames(turn.session, summary, answered, self._options, live_from=turn.live_from)
        if client.session:
            self._open.add(frames, client.session, request.id)

        def on_close(has_left: bool) -> None:
            frames.release()
            release(has_left)
            self._open.remove(frames)
            is_given_up = has_left and client.is_new and not frames.is_over
            if is_given_up and turn.began is not None and self._options.on_disconnect == "cancel":
                self._abandoned.stop(turn.session, turn.began)

        return OpenAnswer(turn, frames, on_close)

    async def resume(
        self, principal: Principal, client: wire.Client, position: EventPosition, stack: AsyncExitStack
    ) -> OpenAnswer | None:
        """Go on with a stream after one of its events; None if there is no such turn."""
        turn = await self._turns.find(principal, RunId(position.run_id), stack)
        if turn is None:
            return None
        return self._follow(MethodRequest(principal, client, None, position.request_id, {}, position.token), turn)

    # --- answers and cancelling -----------------------------------------------------------------------------------

    async def answer_from_form(self, principal: Principal, client: wire.Client, message: wire.Message) -> None:
        """Take what a user did with a form. Nothing happens if its call is not open any more.

        Raises:
            InvalidMessage: it is not the answer to a form of the caller's.
        """
        principal.require("use")
        found = parse_form_id(message.id) if isinstance(message.id, str) else None
        if found is None:
            raise InvalidMessage("this is not the id of a request of this server")
        try:
            async with self._engine.session(principal.user, found[0]) as session:
                waiting = () if is_busy(session.state) else tuple(session.state.waiting_calls())
                call = next((each for each in waiting if each.call.call_id == found[1]), None)
                if call is not None:
                    await self._answer_form(principal, client, session, call, message)
        except SessionNotFound:
            raise InvalidMessage("this is not the id of a request of this server") from None

    async def _answer_form(
        self, principal: Principal, client: wire.Client, session: SessionView, call: OpenCall, message: wire.Message
    ) -> None:
        result = wire.ElicitResult(action="cancel")
        if message.error is msgspec.UNSET:
            result = convert_value(message.result, wire.ElicitResult, "result")
        meant = answer_from(call, result, self._options.approvals)
        if not isinstance(meant, str):
            try:
                await self._turns.answer(principal.user, session, Submit(protocol=PROTOCOL, answers=(meant,)))
                return
            except (Invalid, Conflict):
                meant = "leave"
        form = form_id(session.state.session_id, call.call.call_id)
        if meant == "again":
            self._open.ask_again(client.session, form)
        else:
            self._open.leave_open(client.session, form)

    async def cancel(self, principal: Principal, client: wire.Client, request_id: Json) -> None:
        """Cancel the turn that a request of this session began. Nothing happens if there is none."""
        principal.require("use")
        if not isinstance(request_id, str | int):
            return
        self._open.end_silently(client.session, request_id)
        record = await self._engine.find_idempotency_record(principal.user, _key_name(client.session, request_id))
        row = await self._engine.find_run_of(record)
        if row is None:
            return  # it only waits, or is unknown
        async with AsyncExitStack() as stack:
            turn = await self._turns.find(principal, row.run_id, stack)
            if turn is not None:
                await self._turns.stop(turn)


def _key_name(session: str, request_id: RequestId) -> str:
    return f"{PROTOCOL}:{session}:{msgspec.json.encode(request_id).decode()}"


def _digest(arguments: wire.Arguments) -> str:
    return hashlib.sha256(msgspec.json.encode(arguments)).hexdigest()[:32]


def _explain(error: Exception) -> tuple[str, str]:
    """The code of a refused call, and a sentence that its model can act on."""
    match error:
        case SessionNotFound():
            return "session_not_found", "there is no such session; leave session_id out to begin a new conversation"
        case SessionBusy():
            return "session_busy", "this session is busy; call with its session_id and an empty message to wait"
        case AgentNotServed():
            return "agent_not_served", str(error)
        case _:
            return "invalid_arguments", str(error)
