"""What a page's request asks for, from its messages and what the session knows of them.

    last message is the user's, and new            ──► a run starts; on a branch if the page says that it sends its
                                                       whole history, and something else follows what it shows
                    known, with other content      ──► edit: a run on a branch before it
                    known and named, or it failed  ──► asked again, on a branch
                    known otherwise                ──► a retry: its run is streamed again
    `regenerate-message`                           ──► asked again, at any depth; a new last message is sent
    last message is the agent's                    ──► its answers continue the turn; without any, its next run

Source: specification of AI SDK, 3, 4; shared rules, 13, 15, 20.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec

from dragoman.core import content as core
from dragoman.core import resent_history
from dragoman.core.admission import is_busy
from dragoman.core.branches import BranchPoint
from dragoman.core.events import AnswerGiven, CallOpened, CallSettled, LoggedEvent, MessageAdded, RunStarted
from dragoman.core.ids import ROOT, CallId, RunId
from dragoman.core.inputs import DisconnectPolicy, UserInput
from dragoman.core.principal import Principal
from dragoman.core.refusals import SessionBusy
from dragoman.core.resent_history import SentMessage, failed_stop
from dragoman.core.turns import Turn
from dragoman.engine.engine import Engine
from dragoman.engine.sessions.view import SessionView
from dragoman.protocols.aisdk import requests
from dragoman.protocols.aisdk.errors import NothingToAnswer, NothingToRegenerate
from dragoman.protocols.aisdk.history import shown_id
from dragoman.protocols.aisdk.wire import ChatRequest, ClientVersion, UIMessage
from dragoman.protocols.kit.runs import find_run_in

RUN_BEGINNING = 1000
"""How many events at the beginning of a run are searched for what started it."""


class PostedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A POST: who asks which agent for what."""

    principal: Principal
    agent: str
    chat: ChatRequest
    extra: core.JsonObject
    client_version: ClientVersion
    policy: DisconnectPolicy
    is_complete: bool = False
    """The page says that it sends all messages that it shows."""

    @property
    def messages(self) -> tuple[UIMessage, ...]:
        """The page's messages, oldest first."""
        return self.chat.all_messages()


class StartRun(NamedTuple):
    """Submit input: new messages, on a branch or the active one; without a branch the answers of the page, too."""

    messages: tuple[UserInput, ...]
    branch: BranchPoint | None = None


class StreamRun(NamedTuple):
    """Stream a run from its start, live if it is active; with `is_turn` the whole turn of which it is the newest."""

    run_id: RunId
    first_seq: int
    is_turn: bool = False


class _UserMessage(NamedTuple):
    """A stored user message with the event that added it."""

    logged: LoggedEvent
    message: core.UserMessage


