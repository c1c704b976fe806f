"""Follows what other servers write to sessions.

    committing server    sends the records to the session's subscribers, and a hint to all other servers
    following server     applies records that continue its position, and reads the log for the rest: after a hint, or
                         every `POLL_INTERVAL_S`

A task follows the sessions that have readers here. All other sessions are read when a request needs them.
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
"""Subject of the hints: ids of sessions with new records."""
POLL_INTERVAL_S = 0.25
"""How often the logs of followed sessions are read without a hint."""
HINT_BATCH_DELAY_S = 0.004
"""How long hints are collected, so that the commits of a busy server are read together."""
REACH_TIMEOUT_S = 8.0
"""How long to wait for an event that another server has announced."""
RETRY_DELAY_S = 0.03
"""Pause between two reads while waiting for an event."""
MAX_EARLY_UPDATES = 64
"""Maximum number of a session's updates kept while an earlier one is read from the log."""

log = structlog.get_logger(__name__)


class LogTailer:
    """Follows other servers' sessions, and informs other servers of this one's commits.

    Args:
        cluster_store: where updates are read.
        bus: carries hints and deltas between the servers.
        sessions: the sessions in memory.
        ownership: which of them this server writes.
        address: this server's unique address for deltas.
    """

    def __init__(
        self, cluster_store: SessionFeed, *, bus: Bus, sessions: SessionRegistry, ownership: Ownership, address: str
    ) -> None:
        self._cluster_store = cluster_store
        self._bus = bus
        self._sessions = sessions
        self._ownership = ownership
        self.delta_relay = DeltaRelay(bus, sessions, address)
        """Brings records sooner than the log."""
        self._hinted: set[SessionId] = set()
        """Sessions that another server wrote to, according to its hint."""
        self._wakeup = asyncio.Event()
        self._updated_by_relay: set[SessionId] = set()
        """Sessions that the relay has updated since all followed sessions were read last."""
        self._early_updates: dict[SessionId, list[Update]] = {}
        """Updates that arrived before an earlier one, which is being read from the log."""

    @property
    def subscriptions(self) -> Sequence[tuple[str, Callable[[str], None]]]:
        """The handlers of this server's subjects on the bus."""
        return (
            (LOG_SUBJECT, self._on_log_hint),
            (SUBSCRIBE_SUBJECT, self.delta_relay.on_subscribe),
            (self.delta_relay.subject, self._on_updates),
        )

    # --- sending --------------------------------------------------------------------------------------------------

    def send(self, batch: Sequence[Append]) -> None:
        """Send a commit to the other servers: its records or a hint."""
        ids = self.delta_relay.send(batch, self._cluster_store.node_id)
        if not ids:
            return
        at_once = MAX_HINT_BYTES // (max(map(len, ids)) + 1)
        for start in range(0, len(ids), at_once):
            self._bus.publish(LOG_SUBJECT, " ".join(ids[start : start + at_once]))

    def drop_expired_subscribers(self) -> None:
        """Drop subscribers whose announcement has expired."""
        self.delta_relay.drop_expired()

    async def wait_for_remote_readers(self) -> None:
        """Give readers on other servers the time to read what was written, before it is deleted."""
        if not self._ownership.is_alone:
            await asyncio.sleep(2 * POLL_INTERVAL_S)  # every follower has read the log once more by then

    # --- reading --------------------------------------------------------------------------------------------------

    async def wait_until_reached(self, live: LiveSession, seq: int) -> None:
        """Wait until a followed session has reached an event that another server wrote or is writing.

        Raises:
            Exception: as `LiveSession.raise_if_ended`.
            StoreUnavailable: also if the event does not arrive in time.
        """
        deadline = time.monotonic() + REACH_TIMEOUT_S
        pause_s = 0.0
        while not live.has_ended and live.durable_cursor.seq < seq:
            if time.monotonic() > deadline:
                at = f"session {live.state.session_id} is at event {live.durable_cursor.seq}"
                raise StoreUnavailable(f"event {seq} did not come in time: {at}")
            await asyncio.sleep(pause_s)
            await self.fetch_updates([live])
            pause_s = RETRY_DELAY_S
        live.raise_if_ended()

    async def current_states(self, states: Sequence[SessionState]) -> list[SessionState]:
        """Return sessions' current states, given those of their last rest."""
        here = {state.session_id: self._sessions.get_loaded(state.session_id) for state in states}
        known = {key: live for key, live in here.items() if live is not None and self._ownership.is_ours(live)}
        positions = [(state.session_id, Cursor(state.seq)) for state in states if state.session_id not in known]
        skip = self._ownership.is_alone or not positions
        updates = [] if skip else await self._cluster_store.session_updates(positions)
        news = {each.session_id: each for each in updates}
        return [
            known[state.session_id].state
            if state.session_id in known
            else _fold_updates(state, news.get(state.session_id))
            for state in states
        ]

    async def fetch_updates(self, lives: Sequence[LiveSession]) -> set[SessionId]:
        """Read and apply what other servers wrote to sessions. Returns the sessions that are current afterwards."""
        positions = {live.state.session_id: live.durable_cursor for live in lives}
        news = {each.session_id: each for each in await self._cluster_store.session_updates(list(positions.items()))}
        current: set[SessionId] = set()
        for live in lives:
            session_id = live.state.session_id
            if live.has_ended or self._ownership.is_ours(live) or not live.is_clean:
                continue  # pending writes come first; if they are refused, the session fails
            if session_id not in news:
                self.remove_deleted(live)
            elif live.durable_cursor == positions[session_id]:  # else it has been updated meanwhile, perhaps further
                self._apply(live, news[session_id])
                if not live.has_ended:
                    current.add(session_id)
            for update in self._early_updates.pop(session_id, ()):
                self._apply_update(live, update)
        return current

    async def run(self) -> None:
        """Follow the sessions that have readers here, until cancelled."""
        due = 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due - time.monotonic())):
                    await self._wakeup.wait()
            self._wakeup.clear()
            hinted, self._hinted = self._hinted, set()
            if time.monotonic() >= due:
                due = time.monotonic() + POLL_INTERVAL_S
                followed = [live for live in self._sessions if self._is_tailed(live)]
                self.delta_relay.announce([live.state.session_id for live in followed])
                relayed, self._updated_by_relay = self._updated_by_relay, set()
                lives = [live for live in followed if live.state.session_id not in relayed]
                if self._early_updates:
                    read_here = {live.state.session_id for live in lives}
                    self._early_updates = {key: early for key, early in self._early_updates.items() if key in read_here}
            else:
                found = (self._sessions.get_loaded(session_id) for session_id in hinted)
                lives = [live for live in found if live is not None and self._is_tailed(live)]
            if not lives:
                continue
            try:
                await self.fetch_updates(lives)
            except StoreUnavailable:
                await asyncio.sleep(POLL_INTERVAL_S)
            except Exception:  # the root of a task that must continue
                log.exception("failed to follow sessions")
                await asyncio.sleep(POLL_INTERVAL_S)
            await asyncio.sleep(HINT_BATCH_DELAY_S)

    def remove_deleted(self, live: LiveSession) -> None:
        """Remove a session that was deleted, or whose id is another session's now."""
        live.end(SessionNotFound("the session was deleted"))
        self._sessions.remove(live)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _remove_unreadable(self, live: LiveSession, error: SessionUnreadable) -> None:
        report_unreadable(error)
        live.end(error)
        self._sessions.remove(live)

    def _is_tailed(self, live: LiveSession) -> bool:
        if live.reference_count <= 0 or live.has_ended:
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
        for update in decode_updates(payload):
            live = self._sessions.get_loaded(update.session_id)
            if live is not None:
                self._apply_update(live, update)

    def _apply(self, live: LiveSession, news: SessionUpdate | Update) -> None:
        if (
            isinstance(news, SessionUpdate) and news.created_at != live.state.created_at
        ):  # deleted, and its id was used again
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
        """Apply an update if it continues the position. Gaps are read from the log, and repeats are ignored."""
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
