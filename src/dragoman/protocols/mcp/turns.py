"""Finds the turns of sessions by the run that began them, answers what they wait for, and stops them."""

from contextlib import AsyncExitStack
from typing import NamedTuple

import msgspec

from dragoman.core.admission import is_busy
from dragoman.core.content import Json
from dragoman.core.ids import RunId, UserId
from dragoman.core.inputs import Submit
from dragoman.core.principal import Principal
from dragoman.core.refusals import Conflict, Invalid, InvalidAnswer
from dragoman.core.stream import Cursor
from dragoman.core.turns import TurnRun
from dragoman.engine.engine import Engine
from dragoman.engine.services.idempotency import IdempotencyKey
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.kit.runs import find_run
from dragoman.protocols.mcp import wire
from dragoman.protocols.mcp.errors import InvalidParams
from dragoman.protocols.mcp.forms import answer_from
from dragoman.protocols.mcp.options import McpOptions
from dragoman.protocols.mcp.translate import PROTOCOL


class FollowedTurn(NamedTuple):
    """A turn of a session, and where it has news. `began` is the run that this request caused."""

    session: SessionView
    run_id: RunId
    first_seq: int
    live_from: Cursor
    began: RunId | None = None


class AppliedResponses(NamedTuple):
    """A turn whose calls were answered, and whether forms were closed, or sent without an answer."""

    turn: FollowedTurn
    has_closed: bool = False
    has_empty: bool = False


class Turns:
    """The turns of an engine's sessions."""

    def __init__(self, engine: Engine, options: McpOptions) -> None:
        self._engine = engine
        self._options = options

    async def find(self, principal: Principal, run_id: RunId, stack: AsyncExitStack) -> FollowedTurn | None:
        """The turn of a run of the caller's; None if there is none."""
        found = await find_run(self._engine, principal.user, run_id)
        if found is None:
            return None
        stack.enter_context(self._engine.lease(found.session))
        turn = await self._engine.history.turn_at(found.session, found.first_seq)
        if turn is None:
            return None
        return FollowedTurn(found.session, turn.first.run_id, turn.first.first_seq, found.session.durable_cursor)

    async def newest(self, session: SessionView) -> TurnRun:
        """The run that began the session's newest turn."""
        seq = session.state.last_run_seq
        turn = await self._engine.history.turn_at(session, seq) if seq else None
        if turn is None:
            raise Invalid("nothing was asked in this session yet")
        return turn.first

    async def answer(
        self, owner: UserId, session: SessionView, submit: Submit, key: IdempotencyKey | None = None
    ) -> FollowedTurn:
        """Answer calls of the newest turn, and follow it."""
        first = await self.newest(session)
        started = await self._engine.start_run(session, submit, by=owner, idempotency_key=key)
        await session.until_durable(started.seq)
        return FollowedTurn(session, first.run_id, first.first_seq, Cursor(started.seq), started.run_id)

    async def apply_responses(self, principal: Principal, turn: FollowedTurn, responses: Json) -> AppliedResponses:
        """Take answers to the calls with which a turn waits, by the ids of the calls. Others are ignored.

        Raises:
            InvalidParams: they have the wrong shape.
        """
        state = turn.session.state
        if not isinstance(responses, dict | None):
            raise InvalidParams("inputResponses must be an object")
        if is_busy(state) or not is_open(turn.session) or (await self.newest(turn.session)).run_id != turn.run_id:
            return AppliedResponses(turn)
        meant = [
            answer_from(call, _elicit_result(responses[call.call.call_id]), self._options.approvals)
            for call in state.waiting_calls()
            if responses and call.call.call_id in responses
        ]
        answers = tuple(each for each in meant if not isinstance(each, str))
        has_closed = "leave" in meant
        if answers:
            try:
                turn = await self.answer(principal.user, turn.session, Submit(protocol=PROTOCOL, answers=answers))
            except InvalidAnswer:
                has_closed = True
            except (Invalid, Conflict):
                pass  # they have been answered
        return AppliedResponses(turn, has_closed, "again" in meant)

    async def stop(self, turn: FollowedTurn) -> None:
        """Stop a turn: its run, or the calls with which it waits."""
        state = turn.session.state
        if state.last_run is None or not is_open(turn.session):
            return
        if (await self.newest(turn.session)).run_id == turn.run_id:
            if state.run is not None:
                await self._engine.stop_run(turn.session, state.run.run_id)
            else:
                await self._engine.cancel_waiting_calls(turn.session, state.last_run)


def is_open(session: SessionView) -> bool:
    """Whether the newest turn of a session is not over."""
    return session.state.run is not None or any(session.state.waiting_calls())


def _elicit_result(value: Json) -> wire.ElicitResult:
    try:
        return msgspec.convert(value, wire.ElicitResult)
    except msgspec.ValidationError as error:
        raise InvalidParams("an answer to a form must have an action and a content") from error