class Decisions:
    """Decides about the requests of pages. Only reads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def decide(self, request: PostedRequest, session: SessionView) -> StartRun | StreamRun:
        """Decide about a request.

        Raises:
            SessionBusy: it continues another turn than the one that runs.
            NothingToAnswer, NothingToRegenerate: there is nothing of what it asks for.
            InputAltered, InvalidAnswer: it is wrong.
        """
        messages = request.messages
        await session.until_durable(session.state.seq)
        known_ids, visible = await self._known_messages(request, session)
        if request.chat.trigger == "regenerate-message":
            return await self._regenerate(request, session, known_ids, visible)
        last, path = messages[-1], _last_path(messages)
        if last.role != "user":
            return await self._continue(request, session)
        known = await self._user_message(session, visible.get(last.id))
        if known is None:
            if request.is_complete:
                return await self._place(messages, session, known_ids)
            return StartRun(_unsent(messages, known_ids, visible))
        if not requests.has_content(last, known.message.content, path):
            return StartRun((requests.user_input(last, path),), BranchPoint(known.logged.seq))
        run_id, state = known.logged.run_id, session.state
        row = None if run_id is None else await find_run_in(self._engine, session, run_id)
        if row is None:
            return _ask_again(known)  # it was sent when the chat began, and not answered
        is_running = state.run is not None and await self._is_in_newest_turn(session, row.first_seq)
        if not is_running:
            is_named = request.chat.message_id == last.id
            has_failed = failed_stop(state) is not None
            if is_named or (has_failed and await self._is_in_newest_turn(session, row.first_seq)):
                return _ask_again(known)
        return StreamRun(row.run_id, row.first_seq)

    async def _known_messages(
        self, request: PostedRequest, session: SessionView
    ) -> tuple[Mapping[str, int], dict[str, int]]:
        """The events of the request's user messages that the log has, by id; and of those in the active branch."""
        ids = [each.id for each in request.messages if each.role == "user"]
        if request.chat.message_id is not None:
            ids.append(request.chat.message_id)
        known = await self._engine.history.find_message_ids(session, ids) if ids else {}
        visible = {own: seq for own, seq in known.items() if session.state.is_visible(seq)}
        if len(visible) < len(known):  # the newest message with an id may be hidden, and an older one not
            hidden = [SentMessage(own, is_user=True) for own in known.keys() - visible.keys()]
            for stored in (await self._engine.history.compare(session, hidden, known)).stored:
                if stored.is_visible:
                    visible |= {each.id: stored.seq for each in hidden if stored.has_id(each.id)}
        return known, visible

    async def _place(self, messages: Sequence[UIMessage], session: SessionView, known: Mapping[str, int]) -> StartRun:
        """The new messages of a whole history, where the page shows them (shared rules, 13)."""
        sent = requests.sent_messages(messages)
        history = await self._engine.history.compare(session, sent, known, is_complete=True)
        placement = resent_history.place(sent, history)
        new = {
            each.id: requests.user_input(each, f"messages[{index}]")
            for index, each in enumerate(messages)
            if each.id in placement.new
        }
        return StartRun(tuple(new.values()), placement.branch)

    async def _regenerate(
        self, request: PostedRequest, session: SessionView, known_ids: Collection[str], visible: dict[str, int]
    ) -> StartRun:
        """Repeat the user message that precedes the answer to replace, or send one whose request never arrived."""
        messages, wanted = request.messages, request.chat.message_id
        place = next((index for index, each in enumerate(messages) if each.id == wanted), None)
        before = messages if place is None else messages[: place + 1]
        if place is None and wanted is not None:
            row = await find_run_in(self._engine, session, RunId(wanted))
            if row is not None:
                known = await self._message_of_run(session, row.first_seq)
                if known is not None:
                    return _ask_again(known)
            if (known := await self._user_message(session, visible.get(wanted))) is not None:
                return _ask_again(known)
        turn = await self.newest_turn(session)
        newest = None if turn is None else await self._message_of_run(session, turn.first.first_seq)
        if before and before[-1].role == "user" and before[-1].id not in known_ids:
            is_resent = newest is not None and requests.has_content(
                before[-1], newest.message.content, _last_path(before)
            )
            if visible or not is_resent:
                return StartRun(_unsent(before, known_ids, visible))
        for index in range(len(before) - 1, -1, -1):
            message = before[index]
            known = await self._user_message(session, visible.get(message.id)) if message.role == "user" else None
            if known is not None:
                path = f"messages[{index}]"
                if requests.has_content(message, known.message.content, path):
                    return _ask_again(known)
                return StartRun((requests.user_input(message, path),), BranchPoint(known.logged.seq))
        if newest is None:
            raise NothingToRegenerate
        return _ask_again(newest)

    async def _continue(self, request: PostedRequest, session: SessionView) -> StartRun | StreamRun:
        """Take the answers of a page; if another request was faster, stream what it led to."""
        if not is_busy(session.state) and requests.answers_of(request.messages, session.state, request.client_version):
            return StartRun(())
        call_id, turn = requests.last_call_of(request.messages), await self.newest_turn(session)
        if call_id is not None and turn is not None and len(turn.runs) > 1:
            asking = await self._run_of_call(session, turn, call_id)
            following = None if asking is None else turn.runs[asking + 1 : asking + 2]
            if following:
                return StreamRun(following[0].run_id, following[0].first_seq)
        if is_busy(session.state):
            raise SessionBusy
        raise NothingToAnswer

    async def _run_of_call(self, session: SessionView, turn: Turn, call_id: CallId) -> int | None:
        """The place in the turn of the run that made a call."""
        for logged in await self._engine.history.events(session, turn.first.first_seq - 1):
            if isinstance(logged.event, CallOpened) and logged.event.call.call_id == call_id:
                return next((index for index, run in enumerate(turn.runs) if run.run_id == logged.run_id), None)
        return None

    async def _user_message(self, session: SessionView, seq: int | None) -> _UserMessage | None:
        """The user message that an event added, with its attachments; None if the event is another."""
        if seq is None:
            return None
        logged = await self._engine.history.event(session, seq)
        logged = await self._engine.attachments.restore_event(session.state.session_id, logged)
        message = logged.event.message if isinstance(logged.event, MessageAdded) else None
        return _UserMessage(logged, message) if isinstance(message, core.UserMessage) and message.loop == ROOT else None

    async def _message_of_run(self, session: SessionView, first_seq: int) -> _UserMessage | None:
        """The last user message with which the turn of a run began, if it is in the active branch."""
        turn = await self._engine.history.turn_at(session, first_seq)
        if turn is None:
            return None
        added = [each.seq for each in await self._beginning(session, turn.first.first_seq) if _adds_message(each)]
        return await self._user_message(session, added[-1]) if added and session.state.is_visible(added[-1]) else None

    async def _beginning(self, session: SessionView, first_seq: int) -> list[LoggedEvent]:
        """The events of a run before its first step."""
        events = await self._engine.history.events(session, first_seq - 1, first_seq + RUN_BEGINNING)
        return list(takewhile(_starts_run, events))

    async def end_of_beginning(self, session: SessionView, first_seq: int) -> int:
        """The event with which a run begins to answer."""
        beginning = await self._beginning(session, first_seq)
        return beginning[-1].seq + 1 if beginning else first_seq

    async def newest_turn(self, session: SessionView) -> Turn | None:
        """The turn of the newest run, in any branch; None if there is none."""
        seq = session.state.last_run_seq
        return await self._engine.history.turn_at(session, seq) if seq else None

    async def _is_in_newest_turn(self, session: SessionView, first_seq: int) -> bool:
        turn = await self.newest_turn(session)
        return turn is not None and any(run.first_seq == first_seq for run in turn.runs)


