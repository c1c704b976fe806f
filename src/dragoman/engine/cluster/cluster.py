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
from dragoman.engine.cluster.list_notifier import CHANGED, Elsewhere
from dragoman.engine.cluster.log_tailer import Following
from dragoman.engine.cluster.ownership import Ownership
from dragoman.engine.cluster.presence import WATCHED, WATCHING, Watching
from dragoman.engine.cluster.remote_commands import ASKED, Done, Moved, Order, Orders
from dragoman.engine.instrumentation.metrics import LEASES_LOST, SERVERS, TAKEN_OVER
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import Sessions
from dragoman.ports import Append, Bus, EventLog, Ids, Nodes

LOOK = "look"
"""What is said, in place of a server that is asked, by one that joins or stops."""
SAFE_S = 2.0
"""So long before its lease ends a server calls no tool and begins no model step any more."""
LOOK_S = 0.5
"""How often it is looked who lives."""
NOTICED_S = 3.0
"""How long a newcomer waits for the others to notice it."""
PATIENCE_S = 8.0
"""How long a session is waited for that another server is about to write, and a lease that was lost."""
PAUSE_S = 0.03
"""Before it is tried or looked again, where nobody tells."""
HOLD_S = 4.0
"""For how long a claim on a session at rest is relied upon: less than the store keeps it."""
ABANDONED = 50
"""Sessions taken over in one statement; what is left is for the other servers, or for the next one."""

log = structlog.get_logger(__name__)


