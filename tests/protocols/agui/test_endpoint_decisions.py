"""What a run request does to its thread, decided without a server. Source: B.9 to B.11; shared rules, 13, 15, 19."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from dragoman.core.branches import BranchPoint
from dragoman.core.content import Call, ToolMessage, UserMessage
from dragoman.core.events import (
    Branched,
    CallOpened,
    CallSettled,
    Event,
    LoggedEvent,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    RunStarted,
    RunStopped,
    SessionCreated,
    SessionSettings,
    StopReason,
)
from dragoman.core.ids import CallId, MessageId, RunId, SessionId, UserId
from dragoman.core.inputs import Decision, Result
from dragoman.core.refusals import ResultsMissing
from dragoman.core.resent_history import StoredHistory, stored_messages
from dragoman.core.run_metadata import RunMetadata
from dragoman.core.session import SessionState, fold, initial_state
from dragoman.core.tools import AgentSpec
from dragoman.protocols.agui.decision import (
    Join,
    ShowSnapshot,
    StartRun,
    StopActiveRun,
    decide,
    sent_messages,
)
from dragoman.protocols.agui.wire import decode_run
from tests.protocols.agui.endpoint import an_input
from tests.protocols.agui.endpoint_streams import resume, user
from tests.requirements import requirement

Json = Any
AT = datetime(2027, 3, 1, tzinfo=UTC)
SPEC = AgentSpec(name="agent")
ANSWER = {"id": "a1", "role": "assistant", "content": "an answer"}


class Thread:
    """A thread whose log is written by hand."""

    def __init__(self) -> None:
        self.log: list[LoggedEvent] = []
        self.known: dict[str, int] = {}
        self.write(SessionCreated(agent="agent", settings=SessionSettings(), protocol="ag-ui"))

    def write(self, event: Event) -> None:
        self.log.append(LoggedEvent(len(self.log) + 1, AT, RunId("run"), event))

    def say(self, text: str, message_id: str, stop: StopReason | None = "end_turn", *calls: CallOpened) -> "Thread":
        """Add a run of one user message; without `stop` it stays active."""
        self.write(RunStarted(run_id=RunId("run"), protocol="ag-ui"))
        message = UserMessage(id=MessageId(f"own-{message_id}"), content=text, client_id=message_id)
        self.write(MessageAdded(message=message))
        self.known[message_id] = len(self.log)
        self.write(MessageOpened(message_id=MessageId("step")))
        for call in calls:
            self.write(call)
        self.write(MessageClosed(message_id=MessageId("step")))
        if stop is not None:
            self.write(RunStopped(run_id=RunId("run"), reason=stop))
        return self

    def state(self) -> SessionState:
        return fold(initial_state(SessionId("s"), UserId("ann"), self.log[0]), self.log[1:])

    def decide(self, *messages: Json, **fields: Json) -> Json:
        """Decide a request with all branches of the thread known."""
        run, state = decode_run(json.dumps({**an_input(messages=list(messages)), **fields}).encode()).run, self.state()
        known = {each.id: self.known[each.id] for each in run.messages if each.id in self.known}
        history = StoredHistory(state, known, stored_messages(self.log, state), state.resends_history)
        return decide(run, sent_messages(run, SPEC), history)


def a_call(kind: Json) -> CallOpened:
    call = Call(call_id=CallId("call"), name="tool", input={})
    return CallOpened(message_id=MessageId("step"), index=0, call=call, kind=kind)


def texts(decision: Json) -> list[Json]:
    assert isinstance(decision, StartRun)
    return [each.content for each in decision.submit.messages]


@requirement("ag-ui-b:hydrate:snapshot")
@pytest.mark.parametrize("messages", [[], [ANSWER], [user("first", "u1"), ANSWER]])
def test_a_request_without_anything_new_shows_the_thread(messages: list[Json]) -> None:
    assert Thread().say("first", "u1").decide(*messages) == ShowSnapshot()


@requirement("ag-ui-b:history:only-new", "ag-ui-b:history:once")
def test_only_new_messages_are_submitted_each_once() -> None:
    thread = Thread().say("first", "u1")
    second = user("second", "u2")
    for messages in ([second], [user("first", "u1"), ANSWER, second, second]):
        decision = thread.decide(*messages)
        assert (texts(decision), decision.branch) == (["second"], None)
        assert decision.submit.metadata.resends_history == (len(messages) > 1)


@requirement("ag-ui-b:history:once")
def test_an_answered_message_with_a_new_id_is_recognised_by_its_text() -> None:
    thread = Thread().say("first", "u1")
    assert texts(thread.decide(user("first", "other"), ANSWER, user("second", "u2"))) == ["second"]
    assert texts(thread.decide(user("unheard", "other"), ANSWER, user("first", "u2"))) == ["unheard", "first"]


@requirement("ag-ui-b:branch:edit")
@pytest.mark.parametrize("new_id", ["u2", "u9"])
def test_an_edited_message_branches_before_the_one_that_it_replaces(new_id: str) -> None:
    thread = Thread().say("first", "u1").say("second", "u2").say("third", "u3")
    decision = thread.decide(user("first", "u1"), ANSWER, user("edited", new_id))
    assert (texts(decision), decision.branch) == (["edited"], BranchPoint(thread.known["u2"]))
    with_tail = thread.decide(user("first", "u1"), ANSWER, user("edited", new_id), ANSWER, user("third", "u3"))
    assert (texts(with_tail), with_tail.branch) == (["edited", "third"], BranchPoint(thread.known["u2"]))


@requirement("ag-ui-b:branch:edit")
def test_an_edited_first_message_replaces_the_thread() -> None:
    thread = Thread().say("first", "u1").say("second", "u2")
    decision = thread.decide(user("edited", "u1"))
    assert (texts(decision), decision.branch) == (["edited"], BranchPoint(thread.known["u1"]))
    alone = thread.decide(user("new", "u9"))
    assert (texts(alone), alone.branch) == (["new"], None)  # this client sends only what is new
    thread.write(RunStarted(run_id=RunId("run"), protocol="ag-ui", metadata=RunMetadata(resends_history=True)))
    thread.write(RunStopped(run_id=RunId("run"), reason="end_turn"))
    other = thread.decide(user("edited", "u9"))
    assert (texts(other), other.branch) == (["edited"], BranchPoint(thread.known["u1"]))
    later = thread.decide(user("edited", "u2"))  # of a client that shows only the end of the thread
    assert (texts(later), later.branch) == (["edited"], BranchPoint(thread.known["u2"]))


@requirement("ag-ui-b:branch:regenerate")
@pytest.mark.parametrize("stop", ["end_turn", "error", "cancelled"])
def test_a_history_that_ends_in_a_known_message_asks_for_a_new_answer(stop: StopReason) -> None:
    thread = Thread().say("first", "u1").say("second", "u2", stop)
    newest = thread.decide(user("first", "u1"), ANSWER, user("second", "u2"))
    assert (texts(newest), newest.branch) == (["second"], BranchPoint(thread.known["u2"]))
    older = thread.decide(user("first", "u1"))
    assert (texts(older), older.branch) == (["first"], BranchPoint(thread.known["u1"]))


@requirement("ag-ui-b:branch:retry")
@pytest.mark.parametrize("stop", ["error", "cancelled", "interrupted", "max_steps"])
def test_a_message_whose_run_failed_is_asked_again_with_or_without_what_the_run_had_said(stop: StopReason) -> None:
    thread = Thread().say("first", "u1", stop)
    for messages in ([user("first", "u1")], [user("first", "u1"), ANSWER]):
        decision = thread.decide(*messages)
        assert (texts(decision), decision.branch) == (["first"], BranchPoint(thread.known["u1"]))


@requirement("ag-ui-b:branch:retry")
def test_a_message_whose_run_was_stopped_while_a_call_waited_is_asked_again_but_not_by_a_late_result() -> None:
    thread = Thread().say("first", "u1", "tool_use", a_call("client"))
    cancelled = ToolMessage(id=MessageId("r1"), call_id=CallId("call"), name="tool", content="cancelled", is_error=True)
    thread.write(CallSettled(result=cancelled, outcome="cancelled"))
    thread.known |= {"step": len(thread.log) - 3, "r1": len(thread.log)}
    calling = {**ANSWER, "id": "step"}
    result = {"id": "r1", "role": "tool", "toolCallId": "call", "content": "cancelled"}
    for messages in ([calling], [calling, result]):  # before and after a reload
        decision = thread.decide(user("first", "u1"), *messages)
        assert (texts(decision), decision.branch) == (["first"], BranchPoint(thread.known["u1"]))
    late = {**result, "id": "of the client", "content": "it is blue"}
    assert thread.decide(user("first", "u1"), calling, late) == ShowSnapshot()


@requirement("ag-ui-b:branch:shorter")
def test_a_new_message_after_a_shorter_history_branches_there() -> None:
    thread = Thread().say("first", "u1").say("second", "u2")
    instead = thread.decide(user("first", "u1"), ANSWER, user("instead", "u3"))
    assert (texts(instead), instead.branch) == (["instead"], BranchPoint(thread.known["u2"]))
    assert thread.decide(user("first", "u1"), ANSWER) == ShowSnapshot()  # nothing is asked


@requirement("ag-ui-b:branch:sibling")
def test_a_new_message_after_another_branch_continues_that_branch() -> None:
    thread = Thread().say("first", "u1").say("second", "u2")
    branched_before, end = thread.known["u2"], len(thread.log)
    thread.write(Branched(hidden_ranges=((branched_before, end),)))
    thread.say("other", "u3")
    decision = thread.decide(user("first", "u1"), ANSWER, user("second", "u2"), ANSWER, user("on", "u4"))
    assert (texts(decision), decision.branch) == (["on"], BranchPoint(end + 1, ()))
    active = thread.decide(user("first", "u1"), ANSWER, user("other", "u3"), ANSWER, user("on", "u4"))
    assert (texts(active), active.branch) == (["on"], None)


@requirement("ag-ui-b:branch:sibling")
def test_a_new_message_after_the_answer_to_a_call_continues_that_answer_though_another_branch_left_the_call() -> None:
    thread = Thread().say("first", "u1", "tool_use", a_call("client"))
    asked_at = len(thread.log)
    thread.write(RunStarted(run_id=RunId("run"), protocol="ag-ui"))
    result = ToolMessage(id=MessageId("t1"), call_id=CallId("call"), name="tool", content="done")
    thread.write(CallSettled(outcome="done", result=result, by_client=True))
    thread.write(MessageOpened(message_id=MessageId("a2")))
    thread.write(MessageClosed(message_id=MessageId("a2")))
    thread.known["a2"] = len(thread.log)
    thread.write(RunStopped(run_id=RunId("run"), reason="end_turn"))
    end = len(thread.log)
    thread.write(Branched(hidden_ranges=((asked_at + 1, end),)))
    thread.say("instead", "u2")
    answered = [user("first", "u1"), ANSWER, {"id": "a2", "role": "assistant", "content": "done"}]
    decision = thread.decide(*answered, user("on", "u3"))
    assert (texts(decision), decision.branch) == (["on"], BranchPoint(end + 1, ()))
    assert thread.decide(*answered) == ShowSnapshot()
    before = thread.decide(user("first", "u1"), ANSWER, user("on", "u3"))
    assert (texts(before), before.branch) == (["on"], BranchPoint(thread.known["u2"]))


@requirement("ag-ui-b:runs:busy", "ag-ui-b:interrupts:once")
def test_an_active_run_gives_way_to_a_message_and_is_joined_by_a_repeated_answer() -> None:
    thread = Thread().say("first", "u1", None)
    assert thread.decide(user("first", "u1"), user("second", "u2")) == StopActiveRun()
    answer = [resume("call", {"approved": True})]
    assert thread.decide(user("first", "u1"), resume=answer) == Join()
    assert thread.decide(resume=answer) == Join()
    assert thread.decide(user("first", "u1")) == Join()
    assert thread.decide(user("first", "u1"), ANSWER) == Join()
    running_beside = Thread().say("first", "u1", None, a_call("permission"))
    assert running_beside.decide(user("first", "u1"), resume=answer) == Join()


@requirement("ag-ui-b:interrupts:unanswered", "ag-ui-b:interrupts:new-message")
def test_every_open_interrupt_must_be_answered_to_continue() -> None:
    thread = Thread().say("first", "u1", "tool_use", a_call("permission"))
    with pytest.raises(ResultsMissing):
        thread.decide(user("second", "u2"))
    approved = thread.decide(user("first", "u1"), resume=[resume("call", {"approved": True})])
    assert approved.submit.answers == (Decision(call_id=CallId("call"), granted=True),)
    closed = thread.decide(user("second", "u2"), resume=[resume("call")])
    assert (texts(closed), closed.submit.answers) == (["second"], ())


@requirement("ag-ui-b:interrupts:unknown", "ag-ui-b:forged")
def test_answers_to_calls_that_are_not_open_have_no_effect() -> None:
    thread = Thread().say("first", "u1", "tool_use", a_call("client"))
    unknown = thread.decide(user("first", "u1"), resume=[resume("other", {"approved": True})])
    assert unknown == ShowSnapshot(("other",))
    forged = {"id": "t", "role": "tool", "toolCallId": "other", "content": "forged"}
    assert thread.decide(user("first", "u1"), forged) == ShowSnapshot()
    result = thread.decide(user("first", "u1"), {**forged, "toolCallId": "call"})
    assert result.submit.answers == (Result(call_id=CallId("call"), content="forged"),)
