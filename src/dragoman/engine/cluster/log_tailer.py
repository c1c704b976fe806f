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
from dragoman.core.refusals import SessionNotFound, SessionUnreadable, StoreUnavailable
from dragoman.core.session import SessionState, fold
from dragoman.core.stream import Cursor
from dragoman.engine.cluster.delta_relay import SUBSCRIBE_SUBJECT, DeltaRelay, Update, decode_updates
from dragoman.engine.cluster.ownership import Ownership
from dragoman.engine.instrumentation.unreadable import report_unreadable
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.ports.bus import MAX_HINT_BYTES, Bus
from dragoman.ports.cluster import SessionFeed, SessionUpdate
from dragoman.ports.log import Append

LOG_SUBJECT = "log"
"""The subject of the bus on which is said which sessions went on: their ids."""
POLL_INTERVAL_S = 0.25
"""How often the log is read of what is followed, where no hint comes."""
HINT_BATCH_DELAY_S = 0.004
"""For how long hints gather, so that a busy server's commits are read together."""
REACH_TIMEOUT_S = 8.0
"""How long an event is waited for that another server tells of."""
RETRY_DELAY_S = 0.03
"""Before it is looked for again."""
MAX_EARLY_UPDATES = 64
"""How many commits of a session are kept that came before something that is looked up."""

log = structlog.get_logger(__name__)