class Neighbours:
    """See the module."""

    def __init__(
        self,
        nodes: Nodes,
        *,
        log: EventLog,
        bus: Bus,
        ids: Ids,
        sessions: Sessions,
        take_over: Callable[[LiveSession], None],
        perform: Callable[[LiveSession, Order], Awaitable[Done | Moved]],
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
        self.following = Following(nodes, bus=bus, sessions=sessions, ownership=ownership, address=ids.new())
        """What servers write."""
        self.orders = Orders(
            nodes,
            bus=bus,
            ids=ids,
            sessions=sessions,
            ownership=ownership,
            following=self.following,
            perform=perform,
        )
        """What servers have one another do."""
        self.elsewhere = Elsewhere(sessions, log, bus, self.refresh)
        """For those here who show lists of sessions."""
        self._nodes = nodes
        self._log = log
        self._bus = bus
        self._sessions = sessions
        self._take_over = take_over
        self._seen = 0
        self._has_joined = asyncio.Event()
        self._claiming: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()
        self._watching = Watching(bus, sessions)
        self._is_changed = asyncio.Event()
        self._orphans: set[SessionId] = set()
        """Sessions with a run that were taken from a dead server and are not in memory yet."""
        self._releasing: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: list[Callable[[], None]] = []
        self._on_taken_over: list[Callable[[LiveSession], None]] = []

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the others. Runs whose servers died are taken over from here on."""
        hears = (
            (ASKED, self._hear_look),
            (WATCHED, self._watching.hear_question),
            (WATCHING, self._watching.hear_answer),
            (CHANGED, self._hear_changed),
            *self.following.hears,
            *self.orders.hears,
        )
        self._unsubscribe = [self._bus.subscribe(subject, heard) for subject, heard in hears]
        await self._join()
        await self._take_abandoned()
        work = (("nodes", self._watch), ("news", self.following.run), ("requests", self.orders.serve))
        self._tasks = [asyncio.create_task(each(), name=name) for name, each in work]

    async def leave(self) -> None:
        """Live no more for the others, once everything is written: they take over at once what was parked."""
        for end in self._unsubscribe:
            end()
        self.elsewhere.close()
        self.orders.close()
        for task in (*self._tasks, *self._releasing):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        with suppress(StoreUnavailable):
            await self._nodes.leave()
        self._bus.publish(ASKED, LOOK)

    async def _join(self) -> None:
        self._has_joined.clear()
        self._ownership.is_alone = False
        epoch = self._seen = await self._nodes.join()
        self._sessions.epoch = epoch
        self._bus.publish(ASKED, LOOK)
        deadline = time.monotonic() + NOTICED_S
        others = await self._nodes.others()
        while any(each.is_alive and each.seen < epoch for each in others) and time.monotonic() < deadline:
            await asyncio.sleep(PAUSE_S)
            others = await self._nodes.others()
        await self._look()
        self._has_joined.set()

    async def _look(self) -> bool:
        """See who lives; whether somebody died."""
        others = await self._nodes.others()
        living = [each for each in others if each.is_alive]
        SERVERS.set(1 + len(living))
        if living:
            self._ownership.is_alone = False
        elif not self._ownership.is_alone:
            self._sessions.epoch = await self._log.claim()
            self._ownership.be_alone(live.state.session_id for live in self._sessions)
        self._seen = max([self._seen, *(each.epoch for each in others)])
        self._nodes.see(self._seen)
        self.following.forget()
        return len(living) < len(others)

    async def _watch(self) -> None:
        is_away = False
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._is_changed.wait()
            self._is_changed.clear()
            try:
                if self._nodes.has_lapsed or not self._has_joined.is_set():  # the second: it failed half-way
                    await self._rejoin()
                if (await self._look() or self._orphans) and not await self._take_abandoned():
                    await self._nodes.forget_dead()
                is_away = False
            except StoreUnavailable as error:
                if not is_away:
                    log.warning("the other servers cannot be seen", cause=repr(error.__cause__))
                is_away = True
            except Exception:  # the root of a task that must go on
                log.exception("other servers not looked after")

    def _hear_look(self, payload: str) -> None:
        if payload == LOOK:
            self._is_changed.set()

    async def _rejoin(self) -> None:
        """Begin anew after the lease ended: what this server had may be others' already."""
        if self._has_joined.is_set():
            LEASES_LOST.inc()
            self._has_joined.clear()
            self._ownership.is_alone = False
            for live in list(self._sessions):
                if self._ownership.is_ours(live):
                    live.lost(StoreUnavailable("this server did not renew its lease in time"))
        await self._join()

    async def _take_abandoned(self) -> bool:
        """Take over what servers left behind that died; whether there was something."""
        found = False
        while not self._sessions.is_closed:
            if not self._orphans:
                self._orphans |= set(await self._nodes.take_abandoned(ABANDONED))
                TAKEN_OVER.inc(len(self._orphans))
            if not self._orphans:
                break
            found = True
            for session_id in tuple(self._orphans):
                await self._adopt(session_id)
                self._orphans.discard(session_id)
        return found

    async def _adopt(self, session_id: SessionId) -> None:
        live = self._sessions.at_hand(session_id)
        if live is None:
            await self._sessions.take_up(session_id)
        elif not self._ownership.is_ours(live):
            with suppress(SessionNotFound):
                await self.owns(live)
        live = self._sessions.at_hand(session_id)
        if live is not None:
            for told in self._on_taken_over:
                told(live)

    def on_taken_over(self, told: Callable[[LiveSession], None]) -> None:
        """Tell of each session whose run is gone on with here after its server died."""
        self._on_taken_over.append(told)

    # --- the lease ------------------------------------------------------------------------------------------------

    async def sure(self) -> None:
        """Wait until nobody can have taken this server's sessions. Who loses them meanwhile is cancelled."""
        while self._nodes.left_s() < SAFE_S:  # noqa: ASYNC110  # a thread renews it
            await asyncio.sleep(PAUSE_S)

    # --- whose session is whose -----------------------------------------------------------------------------------

    def has(self, live: LiveSession) -> bool:
        """Whether this server may write the session now. What goes to the store at rest sets it free as it lands."""
        if live.is_elsewhere:
            return False
        is_running = live.state.run is not None or bool(live.state.queue)
        return is_running or self._ownership.is_sure(live) or time.monotonic() < live.held_until

    @property
    def is_alone(self) -> bool:
        """See `sessions.Neighbours`."""
        return self._ownership.is_alone

    def others(self) -> Nodes | None:
        """The store's side of it, while there are others."""
        return None if self.is_alone else self._nodes

    async def joined(self) -> None:
        """Wait until this server is among the others. Raises StoreUnavailable: it takes too long."""
        if self._has_joined.is_set():
            return
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._has_joined.wait()
        except TimeoutError:
            raise StoreUnavailable("this server has lost its lease, and cannot renew it now") from None

    async def owns(self, live: LiveSession) -> bool:
        """Claim a session, to write to it at once; `let_go` follows. False: its run is played by another server.

        Raises:
            SessionNotFound: it was deleted.
            StoreUnavailable: it cannot be claimed now.
        """
        await self.joined()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            if live.failure is not None:
                raise live.failure
            if self._ownership.is_sure(live):
                live.epoch = self._sessions.epoch
            if self.has(live):
                return True
            if not live.is_clean:
                await live.next_commit()
                continue
            async with self._lock(live):
                claimed = True if self.has(live) else await self._claim(live)
            if claimed is not None:
                return claimed
            if time.monotonic() > deadline:
                raise StoreUnavailable("another server is writing to the session")
            await asyncio.sleep(PAUSE_S)

    def _lock(self, live: LiveSession) -> asyncio.Lock:
        return self._claiming.setdefault(live.state.session_id, asyncio.Lock())

    async def _claim(self, live: LiveSession) -> bool | None:
        """See `owns`; None: another server holds the session for a moment."""
        if live.failure is not None:
            raise live.failure
        if not live.is_clean:
            return None
        begun = time.monotonic()
        claimed = await self._nodes.claim(live.state.session_id)
        if claimed is None:
            self.following.gone(live)
            raise SessionNotFound("there is no such session")
        if claimed.epoch is None and not claimed.is_running:
            return None
        if claimed.epoch is not None:
            live.epoch = self._granted(claimed.epoch)
        is_same = claimed.created_at == live.state.created_at
        is_current = claimed.epoch is not None and not claimed.is_running and claimed.seq == live.durable.seq
        try:
            while not (is_same and is_current) and live.state.session_id not in await self.following.look_up([live]):
                if live.failure is not None:
                    raise live.failure
        except SessionNotFound:
            if claimed.epoch is not None:  # what was claimed is another session of that id
                self._give_back(live.state.session_id, claimed.epoch)
            raise
        if claimed.epoch is None:
            return False if live.is_elsewhere else None
        self._ownership.settle(live.state.session_id)
        live.is_elsewhere = False
        live.held_until = begun + HOLD_S
        if self._ownership.is_ours(live):
            self._take_over(live)
        return True

    def let_go(self, live: LiveSession) -> None:
        """Give a claimed session back, if nothing was written to it. What was written gives it back itself."""
        if live.held_until and live.failure is None and not self._ownership.is_ours(live):
            live.held_until = 0.0
            self._give_back(live.state.session_id, live.epoch)

    def _give_back(self, session_id: SessionId, epoch: int) -> None:
        task = asyncio.create_task(self._release(session_id, epoch), name="release")
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def _release(self, session_id: SessionId, epoch: int) -> None:
        with suppress(StoreUnavailable):  # it is free after some seconds in any case
            await self._nodes.release(session_id, epoch)

    async def claim_run(self, session_id: SessionId) -> int | None:
        """See `sessions.Neighbours`."""
        await self.joined()
        claimed = await self._nodes.claim(session_id)
        if claimed is None or claimed.epoch is None:
            return None
        if not claimed.is_running:  # it ended meanwhile, and whoever writes next shall not wait for this claim to end
            self._give_back(session_id, claimed.epoch)
        return self._granted(claimed.epoch)

    def _granted(self, epoch: int) -> int:
        """Note an epoch of this server's: once it is alone, none of any session is later than the latest."""
        self._sessions.epoch = max(self._sessions.epoch, epoch)
        return epoch

    # --- what others write ----------------------------------------------------------------------------------------

    async def refresh(self, live: LiveSession) -> None:
        """See `sessions.Neighbours`."""
        while live.failure is None and not (self._ownership.is_ours(live) or self._ownership.is_sure(live)):
            if live.state.session_id in await self.following.look_up([live]):
                if live.is_elsewhere and live.node == self._nodes.node:  # taken over, but its start failed half-way
                    await self.owns(live)
                return

    async def as_now(self, states: Sequence[SessionState]) -> list[SessionState]:
        """See `sessions.Neighbours`."""
        return await self.following.as_now(states)

    async def is_watched(self, live: LiveSession) -> bool:
        """Whether somebody reads a session, here or at another server, as far as they say so in time."""
        return live.readers > 0 or (not self.is_alone and await self._watching.elsewhere(live.state.session_id))

    def committed(self, batch: Sequence[Append]) -> None:
        """Tell the others that sessions went on."""
        if not self._ownership.is_alone:
            self.elsewhere.send(batch, self._nodes.node)
            self.following.send(batch)

    def _hear_changed(self, payload: str) -> None:
        self.elsewhere.hear(payload, self._nodes.node)
