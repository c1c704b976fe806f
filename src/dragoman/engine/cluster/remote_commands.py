"""Orders: what one server has another one do to a session whose run is played there, and the answers to them.

    who asks     writes the order down, gives a hint of it, and looks for the answer
    who plays    takes up what it is asked, does it, and writes the answer down

One whose answer was not written is taken up again, so that doing an order twice has to be doing it once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import msgspec
import structlog

from dragoman.core.events import Replay, RunQueued
from dragoman.core.ids import RunId
from dragoman.core.refusals import Refused, SessionBusy, StoreUnavailable
from dragoman.engine.cluster.log_tailer import Following
from dragoman.engine.cluster.ownership import Ownership
from dragoman.engine.sessions.live_session import LiveSession
from dragoman.engine.sessions.registry import Sessions
from dragoman.ports import Asked, Bus, Ids, Nodes, Once

ASKED, ANSWERED = "asked", "answered"
"""Subjects of the bus: a server that is asked something; a request that was answered."""
ASKED_S = 1.0
"""How often it is looked what is asked, where no hint comes."""
ANSWERED_S = 0.25
"""How often it is looked for an answer, where no hint comes."""
ANSWER_S = 20.0
"""How long an answer is waited for: a run that is stopped has some seconds to give up."""
PAUSE_S = 0.03
"""Before it is tried again: to ask, where nobody plays the run any more; to read what is asked, where that failed."""

log = structlog.get_logger(__name__)


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Stop a run, or whatever is active and waits. `unwatched`: only if nobody reads it there."""

    run_id: RunId | None
    unwatched: bool = False


class Enqueue(msgspec.Struct, frozen=True, tag="enqueue"):
    """Let a run wait for the end of the active one."""

    queued: RunQueued
    once: Once | None


class Pace(msgspec.Struct, frozen=True, tag="pace"):
    """Change how a recording is played."""

    replay: Replay


Order = Stop | Enqueue | Pace


class Done(msgspec.Struct, frozen=True, tag="done"):
    """What an order did, and the event up to which it did it."""

    seq: int
    has_effect: bool = True


class Moved(msgspec.Struct, frozen=True, tag="moved"):
    """The session's run is not played here any more; nothing was done."""


class Denied(msgspec.Struct, frozen=True, tag="denied"):
    """The order was refused. `is_busy`: for what the session does; else the server cannot serve it now."""

    message: str
    is_busy: bool


Outcome = Done | Moved | Denied
_ORDERS: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)
_OUTCOMES: msgspec.json.Decoder[Outcome] = msgspec.json.Decoder(Outcome)
_ENCODER = msgspec.json.Encoder()


