"""Open calls as readers of events follow them: a call that waits is the same as in the session's state."""

from hypothesis import given

from dragoman.core.content import Call
from dragoman.core.events import CallOpened, CallParked, CallSettled
from dragoman.core.ids import CallId, MessageId, SessionId
from dragoman.core.open_calls import OpenCall, OpenCalls
from dragoman.core.session import apply, initial_state
from tests.core.log_generator import ANN, LogGenerator, conversations

ASKED = CallParked(call_id=CallId("c"), kind="question", note={"questions": [{"question": "Which?"}]})


def opened(kind: str = "inline") -> CallOpened:
    return CallOpened(message_id=MessageId("m"), index=0, call=Call(CallId("c"), "book", {}), kind=kind)  # type: ignore[arg-type]


def shown(call: OpenCall) -> tuple[object, ...]:
    return call.is_waiting(), call.waits_for, call.shown(), call.is_repeat, call.asks_person, call.can_be_edited


@given(conversations)
def test_what_waits_is_the_same_as_in_the_state(generator: LogGenerator) -> None:
    state, calls = initial_state(SessionId("session"), ANN, generator.log[0]), OpenCalls()
    for logged in generator.log[1:]:
        apply(state, logged)
        match logged.event:
            case CallOpened() as event:
                calls.open(event)
            case CallParked() as event:
                calls.park(event)
            case CallSettled(result=result):
                calls.settle(result.call_id)
        assert calls.keys() == state.calls.keys()
        waiting = list(state.waiting_calls())
        assert [shown(calls[each.call.call_id]) for each in waiting] == list(map(shown, waiting))


def test_a_call_that_asks_again_is_one_call_with_the_last_question() -> None:
    calls = OpenCalls()
    calls.open(opened())
    calls.park(ASKED)
    calls.park(CallParked(call_id=CallId("c"), kind="permission"))
    (call,) = calls.values()
    assert (call.waits_for, call.shown().input, call.asks_person) == ("permission", {}, True)


def test_a_call_of_an_earlier_run_is_known_when_it_waits_again() -> None:
    calls = OpenCalls()
    calls.park(CallParked(call_id=CallId("c"), call=opened().call))
    calls.park(CallParked(call_id=CallId("old")))
    known, unknown = calls.values()
    assert (known.call.name, known.is_of_earlier_run, known.is_repeat) == ("book", True, True)
    assert not known.can_be_edited
    assert (unknown.call.name, unknown.is_of_earlier_run, unknown.is_repeat) == ("", False, True)


def test_a_person_is_asked_apart_from_the_result_except_by_the_built_in_question() -> None:
    kinds = {
        kind: OpenCall.opened_by(opened(kind)).asks_person for kind in ("permission", "question", "client", "inline")
    }
    assert kinds == {"permission": True, "question": False, "client": False, "inline": False}
    asking = OpenCall.opened_by(opened())
    asking.park(ASKED)
    assert asking.asks_person, "its tool continues with the answer"
