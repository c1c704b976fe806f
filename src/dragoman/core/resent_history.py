"""Interprets a history that a client resends: which of its messages are new, and where they branch off. Pure.

Clients of some protocols send the whole conversation with every request. `place` finds the stored messages that the
client shows; what follows them in the client's history is new, and what the client does not show stays on a branch that
is no longer active. Protocols decide what their clients mean by it: `agui/decision.py`, `aisdk/decision.py` and
`openai/runs.py`. Source: shared rules, 13, 15.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from dragoman.core.admission import is_busy
from dragoman.core.branches import BranchPoint
from dragoman.core.content import InputBlock, UserMessage, text_of
from dragoman.core.events import Branched, LoggedEvent, MessageAdded, StopReason
from dragoman.core.ids import ROOT
from dragoman.core.ranges import Ranges, newest_outside
from dragoman.core.session import SessionState

FAILED_STOPS = frozenset({"error", "cancelled", "interrupted", "max_steps"})
"""Stop reasons after which the same history may be sent again to retry, with or without what the run had said."""


class SentMessage(NamedTuple):
    """A message of the client's history.

    Attributes:
        id: the client's id of it, or the server's.
        is_user: whether it is the user's. Of other messages only the id counts.
        text: the text of the user's message.
        has_content: whether the user's message is the one that was stored with this content.
    """

    id: str
    is_user: bool = False
    text: str = ""
    has_content: Callable[[str | tuple[InputBlock, ...]], bool] = lambda _: False


class StoredMessage(NamedTuple):
    """A user message of the root loop.

    Attributes:
        seq: the event that added it.
        message: the message.
        is_visible: whether it is in the active branch.
        hidden_before: the events before it that are not in its branch.
        end: the event with which something else follows its turn: another message, or another branch.
    """

    seq: int
    message: UserMessage
    is_visible: bool
    hidden_before: Ranges
    end: int | None = None

    def has_id(self, message_id: str) -> bool:
        """Whether clients know it by this id."""
        return message_id in (self.message.client_id, self.message.id)


class StoredHistory(NamedTuple):
    """What `place` needs to know about the session.

    Attributes:
        state: the session as it is now.
        known: the message ids of the client's history that the log has, with the event that added each message.
        stored: the user messages of the active branch from event `first_needed` on, oldest first; those of all branches
            if `needs_all_branches`.
        is_complete: whether the client's history contains all messages that it shows, by what it says or sent before.
    """

    state: SessionState
    known: Mapping[str, int] = {}
    stored: Sequence[StoredMessage] = ()
    is_complete: bool = False

    def next_visible(self, seq: int) -> StoredMessage | None:
        """The first user message after event `seq` in the active branch."""
        return next((each for each in self.stored if each.is_visible and each.seq > seq), None)

    def is_newest(self, stored: StoredMessage) -> bool:
        """Whether a message is the last one of the user in the active branch."""
        return stored.is_visible and self.next_visible(stored.seq) is None


class Placement(NamedTuple):
    """What the client's history asks for.

    Attributes:
        new: the ids of its new user messages, in their order.
        branch: where they branch off; None: they continue the active branch.
        again: the stored message that is to be answered again, at `branch`. Only if no message is new.
    """

    new: Sequence[str] = ()
    branch: BranchPoint | None = None
    again: StoredMessage | None = None


def place(sent: Sequence[SentMessage], history: StoredHistory) -> Placement:
    """Decide what the client's history asks for."""
    if not history.stored:  # nothing to compare it with
        return Placement([each.id for each in _user_messages(sent)])
    last, new = _compare(sent, history)
    if new:
        return Placement([each.id for each in new], _branch_point(sent, history, last))
    if last is None or not (sent[-1].is_user or (history.is_newest(last) and _is_retry(sent[-1], history))):
        return Placement()
    return Placement(branch=_before(last), again=last)


def _is_retry(end: SentMessage, history: StoredHistory) -> bool:
    """Whether a history that ends in what the agent had said is sent again because its run did not succeed."""
    if failed_stop(history.state) is None:
        return False
    # The result of a client's tool may still arrive when the user has stopped the run that waited for it.
    return history.state.last_stop in FAILED_STOPS or end.id in history.known


def failed_stop(state: SessionState) -> StopReason | None:
    """Why the active branch has no answer: its last run failed or was stopped, also while calls waited; or None."""
    is_over = not is_busy(state) and not any(True for _ in state.waiting_calls())
    if not is_over or not state.is_visible(state.last_run_seq + 1):
        return None
    if state.last_stop == "tool_use":  # its calls were cancelled, and nothing has followed
        return "cancelled"
    return state.last_stop if state.last_stop in FAILED_STOPS else None


# --- what has to be read ----------------------------------------------------------------------------------------------


def first_needed(sent: Sequence[SentMessage], known: Mapping[str, int], *, is_complete: bool) -> int | None:
    """The event from which `place` needs the user messages of the active branch; None if it needs none."""
    messages = _user_messages(sent)
    if not messages or not (known or is_complete or begins_answered(sent)):
        return None
    return min(known[each.id] for each in messages if each.id in known) if messages[0].id in known else 0


def needs_all_branches(sent: Iterable[SentMessage], state: SessionState, known: Mapping[str, int]) -> bool:
    """Whether the client's history shows messages that are not in the active branch."""
    return any(each.id in known and not state.is_visible(known[each.id]) for each in sent)


