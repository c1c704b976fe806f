"""Compares the messages that a chat application sends with the log of its session. Pure.

Applications send the whole conversation with every request, and with the same session key also requests of their own,
such as for a title. What the log has is recognised by role and text; what is new after it is input. An agent's words
that the log does not have are never taken from a client. Source: section 6.3.1.
"""

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

import msgspec

from dragoman.core.answers import answer_text
from dragoman.core.branches import BranchPoint
from dragoman.core.content import AssistantMessage, UserMessage, text_of
from dragoman.core.events import CallSettled, LoggedEvent, MessageAdded, MessageClosed, RunStarted, RunStopped
from dragoman.core.ids import MessageId
from dragoman.core.resent_history import FAILED_STOPS
from dragoman.core.tools import ASK_USER_QUESTION
from dragoman.protocols.openai import inputs, requests
from dragoman.protocols.openai.chat_events import PARAGRAPH, AddedText, ShownRun
from dragoman.protocols.openai.requests import InputItem
from dragoman.protocols.openai.translate import PROTOCOL

_REASONING = (("<think>", "</think>"), ('<details type="reasoning"', "</details>"))
"""How applications show an agent's thinking in its text: the beginning and the end."""
_TASKS = (
    ("### Task:", "### Chat History:"),
    ("Provide a concise, 5-word-or-less title for the conversation", "\nUser: "),
    ("Analyze this conversation and provide:", "\nUser: "),
)
"""How requests for titles, tags and suggestions begin, and what they have before the messages: those of Open WebUI, and
of LibreChat with each of its methods."""


class _Turn(msgspec.Struct):
    """Messages of one side without one of the other in between.

    Attributes:
        is_user: whether they are the user's.
        texts: their texts.
        items: the indexes of a client's user messages.
        seqs: the events that added the user's messages to the log; 0 for an answer to a question.
        may_be_cut: whether the client may have seen only the beginning.
    """

    is_user: bool
    texts: list[str]
    items: list[int] = []
    seqs: list[int] = []
    may_be_cut: bool = False

    @property
    def text(self) -> str:
        text = PARAGRAPH.join(self.texts).strip()
        return (
            text if self.is_user else "".join(_without_reasoning(text).split())
        )  # blocks follow one another with and without spaces

    def matches(self, sent: "_Turn") -> bool:
        """Whether a client's turn is this one of the log."""
        if self.is_user != sent.is_user:
            return False
        if self.is_user and not all(self.seqs):
            return self.text.casefold() == sent.text.casefold()
        return self.text == sent.text or (self.may_be_cut and self.text.startswith(sent.text))


class NewMessages(NamedTuple):
    """A request for an answer in the session.

    Attributes:
        items: the indexes of the messages that are new.
        branch: where they branch off; None: they continue the active branch.
    """

    items: Sequence[int]
    branch: BranchPoint | None = None


def is_task(items: Sequence[InputItem]) -> bool:
    """Whether a request is one that an application makes for itself, and not the beginning of a conversation.

    Open WebUI and LibreChat ask for a new chat's title with the chat's key, and not always after the user's message.
    """
    sent = _sent_turns(items)
    if len(sent) != 1 or not sent[0].is_user:
        return False
    return any(sent[0].text.startswith(begin) and chat in sent[0].text for begin, chat in _TASKS)


def compare(items: Sequence[InputItem], events: Sequence[LoggedEvent]) -> NewMessages | None:
    """Decide what a request is for; None if it does not belong to the conversation.

    Args:
        items: the messages of the request.
        events: those of the session's active branch.
    """
    sent = _sent_turns(items)
    if not sent or not sent[-1].is_user:
        return None
    cut = cut_messages(events)
    return (
        _compare_with(sent, _stored_turns(events, cut)) or (cut and _compare_with(sent, _stored_turns(events))) or None
    )


def cut_messages(events: Iterable[LoggedEvent]) -> frozenset[MessageId]:
    """The messages that a crash cut off. Clients that read them later see only those that repeat them."""
    closed = (each.event for each in events if isinstance(each.event, MessageClosed))
    return frozenset(each.message_id for each in closed if each.status == "cut")


