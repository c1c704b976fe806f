"""What in a session waits for somebody, as Blade shows it. Pure. Source: specification, 3.4, 8.3 and 8.4."""

from collections.abc import Container

import msgspec

from dragoman.core.ids import CallId, fork_loop
from dragoman.core.session import SessionState
from dragoman.protocols.blade.projection.chat import fork_description
from dragoman.protocols.blade.projection.turns import TurnBuilder
from dragoman.protocols.blade.wire import chat
from dragoman.protocols.blade.wire.chat import QuestionRef


def pending_questions(state: SessionState) -> dict[CallId, QuestionRef | None]:
    """The calls that wait for a person, and those above them, with the question that each waits for."""
    found: dict[CallId, QuestionRef | None] = {}
    for call in state.waiting_calls():
        if call.kind == "client" and not call.parked:
            continue
        call_id = call.call.call_id
        loop = chat.public_loop_id(call.loop)
        if call.kind == "question":
            found[call_id] = None
            below = QuestionRef(loop, chat.public_call_id(call_id), None)
        else:
            below = QuestionRef(loop, chat.permission_id(call_id), f"Allow {call.call.name}?")
            found[call_id] = below
        above = state.parent_call(call.loop)
        while above is not None:
            told = msgspec.structs.replace(below, description=below.description or fork_description(above.call))
            found.setdefault(above.call.call_id, told)
            above = state.parent_call(above.loop)
    return found


def is_waiting(state: SessionState, builder: TurnBuilder, pending: Container[CallId]) -> bool:
    """Whether a call of the turn waits for somebody, also for the application."""
    return any(call_id in pending or _waits_for_application(state, call_id) for call_id in builder.open_calls)


def _waits_for_application(state: SessionState, call_id: CallId) -> bool:
    call = state.calls.get(call_id)
    if call is None:
        return False
    if call.kind != "fork":
        return call.is_waiting()
    return any(_waits_for_application(state, each.call.call_id) for each in state.calls_in_loop(fork_loop(call_id)))
