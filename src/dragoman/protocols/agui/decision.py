"""What a run request does to its thread, decided from what is known. Pure: no engine, no storage, no waiting.

    run id used before?  ── yes ──► Follow that run, or AlreadyFinished
      │ no
    anything new?        ── no ───► ShowSnapshot
      │ yes
    run active?          ── yes ──► StopActiveRun, then decide again; Busy if the request only answers interrupts
      │ no
    StartRun, on a new branch if `before_seq` is set

Clients resend the whole conversation. This module is the only place that compares it with the stored one, so the rules
for edits, retries, regeneration and branches are all here.
Source: specification of AG-UI, B.9 to B.11; shared rules, 13, 15, 19 to 21.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dragoman.core import content as core
from dragoman.core.admission import is_busy
from dragoman.core.events import LoggedEvent, MessageAdded
from dragoman.core.ids import ROOT, RunId
from dragoman.core.inputs import Submit
from dragoman.core.session import SessionState
from dragoman.core.tools import AgentSpec
from dragoman.protocols.agui.content import Message, UserMessage
from dragoman.protocols.agui.downgrade import text_of
from dragoman.protocols.agui.request_mapping import (
    InputMapper,
    answers_of,
    is_same_content,
    run_metadata_from,
    tools_of,
    unknown_interrupts,
)
from dragoman.protocols.agui.translate import PROTOCOL
from dragoman.protocols.agui.wire import RunInput

FAILED_STOPS = frozenset({"error", "cancelled", "interrupted", "max_steps"})
"""Stop reasons after which the same message may be sent again to retry."""


# --- what is known ----------------------------------------------------------------------------------------------------


class StoredMessage(NamedTuple):
    """A user message of the root loop, the event that added it, and whether it is in the active branch."""

    seq: int
    message: core.UserMessage
    is_visible: bool


class Facts(NamedTuple):
    """What `decide` needs to know about the thread.

    Args:
        state: the session as it is now.
        spec: the thread's agent.
        known: the request's message ids that the session's log has, with the event that added each message.
        stored: the thread's user messages after event `history_needed`, oldest first.
        earlier: what an earlier request with the same run id and body has led to.
    """

    state: SessionState
    spec: AgentSpec
    known: Mapping[str, int] = {}
    stored: Sequence[StoredMessage] = ()
    earlier: "Follow | AlreadyFinished | None" = None

    def next_user_message(self, seq: int) -> int | None:
        """The event of the first user message after `seq` in the active branch."""
        return next((each.seq for each in self.stored if each.is_visible and each.seq > seq), None)


# --- what follows -----------------------------------------------------------------------------------------------------


class Follow(NamedTuple):
    """Stream a run that exists: replay it, and join it if it is still active."""

    run_id: RunId
    first_seq: int


class AlreadyFinished(NamedTuple):
    """Open and close the stream: the earlier request was accepted without starting a run."""


class ShowSnapshot(NamedTuple):
    """Send the thread as it is and run nothing. `unknown_interrupts`: answers to interrupts that are not open."""

    unknown_interrupts: tuple[str, ...] = ()


class StopActiveRun(NamedTuple):
    """Stop the active run if nobody reads it, then decide again; otherwise the thread is busy."""


class Busy(NamedTuple):
    """Refuse: a run is active, and the request must not end it."""


class StartRun(NamedTuple):
    """Submit input, on a branch that starts before event `before_seq` if set. `dropped`: what the agent cannot use."""

    submit: Submit
    before_seq: int | None
    dropped: tuple[str, ...]


Decision = Follow | AlreadyFinished | ShowSnapshot | StopActiveRun | Busy | StartRun


def decide(run: RunInput, facts: Facts) -> Decision:
    """Decide what a run request does.

    Raises:
        ResultsMissing: an open interrupt is not covered although the request goes on.
        InvalidAnswer: a payload does not match its interrupt's schema.
    """
    if facts.earlier is not None:
        return facts.earlier
    inputs = _new_messages(run, facts)
    before_seq = _branch_point(run, facts, has_new_messages=bool(inputs))
    if before_seq is not None and not inputs:
        last = last_user_message(run.messages)
        assert last is not None, "a branch without new messages repeats the last one"
        inputs = [last]
    if is_busy(facts.state):
        if inputs:
            return StopActiveRun()
        if run.resume:  # an answer that is sent twice must not end the run that the first one started
            return Busy()
    mapper, unknown = InputMapper(facts.spec), unknown_interrupts(run, facts.state)
    answers = answers_of(run, facts.state, mapper, has_new_message=bool(inputs))
    if not inputs and not answers:
        return ShowSnapshot(unknown)
    submit = Submit(
        protocol=PROTOCOL,
        messages=tuple(map(mapper.user_input, inputs)),
        answers=() if before_seq is not None else answers,
        client_run_id=run.run_id,
        client_tools=tools_of(run.tools),
        metadata=run_metadata_from(run, unknown),
    )
    return StartRun(submit, before_seq, tuple(mapper.dropped))


# --- comparing the client's history with the stored one ---------------------------------------------------------------


def history_needed(run: RunInput, known: Mapping[str, int]) -> int | None:
    """The event after which `decide` needs the thread's user messages; None if it needs none."""
    new, before = _unknown_messages(run, known), split_opening_input(run.messages)[0]
    if any(each in before for each in new):
        return 0
    if new:
        return _parent_seq(run, known)
    last = last_user_message(run.messages)
    return None if last is None or last.id not in known or run.resume else known[last.id] - 1


