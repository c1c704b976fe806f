"""What servers write to sessions, on its way to the others that follow them.

    who commits    sends the words to those who follow the session, and to all others a hint that it went on
    who follows    takes in what comes next, and reads the log for the rest: after a hint, or every `POLL_S`

A task keeps up with the sessions that somebody here reads; the others are looked up when they are asked for.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from dragoman.core.ids import SessionId
from dragoman.core.refusals import SessionNotFound, StoreUnavailable
from dragoman.core.session import SessionState, fold
from dragoman.core.stream import Cursor
from dragoman.engine.cluster.delta_relay import FOLLOWS, Carrying, Share, read
from dragoman.engine.cluster.ownership import Ownership
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import Sessions
from dragoman.ports import PAYLOAD_BYTES, Append, Bus, News, Nodes

WROTE = "log"
"""The subject of the bus on which is said which sessions went on: their ids."""
POLL_S = 0.25
"""How often the log is read of what is followed, where no hint comes."""
GATHER_S = 0.004
"""For how long hints gather, so that a busy server's commits are read together."""
PATIENCE_S = 8.0
"""How long an event is waited for that another server tells of."""
PAUSE_S = 0.03
"""Before it is looked for again."""
EARLY = 64
"""How many commits of a session are kept that came before something that is looked up."""

log = structlog.get_logger(__name__)


