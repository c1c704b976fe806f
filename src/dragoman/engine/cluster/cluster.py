"""This server among the others on the store: who lives, who writes which session, and what dead ones leave behind.

What they write is seen in `following`, and what they have one another do is in `orders`.

A session's run is played by one server, which alone writes to it while it lives; every other one follows the log. A
session at rest is anybody's: whoever is about to write claims it first, which takes one statement. A server that is
alone claims nothing, asks nothing, and follows nobody.

    alone ──another one joined──► among others ──they left or died──► alone, with an epoch later than all theirs
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from weakref import WeakValueDictionary

import structlog

from dragoman.core.ids import SessionId
from dragoman.core.refusals import SessionNotFound, StoreUnavailable
from dragoman.core.session import SessionState
from dragoman.engine.cluster.list_notifier import LIST_CHANGED_SUBJECT, SessionListNotifier
from dragoman.engine.cluster.log_tailer import LogTailer
from dragoman.engine.cluster.ownership import Ownership
from dragoman.engine.cluster.presence import PRESENCE_QUERY_SUBJECT, PRESENCE_REPLY_SUBJECT, PresenceQuery
from dragoman.engine.cluster.remote_commands import COMMAND_SUBJECT, Command, Done, Moved, RemoteCommands
from dragoman.engine.instrumentation.metrics import LEASES_LOST, RUNS_TAKEN_OVER, SERVERS
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.ports.bus import Bus
from dragoman.ports.cluster import ClusterStore
from dragoman.ports.environment import Ids
from dragoman.ports.log import Append, EventLog

CHECK_MEMBERSHIP_HINT = "look"
"""What is said, in place of a server that is asked, by one that joins or stops."""
LEASE_SAFETY_MARGIN_S = 2.0
"""So long before its lease ends a server calls no tool and begins no model step any more."""
MEMBERSHIP_CHECK_INTERVAL_S = 0.5
"""How often it is looked who lives."""
JOIN_NOTICE_TIMEOUT_S = 3.0
"""How long a newcomer waits for the others to notice it."""
CLAIM_TIMEOUT_S = 8.0
"""How long a session is waited for that another server is about to write, and a lease that was lost."""
RETRY_DELAY_S = 0.03
"""Before it is tried or looked again, where nobody tells."""
CLAIM_VALID_S = 4.0
"""For how long a claim on a session at rest is relied upon: less than the store keeps it."""
TAKEOVER_BATCH_SIZE = 50
"""Sessions taken over in one statement; what is left is for the other servers, or for the next one."""

log = structlog.get_logger(__name__)


class Cluster:
    """See the module."""

    def __init__(
        self,
        cluster_store: ClusterStore,
        *,
        log: EventLog,
        bus: Bus,
        ids: Ids,
        sessions: SessionRegistry,
        take_over: Callable[[LiveSession], None],
        perform: Callable[[LiveSession, Command], Awaitable[Done | Moved]],
    ) -> None:
        """Args:
        nodes: the store's side of it.
        log: where a later epoch comes from.
        bus: hints to and from the others.
        ids: for requests.
        sessions: those in memory.
        take_over: goes on with a run whose server died.
        perform: does what another server asks of a session whose run is played here.
        """
        self._ownership = ownership = Ownership()
        self.log_tailer = LogTailer(cluster_store, bus=bus, sessions=sessions, ownership=ownership, address=ids.new())
        """What servers write."""
        self.remote_commands = RemoteCommands(
            cluster_store,
            bus=bus,
            ids=ids,
            sessions=sessions,
            ownership=ownership,
            log_tailer=self.log_tailer,
            perform=perform,
        )
        """What servers have one another do."""
        self.list_notifier = SessionListNotifier(sessions, log, bus, self.refresh)
        """For those here who show lists of sessions."""
        self._cluster_store = cluster_store
        self._log = log
        self._bus = bus
        self._sessions = sessions
        self._take_over = take_over
        self._newest_epoch = 0
        self._has_joined = asyncio.Event()
        self._claim_locks: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()
        self._presence = PresenceQuery(bus, sessions)
        self._membership_changed = asyncio.Event()
        self._orphans: set[SessionId] = set()
        """Sessions with a run that were taken from a dead server and are not in memory yet."""
        self._release_tasks: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: list[Callable[[], None]] = []
        self._takeover_callbacks: list[Callable[[LiveSession], None]] = []

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the others. Runs whose servers died are taken over from here on."""
        hears = (
            (COMMAND_SUBJECT, self._on_membership_hint),
            (PRESENCE_QUERY_SUBJECT, self._presence.on_query),
            (PRESENCE_REPLY_SUBJECT, self._presence.on_reply),
            (LIST_CHANGED_SUBJECT, self._on_list_hint),
            *self.log_tailer.subscriptions,
            *self.remote_commands.subscriptions,
        )
        self._unsubscribe = [self._bus.subscribe(subject, heard) for subject, heard in hears]
        await self._join()
        await self._take_over_abandoned()
        work = (
            ("nodes", self._watch_membership),
            ("news", self.log_tailer.run),
            ("requests", self.remote_commands.serve),
        )
        self._tasks = [asyncio.create_task(each(), name=name) for name, each in work]

    async def leave(self) -> None:
        """Live no more for the others, once everything is written: they take over at once what was parked."""
        for end in self._unsubscribe:
            end()
        self.list_notifier.close()
        self.remote_commands.close()
        for task in (*self._tasks, *self._release_tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        with suppress(StoreUnavailable):
            await self._cluster_store.leave()
        self._bus.publish(COMMAND_SUBJECT, CHECK_MEMBERSHIP_HINT)

    async def _join(self) -> None:
        self._has_joined.clear()
        self._ownership.is_alone = False
        epoch = self._newest_epoch = await self._cluster_store.join()
        self._sessions.epoch = epoch
        self._bus.publish(COMMAND_SUBJECT, CHECK_MEMBERSHIP_HINT)
        deadline = time.monotonic() + JOIN_NOTICE_TIMEOUT_S
        others = await self._cluster_store.other_nodes()
        while any(each.is_alive and each.seen_epoch < epoch for each in others) and time.monotonic() < deadline:
            await asyncio.sleep(RETRY_DELAY_S)
            others = await self._cluster_store.other_nodes()
        await self._check_membership()
        self._has_joined.set()

    async def _check_membership(self) -> bool:
        """See who lives; whether somebody died."""
        others = await self._cluster_store.other_nodes()
        living = [each for each in others if each.is_alive]
        SERVERS.set(1 + len(living))
        if living:
            self._ownership.is_alone = False
        elif not self._ownership.is_alone:
            self._sessions.epoch = await self._log.claim_epoch()
            self._ownership.become_alone(live.state.session_id for live in self._sessions)
        self._newest_epoch = max([self._newest_epoch, *(each.epoch for each in others)])
        self._cluster_store.publish_seen_epoch(self._newest_epoch)
        self.log_tailer.drop_expired_subscribers()
        return len(living) < len(others)

    async def _watch_membership(self) -> None:
        is_away = False
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(MEMBERSHIP_CHECK_INTERVAL_S):
                    await self._membership_changed.wait()
            self._membership_changed.clear()
            try:
                if (
                    self._cluster_store.is_lease_expired or not self._has_joined.is_set()
                ):  # the second: it failed half-way
                    await self._rejoin()
                if (await self._check_membership() or self._orphans) and not await self._take_over_abandoned():
                    await self._cluster_store.remove_dead_nodes()
                is_away = False
            except StoreUnavailable as error:
                if not is_away:
                    log.warning("the other servers cannot be seen", cause=repr(error.__cause__))
                is_away = True
            except Exception:  # the root of a task that must go on
                log.exception("other servers not looked after")

    def _on_membership_hint(self, payload: str) -> None:
        if payload == CHECK_MEMBERSHIP_HINT:
            self._membership_changed.set()

    async def _rejoin(self) -> None:
        """Begin anew after the lease ended: what this server had may be others' already."""
        if self._has_joined.is_set():
            LEASES_LOST.inc()
            self._has_joined.clear()
            self._ownership.is_alone = False
            for live in list(self._sessions):
                if self._ownership.is_ours(live):
                    live.fail(StoreUnavailable("this server did not renew its lease in time"))
        await self._join()

    async def _take_over_abandoned(self) -> bool:
        """Take over what servers left behind that died; whether there was something."""
        found = False
        while not self._sessions.is_closed:
            if not self._orphans:
                self._orphans |= set(await self._cluster_store.claim_abandoned(TAKEOVER_BATCH_SIZE))
                RUNS_TAKEN_OVER.inc(len(self._orphans))
            if not self._orphans:
                break
            found = True
            for session_id in tuple(self._orphans):
                await self._adopt(session_id)
                self._orphans.discard(session_id)
        return found

    async def _adopt(self, session_id: SessionId) -> None:
        live = self._sessions.get_loaded(session_id)
        if live is None:
            await self._sessions.recover(session_id)
        elif not self._ownership.is_ours(live):
            with suppress(SessionNotFound):
                await self.claim(live)
        live = self._sessions.get_loaded(session_id)
        if live is not None:
            for told in self._takeover_callbacks:
                told(live)

    def on_taken_over(self, callback: Callable[[LiveSession], None]) -> None:
        """Tell of each session whose run is gone on with here after its server died."""
        self._takeover_callbacks.append(callback)

    # --- the lease ------------------------------------------------------------------------------------------------

    async def wait_for_valid_lease(self) -> None:
        """Wait until nobody can have taken this server's sessions. Who loses them meanwhile is cancelled."""
        while self._cluster_store.lease_remaining_s() < LEASE_SAFETY_MARGIN_S:  # noqa: ASYNC110  # a thread renews it
            await asyncio.sleep(RETRY_DELAY_S)

    # --- whose session is whose -----------------------------------------------------------------------------------

    def may_write(self, live: LiveSession) -> bool:
        """Whether this server may write the session now. What goes to the store at rest sets it free as it lands."""
        if live.is_remote:
            return False
        is_running = live.state.run is not None or bool(live.state.queue)
        return is_running or self._ownership.is_known_current(live) or time.monotonic() < live.claimed_until

    @property
    def is_alone(self) -> bool:
        """See `sessions.Neighbours`."""
        return self._ownership.is_alone

    def store_unless_alone(self) -> ClusterStore | None:
        """The store's side of it, while there are others."""
        return None if self.is_alone else self._cluster_store

    async def wait_until_joined(self) -> None:
        """Wait until this server is among the others. Raises StoreUnavailable: it takes too long."""
        if self._has_joined.is_set():
            return
        try:
            async with asyncio.timeout(CLAIM_TIMEOUT_S):
                await self._has_joined.wait()
        except TimeoutError:
            raise StoreUnavailable("this server has lost its lease, and cannot renew it now") from None

    async def claim(self, live: LiveSession) -> bool:
        """Claim a session, to write to it at once; `let_go` follows. False: its run is played by another server.

        Raises:
            SessionNotFound: it was deleted.
            StoreUnavailable: it cannot be claimed now.
        """
        await self.wait_until_joined()
        deadline = time.monotonic() + CLAIM_TIMEOUT_S
        while True:
            if live.failure is not None:
                raise live.failure
            if self._ownership.is_known_current(live):
                live.epoch = self._sessions.epoch
            if self.may_write(live):
                return True
            if not live.is_clean:
                await live.next_commit()
                continue
            async with self._claim_lock(live):
                claimed = True if self.may_write(live) else await self._try_claim(live)
            if claimed is not None:
                return claimed
            if time.monotonic() > deadline:
                raise StoreUnavailable("another server is writing to the session")
            await asyncio.sleep(RETRY_DELAY_S)

    def _claim_lock(self, live: LiveSession) -> asyncio.Lock:
        return self._claim_locks.setdefault(live.state.session_id, asyncio.Lock())

    async def _try_claim(self, live: LiveSession) -> bool | None:
        """See `owns`; None: another server holds the session for a moment."""
        if live.failure is not None:
            raise live.failure
        if not live.is_clean:
            return None
        begun = time.monotonic()
        claimed = await self._cluster_store.claim_session(live.state.session_id)
        if claimed is None:
            self.log_tailer.remove_deleted(live)
            raise SessionNotFound("there is no such session")
        if claimed.epoch is None and not claimed.is_running:
            return None
        if claimed.epoch is not None:
            live.epoch = self._record_epoch(claimed.epoch)
        is_same = claimed.created_at == live.state.created_at
        is_current = claimed.epoch is not None and not claimed.is_running and claimed.seq == live.durable_cursor.seq
        try:
            while not (is_same and is_current) and live.state.session_id not in await self.log_tailer.fetch_updates(
                [live]
            ):
                if live.failure is not None:
                    raise live.failure
        except SessionNotFound:
            if claimed.epoch is not None:  # what was claimed is another session of that id
                self._release_in_background(live.state.session_id, claimed.epoch)
            raise
        if claimed.epoch is None:
            return False if live.is_remote else None
        self._ownership.mark_current(live.state.session_id)
        live.is_remote = False
        live.claimed_until = begun + CLAIM_VALID_S
        if self._ownership.is_ours(live):
            self._take_over(live)
        return True

    def release(self, live: LiveSession) -> None:
        """Give a claimed session back, if nothing was written to it. What was written gives it back itself."""
        if live.claimed_until and live.failure is None and not self._ownership.is_ours(live):
            live.claimed_until = 0.0
            self._release_in_background(live.state.session_id, live.epoch)

    def _release_in_background(self, session_id: SessionId, epoch: int) -> None:
        task = asyncio.create_task(self._release_claim(session_id, epoch), name="release")
        self._release_tasks.add(task)
        task.add_done_callback(self._release_tasks.discard)

    async def _release_claim(self, session_id: SessionId, epoch: int) -> None:
        with suppress(StoreUnavailable):  # it is free after some seconds in any case
            await self._cluster_store.release_session(session_id, epoch)

    async def claim_run(self, session_id: SessionId) -> int | None:
        """See `sessions.Neighbours`."""
        await self.wait_until_joined()
        claimed = await self._cluster_store.claim_session(session_id)
        if claimed is None or claimed.epoch is None:
            return None
        if not claimed.is_running:  # it ended meanwhile, and whoever writes next shall not wait for this claim to end
            self._release_in_background(session_id, claimed.epoch)
        return self._record_epoch(claimed.epoch)

    def _record_epoch(self, epoch: int) -> int:
        """Note an epoch of this server's: once it is alone, none of any session is later than the latest."""
        self._sessions.epoch = max(self._sessions.epoch, epoch)
        return epoch

    # --- what others write ----------------------------------------------------------------------------------------

    async def refresh(self, live: LiveSession) -> None:
        """See `sessions.Neighbours`."""
        while live.failure is None and not (self._ownership.is_ours(live) or self._ownership.is_known_current(live)):
            if live.state.session_id in await self.log_tailer.fetch_updates([live]):
                if (
                    live.is_remote and live.last_writer == self._cluster_store.node_id
                ):  # taken over, but its start failed half-way
                    await self.claim(live)
                return

    async def current_states(self, states: Sequence[SessionState]) -> list[SessionState]:
        """See `sessions.Neighbours`."""
        return await self.log_tailer.current_states(states)

    async def is_watched(self, live: LiveSession) -> bool:
        """Whether somebody reads a session, here or at another server, as far as they say so in time."""
        return live.reader_count > 0 or (not self.is_alone and await self._presence.is_watched(live.state.session_id))

    def on_commit(self, batch: Sequence[Append]) -> None:
        """Tell the others that sessions went on."""
        if not self._ownership.is_alone:
            self.list_notifier.send(batch, self._cluster_store.node_id)
            self.log_tailer.send(batch)

    def _on_list_hint(self, payload: str) -> None:
        self.list_notifier.on_hint(payload, self._cluster_store.node_id)
