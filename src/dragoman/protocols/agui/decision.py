"""What a run request does to its thread, decided from what is known. Pure: no engine, no storage, no waiting.

    run id used before?          ── yes ──► Follow that run, or AlreadyFinished
      │ no
    new input, or asked again?   ── no ───► ShowSnapshot, or Join a run that is active
      │ yes
    run active?                  ── yes ──► Join if it is answering this very message; Busy if the request only answers
      │ no                                  interrupts; otherwise StopActiveRun, then decide again
    StartRun, on a branch if `before_seq` is set

Clients resend the whole conversation. This module is the only place that compares it with the stored one, so the rules
for edits, retries, regeneration and branches are all here: `compare` finds the stored messages that the client shows,
and what follows them in the client's history is input. What the client does not show is left behind on a branch.
Source: specification of AG-UI, B.9 to B.11; shared rules, 13, 15, 19 to 21.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dragoman.core import content as core
from dragoman.core.admission import is_busy
from dragoman.core.events import Branched, LoggedEvent, MessageAdded
from dragoman.core.ids import ROOT, RunId
from dragoman.core.inputs import Submit, UserInput
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
"""Stop reasons after which the same history may be sent again to retry, with or without what the run had said."""

Ranges = Sequence[tuple[int, int]]
"""Ranges of events, first and last included."""


# --- what is known ----------------------------------------------------------------------------------------------------


class StoredMessage(NamedTuple):
    """A user message of the root loop.

    Args:
        seq: the event that added it.
        message: the message.
        is_visible: whether it is in the active branch.
        hidden_before: the events before it that are not in its branch.
        end: the event with which something else follows its turn: another message, or another branch.
    """

    seq: int
    message: core.UserMessage
    is_visible: bool
    hidden_before: Ranges
    end: int | None = None

    def has_id(self, message_id: str) -> bool:
        """Whether clients know it by this id."""
        return message_id in (self.message.client_id, self.message.id)

    def follows(self, other: "StoredMessage") -> bool:
        """Whether the other message is earlier in its branch."""
        return other.seq < self.seq and not _is_in(other.seq, self.hidden_before)


class Facts(NamedTuple):
    """What `decide` needs to know about the thread.

    Args:
        state: the session as it is now.
        spec: the thread's agent.
        known: the request's message ids that the session's log has, with the event that added each message.
        stored: the user messages of the active branch from event `first_needed` on, oldest first; those of all branches
            if `needs_all_branches`.
        is_resent: whether the thread's client has already sent its whole history with new messages.
        earlier: what an earlier request with the same run id and body has led to.
    """

    state: SessionState
    spec: AgentSpec
    known: Mapping[str, int] = {}
    stored: Sequence[StoredMessage] = ()
    is_resent: bool = False
    earlier: "Follow | AlreadyFinished | None" = None

    def next_visible(self, seq: int) -> StoredMessage | None:
        """The first user message after event `seq` in the active branch."""
        return next((each for each in self.stored if each.is_visible and each.seq > seq), None)


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


class Join(NamedTuple):
    """Send the thread as it is and go on with the active run, as `connect` does."""


class StopActiveRun(NamedTuple):
    """Stop the active run if nobody reads it, then decide again; otherwise the thread is busy."""


class Busy(NamedTuple):
    """Refuse: a run is active, and the request must not end it."""


class StartRun(NamedTuple):
    """Submit input.

    Args:
        submit: the input.
        before_seq: the event before which it branches off; None continues the active branch.
        hidden_before: what that branch hides before the event; None: what the active branch hides.
        dropped: what the agent cannot use.
    """

    submit: Submit
    before_seq: int | None
    hidden_before: Ranges | None
    dropped: tuple[str, ...]


Decision = Follow | AlreadyFinished | ShowSnapshot | Join | StopActiveRun | Busy | StartRun


class _BranchPoint(NamedTuple):
    before_seq: int | None
    hidden_before: Ranges | None = None


def decide(run: RunInput, facts: Facts) -> Decision:
    """Decide what a run request does.

    Raises:
        ResultsMissing: an open interrupt is not covered although the request goes on.
        InvalidAnswer: a payload does not match its interrupt's schema.
    """
    if facts.earlier is not None:
        return facts.earlier
    state, mapper = facts.state, InputMapper(facts.spec)
    last, new = compare(run, facts)
    inputs = tuple(map(mapper.user_input, new))
    point = _branch_point(run, facts, last) if new else _BranchPoint(None)
    if last is not None and not new and _asks_again(run, facts, last):
        if state.run is not None and _is_newest(last, facts):
            return Join()
        again = next(each for each in reversed(run.messages) if isinstance(each, UserMessage))
        inputs = (UserInput(content=last.message.content, client_id=again.id, name=last.message.name),)
        point = _BranchPoint(last.seq, None if last.is_visible else last.hidden_before)
    if is_busy(state):
        if inputs:
            return StopActiveRun()
        if run.resume:  # an answer that is sent twice must not end the run that the first one started
            return Busy()
    unknown = unknown_interrupts(run, state)
    answers = answers_of(run, state, mapper, has_new_message=bool(inputs))
    if not inputs and not answers:
        return Join() if state.run is not None and run.messages else ShowSnapshot(unknown)
    submit = Submit(
        protocol=PROTOCOL,
        messages=inputs,
        answers=() if point.before_seq is not None else answers,
        client_run_id=run.run_id,
        client_tools=tools_of(run.tools),
        metadata=run_metadata_from(run, unknown, is_resent=bool(new) and _answered(run)),
    )
    return StartRun(submit, point.before_seq, point.hidden_before, tuple(mapper.dropped))


# --- comparing the client's history with the stored one ---------------------------------------------------------------


def first_needed(run: RunInput, known: Mapping[str, int]) -> int | None:
    """The event from which `decide` needs the user messages of the active branch; None if it needs none."""
    sent = _user_messages(run)
    if not sent or not (known or _answered(run)):
        return None
    return min(known[each.id] for each in sent if each.id in known) if sent[0].id in known else 0


def needs_all_branches(run: RunInput, state: SessionState, known: Mapping[str, int]) -> bool:
    """Whether the request shows messages that are not in the active branch."""
    return any(each.id in known and not state.is_visible(known[each.id]) for each in run.messages)


def stored_messages(events: Iterable[LoggedEvent], state: SessionState) -> list[StoredMessage]:
    """The user messages of a whole log, as `Facts.stored` takes them."""
    stored: list[StoredMessage] = []
    hidden: Ranges = ()
    for logged in events:
        event = logged.event
        message = event.message if isinstance(event, MessageAdded) else None
        is_input = isinstance(message, core.UserMessage) and message.loop == ROOT
        if stored and stored[-1].end is None and (is_input or isinstance(event, Branched)):
            stored[-1] = stored[-1]._replace(end=logged.seq)
        if isinstance(event, Branched):
            hidden = event.hidden_ranges
        elif isinstance(message, core.UserMessage) and is_input:
            stored.append(StoredMessage(logged.seq, message, state.is_visible(logged.seq), hidden))
    return stored


def compare(run: RunInput, facts: Facts) -> tuple[StoredMessage | None, list[UserMessage]]:
    """The last stored message that the client's history shows, and the user messages that follow it there.

    A message is recognised by its place, its id and its content. Some clients resend their history under new ids with
    every request, so one that was already answered there is also recognised by its text. The history may begin
    anywhere in the stored one, or not continue it at all.
    """
    sent, (before, _) = _user_messages(run), split_opening_input(run.messages)
    answered, shown = {each.id for each in before}, _shown_answers(run, facts.known)
    path = _opening_turn(run, facts) if sent else []
    matched = 0
    for message in sent:
        candidates = [
            each
            for each in facts.stored
            if _is_recognised(message, each, facts.spec, by_text=message.id in answered)
            and (_follows_directly(each, path, facts) if path else not matched)
        ]
        if not candidates:
            break
        path = [
            each
            for each in candidates
            if any(each.seq < seq and (each.end is None or seq < each.end) for seq in shown[message.id])
        ] or candidates
        if not matched and len(path) > 1 and not path[0].has_id(message.id):
            path = path[:1]  # recognised by its text: the oldest
        matched += 1
    last = next((each for each in reversed(path) if each.is_visible), path[-1] if path else None)
    return last, sent[matched:]


def split_opening_input(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[UserMessage]]:
    """Split a history into what was answered before and the user messages at its end."""
    inputs: list[UserMessage] = []
    for message in reversed(messages):
        if not isinstance(message, UserMessage):
            break
        inputs.insert(0, message)
    return messages[: len(messages) - len(inputs)], inputs


def _branch_point(run: RunInput, facts: Facts, last: StoredMessage | None) -> _BranchPoint:
    """Where new messages branch off that follow `last` in the client's history."""
    if last is not None and not last.is_visible:
        return _BranchPoint(last.end, last.hidden_before)
    if last is not None:
        following = facts.next_visible(last.seq)
        return _BranchPoint(None if following is None else following.seq)
    first = _user_messages(run)[0]
    edited = [each for each in facts.stored if each.has_id(first.id)]
    if edited:
        place = next((each for each in edited if each.is_visible), edited[-1])
        return _BranchPoint(place.seq, None if place.is_visible else place.hidden_before)
    if facts.is_resent or any(each.id in facts.known for each in run.messages):  # a history with another beginning
        opening = facts.next_visible(0)
        return _BranchPoint(None if opening is None else opening.seq)
    return _BranchPoint(None)  # the client sends only what is new


