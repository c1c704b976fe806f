"""What a client shows is what the model gets, whatever the user edits, regenerates or goes back to.

Source: shared rules, 13, 15.
"""

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from dragoman.core.content import Text, ToolMessage, UserMessage, text_of
from dragoman.core.events import (
    BlockClosed,
    Branched,
    Event,
    LoggedEvent,
    MessageAdded,
    MessageClosed,
    MessageOpened,
    RunStarted,
    RunStopped,
    SessionCreated,
    SessionSettings,
)
from dragoman.core.history import messages_of
from dragoman.core.ids import MessageId, RunId, SessionId, UserId
from dragoman.core.resent_history import (
    SentMessage,
    StoredHistory,
    StoredMessage,
    first_needed,
    needs_all_branches,
    stored_messages,
)
from dragoman.core.session import SessionState, apply, initial_state
from dragoman.core.tools import AgentSpec
from dragoman.protocols.agui.decision import StartRun, decide, sent_messages
from dragoman.protocols.agui.wire import decode_run
from tests.protocols.agui.endpoint import an_input
from tests.requirements import requirement

Json = Any
AT = datetime(2027, 3, 1, tzinfo=UTC)
AGENT = AgentSpec(name="agent")
TEXTS = st.sampled_from(["yes", "no"])


class Thread:
    """A thread that does what `decide` says, and reads as little of its log as the endpoint does."""

    def __init__(self) -> None:
        created = SessionCreated(agent="agent", settings=SessionSettings(), protocol="ag-ui")
        self.log = [LoggedEvent(1, AT, None, created)]
        self.known: dict[str, int] = {}
        self.state: SessionState = initial_state(SessionId("s"), UserId("ann"), self.log[0])
        self.answers = 0

    def write(self, *events: Event) -> None:
        for event in events:
            self.log.append(LoggedEvent(len(self.log) + 1, AT, RunId("run"), event))
            apply(self.state, self.log[-1])

    def run(self, shown: list[Json], *, fails: bool) -> Json:
        """Take a request. Returns the answer as its client receives it."""
        run = decode_run(json.dumps(an_input(messages=shown)).encode()).run
        sent = sent_messages(run, AGENT)
        decision = decide(run, sent, self.history(sent))
        assert isinstance(decision, StartRun), decision
        if decision.branch is not None:
            before_seq, hidden_before = decision.branch
            base = self.state.hidden_ranges if hidden_before is None else hidden_before
            hidden = [each for each in base if each[1] < before_seq]
            self.write(Branched(hidden_ranges=(*hidden, (before_seq, self.state.seq))))
        self.write(RunStarted(run_id=RunId("run"), protocol="ag-ui", metadata=decision.submit.metadata))
        for each in decision.submit.messages:
            own = MessageId(f"own {len(self.log)}")
            self.write(MessageAdded(message=UserMessage(id=own, content=str(each.content), client_id=each.client_id)))
            self.known[str(each.client_id)] = self.known[own] = len(self.log)
        self.answers += 1
        own, text = MessageId(f"answer {self.answers}"), f"text {self.answers}"
        self.write(MessageOpened(message_id=own), BlockClosed(message_id=own, index=0, block=Text(text)))
        self.write(MessageClosed(message_id=own, status="interrupted" if fails else "completed"))
        self.known[own] = len(self.log)
        self.write(RunStopped(run_id=RunId("run"), reason="error" if fails else "end_turn"))
        return {"id": own, "role": "assistant", "content": text}

    def history(self, sent: list[SentMessage]) -> StoredHistory:
        known = {each.id: self.known[each.id] for each in sent if each.id in self.known}
        everything = stored_messages(self.log, self.state)
        first_seq = first_needed(sent, known, is_complete=self.state.resends_history)
        stored: list[StoredMessage] = []
        if needs_all_branches(sent, self.state, known):
            stored = everything
        elif first_seq is not None:
            stored = [
                each._replace(hidden_before=self.state.hidden_ranges, end=None)
                for each in everything
                if each.is_visible and each.seq >= first_seq
            ]
        return StoredHistory(self.state, known, stored, self.state.resends_history)

    def messages(self) -> list[str]:
        """What the model gets."""
        visible = [each for each in self.log if self.state.is_visible(each.seq)]
        return [text_of(each.content) for each in messages_of(visible) if not isinstance(each, ToolMessage)]


class Conversation(RuleBasedStateMachine):
    """A user at a client that resends its whole history under stable ids."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = Thread()
        self.shown: list[Json] = []
        self.earlier: list[list[Json]] = []
        """What the client has shown before: branches that a user can go back to."""
        self.count = 0
        self.has_failed = False

    def new_message(self, text: str, message_id: str | None = None) -> Json:
        self.count += 1
        return {"id": message_id or f"user {self.count}", "role": "user", "content": text}

    def send(self, shown: list[Json], *, fails: bool = False, only: int | None = None) -> None:
        answer = self.thread.run(shown if only is None else shown[-only:], fails=fails)
        self.shown, self.has_failed = [*shown, answer], fails
        self.earlier.append(self.shown)
        assert self.thread.messages() == [each["content"] for each in self.shown]

    def users(self) -> list[int]:
        return [place for place, each in enumerate(self.shown) if each["role"] == "user"]

    @rule(text=TEXTS, fails=st.booleans())
    def say(self, text: str, fails: bool) -> None:
        self.send([*self.shown, self.new_message(text)], fails=fails)

    @precondition(lambda self: self.shown and not self.thread.state.resends_history)
    @rule(text=TEXTS)
    def say_without_the_history(self, text: str) -> None:
        self.send([*self.shown, self.new_message(text)], only=1)

    @precondition(lambda self: self.shown)
    @rule(data=st.data(), fails=st.booleans())
    def regenerate(self, data: st.DataObject, fails: bool) -> None:
        place = data.draw(st.sampled_from(self.users()))
        self.send(self.shown[: place + 1], fails=fails)

    @precondition(lambda self: self.shown)
    @rule(data=st.data(), text=TEXTS, keeps_id=st.booleans())
    def edit(self, data: st.DataObject, text: str, keeps_id: bool) -> None:
        place = data.draw(st.sampled_from(self.users()))
        if place == 0 and not self.thread.state.resends_history:
            keeps_id = True  # a single message under a new id is one that is new
        message_id = self.shown[place]["id"] if keeps_id else None
        self.send([*self.shown[:place], self.new_message(text, message_id)])

    @precondition(lambda self: self.has_failed)
    @rule()
    def retry(self) -> None:
        answer = self.thread.run(self.shown, fails=False)
        self.shown, self.has_failed = [*self.shown[:-1], answer], False
        self.earlier.append(self.shown)
        assert self.thread.messages() == [each["content"] for each in self.shown]

    @precondition(lambda self: self.earlier)
    @rule(data=st.data(), text=TEXTS)
    def go_back(self, data: st.DataObject, text: str) -> None:
        branch = data.draw(st.sampled_from(self.earlier))
        self.send([*branch, self.new_message(text)])


@requirement("ag-ui-b:branch:shown")
def test_random_edits_regenerations_retries_and_branches_leave_the_model_with_what_is_shown() -> None:
    run_state_machine_as_test(Conversation, settings=settings(max_examples=60, stateful_step_count=20, deadline=None))