def _ask_again(known: _UserMessage) -> StartRun:
    """The same words as a new message, which keeps the id that pages have."""
    message = known.message
    again = UserInput(
        content=message.content, client_id=shown_id(message), name=message.name, metadata=message.metadata
    )
    return StartRun((again,), BranchPoint(known.logged.seq))


def _last_path(messages: Sequence[UIMessage]) -> str:
    return f"messages[{len(messages) - 1}]"


def _unsent(messages: Sequence[UIMessage], known: Collection[str], visible: Mapping[str, int]) -> tuple[UserInput, ...]:
    """The last message, and those before it that never arrived."""
    new = [requests.user_input(messages[-1], _last_path(messages))]
    for place in range(len(messages) - 2, -1, -1):
        message = messages[place]
        if message.role == "user" and message.id in visible:
            break
        if message.role == "user" and message.id not in known:
            new.insert(0, requests.user_input(message, f"messages[{place}]"))
    return tuple(new)


def _adds_message(logged: LoggedEvent) -> bool:
    return isinstance(logged.event, MessageAdded)


def _starts_run(logged: LoggedEvent) -> bool:
    """Whether an event belongs to the beginning of a run, before its first step."""
    return isinstance(logged.event, RunStarted | AnswerGiven | CallSettled | MessageAdded)