def _compare_with(sent: Sequence[_Turn], stored: Sequence[_Turn]) -> NewMessages | None:
    complete = _joined(each for each in stored if each.is_user or not each.may_be_cut)
    return _place(sent, stored) or (_place(sent, complete) if len(complete) < len(stored) else None)


def _place(sent: Sequence[_Turn], stored: Sequence[_Turn]) -> NewMessages | None:
    *known, last = sent
    if len(known) > len(stored) or not all(map(_Turn.matches, stored, known)):
        return None
    rest = stored[len(known) :]
    if not rest:
        return NewMessages(last.items)
    first = rest[0]
    if not first.is_user or not all(first.seqs):
        return None
    is_same = first.matches(last)
    is_unanswered = all(turn.may_be_cut for turn in rest[1:])
    if is_unanswered and not is_same and last.texts[: len(first.texts)] == first.texts:
        return NewMessages(last.items[len(first.texts) :])
    if known or (is_same and len(rest) <= 2):
        return NewMessages(last.items, BranchPoint(first.seqs[0]))
    return None


# --- the client's messages --------------------------------------------------------------------------------------------


def _sent_turns(items: Sequence[InputItem]) -> list[_Turn]:
    turns: list[_Turn] = []
    for index, item in enumerate(items):
        if isinstance(item, requests.Message) and item.role in ("user", "assistant"):
            text = text_of(inputs.content_from(item.content, ""))
            if item.role == "user":
                turns.append(_Turn(True, [text], items=[index]))
            elif text := _without_reasoning(text).strip():
                turns.append(_Turn(False, [text]))
    return _joined(turns)


def _without_reasoning(text: str) -> str:
    """An agent's text without the thinking that it, or an application, has put into it."""
    for start, end in _REASONING:
        kept: list[str] = []
        position = 0
        while (begin := text.find(start, position)) >= 0 and (close := text.find(end, begin)) >= 0:
            kept.append(text[position:begin].rstrip())
            position = close + len(end)
        text = "".join((*kept, text[position:]))
    return text


# --- the log ----------------------------------------------------------------------------------------------------------


def _stored_turns(events: Iterable[LoggedEvent], left_out: Container[MessageId] = ()) -> list[_Turn]:
    turns: list[_Turn] = []
    run: RunStarted | None = None
    shown = ShownRun(left_out)
    for logged in events:
        match logged.event:
            case MessageAdded(message=UserMessage(loop="root", content=content)):
                turns.append(_Turn(True, [text_of(content)], seqs=[logged.seq]))
            case MessageAdded(message=AssistantMessage(loop="root", content=content)):
                turns.append(_Turn(False, [text_of(content)]))
            case CallSettled(outcome="done", result=result) if result.name == ASK_USER_QUESTION:
                turns.append(_Turn(True, [answer_text(result)], seqs=[0]))
            case RunStarted() as started:
                run, shown = started, ShownRun(left_out)
            case RunStopped(reason=reason):
                run = None
                if turns and not turns[-1].is_user and reason in FAILED_STOPS:
                    turns[-1].may_be_cut = True
            case MessageClosed(status="interrupted" | "failed", loop="root") if turns and not turns[-1].is_user:
                turns[-1].may_be_cut = True
            case _:
                words = shown.feed(logged)
                if isinstance(words, AddedText) and words.kind == "content":
                    turns.append(_Turn(False, [words.text.strip()]))
                    is_continued = len(turns) > 1 and not turns[-2].is_user
                    turns[-1].may_be_cut = is_continued and run is not None and run.protocol != PROTOCOL
    if run is not None and turns and not turns[-1].is_user:
        turns[-1].may_be_cut = True
    return _joined(turns)


def _joined(turns: Iterable[_Turn]) -> list[_Turn]:
    """The turns, with adjacent ones of the same side merged."""
    joined: list[_Turn] = []
    for turn in turns:
        last = joined[-1] if joined else None
        if last is None or last.is_user != turn.is_user:
            joined.append(msgspec.structs.replace(turn))
        else:
            joined[-1] = _Turn(
                turn.is_user,
                last.texts + turn.texts,
                last.items + turn.items,
                last.seqs + turn.seqs,
                last.may_be_cut or turn.may_be_cut,
            )
    return joined