def stored_messages(events: Iterable[LoggedEvent], state: SessionState) -> list[StoredMessage]:
    """The user messages of a whole log, as `StoredHistory.stored` takes them."""
    stored: list[StoredMessage] = []
    hidden: Ranges = ()
    for logged in events:
        event = logged.event
        message = event.message if isinstance(event, MessageAdded) else None
        is_input = isinstance(message, UserMessage) and message.loop == ROOT
        if stored and stored[-1].end is None and (is_input or isinstance(event, Branched)):
            stored[-1] = stored[-1]._replace(end=logged.seq)
        if isinstance(event, Branched):
            hidden = event.hidden_ranges
        elif isinstance(message, UserMessage) and is_input:
            stored.append(StoredMessage(logged.seq, message, state.is_visible(logged.seq), hidden))
    return stored


# --- the client's history ---------------------------------------------------------------------------------------------


def answered_length(sent: Sequence[SentMessage]) -> int:
    """The length of the client's history without the unanswered user messages at its end."""
    length = len(sent)
    while length and sent[length - 1].is_user:
        length -= 1
    return length


def begins_answered(sent: Sequence[SentMessage]) -> bool:
    """Whether the client's history has a user message that was answered there."""
    return any(each.is_user for each in sent[: answered_length(sent)])


def _user_messages(sent: Iterable[SentMessage]) -> list[SentMessage]:
    """The user messages, each once."""
    return list({each.id: each for each in sent if each.is_user}.values())


# --- comparing it with the stored one ---------------------------------------------------------------------------------


class _SentTurn(NamedTuple):
    """A user message of the client's history, with what follows it there.

    Attributes:
        question: the message.
        answers: the events of those stored messages that the client shows after it.
        is_answered: whether anything follows it other than new messages of the user.
    """

    question: SentMessage
    answers: list[int]
    is_answered: bool

    def asks(self, stored: StoredMessage) -> bool:
        """Whether a stored message is the question.

        Some clients resend their history under new ids with every request, so a question that was already answered
        there is also recognised by its text.
        """
        if stored.has_id(self.question.id):
            return self.question.has_content(stored.message.content)
        return self.is_answered and self.question.text == text_of(stored.message.content)

    def shows_answer_to(self, stored: StoredMessage) -> bool:
        """Whether the client shows an answer of the stored message's turn."""
        return any(stored.seq < seq and (stored.end is None or seq < stored.end) for seq in self.answers)


def _compare(sent: Sequence[SentMessage], history: StoredHistory) -> tuple[StoredMessage | None, list[SentMessage]]:
    """The last stored message that the client's history shows, and the user messages that follow it there.

    The client's history may begin anywhere in the stored one, or not continue it at all. From there on, each of its
    questions is one of the stored messages that directly follow the one before. There may be several: the same message
    in different branches. Answers that the client shows tell them apart.
    """
    turns = _sent_turns(sent, history.known)
    followers = _followers(history.stored)
    path = _opening_turn(sent, history) if turns else []
    matched = 0
    for turn in turns:
        candidates = [each for previous in path for each in followers[previous.seq]] if path else history.stored
        found = sorted((each for each in candidates if turn.asks(each)), key=attrgetter("seq"))
        if not found:
            break
        path = [each for each in found if turn.shows_answer_to(each)] or found
        if not matched and not path[0].has_id(turn.question.id):
            path = path[:1]  # recognised by its text: the oldest
        matched += 1
    last = next((each for each in reversed(path) if each.is_visible), path[-1] if path else None)
    if last is not None and matched and not all(map(history.state.is_visible, turns[matched - 1].answers)):
        last = last._replace(is_visible=False)  # the active branch has left its turn before what the client shows
    return last, [each.question for each in turns[matched:]]


def _sent_turns(sent: Sequence[SentMessage], known: Mapping[str, int]) -> list[_SentTurn]:
    """The client's user messages, each once."""
    turns: dict[str, _SentTurn] = {}
    answered, answers = answered_length(sent), list[int]()
    for index, message in enumerate(sent):
        if message.is_user:
            turn = turns.get(message.id) or _SentTurn(message, [], index < answered)
            turns[message.id] = turn._replace(question=message)
            answers = turn.answers
        elif message.id in known:
            answers.append(known[message.id])
    return list(turns.values())


def _opening_turn(sent: Iterable[SentMessage], history: StoredHistory) -> list[StoredMessage]:
    """The turn with whose answer the client's history begins, if it begins with an answer."""
    seq = 0
    for message in sent:
        if message.is_user:
            break
        seq = max(seq, history.known.get(message.id, 0))
    return [each for each in history.stored if each.is_visible and each.seq < seq][-1:]


def _followers(stored: Sequence[StoredMessage]) -> Mapping[int, Sequence[StoredMessage]]:
    """For the event of each message, the messages that directly follow it, each in its branch."""
    seqs = [each.seq for each in stored]
    followers: dict[int, list[StoredMessage]] = {seq: [] for seq in seqs}
    for index, message in enumerate(stored):
        previous = newest_outside(message.hidden_before, seqs, index)
        if previous >= 0:
            followers[seqs[previous]].append(message)
    return followers


def _branch_point(
    sent: Sequence[SentMessage], history: StoredHistory, last: StoredMessage | None
) -> BranchPoint | None:
    """Where new messages branch off that follow `last` in the client's history; None: they do not."""
    if last is not None and not last.is_visible:
        return None if last.end is None else BranchPoint(last.end, last.hidden_before)
    if last is not None:
        return _before(history.next_visible(last.seq))
    first = _user_messages(sent)[0]
    edited = [each for each in history.stored if each.has_id(first.id)]
    if edited:
        return _before(next((each for each in edited if each.is_visible), edited[-1]))
    if history.is_complete or any(each.id in history.known for each in sent):  # the beginning has changed
        return _before(history.next_visible(0))
    return None  # the client sends only what is new


def _before(stored: StoredMessage | None) -> BranchPoint | None:
    """A branch that a message does not belong to; None for no message."""
    return stored and BranchPoint(stored.seq, None if stored.is_visible else stored.hidden_before)