class Following:
    """Both sides of it for one server."""

    def __init__(self, nodes: Nodes, *, bus: Bus, sessions: Sessions, ownership: Ownership, address: str) -> None:
        """Args:
        nodes: where the news is read.
        bus: hints and words to and from the others.
        sessions: those in memory.
        ownership: which of them are written here.
        address: this server's own for words, which no other one has.
        """
        self._nodes = nodes
        self._bus = bus
        self._sessions = sessions
        self._ownership = ownership
        self._carrying = Carrying(bus, sessions, address)
        self._wrote: set[SessionId] = set()
        """Sessions that another server wrote, by its hint."""
        self._has_news = asyncio.Event()
        self._told: set[SessionId] = set()
        """Sessions whose words came by themselves since the last look at all that is followed."""
        self._early: dict[SessionId, list[Share]] = {}
        """What came before something that is looked up now."""

    @property
    def hears(self) -> Sequence[tuple[str, Callable[[str], None]]]:
        """What is to be heard on which subjects of the bus."""
        return (
            (WROTE, self._hear_wrote),
            (FOLLOWS, self._carrying.hear),
            (self._carrying.subject, self._hear_words),
        )

    # --- telling --------------------------------------------------------------------------------------------------

    def send(self, batch: Sequence[Append]) -> None:
        """Tell the others that sessions went on."""
        ids = self._carrying.send(batch, self._nodes.node)
        if not ids:
            return
        at_once = PAYLOAD_BYTES // (max(map(len, ids)) + 1)
        for start in range(0, len(ids), at_once):
            self._bus.publish(WROTE, " ".join(ids[start : start + at_once]))

    def forget(self) -> None:
        """Send no more words to those who have not asked for them for some time."""
        self._carrying.forget()

    async def read_elsewhere(self) -> None:
        """Give those who follow on other servers the time to read what was written, before it is removed."""
        if not self._ownership.is_alone:
            await asyncio.sleep(2 * POLL_S)  # whoever follows has looked once more, hint or not

    # --- reading --------------------------------------------------------------------------------------------------

    async def reach(self, live: LiveSession, seq: int) -> None:
        """Wait until a session that is followed has got to an event that another server wrote, or is writing.

        Raises:
            Exception: the session's `failure`.
            StoreUnavailable: also when the event does not come in time.
        """
        deadline = time.monotonic() + PATIENCE_S
        pause_s = 0.0
        while live.failure is None and live.durable.seq < seq:
            if time.monotonic() > deadline:
                at = f"session {live.state.session_id} is at event {live.durable.seq}"
                raise StoreUnavailable(f"event {seq} did not come in time: {at}")
            await asyncio.sleep(pause_s)
            await self.look_up([live])
            pause_s = PAUSE_S
        if live.failure is not None:
            raise live.failure

    async def as_now(self, states: Sequence[SessionState]) -> list[SessionState]:
        """Sessions as they stand now, from how they were stored when they were at rest."""
        here = {state.session_id: self._sessions.at_hand(state.session_id) for state in states}
        known = {key: live for key, live in here.items() if live is not None and self._ownership.is_ours(live)}
        asked = [(state.session_id, Cursor(state.seq)) for state in states if state.session_id not in known]
        found = [] if self._ownership.is_alone or not asked else await self._nodes.news(asked)
        news = {each.session_id: each for each in found}
        return [
            known[state.session_id].state
            if state.session_id in known
            else fold(state, news[state.session_id].events if state.session_id in news else ())
            for state in states
        ]

    async def look_up(self, lives: Sequence[LiveSession]) -> set[SessionId]:
        """Read what others wrote to sessions, and take it in; those that are up to date with that."""
        asked = {live.state.session_id: live.durable for live in lives}
        news = {each.session_id: each for each in await self._nodes.news(list(asked.items()))}
        taken: set[SessionId] = set()
        for live in lives:
            session_id = live.state.session_id
            if live.failure is not None or self._ownership.is_ours(live) or not live.is_clean:
                continue  # what is still to be written here comes first; where it is refused, the session is lost
            if session_id not in news:
                self.gone(live)
            elif live.durable == asked[session_id]:  # else somebody was quicker, perhaps with something newer
                self._take(live, news[session_id])
                if live.failure is None:
                    taken.add(session_id)
            for share in self._early.pop(session_id, ()):
                self._take_share(live, share)
        return taken

    async def run(self) -> None:
        """Take in what the others write, as far as somebody here looks, until it is cancelled."""
        due = 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due - time.monotonic())):
                    await self._has_news.wait()
            self._has_news.clear()
            wrote, self._wrote = self._wrote, set()
            if time.monotonic() >= due:
                due = time.monotonic() + POLL_S
                followed = [live for live in self._sessions if self._is_followed(live)]
                self._carrying.follow([live.state.session_id for live in followed])
                told, self._told = self._told, set()
                lives = [live for live in followed if live.state.session_id not in told]
                if self._early:
                    read_here = {live.state.session_id for live in lives}
                    self._early = {key: early for key, early in self._early.items() if key in read_here}
            else:
                found = (self._sessions.at_hand(session_id) for session_id in wrote)
                lives = [live for live in found if live is not None and self._is_followed(live)]
            if not lives:
                continue
            try:
                await self.look_up(lives)
            except StoreUnavailable:
                await asyncio.sleep(POLL_S)
            except Exception:  # the root of a task that must go on
                log.exception("sessions not followed")
                await asyncio.sleep(POLL_S)
            await asyncio.sleep(GATHER_S)

    def gone(self, live: LiveSession) -> None:
        """A session is no more, or no more the one that it was."""
        live.end(SessionNotFound("the session was deleted"))
        self._sessions.remove(live)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _is_followed(self, live: LiveSession) -> bool:
        if live.holds <= 0 or live.failure is not None:
            return False
        return not self._ownership.is_ours(live) and not self._ownership.is_sure(live)

    def _hear_wrote(self, payload: str) -> None:
        for word in payload.split():
            live = self._sessions.at_hand(SessionId(word))
            if live is not None and self._is_followed(live):
                self._wrote.add(live.state.session_id)
        if self._wrote:
            self._has_news.set()

    def _hear_words(self, payload: str) -> None:
        for share in read(payload):
            live = self._sessions.at_hand(share.session_id)
            if live is not None:
                self._take_share(live, share)

    def _take(self, live: LiveSession, news: News | Share) -> None:
        if isinstance(news, News) and news.created_at != live.state.created_at:  # deleted, and its id used again
            self.gone(live)
            return
        try:
            if isinstance(news, Share):
                live.take_in(news.records())
            else:
                live.catch_up(news.events, news.pieces)
        except (ValueError, KeyError) as error:
            log.error("session cannot be followed", session_id=live.state.session_id, exc_info=error)
            self.gone(live)
            return
        live.is_elsewhere, live.node = news.is_running, news.node
        if not news.is_running:
            self._ownership.settle(live.state.session_id)

    def _take_share(self, live: LiveSession, share: Share) -> None:
        """Take in what was sent, if it comes next. What lies in between is looked up, and what is known is known."""
        if not self._is_followed(live) or not live.is_clean or share.after < live.durable:
            return
        session_id = live.state.session_id
        if share.after == live.durable:
            self._told.add(session_id)
            self._take(live, share)
            return
        early = self._early.setdefault(session_id, [])
        if len(early) < EARLY:
            early.append(share)
        self._wrote.add(session_id)
        self._has_news.set()