def _asks_again(run: RunInput, facts: Facts, last: StoredMessage) -> bool:
    """Whether a history without new messages asks for a new answer: it ends with a message, or its run failed."""
    if run.resume:
        return False
    return isinstance(run.messages[-1], UserMessage) or (_is_newest(last, facts) and has_failed(facts.state))


def has_failed(state: SessionState) -> bool:
    """Whether the active branch ends with a run that failed or was stopped."""
    is_over = not is_busy(state) and state.last_stop in FAILED_STOPS
    return is_over and not any(True for _ in state.waiting_calls()) and state.is_visible(state.last_run_seq + 1)


def _is_newest(stored: StoredMessage, facts: Facts) -> bool:
    return stored.is_visible and facts.next_visible(stored.seq) is None


def _user_messages(run: RunInput) -> list[UserMessage]:
    """The user messages of the client's history, each once."""
    return list({each.id: each for each in run.messages if isinstance(each, UserMessage)}.values())


def _answered(run: RunInput) -> bool:
    """Whether the client's history has a user message that was answered there."""
    return any(isinstance(each, UserMessage) for each in split_opening_input(run.messages)[0])


def _shown_answers(run: RunInput, known: Mapping[str, int]) -> dict[str, list[int]]:
    """The stored messages that the client shows behind each user message."""
    shown: dict[str, list[int]] = {}
    current: list[int] = []
    for message in run.messages:
        if isinstance(message, UserMessage):
            current = shown.setdefault(message.id, [])
        elif message.id in known:
            current.append(known[message.id])
    return shown


def _opening_turn(run: RunInput, facts: Facts) -> list[StoredMessage]:
    """The turn with whose answer the client's history begins, if it begins with an answer."""
    seq = 0
    for message in run.messages:
        if isinstance(message, UserMessage):
            break
        seq = max(seq, facts.known.get(message.id, 0))
    return [each for each in facts.stored if each.is_visible and each.seq < seq][-1:]


def _is_recognised(message: UserMessage, stored: StoredMessage, spec: AgentSpec, *, by_text: bool) -> bool:
    if stored.has_id(message.id):
        return is_same_content(message.content, stored.message.content, spec)
    return by_text and text_of(message.content) == core.text_of(stored.message.content)


def _follows_directly(stored: StoredMessage, path: Sequence[StoredMessage], facts: Facts) -> bool:
    """Whether a message is the next one after one of the path, in its branch."""
    previous = next((each for each in reversed(facts.stored) if stored.follows(each)), None)
    return previous in path


def _is_in(seq: int, ranges: Ranges) -> bool:
    return any(first <= seq <= last for first, last in ranges)