class LogTailer:
    """Both sides of it for one server."""

    def __init__(
        self, cluster_store: SessionFeed, *, bus: Bus, sessions: SessionRegistry, ownership: Ownership, address: str
    ) -> None:
        """Args:
        nodes: where the news is read.
        bus: hints and words to and from the others.
        sessions: those in memory.
        ownership: which of them are written here.
        address: this server's own for words, which no other one has.
        """
        self._cluster_store = cluster_store
        self._bus = bus
        self._sessions = sessions
        self._ownership = ownership
        self._delta_relay = DeltaRelay(bus, sessions, address)
        self._hinted: set[SessionId] = set()
        """Sessions that another server wrote, by its hint."""
        self._wakeup = asyncio.Event()
        self._updated_by_relay: set[SessionId] = set()
        """Sessions whose words came by themselves since the last look at all that is followed."""
        self._early_updates: dict[SessionId, list[Update]] = {}
        """What came before something that is looked up now."""

    @property
    def subscriptions(self) -> Sequence[tuple[str, Callable[[str], None]]]:
        """What is to be heard on which subjects of the bus."""
        return (
            (LOG_SUBJECT, self._on_log_hint),
            (SUBSCRIBE_SUBJECT, self._delta_relay.on_subscribe),
            (self._delta_relay.subject, self._on_updates),
        )

    # --- telling --------------------------------------------------------------------------------------------------

    def send(self, batch: Sequence[Append]) -> None:
        """Tell the others that sessions went on."""
        ids = self._delta_relay.send(batch, self._cluster_store.node_id)
        if not ids:
            return
        at_once = MAX_HINT_BYTES // (max(map(len, ids)) + 1)
        for start in range(0, len(ids), at_once):
            self._bus.publish(LOG_SUBJECT, " ".join(ids[start : start + at_once]))

    def drop_expired_subscribers(self) -> None:
        """Send no more words to those who have not asked for them for some time."""
        self._delta_relay.drop_expired()

    async def wait_for_remote_readers(self) -> None:
        """Give those who follow on other servers the time to read what was written, before it is removed."""
        if not self._ownership.is_alone:
            await asyncio.sleep(2 * POLL_INTERVAL_S)  # whoever follows has looked once more, hint or not

    # --- reading --------------------------------------------------------------------------------------------------

    async def wait_until_reached(self, live: LiveSession, seq: int) -> None:
        """Wait until a session that is followed has got to an event that another server wrote, or is writing.

        Raises:
            Exception: the session's `failure`.
            StoreUnavailable: also when the event does not come in time.
        """
        deadline = time.monotonic() + REACH_TIMEOUT_S
        pause_s = 0.0
        while live.failure is None and live.durable_cursor.seq < seq:
            if time.monotonic() > deadline:
                at = f"session {live.state.session_id} is at event {live.durable_cursor.seq}"
                raise StoreUnavailable(f"event {seq} did not come in time: {at}")
            await asyncio.sleep(pause_s)
            await self.fetch_updates([live])
            pause_s = RETRY_DELAY_S
        if live.failure is not None:
            raise live.failure

    async def current_states(self, states: Sequence[SessionState]) -> list[SessionState]:
        """Sessions as they stand now, from how they were stored when they were at rest."""
        here = {state.session_id: self._sessions.get_loaded(state.session_id) for state in states}
        known = {key: live for key, live in here.items() if live is not None and self._ownership.is_ours(live)}
        asked = [(state.session_id, Cursor(state.seq)) for state in states if state.session_id not in known]
        found = [] if self._ownership.is_alone or not asked else await self._cluster_store.session_updates(asked)
        news = {each.session_id: each for each in found}
        return [
            known[state.session_id].state
            if state.session_id in known
            else _fold_updates(state, news.get(state.session_id))
            for state in states
        ]

    async def fetch_updates(self, lives: Sequence[LiveSession]) -> set[SessionId]:
        """Read what others wrote to sessions, and take it in; those that are up to date with that."""
        asked = {live.state.session_id: live.durable_cursor for live in lives}
        news = {each.session_id: each for each in await self._cluster_store.session_updates(list(asked.items()))}
        taken: set[SessionId] = set()
        for live in lives:
            session_id = live.state.session_id
            if live.failure is not None or self._ownership.is_ours(live) or not live.is_clean:
                continue  # what is still to be written here comes first; where it is refused, the session is lost
            if session_id not in news:
                self.remove_deleted(live)
            elif live.durable_cursor == asked[session_id]:  # else somebody was quicker, perhaps with something newer
                self._apply(live, news[session_id])
                if live.failure is None:
                    taken.add(session_id)
            for share in self._early_updates.pop(session_id, ()):
                self._apply_update(live, share)
        return taken

    async def run(self) -> None:
        """Take in what the others write, as far as somebody here looks, until it is cancelled."""
        due = 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due - time.monotonic())):
                    await self._wakeup.wait()
            self._wakeup.clear()
            wrote, self._hinted = self._hinted, set()
            if time.monotonic() >= due:
                due = time.monotonic() + POLL_INTERVAL_S
                followed = [live for live in self._sessions if self._is_tailed(live)]
                self._delta_relay.announce([live.state.session_id for live in followed])
                told, self._updated_by_relay = self._updated_by_relay, set()
                lives = [live for live in followed if live.state.session_id not in told]
                if self._early_updates:
                    read_here = {live.state.session_id for live in lives}
                    self._early_updates = {key: early for key, early in self._early_updates.items() if key in read_here}
            else:
                found = (self._sessions.get_loaded(session_id) for session_id in wrote)
                lives = [live for live in found if live is not None and self._is_tailed(live)]
            if not lives:
                continue
            try:
                await self.fetch_updates(lives)
            except StoreUnavailable:
                await asyncio.sleep(POLL_INTERVAL_S)
            except Exception:  # the root of a task that must go on
                log.exception("sessions not followed")
                await asyncio.sleep(POLL_INTERVAL_S)
            await asyncio.sleep(HINT_BATCH_DELAY_S)

    def remove_deleted(self, live: LiveSession) -> None:
        """A session is no more, or no more the one that it was."""
        live.end(SessionNotFound("the session was deleted"))
        self._sessions.remove(live)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _remove_unreadable(self, live: LiveSession, error: SessionUnreadable) -> None:
        report_unreadable(error)
        live.end(error)
        self._sessions.remove(live)

    def _is_tailed(self, live: LiveSession) -> bool:
        if live.reference_count <= 0 or live.failure is not None:
            return False
        return not self._ownership.is_ours(live) and not self._ownership.is_known_current(live)

    def _on_log_hint(self, payload: str) -> None:
        for word in payload.split():
            live = self._sessions.get_loaded(SessionId(word))
            if live is not None and self._is_tailed(live):
                self._hinted.add(live.state.session_id)
        if self._hinted:
            self._wakeup.set()

    def _on_updates(self, payload: str) -> None:
        for share in decode_updates(payload):
            live = self._sessions.get_loaded(share.session_id)
            if live is not None:
                self._apply_update(live, share)

    def _apply(self, live: LiveSession, news: SessionUpdate | Update) -> None:
        if (
            isinstance(news, SessionUpdate) and news.created_at != live.state.created_at
        ):  # deleted, and its id used again
            self.remove_deleted(live)
            return
        try:
            if isinstance(news, Update):
                live.apply_records(news.records())
            elif news.unreadable is not None:
                raise news.unreadable
            else:
                live.catch_up(news.events, news.pieces)
        except SessionUnreadable as error:
            self._remove_unreadable(live, error)
            return
        except (ValueError, KeyError) as error:
            self._remove_unreadable(
                live, SessionUnreadable(live.state.session_id, f"updates that do not fit: {error!r}")
            )
            return
        live.is_remote, live.last_writer = news.is_running, news.node_id
        if not news.is_running:
            self._ownership.mark_current(live.state.session_id)

    def _apply_update(self, live: LiveSession, update: Update) -> None:
        """Take in what was sent, if it comes next. What lies in between is looked up, and what is known is known."""
        if not self._is_tailed(live) or not live.is_clean or update.after < live.durable_cursor:
            return
        session_id = live.state.session_id
        if update.after == live.durable_cursor:
            self._updated_by_relay.add(session_id)
            self._apply(live, update)
            return
        early = self._early_updates.setdefault(session_id, [])
        if len(early) < MAX_EARLY_UPDATES:
            early.append(update)
        self._hinted.add(session_id)
        self._wakeup.set()


def _fold_updates(state: SessionState, update: SessionUpdate | None) -> SessionState:
    """Apply an update to a session's state as far as it fits: a list shows the session in any case."""
    if update is not None:
        with suppress(ValueError, KeyError):
            fold(state, update.events)
    return state
