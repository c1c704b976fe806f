"""Membership of this server in the cluster of servers on one store, and what follows from it.

`claims` decides which server writes a session, `log_tailer` follows what other servers write, and `remote_commands`
sends commands to the server that runs a session. A server that is alone claims nothing, asks nothing, and follows
nobody.

    alone ──another server joined──► among others ──they left or died──► alone, with an epoch later than all theirs
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress

import structlog

from dragoman.core.ids import SessionId, UserId
from dragoman.core.refusals import SessionNotFound, StoreUnavailable
from dragoman.core.session import SessionState
from dragoman.engine.cluster.claims import CLAIM_TIMEOUT_S, SessionClaimer
from dragoman.engine.cluster.list_notifier import LIST_CHANGED_SUBJECT, SessionListNotifier
from dragoman.engine.cluster.log_tailer import LogTailer
from dragoman.engine.cluster.ownership import Ownership
from dragoman.engine.cluster.presence import PRESENCE_QUERY_SUBJECT, PRESENCE_REPLY_SUBJECT, PresenceQuery
from dragoman.engine.cluster.remote_commands import COMMAND_SUBJECT, Command, Done, Moved, RemoteCommands
from dragoman.engine.instrumentation.metrics import LEASES_LOST, RUNS_TAKEN_OVER, SERVERS
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import SessionRegistry
from dragoman.ports.bus import Bus
from dragoman.ports.cluster import ClusterStore, Node
from dragoman.ports.environment import Ids
from dragoman.ports.log import Append, EventLog

CHECK_MEMBERSHIP_HINT = "look"
"""Published in place of a server's id by a server that joins or leaves."""
LEASE_SAFETY_MARGIN_S = 2.0
"""A server whose lease ends sooner calls no tool and begins no model step."""
MEMBERSHIP_CHECK_INTERVAL_S = 0.5
"""How often to check which servers are alive."""
JOIN_NOTICE_TIMEOUT_S = 3.0
"""How long a new server waits for the others to see it."""
RETRY_DELAY_S = 0.03
"""Pause between two reads of the store."""
TAKEOVER_BATCH_SIZE = 50
"""Sessions claimed in one statement; other servers may claim the remaining ones."""

log = structlog.get_logger(__name__)