class Orders:
    """Both sides of it for one server."""

    def __init__(
        self,
        nodes: Nodes,
        *,
        bus: Bus,
        ids: Ids,
        sessions: Sessions,
        ownership: Ownership,
        following: Following,
        perform: Callable[[LiveSession, Order], Awaitable[Done | Moved]],
    ) -> None:
        """Args:
        nodes: where orders and answers are written down.
        bus: hints to and from the others.
        ids: for requests.
        sessions: those in memory.
        ownership: which of them are this server's.
        following: shows here what an order did there.
        perform: does what another server asks of a session whose run is played here.
        """
        self._nodes = nodes
        self._bus = bus
        self._new_id = ids.new
        self._sessions = sessions
        self._ownership = ownership
        self._following = following
        self._perform = perform
        self._is_asked = asyncio.Event()
        self._answered: dict[str, asyncio.Event] = {}
        self._removing: set[asyncio.Task[None]] = set()
        self._performing: dict[str, asyncio.Task[None]] = {}

    @property
    def hears(self) -> Sequence[tuple[str, Callable[[str], None]]]:
        """What is to be heard on which subjects of the bus."""
        return ((ASKED, self._hear_asked), (ANSWERED, self._hear_answered))

    def close(self) -> None:
        """Do nothing more. Who still waits for an answer finds this server gone."""
        for task in (*self._performing.values(), *self._removing):
            task.cancel()

    # --- asking ---------------------------------------------------------------------------------------------------

    async def ask(self, live: LiveSession, order: Order) -> Done | None:
        """Have the server that plays a session's run do something. None: there is none any more, and nothing was done.

        Raises:
            SessionBusy: it was refused.
            StoreUnavailable: nobody knows whether it was done.
        """
        request_id, heard = self._new_id(), asyncio.Event()
        node = await self._nodes.ask(request_id, live.state.session_id, _ENCODER.encode(order))
        if node is None:
            await asyncio.sleep(PAUSE_S)
            return None
        self._answered[request_id] = heard
        self._bus.publish(ASKED, node)
        try:
            async with asyncio.timeout(ANSWER_S):
                outcome = await self._outcome(request_id, heard)
        except TimeoutError:
            raise StoreUnavailable("the server that plays the run does not answer") from None
        finally:
            del self._answered[request_id]
            removing = asyncio.create_task(self._unask(request_id), name="unask")
            self._removing.add(removing)
            removing.add_done_callback(self._removing.discard)
        match outcome:
            case Denied(message, is_busy):
                raise SessionBusy(message) if is_busy else StoreUnavailable(message)
            case Done():
                await self._following.reach(live, outcome.seq)
                return outcome
            case _:
                await asyncio.sleep(PAUSE_S)
                return None

    async def _outcome(self, request_id: str, heard: asyncio.Event) -> Outcome:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWERED_S):
                    await heard.wait()
            heard.clear()
            answer, is_alive = await self._nodes.answered(request_id)
            if answer is not None:
                return _OUTCOMES.decode(answer)
            if not is_alive:
                return Moved()

    async def _unask(self, request_id: str) -> None:
        with suppress(StoreUnavailable):
            await self._nodes.unask(request_id)

    def _hear_answered(self, payload: str) -> None:
        heard = self._answered.get(payload)
        if heard is not None:
            heard.set()

    # --- being asked ----------------------------------------------------------------------------------------------

    def _hear_asked(self, payload: str) -> None:
        if payload == self._nodes.node:
            self._is_asked.set()

    async def serve(self) -> None:
        """Do what the others ask, until it is cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(ASKED_S):
                    await self._is_asked.wait()
            self._is_asked.clear()
            if self._ownership.is_alone:
                continue
            try:
                begun = set(self._performing)  # what ends meanwhile may still stand in what is read
                for asked in await self._nodes.asked():
                    if asked.request_id not in begun and asked.request_id not in self._performing:
                        task = asyncio.create_task(self._answer(asked), name=f"asked {asked.session_id}")
                        self._performing[asked.request_id] = task
                        task.add_done_callback(partial(self._performed, asked.request_id))
            except StoreUnavailable:
                await asyncio.sleep(PAUSE_S)
            except Exception:  # the root of a task that must go on
                log.exception("requests not served")
                await asyncio.sleep(PAUSE_S)

    def _performed(self, request_id: str, _: asyncio.Task[None]) -> None:
        self._performing.pop(request_id, None)

    async def _answer(self, asked: Asked) -> None:
        outcome: Outcome
        try:
            live = self._sessions.at_hand(asked.session_id)
            if live is None or not self._ownership.is_ours(live):
                outcome = Moved()
            else:
                live.holds += 1
                try:
                    outcome = await self._perform(live, _ORDERS.decode(asked.body))
                finally:
                    live.holds -= 1
        except Refused as refused:
            outcome = Denied(str(refused), isinstance(refused, SessionBusy))
        except Exception:  # the root of a task
            log.exception("request of another server failed", session_id=asked.session_id)
            outcome = Denied("the server that plays the run failed", is_busy=False)
        with suppress(StoreUnavailable):
            await self._nodes.answer(asked.request_id, _ENCODER.encode(outcome))
            self._bus.publish(ANSWERED, asked.request_id)