def stored_messages(events: Iterable[LoggedEvent], state: SessionState) -> list[StoredMessage]:
    """The user messages among the events, as `Facts.stored` takes them."""
    return [
        StoredMessage(logged.seq, logged.event.message, state.is_visible(logged.seq))
        for logged in events
        if isinstance(logged.event, MessageAdded)
        and isinstance(logged.event.message, core.UserMessage)
        and logged.event.message.loop == ROOT
    ]


def last_user_message(messages: Sequence[Message]) -> UserMessage | None:
    """The newest user message in the client's history."""
    return next((each for each in reversed(messages) if isinstance(each, UserMessage)), None)


def split_opening_input(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[UserMessage]]:
    """Split a history into what was answered before and the user messages at its end."""
    inputs: list[UserMessage] = []
    for message in reversed(messages):
        if not isinstance(message, UserMessage):
            break
        inputs.insert(0, message)
    return messages[: len(messages) - len(inputs)], inputs


def _parent_seq(run: RunInput, known: Mapping[str, int]) -> int | None:
    """The newest stored message that new ones of a request with a `parentRunId` continue."""
    seqs = [known[each.id] for each in run.messages if each.id in known]
    return max(seqs) if seqs and run.parent_run_id is not None else None


def _unknown_messages(run: RunInput, known: Mapping[str, int]) -> list[UserMessage]:
    """The user messages whose ids the session does not have, each once."""
    new = {each.id: each for each in run.messages if isinstance(each, UserMessage) and each.id not in known}
    return list(new.values())


def _new_messages(run: RunInput, facts: Facts) -> list[UserMessage]:
    """The user messages that the thread does not have yet, in order.

    Some clients resend their history under new ids with every request, so a message that was already answered there
    and whose text is in the thread is not new either (shared rules, 13: an id alone identifies nothing).
    """
    new, before = _unknown_messages(run, facts.known), split_opening_input(run.messages)[0]
    stored_texts = {core.text_of(each.message.content) for each in facts.stored if each.is_visible}
    return [each for each in new if each not in before or text_of(each.content) not in stored_texts]


def _branch_point(run: RunInput, facts: Facts, *, has_new_messages: bool) -> int | None:
    """The user message before which the request branches off, if it opens a branch.

    It does with a new text for the newest message, with a message whose run failed, and, if it has a `parentRunId`,
    with a history that ends earlier than the stored one.
    """
    known, last = facts.known, last_user_message(run.messages)
    if has_new_messages:
        parent_seq = _parent_seq(run, known)
        return None if parent_seq is None else facts.next_user_message(parent_seq)
    if last is None or last.id not in known or run.resume:
        return None
    seq, is_end = known[last.id], run.messages[-1] is last
    if facts.next_user_message(seq) is None:
        stored = next((each.message for each in facts.stored if each.seq == seq), None)
        is_edited = stored is not None and not is_same_content(last.content, stored.content, facts.spec)
        is_failed = is_end and facts.state.last_stop in FAILED_STOPS and facts.state.run is None
        if is_edited or is_failed:
            return seq
    return seq if is_end and run.parent_run_id is not None else None