class Cluster:
    """This server as a member. `SingleServer` has the same interface for a store that is not shared."""

    is_shared = True
    log_tailer: LogTailer
    """Follows what other servers write."""
    remote_commands: RemoteCommands
    """Sends commands to other servers and executes theirs."""
    list_notifier: SessionListNotifier
    """Notifies those here who show lists of sessions."""
    claims: SessionClaimer
    """Claims sessions for this server."""
    _sessions: SessionRegistry
    _presence: PresenceQuery

    def __init__(self, cluster_store: ClusterStore, *, log: EventLog, bus: Bus, ids: Ids) -> None:
        self._ownership = Ownership()
        self.store = cluster_store
        """What the servers share besides the log: leases, claims and commands."""
        self._log = log
        self._bus = bus
        self._ids = ids
        self._newest_epoch = 0
        self._has_joined = asyncio.Event()
        self._membership_changed = asyncio.Event()
        self.abandoned_count = 0
        """Sessions whose run has no living server; the servers that live do not serve their agents."""
        self._agents: Collection[str] = ()
        self._orphans: set[SessionId] = set()
        """Sessions with a run that were claimed from a dead server and are not in memory yet."""
        self._tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: list[Callable[[], None]] = []
        self._takeover_callbacks: list[Callable[[LiveSession], None]] = []

    def connect(
        self,
        sessions: SessionRegistry,
        *,
        agents: Collection[str],
        take_over: Callable[[LiveSession], None],
        perform: Callable[[LiveSession, Command], Awaitable[Done | Moved]],
    ) -> None:
        """Set what this server has to coordinate. Call once, before `start`.

        Args:
            sessions: the sessions in memory.
            agents: the names and aliases of the agents that this server serves.
            take_over: resumes a run whose server died.
            perform: executes another server's command on a session whose run is here.
        """
        store, bus, ownership = self.store, self._bus, self._ownership
        self._sessions, self._agents = sessions, agents
        self._presence = PresenceQuery(bus, sessions)
        self.list_notifier = SessionListNotifier(sessions, self._log, bus, self.refresh)
        self.log_tailer = LogTailer(store, bus=bus, sessions=sessions, ownership=ownership, address=self._ids.new())
        self.claims = SessionClaimer(
            store,
            sessions=sessions,
            ownership=ownership,
            log_tailer=self.log_tailer,
            take_over=take_over,
            wait_until_joined=self.wait_until_joined,
        )
        self.remote_commands = RemoteCommands(
            store,
            bus=bus,
            ids=self._ids,
            sessions=sessions,
            ownership=ownership,
            log_tailer=self.log_tailer,
            perform=perform,
        )

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the cluster, and take over the runs of dead servers from now on."""
        handlers = (
            (COMMAND_SUBJECT, self._on_membership_hint),
            (PRESENCE_QUERY_SUBJECT, self._presence.on_query),
            (PRESENCE_REPLY_SUBJECT, self._presence.on_reply),
            (LIST_CHANGED_SUBJECT, self._on_list_hint),
            *self.log_tailer.subscriptions,
            *self.remote_commands.subscriptions,
        )
        self._unsubscribe = [self._bus.subscribe(subject, handler) for subject, handler in handlers]
        await self._join()
        await self._take_over_abandoned()
        self.abandoned_count = await self.store.count_abandoned()
        loops = (
            ("membership", self._watch_membership),
            ("log tailer", self.log_tailer.run),
            ("remote commands", self.remote_commands.serve),
        )
        self._tasks = [asyncio.create_task(loop(), name=name) for name, loop in loops]

    async def leave(self) -> None:
        """Leave the cluster after everything is written. The others take over parked runs at once."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self.list_notifier.close()
        self.remote_commands.close()
        self.claims.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        with suppress(StoreUnavailable):
            await self.store.leave()
        self._bus.publish(COMMAND_SUBJECT, CHECK_MEMBERSHIP_HINT)

    async def _join(self) -> None:
        self._has_joined.clear()
        self._ownership.is_alone = False
        epoch = self._newest_epoch = await self.store.join()
        self._sessions.epoch = epoch
        self._bus.publish(COMMAND_SUBJECT, CHECK_MEMBERSHIP_HINT)
        deadline = time.monotonic() + JOIN_NOTICE_TIMEOUT_S
        others = await self.store.other_nodes()
        while any(each.is_alive and each.seen_epoch < epoch for each in others) and time.monotonic() < deadline:
            self._publish_newest_epoch(others)  # servers that join at the same time wait for each other
            await asyncio.sleep(RETRY_DELAY_S)
            others = await self.store.other_nodes()
        await self._check_membership()
        self._has_joined.set()

    async def _check_membership(self) -> bool:
        """Update what is known of the other servers. Returns whether one of them is dead."""
        others = await self.store.other_nodes()
        living = [each for each in others if each.is_alive]
        SERVERS.set(1 + len(living))
        if living:
            self._ownership.is_alone = False
        elif not self._ownership.is_alone:
            self._sessions.epoch = await self._log.claim_epoch()
            self._ownership.become_alone(live.state.session_id for live in self._sessions)
        self._publish_newest_epoch(others)
        self.log_tailer.drop_expired_subscribers()
        return len(living) < len(others)

    def _publish_newest_epoch(self, others: Sequence[Node]) -> None:
        self._newest_epoch = max([self._newest_epoch, *(each.epoch for each in others)])
        self.store.publish_seen_epoch(self._newest_epoch)

    async def _watch_membership(self) -> None:
        is_unavailable = False
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(MEMBERSHIP_CHECK_INTERVAL_S):
                    await self._membership_changed.wait()
            self._membership_changed.clear()
            try:
                if self.store.is_lease_expired or not self._has_joined.is_set():  # or an attempt failed
                    await self._rejoin()
                has_dead_nodes = await self._check_membership()
                if has_dead_nodes or self._orphans or self.abandoned_count:
                    if not await self._take_over_abandoned():
                        await self.store.remove_dead_nodes()
                    self.abandoned_count = await self.store.count_abandoned()
                is_unavailable = False
            except StoreUnavailable as error:
                if not is_unavailable:
                    log.warning("cluster membership cannot be checked", cause=repr(error.__cause__))
                is_unavailable = True
            except Exception:  # the root of a task that must continue
                log.exception("cluster membership check failed")

    def _on_membership_hint(self, payload: str) -> None:
        if payload == CHECK_MEMBERSHIP_HINT:
            self._membership_changed.set()

    async def _rejoin(self) -> None:
        """Join again after the lease expired. Other servers may have this server's sessions by now."""
        if self._has_joined.is_set():
            LEASES_LOST.inc()
            self._has_joined.clear()
            self._ownership.is_alone = False
            for live in list(self._sessions):
                if self._ownership.is_ours(live):
                    live.fail(StoreUnavailable("this server did not renew its lease in time"))
        await self._join()

    async def _take_over_abandoned(self) -> bool:
        """Take over the sessions of dead servers. Returns whether there were any."""
        has_taken_over = False
        while not self._sessions.is_closed:
            if not self._orphans:
                self._orphans |= set(await self.store.claim_abandoned(TAKEOVER_BATCH_SIZE, self._agents))
                RUNS_TAKEN_OVER.inc(len(self._orphans))
            if not self._orphans:
                break
            has_taken_over = True
            for session_id in tuple(self._orphans):
                await self._adopt(session_id)
                self._orphans.discard(session_id)
        return has_taken_over

    async def _adopt(self, session_id: SessionId) -> None:
        live = self._sessions.get_loaded(session_id)
        if live is None:
            await self._sessions.recover(session_id)
        elif not self._ownership.is_ours(live):
            with suppress(SessionNotFound):
                await self.claim(live)
        live = self._sessions.get_loaded(session_id)
        if live is not None:
            for callback in self._takeover_callbacks:
                callback(live)

    def on_taken_over(self, callback: Callable[[LiveSession], None]) -> None:
        """Call back with each session whose run this server resumes after its server died."""
        self._takeover_callbacks.append(callback)

    # --- the lease ------------------------------------------------------------------------------------------------

    async def wait_for_valid_lease(self) -> None:
        """Wait until no other server can have taken this one's sessions. Runs that lose theirs are cancelled."""
        while self.store.lease_remaining_s() < LEASE_SAFETY_MARGIN_S:  # noqa: ASYNC110  # a thread renews it
            await asyncio.sleep(RETRY_DELAY_S)

    # --- which server has which session ---------------------------------------------------------------------------

    @property
    def is_alone(self) -> bool:
        """Whether no other server is alive, as far as this server knows."""
        return self._ownership.is_alone

    def coordination_store(self) -> ClusterStore | None:
        """The store in which this server coordinates with others; None while it is alone."""
        return None if self.is_alone else self.store

    async def wait_until_joined(self) -> None:
        """Wait until this server is a member of the cluster. Raises StoreUnavailable if that takes too long."""
        if self._has_joined.is_set():
            return
        try:
            async with asyncio.timeout(CLAIM_TIMEOUT_S):
                await self._has_joined.wait()
        except TimeoutError:
            raise StoreUnavailable("this server has lost its lease, and cannot renew it now") from None

    def may_write(self, live: LiveSession) -> bool:
        """Whether this server may write the session now."""
        return self.claims.may_write(live)

    async def claim(self, live: LiveSession) -> bool:
        """Claim a session, as `SessionClaimer.claim` does."""
        return await self.claims.claim(live)

    def release(self, live: LiveSession) -> None:
        """Release a claimed session if nothing was written to it."""
        self.claims.release(live)

    async def claim_run(self, session_id: SessionId) -> int | None:
        """Claim a session whose run has no living server, as `SessionClaimer.claim_run` does."""
        return await self.claims.claim_run(session_id)

    async def send(self, live: LiveSession, command: Command) -> Done | None:
        """Send a command to the server that runs a session, as `RemoteCommands.send` does."""
        return await self.remote_commands.send(live, command)

    # --- what other servers do ------------------------------------------------------------------------------------

    async def refresh(self, live: LiveSession) -> None:
        """Read what other servers wrote to a session."""
        while not live.has_ended and not (self._ownership.is_ours(live) or self._ownership.is_known_current(live)):
            if live.state.session_id in await self.log_tailer.fetch_updates([live]):
                if live.is_remote and live.last_writer == self.store.node_id:  # a takeover failed half-way
                    await self.claim(live)
                return

    async def current_states(self, states: Sequence[SessionState]) -> list[SessionState]:
        """Return sessions' current states, given those of their last rest."""
        return await self.log_tailer.current_states(states)

    async def is_watched(self, live: LiveSession) -> bool:
        """Whether somebody reads a session, here or on another server that replies in time."""
        return live.reader_count > 0 or (not self.is_alone and await self._presence.is_watched(live.state.session_id))

    async def wait_for_remote_readers(self) -> None:
        """Give readers on other servers the time to read what was written, before it is deleted."""
        await self.log_tailer.wait_for_remote_readers()

    def show_lists_of(self, owners: Callable[[], Collection[UserId]]) -> None:
        """Notify watchers of changes that other servers make to the sessions of these users."""
        self.list_notifier.owners = owners

    def on_commit(self, batch: Sequence[Append]) -> None:
        """Inform the other servers of a commit."""
        if not self._ownership.is_alone:
            self.list_notifier.send(batch, self.store.node_id)
            self.log_tailer.send(batch)

    def on_deleted(self, session_id: SessionId, owner: UserId) -> None:
        """Inform the other servers of a deleted session."""
        if not self._ownership.is_alone:
            self.list_notifier.send_deleted(session_id, owner, self.store.node_id)

    def _on_list_hint(self, payload: str) -> None:
        self.list_notifier.on_hint(payload, self.store.node_id)
