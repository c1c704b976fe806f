"""Which messages of a resent history are new, and where they branch off. Source: shared rules, 13, 15."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import pytest

from dragoman.core.branches import BranchPoint
from dragoman.core.content import Call, UserMessage
from dragoman.core.events import (
    Branched,
    CallOpened,
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
from dragoman.core.resent_history import Placement, SentMessage, StoredHistory, place, stored_messages
from dragoman.core.session import fold, initial_state

AT = datetime(2027, 3, 1, tzinfo=UTC)


class Session:
    """A session whose log is written by hand. Messages have the ids that the test gives them."""

    def __init__(self) -> None:
        self.log: list[LoggedEvent] = []
        self.seqs: dict[str, int] = {}
        self.hidden: tuple[tuple[int, int], ...] = ()
        self.write(SessionCreated(agent="agent", settings=SessionSettings(), protocol="ag-ui"))

    def write(self, event: Event) -> None:
        self.log.append(LoggedEvent(len(self.log) + 1, AT, RunId("run"), event))

    def turn(
        self, question: str, text: str, answer: str, stop: StopReason = "end_turn", *, asks: bool = False
    ) -> "Session":
        """Add a user message with this id and text, and an answer with this id, which may leave a call that waits."""
        self.write(RunStarted(run_id=RunId("run"), protocol="ag-ui"))
        self.write(MessageAdded(message=UserMessage(id=MessageId(f"own-{question}"), content=text, client_id=question)))
        self.seqs[question] = len(self.log)
        self.write(MessageOpened(message_id=MessageId(answer)))
        self.seqs[answer] = len(self.log)
        if asks:
            call = Call(CallId("c"), "pay", {})
            self.write(CallOpened(message_id=MessageId(answer), index=0, call=call, kind="permission"))
        self.write(MessageClosed(message_id=MessageId(answer)))
        self.write(RunStopped(run_id=RunId("run"), reason=stop))
        return self

    def branch_before(self, message: str) -> "Session":
        """Leave the branch before a message."""
        begin = self.seqs[message]
        self.hidden = (*(each for each in self.hidden if each[1] < begin), (begin, len(self.log)))
        self.write(Branched(hidden_ranges=self.hidden))
        return self

    def place(self, *sent: SentMessage, is_complete: bool = False) -> Placement:
        state = fold(initial_state(SessionId("s"), UserId("ann"), self.log[0]), self.log[1:])
        known = {each.id: self.seqs[each.id] for each in sent if each.id in self.seqs}
        return place(sent, StoredHistory(state, known, stored_messages(self.log, state), is_complete))


def user(message_id: str, text: str) -> SentMessage:
    return SentMessage(message_id, True, text, partial(has_text, text))


def has_text(text: str, content: object) -> bool:
    return content == text


def agent(message_id: str) -> SentMessage:
    return SentMessage(message_id)


TWO = (user("u1", "one"), agent("a1"), user("u2", "two"), agent("a2"))


def two_turns() -> Session:
    return Session().turn("u1", "one", "a1").turn("u2", "two", "a2")


@pytest.mark.parametrize("sent", [(), (agent("a2"),), TWO, TWO[2:]])
def test_nothing_is_asked_by_a_history_that_the_session_has(sent: Sequence[SentMessage]) -> None:
    assert two_turns().place(*sent) == Placement()


@pytest.mark.parametrize("before", [(), TWO, TWO[2:], TWO[3:]])
def test_a_new_message_continues_the_history_however_much_of_it_is_sent(before: Sequence[SentMessage]) -> None:
    assert two_turns().place(*before, user("u3", "three"), user("u3", "three")) == Placement(["u3"])


def test_a_new_message_after_an_earlier_answer_branches_there() -> None:
    session = two_turns()
    assert session.place(*TWO[:2], user("u3", "three")) == Placement(["u3"], BranchPoint(session.seqs["u2"]))
    assert session.place(agent("a1"), user("u3", "three")) == Placement(["u3"], BranchPoint(session.seqs["u2"]))


@pytest.mark.parametrize("message_id", ["u2", "other"])
def test_a_changed_message_replaces_the_one_in_its_place(message_id: str) -> None:
    session = two_turns()
    expected = Placement([message_id], BranchPoint(session.seqs["u2"]))
    assert session.place(*TWO[:2], user(message_id, "changed")) == expected


def test_a_history_that_ends_in_a_known_message_asks_for_another_answer() -> None:
    session = two_turns()
    placement = session.place(*TWO[:3])
    assert placement.again is not None
    assert (placement.new, placement.again.seq) == ((), session.seqs["u2"])
    assert placement.branch == BranchPoint(session.seqs["u2"])


@pytest.mark.parametrize("stop", ["error", "cancelled", "interrupted", "max_steps"])
def test_a_failed_answer_that_is_shown_is_asked_again(stop: StopReason) -> None:
    session = Session().turn("u1", "one", "a1").turn("u2", "two", "a2", stop)
    placement = session.place(*TWO)
    assert placement.again is not None
    assert placement.again.seq == session.seqs["u2"]


def test_an_answer_that_waits_for_the_user_is_not_asked_again_though_its_run_ended_with_a_crash() -> None:
    session = Session().turn("u1", "one", "a1", "interrupted", asks=True)
    assert session.place(*TWO[:2]) == Placement()


def test_answered_messages_with_new_ids_are_recognised_by_their_texts() -> None:
    session = two_turns()
    renamed = (user("x1", "one"), agent("y1"), user("x2", "two"), agent("y2"))
    assert session.place(*renamed, user("x3", "two")) == Placement(["x3"])
    assert session.place(*renamed[:2], user("x3", "two")) == Placement(["x3"], BranchPoint(session.seqs["u2"]))


def test_the_answer_that_is_shown_tells_in_which_branch_a_message_was_answered() -> None:
    session = two_turns().branch_before("u2").turn("u2", "two", "b2").turn("u3", "three", "b3")
    seen = (*TWO, user("u4", "four"))
    placement = session.place(*seen)
    left = session.seqs["a2"] + 3  # the event after the end of the first answer's run
    assert placement == Placement(["u4"], BranchPoint(left, ()))
    assert session.place(*TWO[:3], agent("b2"), user("u4", "four")).branch == BranchPoint(session.seqs["u3"])


def test_a_message_after_one_that_is_not_in_its_branch_is_new() -> None:
    session = two_turns().branch_before("u2").turn("u3", "three", "a3")
    placement = session.place(*TWO[:2], user("u3", "three"), agent("a3"), user("u2", "two"), agent("a2"))
    assert placement.new == ["u2"]


class CountedText(str):
    """A text that counts its comparisons."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedText.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("turns", [50, 200])
def test_a_long_history_of_equal_messages_is_compared_in_one_pass(turns: int) -> None:
    session = Session()
    sent: list[SentMessage] = []
    for index in range(turns):
        session.turn(f"u{index}", "yes", f"a{index}")
        sent += [SentMessage(f"x{index}", True, CountedText("yes")), agent(f"y{index}")]
    CountedText.compared = 0
    assert session.place(*sent, user("new", "next")) == Placement(["new"])
    assert CountedText.compared <= 2 * turns, "the first one with all, each of the others with the one in its place"
